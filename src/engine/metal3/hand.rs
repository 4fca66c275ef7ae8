//! One host: look, decide, and one write or one request, each told first, fenced, and compared right before it is sent.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::sync::watch;

use super::{HostSeen, Shared};
use crate::{
    engine::{
        act::{Stop, Told},
        decide::Guard,
        snapshot::Came,
    },
    fence::Permit,
    kubernetes::WriteError,
    model::host::{HostRow, Mode, Times},
    power::{
        Found,
        controller::{Limits, Sent, Step, Why, decide},
        redfish::{BmcError, Login, Power, System},
    },
};

/// Between looks at a host of which nothing is asked.
const IDLE: Duration = Duration::from_mins(1);
/// After a write: the watch brings what it did, and wakes us.
const NEWS: Duration = Duration::from_secs(5);
/// After what it was decided from has changed.
const STALE: Duration = Duration::from_millis(200);
/// After something went wrong on a host of which something is asked.
const FAILED: Duration = Duration::from_secs(5);
/// So many failures in a row are written into the host's status.
const FAILURES: u32 = 3;
/// Metal3's word for them.
const POWER_ERROR: &str = "power management error";

/// What was asked of the BMC for the step it is at, in boot time.
#[derive(Clone, Copy, Default)]
struct Asked {
    soft: Option<Duration>,
    hard: Option<Duration>,
    on: Option<Duration>,
}

pub(super) struct Hand {
    shared: Arc<Shared>,
    row: watch::Receiver<Arc<HostRow>>,
    /// The BMC, and the fields of the host that it was made from.
    bmc: Option<(String, Found)>,
    system: Option<System>,
    /// What it said last: a change counts when it is said twice.
    last: Option<Power>,
    asked: Asked,
    failures: u32,
}

/// Why a turn came to nothing.
enum Trouble {
    /// What it was decided from has changed.
    Stale,
    /// Something else.
    Failed(String),
}

impl From<Stop> for Trouble {
    fn from(Stop(came): Stop) -> Self {
        match came {
            Came::Failed(why) => Self::Failed(why),
            _ => Self::Stale,
        }
    }
}

impl From<BmcError> for Trouble {
    fn from(e: BmcError) -> Self {
        Self::Failed(e.to_string())
    }
}

impl Hand {
    pub(super) fn new(shared: Arc<Shared>, row: watch::Receiver<Arc<HostRow>>) -> Self {
        Self { shared, row, bmc: None, system: None, last: None, asked: Asked::default(), failures: 0 }
    }

    /// Until the task is aborted or the host is gone.
    pub(super) async fn run(mut self) {
        loop {
            let host = Arc::clone(&self.row.borrow_and_update());
            let rest = match self.turn(&host).await {
                Ok(rest) => {
                    self.failures = 0;
                    rest
                }
                Err(Trouble::Stale) => STALE,
                Err(Trouble::Failed(why)) => self.failed(&host, why).await,
            };
            tokio::select! {
                biased;
                changed = self.row.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// One look and at most one effect; how long to rest then, unless the host changes.
    async fn turn(&mut self, host: &HostRow) -> Result<Duration, Trouble> {
        // First what needs no word of the BMC: that a request is there is written down at once.
        let mut power = Power::Unknown;
        let mut step = self.decide(host, &power);
        if step == Step::Wait(Why::NoWord) {
            power = self.look(host).await?;
            step = self.decide(host, &power);
        }
        let boot = self.shared.actor.steady.now().boot;
        match &step {
            Step::Wait(why) => return self.wait(host, why).await,
            Step::Off(mode) => self.ask(host, &power, &step, Some(*mode)).await?,
            Step::On => self.ask(host, &power, &step, None).await?,
            Step::Register => {
                let status = json!({"provisioning": {"state": "externally provisioned"}, "operationalStatus": "OK"});
                self.write(host, "host register", "spec.externallyProvisioned", &status, boot).await?;
            }
            Step::Pending(at) => {
                self.asked = Asked::default();
                let times = Times { pending_reboot_since: Some(*at), ..host.times() };
                self.write_times(host, "host reboot asked", &by(host), times, None, boot).await?;
                return Ok(NEWS);
            }
            Step::SeenOff => {
                self.write(host, "host seen off", "the BMC says so", &json!({"poweredOn": false}), boot).await?;
                self.asked = Asked::default();
            }
            Step::SeenOn(None) => {
                self.write(host, "host seen on", "the BMC says so", &json!({"poweredOn": true}), boot).await?;
                self.asked = Asked::default();
            }
            Step::SeenOn(Some(at)) => {
                let times = Times { last_powered_on: Some(*at), ..host.times() };
                self.write_times(host, "host seen on", "the BMC says so", times, Some(true), boot).await?;
                self.asked = Asked::default();
            }
            Step::RemoveBase | Step::RemoveAll => {
                let all = step == Step::RemoveAll;
                let why = if all { "it is deprovisioned" } else { "it is off" };
                let (permit, told) = self.tell(host, "host reboot request removed", why, boot).await?;
                let written = self.shared.actor.kube.end_requests(&permit, host, all).await;
                self.came_of(told, written)?;
            }
        }
        let asks = matches!(step, Step::Off(_) | Step::On);
        Ok(if asks { self.poll() } else { NEWS })
    }

    fn decide(&self, host: &HostRow, power: &Power) -> Step {
        let now = self.shared.actor.steady.now();
        let ago = |at: Option<Duration>| at.map(|at| now.boot.saturating_sub(at));
        let sent = Sent { soft: ago(self.asked.soft), hard: ago(self.asked.hard), on: ago(self.asked.on) };
        decide(host, power, &sent, &self.limits(), now.wall)
    }

    fn limits(&self) -> Limits {
        let patience = self.bmc.as_ref().map(|(_, found)| found.patience).unwrap_or_default();
        Limits { soft: patience.soft, hard: patience.off, on: patience.on }
    }

    fn poll(&self) -> Duration {
        self.bmc.as_ref().map(|(_, found)| found.patience).unwrap_or_default().poll
    }

    /// Shows why nothing is done, and says how long to rest.
    async fn wait(&mut self, host: &HostRow, why: &Why) -> Result<Duration, Trouble> {
        self.show(host, why.to_string(), None);
        if host.error_type == POWER_ERROR && self.last.is_some() && *why != Why::NoWord {
            let status = json!({"errorType": null, "errorMessage": "", "operationalStatus": "OK"});
            let boot = self.shared.actor.steady.now().boot;
            self.write(host, "host error over", "the BMC answers again", &status, boot).await?;
            return Ok(NEWS);
        }
        Ok(match why {
            Why::NoWord | Why::Asked(_) => self.poll(),
            // Somebody may press the button.
            Why::Held(_) => self.poll() * 5,
            Why::Idle | Why::StaysOff | Why::Hindered(_) => {
                if let Some((_, found)) = &self.bmc {
                    found.bmc.close().await;
                }
                IDLE
            }
        })
    }

    /// What the BMC says. What differs from the host's status counts when it is said twice in a row.
    async fn look(&mut self, host: &HostRow) -> Result<Power, Trouble> {
        let quiet = host.asked.is_empty() && !host.pending() && host.powered_on == Some(host.online);
        let shared = Arc::clone(&self.shared);
        let _turn = if quiet { shared.asked_at_once.acquire().await.ok() } else { None };
        self.reach(host).await?;
        let Some((_, found)) = &self.bmc else { return Ok(Power::Unknown) };
        let seen = match &self.system {
            Some(known) => found.bmc.again(known).await,
            None => found.bmc.system().await,
        };
        let system = match seen {
            Ok(system) => system,
            Err(e) => {
                // Its password may have changed, or its system another path: from the start next time.
                (self.bmc, self.system, self.last) = (None, None, None);
                return Err(e.into());
            }
        };
        let power = system.power.clone();
        self.system = Some(system);
        let known = matches!((&power, host.powered_on), (Power::On, Some(true)) | (Power::Off, Some(false)));
        let counts = known || self.last.as_ref() == Some(&power);
        self.last = Some(power.clone());
        Ok(if counts { power } else { Power::Unknown })
    }

    /// Finds the host's BMC, where it is not known or the host says another.
    async fn reach(&mut self, host: &HostRow) -> Result<(), Trouble> {
        let key = format!("{} {} {}", host.bmc_address, host.credentials, host.any_certificate);
        if self.bmc.as_ref().is_some_and(|(known, _)| *known == key) {
            return Ok(());
        }
        let login = if host.credentials.is_empty() {
            None
        } else {
            let (space, name) = (&host.namespace, &host.credentials);
            let found = self.shared.actor.kube.credentials(space, name).await;
            let found = found.map_err(|e| Trouble::Failed(format!("Secret {space}/{name}: {e}")))?;
            let missing = || Trouble::Failed(format!("Secret {space}/{name} is missing, or its username or password"));
            let found = found.ok_or_else(missing)?;
            Some(Login { username: found.username, password: found.password })
        };
        let found = self.shared.reach.of_host(host, login).map_err(|e| Trouble::Failed(e.to_string()))?;
        if let Some(warning) = &found.warning {
            tracing::warn!(host = host.full_name(), warning);
        }
        (self.bmc, self.system, self.last) = (Some((key, found)), None, None);
        Ok(())
    }

    /// Asks the BMC for an off (with its mode) or an on. The host is read again from a quorum right before: nobody's key
    /// may have come (I44).
    async fn ask(&mut self, host: &HostRow, power: &Power, step: &Step, mode: Option<Mode>) -> Result<(), Trouble> {
        let fresh = self.shared.actor.kube.host(&host.namespace, &host.name).await;
        let fresh = fresh.map_err(|e| Trouble::Failed(e.to_string()))?.ok_or(Trouble::Stale)?;
        let boot = self.shared.actor.steady.now().boot;
        if fresh.uid != host.uid || self.decide(&fresh, power) != *step {
            return Err(Trouble::Stale);
        }
        let (Some((_, found)), Some(system)) = (&self.bmc, &self.system) else { return Err(Trouble::Stale) };
        let what = match mode {
            Some(mode) => format!("host off ({mode})"),
            None => "host on".to_owned(),
        };
        let (_permit, told) = self.tell(host, &what, &by(&fresh), boot).await?;
        self.show(host, what.clone(), None);
        let answer = match mode {
            Some(mode) => found.bmc.ask_off(system, mode).await,
            None => found.bmc.ask_on(system).await,
        };
        let result = answer.as_ref().map_or_else(ToString::to_string, |kind| format!("{kind} sent"));
        self.shared.actor.came_of(told, result);
        let (limits, now) = (self.limits(), self.shared.actor.steady.now().boot);
        let failed = answer.is_err();
        // What was refused is asked again soon, and a soft off at once harder.
        let at = |limit: Duration| if failed { now.saturating_sub(limit.saturating_sub(FAILED)) } else { now };
        match mode {
            Some(Mode::Soft) => self.asked.soft = Some(if failed { now.saturating_sub(limits.soft) } else { now }),
            Some(Mode::Hard) => self.asked.hard = Some(at(limits.hard)),
            None => self.asked.on = Some(at(limits.on)),
        }
        match answer {
            // A soft one that fails is not in vain: a hard one follows.
            Err(e) if mode != Some(Mode::Soft) => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Writes the timestamps, with `poweredOn` where it is given, in one patch; where the server drops them, first into
    /// our annotation: a crash in between repeats the second write and not the cycle.
    async fn write_times(
        &mut self,
        host: &HostRow,
        what: &str,
        why: &str,
        times: Times,
        powered_on: Option<bool>,
        decided: Duration,
    ) -> Result<(), Trouble> {
        let shared = Arc::clone(&self.shared);
        let now = shared.actor.steady.now().wall;
        let keeps = shared.keeps.get_or_try_init(|| shared.actor.kube.keeps_times(host, now)).await;
        let keeps = *keeps.map_err(|e| trouble(&e))?;
        let mut status = powered_on.map_or_else(|| json!({}), |on| json!({"poweredOn": on}));
        let mut row = host.clone();
        if keeps {
            status["provisioning"] = json!(times);
        } else {
            tracing::warn!("the server's BareMetalHosts drop the timestamps: kept in our annotation instead");
            shared.show(|seen| seen.drops_times = true);
            let (permit, told) = self.tell(host, what, why, decided).await?;
            row = self.came_of(told, shared.actor.kube.keep_times(&permit, host, times).await)?;
        }
        if keeps || powered_on.is_some() {
            self.write(&row, what, why, &status, decided).await?;
        }
        Ok(())
    }

    async fn write(
        &mut self,
        host: &HostRow,
        what: &str,
        why: &str,
        status: &serde_json::Value,
        decided: Duration,
    ) -> Result<(), Trouble> {
        let (permit, told) = self.tell(host, what, why, decided).await?;
        let written = self.shared.actor.kube.set_host_status(&permit, host, status).await;
        self.came_of(told, written)?;
        self.show(host, what.to_owned(), None);
        Ok(())
    }

    /// Tells what is about to be done; the permit is for the effect itself.
    async fn tell(&self, host: &HostRow, what: &str, why: &str, decided: Duration) -> Result<(Permit, Told), Trouble> {
        let permit = self.permit(decided)?;
        let on = format!("host {}", host.full_name());
        let told = self.shared.actor.tell(&permit, what, &on, Some(why.to_owned())).await?;
        match self.permit(decided) {
            Ok(permit) => Ok((permit, told)),
            Err(trouble) => {
                self.shared.actor.came_of(told, "not done: its moment had passed".to_owned());
                Err(trouble)
            }
        }
    }

    /// Leave for one effect: we lead, with margin, and the policy still asks for it.
    fn permit(&self, decided: Duration) -> Result<Permit, Trouble> {
        if !self.shared.actor.live.borrow().policy().metal3_controller {
            return Err(Trouble::Stale);
        }
        Ok(self.shared.actor.permit(&Guard::default(), decided)?)
    }

    fn came_of(&self, told: Told, written: Result<HostRow, WriteError>) -> Result<HostRow, Trouble> {
        let result = written.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        self.shared.actor.came_of(told, result);
        written.map_err(|e| trouble(&e))
    }

    /// Shows what went wrong; when it lasts, in the host's status too. How long to rest.
    async fn failed(&mut self, host: &HostRow, why: String) -> Duration {
        tracing::warn!(host = host.full_name(), why, "Metal3 controller");
        self.failures = self.failures.saturating_add(1);
        self.show(host, "tries again".to_owned(), Some(why.clone()));
        let writes = self.failures >= FAILURES && host.provisioned() && !host.paused && !host.detached;
        if writes && host.error_type.is_empty() {
            let status = json!({"errorType": POWER_ERROR, "errorMessage": why, "operationalStatus": "error"});
            let boot = self.shared.actor.steady.now().boot;
            // It is shown here as well: what fails now is written the next time.
            let _ = self.write(host, "host error", "power", &status, boot).await;
        }
        let quiet = host.asked.is_empty() && !host.pending() && host.powered_on.is_some();
        if quiet { IDLE } else { FAILED }
    }

    fn show(&self, host: &HostRow, doing: String, error: Option<String>) {
        let power = self.last.as_ref().map(ToString::to_string);
        let seen = HostSeen { power, doing, error };
        self.shared.show(|board| {
            board.hosts.insert(host.full_name(), seen);
        });
    }
}

fn trouble(e: &WriteError) -> Trouble {
    match e {
        // Read again before anything else.
        WriteError::Conflict | WriteError::NotFound | WriteError::NoAnswer(_) => Trouble::Stale,
        WriteError::Refused { .. } => Trouble::Failed(e.to_string()),
    }
}

/// Who asked, for the audit.
fn by(host: &HostRow) -> String {
    let base = host.asked.base.iter().map(|_| "reboot.metal3.io".to_owned());
    let names: Vec<String> = base.chain(host.asked.keys.keys().cloned()).collect();
    if names.is_empty() { "spec.online".to_owned() } else { format!("asked by {}", names.join(", ")) }
}

//! One host: look, decide, do one thing, rest. What is done is in `action`.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::watch;

use super::{HostSeen, Shared, host_action::by, shutdown::stands};
use crate::{
    engine::{act::Stop, snapshot::EffectOutcome},
    model::host::{HostRow, Times},
    mutation::{self, Mutation},
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
pub(super) const FAILED: Duration = Duration::from_secs(5);
/// So many failures in a row are written into the host's status.
const FAILURES: u32 = 3;
/// So many characters of an error are shown, logged and written into the host's status.
const LONGEST: usize = 1000;
/// Metal3's word for them.
const POWER_ERROR: &str = "power management error";

/// What was asked of the BMC for the step it is at, in boot time.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    pub(super) soft: Option<Duration>,
    pub(super) hard: Option<Duration>,
    pub(super) on: Option<Duration>,
}

pub(super) struct HostReconciler {
    pub(super) shared: Arc<Shared>,
    row: watch::Receiver<Arc<HostRow>>,
    /// The BMC, and the fields of the host that it was made from.
    pub(super) bmc: Option<(String, Found)>,
    pub(super) system: Option<System>,
    /// What it said last: a change counts when it is said twice.
    last: Option<Power>,
    pub(super) asked: Asked,
    /// The request, by its time, for which this hand told the machine to go off. It stays until that is over: the host that
    /// is seen may be an old one.
    pub(super) told: Option<Timestamp>,
    /// The request that was there when it was taken up, and when that was in boot time: an engine before us may have told
    /// the machine to go off.
    found: (Option<Timestamp>, Duration),
    failures: u32,
}

/// Why a turn came to nothing.
pub(super) enum Trouble {
    /// What it was decided from has changed.
    Stale,
    /// Something else.
    Failed(String),
}

impl From<Stop> for Trouble {
    fn from(Stop(came): Stop) -> Self {
        match came {
            EffectOutcome::Failed(why) => Self::Failed(why),
            _ => Self::Stale,
        }
    }
}

impl From<BmcError> for Trouble {
    fn from(e: BmcError) -> Self {
        Self::Failed(e.to_string())
    }
}

impl HostReconciler {
    pub(super) fn new(shared: Arc<Shared>, row: watch::Receiver<Arc<HostRow>>) -> Self {
        let pending = Some(row.borrow()).filter(|host| host.pending()).and_then(|host| host.pending_reboot_since);
        let found = (pending, shared.actor.steady.now().boot);
        let asked = Asked::default();
        Self { shared, row, bmc: None, system: None, last: None, asked, told: None, found, failures: 0 }
    }

    /// Until the task is aborted, the host is gone, or nothing is begun any more and this was not.
    pub(super) async fn run(mut self) {
        let mut wound = self.shared.wound.subscribe();
        loop {
            let host = Arc::clone(&self.row.borrow_and_update());
            wound.mark_unchanged();
            let ends = self.note(&host) && !mutation::on(Mutation::HalfForgotten);
            if !ends && self.shared.winds_down() {
                self.shared.note_waiting(&host);
                return;
            }
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
                _ = wound.changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// A power cycle of it is under way: it was told to go off, or is off and not on again yet, by the host's word or the
    /// BMC's.
    pub(super) fn begun(&self, host: &HostRow) -> bool {
        let told = self.told.is_some() && self.told == host.pending_reboot_since;
        let off = host.powered_on == Some(false) || self.last == Some(Power::Off);
        host.pending() && stands(host) && (told || off)
    }

    /// It is on, with a request that was there when we came: it may go off still, as long as an off takes.
    fn may_be_begun(&self, host: &HostRow) -> bool {
        let (pending, taken) = self.found;
        let (limits, now) = (self.limits(), self.shared.actor.steady.now().boot);
        let fresh = now.saturating_sub(taken) < limits.soft.saturating_add(limits.hard);
        fresh && pending.is_some() && pending == host.pending_reboot_since && host.pending() && stands(host)
    }

    /// Notes how far it is; whether there is something to end.
    pub(super) fn note(&self, host: &HostRow) -> bool {
        let ends = self.begun(host) || self.may_be_begun(host);
        self.shared.note_half(host, ends);
        ends
    }

    /// An effect may follow.
    fn may(&self, host: &HostRow) -> bool {
        self.begun(host) || !self.shared.winds_down()
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
        if !matches!(step, Step::Wait(_)) && !self.may(host) {
            return Ok(self.poll());
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

    pub(super) fn decide(&self, host: &HostRow, power: &Power) -> Step {
        let now = self.shared.actor.steady.now();
        let ago = |at: Option<Duration>| at.map(|at| now.boot.saturating_sub(at));
        let sent = Sent { soft: ago(self.asked.soft), hard: ago(self.asked.hard), on: ago(self.asked.on) };
        decide(host, power, &sent, &self.limits(), now.wall)
    }

    pub(super) fn limits(&self) -> Limits {
        let patience = self.bmc.as_ref().map(|(_, found)| found.patience).unwrap_or_default();
        Limits { soft: patience.soft, hard: patience.off, on: patience.on }
    }

    fn poll(&self) -> Duration {
        self.bmc.as_ref().map(|(_, found)| found.patience).unwrap_or_default().poll
    }

    /// Shows why nothing is done, and says how long to rest.
    async fn wait(&mut self, host: &HostRow, why: &Why) -> Result<Duration, Trouble> {
        self.show(host, why.to_string(), None);
        if host.error_type == POWER_ERROR && self.last.is_some() && *why != Why::NoWord && self.may(host) {
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
        let file = self.shared.reach.version();
        let key = format!("{} {} {} {file:?}", host.bmc_address, host.credentials, host.any_certificate);
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

    /// Shows what went wrong; when it lasts, in the host's status too. How long to rest.
    async fn failed(&mut self, host: &HostRow, why: String) -> Duration {
        let why: String = why.chars().take(LONGEST).collect();
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

    pub(super) fn show(&self, host: &HostRow, doing: String, error: Option<String>) {
        let power = self.last.as_ref().map(ToString::to_string);
        let seen = HostSeen { power, doing, error };
        self.shared.show(|board| {
            board.hosts.insert(host.full_name(), seen);
        });
    }
}

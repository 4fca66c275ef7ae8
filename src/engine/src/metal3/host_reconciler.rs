//! Reconciliation of one host: read, decide, do one step, wait (MET-35). The steps are in `host_action`.

mod host_action;

use std::{sync::Arc, time::Duration};

use cketerm_clients::power::{Found, PowerError, redfish::Login};
use cketerm_model::{
    boot_time::BootTime,
    fault,
    host::{HostRow, Times},
    power_state::PowerState,
};
use cketerm_rules::{
    metal3::{
        HostSeen,
        controller::{Limits, Sent, Step, Why, decide},
    },
    snapshot::EffectOutcome,
};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::watch;

use self::host_action::requested_by;
use super::{Shared, shutdown::is_present};
use crate::act::Stop;

/// Time between two reads of a host without a request.
const IDLE: Duration = Duration::from_mins(1);
/// Longest wait after a write. The watch reports the write's effect earlier.
const WRITE_EFFECT_WAIT: Duration = Duration::from_secs(5);
/// Wait after the decision's inputs have changed.
const STALE_RETRY: Duration = Duration::from_millis(200);
/// Wait after an error on a host with a request.
const FAILURE_RETRY: Duration = Duration::from_secs(5);
/// Number of failures in a row after which the error is written into the host's status (MET-53).
const FAILURES: u32 = 3;
/// Number of characters of an error that are shown, logged and written into the host's status.
const LONGEST: usize = 1000;
/// Metal3's `errorType` for power errors.
const POWER_ERROR: &str = "power management error";

/// Boot times of the requests sent to the BMC for the current step.
#[derive(Clone, Copy, Default)]
struct SentOrders {
    soft: Option<BootTime>,
    hard: Option<BootTime>,
    on: Option<BootTime>,
}

pub(super) struct HostReconciler {
    shared: Arc<Shared>,
    row: watch::Receiver<Arc<HostRow>>,
    /// The BMC, and the fields of the host that it was made from.
    bmc: Option<(String, Found)>,
    /// Last answer of this BMC; none = it has not answered yet. A change counts when it was reported twice (MET-48).
    last: Option<PowerState>,
    sent_orders: SentOrders,
    /// Time of the request for which this task ordered the machine to power off. It stays until the cycle is over,
    /// because the observed host may be an old version.
    ordered_off_for: Option<Timestamp>,
    /// The request that existed when this task started, and the boot time of the start. An earlier engine may have
    /// ordered the machine to power off.
    found: (Option<Timestamp>, BootTime),
    failures: u32,
}

/// Reason why a turn came to nothing.
enum Trouble {
    /// The decision's inputs have changed.
    Stale,
    /// Another error.
    Failed(String),
}

impl From<Stop> for Trouble {
    fn from(Stop(outcome): Stop) -> Self {
        match outcome {
            EffectOutcome::Failed(why) => Self::Failed(why),
            EffectOutcome::Done
            | EffectOutcome::Stale(_)
            | EffectOutcome::Rechecked(_)
            | EffectOutcome::Previewed(_)
            | EffectOutcome::Explained(_)
            | EffectOutcome::Answers(_)
            | EffectOutcome::Check(_)
            | EffectOutcome::Command(_)
            | EffectOutcome::TooLarge(_)
            | EffectOutcome::Lost => Self::Stale,
        }
    }
}

impl From<PowerError> for Trouble {
    fn from(e: PowerError) -> Self {
        Self::Failed(e.to_string())
    }
}

impl HostReconciler {
    pub(super) fn new(shared: Arc<Shared>, row: watch::Receiver<Arc<HostRow>>) -> Self {
        let pending = Some(row.borrow()).filter(|host| host.pending()).and_then(|host| host.pending_reboot_since);
        let found = (pending, shared.actor.steady.now().boot);
        let sent_orders = SentOrders::default();
        Self { shared, row, bmc: None, last: None, sent_orders, ordered_off_for: None, found, failures: 0 }
    }

    /// Runs until the task is aborted, the host is gone, or no cycle may begin any more and this host has none under
    /// way.
    pub(super) async fn run(mut self) {
        let mut shutdown_signal = self.shared.shutdown_signal.subscribe();
        loop {
            let host = Arc::clone(&self.row.borrow_and_update());
            shutdown_signal.mark_unchanged();
            let ends = self.note_cycle(&host);
            fault!(PowerCycleForgotten => ends = false);
            if !ends && self.shared.is_shutting_down() {
                self.shared.note_waiting(&host);
                return;
            }
            let rest = match self.reconcile(&host).await {
                Ok(rest) => {
                    self.failures = 0;
                    rest
                }
                Err(Trouble::Stale) => STALE_RETRY,
                Err(Trouble::Failed(why)) => self.failed(&host, why).await,
            };
            tokio::select! {
                biased;
                changed = self.row.changed() => if changed.is_err() { return },
                _ = shutdown_signal.changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// Reports whether a power cycle of the host is under way (MET-56). The machine was ordered to power off, or it is
    /// off and not on again yet, according to the host's status or the BMC.
    fn is_cycle_under_way(&self, host: &HostRow) -> bool {
        let ordered_off = self.ordered_off_for.is_some() && self.ordered_off_for == host.pending_reboot_since;
        let off = host.powered_on == Some(false) || self.last == Some(PowerState::Off);
        host.pending() && is_present(host) && (ordered_off || off)
    }

    /// Reports whether a cycle may be under way although the machine is on. The request was there when this task
    /// started, and the machine may still power off for as long as that takes.
    fn may_be_under_way(&self, host: &HostRow) -> bool {
        let (pending, taken) = self.found;
        let (limits, now) = (self.limits(), self.shared.actor.steady.now().boot);
        let fresh = now.saturating_duration_since(taken) < limits.soft.saturating_add(limits.hard);
        fresh && pending.is_some() && pending == host.pending_reboot_since && host.pending() && is_present(host)
    }

    /// Notes the state of the host's cycle; reports whether there is a cycle to end.
    fn note_cycle(&self, host: &HostRow) -> bool {
        let ends = self.is_cycle_under_way(host) || self.may_be_under_way(host);
        self.shared.note_power_cycle(host, ends);
        ends
    }

    /// Reports whether an action may follow.
    fn may(&self, host: &HostRow) -> bool {
        self.is_cycle_under_way(host) || !self.shared.is_shutting_down()
    }

    /// Runs one read and at most one action; returns how long to wait then, unless the host changes.
    async fn reconcile(&mut self, host: &HostRow) -> Result<Duration, Trouble> {
        // Steps that need no answer of the BMC come first: a new request is written to the status at once.
        let mut power = PowerState::Unknown;
        let mut step = self.decide(host, &power);
        if step == Step::Wait(Why::UnknownPower) {
            power = self.query_power(host).await?;
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
                self.sent_orders = SentOrders::default();
                let times = Times { pending_reboot_since: Some(*at), ..host.times() };
                self.write_times(host, "host reboot asked", &requested_by(host), times, None, boot).await?;
                return Ok(WRITE_EFFECT_WAIT);
            }
            Step::SeenOff => {
                self.write(host, "host seen off", "reported by the BMC", &json!({"poweredOn": false}), boot).await?;
                self.sent_orders = SentOrders::default();
            }
            Step::SeenOn(None) => {
                self.write(host, "host seen on", "reported by the BMC", &json!({"poweredOn": true}), boot).await?;
                self.sent_orders = SentOrders::default();
            }
            Step::SeenOn(Some(at)) => {
                let times = Times { last_powered_on: Some(*at), ..host.times() };
                self.write_times(host, "host seen on", "reported by the BMC", times, Some(true), boot).await?;
                self.sent_orders = SentOrders::default();
            }
            Step::RemoveBase | Step::RemoveAll => {
                let all = step == Step::RemoveAll;
                let why = if all { "it is deprovisioned" } else { "it is off" };
                let (permit, intent) = self.record_intent(host, "host reboot request removed", why, boot).await?;
                let written = self.shared.actor.kube.remove_reboot_requests(&permit, host, all).await;
                self.record_outcome(intent, written)?;
            }
        }
        let asks = matches!(step, Step::Off(_) | Step::On);
        Ok(if asks { self.poll() } else { WRITE_EFFECT_WAIT })
    }

    fn decide(&self, host: &HostRow, power: &PowerState) -> Step {
        let now = self.shared.actor.steady.now();
        let ago = |at: Option<BootTime>| at.map(|at| now.boot.saturating_duration_since(at));
        let sent =
            Sent { soft: ago(self.sent_orders.soft), hard: ago(self.sent_orders.hard), on: ago(self.sent_orders.on) };
        decide(host, power, &sent, &self.limits(), now.wall)
    }

    fn limits(&self) -> Limits {
        let timeouts = self.bmc.as_ref().map(|(_, found)| found.timeouts).unwrap_or_default();
        Limits { soft: timeouts.soft, hard: timeouts.off, on: timeouts.on }
    }

    fn poll(&self) -> Duration {
        self.bmc.as_ref().map(|(_, found)| found.timeouts).unwrap_or_default().poll
    }

    /// Publishes why nothing is done; returns how long to wait.
    async fn wait(&mut self, host: &HostRow, why: &Why) -> Result<Duration, Trouble> {
        self.show(host, why.to_string(), None);
        if host.error_type == POWER_ERROR && self.last.is_some() && *why != Why::UnknownPower && self.may(host) {
            let status = json!({"errorType": null, "errorMessage": "", "operationalStatus": "OK"});
            let boot = self.shared.actor.steady.now().boot;
            self.write(host, "host error over", "the BMC answers again", &status, boot).await?;
            return Ok(WRITE_EFFECT_WAIT);
        }
        Ok(match why {
            Why::UnknownPower | Why::Requested(_) => self.poll(),
            // Somebody may press the power button.
            Why::Held(_) => self.poll() * 5,
            Why::Idle | Why::StaysOff | Why::Hindered(_) => {
                if let Some((_, found)) = &self.bmc {
                    found.driver.close().await;
                }
                IDLE
            }
        })
    }

    /// Queries the BMC. An answer that differs from the host's status counts when it was given twice in a row (MET-48).
    async fn query_power(&mut self, host: &HostRow) -> Result<PowerState, Trouble> {
        let quiet = host.asked.is_empty() && !host.pending() && host.powered_on == Some(host.online);
        let shared = Arc::clone(&self.shared);
        let _turn = if quiet { shared.asked_at_once.acquire().await.ok() } else { None };
        self.reach(host).await?;
        let Some((_, found)) = &self.bmc else { return Ok(PowerState::Unknown) };
        let power = match found.driver.read_again().await {
            Ok(machine) => machine.power,
            Err(e) => {
                // The password may have changed, or the system may have another path. The next turn starts from
                // scratch.
                (self.bmc, self.last) = (None, None);
                return Err(e.into());
            }
        };
        let known = matches!((&power, host.powered_on), (PowerState::On, Some(true)) | (PowerState::Off, Some(false)));
        let counts = known || self.last.as_ref() == Some(&power);
        self.last = Some(power.clone());
        Ok(if counts { power } else { PowerState::Unknown })
    }

    /// Finds the host's BMC, if it is unknown or the host names another one.
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
        (self.bmc, self.last) = (Some((key, found)), None);
        Ok(())
    }

    /// Publishes an error, also in the host's status if it lasts; returns how long to wait.
    async fn failed(&mut self, host: &HostRow, why: String) -> Duration {
        let why: String = why.chars().take(LONGEST).collect();
        tracing::warn!(host = host.full_name(), why, "the Metal3 controller cannot process the host; retrying");
        self.failures = self.failures.saturating_add(1);
        self.show(host, "retrying".to_owned(), Some(why.clone()));
        let writes = self.failures >= FAILURES && host.provisioned() && !host.paused && !host.detached;
        if writes && host.error_type.is_empty() {
            let status = json!({"errorType": POWER_ERROR, "errorMessage": why, "operationalStatus": "error"});
            let boot = self.shared.actor.steady.now().boot;
            // The error is published by cketerm too, and a failed write is repeated next time.
            let _ = self.write(host, "host error", "power", &status, boot).await;
        }
        let quiet = host.asked.is_empty() && !host.pending() && host.powered_on.is_some();
        if quiet { IDLE } else { FAILURE_RETRY }
    }

    fn show(&self, host: &HostRow, doing: String, error: Option<String>) {
        let power = self.last.as_ref().map(ToString::to_string);
        let seen = HostSeen { power, doing, error };
        self.shared.show(|metal3_state| {
            metal3_state.hosts.insert(host.full_name(), seen);
        });
    }
}

#[cfg(test)]
mod tests;

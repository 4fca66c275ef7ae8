//! End of the controller role: no cycle begins any more, and every cycle that has begun is finished. A machine between
//! off and on must not stay off (SAF-7, MET-55 to MET-59). The same holds for cycles that an earlier engine left.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use cketerm_model::{
    fault,
    host::{Hindrance, HostRow},
};
use cketerm_rules::metal3::controller::MANAGER;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use super::{Controller, Shared};
use crate::act::named;

/// Longest wait until all hosts have been searched for cycles without a task.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait of a resignation for cycles under way. A machine is worth some delay. But a dead BMC, or an unanswered
/// search for another controller, must not leave the cluster without a leader for ever.
const TIMEOUT: Duration = Duration::from_mins(10);

/// State of a resignation that waits.
pub(super) struct Retiring {
    since: Instant,
    /// Records the remaining cycles after the timeout.
    recording: Option<JoinHandle<()>>,
}

/// Hosts whose power cycle is under way, by namespace and name.
pub(crate) type InterruptedPowerCycles = BTreeMap<(String, String), InterruptedPowerCycle>;

/// State of an unfinished power cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InterruptedPowerCycle {
    /// The machine was ordered to power off, is about to be, or must be powered on.
    Moving,
    /// The machine stays off for now, and no engine can finish the cycle. Holds the reason.
    Stays(String),
}

/// Reports whether the resource shows an unfinished cycle, and nobody but cketerm has ever written the host's power. A
/// dead engine leaves no other trace.
pub(super) fn unfinished(host: &HostRow) -> bool {
    let only_own_writes = host.power_writers.iter().all(|(manager, _)| manager == MANAGER);
    fault!(PowerCycleForgotten => return false);
    only_own_writes && host.pending() && host.powered_on.is_some() && is_present(host)
}

/// Reports whether the host exists and has its image. A machine that is being deprovisioned or deleted is not cketerm's
/// task.
pub(super) fn is_present(host: &HostRow) -> bool {
    host.provisioned() && !host.deleting
}

impl InterruptedPowerCycle {
    /// Returns the state of a host's cycle; none = the host is in its wanted state.
    fn of(host: &HostRow) -> Option<Self> {
        let off = host.powered_on == Some(false);
        if off && !host.online {
            return None;
        }
        Some(match host.hindrance() {
            Some(why @ (Hindrance::Paused | Hindrance::Detached | Hindrance::PowerOffDisabled)) => {
                Self::Stays(why.to_string())
            }
            _ if off && !host.asked.keys.is_empty() => {
                let keys: Vec<&str> = host.asked.keys.keys().map(String::as_str).collect();
                let keys = keys.join(", ");
                Self::Stays(format!("held off by {keys}; no engine is left to power it on when they release it"))
            }
            _ => Self::Moving,
        })
    }
}

impl Shared {
    /// Reports whether the policy no longer enables the role, or this engine ends or resigns.
    pub(super) fn is_ending(&self) -> bool {
        let is_ending = self.actor.ending.load(Ordering::SeqCst) || self.retires.load(Ordering::SeqCst);
        is_ending || !self.actor.live.borrow().policy().metal3_controller
    }

    /// Reports whether no cycle may begin any more, because the role ends or another controller runs or may run. It is
    /// checked right before every action, after [`Self::note_power_cycle`]. So once it is true and no host is noted, no
    /// machine gets a power-off request.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.barred_by().is_some() || self.is_ending()
    }

    fn barred_by(&self) -> Option<String> {
        self.barred.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wakes all host tasks if the state has changed; reports whether the role shuts down.
    pub(super) fn signal_shutdown(&self) -> bool {
        let shutting_down = self.is_shutting_down();
        self.shutdown_signal
            .send_if_modified(|shutdown_signal| std::mem::replace(shutdown_signal, shutting_down) != shutting_down);
        shutting_down
    }

    /// Notes the state of this host's cycle; `begun` = the cycle is under way, or is about to be.
    pub(super) fn note_power_cycle(&self, host: &HostRow, begun: bool) {
        let place = (host.namespace.clone(), host.name.clone());
        let interrupted = if begun { InterruptedPowerCycle::of(host) } else { None };
        self.interrupted_cycles.send_if_modified(|interrupted_cycles| match interrupted {
            Some(interrupted) => interrupted_cycles.insert(place, interrupted.clone()).as_ref() != Some(&interrupted),
            None => interrupted_cycles.remove(&place).is_some(),
        });
    }

    /// Notes that the machine got no power-off request for the present reboot request.
    pub(super) fn note_waiting(&self, host: &HostRow) {
        if let Some(since) = host.pending_reboot_since.filter(|_| host.pending()) {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.insert((host.namespace.clone(), host.name.clone()), since);
        }
    }

    pub(super) fn never_began(&self, host: &HostRow) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (host.namespace.clone(), host.name.clone());
        waiting.get(&place).is_some_and(|since| Some(*since) == host.pending_reboot_since)
    }

    /// Returns the cycles under way that can be finished, as text; none = there are none.
    fn pending_cycles(&self) -> Option<String> {
        let interrupted_cycles = self.interrupted_cycles.borrow();
        let moving =
            interrupted_cycles.iter().filter(|(_, interrupted)| **interrupted == InterruptedPowerCycle::Moving);
        let hosts: Vec<String> = moving.map(|((namespace, name), _)| format!("{namespace}/{name}")).collect();
        if hosts.is_empty() {
            return (!*self.surveyed.borrow()).then(|| "looking for unfinished power cycles".to_owned());
        }
        let barred = self.barred_by().map(|why| format!(" ({why})")).unwrap_or_default();
        Some(format!("waits for the power cycle of {}{barred}", named(hosts.into_iter())))
    }

    /// Records the remaining cycles in the log and in the audit of each host (MET-59).
    async fn record_unfinished_cycles(self: Arc<Self>) {
        let left = self.interrupted_cycles.borrow().clone();
        for ((namespace, name), interrupted) in left {
            let host = format!("{namespace}/{name}");
            let why = match interrupted {
                InterruptedPowerCycle::Stays(why) => why,
                InterruptedPowerCycle::Moving => {
                    "its power cycle is unfinished, and no engine is left to power it on".to_owned()
                }
            };
            tracing::error!(host, why, "HOST STAYS OFF until an engine leads again: start one");
            let decided = self.actor.steady.now().boot;
            let Ok(permit) = self.actor.permit_to_finish(decided) else { continue };
            if let Ok(recording) =
                self.actor.record_intent(&permit, "host left off", &format!("host {host}"), Some(why)).await
            {
                self.actor.record_outcome(recording, Ok("this engine is shutting down".to_owned()));
            }
        }
    }
}

impl Controller {
    /// Sets whether this engine is about to resign, after which no cycle begins. Returns the cycles under way that are
    /// finished first, within [`TIMEOUT`]. The resigning engine calls it again until it returns none.
    ///
    /// While the queues have work in progress, the resignation waits for them, and the timeout does not run.
    pub(crate) fn retire(&mut self, retires: bool, queues_in_work: bool) -> Option<String> {
        self.shared.retires.store(retires, Ordering::SeqCst);
        if !retires || queues_in_work {
            self.retiring = None;
        }
        if !self.shared.signal_shutdown() {
            return None;
        }
        let waits = self.shared.pending_cycles()?;
        if !retires || queues_in_work {
            return Some(waits);
        }
        let retiring = self.retiring.get_or_insert_with(|| Retiring { since: Instant::now(), recording: None });
        if retiring.since.elapsed() < TIMEOUT {
            return Some(waits);
        }
        let shared = &self.shared;
        let recording = retiring
            .recording
            .get_or_insert_with(|| cketerm_runtime::tasks::spawn(Arc::clone(shared).record_unfinished_cycles()));
        (!recording.is_finished()).then_some(waits)
    }

    /// Stops beginning cycles, and waits at most `long` until those under way are finished. What is left is recorded in
    /// the log and in the audit of each host.
    pub(crate) async fn finish(&self, long: Duration) {
        let shared = &self.shared;
        let until = Instant::now() + long;
        shared.signal_shutdown();
        let _ = timeout(SURVEY_TIMEOUT, shared.surveyed.subscribe().wait_for(|surveyed| *surveyed)).await;
        let mut interrupted_cycles = shared.interrupted_cycles.subscribe();
        let none_moves = interrupted_cycles.wait_for(|interrupted_cycles| {
            !interrupted_cycles.values().any(|interrupted| *interrupted == InterruptedPowerCycle::Moving)
        });
        let _ = timeout_at(until, none_moves).await;
        Arc::clone(shared).record_unfinished_cycles().await;
    }
}

#[cfg(test)]
mod tests;

//! Durations of one ended entry, from its record in the history.

use cketerm_model::{
    attempt::{Attempt, Ended},
    cketerm_records::{EndKind, Ending},
    entry::{EntryId, QueueKind},
    names::Address,
    time::seconds_between,
};
use jiff::Timestamp;

use super::{MachineClass, Phase};

/// Duration of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseTime {
    /// Phase.
    pub phase: Phase,
    /// Step of a repair.
    pub step: Option<i64>,
    /// Seconds.
    pub seconds: f64,
}

/// Durations of one ended entry.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedTimes {
    /// Entry.
    pub entry: EntryId,
    /// Address of its machine.
    pub address: Address,
    /// Kind of its end.
    pub end: EndKind,
    /// Time of its end.
    pub at: Timestamp,
    /// Whether the machine was an API server.
    pub control_plane: bool,
    /// Machine type of a repair.
    pub machine_type: Option<String>,
    /// Operation of a repair.
    pub operation: Option<String>,
    /// Number of drains that backed off.
    pub backoffs: u32,
    /// Its phases, as far as the record has them.
    pub phases: Vec<PhaseTime>,
}

impl EndedTimes {
    /// Reads the durations from a record. A record of a version that did not store the start of the drain has no drain.
    pub fn of(ending: &Ending) -> Self {
        let begun: Vec<&Attempt> = ending.attempts.iter().filter(|a| a.began() && !a.success).collect();
        let first = begun.first();
        let backoffs = ending.last.get("drain_backoff_count").and_then(serde_json::Value::as_u64);
        Self {
            entry: ending.entry,
            address: ending.address.clone(),
            end: ending.end,
            at: ending.at,
            control_plane: first.is_some_and(|a| a.control_plane),
            machine_type: first.and_then(|a| a.machine_type.clone()),
            operation: first.and_then(|a| a.operation.clone()),
            backoffs: backoffs.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            phases: phases(ending, &begun),
        }
    }

    /// Returns the seconds of a phase; of a repair the phase of its first step that has one.
    pub fn seconds_of(&self, phase: Phase) -> Option<f64> {
        self.phases.iter().find(|time| time.phase == phase).map(|time| time.seconds)
    }

    /// Returns the kind of its machine.
    pub fn class(&self, class_of: impl Fn(&Address) -> MachineClass) -> MachineClass {
        match self.entry.queue {
            QueueKind::Reboot | QueueKind::Maintenance => {
                MachineClass { api_server: self.control_plane, ..class_of(&self.address) }
            }
            QueueKind::Repair => MachineClass { machine_type: self.machine_type.clone(), api_server: false },
        }
    }
}

fn phases(ending: &Ending, begun: &[&Attempt]) -> Vec<PhaseTime> {
    let mut phases = Vec::new();
    let mut add = |phase, step, from: Timestamp, to: Timestamp| {
        let seconds = seconds_between(from, to).get();
        // Clocks of two leaders may differ.
        if seconds >= 0.0 {
            phases.push(PhaseTime { phase, step, seconds });
        }
    };
    let Some(first) = begun.first() else { return phases };
    let after = match ending.entry.queue {
        QueueKind::Reboot | QueueKind::Maintenance => Phase::Boot,
        QueueKind::Repair => Phase::RepairStep,
    };
    for (place, attempt) in begun.iter().enumerate() {
        let new_step = place == 0 || begun[place - 1].step != attempt.step;
        if let Some(since) = attempt.drain_start.filter(|_| new_step) {
            add(Phase::Drain, attempt.step, since, attempt.start);
        }
        let outcome = attempt.outcome.as_ref();
        if let Some(outcome) = outcome.filter(|o| matches!(o.end, Ended::Exit(_))) {
            add(Phase::Command, attempt.step, attempt.start, outcome.at);
        }
        let next = begun.get(place + 1);
        let is_last_of_step = next.is_none_or(|next| next.step != attempt.step);
        if is_last_of_step {
            let to = next.map_or(ending.at, |next| next.drain_start.unwrap_or(next.start));
            add(after, attempt.step, outcome.map_or(attempt.start, |o| o.at), to);
        }
    }
    // With attempts left out, the first one that is kept is still the first one of all.
    if first.drain_start.is_some() || ending.entry.queue == QueueKind::Repair {
        add(Phase::Whole, None, first.drain_start.unwrap_or(first.start), ending.at);
    }
    phases
}

//! The phase that an entry is in now.

use cketerm_model::{
    attempt::Attempt,
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    stored::view::StoreView,
};
use jiff::Timestamp;

use super::{MachineClass, Phase, PhaseKind};

/// Phase that an entry is in now.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// Kind of the phase.
    pub kind: PhaseKind,
    /// Start of the phase.
    pub since: Timestamp,
}

/// Returns the phase that an entry is in, if it is in work.
pub fn running(store: &StoreView, id: EntryId) -> Option<Running> {
    let entry = store.entry(id).filter(|entry| entry.in_work())?;
    let changed = entry.last_transition_time();
    let newest = store.attempts_of(id).rev().find_map(Stored::get).filter(|a: &&Attempt| !a.success);
    // A maintenance lasts as long as a person wants: there is no usual time.
    if entry.as_maintenance().is_some() && entry.is_after_command() {
        return None;
    }
    let (phase, since) = match (entry.is_after_command(), newest) {
        (false, _) => (Phase::Drain, changed),
        (true, Some(attempt)) => match &attempt.outcome {
            None => (Phase::Command, Some(attempt.start)),
            Some(outcome) => (after_command(entry), Some(outcome.at)),
        },
        (true, None) => (after_command(entry), changed),
    };
    let (class, operation, step) = match entry {
        EntryRef::Reboot(e) => (MachineClass::of_address(store, &e.node), None, None),
        EntryRef::Maintenance(e) => (MachineClass::of_address(store, &e.node), None, None),
        EntryRef::Repair(e) => {
            let class = MachineClass { machine_type: Some(e.machine_type.clone()), api_server: false };
            (class, Some(e.operation.clone()), Some(e.step))
        }
    };
    Some(Running { kind: PhaseKind { queue: id.queue, phase, class, operation, step }, since: since? })
}

fn after_command(entry: EntryRef<'_>) -> Phase {
    match entry {
        EntryRef::Reboot(_) | EntryRef::Maintenance(_) => Phase::Boot,
        EntryRef::Repair(_) => Phase::RepairStep,
    }
}

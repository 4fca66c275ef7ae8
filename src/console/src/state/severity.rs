//! Severity of entries and machines. Every view shows it by the same sign and colour.

use cketerm_model::{entry::EntryId, entry_ref::EntryRef, repair::RepairStatus};
use cketerm_rules::trouble;

use super::{App, progress, racks::State};
use crate::theme::Severity;

/// Returns the severity of an entry of either queue. An entry that cannot be read needs an operator.
pub fn of_entry(app: &App, id: EntryId) -> Severity {
    let Some(entry) = app.seen.snapshot.store.entry(id) else { return Severity::Failed };
    if let EntryRef::Repair(repair) = entry
        && repair.finished()
    {
        return match repair.status {
            _ if repair.deleted => Severity::Waiting,
            RepairStatus::Failed => Severity::Failed,
            RepairStatus::Succeeded | RepairStatus::Queued | RepairStatus::Processing => Severity::Done,
        };
    }
    if trouble::is_stuck(&app.seen, id) {
        return Severity::Failed;
    }
    if progress::compared(app, id).is_some_and(|compared| compared.is_slow()) {
        return Severity::Slow;
    }
    match (entry.in_work(), entry.is_after_command()) {
        (true, true) => Severity::Rebooting,
        (true, false) => Severity::Draining,
        (false, _) if entry.backoff_expire().is_some_and(|until| until > app.known()) => Severity::Slow,
        (false, _) => Severity::Waiting,
    }
}

/// Returns the severity of a machine's state.
pub fn of_machine(state: State) -> Severity {
    match state {
        State::Stuck | State::NotReady => Severity::Failed,
        State::Draining => Severity::Draining,
        State::Rebooting | State::Repairing => Severity::Rebooting,
        State::Backoff | State::NoNode | State::Unknown => Severity::Slow,
        State::Held | State::Queued | State::Cordoned => Severity::Waiting,
        State::Ready => Severity::Done,
    }
}

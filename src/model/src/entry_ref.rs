//! Borrowed entry of any kind: each question that all kinds can answer is answered here, once.

use jiff::Timestamp;
use serde::Serialize;

use super::{
    entry::{EntryId, QueueKind, Stored},
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    names::Address,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
};

/// Readable entry of any kind, borrowed. It is serialized as the entry itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EntryRef<'a> {
    /// Entry of the reboot queue.
    Reboot(&'a RebootEntry),
    /// Entry of the repair queue.
    Repair(&'a RepairEntry),
    /// A maintenance.
    Maintenance(&'a MaintenanceEntry),
}

impl<'a> EntryRef<'a> {
    /// Returns the queue and the index.
    pub fn id(self) -> EntryId {
        match self {
            Self::Reboot(e) => EntryId::reboot(e.index),
            Self::Repair(e) => EntryId::repair(e.index),
            Self::Maintenance(e) => EntryId::maintenance(e.index),
        }
    }

    /// Returns the queue that holds the entry.
    pub fn queue(self) -> QueueKind {
        self.id().queue
    }

    /// Returns the entry if the reboot queue holds it.
    pub fn as_reboot(self) -> Option<&'a RebootEntry> {
        match self {
            Self::Reboot(e) => Some(e),
            Self::Repair(_) | Self::Maintenance(_) => None,
        }
    }

    /// Returns the entry if the repair queue holds it.
    pub fn as_repair(self) -> Option<&'a RepairEntry> {
        match self {
            Self::Reboot(_) | Self::Maintenance(_) => None,
            Self::Repair(e) => Some(e),
        }
    }

    /// Returns the entry if it is a maintenance.
    pub fn as_maintenance(self) -> Option<&'a MaintenanceEntry> {
        match self {
            Self::Reboot(_) | Self::Repair(_) => None,
            Self::Maintenance(e) => Some(e),
        }
    }

    /// Returns the machine's address.
    pub fn address(self) -> &'a Address {
        match self {
            Self::Reboot(e) => &e.node,
            Self::Repair(e) => &e.address,
            Self::Maintenance(e) => &e.node,
        }
    }

    /// Returns the status as the queue spells it; for a repair in progress, the status of its step.
    pub fn status(self) -> String {
        match self {
            Self::Reboot(e) => e.status.to_string(),
            Self::Repair(e) if e.status == RepairStatus::Processing => e.step_status.to_string(),
            Self::Repair(e) => e.status.to_string(),
            Self::Maintenance(e) => e.status.to_string(),
        }
    }

    /// Returns the time of the last change of the status; none for a fresh entry.
    pub fn last_transition_time(self) -> Option<Timestamp> {
        match self {
            Self::Reboot(e) => e.last_transition_time,
            Self::Repair(e) => e.last_transition_time,
            Self::Maintenance(e) => e.last_transition_time,
        }
    }

    /// Returns the number of drains that backed off.
    pub fn backoff_count(self) -> i64 {
        match self {
            Self::Reboot(e) => e.drain_backoff_count,
            Self::Repair(e) => e.drain_backoff_count,
            Self::Maintenance(e) => e.drain_backoff_count,
        }
    }

    /// Returns the end of the last backoff, which may be in the past.
    pub fn backoff_expire(self) -> Option<Timestamp> {
        match self {
            Self::Reboot(e) => e.drain_backoff_expire,
            Self::Repair(e) => e.drain_backoff_expire,
            Self::Maintenance(e) => e.drain_backoff_expire,
        }
    }

    /// Reports whether the entry is queued and not marked as deleted. A repair between two steps is not queued.
    pub fn is_queued(self) -> bool {
        match self {
            Self::Reboot(e) => e.status == RebootStatus::Queued,
            Self::Repair(e) => e.status == RepairStatus::Queued && !e.deleted,
            Self::Maintenance(e) => e.status == MaintenanceStatus::Queued && e.released.is_none(),
        }
    }

    /// Reports whether the entry waits for its turn or for the end of its backoff: a queued reboot, or an unfinished
    /// repair at the beginning of a step.
    pub fn is_waiting(self) -> bool {
        match self {
            Self::Reboot(e) => e.status == RebootStatus::Queued,
            Self::Repair(e) => e.unfinished() && e.step_status == StepStatus::Waiting,
            Self::Maintenance(_) => self.is_queued(),
        }
    }

    /// Reports whether the entry claims its machine: it is draining, or its command ran or is about to run. A deleted
    /// repair claims its machine until it is removed (REP-4).
    pub fn claims_machine(self) -> bool {
        match self {
            Self::Reboot(e) => e.claims_machine(),
            Self::Repair(e) => e.claims_machine(),
            Self::Maintenance(e) => e.claims_machine(),
        }
    }

    /// Reports whether the entry is in work: it claims its machine, and it is not a deleted repair.
    pub fn in_work(self) -> bool {
        self.claims_machine() && self.unfinished()
    }

    /// Reports whether the entry's command ran or is about to run, or its Node was drained for a maintenance. A repair that has ended keeps the state of its last
    /// step.
    pub fn is_after_command(self) -> bool {
        match self {
            Self::Reboot(e) => e.status == RebootStatus::Rebooting,
            Self::Repair(e) => e.step_status == StepStatus::Watching,
            Self::Maintenance(e) => e.status == MaintenanceStatus::InMaintenance,
        }
    }

    /// Reports whether an operator cancelled or deleted the entry, and the leader has not removed it yet.
    pub fn is_withdrawn(self) -> bool {
        match self {
            Self::Reboot(e) => e.status == RebootStatus::Cancelled,
            Self::Repair(e) => e.deleted,
            Self::Maintenance(e) => e.released.is_some(),
        }
    }

    /// Reports whether the entry has ended and stays in the queue until somebody deletes it, which only a repair does.
    pub fn finished(self) -> bool {
        match self {
            Self::Reboot(_) | Self::Maintenance(_) => false,
            Self::Repair(e) => e.finished(),
        }
    }

    /// Reports whether the entry has neither ended nor been cancelled or deleted.
    pub fn unfinished(self) -> bool {
        match self {
            Self::Reboot(e) => e.status != RebootStatus::Cancelled,
            Self::Repair(e) => e.unfinished(),
            Self::Maintenance(e) => e.released.is_none(),
        }
    }
}

impl<'a> From<&'a RebootEntry> for EntryRef<'a> {
    fn from(entry: &'a RebootEntry) -> Self {
        Self::Reboot(entry)
    }
}

impl<'a> From<&'a RepairEntry> for EntryRef<'a> {
    fn from(entry: &'a RepairEntry) -> Self {
        Self::Repair(entry)
    }
}

impl<'a> From<&'a MaintenanceEntry> for EntryRef<'a> {
    fn from(entry: &'a MaintenanceEntry) -> Self {
        Self::Maintenance(entry)
    }
}

/// Stored entry of either queue, borrowed, readable or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredEntry<'a> {
    /// The whole key.
    pub key: &'a str,
    /// ModRevision, which every write compares.
    pub mod_revision: i64,
    /// The entry, or why it cannot be read.
    pub value: Result<EntryRef<'a>, &'a str>,
}

impl<'a> StoredEntry<'a> {
    /// Returns the entry if it can be read.
    pub fn get(self) -> Option<EntryRef<'a>> {
        self.value.ok()
    }
}

impl<'a, E> From<&'a Stored<E>> for StoredEntry<'a>
where
    EntryRef<'a>: From<&'a E>,
{
    fn from(stored: &'a Stored<E>) -> Self {
        let value = stored.value.as_deref().map(EntryRef::from).map_err(String::as_str);
        Self { key: &stored.key, mod_revision: stored.mod_revision, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::view::StoreView;

    fn reboot(status: RebootStatus) -> RebootEntry {
        RebootEntry { status, ..RebootEntry::queued(4, &Address::new("10.0.0.12")) }
    }

    fn repair(status: RepairStatus, step_status: StepStatus) -> RepairEntry {
        RepairEntry {
            status,
            step_status,
            ..RepairEntry::queued(4, &Address::new("10.0.0.13"), "qemu", "restart", None)
        }
    }

    /// Answers in the order queued, waiting, claims the machine, in work, after the command, finished,
    /// unfinished.
    fn answers(entry: EntryRef<'_>) -> String {
        let all = [
            (entry.is_queued(), 'q'),
            (entry.is_waiting(), 'w'),
            (entry.claims_machine(), 'c'),
            (entry.in_work(), 'i'),
            (entry.is_after_command(), 'a'),
            (entry.finished(), 'f'),
            (entry.unfinished(), 'u'),
        ];
        all.into_iter().filter_map(|(yes, letter)| yes.then_some(letter)).collect()
    }

    #[test]
    fn every_state_of_a_reboot_has_its_answers() {
        let expected = [
            (RebootStatus::Queued, "qwu"),
            (RebootStatus::Draining, "ciu"),
            (RebootStatus::Rebooting, "ciau"),
            (RebootStatus::Cancelled, ""),
        ];
        for (status, expected) in expected {
            assert_eq!(answers((&reboot(status)).into()), expected, "{status}");
        }
    }

    #[test]
    fn every_state_of_a_repair_has_its_answers_and_a_deleted_one_only_claims_its_machine() {
        let expected = [
            (RepairStatus::Queued, StepStatus::Waiting, "qwu", "", "queued"),
            (RepairStatus::Processing, StepStatus::Waiting, "wu", "", "waiting"),
            (RepairStatus::Processing, StepStatus::Draining, "ciu", "c", "draining"),
            (RepairStatus::Processing, StepStatus::Watching, "ciau", "ca", "watching"),
            (RepairStatus::Succeeded, StepStatus::Watching, "af", "af", "succeeded"),
            (RepairStatus::Failed, StepStatus::Watching, "af", "af", "failed"),
        ];
        for (status, step_status, expected, deleted, shown) in expected {
            let entry = repair(status, step_status);
            let marked = RepairEntry { deleted: true, ..entry.clone() };
            assert_eq!(answers((&entry).into()), expected, "{status} {step_status}");
            assert_eq!(answers((&marked).into()), deleted, "{status} {step_status}, deleted");
            assert_eq!(EntryRef::from(&entry).status(), shown);
        }
    }

    #[test]
    fn an_entry_is_looked_up_in_its_own_queue_only() {
        let (key, value) = ("/cke/reboots/data/0000000000000004", reboot(RebootStatus::Draining));
        let stored = |value| Stored { key: key.to_owned(), mod_revision: 7, value };
        let mut view = StoreView::default();
        view.reboots.entries.insert(4, stored(Ok(value.clone().into())));
        view.reboots.entries.insert(5, stored(Err("not JSON".to_owned())));

        let (found, other) = (EntryId::reboot(4), EntryId::repair(4));
        assert_eq!(view.entry(found), Some(EntryRef::Reboot(&value)));
        assert_eq!(view.entry(found).map(|e| (e.id(), e.address())), Some((found, &Address::new("10.0.0.12"))));
        assert_eq!((view.entry(other), view.has_entry(other), view.stored_entry(other)), (None, false, None));

        let unreadable = view.stored_entry(EntryId::reboot(5));
        let expected = StoredEntry { key, mod_revision: 7, value: Err("not JSON") };
        assert_eq!((unreadable, view.has_entry(EntryId::reboot(5))), (Some(expected), true));
        assert_eq!(view.entry(EntryId::reboot(5)), None);
    }

    #[test]
    fn a_borrowed_entry_is_written_as_the_entry_itself() {
        let (reboot, repair) = (reboot(RebootStatus::Queued), repair(RepairStatus::Processing, StepStatus::Draining));
        let text = |e: EntryRef<'_>| serde_json::to_string(&e).unwrap();
        assert_eq!(text((&reboot).into()), serde_json::to_string(&reboot).unwrap());
        assert_eq!(text((&repair).into()), serde_json::to_string(&repair).unwrap());
    }
}

//! An entry of any kind, for actions that all kinds share: drain, command, backoff.

use jiff::Timestamp;
use serde::Serialize;

use super::{
    entry::{EntryId, QueueKind},
    entry_ref::EntryRef,
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    names::Address,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
    time::{after, whole_seconds},
};

/// Entry of any kind. It is serialized as the entry itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum QueueEntry {
    /// Entry of the reboot queue.
    Reboot(RebootEntry),
    /// Entry of the repair queue.
    Repair(RepairEntry),
    /// A maintenance.
    Maintenance(MaintenanceEntry),
}

impl QueueEntry {
    /// Returns the borrowed entry, which answers every question about it.
    pub fn borrowed(&self) -> EntryRef<'_> {
        match self {
            Self::Reboot(e) => EntryRef::Reboot(e),
            Self::Repair(e) => EntryRef::Repair(e),
            Self::Maintenance(e) => EntryRef::Maintenance(e),
        }
    }

    /// Returns the queue and the index.
    pub fn id(&self) -> EntryId {
        self.borrowed().id()
    }

    /// Returns the queue that holds the entry.
    pub fn queue(&self) -> QueueKind {
        self.borrowed().queue()
    }

    /// Returns the machine's address.
    pub fn address(&self) -> &Address {
        self.borrowed().address()
    }

    /// Returns the status as the queue spells it.
    pub fn status(&self) -> String {
        self.borrowed().status()
    }

    /// Returns the number of drains that backed off.
    pub fn backoff_count(&self) -> i64 {
        self.borrowed().backoff_count()
    }

    /// Returns the entry in `draining` since `now`.
    #[must_use]
    pub fn draining(&self, now: Timestamp) -> Self {
        match self {
            Self::Reboot(e) => Self::Reboot(e.moved_to(RebootStatus::Draining, now)),
            Self::Repair(e) => Self::Repair(e.moved_to(RepairStatus::Processing, StepStatus::Draining, now)),
            Self::Maintenance(e) => Self::Maintenance(e.moved_to(MaintenanceStatus::Draining, now)),
        }
    }

    /// Returns the entry in `rebooting` or `watching`: its command is about to run. A maintenance is `in-maintenance` then.
    #[must_use]
    pub fn commanded(&self, now: Timestamp) -> Self {
        match self {
            Self::Reboot(e) => Self::Reboot(e.moved_to(RebootStatus::Rebooting, now)),
            Self::Repair(e) => Self::Repair(e.moved_to(RepairStatus::Processing, StepStatus::Watching, now)),
            Self::Maintenance(e) => Self::Maintenance(e.moved_to(MaintenanceStatus::InMaintenance, now)),
        }
    }

    /// Returns the entry after its drain backed off for the `count`-th time. The next drain may start in `wait`
    /// seconds.
    #[must_use]
    pub fn backed_off(&self, count: i64, wait: i64, now: Timestamp) -> Self {
        let until = Some(after(whole_seconds(now), wait));
        match self.unwound(now) {
            Self::Reboot(e) => {
                Self::Reboot(RebootEntry { drain_backoff_count: count, drain_backoff_expire: until, ..e })
            }
            Self::Repair(e) => {
                Self::Repair(RepairEntry { drain_backoff_count: count, drain_backoff_expire: until, ..e })
            }
            Self::Maintenance(e) => {
                Self::Maintenance(MaintenanceEntry { drain_backoff_count: count, drain_backoff_expire: until, ..e })
            }
        }
    }

    /// Returns the entry after its drain unwound. Count and expiry of the backoff are unchanged.
    #[must_use]
    pub fn unwound(&self, now: Timestamp) -> Self {
        match self {
            Self::Reboot(e) => Self::Reboot(e.moved_to(RebootStatus::Queued, now)),
            Self::Repair(e) => Self::Repair(e.moved_to(RepairStatus::Processing, StepStatus::Waiting, now)),
            Self::Maintenance(e) => Self::Maintenance(e.moved_to(MaintenanceStatus::Queued, now)),
        }
    }

    /// Returns the same entry with a transition time of `now`, as an operator's `retry` sets it.
    #[must_use]
    pub fn since(&self, now: Timestamp) -> Self {
        let mut same = self.clone();
        let since = match &mut same {
            Self::Reboot(e) => &mut e.last_transition_time,
            Self::Repair(e) => &mut e.last_transition_time,
            Self::Maintenance(e) => &mut e.last_transition_time,
        };
        *since = Some(whole_seconds(now));
        same
    }
}

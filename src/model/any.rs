//! An entry of either queue, where what is done with it is the same: drained, commanded, backed off.

use jiff::Timestamp;
use serde::Serialize;

use super::{
    entry::{EntryId, QueueKind},
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
    time::{after, whole_seconds},
};

/// An entry of either queue; written as the entry itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum QueueEntry {
    /// Of the reboot queue.
    Reboot(RebootEntry),
    /// Of the repair queue.
    Repair(RepairEntry),
}

impl QueueEntry {
    /// Which it is.
    pub fn id(&self) -> EntryId {
        match self {
            Self::Reboot(e) => EntryId::reboot(e.index),
            Self::Repair(e) => EntryId::repair(e.index),
        }
    }

    /// Which queue holds it.
    pub fn queue(&self) -> QueueKind {
        self.id().queue
    }

    /// The machine's address.
    pub fn address(&self) -> &str {
        match self {
            Self::Reboot(e) => &e.node,
            Self::Repair(e) => &e.address,
        }
    }

    /// Where it stands, in the queue's words.
    pub fn status(&self) -> String {
        match self {
            Self::Reboot(e) => e.status.to_string(),
            Self::Repair(e) if e.status == RepairStatus::Processing => e.step_status.to_string(),
            Self::Repair(e) => e.status.to_string(),
        }
    }

    /// How often its drain was backed off.
    pub fn backoff_count(&self) -> i64 {
        match self {
            Self::Reboot(e) => e.drain_backoff_count,
            Self::Repair(e) => e.drain_backoff_count,
        }
    }

    /// Its node is being drained since `now`.
    #[must_use]
    pub fn draining(&self, now: Timestamp) -> Self {
        match self {
            Self::Reboot(e) => Self::Reboot(e.moved_to(RebootStatus::Draining, now)),
            Self::Repair(e) => Self::Repair(e.moved_to(RepairStatus::Processing, StepStatus::Draining, now)),
        }
    }

    /// Its command is about to be run: `rebooting`, or `watching`.
    #[must_use]
    pub fn commanded(&self, now: Timestamp) -> Self {
        match self {
            Self::Reboot(e) => Self::Reboot(e.moved_to(RebootStatus::Rebooting, now)),
            Self::Repair(e) => Self::Repair(e.moved_to(RepairStatus::Processing, StepStatus::Watching, now)),
        }
    }

    /// Its drain was given up the `count`-th time; it is tried again in `wait` seconds.
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
        }
    }

    /// Its drain was given up for no fault of its own: it waits for its turn, count and wait as they were.
    #[must_use]
    pub fn unwound(&self, now: Timestamp) -> Self {
        match self {
            Self::Reboot(e) => Self::Reboot(e.moved_to(RebootStatus::Queued, now)),
            Self::Repair(e) => Self::Repair(e.moved_to(RepairStatus::Processing, StepStatus::Waiting, now)),
        }
    }

    /// The same, since `now`: a person's `retry` begins its time anew.
    #[must_use]
    pub fn since(&self, now: Timestamp) -> Self {
        let mut same = self.clone();
        let since = match &mut same {
            Self::Reboot(e) => &mut e.last_transition_time,
            Self::Repair(e) => &mut e.last_transition_time,
        };
        *since = Some(whole_seconds(now));
        same
    }
}

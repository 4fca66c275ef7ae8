//! Batches: the entries of one enqueue, with its cause, owner and time (STO-60 to STO-66).

pub mod id;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::id::BatchId;
use crate::{
    cketerm_records::{EndKind, Who},
    entry::QueueKind,
    entry_ref::EntryRef,
    repair::RepairStatus,
    time::after,
};

/// Pause of a batch: none of its queued entries starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// The user.
    pub who: Who,
    /// Time of the pause.
    pub at: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Cancellation of a batch: no further entry joins it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// The user.
    pub who: Who,
    /// Time of the cancellation.
    pub at: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cancelled by {} at {:.0}", self.who, self.at)?;
        self.reason.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// Seconds after the time of a batch during which its enqueue may still add entries. Two thousand entries take three.
const ENQUEUE_SECONDS: i64 = 600;

/// Value of `cketerm/batches/<id>`. The transactions that add its entries write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Queue of all its entries.
    pub queue: QueueKind,
    /// Owner: the user who asked for the entries.
    pub who: Who,
    /// Time of the enqueue.
    pub at: Timestamp,
    /// Cause: the reason or ticket of the enqueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of entries that were asked for.
    pub asked: u64,
    /// Number of entries that were written. It stays below `asked` if the enqueue was interrupted.
    pub added: u64,
    /// Counts of the ended entries whose records below `cketerm/batches/<id>/` are folded into this value.
    #[serde(default, skip_serializing_if = "BatchEnds::is_empty")]
    pub ends: BatchEnds,
    /// The pause, if it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// The cancellation, if it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Cancelled>,
    /// Time at which the leader found that none of its entries is in the queue any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

impl Batch {
    /// Returns a batch without entries.
    pub fn new(queue: QueueKind, who: Who, at: Timestamp, reason: Option<String>, asked: u64) -> Self {
        Self {
            queue,
            who,
            at,
            reason,
            asked,
            added: 0,
            ends: BatchEnds::default(),
            paused: None,
            cancelled: None,
            ended: None,
        }
    }

    /// Reports whether it has the same members and the same state as another version of it. The counts of its ended
    /// entries, which the leader folds into it, do not matter.
    pub fn matches(&self, other: &Self) -> bool {
        let without_ends = |batch: &Self| Self { ends: BatchEnds::default(), ended: None, ..batch.clone() };
        without_ends(self) == without_ends(other)
    }

    /// Reports whether its enqueue may still add entries. One that was interrupted counts as over after ten minutes.
    pub fn growing(&self, now: Timestamp) -> bool {
        self.added < self.asked && self.cancelled.is_none() && now < after(self.at, ENQUEUE_SECONDS)
    }
}

/// Counts of ended entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchEnds {
    /// Entries that reached their goal.
    #[serde(default)]
    pub done: u64,
    /// Repairs that failed.
    #[serde(default)]
    pub failed: u64,
    /// Entries that were cancelled, deleted or dequeued.
    #[serde(default)]
    pub withdrawn: u64,
}

impl BatchEnds {
    /// Counts one end.
    pub fn add(&mut self, end: EndKind) {
        let count = match end {
            EndKind::Booted | EndKind::Done | EndKind::Succeeded | EndKind::Unrecorded => &mut self.done,
            EndKind::Failed => &mut self.failed,
            EndKind::Cancelled | EndKind::Deleted | EndKind::Dequeued => &mut self.withdrawn,
        };
        *count = count.saturating_add(1);
    }

    /// Returns the sum.
    pub fn all(&self) -> u64 {
        self.done.saturating_add(self.failed).saturating_add(self.withdrawn)
    }

    /// Reports whether nothing has ended.
    pub fn is_empty(&self) -> bool {
        self.all() == 0
    }
}

/// State of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchState {
    /// Its entries wait or are in work.
    Running,
    /// Its queued entries do not start.
    Paused,
    /// All of its entries have ended.
    Done,
}

impl fmt::Display for BatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
        })
    }
}

/// Entries of one batch, counted by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchTotals {
    /// Entries in the queue that wait for their turn, including unreadable ones.
    pub queued: u64,
    /// Entries in work.
    pub in_work: u64,
    /// Ended entries.
    pub ends: BatchEnds,
    /// Entries that are gone without a record of their end: another program removed them.
    pub unrecorded: u64,
}

impl BatchTotals {
    /// Returns the number of entries that reached their goal, as far as it is known.
    pub fn done(&self) -> u64 {
        self.ends.done.saturating_add(self.unrecorded)
    }

    /// Returns the number of entries that have not ended.
    pub fn open(&self) -> u64 {
        self.queued.saturating_add(self.in_work)
    }

    /// Returns the number of entries that were or are to be worked on: all but those that were withdrawn.
    pub fn all(&self) -> u64 {
        self.open().saturating_add(self.done()).saturating_add(self.ends.failed)
    }

    /// Returns the state of the batch.
    pub fn state(&self, batch: &Batch) -> BatchState {
        match (self.open(), &batch.paused) {
            (0, _) => BatchState::Done,
            (_, Some(_)) => BatchState::Paused,
            (_, None) => BatchState::Running,
        }
    }

    /// Counts an entry that is in the queue; none = it cannot be read.
    pub fn count(&mut self, entry: Option<EntryRef<'_>>) {
        let count = match entry {
            None => &mut self.queued,
            Some(EntryRef::Repair(repair)) if repair.status == RepairStatus::Failed => &mut self.ends.failed,
            Some(entry) if entry.finished() => &mut self.ends.done,
            Some(entry) if !entry.unfinished() => &mut self.ends.withdrawn,
            Some(entry) if entry.is_queued() => &mut self.queued,
            Some(_) => &mut self.in_work,
        };
        *count = count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leader folds ends into the record all the time; an operator decides about members and state.
    #[test]
    fn versions_of_a_batch_differ_by_members_and_state_not_by_ends() {
        let at: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let who = Who { user: "alice".into(), host: "admin1".into(), ssh_client: None };
        let shown = Batch { added: 5, ..Batch::new(QueueKind::Reboot, who.clone(), at, None, 5) };
        let ends = BatchEnds { done: 3, failed: 0, withdrawn: 1 };
        assert!(shown.matches(&Batch { ends, ended: Some(at), ..shown.clone() }));
        let paused = Some(Paused { who: who.clone(), at, reason: None });
        let cancelled = Some(Cancelled { who, at, reason: None });
        for other in [
            Batch { added: 6, ..shown.clone() },
            Batch { paused, ..shown.clone() },
            Batch { cancelled, ..shown.clone() },
        ] {
            assert!(!shown.matches(&other), "{other:?}");
        }
    }
}

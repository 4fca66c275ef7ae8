//! State of a batch as people see it: what keeps all of its entries from starting comes before *running*. The console and
//! the command line share it.

use std::fmt;

use cketerm_model::{
    acceptance::LeaderKind,
    batch::{Batch, BatchState, BatchTotals},
    stored::view::StoreView,
};
use jiff::Timestamp;

/// State of a batch, with what holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownState {
    /// Its entries wait for their turn or are in work.
    Running,
    /// Its queued entries wait until somebody enables the queue.
    Disabled,
    /// Its entries wait, because nobody leads.
    NoLeader,
    /// Its queued entries wait for the end of the freeze.
    Frozen,
    /// Its queued entries wait until somebody resumes it.
    Paused,
    /// All of its entries have ended, and some of them failed.
    Failed,
    /// All of its entries have ended, and some of them were withdrawn, or were removed by a leader that records no ends.
    Ended,
    /// All of its entries reached their goal.
    Done,
}

impl ShownState {
    /// Returns the state of a batch. `is_led`: whether somebody leads, as far as it is known.
    pub fn of(store: &StoreView, batch: &Batch, totals: &BatchTotals, is_led: bool, now: Timestamp) -> Self {
        // CKE knows neither pauses nor freezes
        let is_cke = store.leadership().lead == LeaderKind::Cke;
        match totals.state(batch) {
            BatchState::Done if totals.ends.failed > 0 => Self::Failed,
            // nobody knows how those ended that CKE removed
            BatchState::Done if totals.ends.withdrawn > 0 || totals.unrecorded > 0 => Self::Ended,
            BatchState::Done => Self::Done,
            BatchState::Paused if !is_cke => Self::Paused,
            BatchState::Paused | BatchState::Running => {
                let is_waiting = totals.queued > 0;
                let is_frozen = || store.policy().freeze.as_ref().is_some_and(|freeze| freeze.holds(now));
                if is_waiting && !store.switch(batch.queue).enabled() {
                    Self::Disabled
                } else if !is_led {
                    Self::NoLeader
                } else if is_waiting && !is_cke && is_frozen() {
                    Self::Frozen
                } else {
                    Self::Running
                }
            }
        }
    }

    /// Reports whether something other than a pause keeps the queued entries of an open batch from starting.
    pub fn is_held(self) -> bool {
        match self {
            Self::Disabled | Self::NoLeader | Self::Frozen => true,
            Self::Running | Self::Paused | Self::Failed | Self::Ended | Self::Done => false,
        }
    }
}

impl fmt::Display for ShownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Disabled => "disabled",
            Self::NoLeader => "waits for a leader",
            Self::Frozen => "frozen",
            Self::Paused => "paused",
            Self::Failed => "failed",
            Self::Ended => "ended",
            Self::Done => "done",
        })
    }
}

//! Movement of a queue or of one batch: its entries, counted by what becomes of them without an operator.

use cketerm_model::entry::EntryId;
use cketerm_rules::{
    seen::Seen,
    trouble::{self, Trouble},
};

use super::{behind, unfinished};
use crate::state::queries;

/// Entries of a queue or of a part of it, counted by how they move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Motion {
    /// Entries in work.
    pub used: usize,
    /// Of these, entries whose command was run: they go on while their queue is disabled.
    pub after_command: usize,
    /// Of those in work, entries that drain.
    pub draining: usize,
    /// Of those in work, entries that need an operator.
    pub used_stuck: usize,
    /// Of those in work, entries that wait for something.
    pub used_waits: usize,
    /// Entries that will end without an operator.
    pub left: usize,
    /// Of these, the ones that end even if no other entry may start.
    pub finishing: usize,
    /// Entries on hold.
    pub held: usize,
    /// Entries that need an operator, and do not back off.
    pub stuck: usize,
    /// Entries that wait behind another entry of the same machine that does not move.
    pub behind: usize,
    /// Entries that back off.
    pub backoff: usize,
    /// Of these, entries that need an operator.
    pub backoff_stuck: usize,
}

impl Motion {
    /// Counts an entry.
    pub(super) fn add(&mut self, seen: &Seen, id: EntryId) {
        let working = usize::from(queries::in_work(seen, id));
        let rests = queries::backoff_until(seen, id).is_some() && !queries::held(seen, id);
        self.used += working;
        self.after_command += usize::from(queries::finishes_anyway(seen, id));
        self.draining += usize::from(queries::draining(seen, id));
        self.backoff += usize::from(rests);
        match trouble::of(seen, id) {
            Some(Trouble::Stuck) => {
                self.stuck += usize::from(!rests);
                self.backoff_stuck += usize::from(rests);
                self.used_stuck += working;
                return;
            }
            Some(Trouble::Waits) => self.used_waits += working,
            None => {}
        }
        if !unfinished(seen, id) {
            return;
        }
        if queries::held(seen, id) {
            self.held += 1;
        } else if behind(seen, id) {
            self.behind += 1;
        } else if !rests {
            self.left += 1;
            self.finishing += usize::from(queries::finishes_anyway(seen, id));
        }
    }

    /// Returns the number of entries that do not end before an operator acts: no estimated end includes them.
    pub fn resting(&self) -> usize {
        self.held + self.behind + self.stuck + self.backoff_stuck
    }

    /// Returns the number of entries that are stuck or in backoff.
    pub fn stalled(&self) -> usize {
        self.stuck + self.backoff
    }

    /// Reports whether no entry is left in any state.
    pub fn is_empty(&self) -> bool {
        self.left + self.held + self.behind + self.stalled() == 0
    }
}

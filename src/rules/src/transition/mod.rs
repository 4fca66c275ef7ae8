//! Transitions of entries as transactions: what a step of the engine compares, writes and deletes in etcd.
//!
//! They are pure. The engine adds the audit record of the step and commits under its fence (`src/engine/src/act/`); the
//! model checker commits to its own small etcd (`tests/checker/`).
//!
//! | module | transitions |
//! | --- | --- |
//! | `drain` | a drain starts, backs off or is unwound; a maintenance begins |
//! | `command` | a command's attempt is written: first, again, and a published result |
//! | `end` | an entry ends, and its attempts are settled |

mod command;
mod drain;
mod end;

use cketerm_model::{
    attempt::Attempt,
    entry::{EntryId, Stored},
    fault,
    stored::{keys::Keys, transaction::Ranged, view::StoreView},
};
use jiff::Timestamp;

pub use self::{
    command::PreviousAttempts,
    drain::{BackedOff, Unwound},
    end::{Ended, close_attempts},
};
use crate::decide::Guard;

/// Number of attempts without an outcome that one transaction closes.
const CLOSE_BATCH: usize = 32;

/// Inputs of a transition.
#[derive(Clone, Copy, Debug)]
pub struct Transition<'a> {
    /// The keys of the cluster.
    pub keys: &'a Keys,
    /// The live copy of etcd.
    pub view: &'a StoreView,
    /// Time of the transition.
    pub now: Timestamp,
}

impl Transition<'_> {
    /// Clears all attempts of an entry if none was written after this revision. It takes two operations, however many
    /// attempts there are.
    fn clear_attempts(&self, ranged: &mut Ranged, id: EntryId, since: i64) {
        let span = self.keys.attempts_of(id);
        fault!(TransactionUnbounded => {
            for stored in self.view.attempts_of(id) {
                ranged.change.compares.push((stored.key.clone(), stored.mod_revision));
                ranged.change.deletes.push(stored.key.clone());
            }
            return;
        });
        ranged.unwritten.push((span.clone(), since));
        ranged.cleared.push(span);
    }
}

/// Returns the keys and revisions that a transition under this guard compares.
pub fn compares(keys: &Keys, guard: &Guard) -> Vec<(String, i64)> {
    let mut compares = Vec::new();
    if let Some((id, revision)) = guard.entry {
        compares.push((keys.entry(id), revision));
    }
    if let Some((batch, revision)) = guard.batch {
        compares.push((keys.batch(batch), revision));
    }
    if let Some(cluster) = guard.cluster {
        compares.push((keys.cluster(), cluster));
    }
    if let Some(start) = guard.start {
        compares.push((keys.switch(start.queue.into()), start.switch));
        compares.push((keys.cluster(), start.cluster));
        compares.push((keys.constraints(), start.constraints));
        compares.push((keys.policy(), start.policy));
    }
    compares
}

/// State of an entry's attempts in a live copy.
#[derive(Clone, Copy)]
struct Shown {
    /// ModRevision of the attempt written last.
    newest: i64,
    /// Revision of the live copy. No attempt of the entry was written between `newest` and this revision. A comparison
    /// with it ignores keys in the folder that are no attempts and were written long ago.
    revision: i64,
}

fn attempts_until(view: &StoreView, id: EntryId) -> Option<Shown> {
    let newest = newest(view.attempts_of(id))?;
    Some(Shown { newest, revision: view.revision })
}

fn newest<'a>(attempts: impl IntoIterator<Item = &'a Stored<Attempt>>) -> Option<i64> {
    attempts.into_iter().map(|stored| stored.mod_revision).max()
}

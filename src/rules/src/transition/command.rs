//! A command's attempt is written before the command: the first one, a further one, and the result of one whose leader is
//! gone (SAF-14 to SAF-20).

use cketerm_model::{
    any::QueueEntry,
    attempt::{Attempt, Ended, Outcome},
    cketerm_records::{Order, Verb},
    entry::{EntryId, Stored},
    result::CommandResult,
    stored::transaction::{Change, Put},
};

use super::{Transition, compares};
use crate::decide::Guard;

/// Tries before a command.
#[derive(Clone, Copy, Debug)]
pub struct PreviousAttempts<'a> {
    /// The attempt before, closed as unknown if it has no outcome.
    pub before: Option<&'a Stored<Attempt>>,
    /// Attempts that are deleted with this one, because nothing needs them any more (SAF-15).
    pub folded: &'a [Stored<Attempt>],
}

impl Transition<'_> {
    /// Moves the entry to `rebooting` or `watching` and writes the attempt of its first command. `None`: an operator has
    /// put the entry on hold meanwhile (REB-48). `force` is the operator's order to skip pods and volumes; it is used up.
    pub fn command(
        &self,
        guard: &Guard,
        entry: &QueueEntry,
        force: Option<&Stored<Order>>,
        attempt: &Attempt,
    ) -> Option<Change> {
        let (id, keys) = (entry.id(), self.keys);
        let attempt_key = keys.attempt(id, attempt.number);
        let mut compares = compares(keys, guard);
        compares.push((attempt_key.clone(), 0));
        let mut change = Change {
            compares,
            puts: vec![Put::json(keys.entry(id), &entry.commanded(self.now)), Put::json(attempt_key, attempt)],
            deletes: Vec::new(),
        };
        self.not_held(id, force, &mut change)?;
        if let Some(stored) = force.filter(|stored| stored.get().is_some()) {
            change.compares.push((stored.key.clone(), stored.mod_revision));
            change.deletes.push(stored.key.clone());
        }
        Some(change)
    }

    /// Compares the entry's order, or its absence, so that a hold written in between prevents the transition (REB-48).
    fn not_held(&self, id: EntryId, force: Option<&Stored<Order>>, change: &mut Change) -> Option<()> {
        let order = self.view.orders.get(&id);
        if order.and_then(Stored::get).is_some_and(|o| o.verb == Verb::Hold) {
            return None;
        }
        if force.is_none() {
            let revision = order.map_or(0, |stored| stored.mod_revision);
            change.compares.push((self.keys.order(id), revision));
        }
        Some(())
    }

    /// Writes the attempt of one more command for an entry that is already rebooting or watching, or of a success
    /// command.
    pub fn command_again(
        &self,
        guard: &Guard,
        entry: &QueueEntry,
        previous: PreviousAttempts<'_>,
        order: Option<&Stored<Order>>,
        attempt: &Attempt,
    ) -> Change {
        let (id, keys, now) = (entry.id(), self.keys, self.now);
        let attempt_key = keys.attempt(id, attempt.number);
        let mut change = Change { compares: compares(keys, guard), puts: Vec::new(), deletes: Vec::new() };
        change.compares.push((attempt_key.clone(), 0));
        change.puts.push(Put::json(attempt_key, attempt));
        if let Some((stored, last)) = previous.before.and_then(|s| s.get().map(|a| (s, a))) {
            change.compares.push((stored.key.clone(), stored.mod_revision));
            if last.open() {
                let end = Ended::Unknown("an operator ordered another try".to_owned());
                let closed = Outcome { end, at: now, stdout: String::new(), stderr: String::new() };
                change.puts.push(Put::json(stored.key.clone(), &Attempt { outcome: Some(closed), ..last.clone() }));
            }
        }
        for stored in previous.folded {
            if previous.before.is_none_or(|before| before.key != stored.key) {
                change.compares.push((stored.key.clone(), stored.mod_revision));
            }
            change.deletes.push(stored.key.clone());
        }
        if let Some(stored) = order {
            change.compares.push((stored.key.clone(), stored.mod_revision));
            change.deletes.push(stored.key.clone());
            change.puts.push(Put::json(keys.entry(id), &entry.since(now)));
        }
        change
    }

    /// Writes a published result into its open attempt, and removes it. Without such an attempt it is only removed.
    pub fn take_result(
        &self,
        result: &Stored<CommandResult>,
        attempt: Option<&Stored<Attempt>>,
    ) -> (Change, Option<Outcome>) {
        let mut change = Change {
            compares: vec![(result.key.clone(), result.mod_revision)],
            puts: Vec::new(),
            deletes: vec![result.key.clone()],
        };
        let taken = attempt.and_then(|stored| Some((stored, stored.get()?, result.get()?)));
        let outcome = taken.map(|(stored, open, result)| {
            let outcome = result.outcome_of(open, self.now);
            change.compares.push((stored.key.clone(), stored.mod_revision));
            let recorded = Attempt { outcome: Some(outcome.clone()), ..open.clone() };
            change.puts.push(Put::json(stored.key.clone(), &recorded));
            outcome
        });
        (change, outcome)
    }
}

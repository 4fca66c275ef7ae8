//! Results of commands whose leader is gone: taken over into their attempts, or removed where they belong to none.
//!
//! A result says how a command ended that nobody waited for; what comes of it is decided as after any other command.

use super::{Effect, Guard, Pass};
use crate::{
    model::{attempt::Attempt, entry::Stored, result::CommandResult},
    mutation::{Mutation, on},
};

impl Pass<'_> {
    /// Each in a place of its own: what is under way on the machine does not hold it up.
    pub(super) fn take_results(&mut self) {
        let snap = self.snap;
        let identity = snap.store.identity.as_ref().and_then(Stored::get);
        let Some(identity) = identity.filter(|_| !on(Mutation::ResultsIgnored)) else { return };
        for ((entry, number), result) in &snap.store.results {
            let attempt = snap.store.attempts.get(&(*entry, *number));
            // one that cannot be read may be the result's: a person settles it
            if attempt.is_some_and(|stored| stored.get().is_none()) {
                continue;
            }
            let of = attempt.filter(|stored| {
                let pair = stored.get().zip(result.get());
                pair.is_some_and(|(attempt, result)| self.is_result_of(attempt, result, &identity.uid))
            });
            let effect = Effect::TakeResult { result: result.clone(), attempt: of.cloned() };
            self.plan(&format!("result of {entry} attempt {number}"), Some(*entry), Guard::default(), effect);
        }
    }

    /// What runs under us is recorded by us.
    fn is_result_of(&self, attempt: &Attempt, result: &CommandResult, cluster: &str) -> bool {
        let ours = self.snap.in_flight.values().any(|flight| flight.attempt.as_deref() == Some(&attempt.id));
        attempt.open() && !ours && result.belongs_to(attempt, cluster)
    }
}

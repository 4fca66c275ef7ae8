//! Results of commands whose leader is gone. The leader writes each into its attempt, or removes a result without an
//! attempt (SAF-20).
//!
//! A result holds how such a command ended. Its consequences are decided as after any other command.

use cketerm_model::{attempt::Attempt, entry::Stored, fault, result::CommandResult};

use super::{Effect, Guard, Pass};

impl Pass<'_> {
    /// Plans to take over each result. Each effect has a key of its own, so an effect under way on the machine does not
    /// delay it.
    pub(super) fn record_results(&mut self) {
        let snap = self.snap;
        let identity = snap.store.identity.as_ref().and_then(Stored::get);
        let Some(identity) = identity else { return };
        fault!(ResultsIgnored => return);
        for ((entry, number), result) in &snap.store.results {
            let attempt = snap.store.attempts.get(&(*entry, *number));
            // An attempt that cannot be read may be the one of the result: an operator has to settle it.
            if attempt.is_some_and(|stored| stored.get().is_none()) {
                continue;
            }
            let matching = attempt.filter(|stored| {
                let pair = stored.get().zip(result.get());
                pair.is_some_and(|(attempt, result)| self.is_result_of(attempt, result, &identity.uid))
            });
            let effect = Effect::TakeResult { result: result.clone(), attempt: matching.cloned() };
            self.plan(&format!("result of {entry} attempt {number}"), Some(*entry), Guard::default(), effect);
        }
    }

    /// Reports whether the result belongs to this attempt. This engine records the commands that it runs itself.
    fn is_result_of(&self, attempt: &Attempt, result: &CommandResult, cluster: &str) -> bool {
        let running = self.snap.in_flight.values().any(|flight| flight.attempt.as_deref() == Some(&attempt.id));
        attempt.open() && !running && result.belongs_to(attempt, cluster)
    }
}

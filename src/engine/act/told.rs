//! What is done to Kubernetes is told first, and what came of it afterwards (I38).
//!
//! The record is one more fenced write right before the effect: a leader that was deposed without knowing it, because
//! its line to etcd is silent, cannot tell and so does nothing (I24). Power commands are told by their attempts.

use super::{Actor, Stop};
use crate::{
    engine::snapshot::Came,
    fence::Permit,
    model::ours::Audit,
    mutation::{self, Mutation},
    store::commit::{Change, CommitError, Put},
};

/// The result of a record whose effect has no outcome yet; it stays where the leader died in between.
const BEGUN: &str = "begun";

/// An effect that was told and is under way.
pub(in crate::engine) struct Told {
    key: String,
    audit: Audit,
}

impl Actor {
    /// Tells, fenced, what is about to be done on what; only then may it be sent, with a permit of its own.
    pub(in crate::engine) async fn tell(
        &self,
        permit: &Permit,
        what: &str,
        on: &str,
        reason: Option<String>,
    ) -> Result<Told, Stop> {
        let (key, audit) = self.audit_record(what, on, reason, BEGUN);
        if mutation::on(Mutation::AuditForgotten) {
            return Ok(Told { key, audit });
        }
        let puts = vec![Put::json(key.clone(), &audit)];
        match self.store.commit(permit, Change { puts, ..Change::default() }).await {
            Ok(_) => Ok(Told { key, audit }),
            Err(CommitError::LostLeadership) => Err(Stop(Came::Lost)),
            // Nothing was sent: it is told again, and done, when etcd answers.
            Err(e) => Err(Stop(Came::Failed(format!("{what} of {on} was not begun: {e}")))),
        }
    }

    /// Adds what came of it, in the background: the story never holds the work up.
    pub(in crate::engine) fn came_of(&self, told: Told, result: String) {
        let actor = self.clone();
        crate::tasks::spawn(async move {
            let Ok(permit) = actor.fence.permit_record() else { return };
            let puts = vec![Put::json(told.key, &Audit { result, ..told.audit })];
            if let Err(e) = actor.store.commit(&permit, Change { puts, ..Change::default() }).await {
                tracing::debug!(error = %e, "the outcome was not told");
            }
        });
    }
}

/// Names for a record: the first twenty, and how many more.
pub(in crate::engine) fn named<'a>(names: impl Iterator<Item = String> + 'a) -> String {
    let all: Vec<String> = names.collect();
    let shown = all.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(20) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

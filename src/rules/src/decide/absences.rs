//! Record of the members that have no Node, if the definition follows the Nodes.

use cketerm_model::{entry::Stored, policy::Membership, time::whole_seconds};

use super::{Effect, Guard, Pass, RegistryEffect};
use crate::membership;

/// Key among the effects: at most one write of the record is under way.
const ABSENCES: &str = "the members without a Node";

impl Pass<'_> {
    /// Records the members that have no Node, so that their grace periods outlast this engine and everybody sees them.
    pub(super) fn record_absences(&mut self) {
        if self.policy.membership != Membership::Nodes
            || !self.etcd_copy_is_fresh()
            || self.leadership_blocker().is_some()
        {
            return;
        }
        let recorded = self.snap.store.registry.absent.as_ref();
        if recorded.is_some_and(|stored| stored.get().is_none()) {
            return; // the state of the definition names it
        }
        let now = whole_seconds(self.now.wall);
        let Some(absences) = membership::absences(&self.snap.store, &self.snap.kube, now) else { return };
        let present = recorded.and_then(Stored::get);
        if present.map_or(absences.since.is_empty(), |present| present.since.keys().eq(absences.since.keys())) {
            return;
        }
        let revision = recorded.map_or(0, |stored| stored.mod_revision);
        let effect = RegistryEffect::RecordAbsences { absences, revision };
        self.plan(ABSENCES, None, Guard::default(), Effect::Registry(effect));
    }
}

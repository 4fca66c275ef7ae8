//! The leader's own pod: before the Node on which the leader runs is drained, another engine takes the lock (SAF-41).

use cketerm_model::{
    cketerm_records::{EngineMode, EngineRegistration},
    entry::Stored,
    kube::NodeRow,
    names::NodeName,
    reason::Reason,
};

use super::{Pass, entry_context::EntryContext};

impl<'a> Pass<'a> {
    /// Returns a reason if the leader's pod is on this machine's Node and a complete engine elsewhere can take the lock. The
    /// drain would evict the leader in mid-work. Asked only for an entry that would start now, so the lock changes hands
    /// once for each such drain. While the Node of that engine is in work, the entry waits for it; and once the lock is
    /// to be passed, no drain of that Node starts.
    pub(super) fn leader_is_on(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        let own = self.snap.engine.node.as_ref().filter(|_| self.leading())?;
        let node = &self.node_of(ctx)?.name;
        let next = self.next_leader()?;
        let is_on = |node: &NodeName| next.node.as_ref() == Some(node);
        let waits = Reason::LeaderOnNode { to: next.host.clone() };
        if node != own {
            return (self.out.pass_lock.is_some() && is_on(node)).then_some(waits);
        }
        if is_on(own) {
            return None;
        }
        match next.node.as_ref().map(|node| self.snap.kube.by_name.get(node)) {
            None => {}
            Some(Some(row)) if self.is_in_work(row) => return Some(waits),
            Some(Some(row)) if !row.unschedulable => {}
            Some(_) => return None,
        }
        self.out.pass_lock = Some(next.host.clone());
        Some(waits)
    }

    /// Returns the engine that gets the lock when this one gives it up, if it is a complete daemon of cketerm. The oldest
    /// candidate gets it, which may be CKE, or a console on somebody's own host.
    fn next_leader(&self) -> Option<&'a EngineRegistration> {
        let (store, lease) = (&self.snap.store, self.snap.engine.lease);
        let mut from_own = store.candidates.values().skip_while(|candidate| candidate.lease != lease);
        let next = from_own.find(|candidate| candidate.lease != lease)?;
        let next = store.engines.get(&next.lease).and_then(Stored::get)?;
        (next.complete() && next.mode == EngineMode::Daemon).then_some(next)
    }

    fn is_in_work(&self, row: &NodeRow) -> bool {
        row.addresses.iter().any(|address| self.claims.machines.contains_key(address))
    }
}

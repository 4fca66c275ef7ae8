//! The leader's own pod: before the Node on which the leader runs is drained, another engine takes the lock (SAF-41).

use cketerm_model::{entry::Stored, names::NodeName, reason::Reason};

use super::{Pass, entry_context::EntryContext};

impl<'a> Pass<'a> {
    /// Returns a reason if the leader's pod is on this machine's Node and a complete engine elsewhere can take the lock. The
    /// drain would evict the leader in mid-work. Asked only for an entry that would start now, so the lock changes hands
    /// once for each such drain.
    pub(super) fn leader_is_on(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        let own = self.snap.engine.node.as_ref().filter(|_| self.leading())?;
        if self.node_of(ctx).is_none_or(|node| node.name != *own) {
            return None;
        }
        let to = self.other_engine(own)?;
        self.out.pass_lock = Some(to.clone());
        Some(Reason::LeaderOnNode { to })
    }

    /// Returns the host of a complete engine whose Node is neither this one nor in work.
    fn other_engine(&self, own: &NodeName) -> Option<String> {
        let store = &self.snap.store;
        let is_in_work = |node: &NodeName| {
            let row = self.snap.kube.by_name.get(node);
            row.is_none_or(|row| {
                row.unschedulable || row.addresses.iter().any(|address| self.claims.machines.contains_key(address))
            })
        };
        store.engines.iter().filter(|(lease, _)| **lease != self.snap.engine.lease).find_map(|(_, stored)| {
            let engine = Stored::get(stored).filter(|engine| engine.complete())?;
            let elsewhere = engine.node.as_ref().is_none_or(|node| node != own && !is_in_work(node));
            elsewhere.then(|| engine.host.clone())
        })
    }
}

//! Kubernetes Events on the Nodes that effects work on.

use std::sync::Arc;

use cketerm_clients::kubernetes::ObjectEvent;
use cketerm_model::{
    cluster::Member,
    entry::{EntryId, Stored},
    kube::NodeRow,
    names::Address,
};

use super::Actor;

impl Actor {
    /// Records an event on the Node of this machine, if it has one.
    pub(super) fn record_event_on(
        &self,
        address: &Address,
        what: (&'static str, &'static str),
        warning: bool,
        note: String,
    ) {
        if let Some(node) = self.node_at(address) {
            self.events.emit(ObjectEvent { warning, ..ObjectEvent::on(&node, what, note) });
        }
    }

    /// Returns who requested an entry, as a part of a sentence.
    pub(super) fn requested_by_text(&self, id: EntryId) -> String {
        let view = self.live.borrow();
        let Some(request) = view.requests.get(&id).and_then(Stored::get) else { return String::new() };
        let why = request.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!(", requested by {}{why}", request.who)
    }

    fn node_at(&self, address: &Address) -> Option<Arc<NodeRow>> {
        let (store, kube) = (self.live.borrow(), self.kube_live.borrow());
        let member = store.definition().and_then(|d| d.members.by_address(&d.cluster, address)).map(Member::node_name);
        let name = member.or_else(|| kube.by_address.get(address))?;
        kube.by_name.get(name).map(Arc::clone)
    }
}

//! Reasons why entries wait, for commands that read etcd only: the leader's published progress, else a decision from
//! etcd's contents.

use std::sync::Arc;

use cketerm_model::{
    cketerm_records::Progress,
    clock::Now,
    entry::EntryId,
    kube::{KubeView, NodeRow},
    reason::Reason,
    stored::view::StoreView,
};

use super::{
    assumptions::{Assumption, Assumptions},
    beside_cke,
    decide::{ApplyState, decide_assuming},
    publish,
    registry::{GoodAnswer, Proposal, QueryState, Registry},
    snapshot::Snapshot,
};

/// Returns the reason of one entry; `None` if there is no such entry.
pub fn explain(store: &StoreView, entry: EntryId, now: Now) -> Option<Reason> {
    explain_with(store, KubeView::default(), entry, now).map(|(reason, _)| reason)
}

/// Returns the same with what was read of Kubernetes, which matters only while CKE leads. Then it also returns the
/// progress that CKE's rules show.
pub fn explain_with(store: &StoreView, kube: KubeView, entry: EntryId, now: Now) -> Option<(Reason, Option<Progress>)> {
    let snap = Snapshot { store: Arc::new(store.clone()), kube: Arc::new(kube), ..Snapshot::default() };
    let (decision, reading) = beside_cke::decision(&snap, now);
    let reason = publish::merged(&snap, decision.reasons).remove(&entry)?;
    Some((reason, reading.and_then(|mut reading| reading.progress.remove(&entry))))
}

/// Returns what a command that has just read etcd and Kubernetes assumes, to ask what a leader would do. Only the leader
/// has probes, so a Ready API server counts as healthy.
pub(crate) fn assumptions_of_reader(now: Now) -> Assumptions {
    Assumptions::leading_since(now.boot).and(Assumption::ReadJustNow).and(Assumption::ControlPlanesByNode)
}

/// Returns the state of applying a proposal that a leader would report, as far as etcd, sabakan's answer and these
/// Nodes show it. The missing leader is reported only if a leader would apply the proposal. Only the leader has probes,
/// so a new control plane that is Ready counts as joined. Without Nodes, nothing waits for new control planes.
pub fn applying_state(
    store: &StoreView,
    good: &GoodAnswer,
    proposal: Proposal,
    nodes: Option<&[NodeRow]>,
    now: Now,
) -> ApplyState {
    let mut assumed = assumptions_of_reader(now);
    let mut kube = KubeView::default();
    match nodes {
        Some(nodes) => nodes.iter().for_each(|node| kube.put_node(node.clone())),
        None => assumed = assumed.and(Assumption::ControlPlanesJoined),
    }
    let members = QueryState { good: Some(good.clone()), error: None, at: Some(good.at) };
    let registry = Registry { members, proposal: Some(Arc::new(proposal)), ..Registry::default() };
    let snap = Snapshot {
        store: Arc::new(store.clone()),
        kube: Arc::new(kube),
        registry: Arc::new(registry),
        ..Snapshot::default()
    };
    match decide_assuming(&snap, &assumed, now).registry {
        ApplyState::Applies => decide_assuming(&snap, &assumed.without_leadership(), now).registry,
        state @ (ApplyState::Off
        | ApplyState::Disabled(_)
        | ApplyState::Settled
        | ApplyState::Error(_)
        | ApplyState::Waits(_)
        | ApplyState::Approval(..)) => state,
    }
}

//! Reasons why entries wait, for commands that read etcd only: the leader's published progress, else a decision from
//! etcd's contents.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    clock::Now,
    entry::{EntryId, Stored},
    kube::{KubeView, NodeRow, SourceState},
    policy::{EtcdMembers, Policy},
    reason::Reason,
    stored::view::StoreView,
};

use super::{
    decide::{ApplyState, decide},
    publish,
    registry::{GoodAnswer, Proposal, QueryState, Registry},
    snapshot::{Engine, Leading, Snapshot},
};

/// Returns the reason of one entry; `None` if there is no such entry.
pub fn explain(store: &StoreView, entry: EntryId, now: Now) -> Option<Reason> {
    let snap = Snapshot { store: Arc::new(store.clone()), ..Snapshot::default() };
    let reasons = publish::merged(&snap, decide(&snap, now).reasons);
    reasons.get(&entry).cloned()
}

/// Returns the reasons that a leader would give for every entry now, from this etcd and this Kubernetes. Only the
/// leader has probes, so a Ready API server counts as healthy.
pub fn decided_as_leader(mut store: StoreView, mut kube: KubeView, now: Now) -> BTreeMap<EntryId, Reason> {
    probe_by_readiness(&mut store);
    let last_seen = now.boot.as_secs_f64();
    (store.last_seen, store.synced) = (last_seen, true);
    just_read(&mut kube, last_seen);
    let engine = Engine { leading: Some(leading(last_seen)), ..Engine::default() };
    let snap = Snapshot { store: Arc::new(store), kube: Arc::new(kube), engine, ..Snapshot::default() };
    decide(&snap, now).reasons
}

fn probe_by_readiness(store: &mut StoreView) {
    let policy = Policy {
        control_plane_probe: "node".to_owned(),
        etcd_members: EtcdMembers::None,
        ..Policy::clone(&store.policy())
    };
    let (key, mod_revision) = store.policy.as_ref().map_or((String::new(), 0), |s| (s.key.clone(), s.mod_revision));
    store.policy = Some(Stored { key, mod_revision, value: Ok(Arc::new(policy)) });
}

/// Marks every source that the rules use as read just now.
fn just_read(kube: &mut KubeView, last_seen: f64) {
    for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
        kube.sources.insert(
            source.to_owned(),
            SourceState { synced: true, last_seen, fresh_as_of: last_seen, error: None, forbidden: false },
        );
    }
}

fn leading(last_seen: f64) -> Leading {
    Leading { key: String::new(), create_revision: 0, since: last_seen, acknowledged: last_seen }
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
    let mut store = store.clone();
    probe_by_readiness(&mut store);
    // Everything was read just now.
    let last_seen = now.boot.as_secs_f64();
    store.last_seen = last_seen;
    let mut kube = KubeView::default();
    just_read(&mut kube, last_seen);
    match nodes {
        Some(nodes) => nodes.iter().for_each(|node| kube.put_node(node.clone())),
        None => store.registry.generated = None,
    }
    let members = QueryState { good: Some(good.clone()), error: None, at: Some(good.at) };
    let registry = Registry { members, proposal: Some(Arc::new(proposal)), ..Registry::default() };
    let mut snap = Snapshot {
        store: Arc::new(store),
        kube: Arc::new(kube),
        registry: Arc::new(registry),
        engine: Engine { leading: Some(leading(last_seen)), ..Engine::default() },
        ..Snapshot::default()
    };
    let state = decide(&snap, now).registry;
    if state != ApplyState::Applies {
        return state;
    }
    snap.engine = Engine::default();
    decide(&snap, now).registry
}

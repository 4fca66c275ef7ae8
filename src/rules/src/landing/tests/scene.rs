//! Small clusters for the tests.

use std::{collections::BTreeSet, sync::Arc};

use cketerm_model::{
    kube::Controller,
    labels::Labels,
    names::NodeName,
    placement::{
        Amount, ClaimUse, NodeRequirement, NodeSelector, NodeTerm, NodeTest, PlacementClaim, PlacementNode,
        PlacementPod, PlacementSpec, PlacementView, PlacementVolume, PodPhase, PodTerm, ResourceName, Resources,
        SpreadConstraint, SpreadPolicy,
    },
};

use crate::landing::{Landing, PodAnswer, check};

pub(super) const HOST: &str = "kubernetes.io/hostname";

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub(super) fn names(all: &[&str]) -> BTreeSet<NodeName> {
    all.iter().map(|name| NodeName::new(*name)).collect()
}

pub(super) fn amounts(pairs: &[(&str, i64)]) -> Resources {
    pairs.iter().map(|(name, amount)| (ResourceName::new(name), Amount(*amount))).collect()
}

/// A Ready node with this CPU, in the zone of its first letter.
pub(super) fn node(name: &str, cpu: i64) -> PlacementNode {
    PlacementNode {
        name: NodeName::new(name),
        labels: labels(&[(HOST, name), ("zone", &name[..1])]),
        ready: true,
        allocatable: amounts(&[("cpu", cpu), ("memory", 1 << 40), ("pods", 110)]),
        ..PlacementNode::default()
    }
}

/// A running pod of a `ReplicaSet`, with the label `app` of its name up to the dash.
pub(super) fn pod(name: &str, on: &str, cpu: i64) -> PlacementPod {
    let app = name.split('-').next().unwrap_or(name);
    PlacementPod {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        labels: Arc::new(labels(&[("app", app)])),
        node: (!on.is_empty()).then(|| NodeName::new(on)),
        phase: if on.is_empty() { PodPhase::Pending } else { PodPhase::Running },
        controller: Some(controller("ReplicaSet", app)),
        spec: Arc::new(PlacementSpec { requests: amounts(&[("cpu", cpu)]), ..PlacementSpec::default() }),
        ..PlacementPod::default()
    }
}

pub(super) fn controller(kind: &str, name: &str) -> Controller {
    Controller { kind: kind.to_owned(), name: name.to_owned(), uid: name.to_owned() }
}

pub(super) fn with(mut pod: PlacementPod, change: impl FnOnce(&mut PlacementSpec)) -> PlacementPod {
    change(Arc::make_mut(&mut pod.spec));
    pod
}

pub(super) fn term(selector: &str, topology_key: &str) -> PodTerm {
    PodTerm {
        topology_key: topology_key.to_owned(),
        selector: Some(selector.parse().unwrap()),
        namespaces: vec!["shop".to_owned()],
        namespace_selector: None,
    }
}

pub(super) fn spread(selector: &str, topology_key: &str) -> SpreadConstraint {
    SpreadConstraint {
        topology_key: topology_key.to_owned(),
        max_skew: 1,
        min_domains: 1,
        selector: Some(selector.parse().unwrap()),
        node_affinity: SpreadPolicy::Honor,
        node_taints: SpreadPolicy::Ignore,
        match_label_keys: Vec::new(),
    }
}

pub(super) fn on_hosts(hosts: &[&str]) -> NodeSelector {
    let test = NodeTest::In(hosts.iter().map(|host| (*host).to_owned()).collect());
    let labels = vec![NodeRequirement { key: HOST.to_owned(), test }];
    NodeSelector { terms: vec![NodeTerm { labels, names: Vec::new() }] }
}

/// Gives a pod a claim whose volume is on these nodes.
pub(super) fn claim(view: &mut PlacementView, pod: &mut PlacementPod, volume: &str, hosts: &[&str]) {
    pod.claims.push(ClaimUse { name: volume.to_owned(), ephemeral: false });
    let key = (pod.namespace.clone(), volume.to_owned());
    view.claims.insert(key, PlacementClaim { volume: Some(volume.to_owned()), terminating: false });
    let row = PlacementVolume { affinity: Some(on_hosts(hosts)), local: hosts.len() == 1, unreadable: None };
    view.volumes.insert(volume.to_owned(), row);
}

pub(super) fn view(nodes: Vec<PlacementNode>, pods: Vec<PlacementPod>) -> PlacementView {
    PlacementView { pods, nodes, ..PlacementView::default() }
}

pub(super) fn leave(view: &PlacementView, nodes: &[&str]) -> Landing {
    check(view, &names(nodes), |_| true, &BTreeSet::new())
}

/// Answer for the only pod that leaves.
pub(super) fn one(view: &PlacementView, node: &str) -> PodAnswer {
    let mut pods = leave(view, &[node]).pods;
    assert_eq!(pods.len(), 1, "{pods:?}");
    pods.remove(0).answer
}

/// The obstacles of an impossible pod as text.
pub(super) fn obstacles(answer: &PodAnswer) -> Vec<String> {
    match answer {
        PodAnswer::Cannot(obstacles) => obstacles.iter().map(|(o, count)| format!("{count}: {o}")).collect(),
        other => panic!("{other:?}"),
    }
}

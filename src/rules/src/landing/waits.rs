//! Pods that wait for unavailable nodes, and nodes whose pods can only go to each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cketerm_model::{
    names::NodeName,
    placement::{PlacementPod, PlacementView},
};
use foldhash::fast::FixedState;

use super::{
    cluster::{Indexed, index},
    nodes::Access,
    state::State,
};

/// Returns the nodes of this set that would take a pending pod if they were uncordoned and Ready, when no other node
/// takes it. Empty if another one does, if none would, or if that is uncertain.
pub fn waits_only_for(
    view: &PlacementView,
    pod: &PlacementPod,
    unavailable: &BTreeSet<NodeName>,
) -> BTreeSet<NodeName> {
    waits_only_for_each(view, &[pod], unavailable).pop().unwrap_or_default()
}

/// Answers [`waits_only_for`] for each of these pods, with one index of the view.
pub fn waits_only_for_each(
    view: &PlacementView,
    pods: &[&PlacementPod],
    unavailable: &BTreeSet<NodeName>,
) -> Vec<BTreeSet<NodeName>> {
    let access = |name: &NodeName| if unavailable.contains(name) { Access::Opened } else { Access::AsIs };
    let Indexed { cluster, class_of } = index(view, pods, access);
    let state = State::new(&cluster, |_| true);
    let mut known: HashMap<usize, BTreeSet<NodeName>, FixedState> = HashMap::default();
    let of_class = |class: usize| {
        let row = &cluster.classes[class];
        let mut nodes = BTreeSet::new();
        for node in row.eligible.iter().filter(|_| row.doubt.is_none()) {
            if state.fit(&cluster, row, *node).is_err() {
                continue;
            }
            let entry = &cluster.nodes.entries[*node];
            match entry.access {
                Access::Opened => nodes.insert(entry.node.name.clone()),
                Access::AsIs | Access::Closed => return BTreeSet::new(),
            };
        }
        nodes
    };
    class_of.into_iter().map(|class| known.entry(class).or_insert_with(|| of_class(class)).clone()).collect()
}

/// Returns the pairs of these nodes of which each has a pod that can go to the other one, and to no node outside the
/// set. Drained at once, both would wait for each other.
pub fn mutual(view: &PlacementView, nodes: &BTreeSet<NodeName>) -> Vec<(NodeName, NodeName)> {
    let leaves = |pod: &&PlacementPod| {
        let on_node = pod.node.as_ref().is_some_and(|node| nodes.contains(node));
        on_node && !pod.finished() && !pod.terminating && !pod.belongs_to_node() && pod.controller.is_some()
    };
    let actors: Vec<&PlacementPod> = view.pods.iter().filter(leaves).collect();
    let access = |name: &NodeName| if nodes.contains(name) { Access::Opened } else { Access::AsIs };
    let Indexed { cluster, class_of } = index(view, &actors, access);
    let mut state = State::new(&cluster, |_| true);
    let classes: HashMap<*const PlacementPod, usize, FixedState> =
        actors.iter().copied().map(std::ptr::from_ref).zip(class_of).collect();
    let mut targets: BTreeMap<&NodeName, BTreeSet<&NodeName>> = BTreeMap::new();
    for bound in &cluster.bound {
        let Some(class) = classes.get(&std::ptr::from_ref(bound.pod)) else { continue };
        let row = &cluster.classes[*class];
        if row.doubt.is_some() {
            continue;
        }
        state.uncount(&cluster, bound);
        let others = row.eligible.iter().filter(|node| **node != bound.node);
        let fitting = others.filter(|node| state.fit(&cluster, row, **node).is_ok());
        let mut found = BTreeSet::new();
        let mut only_inside = true;
        for node in fitting {
            let entry = &cluster.nodes.entries[*node];
            if entry.access != Access::Opened {
                only_inside = false;
                break;
            }
            found.insert(&entry.node.name);
        }
        state.recount(&cluster, bound);
        if only_inside {
            targets.entry(&cluster.nodes.entries[bound.node].node.name).or_default().extend(found);
        }
    }
    let mut pairs = Vec::new();
    for (node, others) in &targets {
        let back = |other: &&&NodeName| targets.get(**other).is_some_and(|targets| targets.contains(*node));
        let later = others.iter().filter(|other| **other > *node).filter(back);
        pairs.extend(later.map(|other| ((*node).clone(), (*other).clone())));
    }
    pairs
}

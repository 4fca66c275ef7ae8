//! The nodes and hosts that there are: their names, and which hosts a person should know of.

use std::{cmp::Ordering, sync::Arc};

use imbl::OrdMap;

use super::{app::HostId, queries, short_text};
use crate::{
    engine::{metal3::Metal3, snapshot::Seen},
    model::{cluster::Node, host::HostRow, kube::NodeRow},
    store::view::Definition,
};

/// Where nodes have their names, racks and roles from. Cheap to make and to compare.
#[derive(Clone, Debug)]
pub struct Named {
    nodes: OrdMap<String, Arc<NodeRow>>,
    definition: Option<Arc<Definition>>,
    /// Kubernetes has told of all its Nodes.
    synced: bool,
}

impl Named {
    /// As it is seen.
    pub fn by(seen: &Seen) -> Self {
        let definition = seen.snapshot.store.cluster.as_ref().and_then(|stored| stored.value.as_ref().ok());
        let kube = &seen.snapshot.kube;
        let synced = kube.sources.get("nodes").is_some_and(|s| s.synced);
        Self { nodes: kube.nodes.clone(), definition: definition.cloned(), synced }
    }

    /// Walks over all of them once.
    pub fn count(&self, seen: &Seen) -> Count {
        let mut count = Count::default();
        for (name, node) in with_nodes(seen) {
            count.names += 1;
            count.width = count.width.max(name.len());
            if self.synced && !node {
                count.missing.push(name.to_owned());
            }
        }
        count
    }

    /// Nothing has changed.
    pub fn is(&self, other: &Self) -> bool {
        let definition = |of: &Self| of.definition.as_ref().map(Arc::as_ptr);
        self.nodes.ptr_eq(&other.nodes) && definition(self) == definition(other) && self.synced == other.synced
    }
}

/// The nodes, counted.
#[derive(Clone, Debug, Default)]
pub struct Count {
    /// How many there are, in Kubernetes or in the definition.
    pub names: usize,
    /// Columns that the longest name takes.
    pub width: usize,
    /// Members of the definition without a Node, by name; none while Kubernetes has not told of all its Nodes.
    pub missing: Vec<String>,
}

/// The names of all nodes, Kubernetes' and the definition's, in order and each once.
pub fn names(seen: &Seen) -> impl Iterator<Item = &str> {
    with_nodes(seen).map(|(name, _)| name)
}

/// The same, each with whether Kubernetes has a Node of that name.
fn with_nodes(seen: &Seen) -> impl Iterator<Item = (&str, bool)> {
    let definition = seen.snapshot.store.definition().into_iter();
    let mut members = definition.flat_map(|d| d.members.by_order_of_name(&d.cluster)).map(Node::node_name).peekable();
    let mut nodes = seen.snapshot.kube.nodes.keys().map(String::as_str).peekable();
    std::iter::from_fn(move || {
        let order = match (members.peek(), nodes.peek()) {
            (Some(member), Some(node)) => member.cmp(node),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        if order.is_gt() {
            return nodes.next().map(|name| (name, true));
        }
        let name = members.next()?;
        while members.next_if_eq(&name).is_some() {}
        if order.is_eq() {
            nodes.next();
        }
        Some((name, order.is_eq()))
    })
}

/// Whether there is a node of that name, in Kubernetes or in the definition.
pub fn known(seen: &Seen, name: &str) -> bool {
    queries::node(seen, name).is_some() || queries::member(seen, name).is_some()
}

/// Hosts by what a person should know of them.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Those with an error, and those whose request something keeps from being carried out.
    pub trouble: Vec<HostId>,
    /// The others that somebody holds off.
    pub held: Vec<HostId>,
    /// Those of which that is carried out, or a restart: their Nodes are away because it was asked for.
    pub away: Vec<HostId>,
    /// What both were counted from.
    of: OrdMap<HostId, Arc<HostRow>>,
    ours: Option<Arc<Metal3>>,
}

impl Hosts {
    /// Takes them anew where something has changed.
    pub(super) fn refresh(&mut self, seen: &Seen) {
        let (hosts, ours) = (&seen.snapshot.kube.hosts, &seen.snapshot.metal3);
        if self.of.ptr_eq(hosts) && self.ours.as_ref().is_some_and(|of| Arc::ptr_eq(of, ours)) {
            return;
        }
        self.trouble = hosts.keys().filter(|id| short_text::host(seen, id).1).cloned().collect();
        let held = hosts.iter().filter(|(id, host)| !host.asked.keys.is_empty() && !short_text::host(seen, id).1);
        self.held = held.map(|(id, _)| id.clone()).collect();
        let asked = |host: &HostRow| !host.asked.keys.is_empty() || host.pending();
        let away = hosts.iter().filter(|(id, host)| asked(host) && !short_text::host(seen, id).1);
        self.away = away.map(|(id, _)| id.clone()).collect();
        (self.of, self.ours) = (hosts.clone(), Some(Arc::clone(ours)));
    }
}

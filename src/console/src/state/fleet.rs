//! Nodes and hosts of the cluster: their names, and the hosts that an operator should know about.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use cketerm_model::{host::HostRow, kube::NodeRow, names::NodeName, stored::view::Definition};
use cketerm_rules::{metal3::Metal3, seen::Seen};
use imbl::{OrdMap, ordmap::DiffItem};

use super::{HostId, short_text};

/// Sources of node names, racks and roles. Cheap to create and to compare.
#[derive(Clone, Debug)]
pub struct NodeNames {
    nodes: OrdMap<NodeName, Arc<NodeRow>>,
    definition: Option<Arc<Definition>>,
    /// Whether the first list of all Nodes is complete.
    synced: bool,
}

impl NodeNames {
    /// Takes them from the published state.
    pub fn by(seen: &Seen) -> Self {
        let definition = seen.snapshot.store.cluster.as_ref().and_then(|stored| stored.value.as_ref().ok());
        let kube = &seen.snapshot.kube;
        let synced = kube.sources.get("nodes").is_some_and(|s| s.synced);
        Self { nodes: kube.nodes.clone(), definition: definition.cloned(), synced }
    }

    /// Counts all nodes, in one pass.
    pub fn count(&self, seen: &Seen) -> Count {
        let mut count = Count::default();
        for (name, node) in names_with_nodes(seen) {
            count.names += 1;
            count.width = count.width.max(name.len());
            if self.synced && !node {
                count.missing.push(name.to_owned());
            }
        }
        count
    }

    /// Returns the missing members of a later definition that this one does not have. None if this one has no members:
    /// nobody knows since when they have been missing.
    pub fn joined(&self, later: &Self, missing: &[String]) -> Vec<String> {
        let Some(before) = &self.definition else { return Vec::new() };
        if later.definition.as_ref().is_none_or(|later| Arc::ptr_eq(later, before)) {
            return Vec::new();
        }
        let known = before.members.sorted_by_name(&before.cluster).map(|member| member.node_name().as_str());
        let known: BTreeSet<&str> = known.collect();
        missing.iter().filter(|name| !known.contains(name.as_str())).cloned().collect()
    }

    /// Returns true if nothing has changed.
    pub fn is(&self, other: &Self) -> bool {
        self.nodes.ptr_eq(&other.nodes) && self.same_definition(other)
    }

    /// Returns true if all names and their sources are the same. It costs as much as Nodes changed, not as there are.
    pub fn has_names_of(&self, other: &Self) -> bool {
        let mut changes = self.nodes.diff(&other.nodes);
        self.same_definition(other) && changes.all(|change| matches!(change, DiffItem::Update { .. }))
    }

    fn same_definition(&self, other: &Self) -> bool {
        let definition = |of: &Self| of.definition.as_ref().map(Arc::as_ptr);
        definition(self) == definition(other) && self.synced == other.synced
    }
}

/// Counts of the nodes.
#[derive(Clone, Debug, Default)]
pub struct Count {
    /// Number of nodes in Kubernetes or in the definition.
    pub names: usize,
    /// Width of the longest name, in columns.
    pub width: usize,
    /// Names of members of the definition without a Node. Empty until the first list of all Nodes is complete.
    pub missing: Vec<String>,
}

/// Returns the names of all nodes, from Kubernetes and the definition, sorted and each once.
pub fn names(seen: &Seen) -> impl Iterator<Item = &str> {
    names_with_nodes(seen).map(|(name, _)| name)
}

/// Same as [`names`], each with whether Kubernetes has a Node of that name.
fn names_with_nodes(seen: &Seen) -> impl Iterator<Item = (&str, bool)> {
    let definition = seen.snapshot.store.definition().into_iter();
    let mut members = definition
        .flat_map(|d| d.members.sorted_by_name(&d.cluster))
        .map(|member| member.node_name().as_str())
        .peekable();
    let mut nodes = seen.snapshot.kube.nodes.keys().map(NodeName::as_str).peekable();
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

/// Hosts, grouped by what an operator should know about them.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Hosts with an error, and hosts whose request is blocked.
    pub trouble: Vec<HostId>,
    /// The other hosts that somebody holds powered off.
    pub held: Vec<HostId>,
    /// Hosts without trouble that are held or restarted: their Nodes are away because somebody requested it.
    pub away: Vec<HostId>,
    /// Inputs of the groups.
    of: OrdMap<HostId, Arc<HostRow>>,
    metal3: Option<Arc<Metal3>>,
}

impl Hosts {
    /// Recomputes the groups if something has changed.
    pub(super) fn refresh(&mut self, seen: &Seen) {
        let (hosts, metal3) = (&seen.snapshot.kube.hosts, &seen.snapshot.metal3);
        if self.of.ptr_eq(hosts) && self.metal3.as_ref().is_some_and(|of| Arc::ptr_eq(of, metal3)) {
            return;
        }
        self.trouble = hosts.keys().filter(|id| short_text::host(seen, id).1).cloned().collect();
        let held = hosts.iter().filter(|(id, host)| !host.asked.keys.is_empty() && !short_text::host(seen, id).1);
        self.held = held.map(|(id, _)| id.clone()).collect();
        let asked = |host: &HostRow| !host.asked.keys.is_empty() || host.pending();
        let away = hosts.iter().filter(|(id, host)| asked(host) && !short_text::host(seen, id).1);
        self.away = away.map(|(id, _)| id.clone()).collect();
        (self.of, self.metal3) = (hosts.clone(), Some(Arc::clone(metal3)));
    }
}

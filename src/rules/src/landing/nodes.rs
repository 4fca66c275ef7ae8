//! Nodes of a question: which of them can take pods, their taints, and their topology domains.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use cketerm_model::{
    kube::OUT_OF_SERVICE_TAINT,
    names::NodeName,
    placement::{NodeTaint, PlacementNode},
};

use super::counter::{DomainId, NodeId, Topology};

/// Taint of a cordoned node.
pub(super) const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Taint of a node that is not Ready.
pub(super) const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Taints that come and go with the state of a node.
const PASSING_TAINTS: &[&str] = &[
    CORDON_TAINT,
    NOT_READY_TAINT,
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    OUT_OF_SERVICE_TAINT,
];

/// Treatment of a node in a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It takes pods if it is schedulable and Ready.
    AsIs,
    /// It takes none: it leaves or is unavailable. It still is a topology domain, like every cordoned node.
    Closed,
    /// It takes pods as if it were uncordoned and Ready.
    Opened,
}

/// Node of a question.
pub(super) struct NodeEntry<'a> {
    pub(super) node: &'a PlacementNode,
    pub(super) access: Access,
    /// Taints as the scheduler sees them once the node has its access.
    pub(super) taints: Vec<NodeTaint>,
}

impl<'a> NodeEntry<'a> {
    fn new(node: &'a PlacementNode, access: Access) -> Self {
        let mut taints = node.taints.clone();
        let mut add = |key: &str| {
            if !taints.iter().any(|taint| taint.key == key) {
                taints.push(NodeTaint::no_schedule(key));
            }
        };
        match access {
            Access::AsIs => {}
            Access::Closed => add(CORDON_TAINT),
            Access::Opened => taints.retain(|taint| !PASSING_TAINTS.contains(&taint.key.as_str())),
        }
        Self { node, access, taints }
    }

    /// Reports whether it is cordoned in this question.
    pub(super) fn cordoned(&self) -> bool {
        match self.access {
            Access::AsIs => self.node.unschedulable,
            Access::Closed => true,
            Access::Opened => false,
        }
    }

    /// Reports whether it is Ready in this question.
    pub(super) fn ready(&self) -> bool {
        match self.access {
            Access::AsIs | Access::Closed => self.node.ready,
            Access::Opened => true,
        }
    }

    /// Reports whether pods may be placed on it at all.
    pub(super) fn open(&self) -> bool {
        match self.access {
            Access::AsIs | Access::Opened => true,
            Access::Closed => false,
        }
    }
}

/// All nodes of a question.
pub(super) struct Nodes<'a> {
    pub(super) entries: Vec<NodeEntry<'a>>,
    ids: BTreeMap<&'a NodeName, NodeId>,
    topologies: RefCell<HashMap<String, Rc<Topology>, foldhash::fast::FixedState>>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(nodes: &'a [PlacementNode], access: impl Fn(&NodeName) -> Access) -> Self {
        let mut sorted: Vec<&PlacementNode> = nodes.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        let entries: Vec<NodeEntry<'a>> =
            sorted.into_iter().map(|node| NodeEntry::new(node, access(&node.name))).collect();
        let ids = entries.iter().enumerate().map(|(id, entry)| (&entry.node.name, id)).collect();
        Self { entries, ids, topologies: RefCell::default() }
    }

    pub(super) fn id(&self, name: &NodeName) -> Option<NodeId> {
        self.ids.get(name).copied()
    }

    /// Returns the domains by a label.
    pub(super) fn topology(&self, key: &str) -> Rc<Topology> {
        if let Some(known) = self.topologies.borrow().get(key) {
            return Rc::clone(known);
        }
        let mut values: BTreeMap<&str, DomainId> = BTreeMap::new();
        let mut domains = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let next = DomainId::try_from(values.len()).unwrap_or(DomainId::MAX);
            domains.push(entry.node.labels.get(key).map(|value| *values.entry(value).or_insert(next)));
        }
        let topology = Rc::new(Topology { key: key.to_owned(), domains, count: values.len() });
        self.topologies.borrow_mut().insert(key.to_owned(), Rc::clone(&topology));
        topology
    }
}

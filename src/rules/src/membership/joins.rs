//! Nodes that join the definition, and the reason of each that cannot.

use std::{collections::BTreeSet, fmt};

use cketerm_model::{
    cluster::{Cluster, Node},
    kube::{ControlPlaneSignals, KubeView},
    names::{Address, NodeName},
    policy::NodeSelector,
};

use super::is_picked;

/// Node that does not join, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotJoined {
    /// Its status has no IP address.
    NoAddress(NodeName),
    /// Another member or Node has its address.
    AddressTaken {
        /// The Node.
        node: NodeName,
        /// Its address.
        address: Address,
        /// The other member or Node.
        by: NodeName,
    },
    /// The member of its name has another address, and leaves first.
    NameTaken {
        /// The Node.
        node: NodeName,
        /// The member's address.
        address: Address,
    },
    /// It may be a control plane: a source that would show it is not known.
    Unclear {
        /// The Node.
        node: NodeName,
        /// Signals of the sources.
        signals: ControlPlaneSignals,
    },
}

impl NotJoined {
    /// Returns the name of the Node.
    pub fn node(&self) -> &NodeName {
        match self {
            Self::NoAddress(node)
            | Self::AddressTaken { node, .. }
            | Self::NameTaken { node, .. }
            | Self::Unclear { node, .. } => node,
        }
    }
}

impl fmt::Display for NotJoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress(node) => write!(f, "Node {node} does not join: its status has no IP address"),
            Self::AddressTaken { node, address, by } => {
                write!(f, "Node {node} does not join: {by} has its address {address} too")
            }
            Self::NameTaken { node, address } => write!(
                f,
                "Node {node} does not join yet: the member of that name has the address {address}, which leaves first"
            ),
            Self::Unclear { node, signals } => {
                write!(f, "Node {node} does not join yet: it is not known whether it is a control plane: {signals}")
            }
        }
    }
}

/// Nodes that join, and Nodes that do not.
#[derive(Default)]
pub(super) struct Joins {
    pub nodes: Vec<Node>,
    pub refused: Vec<NotJoined>,
}

/// Returns the picked Nodes that are not members, in the order of their names.
pub(super) fn joins(current: &Cluster, kube: &KubeView, selector: &NodeSelector) -> Joins {
    let members: std::collections::HashMap<NodeName, &Address> =
        current.nodes.iter().map(|member| (member.node_name(), &member.address)).collect();
    let mut taken: std::collections::HashMap<Address, NodeName> =
        current.nodes.iter().map(|member| (member.address.clone(), member.node_name())).collect();
    let mut joins = Joins::default();
    for node in kube.nodes.values().filter(|node| is_picked(selector, node)) {
        let name = node.name.clone();
        if let Some(address) = members.get(&name) {
            if !node.addresses.contains(address) {
                joins.refused.push(NotJoined::NameTaken { node: name, address: (*address).clone() });
            }
            continue;
        }
        let Some(address) = node.machine_address().cloned() else {
            joins.refused.push(NotJoined::NoAddress(name));
            continue;
        };
        if let Some(by) = taken.get(&address).cloned() {
            joins.refused.push(NotJoined::AddressTaken { node: name, address, by });
            continue;
        }
        let signals = kube.control_plane_signals(node);
        if !signals.any() && !kube.control_plane_sources_read() {
            joins.refused.push(NotJoined::Unclear { node: name, signals });
            continue;
        }
        taken.insert(address.clone(), name.clone());
        let control_plane = signals.any();
        joins.nodes.push(Node { address, hostname: name, control_plane, ..Node::default() });
    }
    joins
}

/// Returns the definition with further members, and with promoted control planes.
pub(super) fn with(current: &Cluster, nodes: &[Node], promoted: &BTreeSet<Address>) -> Cluster {
    let mut next = current.clone();
    for member in next.nodes.iter_mut().filter(|member| promoted.contains(&member.address)) {
        member.control_plane = true;
    }
    next.nodes.extend_from_slice(nodes);
    next
}

/// Returns the reason of such a change.
pub(super) fn reason(nodes: &[Node], promoted: &BTreeSet<Address>) -> String {
    let mut parts = Vec::new();
    if !nodes.is_empty() {
        let names: Vec<&str> = nodes.iter().map(|member| member.hostname.as_str()).collect();
        parts.push(format!("new Nodes: {}", names.join(", ")));
    }
    if !promoted.is_empty() {
        let list: Vec<&str> = promoted.iter().map(Address::as_str).collect();
        parts.push(format!("now control planes: {}", list.join(", ")));
    }
    parts.join("; ")
}

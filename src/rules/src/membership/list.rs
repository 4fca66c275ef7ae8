//! Members and Nodes side by side, for people.

use std::collections::BTreeSet;

use cketerm_model::{
    cluster::Node,
    entry::Stored,
    kube::{ControlPlaneSignals, KubeView},
    names::{Address, NodeName},
    stored::view::StoreView,
};
use jiff::Timestamp;
use serde::Serialize;

use super::{absences, is_picked, joins, leaves_at, node_of};
use crate::registry::propose::busy;

/// One member or Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Name of the Node, or of the member.
    pub node: NodeName,
    /// Address of the member, else of the Node.
    pub address: Option<Address>,
    /// Whether the member is a control plane, or the Node would become one.
    pub control_plane: bool,
    /// Signals of the Node; none without a Node.
    pub signals: Option<ControlPlaneSignals>,
    /// Its place in the definition.
    #[serde(flatten)]
    pub state: State,
}

/// Place of a member or Node in the definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// A member with its Node.
    Member,
    /// A Node that joins with the next change.
    Joins,
    /// A Node that does not join.
    NotJoined {
        /// The reason.
        why: String,
    },
    /// A member without its Node.
    Absent {
        /// Time since which that is recorded; none before the leader has recorded it.
        since: Option<Timestamp>,
        /// End of the grace period.
        leaves_at: Option<Timestamp>,
        /// Whether an entry works on its machine, which keeps it a member.
        in_work: bool,
    },
    /// A Node that `node_selector` does not pick.
    NotPicked,
}

/// Returns the members in the order of the definition, then the other Nodes by name. None: the Nodes are not known, or
/// the definition cannot be read.
pub fn list(store: &StoreView, kube: &KubeView, now: Timestamp) -> Option<Vec<Row>> {
    let current = &store.definition()?.cluster;
    let absences = absences(store, kube, now)?;
    let selector = &store.policy().node_selector;
    let (busy, recorded) = (busy(store), store.registry.absent.as_ref().and_then(Stored::get));
    let mut rows: Vec<Row> = current
        .nodes
        .iter()
        .map(|member| {
            let node = node_of(kube, selector, member);
            let state = if absences.since.contains_key(&member.address) {
                let since = recorded.and_then(|recorded| recorded.since.get(&member.address)).copied();
                let leaves_at = since.map(|since| leaves_at(store, since));
                State::Absent { since, leaves_at, in_work: busy.contains(&member.address) }
            } else {
                State::Member
            };
            let signals = node.map(|node| kube.control_plane_signals(node));
            row(member, signals, state)
        })
        .collect();
    let joins = joins::joins(current, kube, selector);
    rows.extend(joins.nodes.iter().map(|node| {
        let signals = kube.by_name.get(&node.hostname).map(|row| kube.control_plane_signals(row));
        row(node, signals, State::Joins)
    }));
    let members: BTreeSet<&Address> = current.nodes.iter().map(|member| &member.address).collect();
    let new: BTreeSet<NodeName> = joins.nodes.iter().map(|node| node.hostname.clone()).collect();
    for node in kube.nodes.values().filter(|node| !new.contains(&node.name)) {
        let refused = joins.refused.iter().find(|refused| *refused.node() == node.name);
        let state = match refused {
            Some(refused) => State::NotJoined { why: refused.to_string() },
            None if is_picked(selector, node) || node.addresses.iter().any(|a| members.contains(a)) => continue,
            None => State::NotPicked,
        };
        let signals = kube.control_plane_signals(node);
        rows.push(Row {
            node: node.name.clone(),
            address: node.machine_address().cloned(),
            control_plane: signals.any(),
            signals: Some(signals),
            state,
        });
    }
    Some(rows)
}

fn row(member: &Node, signals: Option<ControlPlaneSignals>, state: State) -> Row {
    Row {
        node: member.node_name(),
        address: Some(member.address.clone()),
        control_plane: member.control_plane,
        signals,
        state,
    }
}

//! Members that become control planes or workers.
//!
//! Any signal makes a member a control plane, which is the careful side. It becomes a worker again only if every source
//! is known and none shows it.

use std::collections::BTreeSet;

use cketerm_model::{
    cluster::{Cluster, Node},
    kube::{ControlPlaneSignals, KubeView},
    names::Address,
    policy::NodeSelector,
};

use super::node_of;

fn of_members<'a>(
    current: &'a Cluster,
    kube: &'a KubeView,
    selector: &'a NodeSelector,
) -> impl Iterator<Item = (&'a Node, ControlPlaneSignals)> {
    current
        .nodes
        .iter()
        .filter_map(|member| Some((member, kube.control_plane_signals(node_of(kube, selector, member)?))))
}

/// Returns the addresses of workers that a signal shows as control planes.
pub(super) fn promoted(current: &Cluster, kube: &KubeView, selector: &NodeSelector) -> BTreeSet<Address> {
    let promoted =
        of_members(current, kube, selector).filter(|(member, signals)| !member.control_plane && signals.any());
    promoted.map(|(member, _)| member.address.clone()).collect()
}

/// Returns the addresses of control planes that nothing shows as such.
pub(super) fn demoted(current: &Cluster, kube: &KubeView, selector: &NodeSelector) -> BTreeSet<Address> {
    let demoted =
        of_members(current, kube, selector).filter(|(member, signals)| member.control_plane && signals.none());
    demoted.map(|(member, _)| member.address.clone()).collect()
}

/// Returns the signals of a member whose sources contradict each other.
pub fn unclear(current: &Node, kube: &KubeView, selector: &NodeSelector) -> Option<ControlPlaneSignals> {
    let signals = kube.control_plane_signals(node_of(kube, selector, current)?);
    signals.disagree().then_some(signals)
}

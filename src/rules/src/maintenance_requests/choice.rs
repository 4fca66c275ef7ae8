//! The Nodes of a request, chosen once.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    accepted_request::AcceptedNode,
    kube::{KubeView, NodeRow},
    maintenance_request::{MAX_MAINTENANCE_DAYS, MAX_REQUESTED_NODES, RequestReason, RequestSpec, RequestedAction},
    stored::view::StoreView,
};
use jiff::Timestamp;

use crate::reboot_needed::list::member_of;

/// Reason why a request is not accepted yet. The leader looks again whenever something changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: RequestReason,
    /// Text for people, with the remedy.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(reason: RequestReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Returns the Nodes of a request in the order of their names: all that match, or none.
pub fn choose(
    store: &StoreView,
    kube: &KubeView,
    spec: &RequestSpec,
    now: Timestamp,
) -> Result<Vec<AcceptedNode>, Refusal> {
    let is_keep = spec.action == RequestedAction::Keep;
    if let Some(end) =
        spec.window.end.filter(|end| is_keep && end.duration_since(now).as_hours() > MAX_MAINTENANCE_DAYS * 24)
    {
        let message = format!("spec.window.end {end} is more than {MAX_MAINTENANCE_DAYS} days ahead");
        return Err(Refusal::new(RequestReason::TooLong, message));
    }
    let nodes: Vec<&NodeRow> = if let Some(selector) = &spec.node_selector {
        let matches = |node: &&NodeRow| selector.matches(&BTreeMap::from(node.described.labels.clone()));
        kube.nodes.values().map(AsRef::as_ref).filter(matches).collect()
    } else {
        let names: BTreeSet<_> = spec.node_names.iter().collect();
        let found = |name| {
            let message = || format!("Kubernetes has no Node {name}: create another request with the right name");
            kube.by_name.get(name).map(AsRef::as_ref).ok_or_else(|| Refusal::new(RequestReason::NoNodes, message()))
        };
        names.into_iter().map(found).collect::<Result<_, _>>()?
    };
    if nodes.is_empty() {
        return Err(Refusal::new(RequestReason::NoNodes, "no Node has the labels of spec.nodeSelector"));
    }
    if nodes.len() > MAX_REQUESTED_NODES {
        let message = format!("{} Nodes match; one request may have {MAX_REQUESTED_NODES}", nodes.len());
        return Err(Refusal::new(RequestReason::TooManyNodes, message));
    }
    let accepted = nodes.into_iter().map(|node| {
        let message = || format!("Node {} is not in the cluster definition; see `cketerm nodes list`", node.name);
        let member = member_of(store, node).ok_or_else(|| Refusal::new(RequestReason::NotMember, message()))?;
        Ok(AcceptedNode {
            name: node.name.clone(),
            address: member.address().clone(),
            uid: node.uid.clone(),
            index: None,
        })
    });
    accepted.collect()
}

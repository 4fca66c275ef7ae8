//! `MaintenanceRequest`: the custom resource by which other programs ask for maintenance or for reboots (SAF-43).
//!
//! etcd is the source of truth: the entries of the queues are made once from a request, and go their way even if the
//! object is lost. Its status only tells of them.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    entry::{EntryId, QueueKind},
    names::NodeName,
    selector::Selector,
};

/// Name of the watch of `MaintenanceRequest`s in [`crate::kube::KubeView::sources`].
pub const MAINTENANCE_REQUESTS_SOURCE: &str = "maintenancerequests";
/// Finalizer by which the leader learns of every deletion. An object that vanishes without it, for example by a restore
/// of the API server's data, ends nothing.
pub const FINALIZER: &str = "cketerm.io/maintenance-request";
/// User in whose name the leader queues the entries of a request; its name follows.
pub const MAINTENANCE_REQUEST_USER: &str = "maintenancerequest/";
/// Largest number of Nodes of one request.
pub const MAX_REQUESTED_NODES: usize = 500;
/// Largest number of characters of a reason: people read it in a terminal.
const MAX_REASON: usize = 500;
/// Longest time of a maintenance, in days: a typing error must not take a Node out for ever.
pub const MAX_MAINTENANCE_DAYS: i64 = 366;

/// `spec.action`: the action on the Nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestedAction {
    /// Drains the Nodes and keeps them cordoned until the end of the window, or until the request is deleted.
    Keep,
    /// Reboots them.
    Reboot,
}

impl RequestedAction {
    /// Returns the queue of its entries.
    pub fn queue(self) -> QueueKind {
        match self {
            Self::Keep => QueueKind::Maintenance,
            Self::Reboot => QueueKind::Reboot,
        }
    }
}

/// `spec.window`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestedWindow {
    /// Nothing is queued before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// End of a maintenance. Reboots that have not begun by then are cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
}

/// `spec`. It does not change: the definition of the resource refuses that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestSpec {
    /// Names of the Nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_names: Vec<NodeName>,
    /// Selector of the Nodes by their labels, in place of the names. It is evaluated once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Selector>,
    /// The cause, for everybody who sees the Nodes out of use.
    pub reason: String,
    /// The action.
    pub action: RequestedAction,
    /// The times of it.
    #[serde(default)]
    pub window: RequestedWindow,
}

impl RequestSpec {
    /// Returns the fault of a spec that the server accepted although the resource's definition should have refused it.
    pub fn fault(&self) -> Option<String> {
        let Self { node_names, node_selector, reason, action, window } = self;
        if node_names.is_empty() == node_selector.is_none() {
            return Some("spec needs nodeNames or nodeSelector, and not both".to_owned());
        }
        let selects_all = |s: &Selector| {
            s.match_labels.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
                && s.match_expressions.as_ref().is_none_or(Vec::is_empty)
        };
        if let Some(selector) = node_selector {
            if let Some(fault) = selector.fault("spec.nodeSelector") {
                return Some(fault);
            }
            if selects_all(selector) {
                return Some("spec.nodeSelector is empty and would select every Node: name a label".to_owned());
            }
        }
        if node_names.len() > MAX_REQUESTED_NODES {
            return Some(format!("spec.nodeNames has more than {MAX_REQUESTED_NODES} names"));
        }
        if reason.trim().is_empty() {
            return Some("spec.reason is empty".to_owned());
        }
        if reason.chars().any(char::is_control) || reason.chars().count() > MAX_REASON {
            return Some(format!("spec.reason has control characters, or more than {MAX_REASON} characters"));
        }
        if *action == RequestedAction::Keep && window.end.is_none() {
            return Some("spec.window.end is missing: a maintenance needs an end".to_owned());
        }
        match (window.start, window.end) {
            (Some(start), Some(end)) if end <= start => {
                Some("spec.window.end is not after spec.window.start".to_owned())
            }
            _ => None,
        }
    }
}

/// Fields of a `MaintenanceRequest` that cketerm reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRow {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, which every patch carries.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether it has a `deletionTimestamp`.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `spec`, or the reason why it cannot be used.
    pub spec: Result<RequestSpec, String>,
    /// `status`; the default if it cannot be read.
    pub status: RequestStatus,
}

impl RequestRow {
    /// Reports whether the leader has its finalizer on it.
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|name| name == FINALIZER)
    }
}

/// `status`, written by the leader alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestStatus {
    /// Conditions by type: `Accepted`, then `Complete`.
    pub conditions: Vec<RequestCondition>,
    /// The Nodes, in the order of their names.
    pub nodes: Vec<RequestedNodeStatus>,
    /// The batch of a request for reboots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
}

impl RequestStatus {
    /// Returns the condition of this type.
    pub fn condition(&self, of: RequestConditionType) -> Option<&RequestCondition> {
        self.conditions.iter().find(|condition| condition.condition_type == of)
    }
}

/// Type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestConditionType {
    /// Whether the leader has taken the request over. Once True it stays so.
    Accepted,
    /// Whether nothing more happens for it.
    Complete,
}

/// Reason of a condition, in the form that Kubernetes asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestReason {
    /// Its entries are queued, or wait for a free machine.
    Queued,
    /// Its window has not begun.
    BeforeWindow,
    /// The spec cannot be used.
    InvalidSpec,
    /// No Node matches.
    NoNodes,
    /// More Nodes match than one request may have.
    TooManyNodes,
    /// A Node is not in the cluster definition.
    NotMember,
    /// The end is too far away.
    TooLong,
    /// The record in etcd cannot be read.
    InvalidRecord,
    /// Some of its entries have not ended.
    InProgress,
    /// All of its entries have ended.
    Ended,
    /// Its window ended.
    WindowEnded,
    /// Somebody cancelled its batch.
    BatchCancelled,
    /// It is being deleted.
    Deleted,
}

impl fmt::Display for RequestReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One condition of `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub condition_type: RequestConditionType,
    /// `True` or `False`.
    pub status: ConditionStatus,
    /// The reason.
    pub reason: RequestReason,
    /// Text for people.
    #[serde(default)]
    pub message: String,
    /// Last change of `status`.
    pub last_transition_time: Timestamp,
    /// Generation of the spec that it tells of.
    #[serde(default)]
    pub observed_generation: i64,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Status of one Node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedNodeStatus {
    /// Name of the Node.
    pub name: NodeName,
    /// Its state.
    pub state: RequestedNodeState,
    /// Its entry: `maintenance/3` or `reboot/17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryId>,
}

/// State of one Node of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestedNodeState {
    /// It has no entry yet: another entry of the same kind has the machine.
    Waiting,
    /// Its entry waits for its turn.
    Queued,
    /// Its pods are leaving.
    Draining,
    /// It is drained and stays cordoned.
    InMaintenance,
    /// It reboots.
    Rebooting,
    /// Its entry has ended, or it got none.
    Ended,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> RequestSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_spec_needs_nodes_a_reason_and_for_a_maintenance_an_end() {
        let good =
            r#"{"nodeNames": ["w1"], "reason": "disk", "action": "Keep", "window": {"end": "2026-12-01T00:00:00Z"}}"#;
        assert_eq!(spec(good).fault(), None);
        let faults = [
            (r#"{"reason": "x", "action": "Reboot"}"#, "nodeNames or nodeSelector"),
            (r#"{"nodeSelector": {}, "reason": "x", "action": "Reboot"}"#, "would select every Node"),
            (r#"{"nodeSelector": {"matchLabels": {}}, "reason": "x", "action": "Reboot"}"#, "would select every Node"),
            (r#"{"nodeNames": ["w1"], "nodeSelector": {}, "reason": "x", "action": "Reboot"}"#, "not both"),
            (r#"{"nodeNames": ["w1"], "reason": " ", "action": "Reboot"}"#, "spec.reason"),
            (r#"{"nodeNames": ["w1"], "reason": "a\u009b31m", "action": "Reboot"}"#, "control characters"),
            (r#"{"nodeNames": ["w1"], "reason": "x", "action": "Keep"}"#, "needs an end"),
            (
                r#"{"nodeNames": ["w1"], "reason": "x", "action": "Reboot",
                    "window": {"start": "2026-12-02T00:00:00Z", "end": "2026-12-01T00:00:00Z"}}"#,
                "not after",
            ),
        ];
        for (text, expected) in faults {
            let fault = spec(text).fault();
            assert!(fault.as_ref().is_some_and(|fault| fault.contains(expected)), "{text}: {fault:?}");
        }
    }
}

//! Typed rows of Kubernetes objects, with only the fields that decisions and screens need, so that 5,000 nodes stay
//! small.

mod control_plane;
mod node_signs;
mod other_drainer;
mod out_of_service;
mod view;

use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    control_plane::ControlPlaneSignals,
    node_signs::{
        ConditionChange, ConditionContent, FoundCondition, LifecycleCondition, PLANNED_TAINT, condition_reason,
        is_own_reason, is_planned_taint, planned_taint,
    },
    other_drainer::{DrainProgram, DrainSign},
    out_of_service::{OUT_OF_SERVICE_ANNOTATION, OUT_OF_SERVICE_TAINT, OutOfService},
    view::{CONTROL_PLANE_PODS, Index, KubeView},
};
pub use super::described::{MetadataPatch, NodeMetadata, PackedPairs};
use super::{
    boot_time::BootTime,
    entry::{EntryId, QueueKind},
    names::{Address, NodeName},
    selector::Selector,
};

/// CKE's mark of a node that a queue cordoned, shared with CKE: value `true`.
pub const CKE_ANNOTATION: &str = "cke.cybozu.com/reboot";
/// cketerm's record of the cordon, its entry and the previous state: JSON of [`Owner`].
pub const OWNER_ANNOTATION: &str = "cketerm.io/owner";
/// The same record for a maintenance. It has a name of its own because CKE and older versions of cketerm, which know
/// nothing of maintenance, must leave the cordon alone: to them it is an administrator's.
pub const MAINTENANCE_ANNOTATION: &str = "cketerm.io/maintenance";
/// Annotation that hands a cordon of cketerm over to the administrator; any value.
pub const KEEP_CORDONED_ANNOTATION: &str = "cketerm.io/keep-cordoned";

/// Name of the watch of BareMetalHosts in [`KubeView::sources`].
pub const HOSTS_SOURCE: &str = "baremetalhosts";

/// UID and readiness of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReadiness {
    /// `metadata.uid`.
    pub uid: String,
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
}

/// Value of `cketerm.io/owner` (SAF-33, I9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Lease of the leader. Late patches of an older leader fail on the resourceVersion.
    pub lease: i64,
    /// The entry for which the node was cordoned.
    pub entry: EntryId,
    /// Whether pods could be scheduled before the drain. With `false` the cordon stays afterwards (I11).
    pub schedulable_before: bool,
    /// UID of the Node when the work began.
    pub uid: String,
    /// Boot id of the node when the work began.
    pub boot_id: String,
    /// Whether the machine was rebooting under another program already when this was written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_over_rebooting: bool,
    /// Whether an operator ordered `done`. The node is uncordoned once it is Ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub called_done: bool,
    /// Start of that reboot, which the boot check needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Number of times that cketerm cordoned the node again after somebody uncordoned it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recordoned: u32,
}

impl Owner {
    /// Returns the annotation that holds the record.
    pub fn annotation(&self) -> &'static str {
        match self.entry.queue {
            QueueKind::Reboot | QueueKind::Repair => OWNER_ANNOTATION,
            QueueKind::Maintenance => MAINTENANCE_ANNOTATION,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Fields of a Node that cketerm reads.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// `metadata.name`.
    pub name: NodeName,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, which every patch of cketerm carries.
    pub resource_version: String,
    /// `status.addresses[].address`, host names included; those of the type `InternalIP` come first.
    pub addresses: Vec<Address>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// Last change of that condition.
    pub ready_since: Option<Timestamp>,
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet: String,
    /// `status.nodeInfo.kernelVersion`.
    #[serde(default)]
    pub kernel: Box<str>,
    /// `status.nodeInfo.osImage`.
    #[serde(default)]
    pub os_image: Box<str>,
    /// Type and status of each condition, except Ready, the kubelet's own that are False, and cketerm's.
    #[serde(default)]
    pub conditions: PackedPairs,
    /// Conditions of the life cycle, of cketerm and of others. Almost always empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifecycle: Vec<FoundCondition>,
    /// `status.volumesInUse`.
    pub volumes_in_use: Vec<String>,
    /// Whether CKE's annotation has the value `true`.
    pub cke_mark: bool,
    /// cketerm's annotation: none, readable, or why not. That of a reboot or repair comes before that of a maintenance.
    pub owner: Option<Result<Owner, String>>,
    /// Whether an administrator keeps the cordon.
    pub keep_cordoned: bool,
    /// Labels by which screens group nodes: `topology.kubernetes.io/zone`, `…/rack`, roles. Not all labels.
    pub shown_labels: Vec<(String, String)>,
    /// Labels, annotations and taints that a definition can set.
    #[serde(default)]
    pub described: NodeMetadata,
}

impl NodeRow {
    /// Returns the address of its machine: the first `InternalIP`.
    pub fn machine_address(&self) -> Option<&Address> {
        self.addresses.iter().find(|address| address.as_str().parse::<std::net::IpAddr>().is_ok())
    }

    /// Returns cketerm's record, if there is a readable one.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref().and_then(|o| o.as_ref().ok())
    }

    /// Reports whether cketerm's record names this entry.
    pub fn is_owned_by(&self, entry: EntryId) -> bool {
        self.owner().is_some_and(|owner| owner.entry == entry)
    }

    /// Returns true if a newer row differs only in its version and in annotations of other programs. Of those, a decision
    /// needs only the signals of a reboot, which may be seen a moment later. Every field is named here, so that a new field must be considered.
    pub fn same_state(&self, newer: &Self) -> bool {
        let Self {
            name,
            uid,
            resource_version: _,
            addresses,
            unschedulable,
            ready,
            ready_since,
            boot_id,
            kubelet,
            kernel,
            os_image,
            conditions,
            lifecycle,
            volumes_in_use,
            cke_mark,
            owner,
            keep_cordoned,
            shown_labels,
            described: NodeMetadata { labels, annotations: _, taints },
        } = newer;
        (name, uid, addresses, boot_id, kubelet)
            == (&self.name, &self.uid, &self.addresses, &self.boot_id, &self.kubelet)
            && (unschedulable, ready, ready_since) == (&self.unschedulable, &self.ready, &self.ready_since)
            && (cke_mark, owner, keep_cordoned) == (&self.cke_mark, &self.owner, &self.keep_cordoned)
            && (kernel, os_image) == (&self.kernel, &self.os_image)
            && (conditions, lifecycle) == (&self.conditions, &self.lifecycle)
            && (volumes_in_use, shown_labels) == (&self.volumes_in_use, &self.shown_labels)
            && (labels, taints) == (&self.described.labels, &self.described.taints)
    }
}

/// Controlling owner of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// `DaemonSet`, `Job`, `ReplicaSet`, `Node` …
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Fields of a Pod that cketerm reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodRow {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, the precondition of every eviction and deletion (I17).
    pub uid: String,
    /// `spec.nodeName`.
    pub node: NodeName,
    /// `status.phase`.
    pub phase: String,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// All labels, which budgets and job selectors need.
    pub labels: std::collections::BTreeMap<String, String>,
    /// The owner with `controller: true`.
    pub controller: Option<Controller>,
    /// Whether it has `kubernetes.io/config.mirror`: a static pod, which never leaves.
    pub mirror: bool,
    /// `metadata.deletionTimestamp` minus the grace period: the time of the deletion request.
    pub terminating_since: Option<Timestamp>,
    /// `metadata.deletionTimestamp`: the end of its grace period.
    #[serde(default)]
    pub grace_ends: Option<Timestamp>,
}

impl PodRow {
    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns true if it ended by itself: `Succeeded` or `Failed`.
    pub fn finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Returns the controlling owner if it is of this kind.
    pub fn controlled_by(&self, kind: &str) -> Option<&Controller> {
        self.controller.as_ref().filter(|c| c.kind == kind)
    }
}

/// Fields of a `PodDisruptionBudget` that cketerm reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetRow {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`. A refused eviction waits for a change of it.
    pub resource_version: String,
    /// Selector of pods. An empty one selects all pods, an absent one none (policy/v1).
    pub selector: Option<Selector>,
    /// `status.disruptionsAllowed`.
    pub allowed: i32,
    /// `status.currentHealthy`.
    pub healthy: i32,
    /// `status.desiredHealthy`.
    pub needed: i32,
    /// `status.expectedPods`.
    #[serde(default)]
    pub pods: i32,
    /// `spec.minAvailable` or `spec.maxUnavailable`.
    #[serde(default)]
    pub limit: BudgetLimit,
    /// Whether pods that are not Ready are always evicted (`spec.unhealthyPodEvictionPolicy: AlwaysAllow`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always_allows_unhealthy: bool,
    /// Whether the controller has not seen the newest spec (`status.observedGeneration` is below
    /// `metadata.generation`). The API server evicts no pod that the budget counts until then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub status_lags: bool,
    /// Message of the condition `DisruptionAllowed` while the controller cannot count the pods (`SyncFailed`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_failure: Option<Box<str>>,
}

/// Limit that a budget sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetLimit {
    /// Neither is set. The controller then allows no eviction.
    #[default]
    None,
    /// `minAvailable` as written: a number or a percentage.
    MinAvailable(Box<str>),
    /// `maxUnavailable` as written: a number or a percentage.
    MaxUnavailable(Box<str>),
}

/// Pod of a budget, with what keeps it from being healthy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetPod {
    /// The pod.
    pub row: PodRow,
    /// Reason and message of the first container that waits (`status.containerStatuses[].state.waiting`).
    pub waiting: Option<(String, String)>,
    /// The scheduler's message, if it finds no node (condition `PodScheduled` False).
    pub unschedulable: Option<String>,
}

impl BudgetRow {
    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reports whether it refuses every eviction although all its pods are healthy: `maxUnavailable: 0`, or
    /// `minAvailable` of at least as many pods as there are.
    pub fn never_allows(&self) -> bool {
        self.pods > 0 && self.needed >= self.pods
    }

    /// Reports whether the API server evicts this pod although the budget allows no disruption: of a pod that is not
    /// Ready nothing is lost while the budget has enough healthy ones, or if it always allows that.
    pub fn allows_unhealthy(&self, pod: &PodRow) -> bool {
        !pod.ready && (self.always_allows_unhealthy || self.needed > 0 && self.healthy >= self.needed)
    }

    /// Reports whether the API server asks this budget about the eviction of the pod, and counts it. It evicts pending
    /// pods, and some that are not Ready, whatever the budget allows.
    pub fn judges(&self, pod: &PodRow) -> bool {
        pod.phase != "Pending" && !self.allows_unhealthy(pod)
    }

    /// Reports whether it selects this pod.
    pub fn selects(&self, pod: &PodRow) -> bool {
        self.namespace == pod.namespace && self.selector.as_ref().is_some_and(|s| s.matches(&pod.labels))
    }
}

/// Fields of a Namespace that cketerm reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamespaceRow {
    /// `metadata.name`.
    pub name: String,
    /// All labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Whether `status.phase` is Terminating.
    pub terminating: bool,
}

/// Fields of a DaemonSet that cketerm reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonSetRow {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Whether `spec.updateStrategy.type` is `OnDelete`.
    pub on_delete: bool,
}

/// Addresses of the API server's service, as far as CKE manages them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointsRow {
    /// `Endpoints` or `EndpointSlice`.
    pub kind: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// All ready addresses.
    pub addresses: Vec<Address>,
}

/// Pods of one node in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePods {
    /// Whether they were listed completely since the watch of the node began.
    pub synced: bool,
    /// The same as [`SourceState::fresh_as_of`], for this node's watch.
    #[serde(default, rename = "proved")]
    pub fresh_as_of: BootTime,
    /// Pods by UID.
    pub pods: OrdMap<String, Arc<PodRow>>,
}

/// State of one watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// Whether it was listed completely at least once.
    pub synced: bool,
    /// Boot time of the last sign of life: an event, a bookmark, a successful list or an open connection. For display
    /// only.
    #[serde(rename = "heard")]
    pub last_seen: BootTime,
    /// Boot time of the last proof on this watch's own connection: the copy is as new as the server was then, or newer.
    /// Decisions that start work depend on this one (SAF-22).
    #[serde(default, rename = "proved")]
    pub fresh_as_of: BootTime,
    /// The last error, until the watch recovers.
    pub error: Option<String>,
    /// Whether the API server answered 403 last: the engine has no right to read the source.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forbidden: bool,
}

/// State of the link to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KubeLinkState {
    /// Boot time of the next try after a failure. Once it has passed, the try is under way.
    pub retry: Option<BootTime>,
    /// Whole seconds that the last answer took.
    pub lag: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_owned_by_the_entry_that_its_readable_record_names() {
        let record = |entry: EntryId| -> Owner {
            let text = format!(
                r#"{{"lease": 122, "entry": "{entry}", "schedulable_before": true, "uid": "u", "boot_id": "b"}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let node = |owner| NodeRow { owner, ..NodeRow::default() };
        let (this, other) = (EntryId::reboot(5), EntryId::repair(5));
        assert!(node(Some(Ok(record(this)))).is_owned_by(this));
        assert!(!node(Some(Ok(record(other)))).is_owned_by(this));
        assert!(!node(Some(Err("no JSON".to_owned()))).is_owned_by(this));
        assert!(!node(None).is_owned_by(this));
    }
}

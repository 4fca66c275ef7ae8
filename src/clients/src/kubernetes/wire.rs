//! The fields of objects that cketerm reads. The parser skips all others without storing them.

use std::{borrow::Cow, collections::BTreeMap};

use cketerm_model::{
    cluster::Taint,
    kube::{
        BudgetLimit, BudgetRow, CKE_ANNOTATION, Controller, DaemonSetRow, FoundCondition, KEEP_CORDONED_ANNOTATION,
        LifecycleCondition, MAINTENANCE_ANNOTATION, NamespaceRow, NodeMetadata, NodeRow, OWNER_ANNOTATION, PodRow,
        is_own_reason,
    },
    names::{Address, NodeName},
    selector::Selector,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Annotation that marks the mirror of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Number of characters kept of the message of a budget that its controller cannot count.
const MAX_SYNC_MESSAGE: usize = 200;
type StringMap = BTreeMap<String, String>;

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    generation: i64,
    pub(super) labels: StringMap,
    pub(super) annotations: StringMap,
    #[serde(deserialize_with = "time_or_nearest")]
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<i64>,
    owner_references: Vec<OwnerReference>,
}

impl Meta {
    /// Returns true if it has a deletionTimestamp.
    pub(super) fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns true if it mirrors a static pod.
    pub(super) fn mirror(&self) -> bool {
        self.annotations.contains_key(MIRROR)
    }

    /// Takes out the owner with `controller: true`.
    pub(super) fn take_controller(&mut self) -> Option<Controller> {
        let owners = std::mem::take(&mut self.owner_references);
        let controller = owners.into_iter().find(|owner| owner.controller);
        controller.map(|owner| Controller { kind: owner.kind, name: owner.name, uid: owner.uid })
    }
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct OwnerReference {
    kind: String,
    name: String,
    uid: String,
    controller: bool,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    #[serde(default, deserialize_with = "time_or_nearest")]
    last_transition_time: Option<Timestamp>,
    #[serde(default)]
    reason: Box<str>,
    #[serde(default)]
    pub(super) message: Box<str>,
}

/// Parses a time of Kubernetes. Its calendar is wider than jiff's, and a kubelet may write any time into its own Node.
/// A time that jiff cannot represent becomes the nearest one that it can, so one odd object does not end the watch of
/// all.
pub(super) fn time_or_nearest<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<Cow<'_, str>>::deserialize(from)?;
    let read = |text: Cow<'_, str>| {
        let nearest = if text.starts_with('9') { Timestamp::MAX } else { Timestamp::MIN };
        text.parse().unwrap_or(nearest)
    };
    Ok(text.map(read))
}

/// Parses the time of a field manager's write. An unreadable time counts as just now: without knowing that the other
/// writer has stopped, cketerm keeps off.
pub(super) fn time_or_max<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<Cow<'_, str>>::deserialize(from)?;
    Ok(text.map(|text| text.parse().unwrap_or(Timestamp::MAX)))
}

/// Returns the condition `Ready`.
fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|c| c.r#type == "Ready")
}

/// An object that a watch can bring. Its metadata alone identifies it.
pub(super) trait Wire: serde::de::DeserializeOwned + Clone + Send + 'static {
    fn meta(&self) -> &Meta;
}

macro_rules! wire {
    ($($name:ident),*) => { $(impl Wire for $name { fn meta(&self) -> &Meta { &self.metadata } })* };
}
wire!(Node, Pod, Budget, Namespace, DaemonSet);

#[derive(Clone, Deserialize)]
pub(super) struct Node {
    metadata: Meta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    addresses: Vec<NodeAddress>,
    conditions: Vec<Condition>,
    node_info: NodeInfo,
    volumes_in_use: Vec<String>,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: Address,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
    #[serde(rename = "kubeletVersion")]
    kubelet_version: String,
    #[serde(rename = "kernelVersion")]
    kernel_version: Box<str>,
    #[serde(rename = "osImage")]
    os_image: Box<str>,
}

/// Annotations of at least this many bytes are data of other programs and are not kept.
const MAX_ANNOTATION_BYTES: usize = 512;

/// Reports whether a Node's row keeps this condition. Those that every Node has, in their usual state, are left out.
fn is_kept_condition(condition: &Condition) -> bool {
    match condition.r#type.as_str() {
        "Ready" => false,
        "MemoryPressure" | "DiskPressure" | "PIDPressure" | "NetworkUnavailable" => condition.status != "False",
        _ => !is_own_reason(&condition.reason),
    }
}

/// Returns the condition if it is one of the life cycle.
fn lifecycle_condition(condition: &Condition) -> Option<FoundCondition> {
    Some(FoundCondition {
        condition: LifecycleCondition::named(&condition.r#type)?,
        status: condition.status.as_str().into(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    })
}

/// Reports whether the views group by this label.
fn is_shown_label(key: &str) -> bool {
    matches!(key, "topology.kubernetes.io/zone" | "topology.kubernetes.io/region")
        || key.starts_with("node-role.kubernetes.io/")
        || key.starts_with("cke.cybozu.com/")
        || matches!(key.rsplit('/').next(), Some("rack" | "role" | "zone"))
}

impl From<Node> for NodeRow {
    fn from(node: Node) -> Self {
        let Node { metadata: meta, spec, status } = node;
        let owner = [OWNER_ANNOTATION, MAINTENANCE_ANNOTATION].into_iter().find_map(|key| {
            let text = meta.annotations.get(key)?;
            Some(serde_json::from_str(text).map_err(|e| format!("annotation {key} cannot be read: {e}")))
        });
        let kept = status.conditions.iter().filter(|condition| is_kept_condition(condition));
        let conditions = kept.map(|condition| (condition.r#type.clone(), condition.status.clone())).collect();
        let lifecycle = status.conditions.iter().filter_map(lifecycle_condition).collect();
        let ready = ready(&status.conditions);
        let mut addresses: Vec<Address> = Vec::with_capacity(status.addresses.len());
        let (internal, other): (Vec<_>, Vec<_>) =
            status.addresses.into_iter().partition(|address| address.kind == "InternalIP");
        for address in internal.into_iter().chain(other) {
            if !addresses.contains(&address.address) {
                addresses.push(address.address);
            }
        }
        Self {
            name: NodeName::new(meta.name),
            uid: meta.uid,
            resource_version: meta.resource_version,
            addresses,
            unschedulable: spec.unschedulable,
            ready: ready.is_some_and(|c| c.status == "True"),
            ready_since: ready.and_then(|c| c.last_transition_time),
            boot_id: status.node_info.boot_id,
            kubelet: status.node_info.kubelet_version,
            kernel: status.node_info.kernel_version,
            os_image: status.node_info.os_image,
            conditions,
            lifecycle,
            volumes_in_use: status.volumes_in_use,
            cke_mark: meta.annotations.get(CKE_ANNOTATION).is_some_and(|v| v == "true"),
            owner,
            keep_cordoned: meta.annotations.contains_key(KEEP_CORDONED_ANNOTATION),
            described: NodeMetadata {
                labels: meta.labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
                annotations: meta
                    .annotations
                    .into_iter()
                    .filter(|(k, v)| k.len() + v.len() < MAX_ANNOTATION_BYTES)
                    .collect(),
                taints: spec.taints,
            },
            shown_labels: meta.labels.into_iter().filter(|(key, _)| is_shown_label(key)).collect(),
        }
    }
}

#[derive(Clone, Deserialize)]
pub(super) struct Pod {
    metadata: Meta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    node_name: NodeName,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct PodStatus {
    phase: String,
    conditions: Vec<Condition>,
}

impl Pod {
    pub(super) fn new(metadata: Meta, spec: PodSpec, phase: String, conditions: Vec<Condition>) -> Self {
        Self { metadata, spec, status: PodStatus { phase, conditions } }
    }
}

impl From<Pod> for PodRow {
    fn from(pod: Pod) -> Self {
        let Pod { metadata: mut meta, spec, status } = pod;
        let grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or(0));
        let (mirror, controller) = (meta.mirror(), meta.take_controller());
        Self {
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            node: spec.node_name,
            phase: status.phase,
            ready: ready(&status.conditions).is_some_and(|c| c.status == "True"),
            mirror,
            controller,
            labels: meta.labels,
            terminating_since: meta.deletion_timestamp.map(|at| at.checked_sub(grace).unwrap_or(at)),
            grace_ends: meta.deletion_timestamp,
        }
    }
}

#[derive(Clone, Deserialize)]
pub(super) struct Budget {
    metadata: Meta,
    #[serde(default)]
    spec: BudgetSpec,
    #[serde(default)]
    status: BudgetStatus,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct BudgetSpec {
    selector: Option<Selector>,
    #[serde(rename = "minAvailable")]
    min_available: Option<Value>,
    #[serde(rename = "maxUnavailable")]
    max_unavailable: Option<Value>,
    #[serde(rename = "unhealthyPodEvictionPolicy")]
    unhealthy_policy: Option<String>,
}

impl BudgetSpec {
    fn limit(&self) -> BudgetLimit {
        let written = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned).into();
        match (&self.min_available, &self.max_unavailable) {
            (Some(value), _) => BudgetLimit::MinAvailable(written(value)),
            (None, Some(value)) => BudgetLimit::MaxUnavailable(written(value)),
            (None, None) => BudgetLimit::None,
        }
    }
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BudgetStatus {
    disruptions_allowed: i32,
    current_healthy: i32,
    desired_healthy: i32,
    expected_pods: i32,
    observed_generation: i64,
    conditions: Vec<Condition>,
}

impl BudgetStatus {
    fn sync_failure(&self) -> Option<Box<str>> {
        let failed = |c: &&Condition| c.r#type == "DisruptionAllowed" && &*c.reason == "SyncFailed";
        let condition = self.conditions.iter().find(failed)?;
        Some(condition.message.chars().take(MAX_SYNC_MESSAGE).collect::<String>().into())
    }
}

impl From<Budget> for BudgetRow {
    fn from(Budget { metadata: meta, spec, status }: Budget) -> Self {
        let limit = spec.limit();
        let always_allows_unhealthy = spec.unhealthy_policy.as_deref() == Some("AlwaysAllow");
        Self {
            namespace: meta.namespace,
            name: meta.name,
            resource_version: meta.resource_version,
            selector: spec.selector,
            allowed: status.disruptions_allowed,
            healthy: status.current_healthy,
            needed: status.desired_healthy,
            pods: status.expected_pods,
            limit,
            always_allows_unhealthy,
            status_lags: status.observed_generation < meta.generation,
            sync_failure: status.sync_failure(),
        }
    }
}

#[derive(Clone, Deserialize)]
pub(super) struct Namespace {
    metadata: Meta,
    #[serde(default)]
    status: PodStatus,
}

impl From<Namespace> for NamespaceRow {
    fn from(Namespace { metadata: meta, status }: Namespace) -> Self {
        Self { name: meta.name, labels: meta.labels, terminating: status.phase == "Terminating" }
    }
}

/// Returns the UID of a namespace, which identifies a cluster.
impl From<Namespace> for String {
    fn from(namespace: Namespace) -> Self {
        namespace.metadata.uid
    }
}

#[derive(Clone, Deserialize)]
pub(super) struct DaemonSet {
    metadata: Meta,
    #[serde(default)]
    spec: DaemonSetSpec,
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DaemonSetSpec {
    update_strategy: UpdateStrategy,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct UpdateStrategy {
    r#type: String,
}

impl From<DaemonSet> for DaemonSetRow {
    fn from(DaemonSet { metadata: meta, spec }: DaemonSet) -> Self {
        Self {
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            on_delete: spec.update_strategy.r#type == "OnDelete",
        }
    }
}

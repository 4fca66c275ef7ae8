//! The fields of objects that placement reads. The parser skips all others.

use std::{collections::BTreeMap, fmt};

use cketerm_model::{labels::Labels, names::NodeName, selector::Selector};
use serde::{Deserialize, de::IgnoredAny};

use super::super::wire::Meta;

/// Part of an object that is parsed if it has the usual form. Another form is kept apart, so that it does not end the
/// read of the whole list.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Lenient<T> {
    Usual(T),
    Odd(#[allow(dead_code)] IgnoredAny), // the parser needs the type
}

impl<T: Default> Default for Lenient<T> {
    fn default() -> Self {
        Self::Usual(T::default())
    }
}

impl<T> Lenient<T> {
    pub(super) fn usual(self) -> Option<T> {
        match self {
            Self::Usual(usual) => Some(usual),
            Self::Odd(_) => None,
        }
    }
}

/// Quantity as a text, or as a bare number.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum WireQuantity {
    Text(String),
    Number(serde_json::Number),
}

impl fmt::Display for WireQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
        }
    }
}

pub(super) type Quantities = BTreeMap<String, WireQuantity>;

#[derive(Deserialize)]
pub(super) struct Pod {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: Lenient<PodSpec>,
    #[serde(default)]
    pub(super) status: Lenient<PodStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: String,
    pub(super) scheduler_name: String,
    pub(super) priority: Option<i32>,
    pub(super) preemption_policy: Option<String>,
    pub(super) scheduling_gates: Vec<IgnoredAny>,
    pub(super) resource_claims: Vec<IgnoredAny>,
    pub(super) node_selector: Labels,
    pub(super) affinity: Option<Affinity>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) topology_spread_constraints: Vec<Spread>,
    pub(super) containers: Vec<Container>,
    pub(super) init_containers: Vec<Container>,
    pub(super) overhead: Quantities,
    pub(super) resources: Option<Requirements>,
    pub(super) volumes: Vec<PodVolume>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct PodStatus {
    pub(super) phase: String,
    pub(super) conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    pub(super) reason: Box<str>,
    pub(super) message: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) resources: Requirements,
    pub(super) ports: Vec<Port>,
    pub(super) restart_policy: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Requirements {
    pub(super) requests: Quantities,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Port {
    #[serde(rename = "hostPort")]
    pub(super) on_host: u16,
    #[serde(rename = "hostIP")]
    pub(super) address: String,
    pub(super) protocol: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodVolume {
    pub(super) name: String,
    pub(super) persistent_volume_claim: Option<ClaimSource>,
    pub(super) ephemeral: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimSource {
    pub(super) claim_name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Toleration {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) value: String,
    pub(super) effect: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spread {
    pub(super) topology_key: String,
    pub(super) max_skew: u32,
    pub(super) min_domains: Option<u32>,
    pub(super) when_unsatisfiable: String,
    pub(super) label_selector: Option<Selector>,
    pub(super) node_affinity_policy: Option<String>,
    pub(super) node_taints_policy: Option<String>,
    pub(super) match_label_keys: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Affinity {
    #[serde(rename = "nodeAffinity")]
    pub(super) to_nodes: NodeAffinity,
    #[serde(rename = "podAffinity")]
    pub(super) to_pods: PodAffinity,
    #[serde(rename = "podAntiAffinity")]
    pub(super) apart: PodAffinity,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<NodeSelector>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Vec<Term>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Term {
    pub(super) topology_key: String,
    pub(super) label_selector: Option<Selector>,
    pub(super) namespaces: Vec<String>,
    pub(super) namespace_selector: Option<Selector>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeSelector {
    pub(super) node_selector_terms: Vec<NodeTerm>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeTerm {
    pub(super) match_expressions: Vec<NodeRequirement>,
    pub(super) match_fields: Vec<NodeRequirement>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct NodeRequirement {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) values: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: Lenient<NodeSpec>,
    #[serde(default)]
    pub(super) status: Lenient<NodeStatus>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct NodeSpec {
    pub(super) unschedulable: bool,
    pub(super) taints: Vec<Taint>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Taint {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) effect: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct NodeStatus {
    pub(super) conditions: Vec<Condition>,
    pub(super) allocatable: Quantities,
}

#[derive(Deserialize)]
pub(super) struct Claim {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: Lenient<ClaimSpec>,
    #[serde(default)]
    pub(super) status: Lenient<ClaimStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimSpec {
    pub(super) volume_name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ClaimStatus {
    pub(super) phase: String,
}

#[derive(Deserialize)]
pub(super) struct Volume {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: Lenient<VolumeSpec>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeSpec {
    pub(super) node_affinity: VolumeAffinity,
    pub(super) local: Option<IgnoredAny>,
    pub(super) host_path: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct VolumeAffinity {
    pub(super) required: Option<NodeSelector>,
}

impl Pod {
    /// Returns the node of the specification; none before the pod is bound.
    pub(super) fn node(spec: &PodSpec) -> Option<NodeName> {
        (!spec.node_name.is_empty()).then(|| NodeName::new(spec.node_name.as_str()))
    }
}

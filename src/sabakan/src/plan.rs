//! Input and output of a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use cketerm_model::{
    cluster::{Cluster, Taint},
    constraints::Constraints,
    names::{Address, NodeName},
    policy::Strategy,
};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{machine::Machine, template::Template, why::Why};

/// Everything that a plan depends on (SAB-21).
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Sabakan's last good answer; the order does not matter.
    pub machines: &'a [Machine],
    /// The template.
    pub template: &'a Template,
    /// The constraints in force.
    pub constraints: &'a Constraints,
    /// The current definition. `None`: initialize.
    pub current: Option<&'a Cluster>,
    /// Taints of the Nodes by Node name, if they are known (strategy `all-healthy`).
    pub kubernetes_nodes: Option<&'a BTreeMap<NodeName, Vec<Taint>>>,
    /// Addresses of machines in work: the reboot entry is `draining` or `rebooting`, or a repair claims the machine.
    pub rebooting: &'a BTreeSet<Address>,
    /// Whether the template differs from `cluster-revision`: regenerate if no action applies.
    pub template_changed: bool,
    /// Time in seconds for which a machine must have been retiring or retired before it is removed
    /// (`removal_wait_seconds`).
    pub wait_seconds: u64,
    /// The strategy.
    pub strategy: Strategy,
    /// Present time, for lifetimes.
    pub now: Timestamp,
}

/// Action of a plan, as the spec names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The current definition stays.
    None,
    /// The first definition.
    Initialize,
    /// Remove non-existent nodes.
    RemoveNonExistent,
    /// Increase control plane nodes.
    IncreaseControlPlane,
    /// Decrease control plane nodes.
    DecreaseControlPlane,
    /// Replace control nodes.
    ReplaceControlPlane,
    /// Increase worker nodes.
    IncreaseWorkers,
    /// Decrease worker nodes.
    DecreaseWorkers,
    /// Taint nodes.
    TaintNodes,
    /// The same nodes from a newer template.
    Regenerate,
    /// Add the new Nodes of Kubernetes (`membership: nodes`).
    AddNodes,
    /// Remove members whose Nodes are gone from Kubernetes (`membership: nodes`).
    RemoveNodes,
}

impl Action {
    /// Returns the name in `-o json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Initialize => "initialize",
            Self::RemoveNonExistent => "remove-non-existent",
            Self::IncreaseControlPlane => "increase-control-plane",
            Self::DecreaseControlPlane => "decrease-control-plane",
            Self::ReplaceControlPlane => "replace-control-plane",
            Self::IncreaseWorkers => "increase-workers",
            Self::DecreaseWorkers => "decrease-workers",
            Self::TaintNodes => "taint-nodes",
            Self::Regenerate => "regenerate",
            Self::AddNodes => "add-nodes",
            Self::RemoveNodes => "remove-nodes",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Effect of a plan on one machine that is in the definition before or after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Its address.
    pub address: Address,
    /// Its serial. `None`: the answer lacks the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Its role in sabakan.
    pub role: String,
    /// Whether it is a control plane in the new definition. `None`: it leaves.
    pub control_plane: Option<bool>,
    /// Whether it was a control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_control_plane: Option<bool>,
    /// Its score, if it was compared with others.
    pub score: Option<i64>,
    /// Reason: the terms of its score, the next candidate, or why it stays.
    #[serde(serialize_with = "why_as_text", deserialize_with = "why_from_text")]
    pub why: Why,
}

/// Reads a stored reason as a plain sentence.
fn why_from_text<'de, D: Deserializer<'de>>(from: D) -> Result<Why, D::Error> {
    String::deserialize(from).map(Why::Because)
}

fn why_as_text<S: Serializer>(why: &Why, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(why)
}

/// The next definition with its reasons: the output of `sabakan plan -o json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The action.
    pub action: Action,
    /// Reason of the action, as a sentence that names the objects.
    pub reason: String,
    /// Whether there is a new definition.
    pub changed: bool,
    /// The new definition. `None`: nothing changes.
    pub cluster: Option<Cluster>,
    /// The nodes after the plan in the definition's order, then those that leave. Empty if nothing changes.
    pub nodes: Vec<Choice>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

/// Reason why there is no plan. The current definition stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too few healthy machines for the constraints.
    #[error("{0}")]
    NotEnough(String),
    /// Half or more of the control planes would leave. Only an operator may decide that (SAB-25).
    #[error("{0}")]
    TooManyControlPlanes(String),
    /// The input contradicts itself.
    #[error("{0}")]
    Input(String),
}

//! What a plan is made from, and what it says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::{machine::Machine, template::Template};
use crate::model::{
    cluster::{Cluster, Taint},
    constraints::Constraints,
    policy::Strategy,
};

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Sabakan's last good answer; the order does not matter.
    pub machines: &'a [Machine],
    /// The template.
    pub template: &'a Template,
    /// The constraints in force.
    pub constraints: &'a Constraints,
    /// The definition in force; none = initialization.
    pub current: Option<&'a Cluster>,
    /// Taints of the Kubernetes Nodes by Node name, where they are known (strategy `all-healthy`).
    pub kubernetes_nodes: Option<&'a BTreeMap<String, Vec<Taint>>>,
    /// Addresses of machines whose reboot entry is `draining` or `rebooting`.
    pub rebooting: &'a BTreeSet<String>,
    /// The template is newer than `cluster-revision`: regenerate when nothing else is to do.
    pub template_changed: bool,
    /// For how long a machine must have been retiring or retired before it is removed (`removal_wait_seconds`).
    pub wait_seconds: u64,
    /// By which rules.
    pub strategy: Strategy,
    /// For lifetimes.
    pub now: Timestamp,
}

/// What a plan does, in the seed's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The definition in force stays.
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
}

impl Action {
    /// As `-o json` writes it.
    pub fn word(self) -> &'static str {
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
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What becomes of one machine that is in the definition before or after the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Its address.
    pub address: String,
    /// Its serial; none for a node that sabakan no longer has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// sabakan's role of it.
    pub role: String,
    /// What it is in the new definition; none = it leaves.
    pub control_plane: Option<bool>,
    /// What it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was_control_plane: Option<bool>,
    /// Its score where it was compared with others.
    pub score: Option<i64>,
    /// Why: the terms of its score, whom it was preferred to, or why it stays.
    #[serde(serialize_with = "shown")]
    pub why: Why,
}

fn shown<S: Serializer>(why: &Why, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(why)
}

/// Why a machine is where it is. Written out only where somebody reads it: most of 20,000 nodes simply stay.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// It was in the definition and nothing is said against it.
    Stays,
    /// A sentence.
    Because(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stays => f.write_str("stays as it is"),
            Self::Because(text) => f.write_str(text),
        }
    }
}

/// The next definition and why: exactly what `sabakan plan -o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What it does.
    pub action: Action,
    /// Why, as a sentence that names the objects.
    pub reason: String,
    /// Whether there is a new definition.
    pub changed: bool,
    /// The new definition; none where nothing changes.
    pub cluster: Option<Cluster>,
    /// The nodes of the definition after the plan in its order, then those that leave. Empty where nothing changes.
    pub nodes: Vec<Choice>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Why there is no plan: the definition in force stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too few healthy machines for what the constraints want.
    #[error("{0}")]
    NotEnough(String),
    /// Half or more of the control plane would go: only a person may decide that.
    #[error("{0}")]
    TooManyControlPlanes(String),
    /// Something in the input contradicts itself.
    #[error("{0}")]
    Input(String),
}

/// Makes a plan. Pure: equal inputs give equal plans, in whatever order the machines come.
pub fn plan(input: &Input<'_>) -> Result<Plan, PlanError> {
    let _ = input;
    Err(PlanError::Input("plans are not made yet".to_owned()))
}

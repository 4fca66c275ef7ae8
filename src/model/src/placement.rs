//! Typed rows for the question where pods can be placed: only the fields that the scheduler's filters read.
//!
//! They are read once for a plan and are no part of the live copy. An object that cannot be understood stays in the view
//! with the reason, so that only answers which depend on it become uncertain.

mod node_rules;
mod pod_rules;
mod quantity;
mod resources;

use std::{collections::BTreeMap, sync::Arc};

pub use self::{
    node_rules::{NodeRequirement, NodeRules, NodeSelector, NodeTaint, NodeTerm, NodeTest, TaintEffect, Toleration},
    pod_rules::{HostPort, PodTerm, Protocol, SpreadConstraint, SpreadPolicy},
    quantity::{Quantity, QuantityError},
    resources::{Amount, InitRequests, PartRequests, ResourceName, Resources},
};
use crate::{kube::Controller, labels::Labels, names::NodeName};

/// Name of the scheduler whose rules cketerm knows.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// All objects that the placement of pods depends on, read at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementView {
    /// All pods, in any phase.
    pub pods: Vec<PlacementPod>,
    /// All nodes.
    pub nodes: Vec<PlacementNode>,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(String, String), PlacementClaim>,
    /// `PersistentVolumes` by name.
    pub volumes: BTreeMap<String, PlacementVolume>,
    /// Labels of namespaces by name.
    pub namespaces: BTreeMap<String, Labels>,
    /// Refusal of the API server to list claims or volumes. Pods with claims are uncertain then.
    pub volumes_refused: Option<Box<str>>,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodPhase {
    /// Not started yet, bound to a node or not.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Ended with success.
    Succeeded,
    /// Ended with a failure.
    Failed,
    /// Any other, usually because its node is silent.
    Unknown,
}

/// Priority by which the scheduler orders pods and removes others for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

/// Whether a pod may push away pods of lower priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preemption {
    /// It may, which is the default.
    #[default]
    LowerPriority,
    /// It waits instead.
    Never,
}

/// Condition `PodScheduled=False` of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unscheduled {
    /// Reason, such as `Unschedulable` or `SchedulingGated`.
    pub reason: Box<str>,
    /// The scheduler's message.
    pub message: Box<str>,
}

/// Use of a claim by a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimUse {
    /// Name of the claim in the pod's namespace.
    pub name: String,
    /// Whether it is made for this pod and deleted with it, so that a new pod gets a new volume.
    pub ephemeral: bool,
}

/// Part of a pod's specification that placement depends on. Pods of one controller share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlacementSpec {
    /// Requests by which the scheduler counts the pod.
    pub requests: Resources,
    /// Conditions on the node. Empty for pods of a `DaemonSet`, which never move.
    pub node_rules: NodeRules,
    /// Required pod affinity.
    pub affinity: Vec<PodTerm>,
    /// Required pod anti-affinity.
    pub anti_affinity: Vec<PodTerm>,
    /// Topology spread constraints that forbid nodes.
    pub spread: Vec<SpreadConstraint>,
    /// Host ports.
    pub host_ports: Vec<HostPort>,
    /// Priority.
    pub priority: Priority,
    /// Preemption policy.
    pub preemption: Preemption,
    /// Scheduler that places it; empty means the default one.
    pub scheduler: Box<str>,
    /// Whether it needs dynamic resources (`resourceClaims`), which are not read.
    pub dynamic_resources: bool,
}

/// Pod, as far as placement needs it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// All labels.
    pub labels: Arc<Labels>,
    /// `spec.nodeName`; none before it is bound.
    pub node: Option<NodeName>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// Whether its deletion has begun.
    pub terminating: bool,
    /// The owner with `controller: true`.
    pub controller: Option<Controller>,
    /// Whether it mirrors a static pod.
    pub mirror: bool,
    /// Whether scheduling gates hold it.
    pub gated: bool,
    /// Claims that it uses.
    pub claims: Vec<ClaimUse>,
    /// Specification.
    pub spec: Arc<PlacementSpec>,
    /// Condition that it is not scheduled.
    pub unscheduled: Option<Unscheduled>,
    /// Field that cannot be understood. The rest is then incomplete.
    pub unreadable: Option<Box<str>>,
}

impl PlacementPod {
    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reports whether it ended by itself.
    pub fn finished(&self) -> bool {
        match self.phase {
            PodPhase::Succeeded | PodPhase::Failed => true,
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => false,
        }
    }

    /// Reports whether its controlling owner is of this kind.
    pub fn controlled_by(&self, kind: &str) -> bool {
        self.controller.as_ref().is_some_and(|controller| controller.kind == kind)
    }

    /// Reports whether it stays on its node whatever happens: mirror pods and pods of a `DaemonSet`.
    pub fn belongs_to_node(&self) -> bool {
        self.mirror || self.controlled_by("DaemonSet")
    }
}

/// Node, as far as placement needs it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementNode {
    /// `metadata.name`.
    pub name: NodeName,
    /// All labels.
    pub labels: Labels,
    /// Taints with a known effect.
    pub taints: Vec<NodeTaint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// `status.allocatable`, with the number of pods.
    pub allocatable: Resources,
    /// Field that cannot be understood. The rest is then incomplete.
    pub unreadable: Option<Box<str>>,
}

/// `PersistentVolumeClaim`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementClaim {
    /// Name of its volume; none before it is bound.
    pub volume: Option<String>,
    /// Whether its deletion has begun.
    pub terminating: bool,
}

/// `PersistentVolume`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementVolume {
    /// Required node affinity; without one the volume is everywhere.
    pub affinity: Option<NodeSelector>,
    /// Whether its data is on one node: source `local` or `hostPath`, or an affinity to one host name.
    pub local: bool,
    /// Field that cannot be understood. The rest is then incomplete.
    pub unreadable: Option<Box<str>>,
}

//! Answers of the landing check: of each pod, and of all of them together.

use std::{collections::BTreeMap, fmt};

use cketerm_model::{kube::Controller, names::NodeName};
use serde::Serialize;

use super::obstacle::Obstacle;

/// Answer for a whole set of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LandingAnswer {
    /// All pods find a place.
    Fits,
    /// It depends on facts that are not known, or on the order.
    Uncertain,
    /// At least one pod stays pending.
    Cannot,
}

impl fmt::Display for LandingAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fits => "fits",
            Self::Uncertain => "uncertain",
            Self::Cannot => "cannot",
        })
    }
}

/// Bond of a pod to the nodes that leave.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tie {
    /// This volume is on no other node.
    Volume(String),
    /// Its node selector or node affinity accepts no other node.
    NodeRules,
}

impl fmt::Display for Tie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(volume) => write!(f, "volume {volume} is on no other node"),
            Self::NodeRules => f.write_str("node selector or affinity accepts no other node"),
        }
    }
}

/// Reason why an answer is uncertain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// Another scheduler places it.
    OtherScheduler(Box<str>),
    /// Scheduling gates hold it.
    SchedulingGates,
    /// This claim has no volume yet.
    UnboundClaim(String),
    /// This claim is made anew for the new pod.
    NewVolume(String),
    /// This claim does not exist, is being deleted, or its volume does not exist.
    LostClaim(String),
    /// Claims and volumes cannot be listed.
    VolumesUnknown(Box<str>),
    /// It needs dynamic resources, which are not read.
    DynamicResources,
    /// An object cannot be understood.
    Unreadable {
        /// Kind and name of the object.
        object: String,
        /// Field that cannot be understood.
        reason: Box<str>,
    },
    /// It may push away pods of lower priority.
    Preemption,
    /// It tolerates cordons, so the scheduler may return it to a node that leaves.
    ToleratesCordon,
    /// The place depends on the order of pods, on pods that terminate, or on pending ones.
    Order,
    /// The cluster is too large for a complete check.
    TooLarge,
}

impl Doubt {
    /// Reports whether it can only take places away: a pod that finds none without it finds none at all.
    pub(super) fn only_restricts(&self) -> bool {
        match self {
            Self::UnboundClaim(_)
            | Self::NewVolume(_)
            | Self::LostClaim(_)
            | Self::VolumesUnknown(_)
            | Self::DynamicResources => true,
            Self::OtherScheduler(_)
            | Self::SchedulingGates
            | Self::Unreadable { .. }
            | Self::Preemption
            | Self::ToleratesCordon
            | Self::Order
            | Self::TooLarge => false,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherScheduler(name) => write!(f, "scheduler {name} places it by rules of its own"),
            Self::SchedulingGates => f.write_str("scheduling gates hold it"),
            Self::UnboundClaim(claim) => write!(f, "claim {claim} has no volume yet"),
            Self::NewVolume(claim) => write!(f, "claim {claim} gets a new volume, whose place is not known"),
            Self::LostClaim(claim) => write!(f, "claim {claim} or its volume does not exist or is being deleted"),
            Self::VolumesUnknown(refusal) => write!(f, "its volumes are not known: {refusal}"),
            Self::DynamicResources => f.write_str("it needs dynamic resources (resourceClaims)"),
            Self::Unreadable { object, reason } => write!(f, "{object} cannot be understood: {reason}"),
            Self::Preemption => f.write_str("it fits only if it pushes away pods of lower priority"),
            Self::ToleratesCordon => f.write_str("it tolerates cordons, so it may return to a node that leaves"),
            Self::Order => f.write_str("it depends on the order in which pods are placed"),
            Self::TooLarge => f.write_str("too many pods and nodes for a complete check"),
        }
    }
}

/// Answer for one pod that leaves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodAnswer {
    /// It finds a place in every order that was tried.
    Fits,
    /// It can only return to nodes that leave, its own among them. It is pending until then.
    OnlyHere {
        /// Bond to these nodes.
        tie: Tie,
    },
    /// It finds no place: each obstacle with the number of nodes, the most frequent first.
    Cannot(Vec<(Obstacle, usize)>),
    /// No controller makes a new pod.
    NotRecreated,
    /// The answer is not known.
    Uncertain(Doubt),
}

/// Pod that leaves, with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLanding {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The owner with `controller: true`.
    pub controller: Option<Controller>,
    /// Node that it leaves.
    pub node: NodeName,
    /// Its answer.
    pub answer: PodAnswer,
}

/// Result of a landing check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Pods that leave, by node, namespace and name.
    pub pods: Vec<PodLanding>,
    /// Answer for all pods together. A pod that can only return makes it [`LandingAnswer::Cannot`].
    pub answer: LandingAnswer,
    /// The same without the pods that can only return.
    pub elsewhere: LandingAnswer,
    /// Least number of pods that stayed pending in a trial, those that can only return included.
    pub fewest_pending: usize,
    /// Number of comparisons of a pod with a node, the measure of the work.
    pub steps: u64,
}

impl Landing {
    /// Reports whether the capacity is too small for all pods together, although each of them fits alone.
    pub fn too_many_together(&self) -> bool {
        let fits_alone = |pod: &PodLanding| match &pod.answer {
            PodAnswer::Fits | PodAnswer::NotRecreated | PodAnswer::Uncertain(_) => true,
            PodAnswer::OnlyHere { .. } | PodAnswer::Cannot(_) => false,
        };
        self.answer == LandingAnswer::Cannot && self.pods.iter().all(fits_alone)
    }
}

/// Counts obstacles by kind: amounts of one resource are merged, and the largest free amount is kept.
pub(super) fn merged(obstacles: impl IntoIterator<Item = Obstacle>) -> Vec<(Obstacle, usize)> {
    let mut counts: BTreeMap<Obstacle, usize> = BTreeMap::new();
    let mut resources: BTreeMap<String, (Obstacle, usize)> = BTreeMap::new();
    for obstacle in obstacles {
        if let Obstacle::Resource { resource, free, .. } = &obstacle {
            let key = resource.to_string();
            let entry = resources.entry(key).or_insert_with(|| (obstacle.clone(), 0));
            entry.1 += 1;
            if matches!(&entry.0, Obstacle::Resource { free: most, .. } if most < free) {
                entry.0 = obstacle;
            }
        } else {
            *counts.entry(obstacle).or_default() += 1;
        }
    }
    let mut all: Vec<(Obstacle, usize)> = counts.into_iter().chain(resources.into_values()).collect();
    all.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
    all
}

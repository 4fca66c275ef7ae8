//! Classes of pods that the scheduler cannot tell apart, and the filters that depend on the node alone.

use std::rc::Rc;

use cketerm_model::{
    labels::Labels,
    names::NodeName,
    placement::{
        ClaimUse, DEFAULT_SCHEDULER, HostPort, NodeSelector, NodeTaint, PlacementPod, PlacementSpec, PlacementView,
    },
};

use super::{
    answer::Doubt,
    counter::NodeId,
    nodes::{CORDON_TAINT, NOT_READY_TAINT, NodeEntry},
};

/// Index of a counter of the cluster.
pub(super) type CounterId = usize;

/// Features of a pod that decide where it can be placed.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct ClassKey<'a> {
    namespace: &'a str,
    labels: &'a Labels,
    spec: &'a PlacementSpec,
    claims: &'a [ClaimUse],
    gated: bool,
    unreadable: Option<&'a str>,
}

impl<'a> ClassKey<'a> {
    pub(super) fn of(pod: &'a PlacementPod) -> Self {
        Self {
            namespace: &pod.namespace,
            labels: &pod.labels,
            spec: &pod.spec,
            claims: &pod.claims,
            gated: pod.gated,
            unreadable: pod.unreadable.as_deref(),
        }
    }
}

/// Spread constraint of a class.
pub(super) struct SpreadRule {
    pub(super) counter: CounterId,
    pub(super) max_skew: u32,
    pub(super) min_domains: u32,
    /// Whether the pod counts itself.
    pub(super) counts_itself: bool,
}

/// Volume with the nodes that have it.
#[derive(Clone, Copy)]
pub(super) struct VolumeRule<'a> {
    pub(super) name: &'a str,
    pub(super) affinity: &'a NodeSelector,
}

/// Pods that the scheduler treats alike.
pub(super) struct Class<'a> {
    /// One of them.
    pub(super) pod: &'a PlacementPod,
    /// Requested amounts, in the order of the cluster's resources.
    pub(super) requests: Rc<[i64]>,
    pub(super) volumes: Vec<VolumeRule<'a>>,
    /// Fact that makes every answer uncertain.
    pub(super) doubt: Option<Doubt>,
    /// Open nodes that pass the filters of this file.
    pub(super) eligible: Rc<[NodeId]>,
    /// Pods of each affinity term; a pod counts only if it matches all of them.
    pub(super) affinity: Vec<CounterId>,
    /// Whether it matches its own affinity.
    pub(super) affine_to_itself: bool,
    /// Pods that its anti-affinity excludes.
    pub(super) excludes: Vec<CounterId>,
    /// Pods whose anti-affinity excludes it.
    pub(super) excluded_by: Vec<CounterId>,
    pub(super) spread: Vec<SpreadRule>,
    /// Counters that a pod of this class raises.
    pub(super) raises: Rc<[CounterId]>,
}

impl Class<'_> {
    /// Reports whether another pod that is placed can only make it harder to place one of these.
    pub(super) fn only_gets_harder(&self) -> bool {
        self.affinity.is_empty() && self.spread.is_empty()
    }

    /// Reports whether it depends on nothing but free amounts and the node.
    pub(super) fn is_plain(&self) -> bool {
        self.only_gets_harder() && self.excludes.is_empty() && self.excluded_by.is_empty()
    }

    /// Reports whether it tolerates a cordon.
    pub(super) fn tolerates_cordon(&self) -> bool {
        self.pod.spec.node_rules.tolerates(&NodeTaint::no_schedule(CORDON_TAINT))
    }
}

/// Obstacle of one node, without names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blocked<'a> {
    NotReady,
    Unschedulable,
    Taint(&'a NodeTaint),
    Selector,
    NodeAffinity,
    Volume {
        name: &'a str,
        affinity: &'a NodeSelector,
    },
    PodLimit,
    /// Index of the resource.
    Resource(usize),
    Port(&'a HostPort),
    AntiAffinity(CounterId),
    PodAffinity(CounterId),
    Spread(CounterId),
}

/// Applies the filters that depend only on the node's labels, taints and state.
pub(super) fn static_fit<'a>(
    pod: &'a PlacementPod,
    volumes: &[VolumeRule<'a>],
    entry: &'a NodeEntry<'_>,
) -> Result<(), Blocked<'a>> {
    let (rules, node) = (&pod.spec.node_rules, entry.node);
    if entry.cordoned() && !rules.tolerates(&NodeTaint::no_schedule(CORDON_TAINT)) {
        return Err(Blocked::Unschedulable);
    }
    if !entry.ready() && !rules.tolerates(&NodeTaint::no_schedule(NOT_READY_TAINT)) {
        return Err(Blocked::NotReady);
    }
    if let Some(taint) = rules.untolerated(&entry.taints) {
        return Err(Blocked::Taint(taint));
    }
    if !rules.selected(&node.labels) {
        return Err(Blocked::Selector);
    }
    if !rules.accept(&node.name, &node.labels) {
        return Err(Blocked::NodeAffinity);
    }
    match missing_volume(volumes, &node.name, &node.labels) {
        Some(volume) => Err(Blocked::Volume { name: volume.name, affinity: volume.affinity }),
        None => Ok(()),
    }
}

/// Returns the first volume that a node does not have.
pub(super) fn missing_volume<'a>(
    volumes: &[VolumeRule<'a>],
    name: &NodeName,
    labels: &Labels,
) -> Option<VolumeRule<'a>> {
    volumes.iter().find(|volume| !volume.affinity.matches(name, labels)).copied()
}

/// Returns the volumes of a pod that restrict it, and the reason why its answer is uncertain.
pub(super) fn volumes_and_doubt<'a>(
    view: &'a PlacementView,
    pod: &'a PlacementPod,
) -> (Vec<VolumeRule<'a>>, Option<Doubt>) {
    let (mut volumes, mut doubt) = (Vec::new(), own_doubt(pod));
    for used in &pod.claims {
        match volume_of(view, pod, used) {
            Ok(volume) => volumes.extend(volume),
            Err(unknown) => doubt = doubt.or(Some(unknown)),
        }
    }
    (volumes, doubt)
}

fn own_doubt(pod: &PlacementPod) -> Option<Doubt> {
    let spec = &pod.spec;
    if let Some(reason) = &pod.unreadable {
        Some(Doubt::Unreadable { object: format!("Pod {}", pod.full_name()), reason: reason.clone() })
    } else if pod.gated {
        Some(Doubt::SchedulingGates)
    } else if !spec.scheduler.is_empty() && *spec.scheduler != *DEFAULT_SCHEDULER {
        Some(Doubt::OtherScheduler(spec.scheduler.clone()))
    } else if spec.dynamic_resources {
        Some(Doubt::DynamicResources)
    } else {
        None
    }
}

fn volume_of<'a>(
    view: &'a PlacementView,
    pod: &'a PlacementPod,
    used: &ClaimUse,
) -> Result<Option<VolumeRule<'a>>, Doubt> {
    let name = || format!("{}/{}", pod.namespace, used.name);
    if used.ephemeral {
        return Err(Doubt::NewVolume(name()));
    }
    if let Some(refusal) = &view.volumes_refused {
        return Err(Doubt::VolumesUnknown(refusal.clone()));
    }
    let claim = view.claims.get(&(pod.namespace.clone(), used.name.clone()));
    let claim = claim.filter(|claim| !claim.terminating).ok_or_else(|| Doubt::LostClaim(name()))?;
    let volume = claim.volume.as_ref().ok_or_else(|| Doubt::UnboundClaim(name()))?;
    let (volume, row) = view.volumes.get_key_value(volume).ok_or_else(|| Doubt::LostClaim(name()))?;
    if let Some(reason) = &row.unreadable {
        let object = format!("PersistentVolume {volume}");
        return Err(Doubt::Unreadable { object, reason: reason.clone() });
    }
    Ok(row.affinity.as_ref().map(|affinity| VolumeRule { name: volume, affinity }))
}

//! Gate of a drain by the landing check (policy `landing_check: require`, REB-69).

use std::collections::BTreeSet;

use cketerm_model::{
    names::NodeName,
    placement::{PlacementPod, PlacementView, PodPhase},
    reason::Reason,
};

use super::{
    answer::{PodAnswer, PodLanding},
    check::check,
};

/// Reports whether a drain removes this pod: pending pods of Jobs stay.
pub fn is_drained(pod: &PlacementPod) -> bool {
    !(pod.controlled_by("Job") && pod.phase == PodPhase::Pending)
}

/// Returns the reason against the drain of this node: pods to evict of which no other node takes a replacement.
/// `unprotected` holds the UIDs of pods in namespaces that are not protected: those hold no drain. Neither do pods of
/// Jobs, pods that can return only here, because they run again after the reboot, and uncertain answers.
pub fn gate(view: &PlacementView, node: &NodeName, unprotected: &BTreeSet<String>) -> Option<Reason> {
    let counts = |pod: &&PlacementPod| {
        pod.node.as_ref() == Some(node) && !pod.controlled_by("Job") && !unprotected.contains(&*pod.uid)
    };
    let uids: BTreeSet<&str> = view.pods.iter().filter(counts).map(|pod| &*pod.uid).collect();
    if uids.is_empty() {
        return None;
    }
    let landing = check(view, &BTreeSet::from([node.clone()]), is_drained, &BTreeSet::new());
    let stay_pending: Vec<(&PodLanding, String)> = landing
        .pods
        .iter()
        .filter(|pod| uids.contains(pod.uid.as_str()))
        .filter_map(|pod| obstacles(&pod.answer).map(|why| (pod, why)))
        .collect();
    if landing.too_many_together() && landing.pods.iter().all(|pod| uids.contains(pod.uid.as_str())) {
        return Some(Reason::PodsCannotLand {
            count: u32::try_from(landing.fewest_pending).unwrap_or(u32::MAX),
            pod: landing.pods.first().map(|pod| format!("{}/{}", pod.namespace, pod.name))?,
            why: "the other nodes have too little free capacity for all of them together".to_owned(),
        });
    }
    let (first, why) = stay_pending.first()?;
    Some(Reason::PodsCannotLand {
        count: u32::try_from(stay_pending.len()).unwrap_or(u32::MAX),
        pod: format!("{}/{}", first.namespace, first.name),
        why: why.clone(),
    })
}

/// Returns the obstacles of a pod that finds no place, each with its number of nodes.
fn obstacles(answer: &PodAnswer) -> Option<String> {
    match answer {
        PodAnswer::Cannot(obstacles) => {
            let named = obstacles.iter().map(|(obstacle, nodes)| format!("{obstacle} ({nodes})"));
            Some(named.collect::<Vec<_>>().join(", "))
        }
        PodAnswer::Fits | PodAnswer::OnlyHere { .. } | PodAnswer::NotRecreated | PodAnswer::Uncertain(_) => None,
    }
}

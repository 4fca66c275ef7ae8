//! Landing check of a plan: whether the pods of each node find a place elsewhere while the nodes of its wave are drained
//! together. It only reads.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{names::NodeName, placement::PlacementView};
use cketerm_rules::landing::{self, LandingAnswer, PodAnswer, PodLanding};
use serde::Serialize;

/// Sets of nodes that are checked, at most: each costs a fraction of a second in a large cluster.
pub const MAX_CHECKS: usize = 20;
/// Pods that the text of one node names, at most.
const MAX_PODS: usize = 5;

/// Landing check of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeLanding {
    /// Answer for the node's pods together: `fits`, `cannot` or `uncertain`.
    pub answer: String,
    /// Number of pods that find no place in any order, although each of them fits alone. Only of a node that is checked
    /// alone.
    #[serde(skip_serializing_if = "is_none_pending")]
    pub pending: usize,
    /// The pods that leave.
    pub pods: Vec<LandingPod>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_none_pending(pending: &usize) -> bool {
    *pending == 0
}

/// Answer for one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LandingPod {
    /// `namespace/name`.
    pub pod: String,
    /// `fits`, `cannot`, `only_here`, `not_recreated` or `uncertain`.
    pub answer: &'static str,
    /// Reason; none for pods that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Landing checks of some sets of nodes.
#[derive(Clone, Debug, Default)]
pub struct Landings {
    /// By name of the node.
    pub nodes: BTreeMap<NodeName, NodeLanding>,
    /// Pairs of nodes of one set of which each has pods that only the other one takes.
    pub deadlocks: Vec<(NodeName, NodeName)>,
    /// Number of sets beyond [`MAX_CHECKS`], which were not checked.
    pub unchecked: usize,
}

/// Checks each of these sets of nodes, which are drained together.
pub fn check(view: &PlacementView, sets: &[BTreeSet<NodeName>]) -> Landings {
    let mut landings = Landings { unchecked: sets.len().saturating_sub(MAX_CHECKS), ..Landings::default() };
    for nodes in sets.iter().take(MAX_CHECKS) {
        let found = landing::check(view, nodes, landing::is_drained, &BTreeSet::new());
        for node in nodes {
            let pods: Vec<&PodLanding> = found.pods.iter().filter(|pod| pod.node == *node).collect();
            let mut landing = NodeLanding::of(&pods);
            if nodes.len() == 1 && found.too_many_together() {
                (landing.answer, landing.pending) = (LandingAnswer::Cannot.to_string(), found.fewest_pending);
            }
            landings.nodes.insert(node.clone(), landing);
        }
        landings.deadlocks.extend(landing::mutual(view, nodes));
    }
    landings
}

impl NodeLanding {
    fn of(pods: &[&PodLanding]) -> Self {
        let answer = pods.iter().map(|pod| answer_of(&pod.answer)).max().unwrap_or(LandingAnswer::Fits);
        Self { answer: answer.to_string(), pending: 0, pods: pods.iter().map(|pod| LandingPod::of(pod)).collect() }
    }

    /// Returns the answers for all these nodes as one.
    pub(crate) fn of_all(nodes: impl Iterator<Item = Self>) -> Self {
        let rank = |answer: &str| ["fits", "uncertain", "cannot"].iter().position(|known| *known == answer);
        let mut all = Self { answer: LandingAnswer::Fits.to_string(), pending: 0, pods: Vec::new() };
        for node in nodes {
            if rank(&node.answer) > rank(&all.answer) {
                all.answer = node.answer;
            }
            all.pending += node.pending;
            all.pods.extend(node.pods);
        }
        all
    }

    /// Returns a short summary: `pods fit elsewhere`, `pods: 2 fit nowhere else, 1 can return only here`.
    pub fn summary(&self) -> String {
        let count = |answer: &str| self.pods.iter().filter(|pod| pod.answer == answer).count();
        let counts = [
            (self.pending, "find no place together with the others"),
            (count("cannot"), "fit nowhere else"),
            (count("only_here"), "can return only here"),
            (count("uncertain"), "uncertain"),
            (count("not_recreated"), "not recreated"),
        ];
        let parts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        match (parts.is_empty(), self.pods.is_empty()) {
            (_, true) => "no pods to land".to_owned(),
            (true, false) => "pods fit elsewhere".to_owned(),
            (false, false) => format!("pods: {}", parts.join(", ")),
        }
    }

    /// Returns the lines under the summary: the pods that do not fit elsewhere, with the reason.
    pub fn lines(&self) -> Vec<String> {
        let others: Vec<&LandingPod> = self.pods.iter().filter(|pod| pod.answer != "fits").collect();
        let line = |pod: &&LandingPod| {
            let sign = if pod.answer == "cannot" { '!' } else { '~' };
            let why = pod.why.as_deref().unwrap_or_default();
            cketerm_model::text::visible(&format!("{sign} {}: {why}", pod.pod), false)
        };
        let mut lines: Vec<String> = others.iter().take(MAX_PODS).map(line).collect();
        if others.len() > MAX_PODS {
            lines.push(format!("~ {} more pods", others.len() - MAX_PODS));
        }
        lines
    }
}

fn answer_of(answer: &PodAnswer) -> LandingAnswer {
    match answer {
        PodAnswer::Fits | PodAnswer::NotRecreated => LandingAnswer::Fits,
        PodAnswer::Uncertain(_) => LandingAnswer::Uncertain,
        PodAnswer::OnlyHere { .. } | PodAnswer::Cannot(_) => LandingAnswer::Cannot,
    }
}

impl LandingPod {
    fn of(landing: &PodLanding) -> Self {
        let (answer, why) = match &landing.answer {
            PodAnswer::Fits => ("fits", None),
            PodAnswer::NotRecreated => {
                ("not_recreated", Some("has no controller: the drain deletes it for good".to_owned()))
            }
            PodAnswer::OnlyHere { tie } => ("only_here", Some(format!("returns only here: {tie}"))),
            PodAnswer::Uncertain(doubt) => ("uncertain", Some(format!("uncertain: {doubt}"))),
            PodAnswer::Cannot(obstacles) => {
                let named = obstacles.iter().map(|(obstacle, nodes)| format!("{obstacle} ({nodes})"));
                ("cannot", Some(format!("fits nowhere else: {}", named.collect::<Vec<_>>().join(", "))))
            }
        };
        Self { pod: format!("{}/{}", landing.namespace, landing.name), answer, why }
    }
}

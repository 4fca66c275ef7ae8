//! Landing check of a plan: whether the pods of each node find a place elsewhere while the nodes of its wave are drained
//! together. It only reads.

mod lines;
mod mutual;
mod together;

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{kube::Controller, names::NodeName, placement::PlacementView};
use cketerm_rules::landing::{self, LandingAnswer, PodAnswer, PodLanding};
use serde::Serialize;

pub use self::{
    mutual::{MutualNodes, MutualOutcome},
    together::TooManyTogether,
};

/// Sets of nodes that are checked, at most: each costs a fraction of a second in a large cluster.
pub const MAX_CHECKS: usize = 20;

/// Landing check of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeLanding {
    /// Answer for the node's pods together.
    pub answer: LandingAnswer,
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
#[serde(into = "WrittenPod")]
pub struct LandingPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The owner with `controller: true`.
    pub controller: Option<Controller>,
    /// Its answer.
    pub answer: PodAnswer,
}

/// Form of a pod's answer in JSON.
#[derive(Serialize)]
struct WrittenPod {
    /// `namespace/name`.
    pod: String,
    /// `fits`, `cannot`, `only_here`, `not_recreated` or `uncertain`.
    answer: &'static str,
    /// Reason; none for pods that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl From<LandingPod> for WrittenPod {
    fn from(pod: LandingPod) -> Self {
        let answer = match pod.answer {
            PodAnswer::Fits => "fits",
            PodAnswer::NotRecreated => "not_recreated",
            PodAnswer::OnlyHere { .. } => "only_here",
            PodAnswer::Uncertain(_) => "uncertain",
            PodAnswer::Cannot(_) => "cannot",
        };
        Self { pod: pod.full_name(), answer, why: lines::why(&pod.answer) }
    }
}

/// Landing checks of some sets of nodes.
#[derive(Clone, Debug, Default)]
pub struct Landings {
    /// By name of the node.
    pub nodes: BTreeMap<NodeName, NodeLanding>,
    /// Pairs of nodes of one set of which each has pods that only the other one takes.
    pub mutual: Vec<(NodeName, NodeName)>,
    /// Sets of several nodes whose pods lack capacity together. A set of one node says it in its own answer.
    pub too_many: Vec<TooManyTogether>,
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
                (landing.answer, landing.pending) = (LandingAnswer::Cannot, found.fewest_pending);
            }
            landings.nodes.insert(node.clone(), landing);
        }
        if nodes.len() > 1 && found.too_many_together() {
            landings.too_many.push(TooManyTogether { nodes: nodes.clone(), pending: found.fewest_pending });
        }
        landings.mutual.extend(landing::mutual(view, nodes));
    }
    landings
}

impl Landings {
    /// Returns the pairs of nodes that wait for each other. `has_budgets` tells whether budgets select pods of a node.
    pub fn mutual_nodes(&self, has_budgets: impl Fn(&NodeName) -> bool) -> Vec<MutualNodes> {
        self.mutual.iter().map(|pair| MutualNodes::of(pair, &has_budgets)).collect()
    }
}

impl NodeLanding {
    fn of(pods: &[&PodLanding]) -> Self {
        let answer = pods.iter().map(|pod| answer_of(&pod.answer)).max().unwrap_or(LandingAnswer::Fits);
        Self { answer, pending: 0, pods: pods.iter().map(|pod| LandingPod::of(pod)).collect() }
    }

    /// Returns the answers for all these nodes as one.
    pub(crate) fn of_all(nodes: impl Iterator<Item = Self>) -> Self {
        let mut all = Self { answer: LandingAnswer::Fits, pending: 0, pods: Vec::new() };
        for node in nodes {
            all.answer = all.answer.max(node.answer);
            all.pending += node.pending;
            all.pods.extend(node.pods);
        }
        all
    }

    /// Returns a short summary: `pods fit elsewhere`, `pods: 2 fit nowhere else, 1 can return only here`.
    pub fn summary(&self) -> String {
        let (mut cannot, mut only_here, mut uncertain, mut not_recreated) = (0, 0, 0, 0);
        for pod in &self.pods {
            match pod.answer {
                PodAnswer::Fits => {}
                PodAnswer::Cannot(_) => cannot += 1,
                PodAnswer::OnlyHere { .. } => only_here += 1,
                PodAnswer::Uncertain(_) => uncertain += 1,
                PodAnswer::NotRecreated => not_recreated += 1,
            }
        }
        let counts = [
            (self.pending, "find no place together with the others"),
            (cannot, "fit nowhere else"),
            (only_here, "can return only here"),
            (uncertain, "uncertain"),
            (not_recreated, "not recreated"),
        ];
        let parts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        match (parts.is_empty(), self.pods.is_empty()) {
            (_, true) => "no pods to land".to_owned(),
            (true, false) => "pods fit elsewhere".to_owned(),
            (false, false) => format!("pods: {}", parts.join(", ")),
        }
    }

    /// Returns the lines under the summary: the pods that do not simply fit elsewhere, with the reason.
    pub fn lines(&self) -> Vec<String> {
        lines::lines(&self.pods)
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
        Self {
            namespace: landing.namespace.clone(),
            name: landing.name.clone(),
            controller: landing.controller.clone(),
            answer: landing.answer.clone(),
        }
    }

    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cketerm_model::placement::{
        Amount, PlacementNode, PlacementPod, PlacementSpec, PodPhase, ResourceName, Resources,
    };

    use cketerm_rules::landing::Doubt;

    use super::*;

    fn amounts(pairs: &[(&str, i64)]) -> Resources {
        pairs.iter().map(|(name, amount)| (ResourceName::new(name), Amount(*amount))).collect()
    }

    fn node(name: &str, cpu: i64) -> PlacementNode {
        let (name, allocatable) = (NodeName::new(name), amounts(&[("cpu", cpu), ("pods", 110)]));
        PlacementNode { name, ready: true, allocatable, ..PlacementNode::default() }
    }

    fn pod(name: &str, on: &str, cpu: i64) -> PlacementPod {
        PlacementPod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            node: Some(NodeName::new(on)),
            phase: PodPhase::Running,
            controller: Some(Controller { kind: "ReplicaSet".into(), name: "web".into(), uid: "web".into() }),
            spec: Arc::new(PlacementSpec { requests: amounts(&[("cpu", cpu)]), ..PlacementSpec::default() }),
            ..PlacementPod::default()
        }
    }

    /// Each node of such a wave was only uncertain, although it is certain that pods stay pending.
    #[test]
    fn a_wave_whose_pods_lack_capacity_together_is_named() {
        let nodes = vec![node("w1", 9), node("w2", 9), node("w3", 3)];
        let pods = vec![pod("web-1", "w1", 2), pod("web-2", "w2", 2)];
        let view = PlacementView { pods, nodes, ..PlacementView::default() };
        let both: BTreeSet<NodeName> = ["w1", "w2"].into_iter().map(NodeName::new).collect();
        let found = check(&view, std::slice::from_ref(&both));
        assert_eq!(found.too_many, [TooManyTogether { nodes: both, pending: 1 }]);
        let one = check(&view, &[BTreeSet::from([NodeName::new("w1")])]);
        assert_eq!((one.too_many, one.nodes["w1"].answer), (Vec::new(), LandingAnswer::Fits));
    }
    #[test]
    fn a_node_whose_pods_lack_capacity_together_says_it_itself_and_a_wave_that_fits_says_nothing() {
        let nodes = vec![node("w1", 9), node("w2", 9), node("w3", 3)];
        let pods = vec![pod("web-1", "w1", 2), pod("web-2", "w1", 2), pod("web-3", "w2", 1)];
        let view = PlacementView { pods, nodes, ..PlacementView::default() };
        let set = |names: &[&str]| -> BTreeSet<NodeName> { names.iter().copied().map(NodeName::new).collect() };
        let fits = check(&view, &[set(&["w1"])]);
        assert_eq!((fits.too_many, fits.nodes["w1"].answer), (Vec::new(), LandingAnswer::Fits));
        assert_eq!(fits.nodes["w1"].pending, 0);
        let busy = PlacementView { nodes: vec![node("w1", 9), node("w3", 3)], ..view.clone() };
        let cannot = check(&busy, &[set(&["w1"])]);
        assert_eq!((cannot.too_many, cannot.nodes["w1"].answer), (Vec::new(), LandingAnswer::Cannot));
        assert_eq!(cannot.nodes["w1"].pending, 1);
        let small = PlacementView { pods: vec![pod("web-1", "w1", 1), pod("web-3", "w2", 1)], ..view };
        assert_eq!(check(&small, &[set(&["w1", "w2"])]).too_many, []);
    }
    #[test]
    fn a_summary_counts_each_kind_of_answer() {
        let landing = |answers: Vec<PodAnswer>, pending| {
            let pods = answers.into_iter().map(|answer| LandingPod {
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                controller: None,
                answer,
            });
            NodeLanding { answer: LandingAnswer::Uncertain, pending, pods: pods.collect() }.summary()
        };
        let (uncertain, cannot) = (PodAnswer::Uncertain(Doubt::SchedulingGates), PodAnswer::Cannot(Vec::new()));
        let answers = vec![PodAnswer::Fits, cannot, uncertain.clone(), uncertain, PodAnswer::NotRecreated];
        assert_eq!(
            landing(answers, 3),
            "pods: 3 find no place together with the others, 1 fit nowhere else, 2 uncertain, 1 not recreated"
        );
        assert_eq!(landing(vec![PodAnswer::Fits], 0), "pods fit elsewhere");
        assert_eq!(landing(Vec::new(), 0), "no pods to land");
    }
}

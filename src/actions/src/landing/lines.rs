//! Lines about pods that do not simply fit elsewhere. Pods of one controller with the same answer and reason are one line,
//! which names a few of them last.

use std::collections::BTreeMap;

use cketerm_model::text::visible;
use cketerm_rules::landing::{Obstacle, PodAnswer};

use super::LandingPod;

/// Lines of one text, at most.
const MAX_LINES: usize = 5;
/// Pods that one line names, at most.
const MAX_NAMED: usize = 2;

/// Kind, namespace and name of a controller.
type Owner<'a> = (&'a str, &'a str, &'a str);

/// Pods with the same answer, in their order. Never empty.
type Group<'a> = Vec<&'a LandingPod>;

/// Returns the lines about these pods, the worst answers first.
pub(super) fn lines(pods: &[LandingPod]) -> Vec<String> {
    let groups = groups(pods);
    let mut lines: Vec<String> = groups.iter().take(MAX_LINES).filter_map(|group| line(group)).collect();
    match groups.iter().skip(MAX_LINES).map(Vec::len).sum() {
        0 => {}
        1 => lines.push("~ 1 more pod".to_owned()),
        more => lines.push(format!("~ {more} more pods")),
    }
    lines
}

/// Returns the pods that do not simply fit elsewhere, by answer and controller.
fn groups(pods: &[LandingPod]) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<(Rank, &PodAnswer, Option<Owner<'_>>), (usize, Group<'_>)> = BTreeMap::new();
    for (place, pod) in pods.iter().enumerate() {
        let Some(rank) = rank(&pod.answer) else { continue };
        groups.entry((rank, &pod.answer, owner(pod))).or_insert_with(|| (place, Vec::new())).1.push(pod);
    }
    let mut groups: Vec<(Rank, usize, Group<'_>)> =
        groups.into_iter().map(|((rank, ..), (place, group))| (rank, place, group)).collect();
    groups.sort_by_key(|(rank, place, _)| (*rank, *place));
    groups.into_iter().map(|(_, _, group)| group).collect()
}

/// Rank of an answer, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Cannot,
    OnlyHere,
    Uncertain,
    NotRecreated,
}

/// Returns the rank of an answer; `None` for pods that fit.
fn rank(answer: &PodAnswer) -> Option<Rank> {
    match answer {
        PodAnswer::Cannot(_) => Some(Rank::Cannot),
        PodAnswer::OnlyHere { .. } => Some(Rank::OnlyHere),
        PodAnswer::Uncertain(_) => Some(Rank::Uncertain),
        PodAnswer::NotRecreated => Some(Rank::NotRecreated),
        PodAnswer::Fits => None,
    }
}

fn owner(pod: &LandingPod) -> Option<Owner<'_>> {
    let controller = pod.controller.as_ref()?;
    Some((&controller.kind, &pod.namespace, &controller.name))
}

fn line(group: &[&LandingPod]) -> Option<String> {
    let first = group.first()?;
    let sign = match first.answer {
        PodAnswer::Cannot(_) => '!',
        PodAnswer::OnlyHere { .. } | PodAnswer::Uncertain(_) | PodAnswer::NotRecreated | PodAnswer::Fits => '~',
    };
    let text = match group {
        [pod] => format!("{sign} {}: {}", pod.full_name(), why(&pod.answer)?),
        pods => format!("{sign} {} pods {}", pods.len(), of_several(pods, owner(first))?),
    };
    Some(visible(&text, false))
}

/// Returns the end of a line about several pods: their owner, the answer, and a few names.
fn of_several(pods: &[&LandingPod], owner: Option<Owner<'_>>) -> Option<String> {
    let whose = owner.map_or_else(
        || "without a controller".to_owned(),
        |(kind, namespace, name)| format!("of {kind} {namespace}/{name}"),
    );
    let name = |pod: &&LandingPod| if owner.is_some() { pod.name.clone() } else { pod.full_name() };
    let mut names = pods.iter().take(MAX_NAMED).map(name).collect::<Vec<_>>().join(", ");
    if pods.len() > MAX_NAMED {
        names = format!("{names} and {} more", pods.len() - MAX_NAMED);
    }
    let answer = match &pods.first()?.answer {
        PodAnswer::Fits => return None,
        PodAnswer::NotRecreated => "are deleted for good".to_owned(),
        PodAnswer::OnlyHere { tie } => format!("return only here: {tie}"),
        PodAnswer::Uncertain(doubt) => format!("are uncertain: {doubt}"),
        PodAnswer::Cannot(obstacles) => format!("fit nowhere else: {}", listed(obstacles)),
    };
    Some(format!("{whose} {answer}; {names}"))
}

/// Returns the reason of one pod's answer; `None` for pods that fit.
pub(super) fn why(answer: &PodAnswer) -> Option<String> {
    match answer {
        PodAnswer::Fits => None,
        PodAnswer::NotRecreated => Some("has no controller: the drain deletes it for good".to_owned()),
        PodAnswer::OnlyHere { tie } => Some(format!("returns only here: {tie}")),
        PodAnswer::Uncertain(doubt) => Some(format!("uncertain: {doubt}")),
        PodAnswer::Cannot(obstacles) => Some(format!("fits nowhere else: {}", listed(obstacles))),
    }
}

/// Returns the obstacles, each with its number of nodes.
fn listed(obstacles: &[(Obstacle, usize)]) -> String {
    let named = obstacles.iter().map(|(obstacle, nodes)| match nodes {
        1 => format!("{obstacle} (1 node)"),
        _ => format!("{obstacle} ({nodes} nodes)"),
    });
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use cketerm_model::{
        kube::Controller,
        placement::{Amount, ResourceName},
    };
    use cketerm_rules::landing::{Doubt, Tie};

    use super::*;

    fn pod(name: &str, set: Option<&str>, answer: PodAnswer) -> LandingPod {
        let controller =
            set.map(|set| Controller { kind: "ReplicaSet".into(), name: set.to_owned(), uid: set.to_owned() });
        LandingPod { namespace: "shop".to_owned(), name: name.to_owned(), controller, answer }
    }

    fn no_cpu(nodes: usize) -> PodAnswer {
        let resource = ResourceName::new("cpu");
        PodAnswer::Cannot(vec![(Obstacle::Resource { resource, needed: Amount(8_000), free: Amount(3_500) }, nodes)])
    }

    /// Each of the pods of a set was a line with the same text, and the limit hid the pods of other sets.
    #[test]
    fn pods_of_one_controller_with_one_answer_are_one_line() {
        let mut pods = vec![
            pod("bare-1", None, PodAnswer::NotRecreated),
            pod("bare-2", None, PodAnswer::NotRecreated),
            pod("web-0", Some("web"), PodAnswer::Fits),
        ];
        pods.extend((1..=4).map(|n| pod(&format!("web-{n}"), Some("web"), no_cpu(28))));
        pods.push(pod("web-5", Some("web"), no_cpu(1)));
        pods.push(pod("db-1", Some("db"), PodAnswer::OnlyHere { tie: Tie::NodeRules }));
        pods.push(pod("db-2", Some("db"), PodAnswer::OnlyHere { tie: Tie::NodeRules }));
        pods.push(pod("api-1", Some("api"), PodAnswer::Uncertain(Doubt::Order)));
        assert_eq!(
            lines(&pods),
            [
                "! 4 pods of ReplicaSet shop/web fit nowhere else: needs 8 CPU, at most 3.5 free (28 nodes); web-1, \
                 web-2 and 2 more",
                "! shop/web-5: fits nowhere else: needs 8 CPU, at most 3.5 free (1 node)",
                "~ 2 pods of ReplicaSet shop/db return only here: node selector or affinity accepts no other node; \
                 db-1, db-2",
                "~ shop/api-1: uncertain: it depends on the order in which pods are placed",
                "~ 2 pods without a controller are deleted for good; shop/bare-1, shop/bare-2",
            ]
        );
    }

    #[test]
    fn further_lines_are_counted_by_their_pods() {
        let mut pods: Vec<LandingPod> = (0..5).map(|n| pod("a", Some(&n.to_string()), no_cpu(1))).collect();
        pods.extend((0..3).map(|_| pod("b", None, PodAnswer::NotRecreated)));
        assert_eq!(lines(&pods).last().unwrap(), "~ 3 more pods");
        pods.truncate(6);
        assert_eq!(lines(&pods).last().unwrap(), "~ 1 more pod");
    }
}

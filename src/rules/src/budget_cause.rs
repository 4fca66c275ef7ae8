//! Cause behind a budget that allows no eviction, from the budget, its pods and their Nodes (REB-67).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    entry::EntryId,
    kube::{BudgetLimit, BudgetPod, BudgetRow, KubeView, PodRow},
    names::NodeName,
    placement::{PlacementPod, PlacementView},
    reason::budget_cause::{
        AwaitedNode, BudgetCause, Exclusion, MAX_AWAITED_NODES, MAX_UNHEALTHY_PODS, Opens, PodTrouble, UnhealthyPod,
    },
};

use super::landing;

/// Returns the cause behind a budget that allows no eviction. `pods` are those that it selects. `placement` tells which
/// cordoned nodes unscheduled pods wait for; without it none is named.
pub fn budget_cause(
    budget: &BudgetRow,
    pods: &[BudgetPod],
    kube: &KubeView,
    placement: Option<&PlacementView>,
) -> BudgetCause {
    // a pod that has ended is neither healthy nor in trouble
    let running: Vec<BudgetPod> = pods.iter().filter(|pod| !has_ended(&pod.row)).cloned().collect();
    let ended = pods.len() - running.len();
    let pods = running.as_slice();
    let mut awaited = placement.map(|view| awaited(view, pods, kube)).unwrap_or_default();
    let found = pods.iter().filter_map(|pod| unhealthy(pod, kube, awaited.remove(&pod.row.uid).unwrap_or_default()));
    let mut unhealthy: Vec<UnhealthyPod> = found.collect();
    unhealthy.sort_by(|a, b| (rank(&a.why), &a.pod).cmp(&(rank(&b.why), &b.pod)));
    let more = unhealthy.len().saturating_sub(MAX_UNHEALTHY_PODS);
    unhealthy.truncate(MAX_UNHEALTHY_PODS);
    BudgetCause { opens: opens(budget, pods, ended), pods: budget.pods, unhealthy, more, deadlock: Vec::new() }
}

/// Returns the condition under which the budget allows an eviction. Its controller allows as many as there are more
/// healthy pods than it needs.
fn opens(budget: &BudgetRow, pods: &[BudgetPod], ended: usize) -> Opens {
    if let Some(because) = exclusion(budget, pods.len(), ended)
        && !has_spare_pods(&because, budget, pods)
    {
        if is_growing(&because, budget, pods) {
            return Opens::Unknown;
        }
        return Opens::Never { because };
    }
    match budget.needed.saturating_add(1).saturating_sub(budget.healthy) {
        ..=0 => Opens::WhenCounted,
        missing => Opens::WhenHealthy { missing },
    }
}

/// Returns the setting by which the budget refuses every eviction, even while all its pods are healthy.
fn exclusion(budget: &BudgetRow, running: usize, ended: usize) -> Option<Exclusion> {
    if let Some(message) = &budget.sync_failure {
        return Some(Exclusion::NotCounted { message: message.to_string() });
    }
    // it counts pods by the scale of their controllers, and these have none
    if budget.pods <= 0 && running > 0 && is_relative(&budget.limit) {
        return Some(Exclusion::NotCounted { message: "no controller tells how many they should be".to_owned() });
    }
    match &budget.limit {
        BudgetLimit::None => Some(Exclusion::NoLimit),
        BudgetLimit::MaxUnavailable(most) if is_zero(most) => Some(Exclusion::NoneUnavailable),
        BudgetLimit::MinAvailable(_) if budget.never_allows() && budget.pods == 1 && !is_relative(&budget.limit) => {
            Some(Exclusion::OneReplica)
        }
        // a number counts pods that have ended, too
        BudgetLimit::MinAvailable(least) if budget.never_allows() || (ended > 0 && lacks_pods(budget, running)) => {
            let pods = i32::try_from(running).ok().filter(|n| (1..budget.pods).contains(n)).unwrap_or(budget.pods);
            Some(Exclusion::AllNeeded { min_available: least.to_string(), pods })
        }
        // a percentage of `maxUnavailable` is rounded up, so one pod may be away
        BudgetLimit::MaxUnavailable(_) | BudgetLimit::MinAvailable(_) => None,
    }
}

/// Reports whether a budget needs all of its running pods although it counts more.
fn lacks_pods(budget: &BudgetRow, running: usize) -> bool {
    let counted = i32::try_from(running).unwrap_or(i32::MAX);
    !is_relative(&budget.limit) && counted > 0 && counted < budget.pods && budget.needed >= counted
}

/// Reports whether the pod has ended by itself.
fn has_ended(pod: &PodRow) -> bool {
    matches!(pod.phase.as_str(), "Succeeded" | "Failed")
}

/// Reports whether a `StatefulSet` may make further pods once the present ones are healthy: it makes them one by one.
fn is_growing(because: &Exclusion, budget: &BudgetRow, pods: &[BudgetPod]) -> bool {
    let by_number = match because {
        Exclusion::OneReplica | Exclusion::AllNeeded { .. } => !is_relative(&budget.limit),
        Exclusion::NoLimit | Exclusion::NoneUnavailable | Exclusion::NotCounted { .. } => false,
    };
    by_number && pods.iter().any(|pod| !pod.row.ready && pod.row.controlled_by("StatefulSet").is_some())
}

/// Reports whether the budget selects more pods than it needs although a percentage of them seems to be all: pods without
/// a controller count as healthy, but not as pods that there should be.
fn has_spare_pods(because: &Exclusion, budget: &BudgetRow, pods: &[BudgetPod]) -> bool {
    let by_percentage = match because {
        Exclusion::OneReplica | Exclusion::AllNeeded { .. } => is_relative(&budget.limit),
        Exclusion::NoLimit | Exclusion::NoneUnavailable | Exclusion::NotCounted { .. } => false,
    };
    let stay = pods.iter().filter(|pod| pod.row.terminating_since.is_none()).count();
    by_percentage && i32::try_from(stay).is_ok_and(|stay| stay > budget.needed)
}

/// Reports whether the limit depends on the number of pods that there should be.
fn is_relative(limit: &BudgetLimit) -> bool {
    match limit {
        BudgetLimit::None => false,
        BudgetLimit::MinAvailable(least) => least.ends_with('%'),
        BudgetLimit::MaxUnavailable(_) => true,
    }
}

/// Reports whether a number or percentage is 0.
fn is_zero(amount: &str) -> bool {
    amount.trim_end_matches('%').parse::<i64>().is_ok_and(|n| n <= 0)
}

/// Returns the pod with its trouble, if its budget does not count it as healthy.
fn unhealthy(pod: &BudgetPod, kube: &KubeView, waits_for: Vec<AwaitedNode>) -> Option<UnhealthyPod> {
    let row = &pod.row;
    if row.ready && row.terminating_since.is_none() {
        return None;
    }
    let node = Some(row.node.clone()).filter(|name| !name.is_empty());
    let why = if row.terminating_since.is_some() {
        PodTrouble::Terminating
    } else if let Some(message) = &pod.unschedulable {
        PodTrouble::Unschedulable { message: message.clone(), waits_for }
    } else if let Some(name) = &node
        && !kube.nodes.contains_key(name)
    {
        PodTrouble::NodeGone
    } else if node.as_ref().is_some_and(|name| kube.not_ready.contains(name)) {
        PodTrouble::NodeNotReady
    } else if let Some((reason, message)) = &pod.waiting {
        PodTrouble::Waiting { reason: reason.clone(), message: message.clone() }
    } else if row.phase == "Pending" {
        PodTrouble::Starting
    } else {
        PodTrouble::NotReady
    };
    Some(UnhealthyPod { pod: row.full_name(), node, why })
}

/// Rank of a trouble: those that last come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Unschedulable,
    NodeAway,
    Waiting,
    NotReady,
    Terminating,
    Starting,
}

fn rank(trouble: &PodTrouble) -> Rank {
    match trouble {
        PodTrouble::Unschedulable { .. } => Rank::Unschedulable,
        PodTrouble::NodeNotReady | PodTrouble::NodeGone => Rank::NodeAway,
        PodTrouble::Waiting { .. } => Rank::Waiting,
        PodTrouble::NotReady => Rank::NotReady,
        PodTrouble::Terminating => Rank::Terminating,
        PodTrouble::Starting => Rank::Starting,
    }
}

/// Nodes of a cluster whose pods are all read to name the nodes that a pod waits for, at most.
const MAX_READ_NODES: usize = 1_000;

/// Reports whether a look at the placement of all pods may name nodes: a pod is unschedulable, some node of an entry is
/// cordoned, and the cluster is not too large to read.
pub fn needs_placement(pods: &[BudgetPod], kube: &KubeView) -> bool {
    kube.nodes.len() <= MAX_READ_NODES
        && pods.iter().any(|pod| pod.unschedulable.is_some())
        && !cordoned(kube).is_empty()
}

/// Returns the nodes that entries have cordoned.
fn cordoned(kube: &KubeView) -> BTreeSet<NodeName> {
    let rows = kube.marked.iter().filter_map(|name| kube.by_name.get(name));
    rows.filter(|node| node.unschedulable).map(|node| node.name.clone()).collect()
}

/// Returns the cordoned nodes that would take each unscheduled pod, by its UID, if no other node does.
fn awaited(view: &PlacementView, pods: &[BudgetPod], kube: &KubeView) -> BTreeMap<String, Vec<AwaitedNode>> {
    let uids: BTreeSet<&str> =
        pods.iter().filter(|pod| pod.unschedulable.is_some()).map(|pod| pod.row.uid.as_str()).collect();
    let waiting: Vec<&PlacementPod> = view.pods.iter().filter(|pod| uids.contains(pod.uid.as_str())).collect();
    let nodes = landing::waits_only_for_each(view, &waiting, &cordoned(kube));
    let entry_of = |node: &NodeName| kube.by_name.get(node).and_then(|row| row.owner()).map(|owner| owner.entry);
    let named = |nodes: BTreeSet<NodeName>| {
        let all = nodes.into_iter().map(|node| AwaitedNode { entry: entry_of(&node), node });
        all.take(MAX_AWAITED_NODES).collect()
    };
    waiting.iter().zip(nodes).map(|(pod, nodes)| (pod.uid.clone(), named(nodes))).collect()
}

/// Returns the entries of a circle of drains that wait for each other, beginning with `id`; empty without a circle.
/// `awaits` returns the entries whose cordoned nodes the pods of an entry's budgets wait for.
pub fn circle(id: EntryId, awaits: impl Fn(EntryId) -> Vec<EntryId>) -> Vec<EntryId> {
    let (mut path, mut seen) = (vec![id], vec![id]);
    if close(id, &awaits, &mut path, &mut seen) { path } else { Vec::new() }
}

/// Extends the path until it leads back to its start. Each entry is looked at once.
fn close(
    start: EntryId,
    awaits: &impl Fn(EntryId) -> Vec<EntryId>,
    path: &mut Vec<EntryId>,
    seen: &mut Vec<EntryId>,
) -> bool {
    let Some(&last) = path.last() else { return false };
    for next in awaits(last) {
        if next == start && path.len() > 1 {
            return true;
        }
        if seen.contains(&next) {
            continue;
        }
        seen.push(next);
        path.push(next);
        if close(start, awaits, path, seen) {
            return true;
        }
        path.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use cketerm_model::kube::{Controller, NodeRow};

    use super::*;

    fn budget(limit: BudgetLimit, healthy: i32, needed: i32, pods: i32) -> BudgetRow {
        BudgetRow { namespace: "shop".into(), name: "web".into(), limit, healthy, needed, pods, ..BudgetRow::default() }
    }

    fn pod(name: &str, node: &str) -> BudgetPod {
        let (namespace, name, node) = ("shop".to_owned(), name.to_owned(), NodeName::new(node));
        let row = PodRow { namespace, name, node, phase: "Running".to_owned(), ..PodRow::default() };
        BudgetPod { row, ..BudgetPod::default() }
    }

    fn cluster() -> KubeView {
        let mut kube = KubeView::default();
        for (name, ready) in [("n1", true), ("n2", false)] {
            kube.put_node(NodeRow { name: NodeName::new(name), ready, ..NodeRow::default() });
        }
        kube
    }

    fn max(most: &str) -> BudgetLimit {
        BudgetLimit::MaxUnavailable(most.into())
    }

    fn min(least: &str) -> BudgetLimit {
        BudgetLimit::MinAvailable(least.into())
    }

    #[test]
    fn a_budget_that_can_never_allow_an_eviction_is_told_from_one_that_waits() {
        let all = |least: &str, pods| Some(Exclusion::AllNeeded { min_available: least.into(), pods });
        let table = [
            (budget(max("0"), 3, 3, 3), Some(Exclusion::NoneUnavailable)),
            (budget(max("0%"), 3, 3, 3), Some(Exclusion::NoneUnavailable)),
            (budget(max("1"), 2, 2, 3), None),
            (budget(max("10%"), 2, 2, 3), None),
            (budget(min("1"), 1, 1, 1), Some(Exclusion::OneReplica)),
            (budget(min("100%"), 1, 1, 1), all("100%", 1)),
            (budget(min("3"), 3, 3, 3), all("3", 3)),
            (budget(min("5"), 3, 5, 3), all("5", 3)),
            (budget(min("100%"), 3, 3, 3), all("100%", 3)),
            (budget(min("2"), 2, 2, 3), None),
            (budget(BudgetLimit::None, 3, 0, 3), Some(Exclusion::NoLimit)),
        ];
        for (row, expected) in table {
            let cause = budget_cause(&row, &[], &cluster(), None);
            let found = if let Opens::Never { because } = &cause.opens { Some(because.clone()) } else { None };
            assert_eq!((found, cause.is_permanent()), (expected.clone(), expected.is_some()), "{row:?}");
        }
        let unmanaged = budget_cause(&budget(max("1"), 1, 0, 0), &[pod("a", "n1")], &cluster(), None);
        assert!(unmanaged.is_permanent(), "{unmanaged}");
        let uncounted = BudgetRow { sync_failure: Some("no scale".into()), ..budget(max("1"), 0, 0, 0) };
        assert!(budget_cause(&uncounted, &[], &cluster(), None).is_permanent());
    }

    #[test]
    fn a_pod_without_a_controller_is_one_to_spare_for_a_percentage() {
        let four: Vec<BudgetPod> = ["a", "b", "c", "bare"].map(|name| pod(name, "n1")).into();
        let spare = budget_cause(&budget(min("100%"), 3, 3, 3), &four, &cluster(), None);
        assert_eq!(spare.opens, Opens::WhenHealthy { missing: 1 });
        let none = budget_cause(&budget(min("100%"), 3, 3, 3), &four[..3], &cluster(), None);
        assert!(none.is_permanent(), "{none}");
        let by_number = budget_cause(&budget(min("4"), 4, 4, 4), &four, &cluster(), None);
        assert!(by_number.is_permanent(), "{by_number}");
    }

    #[test]
    fn a_pod_that_has_ended_is_no_pod_to_spare() {
        let mut pods: Vec<BudgetPod> = ["a", "b", "c", "ended"].map(|name| pod(name, "n1")).into();
        for pod in &mut pods {
            pod.row.ready = true;
        }
        pods[3].row.phase = "Failed".to_owned();
        let cause = budget_cause(&budget(min("3"), 3, 3, 4), &pods, &cluster(), None);
        assert!(cause.is_permanent() && cause.unhealthy.is_empty(), "{cause}");
        let because = Exclusion::AllNeeded { min_available: "3".into(), pods: 3 };
        assert_eq!(cause.opens, Opens::Never { because }, "three pods run");
    }

    #[test]
    fn a_stateful_set_that_is_not_complete_may_open_its_budget() {
        let mut first = pod("a", "n1");
        first.row.controller = Some(Controller { kind: "StatefulSet".into(), name: "a".into(), uid: "u".into() });
        let opens = |limit, pod: &BudgetPod| {
            budget_cause(&budget(limit, 0, 1, 1), std::slice::from_ref(pod), &cluster(), None).opens
        };
        assert_eq!(opens(min("1"), &first), Opens::Unknown);
        assert!(matches!(opens(min("100%"), &first), Opens::Never { .. }), "it counts the pods that there should be");
        first.row.ready = true;
        assert!(matches!(opens(min("1"), &first), Opens::Never { .. }));
    }

    #[test]
    fn the_number_of_missing_pods_is_one_more_than_the_budget_needs() {
        let opens = |healthy| budget_cause(&budget(min("2"), healthy, 2, 4), &[], &cluster(), None).opens;
        assert_eq!(opens(2), Opens::WhenHealthy { missing: 1 });
        assert_eq!(opens(0), Opens::WhenHealthy { missing: 3 });
        assert_eq!(opens(3), Opens::WhenCounted);
        let hostile = budget_cause(&budget(min("2"), i32::MIN, i32::MAX - 1, i32::MAX), &[], &cluster(), None);
        assert!(matches!(hostile.opens, Opens::WhenHealthy { missing: i32::MAX }));
    }

    #[test]
    fn each_pod_that_is_not_healthy_is_named_with_its_trouble() {
        let waiting = BudgetPod { waiting: Some(("ImagePullBackOff".into(), "no image".into())), ..pod("c", "n1") };
        let unschedulable = BudgetPod { unschedulable: Some("0/2 nodes".into()), ..pod("a", "") };
        let mut terminating = pod("e", "n1");
        (terminating.row.terminating_since, terminating.row.ready) = (Some(jiff::Timestamp::UNIX_EPOCH), true);
        let mut healthy = pod("f", "n1");
        healthy.row.ready = true;
        let mut starting = pod("g", "n1");
        starting.row.phase = "Pending".to_owned();
        let pods =
            [terminating, waiting, pod("b", "n2"), unschedulable, healthy, pod("d", "n1"), pod("x", "gone"), starting];
        let cause = budget_cause(&budget(min("7"), 1, 7, 8), &pods, &cluster(), None);
        let named: Vec<(&str, &PodTrouble)> = cause.unhealthy.iter().map(|p| (p.pod.as_str(), &p.why)).collect();
        let unschedulable = PodTrouble::Unschedulable { message: "0/2 nodes".into(), waits_for: Vec::new() };
        let expected =
            [("shop/a", &unschedulable), ("shop/b", &PodTrouble::NodeNotReady), ("shop/x", &PodTrouble::NodeGone)];
        assert_eq!(named, expected);
        assert_eq!(cause.more, 4, "{cause}");
        let only = |pod: BudgetPod| budget_cause(&budget(min("2"), 1, 2, 3), &[pod], &cluster(), None).to_string();
        assert!(only(pods[1].clone()).starts_with("shop/c on n1 waits: ImagePullBackOff; opens"));
        assert!(only(pods[5].clone()).starts_with("shop/d on n1 runs but is not Ready"));
        assert!(only(pods[7].clone()).starts_with("shop/g on n1 is starting"));
        assert!(only(pods[0].clone()).starts_with("shop/e on n1 is terminating"));
    }

    #[test]
    fn drains_that_wait_for_each_other_form_a_circle() {
        let id = EntryId::reboot;
        let awaits = |edges: &'static [(u64, u64)]| {
            move |from: EntryId| edges.iter().filter(|e| id(e.0) == from).map(|e| id(e.1)).collect::<Vec<_>>()
        };
        assert_eq!(circle(id(1), awaits(&[(1, 2), (2, 1)])), [id(1), id(2)]);
        assert_eq!(circle(id(1), awaits(&[(1, 3), (1, 2), (2, 4), (4, 1)])), [id(1), id(2), id(4)]);
        assert_eq!(circle(id(1), awaits(&[(1, 2), (2, 3), (3, 2)])), [], "it waits for a circle and is not part of it");
        assert_eq!(circle(id(1), awaits(&[(1, 1)])), [], "its own node is no other drain");
    }

    #[test]
    fn a_large_budget_gives_a_short_cause() {
        let pods: Vec<BudgetPod> = (0..10_000).map(|i| pod(&format!("p{i}"), "n1")).collect();
        let cause = budget_cause(&budget(max("1"), 0, 9_999, 10_000), &pods, &cluster(), None);
        assert_eq!((cause.unhealthy.len(), cause.more), (MAX_UNHEALTHY_PODS, 10_000 - MAX_UNHEALTHY_PODS));
    }
}

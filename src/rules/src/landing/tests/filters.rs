//! Each filter: a pod of node `a1` that fits on `b1`, and one that does not.

use std::sync::Arc;

use cketerm_model::placement::{
    HostPort, NodeTaint, PlacementNode, PlacementPod, Protocol, SpreadPolicy, TaintEffect, Toleration,
};

use super::scene::*;
use crate::landing::PodAnswer;

/// Checks one pod of `a1` beside the node `b1`.
fn answer(pod: PlacementPod, node: PlacementNode, others: Vec<PlacementPod>) -> PodAnswer {
    let pods = std::iter::once(pod).chain(others).collect();
    one(&view(vec![self::node("a1", 4_000), node], pods), "a1")
}

fn fits(pod: PlacementPod, node: PlacementNode, others: Vec<PlacementPod>) {
    assert_eq!(answer(pod, node, others), PodAnswer::Fits);
}

fn cannot(pod: PlacementPod, node: PlacementNode, others: Vec<PlacementPod>, why: &str) {
    assert_eq!(obstacles(&answer(pod, node, others)), [format!("1: {why}")]);
}

#[test]
fn resources() {
    let big = || pod("web-1", "a1", 8_000);
    fits(big(), node("b1", 8_000), vec![]);
    fits(big(), node("b1", 9_000), vec![pod("x-1", "b1", 1_000)]);
    cannot(big(), node("b1", 4_500), vec![pod("x-1", "b1", 1_000)], "needs 8 CPU, at most 3.5 free");
    // finished pods free their requests, and what nobody requests does not matter
    let mut finished = pod("x-1", "b1", 5_000);
    finished.phase = cketerm_model::placement::PodPhase::Succeeded;
    fits(big(), node("b1", 8_000), vec![finished]);
    fits(pod("web-1", "a1", 0), node("b1", 100), vec![pod("x-1", "b1", 5_000)]);
    let gpu = with(pod("web-1", "a1", 10), |spec| spec.requests = amounts(&[("example.com/gpu", 1)]));
    cannot(gpu, node("b1", 4_000), vec![], "needs 1 example.com/gpu, at most 0 free");
    let mut full = node("b1", 4_000);
    full.allocatable.set(cketerm_model::placement::ResourceName::new("pods"), cketerm_model::placement::Amount(1));
    fits(pod("web-1", "a1", 10), full.clone(), vec![]);
    cannot(pod("web-1", "a1", 10), full, vec![pod("x-1", "b1", 0)], "node has its maximum number of pods");
}

#[test]
fn hostile_amounts_saturate() {
    cannot(
        pod("web-1", "a1", i64::MAX),
        node("b1", 1_000),
        vec![pod("x-1", "b1", i64::MAX), pod("x-2", "b1", i64::MAX)],
        "needs 9223372036854775.807 CPU, at most -9223372036854775.808 free",
    );
    fits(pod("web-1", "a1", -5), node("b1", -1_000), vec![pod("x-1", "b1", i64::MIN)]);
    fits(pod("web-1", "a1", i64::MAX), node("b1", i64::MAX), vec![]);
}

#[test]
fn labels_of_nodes() {
    let selecting = |value: &str| with(pod("web-1", "a1", 1), |s| s.node_rules.selector = labels(&[("zone", value)]));
    fits(selecting("b"), node("b1", 10), vec![]);
    cannot(selecting("x"), node("b1", 10), vec![], "node selector does not match");
    let affine = |hosts: &[&str]| with(pod("web-1", "a1", 1), |s| s.node_rules.affinity = Some(on_hosts(hosts)));
    fits(affine(&["b1", "x"]), node("b1", 10), vec![]);
    cannot(affine(&["x"]), node("b1", 10), vec![], "node affinity does not match");
    cannot(affine(&[]), node("b1", 10), vec![], "node affinity does not match");
}

#[test]
fn taints_and_states_of_nodes() {
    let tainted = |effect| {
        let taint = NodeTaint { key: "dedicated".to_owned(), value: "db".to_owned(), effect };
        PlacementNode { taints: vec![taint], ..node("b1", 10) }
    };
    let web = || pod("web-1", "a1", 1);
    let tolerating = |key: Option<&str>| {
        let toleration = Toleration { key: key.map(str::to_owned), value: None, effect: None };
        with(web(), |s| s.node_rules.tolerations = vec![toleration])
    };
    cannot(web(), tainted(TaintEffect::NoSchedule), vec![], "taint dedicated=db:NoSchedule");
    cannot(web(), tainted(TaintEffect::NoExecute), vec![], "taint dedicated=db:NoExecute");
    fits(web(), tainted(TaintEffect::PreferNoSchedule), vec![]);
    fits(tolerating(Some("dedicated")), tainted(TaintEffect::NoSchedule), vec![]);
    let cordoned = || PlacementNode { unschedulable: true, ..node("b1", 10) };
    let lost = || PlacementNode { ready: false, ..node("b1", 10) };
    cannot(web(), cordoned(), vec![], "node is cordoned");
    cannot(web(), lost(), vec![], "node is not Ready");
    cannot(tolerating(Some("dedicated")), cordoned(), vec![], "node is cordoned");
    fits(tolerating(None), cordoned(), vec![]);
    fits(tolerating(None), lost(), vec![]);
}

#[test]
fn host_ports() {
    let port = |port| HostPort { port, protocol: Protocol::Tcp, address: None };
    let having = |name: &str, on: &str, number| with(pod(name, on, 1), |s| s.host_ports = vec![port(number)]);
    fits(having("web-1", "a1", 80), node("b1", 10), vec![having("x-1", "b1", 81)]);
    cannot(having("web-1", "a1", 80), node("b1", 10), vec![having("x-1", "b1", 80)], "host port 80/TCP is taken");
}

#[test]
fn anti_affinity_of_both_sides() {
    let apart = |name: &str, on: &str, from: &str| {
        with(pod(name, on, 1), |s| s.anti_affinity = vec![term(&format!("app={from}"), "zone")])
    };
    let why = "pod anti-affinity by zone";
    cannot(apart("web-1", "a1", "db"), node("b1", 10), vec![pod("db-1", "b1", 1)], why);
    cannot(pod("web-1", "a1", 1), node("b1", 10), vec![apart("db-1", "b1", "web")], why);
    fits(apart("web-1", "a1", "db"), node("b1", 10), vec![pod("cache-1", "b1", 1)]);
    // another namespace, and a node without the label
    let mut foreign = pod("db-1", "b1", 1);
    foreign.namespace = "other".to_owned();
    fits(apart("web-1", "a1", "db"), node("b1", 10), vec![foreign]);
    let bare = PlacementNode { labels: labels(&[]), ..node("b1", 10) };
    fits(apart("web-1", "a1", "db"), bare, vec![pod("db-1", "b1", 1)]);
}

#[test]
fn affinity() {
    let beside =
        |terms: &[&str]| with(pod("web-1", "a1", 1), |s| s.affinity = terms.iter().map(|t| term(t, "zone")).collect());
    fits(beside(&["app=db"]), node("b1", 10), vec![pod("db-1", "b1", 1)]);
    cannot(beside(&["app=db"]), node("b1", 10), vec![pod("cache-1", "b1", 1)], "pod affinity by zone");
    // one pod has to match all terms
    cannot(beside(&["app=db", "tier=x"]), node("b1", 10), vec![pod("db-1", "b1", 1)], "pod affinity by zone");
    // the first of a group
    fits(beside(&["app=web"]), node("b1", 10), vec![]);
    let bare = PlacementNode { labels: labels(&[]), ..node("b1", 10) };
    cannot(beside(&["app=web"]), bare, vec![], "pod affinity by zone");
}

#[test]
fn spread_counts_the_nodes_that_leave_as_domains() {
    let even = |change: fn(&mut cketerm_model::placement::SpreadConstraint)| {
        let mut constraint = spread("app=web", HOST);
        change(&mut constraint);
        with(pod("web-1", "a1", 1), |s| s.spread = vec![constraint])
    };
    let there = || vec![pod("web-2", "b1", 1)];
    let why = format!("topology spread by {HOST}");
    cannot(even(|_| ()), node("b1", 10), there(), &why);
    fits(even(|_| ()), node("b1", 10), vec![]);
    fits(even(|c| c.max_skew = 2), node("b1", 10), there());
    fits(even(|c| c.node_taints = SpreadPolicy::Honor), node("b1", 10), there());
    cannot(
        even(|c| {
            c.node_taints = SpreadPolicy::Honor;
            c.min_domains = 2;
        }),
        node("b1", 10),
        there(),
        &why,
    );
    fits(even(|c| c.selector = None), node("b1", 10), there());
    let bare = PlacementNode { labels: labels(&[]), ..node("b1", 10) };
    cannot(even(|c| c.max_skew = 9), bare, vec![], &why);
    // pods that terminate and those of other versions do not count
    let mut terminating = there();
    terminating[0].terminating = true;
    fits(even(|_| ()), node("b1", 10), terminating);
    let mut versioned = even(|c| c.match_label_keys = vec!["hash".to_owned()]);
    Arc::make_mut(&mut versioned.labels).insert("hash".to_owned(), "2".to_owned());
    fits(versioned, node("b1", 10), there());
}

#[test]
fn volumes() {
    let mut scene = view(vec![node("a1", 10), node("b1", 10), node("b2", 10)], vec![]);
    for (hosts, expected) in [(&["b1"][..], "fits"), (&["c1"], "cannot"), (&["a1"], "only here")] {
        let mut web = pod("web-1", "a1", 1);
        claim(&mut scene, &mut web, "pvc-1", hosts);
        scene.pods = vec![web];
        match (one(&scene, "a1"), expected) {
            (PodAnswer::Fits, "fits") => {}
            (answer @ PodAnswer::Cannot(_), "cannot") => {
                assert_eq!(obstacles(&answer), ["2: volume pvc-1 is on other nodes"]);
            }
            (PodAnswer::OnlyHere { tie }, "only here") => {
                assert_eq!(tie.to_string(), "volume pvc-1 is on no other node");
            }
            (answer, _) => panic!("{hosts:?}: {answer:?}"),
        }
    }
    let mut web = pod("web-1", "a1", 1);
    claim(&mut scene, &mut web, "pvc-1", &["b2"]);
    scene.nodes[2].unschedulable = true;
    scene.pods = vec![web];
    assert_eq!(obstacles(&one(&scene, "a1")), ["1: volume pvc-1 is only on b2", "1: node is cordoned"]);
}

/// `c1` has no zone, so that it is no domain of either constraint.
#[test]
fn spread_does_not_count_a_node_that_lacks_a_label_of_another_constraint() {
    let constraint = |key: &str, max_skew| {
        let node_taints = SpreadPolicy::Honor;
        cketerm_model::placement::SpreadConstraint { max_skew, node_taints, ..spread("app=web", key) }
    };
    let web = with(pod("web-1", "a1", 1), |s| s.spread = vec![constraint(HOST, 1), constraint("zone", 9)]);
    let scene = |labels_of_c1| {
        let c1 = PlacementNode { labels: labels_of_c1, ready: true, ..node("c1", 0) };
        view(vec![node("a1", 9), node("b1", 9), c1], vec![web.clone(), pod("web-2", "b1", 1)])
    };
    assert_eq!(one(&scene(labels(&[(HOST, "c1")])), "a1"), PodAnswer::Fits);
    let zone = one(&scene(labels(&[(HOST, "c1"), ("zone", "c")])), "a1");
    assert!(matches!(zone, PodAnswer::Cannot(_)), "{zone:?}");
}

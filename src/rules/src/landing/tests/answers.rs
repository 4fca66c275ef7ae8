//! Answers for pods and for whole sets.

use std::collections::BTreeSet;

use cketerm_model::{
    names::NodeName,
    placement::{ClaimUse, HostPort, PlacementClaim, Preemption, Priority, Protocol, Toleration},
};

use super::scene::*;
use crate::landing::{Doubt, LandingAnswer, PodAnswer, Tie, check};

fn prioritized(name: &str, on: &str, cpu: i64, priority: i32) -> cketerm_model::placement::PlacementPod {
    with(pod(name, on, cpu), |spec| spec.priority = Priority(priority))
}

#[test]
fn only_pods_that_leave_count() {
    let (mut mirror, mut daemon, mut done, mut bare, mut leaving, mut set) = (
        pod("mirror-1", "a1", 99),
        pod("daemon-1", "a1", 99),
        pod("done-1", "a1", 99),
        pod("bare-1", "a1", 99),
        pod("leaving-1", "a1", 99),
        pod("set-0", "a1", 1),
    );
    mirror.mirror = true;
    daemon.controller = Some(controller("DaemonSet", "d"));
    done.phase = cketerm_model::placement::PodPhase::Failed;
    bare.controller = None;
    (leaving.terminating, set.terminating) = (true, true);
    set.controller = Some(controller("StatefulSet", "set"));
    let pods = vec![mirror, daemon, done, bare, leaving, set, pod("kept-1", "a1", 99), pod("web-1", "a1", 2)];
    let scene = view(vec![node("a1", 1_000), node("b1", 3)], pods);
    let landing = check(&scene, &names(&["a1"]), |pod| pod.name != "kept-1", &BTreeSet::new());
    let found: Vec<(&str, &PodAnswer)> = landing.pods.iter().map(|p| (p.name.as_str(), &p.answer)).collect();
    assert_eq!(found, [("bare-1", &PodAnswer::NotRecreated), ("set-0", &PodAnswer::Fits), ("web-1", &PodAnswer::Fits)]);
    assert_eq!((landing.answer, landing.fewest_pending), (LandingAnswer::Fits, 0));
}

#[test]
fn nothing_that_leaves_fits() {
    let empty = leave(&view(vec![], vec![]), &["a1"]);
    assert_eq!((empty.answer, empty.pods.len()), (LandingAnswer::Fits, 0));
    // a pod of a node that is not known any more
    let landing = leave(&view(vec![node("b1", 10)], vec![pod("web-1", "a1", 1)]), &["a1"]);
    assert_eq!(landing.answer, LandingAnswer::Fits);
}

#[test]
fn together_they_can_lack_room_that_each_alone_has() {
    let two = vec![pod("web-1", "a1", 2), pod("db-1", "a1", 2)];
    let landing = leave(&view(vec![node("a1", 9), node("b1", 3)], two.clone()), &["a1"]);
    assert_eq!((landing.answer, landing.fewest_pending), (LandingAnswer::Cannot, 1));
    assert!(landing.pods.iter().all(|pod| pod.answer == PodAnswer::Uncertain(Doubt::Order)));
    assert_eq!(leave(&view(vec![node("a1", 9), node("b1", 4)], two), &["a1"]).answer, LandingAnswer::Fits);
}

#[test]
fn nodes_that_leave_or_are_unavailable_take_nothing() {
    let scene = view(vec![node("a1", 9), node("b1", 9), node("c1", 9)], vec![pod("web-1", "a1", 2)]);
    for (leaving, unavailable, expected) in [
        (&["a1"][..], &[][..], LandingAnswer::Fits),
        (&["a1", "b1"], &[], LandingAnswer::Fits),
        (&["a1", "b1"], &["c1"], LandingAnswer::Cannot),
        (&["a1", "b1", "c1"], &[], LandingAnswer::Cannot),
    ] {
        let landing = check(&scene, &names(leaving), |_| true, &names(unavailable));
        assert_eq!(landing.answer, expected, "{leaving:?} {unavailable:?}");
    }
}

#[test]
fn pods_that_can_only_return() {
    let mut scene = view(vec![node("a1", 9), node("a2", 9), node("b1", 9)], vec![]);
    let mut local = pod("db-1", "a1", 1);
    claim(&mut scene, &mut local, "pvc-1", &["a1"]);
    let zonal = with(pod("web-1", "a1", 1), |s| s.node_rules.selector = labels(&[("zone", "a")]));
    scene.pods = vec![local, zonal];
    let landing = leave(&scene, &["a1"]);
    let ties: Vec<&PodAnswer> = landing.pods.iter().map(|pod| &pod.answer).collect();
    assert_eq!(ties, [&PodAnswer::OnlyHere { tie: Tie::Volume("pvc-1".to_owned()) }, &PodAnswer::Fits]);
    assert_eq!((landing.answer, landing.elsewhere), (LandingAnswer::Cannot, LandingAnswer::Fits));
    let landing = leave(&scene, &["a1", "a2"]);
    assert_eq!(landing.pods[1].answer, PodAnswer::OnlyHere { tie: Tie::NodeRules });
}

#[test]
fn doubts() {
    let nodes = || vec![node("a1", 9), node("b1", 3)];
    let doubt = |scene| match one(&scene, "a1") {
        PodAnswer::Uncertain(doubt) => doubt,
        other => panic!("{other:?}"),
    };
    let other = with(pod("web-1", "a1", 1), |s| s.scheduler = "volcano".into());
    assert_eq!(doubt(view(nodes(), vec![other])), Doubt::OtherScheduler("volcano".into()));
    let usual = with(pod("web-1", "a1", 1), |s| s.scheduler = "default-scheduler".into());
    assert_eq!(one(&view(nodes(), vec![usual]), "a1"), PodAnswer::Fits);
    let mut gated = pod("web-1", "a1", 1);
    gated.gated = true;
    assert_eq!(doubt(view(nodes(), vec![gated])), Doubt::SchedulingGates);
    let mut unreadable = pod("web-1", "a1", 1);
    unreadable.unreadable = Some("spec".into());
    let object = "Pod shop/web-1".to_owned();
    assert_eq!(doubt(view(nodes(), vec![unreadable])), Doubt::Unreadable { object, reason: "spec".into() });
    // the only node that would have room cannot be understood
    let mut scene = view(nodes(), vec![pod("web-1", "a1", 5)]);
    scene.nodes.push(node("c1", 9));
    scene.nodes[2].unreadable = Some("cpu".into());
    assert_eq!(doubt(scene), Doubt::Unreadable { object: "Node c1".to_owned(), reason: "cpu".into() });
    // a pod that cannot be understood hides how much is free on its node, if the node matters at all
    let mut scene = view(nodes(), vec![pod("web-1", "a1", 5), pod("odd-1", "c1", 1)]);
    scene.nodes.push(node("c1", 9));
    scene.pods[1].unreadable = Some("spec".into());
    assert!(matches!(doubt(scene.clone()), Doubt::Unreadable { object, .. } if object == "Pod shop/odd-1"));
    scene.nodes[2].unschedulable = true;
    assert_eq!(obstacles(&one(&scene, "a1")).len(), 2);
    let tolerant = with(pod("web-1", "a1", 5), |s| {
        s.node_rules.tolerations = vec![Toleration { key: None, value: None, effect: None }];
    });
    assert_eq!(doubt(view(nodes(), vec![tolerant])), Doubt::ToleratesCordon);
}

#[test]
fn doubts_about_volumes_only_restrict() {
    for (claims, ephemeral, expected) in [
        (None, false, Doubt::LostClaim("shop/data".to_owned())),
        (Some(PlacementClaim::default()), false, Doubt::UnboundClaim("shop/data".to_owned())),
        (None, true, Doubt::NewVolume("shop/data".to_owned())),
    ] {
        let mut web = pod("web-1", "a1", 2);
        web.claims.push(ClaimUse { name: "data".to_owned(), ephemeral });
        let mut scene = view(vec![node("a1", 9), node("b1", 3)], vec![web]);
        scene.claims.extend(claims.map(|claim| (("shop".to_owned(), "data".to_owned()), claim)));
        assert_eq!(one(&scene, "a1"), PodAnswer::Uncertain(expected));
        scene.nodes[1] = node("b1", 1);
        assert_eq!(obstacles(&one(&scene, "a1")), ["1: needs 0.002 CPU, at most 0.001 free"]);
    }
}

#[test]
fn preemption_is_uncertain() {
    let scene = |other: i32, free: i64| {
        view(
            vec![node("a1", 9), node("b1", 4)],
            vec![prioritized("web-1", "a1", 3, 10), prioritized("x-1", "b1", 4 - free, other)],
        )
    };
    assert_eq!(one(&scene(5, 0), "a1"), PodAnswer::Uncertain(Doubt::Preemption));
    assert_eq!(one(&scene(5, 3), "a1"), PodAnswer::Fits);
    assert_eq!(obstacles(&one(&scene(10, 0), "a1")), ["1: needs 0.003 CPU, at most 0 free"]);
    let mut never = scene(5, 0);
    std::sync::Arc::make_mut(&mut never.pods[0].spec).preemption = Preemption::Never;
    assert_eq!(obstacles(&one(&never, "a1")).len(), 1);
}

#[test]
fn pending_pods_compete() {
    let scene =
        |rival: i64| view(vec![node("a1", 9), node("b1", 4)], vec![pod("web-1", "a1", 3), pod("rival-1", "", rival)]);
    assert_eq!(one(&scene(2), "a1"), PodAnswer::Uncertain(Doubt::Order));
    assert_eq!(one(&scene(1), "a1"), PodAnswer::Fits);
    assert_eq!(one(&scene(5), "a1"), PodAnswer::Fits);
}

#[test]
fn pods_that_terminate_elsewhere_may_give_room() {
    let mut other = pod("x-1", "b1", 3);
    other.terminating = true;
    let scene = view(vec![node("a1", 9), node("b1", 4)], vec![pod("web-1", "a1", 3), other]);
    assert_eq!(one(&scene, "a1"), PodAnswer::Uncertain(Doubt::Order));
}

#[test]
fn a_group_with_affinity_to_itself_moves_together() {
    let beside = |name: &str, on: &str| with(pod(name, on, 2), |s| s.affinity = vec![term("app=web", HOST)]);
    let pods = vec![beside("web-1", "a1"), beside("web-2", "a1"), beside("web-3", "a1")];
    let scene = |cpu| view(vec![node("a1", 9), node("b1", cpu)], pods.clone());
    assert_eq!(leave(&scene(6), &["a1"]).answer, LandingAnswer::Fits);
    assert_eq!(leave(&scene(5), &["a1"]).answer, LandingAnswer::Cannot);
    // a follower that is placed before its leader tries again
    let follower = with(pod("app-1", "a1", 1), |s| s.affinity = vec![term("app=leader", "zone")]);
    let scene = view(vec![node("a1", 9), node("b1", 9)], vec![follower, pod("leader-1", "a1", 1)]);
    assert_eq!(leave(&scene, &["a1"]).answer, LandingAnswer::Fits);
}

#[test]
fn the_same_view_gives_the_same_answer() {
    let mut pods: Vec<_> = (0..30).map(|i| pod(&format!("p{i}-1"), "a1", 100 + i64::from(i) * 7)).collect();
    let nodes = |order: bool| {
        let mut nodes: Vec<_> = (0..5).map(|i| node(&format!("b{i}"), 1_500)).chain([node("a1", 9_000)]).collect();
        if order {
            nodes.reverse();
        }
        nodes
    };
    let first = leave(&view(nodes(false), pods.clone()), &["a1"]);
    pods.reverse();
    assert_eq!(leave(&view(nodes(true), pods), &["a1"]), first);
}

#[test]
fn the_work_is_bounded() {
    // 1,000 nodes, almost full, with 20,000 pods; 20 nodes leave
    let names: Vec<String> = (0..1_000).map(|i| format!("n{i:04}")).collect();
    let nodes = names.iter().map(|name| node(name, 20_500)).collect();
    let mut pods = Vec::new();
    for (i, name) in names.iter().enumerate() {
        for j in 0..20 {
            let app = (i * 20 + j) % 300;
            let placed = pod(&format!("app{app}-{i}-{j}"), name, 1_000 + i64::try_from(app % 3).unwrap());
            pods.push(with(placed, |spec| {
                spec.anti_affinity = vec![term(&format!("app=app{app}"), HOST)];
            }));
        }
    }
    let scene = view(nodes, pods);
    let leaving: BTreeSet<NodeName> = names[..20].iter().map(NodeName::new).collect();
    let landing = check(&scene, &leaving, |_| true, &BTreeSet::new());
    assert_eq!(landing.pods.len(), 400);
    assert_eq!(landing.answer, LandingAnswer::Cannot);
    assert!(landing.steps < 2_000_000, "{} steps", landing.steps);
}

/// It may return to `a1`, but `a2` would take it if it were not full.
#[test]
fn a_pod_whose_other_node_is_full_is_not_bound_to_the_node_that_leaves() {
    let mut scene = view(vec![node("a1", 9), node("a2", 1), node("b1", 9)], vec![]);
    let mut web = pod("web-1", "a1", 2);
    claim(&mut scene, &mut web, "pvc-1", &["a1", "a2"]);
    scene.pods = vec![web];
    let why = ["1: needs 0.002 CPU, at most 0.001 free", "1: volume pvc-1 is on other nodes"];
    let mut found = obstacles(&one(&scene, "a1"));
    found.sort_unstable();
    assert_eq!(found, why);
}

#[test]
fn each_host_port_that_a_pod_needs_counts() {
    let having = |name: &str, on: &str, port| {
        let port = HostPort { port, protocol: Protocol::Tcp, address: None };
        with(pod(name, on, 1), |s| s.host_ports = vec![port])
    };
    let pods = vec![having("web-1", "a1", 80), having("tls-1", "a1", 443), having("x-1", "b1", 80)];
    let landing = leave(&view(vec![node("a1", 9), node("b1", 9)], pods), &["a1"]);
    let found: Vec<(&str, bool)> =
        landing.pods.iter().map(|p| (p.name.as_str(), p.answer == PodAnswer::Fits)).collect();
    assert_eq!(found, [("tls-1", true), ("web-1", false)]);
}

/// Once a pod found no place, those that are alike are not compared with the nodes again.
#[test]
fn pods_alike_that_find_no_place_cost_nothing() {
    let nodes = (0..40).map(|i| node(&format!("b{i}"), 2)).chain([node("a1", 9)]).collect();
    let pods = (0..400).map(|i| pod(&format!("web-{i}"), "a1", 2)).collect();
    let landing = leave(&view(nodes, pods), &["a1"]);
    assert_eq!((landing.answer, landing.fewest_pending), (LandingAnswer::Cannot, 360));
    assert!(landing.steps < 100_000, "{} steps", landing.steps);
}

/// Each of the two pods has a place alone. Together they have one only by preemption.
#[test]
fn pods_that_do_not_fit_together_are_uncertain_if_one_that_is_left_over_may_preempt() {
    let two = |priority| vec![prioritized("web-1", "a1", 2, priority), prioritized("db-1", "a1", 2, priority)];
    let answer = |mut pods: Vec<cketerm_model::placement::PlacementPod>| {
        pods.push(prioritized("x-1", "b1", 1, 5));
        leave(&view(vec![node("a1", 9), node("b1", 4)], pods), &["a1"]).answer
    };
    assert_eq!(answer(two(10)), LandingAnswer::Uncertain);
    assert_eq!(answer(two(5)), LandingAnswer::Cannot);
    let mut with_third = two(5);
    with_third.push(prioritized("top-1", "a1", 0, 10));
    assert_eq!(answer(with_third), LandingAnswer::Cannot, "the third one always has a place");
}

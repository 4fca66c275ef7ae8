//! Assumptions take the place of facts, and nothing else changes.

use std::sync::Arc;

use cketerm_model::{boot_time::BootTime, entry::EntryId, kube::KubeView, names::Address, reason::Reason};

use super::scene::{BOOT, Scene, now};
use crate::{
    assumptions::{Assumption, Assumptions},
    decide::{decide, decide_assuming},
    preflight_fault::PreflightFault,
    snapshot::Snapshot,
};

fn at() -> cketerm_model::clock::Now {
    cketerm_model::clock::Now { boot: BOOT, wall: now() }
}

/// Reports whether the entries 4 of a worker and 5 of an API server start: the worker first, the API server alone.
fn starts(snap: &Snapshot, assumed: &Assumptions, index: u64) -> bool {
    let decision = decide_assuming(snap, assumed, at());
    decision.reasons[&EntryId::reboot(index)] == Reason::Ready && !decision.effects.is_empty()
}

#[test]
fn each_assumption_takes_the_place_of_its_fact() {
    type Case = (&'static str, fn(&mut Snapshot), Assumptions);
    let leading = || Assumptions::leading_since(BOOT);
    let fact = |fact| Assumptions::default().and(fact);
    let cases: [Case; 8] = [
        ("not leading", |snap| snap.engine.leading = None, leading()),
        ("resigning", |snap| snap.engine.resigning = Some("a newer version waits".to_owned()), leading()),
        ("unfit", |snap| snap.engine.observing = vec![PreflightFault::KubernetesNotConfigured], leading()),
        (
            "etcd is not read",
            |snap| {
                let store = Arc::make_mut(&mut snap.store);
                (store.synced, store.last_seen) = (false, BootTime::ZERO);
            },
            fact(Assumption::ReadJustNow),
        ),
        (
            "Kubernetes is not watched",
            |snap| {
                let kube = KubeView::clone(&snap.kube);
                snap.kube = Arc::new(KubeView { sources: imbl::OrdMap::new(), ..kube });
            },
            fact(Assumption::ReadJustNow),
        ),
        (
            "the policy cannot be read",
            |snap| {
                let store = Arc::make_mut(&mut snap.store);
                store.policy.as_mut().unwrap().value = Err("not JSON".to_owned());
            },
            fact(Assumption::PolicyReadable),
        ),
        (
            "the queue is disabled",
            |snap| Arc::make_mut(&mut snap.store).reboots.switch.raw = Some("true".to_owned()),
            fact(Assumption::RebootQueueEnabled),
        ),
        (
            "no commands",
            |snap| {
                let store = Arc::make_mut(&mut snap.store);
                let definition = Arc::make_mut(store.cluster.as_mut().unwrap().value.as_mut().unwrap());
                definition.cluster.reboot.reboot_command = None;
                definition.cluster.reboot.boot_check_command = Some(Vec::new());
            },
            fact(Assumption::RebootCommandsConfigured),
        ),
    ];
    for (what, change, assumed) in cases {
        let mut snap = Scene::new(2).queued(&[(4, 11)]).snapshot();
        assert!(starts(&snap, &Assumptions::default(), 4), "{what}");
        change(&mut snap);
        assert!(!starts(&snap, &Assumptions::default(), 4), "{what}");
        assert!(starts(&snap, &assumed, 4), "{what}: {:?}", decide_assuming(&snap, &assumed, at()).reasons);
    }
}

#[test]
fn control_planes_are_judged_by_their_node_if_nobody_probes_them() {
    let assumed = Assumptions::default().and(Assumption::ControlPlanesByNode);
    let mut snap = Scene::new(2).queued(&[(5, 1)]).snapshot();
    snap.probes.clear();
    assert!(!starts(&snap, &Assumptions::default(), 5));
    assert!(starts(&snap, &assumed, 5));
    let mut down = Scene::new(2).queued(&[(5, 1)]).node(2, |node| node.ready = false).snapshot();
    down.probes.clear();
    assert!(!starts(&down, &assumed, 5), "another API server is not Ready");
}

/// A follower that assumes to lead decides what the leader of the same snapshot decides.
#[test]
fn an_assumed_leader_decides_like_a_leader() {
    let scenes = vec![
        Scene::new(4).queued(&[(1, 11), (2, 12), (3, 1)]),
        Scene::new(4).draining(1, 11, 60).pod(11, "web", |_| {}).queued(&[(2, 12), (3, 1)]),
        Scene::new(4).rebooting(1, 11, 30, None).queued(&[(2, 11), (3, 2)]),
        Scene::new(2).cordoned(11, 9),
    ];
    for scene in scenes {
        let led = scene.snapshot();
        let since = led.engine.leading.as_ref().unwrap().since;
        let mut followed = led.clone();
        followed.engine.leading = None;
        let decision = |snap: &Snapshot, assumed: &Assumptions| {
            serde_json::to_value(decide_assuming(snap, assumed, at())).unwrap()
        };
        let expected = serde_json::to_value(decide(&led, at())).unwrap();
        assert_eq!(decision(&followed, &Assumptions::leading_since(since)), expected);
        assert_ne!(decision(&followed, &Assumptions::default()), expected);
    }
}

/// Records about stored entries never concern an entry that is only assumed.
#[test]
fn an_assumed_entry_is_behind_all_stored_ones_and_has_no_records() {
    let assumed = Assumptions::default().queued(&[Address::new(Scene::address(12)), Address::new(Scene::address(11))]);
    let ids: Vec<_> = assumed.entries().keys().map(|index| EntryId::reboot(*index)).collect();
    for last in [None, Some(7)] {
        let scene = Scene::new(4).with(|scene| scene.cluster.reboot.max_concurrent_reboots = Some(5));
        let scene =
            (0..9).fold(scene, |scene, index| scene.order(index, cketerm_model::cketerm_records::Verb::Hold, 1));
        let scene = last.map_or(scene.clone(), |last| scene.queued(&[(last, 11)]));
        let reasons = decide_assuming(&scene.snapshot(), &assumed, at()).reasons;
        assert_eq!(reasons[&ids[0]], Reason::Ready);
        let second = last.map_or(Reason::Ready, |index| Reason::DuplicateOf { index });
        assert_eq!(reasons[&ids[1]], second);
    }
}

//! Gates before the uncordon of a rebooted worker.

use cketerm_model::{
    attempt::{CheckAnswer, Ended},
    cketerm_records::Verb,
    reason::Reason,
    uncordon_gates::UncordonGates,
};

use super::scene::{Scene, controlled};
use crate::decide::{Effect, End};

/// A worker that is back after its reboot, whose command began `age` seconds ago, under gates.
fn back(gates: &str, age: i64) -> Scene {
    Scene::new(1)
        .rebooting(0, 11, age, Some(Ended::Exit(0)))
        .checked(0, CheckAnswer::Yes, Some(1.0))
        .booted(11)
        .with(|s| s.policy.uncordon_gates = UncordonGates::read(gates).unwrap())
}

fn closed(scene: &Scene) -> Option<(String, bool)> {
    match scene.reason(0) {
        Reason::UncordonGateClosed { missing, overdue, .. } => Some((missing, overdue)),
        _ => None,
    }
}

#[test]
fn an_entry_waits_with_its_slot_until_the_gate_opens() {
    let scene = back("{conditions: {RaidHealthy: 'True'}, overdue_seconds: 60}", 59);
    assert_eq!(scene.ends(0), None);
    assert_eq!(closed(&scene), Some(("condition RaidHealthy is absent, not True".to_owned(), false)));
    assert!(scene.decide().wake.is_some(), "the engine wakes when the gate is overdue");
    let overdue = back("{conditions: {RaidHealthy: 'True'}, overdue_seconds: 60}", 60);
    assert_eq!(closed(&overdue).map(|(_, overdue)| overdue), Some(true));
    let open = scene.node(11, |n| n.conditions = [("RaidHealthy".to_owned(), "True".to_owned())].into_iter().collect());
    assert_eq!(open.ends(0), Some(End::Booted));
}

#[test]
fn an_operators_done_goes_on_without_the_gate() {
    let scene = back("{taints_gone: [cni/off], conditions: {RaidHealthy: 'True'}}", 30).order(0, Verb::Done, 10);
    assert!(matches!(scene.ends(0), Some(End::DoneBy(_))), "{:?}", scene.reason(0));
}

#[test]
fn pods_of_daemon_sets_must_be_ready_and_other_pods_do_not_count() {
    let scene = back("{daemon_sets: true}", 30).pod(11, "web", |p| p.ready = false);
    assert_eq!(scene.ends(0), Some(End::Booted));
    let waiting = scene.pod(11, "cni", |p| (p.ready, p.controller) = (false, controlled("DaemonSet", "cni")));
    assert_eq!(closed(&waiting), Some(("pod shop/cni of a DaemonSet is not Ready".to_owned(), false)));
    assert!(waiting.decide().watch_pods.contains("10.0.0.11"));
    let not_listed = waiting.with(|s| s.kube.pods.get_mut("10.0.0.11").unwrap().synced = false);
    assert_eq!(closed(&not_listed), Some(("its pods are not listed yet".to_owned(), false)));
}

#[test]
fn the_node_of_a_cancelled_reboot_waits_for_the_gate_too() {
    let gone = |gates: &str| {
        back(gates, 30).with(|s| {
            s.store.reboots.entries.remove(&0).unwrap();
        })
    };
    let releases = |scene: &Scene| scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::Release { .. }));
    let closed = gone("{conditions: {RaidHealthy: 'True'}}");
    assert!(!releases(&closed));
    let reason = &closed.decide().orphans["10.0.0.11"];
    assert!(matches!(reason, Reason::UncordonGateClosed { .. }), "{reason:?}");
    assert!(releases(&gone("none")), "without gates it is uncordoned");
}

#[test]
fn an_api_server_does_not_wait_for_the_gates_of_workers() {
    let scene = Scene::new(0).rebooting(0, 1, 300, Some(Ended::Exit(0))).checked(0, CheckAnswer::Yes, Some(61.0));
    let gates = UncordonGates::read("{conditions: {RaidHealthy: 'True'}}").unwrap();
    let scene = scene.booted(1).with(|s| s.policy.uncordon_gates = gates);
    assert_eq!(scene.ends(0), Some(End::Booted));
}

//! Other programs that drain, reboot or delete a Node: cketerm neither begins, nor runs a command, nor uncordons there.

use cketerm_model::{
    cketerm_records::Verb, cluster::Taint, entry::EntryId, kube::NodeRow, reason::Reason, reboot::RebootStatus,
};

use super::scene::Scene;
use crate::decide::Effect;

fn autoscaler(node: &mut NodeRow) {
    let key = "ToBeDeletedByClusterAutoscaler".to_owned();
    node.described.taints = vec![Taint { key, effect: "NoSchedule".to_owned(), ..Taint::default() }];
}

fn waits(scene: &Scene, index: u64) -> bool {
    matches!(scene.reason(index), Reason::DrainedByOther { sign, .. } if sign == "taint ToBeDeletedByClusterAutoscaler")
}

#[test]
fn no_drain_begins_where_another_program_works_and_others_start() {
    let scene = Scene::new(2).queued(&[(0, 11), (1, 12)]).node(11, autoscaler);
    assert_eq!(scene.starts(), [1]);
    assert!(waits(&scene, 0), "{:?}", scene.reason(0));
    let ended = scene.node(11, |node| node.described.taints.clear());
    assert!(ended.starts().contains(&0), "it goes on once the program has ended");
}

#[test]
fn no_command_runs_where_another_program_works() {
    let drained = Scene::new(1).draining(0, 11, 1);
    assert!(matches!(drained.effect(0), Some(Effect::Power { .. })), "{:?}", drained.effect(0));
    let scene = drained.node(11, autoscaler);
    assert!(!matches!(scene.effect(0), Some(Effect::Power { .. })));
    assert!(waits(&scene, 0), "{:?}", scene.reason(0));
    let forced = scene.order(0, Verb::Force, 10);
    assert!(waits(&forced, 0), "an order does not overrule it: {:?}", forced.reason(0));
}

#[test]
fn a_fresh_read_shows_what_the_watch_has_not_seen() {
    let scene = Scene::new(1).draining(0, 11, 1);
    let mut fresh = scene.fresh("10.0.0.11", true);
    let mut row = (**fresh.node.as_ref().unwrap()).clone();
    autoscaler(&mut row);
    fresh.node = Some(row.into());
    let scene = scene.work(0, |work| work.fresh = Some(fresh));
    let decision = scene.first_decision();
    let reason = &decision.reasons[&EntryId::reboot(0)];
    assert!(matches!(reason, Reason::DrainedByOther { .. }), "{reason:?}");
    assert!(!decision.effects.iter().any(|planned| matches!(planned.effect, Effect::Power { .. })));
}

#[test]
fn the_cordon_stays_while_another_program_counts_on_it() {
    let scene = Scene::new(1).cordoned(11, 0).node(11, autoscaler);
    let decision = scene.decide();
    assert!(!decision.effects.iter().any(|planned| matches!(planned.effect, Effect::Release { .. })));
    let shown = &decision.orphans["10.0.0.11"];
    assert!(matches!(shown, Reason::DrainedByOther { .. }), "{shown:?}");
    let releases = |scene: Scene| scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::Release { .. }));
    assert!(releases(scene.clone().node(11, |node| node.described.taints.clear())));
    assert!(releases(scene.clone().order(0, Verb::Uncordon, 1)), "a person decides");
    assert!(releases(scene.owner(11, |owner| owner.schedulable_before = false)), "the cordon stays anyway");
}

#[test]
fn a_machine_that_is_rebooting_goes_on() {
    let scene = Scene::new(1).entry(0, 11, RebootStatus::Rebooting, 20).node(11, autoscaler);
    assert!(!waits(&scene, 0), "{:?}", scene.reason(0));
}

#[test]
fn cke_does_not_wait_for_another_program() {
    let scene = Scene::new(1).queued(&[(0, 11)]).node(11, autoscaler);
    assert!(waits(&scene.clone().led_by_another_engine(), 0));
    let cke = scene.led_by_cke();
    assert_eq!(cke.reason(0), Reason::EngineElsewhere { holder: "CKE on there".to_owned() });
}

//! Fresh read right before a command: requests, judged answers, their age, and the deadline of a drain whose command
//! never starts (I16, I24, I26, I51).

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::Verb,
    cluster::Reboot,
    entry::EntryId,
    fence::NoPermit,
    kube::{NodeRow, PodRow},
    names::Address,
    reason::Reason,
};

use super::scene::{BOOT, LEASE, Scene, controlled};
use crate::{
    decide::{Decision, Effect, Planned},
    memory::remember,
    snapshot::{EffectOutcome, FreshRead, Retries, StaleCause},
};

fn first(scene: &Scene, index: u64) -> Option<Effect> {
    let of = |p: &Planned| p.entry == Some(EntryId::reboot(index));
    scene.first_decision().effects.into_iter().find(of).map(|p| p.effect)
}

fn recheck_reason(scene: &Scene, index: u64) -> Reason {
    scene.first_decision().reasons[&EntryId::reboot(index)].clone()
}

fn read(scene: Scene, how: impl FnOnce(&mut FreshRead)) -> Scene {
    let mut fresh = scene.fresh("10.0.0.11", true);
    how(&mut fresh);
    scene.work(0, |w| w.fresh = Some(fresh))
}

fn node(fresh: &mut FreshRead, how: impl FnOnce(&mut NodeRow)) {
    let mut row = (**fresh.node.as_ref().unwrap()).clone();
    how(&mut row);
    fresh.node = Some(row.into());
}

#[test]
fn i16_node_and_pods_are_read_from_the_api_server_before_the_command() {
    let drained = Scene::new(1).draining(0, 11, 1);
    let Some(Effect::Recheck { node, pods: true, .. }) = first(&drained, 0) else { panic!() };
    assert_eq!(node, "10.0.0.11");
    let answered = read(drained, |_| ());
    let Some(Effect::Power { fresh: Some(_), .. }) = first(&answered, 0) else { panic!() };
}

/// TTL/12 counts from the arrival of the answers: the requests may have taken longer than that.
#[test]
fn i24_a_recheck_is_valid_for_a_twelfth_of_the_lease_ttl() {
    let answered = |age: f64| read(Scene::new(1).draining(0, 11, 1), |f| f.at = BOOT - Seconds::new(age));
    assert!(matches!(first(&answered(4.9), 0), Some(Effect::Power { .. })));
    assert!(matches!(first(&answered(5.1), 0), Some(Effect::Recheck { .. })));
}

#[test]
fn i16_a_recheck_overrules_the_watches() {
    type Forbids = fn(&Reason) -> bool;
    let scene = || Scene::new(1).draining(0, 11, 1);
    let pod = Scene::new(1).pod(11, "late", |_| ()).fresh("10.0.0.11", true).pods;
    let job = |pod: &mut PodRow| pod.controller = controlled("Job", "nightly");
    let jobs = Scene::new(1).pod(11, "a", job).pod(11, "b", job).fresh("10.0.0.11", true).pods;
    let cases: Vec<(&str, Scene, Forbids)> = vec![
        (
            "two pods of Jobs",
            read(scene(), |f| f.pods = jobs.clone()),
            |r| matches!(r, Reason::PodsLeaving { left: 2, first } if first == "shop/a"),
        ),
        (
            "a pod",
            read(scene(), |f| f.pods = pod.clone()),
            |r| matches!(r, Reason::PodsLeaving { left: 1, first } if first == "shop/late"),
        ),
        ("a volume", read(scene(), |f| node(f, |n| n.volumes_in_use.push("v".to_owned()))), |r| {
            matches!(r, Reason::VolumeAttached { .. })
        }),
        ("uncordoned", read(scene(), |f| node(f, |n| n.unschedulable = false)), |r| {
            matches!(r, Reason::UncordonedByOther { .. })
        }),
        (
            "stamped by another leader",
            read(scene(), |f| {
                node(f, |n| {
                    let owner = n.owner().unwrap().clone();
                    n.owner = Some(Ok(cketerm_model::kube::Owner { lease: LEASE + 1, ..owner }));
                });
            }),
            |r| matches!(r, Reason::UncordonedByOther { .. }),
        ),
        ("another UID", read(scene(), |f| node(f, |n| n.uid = "other".to_owned())), |r| {
            matches!(r, Reason::NodeMismatch { .. })
        }),
        ("another address", read(scene(), |f| node(f, |n| n.addresses = vec![Address::new("10.9.9.9")])), |r| {
            matches!(r, Reason::NodeMismatch { .. })
        }),
        ("no Node", read(scene(), |f| f.node = None), |r| matches!(r, Reason::NodeMismatch { .. })),
    ];
    for (what, scene, expected) in cases {
        assert_eq!(first(&scene, 0).map(|e| e.as_str()), None, "{what}");
        assert!(expected(&recheck_reason(&scene, 0)), "{what}: {:?}", recheck_reason(&scene, 0));
        let later = scene.work(0, |w| w.fresh.as_mut().unwrap().at = BOOT - Seconds::new(2.5));
        assert!(matches!(first(&later, 0), Some(Effect::Recheck { .. })), "{what}: rechecked after two seconds");
        assert!(expected(&recheck_reason(&later, 0)), "{what}: the reason stays the same meanwhile");
    }
}

#[test]
fn force_skips_the_rechecked_pods_but_never_the_cordon() {
    let pod = Scene::new(1).pod(11, "late", |_| ()).fresh("10.0.0.11", true).pods;
    let forced = || Scene::new(1).draining(0, 11, 1).order(0, Verb::Force, 10);
    let pods = read(forced(), |f| f.pods = pod);
    assert!(matches!(first(&pods, 0), Some(Effect::Power { force: Some(_), .. })));
    let uncordoned = read(forced(), |f| node(f, |n| n.unschedulable = false));
    assert!(first(&uncordoned, 0).is_none());
}

/// Every effect of a drain failed until its deadline. The entry backs off with the cause.
#[test]
fn a_command_that_never_starts_backs_off_at_the_drain_deadline_with_its_cause() {
    let late = i64::from(i32::try_from(Reboot::default().eviction_timeout()).unwrap()) + 1;
    let failing = |age| {
        let retries = Some(Retries { count: 7, why: "servers answer too slowly".to_owned() });
        Scene::new(1).draining(0, 11, age).work(0, |w| w.retries = retries)
    };
    let early = failing(1);
    assert!(matches!(first(&early, 0), Some(Effect::Recheck { .. })), "the engine keeps trying");
    let Reason::EffectFailed { why, .. } = recheck_reason(&early, 0) else { panic!("{:?}", recheck_reason(&early, 0)) };
    assert!(why.contains("too slowly") && why.contains("7 times"), "{why}");
    let scenes = |age| [failing(age), read(failing(age), |_| ())];
    for scene in scenes(late - 1).into_iter().chain(scenes(late)) {
        let Some(Effect::BackOff { cause: Reason::EffectFailed { why, .. }, .. }) = first(&scene, 0) else {
            panic!("{:?}", first(&scene, 0))
        };
        assert!(why.contains("too slowly"), "{why}");
    }
    let at_last = Scene::new(1).draining(0, 11, late);
    assert!(
        matches!(first(&at_last, 0), Some(Effect::Recheck { .. })),
        "nothing has failed, so the drain is not discarded"
    );
}

/// An effect that was too old to start is remembered. Each further try waits longer.
#[test]
fn a_stale_effect_is_remembered_and_backs_off() {
    let (id, mut work) = (EntryId::reboot(0), std::collections::BTreeMap::new());
    let now = cketerm_model::clock::Now { boot: BOOT, wall: super::scene::now() };
    let Some(effect) = first(&Scene::new(1).draining(0, 11, 1), 0) else { panic!() };
    let cause = StaleCause::TooOld(NoPermit::TooOld { age_ms: 6000, limit_ms: 5000 });
    let mut pauses = Vec::new();
    for count in 1..=8 {
        remember(&mut work, id, &effect, &EffectOutcome::Stale(cause.clone()), now);
        let retries = work[&id].retries.clone().unwrap();
        assert_eq!(retries.count, count);
        assert!(retries.why.contains("6000 ms old"), "{}", retries.why);
        pauses.extend(work[&id].pause.clone().map(|(until, _)| (until - BOOT).get()));
    }
    assert_eq!(pauses.len(), 7, "the first stale effect causes no pause");
    assert!(pauses.is_sorted() && pauses[0] < 0.3 && (pauses[6] - 5.0).abs() < 0.01, "{pauses:?}");
    let scene = Scene::new(1).draining(0, 11, 1).work(0, |w| *w = work[&id].clone());
    assert!(matches!(recheck_reason(&scene, 0), Reason::EffectFailed { .. }), "{:?}", recheck_reason(&scene, 0));
}

/// Without a drain no owner record names the machine. The Node of the watch does.
#[test]
fn i26_a_repair_without_a_drain_runs_no_command_on_a_replaced_node() {
    let scene = Scene::repairing(1).repair(0, 11, "plain");
    let answered = |uid: &str| {
        let mut fresh = scene.fresh("10.0.0.11", false);
        node(&mut fresh, |n| n.uid = uid.to_owned());
        scene.clone().repair_work(0, |w| w.fresh = Some(fresh)).first_decision()
    };
    let runs = |decision: &Decision| decision.effects.iter().any(|p| matches!(p.effect, Effect::Power { .. }));
    assert!(runs(&answered("uid-10.0.0.11")));
    let replaced = answered("other");
    assert!(!runs(&replaced));
    let reason = &replaced.reasons[&EntryId::repair(0)];
    assert!(matches!(reason, Reason::NodeMismatch { found, .. } if found == "UID other"), "{reason:?}");
}

#[test]
fn nothing_is_read_for_a_command_that_an_attached_volume_holds_back() {
    let scene = Scene::new(1).draining(0, 11, 1).node(11, |n| n.volumes_in_use = vec!["v".to_owned()]);
    assert!(first(&scene, 0).is_none());
    assert!(matches!(recheck_reason(&scene, 0), Reason::VolumeAttached { .. }));
}

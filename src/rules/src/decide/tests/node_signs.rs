//! Conditions and the taint of planned reboots on Nodes.

use std::collections::BTreeMap;

use cketerm_model::{
    attempt::Ended,
    boot_time::Seconds,
    cketerm_records::{Request, Verb, Who},
    cluster::Taint,
    entry::EntryId,
    freeze::Freeze,
    kube::{FoundCondition, LifecycleCondition, planned_taint},
    reboot::RebootStatus,
    time::after,
};

use serde_json::Map;

use super::scene::{LEASE, Scene, now, stored};
use crate::{
    decide::{Effect, Guard, Planned},
    preflight_fault::PreflightFault,
    snapshot::InFlight,
};

const PLANNED: LifecycleCondition = LifecycleCondition::MaintenancePlanned;
const DRAINS: LifecycleCondition = LifecycleCondition::DrainInProgress;
const DRAINED: LifecycleCondition = LifecycleCondition::Drained;
const IN_WORK: LifecycleCondition = LifecycleCondition::MaintenanceInProgress;

/// Workers that get conditions, with one reboot at a time.
fn scene(workers: u8) -> Scene {
    Scene::new(workers).with(|scene| scene.policy.node_conditions = true)
}

fn tainting(scene: Scene, waves: u64) -> Scene {
    scene.with(|scene| scene.policy.planned_taint_waves = waves)
}

fn found(condition: LifecycleCondition, reason: &str, message: &str) -> FoundCondition {
    FoundCondition { condition, status: "True".into(), reason: reason.into(), message: message.into() }
}

fn carrying(scene: Scene, last: u8, condition: LifecycleCondition, message: &str) -> Scene {
    scene.node(last, |node| node.lifecycle.push(found(condition, "CketermReboot", message)))
}

fn tainted(scene: Scene, last: u8) -> Scene {
    scene.node(last, |node| node.described.taints.push(planned_taint()))
}

fn signs(scene: &Scene) -> Vec<Planned> {
    let effects = scene.decide().effects;
    effects.into_iter().filter(|planned| matches!(planned.effect, Effect::SetNodeSigns { .. })).collect()
}

/// Changes of conditions by the last number of the Node's name: `true` = set.
fn changes(scene: &Scene) -> BTreeMap<u8, Vec<(LifecycleCondition, bool)>> {
    let each = signs(scene).into_iter().filter_map(|planned| match planned.effect {
        Effect::SetNodeSigns { node, conditions, .. } if !conditions.is_empty() => {
            let changes = conditions.iter().map(|change| (change.condition, change.content.is_some()));
            Some((last(&node.name), changes.collect()))
        }
        _ => None,
    });
    each.collect()
}

/// Changes of the taint by the last number of the Node's name: `true` = set.
fn taints(scene: &Scene) -> Vec<(u8, bool)> {
    let each = signs(scene).into_iter().filter_map(|planned| match planned.effect {
        Effect::SetNodeSigns { node, taint, .. } => Some((last(&node.name), taint?)),
        _ => None,
    });
    let mut all: Vec<(u8, bool)> = each.collect();
    all.sort_unstable();
    all
}

fn last(name: &str) -> u8 {
    name.rsplit('.').next().and_then(|last| last.parse().ok()).unwrap()
}

#[test]
fn each_phase_of_an_entry_has_its_conditions() {
    let drains = scene(2).draining(0, 11, 30);
    assert_eq!(changes(&drains), [(11, vec![(DRAINS, true)])].into());
    let rebooting = carrying(scene(2).rebooting(0, 11, 30, Some(Ended::Exit(0))), 11, DRAINS, "old");
    assert_eq!(changes(&rebooting), [(11, vec![(DRAINS, false), (DRAINED, true), (IN_WORK, true)])].into());
    // after the end nothing is left
    let ended = carrying(carrying(scene(2), 11, DRAINED, "old"), 11, IN_WORK, "old");
    assert_eq!(changes(&ended), [(11, vec![(DRAINED, false), (IN_WORK, false)])].into());
    assert_eq!(changes(&scene(2)), BTreeMap::new());
}

#[test]
fn a_forced_reboot_and_an_uncordoned_node_do_not_count_as_drained() {
    let forced = scene(2).rebooting(0, 11, 30, None).with(|scene| {
        let attempt = scene.store.attempts.get_mut(&(EntryId::reboot(0), 1)).unwrap();
        std::sync::Arc::make_mut(attempt.value.as_mut().unwrap()).forced = true;
    });
    assert_eq!(changes(&forced), [(11, vec![(IN_WORK, true)])].into());
    let uncordoned = scene(2).rebooting(0, 11, 30, None).node(11, |node| node.unschedulable = false);
    assert_eq!(changes(&uncordoned), [(11, vec![(IN_WORK, true)])].into());
}

#[test]
fn only_the_next_two_waves_are_planned_and_one_that_fell_behind_keeps_its_condition() {
    // entry 0 is in work, 1 and 2 are next; 9 is last
    let entries = [(1, 12), (2, 13), (3, 14), (9, 15)];
    let queue = || scene(5).draining(0, 11, 30).queued(&entries);
    let changed = changes(&queue());
    assert_eq!(changed.keys().copied().collect::<Vec<_>>(), [11, 12, 13]);
    assert_eq!(changed[&12], [(PLANNED, true)]);
    let behind = carrying(queue(), 15, PLANNED, "reboots/9 waits for its turn");
    assert!(!changes(&behind).contains_key(&15));
    // the limit counts
    let wider = queue().with(|scene| scene.cluster.reboot.max_concurrent_reboots = Some(2));
    assert_eq!(changes(&wider).keys().copied().collect::<Vec<_>>(), [11, 13, 14, 15], "12 starts in this pass");
}

#[test]
fn a_held_entry_is_not_planned_and_its_turn_goes_to_the_next() {
    let held = scene(4).draining(0, 11, 30).queued(&[(1, 12), (2, 13), (3, 14)]).order(1, Verb::Hold, 10);
    assert_eq!(changes(&held).keys().copied().collect::<Vec<_>>(), [11, 13, 14]);
    let disabled = scene(4).queued(&[(1, 12), (2, 13)]).disabled();
    assert_eq!(changes(&disabled), BTreeMap::new());
}

#[test]
fn what_an_operator_withholds_loses_its_condition_and_taint() {
    let carries = |scene: Scene| tainted(carrying(tainting(scene, 2), 12, PLANNED, "reboots/1 waits for its turn"), 12);
    let queue = || carries(scene(4).draining(0, 11, 30).queued(&[(1, 12), (2, 13)]));
    assert!(!changes(&queue()).contains_key(&12));
    let frozen = |scene: &mut Scene| {
        let until = after(now(), 60);
        scene.policy.freeze = Some(Freeze { until, reason: "x".to_owned(), who: Who::default(), unknown: Map::new() });
    };
    let withholds: [&dyn Fn(Scene) -> Scene; 3] =
        [&|scene| scene.order(1, Verb::Hold, 10), &Scene::disabled, &|scene| scene.with(frozen)];
    for withhold in withholds {
        let withheld = withhold(queue());
        assert_eq!(changes(&withheld).get(&12), Some(&vec![(PLANNED, false)]));
        assert!(taints(&withheld).contains(&(12, false)));
    }
}

#[test]
fn a_leader_that_resigns_announces_nothing_and_keeps_the_conditions_of_work() {
    let queue = scene(4).draining(0, 11, 30).queued(&[(1, 12), (2, 13)]);
    let queue = tainted(carrying(tainting(queue, 2), 12, PLANNED, "reboots/1 waits for its turn"), 12);
    let resigns = queue.clone().with(|scene| scene.snap.engine.resigning = Some("CKE waits".to_owned()));
    assert_eq!(changes(&resigns), [(11, vec![(DRAINS, true)]), (12, vec![(PLANNED, false)])].into());
    assert_eq!(taints(&resigns), [(12, false)]);
    // an engine that may start nothing for now keeps what it announced, and announces nothing new
    let fault = PreflightFault::RightsUnknown;
    let barred = queue.with(|scene| scene.snap.engine.observing.push(fault));
    assert_eq!(changes(&barred), [(11, vec![(DRAINS, true)])].into());
    assert_eq!(taints(&barred), []);
}

#[test]
fn saf4_in_another_cluster_no_node_gets_or_loses_signs() {
    let queue = scene(4).draining(0, 11, 30).queued(&[(1, 12), (2, 13)]);
    let queue = tainted(carrying(tainting(queue, 2), 12, PLANNED, "reboots/1 waits for its turn"), 12);
    let mismatch = PreflightFault::IdentityMismatch { recorded: "a".to_owned(), found: "b".to_owned() };
    let foreign = queue.with(|scene| {
        scene.snap.engine.resigning = Some(mismatch.to_string());
        scene.snap.engine.observing.push(mismatch);
    });
    assert!(signs(&foreign).is_empty());
}

#[test]
fn a_node_that_is_still_cordoned_for_an_ended_entry_keeps_its_conditions() {
    let left = scene(2).cordoned(11, 5).attempt(5, 11, 1, LEASE, 60, Some(Ended::Exit(0)));
    assert_eq!(changes(&left), [(11, vec![(DRAINED, true), (IN_WORK, true)])].into());
    let uncordoned = left.node(11, |node| node.unschedulable = false);
    assert_eq!(changes(&uncordoned), BTreeMap::new());
}

#[test]
fn signs_wait_while_the_node_is_patched_for_its_work() {
    let flight = |patches_node| InFlight {
        what: "uncordoning".to_owned(),
        entry: None,
        starts: false,
        patches_node,
        upkeep: None,
        evictions: std::collections::BTreeMap::new(),
        attempt: None,
        since: super::scene::BOOT,
    };
    for (patches, expected) in [(true, 0), (false, 1)] {
        let scene = carrying(scene(2), 11, DRAINED, "old")
            .with(|scene| drop(scene.snap.in_flight.insert("10.0.0.11".to_owned(), flight(patches))));
        assert_eq!(changes(&scene).len(), expected);
    }
}

#[test]
fn the_message_names_the_entry_and_the_user_and_is_kept_up_to_date() {
    let request = Request {
        who: Who { user: "ann".to_owned(), host: "h".to_owned(), ssh_client: None },
        at: now(),
        reason: Some("kernel".to_owned()),
        node_uid: None,
        batch: None,
    };
    let drains = scene(2)
        .draining(0, 11, 30)
        .with(|scene| drop(scene.store.requests.insert(EntryId::reboot(0), stored("request", 9, request))));
    let content = |scene: &Scene| match &signs(scene).first().unwrap().effect {
        Effect::SetNodeSigns { conditions, .. } => conditions[0].content.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    let new = content(&drains);
    assert_eq!((new.begins, new.reason), (true, "CketermReboot"));
    assert_eq!(new.message, "cketerm drains the Node for reboots/0, requested by ann@h (kernel)");
    let known = carrying(drains.clone(), 11, DRAINS, &new.message);
    assert_eq!(changes(&known), BTreeMap::new());
    let other = content(&carrying(drains, 11, DRAINS, "cketerm drains the Node for reboots/7"));
    assert_eq!((other.begins, other.message), (false, new.message), "the transition keeps its time");
}

#[test]
fn a_condition_of_another_program_stays_as_it_is() {
    let foreign = |scene: Scene| scene.node(11, |node| node.lifecycle.push(found(DRAINED, "SomebodyElse", "m")));
    assert_eq!(changes(&foreign(scene(2))), BTreeMap::new());
    let rebooting = foreign(scene(2).rebooting(0, 11, 30, None));
    assert_eq!(changes(&rebooting), [(11, vec![(IN_WORK, true)])].into());
}

#[test]
fn a_policy_that_is_off_removes_everything_and_touches_no_other_node() {
    let signed = |scene: Scene| tainted(carrying(scene, 11, DRAINS, "old"), 11);
    let off = signed(Scene::new(2).draining(0, 11, 30));
    assert_eq!((changes(&off), taints(&off)), ([(11, vec![(DRAINS, false)])].into(), vec![(11, false)]));
    assert!(signs(&Scene::new(2).draining(0, 11, 30)).is_empty());
    // nothing is removed while it is unknown which entries are in progress
    let unknown: [fn(&mut Scene); 3] = [
        |scene| scene.store.last_seen = scene.boot - Seconds::new(60.0),
        |scene| scene.store.synced = false,
        |scene| scene.snap.engine.leading = None,
    ];
    for change in unknown {
        let unknown = signed(Scene::new(2)).with(change);
        assert!(signs(&unknown).is_empty());
    }
}

#[test]
fn the_conditions_of_an_entry_that_cannot_be_read_stay() {
    let unreadable = |scene: Scene| {
        carrying(scene.draining(0, 11, 30), 11, DRAINS, "old").with(|scene| {
            scene.store.reboots.entries.get_mut(&0).unwrap().value = Err("bad".to_owned());
        })
    };
    assert_eq!(changes(&unreadable(scene(2))), BTreeMap::new());
    assert_eq!(changes(&unreadable(Scene::new(2))), [(11, vec![(DRAINS, false)])].into(), "the policy is off");
}

#[test]
fn the_taint_is_on_the_next_waves_of_workers_and_leaves_one_wave_later() {
    let entries = [(1, 12), (2, 13), (3, 14), (4, 15)];
    let queue = || tainting(Scene::new(5), 2).draining(0, 11, 30).queued(&entries);
    assert_eq!(taints(&queue()), [(12, true), (13, true)]);
    assert_eq!(taints(&tainting(queue(), 1)), [(12, true)]);
    assert_eq!(taints(&tainting(queue(), 99)), [(12, true), (13, true), (14, true), (15, true)]);
    let known = tainted(tainted(tainted(queue(), 12), 13), 14);
    assert_eq!(taints(&known), [], "one wave behind, it stays");
    assert_eq!(taints(&tainted(known, 15)), [(15, false)]);
    // in a drain it stays, in a reboot it goes
    assert_eq!(taints(&tainted(tainting(Scene::new(5), 1).draining(0, 11, 30), 11)), []);
    assert_eq!(taints(&tainted(tainting(Scene::new(5), 1).rebooting(0, 11, 30, None), 11)), [(11, false)]);
}

#[test]
fn entries_that_do_not_start_soon_have_no_taint() {
    let queue = || tainting(Scene::new(4), 1).draining(0, 11, 30).queued(&[(1, 12), (2, 13)]);
    assert_eq!(taints(&queue().order(1, Verb::Hold, 10)), [(13, true)]);
    assert_eq!(taints(&tainted(queue(), 12).order(1, Verb::Hold, 10)), [(12, false), (13, true)]);
    assert_eq!(taints(&tainted(queue(), 12).disabled()), [(12, false)]);
    assert_eq!(taints(&queue().node(12, |node| node.unschedulable = true)), [], "it is cordoned anyway");
    // a control plane
    assert_eq!(taints(&tainting(Scene::new(2), 1).draining(0, 11, 30).queued(&[(1, 2)])), []);
    // a backoff: no new taint, and an old one stays
    let later = after(now(), 60);
    let backing_off = || queue().change(1, |entry| entry.drain_backoff_expire = Some(later));
    assert_eq!(taints(&backing_off()), [(13, true)]);
    assert_eq!(taints(&tainted(backing_off(), 12)), [(13, true)]);
}

#[test]
fn taints_of_others_and_of_the_definition_stay() {
    let same_key = Taint { effect: "NoExecute".to_owned(), ..planned_taint() };
    let foreign = Scene::new(2).node(11, |node| node.described.taints.push(same_key));
    assert!(signs(&foreign).is_empty());
    let defined = |scene: Scene| {
        scene.with(|scene| {
            let node = scene.cluster.nodes.iter_mut().find(|node| node.address.as_str() == "10.0.0.11").unwrap();
            node.taints = Some(vec![planned_taint()]);
        })
    };
    assert!(signs(&defined(tainted(Scene::new(2), 11))).is_empty());
    assert!(signs(&defined(tainting(Scene::new(3), 1).draining(0, 12, 30).queued(&[(1, 11)]))).is_empty());
}

#[test]
fn the_signs_wait_for_no_one_and_nobody_waits_for_them() {
    // the cordon of the same pass goes first
    let starts = scene(2).entry(0, 11, RebootStatus::Draining, 30).work(0, |_| {});
    let effects = starts.decide().effects;
    assert!(matches!(effects.as_slice(), [Planned { effect: Effect::Stamp { .. }, .. }]), "{effects:?}");
    // a drain goes on beside them, and the failure of a sign is no failure of the entry
    let all = scene(2).draining(0, 11, 30).pod(11, "web", |_| {}).decide().effects;
    let sign = all.iter().find(|planned| matches!(planned.effect, Effect::SetNodeSigns { .. })).unwrap();
    assert_eq!((sign.entry, &sign.guard), (None, &Guard::of_entry(EntryId::reboot(0), 10)));
    assert!(all.iter().any(|planned| planned.machine == "10.0.0.11"), "{all:?}");
}

#[test]
fn one_pass_changes_at_most_ten_nodes() {
    let many = (11..41).fold(Scene::new(30), tainted);
    assert_eq!(signs(&many).len(), 10);
}

#[test]
fn a_repair_that_waits_for_its_turn_is_planned_unless_an_operator_withholds_it() {
    let waiting = Scene::repairing(2).with(|scene| scene.policy.node_conditions = true).repair(0, 11, "plain");
    let waiting = waiting.repairs_at_once(1).repair(1, 12, "plain").watching(1, 0, 5, Some(Ended::Exit(0)));
    assert!(waiting.repair_starts().is_empty(), "one repair at once");
    assert_eq!(changes(&waiting).get(&11), Some(&vec![(PLANNED, true)]));
    let held = waiting.order_repair(0, Verb::Hold, 10);
    assert_eq!(changes(&held).get(&11), None);
}

//! Nodes that need a reboot (policy `reboot_needed`).

use std::sync::Arc;

use cketerm_model::{
    batch::{Batch, BatchId, Cancelled, Paused},
    boot_time::Seconds,
    cketerm_records::{Needed, NeededEntry, NeededLog, NeededReboot, NeededSignal, REBOOT_NEEDED_USER, Request, Who},
    clock::Now,
    entry::{EntryId, QueueKind},
    freeze::Freeze,
    kube::{CONTROL_PLANE_PODS, EndpointsRow, NodeRow},
    names::{Address, NodeName},
    policy::{Membership, RebootNeeded},
    reboot::RebootStatus,
    reboot_signals::{REBOOT_NEEDED_ANNOTATION, Signals},
    time::after,
    window::Windows,
};
use jiff::Timestamp;

use super::scene::{BOOT, Scene, now, stored};
use crate::{
    decide::{Effect, NeededBatch, RebootNeededEffect},
    reboot_needed::{
        list::{Row, State, list},
        queue::{NeededWait, wait},
        record::RecordChange,
        signals::ShownSignals,
    },
    snapshot::Snapshot,
};

const HOUR: i64 = 3600;
const KURED: &str = "weave.works/kured-most-recent-reboot-needed";

pub(super) fn annotate(node: &mut NodeRow, key: &str, value: &str) {
    let mut all: std::collections::BTreeMap<String, String> = node.described.annotations.clone().into();
    all.insert(key.to_owned(), value.to_owned());
    node.described.annotations = all.into();
}

/// Workers 11 to 13 and three control planes, none of which needs a reboot.
pub(super) fn scene(choice: RebootNeeded) -> Scene {
    let mut scene = Scene::new(3);
    scene.policy.reboot_needed = choice;
    scene
}

/// The worker asks for a reboot with cketerm's own annotation.
pub(super) fn asks(scene: Scene, last: u8, cause: &str) -> Scene {
    scene.node(last, |node| annotate(node, REBOOT_NEEDED_ANNOTATION, cause))
}

pub(super) fn name(last: u8) -> NodeName {
    NodeName::new(Scene::address(last))
}

fn signal(cause: &str, ago: i64, boot_id: &str) -> NeededSignal {
    NeededSignal {
        cause: cause.to_owned(),
        value: String::new(),
        since: after(now(), -ago),
        boot_id: boot_id.to_owned(),
    }
}

fn record(cause: &str, ago: i64) -> Needed {
    Needed { signals: vec![signal(cause, ago, "before")], ..Needed::default() }
}

/// The leader has recorded this.
fn recorded(mut scene: Scene, last: u8, record: Needed) -> Scene {
    scene.store.needed.insert(name(last), stored("needed", 20, record));
    scene
}

/// The worker needs a reboot, which is recorded.
fn needs(scene: Scene, last: u8, cause: &str) -> Scene {
    recorded(asks(scene, last, cause), last, record(cause, HOUR))
}

fn snapshot(scene: &Scene) -> Snapshot {
    let mut snap = scene.snapshot();
    snap.reboot_signals = Arc::new(ShownSignals::of(&scene.policy, &scene.kube));
    snap
}

fn effects(scene: &Scene) -> Vec<RebootNeededEffect> {
    let decision = crate::decide::decide(&snapshot(scene), Now { boot: BOOT, wall: now() });
    let needed = decision.effects.into_iter().filter_map(|planned| match planned.effect {
        Effect::RebootNeeded(effect) => Some(effect),
        _ => None,
    });
    needed.collect()
}

fn recorded_changes(scene: &Scene) -> Vec<RecordChange> {
    match effects(scene).as_slice() {
        [RebootNeededEffect::Record(changes)] => changes.clone(),
        [] => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn queued(scene: &Scene) -> Option<NeededBatch> {
    match effects(scene).as_slice() {
        [RebootNeededEffect::Queue(batch)] => Some(batch.clone()),
        [] => None,
        other => panic!("{other:?}"),
    }
}

/// Last parts of the addresses that are queued.
fn queued_machines(scene: &Scene) -> Vec<String> {
    let batch = queued(scene);
    let last = |address: &Address| address.rsplit('.').next().unwrap_or_default().to_owned();
    batch.iter().flat_map(|batch| &batch.machines).map(|machine| last(&machine.address)).collect()
}

fn rows(scene: &Scene) -> Vec<Row> {
    let snap = snapshot(scene);
    list(&snap.store, &snap.kube, &snap.reboot_signals, now())
}

fn states(scene: &Scene) -> Vec<State> {
    rows(scene).into_iter().map(|row| row.state).collect()
}

fn own_who() -> Who {
    Who { user: REBOOT_NEEDED_USER.to_owned(), host: "here".to_owned(), ssh_client: None }
}

/// An entry that the leader queued by itself.
fn own_entry(scene: Scene, index: u64, last: u8, status: RebootStatus) -> Scene {
    let mut scene = scene.entry(index, last, status, 0);
    let request = Request { who: own_who(), at: now(), reason: None, node_uid: None, batch: None };
    scene.store.requests.insert(EntryId::reboot(index), stored("request", 21, request));
    scene
}

/// Returns the reason why the leader queues nothing.
fn waits(scene: &Scene) -> Option<NeededWait> {
    wait(&scene.snapshot().store, &scene.policy, now())
}

#[test]
fn a_signal_is_recorded_with_its_cause_time_and_boot_id() {
    let scene = asks(scene(RebootNeeded::Propose), 11, "kernel 6.12.60");
    let expected = RecordChange {
        node: name(11),
        record: Some(Needed { signals: vec![signal("kernel 6.12.60", 0, "before")], ..Needed::default() }),
        revision: 0,
    };
    assert_eq!(recorded_changes(&scene), [expected]);
    let row = rows(&scene).remove(0);
    assert_eq!((row.since, row.state), (None, State::Proposed), "not recorded yet");
}

#[test]
fn a_recorded_signal_is_not_written_again_and_its_record_goes_with_it() {
    let recorded_scene = needs(scene(RebootNeeded::Propose), 11, "kernel");
    assert_eq!(recorded_changes(&recorded_scene), []);
    assert_eq!(rows(&recorded_scene)[0].since, Some(after(now(), -HOUR)));
    let gone = recorded(scene(RebootNeeded::Propose), 11, record("kernel", HOUR));
    assert_eq!(recorded_changes(&gone), [RecordChange { node: name(11), record: None, revision: 20 }]);
}

#[test]
fn one_transaction_changes_at_most_fifty_records() {
    let mut scene = Scene::new(120);
    for last in 11..131 {
        scene = asks(scene, last, "kernel");
    }
    assert_eq!(recorded_changes(&scene).len(), 50);
}

#[test]
fn nothing_is_recorded_by_an_observer_or_before_the_nodes_are_listed() {
    let scene = asks(scene(RebootNeeded::Propose), 11, "kernel");
    assert_eq!(recorded_changes(&scene.clone().with(|s| s.snap.engine.leading = None)), []);
    let unlisted = scene.with(|s| s.kube.sources.get_mut("nodes").unwrap().synced = false);
    assert_eq!(recorded_changes(&unlisted), []);
}

#[test]
fn propose_queues_nothing_and_off_forgets_nothing() {
    assert_eq!(queued(&needs(scene(RebootNeeded::Propose), 11, "kernel")), None);
    let off = needs(scene(RebootNeeded::Off), 11, "kernel");
    assert_eq!((recorded_changes(&off), rows(&off)), (Vec::new(), Vec::new()));
    // a signal that is still set after its reboot does not ask again after the policy was off
    let rebooted = recorded(asks(scene(RebootNeeded::Off), 11, "kernel"), 11, with_queued("kernel", "before"));
    assert_eq!(recorded_changes(&rebooted.booted(11)), []);
}

#[test]
fn queue_adds_one_entry_at_once_by_default_workers_first() {
    let scene = needs(needs(needs(scene(RebootNeeded::Queue), 1, "kernel"), 12, "kernel"), 11, "kernel");
    assert_eq!(queued_machines(&scene), ["11"]);
    let wider = scene.clone().with(|s| s.policy.reboot_needed_at_once = 3);
    assert_eq!(queued_machines(&wider), ["11", "12", "1"]);
    let scene_before = scene.clone();
    let open = own_entry(scene, 7, 13, RebootStatus::Draining);
    assert_eq!(queued(&open), None, "one is open");
    assert_eq!((waits(&scene_before), waits(&open)), (None, Some(NeededWait::AtOnce { open: 1, limit: 1 })));
    let cancelled = own_entry(needs(self::scene(RebootNeeded::Queue), 11, "kernel"), 7, 13, RebootStatus::Cancelled);
    assert_eq!(queued_machines(&cancelled), ["11"], "a cancelled entry goes");
}

#[test]
fn entries_of_people_do_not_count_toward_the_limit() {
    let scene = needs(scene(RebootNeeded::Queue), 11, "kernel").queued(&[(7, 12)]);
    assert_eq!(queued_machines(&scene), ["11"]);
}

#[test]
fn a_batch_has_one_cause() {
    let mut scene = needs(needs(scene(RebootNeeded::Queue), 11, "kernel"), 12, "firmware");
    scene = recorded(scene, 12, record("firmware", 2 * HOUR));
    scene.policy.reboot_needed_at_once = 5;
    let batch = queued(&scene).unwrap();
    assert_eq!((batch.cause.as_str(), batch.machines.len()), ("firmware", 1), "the oldest first");
}

#[test]
fn the_limit_a_day_counts_the_entries_of_the_last_24_hours() {
    let scene = |per_day: u64, ago: &[i64]| {
        let mut scene = needs(scene(RebootNeeded::Queue), 11, "kernel");
        scene.policy.reboot_needed_per_day = per_day;
        let queued = ago.iter().map(|ago| after(now(), -ago)).collect();
        scene.store.needed_log = Some(stored("log", 22, NeededLog { queued }));
        scene
    };
    assert_eq!(queued(&scene(2, &[5, 10])), None);
    assert_eq!(waits(&scene(2, &[5, 10])), Some(NeededWait::PerDay { queued: 2, limit: 2 }));
    assert!(queued(&scene(3, &[5, 10])).is_some());
    assert!(queued(&scene(2, &[25 * HOUR, 10])).is_some());
    assert!(queued(&scene(0, &[5, 10])).is_some(), "no limit");
    let unreadable = scene(2, &[]).with(|s| s.store.needed_log.as_mut().unwrap().value = Err("?".to_owned()));
    assert_eq!((queued(&unreadable), waits(&unreadable)), (None, Some(NeededWait::LogUnreadable)));
}

#[test]
fn nothing_is_queued_while_the_queue_is_disabled_frozen_or_outside_its_window() {
    let scene = needs(scene(RebootNeeded::Queue), 11, "kernel");
    assert!(queued(&scene).is_some());
    assert_eq!(queued(&scene.clone().disabled()), None);
    assert_eq!(waits(&scene.clone().disabled()), Some(NeededWait::Disabled));
    let freeze = Freeze {
        until: after(now(), 60),
        reason: "audit".to_owned(),
        who: Who::default(),
        unknown: serde_json::Map::new(),
    };
    let frozen = scene.clone().with(|s| s.policy.freeze = Some(freeze));
    assert_eq!((queued(&frozen), waits(&frozen)), (None, Some(NeededWait::Frozen { until: after(now(), 60) })));
    let windows = |text: &str| Some(Windows::read(text).unwrap());
    let closed = "time_zone: UTC\nallow: ['* 20-22 * * *']";
    assert_eq!(queued(&scene.clone().with(|s| s.policy.windows = windows(closed))), None);
    let open = "time_zone: UTC\nallow: ['* 11-14 * * *']";
    assert!(queued(&scene.with(|s| s.policy.windows = windows(open))).is_some());
}

#[test]
fn nothing_is_queued_from_a_stale_copy_of_the_nodes() {
    let scene = needs(scene(RebootNeeded::Queue), 11, "kernel");
    let stale = scene.with(|s| s.kube.sources.get_mut("nodes").unwrap().fresh_as_of = BOOT - Seconds::new(11.0));
    assert_eq!(queued(&stale), None);
}

#[test]
fn a_machine_with_an_entry_in_either_queue_gets_no_second_one() {
    let scene = needs(scene(RebootNeeded::Queue), 11, "kernel");
    let rebooting = scene.clone().queued(&[(4, 11)]);
    assert_eq!(queued(&rebooting), None);
    assert_eq!(states(&rebooting), [State::Queued { entry: EntryId::reboot(4) }]);
    let repaired = scene.with(|s| {
        let repair = cketerm_model::repair::RepairEntry::queued(
            5,
            &Address::new(Scene::address(11)),
            "qemu",
            "unreachable",
            None,
        );
        s.store.repairs.entries.insert(5, stored("repair", 9, repair));
    });
    assert_eq!(queued(&repaired), None);
    assert_eq!(states(&repaired), [State::Queued { entry: EntryId::repair(5) }]);
}

#[test]
fn a_node_that_is_away_cordoned_drained_by_others_or_no_member_is_not_queued() {
    let scene = needs(scene(RebootNeeded::Queue), 11, "kernel");
    assert_eq!(queued(&scene.clone().node(11, |node| node.ready = false)), None);
    assert_eq!(queued(&scene.clone().node(11, |node| node.unschedulable = true)), None);
    let flatcar = "flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress";
    assert_eq!(queued(&scene.clone().node(11, |node| annotate(node, flatcar, "true"))), None);
    let left = scene.with(|s| s.cluster.nodes.retain(|node| node.address.as_str() != Scene::address(11)));
    assert_eq!(queued(&left), None);
    assert_eq!(states(&left), [State::NotMember]);
}

#[test]
fn a_machine_of_which_it_is_unclear_whether_it_is_a_control_plane_is_not_queued() {
    let mut scene = needs(needs(scene(RebootNeeded::Queue), 11, "kernel"), 12, "kernel");
    scene.policy.membership = Membership::Nodes;
    let source = scene.kube.sources.get("nodes").unwrap().clone();
    scene.kube.sources.insert(CONTROL_PLANE_PODS.to_owned(), source);
    scene.kube.endpoints.push(EndpointsRow {
        kind: "EndpointSlice".to_owned(),
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        addresses: vec![Address::new(Scene::address(11))],
        ..EndpointsRow::default()
    });
    assert_eq!(queued_machines(&scene), ["12"]);
}

fn with_queued(cause: &str, boot_id: &str) -> Needed {
    let queued = NeededEntry { index: 4, boot_id: boot_id.to_owned(), at: after(now(), -HOUR) };
    Needed { queued: Some(queued), ..record(cause, HOUR) }
}

#[test]
fn nothing_is_queued_twice_for_one_boot_id() {
    let again = recorded(asks(scene(RebootNeeded::Queue), 11, "kernel"), 11, with_queued("kernel", "before"));
    assert_eq!(queued(&again), None);
    assert_eq!(states(&again), [State::NotAgain { index: 4 }]);
    // the signal went away and came back: the record has outlived it
    let away = recorded(scene(RebootNeeded::Queue), 11, with_queued("kernel", "before"));
    let changes = recorded_changes(&away);
    let kept = changes[0].record.clone().expect("the record stays");
    assert!(kept.signals.is_empty() && kept.queued.is_some());
    let back = recorded(asks(scene(RebootNeeded::Queue), 11, "kernel"), 11, kept);
    let back = recorded_changes(&back)[0].record.clone().unwrap();
    assert_eq!(queued(&recorded(asks(scene(RebootNeeded::Queue), 11, "kernel"), 11, back)), None);
}

#[test]
fn a_signal_that_is_still_set_after_the_reboot_is_named_and_not_queued_again() {
    let rebooted =
        recorded(asks(scene(RebootNeeded::Queue), 11, "kernel"), 11, with_queued("kernel", "before")).booted(11);
    let record = recorded_changes(&rebooted)[0].record.clone().unwrap();
    assert_eq!(record.rebooted.as_ref().map(|r| (r.boot_id.as_str(), r.at)), Some(("after", now())));
    let noted = recorded(rebooted.clone(), 11, record.clone());
    assert_eq!((queued(&noted), recorded_changes(&noted)), (None, Vec::new()));
    assert_eq!(states(&noted), [State::Rebooted { at: now() }], "its program looks again in a moment");
    let mut older = record;
    older.rebooted.as_mut().unwrap().at = after(now(), -HOUR);
    let later = recorded(rebooted, 11, older);
    assert_eq!(queued(&later), None);
    assert_eq!(states(&later), [State::StillSet { at: after(now(), -HOUR), index: Some(4) }]);
    // once it is gone, the record goes a day after the enqueue; set again, it then asks for the next reboot
    let mut long_ago = with_queued("kernel", "before");
    long_ago.queued.as_mut().unwrap().at = after(now(), -25 * HOUR);
    let gone = recorded(scene(RebootNeeded::Queue), 11, long_ago).booted(11);
    assert_eq!(recorded_changes(&gone)[0].record, None);
}

/// A condition that the boot clears and that comes back at once, or a cause whose text changes with each boot, must not
/// reboot a machine again and again.
#[test]
fn a_signal_that_comes_back_within_a_day_waits_for_a_person() {
    let gone = recorded(scene(RebootNeeded::Queue), 11, with_queued("kernel", "before")).booted(11);
    let kept = recorded_changes(&gone)[0].record.clone().expect("the record keeps the entry");
    assert!(kept.signals.is_empty(), "{kept:?}");
    for cause in ["kernel", "another text"] {
        let mut back = kept.clone();
        back.signals = vec![signal(cause, 5, "after")];
        let back = recorded(asks(scene(RebootNeeded::Queue), 11, cause), 11, back).booted(11);
        assert_eq!(queued(&back), None, "{cause}");
        let [state] = &states(&back)[..] else { panic!("one row") };
        assert!(matches!(state, State::SoonAgain { index: 4, .. }), "{state:?}");
    }
}

/// A wanted kernel that nobody has installed must not reboot the whole cluster.
#[test]
fn after_three_reboots_in_vain_for_a_cause_the_leader_queues_no_more_for_it() {
    let in_vain = |last: &[u8], ago: i64| {
        let mut all = needs(scene(RebootNeeded::Queue), 1, "kernel");
        for last in last {
            let at = after(now(), -ago);
            let mut done = with_queued("kernel", "before");
            done.rebooted = Some(NeededReboot { boot_id: "after".to_owned(), at });
            all = recorded(asks(all, *last, "kernel"), *last, done).booted(*last);
        }
        all
    };
    assert_eq!(queued_machines(&in_vain(&[11, 12], HOUR)), ["1"]);
    assert_eq!(queued(&in_vain(&[11, 12, 13], 5)), None, "they have just rebooted");
    let three = in_vain(&[11, 12, 13], HOUR);
    assert_eq!(queued(&three), None);
    let row = rows(&three).into_iter().find(|row| row.node == name(1)).unwrap();
    assert_eq!(row.state, State::InVain { machines: 3 });
    assert!(row.is_proposed(), "a person may queue it");
    assert_eq!(queued_machines(&needs(three, 2, "firmware")), ["2"], "another cause goes on");
}

#[test]
fn two_signals_that_stay_set_do_not_take_turns() {
    let both = |scene: Scene| asks(scene, 11, "kernel").node(11, |n| annotate(n, "a/b", "x"));
    let mut start = scene(RebootNeeded::Queue);
    start.policy.reboot_needed_signals =
        Signals::read("[{annotation: cketerm.io/reboot-needed}, {annotation: a/b}]").unwrap();
    let first = recorded_changes(&both(start.clone()))[0].record.clone().unwrap();
    assert_eq!(first.signals.len(), 2);
    let rebooted = recorded(both(start), 11, first).booted(11);
    let record = recorded_changes(&rebooted)[0].record.clone().unwrap();
    assert_eq!(queued(&recorded(rebooted, 11, record)), None);
}

#[test]
fn another_cause_a_day_after_the_reboot_is_queued() {
    let mut record = with_queued("kernel", "before");
    record.queued.as_mut().unwrap().at = after(now(), -25 * HOUR);
    let scene = asks(scene(RebootNeeded::Queue), 11, "firmware");
    let scene = scene.booted(11);
    record.signals = vec![signal("firmware", 5, "after")];
    let scene = scene
        .with(|s| s.policy.reboot_needed_signals = Signals::read("[{annotation: cketerm.io/reboot-needed}]").unwrap());
    assert_eq!(queued_machines(&recorded(scene, 11, record)), ["11"]);
}

#[test]
fn a_paused_or_cancelled_batch_stops_its_cause() {
    let batch = |change: fn(&mut Batch)| {
        let mut batch = Batch::new(QueueKind::Reboot, own_who(), after(now(), -HOUR), Some("kernel".to_owned()), 1);
        change(&mut batch);
        let mut scene = needs(scene(RebootNeeded::Queue), 11, "kernel");
        scene.store.batches.insert(BatchId::at(now()), stored("batch", 23, batch));
        scene
    };
    assert!(queued(&batch(|_| ())).is_some());
    let cancelled = batch(|b| b.cancelled = Some(Cancelled { who: Who::default(), at: now(), reason: None }));
    assert_eq!(queued(&cancelled), None);
    assert!(matches!(states(&cancelled).as_slice(), [State::Stopped { .. }]));
    let paused = batch(|b| b.paused = Some(Paused { who: Who::default(), at: now(), reason: None }));
    assert_eq!(queued(&paused), None);
    assert!(queued(&batch(|b| b.who.user = "ann".to_owned())).is_some(), "not the leader's own");
}

fn kured(set_at: Timestamp, ready_since: Option<Timestamp>) -> Scene {
    scene(RebootNeeded::Queue).node(11, |node| {
        annotate(node, KURED, &set_at.to_string());
        node.ready_since = ready_since;
    })
}

#[test]
fn kureds_annotation_of_an_earlier_boot_does_not_count() {
    let fresh = kured(now(), Some(after(now(), -HOUR)));
    let record = recorded_changes(&fresh)[0].record.clone().unwrap();
    assert_eq!((record.signals[0].cause.as_str(), &record.signals[0].value), ("kured", &now().to_string()));
    assert_eq!(recorded_changes(&kured(after(now(), -2 * HOUR), Some(after(now(), -HOUR)))), []);
    // it stays after the reboot, and the Node may not even have been away: no second reboot, and nothing to complain of
    let rebooted = recorded(fresh.clone(), 11, record.clone()).booted(11);
    let kept = recorded_changes(&rebooted)[0].record.clone().unwrap();
    let rebooted = recorded(rebooted, 11, kept);
    assert_eq!((queued(&rebooted), rows(&rebooted)), (None, Vec::new()));
    // a Node that was away for a moment without a reboot still needs one
    let flapped = recorded(kured(now(), Some(after(now(), 5))), 11, record);
    assert_eq!(queued_machines(&flapped), ["11"]);
    // a new time is a new reboot
    let next = kured(after(now(), 60), None).booted(11);
    assert_eq!(recorded_changes(&next)[0].record.as_ref().unwrap().signals[0].boot_id, "after");
}

#[test]
fn only_a_node_without_an_entry_that_has_not_rebooted_is_proposed() {
    let at = now();
    let is_proposed = |state: State| {
        Row { node: name(11), address: None, cause: "kernel".to_owned(), since: None, state }.is_proposed()
    };
    let proposed = [
        State::Proposed,
        State::NotAgain { index: 4 },
        State::SoonAgain { index: 4, at },
        State::Stopped { batch: BatchId::at(at) },
        State::InVain { machines: 3 },
    ];
    assert!(proposed.into_iter().all(is_proposed));
    let others = [
        State::Queued { entry: EntryId::reboot(4) },
        State::Rebooted { at },
        State::StillSet { at, index: None },
        State::NotMember,
    ];
    assert!(!others.into_iter().any(is_proposed));
}

#[test]
fn rows_are_sorted_by_cause_and_then_by_name() {
    let scene = needs(needs(needs(scene(RebootNeeded::Propose), 11, "kernel"), 12, "firmware"), 13, "firmware");
    let names: Vec<NodeName> = rows(&scene).into_iter().map(|row| row.node).collect();
    assert_eq!(names, [name(12), name(13), name(11)]);
}

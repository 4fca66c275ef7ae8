//! Choice of the repairs that start: order, limits, and interaction of both queues (REP-8 to REP-20).

use cketerm_model::{
    attempt::{CheckAnswer, Ended},
    boot_time::Seconds,
    cketerm_records::Verb,
    entry::EntryId,
    names::{Address, NodeName},
    reason::Reason,
    reboot::RebootStatus::{Draining, Rebooting},
    repair::{RepairStatus, StepStatus},
    time::after,
};

use super::{
    repair_scene::{OUTSIDE, no},
    scene::{BOOT, Scene, now},
};
use crate::{
    decide::{Effect, End},
    snapshot::InFlight,
};

#[allow(clippy::unnecessary_wraps)] // as the scene wants it
fn ok() -> Option<Ended> {
    Some(Ended::Exit(0))
}

#[test]
fn repairs_are_ordered_by_status_then_api_server_then_index() {
    let scene = Scene::repairing(4)
        .repair(0, 11, "plain")
        .repair(1, 2, "plain")
        .repair(2, 12, "plain")
        .repair(3, 1, "plain")
        .repair(4, 13, "plain")
        .at_step(2, 0, StepStatus::Waiting, 500)
        .at_step(3, 0, StepStatus::Waiting, 500)
        .repairs_at_once(9);
    assert_eq!(scene.repair_starts(), [3, 2, 0, 4]);
    assert_eq!(scene.repair_reason(1), Reason::WaitingForControlPlane { other: "10.0.0.1".to_owned() });
    assert_eq!(scene.clone().repairs_at_once(2).repair_starts(), [3, 2]);
    let without = scene.change_repair(3, |e| e.status = RepairStatus::Failed);
    assert_eq!(
        without.clone().repairs_at_once(2).repair_starts(),
        [2, 1],
        "a queued API server starts before other queued machines"
    );
}

#[test]
fn i3_max_concurrent_repairs_is_respected_and_lowering_it_aborts_nothing() {
    let scene = Scene::repairing(4)
        .repair(0, 11, "plain")
        .repair(1, 12, "plain")
        .repair(2, 13, "plain")
        .watching(0, 0, 5, ok())
        .repairs_at_once(2);
    assert_eq!(scene.repair_starts(), [1]);
    let reason = scene.repair_reason(2);
    assert!(
        matches!(reason, Reason::WaitingForSlot { limit: 2, holder: Some(h), ahead: false } if h == EntryId::repair(0)),
        "{reason:?}"
    );
    let lowered = scene.watching(1, 0, 5, ok()).repairs_at_once(1);
    assert!(lowered.repair_starts().is_empty());
    for index in [0, 1] {
        assert!(matches!(lowered.repair_reason(index), Reason::WaitingForHealth { .. }), "{index} continues");
    }
    // The default is 1.
    assert_eq!(Scene::repairing(4).repair(0, 11, "plain").repair(1, 12, "plain").repair_starts(), [0]);
}

#[test]
fn i3_a_repair_that_is_starting_occupies_its_slot() {
    let mut scene = Scene::repairing(2).repair(0, 11, "plain").repair(1, 12, "plain");
    let flight = InFlight {
        what: "repairing".to_owned(),
        entry: Some(EntryId::repair(0)),
        starts: true,
        patches_node: false,
        upkeep: None,
        evictions: std::collections::BTreeMap::new(),
        attempt: None,
        since: BOOT,
    };
    scene.snap.in_flight.insert("10.0.0.11".to_owned(), flight);
    assert!(scene.repair_starts().is_empty());
    assert!(matches!(scene.repair_reason(1), Reason::WaitingForSlot { .. }));
}

#[test]
fn i30_repairs_in_backoff_are_skipped_and_occupy_no_slot() {
    let backing = |left: i64| {
        Scene::repairing(2)
            .repair(0, 11, "drain")
            .repair(1, 12, "plain")
            .at_step(0, 0, StepStatus::Waiting, 50)
            .change_repair(0, |e| (e.drain_backoff_count, e.drain_backoff_expire) = (2, Some(after(now(), left))))
    };
    assert_eq!(backing(100).repair_starts(), [1]);
    assert!(matches!(backing(100).repair_reason(0), Reason::Backoff { count: 2, .. }));
    assert_eq!(backing(-1).repair_starts(), [0], "after its backoff a processing entry starts before queued ones");
    assert_eq!(backing(100).order_repair(0, Verb::Force, 1).repair_starts(), [0], "a forced entry does not wait");
}

#[test]
fn i4_the_repair_queue_processes_one_entry_per_machine() {
    let scene = Scene::repairing(2).repair(0, 11, "plain").repair(1, 11, "two").repairs_at_once(5);
    assert_eq!(scene.repair_starts(), [0]);
    assert_eq!(scene.repair_reason(1), Reason::DuplicateOf { index: 0 });
    // An earlier entry in backoff does not hold back a later one; then the earlier one waits.
    let later = scene.watching(1, 0, 5, ok()).at_step(0, 0, StepStatus::Waiting, 5);
    assert!(later.repair_starts().is_empty());
    assert_eq!(later.repair_reason(0), Reason::DuplicateOf { index: 1 });
}

#[test]
fn i43_a_rebooting_machine_is_not_repaired_but_others_are() {
    for status in [Draining, Rebooting] {
        let scene = Scene::repairing(2)
            .entry(0, 11, status, 5)
            .cordoned(11, 0)
            .repair(4, 11, "plain")
            .repair(5, 12, "plain")
            .repairs_at_once(5);
        assert_eq!(scene.repair_starts(), [5]);
        assert_eq!(scene.repair_reason(4), Reason::MachineInReboot { entry: EntryId::reboot(0) });
    }
}

#[test]
fn i43_a_starting_repair_blocks_only_reboots_of_its_own_machine() {
    let scene = Scene::repairing(3)
        .with(|s| s.cluster.reboot.max_concurrent_reboots = Some(5))
        .queued(&[(0, 11), (1, 12)])
        .repair(4, 11, "plain");
    assert_eq!(scene.repair_starts(), [4]);
    assert_eq!(scene.starts().iter().filter(|i| **i != 4).copied().collect::<Vec<_>>(), [1]);
    assert_eq!(scene.reason(0), Reason::MachineInRepair { entry: EntryId::repair(4) });
}

#[test]
fn i1_both_queues_together_process_one_api_server_at_a_time() {
    let two = Scene::repairing(0).repair(0, 1, "plain").repair(1, 2, "plain").repairs_at_once(5);
    assert_eq!(two.repair_starts(), [0]);
    assert_eq!(two.repair_reason(1), Reason::WaitingForControlPlane { other: "10.0.0.1".to_owned() });
    let rebooting = Scene::repairing(0).rebooting(0, 1, 5, ok()).repair(1, 2, "plain");
    assert!(rebooting.repair_starts().is_empty());
    assert_eq!(rebooting.repair_reason(1), Reason::WaitingForControlPlane { other: "10.0.0.1".to_owned() });
    let repaired = Scene::repairing(0).queued(&[(0, 1)]).repair(1, 2, "plain").watching(1, 0, 5, ok());
    assert!(repaired.starts().is_empty(), "an API server under repair counts as in progress");
    assert_eq!(repaired.reason(0), Reason::WaitingForControlPlane { other: "10.0.0.2".to_owned() });
    // Both could start in the same pass.
    let both = Scene::repairing(0).queued(&[(0, 1)]).repair(1, 2, "plain");
    assert_eq!(both.decide().effects.iter().filter(|p| p.effect.starts()).count(), 1);
}

#[test]
fn api_servers_are_repaired_concurrently_with_other_machines() {
    let scene =
        Scene::repairing(2).entry(0, 11, Rebooting, 5).repair(1, 1, "plain").repair(2, 12, "plain").repairs_at_once(5);
    assert_eq!(scene.repair_starts(), [1, 2]);
    // An API server in reboot holds back API servers only.
    let scene = Scene::repairing(2).rebooting(0, 1, 5, ok()).repair(1, 11, "plain");
    assert_eq!(scene.repair_starts(), [1]);
}

#[test]
fn i7_while_an_api_server_fails_only_that_one_is_repaired() {
    let ill = |scene: Scene, last: u8| {
        scene.with(|s| {
            let probe = s.snap.probes.get_mut(Scene::address(last).as_str()).unwrap();
            (probe.error, probe.good_since) = (Some("connection refused".to_owned()), None);
        })
    };
    let scene = || Scene::repairing(1).repair(0, 1, "plain").repair(1, 11, "plain").repairs_at_once(5);
    assert_eq!(ill(scene(), 2).repair_starts(), [1], "a failing API server does not hold back workers");
    let reason = ill(scene(), 2).repair_reason(0);
    assert!(matches!(&reason, Reason::ControlPlaneUnhealthy { node, .. } if node == "10.0.0.2"), "{reason:?}");
    assert_eq!(ill(scene(), 1).repair_starts(), [0, 1], "the failing API server may be repaired");
    assert_eq!(ill(ill(scene(), 1), 2).repair_starts(), [0, 1], "with two failing, either may be repaired");
    assert_eq!(scene().node(1, |n| n.ready = false).repair_starts(), [0, 1]);
    assert_eq!(scene().node(2, |n| n.ready = false).repair_starts(), [1]);
    // A server that was not probed yet is known to be neither down nor healthy.
    let unasked = scene().with(|s| drop(s.snap.probes.remove("10.0.0.1")));
    assert_eq!(unasked.repair_starts(), [1]);
}

#[test]
fn i5_unknown_types_and_operations_are_reported_and_occupy_no_slot() {
    let scene = Scene::repairing(2)
        .repair(0, 11, "nope")
        .repair(1, 12, "plain")
        .change_repair(1, |e| e.machine_type = "other".to_owned())
        .repair(2, 13, "plain")
        .broken_repair(3)
        .repair(4, 12, "plain")
        .change_repair(4, |e| e.address = Address::new("rack 4"));
    assert_eq!(scene.repair_starts(), [2]);
    let why = |index: u64| match scene.repair_reason(index) {
        Reason::InvalidEntry { why } => why,
        other => panic!("{index}: {other:?}"),
    };
    assert!(why(0).contains("nope") && why(0).contains("two, drain, success, plain"), "{}", why(0));
    assert!(why(1).contains("other") && why(1).contains("known types: t"), "{}", why(1));
    assert!(why(3).contains("not JSON") && why(4).contains("rack 4"));
    assert!(!scene.asked().iter().any(|i| [0, 1, 3, 4].contains(i)));
    // An entry in progress whose operation is gone takes no slot either. Its drain backs off, so its node is
    // uncordoned.
    let gone = Scene::repairing(2).repair(0, 11, "nope").repair_drains(0, 11, 0, 5).repair(1, 12, "plain");
    assert_eq!(gone.repair_starts(), [1]);
    assert!(matches!(gone.repairs(0), Some(Effect::BackOff { .. })));
}

#[test]
fn deleted_repairs_are_removed_even_while_disabled_or_without_a_definition() {
    let mut scene = Scene::repairing(4)
        .repair(0, 11, "plain")
        .repair(1, 12, "plain")
        .repair(2, 13, "nope")
        .repair(3, 14, "drain")
        .watching(0, 0, 5, None)
        .change_repair(1, |e| e.status = RepairStatus::Failed)
        .repair_drains(3, 14, 0, 5)
        .repairs_disabled();
    for index in 0..4 {
        scene = scene.change_repair(index, |e| e.deleted = true);
        assert_eq!(scene.repair_ends(index), Some(End::Deleted), "{index}");
    }
    let mut snap = scene.snapshot();
    std::sync::Arc::make_mut(&mut snap.store).cluster = None;
    let now = cketerm_model::clock::Now { boot: BOOT, wall: now() };
    let removed = crate::decide::decide(&snap, now).effects;
    assert_eq!(removed.iter().filter(|p| matches!(p.effect, Effect::Remove { .. })).count(), 4);
}

#[test]
fn finished_repairs_stay_in_the_queue_unchecked_and_block_nothing() {
    let scene = Scene::repairing(2)
        .repair(0, 11, "plain")
        .repair(1, 11, "plain")
        .change_repair(0, |e| e.status = RepairStatus::Failed)
        .health(0, CheckAnswer::Yes);
    assert_eq!(scene.repairs(0).map(|e| e.as_str()), None);
    assert_eq!(scene.repair_starts(), [1]);
    assert_eq!(scene.decide().reasons.get(&EntryId::repair(0)), None);
}

#[test]
fn a_disabled_repair_queue_starts_no_eviction_and_no_command() {
    let scene = Scene::repairing(2).repair(0, 11, "plain").repair(1, 12, "drain").repairs_at_once(5).repairs_disabled();
    assert!(scene.repair_starts().is_empty());
    assert_eq!(scene.repair_reason(0), Reason::QueueDisabled);
    // The reboot queue has a switch of its own.
    assert_eq!(Scene::repairing(2).repair(0, 11, "plain").disabled().repair_starts(), [0]);
}

#[test]
fn a_repair_on_hold_does_not_start_and_blocks_no_other() {
    let scene = Scene::repairing(2).repair(0, 11, "plain").repair(1, 12, "plain").order_repair(0, Verb::Hold, 1);
    assert_eq!(scene.repair_starts(), [1]);
    assert!(matches!(scene.repair_reason(0), Reason::OnHold { .. }));
}

#[test]
fn no_repair_starts_before_a_failed_health_check() {
    let scene = |answer| Scene::repairing(1).repair(0, 11, "plain").health(0, answer);
    assert_eq!(scene(no()).repair_starts(), [0]);
    assert!(scene(CheckAnswer::Unavailable("exit 127".to_owned())).repair_starts().is_empty());
    let unasked = Scene::repairing(1).repair(0, 11, "plain").repair_work(0, |w| w.check = None);
    assert!(unasked.repair_starts().is_empty());
    assert_eq!(unasked.asked(), [0]);
}

#[test]
fn i26_repairs_skip_mismatched_nodes_and_proceed_without_a_node() {
    let scene = || Scene::repairing(1).repair(0, 11, "drain");
    let wrong = scene().node(11, |n| n.addresses = vec![Address::new("10.0.0.77")]);
    assert!(wrong.repair_starts().is_empty());
    assert!(matches!(wrong.repair_reason(0), Reason::NodeMismatch { .. }));
    let gone = scene().with(|s| s.kube.remove_node(&NodeName::new("10.0.0.11")));
    assert_eq!(gone.command_of(0).map(|a| a.argv.clone()), Some(vec!["swap".to_owned(), "10.0.0.11".to_owned()]));
}

#[test]
fn only_repairs_of_cluster_members_wait_for_kubernetes() {
    let deaf = |last: u8| {
        Scene::repairing(1)
            .repair(0, last, "drain")
            .with(|s| s.kube.sources.get_mut("nodes").unwrap().fresh_as_of = BOOT - Seconds::new(11.0))
    };
    assert_eq!(deaf(OUTSIDE).repair_starts(), [0]);
    assert!(deaf(11).repair_starts().is_empty());
    assert!(matches!(deaf(11).repair_reason(0), Reason::Stale { .. }));
}

#[test]
fn unreachable_nodes_do_not_block_repairs() {
    let scene = Scene::repairing(3).repair(0, 11, "plain").node(11, |n| n.ready = false).node(12, |n| n.ready = false);
    assert_eq!(scene.repair_starts(), [0]);
}

#[test]
fn a_missing_program_blocks_only_the_repairs_that_need_it() {
    let scene = Scene::repairing(2)
        .repair(0, 11, "drain")
        .repair(1, 12, "plain")
        .repairs_at_once(5)
        .with(|s| s.snap.engine.missing_programs = vec!["swap".to_owned()]);
    assert_eq!(scene.repair_starts(), [1]);
    assert_eq!(scene.repair_reason(0), Reason::ProgramMissing { path: "swap".to_owned() });
}

#[test]
fn i27_the_command_of_a_deleted_repair_keeps_its_slot_while_it_may_run() {
    let scene = Scene::repairing(2)
        .repair(0, 11, "plain")
        .watching(0, 0, 2, None)
        .repair(1, 11, "plain")
        .repair(2, 12, "plain")
        .with(|s| {
            drop(s.store.repairs.entries.remove(&0));
            s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(5.0);
        })
        .queued(&[(0, 11)]);
    assert!(scene.repair_starts().is_empty(), "the only slot is taken");
    assert!(matches!(scene.repair_reason(1), Reason::OrphanedCordon { .. }));
    assert!(scene.starts().is_empty(), "the machine is not rebooted either");
    let later = scene.with(|s| s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(1000.0));
    assert_eq!(later.repair_starts(), [1]);
}

#[test]
fn i32_every_unfinished_entry_has_a_reason() {
    let mut scene = Scene::repairing(8).repairs_at_once(3);
    let steps = [
        (0, StepStatus::Waiting),
        (0, StepStatus::Draining),
        (0, StepStatus::Watching),
        (1, StepStatus::Waiting),
        (1, StepStatus::Draining),
        (1, StepStatus::Watching),
        (7, StepStatus::Watching),
    ];
    for (index, (step, status)) in (0..).zip(steps) {
        scene = scene.repair(index, 11 + u8::try_from(index).unwrap(), "two").at_step(index, step, status, 20);
    }
    scene = scene.repair(7, OUTSIDE, "plain").broken_repair(8).repair(9, 1, "nope");
    for leads in [true, false] {
        let scene = if leads { scene.clone() } else { scene.clone().with(|s| s.snap.engine.leading = None) };
        for index in 0..10 {
            scene.repair_reason(index);
        }
    }
}

#[test]
fn the_phase_uses_the_name_that_cke_uses() {
    assert_eq!(Scene::repairing(1).repair(0, 11, "plain").queued(&[(0, 11)]).decide().phase, "repair-machines");
    let finished = Scene::repairing(1).repair(0, 11, "plain").change_repair(0, |e| e.status = RepairStatus::Succeeded);
    assert_eq!(finished.clone().queued(&[(0, 11)]).decide().phase, "reboot-nodes");
    assert_eq!(finished.decide().phase, "completed");
}

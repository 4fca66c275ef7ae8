//! Health checks, the success command, the end, and cordons of repairs (REP-29 to REP-39, SAF-31, SAF-35; I36, I40).

use cketerm_model::{
    attempt::{CheckAnswer, Ended},
    boot_time::Seconds,
    cketerm_records::Verb,
    entry::EntryId,
    reason::{Awaited, Reason},
    repair::StepStatus,
    time::after,
};

use super::{
    repair_scene::{OUTSIDE, no},
    scene::{BOOT, LEASE, Scene, now},
};
use crate::{
    decide::{Effect, End},
    snapshot::InFlight,
};

#[allow(clippy::unnecessary_wraps)] // as the scene wants it
fn ok() -> Option<Ended> {
    Some(Ended::Exit(0))
}

fn release(scene: &Scene, last: u8) -> Option<(bool, Option<EntryId>)> {
    scene.decide().effects.into_iter().find_map(|p| match p.effect {
        Effect::Release { node, uncordon, settle, .. } if node.name == Scene::address(last).as_str() => {
            Some((uncordon, settle))
        }
        _ => None,
    })
}

fn flight(scene: &mut Scene, index: u64, age: f64) {
    let flight = InFlight {
        what: "checking health".to_owned(),
        entry: Some(EntryId::repair(index)),
        starts: false,
        patches_node: false,
        upkeep: None,
        evictions: std::collections::BTreeMap::new(),
        attempt: None,
        since: BOOT - Seconds::new(age),
    };
    scene.snap.in_flight.insert(format!("health of repairs/{index}"), flight);
}

#[test]
fn i40_a_healthy_repair_succeeds_in_any_state_even_while_disabled() {
    let queued = Scene::repairing(1).repair(0, 11, "plain");
    let draining = Scene::repairing(1).repair(0, 11, "drain").repair_drains(0, 11, 0, 5);
    let watching = Scene::repairing(1).repair(0, OUTSIDE, "plain").watching(0, 0, 5, ok());
    let failing =
        Scene::repairing(1).repair(0, OUTSIDE, "plain").watching(0, 0, 5, Some(Ended::Unknown("?".to_owned())));
    for scene in [Box::new(queued), Box::new(draining), Box::new(watching), Box::new(failing)] {
        for scene in [Scene::clone(&scene), scene.repairs_disabled()] {
            assert_eq!(scene.health(0, CheckAnswer::Yes).repair_ends(0), Some(End::Healthy));
        }
    }
    assert_eq!(Scene::repairing(1).repair(0, 11, "plain").health(0, no()).repair_ends(0), None);
}

#[test]
fn i40_the_success_command_runs_once_and_decides_the_result() {
    let healthy = || Scene::repairing(1).repair(0, 11, "success").health(0, CheckAnswer::Yes);
    for scene in [healthy(), healthy().repairs_disabled()] {
        let attempt = scene.command_of(0).unwrap();
        assert_eq!(attempt.argv, ["done", "well", "10.0.0.11"]);
        assert_eq!((attempt.success, attempt.bound_seconds), (true, 9));
        assert!(scene.repair_starts().is_empty());
    }
    let ended = |end: Ended| healthy().success(0, 1, LEASE, Some(end));
    assert_eq!(ended(Ended::Exit(0)).repair_ends(0), Some(End::Healthy));
    assert_eq!(
        ended(Ended::Exit(0)).health(0, no()).repair_ends(0),
        Some(End::Healthy),
        "the health at the time of the success command counts"
    );
    for end in [Ended::Exit(1), Ended::TimedOut(9), Ended::Signal(9)] {
        let why = ended(end.clone()).repair_ends(0);
        assert!(matches!(&why, Some(End::Failed(text)) if text.contains(&end.to_string())), "{end}: {why:?}");
        assert!(ended(end).command_of(0).is_none(), "the success command runs at most once");
    }
    assert!(
        ended(Ended::Withheld("late".to_owned())).command_of(0).is_some(),
        "a withheld success command did not run"
    );
}

#[test]
fn i40_a_success_command_of_a_dead_leader_needs_an_operator() {
    let scene = |since: f64| {
        Scene::repairing(1).repair(0, 11, "success").success(0, 1, 3, None).health(0, CheckAnswer::Yes).with(|s| {
            s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(since);
        })
    };
    assert!(matches!(scene(10.0).repair_reason(0), Reason::OutcomeUnknown { until: Some(_), .. }));
    let unknown = scene(200.0);
    assert_eq!(unknown.repairs(0).map(|e| e.as_str()), None, "neither rerun nor succeeded");
    assert!(matches!(unknown.repair_reason(0), Reason::OutcomeUnknown { until: None, .. }));
    let retried = unknown.clone().order_repair(0, Verb::Retry, 10).command_of(0).unwrap();
    assert!(retried.success && retried.ordered_by.is_some());
    assert!(matches!(unknown.order_repair(0, Verb::Done, 10).repair_ends(0), Some(End::DoneBy(_))));
}

#[test]
fn i40_done_after_a_success_command_of_unknown_outcome_waits_until_the_node_is_ready() {
    let draining = Scene::repairing(1).repair(0, 11, "success").repair_drains(0, 11, 0, 5);
    let unknown = draining.success(0, 1, LEASE, Some(Ended::Unknown("killed".to_owned()))).health(0, CheckAnswer::Yes);
    assert!(matches!(unknown.repair_reason(0), Reason::OutcomeUnknown { until: None, .. }));
    assert!(unknown.snapshot().store.success_unknown(EntryId::repair(0)), "an operator may order");
    assert!(unknown.clone().order_repair(0, Verb::Retry, 10).command_of(0).unwrap().success);
    let done = unknown.order_repair(0, Verb::Done, 10);
    assert!(matches!(done.repair_ends(0), Some(End::DoneBy(_))));
    let away = done.node(11, |node| node.ready = false);
    assert_eq!(away.repair_ends(0), None);
    assert!(matches!(away.repair_reason(0), Reason::WaitingForHealth { awaited: Awaited::NodeReady, .. }));
}

#[test]
fn i25_a_success_command_waits_for_a_dead_leaders_command_of_another_entry_on_its_machine() {
    let scene = |since: f64, last: u8| {
        Scene::repairing(2)
            .repair(0, 11, "success")
            .success(0, 1, 3, None)
            .repair(1, last, "success")
            .health(1, CheckAnswer::Yes)
            .with(|s| s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(since))
    };
    let waits = scene(10.0, 11);
    assert!(waits.command_of(1).is_none());
    assert!(matches!(waits.repair_reason(1), Reason::OutcomeUnknown { until: Some(_), .. }));
    assert!(scene(200.0, 11).command_of(1).is_some(), "the other command cannot run any more");
    assert!(scene(10.0, 12).command_of(1).is_some(), "another machine");
}

#[test]
fn done_ends_a_repair_as_healthy_once_its_node_is_ready() {
    let scene = Scene::repairing(1).repair(0, 11, "plain").watching(0, 0, 5, ok()).order_repair(0, Verb::Done, 10);
    assert!(matches!(scene.repair_ends(0), Some(End::DoneBy(_))));
    let down = scene.node(11, |n| n.ready = false);
    assert_eq!(down.repair_ends(0), None);
    let outside =
        Scene::repairing(1).repair(0, OUTSIDE, "plain").watching(0, 0, 5, ok()).order_repair(0, Verb::Done, 10);
    assert!(matches!(outside.repair_ends(0), Some(End::DoneBy(_))), "no Node to wait for");
    let success = Scene::repairing(1).repair(0, 11, "success").order_repair(0, Verb::Done, 10);
    let Some(Effect::RunAgain { attempt, order: Some(_), .. }) = success.repairs(0) else { panic!() };
    assert!(attempt.success, "the success command runs and consumes the order");
}

#[test]
fn an_api_server_repair_ends_once_healthy_ready_and_settled() {
    let healthy = || Scene::repairing(0).repair(0, 1, "plain").watching(0, 0, 5, ok()).health(0, CheckAnswer::Yes);
    assert_eq!(healthy().repair_ends(0), Some(End::Healthy), "no new boot id is required");
    let young = healthy().repair_work(0, |w| w.recovered_since = Some(BOOT - Seconds::new(59.0)));
    assert_eq!(young.repair_ends(0), None);
    assert!(matches!(young.repair_reason(0), Reason::Settling { until: Some(_), .. }));
    let missing = healthy().repair_work(0, |w| w.recovered_since = None);
    assert_eq!(missing.repair_ends(0), None);
    // whatever the time is for which it must settle
    let at_once = |scene: Scene| scene.with(|s| s.policy.settle_seconds = 0);
    assert_eq!(at_once(healthy()).repair_ends(0), Some(End::Healthy));
    let away = healthy().node(1, |node| node.ready = false).repair_work(0, |w| w.recovered_since = None);
    for away in [at_once(away.clone()), away] {
        assert_eq!(away.repair_ends(0), None);
        let Reason::Settling { until: None, missing, .. } = away.repair_reason(0) else {
            panic!("{:?}", away.repair_reason(0))
        };
        assert_eq!(missing, "the Node is not Ready");
    }
    // A machine that is healthy but not settled causes no further step.
    let long = Scene::repairing(0)
        .repair(0, 1, "two")
        .watching(0, 0, 5000, ok())
        .health(0, CheckAnswer::Yes)
        .repair_work(0, |w| w.recovered_since = None);
    assert_eq!(long.repairs(0).map(|e| e.as_str()), None);
    // A failed repair ends at once.
    let failed = Scene::repairing(0).repair(0, 1, "plain").watching(0, 0, 5, Some(Ended::Exit(1)));
    assert!(matches!(failed.repair_ends(0), Some(End::Failed(_))));
}

#[test]
fn at_most_32_health_checks_run_concurrently_oldest_first() {
    let mut scene = Scene::repairing(0).repairs_disabled();
    for index in 0..40 {
        let ago = if index < 20 { 6.0 } else { 60.0 };
        scene = scene
            .repair(index, OUTSIDE, "plain")
            .repair_work(index, |w| w.check = Some((BOOT - Seconds::new(ago), no())));
    }
    let asked = scene.asked();
    assert_eq!(asked.len(), 32);
    assert!((20..40).all(|i| asked.contains(&i)), "the oldest checks are repeated first: {asked:?}");
    for index in 0..30 {
        flight(&mut scene, index, 0.5);
    }
    assert_eq!(scene.asked().len(), 2, "30 checks are in progress");
    // Waiting entries are checked 5 s after the last answer, watched ones every second.
    let scene = |ago: f64| {
        Scene::repairing(0)
            .repair(0, OUTSIDE, "plain")
            .repair_work(0, |w| w.check = Some((BOOT - Seconds::new(ago), no())))
    };
    assert!(scene(4.0).repairs_disabled().asked().is_empty() && scene(5.0).repairs_disabled().asked() == [0]);
    assert_eq!(scene(1.5).watching(0, 0, 5, ok()).asked(), [0]);
}

#[test]
fn the_health_check_gets_the_address_and_its_own_timeout() {
    let scene = Scene::repairing(0).repair(0, OUTSIDE, "plain").repair_work(0, |w| w.check = None);
    let check = scene.decide().effects.into_iter().find_map(|p| match p.effect {
        Effect::HealthCheck { argv, bound, .. } => Some((p.machine, argv, bound)),
        _ => None,
    });
    let argv = ["health", "-v", "10.0.0.99"].map(str::to_owned).to_vec();
    assert_eq!(check, Some(("health of repairs/0".to_owned(), argv, 3)));
}

#[test]
fn i36_hung_health_checks_delay_only_their_own_entries() {
    let mut scene = Scene::repairing(1).repairs_at_once(99);
    for index in 0..60 {
        scene = scene.repair(index, OUTSIDE, "plain").repair_work(index, |w| w.check = None);
    }
    for index in 0..50 {
        flight(&mut scene, index, 20.0);
    }
    assert_eq!(scene.asked(), (50..60).collect::<Vec<_>>(), "slow checks leave room for others");
    // A slow check delays neither the drain of its machine nor another entry of the machine.
    let mut scene = Scene::repairing(1).repair(0, 11, "drain").repair_drains(0, 11, 0, 5).pod(11, "web", |_| ());
    flight(&mut scene, 0, 20.0);
    assert!(matches!(scene.repairs(0), Some(Effect::Preview { .. })));
    let mut scene = Scene::repairing(1).repair(0, 11, "plain").health(0, no()).repairs_disabled().queued(&[(0, 11)]);
    flight(&mut scene, 0, 20.0);
    assert_eq!(scene.starts(), [0]);
}

#[test]
fn a_resigning_leader_checks_health_only_of_started_repairs() {
    let scene = Scene::repairing(2)
        .repair(0, 11, "plain")
        .repair(1, 12, "plain")
        .watching(0, 0, 5, ok())
        .repair_work(0, |w| w.check = None)
        .repair_work(1, |w| w.check = None)
        .with(|s| s.snap.engine.resigning = Some("a CKE waits".to_owned()));
    assert_eq!(scene.asked(), [0]);
}

#[test]
fn i10_a_node_is_uncordoned_when_its_repair_ended_or_backed_off() {
    let node = |status: &dyn Fn(Scene) -> Scene| {
        status(Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 5, ok()).cordoned_for(11, 0))
    };
    assert_eq!(release(&node(&|s| s), 11), None, "a watched step keeps the cordon");
    assert_eq!(
        release(&node(&Scene::repairs_disabled), 11),
        None,
        "the cordon stays even if the queue is disabled (I13)"
    );
    let ended = node(&|s| s.change_repair(0, |e| e.status = cketerm_model::repair::RepairStatus::Failed));
    assert_eq!(release(&ended, 11), Some((true, None)));
    let backed = node(&|s| {
        s.at_step(0, 1, StepStatus::Waiting, 1).change_repair(0, |e| e.drain_backoff_expire = Some(after(now(), 300)))
    });
    assert_eq!(release(&backed, 11), Some((true, None)), "the attempts keep the count of tries");
    let api_server = Scene::repairing(1)
        .repair(0, 1, "two")
        .watching(0, 0, 5, ok())
        .cordoned_for(1, 0)
        .change_repair(0, |e| e.status = cketerm_model::repair::RepairStatus::Failed);
    assert_eq!(release(&api_server, 1), Some((true, None)), "a failed entry ends at once, also on an API server");
    let before = node(&|s| s.change_repair(0, |e| e.status = cketerm_model::repair::RepairStatus::Failed))
        .owner(11, |o| o.schedulable_before = false);
    assert_eq!(release(&before, 11), Some((false, None)), "an administrator's cordon from before stays (I11)");
}

#[test]
fn i14_after_done_of_a_repair_the_node_is_uncordoned_once_ready_and_idle() {
    let attempt_ended = |end: Option<Ended>, ago: f64| {
        let scene = Scene::repairing(1).repair(0, 11, "plain").watching(0, 0, 60, end).cordoned_for(11, 0);
        scene.with(|s| {
            s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(ago);
            let attempt = s.store.attempts.get_mut(&(EntryId::repair(0), 1)).unwrap();
            let attempt = std::sync::Arc::make_mut(attempt.value.as_mut().unwrap());
            (attempt.done_by, attempt.lease) = (Some("alice@here".to_owned()), 3);
        })
    };
    let finished = |scene: Scene| scene.change_repair(0, |e| e.status = cketerm_model::repair::RepairStatus::Succeeded);
    let ended = || finished(attempt_ended(ok(), 1.0));
    assert_eq!(release(&ended(), 11), Some((true, None)));
    let down = ended().node(11, |n| n.ready = false);
    assert_eq!(release(&down, 11), None);
    assert!(matches!(down.decide().orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert_eq!(release(&finished(attempt_ended(None, 1.0)), 11), None, "the command may still run");
    assert_eq!(
        release(&finished(attempt_ended(None, 101.0)), 11),
        Some((true, None)),
        "the command's bound has passed"
    );
    // The entry itself ends at once.
    let asked = attempt_ended(None, 1.0).order_repair(0, Verb::Done, 10);
    assert!(matches!(asked.repairs(0), Some(Effect::Finish { end: End::DoneBy(_), running: true, .. })));
    assert!(asked.node(11, |n| n.ready = false).repairs(0).is_none(), "its Node must be Ready");
    assert!(!matches!(attempt_ended(None, 1.0).repairs(0), Some(Effect::Finish { .. })));
}

/// A cordon that was made while the Node reported an empty boot id has no boot id. Any other id then proves no reboot.
#[test]
fn i14_an_empty_boot_id_never_proves_a_reboot_of_a_deleted_repair() {
    let orphan = Scene::repairing(1)
        .repair(0, 11, "plain")
        .watching(0, 0, 60, ok())
        .cordoned_for(11, 0)
        .owner(11, |o| o.boot_id = String::new())
        .with(|s| drop(s.store.repairs.entries.remove(&0)))
        .repair_work(0, |w| w.check = None);
    assert_eq!(release(&orphan, 11), None, "the Node is Ready, but it may not have rebooted yet");
    assert_eq!(release(&orphan.health(0, CheckAnswer::Yes), 11), Some((true, Some(EntryId::repair(0)))));
}

#[test]
fn i10_a_deleted_repair_keeps_its_cordon_until_healthy_or_rebooted() {
    let orphan = || {
        Scene::repairing(1)
            .repair(0, 11, "plain")
            .watching(0, 0, 60, ok())
            .cordoned_for(11, 0)
            .with(|s| drop(s.store.repairs.entries.remove(&0)))
            .repair_work(0, |w| w.check = None)
    };
    assert_eq!((release(&orphan(), 11), orphan().asked()), (None, vec![0]));
    let named = orphan().decide().orphans;
    assert!(
        matches!(named.get("10.0.0.11"), Some(Reason::OrphanedCordon { entry, .. }) if *entry == EntryId::repair(0))
    );
    assert_eq!(release(&orphan().health(0, no()), 11), None);
    let settled = Some((true, Some(EntryId::repair(0))));
    assert_eq!(release(&orphan().health(0, CheckAnswer::Yes), 11), settled);
    let down = orphan().health(0, CheckAnswer::Yes).node(11, |n| n.ready = false);
    assert_eq!(release(&down, 11), None, "not Ready");
    assert_eq!(release(&orphan().booted(11), 11), settled, "a new boot id and Ready");
    let person = orphan().order_repair(0, Verb::Uncordon, 0);
    assert_eq!(release(&person, 11), settled);
    // The machine was not changed, so the entry is deleted at once.
    let untouched = Scene::repairing(1)
        .repair(0, 11, "drain")
        .repair_drains(0, 11, 0, 5)
        .with(|s| drop(s.store.repairs.entries.remove(&0)));
    assert_eq!(release(&untouched, 11), settled);
}

#[test]
fn i23_a_new_leader_records_its_lease_on_nodes_of_repairs_it_takes_over() {
    let scene = Scene::repairing(1)
        .repair(0, 11, "plain")
        .watching(0, 0, 5, ok())
        .cordoned_for(11, 0)
        .owner(11, |o| o.lease = 3);
    let Some(Effect::Stamp { owner, cordon: false, .. }) = scene.repairs(0) else { panic!("{:?}", scene.repairs(0)) };
    assert_eq!((owner.lease, owner.entry), (LEASE, EntryId::repair(0)));
}

#[test]
fn the_last_check_after_the_watch_is_sent_at_once_and_only_once() {
    let watched = |ago: f64| {
        let scene = Scene::repairing(1).repair(0, OUTSIDE, "two").watching(0, 0, 70, ok()).repairs_disabled();
        scene.repair_work(0, |w| w.check = Some((BOOT - Seconds::new(ago), no())))
    };
    assert!(watched(0.5).asked().is_empty(), "the watch of 60 s ended 10 s ago, the check after that");
    assert_eq!(watched(10.5).asked(), [0]);
}

/// The drain was before the repair command. A success command follows no drain.
#[test]
fn a_success_command_records_no_start_of_a_drain() {
    let healthy = Scene::repairing(1).repair(0, 11, "success").watching(0, 0, 5, ok()).health(0, CheckAnswer::Yes);
    let healthy = healthy.with(|s| {
        let stored = s.store.attempts.get_mut(&(EntryId::repair(0), 1)).unwrap();
        std::sync::Arc::make_mut(stored.value.as_mut().unwrap()).drain_start = Some(after(now(), -90));
    });
    let attempt = healthy.command_of(0).unwrap();
    assert_eq!((attempt.success, attempt.drain_start), (true, None));
}

#[test]
fn a_repair_past_its_last_step_fails_once_its_backoff_is_over() {
    let past = |left: i64| {
        Scene::repairing(1).repair(0, 11, "plain").change_repair(0, |e| {
            (e.step, e.drain_backoff_count, e.drain_backoff_expire) = (1, 1, Some(after(now(), left)));
        })
    };
    assert!(matches!(past(0).repair_ends(0), Some(End::Failed(_))));
    assert_eq!(past(1).repair_ends(0), None);
}

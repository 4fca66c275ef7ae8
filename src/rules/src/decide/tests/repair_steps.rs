//! Steps of a repair in order: drain, command, watch, next step (REP-21 to REP-28).

use cketerm_model::{
    any::QueueEntry,
    attempt::{CheckAnswer, Ended},
    boot_time::Seconds,
    cketerm_records::Verb,
    clock::Now,
    entry::{EntryId, QueueKind},
    kube::DaemonSetRow,
    names::{Address, NodeName},
    reason::{Awaited, Reason},
    repair::{RepairEntry, RepairStatus, StepStatus},
    time::after,
};

use super::{
    repair_scene::{OUTSIDE, no},
    scene::{BOOT, LEASE, Scene, controlled, now},
};
use crate::{
    decide::{Effect, End, backoff_seconds},
    memory,
    snapshot::{EffectOutcome, FreshRead},
};

#[allow(clippy::unnecessary_wraps)] // as the scene wants it
fn ok() -> Option<Ended> {
    Some(Ended::Exit(0))
}

/// Returns the entry that would be written, and its step status.
fn written(effect: Option<Effect>) -> (RepairEntry, &'static str) {
    let repair = |entry| match entry {
        QueueEntry::Repair(entry) => entry,
        QueueEntry::Reboot(_) | QueueEntry::Maintenance(_) => panic!("not a repair"),
    };
    match effect {
        Some(Effect::StartDrain { entry, .. }) => (repair(entry.draining(now())), "drain"),
        Some(Effect::Power { entry, .. }) => (repair(entry.commanded(now())), "command"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_with_need_drain_drains_only_cluster_members() {
    let (entry, how) = written(Scene::repairing(1).repair(0, 11, "drain").repairs(0));
    assert_eq!((how, entry.status, entry.step_status), ("drain", RepairStatus::Processing, StepStatus::Draining));
    let (entry, how) = written(Scene::repairing(1).repair(0, OUTSIDE, "drain").repairs(0));
    assert_eq!((how, entry.status, entry.step_status), ("command", RepairStatus::Processing, StepStatus::Watching));
    let (_, how) = written(Scene::repairing(1).repair(0, 11, "plain").repairs(0));
    assert_eq!(how, "command", "the step requires no drain");
}

#[test]
fn every_transition_sets_nodename_from_the_definition() {
    let named = |scene: Scene| written(scene.repairs(0)).0.nodename;
    let wrong = |s: Scene| s.change_repair(0, |e| e.nodename = NodeName::new("old-name"));
    assert_eq!(named(wrong(Scene::repairing(1).repair(0, 11, "drain"))), "10.0.0.11");
    assert_eq!(named(wrong(Scene::repairing(1).repair(0, OUTSIDE, "drain"))), "");
}

#[test]
fn i26_each_command_gets_its_machines_address_and_its_steps_timeout() {
    for last in [11, 12, OUTSIDE] {
        let attempt = Scene::repairing(2).repair(0, last, "plain").command_of(0).unwrap();
        assert_eq!(attempt.argv, ["fix".to_owned(), Scene::address(last)]);
        assert_eq!((attempt.step, attempt.success, attempt.bound_seconds), (Some(0), false, 30), "30 s by default");
        assert_eq!((attempt.machine_type.as_deref(), attempt.operation.as_deref()), (Some("t"), Some("plain")));
    }
    let zero = Scene::repairing(1).repair(0, 11, "plain").with(|s| {
        let procedure = &mut s.cluster.repair.repair_procedures.as_mut().unwrap()[0];
        let step = &mut procedure.repair_operations.as_mut().unwrap()[3].repair_steps.as_mut().unwrap()[0];
        step.command_timeout_seconds = Some(0);
    });
    assert_eq!(zero.command_of(0).unwrap().bound_seconds, 3600, "0 means no limit, so the policy's cap applies");
}

#[test]
fn a_drained_or_non_member_machine_runs_the_repair_command() {
    let drained = Scene::repairing(1).repair(0, 11, "drain").repair_drains(0, 11, 0, 5);
    let Some(Effect::Power { fresh: Some(FreshRead { pods: Some(_), .. }), on_delete, .. }) = drained.repairs(0) else {
        panic!("{:?}", drained.repairs(0))
    };
    assert!(on_delete.is_empty());
    let busy = drained.clone().pod(11, "web", |_| ());
    assert!(matches!(busy.repairs(0), Some(Effect::Preview { .. })), "the drain previews the pod on the node");
    let removed = busy.clone().with(|s| s.cluster.nodes.retain(|n| n.address != "10.0.0.11"));
    assert!(matches!(removed.repairs(0), Some(Effect::Power { fresh: None, .. })), "the machine is no longer a member");
    let gone = busy.with(|s| s.kube.remove_node(&NodeName::new("10.0.0.11")));
    assert!(matches!(gone.repairs(0), Some(Effect::Power { fresh: None, .. })), "its Node is gone");
}

#[test]
fn i18_a_repairs_drain_follows_the_rules_of_the_repair_section() {
    let job = |scene: Scene| scene.pod(11, "batch", |p| p.controller = controlled("Job", "nightly"));
    let scene = job(Scene::repairing(1).repair(0, 11, "drain").repair_drains(0, 11, 0, 5));
    let Some(Effect::BackOff { cause: Reason::BlockedByJob { .. }, .. }) = scene.repairs(0) else { panic!() };
    let free = scene.with(|s| {
        let selector = serde_json::from_value(serde_json::json!({"matchLabels": {"keep": "yes"}})).unwrap();
        s.cluster.repair.protected_job_pods = Some(selector);
    });
    assert!(matches!(free.repairs(0), Some(Effect::Evict { delete, .. }) if delete.len() == 1));
}

#[test]
fn a_repair_drain_backs_off_on_timeout_or_when_the_queue_is_disabled() {
    let draining = |age: i64| {
        Scene::repairing(1).repair(0, 11, "drain").repair_drains(0, 11, 0, age).pod(11, "web", |_| ()).repair_work(
            0,
            |w| {
                w.drain.accepted = true;
            },
        )
    };
    assert!(matches!(draining(599).repairs(0), Some(Effect::Evict { .. })), "600 s by default");
    assert!(matches!(draining(601).repairs(0), Some(Effect::BackOff { .. })));
    let short = draining(20).with(|s| s.cluster.repair.eviction_timeout_seconds = Some(10));
    assert!(matches!(short.repairs(0), Some(Effect::BackOff { .. })), "the repair section's own timeout");
    let disabled = draining(5).repairs_disabled();
    let Some(Effect::BackOff { entry, cause: Reason::QueueDisabled }) = disabled.repairs(0) else { panic!() };
    let QueueEntry::Repair(back) = entry.backed_off(1, 300, now()) else { panic!() };
    assert_eq!((back.status, back.step_status), (RepairStatus::Processing, StepStatus::Waiting));
    assert_eq!((back.drain_backoff_count, back.drain_backoff_expire), (1, Some(after(now(), 300))));
}

#[test]
fn i34_the_repair_backoff_grows_with_its_count_and_never_overflows() {
    for (count, most) in [(1_i64, 300), (2, 600), (10, 3000), (1_000_000, 300_000_000)] {
        assert_eq!(backoff_seconds(QueueKind::Repair, count, 0), 300);
        assert_eq!(backoff_seconds(QueueKind::Repair, count, most - 1), 300 + i64::try_from(most).unwrap() - 1);
        assert_eq!(backoff_seconds(QueueKind::Repair, count, most), 300, "random is below 300 × count");
    }
    for count in [i64::MIN, -1, 0, i64::MAX] {
        assert!(backoff_seconds(QueueKind::Repair, count, u64::MAX) >= 300);
    }
    let last = QueueEntry::Repair(RepairEntry::queued(0, &Address::new("10.0.0.11"), "t", "o", None)).backed_off(
        i64::MAX,
        i64::MAX,
        now(),
    );
    assert_eq!(last.backoff_count(), i64::MAX);
}

#[test]
fn i41_an_unhealthy_machine_enters_the_next_step_in_one_write() {
    let scene = |age: i64| Scene::repairing(1).repair(0, 11, "two").watching(0, 0, age, ok());
    assert_eq!(scene(59).repairs(0).map(|e| e.as_str()), None, "the step is watched for 60 s");
    let until = Some(after(now(), 1));
    assert_eq!(
        scene(59).repair_reason(0),
        Reason::WaitingForHealth { step: 0, until, last: "false".to_owned(), awaited: Awaited::Check }
    );
    let (entry, how) = written(scene(61).repairs(0));
    assert_eq!((how, entry.step, entry.step_status), ("drain", 1, StepStatus::Draining));
    let (entry, how) = written(scene(61).change_repair(0, |e| e.address = Address::new("10.0.0.99")).repairs(0));
    assert_eq!(
        (how, entry.step, entry.step_status),
        ("command", 1, StepStatus::Watching),
        "a machine outside the cluster skips the drain"
    );
}

#[test]
fn a_watched_repair_reports_a_host_held_off_or_its_power_error() {
    use cketerm_model::host::{HostRow, RebootAnnotations};
    let host = HostRow {
        name: "10.0.0.11".to_owned(),
        online: true,
        provisioning: "provisioned".to_owned(),
        ..HostRow::default()
    };
    let watched = |host: &HostRow| {
        let scene = Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 30, ok()).with(|s| {
            s.kube.hosts.insert((String::new(), host.name.clone()), std::sync::Arc::new(host.clone()));
        });
        scene.repair_reason(0)
    };
    assert!(matches!(watched(&host), Reason::WaitingForHealth { .. }), "the host has no error");
    let keys = [("fencer".to_owned(), String::new())].into();
    let held = HostRow { asked: RebootAnnotations { base: None, keys }, ..host.clone() };
    assert_eq!(watched(&held), Reason::HeldByOtherKey { keys: vec!["fencer".to_owned()] });
    let broken = HostRow { error_type: "power management error".to_owned(), error: "no answer".to_owned(), ..host };
    assert_eq!(watched(&broken), Reason::PowerError { text: "no answer".to_owned() });
}

#[test]
fn watch_seconds_begin_when_the_command_has_ended() {
    let scene = Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 50, ok()).change_repair(0, |e| {
        e.last_transition_time = Some(after(now(), -500));
    });
    assert!(matches!(scene.repair_reason(0), Reason::WaitingForHealth { until: Some(u), .. } if u == after(now(), 10)));
}

#[test]
fn the_health_check_runs_once_more_after_watch_seconds() {
    let scene = Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 61, ok());
    let before = scene.clone().repair_work(0, |w| w.check = Some((BOOT - Seconds::new(1.5), no())));
    assert_eq!((before.repairs(0).map(|e| e.as_str()), before.asked()), (None, vec![0]));
    let after = scene.repair_work(0, |w| w.check = Some((BOOT - Seconds::new(0.5), no())));
    assert!(after.repairs(0).is_some());
}

#[test]
fn a_check_that_began_within_the_watch_does_not_advance_the_repair() {
    // the watch was over 1 s ago; this check hung while the machine booted, and timed out just now
    let scene = Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 61, ok());
    let checked = |seconds: f64| {
        let asked = BOOT - Seconds::new(seconds);
        let check = Effect::HealthCheck { argv: Vec::new(), bound: 30, asked };
        let answer = EffectOutcome::Check(CheckAnswer::TimedOut(30));
        scene.clone().with(|scene| {
            memory::remember(
                &mut scene.snap.work,
                EntryId::repair(0),
                &check,
                &answer,
                Now { boot: BOOT, wall: now() },
            );
        })
    };
    let hung = checked(30.0);
    assert_eq!((hung.repairs(0).map(|e| e.as_str()), hung.asked()), (None, vec![0]), "it is checked once more");
    assert!(checked(0.5).repairs(0).is_some());
}

#[test]
fn a_watched_repair_whose_check_cannot_be_sent_says_so() {
    let missing = |scene: Scene| {
        scene.repair_work(0, |w| w.check = None).with(|s| s.snap.engine.missing_programs = vec!["health".to_owned()])
    };
    let watched = missing(Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 61, ok()));
    let failed = Scene::repairing(1).repair(0, 11, "two").at_step(0, 1, StepStatus::Watching, 60);
    let failed = missing(failed.tried(0, 1, 1, LEASE, 10, Some(Ended::Exit(3))));
    for scene in [watched, failed] {
        assert_eq!(scene.repair_reason(0), Reason::ProgramMissing { path: "health".to_owned() });
    }
}

#[test]
fn an_unavailable_health_check_does_not_advance_the_repair() {
    let scene = Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 1000, ok());
    let unavailable = scene.clone().health(0, CheckAnswer::Unavailable("exit 127".to_owned()));
    assert_eq!(unavailable.repairs(0).map(|e| e.as_str()), None);
    assert!(matches!(unavailable.repair_reason(0), Reason::CheckUnavailable { .. }));
    let unasked = scene.repair_work(0, |w| w.check = None);
    assert_eq!((unasked.repairs(0).map(|e| e.as_str()), unasked.asked()), (None, vec![0]));
}

#[test]
fn i41_a_repair_fails_after_its_last_step_and_a_disabled_queue_advances_none() {
    let last = Scene::repairing(1).repair(0, 11, "two").watching(0, 1, 121, ok());
    for scene in [last.clone(), last.repairs_disabled()] {
        assert!(matches!(scene.repair_ends(0), Some(End::Failed(_))));
    }
    let first = Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 1000, ok()).repairs_disabled();
    assert_eq!(first.repairs(0).map(|e| e.as_str()), None);
    assert_eq!(first.repair_reason(0), Reason::QueueDisabled);
    // A definition that lost steps.
    for status in [StepStatus::Waiting, StepStatus::Draining, StepStatus::Watching] {
        let shrunk = Scene::repairing(1).repair(0, 11, "plain").at_step(0, 1, status, 5).repairs_disabled();
        assert!(matches!(shrunk.repair_ends(0), Some(End::Failed(_))), "{status}");
    }
}

#[test]
fn a_command_that_fails_after_its_retries_ends_the_repair_as_failed() {
    let tried = |number: u32, end: Ended| {
        let scene = Scene::repairing(1).repair(0, 11, "two").at_step(0, 1, StepStatus::Watching, 60);
        (1..=number).fold(scene.cordoned_for(11, 0), |s, n| s.tried(0, n, 1, LEASE, 10, Some(end.clone())))
    };
    for end in [Ended::Exit(3), Ended::TimedOut(7), Ended::Signal(9), Ended::NotStarted("gone".to_owned())] {
        let again = tried(1, end.clone());
        let attempt = again.command_of(0).unwrap_or_else(|| panic!("{end}: one retry is left"));
        assert_eq!((attempt.number, attempt.step, attempt.bound_seconds), (2, Some(1), 7));
        assert!(
            matches!(tried(2, end.clone()).repair_ends(0), Some(End::Failed(why)) if why.contains("step 2")),
            "{end}"
        );
    }
    // The first step has no retries.
    let first = Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 10, Some(Ended::Exit(1)));
    assert!(matches!(first.repair_ends(0), Some(End::Failed(_))));
}

#[test]
fn retries_wait_for_command_interval_and_for_an_enabled_queue() {
    let scene = |ago: i64| {
        Scene::repairing(1).repair(0, 11, "two").at_step(0, 1, StepStatus::Watching, 60).cordoned_for(11, 0).tried(
            0,
            1,
            1,
            LEASE,
            ago,
            Some(Ended::Exit(3)),
        )
    };
    assert!(scene(4).command_of(0).is_none() && scene(5).command_of(0).is_some());
    assert!(matches!(scene(4).repair_reason(0), Reason::CommandFailed { .. }));
    let disabled = scene(60).repairs_disabled();
    assert_eq!(disabled.repairs(0).map(|e| e.as_str()), None, "neither run nor failed");
    assert!(matches!(disabled.repair_reason(0), Reason::CommandFailed { .. }));
}

#[test]
fn i25_tries_count_per_step_across_leaders_without_withheld_attempts() {
    let scene = |n: u32, end: Ended| {
        let scene = Scene::repairing(1)
            .repair(0, 11, "two")
            .at_step(0, 1, StepStatus::Watching, 60)
            .cordoned_for(11, 0)
            .tried(0, 1, 0, 3, 300, ok());
        (2..=n).fold(scene, |s, n| s.tried(0, n, 1, i64::from(n), 60, Some(end.clone())))
    };
    assert_eq!(
        scene(2, Ended::Exit(1)).command_of(0).map(|a| a.number),
        Some(3),
        "tries of the first step do not count"
    );
    assert!(scene(3, Ended::Exit(1)).command_of(0).is_none(), "tries of other leaders count");
    assert!(scene(5, Ended::Withheld("late".to_owned())).command_of(0).is_some());
}

/// An earlier step changed the machine, so its node stays claimed between steps.
#[test]
fn i8_a_withheld_command_reverts_a_repair_only_before_its_first_step() {
    let late = || Some(Ended::Withheld("the policy has changed meanwhile".to_owned()));
    let second = Scene::repairing(1)
        .repair(0, 11, "two")
        .at_step(0, 1, StepStatus::Watching, 60)
        .cordoned_for(11, 0)
        .tried(0, 1, 0, 3, 300, ok())
        .tried(0, 2, 1, 3, 60, late())
        .repairs_disabled();
    assert_eq!(second.repairs(0).map(|e| e.as_str()), None, "the node stays claimed while the entry waits");
    let first = Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 60, late()).repairs_disabled();
    assert_eq!(first.repairs(0).map(|e| e.as_str()), Some("unwinding"));
}

#[test]
fn i25_a_dead_leaders_repair_command_is_awaited_then_unknown() {
    let scene = |since: f64| {
        Scene::repairing(1).repair(0, 11, "two").watching(0, 0, 500, None).with(|s| {
            s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(since);
        })
    };
    // TTL + TTL/12 + the command's bound.
    for young in [1.0, 94.0] {
        let running = scene(young).health(0, CheckAnswer::Yes);
        assert_eq!(
            running.repairs(0).map(|e| e.as_str()),
            None,
            "no command and no end while the command may still run"
        );
        assert!(matches!(running.repair_reason(0), Reason::OutcomeUnknown { until: Some(_), .. }));
    }
    let unknown = scene(101.0);
    assert_eq!(unknown.repairs(0).map(|e| e.as_str()), None, "neither a second run nor the next step");
    assert!(matches!(unknown.repair_reason(0), Reason::OutcomeUnknown { until: None, attempt: Some(_) }));
    assert_eq!(unknown.clone().repair_work(0, |w| w.check = Some((BOOT - Seconds::new(6.0), no()))).asked(), [0]);
    assert_eq!(unknown.clone().health(0, CheckAnswer::Yes).repair_ends(0), Some(End::Healthy));
    let retried = unknown.clone().order_repair(0, Verb::Retry, 10).command_of(0).unwrap();
    assert_eq!((retried.number, retried.step, retried.ordered_by.is_some()), (2, Some(0), true));
    assert!(matches!(unknown.clone().order_repair(0, Verb::Done, 10).repair_ends(0), Some(End::DoneBy(_))));
    assert!(
        unknown.order_repair(0, Verb::Retry, 9).command_of(0).is_none(),
        "the order is for another state of the entry"
    );
}

#[test]
fn a_watched_repair_without_an_attempt_was_started_by_another_program() {
    let scene = Scene::repairing(1).repair(0, 11, "two").at_step(0, 0, StepStatus::Watching, 5000);
    assert_eq!(scene.repairs(0).map(|e| e.as_str()), None);
    assert_eq!(scene.repair_reason(0), Reason::OutcomeUnknown { attempt: None, until: None });
    assert_eq!(scene.health(0, CheckAnswer::Yes).repair_ends(0), Some(End::Healthy));
}

#[test]
fn no_other_effect_is_planned_while_the_repair_command_runs() {
    let scene = Scene::repairing(1).repair(0, 11, "plain").watching(0, 0, 100, None).with(|s| {
        let flight = crate::snapshot::InFlight {
            what: "repairing".to_owned(),
            entry: None,
            starts: false,
            patches_node: false,
            upkeep: None,
            evictions: std::collections::BTreeMap::new(),
            attempt: Some("repairs-0-1".to_owned()),
            since: BOOT - Seconds::new(100.0),
        };
        s.snap.in_flight.insert("10.0.0.11".to_owned(), flight);
    });
    assert!(matches!(scene.repair_reason(0), Reason::CommandRunning { .. }));
    assert!(scene.asked().is_empty() && scene.repairs(0).is_none());
}

#[test]
fn force_skips_pods_and_volumes_of_a_repair_drain() {
    let scene = Scene::repairing(1)
        .repair(0, 11, "drain")
        .repair_drains(0, 11, 0, 5)
        .pod(11, "web", |_| ())
        .node(11, |n| n.volumes_in_use = vec!["v".to_owned()])
        .order_repair(0, Verb::Force, 1);
    let Some(Effect::Power { force: Some(_), attempt, .. }) = scene.repairs(0) else { panic!() };
    assert!(attempt.forced);
}

#[test]
fn i07_every_command_needs_the_other_control_planes_healthy() {
    let scene = Scene::repairing(0).repair(0, 1, "two").watching(0, 0, 100, ok()).node(2, |n| n.ready = false);
    // The drain of the next step may begin, its command may not.
    let drained = scene.repair_drains(0, 1, 1, 5);
    assert!(matches!(drained.repair_reason(0), Reason::ControlPlaneUnhealthy { .. }));
    assert!(drained.command_of(0).is_none());
    assert!(drained.node(1, |n| n.ready = false).command_of(0).is_some(), "the repaired API server itself is down");
}

/// A reboot restarts the pods of these DaemonSets, so they are deleted with it (REB-34). A repair leaves them.
#[test]
fn only_a_reboot_deletes_the_pods_of_daemon_sets_that_are_updated_on_delete() {
    let on_delete = |s: &mut Scene| {
        let row = DaemonSetRow {
            namespace: "kube-system".to_owned(),
            name: "agent".to_owned(),
            uid: "uid-agent".to_owned(),
            on_delete: true,
        };
        s.kube.daemon_sets.insert(row.uid.clone(), row.into());
    };
    let repair = Scene::repairing(1).repair(0, 11, "drain").repair_drains(0, 11, 0, 5).with(on_delete);
    assert!(matches!(repair.repairs(0), Some(Effect::Power { on_delete, .. }) if on_delete.is_empty()));
    assert_eq!(repair.repair_reason(0), Reason::Working { phase: "running the repair command".to_owned() });
    let reboot = Scene::new(1).draining(0, 11, 5).with(on_delete);
    assert!(matches!(reboot.effect(0), Some(Effect::Power { on_delete, .. }) if on_delete == ["uid-agent"]));
    assert_eq!(reboot.reason(0), Reason::Working { phase: "drained, rebooting".to_owned() });
}

#[test]
fn a_repair_command_without_an_interval_is_retried_at_once() {
    let failed = Scene::repairing(1).repair(0, 11, "plain").watching(0, 0, 0, Some(Ended::Exit(1))).with(|s| {
        let procedure = &mut s.cluster.repair.repair_procedures.as_mut().unwrap()[0];
        let step = &mut procedure.repair_operations.as_mut().unwrap()[3].repair_steps.as_mut().unwrap()[0];
        step.command_retries = Some(1);
    });
    assert!(matches!(failed.repairs(0), Some(Effect::RunAgain { .. })), "{:?}", failed.repair_reason(0));
}

//! Reboots from the power command to the end.

use cketerm_model::{
    attempt::{CheckAnswer, Ended},
    boot_time::Seconds,
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    host::{HostRow, RebootAnnotations},
    names::{Address, NodeName},
    policy::WorkerCompletion,
    reason::Reason,
    reboot::RebootStatus::Rebooting,
};

use super::scene::{BOOT, LEASE, Scene};
use crate::{
    decide::{Effect, End},
    snapshot::InFlight,
};

#[allow(clippy::unnecessary_wraps)] // as the field has it
fn failed() -> Option<Ended> {
    Some(Ended::Exit(1))
}

#[allow(clippy::unnecessary_wraps)] // as the field has it
fn ok() -> Option<Ended> {
    Some(Ended::Exit(0))
}

#[test]
fn a_successful_boot_check_removes_the_entry_even_while_disabled() {
    let scene = Scene::new(1).rebooting(0, 11, 30, ok()).checked(0, CheckAnswer::Yes, Some(0.0));
    assert_eq!(scene.ends(0), Some(End::Booted));
    assert_eq!(scene.disabled().ends(0), Some(End::Booted));
}

#[test]
fn i37_the_boot_check_gets_the_address_and_the_unix_time_of_the_transition() {
    let scene = Scene::new(1).rebooting(0, 11, 30, ok());
    let Some(Effect::BootCheck { argv, .. }) = scene.effect(0) else { panic!() };
    let since = scene.store.reboots.entries[&0].get().unwrap().last_transition_time.unwrap();
    assert_eq!(argv, ["check".to_owned(), "10.0.0.11".to_owned(), since.as_second().to_string()]);
}

#[test]
fn a_boot_check_without_an_answer_changes_nothing() {
    let scene =
        Scene::new(1).rebooting(0, 11, 30, ok()).checked(0, CheckAnswer::Unavailable("exit 127".to_owned()), None);
    assert_eq!(scene.ends(0), None);
    assert_eq!(scene.reason(0), Reason::CheckUnavailable { why: "exit 127".to_owned() });
}

#[test]
fn policy_boot_id_also_requires_a_new_boot_id_and_ready() {
    let scene = Scene::new(1)
        .rebooting(0, 11, 30, ok())
        .checked(0, CheckAnswer::Yes, Some(0.0))
        .with(|s| s.policy.worker_completion = WorkerCompletion::BootId);
    assert_eq!(scene.ends(0), None);
    assert_eq!(scene.booted(11).ends(0), Some(End::Booted));
}

#[test]
fn i14_an_api_server_ends_after_check_boot_id_ready_and_settle_time() {
    let scene = |ready_for| Scene::new(0).rebooting(0, 1, 300, ok()).checked(0, CheckAnswer::Yes, Some(ready_for));
    assert_eq!(scene(61.0).ends(0), None, "the boot id has not changed");
    assert_eq!(scene(59.0).booted(1).ends(0), None);
    assert!(matches!(scene(59.0).booted(1).reason(0), Reason::Settling { until: Some(_), .. }));
    assert_eq!(scene(61.0).booted(1).ends(0), Some(End::Booted));
    assert_eq!(scene(61.0).booted(1).node(1, |n| n.ready = false).ends(0), None);
    let silent =
        scene(61.0).booted(1).with(|s| s.snap.probes.get_mut("10.0.0.1").unwrap().error = Some("refused".to_owned()));
    assert_eq!(silent.ends(0), None);
}

#[test]
fn i25_a_failed_command_is_retried_exactly_command_retries_times() {
    let scene = Scene::new(1).with(|s| {
        s.cluster.reboot.command_retries = Some(1);
        s.cluster.reboot.command_interval = Some(20);
    });
    let young = scene.clone().rebooting(0, 11, 10, failed());
    assert_eq!(young.does(0), Some("checking boot"), "the interval has not passed");
    let unasked = scene.clone().rebooting(0, 11, 30, failed());
    assert_eq!(unasked.does(0), Some("checking boot"), "the machine may have rebooted anyway");
    let due = scene.rebooting(0, 11, 30, failed()).checked(0, CheckAnswer::No("down".to_owned()), None);
    let Some(Effect::RunAgain { attempt, order: None, fresh: Some(_), .. }) = due.effect(0) else {
        panic!("the Node is read before the command: {:?}", due.effect(0))
    };
    let first = due.store.attempts_of(EntryId::reboot(0)).find_map(Stored::get).and_then(|a| a.drain_start);
    assert!(first.is_some() && attempt.drain_start == first, "the drain was before the first try");
    assert_eq!((attempt.number, attempt.boot_id.as_deref()), (2, Some("before")));
    assert_eq!(
        due.clone().checked(0, CheckAnswer::Yes, Some(0.0)).ends(0),
        Some(End::Booted),
        "a successful boot check prevents a retry"
    );
    let spent = due.clone().attempt(0, 11, 2, LEASE, 25, failed());
    assert!(!matches!(spent.effect(0), Some(Effect::RunAgain { .. })));
    let withheld = due.attempt(0, 11, 2, LEASE, 25, Some(Ended::Withheld("cancelled".to_owned())));
    assert!(matches!(withheld.effect(0), Some(Effect::RunAgain { .. })), "a withheld command does not count as a try");
    let at_once = scene_of_a_withheld_command();
    assert!(!matches!(at_once.effect(0), Some(Effect::RunAgain { .. })), "but it is not retried at once");
    let slow = Scene::new(1).with(|s| s.cluster.reboot.command_interval = Some(600));
    let soon = slow.rebooting(0, 11, 6, Some(Ended::Withheld("the lease ran out".to_owned())));
    assert!(matches!(soon.effect(0), Some(Effect::RunAgain { .. })), "the interval applies only to commands that ran");
    assert!(matches!(
        spent.checked(0, CheckAnswer::No("down".to_owned()), None).reason(0),
        Reason::CommandFailed { .. }
    ));
}

#[test]
fn i25_an_attempt_of_a_dead_leader_is_awaited_and_never_rerun() {
    let scene = |since| {
        Scene::new(1)
            .with(|s| s.cluster.reboot.command_retries = Some(3))
            .rebooting(0, 11, 30, None)
            .attempt(0, 11, 1, 3, 30, None)
            .checked(0, CheckAnswer::Yes, Some(0.0))
            .with(|s| s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(since))
    };
    // TTL 60 + TTL/12 + the command's bound of 30 + the time for killing its process group.
    let waiting = scene(94.0);
    assert_eq!(waiting.does(0), None, "no command, check or end");
    assert!(matches!(waiting.reason(0), Reason::OutcomeUnknown { until: Some(_), .. }));
    let over = scene(101.0);
    assert_eq!(over.ends(0), Some(End::Booted), "the boot check decides");
    let no = scene(101.0).checked(0, CheckAnswer::No("false".to_owned()), None);
    assert!(matches!(no.reason(0), Reason::OutcomeUnknown { attempt: Some(_), until: None }));
    assert!(!matches!(no.effect(0), Some(Effect::RunAgain { .. })));
}

#[test]
fn a_rebooting_entry_without_an_attempt_was_started_by_another_program() {
    let scene =
        Scene::new(1).entry(0, 11, Rebooting, 30).cordoned(11, 0).checked(0, CheckAnswer::No("false".to_owned()), None);
    assert_eq!(scene.reason(0), Reason::OutcomeUnknown { attempt: None, until: None });
    assert_eq!(scene.checked(0, CheckAnswer::Yes, Some(0.0)).ends(0), Some(End::Booted));
}

/// The command of entry 0 runs.
fn running(scene: Scene) -> Scene {
    scene.with(|s| {
        let in_flight = InFlight {
            what: "rebooting".to_owned(),
            entry: None,
            starts: false,
            patches_node: false,
            upkeep: None,
            evictions: std::collections::BTreeMap::new(),
            attempt: Some("reboots-0-1".to_owned()),
            since: BOOT,
        };
        s.snap.in_flight.insert("10.0.0.11".to_owned(), in_flight);
    })
}

#[test]
fn no_other_effect_is_planned_while_the_reboot_command_runs() {
    let scene = running(Scene::new(1).rebooting(0, 11, 5, None).checked(0, CheckAnswer::Yes, Some(0.0)));
    assert_eq!(scene.does(0), None);
    assert!(matches!(scene.reason(0), Reason::CommandRunning { .. }));
}

#[test]
fn an_operators_retry_runs_the_command_once_more() {
    let scene = Scene::new(1).rebooting(0, 11, 30, failed()).order(0, Verb::Retry, 10);
    let Some(Effect::RunAgain { attempt, order: Some(_), .. }) = scene.effect(0) else { panic!() };
    assert!(attempt.ordered_by.unwrap().contains("T-1"));
    let stale = Scene::new(1).rebooting(0, 11, 30, failed()).order(0, Verb::Retry, 9);
    assert_eq!(stale.does(0), Some("checking boot"));
}

#[test]
fn i7_an_api_server_command_is_retried_only_if_the_others_are_healthy() {
    let scene = Scene::new(0).rebooting(0, 1, 30, failed()).order(0, Verb::Retry, 10);
    assert!(matches!(scene.effect(0), Some(Effect::RunAgain { .. })));
    let other = scene.node(2, |n| n.ready = false);
    assert!(!matches!(other.effect(0), Some(Effect::RunAgain { .. })));
    assert!(matches!(other.reason(0), Reason::ControlPlaneUnhealthy { node, .. } if node == "10.0.0.2"));
    let down = other.node(1, |n| n.ready = false);
    assert!(matches!(down.effect(0), Some(Effect::RunAgain { .. })));
}

#[test]
fn done_ends_a_reboot_as_booted_once_its_node_is_ready() {
    let scene = Scene::new(1).rebooting(0, 11, 30, failed()).order(0, Verb::Done, 10);
    assert!(matches!(scene.ends(0), Some(End::DoneBy(_))));
    // Ready is read again right before the end: the watch may be silent while the Node is down.
    assert!(matches!(scene.effect(0), Some(Effect::Remove { ready: Some(_), .. })));
    assert_eq!(scene.node(11, |n| n.ready = false).ends(0), None);
}

#[test]
fn done_ends_a_dead_leaders_command_at_once_but_awaits_our_own() {
    let dead = Scene::new(1)
        .rebooting(0, 11, 30, None)
        .attempt(0, 11, 1, 3, 30, None)
        .with(|s| s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(1.0))
        .order(0, Verb::Done, 10);
    let Some(Effect::Remove { end: End::DoneBy(_), ready: Some(_), running: true }) = dead.effect(0) else {
        panic!("{:?}", dead.effect(0))
    };
    assert_eq!(dead.node(11, |n| n.ready = false).ends(0), None, "its Node must be Ready");
    let ours = running(Scene::new(1).rebooting(0, 11, 30, None).order(0, Verb::Done, 10));
    assert_eq!(ours.ends(0), None);
    let over = Scene::new(1).rebooting(0, 11, 30, failed()).order(0, Verb::Done, 10);
    assert!(matches!(over.effect(0), Some(Effect::Remove { running: false, .. })));
}

/// With an unconditional write, ckecli restores an entry beside the attempts that an earlier entry with its index left.
#[test]
fn i25_an_attempt_marked_done_is_not_retried_automatically() {
    let scene = Scene::new(1)
        .with(|s| s.cluster.reboot.command_retries = Some(1))
        .rebooting(0, 11, 30, failed())
        .checked(0, CheckAnswer::No("down".to_owned()), None);
    assert!(matches!(scene.effect(0), Some(Effect::RunAgain { .. })));
    let left = scene.called_done(0, 1);
    assert!(!matches!(left.effect(0), Some(Effect::RunAgain { .. })));
    assert!(matches!(left.reason(0), Reason::CommandFailed { .. }));
}

#[test]
fn a_replaced_ready_node_with_the_same_address_ends_the_entry() {
    let scene = Scene::new(1).rebooting(0, 11, 30, ok()).node(11, |n| {
        n.uid = "new".to_owned();
        n.owner = None;
        n.cke_mark = false;
    });
    assert_eq!(scene.ends(0), Some(End::Replaced));
}

#[test]
fn i35_a_reboot_longer_than_30_minutes_is_reported_stuck_and_not_repeated() {
    let scene = Scene::new(1).rebooting(0, 11, 1801, ok()).checked(0, CheckAnswer::No("false".to_owned()), None);
    assert!(matches!(scene.reason(0), Reason::WaitingForBoot { stuck: true, .. }));
    assert!(!matches!(scene.effect(0), Some(Effect::RunAgain { .. })));
}

#[test]
fn i27_a_cancel_removes_the_entry_even_while_its_command_runs() {
    let scene = Scene::new(1)
        .entry(0, 11, cketerm_model::reboot::RebootStatus::Cancelled, 5)
        .cordoned(11, 0)
        .attempt(0, 11, 1, LEASE, 5, None)
        .with(|s| {
            let in_flight = InFlight {
                what: "rebooting".to_owned(),
                entry: None,
                starts: false,
                patches_node: false,
                upkeep: None,
                evictions: std::collections::BTreeMap::new(),
                attempt: Some("reboots-0-1".to_owned()),
                since: BOOT,
            };
            s.snap.in_flight.insert("10.0.0.11".to_owned(), in_flight);
        });
    assert_eq!(scene.ends(0), Some(End::Cancelled));
}

#[test]
fn i13_a_disabled_queue_retries_no_command_but_continues_the_boot_check() {
    let scene = Scene::new(1)
        .with(|s| s.cluster.reboot.command_retries = Some(3))
        .rebooting(0, 11, 30, failed())
        .checked(0, CheckAnswer::No("down".to_owned()), None);
    assert_eq!(scene.does(0), Some("rebooting"));
    assert_ne!(scene.clone().disabled().does(0), Some("rebooting"));
    assert_eq!(scene.disabled().checked(0, CheckAnswer::Yes, Some(0.0)).ends(0), Some(End::Booted));
    let ordered = Scene::new(1).rebooting(0, 11, 30, failed()).order(0, Verb::Retry, 10).disabled();
    assert_eq!(ordered.reason(0), Reason::QueueDisabled);
    assert_eq!(ordered.does(0), Some("checking boot"), "a waiting order does not stop the boot check");
    assert_eq!(ordered.checked(0, CheckAnswer::Yes, Some(0.0)).ends(0), Some(End::Booted));
}

#[test]
fn i16_the_command_is_not_retried_on_an_uncordoned_node() {
    let scene =
        Scene::new(1).rebooting(0, 11, 30, failed()).order(0, Verb::Retry, 10).node(11, |n| n.unschedulable = false);
    assert!(!matches!(scene.effect(0), Some(Effect::RunAgain { .. })));
    assert!(matches!(scene.reason(0), Reason::UncordonedByOther { .. }));
}

#[test]
fn i10_a_reboot_started_by_cke_is_completed_without_an_orphaned_cordon() {
    let scene = Scene::new(1)
        .entry(0, 11, Rebooting, 30)
        .cordoned(11, 0)
        .owner(11, |o| o.taken_over_rebooting = true)
        .checked(0, CheckAnswer::Yes, Some(0.0));
    let Some(Effect::Stamp { owner, cordon: false, .. }) = scene.effect(0) else { panic!() };
    assert!(!owner.taken_over_rebooting);
    assert_eq!(scene.owner(11, |o| o.taken_over_rebooting = false).ends(0), Some(End::Booted));
}

/// Another entry may have rebooted the machine before the withheld command.
#[test]
fn i14_the_previous_boot_id_is_that_of_the_first_command_that_began() {
    let withheld = Ended::Withheld("the cluster definition has changed meanwhile".to_owned());
    let tried = Scene::new(1).rebooting(0, 11, 30, Some(withheld.clone())).booted(11);
    let Some(Effect::RunAgain { attempt, .. }) = tried.effect(0) else { panic!("{:?}", tried.effect(0)) };
    assert_eq!((attempt.number, attempt.boot_id.as_deref()), (2, Some("after")));
    // Cancelled after that second command: the Node must have yet another boot id.
    let orphan = |id: &'static str| {
        let scene = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, LEASE, 60, Some(withheld.clone()));
        let scene = scene.attempt(0, 11, 2, LEASE, 30, Some(Ended::Exit(0))).with(|s| {
            let stored = s.store.attempts.get_mut(&(EntryId::reboot(0), 2)).unwrap();
            let mut attempt = stored.get().unwrap().clone();
            attempt.boot_id = Some("after".to_owned());
            stored.value = Ok(attempt.into());
        });
        scene.node(11, move |n| n.boot_id = id.to_owned()).decide().orphans.contains_key("10.0.0.11")
    };
    assert!(orphan("after"));
    assert!(!orphan("third"));
}

/// A failed command may have rebooted its machine, and the next one again. A boot id that differs from the first one's
/// is not enough, nor is one that was reported by a Node that was not Ready.
#[test]
fn i14_after_a_cancel_the_boot_id_must_differ_from_every_commands() {
    let orphan = |id: &'static str, not_ready: bool, check: Option<CheckAnswer>| {
        let scene = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(255)));
        let scene = scene.attempt(0, 11, 2, LEASE, 30, Some(Ended::Exit(0))).with(|s| {
            let stored = s.store.attempts.get_mut(&(EntryId::reboot(0), 2)).unwrap();
            let mut attempt = stored.get().unwrap().clone();
            (attempt.boot_id, attempt.not_ready) = (Some("after".to_owned()), not_ready);
            stored.value = Ok(attempt.into());
        });
        let scene = match check {
            Some(answer) => scene.checked(0, answer, None),
            None => scene,
        };
        scene.node(11, move |n| n.boot_id = id.to_owned()).decide().orphans.contains_key("10.0.0.11")
    };
    assert!(
        orphan("before", false, None) && orphan("after", false, None),
        "one of the two reboots may still be in progress"
    );
    assert!(!orphan("third", false, None));
    assert!(orphan("third", true, None), "the third may be old: the boot check must confirm the reboot");
    assert!(!orphan("third", true, Some(CheckAnswer::Yes)));
}

fn scene_of_a_withheld_command() -> Scene {
    Scene::new(1).rebooting(0, 11, 3, Some(Ended::Withheld("the lease ran out".to_owned())))
}

/// The BareMetalHost of 10.0.0.11, known by its Node's name only.
fn host() -> HostRow {
    HostRow {
        namespace: "metal3".to_owned(),
        name: "10.0.0.11".to_owned(),
        online: true,
        provisioning: "provisioned".to_owned(),
        powered_on: Some(false),
        ..HostRow::default()
    }
}

#[test]
fn a_host_held_off_or_with_a_power_error_is_the_reason_for_not_booting() {
    let with = |scene: Scene, host: HostRow| {
        scene.with(|s| {
            s.kube.hosts.insert((host.namespace.clone(), host.name.clone()), std::sync::Arc::new(host.clone()));
        })
    };
    let waits = || Scene::new(2).rebooting(0, 11, 300, ok()).checked(0, CheckAnswer::No("false".to_owned()), None);
    let held = || {
        let keys = [("a".to_owned(), String::new()), ("cketerm-fence".to_owned(), String::new())].into();
        HostRow { asked: RebootAnnotations { base: None, keys }, ..host() }
    };
    assert!(matches!(with(waits(), host()).reason(0), Reason::WaitingForBoot { .. }), "the host has no error");
    let keys = Reason::HeldByOtherKey { keys: vec!["a".to_owned(), "cketerm-fence".to_owned()] };
    assert_eq!(with(waits(), held()).reason(0), keys);
    let commanded = running(Scene::new(2).rebooting(0, 11, 300, None));
    assert_eq!(with(commanded, held()).reason(0), keys, "the command waits for the host");
    let broken = || HostRow {
        error_type: "power management error".to_owned(),
        error: "BMC https://bmc does not answer".to_owned(),
        ..held()
    };
    let error = Reason::PowerError { text: "BMC https://bmc does not answer".to_owned() };
    assert!(error.attention() > cketerm_model::reason::Attention::None);
    assert_eq!(with(waits(), broken()).reason(0), error);
    let other = HostRow { name: "10.0.0.12".to_owned(), ..broken() };
    assert!(matches!(with(waits(), other).reason(0), Reason::WaitingForBoot { .. }), "the error is another machine's");
    let second = Address::new("192.168.0.11");
    let by_address = HostRow { name: "bm-7".to_owned(), addresses: vec![second.clone()], ..broken() };
    let two_addresses = waits().node(11, |n| n.addresses.push(second));
    assert_eq!(with(two_addresses, by_address).reason(0), error, "the host has another address of the Node");
    let elsewhere = HostRow { hostname: "10.0.0.11".to_owned(), node: NodeName::new("10.0.0.12"), ..broken() };
    assert!(matches!(with(waits(), elsewhere).reason(0), Reason::WaitingForBoot { .. }), "its annotation decides");
    // The message names the host; the decision is the same.
    let back = Scene::new(2).rebooting(0, 11, 300, ok()).checked(0, CheckAnswer::Yes, Some(0.0));
    assert_eq!(with(back, broken()).ends(0), Some(End::Booted));
    let stuck = Scene::new(2).rebooting(0, 11, 7200, ok()).checked(0, CheckAnswer::No("false".to_owned()), None);
    let Reason::WaitingForBoot { stuck: true, last, .. } = with(stuck, held()).reason(0) else { panic!("I35") };
    assert_eq!(last, "false; BareMetalHost held off by a, cketerm-fence; its owner releases it");
}

#[test]
fn a_further_try_of_a_forced_command_is_forced_too() {
    let scene = Scene::new(1).rebooting(0, 11, 30, failed()).order(0, Verb::Retry, 10);
    let forced = |forced: bool| {
        let scene = scene.clone().with(|s| {
            let stored = s.store.attempts.get_mut(&(EntryId::reboot(0), 1)).unwrap();
            std::sync::Arc::make_mut(stored.value.as_mut().unwrap()).forced = forced;
        });
        matches!(scene.effect(0), Some(Effect::RunAgain { attempt, .. }) if attempt.forced)
    };
    assert_eq!([forced(true), forced(false)], [true, false]);
}

//! Hooks of the site around a drain.

use cketerm_model::{
    attempt::{CheckAnswer, Ended},
    boot_time::Seconds,
    cketerm_records::Verb,
    clock::Now,
    entry::EntryId,
    hook::Hooks,
    hook_runs::{HookEnd, HookOutcome, HookPoint, HookRun, HookRuns},
    names::{Address, NodeName},
    policy::WorkerCompletion,
    reason::{HookRetry, Reason},
    reboot::RebootStatus,
    time::after,
};

use super::{
    repair_scene::no,
    scene::{LEASE, Scene, now, stored},
};
use crate::{decide::Effect, preflight_fault::PreflightFault};

const ALL: &str = "- {name: silence, at: before_drain, command: [/silence], retries: 1}\n\
                   - {name: moved, at: after_drain, command: [/moved]}\n\
                   - {name: healthy, at: before_uncordon, command: [/healthy], retry_interval_seconds: 20}\n\
                   - {name: unsilence, at: after_uncordon, url: 'https://alerts.example/x'}\n";

fn id() -> EntryId {
    EntryId::reboot(0)
}

fn with_hooks(scene: Scene, text: &str) -> Scene {
    scene.with(|scene| scene.policy.hooks = Hooks::read(text).unwrap())
}

/// Last run of a hook: its name, moment, number of tries, end; seconds since then.
type Run<'a> = (&'a str, HookPoint, u32, Option<HookEnd>, i64);

/// Adds the record of reboot 0 on worker 11, with these last runs.
fn record(scene: Scene, runs: &[Run<'_>]) -> Scene {
    record_of(id(), scene, runs)
}

/// Adds the record of an entry on worker 11, with these last runs.
fn record_of(id: EntryId, scene: Scene, runs: &[Run<'_>]) -> Scene {
    let run = |(hook, at, tries, end, age): &(&str, HookPoint, u32, Option<HookEnd>, i64)| HookRun {
        hook: (*hook).to_owned(),
        at: *at,
        tries: *tries,
        target: String::new(),
        lease: LEASE,
        host: "here".to_owned(),
        bound_seconds: 30,
        start: after(now(), -age),
        previous: None,
        outcome: end.clone().map(|end| HookOutcome { end, at: after(now(), -age), output: "no OSD".to_owned() }),
    };
    let (address, node) = (Address::new(Scene::address(11)), NodeName::new(Scene::address(11)));
    let since = after(now(), -3600);
    let hooks = scene.policy.hooks.iter().map(|hook| hook.name.clone()).collect();
    let record = HookRuns { address, node, since, hooks, runs: runs.iter().map(run).collect() };
    scene.with(|scene| drop(scene.store.hooks.insert(id, stored(&format!("/cke/cketerm/hooks/{id}"), 20, record))))
}

#[allow(clippy::unnecessary_wraps)] // as the field has it
fn exit(code: i32) -> Option<HookEnd> {
    Some(HookEnd::Command(Ended::Exit(code)))
}

/// Returns the hook that runs next for entry 0, and the number of its try.
fn runs(scene: &Scene) -> Option<(String, u32)> {
    scene.decide().effects.into_iter().find_map(|planned| match planned.effect {
        Effect::RunHook { run, .. } => Some((run.hook, run.tries)),
        _ => None,
    })
}

#[allow(clippy::unnecessary_wraps)] // as `runs` returns it
fn next(hook: &str, tries: u32) -> Option<(String, u32)> {
    Some((hook.to_owned(), tries))
}

/// A drain that has begun and has not cordoned its Node.
fn begun() -> Scene {
    Scene::new(2).entry(0, 11, RebootStatus::Draining, 30).work(0, |_| {})
}

#[test]
fn a_drain_begins_with_a_record_if_a_hook_is_for_its_machine() {
    let recorded = |text: &str| {
        let scene = with_hooks(Scene::new(1).queued(&[(0, 11)]), text);
        match scene.effect(0) {
            Some(Effect::StartDrain { hooks, .. }) => hooks,
            other => panic!("{other:?}"),
        }
    };
    let record = recorded(ALL).unwrap();
    assert_eq!((record.node.as_str(), record.runs.len()), ("10.0.0.11", 0));
    assert_eq!(recorded("none"), None);
    assert_eq!(recorded("[{name: a, at: after_drain, command: [/a], role: ss}]"), None, "not for this machine");
    assert_eq!(recorded("[{name: a, at: after_drain, command: [/a], queue: repair}]"), None, "not for this queue");
}

#[test]
fn nothing_is_cordoned_before_the_hooks_have_succeeded() {
    let scene = record(with_hooks(begun(), ALL), &[]);
    assert_eq!(runs(&scene), next("silence", 1));
    assert!(matches!(scene.reason(0), Reason::HookRunning { since: None, .. }), "{:?}", scene.reason(0));
    let done = record(scene, &[("silence", HookPoint::BeforeDrain, 1, exit(0), 1)]);
    assert!(matches!(done.effect(0), Some(Effect::Stamp { cordon: true, .. })), "{:?}", done.effect(0));
}

#[test]
fn a_drain_that_another_program_began_has_no_hooks() {
    let scene = with_hooks(begun(), ALL);
    assert!(matches!(scene.effect(0), Some(Effect::Stamp { cordon: true, .. })), "{:?}", scene.effect(0));
}

#[test]
fn a_failed_hook_is_tried_again_and_then_backs_off_only_its_entry() {
    let failed = |tries, age| {
        let scene = with_hooks(begun(), ALL).queued(&[(1, 12)]);
        record(scene, &[("silence", HookPoint::BeforeDrain, tries, exit(1), age)])
    };
    let waiting = failed(1, 3);
    assert_eq!(runs(&waiting), None, "the interval is 10 s");
    let reason = waiting.reason(0);
    assert!(matches!(reason, Reason::HookFailed { retry: HookRetry::Scheduled, .. }), "{reason:?}");
    assert_eq!(runs(&failed(1, 11)), next("silence", 2));
    let exhausted = failed(2, 1).with(|scene| scene.cluster.reboot.max_concurrent_reboots = Some(2));
    let Some(Effect::BackOff { cause, .. }) = exhausted.effect(0) else { panic!("{:?}", exhausted.effect(0)) };
    assert_eq!(cause.to_string(), "hook silence (before the drain) failed: exit 1: no OSD");
    assert_eq!(exhausted.starts(), [1], "the other entry starts");
}

#[test]
fn the_command_waits_for_the_hooks_after_the_drain() {
    let drained = |runs: &[_]| record(with_hooks(Scene::new(1).draining(0, 11, 30), ALL), runs);
    let silenced = ("silence", HookPoint::BeforeDrain, 1, exit(0), 1);
    let scene = drained(std::slice::from_ref(&silenced));
    assert_eq!(runs(&scene), next("moved", 1));
    let moved = drained(&[silenced.clone(), ("moved", HookPoint::AfterDrain, 1, exit(0), 1)]);
    assert!(matches!(moved.effect(0), Some(Effect::Power { .. })), "{:?}", moved.effect(0));
    let failed = drained(&[silenced, ("moved", HookPoint::AfterDrain, 1, exit(3), 1)]);
    assert!(matches!(failed.effect(0), Some(Effect::BackOff { .. })), "{:?}", failed.effect(0));
}

#[test]
fn a_booted_machine_keeps_its_slot_until_the_hooks_before_the_uncordon_have_succeeded() {
    let booted = |runs: &[_]| {
        let scene = Scene::new(2).rebooting(0, 11, 400, Some(Ended::Exit(0))).booted(11);
        let scene = scene.checked(0, CheckAnswer::Yes, Some(100.0)).queued(&[(1, 12)]);
        record(with_hooks(scene, ALL), runs)
    };
    let scene = booted(&[]);
    assert_eq!(runs(&scene), next("healthy", 1));
    assert!(scene.starts().is_empty(), "its slot is not free");
    let failed = |age| booted(&[("healthy", HookPoint::BeforeUncordon, 1, exit(1), age)]);
    let reason = failed(30).reason(0);
    assert!(matches!(reason, Reason::HookFailed { retry: HookRetry::Exhausted, .. }), "{reason:?}");
    assert_eq!((runs(&failed(299)), runs(&failed(301))), (None, next("healthy", 2)));
    let healthy = booted(&[("healthy", HookPoint::BeforeUncordon, 1, exit(0), 1)]);
    assert!(healthy.ends(0).is_some(), "{:?}", healthy.effect(0));
    let ordered = failed(30).order(0, Verb::Done, 10);
    assert!(ordered.ends(0).is_some(), "an operator's done does not wait: {:?}", ordered.effect(0));
}

#[test]
fn a_node_of_an_ended_entry_stays_cordoned_until_its_hooks_have_succeeded_or_a_person_decides() {
    let released = |scene: &Scene| scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::Release { .. }));
    let failed = ("healthy", HookPoint::BeforeUncordon, 1, exit(1), 30);
    let scene = record(with_hooks(Scene::new(1).cordoned(11, 0), ALL), &[failed]);
    assert!(!released(&scene));
    let shown = &scene.decide().orphans["10.0.0.11"];
    assert!(matches!(shown, Reason::HookFailed { .. }), "{shown:?}");
    assert!(released(&scene.clone().order(0, Verb::Uncordon, 1)), "a person decides");
    assert!(released(&scene.clone().owner(11, |owner| owner.schedulable_before = false)), "nothing is uncordoned");
    assert!(released(&with_hooks(scene, "none")), "the hook was removed");
}

#[test]
fn the_record_ends_after_the_hooks_that_follow_the_uncordon() {
    let ends = |scene: &Scene| scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::EndHooks { .. }));
    let backed_off = Scene::new(1).queued(&[(0, 11)]).change(0, |entry| {
        (entry.drain_backoff_count, entry.drain_backoff_expire) = (1, Some(after(now(), 300)));
    });
    let scene = record(with_hooks(backed_off, ALL), &[]);
    assert_eq!((runs(&scene), ends(&scene)), (next("unsilence", 1), false));
    for (end, why) in [(HookEnd::Status(200), "succeeded"), (HookEnd::Status(500), "failed")] {
        let run = ("unsilence", HookPoint::AfterUncordon, 1, Some(end), 1);
        assert!(ends(&record(scene.clone(), &[run])), "it has {why}");
    }
    assert!(ends(&with_hooks(scene.clone(), "none")), "there is no such hook any more");
    let cordoned = scene.cordoned(11, 0);
    assert!(
        !ends(&cordoned) && runs(&cordoned).is_none_or(|(hook, _)| hook != "unsilence"),
        "the Node is cordoned still"
    );
}

#[test]
fn saf4_in_another_cluster_no_hook_follows_an_uncordon_that_nobody_saw() {
    let is_of_hooks = |effect: &Effect| matches!(effect, Effect::RunHook { .. } | Effect::EndHooks { .. });
    let planned = |scene: &Scene| scene.decide().effects.iter().any(|p| is_of_hooks(&p.effect));
    // its Node, whose cordon is recorded in the own cluster, is not there, or is another one of the same name
    let scene = record(with_hooks(Scene::new(1).queued(&[(0, 11)]).disabled(), ALL), &[]);
    assert!(planned(&scene));
    let mismatch = PreflightFault::IdentityMismatch { recorded: "a".to_owned(), found: "b".to_owned() };
    assert!(!planned(&scene.with(|scene| scene.snap.engine.observing.push(mismatch))));
}

#[test]
fn a_hook_of_a_dead_leader_runs_again_only_when_it_must_have_ended_and_that_is_no_try() {
    let open = ("silence", HookPoint::BeforeDrain, 2, None, 1);
    let scene = record(with_hooks(begun(), ALL), &[open]);
    assert_eq!(
        runs(&scene),
        next("silence", 2),
        "this leader has led for 1,000 s, and its own hook would be in flight"
    );
    let fresh = scene.with(|scene| scene.snap.engine.leading.as_mut().unwrap().since = scene.boot - Seconds::new(20.0));
    assert_eq!(runs(&fresh), None);
    assert!(matches!(fresh.reason(0), Reason::HookRunning { since: Some(_), .. }), "{:?}", fresh.reason(0));
}

#[test]
fn a_success_of_an_earlier_drain_or_before_another_command_does_not_count() {
    let earlier = ("silence", HookPoint::BeforeDrain, 1, exit(0), 60);
    assert_eq!(runs(&record(with_hooks(begun(), ALL), &[earlier])), next("silence", 1));
    let booted = Scene::new(1).rebooting(0, 11, 20, Some(Ended::Exit(0))).booted(11);
    let booted = with_hooks(booted.checked(0, CheckAnswer::Yes, Some(100.0)), ALL);
    let earlier = ("healthy", HookPoint::BeforeUncordon, 1, exit(0), 60);
    assert_eq!(runs(&record(booted, &[earlier])), next("healthy", 1));
}

#[test]
fn a_retry_is_for_the_hook_of_a_machine_that_was_back_and_not_for_its_command() {
    let failed = ("healthy", HookPoint::BeforeUncordon, 1, exit(1), 5);
    let back = Scene::new(1).rebooting(0, 11, 20, Some(Ended::Exit(0))).booted(11);
    let back = record(with_hooks(back.checked(0, CheckAnswer::Yes, Some(100.0)), ALL), &[failed]);
    assert_eq!(runs(&back), None);
    let ordered = back.order(0, Verb::Retry, 10);
    assert_eq!(runs(&ordered), next("healthy", 2), "at once");
    let away = ordered.with(|scene| scene.policy.worker_completion = WorkerCompletion::BootId);
    let away = away.node(11, |node| node.ready = false);
    let again = away.decide().effects.iter().any(|planned| matches!(planned.effect, Effect::RunAgain { .. }));
    assert!(!again, "a machine that was back is not rebooted by an order for its hook: {:?}", away.effect(0));
}

#[test]
fn a_retry_is_for_the_hook_of_a_repaired_machine_and_not_for_its_commands() {
    let failed = ("healthy", HookPoint::BeforeUncordon, 1, exit(1), 1);
    let ordered = |operation: &str, how: fn(Scene) -> Scene| {
        let scene = Scene::repairing(1).repair(0, 11, operation).watching(0, 0, 300, Some(Ended::Exit(0)));
        let scene = with_hooks(how(scene.cordoned_for(11, 0)), ALL);
        record_of(EntryId::repair(0), scene, std::slice::from_ref(&failed)).order_repair(0, Verb::Retry, 10)
    };
    let success = |scene: Scene| scene.success(0, 2, LEASE, Some(Ended::Exit(0)));
    let healthy = ordered("success", success);
    assert_eq!((runs(&healthy), healthy.command_of(0)), (next("healthy", 2), None));
    let healthy = ordered("plain", |scene| scene.health(0, CheckAnswer::Yes));
    assert_eq!((runs(&healthy), healthy.command_of(0)), (next("healthy", 2), None));
    // another leader has not checked it yet, or one check failed
    for how in [|scene: Scene| scene.repair_work(0, |work| work.check = None), |scene: Scene| scene.health(0, no())] {
        let unsure = ordered("two", how);
        assert_eq!(unsure.command_of(0), None, "the machine was back");
    }
}

#[test]
fn a_node_that_waits_for_a_hook_keeps_its_slot_after_a_backoff() {
    let failed = ("healthy", HookPoint::BeforeUncordon, 1, exit(1), 30);
    let scene = Scene::new(2).queued(&[(0, 11), (1, 12)]).cordoned(11, 0);
    let scene = record(with_hooks(scene, ALL), &[failed]);
    assert!(scene.starts().is_empty(), "{:?}", scene.reason(1));
    assert!(matches!(scene.reason(0), Reason::HookFailed { .. }), "{:?}", scene.reason(0));
    let released = |scene: &Scene| scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::Release { .. }));
    assert!(!released(&scene) && released(&with_hooks(scene, "none")), "without the hook");
}

#[test]
fn a_hook_after_the_uncordon_may_hold_the_slot() {
    let slow = |holds: bool| {
        let text = format!("[{{name: osd, at: after_uncordon, command: [/osd], holds_slot: {holds}}}]");
        let scene = with_hooks(Scene::new(2).queued(&[(1, 12)]), &text);
        record(scene, &[("osd", HookPoint::AfterUncordon, 1, exit(1), 30)])
    };
    assert_eq!(slow(false).starts(), [1]);
    assert!(slow(true).starts().is_empty(), "{:?}", slow(true).reason(1));
    let ends = |scene: &Scene| scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::EndHooks { .. }));
    assert_eq!((ends(&slow(false)), ends(&slow(true))), (true, false));
}

#[test]
fn the_hooks_after_the_uncordon_wait_for_a_hook_of_a_dead_leader() {
    let open = ("silence", HookPoint::BeforeDrain, 1, None, 1);
    let scene = record(with_hooks(Scene::new(1).queued(&[(0, 11)]), ALL), &[open]);
    let fresh = scene.with(|scene| scene.snap.engine.leading.as_mut().unwrap().since = scene.boot - Seconds::new(20.0));
    assert_eq!(runs(&fresh), None, "what it does may still have to be undone");
    assert!(matches!(fresh.reason(0), Reason::HookRunning { since: Some(_), .. }), "{:?}", fresh.reason(0));
}

#[test]
fn a_policy_that_cannot_be_read_skips_no_hook() {
    let scene = record(with_hooks(Scene::new(1).cordoned(11, 0), ALL), &[]);
    let mut snap = scene.snapshot();
    let store = std::sync::Arc::make_mut(&mut snap.store);
    store.policy.as_mut().unwrap().value = Err("invalid".to_owned());
    let decision = crate::decide::decide(&snap, Now { boot: scene.boot, wall: now() });
    let released = |effect: &Effect| matches!(effect, Effect::Release { .. } | Effect::EndHooks { .. });
    assert!(!decision.effects.iter().any(|planned| released(&planned.effect)));
}

#[test]
fn a_force_does_not_shorten_the_wait_after_a_failed_hook() {
    let backed_off = |cause: Reason| {
        let scene = Scene::new(1).queued(&[(0, 11)]).order(0, Verb::Force, 10);
        let scene = scene.change(0, |entry| {
            (entry.drain_backoff_count, entry.drain_backoff_expire) = (1, Some(after(now(), 300)));
        });
        scene.work(0, |work| work.backoff_cause = Some(Box::new(cause)))
    };
    assert_eq!(backed_off(Reason::BlockedByJob { pod: "p".to_owned(), job: "j".to_owned() }).starts(), [0]);
    let end = Box::new(HookEnd::Command(Ended::Exit(1)));
    let (hook, output) = ("a".to_owned(), String::new());
    let failed = Reason::HookFailed { hook, at: HookPoint::BeforeDrain, end, output, retry: HookRetry::Exhausted };
    assert!(backed_off(failed).starts().is_empty());
}

#[test]
fn a_withheld_hook_counts_as_no_try() {
    let withheld = Some(HookEnd::Command(Ended::Withheld("the entry has changed".to_owned())));
    let scene = record(with_hooks(begun(), ALL), &[("silence", HookPoint::BeforeDrain, 2, withheld, 6)]);
    assert_eq!(runs(&scene), next("silence", 2));
}

#[test]
fn a_missing_program_and_an_unreadable_record_are_named() {
    let scene = record(with_hooks(begun(), ALL), &[]);
    let missing = scene.clone().with(|scene| scene.snap.engine.missing_programs = vec!["/silence".to_owned()]);
    assert!(matches!(missing.reason(0), Reason::ProgramMissing { .. }), "{:?}", missing.reason(0));
    let broken = scene.with(|scene| {
        scene.store.hooks.get_mut(&id()).unwrap().value = Err("/cke/cketerm/hooks/reboots/0: invalid".to_owned());
    });
    let reason = broken.reason(0);
    assert!(reason.to_string().contains("cketerm/hooks/reboots/0"), "{reason}");
    assert_eq!(runs(&broken), None);
}

#[test]
fn an_unreadable_record_stays_while_any_node_is_cordoned_for_its_entry() {
    let ends = |scene: &Scene| scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::EndHooks { .. }));
    let unreadable = |scene: Scene| {
        record(with_hooks(scene, ALL), &[]).with(|s| s.store.hooks.get_mut(&id()).unwrap().value = Err("?".to_owned()))
    };
    assert!(!ends(&unreadable(Scene::new(2).cordoned(11, 0).cordoned(12, 7))));
    assert!(ends(&unreadable(Scene::new(2).cordoned(12, 7))));
}

#[test]
fn a_node_that_is_kept_for_a_hook_shows_whether_the_hook_is_tried_again() {
    let kept = |retries: u32| {
        let text = format!(
            "- {{name: silence, at: before_drain, command: [/silence]}}\n\
             - {{name: healthy, at: before_uncordon, command: [/healthy], retries: {retries}}}\n"
        );
        let scene = with_hooks(Scene::new(2).queued(&[(1, 11)]).cordoned(11, 0), &text);
        let scene = record(scene, &[("healthy", HookPoint::BeforeUncordon, 1, exit(1), 1)]);
        match scene.reason(1) {
            Reason::HookFailed { retry, .. } => retry,
            other => panic!("{other}"),
        }
    };
    assert_eq!((kept(1), kept(0)), (HookRetry::Scheduled, HookRetry::Exhausted));
}

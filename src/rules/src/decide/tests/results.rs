//! Results of commands whose leader is gone.

use cketerm_model::{
    attempt::{CheckAnswer, Ended, Outcome},
    boot_time::Seconds,
    cketerm_records::{EngineRegistration, Identity},
    entry::{EntryId, Stored},
    reason::Reason,
    result::{CommandResult, argv_digest},
};

use super::scene::{BOOT, LEASE, Scene, now, stored};
use crate::{
    decide::{Effect, End},
    snapshot::InFlight,
};

const CLUSTER: &str = "uid-of-kube-system";

/// Entry 0 is rebooting, its attempt belongs to another lease, and a result for it exists, changed by the argument.
fn scene(change: impl FnOnce(&mut CommandResult)) -> Scene {
    let scene = Scene::new(1).rebooting(0, 11, 30, None).attempt(0, 11, 1, 3, 30, None);
    scene.with(|s| {
        let identity = Identity { uid: CLUSTER.to_owned(), confirmed_by: None, at: now() };
        s.store.identity = Some(stored("/cke/cketerm/identity", 5, identity));
        s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(1.0);
        let attempt = s.store.attempts[&(EntryId::reboot(0), 1)].get().unwrap().clone();
        let outcome = Outcome { end: Ended::Exit(0), at: now(), stdout: String::new(), stderr: String::new() };
        let mut result = CommandResult { label: attempt.label(CLUSTER), argv: argv_digest(&attempt.argv), outcome };
        change(&mut result);
        s.store.results.insert((EntryId::reboot(0), 1), stored("/cke/cketerm/results/reboots-0-1", 20, result));
    })
}

/// Returns whether the result is taken over (true), removed (false) or left alone (none).
fn taken(scene: &Scene) -> Option<bool> {
    let effects = scene.decide().effects;
    effects.iter().find_map(|p| match &p.effect {
        Effect::TakeResult { attempt, .. } => Some(attempt.is_some()),
        _ => None,
    })
}

#[test]
fn i47_the_result_of_a_dead_leaders_command_is_recorded_at_once() {
    let scene = scene(|_| {});
    assert_eq!(taken(&scene), Some(true));
    assert!(
        matches!(scene.reason(0), Reason::OutcomeUnknown { until: Some(_), .. }),
        "the outcome is unknown until it is written"
    );
    // The next decision is the same as after any other command.
    let known = scene.attempt(0, 11, 1, 3, 30, Some(Ended::Exit(0))).checked(0, CheckAnswer::Yes, Some(0.0));
    assert_eq!(taken(&known), Some(false), "the result is removed");
    let ends = |p: &crate::decide::Planned| matches!(p.effect, Effect::Remove { end: End::Booted, .. });
    assert!(known.decide().effects.iter().any(ends));
}

#[test]
fn i25_a_result_that_does_not_match_the_open_attempt_is_removed() {
    let others: [fn(&mut CommandResult); 4] = [
        |r| r.label.lease = 4,
        |r| r.label.cluster = "another".to_owned(),
        |r| r.label.attempt = "reboots-0-2".to_owned(),
        |r| r.argv = argv_digest(&["reboot".to_owned(), "10.0.0.12".to_owned()]),
    ];
    for other in others {
        assert_eq!(taken(&scene(other)), Some(false));
    }
    let gone = scene(|_| {}).with(|s| drop(s.store.attempts.remove(&(EntryId::reboot(0), 1))));
    assert_eq!(taken(&gone), Some(false));
    let unreadable = scene(|_| {}).with(|s| {
        let key = (EntryId::reboot(0), 1);
        let result: Stored<CommandResult> = Stored { value: Err("{".to_owned()), ..s.store.results[&key].clone() };
        s.store.results.insert(key, result);
    });
    assert_eq!(taken(&unreadable), Some(false));
}

#[test]
fn a_leader_ignores_results_of_its_running_commands_and_a_follower_all() {
    let ours = scene(|_| {}).with(|s| {
        let flight = InFlight {
            what: "rebooting".to_owned(),
            entry: None,
            starts: false,
            patches_node: false,
            upkeep: None,
            evictions: std::collections::BTreeMap::new(),
            attempt: Some("reboots-0-1".to_owned()),
            since: BOOT,
        };
        s.snap.in_flight.insert(Scene::address(11), flight);
    });
    assert_eq!(taken(&ours), Some(false), "its own copy is removed; the outcome comes from the helper");
    assert_eq!(taken(&scene(|_| {}).with(|s| s.snap.engine.leading = None)), None);
    let unconfirmed = scene(|_| {}).with(|s| s.store.identity = None);
    assert_eq!(taken(&unconfirmed), None, "the cluster's identity is unconfirmed");
}

#[test]
fn i37_a_results_time_is_clamped_between_its_start_and_now() {
    let scene = scene(|r| r.outcome.at = jiff::Timestamp::MAX);
    let attempt = scene.store.attempts[&(EntryId::reboot(0), 1)].get().unwrap();
    let result = scene.store.results[&(EntryId::reboot(0), 1)].get().unwrap();
    assert_eq!(result.outcome_of(attempt, now()).at, now());
    let early =
        CommandResult { outcome: Outcome { at: jiff::Timestamp::MIN, ..result.outcome.clone() }, ..result.clone() };
    assert_eq!(early.outcome_of(attempt, now()).at, attempt.start);
    assert_ne!(attempt.lease, LEASE);
}

#[test]
fn an_engine_that_cannot_run_programs_starts_nothing_and_reports_why() {
    let unable = |s: &mut Scene| s.snap.engine.unable = Some("this host cannot start programs: EAGAIN".to_owned());
    let queued = Scene::new(1).queued(&[(0, 11)]);
    assert_eq!(queued.starts(), [0]);
    let queued = queued.with(unable);
    assert!(queued.starts().is_empty());
    assert!(matches!(queued.reason(0), Reason::EngineObserving { why } if why.contains("EAGAIN")));
    let withheld = Scene::new(1).rebooting(0, 11, 30, Some(Ended::Withheld("helper".to_owned())));
    assert!(matches!(withheld.effect(0), Some(Effect::RunAgain { .. })));
    assert!(
        !matches!(withheld.with(unable).effect(0), Some(Effect::RunAgain { .. })),
        "the command is not retried meanwhile"
    );
}

#[test]
fn a_deferring_candidate_is_reported_instead_of_a_missing_engine() {
    let nobody = Scene::new(1).queued(&[(0, 11)]).with(|s| s.snap.engine.leading = None);
    assert!(matches!(nobody.reason(0), Reason::NoEngine { why } if why.contains("--daemon")));
    let back = nobody.clone().with(|s| s.snap.engine.standing_back = Some("campaigning in 42 s".to_owned()));
    assert!(matches!(back.reason(0), Reason::NoEngine { why } if why.contains("42 s") && !why.contains("--daemon")));
    // Another process learns it from the registration.
    let elsewhere = nobody.with(|s| {
        let engine = EngineRegistration {
            host: "there".to_owned(),
            pid: 1,
            version: "0".to_owned(),
            mode: cketerm_model::cketerm_records::EngineMode::Daemon,
            node: None,
            http: None,
            missing_programs: vec!["ipmi".to_owned()],
            missing_settings: Vec::new(),
            unable: None,
            standing_back: Some("the engine on there campaigns soon".to_owned()),
            migrating: None,
            probes_seen: true,
            etcd_members_seen: true,
        };
        assert!(!engine.complete());
        s.store.engines.insert(77, stored("/cke/cketerm/engines/4d", 30, engine));
    });
    assert!(matches!(elsewhere.reason(0), Reason::NoEngine { why } if why.contains("there campaigns soon")));
}

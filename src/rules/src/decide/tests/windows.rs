//! Windows and freezes (I8), and that they stop nothing but new work (I6).

use cketerm_model::{
    attempt::{CheckAnswer, Ended},
    cketerm_records::{Verb, Who},
    freeze::Freeze,
    policy::Policy,
    reason::Reason,
    reboot::RebootStatus::{Cancelled, Draining, Rebooting},
    time::after,
    window::Windows,
};
use jiff::Timestamp;

use super::scene::{BOOT, LEASE, Scene, now};
use crate::decide::Effect;

/// The scene's clock shows 12:00 UTC on a Saturday.
fn windows(scene: Scene, text: &str) -> Scene {
    let windows = Windows::read(&format!("time_zone: UTC\n{text}")).unwrap();
    scene.with(|s| s.policy.windows = Some(windows))
}

fn shut(scene: Scene) -> Scene {
    windows(scene, "allow: ['* 22-23 * * *']")
}

fn open(scene: Scene) -> Scene {
    windows(scene, "allow: ['* 11-13 * * *']")
}

fn frozen(scene: Scene) -> Scene {
    let freeze = Freeze {
        until: after(now(), 3600),
        reason: "quarter end".to_owned(),
        who: Who::default(),
        unknown: serde_json::Map::new(),
    };
    scene.with(|s| s.policy.freeze = Some(freeze))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn opens() -> Reason {
    Reason::OutsideWindow { next_open: Some(at("2026-08-01T22:00:00Z")), closes: None }
}

fn until_thaw() -> Reason {
    Reason::Frozen { until: after(now(), 3600), why: "quarter end".to_owned() }
}

#[test]
fn i8_no_drain_starts_outside_the_window_or_in_a_freeze() {
    let scene = Scene::new(3).queued(&[(0, 11), (1, 12), (2, 1)]);
    assert_eq!(open(scene.clone()).starts(), [0]);
    for (scene, why) in [(shut(scene.clone()), opens()), (frozen(scene.clone()), until_thaw())] {
        assert!(scene.starts().is_empty());
        for index in 0..3 {
            assert_eq!(scene.reason(index), why);
        }
    }
    let both = frozen(shut(scene.clone()));
    assert_eq!(both.reason(0), until_thaw(), "the freeze comes from a person, so it is reported first");
    let over = frozen(scene).with(|s| s.policy.freeze.as_mut().unwrap().until = now());
    assert_eq!(over.starts(), [0], "a freeze ends by itself");
}

#[test]
fn i8_a_denied_time_overrides_an_allowed_one() {
    let scene = windows(Scene::new(1).queued(&[(0, 11)]), "allow: ['* * * * *']\ndeny: ['* * 1 8 *']");
    assert!(scene.starts().is_empty());
    let next_open = Some(at("2026-08-02T00:00:00Z"));
    assert_eq!(scene.reason(0), Reason::OutsideWindow { next_open, closes: None });
}

#[test]
fn the_engine_wakes_at_window_edges_and_at_the_end_of_a_freeze() {
    let wake = |scene: Scene| (scene.decide().wake.unwrap() - BOOT).get();
    let scene = Scene::new(1).queued(&[(0, 11)]);
    assert!((35_999.0..36_001.0).contains(&wake(shut(scene.clone()))));
    // Five minutes before its end.
    assert!((6899.0..6901.0).contains(&wake(open(scene.clone()))));
    assert!((3599.0..3601.0).contains(&wake(frozen(scene))));
}

#[test]
fn i8_no_drain_starts_that_would_be_reverted_at_once() {
    let scene = windows(Scene::new(1).queued(&[(0, 11)]), "allow: ['0-4 12 * * *', '* 22 * * *']\nmargin_seconds: 301");
    assert!(scene.starts().is_empty());
    assert_eq!(
        scene.reason(0),
        Reason::OutsideWindow { next_open: Some(at("2026-08-01T22:00:00Z")), closes: Some(at("2026-08-01T12:05:00Z")) }
    );
    let enough = windows(scene, "allow: ['0-4 12 * * *', '* 22 * * *']\nmargin_seconds: 300");
    assert_eq!(enough.starts(), [0]);
}

#[test]
fn i8_a_planned_start_expires_when_the_window_closes() {
    let scene = open(Scene::new(1).queued(&[(0, 11)]));
    let planned = scene.decide().effects.remove(0);
    assert_eq!(planned.guard.until, Some(at("2026-08-01T14:00:00Z")));
    let free = Scene::new(1).queued(&[(0, 11)]).decide().effects.remove(0);
    assert_eq!(free.guard.until, None);
}

#[test]
fn i8_a_drain_past_its_window_is_reverted_and_keeps_its_backoff_count() {
    let scene = Scene::new(2).draining(0, 11, 30).pod(11, "web-1", |_| {}).change(0, |e| e.drain_backoff_count = 3);
    assert_ne!(open(scene.clone()).does(0), Some("unwinding"));
    for (scene, why) in [(shut(scene.clone()), opens()), (frozen(scene), until_thaw())] {
        let Some(Effect::Unwind { entry, cause, .. }) = scene.effect(0) else { panic!("{:?}", scene.does(0)) };
        assert_eq!(cause, why);
        let back = entry.unwound(now());
        assert_eq!((back.status().as_str(), back.backoff_count()), ("queued", 3));
        assert_eq!(scene.reason(0), why);
    }
}

#[test]
fn i8_no_power_command_is_planned_outside_the_window_even_after_the_drain() {
    let drained = Scene::new(2).draining(0, 11, 30);
    assert_eq!(drained.does(0), Some("rebooting"));
    assert_eq!(shut(drained.clone()).does(0), Some("unwinding"));
    assert_eq!(frozen(drained).does(0), Some("unwinding"));
}

#[test]
fn i8_a_reboot_is_never_aborted_but_its_retry_waits_for_the_window() {
    let scene = Scene::new(2).with(|s| s.cluster.reboot.command_retries = Some(2));
    let failed = scene.rebooting(0, 11, 60, Some(Ended::Exit(1))).checked(0, CheckAnswer::No("no".to_owned()), None);
    assert_eq!(failed.does(0), Some("rebooting"), "the command has a retry left");
    assert_eq!(shut(failed.clone()).does(0), None);
    assert_eq!(shut(failed.clone()).reason(0), opens());
    assert_eq!(frozen(failed).reason(0), until_thaw());
}

#[test]
fn i8_a_withheld_command_reverts_its_drain_while_it_may_not_run() {
    let over = || Some(Ended::Withheld("its window ended at 2026-08-01T11:59:57Z".to_owned()));
    let withheld = || Scene::new(2).rebooting(0, 11, 3, over()).change(0, |e| e.drain_backoff_count = 3);
    let holds: [fn(Scene) -> Scene; 4] = [shut, frozen, |scene| scene.order(0, Verb::Hold, 10), Scene::disabled];
    for hold in holds {
        let scene = hold(withheld());
        let Some(Effect::Unwind { entry, never_began, .. }) = scene.effect(0) else { panic!("{:?}", scene.does(0)) };
        assert_eq!((entry.unwound(now()).status().as_str(), never_began.len()), ("queued", 1));
    }
    assert_ne!(open(withheld()).does(0), Some("unwinding"), "the command is retried soon");
    let began = withheld().attempt(0, 11, 2, LEASE, 2, Some(Ended::Exit(1)));
    assert_ne!(shut(began).does(0), Some("unwinding"), "a command ran on the machine");
    let broken = Some(Ended::NotStarted("no such file".to_owned()));
    let not_started = withheld().attempt(0, 11, 1, LEASE, 5, broken).attempt(0, 11, 2, LEASE, 2, over());
    let Some(Effect::Unwind { never_began, .. }) = shut(not_started).effect(0) else { panic!() };
    assert_eq!(never_began.len(), 2, "I25: none of them counts as a try of the next command");
    let tried_before = withheld().attempt(0, 11, 1, LEASE, 5, Some(Ended::Exit(1))).attempt(0, 11, 2, LEASE, 2, over());
    assert_ne!(shut(tried_before).does(0), Some("unwinding"));
}

#[test]
fn i8_an_operators_retry_is_kept_until_the_window_opens() {
    let failed = Scene::new(2).rebooting(0, 11, 60, Some(Ended::Exit(1))).order(0, Verb::Retry, 10);
    assert_eq!(failed.does(0), Some("rebooting"));
    let waits = shut(failed);
    assert!(waits.does(0).is_none_or(|what| what == "checking boot"));
    assert_eq!(waits.reason(0), opens());
}

#[test]
fn i8_force_skips_pods_but_not_the_window() {
    let scene = Scene::new(2).queued(&[(0, 11)]).order(0, Verb::Force, 10);
    assert!(shut(scene).starts().is_empty());
    let draining = Scene::new(2).draining(0, 11, 30).pod(11, "web-1", |_| {}).order(0, Verb::Force, 10);
    assert_eq!(draining.does(0), Some("rebooting"));
    assert_eq!(shut(draining).does(0), Some("unwinding"));
}

#[test]
fn i6_windows_and_freezes_never_block_completion_cancel_dequeue_or_checks() {
    let scene = Scene::new(4)
        .rebooting(0, 11, 60, Some(Ended::Exit(0)))
        .booted(11)
        .checked(0, CheckAnswer::Yes, Some(5.0))
        .entry(1, 12, Cancelled, 5)
        .queued(&[(2, 99)])
        .rebooting(3, 13, 60, Some(Ended::Exit(0)));
    for scene in [shut(scene.clone()), frozen(scene)] {
        assert_eq!(scene.does(0), Some("removing"), "booted");
        assert_eq!(scene.does(1), Some("removing"), "cancelled");
        assert_eq!(scene.does(2), Some("removing"), "its machine is not a member");
        assert_eq!(scene.does(3), Some("checking boot"));
        assert!(matches!(scene.reason(3), Reason::WaitingForBoot { .. }));
    }
}

#[test]
fn i6_an_aborted_drain_is_uncordoned_outside_the_window_too() {
    let scene = shut(Scene::new(2).queued(&[(0, 11)]).cordoned(11, 0));
    let effects = scene.decide().effects;
    assert!(effects.iter().any(|p| matches!(p.effect, Effect::Release { uncordon: true, .. })), "{effects:?}");
}

#[test]
fn i32_the_reason_is_the_longer_of_backoff_and_window() {
    let backed_off = |seconds| {
        Scene::new(1).queued(&[(0, 11)]).change(0, |e| {
            e.drain_backoff_count = 1;
            e.drain_backoff_expire = Some(after(now(), seconds));
        })
    };
    assert_eq!(shut(backed_off(600)).reason(0), opens());
    assert!(matches!(shut(backed_off(11 * 3600)).reason(0), Reason::Backoff { .. }));
    assert_eq!(frozen(backed_off(600)).reason(0), until_thaw());
}

#[test]
fn machines_with_their_own_window_use_it() {
    let text = "allow: ['* 22 * * *']\nmachines: [{name: gpu, rack: 7, allow: ['* 12 * * *']}]";
    let scene = windows(Scene::new(2).queued(&[(0, 11), (1, 12)]), text).with(|s| {
        let member = s.cluster.nodes.iter_mut().find(|n| n.address == "10.0.0.12").unwrap();
        member.labels = Some([("cke.cybozu.com/rack".to_owned(), "7".to_owned())].into());
    });
    assert_eq!(scene.starts(), [1], "an entry outside its window does not hold up the next one");
    assert_eq!(scene.reason(0), opens());
}

#[test]
fn windows_can_apply_to_one_queue_and_a_freeze_applies_to_both() {
    let scene = windows(Scene::new(1).queued(&[(0, 11)]), "queues: [repair]\nallow: ['* 22 * * *']");
    assert_eq!(scene.starts(), [0]);
    assert!(frozen(scene).starts().is_empty());
}

#[test]
fn i8_an_unreadable_policy_blocks_power_commands() {
    let scene = Scene::new(2).draining(0, 11, 30);
    let mut snap = scene.snapshot();
    let mut store = (*snap.store).clone();
    let broken = serde_json::from_str::<Policy>(r#"{"windows": {"time_zone": "UTC", "allow": ["61 * * * *"]}}"#);
    let why = broken.unwrap_err().to_string();
    assert!(why.contains("allow[0]") && why.contains("field minute"), "{why}");
    store.policy.as_mut().unwrap().value = Err(why);
    snap.store = std::sync::Arc::new(store);
    let at = cketerm_model::clock::Now { boot: BOOT, wall: now() };
    let decision = crate::decide::decide(&snap, at);
    assert!(decision.effects.is_empty(), "{:?}", decision.effects);
    let reason = &decision.reasons[&cketerm_model::entry::EntryId::reboot(0)];
    assert!(matches!(reason, Reason::EngineObserving { why } if why.contains("allow[0]")), "{reason:?}");
}

#[test]
fn only_draining_entries_are_reverted() {
    let scene = Scene::new(2).entry(0, 11, Draining, 5).entry(1, 12, Rebooting, 5);
    assert_eq!((shut(scene.clone()).does(0), shut(scene).does(1)), (Some("unwinding"), Some("checking boot")));
}

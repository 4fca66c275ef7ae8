//! Bounds on what grows with the tries of an entry or with the queue (I49). Tries are still counted correctly (I25).

use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended},
    cketerm_records::{EndKind, Ending, Verb},
    entry::{EntryId, QueueKind, Stored},
    names::Address,
    reason::{Attention, Reason, TooLarge},
    reboot::RebootStatus,
    stored::keys::Keys,
};

use super::{
    registry,
    scene::{BOOT, LEASE, Scene},
};
use crate::{
    decide::{Apply, Effect, RegistryEffect, compares, unwritten},
    snapshot::EffectOutcome,
};

#[allow(clippy::unnecessary_wraps)] // as the scene takes it
fn failed() -> Option<Ended> {
    Some(Ended::Exit(1))
}

#[allow(clippy::unnecessary_wraps)] // as the scene takes it
fn withheld() -> Option<Ended> {
    Some(Ended::Withheld("the entry has changed meanwhile".to_owned()))
}

/// A machine whose command failed this many times. The first attempt is that of the transition to `rebooting`.
fn failed_times(n: u32) -> Scene {
    let scene = Scene::new(1).rebooting(0, 11, 4000, failed());
    (2..=n).fold(scene, |scene, number| scene.attempt(0, 11, number, LEASE, 4000 - i64::from(number), failed()))
}

fn folded(scene: &Scene) -> Vec<u32> {
    let Some(Effect::RunAgain { folded, attempt, .. }) = scene.effect(0) else { panic!("{:?}", scene.does(0)) };
    assert_eq!(usize::try_from(attempt.folded).unwrap(), folded.len());
    folded.iter().filter_map(Stored::get).map(|a| a.number).collect()
}

/// The scene after that command: the attempts to delete are gone, and the new attempt has failed.
fn after(mut scene: Scene) -> Scene {
    let Some(Effect::RunAgain { folded, attempt, order, .. }) = scene.effect(0) else { panic!() };
    for gone in folded.iter().filter_map(Stored::get) {
        scene.store.attempts.remove(&(EntryId::reboot(0), gone.number)).unwrap();
    }
    scene.store.orders.remove(&EntryId::reboot(0));
    let mut next = scene.attempt(0, 11, attempt.number, LEASE, 30, failed());
    let stored = next.store.attempts.get_mut(&(EntryId::reboot(0), attempt.number)).unwrap();
    let written = std::sync::Arc::make_mut(stored.value.as_mut().unwrap());
    written.ordered_by = attempt.ordered_by.or(order.map(|_| "ann".to_owned()));
    next
}

#[test]
fn i49_attempts_within_command_retries_are_never_folded() {
    let scene = failed_times(150).with(|s| s.cluster.reboot.command_retries = Some(300));
    assert_eq!(folded(&scene.checked(0, CheckAnswer::No("down".to_owned()), None)), [0_u32; 0]);
}

#[test]
fn i49_an_operators_retry_folds_only_attempts_beyond_command_retries() {
    let ordered = |retries: i64, n: u32| {
        let scene = failed_times(n).with(|s| s.cluster.reboot.command_retries = Some(retries));
        scene.order(0, Verb::Retry, 10)
    };
    assert_eq!(folded(&ordered(3, 33)), [0_u32; 0], "no more attempts than are kept");
    assert_eq!(folded(&ordered(3, 40)), (2..=8).collect::<Vec<_>>(), "all but the first and the newest");
    assert_eq!(folded(&ordered(99, 100)), [0_u32; 0], "the definition allows that many");
    assert_eq!(folded(&ordered(3, 400)).len(), 32, "at most 32 in one transaction");
}

#[test]
fn i25_folded_attempts_still_count_as_tries() {
    let scene = failed_times(60).with(|s| s.cluster.reboot.command_retries = Some(49));
    let mut scene = scene.order(0, Verb::Retry, 10);
    for _ in 0..3 {
        scene = after(scene).checked(0, CheckAnswer::No("down".to_owned()), None);
        let counted = scene.store.attempts_of(EntryId::reboot(0)).filter_map(Stored::get).count();
        assert!(counted > 50, "another engine that counts the keys finds no tries left: {counted}");
        assert!(!matches!(scene.effect(0), Some(Effect::RunAgain { .. })), "nothing runs without an order");
        assert!(matches!(scene.reason(0), Reason::CommandFailed { .. }));
        scene = scene.order(0, Verb::Retry, 10);
    }
}

#[test]
fn i14_attempts_with_unique_machine_state_are_not_folded() {
    let scene = failed_times(60).with(|s| {
        for number in [3, 5] {
            let stored = s.store.attempts.get_mut(&(EntryId::reboot(0), number)).unwrap();
            let attempt = std::sync::Arc::make_mut(stored.value.as_mut().unwrap());
            (attempt.boot_id, attempt.not_ready) = (attempt.boot_id.take().filter(|_| number == 3), number == 3);
        }
    });
    let gone = folded(&scene.order(0, Verb::Retry, 10));
    assert!(gone.contains(&2) && gone.contains(&4), "{gone:?}");
    assert!(
        !gone.contains(&3) && !gone.contains(&5),
        "attempts with an unknown or unreliable boot id are kept: {gone:?}"
    );
}

#[test]
fn i49_withheld_attempts_do_not_accumulate() {
    let mut scene = Scene::new(1).rebooting(0, 11, 4000, failed()).with(|s| {
        s.cluster.reboot.command_retries = Some(5);
        s.cluster.reboot.command_interval = Some(0);
    });
    for number in 2..100 {
        scene = scene.attempt(0, 11, number, LEASE, 30, withheld());
        let Some(Effect::RunAgain { folded, attempt, .. }) = scene.effect(0) else { panic!("{:?}", scene.does(0)) };
        assert_eq!(attempt.number, number + 1, "no number is reused");
        for gone in folded.iter().filter_map(Stored::get) {
            assert!(gone.withheld());
            scene.store.attempts.remove(&(EntryId::reboot(0), gone.number)).unwrap();
        }
        assert_eq!(scene.store.attempts.len(), 1, "only the failed attempt, which counts, is left");
    }
    // An older version may have left these.
    let many = (2..500).fold(scene, |scene, number| scene.attempt(0, 11, number, LEASE, 30, withheld()));
    assert_eq!(folded(&many).len(), 32);
}

#[test]
fn i8_a_withheld_first_attempt_is_kept_so_its_drain_can_be_reverted() {
    let scene = Scene::new(1).rebooting(0, 11, 60, withheld());
    assert_eq!(folded(&scene), [0_u32; 0]);
    let scene = scene.attempt(0, 11, 2, LEASE, 30, withheld());
    assert_eq!(folded(&scene), [2]);
    assert!(matches!(scene.disabled().effect(0), Some(Effect::Unwind { .. })));
}

fn ending(attempts: Vec<Attempt>) -> Ending {
    Ending {
        entry: EntryId::reboot(0),
        address: Address::new("10.0.0.11"),
        end: EndKind::Booted,
        outcome: "booted".to_owned(),
        withdrawn_by: None,
        at: super::scene::now(),
        last: serde_json::json!({}),
        request: None,
        attempts,
        hooks: Vec::new(),
        omitted: 0,
    }
}

#[test]
fn i49_an_ending_keeps_the_first_and_newest_attempts_and_counts_the_rest() {
    let attempts = |n: u32| -> Vec<Attempt> {
        let scene = failed_times(n);
        scene.store.attempts_of(EntryId::reboot(0)).filter_map(Stored::get).cloned().collect()
    };
    let few = ending(attempts(5)).bounded();
    assert_eq!((few.attempts.len(), few.omitted), (5, 0));
    let many = ending(attempts(500)).bounded();
    assert_eq!((many.attempts.len(), many.omitted), (32, 468));
    assert_eq!((many.attempts[0].number, many.attempts[1].number, many.attempts[31].number), (1, 470, 500));
    assert_eq!(many.clone().bounded(), many, "a second call changes nothing");
    let mut long = attempts(100);
    for attempt in &mut long {
        attempt.outcome.as_mut().unwrap().stderr = "\u{1}\"\\".repeat(6000);
    }
    let long = Ending { last: serde_json::json!({ "note": "x".repeat(1 << 20) }), ..ending(long) }.bounded();
    let bytes = serde_json::to_string(&long).unwrap().len();
    assert!(bytes < 512 << 10 && long.attempts.last().is_some_and(|a| a.number == 100), "{bytes}");
    assert_eq!(long.attempts.len() + usize::try_from(long.omitted).unwrap(), 100);
    assert!(long.timeline(&[]).iter().any(|moment| moment.what.contains("earlier attempts")));
}

/// A change of taints while this many entries of the affected machines wait.
fn tainting(waiting: u64) -> Apply {
    let mut scene = registry::scene();
    scene.constraints.minimum_workers = Some(19);
    for index in 0..waiting {
        scene = scene.entry(7 + index * 2, 12, RebootStatus::Queued, 60);
    }
    scene.store.revision = 4711;
    // Otherwise one of them starts in this pass.
    let snap = registry::snapshot(&scene.disabled(), 0, &[(12, "UNHEALTHY")]);
    let decision = registry::decide(&snap);
    let apply = decision.effects.into_iter().find_map(|planned| match planned.effect {
        Effect::Registry(RegistryEffect::Apply(apply)) => Some(*apply),
        _ => None,
    });
    apply.unwrap_or_else(|| panic!("{:?}", decision.registry))
}

#[test]
fn i49_a_definition_change_compares_a_bounded_number_of_keys() {
    let keys = Keys::new("/cke/");
    let few = tainting(64);
    assert_eq!(few.waiting.len(), 64);
    assert!(unwritten(&few, &keys).is_empty());
    let each = compares(&few, &keys, 1);
    assert!(few.waiting.iter().all(|(id, revision)| each.contains(&(keys.entry(*id), *revision))));
    for waiting in [65, 118, 119, 500, 5000] {
        let apply = tainting(waiting);
        let (each, ranges) = (compares(&apply, &keys, 1), unwritten(&apply, &keys));
        assert!(each.len() + ranges.len() < 30, "{waiting}: {}", each.len() + ranges.len());
        assert!(ranges.iter().all(|(_, since)| *since == 4711));
        let inside = |key: &str| ranges.iter().any(|(s, _)| s.from.as_str() <= key && key.as_bytes() < &s.to[..]);
        assert!(apply.waiting.iter().all(|(id, _)| inside(&keys.entry(*id))), "each waiting entry is compared");
        assert!(inside(&keys.attempt(EntryId::reboot(3), 9)), "every attempt is compared");
        let beyond = EntryId { queue: QueueKind::Reboot, index: 7 + waiting * 2 };
        assert!(!inside(&keys.entry(beyond)), "an entry after the last one is not compared");
    }
}

#[test]
fn i49_a_transaction_too_large_for_etcd_is_the_reason_of_its_entry() {
    let id = EntryId::reboot(0);
    let scene = Scene::new(1).rebooting(0, 11, 30, failed()).order(0, Verb::Done, 10);
    let effect = scene.effect(0).unwrap();
    let (size, now) = (
        TooLarge { operations: 400, bytes: 2 << 20 },
        cketerm_model::clock::Now { boot: BOOT, wall: super::scene::now() },
    );
    let refused = scene.with(|s| {
        crate::memory::remember(&mut s.snap.work, id, &effect, &EffectOutcome::TooLarge(size), now);
    });
    let reason = refused.reason(0);
    assert_eq!(reason, Reason::TransactionTooLarge { what: "removing".to_owned(), size });
    assert_eq!((reason.attention(), reason.name().as_str()), (Attention::Now, "TransactionTooLarge"));
    assert!(reason.to_string().contains("400 operations"), "{reason}");
    let json = serde_json::to_string(&reason).unwrap();
    assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), reason, "{json}");
    let asked = refused.clone().with(|s| {
        let check = Effect::BootCheck { argv: Vec::new(), bound: 1 };
        let answer = EffectOutcome::Check(CheckAnswer::No("down".to_owned()));
        crate::memory::remember(&mut s.snap.work, id, &check, &answer, now);
    });
    assert!(
        matches!(asked.reason(0), Reason::TransactionTooLarge { .. }),
        "the answer of a check does not clear the reason"
    );
    let again = refused.with(|s| {
        crate::memory::remember(&mut s.snap.work, id, &effect, &EffectOutcome::Failed("no answer".to_owned()), now);
    });
    assert!(!matches!(again.reason(0), Reason::TransactionTooLarge { .. }));
}

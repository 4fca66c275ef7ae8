//! Hooks of the site.

use serde_json::{Value, json};

use super::scene::Scene;

/// Start of the drain in the record, before everything else.
const SINCE: &str = "2020-01-01T00:00:00Z";
const KEY: &str = "cketerm/hooks/reboots/0";

/// A scene in which the policy has had hooks for a while.
fn scene() -> Scene {
    let mut s = Scene::new();
    let hooks = json!([
        {"name": "silence", "at": "before_drain", "command": ["/silence"]},
        {"name": "moved", "at": "after_drain", "command": ["/moved"]},
        {"name": "healthy", "at": "before_uncordon", "command": ["/healthy"]},
        {"name": "unsilence", "at": "after_uncordon", "command": ["/unsilence"]},
    ]);
    let mut policy = s.get("cketerm/policy");
    if !policy.is_object() {
        policy = json!({});
    }
    policy["hooks"] = hooks;
    s.set_key("cketerm/policy", Some(policy.to_string().as_bytes()));
    s.advance(60.0);
    s.add(0, "w1");
    s
}

fn run(s: &Scene, hook: &str, at: &str, code: Option<i64>) -> Value {
    let now = s.whole_second();
    let mut run = json!({"hook": hook, "at": at, "try": 1, "target": "", "lease": 1, "host": "h", "bound_seconds": 30,
        "start": now});
    if let Some(code) = code {
        run["outcome"] = json!({"end": {"command": {"exit": code}}, "at": now});
    }
    run
}

fn record(s: &mut Scene, runs: &[Value]) {
    let hooks = ["silence", "moved", "healthy", "unsilence"];
    let record = json!({"address": super::scene::address("w1"), "node": "w1", "since": SINCE, "hooks": hooks,
        "runs": runs});
    s.set_key(KEY, Some(record.to_string().as_bytes()));
    s.advance(1.0);
}

#[track_caller]
fn assert_breaches(s: &Scene, code: &str, expected: usize) {
    let found = s.codes().into_iter().filter(|found| *found == code).count();
    assert_eq!(found, expected, "{:#?}", s.breaches());
}

#[test]
fn i64_a_cordon_before_its_hook_is_reported() {
    for (code, expected) in [(Some(0), 0), (Some(1), 1), (None, 1)] {
        let mut s = scene();
        record(&mut s, &[]);
        s.moves(0, "draining");
        let silence = run(&s, "silence", "before_drain", code);
        record(&mut s, &[silence]);
        s.cordon(0, "w1");
        assert_breaches(&s, "I64", expected);
    }
}

#[test]
fn i64_a_command_before_its_hook_is_reported() {
    for (code, expected) in [(Some(0), 0), (Some(1), 1)] {
        let mut s = scene();
        record(&mut s, &[]);
        s.moves(0, "draining");
        let runs = [run(&s, "silence", "before_drain", Some(0)), run(&s, "moved", "after_drain", code)];
        record(&mut s, &runs);
        s.cordon(0, "w1");
        s.powers(0, "w1");
        assert_breaches(&s, "I64", expected);
    }
}

#[test]
fn i65_an_uncordon_before_its_hook_is_reported() {
    for (code, expected) in [(Some(0), 0), (Some(1), 1), (None, 1)] {
        let mut s = scene();
        record(&mut s, &[]);
        s.moves(0, "draining");
        let runs = [run(&s, "silence", "before_drain", Some(0)), run(&s, "healthy", "before_uncordon", code)];
        record(&mut s, &runs);
        s.cordon(0, "w1");
        s.moves(0, "queued");
        s.uncordon("w1");
        assert_breaches(&s, "I65", expected);
    }
}

#[test]
fn i66_a_run_beside_another_or_after_a_success_is_reported() {
    for (code, seconds, expected) in [(None, 10.0, 1), (None, 40.0, 0), (Some(0), 10.0, 1), (Some(1), 10.0, 0)] {
        let mut s = scene();
        let first = run(&s, "silence", "before_drain", code);
        record(&mut s, &[first]);
        s.advance(seconds);
        let second = run(&s, "silence", "before_drain", None);
        record(&mut s, &[second]);
        assert_breaches(&s, "I66", expected);
    }
}

#[test]
fn i64_a_drain_without_a_record_is_reported() {
    for (recorded, expected) in [(true, 0), (false, 1)] {
        let mut s = scene();
        if recorded {
            record(&mut s, &[]);
        }
        s.moves(0, "draining");
        assert_breaches(&s, "I64", expected);
    }
}

#[test]
fn i64_a_success_of_an_earlier_drain_does_not_count() {
    let mut s = scene();
    let silence = run(&s, "silence", "before_drain", Some(0));
    record(&mut s, &[silence]);
    s.advance(60.0);
    s.moves(0, "draining");
    s.advance(2.0);
    s.cordon(0, "w1");
    assert_breaches(&s, "I64", 1);
}

#[test]
fn i65_a_booted_end_before_its_hook_is_reported() {
    for (code, expected) in [(Some(0), 0), (Some(1), 1)] {
        let mut s = scene();
        record(&mut s, &[]);
        s.moves(0, "draining");
        let runs = [
            run(&s, "silence", "before_drain", Some(0)),
            run(&s, "moved", "after_drain", Some(0)),
            run(&s, "healthy", "before_uncordon", code),
        ];
        record(&mut s, &runs);
        s.cordon(0, "w1");
        s.powers(0, "w1");
        s.ends(0, 1, "w1", 0);
        s.boots(0, "w1");
        s.removes(0, "booted");
        assert_breaches(&s, "I65", expected);
    }
}

#[test]
fn i66_a_record_that_ends_before_the_uncordon_or_the_last_hook_is_reported() {
    for (uncordons, code, expected) in [(true, Some(0), 0), (false, Some(0), 1), (true, None, 1)] {
        let mut s = scene();
        record(&mut s, &[]);
        s.moves(0, "draining");
        let silence = run(&s, "silence", "before_drain", Some(0));
        let healthy = run(&s, "healthy", "before_uncordon", Some(0));
        record(&mut s, &[silence.clone(), healthy.clone()]);
        s.cordon(0, "w1");
        s.moves(0, "queued");
        if uncordons {
            s.uncordon("w1");
        }
        s.advance(30.0);
        let mut runs = vec![silence, healthy];
        runs.extend(code.map(|code| run(&s, "unsilence", "after_uncordon", Some(code))));
        record(&mut s, &runs);
        s.set_key(KEY, None);
        assert_breaches(&s, "I66", expected);
    }
}

#[test]
fn i66_a_command_that_is_ordered_after_a_hook_of_the_machine_that_was_back_is_reported() {
    for (before, expected) in [(true, 1), (false, 0)] {
        let mut s = scene();
        let first = s.attempt(0, 1, "w1");
        s.engine("reboot", &[("cketerm/attempts/reboots/0/1", first)], &[]);
        s.advance(20.0);
        let hook = run(
            &s,
            if before { "healthy" } else { "moved" },
            if before { "before_uncordon" } else { "after_drain" },
            Some(1),
        );
        record(&mut s, &[hook]);
        s.advance(5.0);
        let mut second = s.attempt(0, 2, "w1");
        second["ordered_by"] = json!("ann@h: T-1");
        s.engine("reboot", &[("cketerm/attempts/reboots/0/2", second)], &[]);
        assert_breaches(&s, "I66", expected);
    }
}

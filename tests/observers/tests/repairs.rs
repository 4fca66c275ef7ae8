//! The repair queue.

use serde_json::{Value, json};

use super::{
    super::record::{Power, PowerEvent},
    assert_breaches,
    scene::{Scene, address, definition},
};

fn key(index: u64) -> String {
    format!("repairs/data/{index:016x}")
}

/// Definition with two steps for machines of type `t`, of which the first is watched for 60 s.
fn with_repairs() -> Value {
    let mut cluster = definition();
    cluster["repair"] = json!({"max_concurrent_repairs": 2, "repair_procedures": [{"machine_types": ["t"],
        "repair_operations": [{"operation": "o", "health_check_command": ["healthy"], "success_command": ["well"],
            "repair_steps": [{"repair_command": ["one"], "need_drain": true, "watch_seconds": 60, "command_retries": 1},
                {"repair_command": ["two"], "watch_seconds": 60}]}]}]});
    cluster
}

/// A scene with these repairs queued.
fn queued(nodes: &[&str]) -> Scene {
    let mut s = Scene::new();
    s.write("console", &[("cluster", with_repairs())], &[]);
    for (index, node) in (0..).zip(nodes) {
        let entry = json!({"index": index.to_string(), "address": address(node), "nodename": node, "machine_type": "t",
            "operation": "o", "status": "queued", "step": 0, "step_status": "waiting", "deleted": false,
            "last_transition_time": "0001-01-01T00:00:00Z", "drain_backoff_expire": "0001-01-01T00:00:00Z"});
        s.write("console", &[(&key(index), entry)], &[]);
    }
    s.advance(1.0);
    s
}

/// Changes an entry, by the engine.
fn change(s: &mut Scene, index: u64, status: &str, step: i64, step_status: &str) {
    let entry = changed(s, index, status, step, step_status);
    s.engine("repair", &[(&key(index), entry)], &[]);
}

fn changed(s: &Scene, index: u64, status: &str, step: i64, step_status: &str) -> Value {
    let mut entry = s.get(&key(index));
    entry["status"] = json!(status);
    entry["step"] = json!(step);
    entry["step_status"] = json!(step_status);
    entry["last_transition_time"] = json!(s.whole_second());
    entry
}

/// Begins a command of a step, or the success command, by the engine.
fn command(s: &mut Scene, index: u64, n: u32, node: &str, step: i64, words: &[&str], success: bool) {
    let argv: Vec<String> = words.iter().map(|w| (*w).to_owned()).chain([address(node)]).collect();
    let mut attempt = s.attempt(index, n, node);
    attempt["id"] = json!(format!("repairs-{index}-{n}"));
    attempt["entry"] = json!(format!("repairs/{index}"));
    attempt["argv"] = json!(argv);
    attempt["step"] = json!(step);
    attempt["success"] = json!(success);
    let status = if success { "waiting" } else { "watching" };
    let entry = changed(s, index, "processing", step, status);
    let attempt_key = format!("cketerm/attempts/repairs/{index}/{n}");
    s.engine("repair", &[(&key(index), entry), (&attempt_key, attempt)], &[]);
    begin(s, index, n, node, argv);
}

fn begin(s: &mut Scene, index: u64, n: u32, node: &str, argv: Vec<String>) {
    s.power(PowerEvent::Begin, index, n, node);
    let power = s.record.power.last_mut().unwrap();
    power.entry = format!("repairs/{index}");
    power.attempt = format!("repairs-{index}-{n}");
    power.argv = argv;
}

fn fail(s: &mut Scene, index: u64, n: u32) {
    let attempt_key = format!("cketerm/attempts/repairs/{index}/{n}");
    let closed = Scene::ended(&s.get(&attempt_key), 1, s.now);
    s.engine("repair", &[(&attempt_key, closed)], &[]);
}

#[test]
fn a_correct_repair_is_no_breach() {
    let mut s = queued(&["w1", "w2"]);
    command(&mut s, 0, 1, "w1", 0, &["one"], false);
    s.advance(1.0);
    fail(&mut s, 0, 1);
    s.advance(1.0);
    command(&mut s, 0, 2, "w1", 0, &["one"], false);
    change(&mut s, 1, "processing", 0, "draining");
    s.advance(61.0);
    command(&mut s, 0, 3, "w1", 1, &["two"], false);
    s.advance(5.0);
    assert_breaches(&s, &[]);
}

#[test]
fn i1_two_api_servers_in_progress_across_both_queues_are_reported() {
    let mut s = queued(&["cp1"]);
    s.add(0, "cp2");
    s.moves(0, "draining");
    assert_breaches(&s, &[]);
    let mut after = s.clone();
    change(&mut after, 0, "processing", 0, "draining");
    assert_breaches(&after, &["I1"]);
    let mut before = queued(&["cp1"]);
    change(&mut before, 0, "processing", 0, "draining");
    before.add(0, "cp2");
    before.moves(0, "draining");
    assert_breaches(&before, &["I1"]);
}

#[test]
fn i3_a_repair_start_above_the_limit_is_reported() {
    let mut s = queued(&["w1", "w2", "w3"]);
    change(&mut s, 0, "processing", 0, "draining");
    change(&mut s, 1, "processing", 0, "draining");
    assert_breaches(&s, &[]);
    change(&mut s, 2, "processing", 0, "draining");
    assert_breaches(&s, &["I3"]);
}

#[test]
fn i4_i43_two_entries_in_progress_of_one_machine_are_reported() {
    let mut twice = queued(&["w1", "w1"]);
    change(&mut twice, 0, "processing", 0, "draining");
    assert_breaches(&twice, &[]);
    change(&mut twice, 1, "processing", 0, "draining");
    assert_breaches(&twice, &["I4"]);
    let mut both = queued(&["w1"]);
    both.add(0, "w1");
    both.moves(0, "draining");
    change(&mut both, 0, "processing", 0, "draining");
    assert_breaches(&both, &["I43"]);
}

#[test]
fn i13_a_repair_start_or_command_while_the_queue_is_disabled_is_reported() {
    let mut s = queued(&["w1"]);
    s.write("console", &[("repairs/disabled", json!(true))], &[]);
    s.advance(30.0);
    let mut drains = s.clone();
    change(&mut drains, 0, "processing", 0, "draining");
    assert_breaches(&drains, &["I13"]);
    command(&mut s, 0, 1, "w1", 0, &["one"], false);
    assert_breaches(&s, &["I13"]);
}

#[test]
fn i25_a_repair_command_above_the_retries_or_before_an_outcome_is_reported() {
    let mut s = queued(&["w1"]);
    command(&mut s, 0, 1, "w1", 0, &["one"], false);
    s.advance(1.0);
    let mut unknown = s.clone();
    command(&mut unknown, 0, 2, "w1", 0, &["one"], false);
    assert_breaches(&unknown, &["I25"]);
    let mut again = s.clone();
    begin(&mut again, 0, 1, "w1", vec!["one".to_owned(), address("w1")]);
    assert_breaches(&again, &["I25"]);
    for n in 1..=2 {
        fail(&mut s, 0, n);
        s.advance(1.0);
        command(&mut s, 0, n + 1, "w1", 0, &["one"], false);
    }
    assert_breaches(&s, &["I25"]);
}

#[test]
fn i26_a_command_for_another_machine_or_step_is_reported() {
    let mut other = queued(&["w1"]);
    command(&mut other, 0, 1, "w2", 0, &["one"], false);
    assert_breaches(&other, &["I26"]);
    let mut words = queued(&["w1"]);
    command(&mut words, 0, 1, "w1", 0, &["two"], false);
    assert_breaches(&words, &["I26"]);
}

#[test]
fn i27_a_command_for_a_deleted_repair_is_reported() {
    for (seconds, codes) in [(1.0, &[][..]), (30.0, &["I27"])] {
        let mut s = queued(&["w1"]);
        command(&mut s, 0, 1, "w1", 0, &["one"], false);
        s.record.power.clear();
        let mut entry = s.get(&key(0));
        entry["deleted"] = json!(true);
        s.write("console", &[(&key(0), entry)], &[]);
        s.advance(seconds);
        begin(&mut s, 0, 1, "w1", vec!["one".to_owned(), address("w1")]);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i32_a_repair_without_a_reason_is_reported() {
    let mut s = queued(&["w1"]);
    s.advance(5.0);
    s.repair_reasons.insert(0, json!({"reason": "WaitingForSlot"}));
    let mut silent = s.clone();
    s.reports(6, &[], &[]);
    assert_breaches(&s, &[]);
    silent.repair_reasons.clear();
    silent.reports(6, &[], &[]);
    assert_breaches(&silent, &["I32"]);
}

#[test]
fn i38_a_repair_transition_without_an_audit_record_is_reported() {
    let mut s = queued(&["w1"]);
    change(&mut s, 0, "processing", 0, "draining");
    let last = s.record.keys.iter().rposition(|k| k.key.starts_with("cketerm/audit/")).unwrap();
    s.record.keys.remove(last);
    assert_breaches(&s, &["I38"]);
}

#[test]
fn i40_a_second_success_command_and_work_on_an_ended_repair_are_reported() {
    let mut s = queued(&["w1"]);
    command(&mut s, 0, 1, "w1", 0, &["well"], true);
    s.advance(1.0);
    let mut ended = s.clone();
    change(&mut ended, 0, "succeeded", 0, "waiting");
    ended.advance(1.0);
    assert_breaches(&ended, &[]);
    change(&mut ended, 0, "processing", 0, "draining");
    assert_breaches(&ended, &["I40"]);
    fail(&mut s, 0, 1);
    s.advance(1.0);
    command(&mut s, 0, 2, "w1", 0, &["well"], true);
    assert_breaches(&s, &["I40"]);
}

#[test]
fn i41_a_step_that_begins_too_early_skips_one_or_begins_while_disabled_is_reported() {
    let watching = |seconds: f64| {
        let mut s = queued(&["w1"]);
        command(&mut s, 0, 1, "w1", 0, &["one"], false);
        s.advance(seconds);
        s
    };
    let mut right = watching(61.0);
    change(&mut right, 0, "processing", 1, "draining");
    assert_breaches(&right, &[]);
    let mut early = watching(30.0);
    change(&mut early, 0, "processing", 1, "draining");
    assert_breaches(&early, &["I41"]);
    let mut far = watching(61.0);
    change(&mut far, 0, "processing", 2, "draining");
    assert_breaches(&far, &["I41"]);
    let mut disabled = watching(61.0);
    disabled.write("console", &[("repairs/disabled", json!(true))], &[]);
    change(&mut disabled, 0, "processing", 1, "watching");
    assert_breaches(&disabled, &["I41"]);
}

#[test]
fn i41_a_step_that_follows_a_health_check_of_the_watch_is_reported() {
    for (began, codes) in [(57.0, &["I41"][..]), (60.5, &[])] {
        let mut s = queued(&["w1"]);
        command(&mut s, 0, 1, "w1", 0, &["one"], false);
        let attempt_key = "cketerm/attempts/repairs/0/1";
        let closed = Scene::ended(&s.get(attempt_key), 0, s.now);
        s.engine("repair", &[(attempt_key, closed)], &[]);
        let begun = s.record.power.last().unwrap().clone();
        s.record.power.push(Power { at: s.now, what: PowerEvent::End(Some(0)), ..begun });
        s.advance(began);
        s.record.health_checks = Some(vec![(s.now, address("w1")), (s.now, address("w2"))]);
        s.advance(63.0 - began);
        change(&mut s, 0, "processing", 1, "draining");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i41_a_finished_step_that_begins_again_is_reported() {
    let mut drained = queued(&["w1"]);
    command(&mut drained, 0, 1, "w1", 0, &["one"], false);
    drained.advance(61.0);
    change(&mut drained, 0, "processing", 0, "draining");
    assert_breaches(&drained, &["I41"]);
    let mut s = queued(&["w1"]);
    command(&mut s, 0, 1, "w1", 0, &["one"], false);
    s.advance(1.0);
    let attempt_key = "cketerm/attempts/repairs/0/1";
    let closed = Scene::ended(&s.get(attempt_key), 0, s.now);
    s.engine("repair", &[(attempt_key, closed)], &[]);
    s.advance(61.0);
    command(&mut s, 0, 2, "w1", 0, &["one"], false);
    assert_breaches(&s, &["I25", "I41"]);
}

#[test]
fn i42_a_queue_above_its_cap_and_a_second_repair_of_a_machine_are_reported() {
    let add = |s: &mut Scene, index: u64, node: &str| {
        let entry = json!({"index": index.to_string(), "address": address(node), "nodename": node, "machine_type": "t",
            "operation": "o", "status": "queued", "step": 0, "step_status": "waiting", "deleted": false,
            "last_transition_time": "0001-01-01T00:00:00Z", "drain_backoff_expire": "0001-01-01T00:00:00Z"});
        s.engine("repair add", &[(&key(index), entry)], &[]);
    };
    let capped = |cap: u32| {
        let mut s = queued(&["w1"]);
        s.write("console", &[("constraints", json!({"maximum-repair-queue-entries": cap}))], &[]);
        s.advance(1.0);
        s
    };
    let mut below = capped(2);
    add(&mut below, 1, "w2");
    assert_breaches(&below, &[]);
    add(&mut below, 2, "w3");
    assert_breaches(&below, &["I42"]);
    let mut twice = capped(5);
    add(&mut twice, 1, "w1");
    assert_breaches(&twice, &["I42"]);
}

//! Windows and freezes. The time is midnight of 1 January 2026 in UTC, a Thursday.

use serde_json::{Value, json};

use super::{
    assert_breaches,
    scene::{Scene, key},
};

fn policy(s: &mut Scene, policy: Value) {
    s.write("console", &[("cketerm/policy", policy)], &[]);
}

fn close_window(s: &mut Scene) {
    policy(s, json!({"windows": {"time_zone": "UTC", "allow": ["* 2 * * *"]}}));
}

fn open_window(s: &mut Scene) {
    policy(s, json!({"windows": {"time_zone": "UTC", "allow": ["* 0-3 * * *"]}}));
}

fn freeze(s: &mut Scene) {
    policy(s, json!({"freeze": {"until": "2026-01-01T01:00:00Z", "reason": "r"}}));
}

fn hold(s: &mut Scene) {
    let order = json!({"verb": "hold", "who": {"user": "u", "host": "h"}, "at": s.whole_second(), "reason": "r", "entry_revision": 1});
    s.write("console", &[("cketerm/orders/reboots/0", order)], &[]);
}

#[test]
fn i8_a_drain_that_starts_outside_the_window_or_in_a_freeze_is_reported() {
    for (set_policy, codes) in [(open_window as fn(&mut Scene), &[][..]), (close_window, &["I8"]), (freeze, &["I8"])] {
        let mut s = Scene::new();
        set_policy(&mut s);
        s.add(0, "w1");
        s.advance(40.0);
        s.moves(0, "draining");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i8_a_drain_that_starts_within_the_margin_of_the_window_is_reported() {
    for (minute, codes) in [("0-9", &[][..]), ("0-3", &["I8"])] {
        let mut s = Scene::new();
        policy(&mut s, json!({"windows": {"time_zone": "UTC", "allow": [format!("{minute} * * * *")]}}));
        s.add(0, "w1");
        s.moves(0, "draining");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i8_an_attempt_outside_the_window_is_reported_and_an_earlier_one_is_not() {
    for (set_policy, codes) in [(open_window as fn(&mut Scene), &[][..]), (close_window, &["I8"]), (freeze, &["I8"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.advance(2.0);
        let mut before = s.clone();
        set_policy(&mut s);
        s.advance(1.0);
        s.powers(0, "w1");
        assert_breaches(&s, codes);
        before.powers(0, "w1");
        set_policy(&mut before);
        before.advance(60.0);
        before.ends(0, 1, "w1", 0);
        assert_breaches(&before, &[]);
    }
}

#[test]
fn i8_a_command_that_begins_long_after_the_window_ended_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.advance(2.0);
    s.powers(0, "w1");
    let begun = s.record.power.pop().unwrap();
    close_window(&mut s);
    s.advance(120.0);
    s.record.power.push(super::super::record::Power { at: s.now, ..begun });
    // a command this late also breaks the rule for leases
    assert!(s.codes().contains(&"I8"), "{:#?}", s.breaches());
}

#[test]
fn i8_a_rebooting_entry_that_is_requeued_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.reboot(0, "w1");
    close_window(&mut s);
    s.advance(10.0);
    let mut value = s.get(&key(0));
    value["status"] = json!("queued");
    s.engine("unwind", &[(&key(0), value)], &[]);
    assert!(s.codes().contains(&"I8"), "{:#?}", s.breaches());
}

#[test]
fn i8_an_entry_whose_command_never_began_may_be_requeued() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.advance(1.0);
    let attempt_key = "cketerm/attempts/reboots/0/1";
    let mut attempt = s.attempt(0, 1, "w1");
    let mut value = s.get(&key(0));
    value["status"] = json!("rebooting");
    value["last_transition_time"] = json!(s.whole_second());
    s.engine("power", &[(&key(0), value.clone()), (attempt_key, attempt.clone())], &[]);
    close_window(&mut s);
    s.advance(1.0);
    let end = json!({"withheld": "its window ended"});
    attempt["outcome"] = json!({"end": end, "at": s.now.to_string(), "stdout": "", "stderr": ""});
    s.engine("power", &[(attempt_key, attempt.clone())], &[]);
    s.advance(1.0);
    value["status"] = json!("queued");
    s.engine("unwind", &[(&key(0), value)], &[attempt_key]);
    assert_breaches(&s, &[]);
}

#[test]
fn i34_requeuing_without_a_count_is_reported_unless_closed_frozen_or_on_hold() {
    for (set_policy, codes) in
        [(open_window as fn(&mut Scene), &["I34"][..]), (close_window, &[]), (freeze, &[]), (hold, &[])]
    {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.advance(2.0);
        set_policy(&mut s);
        s.advance(1.0);
        let mut value = s.get(&key(0));
        value["status"] = json!("queued");
        value["last_transition_time"] = json!(s.whole_second());
        s.engine("unwind", &[(&key(0), value)], &[]);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i8_a_drain_that_outlasts_its_window_without_faults_is_reported() {
    for (seconds, codes) in [(20.0, &[][..]), (40.0, &["I8"])] {
        let mut s = Scene::new();
        s.record.calm_since = Some(s.now);
        s.advance(200.0);
        s.add(0, "w1");
        s.engine("running", &[("reboots/running", json!("true"))], &[]);
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.advance(1.0);
        close_window(&mut s);
        s.advance(seconds);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i30_overtaking_an_entry_outside_its_window_is_no_breach() {
    let window_by_rack = |s: &mut Scene| {
        let mut definition = super::scene::definition();
        for node in definition["nodes"].as_array_mut().unwrap() {
            let rack = if node["hostname"] == "w1" { "1" } else { "2" };
            node["labels"] = json!({"cke.cybozu.com/rack": rack});
        }
        let own = json!({"name": "one", "rack": 1, "allow": ["* 2 * * *"]});
        let windows = json!({"time_zone": "UTC", "allow": ["* 0-3 * * *"], "machines": [own]});
        s.write("console", &[("cluster", definition), ("cketerm/policy", json!({"windows": windows}))], &[]);
    };
    for (set_policy, codes) in [(open_window as fn(&mut Scene), &["I30"][..]), (window_by_rack, &[])] {
        let mut s = Scene::new();
        set_policy(&mut s);
        s.add(0, "w1");
        s.add(1, "w2");
        s.reports(1, &[(0, json!({"reason": "Ready"}))], &[]);
        s.advance(60.0);
        s.moves(1, "draining");
        s.cordon(1, "w2");
        s.advance(20.0);
        let without_i32: Vec<_> = s.codes().into_iter().filter(|c| *c != "I32").collect();
        assert_eq!(without_i32, codes, "{:#?}", s.breaches());
    }
}

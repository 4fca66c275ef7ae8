//! Windows and freezes. The time is midnight of 1 January 2026 in UTC, a Thursday.

use serde_json::{Value, json};

use super::{
    scene::{Scene, key},
    sees,
};

fn policy(s: &mut Scene, policy: Value) {
    s.write("console", &[("cketerm/policy", policy)], &[]);
}

fn shut(s: &mut Scene) {
    policy(s, json!({"windows": {"time_zone": "UTC", "allow": ["* 2 * * *"]}}));
}

fn open(s: &mut Scene) {
    policy(s, json!({"windows": {"time_zone": "UTC", "allow": ["* 0-3 * * *"]}}));
}

fn frozen(s: &mut Scene) {
    policy(s, json!({"freeze": {"until": "2026-01-01T01:00:00Z", "reason": "r"}}));
}

fn held(s: &mut Scene) {
    let order =
        json!({"verb": "hold", "who": {"user": "u", "host": "h"}, "at": s.whole(), "reason": "r", "entry_revision": 1});
    s.write("console", &[("cketerm/orders/reboots/0", order)], &[]);
}

#[test]
fn i8_a_drain_that_starts_outside_the_window_or_in_a_freeze_is_seen() {
    for (how, codes) in [(open as fn(&mut Scene), &[][..]), (shut, &["I8"]), (frozen, &["I8"])] {
        let mut s = Scene::new();
        how(&mut s);
        s.add(0, "w1");
        s.pass(40.0);
        s.moves(0, "draining");
        sees(&s, codes);
    }
}

#[test]
fn i8_a_drain_that_starts_right_before_the_window_ends_is_seen() {
    for (minute, codes) in [("0-9", &[][..]), ("0-3", &["I8"])] {
        let mut s = Scene::new();
        policy(&mut s, json!({"windows": {"time_zone": "UTC", "allow": [format!("{minute} * * * *")]}}));
        s.add(0, "w1");
        s.moves(0, "draining");
        sees(&s, codes);
    }
}

#[test]
fn i8_a_power_command_that_is_ordered_outside_is_seen_and_one_of_before_is_not() {
    for (how, codes) in [(open as fn(&mut Scene), &[][..]), (shut, &["I8"]), (frozen, &["I8"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pass(2.0);
        let mut before = s.clone();
        how(&mut s);
        s.pass(1.0);
        s.powers(0, "w1");
        sees(&s, codes);
        before.powers(0, "w1");
        how(&mut before);
        before.pass(60.0);
        before.ends(0, 1, "w1", 0);
        sees(&before, &[]);
    }
}

#[test]
fn i8_a_command_that_begins_long_after_the_window_ended_is_seen_whatever_etcd_says() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.pass(2.0);
    s.powers(0, "w1");
    let begun = s.record.power.pop().unwrap();
    shut(&mut s);
    s.pass(120.0);
    s.record.power.push(super::super::record::Power { at: s.now, ..begun });
    // so late a command also breaks the lease's rule
    assert!(s.codes().contains(&"I8"), "{:#?}", s.breaches());
}

#[test]
fn i8_rebooting_that_is_put_back_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.reboot(0, "w1");
    shut(&mut s);
    s.pass(10.0);
    let mut value = s.get(&key(0));
    value["status"] = json!("queued");
    s.engine("unwind", &[(&key(0), value)], &[]);
    assert!(s.codes().contains(&"I8"), "{:#?}", s.breaches());
}

#[test]
fn i8_a_command_that_never_began_may_be_put_back() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.pass(1.0);
    let place = "cketerm/attempts/reboots/0/1";
    let mut attempt = s.attempt(0, 1, "w1");
    let mut value = s.get(&key(0));
    value["status"] = json!("rebooting");
    value["last_transition_time"] = json!(s.whole());
    s.engine("power", &[(&key(0), value.clone()), (place, attempt.clone())], &[]);
    shut(&mut s);
    s.pass(1.0);
    let end = json!({"withheld": "its window ended"});
    attempt["outcome"] = json!({"end": end, "at": s.now.to_string(), "stdout": "", "stderr": ""});
    s.engine("power", &[(place, attempt.clone())], &[]);
    s.pass(1.0);
    value["status"] = json!("queued");
    s.engine("unwind", &[(&key(0), value)], &[place]);
    sees(&s, &[]);
}

#[test]
fn i34_a_drain_is_put_back_without_a_count_where_it_is_shut_or_held_and_nowhere_else() {
    for (how, codes) in [(open as fn(&mut Scene), &["I34"][..]), (shut, &[]), (frozen, &[]), (held, &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.pass(2.0);
        how(&mut s);
        s.pass(1.0);
        let mut value = s.get(&key(0));
        value["status"] = json!("queued");
        value["last_transition_time"] = json!(s.whole());
        s.engine("unwind", &[(&key(0), value)], &[]);
        sees(&s, codes);
    }
}

#[test]
fn i8_a_drain_that_is_not_unwound_is_seen_where_nothing_goes_wrong() {
    for (seconds, codes) in [(20.0, &[][..]), (40.0, &["I8"])] {
        let mut s = Scene::new();
        s.record.calm_since = Some(s.now);
        s.pass(200.0);
        s.add(0, "w1");
        s.engine("running", &[("reboots/running", json!("true"))], &[]);
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pass(1.0);
        shut(&mut s);
        s.pass(seconds);
        sees(&s, codes);
    }
}

#[test]
fn i30_one_whose_window_is_shut_is_overtaken_without_a_breach() {
    let by_rack = |s: &mut Scene| {
        let mut definition = super::scene::definition();
        for node in definition["nodes"].as_array_mut().unwrap() {
            let rack = if node["hostname"] == "w1" { "1" } else { "2" };
            node["labels"] = json!({"cke.cybozu.com/rack": rack});
        }
        let own = json!({"name": "one", "rack": 1, "allow": ["* 2 * * *"]});
        let windows = json!({"time_zone": "UTC", "allow": ["* 0-3 * * *"], "machines": [own]});
        s.write("console", &[("cluster", definition), ("cketerm/policy", json!({"windows": windows}))], &[]);
    };
    for (how, codes) in [(open as fn(&mut Scene), &["I30"][..]), (by_rack, &[])] {
        let mut s = Scene::new();
        how(&mut s);
        s.add(0, "w1");
        s.add(1, "w2");
        s.says(1, &[(0, json!({"reason": "Ready"}))], &[]);
        s.pass(60.0);
        s.moves(1, "draining");
        s.cordon(1, "w2");
        s.pass(20.0);
        let without_i32: Vec<_> = s.codes().into_iter().filter(|c| *c != "I32").collect();
        assert_eq!(without_i32, codes, "{:#?}", s.breaches());
    }
}

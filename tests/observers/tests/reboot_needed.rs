//! Reboots that the leader queues by itself because Nodes need them.

use serde_json::json;

use super::scene::{Scene, entry, key};

const ASKS: &str = "cketerm.io/reboot-needed";

/// A leader that may queue needed reboots, two at once and three a day.
fn scene() -> Scene {
    let mut s = Scene::new();
    let policy = json!({"reboot_needed": "queue", "reboot_needed_at_once": 2, "reboot_needed_per_day": 3});
    s.write("console", &[("cketerm/policy", policy)], &[]);
    s.advance(100.0);
    s
}

/// The engine queues a reboot by itself.
fn queues(s: &mut Scene, index: u64, node: &str) {
    let request = json!({"who": {"user": "reboot needed", "host": "h"}, "at": s.now.to_string(), "reason": "kernel"});
    let request_key = format!("cketerm/requests/reboots/{index}");
    s.engine(
        "reboot add",
        &[
            (&key(index), entry(index, node, "queued")),
            (&request_key, request),
            ("reboots/write-index", json!(index + 1)),
        ],
        &[],
    );
    s.advance(1.0);
}

fn ends(s: &mut Scene, index: u64) {
    s.engine("end", &[], &[&key(index)]);
    s.advance(1.0);
}

fn boots(s: &mut Scene, node: &str) {
    s.node(node, |n| n["status"]["nodeInfo"]["bootID"] = json!(format!("boot-{node}-new")));
    s.advance(100.0);
}

fn asks(s: &mut Scene, node: &str, cause: Option<&str>) {
    s.node(node, |n| n["metadata"]["annotations"][ASKS] = json!(cause));
    s.advance(100.0);
}

#[track_caller]
fn assert_breaches(s: &Scene, expected: &[&str]) {
    let found: Vec<_> = s.codes().into_iter().filter(|code| ["I57", "I58"].contains(code)).collect();
    assert_eq!(found, expected, "{:#?}", s.breaches());
}

#[test]
fn i57_a_second_entry_for_one_boot_id_is_reported() {
    for (is_booted, breaches) in [(false, &["I57"] as &[_]), (true, &[])] {
        let mut s = scene();
        queues(&mut s, 0, "w1");
        ends(&mut s, 0);
        if is_booted {
            boots(&mut s, "w1");
        }
        queues(&mut s, 1, "w1");
        assert_breaches(&s, breaches);
    }
}

#[test]
fn i57_an_entry_for_a_signal_that_stayed_after_its_reboot_is_reported() {
    for (is_set_anew, breaches) in [(false, &["I57"] as &[_]), (true, &[])] {
        let mut s = scene();
        asks(&mut s, "w1", Some("kernel"));
        queues(&mut s, 0, "w1");
        ends(&mut s, 0);
        boots(&mut s, "w1");
        if is_set_anew {
            asks(&mut s, "w1", None);
            asks(&mut s, "w1", Some("kernel"));
        }
        queues(&mut s, 1, "w1");
        assert_breaches(&s, breaches);
    }
}

#[test]
fn i58_an_entry_above_the_limit_at_once_is_reported() {
    let mut s = scene();
    queues(&mut s, 0, "w1");
    queues(&mut s, 1, "w2");
    assert_breaches(&s, &[]);
    queues(&mut s, 2, "w3");
    assert_breaches(&s, &["I58"]);
}

#[test]
fn i58_an_entry_above_the_limit_a_day_is_reported() {
    let mut s = scene();
    for (index, node) in (0..).zip(["w1", "w2", "w3"]) {
        queues(&mut s, index, node);
        ends(&mut s, index);
    }
    assert_breaches(&s, &[]);
    let mut tomorrow = s.clone();
    tomorrow.advance(86_400.0);
    queues(&mut tomorrow, 3, "w4");
    assert_breaches(&tomorrow, &[]);
    queues(&mut s, 3, "w4");
    assert_breaches(&s, &["I58"]);
}

#[test]
fn i58_an_entry_against_the_rules_of_the_queue_is_reported() {
    let cases: [fn(&mut Scene); 4] = [
        |s| s.write("console", &[("cketerm/policy", json!({"reboot_needed": "propose"}))], &[]),
        |s| s.write("console", &[("reboots/disabled", json!(true))], &[]),
        |s| {
            let until = s.whole_second_after(600);
            let freeze = json!({"until": until, "reason": "audit", "who": {"user": "alice", "host": "h"}});
            s.write("console", &[("cketerm/policy", json!({"reboot_needed": "queue", "freeze": freeze}))], &[]);
        },
        |s| s.add(7, "w1"),
    ];
    for case in cases {
        let mut s = scene();
        case(&mut s);
        s.advance(1.0);
        queues(&mut s, 8, "w1");
        assert_breaches(&s, &["I58"]);
    }
}

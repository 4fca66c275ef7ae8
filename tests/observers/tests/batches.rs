//! Pauses of batches.

use serde_json::{Value, json};

use super::{assert_breaches, scene::Scene};

const ID: &str = "6fy2jg00";

fn batch(paused: bool) -> Value {
    let who = json!({"user": "alice", "host": "h"});
    let at = "2026-08-01T12:00:00Z";
    let mut batch = json!({"queue": "reboot", "who": who, "at": at, "asked": 1, "added": 1});
    if paused {
        batch["paused"] = json!({"who": who, "at": at});
    }
    batch
}

/// A worker's entry of a batch.
fn scene(paused: bool) -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    let who = json!({"user": "alice", "host": "h"});
    let request = json!({"who": who, "at": "2026-08-01T12:00:00Z", "batch": ID});
    s.write(
        "console",
        &[("cketerm/requests/reboots/0", request), (&format!("cketerm/batches/{ID}"), batch(paused))],
        &[],
    );
    s.advance(1.0);
    s
}

#[test]
fn i53_a_start_of_an_entry_of_a_paused_batch_is_reported() {
    for paused in [false, true] {
        let mut s = scene(paused);
        s.moves(0, "draining");
        assert_breaches(&s, if paused { &["I53"] } else { &[] });
    }
}

#[test]
fn i53_a_start_of_an_entry_of_an_unreadable_batch_is_reported() {
    for (value, breaches) in [(json!({"queue": "reboot"}), &["I53"] as &[_]), (batch(false), &[])] {
        let mut s = scene(false);
        s.write("etcdctl", &[(&format!("cketerm/batches/{ID}"), value)], &[]);
        s.advance(1.0);
        s.moves(0, "draining");
        assert_breaches(&s, breaches);
    }
}

#[test]
fn i54_an_entry_that_joins_a_cancelled_batch_is_reported() {
    for is_cancelled in [false, true] {
        let mut s = scene(false);
        let who = json!({"user": "bob", "host": "h"});
        let at = "2026-08-01T12:00:00Z";
        let mut changed = batch(false);
        if is_cancelled {
            changed["cancelled"] = json!({"who": who, "at": at});
        }
        s.write("console", &[(&format!("cketerm/batches/{ID}"), changed.clone())], &[]);
        let request = json!({"who": who, "at": at, "batch": ID});
        s.write(
            "console",
            &[("cketerm/requests/reboots/7", request), (&format!("cketerm/batches/{ID}"), changed)],
            &[],
        );
        assert_breaches(&s, if is_cancelled { &["I54"] } else { &[] });
    }
}

#[test]
fn i53_an_entry_in_work_before_the_pause_may_go_on() {
    let mut s = scene(false);
    s.moves(0, "draining");
    s.write("console", &[(&format!("cketerm/batches/{ID}"), batch(true))], &[]);
    s.cordon(0, "w1");
    s.advance(2.0);
    s.powers(0, "w1");
    assert_breaches(&s, &[]);
}

#[test]
fn i2_a_worker_of_a_paused_batch_does_not_hold_back_an_api_server() {
    for paused in [false, true] {
        let mut s = scene(paused);
        s.add(1, "cp1");
        s.advance(40.0);
        s.moves(1, "draining");
        assert_breaches(&s, if paused { &[] } else { &["I2"] });
    }
}

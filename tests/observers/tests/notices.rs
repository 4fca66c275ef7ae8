//! Notices: an end without a notice is a breach, and so is an id with two contents.

use serde_json::json;

use super::{super::record::Received, assert_breaches, scene::Scene};

fn scene() -> Scene {
    let mut s = Scene::new();
    s.engine("first", &[("cketerm/notices/hook", json!({"next": 1}))], &[]);
    s.add(0, "w1");
    s.reboot(0, "w1");
    s.advance(5.0);
    s.removes(0, "booted");
    s.advance(0.1);
    s.uncordon("w1");
    s.advance(20.0);
    s.record.calm_since = Some(s.now);
    s
}

fn deliver(s: &mut Scene, notice: serde_json::Value, taken: bool) {
    let received = Received { at: s.now, by: "engine-0".to_owned(), notice, taken };
    s.record.received.push(received);
}

#[test]
fn an_ended_entry_without_a_notice_is_reported() {
    let mut s = scene();
    let one =
        json!({"id": "c-1", "kind": "finished", "key": "ended/reboots/0", "title": "reboots/0 on w1 ended: booted"});
    deliver(&mut s, one.clone(), false);
    assert_breaches(&s, &["notices"]);
    deliver(&mut s, one, true);
    assert_breaches(&s, &[]);
}

#[test]
fn a_combined_notice_announces_each_entry_that_it_lists() {
    let mut s = scene();
    deliver(&mut s, json!({"id": "c-1", "kind": "many", "text": "boot-0 leads\nreboots/0 on w1 ended: booted"}), true);
    assert_breaches(&s, &[]);
    s.record.received.clear();
    deliver(&mut s, json!({"id": "c-1", "kind": "many", "text": "boot-0 leads\nreboots/1 on w1 ended: booted"}), true);
    assert_breaches(&s, &["notices"]);
}

#[test]
fn two_notices_with_the_same_id_are_reported() {
    let mut s = scene();
    let one = |text: &str| json!({"id": "c-1", "kind": "finished", "key": "ended/reboots/0", "text": text});
    deliver(&mut s, one("a"), true);
    deliver(&mut s, one("a"), true);
    assert_breaches(&s, &[]);
    deliver(&mut s, one("b"), true);
    assert_breaches(&s, &["notices"]);
}

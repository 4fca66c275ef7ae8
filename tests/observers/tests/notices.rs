//! Notices: an end without a notice is a breach, and so is an id with two contents.

use serde_json::json;

use super::{super::record::Received, scene::Scene, sees};

fn scene() -> Scene {
    let mut s = Scene::new();
    s.engine("first", &[("cketerm/notices/hook", json!({"next": 1}))], &[]);
    s.add(0, "w1");
    s.reboot(0, "w1");
    s.pass(5.0);
    s.removes(0, "booted");
    s.pass(0.1);
    s.uncordon("w1");
    s.pass(20.0);
    s.record.calm_since = Some(s.now);
    s
}

fn brings(s: &mut Scene, notice: serde_json::Value, taken: bool) {
    let received = Received { at: s.now, by: "engine-0".to_owned(), notice, taken };
    s.record.received.push(received);
}

#[test]
fn an_end_that_was_told_to_nobody_is_seen() {
    let mut s = scene();
    let one =
        json!({"id": "c-1", "kind": "finished", "key": "ended/reboots/0", "title": "reboots/0 on w1 ended: booted"});
    brings(&mut s, one.clone(), false);
    sees(&s, &["told"]);
    brings(&mut s, one, true);
    sees(&s, &[]);
}

#[test]
fn an_end_among_several_counts() {
    let mut s = scene();
    brings(&mut s, json!({"id": "c-1", "kind": "many", "text": "boot-0 leads\nreboots/0 on w1 ended: booted"}), true);
    sees(&s, &[]);
    s.record.received.clear();
    brings(&mut s, json!({"id": "c-1", "kind": "many", "text": "boot-0 leads\nreboots/1 on w1 ended: booted"}), true);
    sees(&s, &["told"]);
}

#[test]
fn an_id_with_two_meanings_is_seen() {
    let mut s = scene();
    let one = |text: &str| json!({"id": "c-1", "kind": "finished", "key": "ended/reboots/0", "text": text});
    brings(&mut s, one("a"), true);
    brings(&mut s, one("a"), true);
    sees(&s, &[]);
    brings(&mut s, one("b"), true);
    sees(&s, &["told"]);
}

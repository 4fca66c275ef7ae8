//! Conditions on Nodes and the taint of planned reboots.

use serde_json::{Value, json};

use super::scene::Scene;

fn condition(kind: &str, reason: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": "m"})
}

/// Writes these conditions beside Ready, as a patch of an engine.
fn set(s: &mut Scene, node: &str, conditions: &[Value]) {
    let mut all = vec![json!({"type": "Ready", "status": "True"})];
    all.extend(conditions.iter().cloned());
    s.patch_status("engine-0", node, json!({"status": {"conditions": all}}));
}

fn taint(s: &mut Scene, node: &str, taints: Value) {
    s.patch("engine-0", node, json!({"spec": {"taints": taints}}));
}

fn planned_taint() -> Value {
    json!([{"key": "cketerm.io/reboot-planned", "effect": "PreferNoSchedule"}])
}

/// Ends the record after a calm time in which an engine led.
fn end(mut s: Scene) -> Scene {
    s.record.calm_since = Some(s.now);
    s.advance(400.0);
    s
}

#[track_caller]
fn assert_breaches(s: &Scene, expected: &[&str]) {
    let found: Vec<_> = s.codes().into_iter().filter(|code| ["I67", "I68", "I11"].contains(code)).collect();
    assert_eq!(found, expected, "{:#?}", s.breaches());
}

#[test]
fn i67_a_condition_without_its_entry_is_reported() {
    for (kind, status, expected) in [
        ("MaintenancePlanned", "queued", &[][..]),
        ("DrainInProgress", "queued", &["I67"]),
        ("DrainInProgress", "draining", &[]),
        ("MaintenancePlanned", "draining", &["I67"]),
    ] {
        let mut s = Scene::new();
        s.add(0, "w1");
        if status != "queued" {
            s.moves(0, status);
            s.advance(60.0);
        }
        set(&mut s, "w1", &[condition(kind, "CketermReboot")]);
        assert_breaches(&s, expected);
    }
    let mut s = Scene::new();
    s.add(0, "w1");
    set(&mut s, "w2", &[condition("MaintenancePlanned", "CketermReboot")]);
    assert_breaches(&s, &["I67"]);
}

#[test]
fn i67_a_changed_condition_of_another_program_is_reported() {
    let foreign = condition("Drained", "SomebodyElse");
    for kept in [true, false] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.node("w1", |node| node["status"]["conditions"].as_array_mut().unwrap().push(foreign.clone()));
        let other = if kept { foreign.clone() } else { condition("Drained", "CketermReboot") };
        set(&mut s, "w1", &[other, condition("MaintenancePlanned", "CketermReboot")]);
        assert_breaches(&s, if kept { &[] } else { &["I67"] });
    }
}

#[test]
fn i67_i68_signs_that_outlive_their_entry_are_reported() {
    for (cleared, expected) in [(true, &[][..]), (false, &["I67", "I68"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        set(&mut s, "w1", &[condition("MaintenancePlanned", "CketermReboot")]);
        taint(&mut s, "w1", planned_taint());
        s.removes(0, "cancelled");
        if cleared {
            set(&mut s, "w1", &[]);
            taint(&mut s, "w1", json!([]));
        }
        assert_breaches(&end(s), expected);
    }
}

#[test]
fn i68_a_taint_without_a_queued_reboot_and_a_changed_taint_of_others_are_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    taint(&mut s, "w1", planned_taint());
    assert_breaches(&s, &[]);
    taint(&mut s, "w2", planned_taint());
    assert_breaches(&s, &["I68"]);
    // the same key with another effect is another program's
    let mut s = Scene::new();
    s.add(0, "w1");
    taint(&mut s, "w1", json!([{"key": "cketerm.io/reboot-planned", "effect": "NoExecute"}]));
    assert_breaches(&s, &["I11"]);
}

//! A definition that follows the Nodes.

use serde_json::{Value, json};

use super::{
    assert_breaches,
    scene::{Scene, definition},
};

/// A definition that follows the Nodes, with a grace period of a minute.
fn scene() -> Scene {
    let mut s = Scene::new();
    s.write("console", &[("cketerm/policy", json!({"membership": "nodes", "node_grace_seconds": 60}))], &[]);
    s.advance(100.0);
    s
}

/// The definition without a member.
fn without(name: &str) -> Value {
    let mut definition = definition();
    definition["nodes"].as_array_mut().unwrap().retain(|node| node["hostname"] != name);
    definition
}

fn generated(approved: bool) -> Value {
    let mut record = json!({"at": "2026-01-01T00:00:00Z", "action": "remove-nodes", "reason": "x", "joining": []});
    if approved {
        record["approved_by"] = json!({"user": "alice", "host": "h"});
    }
    record
}

/// Removes a Node, and after some seconds the engine removes the member.
fn leaves(s: &mut Scene, name: &str, after: f64, approved: bool) {
    s.object("nodes", "", name, None);
    s.advance(after);
    s.engine("generate", &[("cluster", without(name)), ("cketerm/generated", generated(approved))], &[]);
}

#[test]
fn i55_a_member_that_leaves_before_its_grace_period_is_reported() {
    for (after, breaches) in [(10.0, &["I55"] as &[_]), (61.0, &[])] {
        let mut s = scene();
        leaves(&mut s, "w5", after, false);
        assert_breaches(&s, breaches);
    }
}

#[test]
fn i55_a_member_that_leaves_while_its_entry_is_in_work_is_reported() {
    for (status, breaches) in [("draining", &["I55"] as &[_]), ("queued", &[])] {
        let mut s = scene();
        s.add(0, "w5");
        s.advance(1.0);
        if status == "draining" {
            s.moves(0, status);
        }
        leaves(&mut s, "w5", 61.0, false);
        let found: Vec<_> = s.codes().into_iter().filter(|code| *code == "I55").collect();
        assert_eq!(found, breaches, "{status}");
    }
}

#[test]
fn i56_a_control_plane_that_leaves_without_an_approval_is_reported() {
    for (approved, breaches) in [(false, &["I56"] as &[_]), (true, &[])] {
        let mut s = scene();
        leaves(&mut s, "cp3", 61.0, approved);
        assert_breaches(&s, breaches);
    }
}

//! Work in a cluster that is not etcd's (I76).

use serde_json::{Value, json};

use super::scene::Scene;

fn identify(s: &mut Scene, uid: &str) {
    s.write("console", &[("cketerm/identity", json!({"uid": uid, "at": "2026-01-01T00:00:00Z"}))], &[]);
}

/// Returns whether I76 reports what the engine does to a Node so many seconds after etcd has got another identity.
fn is_reported(after: f64, restored: bool, act: impl Fn(&mut Scene)) -> bool {
    let mut s = Scene::new();
    identify(&mut s, "own");
    s.patch("kubectl", "w1", json!({"spec": {"unschedulable": true}}));
    identify(&mut s, "another");
    s.advance(after);
    if restored {
        identify(&mut s, "own");
    }
    act(&mut s);
    s.codes().contains(&"I76")
}

#[test]
fn i76_a_change_of_a_node_of_another_cluster_is_reported() {
    let uncordon = |s: &mut Scene| s.patch("engine-0", "w1", json!({"spec": {"unschedulable": Value::Null}}));
    let conditions = |s: &mut Scene| s.patch_status("engine-0", "w1", json!({"status": {"conditions": []}}));
    assert!(is_reported(60.0, false, uncordon) && is_reported(60.0, false, conditions));
    assert!(!is_reported(2.0, false, uncordon), "the request may have been on its way");
    assert!(!is_reported(60.0, true, uncordon), "the identity is this cluster's again");
    assert!(!is_reported(60.0, false, |s| s.patch("engine-0", "w2", json!({"spec": {"unschedulable": true}}))));
    assert!(!is_reported(60.0, false, |s| s.patch("kubectl", "w1", json!({"spec": {"unschedulable": Value::Null}}))));
}

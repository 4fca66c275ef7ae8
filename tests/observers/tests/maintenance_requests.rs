//! `MaintenanceRequest`s.

use serde_json::json;

use super::{assert_breaches, scene::Scene};

fn request(s: &mut Scene, index: u64, user: &str, uid: &str) {
    let request = json!({"who": {"user": user, "host": "h"}, "at": s.now.to_string(), "node_uid": uid});
    s.set_key(&format!("cketerm/requests/maintenance/{index}"), Some(request.to_string().as_bytes()));
}

#[test]
fn i74_a_second_entry_for_a_node_is_reported() {
    let mut s = Scene::new();
    request(&mut s, 0, "maintenancerequest/a", "u1");
    request(&mut s, 1, "maintenancerequest/a", "u2");
    request(&mut s, 2, "maintenancerequest/b", "u1");
    request(&mut s, 3, "alice", "u1");
    request(&mut s, 4, "alice", "u1");
    assert_breaches(&s, &[]);
    request(&mut s, 5, "maintenancerequest/a", "u1");
    assert_breaches(&s, &["I74"]);
}

#[test]
fn i74_an_entry_that_outlives_its_deleted_request_is_reported() {
    for (released, expected) in [(false, &["I74"][..]), (true, &[])] {
        let mut s = Scene::new();
        let until = cketerm_model::time::after(s.now, 3600).to_string();
        let mut entry = json!({"index": "3", "node": "10.9.9.9", "status": "queued", "until": until});
        if released {
            entry["released"] = json!({"who": {"user": "x", "host": "h"}, "at": s.now.to_string()});
        }
        s.set_key("cketerm/maintenance/data/0000000000000003", Some(entry.to_string().as_bytes()));
        let record = json!({"name": "a", "action": "Keep", "reason": "x", "at": s.now.to_string(),
            "nodes": [{"name": "w1", "address": "10.9.9.9", "uid": "u", "index": 3}],
            "ended": {"at": s.now.to_string(), "cause": "Deleted"}});
        s.set_key("cketerm/maintenance-requests/uid", Some(record.to_string().as_bytes()));
        assert_breaches(&s, expected);
    }
}

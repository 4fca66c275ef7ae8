//! Requests that are accepted while CKE leads.

use serde_json::{Value, json};

use super::{
    scene::{LEASE, Scene},
    sees,
};

/// The cketerm engine has ended, and CKE has the lock: a key in `leader/` without a registration.
fn cke_leads() -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.hand(&format!("leader//{LEASE:x}"), None);
    s.hand("leader//cce", Some(b"boot-0"));
    s.pass(1.0);
    s
}

fn order(verb: &str) -> Value {
    json!({"verb": verb, "who": {"user": "ann", "host": "h"}, "at": "2026-01-01T00:01:00Z", "entry_revision": 3})
}

fn audit(what: &str) -> Value {
    json!({"at": "2026-01-01T00:01:00Z", "who": {"user": "ann", "host": "h"}, "what": what, "on": "x", "result": "done"})
}

#[test]
fn i52_an_order_that_cke_does_not_know_is_seen() {
    for verb in ["hold", "force", "retry", "done"] {
        let mut s = cke_leads();
        s.write("console", &[("cketerm/orders/reboots/0", order(verb))], &[]);
        sees(&s, &["I52"]);
        // the same while a cketerm engine leads
        let mut s = Scene::new();
        s.add(0, "w1");
        s.write("console", &[("cketerm/orders/reboots/0", order(verb))], &[]);
        assert!(!s.codes().contains(&"I52"), "{verb}");
    }
    let mut s = cke_leads();
    s.write("console", &[("cketerm/approvals/hold", audit("x"))], &[]);
    sees(&s, &["I52"]);
}

#[test]
fn i52_a_rule_that_is_not_stored_for_a_handover_is_seen() {
    let freeze =
        json!({"freeze": {"until": "2026-02-01T00:00:00Z", "reason": "x", "who": {"user": "ann", "host": "h"}}});
    for rule in [freeze.clone(), json!({"groups": {"by": "rack"}}), json!({"stuck_seconds": 5})] {
        let mut s = cke_leads();
        s.write(
            "console",
            &[("cketerm/policy", rule.clone()), ("cketerm/audit/1-0000000000000002", audit("policy set"))],
            &[],
        );
        sees(&s, &["I52"]);
        let mut s = cke_leads();
        s.write(
            "console",
            &[("cketerm/policy", rule), ("cketerm/audit/1-0000000000000002", audit("policy set for handover"))],
            &[],
        );
        sees(&s, &[]);
    }
    let mut s = cke_leads();
    s.write("console", &[("cketerm/policy", json!({"engine": "always"}))], &[]);
    sees(&s, &[]);
    // an earlier setting may be removed
    let mut s = Scene::new();
    s.write("console", &[("cketerm/policy", freeze)], &[]);
    s.hand(&format!("leader//{LEASE:x}"), None);
    s.hand("leader//cce", Some(b"boot-0"));
    s.write("console", &[("cketerm/policy", json!({}))], &[]);
    sees(&s, &[]);
}

//! Requests that are accepted while CKE leads.

use serde_json::{Value, json};

use super::{
    assert_breaches,
    scene::{LEASE, Scene},
};

/// The cketerm engine has ended, and CKE has the lock: a key in `leader/` without a registration.
fn cke_leads() -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.set_key(&format!("leader//{LEASE:x}"), None);
    s.set_key("leader//cce", Some(b"boot-0"));
    s.advance(1.0);
    s
}

fn order(verb: &str) -> Value {
    json!({"verb": verb, "who": {"user": "ann", "host": "h"}, "at": "2026-01-01T00:01:00Z", "entry_revision": 3})
}

fn audit(what: &str) -> Value {
    json!({"at": "2026-01-01T00:01:00Z", "who": {"user": "ann", "host": "h"}, "what": what, "on": "x", "result": "done"})
}

#[test]
fn i52_an_order_that_cke_does_not_support_is_reported() {
    for verb in ["hold", "force", "retry", "done"] {
        let mut s = cke_leads();
        s.write("console", &[("cketerm/orders/reboots/0", order(verb))], &[]);
        assert_breaches(&s, &["I52"]);
        // the same while a cketerm engine leads
        let mut s = Scene::new();
        s.add(0, "w1");
        s.write("console", &[("cketerm/orders/reboots/0", order(verb))], &[]);
        assert!(!s.codes().contains(&"I52"), "{verb}");
    }
    let mut s = cke_leads();
    s.write("console", &[("cketerm/approvals/hold", audit("x"))], &[]);
    assert_breaches(&s, &["I52"]);
}

#[test]
fn i52_a_policy_field_set_without_a_handover_is_reported() {
    let freeze =
        json!({"freeze": {"until": "2026-02-01T00:00:00Z", "reason": "x", "who": {"user": "ann", "host": "h"}}});
    for rule in [freeze.clone(), json!({"groups": {"by": "rack"}}), json!({"stuck_seconds": 5})] {
        let mut s = cke_leads();
        s.write(
            "console",
            &[("cketerm/policy", rule.clone()), ("cketerm/audit/1-0000000000000002", audit("policy set"))],
            &[],
        );
        assert_breaches(&s, &["I52"]);
        let mut s = cke_leads();
        s.write(
            "console",
            &[("cketerm/policy", rule), ("cketerm/audit/1-0000000000000002", audit("policy set for handover"))],
            &[],
        );
        assert_breaches(&s, &[]);
    }
    let mut s = cke_leads();
    s.write("console", &[("cketerm/policy", json!({"engine": "always"}))], &[]);
    assert_breaches(&s, &[]);
    // an earlier setting may be removed
    let mut s = Scene::new();
    s.write("console", &[("cketerm/policy", freeze)], &[]);
    s.set_key(&format!("leader//{LEASE:x}"), None);
    s.set_key("leader//cce", Some(b"boot-0"));
    s.write("console", &[("cketerm/policy", json!({}))], &[]);
    assert_breaches(&s, &[]);
}

//! Bounds: a person's record that is deleted too early is a breach, and so is a transaction that etcd would refuse.

use jiff::SignedDuration;
use serde_json::json;

use super::{assert_breaches, scene::Scene};

fn record(s: &Scene, user: &str) -> serde_json::Value {
    json!({"at": s.now.to_string(), "who": {"user": user, "host": "h"}, "what": "queue disable", "on": "x", "result": "done"})
}

#[test]
fn i48_an_early_deletion_of_a_persons_audit_record_is_reported() {
    let mut s = Scene::new();
    for (key, user) in [("cketerm/audit/1-000000000000000a", "ann"), ("cketerm/audit/2-b-c-d", "engine")] {
        let record_value = record(&s, user);
        s.write("console", &[(key, record_value)], &[]);
    }
    s.advance(5.0);
    let mut flushed = s.clone();
    flushed.engine("prune", &[], &["cketerm/audit/2-b-c-d"]);
    assert_breaches(&flushed, &[]);
    flushed.engine("prune", &[], &["cketerm/audit/1-000000000000000a"]);
    assert_breaches(&flushed, &["I48"]);
    // three months later it may be deleted
    let old = s.record.keys.iter_mut().find(|c| c.key == "cketerm/audit/1-000000000000000a").unwrap();
    let record_value =
        json!({"at": (old.at - SignedDuration::from_hours(91 * 24)).to_string(), "who": {"user": "ann", "host": "h"}});
    old.value = Some(record_value.to_string().into_bytes());
    s.engine("prune", &[], &["cketerm/audit/1-000000000000000a"]);
    assert_breaches(&s, &[]);
}

#[test]
fn i48_an_audit_record_under_the_key_of_another_kind_of_author_is_reported() {
    for (key, user) in [("cketerm/audit/2-b-c-d", "ann"), ("cketerm/audit/1-000000000000000a", "engine")] {
        let mut s = Scene::new();
        let record_value = record(&s, user);
        s.write("console", &[(key, record_value)], &[]);
        assert_breaches(&s, &["I48"]);
    }
}

#[test]
fn i49_a_too_large_transaction_is_reported_even_if_etcd_refused_it() {
    let mut s = Scene::new();
    s.engine("a write", &[("cketerm/x", json!("y"))], &[]);
    let last = s.record.txns.len() - 1;
    (s.record.txns[last].operations, s.record.txns[last].bytes) = (128, 1 << 20);
    assert_breaches(&s, &[]);
    let mut many = s.clone();
    (many.record.txns[last].operations, many.record.txns[last].succeeded) = (129, false);
    assert_breaches(&many, &["I49"]);
    s.record.txns[last].bytes = 2 << 20;
    assert_breaches(&s, &["I49"]);
}

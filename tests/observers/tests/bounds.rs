//! Bounds: a person's record that is deleted too early is a breach, and so is a transaction that etcd would refuse.

use jiff::SignedDuration;
use serde_json::json;

use super::{scene::Scene, sees};

fn record(s: &Scene, user: &str) -> serde_json::Value {
    json!({"at": s.now.to_string(), "who": {"user": user, "host": "h"}, "what": "queue disable", "on": "x", "result": "done"})
}

#[test]
fn a_persons_audit_record_that_is_deleted_too_early_is_seen_and_an_engines_is_not() {
    let mut s = Scene::new();
    for (key, user) in [("cketerm/audit/1-000000000000000a", "ann"), ("cketerm/audit/2-b-c-d", "engine")] {
        let told = record(&s, user);
        s.write("console", &[(key, told)], &[]);
    }
    s.pass(5.0);
    let mut flushed = s.clone();
    flushed.engine("prune", &[], &["cketerm/audit/2-b-c-d"]);
    sees(&flushed, &[]);
    flushed.engine("prune", &[], &["cketerm/audit/1-000000000000000a"]);
    sees(&flushed, &["I48"]);
    // three months later it may be deleted
    let old = s.record.keys.iter_mut().find(|c| c.key == "cketerm/audit/1-000000000000000a").unwrap();
    let told =
        json!({"at": (old.at - SignedDuration::from_hours(91 * 24)).to_string(), "who": {"user": "ann", "host": "h"}});
    old.value = Some(told.to_string().into_bytes());
    s.engine("prune", &[], &["cketerm/audit/1-000000000000000a"]);
    sees(&s, &[]);
}

#[test]
fn an_audit_record_that_is_kept_as_somebody_elses_is_seen() {
    for (key, user) in [("cketerm/audit/2-b-c-d", "ann"), ("cketerm/audit/1-000000000000000a", "engine")] {
        let mut s = Scene::new();
        let told = record(&s, user);
        s.write("console", &[(key, told)], &[]);
        sees(&s, &["I48"]);
    }
}

#[test]
fn a_transaction_that_is_too_large_is_seen_though_etcd_refused_it() {
    let mut s = Scene::new();
    s.engine("a write", &[("cketerm/x", json!("y"))], &[]);
    let last = s.record.txns.len() - 1;
    (s.record.txns[last].operations, s.record.txns[last].bytes) = (128, 1 << 20);
    sees(&s, &[]);
    let mut many = s.clone();
    (many.record.txns[last].operations, many.record.txns[last].succeeded) = (129, false);
    sees(&many, &["I49"]);
    s.record.txns[last].bytes = 2 << 20;
    sees(&s, &["I49"]);
}

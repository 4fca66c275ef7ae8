//! Gates of the site for new reboots.

use serde_json::json;

use super::{
    super::record::GateQuery,
    assert_breaches,
    scene::{LEASE, Scene},
};

const EXPRESSION: &str = "ceph_health_status > 0";

/// A scene whose policy has a gate, with a queued reboot.
fn scene() -> Scene {
    let mut s = Scene::new();
    let gates = json!({"prometheus": "http://p", "queries": [{"name": "ceph", "query": EXPRESSION}],
        "interval_seconds": 30, "timeout_seconds": 10});
    s.write("console", &[("cketerm/policy", json!({"start_gates": gates}))], &[]);
    s.record.gate_queries = Some(Vec::new());
    s.add(0, "w1");
    s
}

/// Lets the engine ask now; none = it gets no answer.
fn asks(s: &mut Scene, empty: Option<bool>) {
    let query = GateQuery {
        at: s.now,
        by: "engine-0".to_owned(),
        expression: EXPRESSION.to_owned(),
        answered: empty.map(|_| s.now),
        empty: empty == Some(true),
    };
    s.record.gate_queries.as_mut().unwrap().push(query);
}

fn starts(mut s: Scene, after: f64) -> Scene {
    s.advance(after);
    s.moves(0, "draining");
    s
}

#[test]
fn i72_a_start_behind_a_gate_that_is_closed_or_unknown_is_reported() {
    let answered = |answers: &[Option<bool>], after: f64| {
        let mut s = scene();
        for empty in answers {
            asks(&mut s, *empty);
            s.advance(30.0);
        }
        starts(s, after)
    };
    assert_breaches(&answered(&[Some(true)], 0.0), &[]);
    assert_breaches(&answered(&[Some(false), Some(true)], 0.0), &[]);
    assert_breaches(&answered(&[], 0.0), &["I72"]);
    assert_breaches(&answered(&[Some(false)], 0.0), &["I72"]);
    assert_breaches(&answered(&[Some(true), Some(false)], 0.0), &["I72"]);
    assert_breaches(&answered(&[Some(true), None], 0.0), &["I72"]);
    assert_breaches(&answered(&[Some(true)], 60.0), &["I72"]);
}

#[test]
fn i72_the_answer_that_came_while_the_start_was_on_its_way_is_not_held_against_it() {
    let mut s = scene();
    asks(&mut s, Some(true));
    s.advance(30.0);
    asks(&mut s, Some(false));
    assert_breaches(&starts(s, 0.1), &[]);
}

#[test]
fn i72_answers_of_an_earlier_leadership_do_not_count() {
    let mut s = scene();
    asks(&mut s, Some(true));
    s.advance(1.0);
    s.set_key(&format!("leader//{LEASE:x}"), None);
    s.set_key(&format!("cketerm/engines/{LEASE:x}"), None);
    s.advance(10.0);
    s.lead(0, LEASE);
    s.advance(10.0);
    assert_breaches(&starts(s.clone(), 0.0), &["I72"]);
    asks(&mut s, Some(true));
    assert_breaches(&starts(s, 1.0), &[]);
}

#[test]
fn a_record_without_prometheus_is_not_judged() {
    let mut s = scene();
    s.record.gate_queries = None;
    assert_breaches(&starts(s, 1.0), &[]);
}

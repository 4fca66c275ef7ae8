//! Power commands: their number and their machine.

use serde_json::json;

use super::super::record::PowerEvent;
use super::{
    assert_breaches,
    scene::{LEASE, Scene},
};

/// An entry of w1 whose first command has ended with this code.
fn after_command(code: i32) -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.advance(2.0);
    s.powers(0, "w1");
    s.advance(1.0);
    s.ends(0, 1, "w1", code);
    s.advance(5.0);
    s
}

#[test]
fn i25_one_command_more_than_allowed_is_reported() {
    let mut s = after_command(1);
    s.retries(0, 2, "w1");
    s.advance(1.0);
    s.ends(0, 2, "w1", 1);
    assert_breaches(&s, &[]);
    s.retries(0, 3, "w1");
    assert_breaches(&s, &["I25"]);
}

#[test]
fn i25_a_command_after_success_or_an_unknown_outcome_is_reported() {
    let mut s = after_command(0);
    s.retries(0, 2, "w1");
    assert_breaches(&s, &["I25"]);
    let mut s = after_command(1);
    let mut unknown = s.get("cketerm/attempts/reboots/0/1");
    unknown["outcome"]["end"] = json!({"unknown": "x"});
    s.engine("power", &[("cketerm/attempts/reboots/0/1", unknown)], &[]);
    s.retries(0, 2, "w1");
    assert_breaches(&s, &["I25"]);
}

#[test]
fn i25_a_consumed_retry_order_allows_one_more_command() {
    for ordered in [true, false] {
        let mut s = after_command(0);
        if ordered {
            let order = json!({"verb": "retry", "who": {"user": "u", "host": "h"}, "at": s.whole_second(), "reason": "r", "entry_revision": 1});
            s.write("console", &[("cketerm/orders/reboots/0", order)], &[]);
        }
        let mut attempt = s.attempt(0, 2, "w1");
        attempt["ordered_by"] = json!("u: r");
        let deletes: &[&str] = if ordered { &["cketerm/orders/reboots/0"] } else { &[] };
        s.engine("power", &[("cketerm/attempts/reboots/0/2", attempt)], deletes);
        s.power(PowerEvent::Begin, 0, 2, "w1");
        assert_breaches(&s, if ordered { &[] } else { &["I25"] });
    }
}

#[test]
fn i25_a_command_that_begins_twice_is_reported() {
    let mut s = after_command(0);
    s.power(PowerEvent::Begin, 0, 1, "w1");
    assert_breaches(&s, &["I25"]);
}

#[test]
fn i25_a_second_command_on_a_machine_is_reported_until_the_first_has_timed_out() {
    for (seconds, codes) in [(5.0, &["I25"][..]), (31.0, &[])] {
        let mut s = after_command(1);
        s.record.power.retain(|p| p.what == PowerEvent::Begin);
        s.advance(seconds - 6.0);
        s.retries(0, 2, "w1");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i25_a_command_without_an_attempt_is_reported() {
    let mut s = after_command(0);
    s.advance(60.0);
    s.power(PowerEvent::Begin, 0, 9, "w1");
    assert_breaches(&s, &["I25"]);
}

#[test]
fn i26_a_command_line_that_names_another_machine_is_reported() {
    let mut s = after_command(1);
    s.retries(0, 2, "w1");
    s.record.power.last_mut().unwrap().argv = vec!["power".to_owned(), "cycle".to_owned(), "10.0.1.2".to_owned()];
    assert_breaches(&s, &["I26"]);
}

#[test]
fn i26_a_command_on_another_machine_than_the_cordoned_node_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w2");
    s.advance(10.0);
    s.powers(0, "w1");
    assert!(s.codes().contains(&"I26"), "{:?}", s.breaches());
}

#[test]
fn i26_a_node_uid_that_was_not_requested_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    let request = json!({"who": {"user": "u", "host": "h"}, "at": s.whole_second(), "node_uid": "uid-of-another"});
    s.write("console", &[("cketerm/requests/reboots/0", request)], &[]);
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.advance(10.0);
    s.powers(0, "w1");
    assert_breaches(&s, &["I26"]);
    assert_eq!(LEASE, 0x7a);
}

//! Power commands: their number and their machine.

use serde_json::json;

use super::super::record::What;
use super::{
    scene::{LEASE, Scene},
    sees,
};

/// An entry of w1 whose first command has ended with this code.
fn commanded(code: i32) -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.pass(2.0);
    s.powers(0, "w1");
    s.pass(1.0);
    s.ends(0, 1, "w1", code);
    s.pass(5.0);
    s
}

#[test]
fn i25_one_command_more_than_allowed_is_seen() {
    let mut s = commanded(1);
    s.again(0, 2, "w1");
    s.pass(1.0);
    s.ends(0, 2, "w1", 1);
    sees(&s, &[]);
    s.again(0, 3, "w1");
    sees(&s, &["I25"]);
}

#[test]
fn i25_a_command_after_success_or_an_unknown_outcome_is_seen() {
    let mut s = commanded(0);
    s.again(0, 2, "w1");
    sees(&s, &["I25"]);
    let mut s = commanded(1);
    let mut unknown = s.get("cketerm/attempts/reboots/0/1");
    unknown["outcome"]["end"] = json!({"unknown": "x"});
    s.engine("power", &[("cketerm/attempts/reboots/0/1", unknown)], &[]);
    s.again(0, 2, "w1");
    sees(&s, &["I25"]);
}

#[test]
fn i25_a_retry_that_is_consumed_allows_one_more() {
    for ordered in [true, false] {
        let mut s = commanded(0);
        if ordered {
            let order = json!({"verb": "retry", "who": {"user": "u", "host": "h"}, "at": s.whole(), "reason": "r", "entry_revision": 1});
            s.write("console", &[("cketerm/orders/reboots/0", order)], &[]);
        }
        let mut attempt = s.attempt(0, 2, "w1");
        attempt["ordered_by"] = json!("u: r");
        let deletes: &[&str] = if ordered { &["cketerm/orders/reboots/0"] } else { &[] };
        s.engine("power", &[("cketerm/attempts/reboots/0/2", attempt)], deletes);
        s.power(What::Begin, 0, 2, "w1");
        sees(&s, if ordered { &[] } else { &["I25"] });
    }
}

#[test]
fn i25_a_second_run_of_a_command_is_seen() {
    let mut s = commanded(0);
    s.power(What::Begin, 0, 1, "w1");
    sees(&s, &["I25"]);
}

#[test]
fn i25_a_command_beside_another_on_the_same_machine_is_seen_until_its_bound_has_passed() {
    for (seconds, codes) in [(5.0, &["I25"][..]), (31.0, &[])] {
        let mut s = commanded(1);
        s.record.power.retain(|p| p.what == What::Begin);
        s.pass(seconds - 6.0);
        s.again(0, 2, "w1");
        sees(&s, codes);
    }
}

#[test]
fn i25_a_command_without_an_attempt_is_seen() {
    let mut s = commanded(0);
    s.pass(60.0);
    s.power(What::Begin, 0, 9, "w1");
    sees(&s, &["I25"]);
}

#[test]
fn i26_a_command_line_that_names_another_machine_is_seen() {
    let mut s = commanded(1);
    s.again(0, 2, "w1");
    s.record.power.last_mut().unwrap().argv = vec!["power".to_owned(), "cycle".to_owned(), "10.0.1.2".to_owned()];
    sees(&s, &["I26"]);
}

#[test]
fn i26_a_machine_that_is_not_the_node_that_was_cordoned_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w2");
    s.pass(10.0);
    s.powers(0, "w1");
    assert!(s.codes().contains(&"I26"), "{:?}", s.breaches());
}

#[test]
fn i26_a_uid_that_was_not_asked_for_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    let request = json!({"who": {"user": "u", "host": "h"}, "at": s.whole(), "node_uid": "uid-of-another"});
    s.write("console", &[("cketerm/requests/reboots/0", request)], &[]);
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.pass(10.0);
    s.powers(0, "w1");
    sees(&s, &["I26"]);
    assert_eq!(LEASE, 0x7a);
}

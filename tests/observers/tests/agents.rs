//! Reboots by the agents of nodes.

use cketerm_model::agent::{ANSWER_ANNOTATION, Answer, ORDER_ANNOTATION, Order, json as text_of};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    super::record::{AgentReboot, PowerEvent},
    scene::{Scene, key},
};

/// A drained w1 whose command has begun, and an agent.
fn scene() -> Scene {
    let mut s = Scene::new();
    s.record.agent_reboots = Some(Vec::new());
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.powers(0, "w1");
    s.advance(1.0);
    s
}

fn boot_id(s: &Scene) -> String {
    s.attempt(0, 1, "w1")["boot_id"].as_str().unwrap().to_owned()
}

fn order(s: &Scene, id: &str) -> Order {
    let deadline = s.now + SignedDuration::from_secs(60);
    Order { id: id.into(), attempt: "reboots-0-1".into(), boot_id: boot_id(s), deadline }
}

fn annotate(s: &mut Scene, by: &str, name: &str, value: Option<String>) {
    s.patch(by, "w1", json!({"metadata": {"annotations": {name: value}}}));
    s.advance(1.0);
}

fn gives(s: &mut Scene, order: &Order) {
    annotate(s, "power-command", ORDER_ANNOTATION, Some(text_of(order)));
}

fn answers(s: &mut Scene, order: &Order, obeyed: bool) {
    let (order_id, attempt, boot_id) = (order.id.clone(), order.attempt.clone(), order.boot_id.clone());
    let answer = Answer { order_id, attempt, boot_id, at: s.now, obeyed, why: None };
    annotate(s, "agent-w1", ANSWER_ANNOTATION, Some(text_of(&answer)));
}

fn reboots(s: &mut Scene, order: &Order, honest: bool, clock_error: i64) {
    let reboot = AgentReboot {
        at: s.now,
        node: "w1".to_owned(),
        boot_id: boot_id(s),
        order_id: order.id.clone(),
        attempt: order.attempt.clone(),
        honest,
        clock_error,
    };
    s.record.agent_reboots.as_mut().unwrap().push(reboot);
}

#[track_caller]
fn assert_breaches(s: &Scene, expected: &[&str]) {
    let found: Vec<_> = s.codes().into_iter().filter(|code| ("I60".."I64").contains(code)).collect();
    assert_eq!(found, expected, "{:#?}", s.breaches());
}

#[test]
fn i60_a_second_reboot_for_one_order_or_attempt_is_reported() {
    for (second, honest, expected) in
        [("o1", true, &["I60"] as &[_]), ("o2", true, &["I60"]), ("o1", false, &[]), ("", true, &[])]
    {
        let mut s = scene();
        let first = order(&s, "o1");
        gives(&mut s, &first);
        answers(&mut s, &first, true);
        reboots(&mut s, &first, honest, 0);
        if !second.is_empty() {
            let again = order(&s, second);
            gives(&mut s, &again);
            answers(&mut s, &again, true);
            reboots(&mut s, &again, honest, 0);
        }
        assert_breaches(&s, expected);
    }
}

#[test]
fn i61_a_reboot_without_a_valid_order_is_reported() {
    type Break = fn(&mut Scene, &mut Order);
    let cases: [(&str, Break, bool, i64, &[&str]); 7] = [
        ("a valid order", |_, _| {}, true, 0, &[]),
        ("after the deadline", |s, _| s.advance(120.0), true, 0, &["I61"]),
        ("after the deadline by a wrong clock", |s, _| s.advance(120.0), true, -150, &[]),
        ("withdrawn", |s, _| annotate(s, "power-command", ORDER_ANNOTATION, None), true, 0, &["I61"]),
        ("withdrawn, by a liar", |s, _| annotate(s, "power-command", ORDER_ANNOTATION, None), false, 0, &[]),
        ("another boot", |s, _| s.boots(0, "w1"), true, 0, &["I61"]),
        ("no order of this id", |_, order| order.id = "o2".into(), true, 0, &["I61"]),
    ];
    for (what, broken, honest, clock_error, expected) in cases {
        let mut s = scene();
        let mut given = order(&s, "o1");
        gives(&mut s, &given);
        broken(&mut s, &mut given);
        answers(&mut s, &given, true);
        reboots(&mut s, &given, honest, clock_error);
        let found: Vec<_> = s.codes().into_iter().filter(|code| *code == "I61").collect();
        assert_eq!(found, expected, "{what}: {:#?}", s.breaches());
    }
    let mut s = scene();
    let unanswered = order(&s, "o1");
    gives(&mut s, &unanswered);
    reboots(&mut s, &unanswered, true, 0);
    assert_breaches(&s, &["I61"]);
}

/// Ends the entry as booted.
fn ends_as_booted(s: &mut Scene) {
    let last = s.get(&key(0));
    let ending: Value = json!({"entry": "reboots/0", "address": last["node"], "end": "booted", "outcome": "booted",
        "at": s.now.to_string(), "last": last, "attempts": []});
    s.engine("end", &[("cketerm/history/reboots-0000000000000000", ending)], &[&key(0)]);
}

#[test]
fn i62_an_entry_that_ends_in_the_boot_before_its_drain_is_reported() {
    for booted in [true, false] {
        let mut s = scene();
        if booted {
            s.boots(0, "w1");
        }
        ends_as_booted(&mut s);
        assert_breaches(&s, if booted { &[] } else { &["I62"] });
        // without agents, another check may prove the boot
        s.record.agent_reboots = None;
        assert_breaches(&s, &[]);
    }
}

#[test]
fn i63_a_command_that_succeeds_without_an_answer_to_its_order_is_reported() {
    for (what, answered, boots, code, expected) in [
        ("obeyed", Some(("o1", true)), false, 0, &[] as &[_]),
        ("obeyed another order", Some(("o2", true)), false, 0, &["I63"]),
        ("refused", Some(("o1", false)), false, 0, &["I63"]),
        ("no answer", None, false, 0, &["I63"]),
        ("no answer, and it failed", None, false, 1, &[]),
        ("no answer, and the machine has booted", None, true, 0, &[]),
    ] {
        let mut s = scene();
        let given = order(&s, "o1");
        gives(&mut s, &given);
        if let Some((id, obeyed)) = answered {
            answers(&mut s, &Order { id: id.into(), ..given.clone() }, obeyed);
        }
        if boots {
            s.boots(0, "w1");
        }
        s.power(PowerEvent::End(Some(code)), 0, 1, "w1");
        let found: Vec<_> = s.codes().into_iter().filter(|code| *code == "I63").collect();
        assert_eq!(found, expected, "{what}: {:#?}", s.breaches());
    }
    let mut s = scene();
    s.power(PowerEvent::End(Some(0)), 0, 1, "w1");
    assert_breaches(&s, &["I63"]);
}

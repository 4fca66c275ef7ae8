//! Each row is taken by a correct step, and refused for a step that breaks exactly one condition.

use std::collections::BTreeMap;

use cketerm_model::{attempt::Attempt, cketerm_records::Verb, cluster::Cluster, entry::EntryId};
use jiff::Timestamp;
use serde_json::json;

use super::*;

const R: EntryId = EntryId { queue: cketerm_model::entry::QueueKind::Reboot, index: 5 };
const P: EntryId = EntryId { queue: cketerm_model::entry::QueueKind::Repair, index: 5 };

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// One API server, three workers; machine type `t` has a step with a drain and one without.
fn cluster() -> Cluster {
    let node = |a: &str, api: bool| json!({"address": a, "control_plane": api});
    let nodes = [node("c1", true), node("c2", true), node("w1", false), node("w2", false), node("w3", false)];
    let steps = json!([{"repair_command": ["one"], "need_drain": true, "watch_seconds": 60, "command_retries": 1},
        {"repair_command": ["two"], "watch_seconds": 60}]);
    serde_json::from_value(json!({"nodes": nodes,
        "reboot": {"reboot_command": ["power"], "boot_check_command": ["check"], "command_retries": 1},
        "repair": {"repair_procedures": [{"machine_types": ["t"], "repair_operations": [
            {"operation": "o", "repair_steps": steps, "success_command": ["well"]}]}]}}))
    .unwrap()
}

fn state() -> State {
    let machine = Machine {
        ready: Some(true),
        matches: Some(true),
        closed: Some(false),
        closing: Some(false),
        orphaned: Some(false),
        cordoned: Some(true),
        empty: Some(true),
        quorum: Some(true),
        back: Some(true),
        replaced: Some(false),
        in_reboot: false,
    };
    let all = ["c1", "c2", "w1", "w2", "w3"].map(|a| (a.to_owned(), machine.clone()));
    State {
        now: Some(now()),
        leader: Some((2, now())),
        ttl: 12.0,
        cluster: Some(cluster()),
        unreachable_limit: Some(0),
        repair_limit: 9,
        machines: BTreeMap::from(all),
        breaker: Some(false),
        gate: Some(false),
        withdrawn: Some(true),
        lasted: 100.0,
        ..State::default()
    }
}

fn entry(place: Place) -> Entry {
    Entry {
        place,
        address: "w1".to_owned(),
        repair: ("t".to_owned(), "o".to_owned()),
        since: Some(now()),
        ..Entry::default()
    }
}

#[allow(clippy::needless_pass_by_value)] // values of `json!`
fn attempt(id: EntryId, step: i64, words: &str, end: serde_json::Value) -> Attempt {
    let mut value = json!({"id": "a", "entry": id.to_string(), "number": 1, "address": "w1", "lease": 1, "host": "h",
        "argv": [words, "w1"], "bound_seconds": 30, "start": now().to_string()});
    if id.queue == P.queue {
        value["step"] = json!(step);
        value["success"] = json!(words == "well");
    }
    if !end.is_null() {
        value["outcome"] = json!({"end": end, "at": now().to_string()});
    }
    serde_json::from_value(value).unwrap()
}

/// A state and a step that the row allows.
fn allowed(row: &Row) -> (State, Step) {
    let mut s = state();
    let from = row.from[0];
    let to = row.to.first().copied().unwrap_or(from);
    let id = if row.kind == Kind::Repair { P } else { R };
    let mut step = Step::of(id, entry(from), entry(to));
    let words = if row.kind == Kind::Reboot { "power" } else { "one" };
    let ended = |s: &mut State, words: &str, end| s.attempts.insert((id, 1), attempt(id, 0, words, end));
    match row.name {
        "REB-46 back off" | "REP-41 back off" => {
            step.change.1.backoff = (1, Some("2026-01-01T00:15:10Z".parse().unwrap()));
        }
        "REB-47 unwind" | "REP-42 unwind" => s.orders.push((id, Verb::Hold, true)),
        "REB-49 done" => s.orders.push((id, Verb::Done, true)),
        "REB-42 replaced" => s.machines.get_mut("w1").unwrap().replaced = Some(true),
        "REB-41 withheld" | "REP-42 withheld" => {
            ended(&mut s, words, json!({"withheld": "x"}));
        }
        "REB-37 further try" | "REP-25 further try" => {
            ended(&mut s, words, json!({"exit": 1}));
        }
        "REB-8 not a member" => s.cluster.as_mut().unwrap().nodes.retain(|n| n.address != *"w1"),
        "REP-24 command" => (step.change.0.step, step.change.1.step) = (1, 1),
        "REP-28 next step" => {
            ended(&mut s, words, json!({"exit": 0}));
            step.change.1.step = 1;
        }
        "REP-28 next step drains" => {
            let mut value = serde_json::to_value(s.cluster.as_ref().unwrap()).unwrap();
            value["repair"]["repair_procedures"][0]["repair_operations"][0]["repair_steps"][1]["need_drain"] =
                json!(true);
            s.cluster = serde_json::from_value(value).unwrap();
            ended(&mut s, words, json!({"exit": 0}));
            step.change.1.step = 1;
        }
        "REP-28 no step left" => {
            s.attempts.insert((id, 1), attempt(id, 1, "two", json!({"exit": 0})));
            (step.change.0.step, step.change.1.step) = (1, 1);
        }
        "REP-25 command failed" => {
            ended(&mut s, words, json!({"exit": 1}));
            s.attempts.insert((id, 2), attempt(id, 0, words, json!({"exit": 1})));
        }
        "REP-36 success command failed" => {
            ended(&mut s, "well", json!({"exit": 1}));
        }
        "REP-35 healthy" => {
            ended(&mut s, "well", json!({"exit": 0}));
        }
        _ => {}
    }
    if from != Place::Absent && row.kind != Kind::Node {
        s.entries.insert(id, step.change.0.clone());
    }
    step.kind = row.kind;
    step.attempt = match row.with {
        Attempted::Nothing => None,
        Attempted::Success => Some(attempt(id, step.change.1.step, "well", json!(null))),
        Attempted::Command => {
            let words = if step.change.1.step == 1 { "two" } else { words };
            Some(attempt(id, step.change.1.step, words, json!(null)))
        }
    };
    let keeps = row.name == "REB-44 keep the cordon";
    let before = Cordon {
        owner: Some(R),
        schedulable_before: true,
        claimed: Some(false),
        back: Some(true),
        keep: keeps,
        ..Cordon::default()
    };
    step.cordon = (before.clone(), Cordon { claimed: Some(true), ..before });
    (s, step)
}

#[test]
fn each_row_is_taken_by_a_correct_step() {
    for row in TABLE {
        let (s, step) = allowed(row);
        let broken: Vec<_> =
            row.when.iter().copied().flatten().filter(|c| (c.holds)(&s, &step) == Some(false)).collect();
        assert!(row.leads(&step), "{}", row.name);
        assert!(broken.is_empty(), "{}: {broken:?}", row.name);
        assert!(check(&s, &step).is_ok(), "{}: {:?}", row.name, check(&s, &step));
    }
}

/// Applies a change to the state or the step of each row that names the rule, and asserts that the row then refuses it.
#[track_caller]
fn breaks(rule: &str, change: impl Fn(&mut State, &mut Step)) {
    let rows = TABLE.iter().filter(|row| row.when.iter().copied().flatten().any(|c| c.rule == rule));
    let mut tried = 0;
    for row in rows {
        let (mut s, mut step) = allowed(row);
        change(&mut s, &mut step);
        let broken: Vec<_> =
            row.when.iter().copied().flatten().filter(|c| (c.holds)(&s, &step) == Some(false)).collect();
        let rules: Vec<&str> = broken.iter().map(|c| c.rule).collect();
        assert!(rules.contains(&rule), "{rule}: {}: {rules:?}", row.name);
        tried += 1;
    }
    assert!(tried > 0, "{rule}");
}

#[test]
fn each_row_of_work_is_refused_for_each_rule_that_it_breaks() {
    let machine = |s: &mut State, change: fn(&mut Machine)| change(s.machines.get_mut("w1").unwrap());
    breaks("REB-50, REP-11", |s, _| s.disabled = (true, true));
    breaks("REB-48", |s, t| s.orders.push((t.entry, Verb::Hold, true)));
    breaks("REB-46, REP-41", |_, t| {
        t.change.0.backoff.1 = Some("2026-01-01T01:00:00Z".parse().unwrap());
        t.change.1.backoff.1 = None;
    });
    breaks("REB-11, REP-9, REP-19", |s, _| drop(s.entries.insert(EntryId::reboot(1), entry(Place::Draining))));
    breaks("REB-9", |s, _| {
        let before = EntryId { index: R.index - 1, ..R };
        s.entries.insert(before, entry(Place::Queued));
        s.steady.insert(before);
    });
    breaks("REB-11, SAF-16", |s, _| {
        s.attempts.insert((EntryId::reboot(9), 1), attempt(R, 0, "power", json!(null)));
    });
    breaks("SAF-35", |s, t| {
        machine(s, |m| m.orphaned = Some(true));
        (t.cordon.0.back, t.cordon.1.owner) = (Some(false), Some(P));
    });
    breaks("SAF-14", |s, _| machine(s, |m| m.matches = Some(false)));
    breaks("REB-52, REB-53", |s, _| machine(s, |m| (m.closed, m.closing) = (Some(true), Some(true))));
    breaks("REB-13, REB-14", |s, _| {
        s.entries.insert(EntryId::reboot(1), Entry { address: "c1".to_owned(), ..entry(Place::Draining) });
    });
    breaks("REB-16, REP-16", |s, t| {
        let other = EntryId { index: 1, ..t.entry };
        s.entries.insert(other, Entry { address: "w2".to_owned(), ..entry(Place::Draining) });
    });
    breaks("REB-16", |s, _| {
        s.entries.insert(EntryId::reboot(1), Entry { address: "w2".to_owned(), ..entry(Place::Queued) });
        s.left_behind.insert(EntryId::reboot(1));
    });
    breaks("REB-17", |s, _| {
        s.policy.unreachable_rule = cketerm_model::policy::UnreachableRule::All;
        s.machines.get_mut("w2").unwrap().ready = Some(false);
    });
    breaks("REB-19, SAF-23", |s, _| machine(s, |m| m.quorum = Some(false)));
    breaks("REB-60, REB-62", |s, _| s.breaker = Some(true));
    breaks("REB-63", |s, _| s.gate = Some(true));
    breaks("REB-33", |s, _| machine(s, |m| m.empty = Some(false)));
    breaks("SAF-17", |s, _| machine(s, |m| m.cordoned = Some(false)));
    breaks("SAF-15, REP-24", |_, t| t.attempt.as_mut().unwrap().argv = vec!["power".to_owned(), "w2".to_owned()]);
    breaks("REB-1, REP-5", |_, t| t.change.1.since = None);
    breaks("REB-1", |_, t| {
        t.change.1.rest.insert("x".to_owned(), json!(1));
        t.change.1.backoff = (1, None);
    });
    breaks("REP-3", |_, t| t.change.1.step = 7);
    breaks("REB-47, REP-42", |s, t| {
        s.orders.clear();
        t.change.1.backoff = (9, None);
    });
    breaks("REB-8", |s, _| {
        let c = s.cluster.as_mut().unwrap();
        if c.nodes.iter().any(|n| n.address == *"w1") {
            c.nodes.retain(|n| n.address != *"w1");
        } else {
            *c = cluster();
        }
    });
    breaks("REP-14", |_, t| t.change.1.repair.1 = "other".to_owned());
    breaks("REP-52", |s, _| s.repair_limit = 0);
    breaks("REP-46", |s, _| drop(s.entries.insert(EntryId::repair(1), entry(Place::Queued))));
    breaks("REP-27, REP-28", |s, _| s.lasted = 3.0);
    breaks("REP-36", |s, _| s.attempts.clear());
    breaks("REP-37", |s, _| drop(s.attempts.insert((P, 1), attempt(P, 0, "well", json!({"exit": 1})))));
    breaks("REB-37, REP-25, REP-26", |s, t| {
        let old = s.attempts.get_mut(&(t.entry, 1)).unwrap();
        old.outcome = None;
    });
    breaks("REB-37, REP-25", |s, t| {
        let old = s.attempts[&(t.entry, 1)].clone();
        s.attempts.insert((t.entry, 2), old);
    });
    breaks("REB-44", |_, t| {
        (t.cordon.0.claimed, t.cordon.0.keep) = (Some(true), true);
    });
    breaks("SAF-33", |_, t| {
        t.cordon.1.schedulable_before = false;
    });
    breaks("I59", |_, t| t.cordon.0.other_program = true);
    breaks("REB-23", |_, t| t.cordon.0.repeated = 1);
}

#[test]
fn api_servers_wait_for_workers_and_for_each_other() {
    let row = TABLE.iter().find(|row| row.name == "REB-20 start").unwrap();
    let start = |change: &dyn Fn(&mut State)| {
        let (mut s, mut step) = allowed(row);
        for e in [&mut step.change.0, &mut step.change.1] {
            e.address = "c1".to_owned();
        }
        s.entries.insert(R, step.change.0.clone());
        change(&mut s);
        check(&s, &step).map_err(|refusal| refusal.broken())
    };
    assert_eq!(start(&|_| ()), Ok("REB-20 start"));
    let other = |address: &str, place| Entry { address: address.to_owned(), ..entry(place) };
    let repaired = start(&|s| drop(s.entries.insert(EntryId::repair(1), other("c2", Place::Watching))));
    assert_eq!(repaired, Err(vec!["REB-15, REP-17"]));
    let worker = start(&|s| {
        s.entries.insert(EntryId::reboot(9), other("w2", Place::Queued));
        s.startable.insert(EntryId::reboot(9));
    });
    assert_eq!(worker, Err(vec!["REB-13"]));
    let down = start(&|s| {
        s.unreachable_limit = Some(9);
        s.machines.get_mut("c2").unwrap().ready = Some(false);
    });
    assert_eq!(down, Err(vec!["SAF-29"]));
}

#[test]
fn an_open_command_of_a_dead_leader_holds_its_machine_until_its_time_is_over() {
    let row = TABLE.iter().find(|row| row.name.contains("success command")).unwrap();
    let after_unless_begun = |lease: i64, seconds: i64, unbegun: &[(EntryId, u32)]| {
        let (mut s, step) = allowed(row);
        s.attempts.insert((EntryId::reboot(9), 1), attempt(R, 0, "power", json!(null)));
        s.unbegun.extend(unbegun);
        s.leader = Some((lease, now() - jiff::SignedDuration::from_secs(seconds)));
        check(&s, &step).map_err(|refusal| refusal.broken())
    };
    let after = |lease: i64, seconds: i64| after_unless_begun(lease, seconds, &[]);
    // 12 s of lease, 1 s of clock drift, 30 s of time limit, 5 s for the kill
    assert_eq!(after(2, 46), Err(vec!["REB-11, SAF-16"]));
    assert_eq!(after(2, 48), Ok(row.name));
    // a leader's own command holds it, however long it leads
    assert_eq!(after(1, 3600), Err(vec!["REB-11, SAF-16"]));
    // one that it never began holds it no longer than that of a dead leader
    assert_eq!(after_unless_begun(1, 46, &[(EntryId::reboot(9), 1)]), Err(vec!["REB-11, SAF-16"]));
    assert_eq!(after_unless_begun(1, 48, &[(EntryId::reboot(9), 1)]), Ok(row.name));
}

#[test]
fn a_step_between_places_without_a_row_and_a_step_of_another_writer() {
    let step = Step::of(R, entry(Place::Queued), entry(Place::Rebooting));
    assert!(check(&state(), &step).unwrap_err().broken().is_empty());
    assert_eq!(check(&state(), &Step { engine: false, ..step }), Ok("another writer"));
}

#[test]
fn a_cancelled_entry_that_stays_is_overdue() {
    let stays = Step::of(R, entry(Place::Cancelled), entry(Place::Cancelled));
    let overdue = |s: &State, step: &Step| DUTIES.iter().filter(|duty| duty.overdue(s, step)).count();
    assert_eq!(overdue(&state(), &stays), 1);
    assert_eq!(overdue(&State { lasted: 2.0, ..state() }, &stays), 0);
    let queued = Step::of(R, entry(Place::Queued), entry(Place::Queued));
    assert_eq!(overdue(&state(), &queued), 0);
}

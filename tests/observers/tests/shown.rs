//! Leadership, and what the leader reports.

use serde_json::{Value, json};

use super::{
    super::record::{What, Word},
    scene::{LEASE, Scene, definition, entry, key},
    sees,
};

#[test]
fn i23_a_write_that_compares_nothing_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.engine("running", &[("reboots/running", json!(true))], &[]);
    sees(&s, &[]);
    s.record.txns.last_mut().unwrap().compares.clear();
    sees(&s, &["I23"]);
}

#[test]
fn i23_an_entry_that_is_not_compared_and_a_start_without_its_guards_are_seen() {
    for missing in [key(0), "reboots/disabled".to_owned(), "cluster".to_owned()] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.record.txns.last_mut().unwrap().compares.retain(|(k, _)| *k != missing);
        sees(&s, &["I23"]);
    }
}

#[test]
fn i23_a_write_after_the_leaders_key_was_deleted_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.hand(&format!("leader//{LEASE:x}"), None);
    s.lead(1, 0x7b);
    s.moves(0, "draining");
    sees(&s, &["I23"]);
}

#[test]
fn i23_a_patch_without_a_resource_version_is_seen() {
    let mut s = Scene::new();
    let patch = json!({"metadata": {"annotations": {"cketerm.io/owner": "x"}}});
    s.ask("engine-0", "PATCH", "/api/v1/nodes/w1", patch.clone(), 409);
    sees(&s, &["I23"]);
    s.record.asked.last_mut().unwrap().by = "kubectl".to_owned();
    sees(&s, &[]);
}

#[test]
fn i24_a_command_long_after_the_lease_is_seen() {
    for (seconds, codes) in [(1.0, &[][..]), (8.0, &["I24"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pass(1.0);
        s.powers(0, "w1");
        s.record.power.clear();
        s.hand(&format!("leader//{LEASE:x}"), None);
        s.pass(seconds);
        s.power(What::Begin, 0, 1, "w1");
        sees(&s, codes);
    }
}

#[test]
fn i24_a_patch_of_what_a_later_leader_has_stamped_is_seen() {
    for (by, codes) in [("engine-0", &["I24", "I38"][..]), ("engine-1", &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.hand(&format!("leader//{LEASE:x}"), None);
        s.lead(1, 0x7b);
        let mut owner = s.owner(0, "w1", true);
        owner["lease"] = json!(0x7b);
        let body = json!({"metadata": {"annotations": {"cketerm.io/owner": owner.to_string()}}});
        s.patch("engine-1", "w1", body.clone());
        s.pass(30.0);
        s.patch(by, "w1", body);
        sees(&s, codes);
    }
}

fn said(entries: &[(u64, Value)]) -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w2");
    s.pass(5.0);
    s.says(6, entries, &[]);
    s
}

#[test]
fn i32_an_entry_of_which_nothing_is_said_is_seen() {
    let slot = || json!({"reason": "WaitingForSlot", "limit": 2});
    let mut s = said(&[(0, json!({"reason": "Working", "phase": "p"}))]);
    sees(&s, &["I32"]);
    s.record.said.truncate(2);
    sees(&s, &[]);
    sees(&said(&[(0, slot()), (1, slot())]), &[]);
}

/// The queue long after faults have ended, with an engine that reports this.
fn calm(status: &str, reason: Value) -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    if status != "queued" {
        s.moves(0, "draining");
    }
    if status == "rebooting" {
        s.cordon(0, "w1");
        s.pass(1.0);
        s.powers(0, "w1");
        s.pass(1.0);
        s.ends(0, 1, "w1", 0);
    }
    s.engine("running", &[("reboots/running", json!(true))], &[]);
    s.record.calm_since = Some(s.now);
    s.pass(900.0);
    s.says(70, &[(0, reason)], &[]);
    s
}

#[test]
fn i33_what_neither_ends_nor_says_why_is_seen() {
    for (status, reason, codes) in [
        ("queued", json!({"reason": "Ready"}), &["I33"][..]),
        ("queued", json!({"reason": "UnreachableGate"}), &[]),
        ("draining", json!({"reason": "PodsLeaving"}), &["I33"]),
        ("rebooting", json!({"reason": "CommandRunning"}), &["I33"]),
        ("rebooting", json!({"reason": "CommandFailed"}), &[]),
    ] {
        sees(&calm(status, reason), codes);
    }
}

#[test]
fn i34_a_wait_that_is_too_short_or_a_count_that_is_lost_is_seen() {
    for (count, wait, codes) in
        [(1, 300, &[][..]), (1, 599, &[]), (1, 299, &["I34"]), (1, 600, &["I34"]), (2, 700, &["I34"])]
    {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        let mut back = s.get(&key(0));
        back["status"] = json!("queued");
        back["drain_backoff_count"] = json!(count);
        back["last_transition_time"] = json!(s.whole());
        back["drain_backoff_expire"] = json!(s.whole_after(wait));
        s.engine("back off", &[(&key(0), back)], &[]);
        sees(&s, codes);
    }
    // the exponent is limited, however large the count
    let mut s = Scene::new();
    let mut often = entry(0, "w1", "queued");
    often["drain_backoff_count"] = json!(1_000_000);
    s.write("console", &[(&key(0), often), ("reboots/write-index", json!(1))], &[]);
    s.moves(0, "draining");
    s.moves(0, "queued");
    sees(&s, &[]);
}

#[test]
fn i34_a_start_before_the_backoff_ends_is_seen() {
    for (seconds, codes) in [(100.0, &["I34"][..]), (320.0, &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.moves(0, "queued");
        s.pass(seconds);
        s.moves(0, "draining");
        sees(&s, codes);
    }
}

#[test]
fn i35_a_reboot_that_is_stuck_and_not_said_to_be_is_seen() {
    for (stuck, codes) in [(false, &["I35"][..]), (true, &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.write("console", &[("cketerm/policy", json!({"stuck_seconds": 100}))], &[]);
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pass(1.0);
        s.powers(0, "w1");
        s.pass(150.0);
        s.says(3, &[(0, json!({"reason": "WaitingForBoot", "stuck": stuck}))], &[]);
        sees(&s, codes);
    }
}

#[test]
fn i36_a_cancelled_entry_that_waits_for_others_is_seen() {
    for (seconds, codes) in [(1.0, &[][..]), (9.0, &["I36"])] {
        let mut s = Scene::new();
        s.record.calm_since = Some(s.now);
        s.pass(200.0);
        s.add(0, "w1");
        s.pass(1.0);
        s.cancel(0);
        s.pass(seconds);
        s.removes(0, "cancelled");
        s.engine("running", &[("reboots/running", json!(false))], &[]);
        s.pass(60.0);
        sees(&s, codes);
    }
}

#[test]
fn i37_a_drain_that_outlives_its_deadline_is_seen() {
    for (seconds, codes) in [(100.0, &[][..]), (200.0, &["I37"])] {
        let mut s = Scene::new();
        s.record.calm_since = Some(s.now);
        s.pass(200.0);
        s.add(0, "w1");
        s.moves(0, "draining");
        s.pass(seconds);
        s.moves(0, "queued");
        sees(&s, codes);
    }
}

#[test]
fn i37_a_drain_that_is_given_up_early_for_what_it_only_waits_for_is_seen() {
    let pdb = "pod safe/p blocked by pdb safe/b (healthy 1, needs 1)";
    for (seconds, why, codes) in [
        (20.0, "2 pods are leaving, including a", &["I37"][..]),
        (20.0, pdb, &[]),
        (60.0, "one pod is leaving: a", &[]),
    ] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.pass(seconds);
        s.moves(0, "queued");
        let told = s.record.keys.iter_mut().rfind(|k| k.key.starts_with("cketerm/audit/")).unwrap();
        let mut audit: Value = serde_json::from_slice(told.value.as_ref().unwrap()).unwrap();
        audit["reason"] = json!(why);
        told.value = Some(audit.to_string().into_bytes());
        sees(&s, codes);
    }
}

#[test]
fn i34_a_reset_that_was_acknowledged_and_did_nothing_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.moves(0, "queued");
    s.pass(1.0);
    s.told(Word::ResetBackoff(vec![0]));
    sees(&s, &["I28", "I34"]);
}

#[test]
fn i38_an_attempt_without_an_audit_record_and_an_open_one_that_is_dropped_are_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.pass(1.0);
    s.powers(0, "w1");
    sees(&s, &[]);
    let mut silent = s.clone();
    let last = silent.record.keys.iter().rposition(|k| k.key.starts_with("cketerm/audit/")).unwrap();
    silent.record.keys.remove(last);
    sees(&silent, &["I38"]);
    s.engine("prune", &[], &["cketerm/attempts/reboots/0/1"]);
    sees(&s, &["I38"]);
}

#[test]
fn i39_a_reason_that_is_not_so_is_seen() {
    for (reason, codes) in [
        (json!({"reason": "QueueDisabled"}), &["I39"][..]),
        (json!({"reason": "DuplicateOf", "index": 7}), &["I39"]),
        (json!({"reason": "NotMember", "address": "10.0.1.1"}), &["I39"]),
        (json!({"reason": "InvalidEntry", "why": "x"}), &["I39"]),
        (json!({"reason": "OnHold", "who": "x"}), &["I39"]),
        (json!({"reason": "Backoff", "count": 1}), &["I39"]),
        (json!({"reason": "DuplicateOf", "index": 1}), &[]),
        (json!({"reason": "WaitingForSlot"}), &[]),
    ] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.add(1, "w2");
        s.pass(5.0);
        s.write("console", &[("constraints", json!({}))], &[]);
        s.says(2, &[(0, reason), (1, json!({"reason": "WaitingForSlot"}))], &[]);
        sees(&s, codes);
    }
    assert_eq!(definition()["name"], "c");
}

#[test]
fn i39_running_says_whether_the_queue_runs() {
    for (running, codes) in [(true, &[][..]), (false, &["I39"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.engine("running", &[("reboots/running", json!(running))], &[]);
        s.record.calm_since = Some(s.now);
        s.pass(300.0);
        sees(&s, codes);
    }
}

#[test]
fn i38_a_patch_an_eviction_and_a_deletion_that_nobody_told_are_seen() {
    let silently = |act: &dyn Fn(&mut Scene)| {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pod("free", "p", "w1", "ReplicaSet", json!({}));
        s.pass(60.0);
        act(&mut s);
        let told = !s.codes().contains(&"I38");
        let last = s.record.keys.iter().rposition(|k| k.key.starts_with("cketerm/audit/")).unwrap();
        s.record.keys.remove(last);
        (told, s.codes().contains(&"I38"))
    };
    assert_eq!(silently(&|s| s.uncordon("w1")), (true, true));
    assert_eq!(silently(&|s| s.evicts("free", "p", false, 201)), (true, true));
    assert_eq!(silently(&|s| s.deletes("free", "p")), (true, true));
    let dry = |s: &mut Scene| s.evicts("free", "p", true, 201);
    let mut s = Scene::new();
    s.pod("free", "p", "w1", "ReplicaSet", json!({}));
    dry(&mut s);
    assert!(!s.codes().contains(&"I38"), "a dry run does nothing");
}

/// One refused eviction of a pod that stays, and the leader's later reports about its entry.
fn refusal(code: u16, reason: Value) -> Vec<&'static str> {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.pod("safe", "p", "w1", "ReplicaSet", json!({}));
    s.pass(1.0);
    s.evicts("safe", "p", false, code);
    s.says(10, &[(0, reason)], &[]);
    s.codes()
}

#[test]
fn i20_a_refusal_that_is_not_named_or_taken_for_another_is_seen() {
    assert_eq!(refusal(429, json!({"reason": "BlockedByPDB", "pod": "safe/p"})), Vec::<&str>::new());
    assert_eq!(refusal(500, json!({"reason": "BlockedByManyPDBs", "pod": "safe/p"})), Vec::<&str>::new());
    assert_eq!(refusal(403, json!({"reason": "EvictionRefused", "pod": "safe/p"})), Vec::<&str>::new());
    assert_eq!(refusal(429, json!({"reason": "Working", "phase": "drains"})), ["I20"]);
    assert_eq!(refusal(500, json!({"reason": "BlockedByPDB", "pod": "safe/p"})), ["I20"]);
    assert_eq!(refusal(403, json!({"reason": "WaitingForSlot"})), ["I20"]);
    assert_eq!(refusal(503, json!({"reason": "EvictionFailing", "pod": "safe/p"})), Vec::<&str>::new());
    assert_eq!(refusal(503, json!({"reason": "BlockedByPDB", "pod": "safe/p"})), ["I20"]);
}

#[test]
fn i20_a_drain_that_is_backed_off_for_a_pod_of_another_node_is_seen() {
    for (node, codes) in [("w1", &[][..]), ("w2", &["I20"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pod("safe", "p", node, "ReplicaSet", json!({}));
        s.pass(1.0);
        s.moves(0, "queued");
        let last = s.record.keys.iter_mut().rev().find(|k| k.key.starts_with("cketerm/audit/")).unwrap();
        let mut audit: Value = serde_json::from_slice(last.value.as_ref().unwrap()).unwrap();
        audit["reason"] = json!("pod safe/p blocked by pdb safe/b (healthy 1, needs 1)");
        last.value = Some(audit.to_string().into_bytes());
        let seen: Vec<_> = s.codes().into_iter().filter(|c| *c == "I20").collect();
        assert_eq!(seen, codes);
    }
}

#[test]
fn i51_an_entry_that_waits_without_a_cause_is_seen() {
    let working = || json!({"reason": "Working", "phase": "waits"});
    let stale = || json!({"reason": "Stale", "source": "nodes", "since": "2026-01-01T00:00:00Z"});
    for (said, codes) in [
        (vec![(170, working())], &["I51"][..]),
        (vec![(170, stale())], &[]),
        (vec![(100, working()), (1, stale()), (100, working())], &[]),
    ] {
        let mut s = Scene::new();
        s.add(0, "w1");
        for (seconds, reason) in said {
            s.says(seconds, &[(0, reason)], &[]);
        }
        sees(&s, codes);
    }
}

//! Leadership, and what the leader reports.

use serde_json::{Value, json};

use super::{
    super::record::{AcknowledgedCommand, PowerEvent},
    assert_breaches,
    scene::{LEASE, Scene, definition, entry, key},
};

#[test]
fn i23_a_write_without_comparisons_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.engine("running", &[("reboots/running", json!(true))], &[]);
    assert_breaches(&s, &[]);
    s.record.txns.last_mut().unwrap().compares.clear();
    assert_breaches(&s, &["I23"]);
}

#[test]
fn i23_a_start_without_all_of_its_comparisons_is_reported() {
    for missing in [key(0), "reboots/disabled".to_owned(), "cluster".to_owned()] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.record.txns.last_mut().unwrap().compares.retain(|(k, _)| *k != missing);
        assert_breaches(&s, &["I23"]);
    }
}

#[test]
fn i23_a_write_after_the_leader_key_was_deleted_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.set_key(&format!("leader//{LEASE:x}"), None);
    s.lead(1, 0x7b);
    s.moves(0, "draining");
    assert_breaches(&s, &["I23"]);
}

#[test]
fn i23_a_patch_without_a_resource_version_is_reported() {
    let mut s = Scene::new();
    let patch = json!({"metadata": {"annotations": {"cketerm.io/owner": "x"}}});
    s.ask("engine-0", "PATCH", "/api/v1/nodes/w1", patch.clone(), 409);
    assert_breaches(&s, &["I23"]);
    s.record.api_requests.last_mut().unwrap().by = "kubectl".to_owned();
    assert_breaches(&s, &[]);
}

#[test]
fn i24_a_command_long_after_its_lease_ended_is_reported() {
    for (seconds, codes) in [(1.0, &[][..]), (8.0, &["I24"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.advance(1.0);
        s.powers(0, "w1");
        s.record.power.clear();
        s.set_key(&format!("leader//{LEASE:x}"), None);
        s.advance(seconds);
        s.power(PowerEvent::Begin, 0, 1, "w1");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i24_a_former_leaders_patch_over_a_later_owner_record_is_reported() {
    for (by, codes) in [("engine-0", &["I24", "I38"][..]), ("engine-1", &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.set_key(&format!("leader//{LEASE:x}"), None);
        s.lead(1, 0x7b);
        let mut owner = s.owner(0, "w1", true);
        owner["lease"] = json!(0x7b);
        let body = json!({"metadata": {"annotations": {"cketerm.io/owner": owner.to_string()}}});
        s.patch("engine-1", "w1", body.clone());
        s.advance(30.0);
        s.patch(by, "w1", body);
        assert_breaches(&s, codes);
    }
}

fn reported_scene(entries: &[(u64, Value)]) -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w2");
    s.advance(5.0);
    s.reports(6, entries, &[]);
    s
}

#[test]
fn i32_an_entry_without_a_reason_is_reported() {
    let slot = || json!({"reason": "WaitingForSlot", "limit": 2});
    let mut s = reported_scene(&[(0, json!({"reason": "Working", "phase": "p"}))]);
    assert_breaches(&s, &["I32"]);
    s.record.reports.truncate(2);
    assert_breaches(&s, &[]);
    assert_breaches(&reported_scene(&[(0, slot()), (1, slot())]), &[]);
}

/// The queue long after faults have ended, with an engine that reports this.
fn after_faults(status: &str, reason: Value) -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    if status != "queued" {
        s.moves(0, "draining");
    }
    if status == "rebooting" {
        s.cordon(0, "w1");
        s.advance(1.0);
        s.powers(0, "w1");
        s.advance(1.0);
        s.ends(0, 1, "w1", 0);
    }
    s.engine("running", &[("reboots/running", json!(true))], &[]);
    s.record.calm_since = Some(s.now);
    s.advance(900.0);
    s.reports(70, &[(0, reason)], &[]);
    s
}

#[test]
fn i33_an_entry_that_neither_ends_nor_has_a_reason_is_reported() {
    for (status, reason, codes) in [
        ("queued", json!({"reason": "Ready"}), &["I33"][..]),
        ("queued", json!({"reason": "UnreachableGate"}), &[]),
        ("draining", json!({"reason": "PodsLeaving"}), &["I33"]),
        ("rebooting", json!({"reason": "CommandRunning"}), &["I33"]),
        ("rebooting", json!({"reason": "CommandFailed"}), &[]),
    ] {
        assert_breaches(&after_faults(status, reason), codes);
    }
}

#[test]
fn i34_a_backoff_of_wrong_length_or_count_is_reported() {
    for (count, wait, codes) in
        [(1, 300, &[][..]), (1, 599, &[]), (1, 299, &["I34"]), (1, 600, &["I34"]), (2, 700, &["I34"])]
    {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        let mut back = s.get(&key(0));
        back["status"] = json!("queued");
        back["drain_backoff_count"] = json!(count);
        back["last_transition_time"] = json!(s.whole_second());
        back["drain_backoff_expire"] = json!(s.whole_second_after(wait));
        s.engine("back off", &[(&key(0), back)], &[]);
        assert_breaches(&s, codes);
    }
    // the exponent is limited, however large the count
    let mut s = Scene::new();
    let mut backed_off = entry(0, "w1", "queued");
    backed_off["drain_backoff_count"] = json!(1_000_000);
    s.write("console", &[(&key(0), backed_off), ("reboots/write-index", json!(1))], &[]);
    s.moves(0, "draining");
    s.moves(0, "queued");
    assert_breaches(&s, &[]);
}

#[test]
fn i34_a_start_before_the_backoff_ends_is_reported() {
    for (seconds, codes) in [(100.0, &["I34"][..]), (320.0, &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.moves(0, "queued");
        s.advance(seconds);
        s.moves(0, "draining");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i35_a_stuck_reboot_that_is_not_reported_as_stuck_is_a_breach() {
    for (stuck, codes) in [(false, &["I35"][..]), (true, &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.write("console", &[("cketerm/policy", json!({"stuck_seconds": 100}))], &[]);
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.advance(1.0);
        s.powers(0, "w1");
        s.advance(150.0);
        s.reports(3, &[(0, json!({"reason": "WaitingForBoot", "stuck": stuck}))], &[]);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i36_a_cancelled_entry_that_is_removed_late_is_reported() {
    for (seconds, codes) in [(1.0, &[][..]), (9.0, &["I36"])] {
        let mut s = Scene::new();
        s.record.calm_since = Some(s.now);
        s.advance(200.0);
        s.add(0, "w1");
        s.advance(1.0);
        s.cancel(0);
        s.advance(seconds);
        s.removes(0, "cancelled");
        s.engine("running", &[("reboots/running", json!(false))], &[]);
        s.advance(60.0);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i37_a_drain_that_exceeds_its_deadline_is_reported() {
    for (seconds, codes) in [(100.0, &[][..]), (200.0, &["I37"])] {
        let mut s = Scene::new();
        s.record.calm_since = Some(s.now);
        s.advance(200.0);
        s.add(0, "w1");
        s.moves(0, "draining");
        s.advance(seconds);
        s.moves(0, "queued");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i37_an_early_backoff_because_of_a_mere_wait_is_reported() {
    let pdb_reason = "pod safe/p blocked by pdb safe/b (healthy 1, needs 1)";
    for (seconds, why, codes) in [
        (20.0, "2 pods are leaving, including a", &["I37"][..]),
        (20.0, pdb_reason, &[]),
        (60.0, "one pod is leaving: a", &[]),
    ] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.advance(seconds);
        s.moves(0, "queued");
        let audit_change = s.record.keys.iter_mut().rfind(|k| k.key.starts_with("cketerm/audit/")).unwrap();
        let mut audit: Value = serde_json::from_slice(audit_change.value.as_ref().unwrap()).unwrap();
        audit["reason"] = json!(why);
        audit_change.value = Some(audit.to_string().into_bytes());
        assert_breaches(&s, codes);
    }
}

#[test]
fn i34_an_acknowledged_backoff_reset_without_effect_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.moves(0, "queued");
    s.advance(1.0);
    s.acknowledged(AcknowledgedCommand::ResetBackoff(vec![0]));
    assert_breaches(&s, &["I28", "I34"]);
}

#[test]
fn i38_an_attempt_without_an_audit_record_and_a_deleted_open_one_are_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.advance(1.0);
    s.powers(0, "w1");
    assert_breaches(&s, &[]);
    let mut silent = s.clone();
    let last = silent.record.keys.iter().rposition(|k| k.key.starts_with("cketerm/audit/")).unwrap();
    silent.record.keys.remove(last);
    assert_breaches(&silent, &["I38"]);
    s.engine("prune", &[], &["cketerm/attempts/reboots/0/1"]);
    assert_breaches(&s, &["I38"]);
}

#[test]
fn i39_an_untrue_reason_is_reported() {
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
        s.advance(5.0);
        s.write("console", &[("constraints", json!({}))], &[]);
        s.reports(2, &[(0, reason), (1, json!({"reason": "WaitingForSlot"}))], &[]);
        assert_breaches(&s, codes);
    }
    assert_eq!(definition()["name"], "c");
}

#[test]
fn i39_a_wrong_value_of_reboots_running_is_reported() {
    for (running, codes) in [(true, &[][..]), (false, &["I39"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.engine("running", &[("reboots/running", json!(running))], &[]);
        s.record.calm_since = Some(s.now);
        s.advance(300.0);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i38_a_patch_eviction_or_deletion_without_an_audit_record_is_reported() {
    let without_record = |act: &dyn Fn(&mut Scene)| {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pod("free", "p", "w1", "ReplicaSet", json!({}));
        s.advance(60.0);
        act(&mut s);
        let is_recorded = !s.codes().contains(&"I38");
        let last = s.record.keys.iter().rposition(|k| k.key.starts_with("cketerm/audit/")).unwrap();
        s.record.keys.remove(last);
        (is_recorded, s.codes().contains(&"I38"))
    };
    assert_eq!(without_record(&|s| s.uncordon("w1")), (true, true));
    assert_eq!(without_record(&|s| s.evict("free", "p", false, 201)), (true, true));
    assert_eq!(without_record(&|s| s.deletes("free", "p")), (true, true));
    let dry = |s: &mut Scene| s.evict("free", "p", true, 201);
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
    s.advance(1.0);
    s.evict("safe", "p", false, code);
    s.reports(10, &[(0, reason)], &[]);
    s.codes()
}

#[test]
fn i20_a_refusal_without_a_reason_or_with_a_wrong_one_is_reported() {
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
fn i20_a_backoff_because_of_a_pod_of_another_node_is_reported() {
    for (node, codes) in [("w1", &[][..]), ("w2", &["I20"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pod("safe", "p", node, "ReplicaSet", json!({}));
        s.advance(1.0);
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
fn i51_an_entry_that_waits_without_a_named_cause_is_reported() {
    let working = || json!({"reason": "Working", "phase": "waits"});
    let stale = || json!({"reason": "Stale", "source": "nodes", "since": "2026-01-01T00:00:00Z"});
    for (reports, codes) in [
        (vec![(170, working())], &["I51"][..]),
        (vec![(170, stale())], &[]),
        (vec![(100, working()), (1, stale()), (100, working())], &[]),
    ] {
        let mut s = Scene::new();
        s.add(0, "w1");
        for (seconds, reason) in reports {
            s.reports(seconds, &[(0, reason)], &[]);
        }
        assert_breaches(&s, codes);
    }
}

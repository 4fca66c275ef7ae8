//! Drains, and the conditions of the power command.

use serde_json::json;

use super::{
    super::record::{ApiRequest, Txn},
    assert_breaches,
    scene::Scene,
};

/// w1 draining and cordoned, with a protected pod `a` and an unprotected pod `b` that have run for long.
fn draining() -> Scene {
    let mut s = Scene::new();
    s.pod("safe", "a", "w1", "ReplicaSet", json!({}));
    s.pod("free", "b", "w1", "ReplicaSet", json!({}));
    s.advance(60.0);
    s.add(0, "w1");
    s.moves(0, "draining");
    s.advance(0.5);
    s.cordon(0, "w1");
    s.advance(1.0);
    s
}

/// Removes the pods, and lets enough time pass.
fn empty_node(s: &mut Scene) {
    s.object("pods", "safe", "a", None);
    s.object("pods", "free", "b", None);
    s.advance(30.0);
}

#[test]
fn i15_an_eviction_after_a_refused_preview_is_reported_unless_repeated() {
    for repeated in [false, true] {
        let mut s = draining();
        s.evict("safe", "a", true, 429);
        s.advance(3.0);
        if repeated {
            s.evict("safe", "a", true, 201);
        }
        s.advance(1.0);
        s.evict("free", "b", false, 201);
        assert_breaches(&s, if repeated { &[] } else { &["I15"] });
    }
}

/// Message of a webhook's denial, and of a failing server.
const WEBHOOK_DENIAL: &str = "admission webhook \"w.example.com\" denied the request: no";
const LEADER_CHANGED: &str = "etcdserver: leader changed";

#[test]
fn i15_an_eviction_is_reported_after_a_denied_or_undecided_preview_not_a_deferred_one() {
    for (code, message, codes) in [
        (403, WEBHOOK_DENIAL, &["I15"][..]),
        (429, WEBHOOK_DENIAL, &[]),
        (500, LEADER_CHANGED, &["I15"]),
        (429, "Too many requests, please try again later.", &["I15"]),
        (
            403,
            "pods \"a\" is forbidden: unable to create new content in namespace safe because it is being terminated",
            &[],
        ),
    ] {
        let mut s = draining();
        s.evict("safe", "a", true, code);
        s.set_message(message);
        s.advance(3.0);
        s.evict("free", "b", false, 201);
        assert_breaches(&s, codes);
    }
    // neither one nor two disruption budgets keep a pod of an unprotected namespace
    for code in [429, 500] {
        let mut s = draining();
        s.evict("free", "b", true, code);
        s.advance(1.0);
        s.evict("safe", "a", false, 201);
        assert_breaches(&s, &[]);
    }
}

#[test]
fn i18_a_deletion_is_reported_after_a_webhook_429_or_failure_not_after_two_budgets() {
    let many = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    for (code, message, codes) in [
        (429, WEBHOOK_DENIAL, &["I18"][..]),
        (429, "too many requests", &["I18"]),
        (500, LEADER_CHANGED, &["I18"]),
        (500, many, &[]),
    ] {
        let mut s = draining();
        s.evict("free", "b", false, code);
        s.set_message(message);
        s.advance(1.0);
        s.deletes("free", "b");
        assert_breaches(&s, codes);
    }
}

/// Backs the drain off after this many seconds, with this as the named cause.
fn back_off(s: &mut Scene, seconds: f64) {
    s.advance(seconds);
    s.moves(0, "queued");
    let last = s.record.keys.iter_mut().rev().find(|k| k.key.starts_with("cketerm/audit/")).unwrap();
    let mut audit: serde_json::Value = serde_json::from_slice(last.value.as_ref().unwrap()).unwrap();
    audit["reason"] = json!("eviction of safe/a failed, retrying: 500");
    last.value = Some(audit.to_string().into_bytes());
}

#[test]
fn i15_i20_an_early_backoff_for_a_deferred_or_undecided_eviction_is_reported() {
    for (dry, code, message, seconds, codes) in [
        (false, 500, LEADER_CHANGED, 5.0, &["I20"][..]),
        (true, 500, LEADER_CHANGED, 5.0, &["I20"]),
        (true, 500, LEADER_CHANGED, 56.0, &[]),
        (true, 429, WEBHOOK_DENIAL, 5.0, &["I15"]),
        (true, 403, WEBHOOK_DENIAL, 5.0, &[]),
        (true, 429, "Cannot evict pod as it would violate the pod's disruption budget.", 5.0, &[]),
    ] {
        let mut s = draining();
        s.evict("safe", "a", dry, code);
        s.set_message(message);
        back_off(&mut s, seconds);
        let seen: Vec<_> = s.codes().into_iter().filter(|c| ["I15", "I20"].contains(c)).collect();
        assert_eq!(seen, codes, "{dry} {code} {message} {seconds}");
    }
}

#[test]
fn i22_a_pod_reported_stuck_within_its_grace_period_is_a_breach() {
    for (after, codes) in [(20.0, &["I22"][..]), (70.0, &[])] {
        let mut s = draining();
        let at = s.whole_second();
        s.pod_changes("free", "b", |p| {
            p["metadata"]["deletionTimestamp"] = json!(at);
            p["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        });
        s.advance(after);
        s.reports(2, &[(0, json!({"reason": "TerminatingStuck", "pod": "free/b"}))], &[]);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i15_an_eviction_while_a_protected_job_runs_on_the_node_is_reported() {
    for (protected, codes) in [("yes", &["I15"][..]), ("no", &[])] {
        let mut s = draining();
        s.pod("free", "job", "w1", "Job", json!({"protected": protected}));
        s.advance(40.0);
        s.evict("free", "b", false, 201);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i16_a_power_command_with_a_pod_or_volume_left_is_reported() {
    let mut s = draining();
    empty_node(&mut s);
    let mut clean = s.clone();
    clean.powers(0, "w1");
    assert_breaches(&clean, &[]);
    let mut pod = s.clone();
    pod.pod("safe", "c", "w1", "ReplicaSet", json!({}));
    pod.advance(30.0);
    pod.powers(0, "w1");
    assert_breaches(&pod, &["I16"]);
    let mut late = s.clone();
    late.pod("safe", "c", "w1", "ReplicaSet", json!({}));
    late.advance(1.0);
    late.powers(0, "w1");
    assert_breaches(&late, &[]);
    s.node("w1", |n| n["status"]["volumesInUse"] = json!(["v"]));
    s.advance(30.0);
    s.powers(0, "w1");
    assert_breaches(&s, &["I16"]);
}

#[test]
fn i16_a_power_command_on_an_uncordoned_node_is_reported() {
    let mut s = draining();
    empty_node(&mut s);
    s.patch("kubectl", "w1", json!({"spec": {"unschedulable": null}}));
    s.advance(30.0);
    s.powers(0, "w1");
    assert_breaches(&s, &["I16"]);
}

#[test]
fn i17_an_eviction_without_a_uid_is_reported() {
    let mut s = draining();
    s.evict("free", "b", false, 201);
    assert_breaches(&s, &[]);
    s.ask("engine-0", "POST", "/api/v1/namespaces/free/pods/b/eviction", json!({"deleteOptions": {}}), 201);
    assert_breaches(&s, &["I17"]);
}

#[test]
fn i18_a_deletion_without_a_refused_eviction_or_in_a_protected_namespace_is_reported() {
    for (namespace, name, refused, codes) in
        [("free", "b", true, &[][..]), ("free", "b", false, &["I18"]), ("safe", "a", true, &["I18"])]
    {
        let mut s = draining();
        if refused {
            s.evict(namespace, name, false, 429);
        }
        s.advance(1.0);
        s.deletes(namespace, name);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i18_deleting_a_pod_of_a_protected_running_job_is_reported() {
    for (protected, phase, codes) in
        [("yes", "Running", &["I15", "I18"][..]), ("no", "Running", &[]), ("yes", "Pending", &[])]
    {
        let mut s = draining();
        s.pod("free", "job", "w1", "Job", json!({"protected": protected}));
        s.pod_changes("free", "job", |p| p["status"]["phase"] = json!(phase));
        s.advance(40.0);
        s.deletes("free", "job");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i19_removing_mirror_or_daemon_set_pods_is_reported_except_on_delete_at_the_end() {
    let daemon = |strategy: &str| {
        let mut s = draining();
        let set =
            json!({"metadata": {"name": "o", "uid": "uid-DaemonSet"}, "spec": {"updateStrategy": {"type": strategy}}});
        s.object("daemonsets", "free", "o", Some(set));
        s.pod("free", "d1", "w1", "DaemonSet", json!({}));
        s
    };
    for (strategy, left, codes) in
        [("OnDelete", false, &[][..]), ("OnDelete", true, &["I19"]), ("RollingUpdate", false, &["I19"])]
    {
        let mut s = daemon(strategy);
        if left {
            s.advance(30.0);
        } else {
            empty_node(&mut s);
        }
        s.deletes("free", "d1");
        assert_breaches(&s, codes);
    }
    let mut s = daemon("OnDelete");
    empty_node(&mut s);
    s.deletes("free", "d1");
    s.object("pods", "free", "d1", None);
    s.pod("free", "d2", "w1", "DaemonSet", json!({}));
    s.advance(30.0);
    s.deletes("free", "d2");
    assert_breaches(&s, &["I19"]);
    let mut s = draining();
    s.pod_changes("free", "b", |p| p["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"}));
    s.advance(60.0);
    s.evict("free", "b", false, 201);
    assert_breaches(&s, &["I19"]);
}

#[test]
fn i21_a_power_command_while_a_pod_terminates_is_reported() {
    let mut s = draining();
    s.object("pods", "safe", "a", None);
    s.pod_changes("free", "b", |p| p["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:02:00Z"));
    s.advance(30.0);
    s.powers(0, "w1");
    assert_breaches(&s, &["I21"]);
}

#[test]
fn i22_an_unnamed_stuck_pod_and_a_deletion_without_grace_are_reported() {
    for (reason, codes) in [("PodsLeaving", &["I22"][..]), ("TerminatingStuck", &[])] {
        let mut s = draining();
        let at = s.whole_second();
        s.pod_changes("free", "b", |p| p["metadata"]["deletionTimestamp"] = json!(at));
        s.not_ready("w1");
        s.advance(90.0);
        s.reports(2, &[(0, json!({"reason": reason}))], &[]);
        assert_breaches(&s, codes);
    }
    let mut s = draining();
    s.evict("free", "b", false, 429);
    s.deletes("free", "b");
    s.record.api_requests.last_mut().unwrap().body["gracePeriodSeconds"] = json!(0);
    assert_breaches(&s, &["I22"]);
}

#[test]
fn i45_a_preview_without_dry_run_in_its_query_is_reported() {
    let mut s = draining();
    s.evict("free", "b", true, 201);
    assert_breaches(&s, &[]);
    s.record.api_requests.last_mut().unwrap().query.clear();
    assert_breaches(&s, &["I45"]);
}

#[test]
fn i45_a_read_only_process_that_writes_is_reported() {
    let mut s = draining();
    let ask = |method: &str| ApiRequest {
        at: s.now,
        by: "viewer-1".to_owned(),
        method: method.to_owned(),
        path: "/api/v1/nodes/w1".to_owned(),
        query: String::new(),
        body: json!(null),
        code: 403,
        message: String::new(),
    };
    let (get, patch) = (ask("GET"), ask("PATCH"));
    s.record.api_requests.push(get);
    assert_breaches(&s, &[]);
    let mut other = s.clone();
    other.record.api_requests.push(patch);
    assert_breaches(&other, &["I45"]);
    let puts = vec!["x".to_owned()];
    s.record.txns.push(Txn {
        at: s.now,
        by: "viewer-1".to_owned(),
        compares: vec![],
        puts,
        deletes: vec![],
        operations: 1,
        bytes: 1,
        succeeded: false,
        revision: 0,
    });
    assert_breaches(&s, &["I45"]);
}

//! Drains, and the conditions of the power command.

use serde_json::json;

use super::{
    super::record::{Asked, Txn},
    scene::Scene,
    sees,
};

/// w1 draining and cordoned, with a protected pod `a` and an unprotected pod `b` that have run for long.
fn draining() -> Scene {
    let mut s = Scene::new();
    s.pod("safe", "a", "w1", "ReplicaSet", json!({}));
    s.pod("free", "b", "w1", "ReplicaSet", json!({}));
    s.pass(60.0);
    s.add(0, "w1");
    s.moves(0, "draining");
    s.pass(0.5);
    s.cordon(0, "w1");
    s.pass(1.0);
    s
}

/// Removes the pods, and lets enough time pass.
fn emptied(s: &mut Scene) {
    s.object("pods", "safe", "a", None);
    s.object("pods", "free", "b", None);
    s.pass(30.0);
}

#[test]
fn i15_an_eviction_after_a_refused_preview_is_seen_unless_the_preview_was_made_again() {
    for again in [false, true] {
        let mut s = draining();
        s.evicts("safe", "a", true, 429);
        s.pass(3.0);
        if again {
            s.evicts("safe", "a", true, 201);
        }
        s.pass(1.0);
        s.evicts("free", "b", false, 201);
        sees(&s, if again { &[] } else { &["I15"] });
    }
}

/// Message of a webhook's denial, and of a failing server.
const DENIED: &str = "admission webhook \"w.example.com\" denied the request: no";
const CHANGED: &str = "etcdserver: leader changed";

#[test]
fn i15_after_a_webhooks_denial_or_an_answer_that_decides_nothing_an_eviction_is_seen_and_after_its_429_not() {
    for (code, said, codes) in [
        (403, DENIED, &["I15"][..]),
        (429, DENIED, &[]),
        (500, CHANGED, &["I15"]),
        (429, "Too many requests, please try again later.", &["I15"]),
        (
            403,
            "pods \"a\" is forbidden: unable to create new content in namespace safe because it is being terminated",
            &[],
        ),
    ] {
        let mut s = draining();
        s.evicts("safe", "a", true, code);
        s.said(said);
        s.pass(3.0);
        s.evicts("free", "b", false, 201);
        sees(&s, codes);
    }
    // neither one budget nor two keep a pod of an unprotected namespace
    for code in [429, 500] {
        let mut s = draining();
        s.evicts("free", "b", true, code);
        s.pass(1.0);
        s.evicts("safe", "a", false, 201);
        sees(&s, &[]);
    }
}

#[test]
fn i18_a_deletion_after_a_webhooks_429_or_a_failure_is_seen_and_after_two_budgets_not() {
    let many = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    for (code, said, codes) in
        [(429, DENIED, &["I18"][..]), (429, "too many requests", &["I18"]), (500, CHANGED, &["I18"]), (500, many, &[])]
    {
        let mut s = draining();
        s.evicts("free", "b", false, code);
        s.said(said);
        s.pass(1.0);
        s.deletes("free", "b");
        sees(&s, codes);
    }
}

/// Backs the drain off after this many seconds, with this as the named cause.
fn given_up(s: &mut Scene, seconds: f64) {
    s.pass(seconds);
    s.moves(0, "queued");
    let last = s.record.keys.iter_mut().rev().find(|k| k.key.starts_with("cketerm/audit/")).unwrap();
    let mut audit: serde_json::Value = serde_json::from_slice(last.value.as_ref().unwrap()).unwrap();
    audit["reason"] = json!("eviction of safe/a failed, retrying: 500");
    last.value = Some(audit.to_string().into_bytes());
}

#[test]
fn i15_i20_a_drain_given_up_early_for_what_blocks_or_decides_nothing_is_seen() {
    for (dry, code, said, seconds, codes) in [
        (false, 500, CHANGED, 5.0, &["I20"][..]),
        (true, 500, CHANGED, 5.0, &["I20"]),
        (true, 500, CHANGED, 56.0, &[]),
        (true, 429, DENIED, 5.0, &["I15"]),
        (true, 403, DENIED, 5.0, &[]),
        (true, 429, "Cannot evict pod as it would violate the pod's disruption budget.", 5.0, &[]),
    ] {
        let mut s = draining();
        s.evicts("safe", "a", dry, code);
        s.said(said);
        given_up(&mut s, seconds);
        let seen: Vec<_> = s.codes().into_iter().filter(|c| ["I15", "I20"].contains(c)).collect();
        assert_eq!(seen, codes, "{dry} {code} {said} {seconds}");
    }
}

#[test]
fn i22_a_pod_that_is_called_stuck_within_its_grace_period_is_seen() {
    for (after, codes) in [(20.0, &["I22"][..]), (70.0, &[])] {
        let mut s = draining();
        let at = s.whole();
        s.pod_changes("free", "b", |p| {
            p["metadata"]["deletionTimestamp"] = json!(at);
            p["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        });
        s.pass(after);
        s.says(2, &[(0, json!({"reason": "TerminatingStuck", "pod": "free/b"}))], &[]);
        sees(&s, codes);
    }
}

#[test]
fn i15_an_eviction_beside_a_protected_running_job_is_seen() {
    for (protected, codes) in [("yes", &["I15"][..]), ("no", &[])] {
        let mut s = draining();
        s.pod("free", "job", "w1", "Job", json!({"protected": protected}));
        s.pass(40.0);
        s.evicts("free", "b", false, 201);
        sees(&s, codes);
    }
}

#[test]
fn i16_a_pod_or_a_volume_that_is_left_is_seen() {
    let mut s = draining();
    emptied(&mut s);
    let mut clean = s.clone();
    clean.powers(0, "w1");
    sees(&clean, &[]);
    let mut pod = s.clone();
    pod.pod("safe", "c", "w1", "ReplicaSet", json!({}));
    pod.pass(30.0);
    pod.powers(0, "w1");
    sees(&pod, &["I16"]);
    let mut late = s.clone();
    late.pod("safe", "c", "w1", "ReplicaSet", json!({}));
    late.pass(1.0);
    late.powers(0, "w1");
    sees(&late, &[]);
    s.node("w1", |n| n["status"]["volumesInUse"] = json!(["v"]));
    s.pass(30.0);
    s.powers(0, "w1");
    sees(&s, &["I16"]);
}

#[test]
fn i16_a_node_that_is_not_cordoned_is_seen() {
    let mut s = draining();
    emptied(&mut s);
    s.patch("kubectl", "w1", json!({"spec": {"unschedulable": null}}));
    s.pass(30.0);
    s.powers(0, "w1");
    sees(&s, &["I16"]);
}

#[test]
fn i17_an_eviction_without_a_uid_is_seen() {
    let mut s = draining();
    s.evicts("free", "b", false, 201);
    sees(&s, &[]);
    s.ask("engine-0", "POST", "/api/v1/namespaces/free/pods/b/eviction", json!({"deleteOptions": {}}), 201);
    sees(&s, &["I17"]);
}

#[test]
fn i18_a_deletion_comes_only_after_a_refusal_and_only_where_nothing_is_protected() {
    for (namespace, name, refused, codes) in
        [("free", "b", true, &[][..]), ("free", "b", false, &["I18"]), ("safe", "a", true, &["I18"])]
    {
        let mut s = draining();
        if refused {
            s.evicts(namespace, name, false, 429);
        }
        s.pass(1.0);
        s.deletes(namespace, name);
        sees(&s, codes);
    }
}

#[test]
fn i18_a_protected_running_jobs_pod_is_never_touched() {
    for (protected, phase, codes) in
        [("yes", "Running", &["I15", "I18"][..]), ("no", "Running", &[]), ("yes", "Pending", &[])]
    {
        let mut s = draining();
        s.pod("free", "job", "w1", "Job", json!({"protected": protected}));
        s.pod_changes("free", "job", |p| p["status"]["phase"] = json!(phase));
        s.pass(40.0);
        s.deletes("free", "job");
        sees(&s, codes);
    }
}

#[test]
fn i19_mirror_pods_and_daemon_sets_are_left_alone_but_for_on_delete_at_the_end() {
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
            s.pass(30.0);
        } else {
            emptied(&mut s);
        }
        s.deletes("free", "d1");
        sees(&s, codes);
    }
    let mut s = daemon("OnDelete");
    emptied(&mut s);
    s.deletes("free", "d1");
    s.object("pods", "free", "d1", None);
    s.pod("free", "d2", "w1", "DaemonSet", json!({}));
    s.pass(30.0);
    s.deletes("free", "d2");
    sees(&s, &["I19"]);
    let mut s = draining();
    s.pod_changes("free", "b", |p| p["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"}));
    s.pass(60.0);
    s.evicts("free", "b", false, 201);
    sees(&s, &["I19"]);
}

#[test]
fn i21_a_pod_that_is_still_terminating_is_seen() {
    let mut s = draining();
    s.object("pods", "safe", "a", None);
    s.pod_changes("free", "b", |p| p["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:02:00Z"));
    s.pass(30.0);
    s.powers(0, "w1");
    sees(&s, &["I21"]);
}

#[test]
fn i22_a_stuck_pod_that_is_not_named_and_a_deletion_without_grace_are_seen() {
    for (reason, codes) in [("PodsLeaving", &["I22"][..]), ("TerminatingStuck", &[])] {
        let mut s = draining();
        let at = s.whole();
        s.pod_changes("free", "b", |p| p["metadata"]["deletionTimestamp"] = json!(at));
        s.not_ready("w1");
        s.pass(90.0);
        s.says(2, &[(0, json!({"reason": reason}))], &[]);
        sees(&s, codes);
    }
    let mut s = draining();
    s.evicts("free", "b", false, 429);
    s.deletes("free", "b");
    s.record.asked.last_mut().unwrap().body["gracePeriodSeconds"] = json!(0);
    sees(&s, &["I22"]);
}

#[test]
fn i45_a_preview_that_webhooks_take_for_an_eviction_is_seen() {
    let mut s = draining();
    s.evicts("free", "b", true, 201);
    sees(&s, &[]);
    s.record.asked.last_mut().unwrap().query.clear();
    sees(&s, &["I45"]);
}

#[test]
fn i45_a_viewer_that_writes_is_seen() {
    let mut s = draining();
    let ask = |method: &str| Asked {
        at: s.now,
        by: "viewer-1".to_owned(),
        method: method.to_owned(),
        path: "/api/v1/nodes/w1".to_owned(),
        query: String::new(),
        body: json!(null),
        code: 403,
        said: String::new(),
    };
    let (get, patch) = (ask("GET"), ask("PATCH"));
    s.record.asked.push(get);
    sees(&s, &[]);
    let mut other = s.clone();
    other.record.asked.push(patch);
    sees(&other, &["I45"]);
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
    sees(&s, &["I45"]);
}

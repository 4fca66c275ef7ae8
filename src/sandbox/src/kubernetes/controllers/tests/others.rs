//! Budgets, garbage collection, and reproducible runs.

use super::{owners::owner, *};
use crate::kubernetes::{
    Verb,
    resource::{BUDGETS, CONFIG_MAPS, NAMESPACES, REPLICA_SETS, STATEFUL_SETS},
};

impl TestCluster {
    fn budget(&self, spec: &Value) {
        let mut budget = json!({"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        json_patch::merge(&mut budget["spec"], spec);
        self.create(&BUDGETS, "default", budget);
    }

    /// Returns expectedPods, desiredHealthy, currentHealthy, disruptionsAllowed.
    fn budget_counts(&self) -> [i64; 4] {
        let budget = self.objects.get(&BUDGETS, "default", "b").unwrap();
        assert_eq!(budget["status"]["observedGeneration"], budget["metadata"]["generation"]);
        let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap();
        assert_eq!(
            object_fields::condition_status(&budget, "DisruptionAllowed"),
            if allowed > 0 { "True" } else { "False" }
        );
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
            .map(|field| budget["status"][field].as_i64().unwrap())
    }

    fn record_eviction(&self, pod: &str) {
        let record = |b: &mut Value| {
            b["status"]["disruptionsAllowed"] = json!(b["status"]["disruptionsAllowed"].as_i64().unwrap() - 1);
            b["status"]["disruptedPods"][pod] = json!(self.objects.stamp());
            Ok(())
        };
        self.objects.update(&BUDGETS, "default", "b", record).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_uses_up_a_budget_until_the_pod_is_replaced() {
    let cluster = TestCluster::new(2);
    cluster.create(&STATEFUL_SETS, "default", owner("web", 3));
    cluster.budget(&json!({"maxUnavailable": 1}));
    seconds(15.0).await;
    assert_eq!(cluster.budget_counts(), [3, 2, 3, 1]);
    cluster.record_eviction("web-1");
    cluster.end("web-1", 30);
    seconds(0.5).await;
    assert_eq!(cluster.budget_counts(), [3, 2, 2, 0]);
    seconds(15.0).await;
    assert_eq!(cluster.budget_counts(), [3, 2, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_without_a_deletion_expires_after_two_minutes() {
    let cluster = TestCluster::new(1);
    cluster.create(&REPLICA_SETS, "default", owner("web", 2));
    cluster.budget(&json!({"minAvailable": 1}));
    seconds(5.0).await;
    let pod = cluster.objects.list(&PODS, "").0[0]["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.record_eviction(&pod);
    seconds(60.0).await;
    assert_eq!(cluster.budget_counts(), [2, 1, 1, 0]);
    seconds(70.0).await;
    assert_eq!(cluster.budget_counts(), [2, 1, 2, 1]);
    let budget = cluster.objects.get(&BUDGETS, "default", "b").unwrap();
    assert!(budget["status"].get("disruptedPods").is_none());
}

#[tokio::test(start_paused = true)]
async fn budget_status_matches_kube_controller_manager() {
    for (spec, budget_counts) in [
        (json!({"minAvailable": 2}), [3, 2, 3, 1]),
        (json!({"minAvailable": "50%"}), [3, 2, 3, 1]),
        (json!({"minAvailable": "100%"}), [3, 3, 3, 0]),
        (json!({"maxUnavailable": "34%"}), [3, 1, 3, 2]),
        (json!({"maxUnavailable": 0}), [3, 3, 3, 0]),
        (json!({"minAvailable": 5}), [3, 5, 3, 0]),
    ] {
        let cluster = TestCluster::new(1);
        cluster.create(&REPLICA_SETS, "default", owner("web", 3));
        cluster.budget(&spec);
        seconds(10.0).await;
        assert_eq!(cluster.budget_counts(), budget_counts, "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn bare_pods_have_no_expected_scale() {
    let cluster = TestCluster::new(1);
    cluster.pod("a", &json!({"metadata": {"labels": {"app": "web"}}}));
    cluster.budget(&json!({"maxUnavailable": 1}));
    seconds(5.0).await;
    assert_eq!(cluster.budget_counts(), [0, 0, 1, 0]);
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 0});
    cluster
        .objects
        .update(&BUDGETS, "default", "b", |b| {
            b["spec"] = spec;
            Ok(())
        })
        .unwrap();
    seconds(1.0).await;
    assert_eq!(cluster.budget_counts(), [1, 0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_unready_node_are_unhealthy_in_their_budget() {
    let cluster = TestCluster::new(2);
    cluster.create(&REPLICA_SETS, "default", owner("web", 2));
    cluster.budget(&json!({"minAvailable": 1}));
    seconds(5.0).await;
    cluster.command("off 10.0.0.1").await;
    seconds(5.0).await;
    assert_eq!(cluster.budget_counts(), [2, 1, 1, 0]);
    cluster.command("on 10.0.0.1").await;
    seconds(30.0).await;
    assert_eq!(cluster.budget_counts(), [2, 1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_is_emptied_and_removed() {
    let cluster = TestCluster::new(1);
    cluster.create(&NAMESPACES, "", json!({"metadata": {"name": "default"}}));
    cluster.create(&REPLICA_SETS, "default", owner("web", 2));
    cluster.create(&CONFIG_MAPS, "default", json!({"metadata": {"name": "c"}}));
    seconds(5.0).await;
    let end = |n: &mut Value| {
        n["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        Ok(())
    };
    cluster.objects.update(&NAMESPACES, "", "default", end).unwrap();
    seconds(0.5).await;
    assert_eq!(cluster.pods().len(), 2, "the pods still have their grace period");
    seconds(10.0).await;
    assert!(cluster.pods().is_empty() && cluster.objects.list(&NAMESPACES, "").0.is_empty());
    assert!(
        cluster.objects.list(&CONFIG_MAPS, "").0.is_empty() && cluster.objects.list(&REPLICA_SETS, "").0.is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_removes_the_owner_after_its_pods() {
    let cluster = TestCluster::new(1);
    cluster.create(&REPLICA_SETS, "default", owner("web", 2));
    seconds(5.0).await;
    let end = |r: &mut Value| {
        r["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        r["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        Ok(())
    };
    cluster.objects.update(&REPLICA_SETS, "default", "web", end).unwrap();
    seconds(0.4).await;
    assert_eq!((cluster.pods().len(), cluster.objects.list(&REPLICA_SETS, "").0.len()), (2, 1));
    seconds(10.0).await;
    assert_eq!((cluster.pods().len(), cluster.objects.list(&REPLICA_SETS, "").0.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn orphan_deletion_removes_the_owner_and_keeps_its_pods() {
    let cluster = TestCluster::new(1);
    cluster.create(&REPLICA_SETS, "default", owner("web", 2));
    cluster.create(&CONFIG_MAPS, "default", json!({"metadata": {"name": "c", "finalizers": ["orphan"]}}));
    seconds(5.0).await;
    let end = |r: &mut Value| {
        r["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        r["metadata"]["finalizers"] = json!(["orphan"]);
        Ok(())
    };
    cluster.objects.update(&REPLICA_SETS, "default", "web", end).unwrap();
    cluster.objects.update(&CONFIG_MAPS, "default", "c", end).unwrap();
    seconds(10.0).await;
    assert_eq!((cluster.pods().len(), cluster.objects.list(&REPLICA_SETS, "").0.len()), (2, 0));
    assert!(cluster.objects.list(&PODS, "").0.iter().all(|p| p["metadata"]["ownerReferences"].is_null()));
    assert!(cluster.objects.list(&CONFIG_MAPS, "").0.is_empty(), "an object that owns nothing is deleted too");
}

#[tokio::test(start_paused = true)]
async fn controllers_relist_after_a_compaction() {
    let cluster = TestCluster::new(2);
    cluster.create(&REPLICA_SETS, "default", owner("web", 2));
    cluster.objects.compact();
    seconds(5.0).await;
    let pods = cluster.pods();
    assert!(pods.len() == 2 && pods.iter().all(|p| p.ends_with("Running ready")));
    let name = pods[0].split(' ').next().unwrap().to_owned();
    cluster.objects.remove(&PODS, "default", &name, |_| Ok(())).unwrap();
    cluster.objects.compact();
    seconds(5.0).await;
    assert_eq!(cluster.pods().len(), 2);
}

/// Returns the history of a run without times.
async fn history(seed: u32) -> Vec<(u64, Verb, String)> {
    let cluster = TestCluster::new(3);
    cluster.create(&REPLICA_SETS, "default", owner("web", 5 + seed));
    cluster.create(&STATEFUL_SETS, "default", owner("db", 3));
    cluster.budget(&json!({"minAvailable": 1}));
    seconds(10.0).await;
    cluster.command("reboot 10.0.0.2").await;
    cluster.end("db-0", 30);
    seconds(60.0).await;
    let changes = cluster.objects.since(1).unwrap();
    changes.into_iter().map(|c| (c.revision, c.verb, c.object.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_history() {
    let first = history(0).await;
    assert!(first.len() > 60);
    assert_eq!(first, history(0).await);
}

//! Budgets, garbage collection, and reproducible runs.

use super::{owners::owner, *};
use crate::sandbox::kubernetes::{
    Verb,
    resource::{BUDGETS, CONFIG_MAPS, NAMESPACES, REPLICA_SETS, STATEFUL_SETS},
};

impl Room {
    fn budget(&self, spec: &Value) {
        let mut budget = json!({"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        json_patch::merge(&mut budget["spec"], spec);
        self.create(&BUDGETS, "default", budget);
    }

    /// Returns expectedPods, desiredHealthy, currentHealthy, disruptionsAllowed.
    fn numbers(&self) -> [i64; 4] {
        let budget = self.objects.get(&BUDGETS, "default", "b").unwrap();
        assert_eq!(budget["status"]["observedGeneration"], budget["metadata"]["generation"]);
        let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap();
        assert_eq!(shape::says(&budget, "DisruptionAllowed"), if allowed > 0 { "True" } else { "False" });
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
            .map(|field| budget["status"][field].as_i64().unwrap())
    }

    fn spend(&self, pod: &str) {
        let spend = |b: &mut Value| {
            b["status"]["disruptionsAllowed"] = json!(b["status"]["disruptionsAllowed"].as_i64().unwrap() - 1);
            b["status"]["disruptedPods"][pod] = json!(self.objects.stamp());
            Ok(())
        };
        self.objects.update(&BUDGETS, "default", "b", spend).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_goes_to_zero_with_an_eviction_and_back_when_the_pod_is_replaced() {
    let room = Room::new(2);
    room.create(&STATEFUL_SETS, "default", owner("web", 3));
    room.budget(&json!({"maxUnavailable": 1}));
    seconds(15.0).await;
    assert_eq!(room.numbers(), [3, 2, 3, 1]);
    room.spend("web-1");
    room.end("web-1", 30);
    seconds(0.5).await;
    assert_eq!(room.numbers(), [3, 2, 2, 0]);
    seconds(15.0).await;
    assert_eq!(room.numbers(), [3, 2, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_was_spent_for_nothing_is_repaired_after_two_minutes() {
    let room = Room::new(1);
    room.create(&REPLICA_SETS, "default", owner("web", 2));
    room.budget(&json!({"minAvailable": 1}));
    seconds(5.0).await;
    let pod = room.objects.list(&PODS, "").0[0]["metadata"]["name"].as_str().unwrap().to_owned();
    room.spend(&pod);
    seconds(60.0).await;
    assert_eq!(room.numbers(), [2, 1, 1, 0]);
    seconds(70.0).await;
    assert_eq!(room.numbers(), [2, 1, 2, 1]);
    let budget = room.objects.get(&BUDGETS, "default", "b").unwrap();
    assert!(budget["status"].get("disruptedPods").is_none());
}

#[tokio::test(start_paused = true)]
async fn budgets_count_as_kube_controller_manager_does() {
    for (spec, numbers) in [
        (json!({"minAvailable": 2}), [3, 2, 3, 1]),
        (json!({"minAvailable": "50%"}), [3, 2, 3, 1]),
        (json!({"minAvailable": "100%"}), [3, 3, 3, 0]),
        (json!({"maxUnavailable": "34%"}), [3, 1, 3, 2]),
        (json!({"maxUnavailable": 0}), [3, 3, 3, 0]),
        (json!({"minAvailable": 5}), [3, 5, 3, 0]),
    ] {
        let room = Room::new(1);
        room.create(&REPLICA_SETS, "default", owner("web", 3));
        room.budget(&spec);
        seconds(10.0).await;
        assert_eq!(room.numbers(), numbers, "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn bare_pods_have_no_scale_and_jobs_none_that_is_known() {
    let room = Room::new(1);
    room.pod("a", &json!({"metadata": {"labels": {"app": "web"}}}));
    room.budget(&json!({"maxUnavailable": 1}));
    seconds(5.0).await;
    assert_eq!(room.numbers(), [0, 0, 1, 0]);
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 0});
    room.objects
        .update(&BUDGETS, "default", "b", |b| {
            b["spec"] = spec;
            Ok(())
        })
        .unwrap();
    seconds(1.0).await;
    assert_eq!(room.numbers(), [1, 0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_unready_node_takes_its_pods_out_of_their_budget() {
    let room = Room::new(2);
    room.create(&REPLICA_SETS, "default", owner("web", 2));
    room.budget(&json!({"minAvailable": 1}));
    seconds(5.0).await;
    room.command("off 10.0.0.1").await;
    seconds(5.0).await;
    assert_eq!(room.numbers(), [2, 1, 1, 0]);
    room.command("on 10.0.0.1").await;
    seconds(30.0).await;
    assert_eq!(room.numbers(), [2, 1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_ends_is_emptied_and_goes() {
    let room = Room::new(1);
    room.create(&NAMESPACES, "", json!({"metadata": {"name": "default"}}));
    room.create(&REPLICA_SETS, "default", owner("web", 2));
    room.create(&CONFIG_MAPS, "default", json!({"metadata": {"name": "c"}}));
    seconds(5.0).await;
    let end = |n: &mut Value| {
        n["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        Ok(())
    };
    room.objects.update(&NAMESPACES, "", "default", end).unwrap();
    seconds(0.5).await;
    assert_eq!(room.pods().len(), 2, "they have their grace");
    seconds(10.0).await;
    assert!(room.pods().is_empty() && room.objects.list(&NAMESPACES, "").0.is_empty());
    assert!(room.objects.list(&CONFIG_MAPS, "").0.is_empty() && room.objects.list(&REPLICA_SETS, "").0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_goes_last() {
    let room = Room::new(1);
    room.create(&REPLICA_SETS, "default", owner("web", 2));
    seconds(5.0).await;
    let end = |r: &mut Value| {
        r["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        r["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        Ok(())
    };
    room.objects.update(&REPLICA_SETS, "default", "web", end).unwrap();
    seconds(0.4).await;
    assert_eq!((room.pods().len(), room.objects.list(&REPLICA_SETS, "").0.len()), (2, 1));
    seconds(10.0).await;
    assert_eq!((room.pods().len(), room.objects.list(&REPLICA_SETS, "").0.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_leaves_its_dependants_behind_goes_and_they_stay() {
    let room = Room::new(1);
    room.create(&REPLICA_SETS, "default", owner("web", 2));
    room.create(&CONFIG_MAPS, "default", json!({"metadata": {"name": "c", "finalizers": ["orphan"]}}));
    seconds(5.0).await;
    let end = |r: &mut Value| {
        r["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        r["metadata"]["finalizers"] = json!(["orphan"]);
        Ok(())
    };
    room.objects.update(&REPLICA_SETS, "default", "web", end).unwrap();
    room.objects.update(&CONFIG_MAPS, "default", "c", end).unwrap();
    seconds(10.0).await;
    assert_eq!((room.pods().len(), room.objects.list(&REPLICA_SETS, "").0.len()), (2, 0));
    assert!(room.objects.list(&PODS, "").0.iter().all(|p| p["metadata"]["ownerReferences"].is_null()));
    assert!(room.objects.list(&CONFIG_MAPS, "").0.is_empty(), "it owned nothing");
}

#[tokio::test(start_paused = true)]
async fn controllers_that_lost_the_history_read_everything_again() {
    let room = Room::new(2);
    room.create(&REPLICA_SETS, "default", owner("web", 2));
    room.objects.compact();
    seconds(5.0).await;
    let pods = room.pods();
    assert!(pods.len() == 2 && pods.iter().all(|p| p.ends_with("Running ready")));
    let name = pods[0].split(' ').next().unwrap().to_owned();
    room.objects.remove(&PODS, "default", &name, |_| Ok(())).unwrap();
    room.objects.compact();
    seconds(5.0).await;
    assert_eq!(room.pods().len(), 2);
}

/// Returns the history of a run without times.
async fn history(seed: u32) -> Vec<(u64, Verb, String)> {
    let room = Room::new(3);
    room.create(&REPLICA_SETS, "default", owner("web", 5 + seed));
    room.create(&STATEFUL_SETS, "default", owner("db", 3));
    room.budget(&json!({"minAvailable": 1}));
    seconds(10.0).await;
    room.command("reboot 10.0.0.2").await;
    room.end("db-0", 30);
    seconds(60.0).await;
    let changes = room.objects.since(1).unwrap();
    changes.into_iter().map(|c| (c.revision, c.verb, c.object.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_history() {
    let first = history(0).await;
    assert!(first.len() > 60);
    assert_eq!(first, history(0).await);
}

//! `ReplicaSets`, Deployments, `StatefulSets`, `DaemonSets` and Jobs.

use super::*;
use crate::kubernetes::resource::{DAEMON_SETS, DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS};

/// Returns an owner of `replicas` pods with the label `app: NAME`.
pub(super) fn owner(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    })
}

impl TestCluster {
    /// Returns `node phase ready` of every pod, without generated names.
    fn placements(&self) -> Vec<String> {
        let mut placements: Vec<_> =
            self.pods().iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        placements.sort();
        placements
    }

    fn names(&self) -> Vec<String> {
        self.pods().iter().map(|line| line.split_once(' ').unwrap().0.to_owned()).collect()
    }

    fn cordon(&self, node: &str, on: bool) {
        self.objects
            .update(&NODES, "", node, |n| {
                n["spec"]["unschedulable"] = json!(on);
                Ok(())
            })
            .unwrap();
    }

    fn status(&self, resource: &'static Resource, name: &str, field: &str) -> u64 {
        self.objects.get(resource, "default", name).unwrap()["status"][field].as_u64().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn an_evicted_replica_set_pod_is_replaced_on_another_node() {
    let cluster = TestCluster::new(2);
    cluster.create(&REPLICA_SETS, "default", owner("web", 2));
    seconds(5.0).await;
    assert_eq!(cluster.placements(), ["m1 Running ready", "m2 Running ready"]);
    assert_eq!(cluster.status(&REPLICA_SETS, "web", "readyReplicas"), 2);
    cluster.cordon("m1", true);
    let first = cluster.pods().iter().find(|p| p.contains(" m1 ")).unwrap().split(' ').next().unwrap().to_owned();
    cluster.end(&first, 30);
    seconds(0.5).await;
    assert_eq!(cluster.pods().len(), 3, "the replacement does not wait for the end");
    seconds(6.0).await;
    assert_eq!(cluster.placements(), ["m2 Running ready", "m2 Running ready"]);
    cluster
        .objects
        .update(&REPLICA_SETS, "default", "web", |r| {
            r["spec"]["replicas"] = json!(1);
            Ok(())
        })
        .unwrap();
    seconds(6.0).await;
    assert_eq!(cluster.pods().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_creates_one_replica_set_per_template() {
    let cluster = TestCluster::new(2);
    let uid = cluster.create(&DEPLOYMENTS, "default", owner("web", 3))["metadata"]["uid"].clone();
    seconds(5.0).await;
    assert_eq!(cluster.pods().len(), 3);
    assert_eq!(cluster.status(&DEPLOYMENTS, "web", "availableReplicas"), 3);
    let old = cluster.names();
    let other = |d: &mut Value| {
        d["spec"]["template"]["spec"]["containers"][0]["image"] = json!("j");
        Ok(())
    };
    cluster.objects.update(&DEPLOYMENTS, "default", "web", other).unwrap();
    seconds(15.0).await;
    let (new, sets) = (cluster.names(), cluster.objects.list(&REPLICA_SETS, "").0);
    assert!(new.len() == 3 && sets.len() == 2 && !new.iter().any(|name| old.contains(name)), "{new:?}");
    assert_eq!(sets[0]["metadata"]["ownerReferences"][0]["uid"], uid);
    cluster.objects.remove(&DEPLOYMENTS, "default", "web", |_| Ok(())).unwrap();
    seconds(10.0).await;
    assert_eq!((cluster.pods().len(), cluster.objects.list(&REPLICA_SETS, "").0.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_pod_is_recreated_with_its_name_after_it_terminated() {
    let cluster = TestCluster::new(2);
    cluster.create(&STATEFUL_SETS, "default", owner("db", 3));
    seconds(1.0).await;
    assert_eq!(cluster.names(), ["db-0"], "the pods start one after the other");
    seconds(10.0).await;
    assert_eq!(cluster.names(), ["db-0", "db-1", "db-2"]);
    let uid = |cluster: &TestCluster| cluster.objects.get(&PODS, "default", "db-1").unwrap()["metadata"]["uid"].clone();
    let before = uid(&cluster);
    cluster.end("db-1", 30);
    seconds(0.3).await;
    assert_eq!((cluster.pods().len(), uid(&cluster)), (3, before.clone()));
    seconds(10.0).await;
    assert!(cluster.pods().iter().all(|p| p.ends_with("Running ready")) && cluster.pods().len() == 3);
    assert_ne!(uid(&cluster), before);
    cluster
        .objects
        .update(&STATEFUL_SETS, "default", "db", |s| {
            s["spec"]["replicas"] = json!(1);
            Ok(())
        })
        .unwrap();
    seconds(10.0).await;
    assert_eq!(cluster.names(), ["db-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_runs_a_pod_on_every_node_including_cordoned_ones() {
    let cluster = TestCluster::new(2);
    cluster.cordon("m1", true);
    cluster.create(&DAEMON_SETS, "default", owner("agent", 0));
    seconds(5.0).await;
    assert_eq!(cluster.placements(), ["m1 Running ready", "m2 Running ready"]);
    assert_eq!(cluster.status(&DAEMON_SETS, "agent", "numberReady"), 2);
    let first = cluster.names()[0].clone();
    cluster.end(&first, 30);
    seconds(6.0).await;
    assert_eq!(cluster.placements(), ["m1 Running ready", "m2 Running ready"]);
    cluster.objects.remove(&NODES, "", "m2", |_| Ok(())).unwrap();
    seconds(10.0).await;
    assert_eq!(cluster.placements(), ["m1 Running ready"]);
    assert_eq!(cluster.status(&DAEMON_SETS, "agent", "desiredNumberScheduled"), 1);
}

fn job(more: &Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "batch"},
        "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 2, "template": {
            "metadata": {"labels": {"app": "batch"}, "annotations": {object_fields::RUNS: "60"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }},
    });
    json_patch::merge(&mut job, more);
    job
}

#[tokio::test(start_paused = true)]
async fn a_job_completes_and_is_deleted_after_its_ttl() {
    let cluster = TestCluster::new(1);
    cluster.create(&JOBS, "default", job(&json!({"spec": {"ttlSecondsAfterFinished": 100}})));
    seconds(50.0).await;
    assert_eq!(cluster.placements(), ["m1 Running ready"]);
    assert_eq!(cluster.status(&JOBS, "batch", "active"), 1);
    seconds(20.0).await;
    assert_eq!(cluster.placements(), ["m1 Succeeded unready"]);
    let job = cluster.objects.get(&JOBS, "default", "batch").unwrap();
    assert_eq!(
        (object_fields::condition_status(&job, "Complete"), job["status"]["succeeded"].as_u64()),
        ("True", Some(1))
    );
    seconds(120.0).await;
    assert!(cluster.objects.list(&JOBS, "").0.is_empty() && cluster.pods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_evicted_job_pod_is_replaced_and_parallelism_is_kept() {
    let cluster = TestCluster::new(2);
    cluster.create(&JOBS, "default", job(&json!({"spec": {"completions": 3, "parallelism": 2}})));
    seconds(10.0).await;
    let first = cluster.names();
    assert_eq!(first.len(), 2);
    cluster.end(&first[0], 30);
    seconds(10.0).await;
    assert!(cluster.placements().len() == 2 && cluster.placements().iter().all(|p| p.ends_with("Running ready")));
    assert!(!cluster.names().contains(&first[0]));
    seconds(200.0).await;
    assert_eq!(cluster.status(&JOBS, "batch", "succeeded"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_reboot_fails_a_job_pod_and_the_job_replaces_it() {
    let cluster = TestCluster::new(1);
    cluster.create(&JOBS, "default", job(&json!({})));
    seconds(10.0).await;
    cluster.command("reboot 10.0.0.1").await;
    seconds(40.0).await;
    assert_eq!(cluster.placements(), ["m1 Failed unready", "m1 Running ready"]);
    assert_eq!(cluster.status(&JOBS, "batch", "failed"), 1);
}

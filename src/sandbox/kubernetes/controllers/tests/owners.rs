//! `ReplicaSets`, Deployments, `StatefulSets`, `DaemonSets` and Jobs.

use super::*;
use crate::sandbox::kubernetes::resource::{DAEMON_SETS, DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS};

/// Returns an owner of `replicas` pods with the label `app: NAME`.
pub(super) fn owner(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    })
}

impl Room {
    /// Returns `node phase ready` of every pod, without generated names.
    fn places(&self) -> Vec<String> {
        let mut places: Vec<_> = self.pods().iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        places.sort();
        places
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
async fn an_evicted_pod_of_a_replica_set_comes_back_on_another_node() {
    let room = Room::new(2);
    room.create(&REPLICA_SETS, "default", owner("web", 2));
    seconds(5.0).await;
    assert_eq!(room.places(), ["m1 Running ready", "m2 Running ready"]);
    assert_eq!(room.status(&REPLICA_SETS, "web", "readyReplicas"), 2);
    room.cordon("m1", true);
    let first = room.pods().iter().find(|p| p.contains(" m1 ")).unwrap().split(' ').next().unwrap().to_owned();
    room.end(&first, 30);
    seconds(0.5).await;
    assert_eq!(room.pods().len(), 3, "the replacement does not wait for the end");
    seconds(6.0).await;
    assert_eq!(room.places(), ["m2 Running ready", "m2 Running ready"]);
    room.objects
        .update(&REPLICA_SETS, "default", "web", |r| {
            r["spec"]["replicas"] = json!(1);
            Ok(())
        })
        .unwrap();
    seconds(6.0).await;
    assert_eq!(room.pods().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_has_one_replica_set_and_another_for_another_template() {
    let room = Room::new(2);
    let uid = room.create(&DEPLOYMENTS, "default", owner("web", 3))["metadata"]["uid"].clone();
    seconds(5.0).await;
    assert_eq!(room.pods().len(), 3);
    assert_eq!(room.status(&DEPLOYMENTS, "web", "availableReplicas"), 3);
    let old = room.names();
    let other = |d: &mut Value| {
        d["spec"]["template"]["spec"]["containers"][0]["image"] = json!("j");
        Ok(())
    };
    room.objects.update(&DEPLOYMENTS, "default", "web", other).unwrap();
    seconds(15.0).await;
    let (new, sets) = (room.names(), room.objects.list(&REPLICA_SETS, "").0);
    assert!(new.len() == 3 && sets.len() == 2 && !new.iter().any(|name| old.contains(name)), "{new:?}");
    assert_eq!(sets[0]["metadata"]["ownerReferences"][0]["uid"], uid);
    room.objects.remove(&DEPLOYMENTS, "default", "web", |_| Ok(())).unwrap();
    seconds(10.0).await;
    assert_eq!((room.pods().len(), room.objects.list(&REPLICA_SETS, "").0.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stateful_pod_comes_back_under_its_name_after_the_old_one_has_gone() {
    let room = Room::new(2);
    room.create(&STATEFUL_SETS, "default", owner("db", 3));
    seconds(1.0).await;
    assert_eq!(room.names(), ["db-0"], "one after the other");
    seconds(10.0).await;
    assert_eq!(room.names(), ["db-0", "db-1", "db-2"]);
    let uid = |room: &Room| room.objects.get(&PODS, "default", "db-1").unwrap()["metadata"]["uid"].clone();
    let before = uid(&room);
    room.end("db-1", 30);
    seconds(0.3).await;
    assert_eq!((room.pods().len(), uid(&room)), (3, before.clone()));
    seconds(10.0).await;
    assert!(room.pods().iter().all(|p| p.ends_with("Running ready")) && room.pods().len() == 3);
    assert_ne!(uid(&room), before);
    room.objects
        .update(&STATEFUL_SETS, "default", "db", |s| {
            s["spec"]["replicas"] = json!(1);
            Ok(())
        })
        .unwrap();
    seconds(10.0).await;
    assert_eq!(room.names(), ["db-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_has_a_pod_on_every_node_also_on_a_cordoned_one() {
    let room = Room::new(2);
    room.cordon("m1", true);
    room.create(&DAEMON_SETS, "default", owner("agent", 0));
    seconds(5.0).await;
    assert_eq!(room.places(), ["m1 Running ready", "m2 Running ready"]);
    assert_eq!(room.status(&DAEMON_SETS, "agent", "numberReady"), 2);
    let first = room.names()[0].clone();
    room.end(&first, 30);
    seconds(6.0).await;
    assert_eq!(room.places(), ["m1 Running ready", "m2 Running ready"]);
    room.objects.remove(&NODES, "", "m2", |_| Ok(())).unwrap();
    seconds(10.0).await;
    assert_eq!(room.places(), ["m1 Running ready"]);
    assert_eq!(room.status(&DAEMON_SETS, "agent", "desiredNumberScheduled"), 1);
}

fn job(more: &Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "batch"},
        "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 2, "template": {
            "metadata": {"labels": {"app": "batch"}, "annotations": {shape::RUNS: "60"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }},
    });
    json_patch::merge(&mut job, more);
    job
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_for_its_time_and_ends() {
    let room = Room::new(1);
    room.create(&JOBS, "default", job(&json!({"spec": {"ttlSecondsAfterFinished": 100}})));
    seconds(50.0).await;
    assert_eq!(room.places(), ["m1 Running ready"]);
    assert_eq!(room.status(&JOBS, "batch", "active"), 1);
    seconds(20.0).await;
    assert_eq!(room.places(), ["m1 Succeeded unready"]);
    let job = room.objects.get(&JOBS, "default", "batch").unwrap();
    assert_eq!((shape::says(&job, "Complete"), job["status"]["succeeded"].as_u64()), ("True", Some(1)));
    seconds(120.0).await;
    assert!(room.objects.list(&JOBS, "").0.is_empty() && room.pods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_of_a_job_is_replaced_and_several_run_beside_each_other() {
    let room = Room::new(2);
    room.create(&JOBS, "default", job(&json!({"spec": {"completions": 3, "parallelism": 2}})));
    seconds(10.0).await;
    let first = room.names();
    assert_eq!(first.len(), 2);
    room.end(&first[0], 30);
    seconds(10.0).await;
    assert!(room.places().len() == 2 && room.places().iter().all(|p| p.ends_with("Running ready")));
    assert!(!room.names().contains(&first[0]));
    seconds(200.0).await;
    assert_eq!(room.status(&JOBS, "batch", "succeeded"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_job_fails_with_its_machine_and_is_tried_again() {
    let room = Room::new(1);
    room.create(&JOBS, "default", job(&json!({})));
    seconds(10.0).await;
    room.command("reboot 10.0.0.1").await;
    seconds(40.0).await;
    assert_eq!(room.places(), ["m1 Failed unready", "m1 Running ready"]);
    assert_eq!(room.status(&JOBS, "batch", "failed"), 1);
}

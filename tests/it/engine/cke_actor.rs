//! The sandbox's CKE processes the reboot queue like the real one, without any engine of cketerm.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_model::{acceptance::LeaderKind, names::Address, reboot::RebootStatus};
use cketerm_sandbox::{
    cke::{Cke, RefusalCause, Settings},
    machines::{Behaviour, PowerEvent},
};
use cketerm_scenario::{Options, Scenario, Stage};
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// Population in which nothing holds a drain back.
const NO_PODS: &str = "{nodes: 12, pods_per_node: 0, workloads: []}";

async fn site(population: &str, script: &str) -> Arc<Stage> {
    let text = format!(
        "name: test\nabout: A test.\npopulation: {population}\ncke: {{host: boot-0, interval: 2}}\n\
         reboot: {{max_concurrent_reboots: 3, eviction_timeout_seconds: 60}}\nscript: {script}\n"
    );
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
    Arc::new(Stage::set(Scenario::parse(&text).unwrap(), Options::default(), clock).await.unwrap())
}

/// Entries of the queue: address and status.
async fn entries(stage: &Stage) -> BTreeMap<Address, RebootStatus> {
    let view = stage.operator("watcher").store.read_view().await.unwrap();
    view.reboots.entries.values().filter_map(|s| s.get()).map(|e| (e.node.clone(), e.status)).collect()
}

/// Records of operations.
async fn records(stage: &Stage) -> Vec<Value> {
    let prefix = stage.operator("watcher").store.keys().records_prefix();
    let all = Some(etcd_client::GetOptions::new().with_prefix());
    let records = stage.sandbox.etcd.client().get(prefix, all).await.unwrap();
    records.kvs().iter().map(|kv| serde_json::from_slice(kv.value()).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn cke_leads_and_reboots_each_machine_once_and_an_api_server_last() {
    let stage = site(NO_PODS, "[{after: 1, by: alice, queue: {nodes: {workers: 4, control_planes: 1}}}]").await;
    let view = stage.operator("watcher").store.read_view().await.unwrap();
    assert_eq!(view.leadership().lead, LeaderKind::Cke);
    stage.play().await;
    assert_eq!(entries(&stage).await.len(), 5);
    let (began, mut most) = (Instant::now(), 0);
    while !entries(&stage).await.is_empty() {
        let working = entries(&stage).await.values().filter(|s| **s != RebootStatus::Queued).count();
        most = most.max(working);
        assert!(
            began.elapsed() < Duration::from_mins(30),
            "{:?} {:?}",
            entries(&stage).await,
            stage.cke().unwrap().log()
        );
        sleep(Duration::from_millis(200)).await;
    }
    let rebooted: Vec<String> = stage
        .sandbox
        .machines
        .power_log()
        .into_iter()
        .filter(|p| p.what == PowerEvent::Begin)
        .map(|p| p.address)
        .collect();
    let mut once = rebooted.clone();
    once.sort();
    once.dedup();
    assert!(rebooted.len() == 5 && once.len() == 5 && most <= 3, "{rebooted:?}, {most} at once");
    let control_planes = stage.sandbox.machines.list().into_iter().filter(|m| m.control_plane);
    assert!(control_planes.into_iter().any(|m| m.address == rebooted[4]), "{rebooted:?}");
    // records in CKE's form, and no cordon is left
    let records = records(&stage).await;
    for operation in ["reboot-drain-start", "reboot-reboot", "reboot-dequeue", "reboot-uncordon"] {
        assert!(records.iter().any(|r| r["operation"] == operation && r["status"] == "completed"), "{records:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cke_backs_off_at_a_budget_and_names_nothing() {
    let stage = site("{nodes: 12}", "[{after: 0, by: alice, tight: {namespace: db, name: mysql-1}}, {after: 1, by: alice, queue: {nodes: {workers: 9}}}]").await;
    stage.play().await;
    sleep(Duration::from_mins(4)).await;
    let log = stage.cke().unwrap().log();
    assert!(
        log.refusals.iter().any(|r| r.cause == RefusalCause::TooManyRequests && r.pod.starts_with("db/mysql-1")),
        "{log:?}"
    );
    let view = stage.operator("watcher").store.read_view().await.unwrap();
    let waiting: Vec<_> = view.reboots.entries.values().filter_map(|s| s.get()).collect();
    assert!(waiting.iter().all(|e| e.status == RebootStatus::Queued && e.drain_backoff_count > 0), "{waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_between_ckes_read_and_its_write_is_lost() {
    let stage = site(NO_PODS, "[{after: 1, by: alice, queue: {nodes: {workers: 1}}}]").await;
    stage.play().await;
    // a drain that starts: the record is there, the entry is not written yet
    let starts = async || {
        let operation = |r: &Value| r["operation"] == "reboot-drain-start" && r["status"] == "running";
        records(&stage).await.iter().any(operation)
            && entries(&stage).await.values().any(|s| *s == RebootStatus::Queued)
    };
    let began = Instant::now();
    while !starts().await {
        assert!(began.elapsed() < Duration::from_mins(2));
        sleep(Duration::from_millis(10)).await;
    }
    stage.operator("alice").cancel_reboot(0, None, None).await.unwrap();
    assert!(entries(&stage).await.values().all(|s| *s == RebootStatus::Cancelled));
    sleep(Duration::from_millis(200)).await;
    assert!(entries(&stage).await.values().all(|s| *s == RebootStatus::Draining), "the cancel is lost");
    assert_eq!(stage.cke().unwrap().log().lost_cancels, [0]);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_stopped_before_it_leads_touches_no_record() {
    let stage = site(NO_PODS, "[]").await;
    let store = stage.operator("watcher").store;
    let running = r#"{"id":"7","status":"running","operation":"reboot-reboot","command":{"name":"reboot"}}"#;
    store.client().put(store.keys().record(7), running, None).await.unwrap();
    let settings =
        Settings { host: "boot-1".to_owned(), interval: Duration::from_secs(2), write_delay: Duration::ZERO, seed: 1 };
    let (etcd, kube) = (stage.sandbox.etcd.client(), stage.sandbox.api.client());
    let second = Cke::new(settings, etcd, kube, stage.sandbox.machines.clone(), store.clock().clone());
    let process = tokio::spawn(second.clone().run());
    sleep(Duration::from_secs(3)).await;
    second.stop();
    tokio::time::timeout(Duration::from_secs(5), process).await.unwrap().unwrap();
    assert_eq!((second.log().terms, records(&stage).await[0]["status"].as_str()), (0, Some("running")));
}

/// As in CKE, one entry that cannot be read stops both queues. CKE keeps its lock, and works on once the entry is gone.
#[tokio::test(start_paused = true)]
async fn an_entry_that_cke_cannot_read_stops_its_passes_not_its_term() {
    let stage = site(NO_PODS, "[{after: 1, by: alice, queue: {nodes: {workers: 2}}}]").await;
    let store = stage.operator("watcher").store;
    let leader = store.read_view().await.unwrap().leader().map(|candidate| candidate.lease);
    store.client().put(store.keys().reboot(99), "no JSON", None).await.unwrap();
    stage.play().await;
    sleep(Duration::from_mins(2)).await;
    assert!(entries(&stage).await.values().all(|status| *status == RebootStatus::Queued));
    let now = store.read_view().await.unwrap().leader().map(|candidate| candidate.lease);
    assert!(now.is_some() && now == leader, "the lock stays: {now:?}");
    let log = stage.cke().unwrap().log();
    assert!(log.terms == 1 && log.failed_passes > 10, "{log:?}");
    store.client().delete(store.keys().reboot(99), None).await.unwrap();
    let began = Instant::now();
    while !entries(&stage).await.is_empty() {
        assert!(began.elapsed() < Duration::from_mins(15), "{:?}", entries(&stage).await);
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(stage.cke().unwrap().log().terms, 1);
}

/// CKE records the machines on which a command failed: their entries stay `rebooting`.
#[tokio::test(start_paused = true)]
async fn a_record_names_the_machines_on_which_ckes_work_failed() {
    let stage = site(NO_PODS, "[{after: 1, by: alice, queue: {nodes: {workers: 1}}}]").await;
    for machine in stage.sandbox.machines.list() {
        stage.sandbox.machines.behave(&machine.address, Behaviour { fails: 100, ..Behaviour::default() });
    }
    stage.play().await;
    let began = Instant::now();
    let reboot = loop {
        let done = |r: &Value| r["operation"] == "reboot-reboot" && r["status"] == "completed";
        if let Some(record) = records(&stage).await.into_iter().find(done) {
            break record;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{:?}", records(&stage).await);
        sleep(Duration::from_millis(200)).await;
    };
    let (address, status) = entries(&stage).await.into_iter().next().unwrap();
    assert_eq!(status, RebootStatus::Rebooting);
    assert_eq!(reboot["info"], format!("failed to reboot some nodes: [{address}]"));
    assert_eq!(reboot["command"]["name"], "rebootRebootCommand");
}

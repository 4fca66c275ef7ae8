//! Cancels and deletions beside CKE, whose blind write overwrites them: repeated while a process of cketerm runs, and
//! confirmed.

use std::{sync::Arc, time::Duration};

use cketerm_engine::run::Handle;
use cketerm_model::{
    cketerm_records::{Audit, EngineMode, REPEATED_CANCEL, REPEATED_DELETION},
    entry::{EntryId, QueueKind},
    names::Address,
    reboot::RebootStatus,
    repair::RepairEntry,
};
use cketerm_runtime::tasks::Gate;
use cketerm_scenario::{Options, Scenario, Stage};
use tokio::time::{Instant, sleep};

/// A site with a CKE, and one queued worker.
async fn site() -> Arc<Stage> {
    let text = "name: test\nabout: A test.\npopulation: {nodes: 12, pods_per_node: 0, workloads: []}\n\
                cke: {host: boot-0, interval: 2}\n\
                reboot: {max_concurrent_reboots: 3, eviction_timeout_seconds: 60}\n\
                script: [{after: 1, by: alice, queue: {nodes: {workers: 1}}}]\n";
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
    let stage = Arc::new(Stage::set(Scenario::parse(text).unwrap(), Options::default(), clock).await.unwrap());
    stage.play().await;
    stage
}

/// Starts a cketerm that never campaigns.
async fn observe(stage: &Stage) -> (Gate, Handle) {
    let (gate, observer) = (Gate::default(), stage.backends("observer"));
    let handle = gate.hold(async move { observer.start(EngineMode::Console, false, None) }).await;
    (gate, handle)
}

async fn status(stage: &Stage) -> Option<RebootStatus> {
    let view = stage.operator("watcher").store.read_view().await.unwrap();
    view.reboots.entries.get(&0).and_then(|stored| stored.get()).map(|entry| entry.status)
}

async fn texts(stage: &Stage, prefix: String) -> Vec<String> {
    let all = Some(etcd_client::GetOptions::new().with_prefix());
    let found = stage.sandbox.etcd.client().get(prefix, all).await.unwrap();
    found.kvs().iter().map(|kv| kv.value_str().unwrap().to_owned()).collect()
}

/// Audit records of repeated cancels.
async fn repeats(stage: &Stage) -> Vec<Audit> {
    let prefix = stage.operator("watcher").store.keys().audit_prefix();
    let all = texts(stage, prefix).await.into_iter().map(|text| serde_json::from_str(&text).unwrap());
    all.filter(|audit: &Audit| audit.what == REPEATED_CANCEL).collect()
}

/// Stores a repair as CKE writes it; returns its key and value.
async fn add_repair(stage: &Stage) -> (String, String) {
    let entry = RepairEntry::queued(0, &Address::new("10.0.0.99"), "type", "operation", None);
    let key = stage.operator("watcher").store.keys().entry(EntryId::repair(0));
    let value = serde_json::to_string(&entry).unwrap();
    stage.sandbox.etcd.client().put(key.clone(), value.clone(), None).await.unwrap();
    (key, value)
}

/// Reports whether the repair has its mark of deletion; `None` if it is gone.
async fn is_deleted(stage: &Stage) -> Option<bool> {
    let view = stage.operator("watcher").store.read_view().await.unwrap();
    view.repairs.entries.get(&0).and_then(|stored| stored.get()).map(|entry| entry.deleted)
}

/// Waits until CKE has read the entry and is about to write it as draining, and cancels it.
async fn cancel_between_read_and_write(stage: &Stage) {
    let store = stage.operator("watcher").store;
    let began = Instant::now();
    loop {
        let starts = texts(stage, store.keys().records_prefix())
            .await
            .iter()
            .any(|record| record.contains("reboot-drain-start") && record.contains("running"));
        if starts && status(stage).await == Some(RebootStatus::Queued) {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(2));
        sleep(Duration::from_millis(10)).await;
    }
    stage.operator("alice").cancel_reboot(0, None, Some("wrong rack")).await.unwrap();
    assert_eq!(status(stage).await, Some(RebootStatus::Cancelled));
}

/// Waits until the entry is gone.
async fn wait_for_the_end(stage: &Stage) {
    let began = Instant::now();
    while let Some(found) = status(stage).await {
        assert!(began.elapsed() < Duration::from_secs(30), "still {found}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn rebooted(stage: &Stage) -> usize {
    stage.sandbox.machines.power_log().len()
}

#[tokio::test(start_paused = true)]
async fn a_lost_cancel_is_repeated_while_a_process_of_cketerm_runs() {
    let stage = site().await;
    let (gate, _observer) = observe(&stage).await;
    Box::pin(cancel_between_read_and_write(&stage)).await;
    wait_for_the_end(&stage).await;
    assert_eq!((stage.cke().unwrap().log().lost_cancels, rebooted(&stage)), (vec![0], 0));
    let repeats = repeats(&stage).await;
    assert_eq!(repeats.len(), 1, "{repeats:?}");
    let said = (repeats[0].who.user.as_str(), repeats[0].on.as_str(), repeats[0].reason.as_deref());
    assert_eq!(said, ("alice", "reboots/0", Some("CKE's write had lost it")));
    // the record goes with the entry
    sleep(Duration::from_secs(2)).await;
    let record = stage.operator("watcher").store.keys().cancel(EntryId::reboot(0));
    assert_eq!(texts(&stage, record).await, [] as [String; 0]);
    gate.kill();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_waits_until_cke_has_removed_the_entry_and_is_repeated_if_it_was_lost() {
    let stage = site().await;
    Box::pin(cancel_between_read_and_write(&stage)).await;
    let alice = stage.operator("alice");
    assert_eq!(alice.leader_that_loses_cancels().await.unwrap().as_deref(), Some("CKE on boot-0 leads"));
    let confirmation = alice.confirm_cancels(QueueKind::Reboot, &[0], None).await.unwrap();
    assert_eq!((confirmation.unconfirmed.as_slice(), confirmation.repeated), (&[][..], 1));
    assert_eq!((status(&stage).await, rebooted(&stage)), (None, 0));
    assert_eq!(texts(&stage, alice.store.keys().cancel(EntryId::reboot(0))).await, [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn without_cke_a_cancel_is_unconfirmed_after_30_seconds() {
    let stage = site().await;
    stage.cke().unwrap().kill();
    let alice = stage.operator("alice");
    alice.cancel_reboot(0, None, None).await.unwrap();
    let began = Instant::now();
    let confirmation = alice.confirm_cancels(QueueKind::Reboot, &[0], None).await.unwrap();
    assert_eq!((confirmation.unconfirmed.as_slice(), confirmation.repeated), (&[0][..], 0));
    let waited = began.elapsed().as_secs_f64();
    assert!((29.0..31.0).contains(&waited), "{waited}");
}

/// The index of another entry must not be enough.
#[tokio::test(start_paused = true)]
async fn an_entry_that_was_added_again_is_not_cancelled() {
    let stage = site().await;
    stage.cke().unwrap().kill();
    let alice = stage.operator("alice");
    alice.cancel_reboot(0, None, None).await.unwrap();
    let (key, mut etcd) = (alice.store.keys().reboot(0), stage.sandbox.etcd.client());
    let cancelled = texts(&stage, key.clone()).await.remove(0);
    etcd.delete(key.clone(), None).await.unwrap();
    etcd.put(key, cancelled.replace("cancelled", "queued"), None).await.unwrap();
    let (gate, _observer) = observe(&stage).await;
    sleep(Duration::from_mins(2)).await;
    assert_eq!((status(&stage).await, repeats(&stage).await.len()), (Some(RebootStatus::Queued), 0));
    gate.kill();
}

/// A program that overwrites a cancel for ever causes one write in 30 s, not one a second.
#[tokio::test(start_paused = true)]
async fn repeats_become_rarer() {
    let stage = site().await;
    stage.cke().unwrap().kill();
    let alice = stage.operator("alice");
    let (key, mut etcd) = (alice.store.keys().reboot(0), stage.sandbox.etcd.client());
    let queued = texts(&stage, key.clone()).await.remove(0);
    alice.cancel_reboot(0, None, None).await.unwrap();
    let (gate, _observer) = observe(&stage).await;
    let until = Instant::now() + Duration::from_mins(5);
    while Instant::now() < until {
        etcd.put(key.clone(), queued.clone(), None).await.unwrap();
        sleep(Duration::from_millis(500)).await;
    }
    let count = repeats(&stage).await.len();
    assert!((10..20).contains(&count), "{count}");
    gate.kill();
}

/// The sandbox's CKE writes no repairs: the test overwrites the mark of deletion in its place.
#[tokio::test(start_paused = true)]
async fn a_lost_deletion_of_a_repair_is_repeated_while_a_process_of_cketerm_runs() {
    let stage = site().await;
    let (key, value) = add_repair(&stage).await;
    let (gate, _observer) = observe(&stage).await;
    stage.operator("alice").delete_repair(0, None, Some("replaced")).await.unwrap();
    assert_eq!(is_deleted(&stage).await, Some(true));
    let mut etcd = stage.sandbox.etcd.client();
    etcd.put(key.clone(), value, None).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(is_deleted(&stage).await, Some(true), "the deletion was not repeated");
    let prefix = stage.operator("watcher").store.keys().audit_prefix();
    let audits = texts(&stage, prefix).await.into_iter().map(|text| serde_json::from_str::<Audit>(&text).unwrap());
    let repeats: Vec<Audit> = audits.filter(|audit| audit.what == REPEATED_DELETION).collect();
    let said: Vec<(&str, &str)> = repeats.iter().map(|a| (a.who.user.as_str(), a.on.as_str())).collect();
    assert_eq!(said, [("alice", "repairs/0")]);
    // the record goes with the entry
    etcd.delete(key, None).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let record = stage.operator("watcher").store.keys().cancel(EntryId::repair(0));
    assert_eq!(texts(&stage, record).await, [] as [String; 0]);
    gate.kill();
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_a_repair_is_confirmed_repeated_if_it_was_lost_and_unconfirmed_after_30_seconds() {
    let stage = site().await;
    let (key, value) = add_repair(&stage).await;
    let alice = stage.operator("alice");
    alice.delete_repair(0, None, None).await.unwrap();
    let mut etcd = stage.sandbox.etcd.client();
    let (lost, gone) = (key.clone(), key.clone());
    let cke = tokio::spawn(async move {
        etcd.put(lost, value, None).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        etcd.delete(gone, None).await.unwrap();
    });
    tokio::task::yield_now().await;
    sleep(Duration::from_millis(50)).await;
    let confirmation = alice.confirm_cancels(QueueKind::Repair, &[0], None).await.unwrap();
    assert_eq!((confirmation.unconfirmed.as_slice(), confirmation.repeated), (&[][..], 1));
    cke.await.unwrap();
    assert_eq!(texts(&stage, alice.store.keys().cancel(EntryId::repair(0))).await, [] as [String; 0]);
    add_repair(&stage).await;
    alice.delete_repair(0, None, None).await.unwrap();
    let confirmation = alice.confirm_cancels(QueueKind::Repair, &[0], None).await.unwrap();
    assert_eq!((confirmation.unconfirmed.as_slice(), confirmation.repeated), (&[0][..], 0));
}

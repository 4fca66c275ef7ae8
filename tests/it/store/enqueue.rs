//! An enqueue of several transactions whose batch is cancelled or broken meanwhile.

use std::collections::BTreeMap;

use cketerm_clients::store::{Store, StoreError, batches::BatchMark, enqueue::Enqueued};
use cketerm_model::{batch::BatchId, cketerm_records::Request, names::Address, repair::RepairEntry};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::{addresses, etcd::any, person, request};

/// Begins to add 2,000 reboots. Returns the task, and the id of their batch once it has its first entries.
async fn begin_enqueue(store: &Store) -> (JoinHandle<Result<Enqueued, StoreError>>, BatchId) {
    let adding = {
        let store = store.clone();
        tokio::spawn(async move { store.add_reboots(&person(), &addresses(2000), &request(), &BTreeMap::new()).await })
    };
    loop {
        if let Some((id, _)) = store.read_view().await.unwrap().batches.get_min() {
            return (adding, *id);
        }
    }
}

/// A cancel during an enqueue stops it: no entry joins later, and the error names who cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn i54_a_cancel_during_an_enqueue_stops_it() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let (adding, id) = begin_enqueue(&store).await;
    store.mark_batch(id, BatchMark::Cancelled(None), &person(), Some("wrong rack")).await.unwrap();
    let after = store.read_view().await.unwrap();
    let stopped = adding.await.unwrap().unwrap_err();
    let StoreError::Partial { done, all: 2000, cause } = stopped else { panic!("{stopped:?}") };
    assert!((1..2000).contains(&done), "{done}");
    assert!(matches!(*cause, StoreError::NotAllowed(_)), "{cause:?}");
    let cause = cause.to_string();
    assert!(cause.starts_with(&format!("batch {id} was cancelled by ann@desk")), "{cause}");
    assert!(cause.ends_with(": wrong rack"), "{cause}");
    let view = store.read_view().await.unwrap();
    assert_eq!((view.reboots.entries.len(), after.reboots.entries.len()), (done, done), "nothing joined later");
    // a second cancel keeps the first one's name
    store.mark_batch(id, BatchMark::Cancelled(None), &person(), Some("again")).await.unwrap();
    let stored: Value = serde_json::from_str(&etcd.value(&format!("/cke/cketerm/batches/{id}"))).unwrap();
    assert_eq!(stored["cancelled"]["reason"], "wrong rack");

    let entry = RepairEntry::queued(0, &Address::new("10.0.0.9"), "IPMI-2.0", "unreachable", None);
    let joins = Request { batch: Some(id), ..request() };
    let refused = store.add_repair(&person(), &entry, &joins).await.unwrap_err();
    assert!(matches!(refused, StoreError::NotAllowed(_)), "{refused:?}");
    assert!(store.read_view().await.unwrap().repairs.entries.is_empty());
}

/// A record that cannot be read may hold a pause, so an enqueue stops and leaves it as it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_never_overwrites_an_unreadable_batch() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let (adding, id) = begin_enqueue(&store).await;
    let key = format!("/cke/cketerm/batches/{id}");
    etcd.ctl(&["put", &key, "broken"]);
    let stopped = adding.await.unwrap().unwrap_err().to_string();
    for words in [&key, "cannot be read", "fix it with etcdctl"] {
        assert!(stopped.contains(words), "{stopped}");
    }
    assert_eq!(etcd.value(&key), "broken");
    let entry = RepairEntry::queued(0, &Address::new("10.0.0.9"), "IPMI-2.0", "unreachable", None);
    let joins = Request { batch: Some(id), ..request() };
    let refused = store.add_repair(&person(), &entry, &joins).await.unwrap_err();
    assert!(matches!(refused, StoreError::Broken { .. }), "{refused:?}");
    assert_eq!(etcd.value(&key), "broken");
}

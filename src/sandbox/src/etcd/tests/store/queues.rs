//! Writes to the queues and their batches.

use std::collections::BTreeMap;

use cketerm_clients::store::{StoreError, batches::BatchMark, maintenance::NewMaintenance};
use cketerm_model::{
    batch::{Batch, BatchId},
    cketerm_records::{AcceptedCancel, EndKind},
    entry::{EntryId, QueueKind},
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
};
use jiff::Timestamp;

use super::*;

async fn stored_batch(store: &Store, id: BatchId) -> (Batch, i64) {
    let view = store.read_view().await.unwrap();
    let stored = &view.batches[&id];
    (stored.get().unwrap().clone(), stored.mod_revision)
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_shown_is_resumed_although_ends_of_its_entries_were_counted() {
    let (etcd, store, _) = linked();
    let added = store.add_reboots(&person(), &addresses(2), &request(), &BTreeMap::new()).await.unwrap();
    let id = added.batch.unwrap();
    let under = store.leadership().await.unwrap().under;
    store.mark_batch(id, BatchMark::Paused(&under), &person(), None).await.unwrap();
    let (mut batch, shown) = stored_batch(&store, id).await;
    batch.ends.add(EndKind::Booted);
    etcd.put(store.keys().batch(id), serde_json::to_string(&batch).unwrap());
    store.resume_batch(id, Some(shown), &person(), None).await.unwrap();
    let (resumed, _) = stored_batch(&store, id).await;
    assert_eq!(resumed, Batch { paused: None, ..batch });
    // It was paused by somebody else since it was shown.
    store.mark_batch(id, BatchMark::Paused(&under), &person(), Some("later")).await.unwrap();
    let conflict = store.resume_batch(id, Some(shown), &person(), None).await.unwrap_err();
    assert!(matches!(conflict, StoreError::Conflict { .. }), "{conflict:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reset_of_backoffs_keeps_the_orders_for_entries_after_their_commands() {
    let (etcd, store, _) = linked();
    let at = Timestamp::UNIX_EPOCH;
    let reboot = |status| {
        let queued = RebootEntry { drain_backoff_count: 1, ..RebootEntry::queued(0, &Address::new("10.0.0.1")) };
        serde_json::to_string(&queued.moved_to(status, at)).unwrap()
    };
    let repair = |step_status| {
        let queued = RepairEntry::queued(0, &Address::new("10.0.0.2"), "t", "o", None);
        let queued = RepairEntry { drain_backoff_count: 1, ..queued };
        serde_json::to_string(&queued.moved_to(RepairStatus::Processing, step_status, at)).unwrap()
    };
    let [first, second] = [EntryId::reboot(0), EntryId::repair(0)].map(|id| store.keys().entry(id));
    let mut reset = Vec::new();
    for (rebooting, watching) in [
        (RebootStatus::Rebooting, StepStatus::Watching),
        (RebootStatus::Draining, StepStatus::Draining),
        (RebootStatus::Queued, StepStatus::Waiting),
    ] {
        etcd.put(&first, reboot(rebooting));
        etcd.put(&second, repair(watching));
        for queue in [QueueKind::Reboot, QueueKind::Repair] {
            reset.push(store.reset_backoff(queue, None, &person(), None).await.unwrap().len());
        }
    }
    assert_eq!(reset, [0, 0, 1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_ckes_write_has_lost_is_repeated_for_its_own_entry() {
    let (etcd, store, _) = linked();
    store.add_reboots(&person(), &addresses(1), &request(), &BTreeMap::new()).await.unwrap();
    let id = EntryId::reboot(0);
    let key = store.keys().entry(id);
    let queued = etcd.get(&key).unwrap();
    let (_, address, created) = store.created(QueueKind::Reboot, &[0]).await.unwrap().remove(0);
    let (who, at) = (who(), Timestamp::UNIX_EPOCH);
    let cancel = AcceptedCancel { who, at, reason: None, address, created, end: None };
    assert_eq!(store.repeat_cancel(id, &cancel, None).await, Ok(true));
    assert!(String::from_utf8(etcd.get(&key).unwrap()).unwrap().contains("\"cancelled\""));
    assert_eq!(store.repeat_cancel(id, &cancel, None).await, Ok(false), "it is cancelled");
    etcd.put(&key, queued.clone());
    let of_another = AcceptedCancel { created: created - 1, ..cancel.clone() };
    assert_eq!(store.repeat_cancel(id, &of_another, None).await, Ok(false));
    let of_another = AcceptedCancel { address: Address::new("10.9.9.9"), ..cancel.clone() };
    assert_eq!(store.repeat_cancel(id, &of_another, None).await, Ok(false));
    assert_eq!(etcd.get(&key).unwrap(), queued);
    assert_eq!(store.repeat_cancel(id, &cancel, Some(1)).await, Ok(false), "its record has changed");
    assert_eq!(store.repeat_cancel(id, &cancel, None).await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_removed_during_its_enqueue_is_written_again() {
    let (etcd, store, link) = linked();
    link.slow(Some((Duration::from_millis(100), Duration::from_millis(100))), 1);
    let enqueue = {
        let store = store.clone();
        tokio::spawn(async move { store.add_reboots(&person(), &addresses(100), &request(), &BTreeMap::new()).await })
    };
    let batches = store.keys().batches_prefix();
    let key = loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if let Some(change) = etcd.history().into_iter().find(|change| change.key.starts_with(batches.as_bytes())) {
            break change.key;
        }
    };
    etcd.delete(key);
    let added = enqueue.await.unwrap().unwrap();
    assert!(added.indexes.iter().copied().eq(0..100), "{:?}", added.indexes);
    let (batch, _) = stored_batch(&store, added.batch.unwrap()).await;
    assert_eq!((batch.asked, batch.added), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn maintenance_of_as_many_machines_as_fit_into_one_transaction_is_accepted() {
    let (_etcd, store, _) = linked();
    let under = store.leadership().await.unwrap().under;
    let uids = BTreeMap::new();
    let add = async |count: usize| {
        let wanted = NewMaintenance { addresses: &addresses(count), uids: &uids, until: Timestamp::UNIX_EPOCH };
        store.add_maintenance(&person(), wanted, &request(), &under).await
    };
    assert!(add(62).await.unwrap().into_iter().eq(0..62));
    let refused = add(63).await.unwrap_err();
    assert_eq!(refused, StoreError::NotAllowed("63 machines at once; at most 62 may be given".to_owned()));
}

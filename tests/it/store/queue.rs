//! Writes of operators to the queues.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cketerm_clients::store::{StoreError, batches::BatchMark, enqueue::Enqueued};
use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, QueueKind},
    names::Address,
    stored::{keys::SwitchName, leadership::LeaderGuard, view::Switch},
};
use etcd_client::{Txn, TxnOp};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{
    addresses,
    etcd::{Etcd, LinkState, Proxy, any, versions},
    person, request,
};
use crate::stalls::Stopwatch;

const ENTRY: &str = r#"{"index":"0","node":"10.0.0.12","status":"queued","last_transition_time":"0001-01-01T00:00:00Z","drain_backoff_expire":"0001-01-01T00:00:00Z"}"#;

fn none() -> BTreeMap<Address, String> {
    BTreeMap::new()
}

fn json(etcd: &Etcd, key: &str) -> Value {
    serde_json::from_str(&etcd.value(key)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_is_one_transaction_that_also_records_the_requester() {
    for version in versions() {
        let etcd = Etcd::start(&version, &[]);
        let store = etcd.store().await;
        let uids = BTreeMap::from([(Address::new("10.0.0.12"), "uid-12".to_owned())]);
        let added = store.add_reboots(&person(), &[Address::new("10.0.0.12")], &request(), &uids).await.unwrap();
        assert_eq!(added.indexes, [0]);
        assert_eq!(etcd.value("/cke/reboots/data/0000000000000000"), ENTRY);
        assert_eq!(etcd.value("/cke/reboots/write-index"), "1");
        let asked = json(&etcd, "/cke/cketerm/requests/reboots/0");
        assert_eq!((&asked["who"]["user"], &asked["node_uid"]), (&"ann".into(), &"uid-12".into()));
        let id = added.batch.unwrap().to_string();
        assert_eq!(asked["batch"], id.as_str());
        let batch = json(&etcd, &format!("/cke/cketerm/batches/{id}"));
        assert_eq!((&batch["who"]["user"], &batch["asked"], &batch["added"]), (&"ann".into(), &1.into(), &1.into()));
        let audit = etcd.ctl(&["get", "--prefix", "--print-value-only", "/cke/cketerm/audit/"]);
        let audit: Value = serde_json::from_str(audit.trim()).unwrap();
        assert_eq!((&audit["what"], &audit["result"]), (&"reboot add".into(), &"entries 0".into()));
        // all five keys have the same revision
        assert_eq!(etcd.ctl(&["get", "--prefix", "/", "-w", "json"]).matches("\"mod_revision\":2,").count(), 5);
        let before = etcd.ctl(&["get", "x", "-w", "json"]);
        assert_eq!(store.add_reboots(&person(), &[], &request(), &none()).await, Ok(Enqueued::default()));
        assert_eq!(before, etcd.ctl(&["get", "x", "-w", "json"]), "an empty list must write nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i29_concurrent_enqueues_never_share_or_skip_an_index() {
    for version in versions() {
        let etcd = Etcd::start(&version, &[]);
        let mut tasks = JoinSet::new();
        for task in 0..6 {
            let store = etcd.store().await;
            tasks.spawn(async move {
                let mut own_indexes = Vec::new();
                for round in 0..5 {
                    // some rounds exceed the size of one transaction
                    let n = if (task + round) % 7 == 0 { 70 } else { 1 + round };
                    let added = store.add_reboots(&person(), &addresses(n), &request(), &none()).await.unwrap();
                    own_indexes.extend(added.indexes);
                }
                own_indexes
            });
        }
        let all: Vec<u64> = tasks.join_all().await.into_iter().flatten().collect();
        let distinct: BTreeSet<u64> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len(), "an index was used twice");
        assert_eq!(
            distinct.into_iter().collect::<Vec<_>>(),
            (0..all.len() as u64).collect::<Vec<_>>(),
            "an index was skipped"
        );
        assert_eq!(etcd.value("/cke/reboots/write-index"), all.len().to_string());
        assert_eq!(etcd.store().await.read_view().await.unwrap().reboots.entries.len(), all.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i29_an_index_is_not_used_again_when_the_write_index_was_lost() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(3), &request(), &none()).await.unwrap();
    etcd.ctl(&["del", "/cke/reboots/write-index"]);
    let added = store.add_reboots(&person(), &addresses(1), &request(), &none()).await;
    assert_eq!(added.map(|added| added.indexes), Ok(vec![3]));
    etcd.ctl(&["put", "/cke/reboots/write-index", "four"]);
    let error = store.add_reboots(&person(), &addresses(1), &request(), &none()).await.unwrap_err().to_string();
    for words in ["/cke/reboots/write-index", "\"four\"", "etcdctl put /cke/reboots/write-index 4"] {
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_addresses_are_queued_in_few_transactions() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.read_view().await.unwrap();
    let began = Stopwatch::start();
    let added = store.add_reboots(&person(), &addresses(2000), &request(), &none()).await.unwrap();
    let took = began.elapsed();
    eprintln!("2,000 entries in {took:?} (this build)");
    assert_eq!(added.indexes, (0..2000).collect::<Vec<_>>());
    let revision: Value = serde_json::from_str(&etcd.ctl(&["get", "x", "-w", "json"])).unwrap();
    assert!(revision["header"]["revision"].as_i64().unwrap() <= 1 + 33, "{revision}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let view = store.read_view().await.unwrap();
    assert_eq!((view.reboots.entries.len(), view.requests.len()), (2000, 2000));
    let id = added.batch.unwrap();
    let batch = view.batch(id).unwrap();
    assert_eq!((view.batches.len(), batch.asked, batch.added), (1, 2000, 2000));
    assert_eq!(view.entries_of_batch(id).count(), 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn i28_a_write_with_a_lost_answer_is_carried_out_once() {
    // on a busy machine the answer to a read may be lost instead: the call fails and writes nothing
    for _ in 0..5 {
        let Some(etcd) = any() else { return };
        let proxy = Proxy::before(&etcd).await;
        let store = proxy.store().await;
        store.add_reboots(&person(), &addresses(1), &request(), &none()).await.unwrap();
        // the answer to the read of the index arrives, then none for longer than one timeout
        let writing = {
            let store = store.clone();
            tokio::spawn(async move {
                store.set_switch(SwitchName::Reboots, false, &person(), None).await.unwrap();
                store.add_reboots(&person(), &addresses(2), &request(), &none()).await
            })
        };
        proxy.set(LinkState::NoAnswers);
        tokio::time::sleep(Duration::from_millis(2500)).await;
        proxy.set(LinkState::Open);
        let written = writing.await.unwrap();
        let index = etcd.value("/cke/reboots/write-index");
        if written.is_err() {
            assert_eq!(index, "1", "{written:?}");
            continue;
        }
        assert_eq!((written.map(|added| added.indexes), index.as_str()), (Ok(vec![1, 2]), "3"));
        assert_eq!(etcd.ctl(&["get", "--prefix", "--keys-only", "/cke/cketerm/audit/"]).split_whitespace().count(), 3);
        return;
    }
    panic!("in five attempts the lost answer was never that to the write");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_an_answer_reports_that_it_may_have_succeeded() {
    let Some(etcd) = any() else { return };
    let proxy = Proxy::before(&etcd).await;
    let store = proxy.store().await;
    store.read_view().await.unwrap();
    proxy.set(LinkState::NoAnswers);
    let error = store.set_switch(SwitchName::Reboots, false, &person(), None).await.unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    assert!(error.to_string().contains("check before you repeat it"), "{error}");
    assert_eq!(etcd.value("/cke/reboots/disabled"), "true", "the write must have succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_changes_only_the_status_and_keeps_unknown_fields() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let entry = r#"{"index":"5","node":"10.0.0.12","status":"draining","last_transition_time":"2026-06-01T01:02:03.5Z","drain_backoff_count":3,"drain_backoff_expire":"2026-06-01T02:00:00Z","ticket":{"a":[1,2]}}"#;
    etcd.ctl(&["put", "/cke/reboots/data/0000000000000005", entry]);
    store.cancel_reboot(5, None, &person(), Some("wrong rack")).await.unwrap();
    assert_eq!(etcd.value("/cke/reboots/data/0000000000000005"), entry.replace("draining", "cancelled"));
    let audit = etcd.ctl(&["get", "--prefix", "--print-value-only", "/cke/cketerm/audit/"]);
    assert!(audit.contains("reboots/5") && audit.contains("wrong rack") && audit.contains("192.0.2.7"), "{audit}");
    // a second cancel writes nothing
    store.cancel_reboot(5, None, &person(), None).await.unwrap();
    assert_eq!(etcd.ctl(&["get", "--prefix", "--keys-only", "/cke/cketerm/audit/"]).split_whitespace().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_refused_if_the_entry_has_changed_since_it_was_shown() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(1), &request(), &none()).await.unwrap();
    let seen = store.read_view().await.unwrap().reboots.entries[&0].mod_revision;
    etcd.ctl(&["put", "/cke/reboots/data/0000000000000000", &ENTRY.replace("queued", "rebooting")]);
    let error = store.cancel_reboot(0, Some(seen), &person(), None).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    store.cancel_reboot(0, None, &person(), None).await.unwrap();
    let error = store.cancel_reboot(9, None, &person(), None).await.unwrap_err();
    assert_eq!(error.to_string(), "reboots/9 does not exist");
    etcd.ctl(&["put", "/cke/reboots/data/0000000000000001", "{"]);
    let error = store.cancel_reboot(1, None, &person(), None).await.unwrap_err().to_string();
    assert!(error.contains("/cke/reboots/data/0000000000000001") && error.contains("it begins with {"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_an_unreadable_entry_is_removed_only_in_the_shown_revision() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(1), &request(), &none()).await.unwrap();
    let key = |index: u64| format!("/cke/reboots/data/{index:016x}");
    let stored_keys = || etcd.ctl(&["get", "--prefix", "/cke/reboots/data/", "--keys-only"]);
    etcd.ctl(&["put", &key(9), r#"{"index":"9","node":12"#]);
    let id = EntryId::reboot(9);
    let shown = store.unreadable(id).await.unwrap().unwrap();
    assert!(shown.why.contains(r#"it begins with {"index":"9","node":12"#), "{shown:?}");
    assert_eq!(store.unreadable(EntryId::reboot(0)).await.unwrap(), None, "entry 0 is readable");
    assert_eq!(store.unreadable(EntryId::reboot(7)).await.unwrap(), None, "entry 7 does not exist");

    // another program rewrites it: the shown value is no longer the stored one
    etcd.ctl(&["put", &key(9), "garbage"]);
    let error = store.remove_unreadable(id, shown.revision, &person(), None).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    assert!(stored_keys().contains(&key(9)));
    // a readable entry can be cancelled but not removed
    let readable = store.read_view().await.unwrap().reboots.entries[&0].mod_revision;
    assert!(store.remove_unreadable(EntryId::reboot(0), readable, &person(), None).await.is_err());
    assert!(stored_keys().contains(&key(0)));

    let shown = store.unreadable(id).await.unwrap().unwrap();
    store.remove_unreadable(id, shown.revision, &person(), Some("INC-5")).await.unwrap();
    assert!(!stored_keys().contains(&key(9)) && stored_keys().contains(&key(0)));
    let audit = etcd.ctl(&["get", "--prefix", "/cke/cketerm/audit/", "--print-value-only"]);
    for expected in ["reboot remove unreadable", "reboots/9", "INC-5", "it begins with garbage"] {
        assert!(audit.contains(expected), "{expected}: {audit}");
    }
    // an entry under the wrong key is also unreadable, and a cancel would not remove it
    etcd.ctl(&["put", &key(10), ENTRY]);
    assert!(store.unreadable(EntryId::reboot(10)).await.unwrap().unwrap().why.contains("but its key has 10"));
}

#[tokio::test(flavor = "multi_thread")]
async fn i27_cancel_all_cancels_every_entry_despite_concurrent_writes() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(300), &request(), &none()).await.unwrap();
    etcd.ctl(&["put", "/cke/reboots/data/00000000000000ff", "not JSON"]);
    // another program keeps rewriting some entries, as CKE does, but compares their current values first
    let (busy, keys) = (etcd.store().await, store.keys().clone());
    let writer = tokio::spawn(async move {
        for round in 0..200_u64 {
            let key = keys.reboot(round % 5);
            let raw = busy.raw(&key).await.unwrap().unwrap();
            let mut kv = busy.client();
            let compare =
                etcd_client::Compare::mod_revision(key.as_str(), etcd_client::CompareOp::Equal, raw.mod_revision);
            let put = etcd_client::TxnOp::put(key, raw.text, None);
            kv.txn(etcd_client::Txn::new().when([compare]).and_then([put])).await.unwrap();
        }
    });
    let cancelled = store.cancel_all_reboots(&person(), None).await.unwrap();
    writer.await.unwrap();
    assert_eq!(cancelled.len(), 299, "all entries except the unreadable one must be cancelled");
    let all = etcd.ctl(&["get", "--prefix", "--print-value-only", "/cke/reboots/data/"]);
    assert_eq!((all.matches("\"cancelled\"").count(), all.matches("not JSON").count()), (299, 1));
    assert_eq!(store.cancel_all_reboots(&person(), None).await, Ok(vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_writes_only_entries_with_a_backoff_and_keeps_unknown_fields() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let put = |index: u64, rest: &str| {
        let entry = format!(r#"{{"index":"{index}","node":"10.0.0.1","status":"queued"{rest}}}"#);
        etcd.ctl(&["put", &format!("/cke/reboots/data/{index:016x}"), &entry]);
    };
    put(0, "");
    put(17, r#","drain_backoff_count":4,"drain_backoff_expire":"2026-06-01T02:00:00+09:00","extra":{"a":1}"#);
    // after its command nothing backs off; a write would void an order that waits
    let rebooting = r#"{"index":"19","node":"10.0.0.1","status":"rebooting","drain_backoff_count":2}"#;
    etcd.ctl(&["put", "/cke/reboots/data/0000000000000013", rebooting]);
    let watching = r#"{"index":"1","address":"10.0.0.8","machine_type":"t","operation":"o","status":"processing","step_status":"watching","drain_backoff_count":1}"#;
    etcd.ctl(&["put", "/cke/repairs/data/0000000000000001", watching]);
    put(18, r#","drain_backoff_count":2,"drain_backoff_expire":"2026-06-01T02:00:00Z""#);
    let repair = r#"{"index":"0","address":"10.0.0.9","machine_type":"t","operation":"o","status":"queued","drain_backoff_count":1}"#;
    etcd.ctl(&["put", "/cke/repairs/data/0000000000000000", repair]);
    assert_eq!(store.reset_backoff(QueueKind::Reboot, Some(18), &person(), None).await, Ok(vec![18]));
    assert_eq!(store.reset_backoff(QueueKind::Reboot, None, &person(), None).await, Ok(vec![17]));
    assert_eq!(store.reset_backoff(QueueKind::Repair, None, &person(), None).await, Ok(vec![0]));
    let entry = json(&etcd, "/cke/reboots/data/0000000000000011");
    assert_eq!(entry["extra"]["a"], 1);
    assert_eq!(entry["drain_backoff_expire"], "0001-01-01T00:00:00Z");
    assert!(entry.get("drain_backoff_count").is_none(), "{entry}");
    let error = store.reset_backoff(QueueKind::Reboot, Some(99), &person(), None).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn switches_use_ckeclis_values_and_unknown_values_count_as_enabled() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    for (name, key) in [
        (SwitchName::Reboots, "/cke/reboots/disabled"),
        (SwitchName::Repairs, "/cke/repairs/disabled"),
        (SwitchName::Sabakan, "/cke/sabakan/disabled"),
        (SwitchName::AutoRepair, "/cke/auto-repair/disabled"),
    ] {
        assert!(store.switch(name).await.unwrap().enabled());
        let mut last = Switch::default();
        for (enabled, bytes) in [(false, "true"), (false, "true"), (true, "false")] {
            let turned = store.set_switch(name, enabled, &person(), None).await.unwrap();
            assert_eq!(etcd.value(key), bytes);
            // `before` is the value of the previous write, read in the same transaction
            assert_eq!(turned.before, Some(last));
            last = Switch { raw: Some(bytes.to_owned()), mod_revision: turned.revision };
            assert_eq!(store.switch(name).await.unwrap().enabled(), enabled);
        }
        etcd.ctl(&["put", key, "TRUE"]);
        let switch = store.switch(name).await.unwrap();
        assert_eq!((switch.enabled(), switch.odd()), (true, Some("TRUE")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_records_the_revision_that_it_was_given_for() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(1), &request(), &none()).await.unwrap();
    let (id, seen) = (EntryId::reboot(0), store.read_view().await.unwrap().reboots.entries[&0].mod_revision);
    store.put_order(id, Verb::Retry, Some(seen), &person(), Some("fan was stuck"), None).await.unwrap();
    let order = json(&etcd, "/cke/cketerm/orders/reboots/0");
    assert_eq!((&order["verb"], &order["entry_revision"]), (&"retry".into(), &seen.into()));
    let error = store.put_order(id, Verb::Done, Some(seen - 1), &person(), None, None).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    let gone = EntryId::reboot(7);
    let error = store.put_order(gone, Verb::Hold, None, &person(), None, None).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    store.put_order(gone, Verb::Uncordon, None, &person(), None, None).await.unwrap();
    assert_eq!(store.read_view().await.unwrap().orders.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn unhold_removes_a_hold_and_nothing_else() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(1), &request(), &none()).await.unwrap();
    let id = EntryId::reboot(0);
    let error = store.put_order(id, Verb::Unhold, None, &person(), None, None).await.unwrap_err();
    assert_eq!(error.to_string(), "reboots/0 is not on hold");
    store.put_order(id, Verb::Hold, None, &person(), Some("rack is open"), None).await.unwrap();
    // a hold survives changes of the entry
    etcd.ctl(&["put", "/cke/reboots/data/0000000000000000", &ENTRY.replace("queued", "draining")]);
    store.put_order(id, Verb::Unhold, None, &person(), None, None).await.unwrap();
    assert_eq!(etcd.value("/cke/cketerm/orders/reboots/0"), "");
    store.put_order(id, Verb::Force, None, &person(), None, None).await.unwrap();
    assert!(store.put_order(id, Verb::Unhold, None, &person(), None, None).await.is_err());
    assert!(etcd.value("/cke/cketerm/orders/reboots/0").contains("force"));
}

/// Entries that one round had written were counted twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_all_entries_that_stops_half_way_counts_what_was_written() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(130), &request(), &none()).await.unwrap();
    // etcd takes an entry of this size, but no transaction with it and an audit record
    let ticket = "x".repeat((3 << 19) - 600);
    let large = ENTRY.replacen("{\"index\":\"0\"", &format!("{{\"index\":\"129\",\"ticket\":\"{ticket}\""), 1);
    store.client().kv_client().put(store.keys().entry(EntryId::reboot(129)), large, None).await.unwrap();
    let error = store.cancel_all_reboots(&person(), None).await.unwrap_err();
    assert!(matches!(error, StoreError::Partial { done: 129, all: 130, .. }), "{error}");
}

/// An entry and its hold go in one transaction. An unhold that read one before it and the other after it answered that
/// the entry was not on hold, which was never so.
#[tokio::test(flavor = "multi_thread")]
async fn an_unhold_at_the_end_of_its_entry_never_denies_the_hold() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(1), &request(), &none()).await.unwrap();
    let id = EntryId::reboot(0);
    store.put_order(id, Verb::Hold, None, &person(), None, None).await.unwrap();
    let (entry, order) = (store.keys().entry(id), store.keys().order(id));
    let hold = etcd.value(&order);
    let mut kv = store.client().kv_client();
    for round in 0..300 {
        let both = vec![TxnOp::put(entry.as_str(), ENTRY, None), TxnOp::put(order.as_str(), hold.as_str(), None)];
        kv.txn(Txn::new().and_then(both)).await.unwrap();
        let person = person();
        let unhold = store.put_order(id, Verb::Unhold, None, &person, None, None);
        let mut other = store.client().kv_client();
        let (entry, order) = (entry.clone(), order.clone());
        let end = async move {
            for _ in 0..round % 4 {
                other.get("x", None).await.unwrap();
            }
            let both = vec![TxnOp::delete(entry, None), TxnOp::delete(order, None)];
            other.txn(Txn::new().and_then(both)).await.unwrap();
        };
        let (answer, ()) = tokio::join!(unhold, end);
        assert!(matches!(answer, Ok(()) | Err(StoreError::NotFound { .. })), "round {round}: {answer:?}");
    }
}

/// A command whose process ends between two transactions leaves a batch with what was added. Somebody who pauses it
/// meanwhile is not overwritten, and two enqueues of one moment get two batches.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_usable_after_half_of_its_enqueue_and_a_pause_during_it_stays() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let adding = |n| {
        let store = store.clone();
        tokio::spawn(async move { store.add_reboots(&person(), &addresses(n), &request(), &none()).await })
    };
    let (first, second) = (adding(2000), adding(2000));
    let id = loop {
        let view = store.read_view().await.unwrap();
        if let Some((id, _)) = view.batches.get_min() {
            break *id;
        }
    };
    store.mark_batch(id, BatchMark::Paused(&LeaderGuard::Nobody), &person(), Some("wait")).await.unwrap();
    let ids = [first.await.unwrap().unwrap().batch.unwrap(), second.await.unwrap().unwrap().batch.unwrap()];
    assert!(ids[0] != ids[1] && ids.contains(&id), "{ids:?}");
    let view = store.read_view().await.unwrap();
    assert_eq!(view.batches.values().filter_map(|b| b.get()).map(|b| b.added).collect::<Vec<_>>(), [2000, 2000]);
    assert_eq!(view.batch(id).unwrap().paused.as_ref().unwrap().reason.as_deref(), Some("wait"));

    // bound to the revision that a dialog showed
    let shown = view.batches.get(&id).unwrap().mod_revision;
    let stale = store.resume_batch(id, Some(shown - 1), &person(), None).await.unwrap_err();
    assert!(matches!(stale, StoreError::Conflict { .. }), "{stale}");
    let stale = store.mark_batch(id, BatchMark::Cancelled(Some(shown - 1)), &person(), None).await.unwrap_err();
    assert!(matches!(stale, StoreError::Conflict { .. }), "{stale}");
    let unchanged = store.read_view().await.unwrap();
    assert!(unchanged.batch(id).unwrap().paused.is_some() && unchanged.batch(id).unwrap().cancelled.is_none());
    store.resume_batch(id, Some(shown), &person(), None).await.unwrap();
    assert!(store.read_view().await.unwrap().batch(id).unwrap().paused.is_none());

    let half = adding(2000);
    let started = loop {
        let view = store.read_view().await.unwrap();
        if let Some((id, _)) = view.batches.iter().find(|(id, _)| !ids.contains(id)) {
            break *id;
        }
    };
    half.abort();
    let _ = half.await;
    let view = store.read_view().await.unwrap();
    let batch = view.batch(started).unwrap();
    assert!(batch.added > 0 && batch.asked == 2000, "{batch:?}");
    assert_eq!(view.entries_of_batch(started).count() as u64, batch.added);
    let entries: BTreeSet<EntryId> = view.entries_of_batch(started).collect();
    let cancelled = store.cancel_entries_of_batch(QueueKind::Reboot, &entries, &person(), None).await.unwrap();
    assert_eq!(cancelled.len() as u64, batch.added);
    let totals = store.read_view().await.unwrap().batch_totals();
    assert_eq!((totals[&started].ends.withdrawn, totals[&started].open()), (batch.added, 0));
    assert_eq!(totals[&id].queued, 2000, "other batches are untouched");
}

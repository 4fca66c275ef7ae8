//! Pages of the folders that only grow, and entries that ended, on a real etcd.

use std::collections::BTreeSet;

use cketerm_clients::store::pages::Part;
use cketerm_model::{
    cketerm_records::{Audit, Ending},
    entry::{EntryId, Stored},
    stored::keys::Folder,
};
use etcd_client::{Client, Txn, TxnOp};
use serde_json::json;

use super::etcd::{any, versions};

async fn put_all(client: &mut Client, values: &[(String, String)], at_once: usize) {
    for some in values.chunks(at_once) {
        let puts = some.iter().map(|(key, value)| TxnOp::put(key.as_str(), value.as_str(), None)).collect::<Vec<_>>();
        client.txn(Txn::new().and_then(puts)).await.unwrap();
    }
}

fn audit(at: jiff::Timestamp, on: &str) -> String {
    json!({"at": at, "who": {"user": "engine", "host": "h"}, "what": "power", "on": on, "result": "x"}).to_string()
}

fn ending(id: EntryId, requested: Option<jiff::Timestamp>, at: jiff::Timestamp) -> String {
    let who = json!({"user": "alice", "host": "h"});
    let request = requested.map(|requested| json!({"at": requested, "who": who, "node": null}));
    json!({
        "entry": id, "address": "10.0.0.12", "end": "booted", "outcome": "booted", "at": at, "last": {},
        "request": request,
    })
    .to_string()
}

/// More records than one look at the last keys finds, 100 in one transaction, over a year.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_long_audit_have_each_record_once_in_the_order_of_their_writes() {
    for version in versions() {
        let etcd = super::etcd::Etcd::start(&version, &[]);
        let (store, mut client) = (etcd.store().await, Client::connect([&etcd.url], None).await.unwrap());
        let folder = store.keys().audit_prefix();
        let now = jiff::Timestamp::now();
        let records: Vec<(String, String)> = (0..13_050_i64)
            .map(|i| {
                let at = now - jiff::SignedDuration::from_secs(2_400 * (13_050 - i));
                (format!("{folder}{:020}-1-{i}", at.as_nanosecond()), audit(at, &format!("reboots/{i}")))
            })
            .collect();
        put_all(&mut client, &records, 100).await;
        // the writer's clock was behind: by its name it is among the oldest
        let late = format!("{folder}{:020}-late", 1_700_000_000_000_000_000_u64);
        client.put(late.as_str(), audit(now, "late"), None).await.unwrap();
        let written: Vec<&String> = records.iter().map(|(key, _)| key).collect();
        let (mut part, mut found, mut sizes) = (Part::Newest, Vec::new(), BTreeSet::new());
        loop {
            let page = store.page::<Audit>(Folder::Audit, part, 130).await.unwrap();
            sizes.insert(page.values.len());
            part = Part::Before(page.values.last().map_or(0, |value| value.mod_revision));
            found.extend(page.values);
            if !page.more {
                break;
            }
        }
        let names: Vec<&String> = found.iter().map(|value| &value.key).filter(|key| **key != late).collect();
        assert_eq!(names.len(), found.len() - 1, "the late record must be on a page too");
        assert_eq!(names.iter().copied().rev().collect::<Vec<_>>(), written);
        assert!(sizes.iter().all(|size| *size <= 231), "{sizes:?}");
        found.retain(|value| value.key != late);
        assert!(found.is_sorted_by_key(|value| std::cmp::Reverse(value.mod_revision)));
        // newer ones, oldest first, page after page
        let middle = found[6_000].mod_revision;
        let (mut after, mut newer) = (middle, Vec::new());
        loop {
            let page = store.page::<Audit>(Folder::Audit, Part::After(after), 500).await.unwrap();
            after = page.values.first().map_or(after, |value| value.mod_revision);
            newer.extend(page.values.iter().rev().map(|value| value.key.clone()));
            if !page.more {
                break;
            }
        }
        let expected: Vec<&String> =
            found.iter().rev().filter(|value| value.mod_revision > middle).map(|value| &value.key).collect();
        newer.retain(|key| *key != late);
        assert_eq!(newer.iter().collect::<Vec<_>>(), expected);
        // the last ones by name: a little more than asked for is read, and not more is returned
        let newest = store.newest::<Audit>(&folder, 40).await.unwrap();
        let expected: Vec<&String> = written.iter().rev().take(40).copied().collect();
        assert_eq!(newest.iter().map(|value| &value.key).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_entries_are_read_some_at_a_time_with_the_audit_of_their_lifetimes() {
    let Some(etcd) = any() else { return };
    let (store, mut client) = (etcd.store().await, Client::connect([&etcd.url], None).await.unwrap());
    let (keys, now) = (store.keys().clone(), jiff::Timestamp::now());
    let at = |hours: u64| now - jiff::SignedDuration::from_hours(1_000 - i64::try_from(hours).unwrap());
    // entries end in another order than that of their indexes, in both queues
    let id = |i: u64| if i.is_multiple_of(2) { EntryId::reboot(1_000 - i) } else { EntryId::repair(i) };
    let ended: Vec<(String, String)> = (0..230)
        .map(|i| (keys.history_of(id(i)), ending(id(i), (!i.is_multiple_of(3)).then(|| at(i)), at(i + 2))))
        .collect();
    put_all(&mut client, &ended, 1).await;
    client.put(keys.history_of(EntryId::reboot(5_000)), "{", None).await.unwrap();
    // its attempts were settled later: it is written again, and keeps its place
    client.put(ended[100].0.as_str(), ended[100].1.as_str(), None).await.unwrap();
    let (mut entries, mut sizes, mut found) = (store.ended_entries().await.unwrap(), Vec::new(), Vec::new());
    while let Some(read) = store.next_ended(&mut entries).await.unwrap() {
        sizes.push(read.len());
        found.extend(read);
    }
    assert_eq!(sizes, [100, 100, 31]);
    assert!(found[0].value.is_err(), "an unreadable record is among them");
    let order: Vec<EntryId> = found.iter().filter_map(Stored::get).map(|ending| ending.entry).collect();
    assert_eq!(order, (0..230).rev().map(id).collect::<Vec<_>>());
    let wanted: BTreeSet<EntryId> = (0..150).map(id).chain([EntryId::repair(9_999), EntryId::reboot(5_000)]).collect();
    assert_eq!(store.ends_of(&wanted).await.unwrap().into_keys().collect::<BTreeSet<_>>(), (0..150).map(id).collect());

    // 1,300 records of each hour of two entries, of which one belongs to each, and one to no entry
    let record = |hour: u64, i: u64, on: &str| {
        let at = at(hour) + jiff::SignedDuration::from_secs(i64::try_from(i).unwrap());
        (format!("{}{:020}-1-{i}", keys.audit_prefix(), at.as_nanosecond()), audit(at, on))
    };
    for i in [10_u64, 200] {
        let mut records: Vec<_> = (0..1_300).map(|second| record(i + 1, second, "reboots/77777")).collect();
        records.push(record(i + 1, 1_301, &id(i).to_string()));
        records.push(record(i + 1, 1_302, "worker1"));
        records.push(record(i + 50, 1_303, &id(i).to_string()));
        records.push((format!("{}{:020}-x", keys.audit_prefix(), at(i + 1).as_nanosecond()), "{".to_owned()));
        put_all(&mut client, &records, 100).await;
    }
    let all: Vec<&Ending> = found.iter().filter_map(Stored::get).collect();
    let of = |i: u64| all.iter().copied().find(|ending| ending.entry == id(i)).unwrap();
    let on = |records: Vec<Audit>| records.into_iter().map(|audit| audit.on).collect::<Vec<_>>();
    assert_eq!(on(store.audit_of(&[of(10)]).await.unwrap()), [id(10).to_string(), "worker1".to_owned()]);
    let both = on(store.audit_of(&[of(200), of(10)]).await.unwrap());
    let expected = [id(10).to_string(), "worker1".into(), id(200).to_string(), "worker1".into()];
    assert_eq!(both, expected);
    // without a recorded request, a week is read
    assert_eq!(of(201).request, None);
    assert_eq!(on(store.audit_of(&[of(201)]).await.unwrap()), ["worker1"]);
    assert_eq!(store.audit_of(&[]).await.unwrap(), Vec::new());
}

/// Between the keys are others, more of them than a read of neighbours allows for.
#[tokio::test(flavor = "multi_thread")]
async fn ended_entries_are_found_between_foreign_keys() {
    let Some(etcd) = any() else { return };
    let (store, mut client) = (etcd.store().await, Client::connect([&etcd.url], None).await.unwrap());
    let (keys, now) = (store.keys().clone(), jiff::Timestamp::now());
    let ids: BTreeSet<EntryId> = (1..=40).map(EntryId::reboot).chain((1..=9).map(EntryId::repair)).collect();
    let mut values = Vec::new();
    for id in &ids {
        let (key, value) = (keys.history_of(*id), ending(*id, None, now));
        values.extend(["-copy", "-old", "-x"].map(|end| (format!("{key}{end}"), value.clone())));
        values.push((key, value));
    }
    put_all(&mut client, &values, 50).await;
    assert_eq!(store.ends_of(&ids).await.unwrap().into_keys().collect::<BTreeSet<_>>(), ids);
}

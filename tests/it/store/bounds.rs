//! Transactions of a bounded size, retention of audit and history, and records of version 0.1, on a real etcd.

use std::{collections::BTreeMap, time::Duration};

use cketerm_clients::store::{
    Store,
    commit::CommitError,
    election::Candidacy,
    folders::{AuditRetention, FolderCursor},
    migrate,
};
use cketerm_model::{
    attempt::Attempt,
    cketerm_records::{Audit, EndKind, Ending, SCHEMA, Who},
    entry::{EntryId, Stored},
    fence::Fence,
    result::CommandResult,
    stored::{
        keys::SwitchName,
        transaction::{Change, Put, Ranged},
    },
};
use cketerm_runtime::heartbeat::Heartbeat;
use etcd_client::{Client, DeleteOptions, Txn, TxnOp};

use super::{
    etcd::{Etcd, any, versions},
    person, registration, who,
};

async fn lead(store: &Store) -> (Candidacy, Fence) {
    let ttl = Duration::from_secs(5);
    let mut candidacy = Candidacy::campaign(store, ttl, "first", registration(), &Heartbeat::new(ttl)).await.unwrap();
    let fence = tokio::time::timeout(Duration::from_secs(5), candidacy.elected()).await.unwrap().unwrap();
    (candidacy, fence)
}

async fn client(etcd: &Etcd) -> Client {
    Client::connect([&etcd.url], None).await.unwrap()
}

fn put(key: &str, value: &str) -> Put {
    Put { key: key.to_owned(), value: value.to_owned(), leased: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn i49_a_range_of_any_size_is_compared_and_deleted_in_one_small_transaction() {
    for version in versions() {
        let etcd = Etcd::start(&version, &[]);
        let store = etcd.store().await;
        let (_candidacy, fence) = lead(&store).await;
        let (keys, id) = (store.keys().clone(), EntryId::reboot(3));
        let mut client = client(&etcd).await;
        for number in 1..=300 {
            client.put(keys.attempt(id, number), "{}", None).await.unwrap();
        }
        // a neighbouring key that the range must not touch
        client.put(keys.attempt(EntryId::reboot(30), 1), "neighbour", None).await.unwrap();
        let seen = store.read_view().await.unwrap().revision;
        let span = keys.attempts_of(id);
        let ranged = |since: i64| Ranged {
            change: Change { puts: vec![put("/cke/x", "done")], ..Change::default() },
            unwritten: vec![(span.clone(), since)],
            cleared: vec![span.clone()],
        };
        // deleting the keys one by one is refused before anything is sent
        let each = Change { deletes: (1..=300).map(|n| keys.attempt(id, n)).collect(), ..Change::default() };
        let refused = store.commit(&fence.permit_record().unwrap(), each).await.unwrap_err();
        assert!(matches!(refused, CommitError::TooLarge(size) if size.operations == 300), "{refused:?}");
        // one of the keys has been written since it was read
        client.put(keys.attempt(id, 77), "changed", None).await.unwrap();
        let conflict = store.commit(&fence.permit_record().unwrap(), ranged(seen)).await.unwrap_err();
        assert_eq!(conflict, CommitError::Conflict { keys: vec![keys.attempt(id, 77)] });
        assert_eq!(etcd.value("/cke/x"), "", "a conflict must write nothing");
        let seen = store.read_view().await.unwrap().revision;
        store.commit(&fence.permit_record().unwrap(), ranged(seen)).await.unwrap();
        assert_eq!(etcd.value("/cke/x"), "done");
        assert_eq!(store.read_view().await.unwrap().attempts.len(), 1, "only the neighbour may be left");
        // an empty range counts as unchanged
        store.commit(&fence.permit_record().unwrap(), ranged(seen)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i49_a_smaller_transaction_limit_of_etcd_is_reported_as_such() {
    let Some(version) = versions().into_iter().next() else { return };
    let etcd = Etcd::start(&version, &["--max-txn-ops".to_owned(), "8".to_owned()]);
    let store = etcd.store().await;
    let (_candidacy, fence) = lead(&store).await;
    let puts = (0..20).map(|i| put(&format!("/cke/x{i}"), "1")).collect();
    let change = Change { puts, ..Change::default() };
    let refused = store.commit(&fence.permit_record().unwrap(), change).await.unwrap_err();
    assert!(matches!(refused, CommitError::TooLarge(size) if size.operations == 20), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i48_engine_audit_records_never_displace_those_of_operators() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let (candidacy, fence) = lead(&store).await;
    for index in 0..5 {
        store
            .set_switch(SwitchName::Reboots, index % 2 == 0, &person(), Some(&format!("person {index}")))
            .await
            .unwrap();
    }
    let mut client = client(&etcd).await;
    let now = jiff::Timestamp::now();
    for i in 0..200_u32 {
        let at = now - jiff::SignedDuration::from_secs(i64::from(300 - i));
        let engine = Who { user: "engine".to_owned(), host: "h".to_owned(), ssh_client: None };
        let audit = Audit {
            at,
            who: engine,
            what: "power".to_owned(),
            on: "reboots/3".to_owned(),
            reason: None,
            result: "x".to_owned(),
            failed: false,
            entry: None,
            repeats: None,
        };
        let key = store.keys().audit(&format!("{:020}-{:x}-reboots-3-{i}", at.as_nanosecond(), candidacy.lease()));
        client.put(key, serde_json::to_string(&audit).unwrap(), None).await.unwrap();
    }
    let (ages_ago, mut walk) = (jiff::Timestamp::UNIX_EPOCH, FolderCursor::default());
    let keep = AuditRetention { engine: 20, people: 20 };
    let gone = store.outdated_audit(keep, ages_ago, &mut walk).await.unwrap();
    assert_eq!(gone.len(), 180);
    assert!(gone.iter().all(|key| !store.keys().is_person_audit(key)), "{gone:?}");
    for some in gone.chunks(64) {
        let change = Change { deletes: some.to_vec(), ..Change::default() };
        store.commit(&fence.permit_record().unwrap(), change).await.unwrap();
    }
    assert!(store.outdated_audit(keep, ages_ago, &mut walk).await.unwrap().is_empty());
    let left = store.newest::<Audit>(&store.keys().audit_prefix(), 1000).await.unwrap();
    let of_people = left.iter().filter(|s| s.get().is_some_and(|a| !a.by_engine())).count();
    assert_eq!((left.len(), of_people), (25, 5));
    // limits: the number of people's records, and the age of both kinds
    let gone = store.outdated_audit(AuditRetention { engine: 20, people: 3 }, ages_ago, &mut walk).await.unwrap();
    assert_eq!(gone.len(), 2);
    assert!(
        etcd.value(&gone[0]).contains("person 0") && etcd.value(&gone[1]).contains("person 1"),
        "the oldest records must be deleted"
    );
    assert_eq!(store.outdated_audit(keep, jiff::Timestamp::now(), &mut walk).await.unwrap().len(), 25);
    // a record of several attempts has the age of the last one
    let oldest = left.iter().filter_map(Stored::get).find(|a| a.by_engine()).unwrap();
    let tried = Audit::clone(oldest).again(jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60), None, "x");
    let key = left.iter().find(|s| s.get().is_some_and(|a| a == oldest)).unwrap().key.clone();
    client.put(key.as_str(), serde_json::to_string(&tried).unwrap(), None).await.unwrap();
    let aged = store.outdated_audit(keep, jiff::Timestamp::now(), &mut FolderCursor::default()).await.unwrap();
    assert!(aged.len() == 24 && !aged.contains(&key), "{} of 25", aged.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_sort_by_time_and_those_beyond_the_limit_are_listed() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    for index in 0..5 {
        store.set_switch(SwitchName::Reboots, index % 2 == 0, &person(), Some(&index.to_string())).await.unwrap();
    }
    let folder = store.keys().audit_prefix();
    let newest = store.newest::<Audit>(&folder, 2).await.unwrap();
    let reasons: Vec<_> = newest.iter().map(|s| s.get().unwrap().reason.clone().unwrap()).collect();
    assert_eq!(reasons, ["4", "3"]);
    let (ages_ago, mut walk) = (jiff::Timestamp::UNIX_EPOCH, FolderCursor::default());
    let keep = |people| AuditRetention { engine: 5, people };
    assert_eq!(store.outdated_audit(keep(5), ages_ago, &mut walk).await, Ok(vec![]));
    walk.count_again();
    let two = store.outdated_audit(keep(3), ages_ago, &mut walk).await.unwrap();
    assert_eq!(two.len(), 2);
    assert!(etcd.value(&two[1]).contains("\"reason\":\"1\""));
    let all = store.outdated_audit(keep(5), jiff::Timestamp::now(), &mut FolderCursor::default()).await.unwrap();
    assert_eq!(all.len(), 5);
    // keys of the history contain no time: here the newer record sorts before the older one
    let ending = |at: &str| {
        format!(r#"{{"entry":"repairs/0","address":"10.0.0.1","outcome":"booted","at":"{at}","last":{{}}}}"#)
    };
    // an unreadable record in front must not prevent the deletion of others by age
    etcd.ctl(&["put", &store.keys().history("a-broken"), "x"]);
    for (id, at) in [("repairs-0", "2026-01-01"), ("reboots-8", "2026-01-02"), ("reboots-9", "2026-03-01")] {
        etcd.ctl(&["put", &store.keys().history(id), &ending(&format!("{at}T00:00:00Z"))]);
    }
    etcd.ctl(&["put", &store.keys().history("broken"), "x"]);
    let key = |id: &str| store.keys().history(id);
    assert_eq!(store.outdated_history(4, ages_ago, &mut FolderCursor::default()).await.unwrap(), [key("repairs-0")]);
    let february = "2026-02-01T00:00:00Z".parse().unwrap();
    assert_eq!(
        store.outdated_history(9, february, &mut FolderCursor::default()).await.unwrap(),
        [key("reboots-8"), key("repairs-0")]
    );
    assert_eq!(
        store.outdated_history(9, jiff::Timestamp::now(), &mut FolderCursor::default()).await.unwrap().len(),
        3,
        "unreadable records must not be deleted by age"
    );
}

/// Three pages of keys: engines' records before and after the first page end, operators' records in between.
#[tokio::test(flavor = "multi_thread")]
async fn i48_records_beyond_the_limits_are_found_page_by_page_and_counted_once() {
    let Some(etcd) = any() else { return };
    let (store, mut client) = (etcd.store().await, client(&etcd).await);
    let (folder, people) = (store.keys().audit_prefix(), 9_990..10_020_u64);
    let name = |at: u64| {
        if people.contains(&at) {
            format!("{folder}{at:020}-{at:016x}")
        } else {
            format!("{folder}{at:020}-1-reboots-3-1")
        }
    };
    let keys: Vec<String> = (0..21_000_u64).map(name).collect();
    for some in keys.chunks(100) {
        let puts = some.iter().map(|key| TxnOp::put(key.as_str(), "{}", None)).collect::<Vec<_>>();
        client.txn(Txn::new().and_then(puts)).await.unwrap();
    }
    let (keep, ages_ago) = (AuditRetention { engine: 5, people: 10 }, jiff::Timestamp::UNIX_EPOCH);
    let (mut walk, mut gone) = (FolderCursor::default(), Vec::new());
    loop {
        let found = store.outdated_audit(keep, ages_ago, &mut walk).await.unwrap();
        if found.is_empty() {
            break;
        }
        for some in found.chunks(100) {
            let deletes = some.iter().map(|key| TxnOp::delete(key.as_str(), None)).collect::<Vec<_>>();
            client.txn(Txn::new().and_then(deletes)).await.unwrap();
        }
        gone.extend(found);
    }
    let kept: Vec<&String> = keys.iter().filter(|key| !gone.contains(key)).collect();
    let newest = keys[10_010..10_020].iter().chain(&keys[20_995..]);
    assert_eq!(kept, newest.collect::<Vec<_>>());
    // another engine has pruned meanwhile: nothing more goes
    for some in keys[..9_990].chunks(100).chain(keys[10_020..].chunks(100)) {
        let puts = some.iter().map(|key| TxnOp::put(key.as_str(), "{}", None)).collect::<Vec<_>>();
        client.txn(Txn::new().and_then(puts)).await.unwrap();
    }
    let keep = AuditRetention { engine: 6, people: 3 };
    assert_eq!(store.outdated_audit(keep, ages_ago, &mut walk).await.unwrap().len(), 9_997);
    client.delete(folder.as_str(), Some(DeleteOptions::new().with_range(keys[20_994].as_str()))).await.unwrap();
    walk.count_again();
    assert!(store.outdated_audit(keep, ages_ago, &mut walk).await.unwrap().is_empty());
}

/// Record of an attempt that version 0.1 withheld, byte for byte.
const WITHHELD: &str = r#"{"id":"reboots-4-NUMBER","entry":"reboots/4","number":NUMBER,"address":"10.0.1.11","node":"w1","lease":7587869,"host":"boot-0","argv":["bmc","reboot","10.0.1.11"],"bound_seconds":20,"boot_id":"first-w1","node_uid":"1f0c","start":"2026-07-01T00:00:00Z","outcome":{"end":{"withheld":"the entry has changed meanwhile"},"at":"2026-07-01T00:00:01Z","stdout":"","stderr":""}}"#;

/// An attempt of 0.1 that failed.
fn failed(number: u32) -> String {
    let text = WITHHELD.replace("NUMBER", &number.to_string());
    text.replace(r#"{"withheld":"the entry has changed meanwhile"}"#, r#"{"exit":1}"#)
}

async fn write_records_of_0_1(etcd: &Etcd, store: &Store) {
    let (mut client, keys) = (client(etcd).await, store.keys());
    client.put(keys.schema(), "1", None).await.unwrap();
    let id = EntryId::reboot(4);
    for number in 1..=400 {
        let text = if number % 100 == 50 { failed(number) } else { WITHHELD.replace("NUMBER", &number.to_string()) };
        client.put(keys.attempt(id, number), text, None).await.unwrap();
    }
    client.put(keys.attempt(EntryId::reboot(5), 1), failed(1).replace("reboots/4", "reboots/5"), None).await.unwrap();
    client.put(keys.attempt(EntryId::reboot(6), 1), "{", None).await.unwrap();
    for index in 100..350 {
        let text = ENDED.replace("INDEX", &index.to_string());
        client.put(keys.history_of(EntryId::reboot(index)), text, None).await.unwrap();
    }
    client.put(keys.history_of(EntryId::reboot(350)), "{", None).await.unwrap();
}

/// History of version 0.1, which recorded how an entry ended as text alone. `later` stands for an unknown field.
const ENDED: &str = r#"{"entry":"reboots/INDEX","address":"10.0.1.11","outcome":"booted: the Node was registered anew","at":"2026-07-01T00:00:09Z","last":{},"attempts":[],"later":{"x":[1]}}"#;

async fn attempts(store: &Store) -> BTreeMap<u32, Attempt> {
    let view = store.read_view().await.unwrap();
    view.attempts_of(EntryId::reboot(4)).filter_map(Stored::get).map(|a| (a.number, a.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_0_1_are_migrated_once_by_the_first_leader_despite_interruptions() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    write_records_of_0_1(&etcd, &store).await;
    let before = store.read_view().await.unwrap();
    assert!(migrate::needed(&before) && before.attempts.len() == 402);
    assert_eq!(
        before.attempts.values().filter(|s| s.get().is_none()).count(),
        1,
        "exactly one record of version 0.1 must be unreadable"
    );

    // a deposed leader migrates nothing
    let (first, fence) = lead(&store).await;
    etcd.ctl(&["lease", "revoke", &format!("{:x}", first.lease())]);
    store.migrate(&fence, &who(), |why| panic!("{why}")).await;
    assert_eq!((etcd.value(&store.keys().schema()).as_str(), attempts(&store).await.len()), ("1", 400));
    drop(first);

    // a leader dies during the migration: it has raised the schema number, which is the first step, and the next leader
    // continues
    let (second, fence) = lead(&store).await;
    let permit = fence.permit_record().unwrap();
    let note = migrate::Migration { from: 1, at: jiff::Timestamp::now(), by: who() };
    let raise = Change {
        puts: vec![put(&store.keys().schema(), &SCHEMA.to_string()), Put::json(store.keys().migration(), &note)],
        deletes: vec![store.keys().attempt(EntryId::reboot(4), 2)],
        ..Change::default()
    };
    store.commit(&permit, raise).await.unwrap();
    second.resign().await;
    let half = store.read_view().await.unwrap();
    assert!(half.migrating && migrate::needed(&half), "the next leader must continue the migration");

    let (_third, fence) = lead(&store).await;
    store.migrate(&fence, &who(), |why| panic!("{why}")).await;
    let (view, kept) = (store.read_view().await.unwrap(), attempts(&store).await);
    assert_eq!(view.schema.as_ref().and_then(Stored::get), Some(&SCHEMA));
    assert!(!migrate::needed(&view) && !view.migrating);
    assert_eq!(
        kept.keys().copied().collect::<Vec<_>>(),
        [1, 50, 150, 250, 350, 400],
        "the first and the newest attempts must be kept"
    );
    assert_eq!(kept[&400].folded, 400 - 6 - 1, "folded attempts must be counted, except those already deleted");
    assert_eq!(kept[&50], serde_json::from_str::<Attempt>(&failed(50)).unwrap(), "a kept attempt must not change");
    assert_eq!(view.attempts.len(), 8, "other entries and unreadable attempts must be kept");

    for index in [100, 199, 200, 349] {
        let text = etcd.value(&store.keys().history_of(EntryId::reboot(index)));
        let ending: Ending = serde_json::from_str(&text).unwrap();
        assert!(ending.end == EndKind::Booted && ending.good() && text.contains(r#""later":{"x":[1]}"#), "{text}");
    }
    assert_eq!(etcd.value(&store.keys().history_of(EntryId::reboot(350))), "{", "an unreadable record must be kept");

    // a repetition writes nothing
    let revision = view.revision;
    store.migrate(&fence, &who(), |why| panic!("{why}")).await;
    assert_eq!(store.read_view().await.unwrap().revision, revision, "a second migration must write nothing");
    let records = store.newest::<Audit>(&store.keys().audit_prefix(), 10).await.unwrap();
    let records: Vec<&Audit> = records.iter().filter_map(Stored::get).filter(|a| a.what == "migrate").collect();
    assert_eq!(records.iter().map(|a| a.result.as_str()).collect::<Vec<_>>(), ["done"]);
}

/// The author of an audit record decides its kind. An engine's migration and reported results count as the engine's,
/// although they are written in the way of a user's commands.
#[tokio::test(flavor = "multi_thread")]
async fn i48_an_audit_record_is_classified_by_its_author() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let engine = Who { user: "engine".to_owned(), host: "boot-0".to_owned(), ssh_client: None };
    write_records_of_0_1(&etcd, &store).await;
    let (_candidacy, fence) = lead(&store).await;
    store.migrate(&fence, &engine, |why| panic!("{why}")).await;
    let attempt = store.read_view().await.unwrap().attempts_of(EntryId::reboot(5)).next().unwrap().clone();
    let (label, outcome) = (attempt.get().unwrap().label("c1"), attempt.get().unwrap().outcome.clone().unwrap());
    let result = CommandResult { label, argv: "0".to_owned(), outcome };
    assert!(store.publish_result(&attempt, &result, &engine).await.unwrap());
    store.set_switch(SwitchName::Reboots, false, &person(), None).await.unwrap();
    let records = store.newest::<Audit>(&store.keys().audit_prefix(), 100).await.unwrap();
    let by_operator: BTreeMap<&str, bool> =
        records.iter().map(|s| (s.get().unwrap().what.as_str(), store.keys().is_person_audit(&s.key))).collect();
    assert_eq!(by_operator, BTreeMap::from([("migrate", false), ("report result", false), ("disable", true)]));
}

/// The schema number was manually set back, as the document describes, while the record of a migration existed.
#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_migration_is_repeated_after_the_schema_was_set_back() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    write_records_of_0_1(&etcd, &store).await;
    let note = migrate::Migration { from: 1, at: jiff::Timestamp::UNIX_EPOCH, by: who() };
    let note = serde_json::to_string(&note).unwrap();
    client(&etcd).await.put(store.keys().migration(), note.as_str(), None).await.unwrap();
    let (_candidacy, fence) = lead(&store).await;
    store.migrate(&fence, &who(), |why| panic!("{why}")).await;
    let view = store.read_view().await.unwrap();
    assert!(!migrate::needed(&view) && !view.migrating);
    assert_eq!((view.schema.as_ref().and_then(Stored::get), attempts(&store).await.len()), (Some(&SCHEMA), 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_records_of_0_1_nothing_is_migrated() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    assert_eq!(store.ensure_schema(&who()).await, Ok(SCHEMA));
    assert!(!migrate::needed(&store.read_view().await.unwrap()));
    let (_candidacy, fence) = lead(&store).await;
    let revision = store.read_view().await.unwrap().revision;
    store.migrate(&fence, &who(), |why| panic!("{why}")).await;
    // a newer schema is never changed
    etcd.ctl(&["put", &store.keys().schema(), "9"]);
    assert!(!migrate::needed(&store.read_view().await.unwrap()));
    store.migrate(&fence, &who(), |why| panic!("{why}")).await;
    assert_eq!(store.read_view().await.unwrap().revision, revision + 1, "only etcdctl may have written");
}

//! Histories of the store: pages of long folders, records to prune, enqueues of many entries, writers that meet, and the
//! records of version 0.1.

use cketerm_clients::store::{
    folders::{AuditRetention, FolderCursor},
    pages::Part,
    tail::Tailed,
};
use cketerm_model::{
    cketerm_records::{Audit, Ending},
    entry::EntryId,
    names::Address,
    stored::kind::Folder,
    time::after,
};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::faults::RequestFault;
use cketerm_scenario::{Links, backends};
use serde_json::{Value, json};

use super::{History, Play, block_on, features::SITE};

/// All of them.
pub const HISTORIES: &[History] = &[
    History { name: "pages", play: || block_on(pages()) },
    History { name: "migration", play: || block_on(migration()) },
    History { name: "lost-writes", play: || block_on(lost_writes()) },
    History { name: "writers", play: || block_on(writers()) },
];

fn audit(second: u64, user: &str) -> (String, String) {
    let nanoseconds = 1_790_000_000_000_000_000 + u128::from(second) * 1_000_000_000;
    let at = jiff::Timestamp::from_second(1_790_000_000 + i64::try_from(second).unwrap()).unwrap();
    let value = json!({"at": at, "who": {"user": user, "host": "h"}, "what": "add", "on": second.to_string(), "result": "done"});
    (format!("/cke/cketerm/audit/{nanoseconds:020}-{second:016x}"), value.to_string())
}

fn ending(index: u64, end: Option<&str>, outcome: &str) -> (String, String) {
    let at = jiff::Timestamp::from_second(1_790_000_000 + i64::try_from(index).unwrap()).unwrap();
    let mut value = json!({
        "entry": format!("reboots/{index}"), "address": "10.1.3.11", "outcome": outcome, "at": at,
        "request": Value::Null, "attempts": [], "omitted": 0,
    });
    if let Some(end) = end {
        value["end"] = json!(end);
    }
    (format!("/cke/cketerm/history/reboots-{index:016x}"), value.to_string())
}

/// Pages of the audit trail and of the history, with records whose writers' clocks are behind.
async fn pages() -> String {
    let play = Play::parse(SITE).await;
    play.until(2).await;
    play.stop(0).await;
    play.stop(1).await;
    let etcd = &play.stage.sandbox.etcd;
    for second in 0..260 {
        let (key, value) = audit(second, if second % 3 == 0 { "alice" } else { "engine" });
        etcd.put(key, value);
    }
    for index in 0..70 {
        let (key, value) = ending(index, Some("booted"), "booted");
        // every tenth cannot be read
        etcd.put(key, if index % 10 == 0 { value } else { value.replacen('{', "{\"last\":{},", 1) });
    }
    let (late, value) = audit(10_000, "alice");
    etcd.put(late.replace("17900", "17800"), value);
    let store = play.operator("alice").store;
    let names = |all: &[cketerm_model::entry::Stored<Audit>]| -> Vec<String> {
        all.iter().map(|stored| stored.get().map_or("?".to_owned(), |a| a.on.clone())).collect()
    };
    let revision = etcd.revision();
    for part in [Part::Newest, Part::Before(revision - 75), Part::After(revision - 100), Part::Before(0)] {
        for n in [1, 2, 5, 200] {
            let page = store.page::<Audit>(Folder::Audit, part, n).await.unwrap();
            let shown = (page.revision, names(&page.values), page.more);
            play.say(&format!("page {part:?} of {n}"), &shown);
        }
        let page = store.page::<Ending>(Folder::History, part, 3).await.unwrap();
        let shown: Vec<&String> = page.values.iter().map(|stored| &stored.key).collect();
        play.say(&format!("history {part:?}"), &(shown, page.more));
    }
    let keys: Vec<(i64, String)> =
        (20..26_u64).map(|second| (revision - second.cast_signed(), audit(second, "").0)).collect();
    for n in [2, 6, 9] {
        let page = store.page_of_keys::<Audit>(Folder::Audit, revision, &keys, n).await.unwrap();
        play.say(&format!("page of keys of {n}"), &(page.revision, names(&page.values), page.more));
    }
    let mut entries = store.ended_entries().await.unwrap();
    while let Some(batch) = store.next_ended(&mut entries).await.unwrap() {
        let (first, last) = (batch.first().map(|stored| &stored.key), batch.last().map(|stored| &stored.key));
        play.say("ended", &(batch.len(), first, last));
        let endings: Vec<&Ending> = batch.iter().filter_map(cketerm_model::entry::Stored::get).collect();
        for endings in [&endings[..endings.len().min(1)], &endings[..]] {
            play.say("audit of them", &store.audit_of(endings).await.unwrap().len());
        }
    }
    let folder = store.keys().audit_prefix();
    for n in [1, 3, 40] {
        play.say(&format!("newest {n}"), &names(&store.newest::<Audit>(&folder, n).await.unwrap()));
    }
    let from = audit(80, "").0;
    let (at, all) = store.newest_first_from::<Audit>(&folder, &from).await.unwrap();
    play.say("newest first from", &(at, names(&all)));
    let middle = jiff::Timestamp::from_second(1_790_000_030).unwrap();
    for (keep, before) in [(1000, middle), (60, middle), (1000, after(middle, -100))] {
        let mut walk = FolderCursor::default();
        for round in 0..3 {
            let found = store.outdated_history(keep, before, &mut walk).await.unwrap();
            play.say(&format!("outdated {keep} {round}"), &(found.len(), found.first(), found.last()));
        }
    }
    for (engine, people) in [(1000, 1000), (50, 1000), (1000, 20), (0, 0)] {
        let mut walk = FolderCursor::default();
        let found = store.outdated_audit(AuditRetention { engine, people }, middle, &mut walk).await.unwrap();
        play.say(&format!("outdated audit {engine} {people}"), &(found.len(), found.first(), found.last()));
    }
    for after in [revision - 40, revision - 4, revision] {
        let endings = store.endings_after(after, 3).await.unwrap();
        play.say("endings after", &(endings.list.len(), endings.more, endings.revision));
    }
    let old = revision - 200;
    let _ = etcd.compact(revision - 74);
    let mut seen = Vec::new();
    let _: Result<(), ()> = store
        .tail::<Audit, ()>(&folder, old, |item| {
            seen.push(match item {
                Tailed::Value(stored) => stored.key,
                Tailed::Trouble(why) => why,
            });
            if seen.len() < 3 { Ok(()) } else { Err(()) }
        })
        .await;
    play.say("tail after a compaction", &seen);
    let mut seen = Vec::new();
    let _: Result<(), ()> = store
        .tail::<Audit, ()>(&folder, revision - 75, |item| {
            seen.push(match item {
                Tailed::Value(stored) => stored.key,
                Tailed::Trouble(why) => why,
            });
            if seen.len() < 5 { Ok(()) } else { Err(()) }
        })
        .await;
    play.say("tail", &seen);
    play.history()
}

/// Records of version 0.1: many withheld attempts, and ends that are known from their text alone.
async fn migration() -> String {
    let play = Play::parse(SITE).await;
    play.until(2).await;
    play.stop(0).await;
    play.stop(1).await;
    let etcd = &play.stage.sandbox.etcd;
    for index in 0..70 {
        let outcome =
            ["booted", "failed: exit code 3", "cancelled", "something else"][usize::try_from(index % 4).unwrap()];
        let (key, value) = ending(index, None, outcome);
        etcd.put(key, value);
    }
    for number in 1..=70 {
        let attempt = json!({
            "id": format!("reboots-5-{number}"), "entry": "reboots/5", "number": number, "address": "10.1.3.11", "node": "w1",
            "control_plane": false, "lease": 7, "host": "old", "argv": ["x"], "bound_seconds": 15,
            "start": "2026-09-30T12:00:00Z", "end": "2026-09-30T12:00:00Z",
            "outcome": {"end": "withheld", "why": "outside the windows"},
        });
        etcd.put(format!("/cke/cketerm/attempts/reboots/5/{number}"), attempt.to_string());
    }
    etcd.put("/cke/cketerm/schema", "1");
    play.start(0).await;
    play.until(60).await;
    play.history()
}

/// Answers to an operator's writes get lost, or the writes arrive twice.
async fn lost_writes() -> String {
    let play = Play::parse(SITE).await;
    play.until(2).await;
    let links = Links::new("laptop", &Gate::default(), 1);
    let mut operator = play.operator("alice");
    operator.store = backends(&play.stage.sandbox, "laptop", play.clock.clone(), &links).store;
    let machines = play.addresses(&["w1", "w2", "w3"]);
    let faults = [RequestFault::LoseReply, RequestFault::LoseRequest, RequestFault::DropReply, RequestFault::Duplicate];
    for fault in faults {
        links.etcd.next("Txn", fault);
        play.say(&format!("add {}", fault.as_str()), &operator.add_reboots(&machines[..1], Some("kernel")).await);
        links.etcd.next("Txn", fault);
        play.say(
            &format!("policy {}", fault.as_str()),
            &operator.set_policy("stuck_seconds", "70", None).await.map(drop),
        );
        links.etcd.next("Txn", fault);
        play.say(&format!("cancel all {}", fault.as_str()), &operator.cancel_all_reboots(None).await);
        links.etcd.next("Txn", fault);
        let until = after(play.clock.wall(), 300);
        play.say(
            &format!("maintain {}", fault.as_str()),
            &operator.add_maintenance(&machines[1..2], until, Some("x")).await,
        );
        play.say("release", &operator.release_maintenance(&["w2".to_owned()], None).await);
        play.until(play.seconds() + 20).await;
    }
    play.history()
}

/// Writers that meet: two large enqueues, a cancel between, and repairs.
async fn writers() -> String {
    let play = Play::parse(SITE).await;
    let (alice, bob) = (play.operator("alice"), play.operator("bob"));
    alice.set_switch(cketerm_model::stored::keys::SwitchName::Reboots, false, None).await.unwrap();
    let machines = play.addresses(&["w1", "w2", "w3"]);
    let many: Vec<Address> = machines.iter().cycle().take(34).cloned().collect();
    let (first, second, third) = tokio::join!(
        alice.add_reboots(&many, Some("first")),
        bob.add_reboots(&many, Some("second")),
        bob.cancel_all_reboots(Some("stop")),
    );
    for (who, added) in [("alice", first), ("bob", second)] {
        play.say(who, &added.map(|a| (a.indexes.first().copied(), a.indexes.last().copied(), a.batch)));
    }
    play.say("cancel", &third.map(|all| all.len()));
    play.until(10).await;
    let etcd = &play.stage.sandbox.etcd;
    etcd.put("/cke/reboots/data/00000000000000f0", "{");
    let id = EntryId::reboot(240);
    let unreadable = alice.store.unreadable(id).await.unwrap();
    play.say("unreadable", &unreadable.as_ref().map(|u| u.why.clone()));
    let revision = unreadable.map_or(0, |u| u.revision);
    play.say("remove an older one", &alice.store.remove_unreadable(id, revision - 1, &alice.person, None).await);
    play.say("remove", &alice.store.remove_unreadable(id, revision, &alice.person, Some("broken")).await);
    play.say("cancel all", &alice.cancel_all_reboots(None).await.map(|all| all.len()));
    play.until(40).await;
    play.history()
}

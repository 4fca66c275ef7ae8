//! Arbitrary values in etcd: they are read, shown as broken, and decided on. Valid values beside them are still read,
//! and a pass always ends.

use std::sync::Arc;

use cketerm_fuzz::{Fuzz, Took, Tried};
use cketerm_model::{
    attempt::CheckAnswer,
    cketerm_records::{Audit, Ending},
    clock::Now,
    entry::EntryId,
    names::Address,
    reboot::{RebootEntry, RebootStatus},
    record::Record,
    repair::RepairEntry,
    stored::{
        keys::{Folder, Keys},
        row::Row,
        view::StoreView,
    },
};
use serde::Serialize;
use serde_json::{Value, json};

use super::scene::{BOOT, Scene, now};
use crate::{decide::decide, snapshot::Snapshot, state::State};

/// A scene with entries, orders and attempts of every kind.
fn scene() -> Scene {
    Scene::repairing(8)
        .draining(1, 11, 100)
        .rebooting(2, 12, 60, None)
        .entry(3, 13, RebootStatus::Queued, 0)
        .entry(4, 1, RebootStatus::Queued, 0)
        .pod(11, "web", |_| {})
        .budget("web", "web")
        .checked(2, CheckAnswer::No("false".to_owned()), None)
        .repair(1, 15, "two")
        .order(1, cketerm_model::cketerm_records::Verb::Hold, 10)
        .with(|s| s.snap.engine.lease = super::scene::LEASE)
}

fn text(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap()
}

/// Stores the value under that key beside a valid one, and decides on the result.
fn put(scene: &Scene, key: &str, bytes: &[u8]) -> Tried {
    let keys = Keys::new("/cke/");
    let mut snapshot: Snapshot = scene.snapshot();
    let mut store = StoreView::clone(&snapshot.store);
    let mut row = Row::new(&format!("/cke/{key}"), "", 45, 45);
    row.value = bytes.to_vec();
    store.put(&keys, &row);
    let neighbour = text(RebootEntry::queued(77, &Address::new("10.0.0.18")));
    store.put(&keys, &Row::new("/cke/reboots/data/000000000000004d", &neighbour, 46, 46));
    if store.reboots.entries.get(&77).and_then(|entry| entry.get()).is_none() {
        return Err("the neighbouring entry is not read".to_owned());
    }
    let refused = store.broken.get(&format!("/cke/{key}")).cloned();
    if let Some(why) = &refused
        && !why.contains(&format!("/cke/{key}"))
    {
        return Err(format!("the error does not name its key: {why}"));
    }
    store.revision = 50;
    snapshot.store = Arc::new(store);
    let decision = decide(&snapshot, Now { boot: BOOT, wall: now() });
    // Every entry has a reason, whatever is stored beside it (I32).
    for index in snapshot.store.reboots.entries.keys() {
        let id = EntryId::reboot(*index);
        if !decision.reasons.contains_key(&id) && !decision.effects.iter().any(|p| p.entry == Some(id)) {
            return Err(format!("{id} has no reason"));
        }
    }
    // The snapshot can be written and read back.
    let seen = serde_json::to_string(&snapshot).map_err(|e| format!("the snapshot cannot be written: {e}"))?;
    serde_json::from_str::<Snapshot>(&seen).map_err(|e| format!("the snapshot cannot be read back: {e}"))?;
    Ok(if refused.is_none() { Took::Accepted } else { Took::Refused })
}

/// Unknown fields of an object survive reading and writing.
fn unknown_survive<T: serde::de::DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<(), String> {
    let Ok(Value::Object(before)) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return Ok(()) };
    let after = serde_json::to_value(read).map_err(|e| e.to_string())?;
    match before.iter().find(|(name, value)| name.starts_with("x-") && after.get(name.as_str()) != Some(*value)) {
        Some((name, value)) => Err(format!("{name}: {value} is lost: {after}")),
        None => Ok(()),
    }
}

#[test]
fn fuzzed_queue_entries_never_panic_or_hide_other_entries() {
    let scene = scene();
    let held = scene.snapshot();
    let reboot = held.store.reboots.entries[&2].get().unwrap().clone();
    let own = [
        text(&reboot),
        text(RebootEntry { drain_backoff_count: 3, drain_backoff_expire: Some(now()), ..RebootEntry::queued(2, &Address::new("10.0.0.12")) }),
        r#"{"index":"2","node":"10.0.0.12","status":"queued","last_transition_time":"0001-01-01T00:00:00Z","x-later":{"a":[1]}}"#
            .to_owned(),
    ];
    Fuzz::new("reboot-entry", 500).seeds(own).run(|bytes| {
        unknown_survive::<RebootEntry>(bytes)?;
        put(&scene, "reboots/data/0000000000000002", bytes)
    });
    let repair = held.store.repairs.entries[&1].get().unwrap().clone();
    let stepped = json!({"index": "1", "address": "10.0.0.15", "machine_type": "t", "operation": "two", "serial": "s",
        "status": "processing", "step": 1, "step_status": "watching", "last_transition_time": "2026-08-01T11:59:00Z",
        "drain_backoff_count": 0, "drain_backoff_expire": "0001-01-01T00:00:00Z", "x-later": 1});
    Fuzz::new("repair-entry", 500).seeds([text(&repair), stepped.to_string()]).run(|bytes| {
        unknown_survive::<RepairEntry>(bytes)?;
        put(&scene, "repairs/data/0000000000000001", bytes)
    });
}

#[test]
fn fuzzed_cketerm_records_never_panic_or_hide_other_entries() {
    let scene = scene();
    let held = scene.snapshot();
    let store = &held.store;
    let attempt = store.attempts[&(EntryId::reboot(2), 1)].get().unwrap().clone();
    let outcome = json!({"end": {"exit": 1}, "at": "2026-08-01T11:59:30Z", "stdout": "x", "stderr": "y"});
    let ended = {
        let mut value = serde_json::to_value(&attempt).unwrap();
        value["outcome"] = outcome;
        value.to_string()
    };
    let order = store.orders[&EntryId::reboot(1)].get().unwrap().clone();
    let who = json!({"user": "ann", "host": "h"});
    let cases: Vec<(&str, &str, Vec<String>)> = vec![
        ("attempt", "cketerm/attempts/reboots/2/1", vec![text(&attempt), ended]),
        ("order", "cketerm/orders/reboots/1", vec![text(&order), text(&order).replace("hold", "force")]),
        (
            "request",
            "cketerm/requests/reboots/3",
            vec![json!({"who": who, "at": "2026-08-01T11:00:00Z", "reason": "T-1", "node_uid": "uid-10.0.0.13"}).to_string()],
        ),
        (
            "progress",
            "cketerm/progress/reboots/1",
            vec![json!({"phase": "waiting for pods", "since": "2026-08-01T11:58:00Z", "pods_at_start": 3, "pods_gone": 1,
                "reason": {"reason": "QueueDisabled"}, "blockers": [{"pod": "shop/web", "why": {"kind": "leaving"}}],
                "next": "2026-08-01T12:05:00Z", "step": [1, 2]}).to_string()],
        ),
        (
            "engine",
            "cketerm/engines/7",
            vec![json!({"host": "h", "pid": 1, "version": "0.1.0", "mode": "daemon", "missing_programs": [], "probes_seen": true})
                .to_string()],
        ),
        ("candidate", "leader//7", vec!["host".to_owned()]),
        ("index", "reboots/write-index", vec!["78".to_owned(), "18446744073709551615".to_owned()]),
        ("switch", "reboots/disabled", vec!["true".to_owned(), "false".to_owned()]),
        ("running", "reboots/running", vec!["true".to_owned()]),
        ("approval", "cketerm/approvals/abc", vec![json!({"who": who, "at": "2026-08-01T11:00:00Z", "until": "2026-08-01T12:30:00Z"}).to_string()]),
        (
            "needed",
            "cketerm/needed/10.0.0.11",
            vec![json!({"signals": [{"cause": "kernel", "since": "2026-08-01T11:00:00Z", "boot_id": "before"}],
                "queued": {"index": 1, "boot_id": "before", "at": "2026-08-01T11:00:00Z"},
                "rebooted": {"boot_id": "after", "at": "2026-08-01T11:00:00Z"}}).to_string()],
        ),
        ("needed-log", "cketerm/needed-log", vec![json!({"queued": ["2026-08-01T11:00:00Z"]}).to_string()]),
        (
            "outcome",
            "cketerm/outcomes/0000000000000001",
            vec![json!({"address": "10.0.0.11", "at": "2026-08-01T11:00:00Z", "bad": "late", "batch": "6fy2jg00"}).to_string()],
        ),
        (
            "breaker-reset",
            "cketerm/breaker-reset",
            vec![json!({"who": who, "at": "2026-08-01T11:00:00Z", "forgiven": ["reboots/1"]}).to_string()],
        ),
        ("generated", "cketerm/generated", vec![json!({"at": "2026-08-01T11:00:00Z", "action": "taint-nodes", "reason": "x", "joining": ["10.0.0.1"]})
                .to_string()]),
    ];
    for (name, key, seeds) in cases {
        let name: &'static str = Box::leak(format!("etcd-{name}").into_boxed_str());
        Fuzz::new(name, 150).seeds(seeds).run(|bytes| put(&scene, key, bytes));
    }
}

#[test]
fn fuzzed_settings_never_panic_or_hide_other_entries() {
    let scene = scene();
    let held = scene.snapshot();
    let cluster = text(&held.store.cluster.as_ref().unwrap().get().unwrap().cluster);
    let policy = json!({"engine": "cketerm", "settle_seconds": 60, "control_plane_probe": "https://{address}:6443/readyz",
        "worker_completion": "boot_id", "command_cap_seconds": 3600, "x-later": {"a": 1},
        "windows": {"time_zone": "Asia/Tokyo", "allow": ["* 0-23 * * *"], "deny": ["* * 31 12 *"], "margin_seconds": 60,
            "machines": [{"name": "own", "rack": "1", "allow": ["* * * * mon"]}]},
        "freeze": {"until": "2026-08-01T13:00:00Z", "reason": "audit", "who": {"user": "ann", "host": "h"}},
        "groups": {"by": "rack", "limit": 1}});
    let constraints = json!({"control-plane-count": 3, "minimum-workers-rate": 80, "minimum-workers": 5, "maximum-workers": 9,
        "maximum-unreachable-nodes-for-reboot": 1, "maximum-repair-queue-entries": 3,
        "wait-seconds-to-repair-rebooting": 300, "x-later": true});
    for (name, key, seeds) in [
        ("etcd-cluster", "cluster", vec![cluster]),
        ("etcd-policy", "cketerm/policy", vec![policy.to_string(), policy.to_string()]),
        ("etcd-constraints", "constraints", vec![constraints.to_string()]),
        ("etcd-own-constraints", "cketerm/constraints", vec![constraints.to_string()]),
        (
            "etcd-identity",
            "cketerm/identity",
            vec![
                json!({"uid": "u", "confirmed_by": {"user": "ann", "host": "h"}, "at": "2026-08-01T11:00:00Z"})
                    .to_string(),
            ],
        ),
        ("etcd-schema", "cketerm/schema", vec!["1".to_owned()]),
        ("etcd-status", "status", vec![json!({"phase": "completed", "timestamp": "2026-08-01T11:00:00Z"}).to_string()]),
        ("etcd-template", "sabakan/template", vec![json!({"name": "t", "nodes": []}).to_string()]),
    ] {
        Fuzz::new(name, 250).seeds(seeds).run(|bytes| {
            match name {
                "etcd-policy" => unknown_survive::<cketerm_model::policy::Policy>(bytes)?,
                "etcd-constraints" => unknown_survive::<cketerm_model::constraints::Constraints>(bytes)?,
                _ => {}
            }
            put(&scene, key, bytes)
        });
    }
}

#[test]
fn fuzzed_history_records_are_parsed_or_refused() {
    let who = json!({"user": "ann", "host": "h", "ssh_client": "192.0.2.1"});
    let attempt = text(scene().snapshot().store.attempts[&(EntryId::reboot(2), 1)].get().unwrap());
    let attempt: Value = serde_json::from_str(&attempt).unwrap();
    let ending = json!({"entry": "reboots/1", "address": "10.0.0.11", "end": "booted", "outcome": "booted", "at": "2026-08-01T11:00:00Z", "last": {},
        "request": {"who": who, "at": "2026-08-01T10:00:00Z", "reason": "x"}, "attempts": [attempt]});
    let audit = json!({"at": "2026-08-01T11:00:00Z", "who": who, "what": "power", "on": "reboots/1", "reason": "x", "result": "done"});
    Fuzz::new("history", 300).seeds([ending.to_string()]).run(|bytes| {
        let read = serde_json::from_slice::<Ending>(bytes);
        if let Ok(ending) = &read {
            let audit: Audit = serde_json::from_value(audit.clone()).unwrap();
            let _ = (ending.timeline(&[&audit]), ending.good(), ending.lifetime());
        }
        let mut recent = cketerm_model::stored::recent::RecentRecords::after_revision(1);
        recent.record_value(Folder::History, 5, bytes);
        Ok(Took::of(&read))
    });
    Fuzz::new("audit", 300).seeds([audit.to_string()]).run(|bytes| {
        let mut recent = cketerm_model::stored::recent::RecentRecords::after_revision(1);
        recent.record_value(Folder::Audit, 5, bytes);
        Ok(Took::of(&serde_json::from_slice::<Audit>(bytes)))
    });
    let record = Record::completed(1, "reboot", &Address::new("10.0.0.1"), "", now(), now());
    Fuzz::new("record", 300).seeds([text(&record)]).run(|bytes| {
        unknown_survive::<Record>(bytes)?;
        Ok(Took::of(&serde_json::from_slice::<Record>(bytes)))
    });
}

/// `decide --from`: a document from somebody else.
#[test]
fn fuzzed_state_files_are_parsed_or_refused() {
    let state = json!({"cketerm_state": 1, "version": env!("CARGO_PKG_VERSION"),
        "now": Now { boot: BOOT, wall: now() }, "snapshot": scene().snapshot()});
    Fuzz::new("state", 120).seeds([state.to_string()]).run(|bytes| {
        let read = State::read(&String::from_utf8_lossy(bytes));
        match read {
            Ok(state) => {
                let _ = state.decide();
                let _ = state.decide_as_leader();
                Ok(Took::Accepted)
            }
            Err(why) if why.to_string().is_empty() => Err("refused without a message".to_owned()),
            Err(_) => Ok(Took::Refused),
        }
    });
}

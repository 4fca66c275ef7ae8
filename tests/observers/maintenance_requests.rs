//! `MaintenanceRequest`s (I74).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    record::{Breach, KeyChange},
    view::View,
};

/// User in whose name the leader queues; the name of the object follows.
pub(super) const USER: &str = "maintenancerequest/";

/// I74: each Node of a request gets at most one entry (judged where each object has a name of its own), and the record of
/// a deleted one says so only once all of its entries are withdrawn or gone, in that very revision.
pub fn i74(view: &View<'_>) -> Vec<Breach> {
    let keys = &view.record.keys;
    let mut found = twice(keys);
    for change in keys.iter().filter(|change| change.key.starts_with("cketerm/maintenance-requests/")) {
        let Some(record) = json(change) else { continue };
        if record["ended"]["cause"] != "Deleted" {
            continue;
        }
        for key in entries(&record) {
            if is_open(keys, &key, change.revision) {
                let what = format!("{} is recorded as deleted, and {key} goes on", record["name"]);
                found.push(Breach { code: "I74", at: change.at, what });
            }
        }
    }
    found
}

fn twice(keys: &[KeyChange]) -> Vec<Breach> {
    let mut entries_of: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for change in keys.iter().filter(|change| change.key.starts_with("cketerm/requests/")) {
        let Some(request) = json(change) else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (user, uid) = (text(&request["who"]["user"]), text(&request["node_uid"]));
        if !user.starts_with(USER) {
            continue;
        }
        let entries = entries_of.entry((user.clone(), uid.clone())).or_default();
        if entries.insert(&change.key) && entries.len() > 1 {
            let what = format!("{user} queued {} entries for the Node {uid}", entries.len());
            found.push(Breach { code: "I74", at: change.at, what });
        }
    }
    found
}

fn json(change: &KeyChange) -> Option<Value> {
    serde_json::from_slice(change.value.as_deref()?).ok()
}

/// Returns the keys of the entries of a record.
fn entries(record: &Value) -> Vec<String> {
    let folder = if record["action"] == "Keep" { "cketerm/maintenance" } else { "reboots" };
    let nodes = record["nodes"].as_array().into_iter().flatten();
    nodes.filter_map(|node| Some(format!("{folder}/data/{:016x}", node["index"].as_u64()?))).collect()
}

/// Reports whether an entry exists at this revision and nobody has withdrawn it.
fn is_open(keys: &[KeyChange], key: &str, revision: i64) -> bool {
    let last = keys.iter().rev().find(|change| change.key == key && change.revision <= revision);
    let entry = last.and_then(json);
    entry.is_some_and(|entry| entry["released"].is_null() && entry["status"] != "cancelled")
}

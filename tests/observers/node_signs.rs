//! Conditions on Nodes and the taint of planned reboots (I67, I68), for entries of the reboot queue.

use std::collections::HashMap;

use cketerm_model::reboot::RebootStatus;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    record::{ApiRequest, Breach},
    view::{View, is_engine, shift, status},
};

/// Key of the taint.
const TAINT: &str = "cketerm.io/reboot-planned";
/// Time at the end of a record in which everything was removed that no entry justifies: a change is tried again after
/// at most 256 s.
const CLEARED_WITHIN: f64 = 300.0;
/// The conditions of the life cycle.
const TYPES: [&str; 4] = ["MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress"];

/// A change of a Node's status by an engine: the request, the Node's name, and the Node before and after.
type StatusWrite<'a> = (&'a ApiRequest, &'a str, &'a Value, &'a Value);

fn condition<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)
}

fn is_own(condition: &Value) -> bool {
    condition["reason"].as_str().is_some_and(|reason| matches!(reason, "CketermReboot" | "CketermRepair"))
}

fn is_taint(taint: &Value) -> bool {
    taint["key"] == TAINT && taint["effect"] == "PreferNoSchedule"
}

fn has_taint(node: &Value) -> bool {
    node["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(is_taint))
}

fn status_writes<'a>(view: &'a View<'_>) -> Vec<StatusWrite<'a>> {
    let nodes = view.record.objects.iter().filter(|change| change.resource == "nodes");
    let by_version: HashMap<(&str, &str), (&Value, &Value)> = nodes
        .filter_map(|change| {
            let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
            Some(((change.name.as_str(), before["metadata"]["resourceVersion"].as_str()?), (before, after)))
        })
        .collect();
    let requests =
        view.record.api_requests.iter().filter(|request| {
            is_engine(&request.by) && request.method == "PATCH" && (200..300).contains(&request.code)
        });
    requests
        .filter_map(|request| {
            let name = request.path.strip_prefix("/api/v1/nodes/")?.strip_suffix("/status")?;
            let version = request.body["metadata"]["resourceVersion"].as_str()?;
            let (before, after) = by_version.get(&(name, version))?;
            Some((request, name, *before, *after))
        })
        .collect()
}

/// Reports whether an entry for the Node had one of these states at some time in this period.
fn had_entry(view: &View<'_>, node: &str, from: Timestamp, to: Timestamp, states: &[RebootStatus]) -> bool {
    let Some(line) = view.nodes.get(node) else { return false };
    view.entries.values().any(|entry| {
        entry.sometime(from, to, |stored| {
            let (Some(Ok(entry)), Some(state)) = (stored, status(stored)) else { return false };
            let is_for = |known: Option<&super::view::Node>| {
                known.is_some_and(|known| known.addresses.contains(&entry.node.to_string()))
            };
            states.contains(&state) && line.sometime(from, to, is_for)
        })
    })
}

/// Names of Nodes that carry something at the end of a calm record although no entry was for them for long.
fn left<'a>(view: &'a View<'_>, carries: impl Fn(&Value) -> bool) -> Vec<&'a str> {
    let from = shift(view.record.end, -CLEARED_WITHIN);
    if view.record.calm_since.is_none_or(|calm| from < calm) || !view.led_until_end(shift(from, -30.0)) {
        return Vec::new();
    }
    let mut last: HashMap<&str, Option<&Value>> = HashMap::new();
    for change in view.record.objects.iter().filter(|change| change.resource == "nodes") {
        last.insert(&change.name, change.after.as_ref());
    }
    let all = [RebootStatus::Queued, RebootStatus::Draining, RebootStatus::Rebooting];
    let has_repair = || {
        let lines = view.repairs.values();
        lines.into_iter().any(|line| {
            line.last().is_some_and(|entry| entry.as_ref().is_ok_and(cketerm_model::repair::RepairEntry::unfinished))
        })
    };
    let mut names: Vec<&str> = last
        .into_iter()
        .filter(|(_, node)| node.is_some_and(&carries))
        .map(|(name, _)| name)
        .filter(|name| !had_entry(view, name, from, view.record.end, &all) && !has_repair())
        .collect();
    names.sort_unstable();
    names
}

/// I67, at each patch of a Node's status by an engine: no condition of another program changed. A condition for a reboot
/// that begins had an entry in that state when the engine decided. At the end of a calm record: no condition is left on
/// an uncordoned Node for which no entry has been for long.
///
/// Not covered: conditions of repairs.
pub fn i67(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for (request, name, before, after) in status_writes(view) {
        let mut breach = |what: String| found.push(Breach { code: "I67", at: request.at, what });
        let all = before["status"]["conditions"].as_array().into_iter().flatten();
        for old in all.filter(|old| !is_own(old)) {
            let kind = old["type"].as_str().unwrap_or_default();
            if condition(after, kind) != Some(old) {
                breach(format!("{} changes the condition {kind} of another program on node {name}", request.by));
            }
        }
        let from = view.back(&request.by, request.at, view.max_kube_delay());
        for kind in TYPES {
            let new = condition(after, kind).filter(|new| new["reason"] == "CketermReboot");
            if new.is_none() || condition(before, kind).is_some() {
                continue;
            }
            let states: &[RebootStatus] = match kind {
                "MaintenancePlanned" => &[RebootStatus::Queued],
                "DrainInProgress" => &[RebootStatus::Draining],
                // a command outlives its entry
                _ => continue,
            };
            if !had_entry(view, name, from, request.at, states) {
                breach(format!("{} sets {kind} on node {name} without such an entry", request.by));
            }
        }
    }
    // A Node that stays cordoned, because its machine has not recovered, keeps its conditions.
    let is_cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
    let carries =
        |node: &Value| !is_cordoned(node) && TYPES.iter().any(|kind| condition(node, kind).is_some_and(is_own));
    for name in left(view, carries) {
        let what = format!("node {name} keeps a condition although no entry is for it");
        found.push(Breach { code: "I67", at: view.record.end, what });
    }
    found
}

/// I68, at each patch of a Node by an engine that adds the taint of planned reboots: an entry for the Node was queued
/// when the engine decided. (I11 judges the taints of other programs.) At the end of a calm record: no Node has the taint
/// without an entry.
pub fn i68(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for write in view.node_writes.iter().filter(|write| write.engine) {
        if has_taint(write.raw.0) || !has_taint(write.raw.1) {
            continue;
        }
        let from = view.back(&write.request.by, write.request.at, view.max_kube_delay());
        if !had_entry(view, &write.name, from, write.request.at, &[RebootStatus::Queued]) {
            let what = format!("{} taints node {} without a queued reboot", write.request.by, write.name);
            found.push(Breach { code: "I68", at: write.request.at, what });
        }
    }
    for name in left(view, has_taint) {
        let what = format!("node {name} keeps the taint of planned reboots although no entry is for it");
        found.push(Breach { code: "I68", at: view.record.end, what });
    }
    found
}

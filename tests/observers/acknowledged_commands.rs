//! Acknowledged commands of people and their effects (I27 to I29).

use std::collections::BTreeSet;

use cketerm_model::{cketerm_records::Verb, reboot::RebootStatus};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    maintenance, power_log, reboot_needed,
    record::{Acknowledged, AcknowledgedCommand, Breach},
    repair,
    view::{EntryChange, View, in_progress, member, shift, status},
};

/// Fields of an entry that CKE knows; all others survive every rewrite.
const KNOWN_FIELDS: [&str; 6] =
    ["index", "node", "status", "last_transition_time", "drain_backoff_count", "drain_backoff_expire"];

/// I27: after `cancelled` an entry's key is only ever deleted, as far as cketerm's programs write it (CKE's read and
/// overwrite). No power command begins for it later than a command may be late after its transaction.
///
/// No eviction or deletion of a pod is sent to a Node unless one of its entries has been `draining` within the time
/// that copies lag and requests are late. A hold is removed by a person, or with its entry.
pub fn i27(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for step in view.entry_changes() {
        let Some(now) = status(step.after).filter(|_| status(step.before) == Some(RebootStatus::Cancelled)) else {
            continue;
        };
        if now != RebootStatus::Cancelled && by_cketerm(view, &step) {
            let what = format!("reboots/{} was cancelled and then became {now}", step.index);
            found.push(Breach { code: "I27", at: step.at, what });
        }
    }
    for (index, line) in &view.orders {
        for pair in line.steps().windows(2) {
            let held = pair[0].value.as_ref().is_some_and(|o| o.verb == Verb::Hold);
            let there = view.entry(*index, pair[1].revision).is_some();
            if held && there && pair[1].value.is_none() && view.written_by_engine(pair[1].revision) {
                let what = format!("an engine released reboots/{index} from hold");
                found.push(Breach { code: "I27", at: pair[1].at, what });
            }
        }
    }
    for (index, power) in power_log::begins(view) {
        let Some(line) = view.entries.get(&index) else { continue };
        let from = shift(power.at, -view.late());
        if line.throughout(from, power.at, |stored| status(stored) == Some(RebootStatus::Cancelled) || stored.is_none())
        {
            let what = format!("a power command begins for {}, long after it was cancelled or deleted", power.entry);
            found.push(Breach { code: "I27", at: power.at, what });
        }
    }
    for w in view.pod_writes.iter().filter(|w| !w.dry_run) {
        let (from, to) = (view.back(&w.request.by, w.request.at, view.lag() + view.max_kube_delay()), w.request.at);
        let Some(name) = w.node.as_deref() else { continue };
        let addresses = addresses(view, name, from, to);
        let drains = view.entries.values().any(|line| {
            line.sometime(from, to, |stored| {
                let of = |e: &cketerm_model::reboot::RebootEntry| addresses.contains(e.node.as_str());
                in_progress(stored) && stored.is_some_and(|l| l.as_ref().is_ok_and(of))
            })
        });
        let repaired = repair::held(view, |a| addresses.contains(a), from, to);
        let maintained = maintenance::held(view, |a| addresses.contains(a), from, to);
        if !drains && !repaired && !maintained {
            let what = format!("{} {} on node {name}, which no entry drains", w.request.method, w.pod);
            found.push(Breach { code: "I27", at: to, what });
        }
    }
    found
}

/// Addresses under which a Node was a member.
fn addresses<'v>(view: &'v View<'_>, name: &str, from: Timestamp, to: Timestamp) -> BTreeSet<&'v str> {
    let steps = view.clusters.steps().iter().filter(|s| s.at <= to);
    let clusters = steps.rev().scan(false, |over, s| {
        let now = !std::mem::replace(over, s.at < from);
        now.then_some(s)
    });
    let members = clusters.filter_map(|s| s.value.as_ref()).flat_map(|c| &c.nodes);
    members.filter(|m| m.node_name() == name).map(|m| m.address.as_str()).collect()
}

/// Reports whether a program of cketerm wrote this: an engine, or a known program that does not imitate CKE or
/// `ckecli`.
fn by_cketerm(view: &View<'_>, step: &EntryChange<'_>) -> bool {
    step.engine
        || match view.txn(step.revision) {
            Some(txn) => !txn.by.contains("cke") || txn.by.contains("cketerm"),
            None => view.record.txns.is_empty(),
        }
}

/// I28: an acknowledged change is in etcd at some moment between the request and the acknowledgement, or was so
/// already. That holds for added entries with their addresses, cancelled entries (or their deletion), counts of zero,
/// the switch's value and the order.
///
/// And it is not lost: no engine deletes an entry of a member that was neither cancelled nor `rebooting`, or starts one
/// that has been on hold for longer than copies lag.
pub fn i28(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for acknowledged in &view.record.acknowledged {
        if let Some(what) = missing_change(view, acknowledged) {
            found.push(Breach {
                code: "I28",
                at: acknowledged.at,
                what: format!("acknowledged to {}: {what}", acknowledged.by),
            });
        }
    }
    for step in view.entry_changes().iter().filter(|m| m.engine) {
        let lost =
            step.after.is_none() && matches!(status(step.before), Some(RebootStatus::Queued | RebootStatus::Draining));
        let Some(Ok(entry)) = step.before else { continue };
        if lost && view.clusters.get(step.revision).is_some_and(|c| member(c, &entry.node).is_some()) {
            let what =
                format!("reboots/{} of {} was {} and is deleted by an engine", step.index, entry.node, entry.status);
            found.push(Breach { code: "I28", at: step.at, what });
        }
        if step.starts() && super::queue::is_on_hold(view, step.index, view.seen_since(step.revision, step.at), step.at)
        {
            let what = format!("reboots/{} starts although it is on hold", step.index);
            found.push(Breach { code: "I28", at: step.at, what });
        }
    }
    found
}

/// Acknowledged change that cannot be found in etcd.
pub fn missing_change(view: &View<'_>, acknowledged: &Acknowledged) -> Option<String> {
    let (from, to) = (acknowledged.requested, acknowledged.at);
    let entry = |index: &u64| view.entries.get(index);
    match &acknowledged.command {
        AcknowledgedCommand::Add(added) => added.iter().find_map(|(index, address)| {
            let there = entry(index).is_some_and(|line| {
                line.sometime(from, to, |l| l.is_some_and(|l| l.as_ref().is_ok_and(|e| e.node == (*address).as_str())))
            });
            (!there).then(|| format!("reboots/{index} of {address} was never stored"))
        }),
        AcknowledgedCommand::Cancel(index) => not_cancelled(view, *index, from, to),
        AcknowledgedCommand::CancelAll(all) => all.iter().find_map(|index| not_cancelled(view, *index, from, to)),
        AcknowledgedCommand::ResetBackoff(all) => all.iter().find_map(|index| {
            let reset = entry(index).is_some_and(|line| {
                line.sometime(from, to, |l| match l {
                    Some(Ok(e)) => e.drain_backoff_count == 0 && e.drain_backoff_expire.is_none(),
                    _ => true,
                })
            });
            (!reset).then(|| format!("the backoff of reboots/{index} was never reset"))
        }),
        AcknowledgedCommand::Switch(enabled) => {
            let now = view.switch.sometime(from, to, |raw| (raw.map(Vec::as_slice) != Some(b"true")) == *enabled);
            (!now).then(|| format!("the queue was never {}", if *enabled { "enabled" } else { "disabled" }))
        }
        AcknowledgedCommand::Order(index, verb) => {
            let orders = view.orders.get(index);
            let there = if verb == "unhold" {
                orders.is_none_or(|o| o.sometime(from, to, |o| o.is_none_or(|o| o.verb != Verb::Hold)))
            } else {
                orders.is_some_and(|o| o.sometime(from, to, |o| o.is_some_and(|o| o.verb.to_string() == *verb)))
            };
            (!there).then(|| format!("the order {verb} for reboots/{index} was never stored"))
        }
        AcknowledgedCommand::Other(_) => None,
    }
}

fn not_cancelled(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> Option<String> {
    let line = view.entries.get(&index);
    let done =
        line.is_none_or(|line| line.sometime(from, to, |l| l.is_none() || status(l) == Some(RebootStatus::Cancelled)));
    (!done).then(|| format!("reboots/{index} was never cancelled"))
}

/// I29, at each revision that moves `write-index` and makes entries: they have all the indexes from the previous one
/// (or from behind the last entry) up to the new one, and none was ever used. No engine creates an entry (except a
/// needed reboot, which I57 and I58 judge, or a request, which I74 judges), changes its `index` or `node`, or loses a field that it does not know. Keys that people write manually are their responsibility.
pub fn i29(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut used: BTreeSet<u64> = BTreeSet::new();
    let entry_changes = view.entry_changes();
    for group in entry_changes.chunk_by(|a, b| a.revision == b.revision) {
        let (at, revision) = (group[0].at, group[0].revision);
        let made: Vec<u64> =
            group.iter().filter(|m| m.before.is_none() && m.after.is_some()).map(|m| m.index).collect();
        if !made.is_empty()
            && let Some(step) = view.write_index.step(revision).filter(|s| s.revision == revision)
        {
            let last = view.entries.iter().filter(|(_, l)| l.before(revision).is_some()).map(|(i, _)| i + 1).max();
            let stored = number(view.write_index.before(revision)).unwrap_or(0);
            let from = stored.max(last.unwrap_or(0));
            let to = number(step.value.as_ref());
            let contiguous = made.first().is_some_and(|first| *first == stored || *first == from)
                && made.windows(2).all(|w| w[1] == w[0] + 1)
                && made.last().map(|last| last + 1) == to;
            if !contiguous {
                let what = format!("entries {made:?} are created while write-index changes from {stored} to {to:?}");
                found.push(Breach { code: "I29", at, what });
            }
            for index in made.iter().filter(|i| used.contains(i)) {
                found.push(Breach { code: "I29", at, what: format!("index {index} is reused") });
            }
        }
        used.extend(&made);
        for step in group.iter().filter(|m| m.engine && m.after.is_some()) {
            if step.before.is_none() && !reboot_needed::is_queued_by_leader(view, step.index, revision) {
                let what = format!("an engine creates reboots/{}, which did not exist", step.index);
                found.push(Breach { code: "I29", at, what });
            } else if let Some(what) = lost_data(view, step) {
                found.push(Breach { code: "I29", at, what });
            }
        }
    }
    found
}

fn number(raw: Option<&Vec<u8>>) -> Option<u64> {
    std::str::from_utf8(raw?).ok()?.trim().parse().ok()
}

/// Data that an engine's rewrite of an entry lost.
fn lost_data(view: &View<'_>, step: &EntryChange<'_>) -> Option<String> {
    let (Some(Ok(before)), Some(Ok(after))) = (step.before, step.after) else { return None };
    let raw: Option<Map<String, Value>> = view
        .changed(step.revision)
        .iter()
        .find(|c| c.key == format!("reboots/data/{:016x}", step.index))
        .and_then(|c| serde_json::from_slice(c.value.as_ref()?).ok());
    let kept = raw.is_some_and(|raw| {
        before.unknown.iter().all(|(k, v)| KNOWN_FIELDS.contains(&k.as_str()) || raw.get(k) == Some(v))
    });
    if !kept {
        return Some(format!("reboots/{} lost fields that its writer does not know", step.index));
    }
    (before.node != after.node || after.index != before.index)
        .then(|| format!("reboots/{} of {} became {} of {}", before.index, before.node, after.index, after.node))
}

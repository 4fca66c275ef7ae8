//! The repair queue: which entries start, how many, on which machine, entries of automatic repair (I1, I3, I4, I13,
//! I42, I43), and their visibility (I32, I33, I38). `steps.rs` judges its steps.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{cluster::Cluster, entry::EntryId, repair::RepairEntry};
use jiff::Timestamp;

use super::{
    record::Breach,
    view::{StoredRepair, View, member, shift},
};

/// One change of one entry of the repair queue.
pub struct RepairChange<'v> {
    pub at: Timestamp,
    pub revision: i64,
    pub index: u64,
    pub before: Option<&'v RepairEntry>,
    pub after: Option<&'v RepairEntry>,
    pub engine: bool,
}

/// Returns the entry, if it can be read.
pub fn read(stored: Option<&StoredRepair>) -> Option<&RepairEntry> {
    stored?.as_ref().ok()
}

/// Every change of the repair queue, in the order of revisions.
pub fn entry_changes<'v>(view: &'v View<'_>) -> Vec<RepairChange<'v>> {
    let mut all = Vec::new();
    for (&index, line) in &view.repairs {
        let mut before = None;
        for step in line.steps() {
            let after = read(step.value.as_ref());
            let engine = view.written_by_engine(step.revision);
            all.push(RepairChange { at: step.at, revision: step.revision, index, before, after, engine });
            before = after;
        }
    }
    all.sort_by_key(|m| m.revision);
    all
}

impl RepairChange<'_> {
    /// Reports whether an engine starts work on its machine.
    fn starts(&self) -> bool {
        let held = |e: Option<&RepairEntry>| e.is_some_and(RepairEntry::claims_machine);
        self.engine && held(self.after) && !held(self.before)
    }
}

/// Entries that claim their machines in this revision.
pub fn entries_in_progress<'v>(view: &'v View<'_>, revision: i64) -> Vec<(u64, &'v RepairEntry)> {
    let each = view.repairs.iter().filter_map(|(i, line)| Some((*i, read(line.get(revision))?)));
    each.filter(|(_, e)| e.claims_machine()).collect()
}

/// Reports whether an entry claimed such a machine at some moment of this time.
pub fn held(view: &View<'_>, addresses: impl Fn(&str) -> bool, from: Timestamp, to: Timestamp) -> bool {
    let holds = |stored: Option<&StoredRepair>| match stored {
        Some(Ok(e)) => e.claims_machine() && addresses(&e.address),
        // an unreadable entry may belong to any machine
        Some(Err(())) => true,
        None => false,
    };
    view.repairs.values().any(|line| line.sometime(from, to, holds))
}

fn api_server(cluster: &Cluster, address: &str) -> bool {
    member(cluster, address).is_some_and(|m| m.control_plane)
}

/// I1 over both queues, at each start by an engine in that very revision: no repair of an API server begins while
/// another API server is in progress in either queue. And no API server's reboot begins while another one is in repair.
pub fn i1(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut judge = |at, revision, cluster: &Cluster, address: &str, what: &str| {
        let reboots = view.entries_in_progress(revision).into_iter().filter(|(.., m)| m.control_plane);
        let reboots = reboots.map(|(i, e, _)| (EntryId::reboot(i), e.node.as_str()));
        let repairs =
            entries_in_progress(view, revision).into_iter().map(|(i, e)| (EntryId::repair(i), e.address.as_str()));
        for (other, its) in reboots.chain(repairs).filter(|(_, a)| *a != address && api_server(cluster, a)) {
            let what = format!("API server {address} ({what}) starts while {its} ({other}) is in progress");
            found.push(Breach { code: "I1", at, what });
        }
    };
    for step in entry_changes(view).iter().filter(|m| m.starts()) {
        let (Some(cluster), Some(entry)) = (view.clusters.get(step.revision), step.after) else { continue };
        if api_server(cluster, &entry.address) {
            judge(step.at, step.revision, cluster, &entry.address, &format!("repairs/{}", step.index));
        }
    }
    for step in view.entry_changes().iter().filter(|m| m.starts()) {
        let Some(entry) = view.entry(step.index, step.revision) else { continue };
        let Some(cluster) = view.clusters.get(step.revision).filter(|c| api_server(c, &entry.node)) else { continue };
        if entries_in_progress(view, step.revision)
            .iter()
            .any(|(_, e)| e.address != entry.node && api_server(cluster, &e.address))
        {
            judge(step.at, step.revision, cluster, &entry.node, &format!("reboots/{}", step.index));
        }
    }
    found
}

/// I3, at each start of a repair by an engine in that very revision: at most `max_concurrent_repairs` machines are in
/// repair. Lowering the limit later is no breach.
pub fn i3(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for step in entry_changes(view).iter().filter(|m| m.starts()) {
        let Some(cluster) = view.clusters.get(step.revision) else { continue };
        let busy: BTreeSet<&str> =
            entries_in_progress(view, step.revision).into_iter().map(|(_, e)| e.address.as_str()).collect();
        let limit = cluster.repair.max_concurrent_repairs.unwrap_or(1);
        if i64::try_from(busy.len()).unwrap_or(i64::MAX) > limit {
            let what = format!("repairs/{} starts, limit {limit}: {busy:?}", step.index);
            found.push(Breach { code: "I3", at: step.at, what });
        }
    }
    found
}

/// I4 and I43, at each start by an engine in that very revision: no other entry of the same machine is in progress, in
/// either queue.
pub fn i43(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for step in entry_changes(view).iter().filter(|m| m.starts()) {
        let Some(entry) = step.after else { continue };
        let this = format!("repairs/{} of {}", step.index, entry.address);
        for (index, _) in entries_in_progress(view, step.revision)
            .iter()
            .filter(|(i, e)| *i != step.index && e.address == entry.address)
        {
            found.push(Breach { code: "I4", at: step.at, what: format!("{this} starts during repairs/{index}") });
        }
        for (index, ..) in view.entries_in_progress(step.revision).iter().filter(|(_, e, _)| e.node == entry.address) {
            found.push(Breach { code: "I43", at: step.at, what: format!("{this} starts during reboots/{index}") });
        }
    }
    for step in view.entry_changes().iter().filter(|m| m.starts()) {
        let Some(entry) = view.entry(step.index, step.revision) else { continue };
        for (index, _) in entries_in_progress(view, step.revision).iter().filter(|(_, e)| e.address == entry.node) {
            let what = format!("reboots/{} of {} starts during repairs/{index}", step.index, entry.node);
            found.push(Breach { code: "I43", at: step.at, what });
        }
    }
    found
}

/// Reports whether the repair queue is enabled: only the exact value `true` disables it.
pub fn enabled(view: &View<'_>, revision: i64) -> bool {
    view.repair_switch.get(revision).map(Vec::as_slice) != Some(b"true")
}

/// I13 for repairs: while the exact value `true` disables the queue, no engine's transaction starts a drain or makes an
/// attempt of a step.
pub fn i13(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for step in entry_changes(view).iter().filter(|m| m.starts() && !enabled(view, m.revision)) {
        let what = format!("repairs/{} starts while the queue is disabled", step.index);
        found.push(Breach { code: "I13", at: step.at, what });
    }
    for (&(index, n), line) in &view.repair_attempts {
        let Some(first) = line.steps().first().filter(|s| view.written_by_engine(s.revision)) else { continue };
        if first.value.as_ref().is_some_and(|a| !a.success) && !enabled(view, first.revision) {
            let what = format!("attempt {n} of repairs/{index} is created while the queue is disabled");
            found.push(Breach { code: "I13", at: first.at, what });
        }
    }
    found
}

/// I42, at each revision in which an engine adds repairs to the queue: the number of entries, of whatever state, is at
/// most `maximum-repair-queue-entries` of that revision. And no added machine already has an entry, or gets two at
/// once.
///
/// Not covered: how long sabakan has reported a machine as unreachable.
pub fn i42(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let all = entry_changes(view);
    for group in all.chunk_by(|a, b| a.revision == b.revision) {
        let (at, revision) = (group[0].at, group[0].revision);
        let added: Vec<(u64, &str)> = group
            .iter()
            .filter(|m| m.engine && m.before.is_none())
            .filter_map(|m| Some((m.index, m.after?.address.as_str())))
            .filter(|(index, _)| view.repairs[index].before(revision).is_none())
            .collect();
        if added.is_empty() {
            continue;
        }
        let mut report_breach = |what: String| found.push(Breach { code: "I42", at, what });
        let there = view.repairs.values().filter(|l| l.get(revision).is_some()).count();
        let cap = view.constraints.get(revision).map_or(0, |c| c.maximum_repair_queue_entries);
        if i64::try_from(there).unwrap_or(i64::MAX) > cap {
            report_breach(format!("an engine adds {added:?}: {there} entries, but the cap is {cap}"));
        }
        let mut seen: BTreeSet<&str> =
            view.repairs.values().filter_map(|l| Some(&*read(l.before(revision))?.address)).collect();
        for (index, address) in added {
            if !seen.insert(address) {
                report_breach(format!("an engine adds repairs/{index} of {address}, which already has an entry"));
            }
        }
    }
    found
}

/// I32 for repairs, by the leader's report of each second: each unfinished entry that was there for 3 s has a reason or
/// an effect in flight. Silence of more than 3 s is a breach.
pub fn i32(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut silent: BTreeMap<(u64, &str), Timestamp> = BTreeMap::new();
    for report in view.leading() {
        let from = shift(report.at, -3.0);
        for (&index, line) in &view.repairs {
            let unfinished = |l: Option<&StoredRepair>| match l {
                Some(Ok(e)) => e.unfinished(),
                Some(Err(())) => true,
                None => false,
            };
            let there = unfinished(line.get(report.revision)) && line.throughout(from, report.at, unfinished);
            if !there || report.repairs.contains_key(&index) || report.moving_repairs.contains(&index) {
                silent.remove(&(index, report.by.as_str()));
                continue;
            }
            let since = *silent.entry((index, report.by.as_str())).or_insert(report.at);
            if shift(since, 3.0) < report.at && shift(since, 5.0) >= report.at {
                let what = format!("{} leads but reports no reason for repairs/{index} since {since}", report.by);
                found.push(Breach { code: "I32", at: report.at, what });
                silent.insert((index, report.by.as_str()), Timestamp::MAX);
            }
        }
    }
    found
}

/// I33 for repairs, where faults ended long before the end and an engine led to the end: no entry has claimed its
/// machine for the last 50 minutes. Excepted are an unknown outcome and a hold of an operator.
pub fn i33(view: &View<'_>) -> Vec<Breach> {
    let (Some(calm), end) = (view.record.calm_since, view.record.end) else { return Vec::new() };
    let from = shift(end, -3000.0);
    if from < calm || !view.led_until_end(shift(end, -30.0)) {
        return Vec::new();
    }
    let stuck = |l: Option<&StoredRepair>| read(l).is_some_and(|e| e.claims_machine() && !e.deleted);
    let lines = view.repairs.iter().filter(|(_, line)| line.throughout(from, end, stuck));
    let last = |index| view.leading().filter_map(|s| s.repairs.get(index)).last();
    lines
        .filter(|(index, _)| !last(*index).is_some_and(|r| r["reason"] == "OutcomeUnknown" || r["reason"] == "OnHold"))
        .map(|(index, _)| {
            let what =
                format!("repairs/{index} has been in progress since {from}; the leader reports {:?}", last(index));
            Breach { code: "I33", at: end, what }
        })
        .collect()
}

/// I23 and I38 for repairs, at each change of an entry or a new attempt by an engine: a start of work compares its
/// conditions, and each transition and attempt has its audit record in the same revision.
pub fn i38(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let needed = ["repairs/disabled", "cluster", "constraints", "cketerm/policy"];
    let mut check_comparisons = |revision: i64, at, what: String| {
        let Some(txn) = view.txn(revision) else { return };
        let missing: Vec<&str> = needed.iter().copied().filter(|k| !txn.compares.iter().any(|(c, _)| c == k)).collect();
        if !missing.is_empty() {
            let what = format!("{what} starts without comparing {}", missing.join(", "));
            found.push(Breach { code: "I23", at, what });
        }
    };
    for m in entry_changes(view).iter().filter(|m| m.starts()) {
        check_comparisons(m.revision, m.at, format!("repairs/{}", m.index));
    }
    for (&(index, n), line) in &view.repair_attempts {
        let Some(first) = line.steps().first().filter(|s| view.written_by_engine(s.revision)) else { continue };
        if first.value.as_ref().is_some_and(|a| !a.success) {
            check_comparisons(first.revision, first.at, format!("attempt {n} of repairs/{index}"));
        }
    }
    let audited = |revision: i64, index: u64| {
        view.audit_at(revision).is_some_and(|a| {
            a["on"] == format!("repairs/{index}") && a["who"]["user"].as_str().is_some_and(|u| !u.is_empty())
        })
    };
    for m in entry_changes(view).iter().filter(|m| m.engine) {
        let state_of = |e: Option<&RepairEntry>| e.map(|e| (e.status, e.step, e.step_status));
        if m.before.is_some() && state_of(m.before) != state_of(m.after) && !audited(m.revision, m.index) {
            let what = format!("repairs/{} is changed by an engine without an audit record", m.index);
            found.push(Breach { code: "I38", at: m.at, what });
        }
    }
    for (&(index, n), line) in &view.repair_attempts {
        let Some(first) = line.steps().first().filter(|s| view.written_by_engine(s.revision)) else { continue };
        if first.value.is_some() && !audited(first.revision, index) {
            let what = format!("attempt {n} of repairs/{index} has no audit record");
            found.push(Breach { code: "I38", at: first.at, what });
        }
    }
    found
}

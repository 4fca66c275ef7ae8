//! Maintenance without a reboot (I73).

use std::collections::BTreeMap;

use cketerm_model::{
    boot_time::Seconds,
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    names::Address,
    time::seconds_between,
};
use jiff::Timestamp;

use super::{
    record::Breach,
    view::{EntryChange, Timeline, View, member, shift},
};

/// Longest time, under a leader, from the end of a maintenance to its removal, and from that to the uncordon.
const ENDED_WITHIN: f64 = 120.0;
/// Difference of two clocks in seconds that is tolerated.
const CLOCKS: f64 = 5.0;

/// Reports whether a maintenance claimed such a machine at some moment of this time.
pub fn held(view: &View<'_>, addresses: impl Fn(&str) -> bool, from: Timestamp, to: Timestamp) -> bool {
    let holds = |entry: Option<&MaintenanceEntry>| in_work(entry) && entry.is_some_and(|entry| addresses(&entry.node));
    view.maintenance.values().any(|line| line.sometime(from, to, holds))
}

fn in_work(entry: Option<&MaintenanceEntry>) -> bool {
    entry.is_some_and(MaintenanceEntry::claims_machine)
}

/// Returns the maintenance in work on a machine at this revision.
fn at(all: &BTreeMap<u64, Timeline<MaintenanceEntry>>, revision: i64) -> impl Iterator<Item = (u64, &Address)> {
    all.iter().filter_map(move |(index, line)| {
        let entry = line.get(revision).filter(|entry| entry.claims_machine())?;
        Some((*index, &entry.node))
    })
}

/// Returns the moment at which a maintenance is over, by its last state before its removal.
fn over(line: &Timeline<MaintenanceEntry>) -> Option<Timestamp> {
    let last = line.steps().iter().rev().find_map(|step| step.value.as_ref())?;
    Some(last.released.as_ref().map_or(last.until, |released| released.at.min(last.until)))
}

/// I73, for each maintenance: from the moment at which its Node was empty until its end the Node is cordoned, unless
/// somebody else uncordons it. It is removed soon after its end, and not before; its Node is uncordoned then, unless other
/// work begins on it. At each start of a reboot or maintenance, in that very revision: no maintenance works on the
/// machine, the limits include maintenance, and no API server starts while one is in maintenance.
pub fn i73(view: &View<'_>) -> Vec<Breach> {
    let all = &view.maintenance;
    let mut found = Vec::new();
    for (index, line) in all {
        found.extend(kept(view, *index, line));
    }
    for start in view.entry_changes().into_iter().filter(EntryChange::starts) {
        let Some(Ok(entry)) = start.after else { continue };
        found.extend(shares_limits(
            view,
            all,
            start.revision,
            start.at,
            &entry.node,
            &format!("reboots/{}", start.index),
        ));
    }
    for (index, line) in all {
        for pair in line.steps().windows(2) {
            let [before, after] = pair else { continue };
            let Some(entry) = after.value.as_ref().filter(|_| !in_work(before.value.as_ref())) else { continue };
            if entry.claims_machine() {
                let what = format!("maintenance/{index}");
                found.extend(shares_limits(view, all, after.revision, after.at, &entry.node, &what));
            }
        }
    }
    found
}

fn kept(view: &View<'_>, index: u64, line: &Timeline<MaintenanceEntry>) -> Vec<Breach> {
    let mut found = Vec::new();
    let Some(over) = over(line) else { return found };
    let mut breach = |at: Timestamp, what: String| found.push(Breach { code: "I73", at, what });
    let removed = line.steps().iter().find(|step| step.value.is_none()).map(|step| step.at);
    if let Some(removed) = removed
        && seconds_between(removed, over) > Seconds::new(CLOCKS)
    {
        breach(removed, format!("maintenance/{index} is removed before its end"));
    }
    let limit = shift(over, ENDED_WITHIN);
    let led = |to: Timestamp| view.led_until_end(shift(over, -30.0)) && to < view.record.end;
    if removed.is_none_or(|removed| removed > limit) && led(limit) {
        breach(limit, format!("maintenance/{index} is over for {ENDED_WITHIN} s and still there"));
    }
    let begin = line
        .steps()
        .iter()
        .find(|step| step.value.as_ref().is_some_and(|entry| entry.status == MaintenanceStatus::InMaintenance));
    let Some((begin, entry)) = begin.and_then(|step| Some((step.at, step.value.as_ref()?))) else { return found };
    // what happens in the same instant may come after the end
    let end = shift(removed.unwrap_or(view.record.end).min(over), -0.001);
    for (name, node) in &view.nodes {
        let is_its = |node: &super::view::Node| node.addresses.contains(&entry.node.to_string());
        if !node.sometime(begin, end, |node| node.is_some_and(is_its)) || view.released_manually(name, begin, end) {
            continue;
        }
        if begin < end && !node.throughout(begin, end, |node| node.is_none_or(|node| node.unschedulable)) {
            breach(begin, format!("node {name} is uncordoned during maintenance/{index}"));
        }
    }
    found
}

fn shares_limits(
    view: &View<'_>,
    all: &BTreeMap<u64, Timeline<MaintenanceEntry>>,
    revision: i64,
    time: Timestamp,
    node: &Address,
    what: &str,
) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut breach = |text: String| found.push(Breach { code: "I73", at: time, what: format!("{what} starts {text}") });
    let Some(cluster) = view.clusters.before(revision) else { return found };
    let is_api = |address: &str| member(cluster, address).is_some_and(|member| member.control_plane);
    let own = what.strip_prefix("maintenance/").and_then(|index| index.parse::<u64>().ok());
    let others: Vec<(u64, &Address)> = at(all, revision).filter(|(index, _)| Some(*index) != own).collect();
    if own.is_none() && others.is_empty() {
        // reboots alone are the matter of I1 to I4
        return found;
    }
    if let Some((index, _)) = others.iter().find(|(_, address)| *address == node) {
        breach(format!("although maintenance/{index} works on the machine"));
    }
    let reboots = view.entries_in_progress(revision);
    let rebooting = reboots.iter().filter(|(_, entry, _)| own.is_some() || entry.node != *node);
    let mut machines: Vec<&Address> = rebooting.map(|(_, entry, _)| &entry.node).collect();
    if own.is_some() && machines.contains(&node) {
        breach("although a reboot works on the machine".to_owned());
    }
    machines.extend(others.iter().map(|(_, address)| *address).filter(|address| *address != node));
    if is_api(node) && !machines.is_empty() || machines.iter().any(|address| is_api(address)) {
        let first = machines.first().map(ToString::to_string).unwrap_or_default();
        // the order of workers and API servers is I2's matter
        if is_api(node) && machines.iter().any(|address| is_api(address)) {
            breach(format!("although API server {first} is in work"));
        }
    }
    let limit = cluster.reboot.max_concurrent_reboots.unwrap_or(1);
    if i64::try_from(machines.len()).unwrap_or(i64::MAX) >= limit && !others.is_empty() {
        breach(format!("beside {} machines in work, of which {limit} may be", machines.len()));
    }
    found
}

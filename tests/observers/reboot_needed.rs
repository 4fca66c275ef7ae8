//! Reboots that the leader queues by itself because Nodes need them (I57, I58).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cketerm_records::{REBOOT_NEEDED_USER, Request},
    policy::RebootNeeded,
    reboot::{RebootEntry, RebootStatus},
};
use jiff::Timestamp;

use super::{
    maintenance_requests,
    record::Breach,
    view::{View, member, shift},
};

/// Seconds by which clocks of engines may differ.
const CLOCK_SKEW: f64 = 15.0;
/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// An entry that the leader queued by itself.
struct Queued<'v> {
    at: Timestamp,
    revision: i64,
    index: u64,
    entry: &'v RebootEntry,
    /// Its cause.
    cause: &'v str,
}

/// Reports whether the request of this entry says, in this revision, that the leader queued it by itself.
pub(super) fn is_queued_by_leader(view: &View<'_>, index: u64, revision: i64) -> bool {
    let request = view.requests.get(&index).and_then(|line| line.get(revision));
    request.is_some_and(|request| is_own(request) || request.who.user.starts_with(maintenance_requests::USER))
}

fn is_own(request: &Request) -> bool {
    request.who.user == REBOOT_NEEDED_USER
}

fn is_open(entry: &RebootEntry) -> bool {
    entry.status != RebootStatus::Cancelled
}

/// All of them, in the order of their revisions.
fn queued<'v>(view: &'v View<'_>) -> Vec<Queued<'v>> {
    let each = view.requests.iter().filter_map(|(index, line)| {
        let step = line.steps().first()?;
        let request = step.value.as_ref().filter(|request| is_own(request))?;
        let entry = view.entry(*index, step.revision)?;
        let cause = request.reason.as_deref().unwrap_or_default();
        Some(Queued { at: step.at, revision: step.revision, index: *index, entry, cause })
    });
    let mut all: Vec<Queued<'_>> = each.filter(|queued| view.written_by_engine(queued.revision)).collect();
    all.sort_by_key(|queued| (queued.revision, queued.index));
    all
}

/// I57, for each two entries in a row that the leader queued by itself for one machine: its boot id has changed in
/// between. If both have the same cause, that was not set on its Node all the time as cketerm's annotation. A Node that is
/// gone counts as unchanged.
///
/// Not covered: causes that other signals give.
pub fn i57(view: &View<'_>) -> Vec<Breach> {
    let (mut found, mut last) = (Vec::new(), BTreeMap::new());
    for newer in queued(view) {
        let Some(older) = last.insert(newer.entry.node.clone(), (newer.at, newer.index, newer.cause)) else { continue };
        let Some(cluster) = view.clusters.get(newer.revision) else { continue };
        let Some(node) = member(cluster, &newer.entry.node).map(cketerm_model::cluster::Node::node_name) else {
            continue;
        };
        let Some(line) = view.nodes.get(node.as_str()) else { continue };
        let (at, index, cause) = older;
        let from = shift(at, -view.lag());
        let Some(boot_id) = line.at(at).map(|node| &node.boot_id) else { continue };
        if line.throughout(from, newer.at, |node| node.is_none_or(|node| node.boot_id == *boot_id)) {
            let what = format!("{node} is queued as reboots/{index} and reboots/{} in boot {boot_id}", newer.index);
            found.push(Breach { code: "I57", at: newer.at, what });
        }
        let is_set = |cause: &str| {
            line.throughout(from, newer.at, |node| node.is_none_or(|node| node.asks.as_deref() == Some(cause)))
        };
        if cause == newer.cause && is_set(cause) {
            let what = format!("{node} is queued as reboots/{} again for {cause:?}, which stayed set", newer.index);
            found.push(Breach { code: "I57", at: newer.at, what });
        }
    }
    found
}

/// I58, at each revision in which the leader queues such entries: the policy is `queue`, the queue is enabled, no freeze
/// is in force, the machine has no other entry, at most `reboot_needed_at_once` of these entries are open, and at most
/// `reboot_needed_per_day` were queued in 24 hours.
///
/// Not covered: windows (I8 judges the starts).
pub fn i58(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let all = queued(view);
    for queued in &all {
        let (at, revision) = (queued.at, queued.revision);
        let policy = view.policy(revision);
        let id = format!("reboots/{}", queued.index);
        let mut breach = |what: String| found.push(Breach { code: "I58", at, what });
        if policy.reboot_needed != RebootNeeded::Queue {
            breach(format!("{id} is queued although the policy is {:?}", policy.reboot_needed));
        }
        if !view.enabled(revision) {
            breach(format!("{id} is queued while the queue is disabled"));
        }
        if let Some(freeze) = policy.freeze.as_ref().filter(|freeze| freeze.holds(shift(at, CLOCK_SKEW))) {
            breach(format!("{id} is queued during a freeze until {}", freeze.until));
        }
        let other = view.queue(revision).find(|(i, e)| *i != queued.index && is_open(e) && e.node == queued.entry.node);
        if let Some((other, _)) = other {
            breach(format!("{id} is queued while reboots/{other} is of the same machine"));
        }
        let repair = view.repairs.iter().find(|(_, line)| {
            matches!(line.get(revision), Some(Ok(entry)) if entry.unfinished() && entry.address == queued.entry.node)
        });
        if let Some((repair, _)) = repair {
            breach(format!("{id} is queued while repairs/{repair} is of the same machine"));
        }
    }
    let revisions: BTreeSet<i64> = all.iter().map(|queued| queued.revision).collect();
    for revision in revisions {
        let Some(at) = all.iter().find(|queued| queued.revision == revision).map(|queued| queued.at) else { continue };
        let policy = view.policy(revision);
        let own = |index: &u64| view.requests.get(index).and_then(|line| line.get(revision)).is_some_and(is_own);
        let open = view.queue(revision).filter(|(index, entry)| own(index) && is_open(entry)).count() as u64;
        if open > policy.reboot_needed_at_once {
            let what = format!("{open} such entries are open, more than {}", policy.reboot_needed_at_once);
            found.push(Breach { code: "I58", at, what });
        }
        let since = shift(at, CLOCK_SKEW - DAY);
        let today = all.iter().filter(|queued| queued.revision <= revision && queued.at > since).count() as u64;
        if policy.reboot_needed_per_day > 0 && today > policy.reboot_needed_per_day {
            let what = format!("{today} such entries in a day, more than {}", policy.reboot_needed_per_day);
            found.push(Breach { code: "I58", at, what });
        }
    }
    found
}

//! The reboot queue: which entries start, how many, and in which order (I1 to I5, I30, I31).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cketerm_records::Verb,
    cluster::{Cluster, Node as Member},
    entry::QueueKind,
    policy::ApiServerOrder,
    reboot::{RebootEntry, RebootStatus},
};
use jiff::Timestamp;

use super::{
    power_log,
    record::{Breach, PowerEvent},
    view::{EntryChange, Node, View, in_progress, member, named, shift, status},
};

/// Seconds by which clocks of engines may differ.
const CLOCK_SKEW: f64 = 15.0;

/// A start by an engine, with the state that it was based on.
pub(super) struct Start<'v> {
    pub(super) step: EntryChange<'v>,
    pub(super) entry: &'v RebootEntry,
    pub(super) cluster: &'v Cluster,
    pub(super) node: &'v Member,
}

/// Every start of a member by an engine.
pub(super) fn starts<'v>(view: &'v View<'_>) -> Vec<Start<'v>> {
    let each = view.entry_changes().into_iter().filter(EntryChange::starts);
    each.filter_map(|step| {
        let entry = view.entry(step.index, step.revision)?;
        let cluster = view.clusters.get(step.revision)?;
        Some(Start { step, entry, cluster, node: member(cluster, &entry.node)? })
    })
    .collect()
}

/// I1, at each start (`draining`) of an API server by an engine, in that very revision: no other API server's entry is
/// `draining` or `rebooting`. And no other API server is still cordoned for a deleted or cancelled entry whose command
/// began.
///
/// And by the machines' log, whenever a power command begins on an API server: no other API server's command runs, and
/// no other one that a command of cketerm switched off is still without its system. Excepted is one that a person has
/// settled (`done`, `uncordon`, a manual uncordon), and one whose Node or membership was removed meanwhile.
///
/// Not covered: API servers that are down for other causes (I7), and repairs.
pub fn i1(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for start in starts(view).iter().filter(|s| s.node.control_plane) {
        let (at, revision) = (start.step.at, start.step.revision);
        for (index, entry, node) in view.entries_in_progress(revision) {
            if node.control_plane && entry.node != start.entry.node {
                let what = format!(
                    "API server {} (reboots/{}) starts while {} (reboots/{index}) is {}",
                    start.entry.node, start.step.index, entry.node, entry.status
                );
                found.push(Breach { code: "I1", at, what });
            }
        }
        for (&(index, _), line) in &view.attempts {
            let Some(attempt) = line.before(revision) else { continue };
            let gone = view.entry(index, revision - 1).is_none_or(|e| e.status == RebootStatus::Cancelled);
            let other = attempt.control_plane && attempt.began() && gone && attempt.address != start.entry.node;
            let still = member(start.cluster, &attempt.address).filter(|m| m.control_plane);
            let Some(node) = still.filter(|_| other && !is_unreadable(view, index, revision)) else { continue };
            let held = view.nodes.get(node.node_name().as_str()).is_some_and(|line| {
                let from = view.seen_since(revision, at);
                line.throughout(from, at, |n| n.is_some_and(|n| n.unschedulable && n.owned_by(index)))
            });
            if held {
                let what = format!(
                    "API server {} (reboots/{}) starts while {} is orphaned by reboots/{index} and has not come back",
                    start.entry.node, start.step.index, attempt.address
                );
                found.push(Breach { code: "I1", at, what });
            }
        }
    }
    found.extend(power_log::two_api_servers(view));
    found
}

fn is_unreadable(view: &View<'_>, index: u64, revision: i64) -> bool {
    view.entries.get(&index).and_then(|l| l.before(revision)).is_some_and(Result::is_err)
}

/// I2, at each start by an engine: an API server starts only if no worker is in progress in that revision, and a worker
/// only if no API server is. With order `last`, no API server starts while a worker has been startable for longer than
/// copies may lag: queued, backoff over, no order for it, first entry of its machine, its Node there all the time.
///
/// Not covered: with order `first`, API servers that could have started before a worker (probes are not in the record).
pub fn i2(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for start in &starts(view) {
        let (at, revision) = (start.step.at, start.step.revision);
        let this = (&start.entry.node, start.step.index);
        for (index, entry, node) in view.entries_in_progress(revision) {
            if node.control_plane != start.node.control_plane && entry.node != start.entry.node {
                let (a, b) = if node.control_plane { ("worker", "API server") } else { ("API server", "worker") };
                let what = format!(
                    "{a} {} (reboots/{}) starts while {b} {} (reboots/{index}) is in progress",
                    this.0, this.1, entry.node
                );
                found.push(Breach { code: "I2", at, what });
            }
        }
        if !start.node.control_plane || view.policy(revision).api_server_order != ApiServerOrder::Last {
            continue;
        }
        let from = view.seen_since(revision, at);
        let worker = view.queue(revision - 1).find(|(index, entry)| {
            member(start.cluster, &entry.node).is_some_and(|m| !m.control_plane) && is_startable(view, *index, from, at)
        });
        if let Some((index, entry)) = worker {
            let what = format!(
                "API server {} (reboots/{}) starts before worker {} (reboots/{index}), which could start",
                this.0, this.1, entry.node
            );
            found.push(Breach { code: "I2", at, what });
        }
    }
    found
}

/// Reports whether the entry could have been started at every moment of this time: by the record nothing held it back
/// except its place in the schedule.
pub(super) fn is_startable(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> bool {
    let Some(line) = view.entries.get(&index) else { return false };
    let ready = line.throughout(from, to, |stored| {
        let Some(Ok(entry)) = stored else { return false };
        entry.status == RebootStatus::Queued
            && entry.drain_backoff_expire.is_none_or(|until| shift(until, CLOCK_SKEW) < from)
    });
    let Some(Ok(entry)) = line.at(to).filter(|_| ready) else { return false };
    let ordered = view.orders.get(&index).is_some_and(|o| o.sometime(from, to, |o| o.is_some()))
        || super::batches::sometime_barred(view, index, from, to);
    let first = view
        .entries
        .range(..index)
        .all(|(_, other)| other.throughout(from, to, |stored| !matches!(stored, Some(Ok(e)) if e.node == entry.node)));
    // a command of either queue that may still run on the machine
    let mut tried = view.attempts.values().chain(view.repair_attempts.values());
    let left = tried.any(|l| l.sometime(from, to, |a| a.is_some_and(|a| a.address == entry.node)));
    // the same pass may begin a repair of the machine before it looks at this entry
    let mut repairs = view.repairs.values();
    let repaired = repairs.any(|l| {
        l.sometime(
            from,
            to,
            |stored| matches!(stored, Some(Ok(repair)) if repair.address == entry.node && repair.unfinished()),
        )
    });
    let noted = view.requests.get(&index).and_then(|r| r.at(to)).and_then(|r| r.node_uid.as_deref());
    let member_all_along = view.clusters.throughout(from, to, |c| {
        c.is_some_and(|c| {
            member(c, &entry.node).is_some()
                && c.reboot.reboot_command.is_some()
                && c.reboot.boot_check_command.is_some()
        })
    });
    let Some(name) = view.clusters.at(to).and_then(|c| member(c, &entry.node)).map(Member::node_name) else {
        return false;
    };
    let node_there = view.nodes.get(name.as_str()).is_some_and(|n| {
        n.throughout(from, to, |n| {
            n.is_some_and(|n| {
                n.addresses.iter().any(|a| entry.node == a.as_str())
                    && noted.is_none_or(|uid| uid == n.uid)
                    && n.owner.is_none()
            })
        })
    });
    // the engine's clock may be wrong by this much
    let (early, late) = (shift(from, -CLOCK_SKEW), shift(to, CLOCK_SKEW));
    let policies = view.policies.steps().iter().filter(|s| s.at <= late).filter_map(|s| s.value.as_ref());
    let bound = policies.clone().any(|p| p.freeze.is_some() || p.windows.is_some() || p.groups.is_some());
    let free = !bound
        || view.policies.throughout(early, late, |p| {
            let cluster = view.clusters.at(to);
            p.zip(cluster).is_none_or(|(p, c)| {
                let ends = [early, from, to, late];
                let closed_reason =
                    |at| super::windows::closed_reason(p, c, (QueueKind::Reboot, &entry.node), at, true).is_some();
                // only the leader's reports show whether groups hold an entry back
                p.groups.is_none() && !ends.into_iter().any(closed_reason)
            })
        });
    !ordered && first && !left && !repaired && member_all_along && node_there && free
}

/// I3, at each start of a worker by an engine, in that very revision (the transaction compares the limit). Count the
/// machines of members in `draining` or `rebooting`, and those on which a cancelled entry's command still runs within
/// its bound. The count is at most `max_concurrent_reboots`. Lowering the limit later is no breach.
pub fn i3(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for start in starts(view).iter().filter(|s| !s.node.control_plane) {
        let (at, revision) = (start.step.at, start.step.revision);
        let mut busy: BTreeSet<&str> =
            view.entries_in_progress(revision).into_iter().map(|(_, e, _)| e.node.as_str()).collect();
        busy.extend(power_log::running(view, at, revision));
        let limit = start.cluster.reboot.concurrency();
        if i64::try_from(busy.len()).unwrap_or(i64::MAX) > limit {
            let (index, node) = (start.step.index, &start.entry.node);
            let all = busy.into_iter().collect::<Vec<_>>().join(", ");
            found.push(Breach {
                code: "I3",
                at,
                what: format!("{node} (reboots/{index}) starts, limit {limit}: {all}"),
            });
        }
    }
    found
}

/// I4, at each start by an engine: no other entry of the same machine is in progress in that revision, and none with a
/// smaller index has been waiting for longer than a start may be late.
pub fn i4(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for start in &starts(view) {
        let (at, revision, this) = (start.step.at, start.step.revision, start.step.index);
        for (index, entry) in view.queue(revision).filter(|(i, e)| *i != this && e.node == start.entry.node) {
            let from = view.seen_since(revision, at);
            let waits =
                index < this && view.entries[&index].throughout(from, at, |l| status(l) == Some(RebootStatus::Queued));
            if in_progress(view.entries[&index].get(revision)) || waits {
                let what = format!("reboots/{this} of {} starts while reboots/{index} is {}", entry.node, entry.status);
                found.push(Breach { code: "I4", at, what });
            }
        }
    }
    found
}

/// I5, by the leader's report: an entry never waits for a slot that an unreadable entry holds. The report may name that
/// entry as the holder. Or, while there is an unreadable entry, it gives `WaitingForSlot` for longer than 15 s although
/// slots are free (a call to Kubernetes may take 10 s). Machines in progress, in flight, or with attempts left use a
/// slot.
///
/// Also: no engine moves an unreadable entry to `draining` or `rebooting`.
pub fn i5(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for step in view.entry_changes().iter().filter(|m| m.engine && matches!(m.before, Some(Err(())))) {
        if in_progress(step.after) {
            let what = format!("reboots/{} was unreadable but is in progress", step.index);
            found.push(Breach { code: "I5", at: step.at, what });
        }
    }
    let mut since: Option<Timestamp> = None;
    let mut breach_reported = false;
    for report in view.leading() {
        let waiting = report.reasons.iter().filter(|(_, r)| named(r) == "WaitingForSlot");
        let is_unreadable = |index: &u64| {
            let line = view.entries.get(index);
            line.is_some_and(|l| {
                l.throughout(shift(report.at, -3.0), report.at, |stored| matches!(stored, Some(Err(()))))
            })
        };
        let held = waiting.clone().find_map(|(index, reason)| {
            let holder = reason["holder"].as_str()?.strip_prefix("reboots/")?.parse::<u64>().ok()?;
            is_unreadable(&holder).then_some((index, holder))
        });
        if let (Some((index, holder)), false) = (held, breach_reported) {
            breach_reported = true;
            let what = format!("reboots/{index} waits for the slot of reboots/{holder}, which cannot be read");
            found.push(Breach { code: "I5", at: report.at, what });
        }
        let mut busy: BTreeSet<String> =
            view.entries_in_progress(report.revision).into_iter().map(|(_, e, _)| e.node.to_string()).collect();
        let moving = report.moving.iter().filter_map(|i| view.entry(*i, report.revision)).map(|e| e.node.to_string());
        busy.extend(moving);
        busy.extend(view.attempts.values().filter_map(|l| l.get(report.revision)).map(|a| a.address.to_string()));
        let taken = view
            .nodes
            .iter()
            .filter(|(_, l)| l.at(report.at).and_then(Node::owner).is_some_and(|o| o.taken_over_rebooting));
        busy.extend(taken.map(|(name, _)| name.clone()));
        let limit = view.clusters.get(report.revision).map_or(0, |c| c.reboot.concurrency());
        let free = i64::try_from(busy.len()).unwrap_or(i64::MAX) < limit;
        let slot_is_lost = free && waiting.clone().next().is_some() && view.entries.keys().any(is_unreadable);
        since = slot_is_lost.then(|| since.unwrap_or(report.at));
        if let (Some(from), false) = (since, breach_reported)
            && report.at > shift(from, 15.0)
        {
            breach_reported = true;
            let what = format!("{} of {limit} slots are in use, and unreadable entries occupy the rest", busy.len());
            found.push(Breach { code: "I5", at: report.at, what });
        }
    }
    found
}

/// I30, at each start of a worker by an engine: no worker with a smaller index was startable (see [`i2`]) from longer
/// than copies lag before until 10 s after, by when its own start would have shown. Excepted are entries for which the
/// leader named a reason other than their place in the schedule. Without reports of the leader, all is excepted while
/// faults go on.
pub fn i30(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for start in starts(view).iter().filter(|s| !s.node.control_plane) {
        let (at, revision, this) = (start.step.at, start.step.revision, start.step.index);
        let (from, to) = (view.seen_since(revision, at), shift(at, 10.0));
        let has_reports = !view.record.reports.is_empty();
        if to > view.record.end || (!has_reports && view.record.calm_since.is_none_or(|calm| from < calm)) {
            continue;
        }
        let before = view.queue(revision).take_while(|(i, _)| *i < this);
        for (index, entry) in before {
            let worker = member(start.cluster, &entry.node).is_some_and(|m| !m.control_plane);
            if worker && is_startable(view, index, from, to) && !has_other_reason(view, index, from, to) {
                let what = format!("{} (reboots/{this}) overtakes {} (reboots/{index})", start.entry.node, entry.node);
                found.push(Breach { code: "I30", at, what });
            }
        }
    }
    found
}

/// Reports whether the leader named a reason other than the place in the schedule.
pub(super) fn has_other_reason(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> bool {
    let line = ["WaitingForSlot", "WaitingForWorkers", "WaitingForControlPlane", "Ready"];
    let reports = view.record.reports.iter().filter(|s| s.leads && s.at >= from && s.at <= to);
    let mut reasons = reports.filter_map(|s| s.reasons.get(&index)).map(named);
    reasons.any(|name| !line.contains(&name))
}

/// I31, in four parts:
///
/// - An attempt is written only for a member of the definition of that very revision.
/// - No power command begins for an entry whose machine has not been a member for longer than a command may be late.
/// - The entry of a machine that is no member is gone 60 s and two TTL after the machine's removal, if faults have
///   ended by then.
/// - No leader reports an entry as no member for longer than a TTL and 20 s without removing it.
pub fn i31(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let absent = |address: &str, c: Option<&Cluster>| c.is_some_and(|c| member(c, address).is_none());
    for (&(index, n), line) in &view.attempts {
        let Some(first) = line.steps().first() else { continue };
        let Some(attempt) = first.value.as_ref().filter(|_| view.written_by_engine(first.revision)) else { continue };
        if absent(&attempt.address, view.clusters.get(first.revision)) {
            let what = format!("attempt {n} of reboots/{index} on {}, which is not a member", attempt.address);
            found.push(Breach { code: "I31", at: first.at, what });
        }
    }
    for power in view.record.power.iter().filter(|p| p.what == PowerEvent::Begin && p.entry.starts_with("reboots/")) {
        let from = shift(power.at, -view.lag());
        if view.clusters.throughout(from, power.at, |c| absent(&power.address, c)) {
            let what = format!("a power command of {} begins on {}, which is not a member", power.entry, power.address);
            found.push(Breach { code: "I31", at: power.at, what });
        }
    }
    let mut non_members: BTreeMap<(&str, u64), (Timestamp, Timestamp)> = BTreeMap::new();
    for report in view.leading() {
        for (&index, _) in report.reasons.iter().filter(|(_, r)| named(r) == "NotMember") {
            // another program may have removed it: a watch that lags still shows it for a while
            let there = view.entries.get(&index).is_some_and(|line| line.at(report.at).is_some());
            let (since, last) = non_members.entry((&report.by, index)).or_insert((report.at, report.at));
            if shift(*last, 2.5) < report.at {
                *since = report.at;
            }
            *last = report.at;
            if shift(*since, view.ttl() + 20.0) < report.at && there {
                let what =
                    format!("{} reports since {since} that reboots/{index} is of no member, but leaves it", report.by);
                found.push(Breach { code: "I31", at: report.at, what });
                *since = Timestamp::MAX;
            }
        }
    }
    let allowed_delay = 2.0 * view.ttl() + 75.0;
    let Some(calm) = view.record.calm_since else { return found };
    let from = shift(view.record.end, -allowed_delay);
    for (index, line) in view.entries.iter().filter(|_| from >= calm) {
        let Some(Ok(entry)) = line.last() else { continue };
        let there = line.throughout(from, view.record.end, |l| matches!(l, Some(Ok(_))));
        if there && view.clusters.throughout(from, view.record.end, |c| absent(&entry.node, c)) {
            let what = format!("reboots/{index} of {}, which is not a member, is still there", entry.node);
            found.push(Breach { code: "I31", at: view.record.end, what });
        }
    }
    found
}

/// Reports whether a person's order keeps the entry from starting.
pub fn is_on_hold(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> bool {
    view.orders.get(&index).is_some_and(|o| o.throughout(from, to, |o| o.is_some_and(|o| o.verb == Verb::Hold)))
}

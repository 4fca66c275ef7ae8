//! Gates: too many unreachable nodes, unhealthy control planes (I6, I7).

use std::collections::BTreeSet;

use cketerm_model::{
    cluster::Node as Member,
    names::NodeName,
    policy::{Membership, UnreachableRule},
};
use jiff::Timestamp;

use super::{
    power_log,
    queue::starts,
    record::{Breach, PowerEvent},
    view::{Node, View, in_progress, member, named, shift},
};

/// I6, in two ways. At each start by an engine: count the members that have been without a Ready Node for longer than
/// copies may lag. Under rule `outside-reboots` members under this reboot process do not count. The count does not
/// exceed the limit of that revision.
///
/// And by the leader's report: no gate, window or freeze holds an entry in `rebooting`. A gate holds an entry in
/// `draining` only under rule `all`.
///
/// Not covered: probes of etcd; windows and freezes themselves (I8).
pub fn i6(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for start in &starts(view) {
        let (at, revision) = (start.step.at, start.step.revision);
        let all = view.policy(revision).unreachable_rule == UnreachableRule::All;
        let mut limit =
            view.constraints.get(revision).cloned().unwrap_or_default().maximum_unreachable_nodes_for_reboot;
        let from = view.seen_since(revision, at);
        let policy = view.policy(revision);
        let follows_nodes = policy.membership == Membership::Nodes;
        let size = start.cluster.nodes.len();
        if follows_nodes {
            limit = limit.max(i64::try_from(size as u64 * policy.unreachable_percent / 100).unwrap_or(i64::MAX));
        }
        // a Node that is gone counts only with many others
        let gone = |m: &Member, throughout: bool| {
            let line = view.nodes.get(m.node_name().as_str());
            let is_gone = |n: Option<&Node>| n.is_none();
            line.is_none_or(
                |l| if throughout { l.throughout(from, at, is_gone) } else { l.sometime(from, at, is_gone) },
            )
        };
        let all_gone = start.cluster.nodes.iter().filter(|m| gone(m, true)).count();
        let are_counted = all_gone > 1 && all_gone as u64 * 100 > policy.gate_percent * size as u64;
        let down: Vec<NodeName> = start
            .cluster
            .nodes
            .iter()
            .filter(|m| !follows_nodes || !gone(m, false) || (are_counted && gone(m, true)))
            .filter(|m| {
                let line = view.nodes.get(m.node_name().as_str());
                let other = |n: &Node| n.owner().is_some_and(|o| o.taken_over_rebooting);
                line.is_none_or(|l| l.throughout(from, at, |n| n.is_none_or(|n| !n.ready && !other(n))))
            })
            .filter(|m| all || !was_rebooting(view, &m.address, from, at))
            .map(Member::node_name)
            .collect();
        if i64::try_from(down.len()).unwrap_or(i64::MAX) > limit && view.clusters.throughout(from, at, |c| c.is_some())
        {
            let what = format!(
                "{} starts with {} unreachable, limit {limit}: {}",
                start.entry.node,
                down.len(),
                down.join(", ")
            );
            found.push(Breach { code: "I6", at, what });
        }
    }
    for report in view.leading() {
        for (&index, reason) in report.reasons.iter() {
            let name = named(reason);
            // windows and freezes also hold retries of a command (I8)
            let gate = name == "UnreachableGate";
            let all = view.policies.sometime(shift(report.at, -5.0), report.at, |p| {
                p.is_some_and(|p| p.unreachable_rule == UnreachableRule::All)
            });
            let working =
                view.entries.get(&index).is_some_and(|l| l.throughout(shift(report.at, -5.0), report.at, in_progress));
            if gate && !all && working {
                found.push(Breach {
                    code: "I6",
                    at: report.at,
                    what: format!("reboots/{index} is in progress but held by {name}"),
                });
            }
        }
    }
    found
}

/// Reports whether the machine was under the reboot process at some moment of this time.
pub(super) fn was_rebooting(view: &View<'_>, address: &str, from: Timestamp, to: Timestamp) -> bool {
    let entries = view.entries.values().any(|l| {
        l.sometime(from, to, |stored| in_progress(stored) && matches!(stored, Some(Ok(e)) if e.node == address))
    });
    entries || view.attempts.values().any(|l| l.sometime(from, to, |a| a.is_some_and(|a| a.address == address)))
}

/// I7, at each start of an API server by an engine, and at its first power command: every other control plane of the
/// definition had a Ready Node at some moment within the time that copies may lag.
///
/// Not covered: probes.
pub fn i7(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut judge = |from: Timestamp, at: Timestamp, address: &str, what: &str| {
        let Some(cluster) = view.clusters.at(at) else { return };
        let others = cluster.nodes.iter().filter(|m| m.control_plane && m.address != address);
        for other in others.filter(|_| member(cluster, address).is_some_and(|m| m.control_plane)) {
            let line = view.nodes.get(other.node_name().as_str());
            let all_along = view
                .clusters
                .throughout(from, at, |c| c.and_then(|c| member(c, &other.address)).is_some_and(|m| m.control_plane));
            if all_along && line.is_none_or(|l| l.throughout(from, at, |n| n.is_none_or(|n| !n.ready))) {
                let what =
                    format!("{what} of API server {address} while control plane {} is not Ready", other.node_name());
                found.push(Breach { code: "I7", at, what });
            }
        }
    };
    for start in starts(view) {
        judge(view.seen_since(start.step.revision, start.step.at), start.step.at, &start.entry.node, "a drain");
    }
    let mut seen = BTreeSet::new();
    for power in view.record.power.iter().filter(|p| p.what == PowerEvent::Begin && p.entry.starts_with("reboots/")) {
        if seen.insert(&power.entry) {
            let first = power_log::index(&power.entry)
                .and_then(|i| view.attempt(i, &power.attempt)?.1.steps().first().map(|s| (s.revision, s.at)));
            let from = first.map_or(shift(power.at, -view.lag()), |(revision, at)| view.seen_since(revision, at));
            judge(from, power.at, &power.address, "a power command");
        }
    }
    found
}

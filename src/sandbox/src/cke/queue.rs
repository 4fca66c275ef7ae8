//! Decisions of CKE about its reboot queue: the operations of one pass. Pure; compared with recorded decisions of CKE
//! (`tests/it/recorded/cke_actor.rs`).
//!
//! Differences from cketerm's rules are on purpose, because this is CKE: it starts one new drain a pass, releases
//! cordons as soon as the queue is disabled, and knows no holds, windows, groups or batches.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    boot_time::Seconds,
    cluster::{Cluster, Node},
    names::Address,
    reboot::{RebootEntry, RebootStatus},
    time::seconds_between,
};
use jiff::Timestamp;

/// Facts that a pass reads.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Cluster definition.
    pub cluster: &'a Cluster,
    /// Entries of the reboot queue, by index.
    pub entries: &'a BTreeMap<u64, RebootEntry>,
    /// Whether the queue is enabled.
    pub enabled: bool,
    /// `maximum-unreachable-nodes-for-reboot` of the constraints.
    pub max_unreachable: i64,
    /// Machines that do not answer, by address. CKE asks by SSH.
    pub unreachable: &'a BTreeSet<Address>,
    /// Machines whose Node has CKE's annotation, by address.
    pub annotated: &'a BTreeSet<Address>,
    /// Machines whose repair drains or is watched. Their cordons stay.
    pub repairing: &'a BTreeSet<Address>,
    /// Draining machines without pods and without volumes in use.
    pub drained: &'a BTreeSet<Address>,
    /// Rebooting machines whose boot check says `true`.
    pub booted: &'a BTreeSet<Address>,
    /// Present time.
    pub now: Timestamp,
}

/// Operation on one or more machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `reboot-uncordon`
    Uncordon(Vec<Address>),
    /// `reboot-cancel`: removes cancelled entries.
    Cancel(Vec<u64>),
    /// `reboot-dequeue`: removes entries whose machine has booted, or is no longer in the definition.
    Dequeue(Vec<u64>),
    /// `reboot-delete-daemonset-pod` and `reboot-reboot`
    Reboot(Vec<u64>),
    /// `reboot-drain-timeout`: backs off.
    DrainTimeout(Vec<u64>),
    /// `reboot-drain-start`
    DrainStart(u64),
}

/// Phase of a pass, as CKE writes it to `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `uncordon-nodes`
    UncordonNodes,
    /// `reboot-nodes`
    RebootNodes,
    /// `completed`
    Completed,
}

impl Phase {
    /// Returns CKE's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::UncordonNodes => "uncordon-nodes",
            Self::RebootNodes => "reboot-nodes",
            Self::Completed => "completed",
        }
    }
}

/// Returns the phase and the operations of this pass.
pub fn operations(facts: &Facts<'_>) -> (Phase, Vec<Operation>) {
    let uncordoned = uncordoned(facts);
    if !uncordoned.is_empty() {
        return (Phase::UncordonNodes, vec![Operation::Uncordon(uncordoned)]);
    }
    let operations = reboot_operations(facts);
    let phase = if operations.is_empty() { Phase::Completed } else { Phase::RebootNodes };
    (phase, operations)
}

/// Returns the nodes with CKE's annotation that no entry in work claims. Of a disabled queue, no entry does.
pub fn uncordoned(facts: &Facts<'_>) -> Vec<Address> {
    let entries = considered(facts.entries);
    let claimed = |address: &Address| {
        let in_work = entries.iter().any(|e| e.node == *address && e.claims_machine());
        facts.repairing.contains(address) || (facts.enabled && in_work)
    };
    let nodes = facts.cluster.nodes.iter().map(|n| &n.address);
    nodes.filter(|a| facts.annotated.contains(*a) && !claimed(a)).cloned().collect()
}

/// Returns the operations on the reboot queue, taken alone. Removals come first and alone; a disabled queue has no
/// others.
pub fn reboot_operations(facts: &Facts<'_>) -> Vec<Operation> {
    let entries = considered(facts.entries);
    let member = |e: &RebootEntry| facts.cluster.nodes.iter().find(|n| n.address == e.node);
    let of = |wanted: &dyn Fn(&RebootEntry) -> bool| -> Vec<u64> {
        entries.iter().filter(|e| wanted(e)).map(|e| e.index).collect()
    };
    let cancelled = of(&|e| e.status == RebootStatus::Cancelled);
    let ended = of(&|e| {
        let booted = e.status == RebootStatus::Rebooting && facts.booted.contains(&e.node);
        booted || member(e).is_none()
    });
    let mut operations = Vec::new();
    if !cancelled.is_empty() {
        operations.push(Operation::Cancel(cancelled));
    }
    if !ended.is_empty() {
        operations.push(Operation::Dequeue(ended));
    }
    let reboot = &facts.cluster.reboot;
    let configured = reboot.reboot_command.as_ref().is_some_and(|c| !c.is_empty())
        && reboot.boot_check_command.as_ref().is_some_and(|c| !c.is_empty());
    if !operations.is_empty() || !facts.enabled || !configured {
        return operations;
    }
    let draining = |e: &RebootEntry| e.status == RebootStatus::Draining && member(e).is_some();
    let drained = of(&|e| draining(e) && facts.drained.contains(&e.node));
    let timeout = i32::try_from(reboot.eviction_timeout()).unwrap_or(i32::MAX);
    let timeout = Seconds::new(f64::from(timeout));
    let late = |e: &RebootEntry| {
        let since = e.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH);
        seconds_between(since, facts.now) > timeout
    };
    let timed_out = of(&|e| draining(e) && !facts.drained.contains(&e.node) && late(e));
    if !drained.is_empty() {
        operations.push(Operation::Reboot(drained));
    }
    if !timed_out.is_empty() {
        operations.push(Operation::DrainTimeout(timed_out));
    }
    if let Some(next) = next_candidate(facts, &entries, &member) {
        operations.push(Operation::DrainStart(next));
    }
    operations
}

/// Returns the entry whose drain starts next. API servers go alone and last.
fn next_candidate<'a>(
    facts: &Facts<'_>,
    entries: &[&RebootEntry],
    member: &dyn Fn(&RebootEntry) -> Option<&'a Node>,
) -> Option<u64> {
    let in_work: Vec<&&RebootEntry> = entries.iter().filter(|e| e.claims_machine()).collect();
    let in_process = |a: &Address| in_work.iter().any(|e| e.node == *a);
    let unreachable = facts.unreachable.iter().filter(|a| !in_process(a)).count();
    if i64::try_from(unreachable).unwrap_or(i64::MAX) > facts.max_unreachable {
        return None;
    }
    let api_server = |e: &RebootEntry| member(e).is_some_and(|n| n.control_plane);
    if in_work.iter().any(|e| api_server(e)) {
        return None;
    }
    let waits = |e: &&&RebootEntry| {
        let backed_off = e.drain_backoff_expire.is_none_or(|until| until <= facts.now);
        e.status == RebootStatus::Queued && backed_off && member(e).is_some()
    };
    let slots = usize::try_from(facts.cluster.reboot.concurrency()).unwrap_or(1);
    let mut candidates = entries.iter().filter(waits).peekable();
    candidates.peek()?;
    let worker = candidates.clone().find(|e| !api_server(e));
    match worker {
        Some(worker) => (in_work.len() < slots).then_some(worker.index),
        None => candidates.next().filter(|_| in_work.is_empty()).map(|e| e.index),
    }
}

/// Returns the entries that CKE considers: of two for one machine, the one with the smaller index.
pub fn considered(entries: &BTreeMap<u64, RebootEntry>) -> Vec<&RebootEntry> {
    let mut seen = BTreeSet::new();
    entries.values().filter(|e| seen.insert(&e.node)).collect()
}

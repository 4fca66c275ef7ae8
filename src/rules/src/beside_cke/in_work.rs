//! Drains and boots that CKE has in progress: the pods left on a node and what holds each, the volumes, the deadline,
//! and the state of a machine that boots.

use std::sync::Arc;

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::Progress,
    cluster::Eviction,
    entry::{EntryId, QueueKind},
    fault,
    kube::{BudgetRow, NodeRow, PodRow},
    names::Address,
    reason::{Awaited, Blocker, PodHold, Reason},
    time::{after, seconds_between},
};
use jiff::Timestamp;

use super::Pass;
use crate::{
    decide::{PodVerdict, classify_pod},
    publish::MAX_BLOCKERS,
};

/// Time after the end of its grace period at which a terminating pod counts as stuck, as in cketerm's own drains.
const TERMINATING_STUCK_AFTER: Seconds = Seconds::new(60.0);

/// Pods that a drain of one node still has to remove.
#[derive(Default)]
pub(super) struct PodsLeft {
    /// Each pod with its hold; those that only leave come last.
    pub blockers: Vec<Blocker>,
    /// Number of pods.
    pub count: u32,
    /// Reason of the worst hold: a protected Job, then a budget, then a pod stuck terminating.
    pub held: Option<Reason>,
}

/// Returns the pods that a drain by these rules has to remove from a Node, as far as CKE can get rid of them; `None`
/// while the pods are not known.
pub(super) fn pods_left(pass: Pass<'_>, node: &NodeRow, rules: Eviction<'_>) -> Option<PodsLeft> {
    let kube = &pass.snap.kube;
    let pods = kube.pods.get(&node.name).filter(|pods| pods.synced)?;
    let (mut left, mut job, mut budget, mut stuck) = (PodsLeft::default(), None, None, None);
    // CKE asks in the order in which the API server lists pods, and the first refusal ends its drain.
    let mut listed: Vec<&Arc<PodRow>> = pods.pods.values().collect();
    listed.sort_by_cached_key(|pod| pod.full_name());
    fault!(ListOrderIgnored => listed.reverse());
    for pod in listed {
        let why = match classify_pod(pod, rules, kube) {
            PodVerdict::Ignore => continue,
            PodVerdict::Protected { job: name } => {
                let reason = || Reason::BlockedByJob { pod: pod.full_name(), job: name.clone() };
                job.get_or_insert_with(reason);
                PodHold::Job { job: name }
            }
            PodVerdict::Terminating => {
                stuck = stuck.or_else(|| stuck_terminating(pod, node, pass.now.wall));
                PodHold::Terminating { since: pod.terminating_since.unwrap_or_default(), node_ready: node.ready }
            }
            // A pod that a budget holds in a namespace that is not protected is deleted.
            PodVerdict::Delete | PodVerdict::Evict { protected: false } => PodHold::Leaving,
            PodVerdict::Evict { protected: true } => match refusal(pod, kube.budgets_of(pod)) {
                None => PodHold::Leaving,
                Some((hold, reason)) => {
                    budget.get_or_insert(reason);
                    hold
                }
            },
        };
        left.blockers.push(Blocker { pod: pod.full_name(), why });
    }
    left.count = u32::try_from(left.blockers.len()).unwrap_or(u32::MAX);
    left.held = job.or(budget).or(stuck);
    left.blockers.sort_by_key(|b| (b.why == PodHold::Leaving, b.pod.clone()));
    left.blockers.truncate(MAX_BLOCKERS);
    Some(left)
}

/// Returns the hold of a pod whose eviction the API server refuses now. It evicts pending pods whatever their budget
/// says. It cannot evict a pod that several budgets select.
fn refusal<'a>(pod: &PodRow, budgets: impl Iterator<Item = &'a Arc<BudgetRow>>) -> Option<(PodHold, Reason)> {
    if pod.phase == "Pending" {
        return None;
    }
    let budgets: Vec<&Arc<BudgetRow>> = budgets.collect();
    let name = pod.full_name();
    match budgets.as_slice() {
        [] => None,
        [budget] if budget.allowed > 0 => None,
        [budget] if budget.allows_unhealthy(pod) => None,
        [budget] => {
            let (pdb, healthy, needed) = (budget.full_name(), budget.healthy, budget.needed);
            let hold = PodHold::Budget { budget: pdb.clone(), healthy, needed, cause: None };
            let reason = if budget.never_allows() {
                Reason::PdbNeverAllows { pod: name, pdb, healthy, needed, pods: budget.pods, cause: None }
            } else {
                Reason::BlockedByPdb { pod: name, pdb, healthy, needed, cause: None }
            };
            Some((hold, reason))
        }
        several => {
            let pdbs: Vec<String> = several.iter().map(|budget| budget.full_name()).collect();
            let hold = PodHold::ManyBudgets { budgets: pdbs.clone() };
            Some((hold, Reason::BlockedByManyPdbs { pod: name, pdbs }))
        }
    }
}

fn stuck_terminating(pod: &PodRow, node: &NodeRow, now: Timestamp) -> Option<Reason> {
    let ends = pod.grace_ends.or(pod.terminating_since)?;
    let is_stuck = seconds_between(ends, now) >= TERMINATING_STUCK_AFTER;
    is_stuck.then(|| Reason::TerminatingStuck { pod: pod.full_name(), since: ends, node_ready: node.ready })
}

/// Entry in work, as both queues have it.
#[derive(Clone, Copy)]
pub(super) struct InWork<'a> {
    pub id: EntryId,
    pub address: &'a Address,
    pub since: Option<Timestamp>,
    /// Step of a repair, and the number of its steps.
    pub step: Option<(i64, usize)>,
}

/// Returns reason and progress of a drain.
pub(super) fn draining(pass: Pass<'_>, entry: InWork<'_>) -> (Reason, Progress) {
    let rules = pass.definition.cluster.eviction(entry.id.queue);
    let since = entry.since.unwrap_or(pass.now.wall);
    let deadline = after(since, rules.timeout);
    let mut progress = Progress {
        phase: "draining".to_owned(),
        since,
        pods_at_start: 0,
        pods_gone: 0,
        reason: None,
        blockers: Vec::new(),
        next: Some(deadline),
        step: entry.step,
        check: None,
    };
    let working = |phase: &str| Reason::Working { phase: phase.to_owned() };
    let reason = if !pass.snap.kube.synced() {
        working("draining; its pods are unknown without Kubernetes")
    } else if let Some(node) = pass.snap.node_of(entry.address) {
        match pods_left(pass, node, rules) {
            None => working("draining; listing its pods"),
            Some(left) => {
                let known = pass.snap.observed.get(&entry.id).and_then(|o| o.pods_at_start).unwrap_or(0);
                progress.pods_at_start = known.max(left.count);
                progress.pods_gone = progress.pods_at_start - left.count;
                let reason = reason_of_drain(&left, node, deadline <= pass.now.wall);
                progress.blockers = left.blockers;
                reason
            }
        }
    } else {
        Reason::NodeMismatch { expected: format!("a Node with address {}", entry.address), found: "none".to_owned() }
    };
    progress.reason = Some(reason.clone());
    (reason, progress)
}

fn reason_of_drain(left: &PodsLeft, node: &NodeRow, is_late: bool) -> Reason {
    if let Some(held) = &left.held {
        return held.clone();
    }
    if is_late {
        return Reason::Working { phase: "past the drain's deadline: CKE backs it off next".to_owned() };
    }
    if let Some(first) = left.blockers.first() {
        return Reason::PodsLeaving { left: left.count, first: first.pod.clone() };
    }
    if node.volumes_in_use.is_empty() {
        Reason::Working { phase: "drained: CKE runs its command next".to_owned() }
    } else {
        Reason::VolumeAttached { names: node.volumes_in_use.clone() }
    }
}

/// Returns reason and progress of a machine whose command CKE ran or runs. `until`: end of a repair's watch.
pub(super) fn after_command(pass: Pass<'_>, entry: InWork<'_>, until: Option<Timestamp>) -> (Reason, Progress) {
    let since = entry.since.unwrap_or(pass.now.wall);
    let last = boot_state(pass, entry);
    let awaited = Awaited::CkeCheck;
    let reason = match entry.id.queue {
        QueueKind::Reboot => {
            let most = Seconds::from(pass.snap.store.policy().stuck_seconds);
            Reason::WaitingForBoot { since, last, stuck: seconds_between(since, pass.now.wall) >= most, awaited }
        }
        // CKE knows no maintenance
        QueueKind::Repair | QueueKind::Maintenance => {
            Reason::WaitingForHealth { step: entry.step.map_or(0, |(step, _)| step), until, last, awaited }
        }
    };
    let progress = Progress {
        phase: entry.id.queue.status_after_command().to_owned(),
        since,
        pods_at_start: 0,
        pods_gone: 0,
        reason: Some(reason.clone()),
        blockers: Vec::new(),
        next: until,
        step: entry.step,
        check: None,
    };
    (reason, progress)
}

/// Describes how far a machine's boot is, as its Node shows it; empty if Kubernetes is not known.
fn boot_state(pass: Pass<'_>, entry: InWork<'_>) -> String {
    if !pass.snap.kube.synced() {
        return String::new();
    }
    let Some(node) = pass.snap.node_of(entry.address) else { return "no Node".to_owned() };
    let observed = pass.snap.observed.get(&entry.id);
    let boot = match observed.and_then(|o| o.boot_id.as_deref().zip(Some(o.boot_id_is_old))) {
        Some((before, _)) if before != node.boot_id => "new boot id, ",
        Some((_, true)) => "old boot id, ",
        Some((_, false)) | None => "",
    };
    let since = node.ready_since.map(|at| format!(" since {}", at.strftime("%H:%M:%SZ"))).unwrap_or_default();
    format!("{boot}Node {}{since}", if node.ready { "Ready" } else { "not Ready" })
}

//! Progress of entries and `status`, which the leader publishes under its lease, and their use by other engines and
//! consoles.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    attempt::CheckAnswer,
    cketerm_records::{Progress, Status},
    clock::Now,
    cluster::Eviction,
    drain::Verdict,
    entry::{EntryId, QueueKind, Stored},
    fault,
    kube::{KubeView, NodeRow},
    names::Address,
    reason::{Blocker, PodHold, Reason},
    stored::{
        keys::Keys,
        transaction::{Change, Put},
    },
};
use jiff::Timestamp;

use super::{
    decide::{Decision, PodVerdict, budget_hold, classify_pod, full_budget},
    memory::pods_gone,
    snapshot::{DrainWork, Snapshot},
};

/// Largest number of waiting entries whose reason is published, if only the leader knows the reason.
pub const MAX_WAITING: usize = 50;
/// Largest number of blockers named for each entry.
pub(crate) const MAX_BLOCKERS: usize = 50;
/// Number of values written in one transaction.
const BATCH: usize = 60;

/// Returns the writes after which all consoles show the leader's state; `None` if nothing has changed.
pub fn changes(keys: &Keys, snap: &Snapshot, decision: &Decision, now: Now) -> Option<Change> {
    let mut change = Change::default();
    let (mut waiting, mut published) = (0, BTreeSet::new());
    for (id, reason) in &decision.reasons {
        let origin = origin(reason);
        if origin == Origin::Derivable {
            continue;
        }
        let Some(shown) = shown(snap, *id) else { continue };
        let worth = shown.in_work || (origin == Origin::Leader && waiting < MAX_WAITING);
        let old = snap.store.progress.get(id).and_then(Stored::get);
        if !worth {
            continue;
        }
        published.insert(*id);
        waiting += usize::from(!shown.in_work);
        let new = progress(snap, *id, &shown, reason, old, now);
        if old != Some(&new) {
            let mut value = Put::json(keys.progress(*id), &new);
            value.leased = true;
            change.puts.push(value);
        }
    }
    for id in snap.store.progress.keys().filter(|id| !published.contains(id)) {
        change.deletes.push(keys.progress(*id));
    }
    let phase = snap.store.status.as_ref().and_then(Stored::get).map(|s| s.phase.as_str());
    if phase != Some(decision.phase) {
        let status = Status { phase: decision.phase.to_owned(), timestamp: now.wall.to_string() };
        let mut value = Put::json(keys.status(), &status);
        value.leased = true;
        change.puts.push(value);
    }
    // `true` while the queue is enabled and not empty, as in CKE (STO-7).
    let runs = snap.store.reboots.switch.enabled() && !snap.store.reboots.entries.is_empty();
    let is_stored = snap.store.running.as_deref() == Some(if runs { "true" } else { "false" });
    fault!(RunsForEver => is_stored = is_stored || !runs);
    if !is_stored {
        change.puts.insert(0, Put { key: keys.running(), value: runs.to_string(), leased: false });
    }
    change.puts.truncate(BATCH);
    change.deletes.truncate(BATCH);
    (!change.puts.is_empty() || !change.deletes.is_empty()).then_some(change)
}

/// Origin of a reason, which decides whether the leader publishes it for an entry that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Every reader of etcd can derive it. Thousands of entries may have such a reason.
    Derivable,
    /// Kubernetes, probes or the leader's memory, and not etcd alone.
    Leader,
    /// The entry itself: readers derive it, or the entry is in progress and its progress is published anyway.
    Entry,
}

fn origin(reason: &Reason) -> Origin {
    match reason {
        Reason::WaitingForSlot { .. }
        | Reason::DuplicateOf { .. }
        | Reason::MachineInReboot { .. }
        | Reason::InMaintenance { .. }
        | Reason::MachineInRepair { .. }
        | Reason::QueueDisabled
        | Reason::WaitingForWorkers { .. }
        | Reason::WaitingForControlPlane { .. }
        | Reason::WaitingForRepairs { .. } => Origin::Derivable,
        Reason::Backoff { cause: Some(_), .. }
        | Reason::UnreachableGate { .. }
        | Reason::StartGateClosed { .. }
        | Reason::CanaryPending { .. }
        | Reason::BreakerOpen { .. }
        | Reason::LeaderOnNode { .. }
        | Reason::ControlPlaneUnhealthy { .. }
        | Reason::ControlPlaneUnclear { .. }
        | Reason::DrainedByOther { .. }
        | Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::NodeMismatch { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::Stale { .. }
        | Reason::EffectFailed { .. }
        | Reason::TransactionTooLarge { .. }
        | Reason::EngineObserving { .. }
        | Reason::OrphanedCordon { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::Settling { .. }
        | Reason::CommandRunning { .. }
        | Reason::OutcomeUnknown { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. } => Origin::Leader,
        Reason::Backoff { cause: None, .. }
        | Reason::OutsideWindow { .. }
        | Reason::WaitingForBudget { .. }
        | Reason::WaitingForGroup { .. }
        | Reason::BlockedByPdb { .. }
        | Reason::BlockedByManyPdbs { .. }
        | Reason::PdbNeverAllows { .. }
        | Reason::BlockedByJob { .. }
        | Reason::PodsLeaving { .. }
        | Reason::PodsCannotLand { .. }
        | Reason::LandingUnknown { .. }
        | Reason::EvictionRefused { .. }
        | Reason::DeferredToWebhook { .. }
        | Reason::DeniedByWebhook { .. }
        | Reason::EvictionFailing { .. }
        | Reason::TerminatingStuck { .. }
        | Reason::VolumeAttached { .. }
        | Reason::UncordonedByOther { .. }
        | Reason::HookRunning { .. }
        | Reason::HookFailed { .. }
        | Reason::UncordonGateClosed { .. }
        | Reason::CommandFailed { .. }
        | Reason::AwaitingApproval { .. }
        | Reason::Frozen { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::NoEngine { .. }
        | Reason::OnHold { .. }
        | Reason::BatchPaused { .. }
        | Reason::BatchUnreadable { .. }
        | Reason::OrderIgnored { .. }
        | Reason::BatchPauseIgnored { .. }
        | Reason::WaitingForHealth { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::WaitingForBoot { .. }
        | Reason::NoCommand { .. }
        | Reason::NotMember { .. }
        | Reason::InvalidEntry { .. }
        | Reason::Working { .. }
        | Reason::Ready => Origin::Entry,
    }
}

/// Inputs of the progress of an entry of either queue.
struct ProgressInput {
    address: Address,
    /// Short name of the phase while no effect is under way.
    phase: &'static str,
    in_work: bool,
    draining: bool,
    /// Step of a repair, and the number of steps of its operation.
    step: Option<(i64, usize)>,
}

fn shown(snap: &Snapshot, id: EntryId) -> Option<ProgressInput> {
    let entry = snap.store.entry(id)?;
    let (in_work, after_command) = (entry.in_work(), entry.is_after_command());
    let phase = match (in_work, after_command) {
        (false, _) => "waiting",
        (true, false) => "draining",
        (true, true) => id.queue.status_after_command(),
    };
    let step = entry.as_repair().map(|repair| {
        let definition = snap.store.definition();
        let operation =
            definition.and_then(|d| d.cluster.repair.operation(&repair.machine_type, &repair.operation).ok());
        (repair.step, operation.map_or(0, |o| o.steps().len()))
    });
    let draining = in_work && !after_command;
    Some(ProgressInput { address: entry.address().to_owned(), phase, in_work, draining, step })
}

fn progress(
    snap: &Snapshot,
    id: EntryId,
    shown: &ProgressInput,
    reason: &Reason,
    old: Option<&Progress>,
    now: Now,
) -> Progress {
    let address = &shown.address;
    let phase = match snap.in_flight.get(&snap.machine(address)).filter(|f| f.entry == Some(id)) {
        // Checks come and go every second and are not worth a write each.
        Some(f) if !matches!(f.what.as_str(), "checking boot" | "stamping") => f.what.clone(),
        _ => shown.phase.to_owned(),
    };
    let since = match old {
        Some(old) if old.phase == phase => old.since,
        _ => cketerm_model::time::whole_seconds(now.wall),
    };
    let (pods_gone, pods_at_start) = pods_gone(snap, id, address);
    let blockers = if shown.draining { blockers(snap, id, address) } else { Vec::new() };
    let next = reason.until();
    Progress {
        phase,
        since,
        pods_at_start,
        pods_gone,
        reason: Some(reason.clone()),
        blockers,
        next,
        step: shown.step,
        check: check(snap, id, old, now),
    }
}

/// Returns the health check's answer of a repair and since when it has been the same. The time of each single answer is
/// not worth a write.
fn check(snap: &Snapshot, id: EntryId, old: Option<&Progress>, now: Now) -> Option<(Timestamp, CheckAnswer)> {
    let (_, answer) = snap.work.get(&id).filter(|_| id.queue == QueueKind::Repair)?.check.as_ref()?;
    let before = old.and_then(|o| o.check.as_ref()).filter(|(_, known)| known == answer);
    let since = before.map_or_else(|| cketerm_model::time::whole_seconds(now.wall), |(since, _)| *since);
    Some((since, answer.clone()))
}

/// Returns the pods left on a Node, each with the cause that holds it.
pub fn blockers(snap: &Snapshot, id: EntryId, address: &Address) -> Vec<Blocker> {
    let (Some(node), Some(definition)) = (snap.node_of(address), snap.store.definition()) else { return Vec::new() };
    let drain = snap.work.get(&id).map(|w| &w.drain);
    blockers_on(&snap.kube, node, definition.cluster.eviction(id.queue), drain)
}

/// Returns the same for a Node that is drained by these rules.
pub(crate) fn blockers_on(
    kube: &KubeView,
    node: &NodeRow,
    rules: Eviction<'_>,
    drain: Option<&DrainWork>,
) -> Vec<Blocker> {
    let Some(pods) = kube.pods.get(&node.name) else { return Vec::new() };
    // Before the preview has passed, no eviction was sent.
    let asked = drain.is_none_or(|d| d.previewed || d.accepted || d.taken_over);
    let answers = drain.map(|d| &d.answers);
    let mut left: Vec<Blocker> = Vec::new();
    for pod in pods.pods.values() {
        let why = match classify_pod(pod, rules, kube) {
            PodVerdict::Ignore => continue,
            PodVerdict::Protected { job } => PodHold::Job { job },
            PodVerdict::Terminating => {
                PodHold::Terminating { since: pod.terminating_since.unwrap_or_default(), node_ready: node.ready }
            }
            verdict @ (PodVerdict::Delete | PodVerdict::Evict { .. }) => {
                match answers.and_then(|a| a.get(&pod.uid)).map(|a| &a.verdict) {
                    Some(Verdict::Held { hold, .. }) => hold.clone(),
                    Some(Verdict::Failed(answer)) => PodHold::Refused { answer: answer.clone() },
                    Some(Verdict::Undecided { answer, .. }) => PodHold::Failing { answer: answer.clone() },
                    // The reason names what blocked the preview, together with its pod.
                    None if !asked => {
                        let undecided = || drain.and_then(|d| d.undecided.as_ref()).map(|u| &u.reason);
                        let preview_cause =
                            drain.and_then(|d| d.refused.as_ref()).map(|(_, why)| why).or_else(undecided);
                        let Some(hold) = preview_cause.and_then(|why| hold_of(why, &pod.full_name())) else { continue };
                        hold
                    }
                    Some(Verdict::Accepted | Verdict::Gone) => PodHold::Leaving,
                    // No request is sent for a protected pod while its budget would refuse it (REB-67).
                    None => {
                        let full = if verdict == (PodVerdict::Evict { protected: true }) {
                            full_budget(kube, pod)
                        } else {
                            None
                        };
                        full.map_or(PodHold::Leaving, |budget| budget_hold(budget, drain))
                    }
                }
            }
        };
        left.push(Blocker { pod: pod.full_name(), why });
    }
    left.sort_by_key(|b| (b.why == PodHold::Leaving, b.pod.clone()));
    left.truncate(MAX_BLOCKERS);
    left
}

/// Returns the cause that holds this pod, if the reason of a refused preview names the pod.
fn hold_of(reason: &Reason, name: &str) -> Option<PodHold> {
    reason.pod_hold().and_then(|(pod, hold)| (pod == name).then_some(hold))
}

/// Returns the reasons for display. While another cketerm engine leads, its published reasons count.
pub fn merged(snap: &Snapshot, mut reasons: BTreeMap<EntryId, Reason>) -> BTreeMap<EntryId, Reason> {
    let store = &snap.store;
    let another = store.leader().is_some_and(|l| l.lease != snap.engine.lease && !store.is_cke(l));
    if snap.engine.leading.is_some() || !another {
        return reasons;
    }
    for (id, stored) in &store.progress {
        if let Some(reason) = stored.get().and_then(|p| p.reason.clone()) {
            reasons.insert(*id, reason);
        }
    }
    reasons
}

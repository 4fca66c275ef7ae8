//! What the leader tells everybody: progress of entries in work, and `status`, both under its lease; and what those who
//! look on make of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    decide::{Decision, PodVerdict, judge},
    memory::pods_gone,
    snapshot::Snapshot,
};
use crate::{
    clock::Now,
    model::{
        drain::Verdict,
        entry::{EntryId, Stored},
        ours::{Progress, Status},
        reason::{Blocker, PodHold, Reason},
        reboot::RebootStatus,
    },
    store::{
        Store,
        commit::{Change, Put},
    },
};

/// Waiting entries whose reason only the leader knows are published up to this many.
const WAITING: usize = 50;
/// Blockers named for each entry.
const BLOCKERS: usize = 50;
/// Values written in one transaction.
const BATCH: usize = 60;

/// What is to be written so that all consoles show what the leader knows; `None` when nothing has changed.
pub(super) fn changes(
    store: &Store,
    snap: &Snapshot,
    decision: &Decision,
    running: &mut Option<bool>,
    now: Now,
) -> Option<Change> {
    let mut change = Change::default();
    let (mut waiting, mut published) = (0, BTreeSet::new());
    for (id, reason) in &decision.reasons {
        if etcd_alone_tells(reason) {
            continue;
        }
        let Some(entry) = snap.store.reboots.entries.get(&id.index).and_then(Stored::get) else { continue };
        let in_work = matches!(entry.status, RebootStatus::Draining | RebootStatus::Rebooting);
        let worth = in_work || (only_leader_knows(reason) && waiting < WAITING);
        let old = snap.store.progress.get(id).and_then(Stored::get);
        if !worth {
            continue;
        }
        published.insert(*id);
        waiting += usize::from(!in_work);
        let new = progress(snap, *id, &entry.node, entry.status, reason, old, now);
        if old != Some(&new) {
            let mut value = Put::json(store.keys().progress(*id), &new);
            value.leased = true;
            change.puts.push(value);
        }
    }
    for id in snap.store.progress.keys().filter(|id| !published.contains(id)) {
        change.deletes.push(store.keys().progress(*id));
    }
    let phase = snap.store.status.as_ref().and_then(Stored::get).map(|s| s.phase.as_str());
    if phase != Some(decision.phase) {
        let status = Status { phase: decision.phase.to_owned(), timestamp: now.wall.to_string() };
        let mut value = Put::json(store.keys().status(), &status);
        value.leased = true;
        change.puts.push(value);
    }
    // `true` while the queue is enabled and not empty, as CKE has it.
    let runs = snap.store.reboots.switch.enabled() && !snap.store.reboots.entries.is_empty();
    if *running != Some(runs) {
        *running = Some(runs);
        change.puts.insert(0, Put { key: store.keys().running(), value: runs.to_string(), leased: false });
    }
    change.puts.truncate(BATCH);
    change.deletes.truncate(BATCH);
    (!change.puts.is_empty() || !change.deletes.is_empty()).then_some(change)
}

/// The reasons that entries have by the thousand: everybody who reads etcd sees them for himself.
fn etcd_alone_tells(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::WaitingForSlot { .. }
            | Reason::DuplicateOf { .. }
            | Reason::QueueDisabled
            | Reason::WaitingForWorkers { .. }
            | Reason::WaitingForControlPlane { .. }
    )
}

/// Reasons that come from Kubernetes, probes or the leader's memory, and not from etcd alone.
fn only_leader_knows(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::UnreachableGate { .. }
            | Reason::ControlPlaneUnhealthy { .. }
            | Reason::NodeMismatch { .. }
            | Reason::ProgramMissing { .. }
            | Reason::Stale { .. }
            | Reason::EffectFailed { .. }
            | Reason::EngineObserving { .. }
            | Reason::OrphanedCordon { .. }
            | Reason::Backoff { cause: Some(_), .. }
    )
}

fn progress(
    snap: &Snapshot,
    id: EntryId,
    address: &str,
    status: RebootStatus,
    reason: &Reason,
    old: Option<&Progress>,
    now: Now,
) -> Progress {
    let machine = snap.machine(address);
    let phase = match snap.in_flight.get(&machine).filter(|f| f.entry == Some(id)) {
        // Checks come and go every second: they are not worth a write each.
        Some(f) if !matches!(f.what.as_str(), "checking boot" | "stamping") => f.what.clone(),
        _ => match status {
            RebootStatus::Draining => "draining".to_owned(),
            RebootStatus::Rebooting => "rebooting".to_owned(),
            RebootStatus::Queued | RebootStatus::Cancelled => "waiting".to_owned(),
        },
    };
    let since = match old {
        Some(old) if old.phase == phase => old.since,
        _ => crate::model::time::whole_seconds(now.wall),
    };
    let (pods_gone, pods_at_start) = pods_gone(snap, id, address);
    let blockers = if status == RebootStatus::Draining { blockers(snap, id, address) } else { Vec::new() };
    let next = match reason {
        Reason::Backoff { until, .. } => Some(*until),
        _ => None,
    };
    Progress {
        phase,
        since,
        pods_at_start,
        pods_gone,
        reason: Some(reason.clone()),
        blockers,
        next,
        step: None,
        check: None,
    }
}

/// The pods that are left on a node, each with what holds it.
fn blockers(snap: &Snapshot, id: EntryId, address: &str) -> Vec<Blocker> {
    let (Some(node), Some(definition)) = (snap.node_of(address), snap.store.definition()) else { return Vec::new() };
    let Some(pods) = snap.kube.pods.get(&node.name) else { return Vec::new() };
    let answers = snap.work.get(&id).map(|w| &w.drain.answers);
    let mut left: Vec<Blocker> = Vec::new();
    for pod in pods.pods.values() {
        let why = match judge(pod, &definition.cluster.reboot, &snap.kube) {
            PodVerdict::Ignore => continue,
            PodVerdict::Protected { job } => PodHold::Job { job },
            PodVerdict::Terminating => {
                PodHold::Terminating { since: pod.terminating_since.unwrap_or_default(), node_ready: node.ready }
            }
            PodVerdict::Delete | PodVerdict::Evict { .. } => {
                match answers.and_then(|a| a.get(&pod.uid)).map(|a| &a.verdict) {
                    Some(Verdict::Held { hold, .. }) => hold.clone(),
                    Some(Verdict::Failed(answer) | Verdict::NoAnswer(answer)) => {
                        PodHold::Refused { answer: answer.clone() }
                    }
                    Some(Verdict::Accepted | Verdict::Gone) | None => PodHold::Leaving,
                }
            }
        };
        left.push(Blocker { pod: pod.full_name(), why });
    }
    left.sort_by_key(|b| (b.why == PodHold::Leaving, b.pod.clone()));
    left.truncate(BLOCKERS);
    left
}

/// Reasons as everybody shows them: while another cketerm leads, what it has published counts.
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

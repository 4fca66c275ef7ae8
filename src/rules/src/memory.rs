//! Memory of entries in progress between passes. It holds observations, never the only record of a decision (STO-48).

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    attempt::CheckAnswer,
    boot_time::{BootTime, Seconds},
    clock::Now,
    cluster::Eviction,
    drain::{Answer, Finding, Preview, Verdict},
    entry::{EntryId, QueueKind},
    entry_ref::EntryRef,
    fault,
    kube::{KubeView, NodeRow},
    maintenance::MaintenanceStatus,
    names::{Address, NodeName},
    reason::{PodHold, Reason},
    reboot::RebootStatus,
    repair::StepStatus,
    stored::view::StoreView,
};

use super::{
    decide::{Effect, count_leaving, readiness},
    snapshot::{DrainWork, EffectOutcome, KnownCause, Leading, Retries, Snapshot, UndecidedPreview, Work},
};

/// Time before a machine is retried after an effect on it failed.
pub const PAUSE: Seconds = Seconds::new(2.0);
/// Time before a retry if etcd refused the transaction for its size. An operator has to act first.
pub const REFUSED: Seconds = Seconds::new(30.0);

/// Returns the time before the next decision after `count` stale effects in a row: 0.1 s, then doubled each time, at
/// most 5 s (SAF-12).
pub fn stale_pause(count: u32) -> Seconds {
    Seconds::new(0.1) * f64::from(1_u32 << count.saturating_sub(1).min(6)).min(50.0)
}

/// Returns the time before the upkeep of a Node is tried again after `count` failures in a row: 2 s, then doubled each
/// time, at most 64 s.
pub fn failed_upkeep_pause(count: u32) -> Seconds {
    PAUSE * f64::from(1_u32 << count.saturating_sub(1).min(5))
}

/// Updates the memory from the live copies, before a pass.
pub fn observe(snap: &mut Snapshot, now: Now) {
    let mut work = std::mem::take(&mut snap.work);
    let store = Arc::clone(&snap.store);
    let marked: Vec<EntryId> =
        snap.kube.marked.iter().filter_map(|n| snap.kube.by_name.get(n)?.owner().map(|o| o.entry)).collect();
    work.retain(|id, _| {
        let exists = store.stored_entry(*id).is_some_and(|stored| match stored.get() {
            None | Some(EntryRef::Reboot(_) | EntryRef::Maintenance(_)) => true,
            Some(EntryRef::Repair(entry)) => entry.unfinished(),
        });
        exists || (store.attempts_of(*id).next().is_some() && !finished(&store, *id)) || marked.contains(id)
    });
    if let Some(leading) = &snap.engine.leading {
        for (&index, stored) in &store.reboots.entries {
            let Some(entry) = stored.get() else { continue };
            let id = EntryId::reboot(index);
            match entry.status {
                RebootStatus::Draining => {
                    let work = work.entry(id).or_insert_with(|| drain_seen_first(leading, stored.mod_revision));
                    observe_drain(snap, work, id, &entry.node, now);
                }
                RebootStatus::Rebooting => observe_readiness(snap, work.entry(id).or_default(), id, &entry.node, now),
                RebootStatus::Queued | RebootStatus::Cancelled => {}
            }
        }
        for (&index, stored) in &store.maintenance.entries {
            let Some(entry) = stored.get() else { continue };
            let id = EntryId::maintenance(index);
            match entry.status {
                MaintenanceStatus::Draining => {
                    let work = work.entry(id).or_insert_with(|| drain_seen_first(leading, stored.mod_revision));
                    observe_drain(snap, work, id, &entry.node, now);
                }
                MaintenanceStatus::InMaintenance => {
                    note_uncordon(work.entry(id).or_default(), id, snap.node_of(&entry.node), now);
                }
                MaintenanceStatus::Queued => {}
            }
        }
        for (&index, stored) in &store.repairs.entries {
            let Some(entry) = stored.get().filter(|e| e.unfinished()) else { continue };
            let id = EntryId::repair(index);
            if entry.claims_machine() && entry.step_status == StepStatus::Draining {
                let work = work.entry(id).or_insert_with(|| drain_seen_first(leading, stored.mod_revision));
                observe_drain(snap, work, id, &entry.address, now);
            }
            if let Some(work) = work.get_mut(&id) {
                observe_readiness(snap, work, id, &entry.address, now);
            }
        }
    }
    snap.work = work;
    note_foreign_records(snap, now);
}

/// Notes since when each Node carries the owner record of another lease. This distinguishes a newer leader's record
/// from an older one's (SAF-34).
fn note_foreign_records(snap: &mut Snapshot, now: Now) {
    let before = std::mem::take(&mut snap.foreign);
    let (kube, own_lease) = (&snap.kube, snap.engine.lease);
    let leases = kube.marked.iter().filter_map(|name| Some((name, kube.by_name.get(name)?.owner()?.lease)));
    snap.foreign = leases
        .filter(|(_, lease)| *lease != own_lease)
        .map(|(name, lease)| match before.get(name) {
            Some(known) if known.0 == lease => (name.clone(), *known),
            _ => (name.clone(), (lease, now.boot)),
        })
        .collect();
}

/// Returns the memory of a drain that this leader sees for the first time. One that another leader began counts as one
/// with an accepted eviction (REB-28). A write since this leader's win is this leader's own, even if it does not know: its
/// request may have been carried out twice, and only the second answer, a refusal, have arrived.
fn drain_seen_first(leading: &Leading, mod_revision: i64) -> Work {
    let mut work = Work::default();
    work.drain.taken_over = mod_revision < leading.create_revision;
    fault!(OwnDrainForgotten => work.drain.taken_over = true);
    work
}

fn is_control_plane(snap: &Snapshot, address: &Address) -> bool {
    snap.store.definition().and_then(|d| d.members.by_address(&d.cluster, address)).is_some_and(|n| n.control_plane)
}

fn observe_drain(snap: &Snapshot, work: &mut Work, id: EntryId, address: &Address, now: Now) {
    let (Some(node), Some(definition)) = (snap.node_of(address), snap.store.definition()) else { return };
    note_uncordon(work, id, Some(node), now);
    observe_pods(&snap.kube, &mut work.drain, &node.name, definition.cluster.eviction(id.queue));
}

/// Notes how many pods had to leave a Node at the start, and forgets the answers about pods that are gone.
pub(crate) fn observe_pods(kube: &KubeView, drain: &mut DrainWork, node: &NodeName, rules: Eviction<'_>) {
    let Some(pods) = kube.pods.get(node).filter(|p| p.synced) else { return };
    if drain.pods_at_start.is_none() {
        drain.pods_at_start = pods_left(kube, node, rules);
    }
    drain.answers.retain(|uid, _| pods.pods.contains_key(uid));
}

/// Notes since when the Node has been uncordoned by somebody else.
fn note_uncordon(work: &mut Work, id: EntryId, node: Option<&Arc<NodeRow>>, now: Now) {
    let uncordoned = node.is_some_and(|n| !n.unschedulable && n.owner().is_some_and(|o| o.entry == id));
    work.drain.uncordoned = uncordoned.then(|| work.drain.uncordoned.unwrap_or(now.wall));
}

/// Notes since when check, boot id, Ready and probe have all been good without a break.
fn observe_readiness(snap: &Snapshot, work: &mut Work, id: EntryId, address: &Address, now: Now) {
    let node = snap.node_of(address);
    note_uncordon(work, id, node, now);
    let yes = matches!(work.check, Some((_, CheckAnswer::Yes)));
    let ready = yes && readiness(snap, id, address, is_control_plane(snap, address), node, now).missing.is_none();
    work.recovered_since = ready.then(|| work.recovered_since.unwrap_or(now.boot));
}

/// Reports whether a repair has ended and stays in the queue. Nothing is remembered of it.
fn finished(store: &StoreView, id: EntryId) -> bool {
    store.entry(id).is_some_and(EntryRef::finished)
}

/// Records the outcome of an effect in the memory.
pub fn remember(
    work: &mut BTreeMap<EntryId, Work>,
    id: EntryId,
    effect: &Effect,
    effect_outcome: &EffectOutcome,
    now: Now,
) {
    let at = now.boot;
    if let EffectOutcome::TooLarge(size) = effect_outcome {
        work.entry(id).or_default().too_large = Some((effect.as_str().to_owned(), *size));
        return;
    }
    // Checks and fresh reads meanwhile prove nothing about the transaction that was too large.
    if let (Some(work), false) = (
        work.get_mut(&id),
        matches!(effect_outcome, EffectOutcome::Check(_) | EffectOutcome::Rechecked(_) | EffectOutcome::Stale(_)),
    ) {
        work.too_large = None;
    }
    match (effect, effect_outcome) {
        (Effect::StartDrain { .. } | Effect::Unwind { .. }, EffectOutcome::Done) => reset_drain(work, id, None),
        (Effect::BackOff { cause, .. }, EffectOutcome::Done) => {
            reset_drain(work, id, Some(Box::new(cause.clone())));
        }
        (Effect::Remove { .. } | Effect::Finish { .. }, EffectOutcome::Done) => {
            work.remove(&id);
        }
        (Effect::MoveEtcdLeader { .. }, EffectOutcome::Done) => {
            work.entry(id).or_default().drain.leader_moved = Some(at);
        }
        (Effect::Stamp { .. }, EffectOutcome::Done) => {
            let work = work.entry(id).or_default();
            (work.stamped, work.fresh, work.retries) = (true, None, None);
        }
        (_, EffectOutcome::Failed(why)) => {
            let work = work.entry(id).or_default();
            count_failed_effect(work, why.clone());
            work.pause = Some((at + PAUSE, why.clone()));
        }
        // Checks are repeated all the time anyway.
        (Effect::BootCheck { .. } | Effect::HealthCheck { .. }, EffectOutcome::Stale(_)) => {}
        (_, EffectOutcome::Stale(cause)) => {
            let work = work.entry(id).or_default();
            let count = count_failed_effect(work, cause.to_string());
            // The first one is an ordinary race and is not reported.
            if count > 1 {
                work.pause = Some((at + stale_pause(count), cause.to_string()));
            }
        }
        (_, EffectOutcome::Rechecked(fresh)) => work.entry(id).or_default().fresh = Some(fresh.clone()),
        (_, EffectOutcome::Explained(causes)) => {
            let work = work.entry(id).or_default();
            for (budget, cause) in causes {
                let version = asked_version(effect, budget);
                work.drain.causes.insert(budget.clone(), KnownCause { version, at, cause: cause.clone() });
            }
        }
        (_, EffectOutcome::Previewed(preview)) => {
            let work = work.entry(id).or_default();
            work.retries = None;
            if let Finding::Blocked(reason) = &preview.finding
                && let Some((_, hold)) = reason.pod_hold()
            {
                note_cause(&mut work.drain, &hold, at);
            }
            previewed(work, preview, at);
            note_refusing_budget(&mut work.drain, effect);
        }
        (Effect::Evict { evict, unprotected, .. }, EffectOutcome::Answers(answers)) => {
            let work = work.entry(id).or_default();
            work.retries = None;
            work.drain.accepted |= answers.values().any(|a| a.verdict.accepts());
            for answer in answers.values() {
                if let Verdict::Held { hold, .. } = &answer.verdict {
                    note_cause(&mut work.drain, hold, at);
                }
            }
            for (uid, answer) in answers {
                let before = work.drain.answers.get(uid).map_or(0, |a| a.undecided);
                let decided = !matches!(answer.verdict, Verdict::Undecided { .. });
                let undecided = if decided { 0 } else { before.saturating_add(1) };
                work.drain.answers.insert(uid.clone(), Answer { undecided, ..answer.clone() });
            }
            // If no eviction was accepted, the whole round counts as one refusal, once all answers are there. A mere
            // wait is no refusal, and neither is a pod that is deleted next.
            let held = evict.iter().find_map(|(pod, _)| match answers.get(&pod.uid).map(|a| &a.verdict) {
                Some(Verdict::Held { hold: PodHold::Budget { .. } | PodHold::ManyBudgets { .. }, .. })
                    if unprotected.contains(&pod.uid) =>
                {
                    None
                }
                Some(Verdict::Held { hold, retry_after: None }) if refusal(hold) => {
                    Some(super::decide::pod_hold_reason(pod, hold))
                }
                _ => None,
            });
            if let (Some(cause), false, false) = (held, work.drain.accepted, work.drain.taken_over) {
                refused(work, cause, at);
                note_refusing_budget(&mut work.drain, effect);
                // The next round sends them again.
                work.drain.answers.retain(|_, a| !matches!(a.verdict, Verdict::Held { .. }));
            }
        }
        // A check that began before the last command ended proves nothing about that command.
        (Effect::HealthCheck { asked, .. }, EffectOutcome::Check(_))
            if work.get(&id).and_then(|w| w.commanded).is_some_and(|ended| *asked < ended) => {}
        (_, EffectOutcome::Check(answer)) => {
            let work = work.entry(id).or_default();
            work.check = Some((at, answer.clone()));
            work.check_began = if let Effect::HealthCheck { asked, .. } = effect { Some(*asked) } else { None };
        }
        (_, EffectOutcome::Command(_)) => {
            // Only a check made after this command counts.
            let work = work.entry(id).or_default();
            (work.check, work.recovered_since, work.commanded) = (None, None, Some(at));
            (work.fresh, work.retries) = (None, None);
        }
        (_, EffectOutcome::Done | EffectOutcome::Answers(_) | EffectOutcome::TooLarge(_) | EffectOutcome::Lost) => {}
    }
}

/// Notes the cause behind a budget that refused an eviction.
fn note_cause(drain: &mut DrainWork, hold: &PodHold, at: BootTime) {
    if let PodHold::Budget { budget, cause: Some(cause), .. } = hold {
        let known = KnownCause { version: String::new(), at, cause: (**cause).clone() };
        drain.causes.insert(budget.clone(), known);
    }
}

/// Returns the resourceVersion of a budget whose cause the effect looks up.
fn asked_version(effect: &Effect, budget: &str) -> String {
    let Effect::Explain { budgets } = effect else { return String::new() };
    let asked = budgets.iter().find(|row| row.full_name() == budget);
    asked.map(|row| row.resource_version.clone()).unwrap_or_default()
}

/// Notes the budget by which the last round was refused, as it was when the round was planned.
fn note_refusing_budget(drain: &mut DrainWork, effect: &Effect) {
    let (Effect::Preview { pods, .. } | Effect::Evict { evict: pods, .. }) = effect else { return };
    let hold = drain.refused.as_ref().and_then(|(_, reason)| reason.pod_hold());
    drain.refused_by = match hold {
        Some((_, PodHold::Budget { budget, .. })) => {
            let row = pods.iter().flat_map(|(_, budgets)| budgets).find(|row| row.full_name() == budget);
            row.map(|row| (budget, row.resource_version.clone()))
        }
        Some(_) | None => None,
    };
}

/// Counts an effect that came to nothing, and drops the fresh read made for it.
fn count_failed_effect(work: &mut Work, why: String) -> u32 {
    let count = work.retries.as_ref().map_or(0, |r| r.count).saturating_add(1);
    (work.fresh, work.retries) = (None, Some(Retries { count, why }));
    count
}

/// Resets the memory when a drain begins or ends early. The last health answer of a repair is kept, because health
/// checks run all the time.
fn reset_drain(work: &mut BTreeMap<EntryId, Work>, id: EntryId, backoff_cause: Option<Box<Reason>>) {
    let before = work.remove(&id).unwrap_or_default();
    let (check, commanded) =
        if id.queue == QueueKind::Repair { (before.check, before.commanded) } else { (None, None) };
    work.insert(id, Work { check, commanded, backoff_cause, ..Work::default() });
}

/// Reports whether an answer is a refusal, as opposed to a wait.
fn refusal(hold: &PodHold) -> bool {
    match hold {
        PodHold::BudgetLag { .. } | PodHold::Replaced | PodHold::NamespaceTerminating | PodHold::Deferred { .. } => {
            false
        }
        PodHold::Budget { .. }
        | PodHold::ManyBudgets { .. }
        | PodHold::Denied { .. }
        | PodHold::Failing { .. }
        | PodHold::Job { .. }
        | PodHold::Terminating { .. }
        | PodHold::Leaving
        | PodHold::Refused { .. } => true,
    }
}

fn previewed(work: &mut Work, preview: &Preview, at: BootTime) {
    let drain = &mut work.drain;
    drain.passed.extend(preview.passed.iter().cloned());
    let times = drain.undecided.take().map_or(0, |u| u.times).saturating_add(1);
    match &preview.finding {
        Finding::Clean => {
            (drain.previewed, drain.refusals, drain.refused) = (true, 0, None);
            drain.passed.clear();
        }
        Finding::Unfinished => {}
        Finding::Undecided { reason, retry_after } => {
            let (retry_after, reason) = (*retry_after, reason.clone());
            drain.undecided = Some(UndecidedPreview { at, times, retry_after, reason });
        }
        Finding::Blocked(cause) => {
            drain.passed.clear();
            refused(work, cause.clone(), at);
        }
    }
}

fn refused(work: &mut Work, cause: Reason, at: BootTime) {
    work.drain.refusals = work.drain.refusals.saturating_add(1);
    work.drain.refused = Some((at, cause));
}

/// Returns how many of the pods that were there at the start are gone, and how many there were.
pub fn pods_gone(snap: &Snapshot, id: EntryId, address: &Address) -> (u32, u32) {
    let start = snap.work.get(&id).and_then(|w| w.drain.pods_at_start).unwrap_or(0);
    let left = || {
        let (node, definition) = (snap.node_of(address)?, snap.store.definition()?);
        pods_left(&snap.kube, &node.name, definition.cluster.eviction(id.queue))
    };
    let drained = snap.store.entry(id).is_some_and(EntryRef::is_after_command);
    let left = if drained { 0 } else { left().unwrap_or(start) };
    (start.saturating_sub(left), start)
}

/// Returns how many pods have to leave a Node by these rules; `None` if its pods are not known.
pub(crate) fn pods_left(kube: &KubeView, node: &NodeName, rules: Eviction<'_>) -> Option<u32> {
    let pods: Vec<_> = kube.pods.get(node)?.pods.values().cloned().collect();
    u32::try_from(count_leaving(&pods, rules, kube)).ok()
}

#[cfg(test)]
mod tests;

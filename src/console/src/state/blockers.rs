//! Objects that keep pods on draining nodes, sorted by the number of nodes: the fixes that help most drains.
#![warn(clippy::wildcard_enum_match_arm)] // a new reason must be decided here

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    entry::EntryId,
    reason::{PodHold, Reason},
};
use jiff::Timestamp;

use super::{App, queries, short_text};

/// An object that blocks evictions, with everything it blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockerGroup {
    /// The object: a budget, a job, a webhook, or one pod's own problem.
    pub what: String,
    /// The nodes whose drain it blocks.
    pub nodes: BTreeSet<String>,
    /// The pods that are known.
    pub pods: BTreeSet<String>,
    /// Time of the drain that met it, if that drain was given up; `None` if it blocks now.
    pub tried: Option<Timestamp>,
}

/// Returns all blockers, the one that blocks the most nodes first.
pub fn all(app: &App) -> Vec<BlockerGroup> {
    let (seen, store) = (&app.seen, &app.seen.snapshot.store);
    let reboots = store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    let mut found: BTreeMap<String, BlockerGroup> = BTreeMap::new();
    for id in reboots.chain(repairs) {
        let Some(node) = queries::machine(seen, id) else { continue };
        let tried = tried(app, id);
        for (object, what, pod) in of(app, id) {
            let group = found.entry(object).or_insert_with(|| BlockerGroup { tried, ..BlockerGroup::default() });
            // of several, the one that was seen last
            if group.what.is_empty() || (group.tried.is_some() && (tried.is_none() || tried > group.tried)) {
                (group.what, group.tried) = (what, tried);
            }
            group.nodes.insert(node.clone());
            group.pods.extend(pod);
        }
    }
    let mut all: Vec<BlockerGroup> = found.into_values().collect();
    all.sort_by_key(|group| (std::cmp::Reverse(group.nodes.len()), group.what.clone()));
    all
}

/// Reports whether something blocks the drain of an entry, or made it back off.
pub fn any(app: &App, id: EntryId) -> bool {
    !of(app, id).is_empty()
}

/// Reports whether the cause of a backoff may pass without a change by somebody, so that an earlier retry may help.
pub fn may_pass(cause: &Reason) -> bool {
    match cause {
        // the API server refuses every eviction until a budget, a webhook or a pod is changed
        Reason::PdbNeverAllows { .. }
        | Reason::BlockedByManyPdbs { .. }
        | Reason::TerminatingStuck { .. }
        // the entry or its machine has to be changed
        | Reason::NodeMismatch { .. }
        | Reason::NotMember { .. }
        | Reason::InvalidEntry { .. }
        | Reason::UncordonedByOther { .. }
        | Reason::OrphanedCordon { .. }
        | Reason::OrderIgnored { .. }
        | Reason::BatchPauseIgnored { .. }
        | Reason::BatchUnreadable { .. }
        | Reason::ControlPlaneUnclear { .. }
        | Reason::DrainedByOther { .. }
        | Reason::OnHold { .. }
        | Reason::BatchPaused { .. }
        // the definition, the policy or the engine's host has to be changed
        | Reason::NoCommand { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::TransactionTooLarge { .. }
        | Reason::AwaitingApproval { .. } => false,
        Reason::BlockedByPdb { .. }
        | Reason::BlockedByJob { .. }
        | Reason::PodsLeaving { .. }
        | Reason::PodsCannotLand { .. }
        | Reason::LandingUnknown { .. }
        | Reason::EvictionRefused { .. }
        | Reason::EvictionFailing { .. }
        | Reason::DeferredToWebhook { .. }
        | Reason::DeniedByWebhook { .. }
        | Reason::VolumeAttached { .. }
        | Reason::Backoff { .. }
        | Reason::QueueDisabled
        | Reason::WaitingForSlot { .. }
        | Reason::WaitingForWorkers { .. }
        | Reason::WaitingForControlPlane { .. }
        | Reason::WaitingForRepairs { .. }
        | Reason::WaitingForBudget { .. }
        | Reason::WaitingForGroup { .. }
        | Reason::WaitingForHealth { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::WaitingForBoot { .. }
        | Reason::UnreachableGate { .. }
        | Reason::BreakerOpen { .. }
        | Reason::StartGateClosed { .. }
        | Reason::LeaderOnNode { .. }
        | Reason::CanaryPending { .. }
        | Reason::ControlPlaneUnhealthy { .. }
        | Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::OutsideWindow { .. }
        | Reason::Frozen { .. }
        | Reason::CommandRunning { .. }
        | Reason::HookRunning { .. }
        | Reason::HookFailed { .. }
        | Reason::UncordonGateClosed { .. }
        | Reason::CommandFailed { .. }
        | Reason::OutcomeUnknown { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::EngineObserving { .. }
        | Reason::NoEngine { .. }
        | Reason::Stale { .. }
        | Reason::DuplicateOf { .. }
        | Reason::InMaintenance { .. }
        | Reason::MachineInRepair { .. }
        | Reason::MachineInReboot { .. }
        | Reason::Settling { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. }
        | Reason::EffectFailed { .. }
        | Reason::Working { .. }
        | Reason::Ready => true,
    }
}

/// An object that blocks the drain of an entry: its identity, its text, and the pod that it keeps.
type Blocking = (String, String, Option<String>);

/// Returns the time of the last drain of an entry that backs off, if what blocked it may be over.
fn tried(app: &App, id: EntryId) -> Option<Timestamp> {
    match app.seen.reasons.get(&id) {
        Some(Reason::Backoff { tried, .. }) => *tried,
        Some(_) | None => None,
    }
}

/// Returns what blocks the drain of an entry now; of one that does not drain, what it backed off because of.
fn of(app: &App, id: EntryId) -> Vec<Blocking> {
    let seen = &app.seen;
    // the blockers of an entry that is not draining now are outdated
    let known = queries::progress(seen, id).filter(|_| queries::in_work(seen, id));
    let blockers = known.map(|progress| progress.blockers.as_slice()).unwrap_or_default();
    let blocking: Vec<Blocking> = blockers.iter().filter_map(|blocker| of_pod(&blocker.pod, &blocker.why)).collect();
    if !blocking.is_empty() {
        return blocking;
    }
    let why = seen.reasons.get(&id);
    let why = if let Some(Reason::Backoff { cause, .. }) = why { cause.as_deref() } else { why };
    why.and_then(|why| of_reason(app, why)).into_iter().collect()
}

fn of_reason(app: &App, why: &Reason) -> Option<Blocking> {
    if let Reason::TerminatingStuck { pod, node_ready, .. } = why {
        let pod = Some(pod.clone());
        if !node_ready {
            return Some(unreachable_pods(pod));
        }
        let what = short_text::reason(why, app.known());
        return Some((what.clone(), what, pod));
    }
    why.pod_hold().and_then(|(pod, hold)| of_pod(pod, &hold))
}

/// Returns what keeps a pod on its node. `None` for one that leaves.
fn of_pod(pod: &str, why: &PodHold) -> Option<Blocking> {
    let kept = Some(pod.to_owned());
    let one = |what: String| Some((what.clone(), what, Some(pod.to_owned())));
    match why {
        PodHold::Leaving | PodHold::Terminating { node_ready: true, .. } => None,
        PodHold::Terminating { node_ready: false, .. } => Some(unreachable_pods(kept)),
        PodHold::Budget { budget, healthy, needed, cause } => {
            let allowed = healthy.saturating_sub(*needed).max(0);
            let numbers = format!("{healthy} of {needed} needed healthy, {allowed} may be disrupted");
            let what = cause.as_deref().map_or_else(
                || format!("pdb {budget}: {numbers}"),
                |cause| format!("pdb {budget}: {cause} ({healthy} healthy, needs {needed})"),
            );
            Some((format!("pdb {budget}"), what, kept))
        }
        PodHold::Deferred { webhook, .. } | PodHold::Denied { webhook, .. } => one(format!("webhook {webhook}")),
        PodHold::ManyBudgets { .. } | PodHold::Job { .. } => one(why.to_string()),
        PodHold::BudgetLag { .. }
        | PodHold::Failing { .. }
        | PodHold::NamespaceTerminating
        | PodHold::Replaced
        | PodHold::Refused { .. } => one(format!("{pod}: {why}")),
    }
}

fn unreachable_pods(pod: Option<String>) -> Blocking {
    let what = "pods terminating on a node that is not Ready".to_owned();
    (what.clone(), what, pod)
}

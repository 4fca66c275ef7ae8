//! Kubernetes Events about the pods of a drain (policy `pod_events`): those that it evicts, and those that block it.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_clients::kubernetes::ObjectEvent;
use cketerm_model::{
    drain::{Answer, Verdict},
    entry::EntryId,
    kube::PodRow,
    reason::PodHold,
};

use super::Actor;

/// Requests that were sent for the pods of one drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentRequests {
    /// Dry runs of evictions, or evictions.
    Evictions {
        /// Whether they were dry runs.
        dry_run: bool,
    },
    /// Deletions.
    Deletions,
}

impl Actor {
    /// Records an Event about each pod that leaves, and about each one that blocks the drain. A budget does not block
    /// those that are `unprotected`: they are deleted then.
    pub(super) fn record_pod_events<'p>(
        &self,
        entry: Option<EntryId>,
        sent: SentRequests,
        unprotected: &BTreeSet<String>,
        pods: impl Iterator<Item = &'p PodRow>,
        answers: &BTreeMap<String, Answer>,
    ) {
        if !self.live.borrow().policy().pod_events {
            return;
        }
        let for_entry = entry.map(|id| format!(" for {id}{}", self.requested_by_text(id))).unwrap_or_default();
        for pod in pods {
            let Some(answer) = answers.get(&pod.uid) else { continue };
            let node = &pod.node;
            let blocked = |why: String| {
                let text = format!("the drain of node {node}{for_entry} cannot evict the pod: {why}");
                ObjectEvent { warning: true, ..ObjectEvent::on_pod(pod, ("EvictionBlocked", "Drain"), text) }
            };
            let leaves = |how: &str| {
                let text = format!("{how} by the drain of node {node}{for_entry}");
                ObjectEvent::on_pod(pod, ("Evicting", "Drain"), text)
            };
            let event = match (&answer.verdict, sent) {
                (Verdict::Accepted, SentRequests::Evictions { dry_run: false }) => Some(leaves("evicted")),
                (Verdict::Accepted, SentRequests::Deletions) => Some(leaves("deleted")),
                (Verdict::Held { hold, .. }, _) if blocks(hold) && !unprotected.contains(&pod.uid) => {
                    Some(blocked(hold.to_string()))
                }
                (Verdict::Failed(why), _) => Some(blocked(why.clone())),
                (Verdict::Accepted | Verdict::Gone | Verdict::Held { .. } | Verdict::Undecided { .. }, _) => None,
            };
            if let Some(event) = event {
                self.events.emit(event);
            }
        }
    }
}

/// Reports whether a pod with this hold blocks the drain. Otherwise it leaves soon, or a repeated request decides.
fn blocks(hold: &PodHold) -> bool {
    match hold {
        PodHold::BudgetLag { .. }
        | PodHold::Replaced
        | PodHold::NamespaceTerminating
        | PodHold::Leaving
        | PodHold::Deferred { .. } => false,
        PodHold::Budget { .. }
        | PodHold::ManyBudgets { .. }
        | PodHold::Denied { .. }
        | PodHold::Failing { .. }
        | PodHold::Job { .. }
        | PodHold::Terminating { .. }
        | PodHold::Refused { .. } => true,
    }
}

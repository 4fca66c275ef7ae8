//! Treatment of each pod by a drain. All pods are judged first, as data that can be shown (REB-24; I18, I19).

use std::sync::Arc;

use cketerm_model::{
    cluster::Eviction,
    fault,
    kube::{KubeView, PodRow},
    reason::{PodHold, Reason},
};

/// Treatment of one pod by a drain. All pods are classified before the first action. It is not the API server's answer,
/// which is `model::drain::Verdict`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodVerdict {
    /// Ignored: a mirror pod, a pod of a DaemonSet, a finished pod, or a pending pod of a Job (I19).
    Ignore,
    /// A pod of a protected running Job: no pod of the node may be evicted (I18).
    Protected {
        /// `namespace/name` of the Job.
        job: String,
    },
    /// Deleted: a running pod of a Job that is not protected.
    Delete,
    /// Evicted with the Eviction API.
    Evict {
        /// Whether its namespace is protected. Then it is never deleted.
        protected: bool,
    },
    /// Already terminating: the drain waits for it.
    Terminating,
}

/// Returns the treatment of a pod by the rules of its queue.
pub fn classify_pod(pod: &PodRow, rules: Eviction<'_>, kube: &KubeView) -> PodVerdict {
    let daemon = pod.controlled_by("DaemonSet").is_some();
    fault!(DaemonSetsEvicted => daemon = false);
    if pod.mirror || pod.finished() || daemon {
        return PodVerdict::Ignore;
    }
    if let Some(job) = pod.controlled_by("Job") {
        if pod.phase == "Pending" {
            return PodVerdict::Ignore;
        }
        if pod.terminating_since.is_some() {
            return PodVerdict::Terminating;
        }
        let protected = rules.protected_job_pods.is_none_or(|s| s.matches(&pod.labels));
        return if protected {
            PodVerdict::Protected { job: format!("{}/{}", pod.namespace, job.name) }
        } else {
            PodVerdict::Delete
        };
    }
    if pod.terminating_since.is_some() {
        fault!(DrainedTooEarly => return PodVerdict::Ignore);
        return PodVerdict::Terminating;
    }
    // A missing selector protects all namespaces. A namespace that is not in the cache yet is protected too.
    let protected = rules.protected_namespaces.is_none_or(|selector| {
        kube.namespaces.get(&pod.namespace).is_none_or(|namespace| selector.matches(&namespace.labels))
    });
    PodVerdict::Evict { protected }
}

/// Pods of a node that have to leave, by treatment.
#[derive(Default)]
pub(super) struct Leaving<'a> {
    pub jobs: Vec<(&'a Arc<PodRow>, String)>,
    pub delete: Vec<&'a Arc<PodRow>>,
    pub evict: Vec<(&'a Arc<PodRow>, bool)>,
    pub terminating: Vec<&'a Arc<PodRow>>,
}

impl Leaving<'_> {
    pub(super) fn len(&self) -> usize {
        self.jobs.len() + self.delete.len() + self.evict.len() + self.terminating.len()
    }

    /// Returns one of the pods, for a message that names one.
    pub(super) fn first(&self) -> Option<&Arc<PodRow>> {
        let evicted = self.evict.first().map(|(pod, _)| *pod);
        let jobs = self.jobs.first().map(|(pod, _)| *pod);
        (self.terminating.first().copied()).or(evicted).or(self.delete.first().copied()).or(jobs)
    }
}

/// Returns the reason that an entry shows for a hold of one of its pods.
pub(crate) fn pod_hold_reason(pod: &PodRow, hold: &PodHold) -> Reason {
    let pod = pod.full_name();
    match hold {
        PodHold::Budget { budget, healthy, needed, cause } => {
            let (pdb, healthy, needed, cause) = (budget.clone(), *healthy, *needed, cause.clone());
            match cause.as_ref().filter(|cause| cause.is_permanent()).map(|cause| cause.pods) {
                Some(pods) => Reason::PdbNeverAllows { pod, pdb, healthy, needed, pods, cause },
                None => Reason::BlockedByPdb { pod, pdb, healthy, needed, cause },
            }
        }
        PodHold::ManyBudgets { budgets } => Reason::BlockedByManyPdbs { pod, pdbs: budgets.clone() },
        PodHold::Job { job } => Reason::BlockedByJob { pod, job: job.clone() },
        PodHold::Terminating { since, node_ready } => {
            Reason::TerminatingStuck { pod, since: *since, node_ready: *node_ready }
        }
        PodHold::Deferred { webhook, message } => {
            Reason::DeferredToWebhook { pod, webhook: webhook.clone(), message: message.clone() }
        }
        PodHold::Denied { webhook, message } => {
            Reason::DeniedByWebhook { pod, webhook: webhook.clone(), message: message.clone() }
        }
        PodHold::Failing { answer } => Reason::EvictionFailing { pod, answer: answer.clone() },
        PodHold::BudgetLag { .. }
        | PodHold::NamespaceTerminating
        | PodHold::Replaced
        | PodHold::Leaving
        | PodHold::Refused { .. } => Reason::EvictionRefused { pod, answer: hold.to_string() },
    }
}

/// Sorts a node's pods by treatment.
pub(super) fn classify_pods<'a>(
    pods: impl Iterator<Item = &'a Arc<PodRow>>,
    rules: Eviction<'_>,
    kube: &KubeView,
) -> Leaving<'a> {
    let mut leaving = Leaving::default();
    for pod in pods {
        match classify_pod(pod, rules, kube) {
            PodVerdict::Ignore => {}
            PodVerdict::Protected { job } => leaving.jobs.push((pod, job)),
            PodVerdict::Delete => leaving.delete.push(pod),
            PodVerdict::Evict { protected } => leaving.evict.push((pod, protected)),
            PodVerdict::Terminating => leaving.terminating.push(pod),
        }
    }
    leaving
}

/// Returns the number of pods that have to leave a node, by the rules of its queue.
pub(crate) fn count_leaving(pods: &[Arc<PodRow>], rules: Eviction<'_>, kube: &KubeView) -> usize {
    classify_pods(pods.iter(), rules, kube).len()
}

//! What a drain does with each pod: decided for all of them first, as data that can be shown (I18, I19).

use std::sync::Arc;

use crate::{
    model::{
        cluster::Eviction,
        kube::{KubeView, PodRow},
        reason::{PodHold, Reason},
    },
    mutation::{Mutation, on},
};

/// What a drain does with one pod. Decided for all pods first, as data; acted on second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodVerdict {
    /// It does not count: a mirror pod, a DaemonSet's, finished, or a Job's that is Pending (I19).
    Ignore,
    /// A protected running Job's: nothing may be evicted (I18).
    Protected {
        /// `namespace/name` of the Job.
        job: String,
    },
    /// A running Job's that is not protected.
    Delete,
    /// Through the Eviction API.
    Evict {
        /// In a protected namespace: never deleted.
        protected: bool,
    },
    /// It is going already.
    Terminating,
}

/// What to do with a pod, by the rules of its queue.
pub fn judge(pod: &PodRow, rules: Eviction<'_>, kube: &KubeView) -> PodVerdict {
    let daemon = pod.controlled_by("DaemonSet").is_some() && !on(Mutation::DaemonSetsEvicted);
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
        return if on(Mutation::DrainedTooEarly) { PodVerdict::Ignore } else { PodVerdict::Terminating };
    }
    // A missing selector protects all namespaces. One that we have not seen yet counts as protected too.
    let protected = rules.protected_namespaces.is_none_or(|selector| {
        kube.namespaces.get(&pod.namespace).is_none_or(|namespace| selector.matches(&namespace.labels))
    });
    PodVerdict::Evict { protected }
}

/// The pods of a node that have to leave, sorted by what is done with them.
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

    /// One of them, for a sentence that names one.
    pub(super) fn first(&self) -> Option<&Arc<PodRow>> {
        let evicted = self.evict.first().map(|(pod, _)| *pod);
        let jobs = self.jobs.first().map(|(pod, _)| *pod);
        (self.terminating.first().copied()).or(evicted).or(self.delete.first().copied()).or(jobs)
    }
}

/// The reason that an entry shows for what holds one of its pods.
pub(crate) fn held_reason(pod: &PodRow, hold: &PodHold) -> Reason {
    let pod = pod.full_name();
    match hold {
        PodHold::Budget { budget, healthy, needed } => {
            Reason::BlockedByPdb { pod, pdb: budget.clone(), healthy: *healthy, needed: *needed }
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

/// Sorts a node's pods by what is done with them.
pub(super) fn sort<'a>(
    pods: impl Iterator<Item = &'a Arc<PodRow>>,
    rules: Eviction<'_>,
    kube: &KubeView,
) -> Leaving<'a> {
    let mut leaving = Leaving::default();
    for pod in pods {
        match judge(pod, rules, kube) {
            PodVerdict::Ignore => {}
            PodVerdict::Protected { job } => leaving.jobs.push((pod, job)),
            PodVerdict::Delete => leaving.delete.push(pod),
            PodVerdict::Evict { protected } => leaving.evict.push((pod, protected)),
            PodVerdict::Terminating => leaving.terminating.push(pod),
        }
    }
    leaving
}

/// How many pods of a node have to leave, by the rules of its queue.
pub(crate) fn count_leaving(pods: &[Arc<PodRow>], rules: Eviction<'_>, kube: &KubeView) -> usize {
    sort(pods.iter(), rules, kube).len()
}

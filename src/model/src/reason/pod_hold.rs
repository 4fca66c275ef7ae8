//! Reasons why a pod is still on its node.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::budget_cause::BudgetCause;

/// Blocker that keeps one pod on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// `namespace/name`.
    pub pod: String,
    /// Reason why it is still there.
    pub why: PodHold,
}

/// Reason why a pod is still on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PodHold {
    /// A budget refuses the eviction.
    Budget {
        /// `namespace/name` of the budget.
        budget: String,
        /// Healthy pods now.
        healthy: i32,
        /// Healthy pods needed.
        needed: i32,
        /// Cause behind it, if it was looked up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Box<BudgetCause>>,
    },
    /// The budget's controller lags behind (429 with `Retry-After`).
    BudgetLag {
        /// `namespace/name` of the budget, or `?`.
        budget: String,
    },
    /// Several budgets select the pod, and the API cannot evict it (500).
    ManyBudgets {
        /// Their `namespace/name`s.
        budgets: Vec<String>,
    },
    /// A protected Job runs the pod.
    Job {
        /// `namespace/name` of the Job.
        job: String,
    },
    /// An admission webhook answered 429: it removes the pod itself, or allows the eviction later.
    Deferred {
        /// The webhook's name.
        webhook: String,
        /// Its message.
        message: String,
    },
    /// An admission webhook denied the eviction (403, …).
    Denied {
        /// The webhook's name.
        webhook: String,
        /// Its message.
        message: String,
    },
    /// The API server or a webhook failed to decide (5xx, a timeout, 429 without a cause). The request is retried.
    Failing {
        /// The last answer.
        answer: String,
    },
    /// The pod's namespace is being deleted (403).
    NamespaceTerminating,
    /// Another pod of the same name replaced it (409).
    Replaced,
    /// The pod is terminating.
    Terminating {
        /// Start of the termination.
        since: Timestamp,
        /// Whether the node is Ready.
        node_ready: bool,
    },
    /// The eviction was accepted, or its request is next.
    Leaving,
    /// Another answer of the API server.
    Refused {
        /// Status code and message.
        answer: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan and the list of blockers named the budgets, but not how the pod can be evicted.
    #[test]
    fn a_pod_of_several_budgets_has_its_remedy_in_its_text() {
        let hold = PodHold::ManyBudgets { budgets: vec!["shop/a".into(), "shop/b".into()] };
        assert_eq!(hold.to_string(), "several pdbs: shop/a, shop/b: change one selector, or delete one");
    }
}

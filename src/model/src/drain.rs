//! Answers of the API server to evictions and deletions (REB-27, SAF-37, I20).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    boot_time::BootTime,
    reason::{PodHold, Reason},
};

/// Meaning of an answer to an eviction, its dry run or a deletion of one pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// 2xx: the pod will go.
    Accepted,
    /// 404: the pod is gone.
    Gone,
    /// The pod stays for now: a budget, an admission webhook, a terminating namespace, or a replaced pod.
    Held {
        /// The blocker.
        hold: PodHold,
        /// Seconds to wait (`Retry-After`), if the server sent that. This is a wait, not a try.
        retry_after: Option<u64>,
    },
    /// Nothing was decided about the pod. The request is repeated with backoff until the drain's deadline.
    Undecided {
        /// The component that failed to decide.
        by: Undecided,
        /// The answer, or the reason why none came.
        answer: String,
        /// Seconds to wait (`Retry-After`), if the server sent that.
        retry_after: Option<u64>,
    },
    /// Any other answer: an error that a retry does not end.
    Failed(String),
}

/// Component that failed to decide about an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undecided {
    /// 429 without a cause: the API server is overloaded.
    Overload,
    /// 500: an admission webhook could not be called, timed out or failed.
    Webhook(String),
    /// Any other 5xx, or 408: `etcdserver: leader changed`, a timeout inside the API server. Also a budget whose status
    /// the server could not write, or whose controller lags behind the evictions (403).
    Server,
    /// No answer: the request may or may not have been carried out.
    Silence,
}

impl Verdict {
    /// Returns true if the answer counts as an accepted eviction. A webhook that removes the pod itself counts too.
    pub fn accepts(&self) -> bool {
        matches!(self, Self::Accepted | Self::Held { hold: PodHold::Deferred { .. }, .. })
    }
}

/// Whatever decides on evictions in the API server, besides permissions and budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionAdmission {
    /// Nothing. Pods of a namespace that have the same budgets and the same health get the same answer.
    BudgetsOnly,
    /// Admission webhooks or policies, or it is unknown. Each pod may get another answer.
    EachPod,
}

/// Result of one round of dry runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// UIDs of the pods whose eviction nothing blocks. They need no further dry run.
    pub passed: BTreeSet<String>,
    /// Meaning of the whole round.
    pub finding: Finding,
}

/// Meaning of a round of dry runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Nothing blocks: evictions may be sent.
    Clean,
    /// Some pods got no dry run yet: they are next.
    Unfinished,
    /// No pod of the node may be evicted (I15).
    Blocked(Reason),
    /// Some answers decided nothing. Those pods get further dry runs until the drain's deadline.
    Undecided {
        /// The first such answer.
        reason: Reason,
        /// Seconds to wait (`Retry-After`), if the server sent that.
        retry_after: Option<u64>,
    },
}

/// A verdict, its time, and the budgets at that time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Meaning of the answer.
    pub verdict: Verdict,
    /// Boot time of the answer.
    pub at: BootTime,
    /// resourceVersions of the budgets that selected the pod, by full name. A change of one justifies a new try.
    pub budgets: BTreeMap<String, String>,
    /// Number of answers in a row that decided nothing, including this one.
    #[serde(default)]
    pub undecided: u32,
}

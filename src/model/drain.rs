//! What the API server says to evictions and deletions (spec/kubernetes.md, Evictions and guarded writes; I20).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::reason::{PodHold, Reason};

/// What an answer to an eviction, its dry run or a deletion of one pod means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// 2xx: it will go.
    Accepted,
    /// 404: it is gone.
    Gone,
    /// The pod stays for now: a budget, an admission webhook, a terminating namespace, a replaced pod.
    Held {
        /// What holds it.
        hold: PodHold,
        /// Seconds to wait (`Retry-After`), if the server said so: a wait, not a try.
        retry_after: Option<u64>,
    },
    /// Nothing was decided about the pod: the request is repeated with backoff until the drain's deadline.
    Undecided {
        /// Who failed to decide.
        by: Undecided,
        /// The answer, or why none came.
        answer: String,
        /// Seconds to wait (`Retry-After`), if the server said so.
        retry_after: Option<u64>,
    },
    /// Anything else the server answered: an error that a repetition does not end.
    Failed(String),
}

/// Who failed to decide about an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undecided {
    /// 429 without a cause: the API server has too much to do.
    Overload,
    /// 500: an admission webhook could not be called, timed out or failed.
    Webhook(String),
    /// Any other 5xx, or 408: `etcdserver: leader changed`, a time-out inside the API server. Also a budget whose status the
    /// server could not write, or whose controller is behind with the evictions (403).
    Server,
    /// No answer came: the request may or may not have been carried out.
    Silence,
}

impl Verdict {
    /// A webhook has taken the pod's removal over, so that it counts as an accepted eviction.
    pub fn accepts(&self) -> bool {
        matches!(self, Self::Accepted | Self::Held { hold: PodHold::Deferred { .. }, .. })
    }
}

/// The result of one round of dry runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// UIDs of the pods whose eviction nothing blocks: they are not asked about again.
    pub passed: BTreeSet<String>,
    /// What the round as a whole means.
    pub finding: Finding,
}

/// What a round of dry runs means.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Nothing blocks: evictions may be sent.
    Clean,
    /// Some pods could not be asked about: they are next.
    Unfinished,
    /// Nothing on the node may be evicted (I15).
    Blocked(Reason),
    /// Some answers decided nothing: those pods are asked about again until the drain's deadline.
    Undecided {
        /// The first such answer.
        reason: Reason,
        /// Seconds to wait (`Retry-After`), if the server said so.
        retry_after: Option<u64>,
    },
}

/// A verdict, when it came, and the budgets it was given under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// What it means.
    pub verdict: Verdict,
    /// Boot-time seconds at which it came.
    pub at: f64,
    /// resourceVersions of the budgets that selected the pod then, by full name: a change of one is worth a new try.
    pub budgets: BTreeMap<String, String>,
    /// How many answers in a row have decided nothing, this one included.
    #[serde(default)]
    pub undecided: u32,
}

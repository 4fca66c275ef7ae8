//! What the API server says to evictions and deletions (spec/kubernetes.md, Evictions and guarded writes; I20).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::reason::PodHold;

/// What an answer to an eviction, its dry run or a deletion of one pod means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// 2xx: it will go.
    Accepted,
    /// 404: it is gone.
    Gone,
    /// 429, 500 of several budgets, 403 of a terminating namespace, 409: what holds it, and the seconds to wait
    /// (`Retry-After`) if the server said so.
    Held {
        /// What holds it.
        hold: PodHold,
        /// Seconds to wait: a wait, not a try.
        retry_after: Option<u64>,
    },
    /// Anything else the server answered.
    Failed(String),
    /// No answer came: the request may or may not have been carried out.
    NoAnswer(String),
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
}

//! Memory of the work on one entry: observations of this leader, which the next leader begins without.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    attempt::CheckAnswer,
    boot_time::BootTime,
    drain::Answer,
    kube::{NodeRow, PodRow},
    reason::{Reason, TooLarge, budget_cause::BudgetCause},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Memory of an entry in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The drain, as far as this leader has seen it.
    pub drain: DrainWork,
    /// The last boot or health check, with the boot time at which it ended.
    pub check: Option<(BootTime, CheckAnswer)>,
    /// Boot time at which the last health check began. None in states that earlier builds saved.
    #[serde(default)]
    pub check_began: Option<BootTime>,
    /// Boot time at which the entry's last command ended. Checks that began earlier do not count.
    #[serde(default)]
    pub commanded: Option<BootTime>,
    /// Boot time since which boot check, boot id, Ready and probe have all been good without a break.
    #[serde(rename = "sound_since")] // in states that earlier builds saved
    pub recovered_since: Option<BootTime>,
    /// Boot time before which the entry is not retried after a failed effect, and the reason of the failure.
    pub pause: Option<(BootTime, String)>,
    /// The effect whose transaction was refused last for its size, and the size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_large: Option<(String, TooLarge)>,
    /// Whether this leader has written its lease to the entry's Node. Another lease there is then a newer leader's.
    #[serde(default)]
    pub stamped: bool,
    /// Reason of the last backoff, kept for display while the entry is queued.
    pub backoff_cause: Option<Box<Reason>>,
    /// The last fresh read of its machine, made for its next command.
    #[serde(default)]
    pub fresh: Option<FreshRead>,
    /// Effects that came to nothing in a row, since the last success.
    #[serde(default)]
    pub retries: Option<Retries>,
}

/// Answers of the API server about one machine, requested for its next command. They never come from a watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreshRead {
    /// Boot time at which the last answer came.
    pub at: BootTime,
    /// The machine's Node; none = there is no such Node.
    pub node: Option<Arc<NodeRow>>,
    /// All pods bound to the Node; none = they were not requested.
    pub pods: Option<Vec<Arc<PodRow>>>,
}

/// Effects that came to nothing, one after the other (SAF-12).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Retries {
    /// Number of such effects.
    pub count: u32,
    /// Reason of the last one.
    pub why: String,
}

/// A drain, as far as this leader has seen it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainWork {
    /// Whether this leader took the drain over from another one. Such a drain counts as one with an accepted eviction
    /// (REB-28).
    pub taken_over: bool,
    /// Number of pods to leave when this leader first saw all of them.
    pub pods_at_start: Option<u32>,
    /// Whether the preview was clean, so that evictions may be sent.
    pub previewed: bool,
    /// UIDs of the pods that have passed the preview; empty again once all have passed.
    #[serde(default)]
    pub passed: BTreeSet<String>,
    /// Set if the last round of the preview decided nothing about some pods.
    #[serde(default)]
    pub undecided: Option<UndecidedPreview>,
    /// Number of refused previews and refused first rounds of evictions (REB-28).
    pub refusals: u32,
    /// Boot time of the last refusal, and its reason.
    pub refused: Option<(BootTime, Reason)>,
    /// The budget that is the reason of the last refusal: its `namespace/name` and its resourceVersion at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_by: Option<(String, String)>,
    /// Whether an eviction or deletion was accepted.
    pub accepted: bool,
    /// Last answers to evictions and deletions, by pod UID.
    pub answers: BTreeMap<String, Answer>,
    /// Time at which this leader first saw that somebody else uncordoned the Node.
    pub uncordoned: Option<Timestamp>,
    /// Causes behind the budgets that held the drain, by `namespace/name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<String, KnownCause>,
    /// Boot time at which the leader of etcd was asked to hand over, before this machine's command (SAF-26).
    #[serde(default)]
    pub leader_moved: Option<BootTime>,
}

/// Cause behind a budget, as it was looked up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownCause {
    /// resourceVersion of the budget at that time; empty if it is not known.
    pub version: String,
    /// Boot time of the look-up.
    pub at: BootTime,
    /// The cause.
    pub cause: BudgetCause,
}

/// Preview round in which some answers decided nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UndecidedPreview {
    /// Boot time of the last such round.
    pub at: BootTime,
    /// Number of such rounds in a row.
    pub times: u32,
    /// Seconds to wait, if the server sent them.
    pub retry_after: Option<u64>,
    /// The answer and the pod that it was about.
    pub reason: Reason,
}

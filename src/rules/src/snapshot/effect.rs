//! Effects under way, and their results.

use std::collections::BTreeMap;

use cketerm_model::{
    attempt::{CheckAnswer, Outcome},
    boot_time::BootTime,
    drain::{Answer, Preview},
    entry::EntryId,
    fence::NoPermit,
    reason::{TooLarge, budget_cause::BudgetCause},
};
use serde::{Deserialize, Serialize};

use super::work::FreshRead;

/// Patches of Nodes that belong to no entry. All Nodes may need one at the same time, for example when the machine
/// registry is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeUpkeep {
    /// The definition's labels, annotations and taints.
    Description,
    /// Conditions and the taint that tell other programs of the work.
    Signs,
}

impl NodeUpkeep {
    /// Maximum number of Nodes that are patched at once. The API server has other work too: each request beyond those
    /// that it can answer delays all others, and with thousands of them it answers none.
    pub fn most_at_once(self) -> usize {
        match self {
            Self::Description => 8,
            Self::Signs => 10,
        }
    }
}

/// Progress of the upkeep of one Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpkeepProgress {
    /// Its patch is under way.
    UnderWay(NodeUpkeep),
    /// Its patch has failed, and it waits to be tried again.
    Failed(NodeUpkeep),
}

/// An effect under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// Short name of the effect, for display.
    pub what: String,
    /// The entry that it belongs to, if any.
    pub entry: Option<EntryId>,
    /// Whether it starts work on the machine. The machine then counts as in progress already.
    pub starts: bool,
    /// Whether it patches the machine's Node.
    #[serde(default)]
    pub patches_node: bool,
    /// Upkeep of a Node that it is, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upkeep: Option<UpkeepProgress>,
    /// Number of evictions that it sends, by budget (`namespace/name`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evictions: BTreeMap<String, u32>,
    /// The attempt whose command this engine is running.
    pub attempt: Option<String>,
    /// Boot time at which it began.
    pub since: BootTime,
}

/// Reason why an effect was not carried out although nothing failed: the decision is outdated. An old cache is
/// `Reason::Stale`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleCause {
    /// Too much time has passed since the decision: servers answer slowly.
    #[error("servers answer too slowly: {0}")]
    TooOld(NoPermit),
    /// Something has changed since the decision. Holds a description.
    #[error("{0}")]
    Changed(String),
    /// The transaction compares the keys that the decision was made from, and some of them have changed in etcd.
    #[error("changed meanwhile in etcd: {}", .keys.join(", "))]
    Conflict {
        /// The compared keys that may have changed.
        keys: Vec<String>,
    },
    /// A Kubernetes object has another version, or is gone. Holds its name.
    #[error("{0} has changed meanwhile")]
    Object(String),
}

/// Result of an effect. The loop records it in [`Work`](super::Work).
#[derive(Clone, Debug, PartialEq)]
pub enum EffectOutcome {
    /// Done.
    Done,
    /// Not done, nothing changed. Holds the reason.
    Failed(String),
    /// The decision's inputs have changed. The next pass decides again, a little later each time.
    Stale(StaleCause),
    /// Fresh read of the machine.
    Rechecked(FreshRead),
    /// Result of a preview.
    Previewed(Preview),
    /// Causes behind budgets, by `namespace/name`.
    Explained(BTreeMap<String, BudgetCause>),
    /// Answers to evictions and deletions, by pod UID.
    Answers(BTreeMap<String, Answer>),
    /// Answer of the boot check or the health check.
    Check(CheckAnswer),
    /// A command ended.
    Command(Outcome),
    /// The transaction exceeds etcd's limits; nothing was written.
    TooLarge(TooLarge),
    /// Leadership is lost.
    Lost,
}

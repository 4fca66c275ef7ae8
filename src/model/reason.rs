//! Why an entry does not move (spec/invariants.md, Reasons). Each names its object; the wording is an interface.

mod attention;
mod sentence;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::attention::Attention;
use super::{cketerm_records::Verb, entry::EntryId};

/// How the cause of a backoff begins that only the queue's switch brought about.
pub const SWITCHED_OFF: &str = "the queue was disabled";

/// What is said of a command that failed and is run again by itself.
pub const TRIES_AGAIN: &str = "tries again";

/// How many nodes a reason names at most; how many there are is a number beside them.
pub const NAMED: usize = 20;

/// A drain that was given up so often is stuck: what blocks it does not go away by itself.
pub const GIVEN_UP: i64 = 3;

/// What keeps one pod on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// `namespace/name`.
    pub pod: String,
    /// Why it is still there.
    pub why: PodHold,
}

/// Why a pod is still on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PodHold {
    /// A budget refuses.
    Budget {
        /// `namespace/name` of the budget.
        budget: String,
        /// Healthy pods now.
        healthy: i32,
        /// Healthy pods needed.
        needed: i32,
    },
    /// Its budget's controller has not caught up (429 with Retry-After).
    BudgetLag {
        /// `namespace/name` of the budget, or `?`.
        budget: String,
    },
    /// Several budgets select it: the API cannot evict it (500).
    ManyBudgets {
        /// Their `namespace/name`s.
        budgets: Vec<String>,
    },
    /// A protected Job runs it.
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
    /// The API server or a webhook failed to decide (5xx, a time-out, 429 without a cause); retried.
    Failing {
        /// The last answer.
        answer: String,
    },
    /// Its namespace is being deleted (403).
    NamespaceTerminating,
    /// The pod was replaced by another of the same name (409).
    Replaced,
    /// It is terminating.
    Terminating {
        /// Since when.
        since: Timestamp,
        /// Whether the node is Ready.
        node_ready: bool,
    },
    /// Eviction was accepted or it waits to be asked.
    Leaving,
    /// The API answered something else.
    Refused {
        /// Status code and message.
        answer: String,
    },
}

/// The size of a transaction that is more than etcd takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{operations} operations and {bytes} bytes in one transaction")]
pub struct TooLarge {
    /// Operations, or comparisons where these are more.
    pub operations: usize,
    /// Bytes, of keys and values.
    pub bytes: usize,
}

/// Why an entry does not move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "PascalCase")]
#[allow(missing_docs)] // each variant is its own sentence; `Display` spells it out
pub enum Reason {
    WaitingForSlot {
        holder: Option<EntryId>,
        limit: i64,
    },
    WaitingForWorkers {
        holder: EntryId,
    },
    WaitingForControlPlane {
        other: String,
    },
    /// The first [`NAMED`] of them by name. Every entry that waits says the same: shared, or an outage would cost nodes
    /// times entries.
    UnreachableGate {
        count: i64,
        limit: i64,
        names: Arc<[String]>,
    },
    ControlPlaneUnhealthy {
        node: String,
        why: String,
    },
    /// Another voting member of the etcd of Kubernetes is not well: the quorum would hang on it.
    EtcdMemberUnhealthy {
        member: String,
        why: String,
    },
    /// The voting members that would be left are no quorum.
    EtcdQuorumWouldBeLost {
        member: String,
        voters: usize,
    },
    /// Nobody knows how the members of the etcd of Kubernetes are.
    EtcdUnchecked {
        why: String,
    },
    OutsideWindow {
        next_open: Option<Timestamp>,
        /// It is open, and ends too soon for a drain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closes: Option<Timestamp>,
    },
    /// Another group of machines (policy `groups`) is in work.
    WaitingForGroup {
        /// The label.
        by: String,
        group: String,
        holder: EntryId,
    },
    Backoff {
        count: i64,
        until: Timestamp,
        cause: Option<String>,
    },
    #[serde(rename = "BlockedByPDB")]
    BlockedByPdb {
        pod: String,
        pdb: String,
        healthy: i32,
        needed: i32,
    },
    #[serde(rename = "BlockedByManyPDBs")]
    BlockedByManyPdbs {
        pod: String,
        pdbs: Vec<String>,
    },
    BlockedByJob {
        pod: String,
        job: String,
    },
    PodsLeaving {
        left: u32,
        first: String,
    },
    EvictionRefused {
        pod: String,
        answer: String,
    },
    /// An admission webhook answered the eviction with 429: it migrates the pod itself, or allows the eviction later.
    DeferredToWebhook {
        pod: String,
        webhook: String,
        message: String,
    },
    /// An admission webhook denied the eviction with another code.
    DeniedByWebhook {
        pod: String,
        webhook: String,
        message: String,
    },
    /// The API server or a webhook failed to decide about an eviction (5xx, a time-out, overload): it is retried.
    EvictionFailing {
        pod: String,
        answer: String,
    },
    /// A minute after its grace period has ended (`since`) the pod is still there.
    TerminatingStuck {
        pod: String,
        since: Timestamp,
        node_ready: bool,
    },
    VolumeAttached {
        names: Vec<String>,
    },
    UncordonedByOther {
        since: Timestamp,
    },
    CommandRunning {
        attempt: String,
        since: Timestamp,
    },
    CommandFailed {
        how: String,
        stderr: String,
    },
    OutcomeUnknown {
        attempt: Option<String>,
        until: Option<Timestamp>,
    },
    CheckUnavailable {
        why: String,
    },
    NodeMismatch {
        expected: String,
        found: String,
    },
    OrphanedCordon {
        node: String,
        entry: EntryId,
    },
    AwaitingApproval {
        digest: String,
    },
    Frozen {
        until: Timestamp,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    EngineElsewhere {
        holder: String,
    },
    EngineObserving {
        why: String,
    },
    NoEngine {
        why: String,
    },
    OnHold {
        who: String,
        why: Option<String>,
    },
    /// Accepted before CKE took the lead, which does not know it.
    OrderIgnored {
        verb: Verb,
        who: String,
        leader: String,
    },
    Stale {
        source: String,
        since: Timestamp,
    },
    ProgramMissing {
        path: String,
    },
    /// The commands speak to the machine's BMC, and the local file neither names it nor allows a network of BMCs, or refuses
    /// what it names.
    BmcNotAllowed {
        address: String,
        /// Why the file cannot be read, or its entry not used.
        fault: Option<String>,
    },
    DuplicateOf {
        index: u64,
    },
    MachineInRepair {
        entry: EntryId,
    },
    MachineInReboot {
        entry: EntryId,
    },
    /// The command of a repair's step has ended; the health check decides until the watch is over.
    WaitingForHealth {
        /// Counted from 0.
        step: i64,
        until: Option<Timestamp>,
        last: String,
    },
    WaitingForJoin {
        node: String,
    },
    WaitingForBoot {
        since: Timestamp,
        last: String,
        stuck: bool,
    },
    Settling {
        node: String,
        until: Option<Timestamp>,
        missing: String,
    },
    PowerError {
        text: String,
    },
    HeldByOtherKey {
        keys: Vec<String>,
    },
    QueueDisabled,
    NoCommand {
        field: String,
    },
    NotMember {
        address: String,
    },
    InvalidEntry {
        why: String,
    },
    /// An effect failed and is tried again: what, and what was answered.
    EffectFailed {
        what: String,
        why: String,
    },
    /// Its next step does not fit into one transaction of etcd: nothing of it was written.
    TransactionTooLarge {
        what: String,
        #[serde(flatten)]
        size: TooLarge,
    },
    /// It moves: what is being done.
    Working {
        phase: String,
    },
    /// Nothing holds it back: the next pass takes it.
    Ready,
}

impl Reason {
    /// The reason's name, as metrics and `-o json` have it.
    pub fn name(&self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(fields)) => {
                fields.get("reason").and_then(|v| v.as_str()).unwrap_or_default().to_owned()
            }
            _ => String::new(),
        }
    }
}

//! Reasons why an entry does not move (I32). Each names its object; the wording is an interface.

mod attention;
pub mod budget_cause;
mod parts;
mod pod_hold;
mod remedy;
mod sentence;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::budget_cause::BudgetCause;
pub use self::{
    attention::Attention,
    pod_hold::{Blocker, PodHold},
    sentence::DONE_ORDERED,
};
use super::{
    attempt::Ended,
    batch::id::BatchId,
    entry::EntryId,
    hook_runs::{HookEnd, HookPoint},
    kube::{ControlPlaneSignals, DrainProgram},
    names::{Address, NodeName},
    verb::Verb,
};

/// Maximum number of nodes that a reason names. Its `count` is the total.
pub const MAX_NAMES: usize = 20;

/// Number of backoffs from which a drain counts as stuck: its blocker does not go away by itself.
pub const ATTENTION_BACKOFF_COUNT: i64 = 3;

/// Size of a transaction that etcd would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{operations} operations and {bytes} bytes in one transaction")]
pub struct TooLarge {
    /// Number of operations, or of comparisons if there are more.
    pub operations: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
}

/// The next try of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandRetry {
    /// None: an operator decides.
    Never,
    /// After `command_interval`, by the definition.
    Scheduled,
    /// The same once the queue is enabled.
    OnceEnabled,
}

/// Consequence of a hook that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookRetry {
    /// The next try, by the hook's settings.
    Scheduled,
    /// No try is left: the drain backs off, or the Node stays cordoned. It is tried again later.
    Exhausted,
}

/// Event that an entry waits for after its command has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// The boot or health check's `true`.
    #[default]
    Check,
    /// A check of CKE, which does not record its answers. CKE's operation records name the machines whose command failed.
    CkeCheck,
    /// The Node's readiness: an operator ordered `done`, so the check does not count.
    NodeReady,
}

impl Awaited {
    /// Reports whether this is the value that the stored form leaves out.
    #[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
    fn is_check(&self) -> bool {
        *self == Self::Check
    }
}

/// Reason why an entry does not move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "PascalCase")]
#[allow(missing_docs)] // each variant is its own sentence; `Display` spells it out
pub enum Reason {
    WaitingForSlot {
        holder: Option<EntryId>,
        limit: i64,
        /// Whether slots are free, and others take them first: the holder has not started yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ahead: bool,
    },
    WaitingForWorkers {
        holder: EntryId,
    },
    WaitingForControlPlane {
        /// Name of its Node, or its address.
        other: String,
    },
    /// CKE reboots nothing while it has repairs to process.
    WaitingForRepairs {
        entry: EntryId,
    },
    /// `names` holds the first [`MAX_NAMES`] of them. All waiting entries share it, otherwise an outage would cost
    /// nodes times entries.
    UnreachableGate {
        count: i64,
        limit: i64,
        names: Arc<[NodeName]>,
    },
    /// `count` of the last `of` reboots ended badly (policy `breaker`). `names` holds the first [`MAX_NAMES`] of them.
    BreakerOpen {
        count: u64,
        of: u64,
        names: Arc<[NodeName]>,
    },
    /// Gate of the site (policy `start_gates`) that is closed, or whose state is not known.
    StartGateClosed {
        /// Name of the gate.
        gate: String,
        /// The alerts, the result of the query, or the error.
        why: String,
        /// Whether the state is not known, because of that error.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
    /// The first machines of its batch are rebooted alone (policy `canary`).
    CanaryPending {
        batch: BatchId,
        /// Number of them that have booted, and their number.
        booted: u64,
        first: u64,
        /// End of the time for which they must have been back; none before they are.
        until: Option<Timestamp>,
        /// Fault of one of them since it was back.
        fault: Option<String>,
    },
    /// The leader runs on this Node. It passes the lock to the engine on another host before the drain.
    LeaderOnNode {
        to: String,
    },
    ControlPlaneUnhealthy {
        node: NodeName,
        why: String,
    },
    /// Another voting member of the Kubernetes etcd is unhealthy, so the quorum is at risk.
    EtcdMemberUnhealthy {
        member: String,
        why: String,
    },
    /// The remaining voting members would have no quorum.
    EtcdQuorumWouldBeLost {
        member: String,
        voters: usize,
    },
    /// The state of the Kubernetes etcd's members is not known.
    EtcdUnchecked {
        why: String,
    },
    OutsideWindow {
        next_open: Option<Timestamp>,
        /// End of the open window, if it is too near for a drain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closes: Option<Timestamp>,
    },
    /// The node shares a budget with one in progress, or it may not overtake an entry that waits for one (policy
    /// `worker_order`).
    WaitingForBudget {
        /// `namespace/name` of the budget; empty if the entry may not overtake.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        budget: String,
        /// The entry in progress that shares the budget, or the entry that it may not overtake.
        holder: EntryId,
        /// Whether the holder has been overtaken as often as the policy allows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        overtaken: bool,
    },
    /// Another group of machines (policy `groups`) is in progress.
    WaitingForGroup {
        /// The label.
        by: String,
        group: String,
        holder: EntryId,
    },
    Backoff {
        count: i64,
        until: Timestamp,
        /// Cause of the backoff; none after a change of the leader, which does not learn it.
        cause: Option<Box<Reason>>,
        /// Time of the try that met the cause, which may be over since; none if the cause was seen just now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tried: Option<Timestamp>,
    },
    #[serde(rename = "BlockedByPDB")]
    BlockedByPdb {
        pod: String,
        pdb: String,
        healthy: i32,
        needed: i32,
        /// Cause behind it, if it was looked up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Box<BudgetCause>>,
    },
    /// The budget refuses every eviction, however many of its pods are healthy: it needs all of them.
    #[serde(rename = "PDBNeverAllows")]
    PdbNeverAllows {
        pod: String,
        pdb: String,
        healthy: i32,
        needed: i32,
        /// Number of pods that it counts.
        pods: i32,
        /// Cause behind it, if it was looked up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Box<BudgetCause>>,
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
    /// The API server or a webhook failed to decide about an eviction (5xx, a timeout, overload). It is retried.
    EvictionFailing {
        pod: String,
        answer: String,
    },
    /// Protected pods of the Node fit on no other Node (policy `landing_check: require`).
    PodsCannotLand {
        /// Number of these pods.
        count: u32,
        /// First of them, `namespace/name`.
        pod: String,
        /// Obstacle on the other Nodes.
        why: String,
    },
    /// The places for the pods of the Node could not be checked (policy `landing_check: require`). It is retried.
    LandingUnknown {
        /// The fault.
        why: String,
    },
    /// The pod is still there a minute after its grace period ended (`since`).
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
        end: Ended,
        stderr: String,
        retry: CommandRetry,
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
        /// Name of the Node, or the address of a machine without one.
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
    /// The order was accepted before CKE took the lead, and CKE does not know it.
    OrderIgnored {
        verb: Verb,
        who: String,
        leader: String,
    },
    /// The entry's batch is paused: its queued entries do not start.
    BatchPaused {
        batch: BatchId,
        by: String,
        since: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The sources do not agree whether its Node is a control plane (policy `membership: nodes`).
    ControlPlaneUnclear {
        signals: ControlPlaneSignals,
    },
    /// Another program drains, reboots or deletes its Node.
    DrainedByOther {
        program: DrainProgram,
        /// The taint or annotation by which the program says so.
        sign: String,
    },
    /// A hook runs, or is about to.
    HookRunning {
        hook: String,
        at: HookPoint,
        /// Start of the run; none = it is about to start.
        since: Option<Timestamp>,
    },
    /// A hook failed.
    HookFailed {
        hook: String,
        at: HookPoint,
        end: Box<HookEnd>,
        /// End of its output.
        output: String,
        retry: HookRetry,
    },
    /// The machine is back, but a gate of the policy `uncordon_gates` is closed: its Node stays cordoned.
    UncordonGateClosed {
        /// The condition, taint or pod that is waited for.
        missing: String,
        /// Start of its last command.
        since: Timestamp,
        /// Whether it has been closed for longer than `overdue_seconds`.
        overdue: bool,
    },
    /// The record of the entry's batch cannot be read. It may be paused, so its queued entries do not start.
    BatchUnreadable {
        batch: BatchId,
        /// The whole key in etcd.
        key: String,
        why: String,
    },
    /// The batch was paused before CKE took the lead, and CKE does not know batches.
    BatchPauseIgnored {
        batch: BatchId,
        by: String,
        leader: String,
    },
    Stale {
        source: String,
        since: Timestamp,
    },
    ProgramMissing {
        path: String,
    },
    /// The commands log in to the machine's BMC. The local file neither names it nor allows its network, or its entry
    /// is refused.
    BmcNotAllowed {
        address: Address,
        /// Reason why the file cannot be read or its entry cannot be used.
        fault: Option<String>,
    },
    DuplicateOf {
        index: u64,
    },
    /// The machine is in maintenance, or is drained for one: another entry of the same machine waits, and so does the
    /// maintenance itself, for its end.
    InMaintenance {
        entry: EntryId,
        until: Timestamp,
        /// Reason of its request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    MachineInRepair {
        entry: EntryId,
    },
    MachineInReboot {
        entry: EntryId,
    },
    /// The command of a repair's step has ended. The health check decides until the watch is over.
    WaitingForHealth {
        /// Step, counted from 0.
        step: i64,
        until: Option<Timestamp>,
        last: String,
        #[serde(default, skip_serializing_if = "Awaited::is_check")]
        awaited: Awaited,
    },
    WaitingForJoin {
        /// Address of the machine, which has no Node yet.
        node: Address,
    },
    WaitingForBoot {
        since: Timestamp,
        last: String,
        stuck: bool,
        #[serde(default, skip_serializing_if = "Awaited::is_check")]
        awaited: Awaited,
    },
    Settling {
        /// Name of the Node, or the address of a machine without one.
        node: String,
        until: Option<Timestamp>,
        missing: String,
    },
    /// The machine's BareMetalHost reports an error.
    PowerError {
        text: String,
    },
    /// Reboot annotations on the machine's BareMetalHost hold it off, by these keys.
    HeldByOtherKey {
        keys: Vec<String>,
    },
    QueueDisabled,
    NoCommand {
        field: String,
    },
    NotMember {
        address: Address,
    },
    InvalidEntry {
        why: String,
    },
    /// An effect failed and is retried: the effect and the answer.
    EffectFailed {
        what: String,
        why: String,
    },
    /// The next step does not fit into one transaction of etcd. Nothing was written.
    TransactionTooLarge {
        what: String,
        #[serde(flatten)]
        size: TooLarge,
    },
    /// The entry moves: its present phase.
    Working {
        phase: String,
    },
    /// Nothing holds the entry back. The next pass starts it.
    Ready,
}

impl Reason {
    /// Returns the name of the reason in metrics and `-o json`.
    pub fn name(&self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(fields)) => {
                fields.get("reason").and_then(|v| v.as_str()).unwrap_or_default().to_owned()
            }
            _ => String::new(),
        }
    }
}

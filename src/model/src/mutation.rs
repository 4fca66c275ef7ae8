//! Faults that are injected on purpose, to test whether the simulation finds them (`make sim MUTATION=all`).
//!
//! [`fault!`](crate::fault) puts one into a rule. They exist only with the cargo feature `mutations`, which no shipped
//! build has. Without it the macro expands to nothing. With it, `set` selects the fault at run time.

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!("the feature `mutations` is only for simulations (`make sim`) and must not be in a release build");

/// An injected fault. Each variant describes the broken behaviour; docs/reliability.md names the invariants that find
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Transactions of the engine do not compare the revisions of what they were decided from.
    CompareNothing,
    /// A Node is not uncordoned after the end of its entry.
    ForgottenCordon,
    /// The tries of a command are counted in the leader's memory.
    RetriesInMemory,
    /// An entry is written although another program has changed it in between.
    CancelOverwritten,
    /// Queued entries of a paused batch start.
    BatchPauseForgotten,
    /// Queued entries of a batch that cannot be read start.
    UnreadableBatchIgnored,
    /// An enqueue goes on although its batch was cancelled.
    EnqueueOutlivesCancel,
    /// A cancel that CKE's write has lost is not repeated.
    LostCancelForgotten,
    /// Conditions and the taint stay on a Node although no entry justifies them.
    SignsStay,
    /// A condition of another program is overwritten.
    ForeignConditionTaken,
    /// The taint of planned reboots is never removed.
    PlannedTaintStays,
    /// Signs of work to come stay when the leader resigns.
    SignsOutliveLeader,
    /// A leader that retires resigns as soon as its last entry has ended, before the Node's uncordon.
    ResignsBeforeUncordon,
    /// A leader that meets another cluster goes on with more than the work in progress.
    ForeignClusterChanged,
    /// Drains start although the breaker is open.
    BreakerForgotten,
    /// All machines of a batch start at once.
    CanariesForgotten,
    /// A reboot that was withdrawn after its command has no outcome.
    OutcomeForgotten,
    /// A maintenance does not end at its time.
    MaintenanceForEver,
    /// The deletion of a `MaintenanceRequest` withdraws nothing.
    DeletedRequestKept,
    /// The leader forgets that a Node of a `MaintenanceRequest` has got its entry.
    RequestQueuedTwice,
    /// Reboots start although a gate of the site is closed.
    StartGateForgotten,
    /// A member leaves the definition as soon as its Node is gone.
    NodeGraceIgnored,
    /// A member leaves the definition while an entry works on its machine.
    MemberInWorkLeaves,
    /// A control plane leaves a definition that follows the Nodes without an approval.
    ControlPlaneLeavesUnasked,
    /// One member without a Node holds back all starts.
    VanishedNodeCounts,
    /// A needed reboot is queued again although one was queued for the present boot.
    NeededTwice,
    /// A signal that is still set after its reboot asks for the next one.
    StillSetAsks,
    /// The limits of needed reboots, at once and a day, are ignored.
    NeededLimitsIgnored,
    /// cketerm cordons, powers and uncordons Nodes on which another program works.
    OtherDrainerIgnored,
    /// A drain does not wait for the site's hooks.
    HookSkipped,
    /// A hook that failed counts as one that succeeded.
    HookFailureIgnored,
    /// A Node is uncordoned without the site's hooks before that.
    UncordonHookSkipped,
    /// A hook of a dead leader is run again at once.
    HookBesideItself,
    /// A drain begins without the record of its hooks.
    HookRecordForgotten,
    /// An entry whose machine has booted ends before the hooks for that have succeeded.
    HookSlotFreed,
    /// The record of hooks ends while the Node is cordoned.
    HooksEndEarly,
    /// The hooks after the uncordon never run.
    AfterHookForgotten,
    /// While CKE leads, the pod that is named is not the first that CKE asks for.
    ListOrderIgnored,
    /// An operator's `done` is forgotten before the Node is uncordoned.
    DoneForgotten,
    /// A published result is accepted for any open attempt.
    ResultOfAnother,
    /// Published results are never taken over.
    ResultsIgnored,
    /// All commands share one buffer for their address.
    SharedArguments,
    /// The wait of a backoff is computed with a shift that overflows.
    BackoffOverflow,
    /// Nodes are uncordoned while the queue is disabled, even those that reboot.
    UncordonOnDisable,
    /// Transactions of the engine do not compare the leader key.
    UnfencedWrite,
    /// The attempts of an entry are deleted key by key, in a transaction of unlimited size.
    TransactionUnbounded,
    /// Audit records of operators are pruned with those of the engine, and only the newest few stay.
    AuditFlooded,
    /// A command of unknown outcome is run again by the next leader.
    SecondRun,
    /// An entry that cannot be read takes a slot.
    UnreadableEntryTakesSlot,
    /// An interrupted power cycle is dropped when the Metal3 controller is switched off.
    PowerCycleForgotten,
    /// A closed window holds back nothing.
    WindowForgotten,
    /// An API server in work does not hold back another one.
    TwoApiServers,
    /// API servers do not wait for the workers that come first.
    WorkersForgotten,
    /// Workers in progress do not count against the limit.
    LimitIgnored,
    /// A second entry of a machine starts while its first one waits.
    DuplicateStarts,
    /// Unreachable nodes hold back nothing.
    GateForgotten,
    /// The health of the other control planes does not hold back an API server.
    UnhealthyControlPlaneIgnored,
    /// A freeze holds back nothing.
    FreezeForgotten,
    /// A cordon is made without the owner annotation.
    CordonUnrecorded,
    /// A node that was cordoned before cketerm counts as schedulable before.
    ForeignCordonLost,
    /// A cordon marked `cketerm.io/keep-cordoned` is removed after the end of the entry.
    KeepForgotten,
    /// Entries start while their queue is disabled.
    SwitchIgnored,
    /// The Node of a cancelled reboot is uncordoned before its machine has recovered.
    EarlyUncordon,
    /// A budget that refuses the dry run does not block the preview.
    PreviewIgnored,
    /// A pod whose eviction was accepted counts as gone.
    DrainedTooEarly,
    /// Evictions are sent although their budget allows none.
    PacingIgnored,
    /// No pod gets a dry run while no webhook sees evictions.
    PreviewSkipped,
    /// A success command begins while a command of another entry may still run on the machine.
    OtherEntryForgotten,
    /// A leader takes a drain that it began itself, unknowingly, for another leader's.
    OwnDrainForgotten,
    /// All Nodes get the definition's labels, annotations and taints at once.
    DescriptionsUnlimited,
    /// Evictions and deletions name the pod without its UID.
    EvictionWithoutUid,
    /// A pod that a budget protects is deleted, even in a protected namespace.
    DeleteProtected,
    /// Pods of DaemonSets are evicted like any other pod.
    DaemonSetsEvicted,
    /// Pods are deleted without their grace period.
    ForceDelete,
    /// The lease never expires by the local clock, and a command may start at any time.
    LateEffect,
    /// Unknown fields of an entry are lost when it is rewritten.
    UnknownFieldsLost,
    /// The last worker that could start is started instead of the first.
    LastFirst,
    /// The entry of a machine that is no member is reported, but not removed.
    NonMemberStays,
    /// An entry that waits for a slot has no reason.
    SilentEntry,
    /// A backoff continues after its reset.
    ResetIgnored,
    /// A machine that does not recover is never reported as stuck.
    StuckUnreported,
    /// Wall time is read again for each decision.
    ClockTrusted,
    /// Writes to Kubernetes have no audit record before them.
    AuditForgotten,
    /// The end of `reboots/running` is never written.
    RunsForEver,
    /// The success command is run without checking whether it ran already.
    SuccessTwice,
    /// A step whose watch is over is followed by the same step.
    StepTwice,
    /// The next step starts before the watch of the one before is over.
    StepUnwatched,
    /// The next step starts by the answer of a health check that began before the watch was over.
    CheckWithinWatch,
    /// A `retry` for a hook of a machine that was back runs the machine's command.
    RetryReachesCommand,
    /// The repair queue grows above its limit.
    RepairLimitIgnored,
    /// A repair does not wait for a reboot of the same machine.
    RepairBesideReboot,
    /// A host is powered on while a client holds it off.
    ForeignKeyIgnored,
    /// A preview of a drain starts the drain.
    ReadsWrite,
    /// The command is sent although another program uncordoned the Node during the drain.
    UncordonUnseen,
    /// Volumes in use hold back nothing.
    VolumesForgotten,
    /// The cause of a refused eviction is not named.
    RefusalUnnamed,
    /// A backoff continues after its end.
    BackoffForEver,
    /// A cancelled entry stays while others are in progress.
    CancelWaits,
    /// A webhook that denies the dry run does not block the preview.
    DenialIgnored,
    /// A webhook's 429 blocks the preview, so the eviction that would start a migration is never sent.
    DeferralBlocks,
    /// A pod is deleted after a webhook answered its eviction with 429.
    DeferredDeleted,
    /// A drain is aborted at the first 500 or timeout.
    FailureFatal,
    /// Admission webhooks cannot see that a preview is a dry run.
    DryRunHidden,
    /// A pod counts as stuck one minute after its deletion was requested, whatever its grace period.
    GraceForgotten,
    /// Any answer of the API server counts as a proof of every watch, and no watch is reopened to prove itself.
    WatchTrusted,
    /// A stuck main loop of the engine is not detected.
    HeartbeatIgnored,
    /// A BMC is contacted at any address.
    AllowListForgotten,
    /// The other members of etcd hold back no machine.
    QuorumForgotten,
    /// A member of etcd that does not answer this engine counts as down if any other member knows a leader.
    SilenceTrusted,
    /// The source whose copy is too old is not named.
    StaleUnnamed,
    /// Orders and rules are accepted regardless of the leader.
    OrderAcceptedAnyway,
    /// A node's agent obeys an order that is for another boot.
    OrderBootIgnored,
    /// A node's agent requests the reboot twice for one order.
    AgentRebootsTwice,
    /// A node's agent obeys an order that was withdrawn meanwhile.
    WithdrawnOrderObeyed,
    /// The driver takes an agent's answer to any other order for the answer to its own.
    AnswerOfAnother,
    /// An agent's answer that it obeys counts as proof of a boot.
    AgentBelieved,
}

/// All faults.
pub static ALL: &[Mutation] = &[
    Mutation::CompareNothing,
    Mutation::ForgottenCordon,
    Mutation::RetriesInMemory,
    Mutation::CancelOverwritten,
    Mutation::BatchPauseForgotten,
    Mutation::UnreadableBatchIgnored,
    Mutation::EnqueueOutlivesCancel,
    Mutation::LostCancelForgotten,
    Mutation::ListOrderIgnored,
    Mutation::DoneForgotten,
    Mutation::ResultOfAnother,
    Mutation::ResultsIgnored,
    Mutation::SharedArguments,
    Mutation::BackoffOverflow,
    Mutation::UncordonOnDisable,
    Mutation::UnfencedWrite,
    Mutation::SecondRun,
    Mutation::UnreadableEntryTakesSlot,
    Mutation::PowerCycleForgotten,
    Mutation::WindowForgotten,
    Mutation::TwoApiServers,
    Mutation::WorkersForgotten,
    Mutation::LimitIgnored,
    Mutation::DuplicateStarts,
    Mutation::GateForgotten,
    Mutation::UnhealthyControlPlaneIgnored,
    Mutation::FreezeForgotten,
    Mutation::CordonUnrecorded,
    Mutation::ForeignCordonLost,
    Mutation::KeepForgotten,
    Mutation::SwitchIgnored,
    Mutation::EarlyUncordon,
    Mutation::PreviewIgnored,
    Mutation::DrainedTooEarly,
    Mutation::PacingIgnored,
    Mutation::PreviewSkipped,
    Mutation::OtherEntryForgotten,
    Mutation::OwnDrainForgotten,
    Mutation::DescriptionsUnlimited,
    Mutation::EvictionWithoutUid,
    Mutation::DeleteProtected,
    Mutation::DaemonSetsEvicted,
    Mutation::ForceDelete,
    Mutation::LateEffect,
    Mutation::UnknownFieldsLost,
    Mutation::LastFirst,
    Mutation::NonMemberStays,
    Mutation::SilentEntry,
    Mutation::ResetIgnored,
    Mutation::StuckUnreported,
    Mutation::ClockTrusted,
    Mutation::AuditForgotten,
    Mutation::RunsForEver,
    Mutation::SuccessTwice,
    Mutation::StepTwice,
    Mutation::StepUnwatched,
    Mutation::CheckWithinWatch,
    Mutation::RetryReachesCommand,
    Mutation::RepairLimitIgnored,
    Mutation::RepairBesideReboot,
    Mutation::ForeignKeyIgnored,
    Mutation::ReadsWrite,
    Mutation::UncordonUnseen,
    Mutation::VolumesForgotten,
    Mutation::RefusalUnnamed,
    Mutation::BackoffForEver,
    Mutation::CancelWaits,
    Mutation::DenialIgnored,
    Mutation::DeferralBlocks,
    Mutation::DeferredDeleted,
    Mutation::FailureFatal,
    Mutation::DryRunHidden,
    Mutation::GraceForgotten,
    Mutation::WatchTrusted,
    Mutation::HeartbeatIgnored,
    Mutation::AllowListForgotten,
    Mutation::QuorumForgotten,
    Mutation::SilenceTrusted,
    Mutation::StaleUnnamed,
    Mutation::TransactionUnbounded,
    Mutation::AuditFlooded,
    Mutation::OrderAcceptedAnyway,
    Mutation::NodeGraceIgnored,
    Mutation::MemberInWorkLeaves,
    Mutation::ControlPlaneLeavesUnasked,
    Mutation::VanishedNodeCounts,
    Mutation::NeededTwice,
    Mutation::StillSetAsks,
    Mutation::NeededLimitsIgnored,
    Mutation::OtherDrainerIgnored,
    Mutation::OrderBootIgnored,
    Mutation::AgentRebootsTwice,
    Mutation::WithdrawnOrderObeyed,
    Mutation::AnswerOfAnother,
    Mutation::AgentBelieved,
    Mutation::HookSkipped,
    Mutation::HookFailureIgnored,
    Mutation::UncordonHookSkipped,
    Mutation::HookBesideItself,
    Mutation::HookRecordForgotten,
    Mutation::HookSlotFreed,
    Mutation::HooksEndEarly,
    Mutation::AfterHookForgotten,
    Mutation::SignsStay,
    Mutation::ForeignConditionTaken,
    Mutation::PlannedTaintStays,
    Mutation::SignsOutliveLeader,
    Mutation::ResignsBeforeUncordon,
    Mutation::ForeignClusterChanged,
    Mutation::BreakerForgotten,
    Mutation::CanariesForgotten,
    Mutation::OutcomeForgotten,
    Mutation::MaintenanceForEver,
    Mutation::DeletedRequestKept,
    Mutation::RequestQueuedTwice,
    Mutation::StartGateForgotten,
];

#[cfg(feature = "mutations")]
thread_local! {
    /// A simulation runs on one thread. Other threads may run with another fault at the same time.
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Injects this fault, and no other, on this thread from now on.
#[cfg(feature = "mutations")]
pub fn set(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

/// Returns true if this fault is injected.
#[cfg(feature = "mutations")]
pub fn on(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

/// Breaks the rule beside it while the [`Mutation`] of this name is injected; nothing in any shipped build.
///
/// It stands on a line of its own, so that the rule reads as if it were not there. It is written like an arm of a
/// `match`: the name, a condition if need be, and a statement to run or another value for a variable bound before.
///
/// ```
/// # use cketerm_model::fault;
/// fn free_slots(limit: usize, used: usize, enabled: bool) -> usize {
///     fault!(SwitchIgnored if !enabled => return limit);
///     fault!(LimitIgnored => used = 0);
///     if enabled { limit.saturating_sub(used) } else { 0 }
/// }
/// assert_eq!(free_slots(2, 2, true), 0);
/// ```
///
/// Imports, variables and values that only a fault needs belong inside it.
#[cfg(not(feature = "mutations"))]
#[macro_export]
macro_rules! fault {
    ($mutation:ident $(if $condition:expr)? => $fault:expr) => {};
}

/// Breaks the rule beside it while the [`Mutation`] of this name is injected: runs a statement, or gives a variable
/// another value for the rest of its block.
#[cfg(feature = "mutations")]
#[macro_export]
macro_rules! fault {
    ($mutation:ident => $variable:ident = $value:expr) => {
        let $variable = if $crate::mutation::on($crate::mutation::Mutation::$mutation) { $value } else { $variable };
    };
    ($mutation:ident $(if $condition:expr)? => $statement:expr) => {
        if $crate::mutation::on($crate::mutation::Mutation::$mutation) $(&& $condition)? {
            $statement;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// Every fault has a row in the table of `docs/reliability.md`, and every invariant has a fault that breaks it.
    #[test]
    fn docs_reliability_md_lists_every_mutation() {
        let document = include_str!("../../../docs/reliability.md");
        let (_, table) = document.split_once("## Mutations").expect("the heading Mutations");
        let (table, _) = table.split_once("\n## ").expect("the next heading");
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let mut named: Vec<(&str, &str)> = rows.collect();
        let codes: Vec<&str> = named.iter().filter_map(|(_, row)| row.split(" | ").next()).collect();
        let codes: Vec<&str> = codes.iter().flat_map(|codes| codes.split(" or ")).collect();
        for code in (1..=76).map(|i| format!("I{i}")) {
            assert!(codes.contains(&code.as_str()), "no mutation breaks {code}");
        }
        named.sort_unstable();
        let mut all: Vec<String> = ALL.iter().map(|m| format!("{m:?}")).collect();
        all.sort_unstable();
        assert_eq!(named.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), all);
    }
}

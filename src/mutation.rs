//! Faults that are put into this program on purpose, to test whether the simulation finds them (`make sim
//! MUTATION=all`).
//!
//! They exist only with the cargo feature `mutations`, which no shipped build has. Without it every check is the
//! constant `false`, and the compiler removes the faulty branches.

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!(
    "the feature `mutations` is for simulations (`make sim`): no program that is optimised and shipped may have it"
);

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Transactions of the engine do not compare the revisions of the values that they were decided from.
    CompareNothing,
    /// A Node is not uncordoned after its entry has ended.
    ForgottenCordon,
    /// Each leader counts only its own tries of a command.
    RetriesInMemory,
    /// An entry is written even if somebody else has changed it meanwhile.
    CancelOverwritten,
    /// An operator's `done` is not kept until the node is uncordoned.
    DoneForgotten,
    /// A published result is accepted for any open attempt.
    ResultOfAnother,
    /// Published results are never taken over.
    ResultsIgnored,
    /// All commands share one buffer for their address.
    SharedArguments,
    /// The wait after a backoff is computed with a shift that overflows.
    BackoffOverflow,
    /// While the queue is disabled, nodes are uncordoned, including rebooting ones.
    UncordonOnDisable,
    /// Transactions of the engine do not compare the leader key.
    UnfencedWrite,
    /// The attempts of an entry are deleted key by key, in a transaction of unlimited size.
    TransactionUnbounded,
    /// Operators' audit records are pruned together with the engine's, and only the newest few stay.
    AuditFlooded,
    /// The next leader runs a command without an outcome again.
    SecondRun,
    /// An entry that cannot be read takes a slot.
    SlotEaten,
    /// A power cycle in progress is abandoned when Metal3's controller is switched off.
    HalfForgotten,
    /// A closed window holds nothing back.
    WindowForgotten,
    /// An API server in progress does not hold another one back.
    TwoApiServers,
    /// API servers do not wait for the workers that come first.
    WorkersForgotten,
    /// Workers in progress do not count against the limit.
    LimitIgnored,
    /// A second entry of a machine may start while its first one waits.
    DuplicateStarts,
    /// Unreachable nodes hold nothing back.
    GateForgotten,
    /// The health of the other control planes holds no API server back.
    SickControlPlane,
    /// A freeze holds nothing back.
    FreezeForgotten,
    /// A cordon is made without a record of its author and entry.
    CordonUnrecorded,
    /// A node that was already cordoned is treated as if it was not.
    ForeignCordonLost,
    /// A cordon that an administrator took over is removed with its entry.
    KeepForgotten,
    /// Entries start while their queue is disabled.
    SwitchIgnored,
    /// The node of a cancelled reboot is uncordoned before its machine has recovered.
    EarlyUncordon,
    /// A budget that refuses the dry run does not block the preview.
    PreviewIgnored,
    /// A pod whose eviction was accepted counts as gone.
    DrainedTooEarly,
    /// Evictions and deletions name the pod without its UID.
    EvictionWithoutUid,
    /// A pod that a budget protects is deleted, even in a protected namespace.
    DeleteProtected,
    /// Pods of DaemonSets are evicted like any other pod.
    DaemonSetsEvicted,
    /// Pods are deleted without a grace period.
    ForceDelete,
    /// The engine's own reckoning never ends a lease, and a command may start at any time.
    LateEffect,
    /// Unknown fields of an entry are lost when it is rewritten.
    StrangeFieldsLost,
    /// Of the workers that could start, the last one starts.
    LastFirst,
    /// The entry of a machine that left the definition is reported, but not removed.
    StrangerStays,
    /// An entry that waits for a slot has no reason.
    SilentEntry,
    /// The wait after a backoff survives a reset.
    ResetIgnored,
    /// A machine that does not recover is never reported as stuck.
    StuckUnsaid,
    /// Wall time is read again for each decision.
    ClockTrusted,
    /// Effects on Kubernetes have no audit record before them.
    AuditForgotten,
    /// The end of all work is never written to the key `reboots/running`.
    RunsForEver,
    /// The success command is run without a check whether it has already run.
    SuccessTwice,
    /// A step whose watch is over is followed by the same step.
    StepTwice,
    /// The next step does not wait for the watch of the previous one.
    StepUnwatched,
    /// The repair queue grows above its limit.
    OverCap,
    /// A repair does not wait for a reboot of the same machine.
    RepairBesideReboot,
    /// A host is powered on while a client holds it off.
    KeyOfOthers,
    /// The preview of a drain starts the drain.
    ReadsWrite,
    /// Before the command, the engine does not check whether somebody uncordoned the node in mid-drain.
    UncordonUnseen,
    /// Volumes in use hold nothing back.
    VolumesForgotten,
    /// The refusal of an eviction has no name.
    RefusalUnnamed,
    /// The wait after a backoff goes on after its end.
    BackoffForEver,
    /// A cancelled entry stays while others are in progress.
    CancelWaits,
    /// A webhook that denies the dry run does not block the preview.
    DenialIgnored,
    /// A webhook's 429 blocks the preview, so the eviction that would start a migration is never sent.
    DeferralBlocks,
    /// A pod is deleted although a webhook answered its eviction with 429.
    DeferredDeleted,
    /// A drain is given up at the first 500 or timeout.
    FailureFatal,
    /// Admission webhooks do not see that a preview is a dry run.
    DryRunHidden,
    /// A pod is reported stuck one minute after its deletion was requested, regardless of its grace period.
    GraceForgotten,
    /// Any answer of the API server counts as a proof of every watch, and no watch is reopened to prove itself.
    WatchTrusted,
    /// A stuck main loop of the engine goes unnoticed.
    HeartbeatIgnored,
    /// Logins are sent to a BMC at any address.
    AllowListForgotten,
    /// The other etcd members hold no machine back.
    QuorumForgotten,
    /// An etcd member that does not answer this engine counts as down if any other member knows a leader.
    SilenceTrusted,
    /// The reason does not name the source that is too stale for work to start.
    StaleUnnamed,
    /// Orders and rules are accepted regardless of the leader.
    HoldPretended,
}

/// All faults.
pub static ALL: &[Mutation] = &[
    Mutation::CompareNothing,
    Mutation::ForgottenCordon,
    Mutation::RetriesInMemory,
    Mutation::CancelOverwritten,
    Mutation::DoneForgotten,
    Mutation::ResultOfAnother,
    Mutation::ResultsIgnored,
    Mutation::SharedArguments,
    Mutation::BackoffOverflow,
    Mutation::UncordonOnDisable,
    Mutation::UnfencedWrite,
    Mutation::SecondRun,
    Mutation::SlotEaten,
    Mutation::HalfForgotten,
    Mutation::WindowForgotten,
    Mutation::TwoApiServers,
    Mutation::WorkersForgotten,
    Mutation::LimitIgnored,
    Mutation::DuplicateStarts,
    Mutation::GateForgotten,
    Mutation::SickControlPlane,
    Mutation::FreezeForgotten,
    Mutation::CordonUnrecorded,
    Mutation::ForeignCordonLost,
    Mutation::KeepForgotten,
    Mutation::SwitchIgnored,
    Mutation::EarlyUncordon,
    Mutation::PreviewIgnored,
    Mutation::DrainedTooEarly,
    Mutation::EvictionWithoutUid,
    Mutation::DeleteProtected,
    Mutation::DaemonSetsEvicted,
    Mutation::ForceDelete,
    Mutation::LateEffect,
    Mutation::StrangeFieldsLost,
    Mutation::LastFirst,
    Mutation::StrangerStays,
    Mutation::SilentEntry,
    Mutation::ResetIgnored,
    Mutation::StuckUnsaid,
    Mutation::ClockTrusted,
    Mutation::AuditForgotten,
    Mutation::RunsForEver,
    Mutation::SuccessTwice,
    Mutation::StepTwice,
    Mutation::StepUnwatched,
    Mutation::OverCap,
    Mutation::RepairBesideReboot,
    Mutation::KeyOfOthers,
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
    Mutation::HoldPretended,
];

#[cfg(feature = "mutations")]
thread_local! {
    /// Set per thread, because each simulation runs on its own thread and others test other faults meanwhile.
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Activates this fault, and no other, on this thread.
#[cfg(feature = "mutations")]
pub fn set(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

/// Reports whether this fault is active.
#[cfg(feature = "mutations")]
pub fn on(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

/// Always false: this build has no faults.
#[cfg(not(feature = "mutations"))]
pub const fn on(_: Mutation) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// Checks the table in `docs/reliability.md`: it has one row for each fault, and every invariant is broken by at
    /// least one of them.
    #[test]
    fn the_mutations_are_those_of_the_table() {
        let document = include_str!("../docs/reliability.md");
        let (_, table) = document.split_once("## Mutations").expect("a heading");
        let (table, _) = table.split_once("\n## ").expect("another");
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let mut named: Vec<(&str, &str)> = rows.collect();
        let codes: Vec<&str> = named.iter().filter_map(|(_, row)| row.split(" | ").next()).collect();
        let codes: Vec<&str> = codes.iter().flat_map(|codes| codes.split(" or ")).collect();
        for code in (1..=52).map(|i| format!("I{i}")) {
            assert!(codes.contains(&code.as_str()), "no fault breaks {code}");
        }
        named.sort_unstable();
        let mut all: Vec<String> = ALL.iter().map(|m| format!("{m:?}")).collect();
        all.sort_unstable();
        assert_eq!(named.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), all);
    }
}

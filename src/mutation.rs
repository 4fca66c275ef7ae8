//! Faults put into this program on purpose, to see whether the simulation finds them (`make sim MUTATION=all`).
//!
//! Only with the cargo feature `mutations`, which no shipped build has; without it every question here is answered `false` by
//! the compiler, and nothing is left.

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!(
    "the feature `mutations` is for simulations (`make sim`): no program that is optimised and shipped may have it"
);

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Transactions of the engine compare no revision of what they were decided from.
    CompareNothing,
    /// A Node is not let go of when its entry has ended.
    ForgottenCordon,
    /// Tries of a command are counted by the leader that ran them.
    RetriesInMemory,
    /// An entry is written whatever somebody else has written to it meanwhile.
    CancelOverwritten,
    /// That a person called an entry done is not kept until its node is uncordoned.
    DoneForgotten,
    /// A published result is accepted for whatever attempt is open.
    ResultOfAnother,
    /// Published results are never taken over.
    ResultsIgnored,
    /// All commands share one buffer for their address.
    SharedArguments,
    /// The wait after a backoff grows by a shift that overflows.
    BackoffOverflow,
    /// Nodes are let go of while the queue is disabled, those that reboot too.
    UncordonOnDisable,
    /// Transactions of the engine do not compare the leader key.
    UnfencedWrite,
    /// The attempts of an entry are deleted key by key, in a transaction of any size.
    TransactionUnbounded,
    /// People's audit records go with the engine's, and only the newest few stay.
    AuditFlooded,
    /// A command without an outcome is run again by the next leader.
    SecondRun,
    /// An entry that cannot be read occupies a slot.
    SlotEaten,
    /// A power cycle that was begun is let go of when Metal3's controller is switched off.
    HalfForgotten,
    /// A window that is shut keeps nothing back.
    WindowForgotten,
    /// An API server in work does not keep another one back.
    TwoApiServers,
    /// API servers do not wait for the workers before them.
    WorkersForgotten,
    /// Workers in work do not count against the limit.
    LimitIgnored,
    /// A second entry of a machine is looked at while its first one waits.
    DuplicateStarts,
    /// Unreachable nodes keep nothing back.
    GateForgotten,
    /// The health of the other control planes keeps no API server back.
    SickControlPlane,
    /// A freeze keeps nothing back.
    FreezeForgotten,
    /// A cordon is made, and nothing says by whom and for what.
    CordonUnrecorded,
    /// A node that was cordoned before us is taken for one that was not.
    ForeignCordonLost,
    /// A cordon that an administrator made his goes with its entry.
    KeepForgotten,
    /// Entries start while their queue is disabled.
    SwitchIgnored,
    /// The node of a cancelled reboot is let go of before its machine has come back.
    EarlyUncordon,
    /// A budget that refuses the dry run is no blocker.
    PreviewIgnored,
    /// A pod whose eviction was accepted counts as gone.
    DrainedTooEarly,
    /// Evictions and deletions name the pod without its UID.
    EvictionWithoutUid,
    /// A pod that a budget holds is deleted, whatever protects its namespace.
    DeleteProtected,
    /// Pods of DaemonSets are evicted like any other.
    DaemonSetsEvicted,
    /// Pods are deleted without their grace.
    ForceDelete,
    /// A lease never runs out by our own reckoning, and a command may begin at any time.
    LateEffect,
    /// Fields of an entry that we do not know are lost when it is rewritten.
    StrangeFieldsLost,
    /// Of the workers that could start the last one does.
    LastFirst,
    /// The entry of a machine that is no member is named, and stays.
    StrangerStays,
    /// An entry that waits for a slot says nothing.
    SilentEntry,
    /// The wait after a backoff outlives its reset.
    ResetIgnored,
    /// A machine that does not come back is never reported.
    StuckUnsaid,
    /// Wall time is read anew for each decision.
    ClockTrusted,
    /// What is done to Kubernetes is not told before.
    AuditForgotten,
    /// That the queue is at rest is never written down.
    RunsForEver,
    /// Whether the success command was run is not looked at before it is run.
    SuccessTwice,
    /// A step whose watch is over is followed by itself.
    StepTwice,
    /// The next step does not wait until the one before was watched.
    StepUnwatched,
    /// The repair queue grows above its cap.
    OverCap,
    /// A repair does not wait for the reboot of the same machine.
    RepairBesideReboot,
    /// A host is turned on while somebody holds it off.
    KeyOfOthers,
    /// A look at what a drain would do begins it.
    ReadsWrite,
    /// That somebody has let go of the node in mid-drain is not looked at before its machine is rebooted.
    UncordonUnseen,
    /// Volumes that are in use keep nothing back.
    VolumesForgotten,
    /// What refused an eviction is not named.
    RefusalUnnamed,
    /// A wait after a backoff that is over goes on.
    BackoffForEver,
    /// A cancelled entry stays while others are in work.
    CancelWaits,
    /// A webhook that denies the dry run is no blocker.
    DenialIgnored,
    /// A webhook's 429 blocks the preview, so that the eviction which would start a migration is never sent.
    DeferralBlocks,
    /// A pod is deleted whose eviction a webhook has answered with 429.
    DeferredDeleted,
    /// A drain is given up at the first 500 or time-out.
    FailureFatal,
    /// Admission webhooks are not told that a preview is a dry run.
    DryRunHidden,
    /// A pod is called stuck a minute after its deletion was requested, whatever grace period it has.
    GraceForgotten,
    /// Any answer of the API server counts as a proof of every watch, and none is opened again to prove itself.
    WatchTrusted,
    /// Nobody notices that the engine's main loop is stuck.
    HeartbeatIgnored,
    /// A BMC is spoken to wherever it is said to be.
    AllowListForgotten,
    /// The other members of etcd keep no machine back.
    QuorumForgotten,
    /// A member of etcd that does not answer this engine counts as down wherever another one knows a leader.
    SilenceTrusted,
    /// Whose copy is too old for work to start is not named.
    StaleUnnamed,
    /// Orders and rules are accepted whoever leads.
    HoldPretended,
}

/// All of them.
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
    /// A simulation lives on one thread: others play with something else broken meanwhile.
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Breaks that, and nothing else, on this thread from now on.
#[cfg(feature = "mutations")]
pub fn set(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

/// Whether that is broken.
#[cfg(feature = "mutations")]
pub fn on(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

/// Whether that is broken: never in this build.
#[cfg(not(feature = "mutations"))]
pub const fn on(_: Mutation) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// The table of `docs/reliability.md`: every fault a row, and every invariant the one to be broken by some of them.
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

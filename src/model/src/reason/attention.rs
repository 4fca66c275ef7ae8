//! Urgency of reasons: whether and how soon an operator must act. The console, the notices and the metrics use this one
//! list (`src/rules/src/trouble.rs`).
#![warn(clippy::wildcard_enum_match_arm)] // a new reason must be decided here

use super::{ATTENTION_BACKOFF_COUNT, CommandRetry, HookRetry, Reason};

/// Urgency of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attention {
    /// None: the entry moves, or its turn has not come.
    None,
    /// Once it has lasted for some time: it may end by itself.
    Later,
    /// At once: only an operator can end it.
    Now,
}

/// Entries that a reason holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This entry alone.
    Entry,
    /// A condition that every start must meet, by a fact about this entry's machine.
    Gate,
    /// A condition that every start must meet, for one cause that all waiting entries share.
    SharedGate,
    /// All entries, or all that need the same thing, for one cause.
    Cluster,
}

impl Reason {
    /// Returns the urgency of this reason.
    pub fn attention(&self) -> Attention {
        match self {
            // whom the switch sent back nothing holds up but a timer
            Self::Backoff { count, cause, .. } => match cause.as_deref() {
                Some(Self::QueueDisabled) => Attention::None,
                // no backoff is long enough
                Some(Self::PdbNeverAllows { .. } | Self::BlockedByManyPdbs { .. }) => Attention::Now,
                None if *count < ATTENTION_BACKOFF_COUNT => Attention::None,
                _ => Attention::Later,
            },
            Self::BlockedByPdb { cause: Some(cause), .. } if !cause.deadlock.is_empty() => Attention::Now,
            Self::CommandFailed { retry: CommandRetry::Scheduled | CommandRetry::OnceEnabled, .. }
            | Self::UnreachableGate { .. }
            | Self::StartGateClosed { .. }
            | Self::CanaryPending { fault: Some(_), .. }
            | Self::LeaderOnNode { .. }
            | Self::ControlPlaneUnhealthy { .. }
            | Self::EtcdMemberUnhealthy { .. }
            | Self::EtcdUnchecked { .. }
            | Self::BlockedByPdb { .. }
            | Self::BlockedByJob { .. }
            | Self::PodsCannotLand { .. }
            | Self::LandingUnknown { .. }
            | Self::EvictionRefused { .. }
            | Self::DeferredToWebhook { .. }
            | Self::DeniedByWebhook { .. }
            | Self::EvictionFailing { .. }
            | Self::VolumeAttached { .. }
            | Self::CheckUnavailable { .. }
            | Self::DrainedByOther { .. }
            | Self::HookFailed { retry: HookRetry::Scheduled, .. }
            | Self::UncordonGateClosed { overdue: false, .. }
            | Self::PowerError { .. }
            | Self::EffectFailed { .. }
            | Self::OutcomeUnknown { until: Some(_), .. } => Attention::Later,
            Self::EtcdQuorumWouldBeLost { .. }
            | Self::BreakerOpen { .. }
            | Self::BlockedByManyPdbs { .. }
            | Self::PdbNeverAllows { .. }
            | Self::TerminatingStuck { .. }
            | Self::UncordonedByOther { .. }
            | Self::CommandFailed { retry: CommandRetry::Never, .. }
            | Self::HookFailed { retry: HookRetry::Exhausted, .. }
            | Self::UncordonGateClosed { overdue: true, .. }
            | Self::OutcomeUnknown { .. }
            | Self::NodeMismatch { .. }
            | Self::OrphanedCordon { .. }
            | Self::AwaitingApproval { .. }
            | Self::EngineObserving { .. }
            | Self::NoEngine { .. }
            | Self::Stale { .. }
            | Self::OrderIgnored { .. }
            | Self::BatchUnreadable { .. }
            | Self::ControlPlaneUnclear { .. }
            | Self::BatchPauseIgnored { .. }
            | Self::ProgramMissing { .. }
            | Self::BmcNotAllowed { .. }
            | Self::WaitingForBoot { stuck: true, .. }
            | Self::NoCommand { .. }
            | Self::NotMember { .. }
            | Self::InvalidEntry { .. }
            | Self::TransactionTooLarge { .. } => Attention::Now,
            Self::WaitingForBoot { stuck: false, .. }
            | Self::WaitingForSlot { .. }
            | Self::WaitingForWorkers { .. }
            | Self::WaitingForControlPlane { .. }
            | Self::WaitingForRepairs { .. }
            | Self::OutsideWindow { .. }
            | Self::WaitingForBudget { .. }
            | Self::WaitingForGroup { .. }
            | Self::CanaryPending { fault: None, .. }
            | Self::PodsLeaving { .. }
            | Self::CommandRunning { .. }
            | Self::HookRunning { .. }
            | Self::Frozen { .. }
            | Self::EngineElsewhere { .. }
            | Self::OnHold { .. }
            | Self::BatchPaused { .. }
            | Self::DuplicateOf { .. }
            | Self::InMaintenance { .. }
            | Self::MachineInRepair { .. }
            | Self::MachineInReboot { .. }
            | Self::WaitingForHealth { .. }
            | Self::WaitingForJoin { .. }
            | Self::Settling { .. }
            | Self::HeldByOtherKey { .. }
            | Self::QueueDisabled
            | Self::Working { .. }
            | Self::Ready => Attention::None,
        }
    }

    /// Returns what this reason holds up.
    pub fn scope(&self) -> Scope {
        match self {
            Self::UnreachableGate { .. }
            | Self::BreakerOpen { .. }
            | Self::StartGateClosed { .. }
            | Self::ControlPlaneUnhealthy { .. }
            | Self::EtcdMemberUnhealthy { .. }
            | Self::EtcdUnchecked { .. }
            | Self::AwaitingApproval { .. } => Scope::SharedGate,
            Self::EtcdQuorumWouldBeLost { .. } => Scope::Gate,
            Self::Stale { .. }
            | Self::EngineObserving { .. }
            | Self::NoEngine { .. }
            | Self::NoCommand { .. }
            | Self::ProgramMissing { .. }
            | Self::BmcNotAllowed { .. } => Scope::Cluster,
            Self::WaitingForSlot { .. }
            | Self::WaitingForWorkers { .. }
            | Self::WaitingForControlPlane { .. }
            | Self::WaitingForRepairs { .. }
            | Self::OutsideWindow { .. }
            | Self::WaitingForBudget { .. }
            | Self::WaitingForGroup { .. }
            | Self::CanaryPending { .. }
            | Self::LeaderOnNode { .. }
            | Self::Backoff { .. }
            | Self::BlockedByPdb { .. }
            | Self::BlockedByManyPdbs { .. }
            | Self::PdbNeverAllows { .. }
            | Self::BlockedByJob { .. }
            | Self::PodsLeaving { .. }
            | Self::PodsCannotLand { .. }
            | Self::LandingUnknown { .. }
            | Self::EvictionRefused { .. }
            | Self::DeferredToWebhook { .. }
            | Self::DeniedByWebhook { .. }
            | Self::EvictionFailing { .. }
            | Self::TerminatingStuck { .. }
            | Self::VolumeAttached { .. }
            | Self::UncordonedByOther { .. }
            | Self::CommandRunning { .. }
            | Self::CommandFailed { .. }
            | Self::OutcomeUnknown { .. }
            | Self::CheckUnavailable { .. }
            | Self::NodeMismatch { .. }
            | Self::OrphanedCordon { .. }
            | Self::Frozen { .. }
            | Self::EngineElsewhere { .. }
            | Self::OnHold { .. }
            | Self::BatchUnreadable { .. }
            | Self::ControlPlaneUnclear { .. }
            | Self::DrainedByOther { .. }
            | Self::HookRunning { .. }
            | Self::HookFailed { .. }
            | Self::UncordonGateClosed { .. }
            | Self::BatchPaused { .. }
            | Self::OrderIgnored { .. }
            | Self::BatchPauseIgnored { .. }
            | Self::DuplicateOf { .. }
            | Self::InMaintenance { .. }
            | Self::MachineInRepair { .. }
            | Self::MachineInReboot { .. }
            | Self::WaitingForHealth { .. }
            | Self::WaitingForJoin { .. }
            | Self::WaitingForBoot { .. }
            | Self::Settling { .. }
            | Self::PowerError { .. }
            | Self::HeldByOtherKey { .. }
            | Self::QueueDisabled
            | Self::NotMember { .. }
            | Self::InvalidEntry { .. }
            | Self::EffectFailed { .. }
            | Self::TransactionTooLarge { .. }
            | Self::Working { .. }
            | Self::Ready => Scope::Entry,
        }
    }

    /// Returns true for conditions that hold up every waiting entry and may end by themselves. An entry in progress
    /// that meets one is held up individually.
    pub fn is_gate(&self) -> bool {
        match self.scope() {
            Scope::Gate | Scope::SharedGate => true,
            Scope::Entry | Scope::Cluster => false,
        }
    }

    /// Returns true for reasons that many entries share for one cause. Notices report it once.
    pub fn holds_all(&self) -> bool {
        match self.scope() {
            Scope::SharedGate | Scope::Cluster => true,
            Scope::Entry | Scope::Gate => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_backoff_needs_an_operator_at_once_if_its_budget_never_allows_an_eviction() {
        let backoff = |cause| {
            Reason::Backoff { count: 1, until: Timestamp::UNIX_EPOCH, cause: Some(Box::new(cause)), tried: None }
                .attention()
        };
        let (pod, pdb) = ("db/mysql-0".to_owned(), "db/mysql".to_owned());
        let never = Reason::PdbNeverAllows { pod, pdb, healthy: 3, needed: 3, pods: 3, cause: None };
        assert_eq!(backoff(never), Attention::Now);
        assert_eq!(backoff(Reason::QueueDisabled), Attention::None);
        assert_eq!(backoff(Reason::VolumeAttached { names: Vec::new() }), Attention::Later);
    }
}

//! Parts of a reason that other modules need as data: a time, a pod, an object.
#![warn(clippy::wildcard_enum_match_arm)] // a new reason must be decided here

use jiff::Timestamp;

use super::{PodHold, Reason};

impl Reason {
    /// Returns the time at which the entry goes on by itself, if the reason has one.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Backoff { until, .. } | Self::Frozen { until, .. } | Self::InMaintenance { until, .. } => {
                Some(*until)
            }
            Self::WaitingForHealth { until, .. } | Self::CanaryPending { until, fault: None, .. } => *until,
            Self::OutsideWindow { next_open, .. } => *next_open,
            Self::WaitingForSlot { .. }
            | Self::WaitingForWorkers { .. }
            | Self::WaitingForControlPlane { .. }
            | Self::WaitingForRepairs { .. }
            | Self::UnreachableGate { .. }
            | Self::LeaderOnNode { .. }
            | Self::BreakerOpen { .. }
            | Self::StartGateClosed { .. }
            | Self::CanaryPending { .. }
            | Self::ControlPlaneUnhealthy { .. }
            | Self::EtcdMemberUnhealthy { .. }
            | Self::EtcdQuorumWouldBeLost { .. }
            | Self::EtcdUnchecked { .. }
            | Self::WaitingForBudget { .. }
            | Self::WaitingForGroup { .. }
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
            | Self::AwaitingApproval { .. }
            | Self::EngineElsewhere { .. }
            | Self::EngineObserving { .. }
            | Self::NoEngine { .. }
            | Self::OnHold { .. }
            | Self::BatchPaused { .. }
            | Self::BatchUnreadable { .. }
            | Self::ControlPlaneUnclear { .. }
            | Self::DrainedByOther { .. }
            | Self::HookRunning { .. }
            | Self::HookFailed { .. }
            | Self::UncordonGateClosed { .. }
            | Self::OrderIgnored { .. }
            | Self::BatchPauseIgnored { .. }
            | Self::Stale { .. }
            | Self::ProgramMissing { .. }
            | Self::BmcNotAllowed { .. }
            | Self::DuplicateOf { .. }
            | Self::MachineInRepair { .. }
            | Self::MachineInReboot { .. }
            | Self::WaitingForJoin { .. }
            | Self::WaitingForBoot { .. }
            | Self::Settling { .. }
            | Self::PowerError { .. }
            | Self::HeldByOtherKey { .. }
            | Self::QueueDisabled
            | Self::NoCommand { .. }
            | Self::NotMember { .. }
            | Self::InvalidEntry { .. }
            | Self::EffectFailed { .. }
            | Self::TransactionTooLarge { .. }
            | Self::Working { .. }
            | Self::Ready => None,
        }
    }

    /// Returns the pod that an eviction's answer or a Job holds on its node, and why.
    pub fn pod_hold(&self) -> Option<(&str, PodHold)> {
        match self {
            Self::BlockedByPdb { pod, pdb, healthy, needed, cause }
            | Self::PdbNeverAllows { pod, pdb, healthy, needed, cause, .. } => {
                let (healthy, needed, cause) = (*healthy, *needed, cause.clone());
                Some((pod, PodHold::Budget { budget: pdb.clone(), healthy, needed, cause }))
            }
            Self::BlockedByManyPdbs { pod, pdbs } => Some((pod, PodHold::ManyBudgets { budgets: pdbs.clone() })),
            Self::BlockedByJob { pod, job } => Some((pod, PodHold::Job { job: job.clone() })),
            Self::EvictionRefused { pod, answer } => Some((pod, PodHold::Refused { answer: answer.clone() })),
            Self::EvictionFailing { pod, answer } => Some((pod, PodHold::Failing { answer: answer.clone() })),
            Self::DeferredToWebhook { pod, webhook, message } => {
                Some((pod, PodHold::Deferred { webhook: webhook.clone(), message: message.clone() }))
            }
            Self::DeniedByWebhook { pod, webhook, message } => {
                Some((pod, PodHold::Denied { webhook: webhook.clone(), message: message.clone() }))
            }
            Self::WaitingForSlot { .. }
            | Self::WaitingForWorkers { .. }
            | Self::WaitingForControlPlane { .. }
            | Self::WaitingForRepairs { .. }
            | Self::UnreachableGate { .. }
            | Self::LeaderOnNode { .. }
            | Self::BreakerOpen { .. }
            | Self::StartGateClosed { .. }
            | Self::CanaryPending { .. }
            | Self::ControlPlaneUnhealthy { .. }
            | Self::EtcdMemberUnhealthy { .. }
            | Self::EtcdQuorumWouldBeLost { .. }
            | Self::EtcdUnchecked { .. }
            | Self::OutsideWindow { .. }
            | Self::WaitingForBudget { .. }
            | Self::WaitingForGroup { .. }
            | Self::Backoff { .. }
            | Self::PodsLeaving { .. }
            | Self::PodsCannotLand { .. }
            | Self::LandingUnknown { .. }
            | Self::TerminatingStuck { .. }
            | Self::VolumeAttached { .. }
            | Self::UncordonedByOther { .. }
            | Self::CommandRunning { .. }
            | Self::CommandFailed { .. }
            | Self::OutcomeUnknown { .. }
            | Self::CheckUnavailable { .. }
            | Self::NodeMismatch { .. }
            | Self::OrphanedCordon { .. }
            | Self::AwaitingApproval { .. }
            | Self::Frozen { .. }
            | Self::EngineElsewhere { .. }
            | Self::EngineObserving { .. }
            | Self::NoEngine { .. }
            | Self::OnHold { .. }
            | Self::BatchPaused { .. }
            | Self::BatchUnreadable { .. }
            | Self::ControlPlaneUnclear { .. }
            | Self::DrainedByOther { .. }
            | Self::HookRunning { .. }
            | Self::HookFailed { .. }
            | Self::UncordonGateClosed { .. }
            | Self::OrderIgnored { .. }
            | Self::BatchPauseIgnored { .. }
            | Self::Stale { .. }
            | Self::ProgramMissing { .. }
            | Self::BmcNotAllowed { .. }
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
            | Self::NoCommand { .. }
            | Self::NotMember { .. }
            | Self::InvalidEntry { .. }
            | Self::EffectFailed { .. }
            | Self::TransactionTooLarge { .. }
            | Self::Working { .. }
            | Self::Ready => None,
        }
    }

    /// Reports whether the short text of this reason begins with the object that blocks: a budget or a Job.
    pub fn names_object(&self) -> bool {
        matches!(self, Self::BlockedByPdb { .. } | Self::BlockedByJob { .. })
    }
}

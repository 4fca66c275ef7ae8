//! Urgency of reasons: whether and how soon an operator must act. The console, the notices and the metrics use this one
//! list (`engine/trouble`).

use super::{GIVEN_UP, Reason, SWITCHED_OFF, TRIES_AGAIN};

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

impl Reason {
    /// Returns the urgency of this reason.
    pub fn attention(&self) -> Attention {
        match self {
            Self::CommandFailed { how, .. } if how.contains(TRIES_AGAIN) => Attention::Later,
            // An entry that the queue's switch sent back waits only for its backoff.
            Self::Backoff { count, cause, .. } => match cause {
                Some(why) if why.starts_with(SWITCHED_OFF) => Attention::None,
                None if *count < GIVEN_UP => Attention::None,
                _ => Attention::Later,
            },
            Self::WaitingForBoot { stuck: false, .. } => Attention::None,
            Self::UnreachableGate { .. }
            | Self::ControlPlaneUnhealthy { .. }
            | Self::EtcdMemberUnhealthy { .. }
            | Self::EtcdUnchecked { .. }
            | Self::BlockedByPdb { .. }
            | Self::BlockedByJob { .. }
            | Self::EvictionRefused { .. }
            | Self::DeferredToWebhook { .. }
            | Self::DeniedByWebhook { .. }
            | Self::EvictionFailing { .. }
            | Self::VolumeAttached { .. }
            | Self::CheckUnavailable { .. }
            | Self::PowerError { .. }
            | Self::EffectFailed { .. }
            | Self::OutcomeUnknown { until: Some(_), .. } => Attention::Later,
            Self::EtcdQuorumWouldBeLost { .. }
            | Self::BlockedByManyPdbs { .. }
            | Self::TerminatingStuck { .. }
            | Self::UncordonedByOther { .. }
            | Self::CommandFailed { .. }
            | Self::OutcomeUnknown { .. }
            | Self::NodeMismatch { .. }
            | Self::OrphanedCordon { .. }
            | Self::AwaitingApproval { .. }
            | Self::EngineObserving { .. }
            | Self::NoEngine { .. }
            | Self::Stale { .. }
            | Self::OrderIgnored { .. }
            | Self::ProgramMissing { .. }
            | Self::BmcNotAllowed { .. }
            | Self::WaitingForBoot { .. }
            | Self::NoCommand { .. }
            | Self::NotMember { .. }
            | Self::InvalidEntry { .. }
            | Self::TransactionTooLarge { .. } => Attention::Now,
            _ => Attention::None,
        }
    }

    /// Returns true for conditions that hold up every waiting entry and may end by themselves. An entry in progress
    /// that meets one is held up individually.
    pub fn is_gate(&self) -> bool {
        matches!(
            self,
            Self::UnreachableGate { .. }
                | Self::ControlPlaneUnhealthy { .. }
                | Self::EtcdMemberUnhealthy { .. }
                | Self::EtcdQuorumWouldBeLost { .. }
                | Self::EtcdUnchecked { .. }
                | Self::AwaitingApproval { .. }
        )
    }

    /// Returns true for reasons that many entries share for one cause. Notices report it once.
    pub fn holds_all(&self) -> bool {
        matches!(
            self,
            Self::UnreachableGate { .. }
                | Self::ControlPlaneUnhealthy { .. }
                | Self::EtcdMemberUnhealthy { .. }
                | Self::EtcdUnchecked { .. }
                | Self::Stale { .. }
                | Self::EngineObserving { .. }
                | Self::NoEngine { .. }
                | Self::NoCommand { .. }
                | Self::ProgramMissing { .. }
                | Self::BmcNotAllowed { .. }
                | Self::AwaitingApproval { .. }
        )
    }
}

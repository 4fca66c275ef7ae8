//! Which reasons ask for a person, and how soon. One list: the console, the notices and the metrics call the same things stuck
//! (`engine/trouble`).

use super::{GIVEN_UP, Reason, SWITCHED_OFF, TRIES_AGAIN};

/// How soon a reason asks for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attention {
    /// Not at all: it moves, or its turn has not come.
    None,
    /// Once it has lasted: it may be over at the next look, and nobody has done anything.
    Later,
    /// At once: only a person ends it.
    Now,
}

impl Reason {
    /// How soon this asks for a person.
    pub fn attention(&self) -> Attention {
        match self {
            Self::CommandFailed { how, .. } if how.contains(TRIES_AGAIN) => Attention::Later,
            // whom the switch sent back nothing holds up but a timer
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

    /// Whatever waits in the queue waits for this, and it may be over at the next look; an entry in work that meets it is
    /// held up by itself.
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

    /// Many entries have it for one cause: notices tell it once.
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

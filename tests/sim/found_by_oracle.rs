//! Faults that the oracle has to find too (`make sim MUTATION=all`), not only the observer of one invariant: those that
//! make a step of an entry or of a cordon that its table forbids, or leave out one that it demands.
//!
//! It does not judge requests about pods, hosts and hooks, texts, records, and starts that come later than they could.
//! Other observers do.

use cketerm_model::mutation::Mutation;

/// Faults that the oracle has to find without the help of any other observer.
pub const FOUND_BY_ORACLE: &[Mutation] = &[
    // which entry may start, and when
    Mutation::SwitchIgnored,
    Mutation::TwoApiServers,
    Mutation::WorkersForgotten,
    Mutation::LimitIgnored,
    Mutation::LastFirst,
    Mutation::DuplicateStarts,
    Mutation::GateForgotten,
    Mutation::UnhealthyControlPlaneIgnored,
    Mutation::QuorumForgotten,
    Mutation::SilenceTrusted,
    Mutation::FreezeForgotten,
    Mutation::WindowForgotten,
    Mutation::BatchPauseForgotten,
    Mutation::UnreadableBatchIgnored,
    Mutation::BreakerForgotten,
    Mutation::CanariesForgotten,
    Mutation::StartGateForgotten,
    Mutation::RepairBesideReboot,
    Mutation::RepairLimitIgnored,
    // commands
    Mutation::DrainedTooEarly,
    Mutation::VolumesForgotten,
    Mutation::UncordonUnseen,
    Mutation::SecondRun,
    Mutation::RetriesInMemory,
    Mutation::StepTwice,
    Mutation::StepUnwatched,
    Mutation::SuccessTwice,
    Mutation::OtherEntryForgotten,
    Mutation::OrderBootIgnored,
    // what is written, and what has to be written
    Mutation::CompareNothing,
    Mutation::UnknownFieldsLost,
    Mutation::BackoffOverflow,
    Mutation::CancelWaits,
    Mutation::HeartbeatIgnored,
    Mutation::NonMemberStays,
    // cordons
    Mutation::CordonUnrecorded,
    Mutation::ForeignCordonLost,
    Mutation::ForgottenCordon,
    Mutation::KeepForgotten,
    Mutation::EarlyUncordon,
    Mutation::UncordonOnDisable,
    Mutation::DoneForgotten,
    Mutation::MemberInWorkLeaves,
    Mutation::OtherDrainerIgnored,
];

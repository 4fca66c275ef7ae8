//! Cause that an entry is stuck on, for lines about one or several entries.
#![warn(clippy::wildcard_enum_match_arm)] // each reason has its words

use cketerm_model::reason::Reason;
use jiff::Timestamp;

use super::{into_safe, names_object, reason};

/// Returns the cause that an entry is stuck on. The trouble behind a budget comes before the budget: this text follows
/// others in a narrow column, which cuts the end.
pub fn stuck_on(why: &Reason, now: Timestamp) -> String {
    match trouble_of(why) {
        Some(Trouble { pdb, state, cause }) => into_safe(format!("{cause} (pdb {pdb} {state})")),
        None => stuck_key(why, now),
    }
}

/// Returns the budget that an entry is stuck on, with the trouble behind it. `None` if that is not known.
pub fn budget_trouble(why: &Reason) -> Option<String> {
    trouble_of(why).map(|Trouble { pdb, state, cause }| into_safe(format!("pdb {pdb} {state} ({cause})")))
}

/// Trouble behind a budget.
struct Trouble<'a> {
    /// `namespace/name` of the budget.
    pdb: &'a str,
    /// Its numbers, or that it never allows an eviction.
    state: String,
    /// The cause in few words.
    cause: String,
}

fn trouble_of(why: &Reason) -> Option<Trouble<'_>> {
    if let Reason::Backoff { cause: Some(cause), .. } = why {
        return trouble_of(cause);
    }
    if let Reason::BlockedByPdb { pdb, healthy, needed, cause: Some(cause), .. } = why {
        let state = format!("has {healthy}, needs {needed}");
        return Some(Trouble { pdb, state, cause: cause.in_short()? });
    }
    if let Reason::PdbNeverAllows { pdb, cause: Some(cause), .. } = why {
        return Some(Trouble { pdb, state: "never allows".to_owned(), cause: cause.in_short()? });
    }
    None
}

/// Returns the cause that an entry is stuck on as the same text for all entries stuck on it, whatever is known about it.
pub fn stuck_key(why: &Reason, now: Timestamp) -> String {
    let text = match why {
        Reason::BlockedByPdb { pdb, healthy, needed, .. } => format!("pdb {pdb} has {healthy}, needs {needed}"),
        Reason::PdbNeverAllows { pdb, needed, pods, .. } => {
            format!("pdb {pdb} never allows: needs {needed} of {pods}")
        }
        Reason::BlockedByManyPdbs { pdbs, .. } => format!("several pdbs on one pod: {}", pdbs.join(", ")),
        Reason::BlockedByJob { job, .. } => format!("job {job}"),
        Reason::Backoff { cause: Some(cause), .. } => {
            if names_object(cause) {
                return stuck_key(cause, now);
            }
            cause.to_string()
        }
        Reason::CommandFailed { end, retry, .. } => format!("command failed{retry}: {end}"),
        Reason::HookFailed { hook, .. } => format!("failing hook {hook}"),
        Reason::UncordonGateClosed { missing, .. } => missing.clone(),
        Reason::UnreachableGate { count, limit, names } => {
            let more = if *count > 1 { " ..." } else { "" };
            let first = names.first().map_or("", |name| name.as_str());
            format!("{count} unreachable, limit {limit} ({first}{more})")
        }
        Reason::BreakerOpen { count, of, .. } => format!("open breaker ({count} of {of} ended badly)"),
        Reason::StartGateClosed { gate, .. } => format!("start gate {gate}"),
        Reason::CanaryPending { fault: Some(fault), .. } => format!("canary: {fault}"),
        Reason::OutcomeUnknown { .. } => "outcome unknown".to_owned(),
        Reason::WaitingForBoot { .. } => "no boot".to_owned(),
        Reason::DeferredToWebhook { webhook, .. } | Reason::DeniedByWebhook { webhook, .. } => {
            format!("webhook {webhook}")
        }
        Reason::EvictionFailing { .. } => "failing evictions".to_owned(),
        Reason::TerminatingStuck { .. } => "pods stuck terminating".to_owned(),
        Reason::NodeMismatch { .. } => "wrong machine".to_owned(),
        Reason::OrphanedCordon { .. } => "orphaned cordon".to_owned(),
        Reason::InvalidEntry { .. } => "invalid entry".to_owned(),
        Reason::UncordonedByOther { .. } => "uncordoned by somebody".to_owned(),
        Reason::OrderIgnored { verb, .. } => format!("{verb} not in force: CKE leads"),
        Reason::BatchUnreadable { batch, .. } => format!("unreadable batch {batch}"),
        Reason::ControlPlaneUnclear { .. } => "unclear whether it is a control plane".to_owned(),
        Reason::DrainedByOther { program, .. } => format!("{program} works on it"),
        Reason::BatchPauseIgnored { batch, .. } => format!("pause of batch {batch} not in force: CKE leads"),
        other @ (Reason::WaitingForSlot { .. }
        | Reason::WaitingForWorkers { .. }
        | Reason::WaitingForControlPlane { .. }
        | Reason::WaitingForRepairs { .. }
        | Reason::ControlPlaneUnhealthy { .. }
        | Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::OutsideWindow { .. }
        | Reason::WaitingForBudget { .. }
        | Reason::WaitingForGroup { .. }
        | Reason::CanaryPending { fault: None, .. }
        | Reason::LeaderOnNode { .. }
        | Reason::Backoff { .. }
        | Reason::PodsLeaving { .. }
        | Reason::PodsCannotLand { .. }
        | Reason::LandingUnknown { .. }
        | Reason::EvictionRefused { .. }
        | Reason::VolumeAttached { .. }
        | Reason::CommandRunning { .. }
        | Reason::HookRunning { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::AwaitingApproval { .. }
        | Reason::Frozen { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::EngineObserving { .. }
        | Reason::NoEngine { .. }
        | Reason::OnHold { .. }
        | Reason::BatchPaused { .. }
        | Reason::Stale { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::DuplicateOf { .. }
        | Reason::InMaintenance { .. }
        | Reason::MachineInRepair { .. }
        | Reason::MachineInReboot { .. }
        | Reason::WaitingForHealth { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::Settling { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. }
        | Reason::QueueDisabled
        | Reason::NoCommand { .. }
        | Reason::NotMember { .. }
        | Reason::EffectFailed { .. }
        | Reason::TransactionTooLarge { .. }
        | Reason::Working { .. }
        | Reason::Ready) => return reason(other, now),
    };
    into_safe(text)
}

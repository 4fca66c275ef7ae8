//! Reasons and states in few words, the object first, so that an 80-column row shows what blocks it. The full sentence
//! is the reason's `Display`; the detail pane shows it.
#![warn(clippy::wildcard_enum_match_arm)] // each reason has its words

mod fitted;
mod rows;
mod stuck;

use cketerm_model::{
    entry::EntryId,
    names::Address,
    reason::{Awaited, DONE_ORDERED, Reason, budget_cause::BudgetCause},
    text::visible,
};
use cketerm_rules::seen::Seen;
use jiff::Timestamp;

pub use self::fitted::{Forms, fitting, reason_forms, row_forms};
pub use self::rows::{
    command, ending, health, host, host_power, host_requests, maintenance_state, node_state, node_state_of, order,
    pods, progress, repair_status, status, step, turns_off, unrecognized_health,
};
pub use self::stuck::{budget_trouble, stuck_key, stuck_on};
use super::{queries, when};

/// Returns a reason as text for a row.
pub fn reason(reason: &Reason, now: Timestamp) -> String {
    let text = match reason {
        Reason::BlockedByPdb { pod, pdb, healthy, needed, cause } => {
            // a narrow line cuts the end: the cause comes before the pod that it keeps
            let cause = cause.as_deref().and_then(BudgetCause::in_short).map(|cause| format!(" ({cause})"));
            let pod = without_shared_namespace(pod, pdb);
            format!("pdb {pdb} has {healthy}, needs {needed}{}: {pod}", cause.unwrap_or_default())
        }
        Reason::PdbNeverAllows { pod, pdb, needed, pods, cause, .. } => {
            let cause = cause.as_deref().and_then(BudgetCause::in_short);
            let why = cause.unwrap_or_else(|| format!("needs {needed} of {pods}"));
            format!("pdb {pdb} never allows ({why}): {}", without_shared_namespace(pod, pdb))
        }
        Reason::BlockedByManyPdbs { pod, pdbs } => format!("{} pdbs select {pod}: {}", pdbs.len(), pdbs.join(", ")),
        Reason::BlockedByJob { pod, job } => format!("job {job} runs in {}", without_shared_namespace(pod, job)),
        Reason::PodsLeaving { left, first } => format!("{left} leaving: {first}"),
        Reason::PodsCannotLand { count, pod, why } => format!("{count} fit nowhere else: {pod}: {why}"),
        Reason::LandingUnknown { why } => format!("no landing check: {why}"),
        Reason::EvictionRefused { pod, answer } => format!("{pod} refused: {answer}"),
        Reason::DeferredToWebhook { pod, webhook, message } => {
            format!("{pod} deferred to webhook {webhook}: {message}")
        }
        Reason::DeniedByWebhook { pod, webhook, message } => format!("webhook {webhook} denies {pod}: {message}"),
        Reason::EvictionFailing { pod, answer } => format!("{pod}: eviction failed, retrying: {answer}"),
        Reason::TerminatingStuck { pod, since, node_ready } => {
            let node = if *node_ready { "" } else { ", node NotReady" };
            format!("{pod} past its grace period for {}{node}", when::age(*since, now))
        }
        Reason::Backoff { count, until, cause: None, .. } => {
            format!("backed off {count}x, {} left", when::left(*until, now))
        }
        // The remedy comes before the text that narrow screens cut off.
        Reason::Backoff { until, cause: Some(cause), .. } if **cause == Reason::QueueDisabled => {
            format!("retry {}, or reset-backoff (was disabled)", when::until(*until, now))
        }
        Reason::Backoff { until, cause: Some(cause), tried, .. } => {
            let again = when::until(*until, now);
            format!("again {again}; {}{}", last_tried(*tried, now), condensed(cause, now))
        }
        Reason::UncordonedByOther { since } => format!("uncordoned by somebody {} ago", when::age(*since, now)),
        Reason::HookRunning { hook, since: Some(since), .. } => {
            format!("hook {hook} running for {}", when::age(*since, now))
        }
        Reason::HookRunning { hook, since: None, .. } => format!("hook {hook} runs next"),
        Reason::CommandRunning { since, .. } => format!("running for {}", when::age(*since, now)),
        Reason::OutcomeUnknown { until: Some(until), .. } => {
            format!("old command may run, over {}", when::until(*until, now))
        }
        Reason::OutcomeUnknown { until: None, .. } => "outcome unknown: order retry or done".to_owned(),
        Reason::WaitingForBoot { awaited: Awaited::NodeReady, stuck: false, .. }
        | Reason::WaitingForHealth { awaited: Awaited::NodeReady, .. } => DONE_ORDERED.to_owned(),
        Reason::WaitingForBoot { since, last, stuck, awaited: Awaited::CkeCheck } => {
            let state = if *stuck { "STUCK, no boot" } else { "booting" };
            let last = if last.is_empty() { String::new() } else { format!(", {last}") };
            format!("{state} for {}{last}", when::age(*since, now))
        }
        Reason::WaitingForHealth { awaited: Awaited::CkeCheck, .. } => "CKE checks its health".to_owned(),
        Reason::WaitingForBoot { since, last, stuck, .. } => {
            // A failing check of a machine that is booting is not an error.
            if *stuck {
                let check = if last.is_empty() { String::new() } else { format!(", check: {last}") };
                format!("STUCK, no boot for {}{check}", when::age(*since, now))
            } else {
                let check = if last.is_empty() { "" } else { ", not up yet" };
                format!("booting for {}{check}", when::age(*since, now))
            }
        }
        Reason::WaitingForHealth { last, .. } if last.is_empty() => "health not checked yet".to_owned(),
        Reason::WaitingForHealth { last, .. } => format!("not healthy yet: {last}"),
        Reason::InMaintenance { entry, .. } => format!("in maintenance ({entry})"),
        Reason::MachineInRepair { entry } => format!("in repair ({entry})"),
        Reason::MachineInReboot { entry } => format!("being rebooted ({entry})"),
        Reason::Settling { until, missing, .. } => {
            let end = until.map(|u| format!(", {}", when::until(u, now))).unwrap_or_default();
            format!("settling: {missing}{end}")
        }
        Reason::OutsideWindow { next_open: Some(at), .. } => format!("window opens {}", when::until(*at, now)),
        Reason::Frozen { until, why } => {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            format!("frozen, ends {}{why}", when::until(*until, now))
        }
        Reason::WaitingForGroup { by, group, holder } => format!("waits for {by} {group} ({holder})"),
        Reason::WaitingForBudget { holder, overtaken: true, .. } => format!("may not overtake {holder} again"),
        Reason::WaitingForBudget { budget, holder, .. } => format!("pdb {budget} in use by {holder}"),
        // The banner and the pane show which part of the source is silent, and where it runs.
        Reason::Stale { source, since } => {
            let source = source.split(" (").next().unwrap_or_default();
            format!("{source}: no data for {}", when::age(*since, now))
        }
        Reason::WaitingForSlot { holder: Some(holder), ahead: true, .. } => {
            format!("waits for a slot: {holder} starts first")
        }
        Reason::WaitingForSlot { holder: Some(holder), limit, ahead: false } => {
            format!("waits for a slot ({holder}), {limit} in use")
        }
        Reason::WaitingForWorkers { holder } => format!("waits for workers ({holder})"),
        Reason::NodeMismatch { expected, found } => format!("wrong machine: expected {expected}, found {found}"),
        Reason::OrphanedCordon { entry, .. } => format!("cordoned by {entry}; uncordoned after boot"),
        other @ (Reason::WaitingForSlot { .. }
        | Reason::WaitingForControlPlane { .. }
        | Reason::WaitingForRepairs { .. }
        | Reason::UnreachableGate { .. }
        | Reason::BreakerOpen { .. }
        | Reason::StartGateClosed { .. }
        | Reason::LeaderOnNode { .. }
        | Reason::CanaryPending { .. }
        | Reason::ControlPlaneUnhealthy { .. }
        | Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::OutsideWindow { .. }
        | Reason::VolumeAttached { .. }
        | Reason::CommandFailed { .. }
        | Reason::HookFailed { .. }
        | Reason::UncordonGateClosed { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::AwaitingApproval { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::EngineObserving { .. }
        | Reason::NoEngine { .. }
        | Reason::OnHold { .. }
        | Reason::BatchPaused { .. }
        | Reason::BatchUnreadable { .. }
        | Reason::ControlPlaneUnclear { .. }
        | Reason::DrainedByOther { .. }
        | Reason::OrderIgnored { .. }
        | Reason::BatchPauseIgnored { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::DuplicateOf { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. }
        | Reason::QueueDisabled
        | Reason::NoCommand { .. }
        | Reason::NotMember { .. }
        | Reason::InvalidEntry { .. }
        | Reason::EffectFailed { .. }
        | Reason::TransactionTooLarge { .. }
        | Reason::Working { .. }
        | Reason::Ready) => other.to_string(),
    };
    into_safe(text)
}

/// Returns a reason as text for a row, in which an entry that is waited for has its machine's name. The name is what an
/// operator knows; the entry's id is in the detail.
pub fn reason_in(seen: &Seen, why: &Reason, now: Timestamp) -> String {
    let name = |id: EntryId| queries::machine(seen, id).unwrap_or_else(|| id.to_string());
    if let Reason::WaitingForSlot { holder: Some(holder), ahead: true, .. } = why {
        return into_safe(format!("waits for a slot: {} starts first", name(*holder)));
    }
    if let Reason::WaitingForSlot { holder: Some(holder), limit, ahead: false } = why {
        return into_safe(format!("waits for a slot ({}), {limit} in use", name(*holder)));
    }
    if let Reason::WaitingForWorkers { holder } = why {
        return into_safe(format!("waits for workers ({})", name(*holder)));
    }
    if let Reason::WaitingForBudget { budget, holder, overtaken: false } = why {
        return into_safe(format!("pdb {budget} in use ({})", name(*holder)));
    }
    if let Reason::WaitingForGroup { by, group, holder } = why {
        return into_safe(format!("waits for {by} {group} ({})", name(*holder)));
    }
    if let Reason::Backoff { until, cause: Some(cause), tried, .. } = why
        && **cause != Reason::QueueDisabled
    {
        let (again, tried) = (again(seen, *until, now), last_tried(*tried, now));
        return into_safe(format!("{again}{tried}{}", condensed(cause, now)));
    }
    reason(why, now)
}

/// Returns when a backed-off drain is tried again, before the cause. While nobody leads, nothing is tried at the end of
/// the backoff.
fn again(seen: &Seen, until: Timestamp, now: Timestamp) -> String {
    match queries::leader(seen) {
        queries::Leader::Nobody => format!("{} left; ", when::left(until, now)),
        queries::Leader::Us | queries::Leader::Other(_) | queries::Leader::Cke(_) | queries::Leader::Unknown => {
            format!("again {}; ", when::until(until, now))
        }
    }
}

/// Returns when a drain met the cause of its backoff, before the cause: `4m ago: `. Empty if the cause was seen just now.
fn last_tried(tried: Option<Timestamp>, now: Timestamp) -> String {
    tried.map(|tried| format!("{} ago: ", when::age(tried, now))).unwrap_or_default()
}

/// Returns a reason as [`reason_in`], beside columns that show the times of the phase and of the next try.
pub fn reason_in_row(seen: &Seen, why: &Reason, now: Timestamp) -> String {
    if let Reason::Backoff { cause: Some(cause), tried, .. } = why {
        if **cause == Reason::QueueDisabled {
            return "reset-backoff retries it now (was disabled)".to_owned();
        }
        return into_safe(format!("{}{}", last_tried(*tried, now), condensed(cause, now)));
    }
    if let Reason::Backoff { count, cause: None, .. } = why {
        return format!("backed off {count}x");
    }
    if let Reason::CommandRunning { .. } = why {
        return "its command runs".to_owned();
    }
    if let Reason::WaitingForBoot { stuck: false, last, awaited: Awaited::CkeCheck, .. } = why {
        return into_safe(if last.is_empty() { "booting".to_owned() } else { format!("booting, {last}") });
    }
    if let Reason::WaitingForBoot { stuck: false, last, awaited: Awaited::Check, .. } = why {
        return if last.is_empty() { "booting" } else { "booting, not up yet" }.to_owned();
    }
    reason_in(seen, why, now)
}

/// Returns what an entry waits for when nothing is wrong with it.
pub fn waits_for(why: &Reason) -> &'static str {
    match why {
        Reason::WaitingForSlot { .. } => "a slot",
        Reason::WaitingForWorkers { .. } => "the workers",
        Reason::WaitingForControlPlane { .. } | Reason::Settling { .. } => "an API server",
        Reason::Backoff { .. } => "the end of a backoff",
        Reason::OnHold { .. } => "an operator (on hold)",
        Reason::BatchPaused { .. } => "an operator (batch paused)",
        Reason::BatchUnreadable { .. } => "an operator (unreadable batch)",
        Reason::ControlPlaneUnclear { .. } => "clear signs of a control plane",
        Reason::DrainedByOther { .. } => "another program that drains it",
        Reason::OrderIgnored { .. } | Reason::BatchPauseIgnored { .. } => "an operator (CKE ignores it)",
        Reason::DuplicateOf { .. } => "the same machine's other entry",
        Reason::WaitingForRepairs { .. } => "CKE's repairs",
        Reason::InMaintenance { .. } => "a maintenance of the same machine",
        Reason::MachineInRepair { .. } => "a repair of the same machine",
        Reason::MachineInReboot { .. } => "a reboot of the same machine",
        Reason::QueueDisabled => "the queue (disabled)",
        Reason::EngineObserving { .. } | Reason::NoEngine { .. } => "an engine that leads",
        Reason::EngineElsewhere { .. } => "another engine",
        Reason::Stale { .. } => "fresh data",
        Reason::OutsideWindow { .. } => "the window",
        Reason::WaitingForBudget { .. } => "a budget in use",
        Reason::WaitingForGroup { .. } => "another group",
        Reason::Frozen { .. } => "the end of the freeze",
        Reason::Ready | Reason::Working { .. } => "the next pass",
        Reason::UnreachableGate { .. } => "reachable nodes",
        Reason::BreakerOpen { .. } => "an operator (open breaker)",
        Reason::LeaderOnNode { .. } => "a leader elsewhere",
        Reason::StartGateClosed { .. } => "a start gate",
        Reason::CanaryPending { .. } => "the first machines of its batch",
        Reason::ControlPlaneUnhealthy { .. } => "a healthy control plane",
        Reason::EtcdMemberUnhealthy { .. } | Reason::EtcdUnchecked { .. } => "healthy etcd members",
        Reason::EtcdQuorumWouldBeLost { .. } => "consent to lose etcd's quorum",
        Reason::AwaitingApproval { .. } => "an approval",
        Reason::NoCommand { .. } | Reason::ProgramMissing { .. } | Reason::BmcNotAllowed { .. } => {
            "a command that can run"
        }
        Reason::BlockedByPdb { .. } | Reason::PdbNeverAllows { .. } | Reason::BlockedByManyPdbs { .. } => {
            "a pod disruption budget"
        }
        Reason::BlockedByJob { .. } => "a Job",
        Reason::PodsLeaving { .. } | Reason::TerminatingStuck { .. } => "pods that terminate",
        Reason::PodsCannotLand { .. } | Reason::LandingUnknown { .. } => "capacity for its pods",
        Reason::EvictionRefused { .. } | Reason::EvictionFailing { .. } => "an eviction",
        Reason::DeferredToWebhook { .. } | Reason::DeniedByWebhook { .. } => "an admission webhook",
        Reason::VolumeAttached { .. } => "volumes that detach",
        Reason::CommandRunning { .. } => "its command",
        Reason::HookRunning { .. } | Reason::HookFailed { .. } => "a hook of the site",
        Reason::UncordonGateClosed { .. } => "a gate before the uncordon",
        Reason::WaitingForBoot { .. } | Reason::WaitingForJoin { .. } => "a machine that boots",
        Reason::WaitingForHealth { .. } | Reason::CheckUnavailable { .. } => "a health or boot check",
        Reason::PowerError { .. } => "a BMC that answers",
        Reason::HeldByOtherKey { .. } => "another client's hold on the host",
        Reason::EffectFailed { .. } | Reason::TransactionTooLarge { .. } => "an action that succeeds",
        Reason::UncordonedByOther { .. }
        | Reason::CommandFailed { .. }
        | Reason::OutcomeUnknown { .. }
        | Reason::NodeMismatch { .. }
        | Reason::OrphanedCordon { .. }
        | Reason::NotMember { .. }
        | Reason::InvalidEntry { .. } => "an operator",
    }
}

/// Returns the objects of an audit record with the names of machines in place of their addresses.
pub fn named(seen: &Seen, on: &str) -> String {
    let name = |word: &str| match word.parse::<std::net::IpAddr>() {
        Ok(_) => seen.snapshot.machine(&Address::new(word)),
        Err(_) => word.to_owned(),
    };
    on.split(' ').map(name).collect::<Vec<_>>().join(" ")
}

/// Returns the full sentence, for the detail pane.
pub fn sentence(reason: &Reason) -> String {
    safe(&reason.to_string())
}

/// Makes external text safe for one line: no terminal control characters, and ASCII for cketerm's own words.
pub fn safe(text: &str) -> String {
    if text.is_ascii() { visible(text, false) } else { visible(&text.replace('\u{d7}', "x"), false) }
}

/// Same as [`safe`] for an owned text. It copies only if something must change, which is rare.
fn into_safe(text: String) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) { text } else { safe(&text) }
}

/// Reports whether the short text of a reason begins with the object that blocks, so that it is the same for all pods
/// that the object keeps.
pub fn names_object(why: &Reason) -> bool {
    why.names_object() || matches!(why, Reason::PdbNeverAllows { .. })
}

/// Returns the cause of a backoff: a budget or a Job with the object first, everything else as its sentence.
fn condensed(cause: &Reason, now: Timestamp) -> String {
    if names_object(cause) { reason(cause, now) } else { cause.to_string() }
}

/// Shortens a name by dropping its middle: host names differ at both ends.
pub fn shorten_middle(name: &str, width: usize) -> String {
    let name = safe(name);
    let length = name.chars().count();
    if length <= width || width < 5 {
        return name;
    }
    let tail = (width - 1) / 3;
    let head: String = name.chars().take(width - 1 - tail).collect();
    let tail: String = name.chars().skip(length - tail).collect();
    format!("{head}~{tail}")
}

/// Returns `pod` without its namespace if the other object is in the same namespace.
fn without_shared_namespace<'a>(pod: &'a str, other: &str) -> &'a str {
    match (pod.split_once('/'), other.split_once('/')) {
        (Some((one, name)), Some((two, _))) if one == two => name,
        _ => pod,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_text_of_a_blocked_drain_names_pdb_numbers_and_pod() {
        let why = Reason::BlockedByPdb {
            pod: "shop/web-7d9f".into(),
            pdb: "shop/web".into(),
            healthy: 2,
            needed: 2,
            cause: None,
        };
        assert_eq!(reason(&why, Timestamp::UNIX_EPOCH), "pdb shop/web has 2, needs 2: web-7d9f");
    }

    #[test]
    fn the_cause_of_a_backoff_is_shortened_like_the_reason_itself() {
        let pod = || "shop/db-w4".to_owned();
        let holds = [
            Reason::BlockedByPdb { pod: pod(), pdb: "shop/db".into(), healthy: 2, needed: 2, cause: None },
            Reason::BlockedByJob { pod: pod(), job: "shop/nightly".into() },
        ];
        for hold in holds {
            let cause = Some(Box::new(hold.clone()));
            let until = cketerm_model::time::after(Timestamp::UNIX_EPOCH, 500);
            let backed_off = Reason::Backoff { count: 1, until, cause, tried: None };
            let now = Timestamp::UNIX_EPOCH;
            assert_eq!(reason(&backed_off, now), format!("again in 8m; {}", reason(&hold, now)));
        }
    }

    /// A row of 80 columns would cut the hint at its end.
    #[test]
    fn the_text_of_a_backoff_by_a_disabled_queue_names_the_remedy() {
        let cause = Some(Box::new(Reason::QueueDisabled));
        let until = cketerm_model::time::after(Timestamp::UNIX_EPOCH, 240);
        let why = Reason::Backoff { count: 1, until, cause, tried: None };
        let text = "retry in 4m, or reset-backoff (was disabled)";
        assert_eq!(reason(&why, Timestamp::UNIX_EPOCH), text);
    }

    #[test]
    fn shortened_names_keep_both_ends() {
        assert_eq!(shorten_middle("worker-012.rack3.tokyo.example.com", 18), "worker-012.r~e.com");
        assert_eq!(shorten_middle("w1", 18), "w1");
    }

    #[test]
    fn escape_sequences_in_a_reason_do_not_reach_the_terminal() {
        let why = Reason::EvictionRefused { pod: "a/b".into(), answer: "\u{1b}[2J".into() };
        assert!(!reason(&why, Timestamp::UNIX_EPOCH).contains('\u{1b}'));
    }
}

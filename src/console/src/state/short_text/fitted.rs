//! Forms of a reason for lines with little room: lesser words go first. The object and its numbers, or the remedy, stay.
#![warn(clippy::wildcard_enum_match_arm)] // each reason has its words

use cketerm_model::reason::{Reason, budget_cause::BudgetCause};
use cketerm_rules::seen::Seen;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr;

use super::{again, into_safe, last_tried, reason_in, reason_in_row, safe};
use crate::state::{queries, when};

/// A text, and shorter forms of it, the longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// The whole text.
    pub whole: String,
    /// The shorter forms.
    pub shorter: Vec<String>,
}

impl Forms {
    /// Creates a text without shorter forms.
    pub fn only(whole: String) -> Self {
        Self { whole, shorter: Vec::new() }
    }

    /// Returns the longest form that fits into this width, else the shortest one.
    pub fn within(&self, width: usize) -> &str {
        fitting(&self.whole, &self.shorter, width)
    }

    /// Returns the forms with the same text before each of them.
    #[must_use]
    pub fn after(self, before: &str) -> Self {
        let whole = format!("{before}{}", self.whole);
        Self { whole, shorter: self.shorter.into_iter().map(|form| format!("{before}{form}")).collect() }
    }
}

/// Returns the longest of a text and its shorter forms that fits into this width, else the shortest one.
pub fn fitting<'a>(whole: &'a str, shorter: &'a [String], width: usize) -> &'a str {
    if whole.width() <= width {
        return whole;
    }
    let fits = shorter.iter().find(|form| form.width() <= width);
    fits.or_else(|| shorter.last()).map_or(whole, String::as_str)
}

/// Returns the forms of [`reason_in`].
pub fn reason_forms(seen: &Seen, why: &Reason, now: Timestamp) -> Forms {
    let whole = reason_in(seen, why, now);
    let Reason::Backoff { until, cause: Some(cause), tried, .. } = why else {
        return Forms { whole, shorter: shorter(seen, why, now) };
    };
    if **cause == Reason::QueueDisabled {
        return Forms { whole, shorter: vec!["reset-backoff retries it (was disabled)".to_owned()] };
    }
    let (before, tried) = (again(seen, *until, now), last_tried(*tried, now));
    let of_cause = shorter(seen, cause, now);
    let with_end = of_cause.first().map(|form| into_safe(format!("{before}{tried}{form}")));
    let shorter = with_end.into_iter().chain(of_cause.iter().map(|form| format!("{tried}{form}"))).collect();
    Forms { whole, shorter }
}

/// Returns the forms of [`reason_in_row`].
pub fn row_forms(seen: &Seen, why: &Reason, now: Timestamp) -> Forms {
    let whole = reason_in_row(seen, why, now);
    let Reason::Backoff { cause: Some(cause), tried, .. } = why else {
        return Forms { whole, shorter: shorter(seen, why, now) };
    };
    if **cause == Reason::QueueDisabled {
        return Forms { whole, shorter: vec!["reset-backoff retries it".to_owned()] };
    }
    let tried = last_tried(*tried, now);
    Forms { whole, shorter: shorter(seen, cause, now).into_iter().map(|form| format!("{tried}{form}")).collect() }
}

/// Returns the shorter forms of a reason, the longest first. None if it has no lesser words.
fn shorter(seen: &Seen, why: &Reason, now: Timestamp) -> Vec<String> {
    let forms = match why {
        Reason::BlockedByPdb { pdb, healthy, needed, cause: Some(cause), .. } if cause.in_short().is_some() => {
            blocked_by_cause(pdb, (*healthy, *needed), cause)
        }
        Reason::BlockedByPdb { pdb, healthy, needed, .. } => {
            let (name, numbers) = (name(pdb), format!("has {healthy}, needs {needed}"));
            vec![
                format!("pdb {pdb} {numbers}"),
                format!("pdb {name} {numbers}"),
                format!("{name} {numbers}"),
                format!("{name} {healthy} of {needed}"),
            ]
        }
        Reason::PdbNeverAllows { pdb, cause: Some(cause), .. } if cause.in_short().is_some() => {
            never_allows(pdb, cause)
        }
        Reason::PdbNeverAllows { pdb, needed, pods, .. } => {
            let (name, numbers) = (name(pdb), format!("needs {needed} of {pods}"));
            vec![
                format!("pdb {pdb} never allows ({numbers})"),
                format!("pdb {name} never allows ({numbers})"),
                format!("{name} never allows ({needed} of {pods})"),
                format!("{name} never allows"),
            ]
        }
        Reason::BlockedByManyPdbs { pod, pdbs } => {
            vec![format!("{} pdbs select {pod}", pdbs.len()), format!("{} pdbs: {}", pdbs.len(), name(pod))]
        }
        Reason::BlockedByJob { job, .. } => vec![format!("job {job} runs"), format!("job {} runs", name(job))],
        Reason::PodsLeaving { left, first } => {
            vec![format!("{left} leaving: {}", name(first)), format!("{left} leaving")]
        }
        Reason::PodsCannotLand { count, pod, .. } => {
            vec![format!("{count} fit nowhere else: {}", name(pod)), format!("{count} pods fit nowhere else")]
        }
        Reason::LandingUnknown { why } => vec![format!("no landing check: {why}"), "no landing check".to_owned()],
        Reason::EvictionRefused { pod, answer } => vec![format!("{} refused: {answer}", name(pod))],
        Reason::EvictionFailing { pod, answer } => {
            vec![format!("{pod}: retrying: {answer}"), format!("{}: retrying: {answer}", name(pod))]
        }
        Reason::DeferredToWebhook { pod, webhook, .. } => {
            vec![format!("webhook {webhook} defers {pod}"), format!("webhook {webhook} defers")]
        }
        Reason::DeniedByWebhook { pod, webhook, .. } => {
            vec![format!("webhook {webhook} denies {pod}"), format!("webhook {webhook} denies")]
        }
        Reason::TerminatingStuck { pod, since, .. } => {
            let age = when::age(*since, now);
            vec![format!("{} past its grace for {age}", name(pod)), format!("{} terminating {age}", name(pod))]
        }
        Reason::CommandFailed { end, stderr, .. } => {
            let last = stderr.trim_end().lines().last().unwrap_or_default();
            let failed = format!("command failed: {end}");
            if last.is_empty() { vec![failed] } else { vec![format!("{end}: {last}"), failed] }
        }
        Reason::HookFailed { hook, end, output, .. } => {
            let last = output.trim_end().lines().last().unwrap_or_default();
            let failed = format!("hook {hook} failed: {end}");
            if last.is_empty() { vec![failed] } else { vec![format!("hook {hook}: {last}"), failed] }
        }
        Reason::UncordonGateClosed { missing, .. } => vec![format!("booted, but {missing}"), missing.clone()],
        Reason::OutcomeUnknown { until: None, .. } => vec!["order retry or done".to_owned()],
        Reason::OutcomeUnknown { until: Some(until), .. } => {
            vec![format!("old command, over {}", when::until(*until, now))]
        }
        Reason::WaitingForSlot { holder: Some(holder), .. } => {
            let holder = queries::machine(seen, *holder).unwrap_or_else(|| holder.to_string());
            vec![format!("waits for a slot ({holder})"), "waits for a slot".to_owned()]
        }
        Reason::WaitingForSlot { holder: None, .. } => vec!["waits for a slot".to_owned()],
        Reason::WaitingForWorkers { .. } => vec!["waits for workers".to_owned()],
        Reason::WaitingForControlPlane { .. } => vec!["waits for an API server".to_owned()],
        Reason::WaitingForRepairs { .. } => vec!["CKE repairs first".to_owned()],
        Reason::WaitingForBudget { budget, holder, overtaken: false } => {
            vec![format!("pdb {} in use by {holder}", name(budget)), format!("pdb {} in use", name(budget))]
        }
        Reason::WaitingForBudget { holder, overtaken: true, .. } => vec![format!("behind {holder}")],
        Reason::WaitingForGroup { by, group, .. } => vec![format!("waits for {by} {group}")],
        Reason::Frozen { until, .. } => vec![format!("frozen, ends {}", when::until(*until, now))],
        Reason::LeaderOnNode { to } => vec![format!("lock passes to {to} first"), "lock passes on first".to_owned()],
        Reason::BreakerOpen { count, of, .. } => {
            vec![format!("breaker open: {count} of {of} ended badly"), "breaker open".to_owned()]
        }
        Reason::StartGateClosed { gate, why, .. } => {
            vec![format!("gate {gate}: {why}"), format!("start gate {gate}")]
        }
        Reason::CanaryPending { fault: Some(fault), .. } => vec![format!("canary: {fault}")],
        Reason::CanaryPending { until: Some(until), .. } => vec![format!("canary, {}", when::until(*until, now))],
        Reason::CanaryPending { booted, first, .. } => vec![format!("waits for canaries ({booted}/{first})")],
        Reason::UnreachableGate { count, limit, .. } => vec![format!("{count} unreachable, limit {limit}")],
        Reason::OrderIgnored { verb, .. } => vec![format!("{verb} NOT IN FORCE: cancel it, or :stop")],
        Reason::BatchPauseIgnored { .. } => vec!["pause NOT IN FORCE: cancel it, or :stop".to_owned()],
        Reason::NodeMismatch { .. } => vec!["wrong machine: cancel, add again".to_owned()],
        Reason::OnHold { who, .. } => vec![format!("on hold by {who}")],
        Reason::BatchPaused { batch, by, .. } => {
            vec![format!("batch {batch} paused by {by}"), format!("batch {batch} paused")]
        }
        Reason::Backoff { .. }
        | Reason::InvalidEntry { .. }
        | Reason::WaitingForHealth { .. }
        | Reason::ControlPlaneUnhealthy { .. }
        | Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::OutsideWindow { .. }
        | Reason::VolumeAttached { .. }
        | Reason::UncordonedByOther { .. }
        | Reason::CommandRunning { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::OrphanedCordon { .. }
        | Reason::AwaitingApproval { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::EngineObserving { .. }
        | Reason::NoEngine { .. }
        | Reason::BatchUnreadable { .. }
        | Reason::ControlPlaneUnclear { .. }
        | Reason::DrainedByOther { .. }
        | Reason::HookRunning { .. }
        | Reason::Stale { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::DuplicateOf { .. }
        | Reason::InMaintenance { .. }
        | Reason::MachineInRepair { .. }
        | Reason::MachineInReboot { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::WaitingForBoot { .. }
        | Reason::Settling { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. }
        | Reason::QueueDisabled
        | Reason::NoCommand { .. }
        | Reason::NotMember { .. }
        | Reason::EffectFailed { .. }
        | Reason::TransactionTooLarge { .. }
        | Reason::Working { .. }
        | Reason::Ready => Vec::new(),
    };
    forms.iter().map(|form| safe(form)).collect()
}

/// Returns the forms of a budget whose cause is known: the numbers and the namespace go first, the trouble stays.
fn blocked_by_cause(pdb: &str, (healthy, needed): (i32, i32), cause: &BudgetCause) -> Vec<String> {
    let causes = cause.short_forms();
    let Some(whole) = causes.first() else { return Vec::new() };
    let mut forms = vec![
        format!("pdb {pdb} has {healthy}, needs {needed} ({whole})"),
        format!("pdb {pdb}: {whole}"),
        format!("pdb {}: {whole}", name(pdb)),
    ];
    forms.extend(causes.iter().map(|cause| format!("{}: {cause}", name(pdb))));
    forms
}

/// Returns the same forms of a budget that never allows an eviction.
fn never_allows(pdb: &str, cause: &BudgetCause) -> Vec<String> {
    let causes = cause.short_forms();
    let Some(whole) = causes.first() else { return Vec::new() };
    let mut forms = vec![
        format!("pdb {pdb} never allows ({whole})"),
        format!("pdb {} never allows ({whole})", name(pdb)),
        format!("{} never allows ({whole})", name(pdb)),
    ];
    forms.extend(causes.iter().map(|cause| format!("{}: {cause}", name(pdb))));
    forms.push(format!("{} never allows", name(pdb)));
    forms
}

/// Returns the name of an object without its namespace.
fn name(object: &str) -> &str {
    object.split_once('/').map_or(object, |(_, name)| name)
}

//! Text of each reason.
#![warn(clippy::wildcard_enum_match_arm)] // a new reason must be decided here

use std::fmt;

use jiff::Timestamp;

use super::{Awaited, BudgetCause, CommandRetry, HookPoint, HookRetry, PodHold, Reason};

impl fmt::Display for PodHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { budget, healthy, needed, cause } => {
                write!(f, "pdb {budget} (healthy {healthy}, needs {needed})")?;
                after_colon(f, cause.as_deref())
            }
            Self::BudgetLag { budget } => write!(f, "pdb {budget} is still being processed"),
            Self::ManyBudgets { budgets } => {
                write!(f, "several pdbs: {}: change one selector, or delete one", budgets.join(", "))
            }
            Self::Job { job } => write!(f, "protected job {job}"),
            Self::Deferred { webhook, message } => write!(f, "deferred to webhook {webhook}: {message}"),
            Self::Denied { webhook, message } => write!(f, "denied by webhook {webhook}: {message}"),
            Self::Failing { answer } => write!(f, "eviction failed, retrying: {answer}"),
            Self::NamespaceTerminating => f.write_str("namespace is terminating"),
            Self::Replaced => f.write_str("replaced by a new pod of that name"),
            Self::Terminating { since, node_ready } => {
                write!(f, "terminating since {}{}", at(*since), if *node_ready { "" } else { ", node not Ready" })
            }
            Self::Leaving => f.write_str("leaving"),
            Self::Refused { answer } => write!(f, "eviction refused: {answer}"),
        }
    }
}

fn after_colon(f: &mut fmt::Formatter<'_>, cause: Option<&BudgetCause>) -> fmt::Result {
    cause.map_or(Ok(()), |cause| write!(f, ": {cause}"))
}

impl fmt::Display for CommandRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "",
            Self::Scheduled => ", retrying",
            Self::OnceEnabled => ", retried once the queue is enabled",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitingForSlot { holder: Some(holder), limit, ahead: true } => {
                write!(f, "waits for a slot ({limit} in all): {holder} starts before it")
            }
            Self::WaitingForSlot { holder: Some(holder), limit, ahead: false } => {
                write!(f, "waits for a slot ({limit} in use, one by {holder})")
            }
            Self::WaitingForSlot { holder: None, limit, ahead: _ } => write!(f, "waits for a slot (limit {limit})"),
            Self::WaitingForWorkers { holder } => write!(f, "API server waits for workers to finish ({holder})"),
            Self::WaitingForControlPlane { other } => write!(f, "waits for API server {other}"),
            Self::WaitingForRepairs { entry } => write!(f, "CKE finishes its repairs first ({entry})"),
            Self::UnreachableGate { count, limit, names } => {
                write!(
                    f,
                    "{count} node{} unreachable, limit {limit}: {}",
                    if *count == 1 { "" } else { "s" },
                    some(names, 3, usize::try_from(*count).unwrap_or(names.len()))
                )
            }
            Self::BreakerOpen { count, of, names } => write!(
                f,
                "the breaker is open: {count} of the last {of} reboots ended badly: {}; `rq reset-breaker` closes it",
                some(names, 3, usize::try_from(*count).unwrap_or(names.len()))
            ),
            Self::StartGateClosed { gate, why, failed: false } => write!(f, "start gate {gate} is closed: {why}"),
            Self::StartGateClosed { gate, why, failed: true } => write!(
                f,
                "start gate {gate} is closed, because its state is not known: {why}; `policy set start_gates none` \
                 starts without it"
            ),
            Self::CanaryPending { batch, booted, first, until, fault } => {
                write!(f, "waits for the first {first} of batch {batch} ({booted} booted)")?;
                match (fault, until) {
                    (Some(fault), _) => write!(f, ": {fault}"),
                    (None, Some(until)) => write!(f, ", others from {}", at(*until)),
                    (None, None) => Ok(()),
                }
            }
            Self::LeaderOnNode { to } => {
                write!(f, "the leader runs on this Node: it passes the lock to the engine on {to} first")
            }
            Self::ControlPlaneUnhealthy { node, why } => write!(f, "control plane {node} is not healthy: {why}"),
            Self::EtcdMemberUnhealthy { member, why } => {
                write!(f, "etcd member {member} is not healthy: {why}; fix it: other voters stay up")
            }
            Self::EtcdQuorumWouldBeLost { member, voters } => write!(
                f,
                "etcd would lose its quorum without member {member} ({voters} voting member{}); to accept that, \
                 `policy set allow_quorum_loss true`",
                if *voters == 1 { "" } else { "s" }
            ),
            Self::EtcdUnchecked { why } => write!(f, "etcd members cannot be checked: {why}"),
            Self::OutsideWindow { next_open, closes } => {
                match closes {
                    None => f.write_str("outside the window, ")?,
                    Some(closes) => write!(f, "too late for a drain, the window closes {}, ", at(*closes))?,
                }
                match next_open {
                    Some(open) => write!(f, "opens {}", at(*open)),
                    None => f.write_str("never opens"),
                }
            }
            Self::WaitingForBudget { holder, overtaken: true, .. } => {
                write!(
                    f,
                    "waits behind {holder}: only a few of the next entries may overtake it (policy max_overtakes)"
                )
            }
            Self::WaitingForBudget { budget, holder, overtaken: false } => {
                write!(f, "waits for {holder}, whose pods share pdb {budget}, which does not allow both")
            }
            Self::WaitingForGroup { by, group, holder } => write!(f, "waits for {by} {group} ({holder})"),
            Self::Backoff { count, until, cause, tried } => {
                write!(f, "backed off {count}x, until {}", at(*until))?;
                match (cause.as_deref(), tried) {
                    (None, _) => Ok(()),
                    (Some(Self::QueueDisabled), _) => {
                        f.write_str(": the queue was disabled (reset-backoff ends the wait)")
                    }
                    (Some(cause), Some(tried)) => write!(f, "; when it last tried, at {}: {cause}", at(*tried)),
                    (Some(cause), None) => write!(f, ": {cause}"),
                }
            }
            Self::BlockedByPdb { pod, pdb, healthy, needed, cause } => {
                write!(f, "pod {pod} blocked by pdb {pdb} (healthy {healthy}, needs {needed})")?;
                after_colon(f, cause.as_deref())
            }
            Self::PdbNeverAllows { pod, pdb, healthy, needed, pods, cause } => {
                write!(
                    f,
                    "pod {pod} blocked by pdb {pdb}, which never allows an eviction (healthy {healthy}, needs {needed} \
                     of {pods})"
                )?;
                match cause {
                    Some(cause) => write!(f, ": {cause}"),
                    None => f.write_str(": scale up or relax it"),
                }
            }
            Self::BlockedByManyPdbs { pod, pdbs } => {
                let pdbs = pdbs.join(", ");
                write!(
                    f,
                    "pod {pod} has several pdbs and cannot be evicted: {pdbs}: change one selector, or delete one"
                )
            }
            Self::BlockedByJob { pod, job } => write!(f, "pod {pod} belongs to running protected job {job}"),
            Self::PodsLeaving { left: 1, first } => write!(f, "one pod is leaving: {first}"),
            Self::PodsLeaving { left, first } => write!(f, "{left} pods are leaving, including {first}"),
            Self::EvictionRefused { pod, answer } => write!(f, "eviction of {pod} was refused: {answer}"),
            Self::DeferredToWebhook { pod, webhook, message } => {
                write!(f, "eviction of {pod} is deferred to webhook {webhook}: {message}")
            }
            Self::DeniedByWebhook { pod, webhook, message } => {
                write!(f, "eviction of {pod} was denied by webhook {webhook}: {message}")
            }
            Self::EvictionFailing { pod, answer } => write!(f, "eviction of {pod} failed, retrying: {answer}"),
            Self::PodsCannotLand { count: 1, pod, why } => write!(f, "no other node takes pod {pod}: {why}"),
            Self::PodsCannotLand { count, pod, why } => {
                write!(f, "no other node takes {count} pods, {pod} for example: {why}")
            }
            Self::LandingUnknown { why } => write!(f, "no check where the pods can run: {why}"),
            Self::TerminatingStuck { pod, since, node_ready } => write!(
                f,
                "pod {pod} is stuck terminating: its grace period ended at {}{}",
                at(*since),
                if *node_ready { "" } else { " on a node that is not Ready" }
            ),
            Self::VolumeAttached { names } => write!(f, "volumes still in use: {}", some(names, 2, names.len())),
            Self::UncordonedByOther { since } => write!(f, "uncordoned {}: cordon or cancel", at(*since)),
            Self::CommandRunning { attempt, since } => {
                write!(f, "command started at {} (attempt {attempt})", at(*since))
            }
            Self::CommandFailed { end, stderr, retry } => {
                write!(f, "command failed{retry}: {end}")?;
                if stderr.is_empty() { Ok(()) } else { write!(f, ": {}", last_line(stderr)) }
            }
            Self::OutcomeUnknown { until: Some(until), .. } => {
                write!(f, "a dead leader's command may run until {}; wait", at(*until))
            }
            Self::OutcomeUnknown { attempt: Some(attempt), .. } => {
                write!(f, "outcome of attempt {attempt} unknown: retry, done, or wait for the check")
            }
            Self::OutcomeUnknown { attempt: None, .. } => {
                f.write_str("another program's command, outcome unknown: retry, done, or await the check")
            }
            Self::CheckUnavailable { why } => write!(f, "the check gave no answer: {why}; run it on the engine's host"),
            Self::NodeMismatch { expected, found } => {
                write!(f, "wrong machine: expected {expected}, found {found}; cancel and add again")
            }
            Self::OrphanedCordon { node, entry } => {
                write!(f, "node {node} cordoned by {entry}; uncordoned after boot, or by `nodes uncordon`")
            }
            Self::AwaitingApproval { digest } => write!(f, "waits for approval of {digest}"),
            Self::Frozen { until, why } => {
                write!(f, "frozen until {}", at(*until))?;
                if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
            }
            Self::EngineElsewhere { holder } => write!(f, "{holder} leads and processes the queue"),
            Self::EngineObserving { why } => write!(f, "the engine only observes: {why}"),
            Self::NoEngine { why } => write!(f, "no engine leads: {why}"),
            Self::OnHold { who, why } => {
                write!(f, "on hold by {who}")?;
                why.as_ref().map_or(Ok(()), |w| write!(f, ": {w}"))
            }
            Self::BatchPaused { batch, by, since, why } => {
                write!(f, "batch {batch} paused by {by} since {}", at(*since))?;
                why.as_ref().map_or(Ok(()), |w| write!(f, ": {w}"))
            }
            Self::ControlPlaneUnclear { signals } => {
                write!(f, "the sources do not agree whether its Node is a control plane: {signals}")
            }
            Self::DrainedByOther { program, sign } => {
                write!(f, "{program} works on this Node ({sign}): cketerm waits until it has ended")
            }
            Self::HookRunning { hook, at, since: Some(_) } => write!(f, "hook {hook} ({at}) is running"),
            Self::HookRunning { hook, at, since: None } => write!(f, "hook {hook} ({at}) runs next"),
            Self::HookFailed { hook, at, end, output, retry } => {
                write!(f, "hook {hook} ({at}) failed: {end}")?;
                if !output.is_empty() {
                    write!(f, ": {}", last_line(output))?;
                }
                match (at, retry) {
                    (HookPoint::BeforeUncordon, _) => {
                        f.write_str("; the Node stays cordoned until it succeeds, or `cketerm nodes uncordon`")
                    }
                    (_, HookRetry::Scheduled) => f.write_str("; next try follows"),
                    (
                        HookPoint::BeforeDrain | HookPoint::AfterDrain | HookPoint::AfterUncordon,
                        HookRetry::Exhausted,
                    ) => Ok(()),
                }
            }
            Self::UncordonGateClosed { missing, since, overdue } => {
                write!(f, "booted, but {missing}: the Node stays cordoned; rebooted at {}", at(*since))?;
                f.write_str(if *overdue { "; `cketerm rq done` goes on without it" } else { "" })
            }
            Self::BatchUnreadable { batch, key, why } => write!(
                f,
                "batch {batch} cannot be read and may be paused: {key}: {why}; fix it with etcdctl, or remove it"
            ),
            Self::BatchPauseIgnored { batch, by, leader } => write!(
                f,
                "pause of batch {batch} by {by} is NOT IN FORCE: {leader}; cancel the batch or `cketerm stop`"
            ),
            Self::OrderIgnored { verb, who, leader } => {
                write!(f, "{verb} by {who} is NOT IN FORCE: {leader}; cancel the entry or `cketerm stop`")
            }
            Self::Stale { source, since } => write!(f, "{source} silent since {}", at(*since)),
            Self::ProgramMissing { path } => write!(f, "no {path} on the engine's host: install it"),
            Self::BmcNotAllowed { fault: Some(fault), .. } => {
                write!(f, "the engine's host cannot turn this machine off and on: {fault}")
            }
            Self::BmcNotAllowed { address, fault: None } => write!(
                f,
                "no BMC network is allowed and no BMC is listed for {address}: add `networks` to the file of \
                 power.bmcs on the engine's host"
            ),
            Self::DuplicateOf { index } => write!(f, "same machine as entry {index}"),
            Self::InMaintenance { entry, until, why } => {
                write!(f, "the machine is in maintenance until {} ({entry}", at(*until))?;
                why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))?;
                f.write_str(")")
            }
            Self::MachineInRepair { entry } => write!(f, "the machine is in repair ({entry})"),
            Self::MachineInReboot { entry } => write!(f, "the machine is being rebooted ({entry})"),
            Self::WaitingForHealth { step, until, last, awaited } => {
                write!(f, "step {}: checking health", step + 1)?;
                until.map_or(Ok(()), |u| write!(f, " until {}", at(u)))?;
                check(f, last, *awaited)
            }
            Self::WaitingForJoin { node } => write!(f, "waits for {node} to join"),
            Self::WaitingForBoot { since, last, stuck, awaited } => {
                write!(f, "{}booting since {}", if *stuck { "STUCK: " } else { "" }, at(*since))?;
                check(f, last, *awaited)
            }
            Self::Settling { node, until, missing } => {
                write!(f, "API server {node} settles: {missing}")?;
                until.map_or(Ok(()), |u| write!(f, ", until {}", at(u)))
            }
            Self::PowerError { text } => write!(f, "BMC power error: {text}; fix the BMC, then retry"),
            Self::HeldByOtherKey { keys } => {
                write!(f, "BareMetalHost held off by {}; its owner releases it", keys.join(", "))
            }
            Self::QueueDisabled => f.write_str("the queue is disabled"),
            Self::NoCommand { field } => write!(f, "not set: {field}"),
            Self::NotMember { address } => {
                write!(f, "{address} is not in the cluster definition; the next pass removes the entry")
            }
            Self::InvalidEntry { why } => f.write_str(why),
            Self::TransactionTooLarge { what, size } => {
                write!(f, "{what} is too large for etcd: {size}; see the runbook for what to remove")
            }
            Self::EffectFailed { what, why } => write!(f, "{what} failed, retrying: {why}"),
            Self::Working { phase } => f.write_str(phase),
            Self::Ready => f.write_str("next"),
        }
    }
}

/// Text about an entry whose end an operator ordered with `done`, while its Node is not Ready.
pub const DONE_ORDERED: &str = "marked done, but the Node is not Ready";

/// Writes the check's last answer, and what is awaited instead of a good one.
fn check(f: &mut fmt::Formatter<'_>, last: &str, awaited: Awaited) -> fmt::Result {
    match awaited {
        Awaited::NodeReady if last.is_empty() => write!(f, " ({DONE_ORDERED})"),
        Awaited::NodeReady => write!(f, " ({DONE_ORDERED}; {last})"),
        Awaited::CkeCheck if last.is_empty() => f.write_str(" (CKE does not record its checks)"),
        Awaited::CkeCheck => write!(f, " ({last}; a failed command is only in CKE's records)"),
        Awaited::Check if last.is_empty() => Ok(()),
        Awaited::Check => write!(f, " (check: {last})"),
    }
}

/// Returns the first `n` names, and the number of the others out of `all`.
fn some(names: &[impl AsRef<str>], n: usize, all: usize) -> String {
    let shown = names.iter().take(n).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match all.saturating_sub(n) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or_default()
}

/// Returns a time in whole seconds, for display.
fn at(time: Timestamp) -> Timestamp {
    crate::time::whole_seconds(time)
}

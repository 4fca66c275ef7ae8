//! Why an entry does not move (spec/invariants.md, Reasons). Each names its object; the wording is an interface.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::EntryId;

/// How the cause of a backoff begins that only the queue's switch brought about.
pub const SWITCHED_OFF: &str = "the queue was disabled";

/// A drain that was given up so often is stuck: what blocks it does not go away by itself.
pub const GIVEN_UP: i64 = 3;

/// What keeps one pod on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// `namespace/name`.
    pub pod: String,
    /// Why it is still there.
    pub why: PodHold,
}

/// Why a pod is still on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PodHold {
    /// A budget refuses.
    Budget {
        /// `namespace/name` of the budget.
        budget: String,
        /// Healthy pods now.
        healthy: i32,
        /// Healthy pods needed.
        needed: i32,
    },
    /// Its budget's controller has not caught up (429 with Retry-After).
    BudgetLag {
        /// `namespace/name` of the budget, or `?`.
        budget: String,
    },
    /// Several budgets select it: the API cannot evict it (500).
    ManyBudgets {
        /// Their `namespace/name`s.
        budgets: Vec<String>,
    },
    /// A protected Job runs it.
    Job {
        /// `namespace/name` of the Job.
        job: String,
    },
    /// Its namespace is being deleted (403).
    NamespaceTerminating,
    /// The pod was replaced by another of the same name (409).
    Replaced,
    /// It is terminating.
    Terminating {
        /// Since when.
        since: Timestamp,
        /// Whether the node is Ready.
        node_ready: bool,
    },
    /// Eviction was accepted or it waits to be asked.
    Leaving,
    /// The API answered something else.
    Refused {
        /// Status code and message.
        answer: String,
    },
}

impl fmt::Display for PodHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { budget, healthy, needed } => write!(f, "pdb {budget} (healthy {healthy}, needs {needed})"),
            Self::BudgetLag { budget } => write!(f, "pdb {budget} is still being processed"),
            Self::ManyBudgets { budgets } => write!(f, "several pdbs: {}", budgets.join(", ")),
            Self::Job { job } => write!(f, "protected job {job}"),
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

/// Why an entry does not move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "PascalCase")]
#[allow(missing_docs)] // each variant is its own sentence; `Display` spells it out
pub enum Reason {
    WaitingForSlot {
        holder: Option<EntryId>,
        limit: i64,
    },
    WaitingForWorkers {
        holder: EntryId,
    },
    WaitingForControlPlane {
        other: String,
    },
    UnreachableGate {
        count: i64,
        limit: i64,
        names: Vec<String>,
    },
    ControlPlaneUnhealthy {
        node: String,
        why: String,
    },
    OutsideWindow {
        next_open: Option<Timestamp>,
        /// It is open, and ends too soon for a drain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closes: Option<Timestamp>,
    },
    /// Another group of machines (policy `groups`) is in work.
    WaitingForGroup {
        /// The label.
        by: String,
        group: String,
        holder: EntryId,
    },
    Backoff {
        count: i64,
        until: Timestamp,
        cause: Option<String>,
    },
    #[serde(rename = "BlockedByPDB")]
    BlockedByPdb {
        pod: String,
        pdb: String,
        healthy: i32,
        needed: i32,
    },
    #[serde(rename = "BlockedByManyPDBs")]
    BlockedByManyPdbs {
        pod: String,
        pdbs: Vec<String>,
    },
    BlockedByJob {
        pod: String,
        job: String,
    },
    PodsLeaving {
        left: u32,
        first: String,
    },
    EvictionRefused {
        pod: String,
        answer: String,
    },
    TerminatingStuck {
        pod: String,
        since: Timestamp,
        node_ready: bool,
    },
    VolumeAttached {
        names: Vec<String>,
    },
    UncordonedByOther {
        since: Timestamp,
    },
    CommandRunning {
        attempt: String,
        since: Timestamp,
    },
    CommandFailed {
        how: String,
        stderr: String,
    },
    OutcomeUnknown {
        attempt: Option<String>,
        until: Option<Timestamp>,
    },
    CheckUnavailable {
        why: String,
    },
    NodeMismatch {
        expected: String,
        found: String,
    },
    OrphanedCordon {
        node: String,
        entry: EntryId,
    },
    AwaitingApproval {
        digest: String,
    },
    Frozen {
        until: Timestamp,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    EngineElsewhere {
        holder: String,
    },
    EngineObserving {
        why: String,
    },
    NoEngine {
        why: String,
    },
    OnHold {
        who: String,
        why: Option<String>,
    },
    Stale {
        source: String,
        since: Timestamp,
    },
    ProgramMissing {
        path: String,
    },
    DuplicateOf {
        index: u64,
    },
    MachineInRepair {
        entry: EntryId,
    },
    MachineInReboot {
        entry: EntryId,
    },
    /// The command of a repair's step has ended; the health check decides until the watch is over.
    WaitingForHealth {
        /// Counted from 0.
        step: i64,
        until: Option<Timestamp>,
        last: String,
    },
    WaitingForJoin {
        node: String,
    },
    WaitingForBoot {
        since: Timestamp,
        last: String,
        stuck: bool,
    },
    Settling {
        node: String,
        until: Option<Timestamp>,
        missing: String,
    },
    PowerError {
        text: String,
    },
    HeldByOtherKey {
        keys: Vec<String>,
    },
    QueueDisabled,
    NoCommand {
        field: String,
    },
    NotMember {
        address: String,
    },
    InvalidEntry {
        why: String,
    },
    /// An effect failed and is tried again: what, and what was answered.
    EffectFailed {
        what: String,
        why: String,
    },
    /// It moves: what is being done.
    Working {
        phase: String,
    },
    /// Nothing holds it back: the next pass takes it.
    Ready,
}

impl Reason {
    /// The reason's name, as metrics and `-o json` have it.
    pub fn name(&self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(fields)) => {
                fields.get("reason").and_then(|v| v.as_str()).unwrap_or_default().to_owned()
            }
            _ => String::new(),
        }
    }

    /// Whether a person has to do something, as opposed to waiting for one's turn.
    pub fn needs_attention(&self) -> bool {
        match self {
            Self::UnreachableGate { .. }
            | Self::ControlPlaneUnhealthy { .. }
            | Self::BlockedByPdb { .. }
            | Self::BlockedByManyPdbs { .. }
            | Self::BlockedByJob { .. }
            | Self::EvictionRefused { .. }
            | Self::TerminatingStuck { .. }
            | Self::VolumeAttached { .. }
            | Self::UncordonedByOther { .. }
            | Self::CommandFailed { .. }
            | Self::OutcomeUnknown { .. }
            | Self::CheckUnavailable { .. }
            | Self::NodeMismatch { .. }
            | Self::OrphanedCordon { .. }
            | Self::AwaitingApproval { .. }
            | Self::EngineObserving { .. }
            | Self::NoEngine { .. }
            | Self::Stale { .. }
            | Self::ProgramMissing { .. }
            | Self::PowerError { .. }
            | Self::EffectFailed { .. }
            | Self::NoCommand { .. }
            | Self::NotMember { .. }
            | Self::InvalidEntry { .. } => true,
            Self::WaitingForBoot { stuck, .. } => *stuck,
            _ => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitingForSlot { holder: Some(holder), limit } => {
                write!(f, "waits for a slot ({limit} in use, one by {holder})")
            }
            Self::WaitingForSlot { holder: None, limit } => write!(f, "waits for a slot (limit {limit})"),
            Self::WaitingForWorkers { holder } => write!(f, "API server: waits for the workers before it ({holder})"),
            Self::WaitingForControlPlane { other } => write!(f, "waits for API server {other}"),
            Self::UnreachableGate { count, limit, names } => {
                write!(
                    f,
                    "{count} node{} unreachable, limit {limit}: {}",
                    if *count == 1 { "" } else { "s" },
                    some(names, 3)
                )
            }
            Self::ControlPlaneUnhealthy { node, why } => write!(f, "control plane {node} is not healthy: {why}"),
            Self::OutsideWindow { next_open, closes } => {
                match closes {
                    None => f.write_str("outside the window, ")?,
                    Some(closes) => write!(f, "too late for a drain, the window closes {}, ", at(*closes))?,
                }
                match next_open {
                    Some(open) => write!(f, "opens {}", at(*open)),
                    None => f.write_str("which never opens"),
                }
            }
            Self::WaitingForGroup { by, group, holder } => write!(f, "waits for {by} {group} ({holder})"),
            Self::Backoff { count, until, cause } => {
                write!(f, "backed off {count}×, until {}", at(*until))?;
                cause.as_ref().map_or(Ok(()), |c| write!(f, ": {c}"))
            }
            Self::BlockedByPdb { pod, pdb, healthy, needed } => {
                write!(f, "pod {pod} is kept by pdb {pdb} (healthy {healthy}, needs {needed})")
            }
            Self::BlockedByManyPdbs { pod, pdbs } => {
                write!(f, "pod {pod} has several pdbs, so nothing can evict it: {}", pdbs.join(", "))
            }
            Self::BlockedByJob { pod, job } => write!(f, "pod {pod} belongs to the protected running job {job}"),
            Self::PodsLeaving { left: 1, first } => write!(f, "one pod is leaving: {first}"),
            Self::PodsLeaving { left, first } => write!(f, "{left} pods are leaving, {first} among them"),
            Self::EvictionRefused { pod, answer } => write!(f, "eviction of {pod} was refused: {answer}"),
            Self::TerminatingStuck { pod, since, node_ready } => write!(
                f,
                "pod {pod} is stuck terminating since {}{}",
                at(*since),
                if *node_ready { "" } else { " on a node that is not Ready" }
            ),
            Self::VolumeAttached { names } => write!(f, "volumes still in use: {}", some(names, 2)),
            Self::UncordonedByOther { since } => write!(f, "somebody uncordoned the node at {}", at(*since)),
            Self::CommandRunning { attempt, since } => {
                write!(f, "command runs since {} (attempt {attempt})", at(*since))
            }
            Self::CommandFailed { how, stderr } if stderr.is_empty() => write!(f, "command failed: {how}"),
            Self::CommandFailed { how, stderr } => write!(f, "command failed: {how}: {}", last_line(stderr)),
            Self::OutcomeUnknown { until: Some(until), .. } => {
                write!(f, "a command of a dead leader may still be running, until {}", at(*until))
            }
            Self::OutcomeUnknown { attempt: Some(attempt), .. } => {
                write!(f, "outcome of attempt {attempt} unknown: retry, done, or wait for the check")
            }
            Self::OutcomeUnknown { attempt: None, .. } => {
                f.write_str("started by another program, outcome unknown: retry, done, or wait for the check")
            }
            Self::CheckUnavailable { why } => write!(f, "the check gives no answer: {why}"),
            Self::NodeMismatch { expected, found } => {
                write!(f, "not the machine that was meant: expected {expected}, found {found}; cancel and add again")
            }
            Self::OrphanedCordon { node, entry } => {
                write!(f, "node {node} stays cordoned after {entry} until it is back, or until you uncordon it")
            }
            Self::AwaitingApproval { digest } => write!(f, "waits for approval of {digest}"),
            Self::Frozen { until, why } => {
                write!(f, "frozen until {}", at(*until))?;
                if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
            }
            Self::EngineElsewhere { holder } => write!(f, "{holder} leads: the queue is processed there"),
            Self::EngineObserving { why } => write!(f, "the engine only observes: {why}"),
            Self::NoEngine { why } => write!(f, "no engine leads: {why}"),
            Self::OnHold { who, why } => {
                write!(f, "on hold by {who}")?;
                why.as_ref().map_or(Ok(()), |w| write!(f, ": {w}"))
            }
            Self::Stale { source, since } => write!(f, "{source} was last heard at {}", at(*since)),
            Self::ProgramMissing { path } => write!(f, "program {path} is not on the engine's host"),
            Self::DuplicateOf { index } => write!(f, "the same machine is in entry {index}"),
            Self::MachineInRepair { entry } => write!(f, "the machine is in repair ({entry})"),
            Self::MachineInReboot { entry } => write!(f, "the machine is being rebooted ({entry})"),
            Self::WaitingForHealth { step, until, last } => {
                write!(f, "step {}: watches the health check", step + 1)?;
                until.map_or(Ok(()), |u| write!(f, " until {}", at(u)))?;
                if last.is_empty() { Ok(()) } else { write!(f, " (check: {last})") }
            }
            Self::WaitingForJoin { node } => write!(f, "waits for {node} to join"),
            Self::WaitingForBoot { since, last, stuck } => {
                write!(f, "{}waits for boot since {}", if *stuck { "STUCK: " } else { "" }, at(*since))?;
                if last.is_empty() { Ok(()) } else { write!(f, " (check: {last})") }
            }
            Self::Settling { node, until, missing } => {
                write!(f, "API server {node} settles: {missing}")?;
                until.map_or(Ok(()), |u| write!(f, ", until {}", at(u)))
            }
            Self::PowerError { text } => write!(f, "power error: {text}"),
            Self::HeldByOtherKey { keys } => write!(f, "held off by {}", keys.join(", ")),
            Self::QueueDisabled => f.write_str("the queue is disabled"),
            Self::NoCommand { field } => write!(f, "the definition has no {field}"),
            Self::NotMember { address } => write!(f, "{address} is not in the cluster definition"),
            Self::InvalidEntry { why } => f.write_str(why),
            Self::EffectFailed { what, why } => write!(f, "{what} failed, is tried again: {why}"),
            Self::Working { phase } => f.write_str(phase),
            Self::Ready => f.write_str("next"),
        }
    }
}

/// The first `n` names and how many more there are.
fn some(names: &[String], n: usize) -> String {
    let shown = names.iter().take(n).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(n) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or_default()
}

/// A time as people read it: whole seconds.
fn at(time: Timestamp) -> Timestamp {
    super::time::whole_seconds(time)
}

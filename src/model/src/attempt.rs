//! Attempts: single runs of a command of the definition, recorded before they start (SAF-15, I25).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    entry::{EntryId, QueueKind},
    kube::NodeRow,
    names::{Address, NodeName},
};

/// Value of `cketerm/attempts/<queue>/<index>/<n>`: one run of a command (STO-28).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts of a record, each by itself
pub struct Attempt {
    /// Unique name, passed to the command as `CKETERM_ATTEMPT`.
    pub id: String,
    /// The entry that the attempt belongs to.
    pub entry: EntryId,
    /// Number of the attempt, counted from 1 over the entry's life.
    pub number: u32,
    /// Step of the repair, counted from 0; none for reboots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Whether it is a repair's success command instead of the step's command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub success: bool,
    /// Machine type of the repair. With `operation` it identifies the health check after the entry is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// Operation of the repair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Address of the node or machine.
    pub address: Address,
    /// Name of the Kubernetes Node, if the machine is a member of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Whether the machine is a control-plane node of the definition.
    #[serde(default)]
    pub control_plane: bool,
    /// Lease of the leader that started it.
    pub lease: i64,
    /// Host name of that leader.
    pub host: String,
    /// Whole command line, including the address.
    pub argv: Vec<String>,
    /// Seconds after which the helper kills the command.
    pub bound_seconds: u64,
    /// Boot id of the node before the command, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Whether the Node was not Ready then. Its boot id may then belong to an earlier boot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_ready: bool,
    /// UID of the Node before the command, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// Time of the record, right before the start.
    pub start: Timestamp,
    /// Start of the drain before it; none without a drain, and in records of version 0.1. It outlives the entry's
    /// transition, so that the history knows how long drains take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_start: Option<Timestamp>,
    /// Whether pods and volumes were skipped by an operator's order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// User who ordered it beyond the definition's retries (`rq retry`), with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// User who marked the machine as recovered (`rq done`). Its Node is uncordoned once it is Ready, whatever its boot
    /// id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_by: Option<String>,
    /// Number of earlier attempts that were deleted: they were withheld, or no longer needed to count tries.
    #[serde(default, skip_serializing_if = "none")]
    pub folded: u32,
    /// Outcome; none while the command may be running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
pub(super) fn none(count: &u32) -> bool {
    *count == 0
}

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Kind of the end.
    pub end: Ended,
    /// Time of the end.
    pub at: Timestamp,
    /// The last 4 KiB of standard output. Control characters are made visible, and secrets are masked.
    #[serde(default)]
    pub stdout: String,
    /// The last 4 KiB of standard error, treated the same way.
    #[serde(default)]
    pub stderr: String,
}

impl Outcome {
    /// Returns the outcome without its outputs, because etcd refused their size. Returns `None` if that would save
    /// nothing.
    pub fn without_outputs(&self, why: &str) -> Option<Self> {
        let message = format!("outputs omitted: {why}");
        let smaller = self.stdout.len() + self.stderr.len() > message.len();
        smaller.then(|| Self { stdout: String::new(), stderr: message, ..self.clone() })
    }
}

/// Ways in which a command ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The command exited with this status.
    Exit(i32),
    /// A signal ended the command, but not by the timeout.
    Signal(i32),
    /// cketerm killed the command after this number of seconds.
    TimedOut(u64),
    /// The command could not be started, with the cause.
    NotStarted(String),
    /// cketerm did not start the command: the entry had changed, or the lease was running out. It does not count as a
    /// try.
    Withheld(String),
    /// The outcome is unknown; an operator or a check settled it so.
    Unknown(String),
}

/// Answer of a boot check or health check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckAnswer {
    /// Exit 0 and `true`.
    Yes,
    /// Exit 0 with another output.
    No(String),
    /// Another exit, with the output.
    Failed {
        /// Exit code.
        code: i32,
        /// Output.
        output: String,
    },
    /// cketerm killed the check after this number of seconds.
    TimedOut(u64),
    /// The check could not run. This is not a "no".
    Unavailable(String),
}

impl CheckAnswer {
    /// Returns the output of a check that neither reports health nor a failure: the definition's command needs a fix.
    pub fn unrecognized(&self) -> Option<&str> {
        match self {
            Self::No(output) => Some(output.trim()).filter(|output| !output.is_empty() && *output != "false"),
            Self::Yes | Self::Failed { .. } | Self::TimedOut(_) | Self::Unavailable(_) => None,
        }
    }
}

/// Only `true` is healthy. Another output, for example `OK`, is quoted.
impl fmt::Display for CheckAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("true"),
            Self::No(output) => match self.unrecognized() {
                Some(output) => write!(f, "{output:?}, not true"),
                None if output.is_empty() => f.write_str("no output"),
                None => f.write_str(output.trim()),
            },
            Self::Failed { code, output } if output.is_empty() => write!(f, "exit {code}"),
            Self::Failed { code, output } => write!(f, "exit {code} {output}"),
            Self::TimedOut(seconds) => write!(f, "no answer in {seconds} s"),
            Self::Unavailable(why) => write!(f, "no answer: {why}"),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit {code}"),
            Self::Signal(number) => write!(f, "signal {number}"),
            Self::TimedOut(seconds) => write!(f, "timed out after {seconds} s"),
            Self::NotStarted(why) => write!(f, "not started: {why}"),
            Self::Withheld(why) => write!(f, "withheld: {why}"),
            Self::Unknown(why) => write!(f, "unknown: {why}"),
        }
    }
}

impl Ended {
    /// Returns true if the command failed. An unknown outcome and a withheld command are not failures.
    pub fn failed(&self) -> bool {
        match self {
            Self::Exit(code) => *code != 0,
            Self::Signal(_) | Self::TimedOut(_) | Self::NotStarted(_) => true,
            Self::Withheld(_) | Self::Unknown(_) => false,
        }
    }
}

/// Returns the name of an attempt: `reboots-5-1` is the first attempt of the entry `reboots/5`.
pub fn attempt_id(entry: EntryId, number: u32) -> String {
    format!("{entry}-{number}").replace('/', "-")
}

/// Returns the entry and the number of an attempt's name, or `None` if the name is not exactly as [`attempt_id`] writes
/// it.
pub fn parse_attempt_id(id: &str) -> Option<(EntryId, u32)> {
    let (entry, number) = id.rsplit_once('-')?;
    let (entry, number) = (entry.replacen('-', "/", 1).parse().ok()?, number.parse().ok()?);
    (attempt_id(entry, number) == id).then_some((entry, number))
}

impl Attempt {
    /// Returns the attempt with the Node's present boot id, right before the command, and whether that id may be
    /// outdated (I14).
    #[must_use]
    pub fn with_node(self, node: Option<&NodeRow>) -> Self {
        let boot_id = node.map(|n| n.boot_id.clone()).filter(|id| !id.is_empty());
        Self { boot_id, not_ready: node.is_some_and(|n| !n.ready), ..self }
    }

    /// Returns the kind of command, for messages.
    pub fn what(&self) -> String {
        match (self.success, self.step, self.entry.queue) {
            (true, ..) => "success command".to_owned(),
            (false, Some(step), _) => format!("command of step {}", step.saturating_add(1)),
            (false, None, QueueKind::Reboot) => "reboot command".to_owned(),
            (false, None, QueueKind::Repair) => "repair command".to_owned(),
            (false, None, QueueKind::Maintenance) => "maintenance".to_owned(),
        }
    }

    /// Returns the command line for display, with secrets masked.
    pub fn command(&self) -> String {
        super::secret::argv(&self.argv)
    }

    /// Reports whether the newer attempt holds all facts of this one about the recovery of the machine and the number
    /// of tries. Number, time and outcome may differ.
    pub fn is_covered_by(&self, newer: &Self) -> bool {
        let ended = |a: &Self| !a.open() && !matches!(a.outcome.as_ref().map(|o| &o.end), Some(Ended::Unknown(_)));
        let machine =
            |a: &Self| (a.boot_id.clone(), a.not_ready, a.node_uid.clone(), a.node.clone(), a.address.clone());
        let command = |a: &Self| (a.step, a.success, a.control_plane, a.forced, a.done_by.clone(), a.began());
        ended(self) && machine(self) == machine(newer) && command(self) == command(newer)
    }

    /// Returns true if no outcome is recorded yet.
    pub fn open(&self) -> bool {
        self.outcome.is_none()
    }

    /// Returns true if nobody knows how the command ended, or if it still runs.
    pub fn outcome_unknown(&self) -> bool {
        self.outcome.as_ref().is_none_or(|outcome| matches!(outcome.end, Ended::Unknown(_)))
    }

    /// Returns true if the command did something or may have. It then counts as a try, and its machine as rebooted.
    pub fn began(&self) -> bool {
        !matches!(self.outcome.as_ref().map(|o| &o.end), Some(Ended::NotStarted(_) | Ended::Withheld(_)))
    }

    /// Returns true if cketerm did not start the command.
    pub fn withheld(&self) -> bool {
        matches!(self.outcome.as_ref().map(|o| &o.end), Some(Ended::Withheld(_)))
    }

    /// Returns true if the command exited with 0.
    pub fn succeeded(&self) -> bool {
        self.outcome.as_ref().is_some_and(|o| o.end == Ended::Exit(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this, the leader would retry without end an outcome that etcd refuses as too large.
    #[test]
    fn an_outcome_that_is_too_large_is_stored_without_its_output() {
        let large = Outcome {
            end: Ended::Exit(3),
            at: Timestamp::UNIX_EPOCH,
            stdout: "x".repeat(4096),
            stderr: "\u{1b}".repeat(4096),
        };
        let smaller = large.without_outputs("1 operations and 9000 bytes").unwrap();
        assert_eq!((&smaller.end, smaller.at, smaller.stdout.as_str()), (&large.end, large.at, ""));
        assert_eq!(smaller.stderr, "outputs omitted: 1 operations and 9000 bytes");
        assert_eq!(smaller.without_outputs("1 operations and 9000 bytes"), None, "no output is left to omit");
    }
}

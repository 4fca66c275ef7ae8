//! One try of a command of the definition, written before it starts (spec/safety.md, Effects: Attempts; I25).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    entry::{EntryId, QueueKind},
    kube::NodeRow,
};

/// `cketerm/attempts/<queue>/<index>/<n>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts of a record, each by itself
pub struct Attempt {
    /// A name of its own, given to the command as `CKETERM_ATTEMPT`.
    pub id: String,
    /// The entry it belongs to.
    pub entry: EntryId,
    /// Counted from 1 over the entry's life.
    pub number: u32,
    /// The step of a repair that it belongs to, counted from 0; none for reboots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// It is a repair's success command, and not the step's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub success: bool,
    /// The repair's machine type, which with `operation` names the health check when the entry is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// The repair's operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The node's or machine's address.
    pub address: String,
    /// The Kubernetes Node's name, where the machine is a cluster member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether the machine is a control-plane node of the definition.
    #[serde(default)]
    pub control_plane: bool,
    /// The leader's lease when it started.
    pub lease: i64,
    /// The leader's host name.
    pub host: String,
    /// The whole command line, address included.
    pub argv: Vec<String>,
    /// Seconds after which the command is ended.
    pub bound_seconds: u64,
    /// The node's boot id before, where it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The Node was not Ready then: its boot id may be one of before an earlier reboot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_ready: bool,
    /// UID of the Node before, where it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// When it was written, right before the start.
    pub start: Timestamp,
    /// Pods and volumes were skipped by a person's order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Who asked for it beyond the definition's retries (`rq retry`), with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// Who said that the machine is back (`rq done`): its Node is let go of once it is Ready, whatever its boot id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_by: Option<String>,
    /// So many attempts before it are not kept any more: they were withheld, or are not needed to count its tries.
    #[serde(default, skip_serializing_if = "none")]
    pub folded: u32,
    /// How it ended; none while it may be running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
pub(super) fn none(count: &u32) -> bool {
    *count == 0
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub end: Ended,
    /// When.
    pub at: Timestamp,
    /// The last 4 KiB of standard output, control characters made visible, without what looks like a secret.
    #[serde(default)]
    pub stdout: String,
    /// The last 4 KiB of standard error, likewise.
    #[serde(default)]
    pub stderr: String,
}

impl Outcome {
    /// The same without its outputs, which etcd did not take; none where there are none to leave out.
    pub fn without_outputs(&self, why: &str) -> Option<Self> {
        let said = format!("the outputs are left out: {why}");
        let smaller = self.stdout.len() + self.stderr.len() > said.len();
        smaller.then(|| Self { stdout: String::new(), stderr: said, ..self.clone() })
    }
}

/// The ways a command ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself, with this status.
    Exit(i32),
    /// By a signal that was not our timeout's.
    Signal(i32),
    /// We ended it after so many seconds.
    TimedOut(u64),
    /// It could not be started: why.
    NotStarted(String),
    /// We did not let it start: the entry had changed, or the lease was running out. It does not count as a try.
    Withheld(String),
    /// Nobody knows; a person or a check settled it so.
    Unknown(String),
}

/// What a boot or health check said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckAnswer {
    /// Exit 0 and `true`.
    Yes,
    /// Any other exit, a timeout, or other output: what it said.
    No(String),
    /// It could not be asked: not a "no".
    Unavailable(String),
}

impl fmt::Display for CheckAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("true"),
            Self::No(said) if said.is_empty() => f.write_str("not true"),
            Self::No(said) => f.write_str(said),
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
    /// The command failed: what nobody knows, or what we withheld, did not.
    pub fn failed(&self) -> bool {
        match self {
            Self::Exit(code) => *code != 0,
            Self::Signal(_) | Self::TimedOut(_) | Self::NotStarted(_) => true,
            Self::Withheld(_) | Self::Unknown(_) => false,
        }
    }
}

/// The name of an attempt: `reboots-5-1` is the first attempt of the entry `reboots/5`.
pub fn attempt_id(entry: EntryId, number: u32) -> String {
    format!("{entry}-{number}").replace('/', "-")
}

/// The entry and the number that an attempt's name stands for; none where it is not exactly as [`attempt_id`] writes it.
pub fn parse_attempt_id(id: &str) -> Option<(EntryId, u32)> {
    let (entry, number) = id.rsplit_once('-')?;
    let (entry, number) = (entry.replacen('-', "/", 1).parse().ok()?, number.parse().ok()?);
    (attempt_id(entry, number) == id).then_some((entry, number))
}

impl Attempt {
    /// With the boot id that the Node has now, right before the command, and whether that may be an old one (I14).
    #[must_use]
    pub fn met(self, node: Option<&NodeRow>) -> Self {
        let boot_id = node.map(|n| n.boot_id.clone()).filter(|id| !id.is_empty());
        Self { boot_id, not_ready: node.is_some_and(|n| !n.ready), ..self }
    }

    /// Which command it is, in words.
    pub fn what(&self) -> String {
        match (self.success, self.step, self.entry.queue) {
            (true, ..) => "success command".to_owned(),
            (false, Some(step), _) => format!("command of step {}", step.saturating_add(1)),
            (false, None, QueueKind::Reboot) => "reboot command".to_owned(),
            (false, None, QueueKind::Repair) => "repair command".to_owned(),
        }
    }

    /// Its command line for people: what looks like a secret is left out.
    pub fn command(&self) -> String {
        super::secret::argv(&self.argv)
    }

    /// Everything but its number, time and outcome is the same, as far as it tells whether its machine has come back and how
    /// often its command was run: of two such attempts the older one says nothing that the newer one does not.
    pub fn tells_the_same(&self, newer: &Self) -> bool {
        let ended = |a: &Self| !a.open() && !matches!(a.outcome.as_ref().map(|o| &o.end), Some(Ended::Unknown(_)));
        let machine =
            |a: &Self| (a.boot_id.clone(), a.not_ready, a.node_uid.clone(), a.node.clone(), a.address.clone());
        let command = |a: &Self| (a.step, a.success, a.control_plane, a.forced, a.done_by.clone(), a.began());
        ended(self) && machine(self) == machine(newer) && command(self) == command(newer)
    }

    /// No outcome was recorded yet.
    pub fn open(&self) -> bool {
        self.outcome.is_none()
    }

    /// It did something, or may have: it counts as a try, and its machine as rebooted.
    pub fn began(&self) -> bool {
        !matches!(self.outcome.as_ref().map(|o| &o.end), Some(Ended::NotStarted(_) | Ended::Withheld(_)))
    }

    /// We did not let it start.
    pub fn withheld(&self) -> bool {
        matches!(self.outcome.as_ref().map(|o| &o.end), Some(Ended::Withheld(_)))
    }

    /// It ended with exit status 0.
    pub fn succeeded(&self) -> bool {
        self.outcome.as_ref().is_some_and(|o| o.end == Ended::Exit(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Review of issue 26, 16: an outcome that etcd did not take was tried again for ever.
    #[test]
    fn an_outcome_that_is_too_large_goes_without_its_outputs_and_says_so() {
        let large = Outcome {
            end: Ended::Exit(3),
            at: Timestamp::UNIX_EPOCH,
            stdout: "x".repeat(4096),
            stderr: "\u{1b}".repeat(4096),
        };
        let smaller = large.without_outputs("1 operations and 9000 bytes").unwrap();
        assert_eq!((&smaller.end, smaller.at, smaller.stdout.as_str()), (&large.end, large.at, ""));
        assert_eq!(smaller.stderr, "the outputs are left out: 1 operations and 9000 bytes");
        assert_eq!(smaller.without_outputs("1 operations and 9000 bytes"), None, "there is nothing left to leave out");
    }
}

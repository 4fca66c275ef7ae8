//! Records of hooks: one value per entry, from the start of a drain until the hooks after its uncordon have ended.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    attempt::Ended,
    entry::EntryId,
    names::{Address, NodeName},
};

/// Moment at which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// In the drain, before the cordon.
    BeforeDrain,
    /// After the last pod has left, before the command.
    AfterDrain,
    /// Before the Node is uncordoned. A reboot also ends only afterwards.
    BeforeUncordon,
    /// After cketerm has removed its record from the Node.
    AfterUncordon,
}

impl HookPoint {
    /// Returns the name in the policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeDrain => "before_drain",
            Self::AfterDrain => "after_drain",
            Self::BeforeUncordon => "before_uncordon",
            Self::AfterUncordon => "after_uncordon",
        }
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeDrain => "before the drain",
            Self::AfterDrain => "after the drain",
            Self::BeforeUncordon => "before the uncordon",
            Self::AfterUncordon => "after the uncordon",
        })
    }
}

/// Value of `cketerm/hooks/<queue>/<index>`: the hooks that ran for one drain of an entry. It is written when the drain
/// starts and deleted after the hooks that follow the uncordon, so it also says that these are due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookRuns {
    /// Address of the machine.
    pub address: Address,
    /// Its Node.
    pub node: NodeName,
    /// Start of the drain.
    pub since: Timestamp,
    /// Names of the policy's hooks that were for this machine at the start. Labels may be gone later.
    #[serde(default)]
    pub hooks: Vec<String>,
    /// The last run of each hook, in the order of their starts.
    #[serde(default)]
    pub runs: Vec<HookRun>,
}

impl HookRuns {
    /// Returns the last run of a hook at this moment, unless it is older than `from`.
    pub fn run(&self, hook: &str, at: HookPoint, from: Timestamp) -> Option<&HookRun> {
        self.runs.iter().find(|run| run.hook == hook && run.at == at && run.start >= from)
    }

    /// Returns the record with this run in place of the hook's last one.
    #[must_use]
    pub fn with(&self, run: &HookRun) -> Self {
        let others = self.runs.iter().filter(|old| old.hook != run.hook).cloned();
        let runs = others.chain([run.clone()]).collect();
        Self { runs, ..self.clone() }
    }
}

/// One run of a hook, recorded before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookRun {
    /// Name of the hook.
    pub hook: String,
    /// Moment at which it ran.
    pub at: HookPoint,
    /// Number of this try, from 1. A run that never began, or whose leader went, does not count as one.
    #[serde(rename = "try")]
    pub tries: u32,
    /// The action for people, without secrets.
    pub target: String,
    /// Lease of the leader that ran it.
    pub lease: i64,
    /// Host name of that leader.
    pub host: String,
    /// Seconds after which it was ended.
    pub bound_seconds: u64,
    /// Time of the record, right before the start.
    pub start: Timestamp,
    /// End of the run before it, if that failed and was the last of its tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<HookEnd>,
    /// Outcome; none while it may be running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<HookOutcome>,
}

impl HookRun {
    /// Returns the id that the command gets as `CKETERM_ATTEMPT`.
    pub fn id(&self, entry: EntryId) -> String {
        format!("{}-{}-{}", entry.to_string().replace('/', "-"), self.hook, self.tries)
    }
}

/// `hook ceph before the uncordon, try 2: exit 1`.
impl fmt::Display for HookRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hook {} {}", self.hook, self.at)?;
        if self.tries > 1 {
            write!(f, ", try {}", self.tries)?;
        }
        match &self.outcome {
            Some(outcome) => write!(f, ": {}", outcome.end),
            None => f.write_str(": no outcome yet"),
        }
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookOutcome {
    /// Kind of the end.
    pub end: HookEnd,
    /// Time of the end.
    pub at: Timestamp,
    /// End of the output, or beginning of the answer, without secrets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// Ways in which a hook ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEnd {
    /// A command ended, or a hook of either kind was withheld.
    Command(Ended),
    /// The server answered with this HTTP status.
    Status(u16),
    /// The request could not be sent, or had no answer in time.
    NoAnswer(String),
}

impl HookEnd {
    /// Reports whether the hook succeeded.
    pub fn succeeded(&self) -> bool {
        match self {
            Self::Command(end) => *end == Ended::Exit(0),
            Self::Status(code) => (200..300).contains(code),
            Self::NoAnswer(_) => false,
        }
    }

    /// Reports whether it says nothing about the site: the hook never began, or was stopped because nobody wanted it
    /// any more. It does not count as a try.
    pub fn is_void(&self) -> bool {
        match self {
            Self::Command(Ended::Withheld(_) | Ended::Unknown(_)) => true,
            Self::Command(Ended::Exit(_) | Ended::Signal(_) | Ended::TimedOut(_) | Ended::NotStarted(_))
            | Self::Status(_)
            | Self::NoAnswer(_) => false,
        }
    }
}

impl fmt::Display for HookEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(end) => end.fmt(f),
            Self::Status(code) => write!(f, "HTTP status {code}"),
            Self::NoAnswer(why) => write!(f, "no answer: {why}"),
        }
    }
}

//! What somebody is told, and what lies in etcd about it: `cketerm/notices/<receiver>` (docs/notices.md).

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An entry waits for a person, or a condition that holds a queue does.
    Stuck,
    /// A command failed, or a repair ended failed.
    Failed,
    /// An entry ended otherwise.
    Finished,
    /// Another engine leads.
    Leader,
    /// A change of the definition waits at the gate.
    Approval,
    /// A freeze was set or lifted.
    Freeze,
    /// A key in etcd cannot be read.
    Broken,
    /// What was stuck, broken or waited for approval is so no longer.
    Cleared,
    /// Several notices, folded into one.
    Many,
    /// A person tries the receiver.
    Test,
}

impl Kind {
    /// Those that a receiver may choose among; the last two come to everybody.
    pub const CHOICE: [Self; 8] = [
        Self::Stuck,
        Self::Failed,
        Self::Finished,
        Self::Leader,
        Self::Approval,
        Self::Freeze,
        Self::Broken,
        Self::Cleared,
    ];
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Stuck,
        Self::Failed,
        Self::Finished,
        Self::Leader,
        Self::Approval,
        Self::Freeze,
        Self::Broken,
        Self::Cleared,
        Self::Many,
        Self::Test,
    ];

    /// Its name in files and notices.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::Failed => "failed",
            Self::Finished => "finished",
            Self::Leader => "leader",
            Self::Approval => "approval",
            Self::Freeze => "freeze",
            Self::Broken => "broken",
            Self::Cleared => "cleared",
            Self::Many => "many",
            Self::Test => "test",
        }
    }

    /// How bad it is, in the words that pagers have.
    pub fn severity(self) -> Severity {
        match self {
            Self::Failed | Self::Broken => Severity::Error,
            Self::Stuck | Self::Approval => Severity::Warning,
            _ => Severity::Info,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// How bad something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nobody has to do anything.
    #[default]
    Info,
    /// A person should look.
    Warning,
    /// Something went wrong.
    Error,
}

/// One notice, as templates and receivers see it. Every field is always there; what is not known is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// The same whenever it is delivered again, another for every other notice of this receiver and cluster.
    pub id: String,
    /// What it is about.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// The condition: the same when it is cleared, and when it comes again.
    pub key: String,
    /// One line.
    pub title: String,
    /// What there is to say, in sentences.
    pub text: String,
    /// When it was noticed.
    pub at: Timestamp,
    /// Since when it is so.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// The cluster's name in the definition.
    #[serde(default)]
    pub cluster: Option<String>,
    /// UID of its `kube-system` namespace.
    #[serde(default)]
    pub cluster_uid: Option<String>,
    /// `reboots/12`.
    #[serde(default)]
    pub entry: Option<String>,
    /// `reboot` or `repair`.
    #[serde(default)]
    pub queue: Option<String>,
    /// The entry's index.
    #[serde(default)]
    pub index: Option<u64>,
    /// The machine's address.
    #[serde(default)]
    pub address: Option<String>,
    /// Its Node's name.
    #[serde(default)]
    pub node: Option<String>,
    /// Its role.
    #[serde(default)]
    pub role: Option<String>,
    /// Its rack, or its zone.
    #[serde(default)]
    pub rack: Option<String>,
    /// The reason's name.
    #[serde(default)]
    pub reason: Option<String>,
    /// Who asked for the entry, or for the freeze.
    #[serde(default)]
    pub requested_by: Option<String>,
    /// Why, or the ticket.
    #[serde(default)]
    pub request_reason: Option<String>,
    /// Where the reason is explained.
    #[serde(default)]
    pub runbook: Option<String>,
    /// The host that leads, and tells it.
    pub leader: String,
    /// How many notices it stands for.
    pub count: u64,
    /// Of a folded one: how many of each kind.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// Of a folded one: the ids of those folded, as far as they are kept.
    #[serde(default)]
    pub ids: Vec<String>,
}

impl Notice {
    /// A notice of a condition; the rest is filled in by whoever knows it.
    pub fn new(kind: Kind, key: String, title: String, at: Timestamp) -> Self {
        Self {
            id: String::new(),
            kind,
            severity: kind.severity(),
            key,
            text: title.clone(),
            title,
            at,
            since: None,
            cluster: None,
            cluster_uid: None,
            entry: None,
            queue: None,
            index: None,
            address: None,
            node: None,
            role: None,
            rack: None,
            reason: None,
            requested_by: None,
            request_reason: None,
            runbook: None,
            leader: String::new(),
            count: 1,
            counts: BTreeMap::new(),
            ids: Vec::new(),
        }
    }
}

/// A notice that is not known to be received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The notice.
    pub notice: Notice,
    /// It may have been received: it is delivered again as it is, and never folded.
    #[serde(default)]
    pub begun: bool,
}

/// A condition that was noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When.
    pub at: Timestamp,
    /// The notice's title, for the one that says that it is over.
    #[serde(default)]
    pub title: String,
}

/// A leadership that was noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leadership {
    /// Create revision of its key in `leader/`.
    pub create_revision: i64,
    /// Host name.
    pub host: String,
}

/// Why a receiver takes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Since when.
    pub since: Timestamp,
    /// What it answered then, in a few words.
    pub why: String,
}

/// `cketerm/notices/<receiver>`: what a receiver was told of, and what it still has to be told. Written by the leader alone,
/// fenced; read by whoever wants to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotifierState {
    /// Number of the next notice.
    pub next: u64,
    /// Create revision of the last ending that was noticed; 0 = this receiver asks for no endings.
    pub cursor: i64,
    /// The leadership that was noticed last.
    pub leader: Option<Leadership>,
    /// The freeze that was noticed, as it stood in the policy.
    pub freeze: Option<serde_json::Value>,
    /// Conditions that were noticed and have not gone, by their keys.
    pub marks: BTreeMap<String, Mark>,
    /// What is not known to be received, oldest first.
    pub pending: Vec<Pending>,
    /// When the last one was received.
    pub delivered: Option<Timestamp>,
    /// Why it takes nothing now.
    pub trouble: Option<Trouble>,
}

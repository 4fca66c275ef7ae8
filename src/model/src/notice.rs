//! Notices, and the state of a receiver in etcd: `cketerm/notices/<receiver>` (docs/notices.md).

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::names::{Address, NodeName};

/// Subject of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An entry, or a condition that holds a queue, waits for an operator.
    Stuck,
    /// A command failed, or a repair ended as failed.
    Failed,
    /// An entry ended otherwise.
    Finished,
    /// Another engine leads.
    Leader,
    /// A change of the definition waits for approval.
    Approval,
    /// A freeze was set or lifted.
    Freeze,
    /// A key in etcd cannot be read.
    Broken,
    /// A condition of the kind stuck, broken or approval has ended.
    Cleared,
    /// Several notices, folded into one.
    Many,
    /// An operator tests the receiver.
    Test,
}

impl Kind {
    /// Kinds that a receiver may choose. The last two of [`Kind::ALL`] go to every receiver.
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
    /// All kinds.
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

    /// Returns its name in files and notices.
    pub fn as_str(self) -> &'static str {
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

    /// Returns its severity in the terms of paging services.
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
        f.pad(self.as_str())
    }
}

/// Severity of a notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No action is needed.
    #[default]
    Info,
    /// An operator should look.
    Warning,
    /// Something failed.
    Error,
}

/// One notice as templates and receivers see it. Every field is present; unknown values are `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Unique within this receiver and cluster. A repeated delivery has the same id.
    pub id: String,
    /// Its subject.
    pub kind: Kind,
    /// Its severity.
    pub severity: Severity,
    /// The condition. The notice that clears it, and a later one of the same condition, have the same key.
    pub key: String,
    /// One line.
    pub title: String,
    /// Text in full sentences.
    pub text: String,
    /// Time at which the condition was noticed.
    pub at: Timestamp,
    /// Start of the condition.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Name of the cluster in the definition.
    #[serde(default)]
    pub cluster: Option<String>,
    /// UID of its `kube-system` namespace.
    #[serde(default)]
    pub cluster_uid: Option<String>,
    /// The entry, such as `reboots/12`.
    #[serde(default)]
    pub entry: Option<String>,
    /// `reboot` or `repair`.
    #[serde(default)]
    pub queue: Option<String>,
    /// Index of the entry.
    #[serde(default)]
    pub index: Option<u64>,
    /// Address of the machine.
    #[serde(default)]
    pub address: Option<Address>,
    /// Name of its Node.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// Its role.
    #[serde(default)]
    pub role: Option<String>,
    /// Its rack, or its zone.
    #[serde(default)]
    pub rack: Option<String>,
    /// Name of the reason.
    #[serde(default)]
    pub reason: Option<String>,
    /// User who requested the entry or the freeze.
    #[serde(default)]
    pub requested_by: Option<String>,
    /// Reason or ticket of that request.
    #[serde(default)]
    pub request_reason: Option<String>,
    /// Link to the explanation of the reason.
    #[serde(default)]
    pub runbook: Option<String>,
    /// Host of the leader, which sends the notice.
    pub leader: String,
    /// Number of notices that it stands for.
    pub count: u64,
    /// Number of notices of each kind, if folded.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// Ids of the folded notices, as far as they are kept.
    #[serde(default)]
    pub ids: Vec<String>,
}

impl Notice {
    /// Returns a notice of a condition. The caller fills in the other fields.
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

/// A notice whose receipt is not confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The notice.
    pub notice: Notice,
    /// Whether it may have been received. It is then delivered again unchanged and never folded.
    #[serde(default)]
    pub begun: bool,
}

/// A noticed condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Time of the notice.
    pub at: Timestamp,
    /// Title of the notice, for the one that clears it.
    #[serde(default)]
    pub title: String,
}

/// A noticed leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leadership {
    /// Create revision of its key in `leader/`.
    pub create_revision: i64,
    /// Host name.
    pub host: String,
}

/// Failure of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Start of the failure.
    pub since: Timestamp,
    /// Short form of the receiver's answer.
    pub why: String,
}

/// Value of `cketerm/notices/<receiver>`: delivered and pending notices of a receiver. Only the leader writes it,
/// fenced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotifierState {
    /// Number of the next notice.
    pub next: u64,
    /// Create revision of the last noticed ending; 0 = this receiver wants no endings.
    pub cursor: i64,
    /// The last noticed leadership.
    pub leader: Option<Leadership>,
    /// The noticed freeze, as stored in the policy.
    pub freeze: Option<serde_json::Value>,
    /// Noticed conditions that have not ended, by key.
    pub marks: BTreeMap<String, Mark>,
    /// Notices whose receipt is not confirmed, oldest first.
    pub pending: Vec<Pending>,
    /// Time of the last confirmed delivery.
    pub delivered: Option<Timestamp>,
    /// The present failure.
    pub trouble: Option<Trouble>,
}

//! Values under `cketerm/`: cketerm's own keys, which CKE never reads (STO-23 to STO-33).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{Attempt, CheckAnswer},
    entry::{EntryId, QueueKind},
    reason::{Blocker, Reason},
};

/// Number of this layout, stored under `cketerm/schema`. With a newer number a program only observes. Version 0.1 wrote
/// 1; the first leader of this version raises it (`store::migrate`).
pub const SCHEMA: u32 = 2;

/// User who requested something, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Login name; `SUDO_USER` under sudo.
    pub user: String,
    /// Host on which cketerm ran.
    pub host: String,
    /// Address of the client in `SSH_CONNECTION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_client: Option<String>,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.user)?;
        if !self.host.is_empty() {
            write!(f, "@{}", self.host)?;
        }
        match &self.ssh_client {
            Some(client) => write!(f, " from {client}"),
            None => Ok(()),
        }
    }
}

/// Value of `cketerm/identity`: the Kubernetes cluster that this etcd prefix belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// UID of the `kube-system` namespace.
    pub uid: String,
    /// User who confirmed it; none while it is only proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<Who>,
    /// Time of the confirmation, else of the proposal.
    pub at: Timestamp,
}

/// Value of `cketerm/engines/<lease>`: one engine. The transaction that writes its key in `leader/` writes this too,
/// under the same lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineRegistration {
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Version of cketerm.
    pub version: String,
    /// `daemon` or `console`.
    pub mode: String,
    /// Address of its HTTP endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Programs of the definition that its host lacks.
    #[serde(default)]
    pub missing_programs: Vec<String>,
    /// Local settings that commands of the definition need and its host lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_settings: Vec<MissingSetting>,
    /// Cause, if its host cannot start any program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    /// Reason why it does not campaign yet although it may: it waits for a complete engine until the time in the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing_back: Option<String>,
    /// Reason why the migration from an older version is not done yet. The engine holds the lock but decides nothing
    /// before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrating: Option<String>,
    /// Whether it has seen a good probe of every control plane.
    #[serde(default)]
    pub probes_seen: bool,
    /// Whether it can query the members of the Kubernetes etcd, or need not.
    #[serde(default)]
    pub etcd_members_seen: bool,
}

/// Local setting that an engine's host lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingSetting {
    /// `networks` in the file of `power.bmcs`: BMCs that the file does not name get no login.
    BmcNetworks,
}

impl fmt::Display for MissingSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BmcNetworks => "a list of BMC networks (`networks` in the file of power.bmcs)",
        })
    }
}

impl EngineRegistration {
    /// Returns true if the engine lacks nothing that is needed to campaign at once (SAF-5).
    pub fn complete(&self) -> bool {
        self.missing_programs.is_empty()
            && self.missing_settings.is_empty()
            && self.unable.is_none()
            && self.standing_back.is_none()
            && self.probes_seen
            && self.etcd_members_seen
    }
}

/// Value of `cketerm/requests/<queue>/<index>`: the user who requested the entry. The transaction that adds the entry
/// writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The user.
    pub who: Who,
    /// Time of the request.
    pub at: Timestamp,
    /// Reason or ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// UID of the Kubernetes Node at that time, if the program read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
}

/// Value of `cketerm/progress/<queue>/<index>`: the leader's view of an entry, under its lease, for every console.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Current phase: `cordoning`, `previewing`, `evicting`, `waiting for pods`, `rebooting` …
    pub phase: String,
    /// Start of the phase.
    pub since: Timestamp,
    /// Number of pods at the start of the drain.
    pub pods_at_start: u32,
    /// Number of those pods that are gone.
    pub pods_gone: u32,
    /// Reason why the entry does not move, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Remaining pods, each with its blocker.
    #[serde(default)]
    pub blockers: Vec<Blocker>,
    /// Time of the next event, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// Current step of a repair, counted from 0, and the number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<(i64, usize)>,
    /// Answer of a repair's health check, and the time since which it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<(Timestamp, CheckAnswer)>,
}

/// Orders that an operator may give for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Keep the entry from starting.
    Hold,
    /// Let the entry start again.
    Unhold,
    /// Run the command once more.
    Retry,
    /// Treat the machine as booted or healthy.
    Done,
    /// Skip pods and volumes.
    Force,
    /// Release an orphaned cordon.
    Uncordon,
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Hold => "hold",
            Self::Unhold => "unhold",
            Self::Retry => "retry",
            Self::Done => "done",
            Self::Force => "force",
            Self::Uncordon => "uncordon",
        })
    }
}

/// Value of `cketerm/orders/<queue>/<index>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The order.
    pub verb: Verb,
    /// User who gave it.
    pub who: Who,
    /// Time of the order.
    pub at: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// ModRevision of the entry for which it was given. Any later change of the entry makes the order void, except
    /// `hold` and `force` (STO-31).
    pub entry_revision: i64,
}

/// The ways an entry ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// Its machine has booted.
    Booted,
    /// An operator declared it done.
    Done,
    /// Its machine was repaired.
    Succeeded,
    /// Its repair failed.
    Failed,
    /// An operator cancelled it.
    Cancelled,
    /// An operator deleted the repair.
    Deleted,
    /// Its node left the cluster definition.
    Dequeued,
    /// Unknown: the record is of a version that stored the text alone.
    #[default]
    Unrecorded,
}

impl EndKind {
    /// Reports whether the entry reached its goal.
    pub fn good(self) -> bool {
        match self {
            Self::Booted | Self::Done | Self::Succeeded => true,
            Self::Failed | Self::Cancelled | Self::Deleted | Self::Dequeued | Self::Unrecorded => false,
        }
    }

    /// Reports whether the entry was taken out of its queue: it neither reached its goal nor failed.
    pub fn withdrawn(self) -> bool {
        match self {
            Self::Cancelled | Self::Deleted | Self::Dequeued => true,
            Self::Booted | Self::Done | Self::Succeeded | Self::Failed | Self::Unrecorded => false,
        }
    }
}

/// `cketerm/history/<id>`: one entry that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// The entry.
    pub entry: EntryId,
    /// Address of the machine.
    pub address: String,
    /// Kind of its end.
    #[serde(default)]
    pub end: EndKind,
    /// The same for people: `booted`, `cancelled`, `dequeued: …`, `done by …`.
    pub outcome: String,
    /// Time of the end.
    pub at: Timestamp,
    /// Last state of the entry, in CKE's JSON.
    pub last: serde_json::Value,
    /// The request for the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// Attempts of the entry: the first one and the newest, see [`Ending::bounded`].
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// Number of attempts that are not kept.
    #[serde(default, skip_serializing_if = "super::attempt::none")]
    pub omitted: u32,
}

/// Number of attempts that an ending keeps.
const MAX_ATTEMPTS: usize = 32;
/// Maximum number of bytes of an ending's attempts, and of its entry.
const MAX_ATTEMPTS_BYTES: usize = 256 << 10;
const MAX_ENTRY_BYTES: usize = 128 << 10;

impl Ending {
    /// Returns an ending that can always be stored. It keeps the first attempt and as many of the newest ones as fit,
    /// and the number of the others. An entry of excessive size is left out.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let size = |value: &serde_json::Value| value.to_string().len();
        if size(&self.last) > MAX_ENTRY_BYTES {
            self.last = serde_json::json!({ "left_out": format!("{} bytes", size(&self.last)) });
        }
        let before: u32 = self.attempts.iter().map(|a| a.folded).sum();
        let (mut bytes_left, mut kept_indexes) = (MAX_ATTEMPTS_BYTES, std::collections::BTreeSet::new());
        let last = self.attempts.len().saturating_sub(1);
        // The newest attempt first, which holds the end; then the first one; then the others from new to old.
        for index in (0..self.attempts.len()).rev().take(1).chain([0]).chain((0..last).rev()) {
            let Some(attempt) = self.attempts.get(index).filter(|_| !kept_indexes.contains(&index)) else { continue };
            let bytes = serde_json::to_string(attempt).map_or(0, |text| text.len());
            if kept_indexes.len() == MAX_ATTEMPTS || bytes > bytes_left {
                break;
            }
            bytes_left -= bytes;
            kept_indexes.insert(index);
        }
        let all = std::mem::take(&mut self.attempts).into_iter().enumerate();
        let (retained, dropped): (Vec<_>, Vec<_>) = all.partition(|(index, _)| kept_indexes.contains(index));
        self.attempts = retained.into_iter().map(|(_, attempt)| attempt).collect();
        self.omitted = self.omitted.max(before.saturating_add(u32::try_from(dropped.len()).unwrap_or(u32::MAX)));
        self
    }
}

/// Value of `cketerm/approvals/<digest>`: an operator approves one change of the definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The user.
    pub who: Who,
    /// Time of the approval.
    pub at: Timestamp,
    /// Time at which it expires.
    pub until: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Value of `cketerm/approvals/hold`: no change is applied while it exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The user.
    pub who: Who,
    /// Time of the hold.
    pub at: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Value of `cketerm/stopped`: `cketerm stop` disabled both queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The user.
    pub who: Who,
    /// Time of the stop.
    pub at: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Queues that were enabled before. `cketerm resume` enables them again.
    pub queues: Vec<QueueKind>,
}

/// Value of `cketerm/generated`: cketerm's last change of the definition, written in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generated {
    /// Time of the change.
    pub at: Timestamp,
    /// Kind of change: `replace-control-plane` …
    pub action: String,
    /// Reason.
    pub reason: String,
    /// Addresses of the control planes that it added. No further change is applied until they are Ready.
    pub joining: Vec<String>,
    /// User who approved it, if that was necessary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<Who>,
}

/// Further tries that one audit record covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Number of tries, including the first.
    pub count: u32,
    /// Time of the last try.
    pub last: Timestamp,
}

/// Value of `cketerm/audit/<id>`: one action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Time of the action; of several tries, the first.
    pub at: Timestamp,
    /// A user, or the engine (`engine@host`).
    pub who: Who,
    /// Action: `reboot add`, `reboot cancel`, `queue disable`, `cordon`, `power` …
    pub what: String,
    /// Object: entries, nodes, a key.
    pub on: String,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Result; of several tries, that of the last one.
    pub result: String,
    /// True if the action failed or was refused. Records of 0.1 lack the field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Entry that an engine acted for, if the object is another one (its Node, its pods).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryId>,
    /// Further tries that this record covers.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeats>,
}

impl Audit {
    /// Returns the time of the last try.
    pub fn last(&self) -> Timestamp {
        self.repeats.map_or(self.at, |repeats| repeats.last)
    }

    /// Returns the number of tries.
    pub fn count(&self) -> u32 {
        self.repeats.map_or(1, |repeats| repeats.count)
    }

    /// Returns the action, with the number of tries if there were several.
    pub fn what_with_count(&self) -> String {
        match self.count() {
            1 => self.what.clone(),
            count => format!("{} x{count}", self.what),
        }
    }

    /// Returns the record after another try.
    #[must_use]
    pub fn again(self, at: Timestamp, reason: Option<String>, result: &str) -> Self {
        let repeats = Some(Repeats { count: self.count().saturating_add(1), last: at.max(self.last()) });
        Self { reason, result: result.to_owned(), failed: false, repeats, ..self }
    }

    /// Returns true if an engine is the author.
    pub fn by_engine(&self) -> bool {
        self.who.user == "engine"
    }

    /// Returns the record for display: secrets in the result, for example in an old command line, are masked.
    #[must_use]
    pub fn shown(&self) -> Self {
        Self { result: super::secret::masked(&self.result), ..self.clone() }
    }
}

/// Value of `status`: the leader's phase in CKE's terms, under its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `uncordon-nodes`, `repair-machines`, `reboot-nodes`, `completed`; CKE has more.
    pub phase: String,
    /// RFC 3339 with nanoseconds.
    pub timestamp: String,
}

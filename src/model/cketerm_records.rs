//! What lies under `cketerm/`: our own keys, which CKE never reads (spec/etcd.md, Our own keys).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{Attempt, CheckAnswer},
    entry::{EntryId, QueueKind},
    reason::{Blocker, Reason},
};

/// The number of this layout, under `cketerm/schema`. A newer one than ours: observe only. 1 is what 0.1 wrote; the first
/// leader of this version raises it (`store::migrate`).
pub const SCHEMA: u32 = 2;

/// Who asked for something, from where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The login name; `SUDO_USER` where the program runs under sudo.
    pub user: String,
    /// The host cketerm ran on.
    pub host: String,
    /// The client's address in `SSH_CONNECTION`.
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

/// `cketerm/identity`: which Kubernetes cluster this etcd prefix belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// UID of the `kube-system` namespace.
    pub uid: String,
    /// Who confirmed it; none while it is only proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<Who>,
    /// When it was confirmed, else when it was proposed.
    pub at: Timestamp,
}

/// `cketerm/engines/<lease>`: one engine, in the transaction and under the lease of its key in `leader/`.
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
    /// Why its host can start no program at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    /// Why it does not campaign yet although it may: it waits for an engine that lacks nothing, and says until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing_back: Option<String>,
    /// It has the lock, but does nothing before what an older version wrote is in the form of this one: why it is not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrating: Option<String>,
    /// Whether it has seen every control plane's probe good.
    #[serde(default)]
    pub probes_seen: bool,
    /// Whether it can ask the members of the etcd of Kubernetes, or need not.
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
    /// Lacks nothing that campaigning at once asks for (spec/safety.md, Preflight).
    pub fn complete(&self) -> bool {
        self.missing_programs.is_empty()
            && self.missing_settings.is_empty()
            && self.unable.is_none()
            && self.standing_back.is_none()
            && self.probes_seen
            && self.etcd_members_seen
    }
}

/// `cketerm/requests/<queue>/<index>`: who asked for the entry; in the enqueue transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Who.
    pub who: Who,
    /// When.
    pub at: Timestamp,
    /// Reason or ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// UID of the Kubernetes Node at that time, where the program asked Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
}

/// `cketerm/progress/<queue>/<index>`: what the leader sees, under its lease, for every console.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// What is being done, in words: `cordoning`, `previewing`, `evicting`, `waiting for pods`, `rebooting` …
    pub phase: String,
    /// Since when.
    pub since: Timestamp,
    /// Pods that were there at the start of the drain.
    pub pods_at_start: u32,
    /// How many of them are gone.
    pub pods_gone: u32,
    /// Why it does not move, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The pods that are left, each with what holds it.
    #[serde(default)]
    pub blockers: Vec<Blocker>,
    /// When something happens next, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// The current step of a repair, counted from 0, and how many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<(i64, usize)>,
    /// What the health check of a repair answers, and since when it has answered that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<(Timestamp, CheckAnswer)>,
}

/// What a person may order for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Keep it from starting.
    Hold,
    /// Let it start again.
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

/// `cketerm/orders/<queue>/<index>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What.
    pub verb: Verb,
    /// Who.
    pub who: Who,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The entry's ModRevision it was given for: it dies with any later change of the entry.
    pub entry_revision: i64,
}

/// `cketerm/history/<id>`: one entry that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// The entry.
    pub entry: EntryId,
    /// The machine.
    pub address: String,
    /// `booted`, `cancelled`, `dequeued: …`, `done by …`.
    pub outcome: String,
    /// When it ended.
    pub at: Timestamp,
    /// The entry as it was last, in CKE's JSON.
    pub last: serde_json::Value,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// Its attempts: the first one and the newest, see [`Ending::bounded`].
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// So many others are not kept.
    #[serde(default, skip_serializing_if = "super::attempt::none")]
    pub omitted: u32,
}

/// Attempts that an ending keeps.
const KEPT_ATTEMPTS: usize = 32;
/// Bytes that the attempts of an ending take at most, and those that its entry may take.
const ATTEMPTS_BYTES: usize = 256 << 10;
const ENTRY_BYTES: usize = 128 << 10;

impl Ending {
    /// So that it can always be stored: the first attempt and the newest ones, as many as there is room for, and the number
    /// of the others. An entry that somebody made huge is left out.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let size = |value: &serde_json::Value| value.to_string().len();
        if size(&self.last) > ENTRY_BYTES {
            self.last = serde_json::json!({ "left_out": format!("{} bytes", size(&self.last)) });
        }
        let before: u32 = self.attempts.iter().map(|a| a.folded).sum();
        let (mut room, mut kept) = (ATTEMPTS_BYTES, std::collections::BTreeSet::new());
        let last = self.attempts.len().saturating_sub(1);
        // the newest first, which tells how it ended; then the first, then the others backwards
        for place in (0..self.attempts.len()).rev().take(1).chain([0]).chain((0..last).rev()) {
            let Some(attempt) = self.attempts.get(place).filter(|_| !kept.contains(&place)) else { continue };
            let bytes = serde_json::to_string(attempt).map_or(0, |text| text.len());
            if kept.len() == KEPT_ATTEMPTS || bytes > room {
                break;
            }
            room -= bytes;
            kept.insert(place);
        }
        let all = std::mem::take(&mut self.attempts).into_iter().enumerate();
        let (stay, go): (Vec<_>, Vec<_>) = all.partition(|(place, _)| kept.contains(place));
        self.attempts = stay.into_iter().map(|(_, attempt)| attempt).collect();
        self.omitted = self.omitted.max(before.saturating_add(u32::try_from(go.len()).unwrap_or(u32::MAX)));
        self
    }
}

/// `cketerm/approvals/<digest>`: a person lets one change of the definition pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Who.
    pub who: Who,
    /// When.
    pub at: Timestamp,
    /// It ends then.
    pub until: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `cketerm/approvals/hold`: nothing is applied while it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Who.
    pub who: Who,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `cketerm/stopped`: both queues were disabled by `cketerm stop`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Who.
    pub who: Who,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The queues that were enabled, which `cketerm resume` enables again.
    pub queues: Vec<QueueKind>,
}

/// `cketerm/generated`: our last change of the definition, in the transaction that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generated {
    /// When.
    pub at: Timestamp,
    /// What it did, in the seed's words: `replace-control-plane` …
    pub action: String,
    /// Why.
    pub reason: String,
    /// Addresses of the control planes that it added: nothing further is changed until they are Ready.
    pub joining: Vec<String>,
    /// Who approved it, where somebody had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<Who>,
}

/// Tries after the first one that an audit record stands for, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// How many tries there were, the first included.
    pub count: u32,
    /// When the last of them was.
    pub last: Timestamp,
}

/// `cketerm/audit/<id>`: who did what on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// When; of several tries, the first.
    pub at: Timestamp,
    /// Who: a person, or the engine (`engine@host`).
    pub who: Who,
    /// What: `reboot add`, `reboot cancel`, `queue disable`, `cordon`, `power` …
    pub what: String,
    /// On what: entries, nodes, a key.
    pub on: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What came of it; of several tries, of the last one.
    pub result: String,
    /// It was tried again: one record tells of all tries.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeats>,
}

impl Audit {
    /// When it was done last.
    pub fn last(&self) -> Timestamp {
        self.repeats.map_or(self.at, |repeats| repeats.last)
    }

    /// How often it was done.
    pub fn count(&self) -> u32 {
        self.repeats.map_or(1, |repeats| repeats.count)
    }

    /// What was done, and how often where it was tried again.
    pub fn what_and_how_often(&self) -> String {
        match self.count() {
            1 => self.what.clone(),
            count => format!("{} ×{count}", self.what),
        }
    }

    /// The same record after another try.
    #[must_use]
    pub fn again(self, at: Timestamp, reason: Option<String>, result: &str) -> Self {
        let repeats = Some(Repeats { count: self.count().saturating_add(1), last: at.max(self.last()) });
        Self { reason, result: result.to_owned(), repeats, ..self }
    }

    /// An engine did it, no person.
    pub fn by_engine(&self) -> bool {
        self.who.user == "engine"
    }

    /// For people: what looks like a secret in what came of it, a command line of old, is left out.
    #[must_use]
    pub fn shown(&self) -> Self {
        Self { result: super::secret::masked(&self.result), ..self.clone() }
    }
}

/// `status`: what the leader is at, in CKE's words, under its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `uncordon-nodes`, `repair-machines`, `reboot-nodes`, `completed`; CKE has more.
    pub phase: String,
    /// RFC 3339 with nanoseconds.
    pub timestamp: String,
}

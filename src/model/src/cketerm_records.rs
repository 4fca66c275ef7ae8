//! Values under `cketerm/`: cketerm's own keys, which CKE never reads (STO-23 to STO-33).

mod accepted_cancel;
mod audit;
mod ending;
mod needed;

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    accepted_cancel::{AcceptedCancel, REPEATED_CANCEL, REPEATED_DELETION, repeated},
    audit::{Audit, OneAnAction, Repeats},
    ending::{EndKind, Ending},
    needed::{Needed, NeededEntry, NeededLog, NeededReboot, NeededSignal, REBOOT_NEEDED_USER},
};
pub use super::verb::Verb;
use super::{
    attempt::CheckAnswer,
    batch::id::BatchId,
    entry::QueueKind,
    names::{Address, NodeName},
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

/// Form in which an engine runs. Stored as one word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EngineMode {
    /// Without a screen.
    #[default]
    Daemon,
    /// In the process of a console.
    Console,
    /// As a newer version calls it.
    Other(String),
}

impl From<String> for EngineMode {
    fn from(word: String) -> Self {
        match word.as_str() {
            "daemon" => Self::Daemon,
            "console" => Self::Console,
            _ => Self::Other(word),
        }
    }
}

impl From<EngineMode> for String {
    fn from(mode: EngineMode) -> Self {
        mode.to_string()
    }
}

impl fmt::Display for EngineMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Daemon => "daemon",
            Self::Console => "console",
            Self::Other(word) => word,
        })
    }
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
    pub mode: EngineMode,
    /// Address of its HTTP endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// The Node on which it runs, if it runs in a pod that knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
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

/// Number of addresses that a registration names.
const NAMED: usize = 5;

/// Local setting that an engine's host lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingSetting {
    /// `networks` in the file of `power.bmcs`: BMCs that the file does not name get no login.
    BmcNetworks,
    /// Entries of the file of `power.bmcs` that can be used: those of some machines are refused.
    BmcEntries {
        /// The first addresses.
        addresses: Vec<Address>,
        /// Number of further ones.
        more: usize,
    },
    /// A file of `power.bmcs` that can be read.
    BmcFile,
}

impl fmt::Display for MissingSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BmcNetworks => f.write_str("a list of BMC networks (`networks` in the file of power.bmcs)"),
            Self::BmcEntries { addresses, more } => {
                write!(f, "usable entries in the file of power.bmcs for {}", addresses.join(", "))?;
                if *more > 0 {
                    write!(f, " and {more} more")?;
                }
                f.write_str(" (`cketerm config check` names the faults)")
            }
            Self::BmcFile => f.write_str("a readable file of power.bmcs (`cketerm config check` names the fault)"),
        }
    }
}

impl MissingSetting {
    /// Returns the lack of usable entries for these machines, if there are any.
    pub fn bmc_entries<'a>(machines: impl IntoIterator<Item = &'a Address>) -> Option<Self> {
        let mut machines = machines.into_iter();
        let addresses: Vec<Address> = machines.by_ref().take(NAMED).cloned().collect();
        (!addresses.is_empty()).then(|| Self::BmcEntries { addresses, more: machines.count() })
    }

    /// Returns the setting as a header names it.
    pub fn short(&self) -> &'static str {
        match self {
            Self::BmcNetworks => "BMC networks",
            Self::BmcEntries { .. } => "usable BMC entries",
            Self::BmcFile => "file of BMCs",
        }
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
    /// The batch of the entry. Version 0.1 wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
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

/// Value of `cketerm/daemon`: the first daemon that registered. The transaction that registers it writes this. It stays
/// when the daemon is gone: from then on consoles do not campaign by themselves (policy `console_leads`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstDaemon {
    /// Its host.
    pub host: String,
    /// Its version of cketerm.
    pub version: String,
    /// Time of the registration.
    pub at: Timestamp,
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
    pub joining: Vec<Address>,
    /// User who approved it, if that was necessary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<Who>,
}

/// Value of `cketerm/absent`: members of the definition that have no Node, if the definition follows the Nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absences {
    /// Address of each, with the time since which a leader has seen no Node of it.
    pub since: BTreeMap<Address, Timestamp>,
}

/// Value of `status`: the leader's phase in CKE's terms, under its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `uncordon-nodes`, `repair-machines`, `reboot-nodes`, `completed`; CKE has more.
    pub phase: String,
    /// RFC 3339 with nanoseconds.
    pub timestamp: String,
}

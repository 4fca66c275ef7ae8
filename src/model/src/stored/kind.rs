//! Kinds of keys: the meaning of each key, without its prefix.

use serde::{Deserialize, Serialize};

use crate::{
    batch::id::BatchId,
    entry::{EntryId, QueueKind},
    names::NodeName,
};

/// One of the four switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchName {
    /// `reboots/disabled`.
    Reboots,
    /// `repairs/disabled`.
    Repairs,
    /// `sabakan/disabled`.
    Sabakan,
    /// `auto-repair/disabled`.
    AutoRepair,
}

impl SwitchName {
    /// Returns the folder that holds the switch; also its name in messages.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Reboots => "reboots",
            Self::Repairs => "repairs",
            Self::Sabakan => "sabakan",
            Self::AutoRepair => "auto-repair",
        }
    }

    /// Returns the name for display.
    pub fn title(self) -> &'static str {
        match self {
            Self::Reboots => "reboot queue",
            Self::Repairs => "repair queue",
            Self::Sabakan => "sabakan integration",
            Self::AutoRepair => "automatic repair",
        }
    }
}

impl From<QueueKind> for SwitchName {
    fn from(queue: QueueKind) -> Self {
        match queue {
            // maintenance drains Nodes as reboots do, so it follows their switch
            QueueKind::Reboot | QueueKind::Maintenance => Self::Reboots,
            QueueKind::Repair => Self::Repairs,
        }
    }
}

/// Folders that only grow and are read on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Folder {
    /// `cketerm/history/`: ended entries.
    History,
    /// `cketerm/audit/`: audit records.
    Audit,
    /// `records/`: CKE's operation records.
    Records,
}

impl Folder {
    /// All folders.
    pub const ALL: [Self; 3] = [Self::History, Self::Audit, Self::Records];
}

/// Keys that the registry module reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryKey {
    /// `sabakan/url`.
    Url,
    /// `sabakan/template`.
    Template,
    /// `sabakan/query-variables`.
    Variables,
    /// `auto-repair/query-variables`.
    RepairVariables,
    /// `cluster-revision`.
    ClusterRevision,
    /// `cketerm/generated`.
    Generated,
    /// `cketerm/absent`.
    Absent,
    /// `cketerm/approvals/hold`.
    Hold,
    /// `cketerm/approvals/<digest>`.
    Approval(String),
}

/// Kind of a key. Indexes, leases and numbers are those of the *key*; `Err` holds the unreadable part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// `leader//<lease>`; 0 if the lease cannot be read.
    Candidate(i64),
    /// `cluster`.
    Cluster,
    /// `constraints`.
    Constraints,
    /// `<folder>/disabled`.
    Switch(SwitchName),
    /// `reboots/write-index`, `repairs/write-index`, `cketerm/maintenance/write-index`.
    WriteIndex(QueueKind),
    /// `reboots/data/%016x`, `repairs/data/%016x`, `cketerm/maintenance/data/%016x`.
    Entry(QueueKind, Result<u64, String>),
    /// Inputs of the generated definition, and approvals.
    Registry(RegistryKey),
    /// `status`.
    Status,
    /// `cketerm/schema`.
    Schema,
    /// `cketerm/migration`.
    Migration,
    /// `cketerm/identity`.
    Identity,
    /// `cketerm/policy`.
    Policy,
    /// `cketerm/stopped`.
    Stopped,
    /// `cketerm/daemon`.
    Daemon,
    /// `cketerm/needed/<node>`.
    Needed(NodeName),
    /// `cketerm/needed-log`.
    NeededLog,
    /// `cketerm/maintenance-requests/<uid>`.
    MaintenanceRequest(String),
    /// `cketerm/outcomes/<%016x>`.
    Outcome(Result<u64, String>),
    /// `cketerm/breaker-reset`.
    BreakerReset,
    /// `cketerm/constraints`.
    OurConstraints,
    /// `cketerm/engines/<lease>`.
    Engine(Result<i64, String>),
    /// `cketerm/requests/<queue>/<index>`.
    Request(Result<EntryId, String>),
    /// `cketerm/attempts/<queue>/<index>/<n>`.
    Attempt(Result<(EntryId, u32), String>),
    /// `cketerm/results/<attempt>`.
    Result(Result<(EntryId, u32), String>),
    /// `cketerm/output/<attempt>`.
    Output(Result<(EntryId, u32), String>),
    /// `cketerm/progress/<queue>/<index>`.
    Progress(Result<EntryId, String>),
    /// `cketerm/orders/<queue>/<index>`.
    Order(Result<EntryId, String>),
    /// `cketerm/cancels/<queue>/<index>`.
    Cancel(Result<EntryId, String>),
    /// `cketerm/hooks/<queue>/<index>`.
    Hooks(Result<EntryId, String>),
    /// `cketerm/batches/<id>`.
    Batch(Result<BatchId, String>),
    /// `cketerm/batches/<id>/<queue>/<index>`.
    BatchEnd(Result<(BatchId, EntryId), String>),
    /// `records/…`, `cketerm/history/…`, `cketerm/audit/…`: read on demand, not part of the live copy.
    OnDemand(Folder),
    /// `reboots/running`.
    Running,
    /// Any other key, of another program or a newer cketerm.
    Other,
}

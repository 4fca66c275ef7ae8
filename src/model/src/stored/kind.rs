//! Kinds of keys: the mapping from a key back to its meaning.

use serde::{Deserialize, Serialize};

use super::keys::Keys;
use crate::{
    attempt::parse_attempt_id,
    entry::{EntryId, QueueKind},
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
            QueueKind::Reboot => Self::Reboots,
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

    /// Reports whether the folder's ids begin with the time at which they were written.
    pub fn has_time_keys(self) -> bool {
        self != Self::Records
    }
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
    /// `reboots/write-index`, `repairs/write-index`.
    WriteIndex(QueueKind),
    /// `reboots/data/%016x`, `repairs/data/%016x`.
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
    /// `cketerm/progress/<queue>/<index>`.
    Progress(Result<EntryId, String>),
    /// `cketerm/orders/<queue>/<index>`.
    Order(Result<EntryId, String>),
    /// `records/…`, `cketerm/history/…`, `cketerm/audit/…`: read on demand, not part of the live copy.
    OnDemand(Folder),
    /// `reboots/running`.
    Running,
    /// Any other key, of another program or a newer cketerm.
    Other,
}

impl Keys {
    /// Returns the kind of a key; `None` for a key outside the prefix or one that is not text.
    pub fn parse(&self, key: &[u8]) -> Option<KeyKind> {
        let suffix = std::str::from_utf8(key).ok()?.strip_prefix(self.prefix())?;
        Some(match suffix {
            "cluster" => KeyKind::Cluster,
            "constraints" => KeyKind::Constraints,
            "status" => KeyKind::Status,
            "reboots/running" => KeyKind::Running,
            "reboots/disabled" => KeyKind::Switch(SwitchName::Reboots),
            "repairs/disabled" => KeyKind::Switch(SwitchName::Repairs),
            "sabakan/disabled" => KeyKind::Switch(SwitchName::Sabakan),
            "auto-repair/disabled" => KeyKind::Switch(SwitchName::AutoRepair),
            "reboots/write-index" => KeyKind::WriteIndex(QueueKind::Reboot),
            "repairs/write-index" => KeyKind::WriteIndex(QueueKind::Repair),
            "sabakan/url" => KeyKind::Registry(RegistryKey::Url),
            "sabakan/template" => KeyKind::Registry(RegistryKey::Template),
            "sabakan/query-variables" => KeyKind::Registry(RegistryKey::Variables),
            "auto-repair/query-variables" => KeyKind::Registry(RegistryKey::RepairVariables),
            "cluster-revision" => KeyKind::Registry(RegistryKey::ClusterRevision),
            "cketerm/generated" => KeyKind::Registry(RegistryKey::Generated),
            "cketerm/approvals/hold" => KeyKind::Registry(RegistryKey::Hold),
            "cketerm/schema" => KeyKind::Schema,
            "cketerm/migration" => KeyKind::Migration,
            "cketerm/identity" => KeyKind::Identity,
            "cketerm/policy" => KeyKind::Policy,
            "cketerm/stopped" => KeyKind::Stopped,
            "cketerm/constraints" => KeyKind::OurConstraints,
            _ => parse_folder_key(suffix),
        })
    }
}

fn parse_folder_key(suffix: &str) -> KeyKind {
    let strip = |folder: &str| suffix.strip_prefix(folder);
    if let Some(lease) = strip("leader//") {
        KeyKind::Candidate(parse_lease_id(lease).unwrap_or(0))
    } else if let Some(index) = strip("reboots/data/") {
        KeyKind::Entry(QueueKind::Reboot, parse_index(index))
    } else if let Some(index) = strip("repairs/data/") {
        KeyKind::Entry(QueueKind::Repair, parse_index(index))
    } else if let Some(lease) = strip("cketerm/engines/") {
        KeyKind::Engine(parse_lease_id(lease))
    } else if let Some(id) = strip("cketerm/requests/") {
        KeyKind::Request(parse_entry_id(id))
    } else if let Some(rest) = strip("cketerm/attempts/") {
        KeyKind::Attempt(parse_attempt_key(rest))
    } else if let Some(id) = strip("cketerm/results/") {
        KeyKind::Result(parse_attempt_id(id).ok_or_else(|| format!("{id:?} is not an attempt id")))
    } else if let Some(id) = strip("cketerm/progress/") {
        KeyKind::Progress(parse_entry_id(id))
    } else if let Some(id) = strip("cketerm/orders/") {
        KeyKind::Order(parse_entry_id(id))
    } else if let Some(digest) = strip("cketerm/approvals/").filter(|d| !d.contains('/')) {
        KeyKind::Registry(RegistryKey::Approval(digest.to_owned()))
    } else if suffix.starts_with("cketerm/history/") {
        KeyKind::OnDemand(Folder::History)
    } else if suffix.starts_with("cketerm/audit/") {
        KeyKind::OnDemand(Folder::Audit)
    } else if suffix.starts_with("records/") {
        KeyKind::OnDemand(Folder::Records)
    } else {
        KeyKind::Other
    }
}

/// Accepts only the written form: upper case or another length would give one entry two keys (STO-10).
fn parse_index(text: &str) -> Result<u64, String> {
    let number = u64::from_str_radix(text, 16).ok().filter(|n| format!("{n:016x}") == text);
    number.ok_or_else(|| format!("{text:?} is not an index of 16 hex digits"))
}

fn parse_lease_id(text: &str) -> Result<i64, String> {
    let number = i64::from_str_radix(text, 16).ok().filter(|n| format!("{n:x}") == text);
    number.ok_or_else(|| format!("{text:?} is not a lease id in hex"))
}

fn parse_entry_id(text: &str) -> Result<EntryId, String> {
    text.parse().and_then(|id: EntryId| if id.to_string() == text { Ok(id) } else { Err(format!("expected {id}")) })
}

fn parse_attempt_key(text: &str) -> Result<(EntryId, u32), String> {
    let (entry, number) = text.rsplit_once('/').ok_or_else(|| format!("{text:?} is not an attempt id"))?;
    let parsed = number.parse().ok().filter(|n: &u32| n.to_string() == number);
    Ok((parse_entry_id(entry)?, parsed.ok_or_else(|| format!("{number:?} is not an attempt number"))?))
}

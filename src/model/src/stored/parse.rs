//! Mapping from a key back to its meaning.

use super::{
    keys::Keys,
    kind::{Folder, KeyKind, RegistryKey, SwitchName},
};
use crate::{
    attempt::parse_attempt_id,
    entry::{EntryId, QueueKind},
    names::NodeName,
};

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
            "cketerm/maintenance/write-index" => KeyKind::WriteIndex(QueueKind::Maintenance),
            "sabakan/url" => KeyKind::Registry(RegistryKey::Url),
            "sabakan/template" => KeyKind::Registry(RegistryKey::Template),
            "sabakan/query-variables" => KeyKind::Registry(RegistryKey::Variables),
            "auto-repair/query-variables" => KeyKind::Registry(RegistryKey::RepairVariables),
            "cluster-revision" => KeyKind::Registry(RegistryKey::ClusterRevision),
            "cketerm/generated" => KeyKind::Registry(RegistryKey::Generated),
            "cketerm/absent" => KeyKind::Registry(RegistryKey::Absent),
            "cketerm/approvals/hold" => KeyKind::Registry(RegistryKey::Hold),
            "cketerm/schema" => KeyKind::Schema,
            "cketerm/migration" => KeyKind::Migration,
            "cketerm/identity" => KeyKind::Identity,
            "cketerm/policy" => KeyKind::Policy,
            "cketerm/stopped" => KeyKind::Stopped,
            "cketerm/daemon" => KeyKind::Daemon,
            "cketerm/needed-log" => KeyKind::NeededLog,
            "cketerm/breaker-reset" => KeyKind::BreakerReset,
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
    } else if let Some(index) = strip("cketerm/maintenance/data/") {
        KeyKind::Entry(QueueKind::Maintenance, parse_index(index))
    } else if let Some(lease) = strip("cketerm/engines/") {
        KeyKind::Engine(parse_lease_id(lease))
    } else if let Some(id) = strip("cketerm/requests/") {
        KeyKind::Request(parse_entry_id(id))
    } else if let Some(rest) = strip("cketerm/attempts/") {
        KeyKind::Attempt(parse_attempt_key(rest))
    } else if let Some(id) = strip("cketerm/results/") {
        KeyKind::Result(parse_attempt_id(id).ok_or_else(|| format!("{id:?} is not an attempt id")))
    } else if let Some(id) = strip("cketerm/output/") {
        KeyKind::Output(parse_attempt_id(id).ok_or_else(|| format!("{id:?} is not an attempt id")))
    } else if let Some(id) = strip("cketerm/progress/") {
        KeyKind::Progress(parse_entry_id(id))
    } else if let Some(id) = strip("cketerm/orders/") {
        KeyKind::Order(parse_entry_id(id))
    } else if let Some(id) = strip("cketerm/cancels/") {
        KeyKind::Cancel(parse_entry_id(id))
    } else if let Some(id) = strip("cketerm/hooks/") {
        KeyKind::Hooks(parse_entry_id(id))
    } else if let Some(rest) = strip("cketerm/batches/") {
        match rest.split_once('/') {
            None => KeyKind::Batch(rest.parse()),
            Some((batch, entry)) => KeyKind::BatchEnd(batch.parse().and_then(|id| Ok((id, parse_entry_id(entry)?)))),
        }
    } else if let Some(node) = strip("cketerm/needed/").filter(|node| !node.is_empty() && !node.contains('/')) {
        KeyKind::Needed(NodeName::new(node))
    } else if let Some(uid) = strip("cketerm/maintenance-requests/").filter(|uid| !uid.is_empty() && !uid.contains('/'))
    {
        KeyKind::MaintenanceRequest(uid.to_owned())
    } else if let Some(index) = strip("cketerm/outcomes/") {
        KeyKind::Outcome(parse_index(index))
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

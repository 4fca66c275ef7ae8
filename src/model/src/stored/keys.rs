//! Keys below the prefix (STO-7, STO-23). Only this module and its inverse, `parse`, spell keys.

use std::sync::Arc;

pub use super::kind::{Folder, KeyKind, RegistryKey, SwitchName};
use super::transaction::Span;
use crate::{
    batch::id::BatchId,
    entry::{EntryId, QueueKind},
    names::NodeName,
};

/// Keys below one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    /// Creates the keys that begin with exactly `prefix`, as CKE does: its default is `/cke/`, and `/cke` would give
    /// `/ckecluster` (STO-1).
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    /// Prefix of all keys, including its slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn at(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    /// `leader//`: prefix of every candidate's key.
    pub fn leader_prefix(&self) -> String {
        self.at("leader//")
    }

    /// `leader//<lease>`.
    pub fn leader(&self, lease: i64) -> String {
        self.at(&format!("leader//{lease:x}"))
    }

    /// `cluster`.
    pub fn cluster(&self) -> String {
        self.at("cluster")
    }

    /// `cluster-revision`.
    pub fn cluster_revision(&self) -> String {
        self.at("cluster-revision")
    }

    /// `constraints`.
    pub fn constraints(&self) -> String {
        self.at("constraints")
    }

    /// `status`.
    pub fn status(&self) -> String {
        self.at("status")
    }

    /// `records`: id of the next record.
    pub fn records(&self) -> String {
        self.at("records")
    }

    /// `records/%016x`.
    pub fn record(&self, id: u64) -> String {
        self.at(&format!("records/{id:016x}"))
    }

    /// `records/`.
    pub fn records_prefix(&self) -> String {
        self.at("records/")
    }

    /// `<folder>/disabled`.
    pub fn switch(&self, name: SwitchName) -> String {
        self.at(&format!("{}/disabled", name.folder()))
    }

    /// `reboots/running`.
    pub fn running(&self) -> String {
        self.at("reboots/running")
    }

    /// `<queue>/write-index`.
    pub fn write_index(&self, queue: QueueKind) -> String {
        self.at(&format!("{}/write-index", queue.path()))
    }

    /// `<queue>/data/`.
    pub fn entries_prefix(&self, queue: QueueKind) -> String {
        self.at(&format!("{}/data/", queue.path()))
    }

    /// `<queue>/data/%016x`.
    pub fn entry(&self, id: EntryId) -> String {
        self.at(&format!("{}/data/{:016x}", id.queue.path(), id.index))
    }

    /// `reboots/data/%016x`.
    pub fn reboot(&self, index: u64) -> String {
        self.entry(EntryId::reboot(index))
    }

    /// `repairs/data/%016x`.
    pub fn repair(&self, index: u64) -> String {
        self.entry(EntryId::repair(index))
    }

    /// `sabakan/<name>`: `url`, `template`, `query-variables`.
    pub fn sabakan(&self, name: &str) -> String {
        self.at(&format!("sabakan/{name}"))
    }

    /// `cketerm/approvals/<digest>`.
    pub fn approval(&self, digest: &str) -> String {
        self.at(&format!("cketerm/approvals/{digest}"))
    }

    /// `cketerm/approvals/hold`.
    pub fn hold(&self) -> String {
        self.approval("hold")
    }

    /// `cketerm/generated`: the last change of the definition that cketerm made.
    pub fn generated(&self) -> String {
        self.at("cketerm/generated")
    }

    /// `cketerm/absent`: members of the definition that have no Node.
    pub fn absent(&self) -> String {
        self.at("cketerm/absent")
    }

    /// `cketerm/needed/<node>`: a Node that needs a reboot.
    pub fn needed(&self, node: &NodeName) -> String {
        self.at(&format!("cketerm/needed/{node}"))
    }

    /// `cketerm/maintenance-requests/<uid>`: a `MaintenanceRequest` that the leader has accepted.
    pub fn maintenance_request(&self, uid: &str) -> String {
        self.at(&format!("cketerm/maintenance-requests/{uid}"))
    }

    /// `cketerm/outcomes/<%016x>`: outcome of a reboot entry.
    pub fn outcome(&self, index: u64) -> String {
        self.at(&format!("cketerm/outcomes/{index:016x}"))
    }

    /// `cketerm/breaker-reset`: the last reset of the breaker.
    pub fn breaker_reset(&self) -> String {
        self.at("cketerm/breaker-reset")
    }

    /// `cketerm/needed-log`: when the leader queued reboots that Nodes need.
    pub fn needed_log(&self) -> String {
        self.at("cketerm/needed-log")
    }

    /// `auto-repair/query-variables`.
    pub fn auto_repair_variables(&self) -> String {
        self.at("auto-repair/query-variables")
    }

    /// `cketerm/schema`.
    pub fn schema(&self) -> String {
        self.at("cketerm/schema")
    }

    /// `cketerm/migration`: present while records of an older version are being migrated.
    pub fn migration(&self) -> String {
        self.at("cketerm/migration")
    }

    /// `cketerm/identity`.
    pub fn identity(&self) -> String {
        self.at("cketerm/identity")
    }

    /// `cketerm/policy`.
    pub fn policy(&self) -> String {
        self.at("cketerm/policy")
    }

    /// `cketerm/stopped`.
    pub fn stopped(&self) -> String {
        self.at("cketerm/stopped")
    }

    /// `cketerm/daemon`: the first daemon that registered.
    pub fn daemon(&self) -> String {
        self.at("cketerm/daemon")
    }

    /// `cketerm/constraints`.
    pub fn our_constraints(&self) -> String {
        self.at("cketerm/constraints")
    }

    /// `cketerm/engines/<lease>`.
    pub fn engine(&self, lease: i64) -> String {
        self.at(&format!("cketerm/engines/{lease:x}"))
    }

    /// `cketerm/engines/`.
    pub fn engine_prefix(&self) -> String {
        self.at("cketerm/engines/")
    }

    /// `cketerm/requests/<queue>/<index>`.
    pub fn request(&self, id: EntryId) -> String {
        self.per_entry_key("requests", id)
    }

    /// `cketerm/attempts/<queue>/<index>/<n>`.
    pub fn attempt(&self, id: EntryId, n: u32) -> String {
        format!("{}{n}", self.attempts_prefix(id))
    }

    /// `cketerm/attempts/<queue>/<index>/`.
    pub fn attempts_prefix(&self, id: EntryId) -> String {
        format!("{}/", self.per_entry_key("attempts", id))
    }

    /// Range of all attempts of one entry.
    pub fn attempts_of(&self, id: EntryId) -> Span {
        let from = self.attempts_prefix(id);
        Span { to: prefix_end(from.as_bytes()), from }
    }

    /// Range of the attempts of all entries.
    pub fn all_attempts(&self) -> Span {
        let from = self.at("cketerm/attempts/");
        Span { to: prefix_end(from.as_bytes()), from }
    }

    /// `cketerm/progress/<queue>/<index>`.
    pub fn progress(&self, id: EntryId) -> String {
        self.per_entry_key("progress", id)
    }

    /// `cketerm/orders/<queue>/<index>`.
    pub fn order(&self, id: EntryId) -> String {
        self.per_entry_key("orders", id)
    }

    /// `cketerm/cancels/<queue>/<index>`.
    pub fn cancel(&self, id: EntryId) -> String {
        self.per_entry_key("cancels", id)
    }

    /// `cketerm/hooks/<queue>/<index>`: hooks of an entry's drain.
    pub fn hooks(&self, id: EntryId) -> String {
        self.per_entry_key("hooks", id)
    }

    /// `cketerm/batches/<id>`.
    pub fn batch(&self, id: BatchId) -> String {
        self.at(&format!("cketerm/batches/{id}"))
    }

    /// `cketerm/batches/<id>/<queue>/<index>`: how an entry of the batch ended.
    pub fn batch_end(&self, id: BatchId, entry: EntryId) -> String {
        format!("{}/{entry}", self.batch(id))
    }

    /// `cketerm/batches/`.
    pub fn batches_prefix(&self) -> String {
        self.at("cketerm/batches/")
    }

    /// `cketerm/results/<attempt>`: outcome of a command whose leader is gone.
    pub fn result(&self, attempt: &str) -> String {
        self.at(&format!("cketerm/results/{attempt}"))
    }

    /// `cketerm/output/<attempt>`: output of a running command.
    pub fn output(&self, attempt: &str) -> String {
        self.at(&format!("cketerm/output/{attempt}"))
    }

    /// `cketerm/history/<id>`.
    pub fn history(&self, id: &str) -> String {
        self.at(&format!("cketerm/history/{id}"))
    }

    /// `cketerm/history/`.
    pub fn history_prefix(&self) -> String {
        self.history("")
    }

    /// `cketerm/audit/<id>`.
    pub fn audit(&self, id: &str) -> String {
        self.at(&format!("cketerm/audit/{id}"))
    }

    /// Reports whether the key is that of an operator's audit record. The ids of engines' records have more parts.
    pub fn is_person_audit(&self, key: &str) -> bool {
        let id = key.strip_prefix(&self.audit_prefix()).and_then(|id| id.split_once('-'));
        id.is_some_and(|(at, number)| {
            at.bytes().all(|b| b.is_ascii_digit())
                && number.len() == 16
                && number.bytes().all(|b| b.is_ascii_hexdigit())
        })
    }

    /// `cketerm/audit/`.
    pub fn audit_prefix(&self) -> String {
        self.audit("")
    }

    /// `cketerm/notices/<receiver>`.
    pub fn notices(&self, receiver: &str) -> String {
        self.at(&format!("cketerm/notices/{receiver}"))
    }

    /// `cketerm/notices/`.
    pub fn notices_prefix(&self) -> String {
        self.notices("")
    }

    /// `cketerm/history/<queue>-<%016x>`: history of an ended entry. Indexes are never reused.
    pub fn history_of(&self, id: EntryId) -> String {
        self.history(&format!("{}-{:016x}", id.queue.folder(), id.index))
    }

    /// Prefix of all keys of a folder.
    pub fn folder(&self, folder: Folder) -> String {
        match folder {
            Folder::History => self.history_prefix(),
            Folder::Audit => self.audit_prefix(),
            Folder::Records => self.records_prefix(),
        }
    }

    fn per_entry_key(&self, folder: &str, id: EntryId) -> String {
        self.at(&format!("cketerm/{folder}/{id}"))
    }

    /// Returns the ranges `[from, to)` of the live copy: everything except the folders that are read on demand.
    pub fn live_ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut from = self.prefix.as_bytes().to_vec();
        let mut ranges = Vec::new();
        for folder in [self.audit_prefix(), self.history_prefix(), self.records_prefix()] {
            ranges.push((from, folder.as_bytes().to_vec()));
            from = prefix_end(folder.as_bytes());
        }
        ranges.push((from, prefix_end(self.prefix.as_bytes())));
        ranges
    }
}

/// Returns the first key after all keys that begin with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::attempt_id;

    #[test]
    fn every_key_is_parsed_as_the_kind_it_was_built_from() {
        let keys = Keys::new("/cke/");
        let id = EntryId::repair(17);
        let batch = BatchId::at("2026-11-24T10:00:00Z".parse().unwrap());
        let cases = [
            (keys.leader(0x7a), KeyKind::Candidate(0x7a)),
            (keys.entry(id), KeyKind::Entry(QueueKind::Repair, Ok(17))),
            (keys.switch(SwitchName::AutoRepair), KeyKind::Switch(SwitchName::AutoRepair)),
            (keys.write_index(QueueKind::Reboot), KeyKind::WriteIndex(QueueKind::Reboot)),
            (keys.engine(255), KeyKind::Engine(Ok(255))),
            (keys.request(id), KeyKind::Request(Ok(id))),
            (keys.attempt(id, 3), KeyKind::Attempt(Ok((id, 3)))),
            (keys.progress(id), KeyKind::Progress(Ok(id))),
            (keys.order(id), KeyKind::Order(Ok(id))),
            (keys.cancel(id), KeyKind::Cancel(Ok(id))),
            (keys.hooks(id), KeyKind::Hooks(Ok(id))),
            (keys.batch(batch), KeyKind::Batch(Ok(batch))),
            (keys.batch_end(batch, id), KeyKind::BatchEnd(Ok((batch, id)))),
            (keys.result(&attempt_id(id, 3)), KeyKind::Result(Ok((id, 3)))),
            (keys.output(&attempt_id(id, 3)), KeyKind::Output(Ok((id, 3)))),
            (keys.record(1), KeyKind::OnDemand(Folder::Records)),
            (keys.audit("x"), KeyKind::OnDemand(Folder::Audit)),
            (keys.history("x"), KeyKind::OnDemand(Folder::History)),
            (keys.daemon(), KeyKind::Daemon),
            (keys.needed(&NodeName::new("w1")), KeyKind::Needed(NodeName::new("w1"))),
            (keys.needed(&NodeName::new("a/b")), KeyKind::Other),
            (keys.needed_log(), KeyKind::NeededLog),
            (keys.maintenance_request("4f-1"), KeyKind::MaintenanceRequest("4f-1".into())),
            (keys.maintenance_request("a/b"), KeyKind::Other),
            (keys.outcome(17), KeyKind::Outcome(Ok(17))),
            (keys.breaker_reset(), KeyKind::BreakerReset),
            (keys.cluster_revision(), KeyKind::Registry(RegistryKey::ClusterRevision)),
            (keys.sabakan("template"), KeyKind::Registry(RegistryKey::Template)),
            (keys.hold(), KeyKind::Registry(RegistryKey::Hold)),
            (keys.approval("ab12"), KeyKind::Registry(RegistryKey::Approval("ab12".to_owned()))),
            (keys.approval("a/b"), KeyKind::Other),
        ];
        for (key, kind) in cases {
            assert_eq!(keys.parse(key.as_bytes()), Some(kind), "{key}");
        }
        assert_eq!(keys.entry(id), "/cke/repairs/data/0000000000000011");
        assert_eq!(keys.leader(0x7a), "/cke/leader//7a");
        assert_eq!(keys.parse(b"/other/cluster"), None);
    }

    #[test]
    fn a_key_with_a_malformed_index_is_reported_as_an_error() {
        let keys = Keys::new("/cke/");
        for key in [
            "reboots/data/xyz",
            "reboots/data/12",
            "reboots/data/000000000000000A",
            "cketerm/orders/reboots/007",
            "cketerm/cancels/reboots/007",
            "cketerm/hooks/reboots/007",
            "cketerm/engines/0A",
            "cketerm/attempts/reboots/1/+2",
            "cketerm/batches/0000000",
            "cketerm/batches/0000000A",
            "cketerm/batches/00000000/reboots/01",
            "cketerm/outcomes/17",
            "cketerm/results/reboots-1-02",
            "cketerm/results/reboots/1/2",
            "cketerm/output/reboots/1/2",
        ] {
            let kind = keys.parse(format!("/cke/{key}").as_bytes()).unwrap();
            assert!(format!("{kind:?}").contains("Err("), "{key}: {kind:?}");
        }
    }

    #[test]
    fn live_ranges_omit_only_the_folders_read_on_demand() {
        let keys = Keys::new("/cke/");
        let covered = |key: &str| {
            keys.live_ranges()
                .iter()
                .any(|(from, to)| from.as_slice() <= key.as_bytes() && key.as_bytes() < to.as_slice())
        };
        for key in [keys.cluster(), keys.leader(1), keys.records(), keys.policy(), keys.reboot(3), keys.status()] {
            assert!(covered(&key), "{key}");
        }
        for key in [keys.record(1), keys.history("1"), keys.audit("1"), "/ckf".to_owned()] {
            assert!(!covered(&key), "{key}");
        }
    }
}

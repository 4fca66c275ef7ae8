//! Reads and writes of CKE in etcd. Writes compare nothing, except the number of the next record.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cluster::Cluster,
    constraints::Constraints,
    entry::QueueKind,
    names::Address,
    reboot::{RebootEntry, RebootStatus},
    record::{Record, RecordCommand},
    repair::RepairEntry,
    stored::keys::SwitchName,
    time::{after, whole_seconds},
};
use etcd_client::{GetOptions, PutOptions};
use jiff::Timestamp;
use serde_json::{Map, json};
use tokio::time::sleep;

use super::{Cke, Fault, Site, queue::Phase};

/// Record of an operation that runs.
pub(super) struct Running(Record);

impl Cke {
    async fn text(&self, key: String) -> Result<Option<String>, Fault> {
        let answer = self.etcd.clone().get(key, None).await?;
        Ok(answer.kvs().first().map(|kv| String::from_utf8_lossy(kv.value()).into_owned()))
    }

    /// Returns the cluster definition, or `None` if there is none that can be read.
    pub(super) async fn cluster(&self) -> Result<Option<Cluster>, Fault> {
        Ok(self.text(self.keys.cluster()).await?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Returns whether the reboot queue is enabled.
    pub(super) async fn enabled(&self) -> Result<bool, Fault> {
        Ok(self.text(self.keys.switch(SwitchName::Reboots)).await?.as_deref() != Some("true"))
    }

    /// Returns the limit of unreachable nodes.
    pub(super) async fn max_unreachable(&self) -> Result<i64, Fault> {
        let text = self.text(self.keys.constraints()).await?;
        let constraints = text.and_then(|text| serde_json::from_str::<Constraints>(&text).ok()).unwrap_or_default();
        Ok(constraints.maximum_unreachable_nodes_for_reboot)
    }

    /// Returns all entries. One that cannot be read makes the whole pass fail, as in CKE.
    pub(super) async fn entries(&self) -> Result<BTreeMap<u64, RebootEntry>, Fault> {
        let prefix = self.keys.entries_prefix(QueueKind::Reboot);
        let answer = self.etcd.clone().get(prefix, Some(GetOptions::new().with_prefix())).await?;
        let mut entries = BTreeMap::new();
        for kv in answer.kvs() {
            let entry: RebootEntry = serde_json::from_slice(kv.value())?;
            entries.insert(entry.index, entry);
        }
        Ok(entries)
    }

    /// Returns the machines whose repair drains or is watched.
    pub(super) async fn repairing(&self) -> Result<BTreeSet<Address>, Fault> {
        let prefix = self.keys.entries_prefix(QueueKind::Repair);
        let answer = self.etcd.clone().get(prefix, Some(GetOptions::new().with_prefix())).await?;
        let mut machines = BTreeSet::new();
        for kv in answer.kvs() {
            let entry: RepairEntry = serde_json::from_slice(kv.value())?;
            if entry.claims_machine() {
                machines.insert(entry.address);
            }
        }
        Ok(machines)
    }

    /// Reads an entry, waits, and writes the changed entry over whatever is there: the flaw that loses cancels. `None`
    /// if the entry is gone or cancelled at the read.
    pub(super) async fn overwrite(
        &self,
        index: u64,
        change: impl FnOnce(RebootEntry, Timestamp) -> RebootEntry,
    ) -> Result<Option<RebootEntry>, Fault> {
        let key = self.keys.reboot(index);
        let Some(text) = self.text(key.clone()).await? else { return Ok(None) };
        let entry: RebootEntry = serde_json::from_str(&text)?;
        if entry.status == RebootStatus::Cancelled {
            return Ok(None);
        }
        sleep(self.settings.write_delay).await;
        let changed = change(RebootEntry { unknown: Map::new(), ..entry }, self.clock.wall());
        let now = self.text(key.clone()).await?;
        let cancelled = now.and_then(|text| serde_json::from_str::<RebootEntry>(&text).ok());
        if cancelled.is_some_and(|entry| entry.status == RebootStatus::Cancelled) {
            self.locked().lost_cancels.push(index);
        }
        self.etcd.clone().put(key, serde_json::to_string(&changed)?, None).await?;
        Ok(Some(changed))
    }

    /// Puts an entry back into the queue, with a longer backoff each time.
    pub(super) async fn back_off(&self, index: u64) -> Result<(), Fault> {
        let random = self.draw(300);
        let change = |entry: RebootEntry, now: Timestamp| {
            let count = entry.drain_backoff_count + 1;
            let doubled = 300_i64.saturating_mul(1 << (count - 1).clamp(0, 10));
            let until = after(whole_seconds(now), doubled.min(1200) + random);
            RebootEntry {
                drain_backoff_count: count,
                drain_backoff_expire: Some(until),
                ..entry.moved_to(RebootStatus::Queued, now)
            }
        };
        self.overwrite(index, change).await.map(drop)
    }

    /// Writes `status` under its lease, and `reboots/running`.
    pub(super) async fn publish(&self, lease: i64, phase: Phase, seen: &Site) -> Result<(), Fault> {
        let status = json!({"phase": phase.word(), "timestamp": self.clock.wall().to_string()});
        let leased = Some(PutOptions::new().with_lease(lease));
        let mut etcd = self.etcd.clone();
        etcd.put(self.keys.status(), status.to_string(), leased).await?;
        let runs = seen.enabled && !seen.entries.is_empty();
        etcd.put(self.keys.running(), runs.to_string(), None).await?;
        Ok(())
    }

    /// Writes the record of an operation that begins.
    pub(super) async fn begin(&self, operation: &str, command: &str, targets: &[Address]) -> Result<Running, Fault> {
        let next = self.text(self.keys.records()).await?.and_then(|text| text.parse().ok()).unwrap_or(1);
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let command = RecordCommand { name: command.to_owned(), target: targets.join(","), detail: String::new() };
        let record = Record {
            id: next,
            status: "running".to_owned(),
            operation: operation.to_owned(),
            command,
            targets: Some(targets),
            info: String::new(),
            error: String::new(),
            start_at: Some(self.clock.wall()),
            end_at: None,
            unknown: Map::new(),
        };
        let mut etcd = self.etcd.clone();
        etcd.put(self.keys.records(), (next + 1).to_string(), None).await?;
        etcd.put(self.keys.record(next), serde_json::to_string(&record)?, None).await?;
        Ok(Running(record))
    }

    /// Writes the end of an operation: completed with its `info`, or cancelled with the error that ended it, which this
    /// returns.
    pub(super) async fn end(&self, Running(record): Running, ended: Result<String, Fault>) -> Result<(), Fault> {
        let end_at = Some(self.clock.wall());
        let record = match &ended {
            Ok(info) => Record { status: "completed".to_owned(), info: info.clone(), end_at, ..record },
            Err(Fault::Pass(error)) => {
                Record { status: "cancelled".to_owned(), error: error.clone(), end_at, ..record }
            }
            // the next leader cancels it
            Err(Fault::Term(_)) => return ended.map(drop),
        };
        self.etcd.clone().put(self.keys.record(record.id), serde_json::to_string(&record)?, None).await?;
        ended.map(drop)
    }

    /// Sets the records that a dead leader left running to cancelled.
    pub(super) async fn cancel_running_records(&self) -> Result<(), Fault> {
        let prefix = self.keys.records_prefix();
        let answer = self.etcd.clone().get(prefix, Some(GetOptions::new().with_prefix())).await?;
        for kv in answer.kvs() {
            let Ok(record) = serde_json::from_slice::<Record>(kv.value()) else { continue };
            if record.status == "running" {
                let record = Record { status: "cancelled".to_owned(), end_at: Some(self.clock.wall()), ..record };
                self.etcd.clone().put(self.keys.record(record.id), serde_json::to_string(&record)?, None).await?;
            }
        }
        Ok(())
    }

    /// Returns the machines whose Node has CKE's annotation.
    pub(super) async fn annotated(&self, cluster: &Cluster) -> Result<BTreeSet<Address>, Fault> {
        let marked = self.marked_nodes().await?;
        let of = |address: &Address, name: &str| marked.contains(name).then(|| address.clone());
        Ok(cluster.nodes.iter().filter_map(|n| of(&n.address, &n.node_name())).collect())
    }
}

//! One read of everything that a pass of CKE decides from.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    attempt::Ended,
    cluster::Cluster,
    names::Address,
    reboot::{RebootEntry, RebootStatus},
};
use jiff::Timestamp;

use super::{
    Cke, Fault,
    queue::{Facts, Operation},
};
use crate::machines::State;

/// Facts that a pass has read.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) entries: BTreeMap<u64, RebootEntry>,
    pub(super) enabled: bool,
    max_unreachable: i64,
    unreachable: BTreeSet<Address>,
    annotated: BTreeSet<Address>,
    repairing: BTreeSet<Address>,
    drained: BTreeSet<Address>,
    booted: BTreeSet<Address>,
}

impl Site {
    pub(super) fn facts(&self, now: Timestamp) -> Facts<'_> {
        Facts {
            cluster: &self.cluster,
            entries: &self.entries,
            enabled: self.enabled,
            max_unreachable: self.max_unreachable,
            unreachable: &self.unreachable,
            annotated: &self.annotated,
            repairing: &self.repairing,
            drained: &self.drained,
            booted: &self.booted,
            now,
        }
    }

    pub(super) fn addresses(&self, entries: &[u64]) -> Vec<Address> {
        entries.iter().filter_map(|i| self.entries.get(i)).map(|e| e.node.clone()).collect()
    }

    /// Returns the name of the Node with this address.
    pub(super) fn node_name(&self, address: &Address) -> String {
        let node = self.cluster.nodes.iter().find(|n| n.address == *address);
        node.map_or_else(|| address.to_string(), |n| n.node_name().to_string())
    }
}

impl Cke {
    /// Reads the queue and the cluster; `None` without a definition.
    pub(super) async fn look(&self) -> Result<Option<Site>, Fault> {
        let Some(cluster) = self.cluster().await? else { return Ok(None) };
        let (entries, enabled) = (self.entries().await?, self.enabled().await?);
        let runs =
            |address: &Address| self.machines.machine_status(address).is_some_and(|status| status.state == State::Up);
        let unreachable = cluster.nodes.iter().map(|n| &n.address).filter(|a| !runs(a)).cloned().collect();
        let mut seen = Site {
            max_unreachable: self.max_unreachable().await?,
            annotated: self.annotated(&cluster).await?,
            repairing: self.repairing().await?,
            cluster,
            entries,
            enabled,
            unreachable,
            drained: BTreeSet::new(),
            booted: BTreeSet::new(),
        };
        for entry in seen.entries.values() {
            match entry.status {
                RebootStatus::Draining => {
                    if self.is_drained(&seen.node_name(&entry.node)).await? {
                        seen.drained.insert(entry.node.clone());
                    }
                }
                RebootStatus::Rebooting => {
                    if self.has_booted(&seen.cluster, entry).await {
                        seen.booted.insert(entry.node.clone());
                    }
                }
                RebootStatus::Queued | RebootStatus::Cancelled => {}
            }
        }
        Ok(Some(seen))
    }

    async fn has_booted(&self, cluster: &Cluster, entry: &RebootEntry) -> bool {
        let Some(mut argv) = cluster.reboot.boot_check_command.clone() else { return false };
        argv.push(entry.node.to_string());
        argv.push(entry.last_transition_time.map_or(0, Timestamp::as_second).to_string());
        let (ended, stdout, _) = self.machines.command(&argv, &[]).await;
        matches!(ended, Ended::Exit(0)) && stdout.trim() == "true"
    }
}

impl Operation {
    /// Returns its names in a record: of the operation and of its command.
    pub(super) fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::Uncordon(_) => ("reboot-uncordon", "rebootUncordonCommand"),
            Self::Cancel(_) => ("reboot-cancel", "rebootDequeueCommand"),
            Self::Dequeue(_) => ("reboot-dequeue", "rebootDequeueCommand"),
            Self::Reboot(_) => ("reboot-reboot", "rebootRebootCommand"),
            Self::DrainTimeout(_) => ("reboot-drain-timeout", "rebootDrainTimeoutCommand"),
            Self::DrainStart(_) => ("reboot-drain-start", "rebootDrainStartCommand"),
        }
    }

    /// Returns the addresses of its machines.
    pub(super) fn targets(&self, seen: &Site) -> Vec<Address> {
        match self {
            Self::Uncordon(nodes) => nodes.clone(),
            Self::Cancel(entries) | Self::Dequeue(entries) | Self::Reboot(entries) | Self::DrainTimeout(entries) => {
                seen.addresses(entries)
            }
            Self::DrainStart(index) => seen.addresses(&[*index]),
        }
    }
}

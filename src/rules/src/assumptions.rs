//! Assumptions of a hypothetical decision: facts that it takes for granted instead of reading them from the snapshot.
//!
//! A command that reads etcd once, the forecast and a manual drain apply the engine's rules without being an engine.
//! They decide with [`decide_assuming`](crate::decide::decide_assuming). The rules ask `decide/facts.rs` wherever an
//! assumption may take the place of a fact. The effects of such a decision say what an engine would do; the engine
//! itself assumes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    boot_time::BootTime,
    cluster::{Cluster, Member, Node, Reboot},
    entry::{EntryId, QueueKind, Stored},
    kube::NodeRow,
    names::Address,
    reboot::{RebootEntry, RebootStatus},
    stored::view::Definition,
};
use jiff::Timestamp;

/// First index of the entries that are only assumed. No queue gets there: indexes count from 0, and CKE reads them as
/// signed numbers.
const FIRST_ASSUMED_INDEX: u64 = 1 << 63;
/// Identifier of the entry of a manual drain. It is in no queue, and no reason names it.
pub(crate) const MANUAL_DRAIN: EntryId = EntryId { queue: QueueKind::Reboot, index: u64::MAX };

/// Fact that a decision assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assumption {
    /// The copies of etcd and of Kubernetes' cluster-wide resources are complete, and were read just now.
    ReadJustNow,
    /// A control plane whose Node is Ready is healthy. There are no probes and no answers of etcd's members and of
    /// Prometheus, which only a leader has.
    ControlPlanesByNode,
    /// The control planes that the last definition added have joined.
    ControlPlanesJoined,
    /// A policy that cannot be read is the default policy, and stops nothing.
    PolicyReadable,
    /// The reboot queue is enabled.
    RebootQueueEnabled,
    /// The definition has the commands of reboots.
    RebootCommandsConfigured,
}

/// All assumptions of a decision. The default assumes nothing: every fact comes from the snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assumptions {
    /// Boot time since which this engine is assumed to lead, fit to start work. A leadership in the snapshot
    /// keeps its own time. `None`: only the snapshot says whether this engine leads.
    leading_since: Option<BootTime>,
    facts: BTreeSet<Assumption>,
    /// Entries behind those of the reboot queue, by index.
    queued: BTreeMap<u64, Stored<RebootEntry>>,
    manual_drain: Option<AssumedDrain>,
}

/// A drain that an operator runs on one Node. Its entry is in no queue, and its machine need not be a member of the
/// cluster. The operator has cordoned the Node: that cordon stands for the entry's own.
#[derive(Clone, Debug, PartialEq)]
pub struct AssumedDrain {
    pub(crate) entry: Stored<RebootEntry>,
    /// A definition with the machine as its only member, a worker.
    definition: Definition,
    /// Drain rules; its commands are never run.
    pub(crate) settings: Reboot,
}

impl AssumedDrain {
    /// Returns the machine as a member.
    pub(crate) fn member(&self) -> Option<Member<'_>> {
        self.definition.members.at(&self.definition.cluster, 0)
    }
}

impl Assumptions {
    /// Assumes that this engine has led since this boot time, that its host has passed every preflight, and
    /// that it does not resign.
    pub fn leading_since(boot: BootTime) -> Self {
        Self { leading_since: Some(boot), ..Self::default() }
    }

    /// Assumes one more fact.
    #[must_use]
    pub fn and(mut self, fact: Assumption) -> Self {
        self.facts.insert(fact);
        self
    }

    /// Assumes entries for these addresses behind those of the reboot queue.
    #[must_use]
    pub fn queued(mut self, addresses: &[Address]) -> Self {
        let entry = |(index, address): (u64, &Address)| (index, stored(assumed_entry(EntryId::reboot(index), address)));
        self.queued = (FIRST_ASSUMED_INDEX..).zip(addresses).map(entry).collect();
        self
    }

    /// Assumes an entry that has been draining this Node since `since` by these settings.
    #[must_use]
    pub fn draining(mut self, node: &NodeRow, settings: Reboot, since: Timestamp) -> Self {
        // The entry needs a text there, also for a Node without addresses.
        let address = node.addresses.first().cloned().unwrap_or_else(|| Address::new(node.name.as_str()));
        let entry = assumed_entry(MANUAL_DRAIN, &address);
        let entry = RebootEntry { last_transition_time: Some(since), status: RebootStatus::Draining, ..entry };
        let member = Node { address, hostname: node.name.clone(), ..Node::default() };
        let definition = Definition::from(Cluster { nodes: vec![member], ..Cluster::default() });
        self.manual_drain = Some(AssumedDrain { entry: stored(entry), definition, settings });
        self
    }

    /// Returns the same assumptions, except that only the snapshot says whether this engine leads.
    #[must_use]
    pub fn without_leadership(self) -> Self {
        Self { leading_since: None, ..self }
    }

    /// Reports whether this fact is assumed.
    pub fn assumes(&self, fact: Assumption) -> bool {
        self.facts.contains(&fact)
    }

    /// Returns the boot time since which this engine is assumed to lead.
    pub fn leader_since(&self) -> Option<BootTime> {
        self.leading_since
    }

    /// Returns the assumed entries of the reboot queue, by index. They follow the stored ones.
    pub fn entries(&self) -> &BTreeMap<u64, Stored<RebootEntry>> {
        &self.queued
    }

    /// Returns an assumed entry of the reboot queue, or `None` if there is no such entry or it is stored.
    pub fn entry(&self, id: EntryId) -> Option<&RebootEntry> {
        let stored = self.queued.get(&id.index).filter(|_| id.queue == QueueKind::Reboot)?;
        stored.get()
    }

    /// Returns the manual drain.
    pub(crate) fn manual_drain(&self) -> Option<&AssumedDrain> {
        self.manual_drain.as_ref()
    }
}

/// Returns an entry that is in no queue: the only place that makes one.
fn assumed_entry(id: EntryId, address: &Address) -> RebootEntry {
    RebootEntry::queued(id.index, address)
}

/// Returns an entry as the rules read it. It has no key, and no write can compare it.
fn stored(entry: RebootEntry) -> Stored<RebootEntry> {
    Stored { key: String::new(), mod_revision: 0, value: Ok(Arc::new(entry)) }
}

//! Typed live copy of etcd. Cheap to clone: a change copies only the changed parts.

mod batches;

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use super::{
    kind::{Folder, SwitchName},
    recent::RecentRecords,
    registry_settings::RegistrySettings,
};
use crate::{
    accepted_request::AcceptedRequest,
    attempt::Attempt,
    batch::{Batch, BatchId},
    boot_time::BootTime,
    cketerm_records::{
        AcceptedCancel, EndKind, EngineMode, EngineRegistration, FirstDaemon, Identity, Needed, NeededLog, Order,
        Progress, Request, Status, Stopped,
    },
    cluster::{Cluster, Members},
    constraints::Constraints,
    entry::{EntryId, QueueKind, Stored},
    entry_ref::{EntryRef, StoredEntry},
    hook_runs::HookRuns,
    maintenance::MaintenanceEntry,
    names::NodeName,
    outcomes::{BreakerReset, Outcome},
    output::CommandOutput,
    policy::{MemberSource, Membership, Policy},
    reboot::RebootEntry,
    repair::RepairEntry,
    result::CommandResult,
};

/// One of the four switches. Only the exact text `true` under `…/disabled` disables (STO-8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The stored text; an odd value is shown.
    pub raw: Option<String>,
    /// ModRevision; 0 = no key.
    pub mod_revision: i64,
}

impl Switch {
    /// Reports whether the queue (or integration) is enabled.
    pub fn enabled(&self) -> bool {
        self.raw.as_deref() != Some("true")
    }

    /// Returns a value that is neither `true` nor `false`.
    pub fn odd(&self) -> Option<&str> {
        self.raw.as_deref().filter(|v| !matches!(*v, "true" | "false"))
    }
}

/// One queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "E: Serialize", deserialize = "E: Deserialize<'de>"))]
pub struct Queue<E: Clone> {
    /// `…/disabled`.
    pub switch: Switch,
    /// `…/write-index`: the next index; a missing key means 0. The error says why it cannot be read.
    pub write_index: Result<u64, String>,
    /// Entries by the index of their *key*, including unreadable ones.
    pub entries: OrdMap<u64, Stored<E>>,
}

impl<E: Clone> Default for Queue<E> {
    fn default() -> Self {
        Self { switch: Switch::default(), write_index: Ok(0), entries: OrdMap::new() }
    }
}

impl<E: Clone> Queue<E> {
    /// Reports whether nothing was ever queued.
    fn is_untouched(&self) -> bool {
        self.entries.is_empty() && self.write_index == Ok(0)
    }
}

/// A candidate of the election: `leader//<lease id in hex>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The whole key.
    pub key: String,
    /// The candidate's lease.
    pub lease: i64,
    /// The value: a host name.
    pub host: String,
    /// Create revision; the candidate with the smallest one leads.
    pub create_revision: i64,
}

/// The definition together with its index; it is serialized without the index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Cluster", into = "Cluster")]
pub struct Definition {
    /// The stored definition.
    pub cluster: Cluster,
    /// Index by address and name.
    pub members: Members,
}

impl From<Cluster> for Definition {
    fn from(cluster: Cluster) -> Self {
        let members = Members::of(&cluster);
        Self { cluster, members }
    }
}

impl From<Definition> for Cluster {
    fn from(definition: Definition) -> Self {
        definition.cluster
    }
}

/// State of the watch over etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WatchHealth {
    /// Boot time of the next attempt to reopen the watch; none while it is open. Once this time has passed, the
    /// attempt is under way.
    pub retry: Option<BootTime>,
    /// Whole seconds that the last answer took.
    pub lag: u64,
}

/// Everything under the prefix that decisions and screens need. History, audit and records are read on demand (STO-51).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreView {
    /// Revision of the copy.
    pub revision: i64,
    /// Boot time of the last answer of the watch (event or progress). Nothing new starts while this is older
    /// than 10 s (SAF-21).
    #[serde(rename = "heard")]
    pub last_seen: BootTime,
    /// The last error, until a request succeeds.
    pub error: Option<String>,
    /// Whether a first complete read has been done.
    pub synced: bool,
    /// `cluster`.
    pub cluster: Option<Stored<Definition>>,
    /// `constraints`.
    pub constraints: Option<Stored<Constraints>>,
    /// `cketerm/constraints`: cketerm's copy of the two constraints that `ckecli` drops. Only these two count in it.
    pub our_constraints: Option<Stored<Constraints>>,
    /// `sabakan/disabled`.
    pub sabakan: Switch,
    /// `auto-repair/disabled`.
    pub auto_repair: Switch,
    /// `reboots/`.
    pub reboots: Queue<RebootEntry>,
    /// `repairs/`.
    pub repairs: Queue<RepairEntry>,
    /// `cketerm/maintenance/`. It has no switch of its own.
    #[serde(default, skip_serializing_if = "Queue::is_untouched")]
    pub maintenance: Queue<MaintenanceEntry>,
    /// `cketerm/schema`.
    pub schema: Option<Stored<u32>>,
    /// Whether `cketerm/migration` exists: records of an older version are not all migrated yet (STO-56).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub migrating: bool,
    /// `cketerm/policy`.
    pub policy: Option<Stored<Policy>>,
    /// `cketerm/stopped`: both queues were disabled at once.
    pub stopped: Option<Stored<Stopped>>,
    /// `cketerm/daemon`: the first daemon that registered.
    #[serde(default)]
    pub daemon: Option<Stored<FirstDaemon>>,
    /// `cketerm/identity`.
    pub identity: Option<Stored<Identity>>,
    /// `leader/` by create revision; the first candidate leads.
    pub candidates: OrdMap<i64, Candidate>,
    /// `cketerm/engines/` by lease.
    pub engines: OrdMap<i64, Stored<EngineRegistration>>,
    /// `cketerm/requests/`.
    pub requests: OrdMap<EntryId, Stored<Request>>,
    /// `cketerm/attempts/` by entry and number.
    #[serde(with = "crate::pairs")]
    pub attempts: OrdMap<(EntryId, u32), Stored<Attempt>>,
    /// `cketerm/results/` by entry and number of the attempt: outcomes of commands whose leader is gone.
    #[serde(with = "crate::pairs")]
    pub results: OrdMap<(EntryId, u32), Stored<CommandResult>>,
    /// `cketerm/output/` by entry and number of the attempt: output of running commands. No decision uses it.
    #[serde(skip)]
    pub output: OrdMap<(EntryId, u32), Stored<CommandOutput>>,
    /// `cketerm/progress/`.
    pub progress: OrdMap<EntryId, Stored<Progress>>,
    /// `cketerm/orders/`.
    pub orders: OrdMap<EntryId, Stored<Order>>,
    /// `cketerm/cancels/`: cancels that the leader has not carried out yet.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub cancels: OrdMap<EntryId, Stored<AcceptedCancel>>,
    /// `cketerm/hooks/`: hooks of drains, until the last one after the uncordon has ended.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub hooks: OrdMap<EntryId, Stored<HookRuns>>,
    /// `cketerm/batches/` by id.
    #[serde(default, with = "crate::pairs", skip_serializing_if = "OrdMap::is_empty")]
    pub batches: OrdMap<BatchId, Stored<Batch>>,
    /// `cketerm/batches/<id>/…`: ended entries of batches that are not folded into the batch yet.
    #[serde(default, with = "crate::pairs", skip_serializing_if = "OrdMap::is_empty")]
    pub batch_ends: OrdMap<(BatchId, EntryId), Stored<EndKind>>,
    /// `cketerm/needed/` by Node: Nodes that need a reboot.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub needed: OrdMap<NodeName, Stored<Needed>>,
    /// `cketerm/needed-log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_log: Option<Stored<NeededLog>>,
    /// `cketerm/maintenance-requests/` by UID of the object.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub maintenance_requests: OrdMap<String, Stored<AcceptedRequest>>,
    /// `cketerm/outcomes/` by index of the reboot entry.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub outcomes: OrdMap<u64, Stored<Outcome>>,
    /// `cketerm/breaker-reset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker_reset: Option<Stored<BreakerReset>>,
    /// `sabakan/…`, `cluster-revision`, `cketerm/approvals/…`.
    pub registry: RegistrySettings,
    /// `reboots/running`, as text: `true` while the queue is enabled and not empty, as in CKE.
    pub running: Option<String>,
    /// `status`.
    pub status: Option<Stored<Status>>,
    /// Revision of the last write below each folder that is read on demand, as far as it was watched.
    pub grown: OrdMap<Folder, i64>,
    /// Recent writes below these folders, as far as the watch reported them.
    #[serde(skip)]
    pub recent: RecentRecords,
    /// State of the watch, for display; no decision uses it.
    #[serde(skip)]
    pub watch_health: WatchHealth,
    /// Unreadable keys of cketerm or CKE, with the reason.
    pub broken: OrdMap<String, String>,
}

/// Returns the text about a leader that cannot migrate the records of an older version.
pub fn migrates(host: &str, why: &str) -> String {
    format!("cketerm on {host} leads and migrates the records of an older version: {why}")
}

impl StoreView {
    /// Returns the definition, if it is readable.
    pub fn definition(&self) -> Option<&Definition> {
        self.cluster.as_ref().and_then(Stored::get)
    }

    /// Returns where the members of the definition come from.
    pub fn member_source(&self) -> MemberSource {
        match self.policy().membership {
            Membership::Nodes => MemberSource::Nodes,
            Membership::Sabakan => MemberSource::Sabakan,
            Membership::Auto if self.registry.url.is_some() => MemberSource::Sabakan,
            Membership::Auto | Membership::Manual => MemberSource::Operators,
        }
    }

    /// Returns the policy in force: the stored one, or the defaults if there is none or it is unreadable. With an
    /// unreadable policy the engine only observes (SAF-4).
    pub fn policy(&self) -> Arc<Policy> {
        match self.policy.as_ref().map(|s| &s.value) {
            Some(Ok(policy)) => Arc::clone(policy),
            _ => Arc::new(Policy::default()),
        }
    }

    /// Returns the constraints in force: the stored ones, or the defaults if there are none. The two that today's
    /// `ckecli` drops come from cketerm's own copy if CKE's object lacks them.
    pub fn constraints(&self) -> Arc<Constraints> {
        let cke_constraints = match self.constraints.as_ref().map(|s| &s.value) {
            Some(Ok(constraints)) => Arc::clone(constraints),
            _ => Arc::new(Constraints::default()),
        };
        match self.our_constraints.as_ref().and_then(Stored::get) {
            Some(own) if cke_constraints.minimum_workers.is_none() || cke_constraints.maximum_workers.is_none() => {
                let mut merged = Constraints::clone(&cke_constraints);
                merged.fill_workers(own);
                Arc::new(merged)
            }
            _ => cke_constraints,
        }
    }

    /// Returns an entry of any kind as stored in etcd, readable or not. `None` if it does not exist.
    pub fn stored_entry(&self, id: EntryId) -> Option<StoredEntry<'_>> {
        match id.queue {
            QueueKind::Reboot => self.reboots.entries.get(&id.index).map(StoredEntry::from),
            QueueKind::Repair => self.repairs.entries.get(&id.index).map(StoredEntry::from),
            QueueKind::Maintenance => self.maintenance.entries.get(&id.index).map(StoredEntry::from),
        }
    }

    /// Returns an entry of any kind. `None` if it does not exist or cannot be read.
    pub fn entry(&self, id: EntryId) -> Option<EntryRef<'_>> {
        self.stored_entry(id)?.get()
    }

    /// Reports whether the entry's key exists, whatever its value.
    pub fn has_entry(&self, id: EntryId) -> bool {
        self.stored_entry(id).is_some()
    }

    /// Returns a switch, by its name or by the queue that it belongs to.
    pub fn switch(&self, name: impl Into<SwitchName>) -> &Switch {
        match name.into() {
            SwitchName::Reboots => &self.reboots.switch,
            SwitchName::Repairs => &self.repairs.switch,
            SwitchName::Sabakan => &self.sabakan,
            SwitchName::AutoRepair => &self.auto_repair,
        }
    }

    /// Returns the queue's next index; a missing key means 0. The error says why it cannot be read.
    pub fn write_index(&self, queue: QueueKind) -> &Result<u64, String> {
        match queue {
            QueueKind::Reboot => &self.reboots.write_index,
            QueueKind::Repair => &self.repairs.write_index,
            QueueKind::Maintenance => &self.maintenance.write_index,
        }
    }

    /// Returns the leader: the candidate with the smallest create revision.
    pub fn leader(&self) -> Option<&Candidate> {
        self.candidates.values().next()
    }

    /// Returns the reason of an engine that does not campaign yet, although nobody leads.
    pub fn standing_back(&self) -> Option<&str> {
        self.engines.values().filter_map(Stored::get).find_map(|engine| engine.standing_back.as_deref())
    }

    /// Returns the host of a daemon that has registered, now or ever; an unreadable record counts as one.
    pub fn daemon_seen(&self) -> Option<&str> {
        let ever =
            self.daemon.as_ref().map(|stored| stored.get().map_or("an unknown host", |first| first.host.as_str()));
        let registered = self.engines.values().filter_map(Stored::get);
        ever.or_else(|| registered.into_iter().find(|e| e.mode == EngineMode::Daemon).map(|e| e.host.as_str()))
    }

    /// Returns the text about a cketerm leader that decides nothing yet, because it cannot migrate the records of an
    /// older version.
    pub fn migrates(&self, leader: &Candidate) -> Option<String> {
        let engine = self.engines.get(&leader.lease).and_then(Stored::get)?;
        engine.migrating.as_deref().map(|why| migrates(&leader.host, why))
    }

    /// Reports whether a candidate is CKE's, which has no registration under `cketerm/engines/` (STO-36).
    pub fn is_cke(&self, candidate: &Candidate) -> bool {
        !self.engines.contains_key(&candidate.lease)
    }

    /// Returns the attempts of one entry, oldest first.
    pub fn attempts_of(&self, entry: EntryId) -> impl DoubleEndedIterator<Item = &Stored<Attempt>> {
        self.attempts.range((entry, 0)..=(entry, u32::MAX)).map(|(_, attempt)| attempt)
    }

    /// Reports whether the outcome of a repair's success command is unknown. In any state of the entry, it then goes on
    /// only by an operator's `retry` or `done` (REP-36).
    pub fn success_unknown(&self, entry: EntryId) -> bool {
        let last = self.attempts_of(entry).next_back().and_then(Stored::get);
        last.is_some_and(|attempt| attempt.success && attempt.outcome_unknown())
    }

    /// Returns the number of the last attempt of an entry, whether or not it can be read; `None` if there is none.
    pub fn last_attempt(&self, entry: EntryId) -> Option<u32> {
        self.attempts.range((entry, 0)..=(entry, u32::MAX)).next_back().map(|((_, number), _)| *number)
    }
}

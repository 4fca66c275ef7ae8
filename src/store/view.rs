//! The live copy of what lies in etcd, typed. Cheap to clone: a change touches only what changed.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use super::{fresh::Fresh, keys::Folder, registry::RegistrySettings};
use crate::model::{
    attempt::Attempt,
    cketerm_records::{EngineRegistration, Identity, Order, Progress, Request, Status, Stopped},
    cluster::{Cluster, Members},
    constraints::Constraints,
    entry::{EntryId, Stored},
    policy::Policy,
    reboot::RebootEntry,
    repair::RepairEntry,
    result::CommandResult,
};

/// One of the four switches: only the exact bytes `true` under `…/disabled` disable (spec/etcd.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// What lies there, as text; an odd value is shown.
    pub raw: Option<String>,
    /// ModRevision; 0 = no key.
    pub mod_revision: i64,
}

impl Switch {
    /// Whether the queue (or integration) is enabled.
    pub fn enabled(&self) -> bool {
        self.raw.as_deref() != Some("true")
    }

    /// A value that is neither `true` nor `false`.
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
    /// `…/write-index`: the next index; missing = 0, or why it cannot be read.
    pub write_index: Result<u64, String>,
    /// The entries by the index of their *key*; broken ones included.
    pub entries: OrdMap<u64, Stored<E>>,
}

impl<E: Clone> Default for Queue<E> {
    fn default() -> Self {
        Self { switch: Switch::default(), write_index: Ok(0), entries: OrdMap::new() }
    }
}

/// A candidate of the election: `leader//<lease id in hex>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The whole key.
    pub key: String,
    /// Its lease.
    pub lease: i64,
    /// The value: a host name.
    pub host: String,
    /// The smallest leads.
    pub create_revision: i64,
}

/// The definition together with its index; written down without it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Cluster", into = "Cluster")]
pub struct Definition {
    /// As it lies in etcd.
    pub cluster: Cluster,
    /// By address and name.
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

/// How the watch over etcd is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WatchHealth {
    /// Boot-time seconds at which it is begun anew; none while it stands. Once that has been, it is being tried.
    pub retry: Option<f64>,
    /// Whole seconds that the last answer took.
    pub lag: u64,
}

/// Everything under the prefix that decisions and screens need; history, audit and records are read on demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreView {
    /// The revision that it shows.
    pub revision: i64,
    /// Boot-time seconds of the last answer of the watch (event or progress); see safety.md: nothing new starts
    /// while this is older than 10 s.
    pub heard: f64,
    /// What went wrong last, until something went right again.
    pub error: Option<String>,
    /// A first complete read was done.
    pub synced: bool,
    /// `cluster`.
    pub cluster: Option<Stored<Definition>>,
    /// `constraints`.
    pub constraints: Option<Stored<Constraints>>,
    /// `cketerm/constraints`: our copy of the two that `ckecli` drops, as a `Constraints` of which only they count.
    pub our_constraints: Option<Stored<Constraints>>,
    /// `sabakan/disabled`.
    pub sabakan: Switch,
    /// `auto-repair/disabled`.
    pub auto_repair: Switch,
    /// `reboots/`.
    pub reboots: Queue<RebootEntry>,
    /// `repairs/`.
    pub repairs: Queue<RepairEntry>,
    /// `cketerm/schema`.
    pub schema: Option<Stored<u32>>,
    /// `cketerm/migration` is there: what an older version wrote is not all in the form of this one yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub migrating: bool,
    /// `cketerm/policy`.
    pub policy: Option<Stored<Policy>>,
    /// `cketerm/stopped`: both queues were disabled at once.
    pub stopped: Option<Stored<Stopped>>,
    /// `cketerm/identity`.
    pub identity: Option<Stored<Identity>>,
    /// `leader/` by create revision: the first leads.
    pub candidates: OrdMap<i64, Candidate>,
    /// `cketerm/engines/` by lease.
    pub engines: OrdMap<i64, Stored<EngineRegistration>>,
    /// `cketerm/requests/`.
    pub requests: OrdMap<EntryId, Stored<Request>>,
    /// `cketerm/attempts/` by entry and number.
    #[serde(with = "crate::model::pairs")]
    pub attempts: OrdMap<(EntryId, u32), Stored<Attempt>>,
    /// `cketerm/results/` by entry and number of the attempt: how commands ended whose leader is gone.
    #[serde(with = "crate::model::pairs")]
    pub results: OrdMap<(EntryId, u32), Stored<CommandResult>>,
    /// `cketerm/progress/`.
    pub progress: OrdMap<EntryId, Stored<Progress>>,
    /// `cketerm/orders/`.
    pub orders: OrdMap<EntryId, Stored<Order>>,
    /// `sabakan/…`, `cluster-revision`, `cketerm/approvals/…`.
    pub registry: RegistrySettings,
    /// `reboots/running`, as text: `true` while the queue is enabled and not empty, as CKE has it.
    pub running: Option<String>,
    /// `status`.
    pub status: Option<Stored<Status>>,
    /// Revision at which something was written last into each folder that is read on demand, as far as it was watched.
    pub grown: OrdMap<Folder, i64>,
    /// Which of their values were written lately, as far as the watch told.
    #[serde(skip)]
    pub fresh: Fresh,
    /// How the watch is doing, for people: nothing is decided by it.
    #[serde(skip)]
    pub line: WatchHealth,
    /// Keys of ours or CKE's that cannot be read, and why.
    pub broken: OrdMap<String, String>,
}

/// What is said of a leader that cannot migrate what an older version wrote.
pub fn migrates(host: &str, why: &str) -> String {
    format!("cketerm on {host} leads, and brings the records of an older version into this form: {why}")
}

impl StoreView {
    /// The definition, where there is a readable one.
    pub fn definition(&self) -> Option<&Definition> {
        self.cluster.as_ref().and_then(Stored::get)
    }

    /// The policy in force: the stored one, or the defaults where there is none or it cannot be read (an engine then
    /// only observes, see preflight).
    pub fn policy(&self) -> Arc<Policy> {
        match self.policy.as_ref().map(|s| &s.value) {
            Some(Ok(policy)) => Arc::clone(policy),
            _ => Arc::new(Policy::default()),
        }
    }

    /// The constraints in force: the stored ones, or the defaults where there are none. The two that today's `ckecli`
    /// drops come from our own copy where CKE's object lacks them.
    pub fn constraints(&self) -> Arc<Constraints> {
        let theirs = match self.constraints.as_ref().map(|s| &s.value) {
            Some(Ok(constraints)) => Arc::clone(constraints),
            _ => Arc::new(Constraints::default()),
        };
        match self.our_constraints.as_ref().and_then(Stored::get) {
            Some(ours) if theirs.minimum_workers.is_none() || theirs.maximum_workers.is_none() => {
                let mut merged = Constraints::clone(&theirs);
                super::settings::fill_workers(&mut merged, ours);
                Arc::new(merged)
            }
            _ => theirs,
        }
    }

    /// Who leads: the candidate with the smallest create revision.
    pub fn leader(&self) -> Option<&Candidate> {
        self.candidates.values().next()
    }

    /// What an engine says that does not campaign yet, though nobody leads.
    pub fn standing_back(&self) -> Option<&str> {
        self.engines.values().filter_map(Stored::get).find_map(|engine| engine.standing_back.as_deref())
    }

    /// What is said of a leader of ours that decides nothing yet, because it cannot migrate what an older version wrote.
    pub fn migrates(&self, leader: &Candidate) -> Option<String> {
        let engine = self.engines.get(&leader.lease).and_then(Stored::get)?;
        engine.migrating.as_deref().map(|why| migrates(&leader.host, why))
    }

    /// A candidate without a registration under `cketerm/engines/` is CKE's (spec/safety.md, Beside CKE).
    pub fn is_cke(&self, candidate: &Candidate) -> bool {
        !self.engines.contains_key(&candidate.lease)
    }

    /// The attempts of one entry, oldest first.
    pub fn attempts_of(&self, entry: EntryId) -> impl DoubleEndedIterator<Item = &Stored<Attempt>> {
        self.attempts.range((entry, 0)..=(entry, u32::MAX)).map(|(_, attempt)| attempt)
    }
}

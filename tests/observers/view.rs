//! A [`Record`] replayed once and indexed, so that no observer has to go through the record again.
//!
//! Scenarios contain values in etcd that cannot be read. The view keeps them as unreadable and goes on.

mod answers;
mod bounds;
mod kube;
mod timeline;
mod writes;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cketerm_model::{
    attempt::Attempt,
    batch::{Batch, BatchId},
    cketerm_records::{Ending, Order, Request},
    cluster::{Cluster, Node as Member},
    constraints::Constraints,
    entry::{EntryId, QueueKind},
    maintenance::MaintenanceEntry,
    outcomes::Outcome,
    policy::Policy,
    reboot::{RebootEntry, RebootStatus},
    repair::RepairEntry,
};
use jiff::{SignedDuration, Timestamp};

pub use self::{
    answers::Means,
    kube::{Labels, Node, Pod, PodState},
    timeline::{Step, Timeline},
    writes::{NodeWrite, PodWrite},
};
use super::record::{EngineReport, KeyChange, Record, Txn};

/// Entry of the reboot queue, or an error if it cannot be read.
pub type StoredReboot = Result<RebootEntry, ()>;

/// Entry of the repair queue, or an error if it cannot be read.
pub type StoredRepair = Result<RepairEntry, ()>;

/// One key in `leader/`.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its lease in hex, as in the key.
    pub lease: String,
    /// Revision that created it: the smallest leads.
    pub created: i64,
    /// Time of its creation.
    pub from: Timestamp,
    /// Revision and time of its deletion.
    pub deleted: Option<(i64, Timestamp)>,
    /// Whether it was registered below `cketerm/engines/` in the same transaction; otherwise it is CKE's.
    pub registered: bool,
    /// Process that wrote it, where that is known.
    pub by: Option<String>,
}

/// One change of one entry of the reboot queue.
#[derive(Clone, Copy, Debug)]
pub struct EntryChange<'v> {
    /// Time of the change.
    pub at: Timestamp,
    /// Revision of the change.
    pub revision: i64,
    /// Index of the entry.
    pub index: u64,
    /// Value before.
    pub before: Option<&'v StoredReboot>,
    /// Value now.
    pub after: Option<&'v StoredReboot>,
    /// Whether an engine of cketerm made the change.
    pub engine: bool,
}

impl EntryChange<'_> {
    /// Reports whether an engine starts work on the entry: from now on it is `draining`.
    pub fn starts(&self) -> bool {
        self.engine && status(self.after) == Some(RebootStatus::Draining) && !in_progress(self.before)
    }
}

/// The replayed record.
#[derive(Debug)]
pub struct View<'a> {
    /// The record itself.
    pub record: &'a Record,
    /// The reboot queue by index.
    pub entries: BTreeMap<u64, Timeline<StoredReboot>>,
    /// `cketerm/attempts/reboots/` by index and number.
    pub attempts: BTreeMap<(u64, u32), Timeline<Attempt>>,
    /// The repair queue by index.
    pub repairs: BTreeMap<u64, Timeline<StoredRepair>>,
    /// `cketerm/attempts/repairs/` by index and number.
    pub repair_attempts: BTreeMap<(u64, u32), Timeline<Attempt>>,
    /// `repairs/disabled`, as bytes.
    pub repair_switch: Timeline<Vec<u8>>,
    /// `cketerm/orders/reboots/` by index.
    pub orders: BTreeMap<u64, Timeline<Order>>,
    /// `cketerm/requests/reboots/` by index.
    pub requests: BTreeMap<u64, Timeline<Request>>,
    /// `cketerm/requests/repairs/` by index.
    pub repair_requests: BTreeMap<u64, Timeline<Request>>,
    /// `cketerm/batches/` by id.
    pub batches: BTreeMap<BatchId, Timeline<Batch>>,
    /// Times in which the record of a batch exists and cannot be read.
    pub unreadable_batches: BTreeMap<BatchId, Timeline<()>>,
    /// `cketerm/history/reboots-…` by index.
    pub endings: BTreeMap<u64, Timeline<Ending>>,
    /// `cketerm/outcomes/` by index of the reboot entry.
    pub outcomes: BTreeMap<u64, Timeline<Outcome>>,
    /// Maintenances by index. One that cannot be read counts as none.
    pub maintenance: BTreeMap<u64, Timeline<MaintenanceEntry>>,
    /// `cluster`; what cannot be read counts as none.
    pub clusters: Timeline<Cluster>,
    /// `constraints`, likewise.
    pub constraints: Timeline<Constraints>,
    /// `cketerm/policy`, likewise.
    pub policies: Timeline<Policy>,
    /// `reboots/disabled`, as bytes.
    pub switch: Timeline<Vec<u8>>,
    /// `reboots/write-index`, as bytes.
    pub write_index: Timeline<Vec<u8>>,
    /// `reboots/running`, as bytes.
    pub running: Timeline<Vec<u8>>,
    /// All candidates that ever campaigned, in the order of their arrival.
    pub candidates: Vec<Candidate>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Timeline<Node>>,
    /// Pods by UID.
    pub pods: BTreeMap<String, Pod>,
    /// Labels of namespaces by name.
    pub namespaces: BTreeMap<String, Timeline<Labels>>,
    /// Whether a DaemonSet has the `OnDelete` strategy, by UID.
    pub on_delete: BTreeMap<String, Timeline<bool>>,
    /// Writes of processes to Nodes, with their results.
    pub node_writes: Vec<NodeWrite<'a>>,
    /// Requests of engines about pods.
    pub pod_writes: Vec<PodWrite<'a>>,
    /// Names and resourceVersions of Nodes that engines wrote.
    made_by_engines: BTreeSet<(String, i64)>,
    pods_on: HashMap<String, Vec<String>>,
    /// Reports of leaders; see [`View::leading`].
    leading: Vec<&'a EngineReport>,
    writers: HashMap<i64, &'a Txn>,
    /// Revisions that contain an engine's audit record. They show the author where nothing could listen to
    /// transactions.
    audited: BTreeSet<i64>,
    policy: Policy,
}

/// Returns its status, if it can be read.
pub fn status(stored: Option<&StoredReboot>) -> Option<RebootStatus> {
    stored?.as_ref().ok().map(|e| e.status)
}

/// Reports whether it is `draining` or `rebooting`.
pub fn in_progress(stored: Option<&StoredReboot>) -> bool {
    matches!(status(stored), Some(RebootStatus::Draining | RebootStatus::Rebooting))
}

/// Returns the time this many seconds later, or earlier if negative.
pub fn shift(at: Timestamp, seconds: f64) -> Timestamp {
    let span = SignedDuration::try_from_secs_f64(seconds).unwrap_or_default();
    at.checked_add(span).unwrap_or(if seconds < 0.0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Reports whether a process of this name is an engine of cketerm.
pub fn is_engine(by: &str) -> bool {
    by.starts_with("engine")
}

impl<'a> View<'a> {
    /// Replays a record.
    pub fn of(record: &'a Record) -> Self {
        let mut view = Self {
            record,
            entries: BTreeMap::new(),
            attempts: BTreeMap::new(),
            repairs: BTreeMap::new(),
            repair_attempts: BTreeMap::new(),
            repair_switch: Timeline::default(),
            orders: BTreeMap::new(),
            requests: BTreeMap::new(),
            repair_requests: BTreeMap::new(),
            batches: BTreeMap::new(),
            unreadable_batches: BTreeMap::new(),
            endings: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            maintenance: BTreeMap::new(),
            clusters: Timeline::default(),
            constraints: Timeline::default(),
            policies: Timeline::default(),
            switch: Timeline::default(),
            write_index: Timeline::default(),
            running: Timeline::default(),
            candidates: Vec::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            on_delete: BTreeMap::new(),
            node_writes: Vec::new(),
            pod_writes: Vec::new(),
            made_by_engines: BTreeSet::new(),
            pods_on: HashMap::new(),
            leading: bounds::leading(record),
            writers: HashMap::new(),
            audited: BTreeSet::new(),
            policy: Policy::default(),
        };
        for txn in record.txns.iter().filter(|t| t.succeeded && !(t.puts.is_empty() && t.deletes.is_empty())) {
            view.writers.entry(txn.revision).or_insert(txn);
        }
        for change in &record.keys {
            view.key(change);
        }
        view.objects();
        view.writes();
        view
    }

    fn key(&mut self, change: &KeyChange) {
        let (at, revision) = (change.at, change.revision);
        let value = change.value.as_deref();
        let (folder, rest) = change.key.split_once('/').unwrap_or((&change.key, ""));
        match (folder, rest) {
            ("reboots", "disabled") => self.switch.push(at, revision, value.map(<[u8]>::to_vec)),
            ("reboots", "write-index") => self.write_index.push(at, revision, value.map(<[u8]>::to_vec)),
            ("reboots", "running") => self.running.push(at, revision, value.map(<[u8]>::to_vec)),
            ("reboots", _) => {
                if let Some(index) = rest.strip_prefix("data/").and_then(hex_index) {
                    let entry = value.map(|v| serde_json::from_slice(v).map_err(|_| ()));
                    self.entries.entry(index).or_default().push(at, revision, entry);
                }
            }
            ("repairs", "disabled") => self.repair_switch.push(at, revision, value.map(<[u8]>::to_vec)),
            ("repairs", _) => {
                if let Some(index) = rest.strip_prefix("data/").and_then(hex_index) {
                    let entry = value.map(|v| serde_json::from_slice(v).map_err(|_| ()));
                    self.repairs.entry(index).or_default().push(at, revision, entry);
                }
            }
            ("cluster", "") => self.clusters.push(at, revision, value.and_then(read)),
            ("constraints", "") => self.constraints.push(at, revision, value.and_then(read)),
            ("leader", _) => self.candidate(change, rest.trim_start_matches('/')),
            ("cketerm", _) => self.own_key(change, rest),
            _ => {}
        }
    }

    fn candidate(&mut self, change: &KeyChange, lease: &str) {
        let active = self.candidates.iter_mut().rev().find(|c| c.lease == lease && c.deleted.is_none());
        match (active, &change.value) {
            (Some(candidate), None) => candidate.deleted = Some((change.revision, change.at)),
            (None, Some(_)) => {
                let by = self.writers.get(&change.revision).map(|t| t.by.clone());
                let registered = format!("cketerm/engines/{lease}");
                let registered = self.changed(change.revision).iter().any(|c| c.key == registered && c.value.is_some());
                self.candidates.push(Candidate {
                    lease: lease.to_owned(),
                    created: change.revision,
                    from: change.at,
                    deleted: None,
                    registered,
                    by,
                });
            }
            _ => {}
        }
    }

    fn own_key(&mut self, change: &KeyChange, rest: &str) {
        let (at, revision, value) = (change.at, change.revision, change.value.as_deref());
        let (folder, name) = rest.split_once('/').unwrap_or((rest, ""));
        let reboot = |text: &str| text.parse::<EntryId>().ok().filter(|id| id.queue == QueueKind::Reboot);
        match folder {
            "policy" => self.policies.push(at, revision, value.and_then(read)),
            "attempts" => {
                let parts =
                    name.rsplit_once('/').and_then(|(id, n)| Some((id.parse::<EntryId>().ok()?, n.parse().ok()?)));
                if let Some((id, n)) = parts {
                    let all = match id.queue {
                        QueueKind::Reboot => &mut self.attempts,
                        QueueKind::Repair => &mut self.repair_attempts,
                        QueueKind::Maintenance => return,
                    };
                    all.entry((id.index, n)).or_default().push(at, revision, value.and_then(read));
                }
            }
            "maintenance" => {
                let index = name.strip_prefix("data/").and_then(|index| u64::from_str_radix(index, 16).ok());
                if let Some(index) = index {
                    self.maintenance.entry(index).or_default().push(at, revision, value.and_then(read));
                }
            }
            "orders" => {
                if let Some(id) = reboot(name) {
                    self.orders.entry(id.index).or_default().push(at, revision, value.and_then(read));
                }
            }
            "requests" => {
                if let Ok(id) = name.parse::<EntryId>() {
                    let all = match id.queue {
                        QueueKind::Reboot => &mut self.requests,
                        QueueKind::Repair => &mut self.repair_requests,
                        QueueKind::Maintenance => return,
                    };
                    all.entry(id.index).or_default().push(at, revision, value.and_then(read));
                }
            }
            "batches" => {
                if let Ok(id) = name.parse::<BatchId>() {
                    let batch: Option<Batch> = value.and_then(read);
                    let unreadable = (value.is_some() && batch.is_none()).then_some(());
                    self.unreadable_batches.entry(id).or_default().push(at, revision, unreadable);
                    self.batches.entry(id).or_default().push(at, revision, batch);
                }
            }
            "history" => {
                if let Some(index) = name.strip_prefix("reboots-").and_then(hex_index) {
                    self.endings.entry(index).or_default().push(at, revision, value.and_then(read));
                }
            }
            "outcomes" => {
                if let Some(index) = hex_index(name) {
                    self.outcomes.entry(index).or_default().push(at, revision, value.and_then(read));
                }
            }
            // the key of an engine's record has time, lease and entry
            "audit" if name.splitn(3, '-').count() == 3 && value.is_some() => {
                self.audited.insert(revision);
            }
            _ => {}
        }
    }

    /// Every change of one revision.
    pub fn changed(&self, revision: i64) -> &'a [KeyChange] {
        let keys = &self.record.keys;
        let from = keys.partition_point(|c| c.revision < revision);
        let to = keys.partition_point(|c| c.revision <= revision);
        &keys[from..to]
    }

    /// Transaction that made a revision, where it is known.
    pub fn txn(&self, revision: i64) -> Option<&'a Txn> {
        self.writers.get(&revision).copied()
    }

    /// Reports whether an engine of cketerm made this revision. Where nothing could listen to transactions, its audit
    /// record shows it; a revision without one then counts as another program's.
    pub fn written_by_engine(&self, revision: i64) -> bool {
        match self.writers.get(&revision) {
            Some(txn) => is_engine(&txn.by),
            None => self.record.txns.is_empty() && self.audited.contains(&revision),
        }
    }

    /// Every change of an entry, in the order of revisions.
    pub fn entry_changes(&self) -> Vec<EntryChange<'_>> {
        let mut all = Vec::new();
        for (&index, line) in &self.entries {
            let mut before = None;
            for step in line.steps() {
                let (at, revision, after) = (step.at, step.revision, step.value.as_ref());
                all.push(EntryChange { at, revision, index, before, after, engine: self.written_by_engine(revision) });
                before = after;
            }
        }
        all.sort_by_key(|m| (m.revision, m.index));
        all
    }

    /// The entry's value at this revision.
    pub fn entry(&self, index: u64, revision: i64) -> Option<&RebootEntry> {
        self.entries.get(&index)?.get(revision)?.as_ref().ok()
    }

    /// Readable entries at this revision.
    pub fn queue(&self, revision: i64) -> impl Iterator<Item = (u64, &RebootEntry)> {
        let each = self.entries.iter().map(move |(&i, line)| (i, line.get(revision)));
        each.filter_map(|(i, stored)| Some((i, stored?.as_ref().ok()?)))
    }

    /// Entries of members in `draining` or `rebooting` at this revision.
    pub fn entries_in_progress(&self, revision: i64) -> Vec<(u64, &RebootEntry, &Member)> {
        let Some(cluster) = self.clusters.get(revision) else { return Vec::new() };
        let busy =
            self.queue(revision).filter(|(_, e)| matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting));
        busy.filter_map(|(i, e)| Some((i, e, member(cluster, &e.node)?))).collect()
    }

    /// Attempts of an entry, with their numbers.
    pub fn attempts_of(&self, index: u64) -> impl Iterator<Item = (u32, &Timeline<Attempt>)> {
        self.attempts.range((index, 0)..=(index, u32::MAX)).map(|((_, n), line)| (*n, line))
    }

    /// Attempt with this id: its number and its states.
    pub fn attempt(&self, index: u64, id: &str) -> Option<(u32, &Timeline<Attempt>)> {
        let named =
            |line: &Timeline<Attempt>| line.steps().iter().any(|s| s.value.as_ref().is_some_and(|a| a.id == id));
        self.attempts_of(index).find(|(_, line)| named(line))
    }

    /// Policy at this revision.
    pub fn policy(&self, revision: i64) -> &Policy {
        self.policies.get(revision).unwrap_or(&self.policy)
    }

    /// Reports whether the queue was enabled at this revision: only the exact bytes `true` disable it.
    pub fn enabled(&self, revision: i64) -> bool {
        self.switch.get(revision).is_none_or(|raw| raw != b"true")
    }

    /// Leader at this revision: of all keys in `leader/` the one with the smallest create revision.
    pub fn leader(&self, revision: i64) -> Option<&Candidate> {
        let mut there = self.candidates.iter();
        there.find(|c| c.created <= revision && c.deleted.is_none_or(|(deleted, _)| revision < deleted))
    }

    /// Lease of the key that leads in this revision, and the time from which it has led.
    pub fn leading_lease(&self, revision: i64) -> Option<(i64, Timestamp)> {
        let leader = self.leader(revision)?;
        let before = self.candidates.iter().take_while(|c| c.created < leader.created);
        let since = before.filter_map(|c| c.deleted).map(|(_, at)| at).fold(leader.from, Timestamp::max);
        Some((i64::from_str_radix(&leader.lease, 16).ok()?, since))
    }

    /// Reports whether the engine's key with this lease led at any moment in this time.
    pub fn led(&self, lease: &str, from: Timestamp, to: Timestamp) -> bool {
        let Some(i) = self.candidates.iter().position(|c| c.lease == lease) else { return false };
        let own = &self.candidates[i];
        let over = own.deleted.map_or(Timestamp::MAX, |(_, at)| at);
        let before = self.candidates[..i].iter();
        let first = before.map(|c| c.deleted.map_or(Timestamp::MAX, |(_, at)| at)).fold(own.from, Timestamp::max);
        first <= over && first <= to && over >= from
    }
}

/// Name of a reported reason. The name is usually the first field, so it is found without hashing: there are reports
/// for every second.
pub fn named(reason: &serde_json::Value) -> &str {
    let fields = reason.as_object().into_iter().flatten();
    fields.filter(|(field, _)| *field == "reason").find_map(|(_, name)| name.as_str()).unwrap_or_default()
}

/// The member with this address.
pub fn member<'c>(cluster: &'c Cluster, address: &str) -> Option<&'c Member> {
    cluster.nodes.iter().find(|n| n.address == address)
}

/// Index as keys have it: 16 hex digits.
fn hex_index(text: &str) -> Option<u64> {
    let good = text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    good.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

fn read<T: serde::de::DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

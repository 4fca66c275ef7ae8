//! Look-ups over what was seen, and the few sums that are made once for each change instead of once a frame.

use std::{collections::HashSet, mem::discriminant, sync::Arc};

use jiff::Timestamp;

pub use super::fleet::{Hosts, Named, known, names};
use super::overview::ends_anyway;
pub use super::sources::{Lost, STALE_SECONDS, etcd_lost, kube_lost};

pub use crate::engine::trouble::since;
use crate::{
    engine::{snapshot::Seen, trouble},
    model::{
        attempt::{Attempt, CheckAnswer},
        cketerm_records::{Progress, Verb},
        cluster::{Node, Operation, queue_faults},
        entry::{EntryId, QueueKind, Stored},
        host::HostRow,
        kube::NodeRow,
        reason::Reason,
        reboot::{RebootEntry, RebootStatus},
        repair::{RepairEntry, RepairStatus, StepStatus},
        time::after,
    },
    store::view::{Candidate, StoreView},
};

/// Entries of one queue by what becomes of them next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting for their turn.
    pub queued: usize,
    /// Waiting for the end of a backoff.
    pub backoff: usize,
    /// Draining.
    pub draining: usize,
    /// After a command: rebooting, or watching.
    pub after: usize,
    /// Repairs that have succeeded.
    pub succeeded: usize,
    /// Repairs that have failed.
    pub failed: usize,
    /// They cannot be read.
    pub broken: usize,
    /// They need a person.
    pub trouble: usize,
}

/// Entries by Node name (or address).
type Entries = foldhash::HashMap<String, EntryId>;

/// Counts of the header, and the entries of each machine.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    of: Option<Arc<StoreView>>,
    /// The first live reboot of each machine, by Node name (or address).
    by_node: Entries,
    /// The first unfinished repair of each machine, else its first failed one; likewise.
    repairs_by_node: Entries,
    /// Of the reboot queue; orphaned cordons are among its trouble.
    pub reboots: Counts,
    /// Of the repair queue.
    pub repairs: Counts,
    /// What holds whole queues: one that waits for it, and how many do.
    pub holds: Vec<(EntryId, usize)>,
    /// What is wrong with the stored definition.
    pub faults: Vec<String>,
    /// Nodes that are not Ready, by name, and that nobody sent away: no command was run for them, and nobody holds or
    /// restarts their host.
    pub unready: Vec<String>,
    /// Members of the definition without a Node, by name; none while Kubernetes has not told of its Nodes.
    pub missing: Vec<String>,
    /// Hosts by what a person should know of them.
    pub hosts: Hosts,
    /// How many nodes there are, in Kubernetes or in the definition.
    pub names: usize,
    /// Columns that the longest node name takes.
    pub name_width: usize,
    /// What both were counted from, and how often that has changed.
    named: Option<Named>,
    /// Counts up when names may have changed.
    pub namings: u64,
}

impl Totals {
    /// Takes the sums anew; the index by machine and the definition's faults only when etcd's copy changed.
    pub fn refresh(&mut self, seen: &Seen) {
        let store = &seen.snapshot.store;
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, store)) || self.by_node.is_empty() {
            self.index(seen);
            let same = self.of.as_ref().is_some_and(|of| revision_of(of) == revision_of(store));
            if !same {
                self.faults = definition_faults(store);
            }
            self.of = Some(Arc::clone(store));
        }
        self.reboots = reboots(seen);
        self.repairs = repairs(seen);
        for id in trouble::all_stuck(seen) {
            let counts = if id.queue == QueueKind::Reboot { &mut self.reboots } else { &mut self.repairs };
            counts.trouble += 1;
        }
        self.holds = holds(seen);
        let named = Named::by(seen);
        if !self.named.as_ref().is_some_and(|of| of.is(&named)) {
            let count = named.count(seen);
            (self.names, self.name_width, self.missing) = (count.names, count.width, count.missing);
            self.named = Some(named);
            self.namings += 1;
        }
        self.hosts.refresh(seen);
        self.unready.clear();
        let not_ready = &seen.snapshot.kube.not_ready;
        if not_ready.is_empty() {
            return;
        }
        let hosts = self.hosts.away.iter().filter_map(|id| host_node(seen, id));
        let hosts: HashSet<&str> = hosts.map(|node| node.name.as_str()).collect();
        let sent = |name: &str| hosts.contains(name) || self.entries_of(name).any(|id| ends_anyway(seen, id));
        self.unready = not_ready.iter().filter(|name| !sent(name)).cloned().collect();
    }

    fn index(&mut self, seen: &Seen) {
        let store = &seen.snapshot.store;
        self.by_node.clear();
        self.repairs_by_node.clear();
        for (index, stored) in &store.reboots.entries {
            if let Some(entry) = stored.get() {
                let name = seen.snapshot.machine(&entry.node);
                self.by_node.entry(name).or_insert(EntryId::reboot(*index));
            }
        }
        let open = |e: &RepairEntry| e.unfinished();
        let failed = |e: &RepairEntry| e.status == RepairStatus::Failed && !e.deleted;
        for wanted in [open as fn(&RepairEntry) -> bool, failed] {
            for (index, stored) in &store.repairs.entries {
                if stored.get().is_some_and(wanted)
                    && let Some(name) = machine(seen, EntryId::repair(*index))
                {
                    self.repairs_by_node.entry(name).or_insert(EntryId::repair(*index));
                }
            }
        }
    }

    /// The first live reboot of a machine, by Node name (or address).
    pub fn reboot_of(&self, name: &str) -> Option<EntryId> {
        self.by_node.get(name).copied()
    }

    /// The first unfinished repair of a machine, else its first failed one.
    pub fn repair_of(&self, name: &str) -> Option<EntryId> {
        self.repairs_by_node.get(name).copied()
    }

    /// Both.
    pub fn entries_of(&self, name: &str) -> impl Iterator<Item = EntryId> + use<> {
        self.reboot_of(name).into_iter().chain(self.repair_of(name))
    }
}

fn revision_of(store: &StoreView) -> Option<i64> {
    store.cluster.as_ref().map(|c| c.mod_revision)
}

/// What `cluster set` would have refused in the sections of the queues, and what cannot be read at all.
fn definition_faults(store: &StoreView) -> Vec<String> {
    match store.cluster.as_ref().map(|c| &c.value) {
        Some(Ok(definition)) => queue_faults(&definition.cluster).iter().map(ToString::to_string).collect(),
        Some(Err(why)) => vec![format!("cannot be read: {why}")],
        None => Vec::new(),
    }
}

fn reboots(seen: &Seen) -> Counts {
    let mut counts = Counts::default();
    for stored in seen.snapshot.store.reboots.entries.values() {
        let Some(e) = stored.get() else {
            counts.broken += 1;
            continue;
        };
        match e.status {
            RebootStatus::Queued if e.drain_backoff_expire.is_some_and(|t| t > seen.now.wall) => counts.backoff += 1,
            RebootStatus::Queued => counts.queued += 1,
            RebootStatus::Draining => counts.draining += 1,
            RebootStatus::Rebooting => counts.after += 1,
            RebootStatus::Cancelled => {}
        }
    }
    counts.trouble = seen.orphans.len();
    counts
}

fn repairs(seen: &Seen) -> Counts {
    let mut counts = Counts::default();
    for stored in seen.snapshot.store.repairs.entries.values() {
        let Some(e) = stored.get() else {
            counts.broken += 1;
            continue;
        };
        match (e.status, e.step_status) {
            _ if e.deleted => {}
            (RepairStatus::Succeeded, _) => counts.succeeded += 1,
            (RepairStatus::Failed, _) => counts.failed += 1,
            (_, StepStatus::Draining) => counts.draining += 1,
            (_, StepStatus::Watching) => counts.after += 1,
            _ if e.drain_backoff_expire.is_some_and(|t| t > seen.now.wall) => counts.backoff += 1,
            _ => counts.queued += 1,
        }
    }
    counts
}

/// What holds whole queues and is told nowhere else: the first entry that waits for it, and how many do. Why our own engine
/// only observes is told where it does not lead.
fn holds(seen: &Seen) -> Vec<(EntryId, usize)> {
    let engine = &seen.snapshot.engine;
    let told = engine.leading.is_none() && !engine.observing.is_empty();
    let held = |id: &EntryId, why: &Reason| match why {
        Reason::EngineObserving { .. } => !told,
        why => trouble::at_gate(seen, *id, why),
    };
    let mut holds: Vec<(&Reason, EntryId, usize)> = Vec::new();
    for (id, why) in seen.reasons.iter().filter(|(id, why)| held(id, why)) {
        let same = |known: &Reason, at: &EntryId| at.queue == id.queue && discriminant(known) == discriminant(why);
        match holds.iter_mut().find(|(known, at, _)| same(known, at)) {
            Some((.., n)) => *n += 1,
            None => holds.push((why, *id, 1)),
        }
    }
    holds.into_iter().map(|(_, id, n)| (id, n)).collect()
}

/// A host.
pub fn host<'a>(seen: &'a Seen, id: &(String, String)) -> Option<&'a Arc<HostRow>> {
    seen.snapshot.kube.hosts.get(id)
}

/// The Node of a host.
pub fn host_node<'a>(seen: &'a Seen, id: &(String, String)) -> Option<&'a Arc<NodeRow>> {
    host(seen, id)?.node_in(&seen.snapshot.kube).map(|(node, _)| node)
}

/// Until when an entry is not tried again, whatever else keeps it meanwhile.
pub fn backs_off(seen: &Seen, id: EntryId) -> Option<Timestamp> {
    let expires = match id.queue {
        QueueKind::Reboot => entry(seen, id).filter(|e| e.status == RebootStatus::Queued)?.drain_backoff_expire,
        QueueKind::Repair => {
            let waits = |e: &&RepairEntry| e.unfinished() && e.step_status == StepStatus::Waiting;
            repair(seen, id).filter(waits)?.drain_backoff_expire
        }
    };
    expires.filter(|until| *until > seen.now.wall)
}

/// Why an entry of either queue cannot be read.
pub fn broken(seen: &Seen, id: EntryId) -> Option<&str> {
    let store = &seen.snapshot.store;
    let why = match id.queue {
        QueueKind::Reboot => store.reboots.entries.get(&id.index)?.value.as_ref().err(),
        QueueKind::Repair => store.repairs.entries.get(&id.index)?.value.as_ref().err(),
    };
    why.map(String::as_str)
}

/// An entry of the reboot queue as it lies in etcd.
pub fn stored(seen: &Seen, id: EntryId) -> Option<&Stored<RebootEntry>> {
    match id.queue {
        QueueKind::Reboot => seen.snapshot.store.reboots.entries.get(&id.index),
        QueueKind::Repair => None,
    }
}

/// A readable entry of the reboot queue.
pub fn entry(seen: &Seen, id: EntryId) -> Option<&RebootEntry> {
    stored(seen, id).and_then(Stored::get)
}

/// A readable entry of the repair queue.
pub fn repair(seen: &Seen, id: EntryId) -> Option<&RepairEntry> {
    let repairs = &seen.snapshot.store.repairs.entries;
    repairs.get(&id.index).filter(|_| id.queue == QueueKind::Repair).and_then(Stored::get)
}

/// What an entry of either queue lies under, and the revision that a confirmation is bound to; none when it is gone.
pub fn lies(seen: &Seen, id: EntryId) -> Option<(&str, i64)> {
    let store = &seen.snapshot.store;
    match id.queue {
        QueueKind::Reboot => store.reboots.entries.get(&id.index).map(|s| (s.key.as_str(), s.mod_revision)),
        QueueKind::Repair => store.repairs.entries.get(&id.index).map(|s| (s.key.as_str(), s.mod_revision)),
    }
}

/// The address of an entry's machine; none where the entry cannot be read.
pub fn address_of(seen: &Seen, id: EntryId) -> Option<&str> {
    match id.queue {
        QueueKind::Reboot => entry(seen, id).map(|e| e.node.as_str()),
        QueueKind::Repair => repair(seen, id).map(|e| e.address.as_str()),
    }
}

/// The name of an entry's machine: its Node's, else the address.
pub fn machine(seen: &Seen, id: EntryId) -> Option<String> {
    address_of(seen, id).map(|address| seen.snapshot.machine(address))
}

/// The operation that a repair names, where the definition has it.
pub fn operation<'a>(seen: &'a Seen, entry: &RepairEntry) -> Option<&'a Operation> {
    let definition = seen.snapshot.store.definition()?;
    definition.cluster.repair.operation(&entry.machine_type, &entry.operation).ok()
}

/// What the health check of a repair said last: as this engine asked it, else as the leader published it.
pub fn health(seen: &Seen, id: EntryId) -> Option<&CheckAnswer> {
    let ours = seen.snapshot.work.get(&id).and_then(|w| w.check.as_ref()).map(|(_, answer)| answer);
    ours.or_else(|| progress(seen, id)?.check.as_ref().map(|(_, answer)| answer))
}

/// When what a repair does now is over at the latest: the watch of its step, its drain, or its backoff.
pub fn deadline(seen: &Seen, id: EntryId) -> Option<Timestamp> {
    let entry = repair(seen, id).filter(|e| e.unfinished())?;
    let moved = entry.last_transition_time;
    match (entry.status, entry.step_status) {
        (RepairStatus::Processing, StepStatus::Watching) => {
            if let Some(Reason::WaitingForHealth { until: Some(until), .. }) = seen.reasons.get(&id) {
                return Some(*until);
            }
            let step = operation(seen, entry)?.step(entry.step)?;
            Some(after(moved?, step.watch_seconds.unwrap_or(0)))
        }
        (RepairStatus::Processing, StepStatus::Draining) => {
            let repair = &seen.snapshot.store.definition()?.cluster.repair;
            Some(after(moved?, repair.eviction_timeout_seconds.unwrap_or(600)))
        }
        _ => entry.drain_backoff_expire.filter(|t| *t > seen.now.wall),
    }
}

/// The member of the definition behind a Node's name.
pub fn member<'a>(seen: &'a Seen, node: &str) -> Option<&'a Node> {
    let definition = seen.snapshot.store.definition()?;
    definition.members.by_name(&definition.cluster, node)
}

/// The Kubernetes Node of that name.
pub fn node<'a>(seen: &'a Seen, name: &str) -> Option<&'a Arc<NodeRow>> {
    seen.snapshot.kube.by_name.get(name)
}

/// Whether a Node runs an API server: the definition says, or without one the Node's role.
pub fn is_api_server(seen: &Seen, name: &str) -> bool {
    runs_api_server(seen, node(seen, name), member(seen, name))
}

fn runs_api_server(seen: &Seen, node: Option<&Arc<NodeRow>>, member: Option<&Node>) -> bool {
    match (seen.snapshot.store.definition(), member) {
        (Some(_), member) => member.is_some_and(|m| m.control_plane),
        _ => node.is_some_and(|n| n.shown_labels.iter().any(|(k, _)| k.ends_with("/control-plane"))),
    }
}

/// `api` for an API server, else the node's role label, else `worker`.
pub fn role<'a>(seen: &'a Seen, name: &str) -> &'a str {
    role_of(seen, node(seen, name), member(seen, name))
}

/// The same of what is looked up already.
pub fn role_of<'a>(seen: &Seen, node: Option<&'a Arc<NodeRow>>, member: Option<&Node>) -> &'a str {
    if runs_api_server(seen, node, member) {
        return "api";
    }
    let labels = || node.into_iter().flat_map(|n| &n.shown_labels);
    let by_value = labels().find(|(k, v)| k.ends_with("/role") && !v.is_empty()).map(|(_, v)| v.as_str());
    let by_key = || labels().find_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/"));
    by_value.or_else(by_key).unwrap_or("worker")
}

/// The rack, or the zone where no rack is told; empty without either.
pub fn rack<'a>(seen: &'a Seen, name: &str) -> &'a str {
    rack_of(node(seen, name), member(seen, name))
}

/// The same of what is looked up already.
pub fn rack_of<'a>(node: Option<&'a Arc<NodeRow>>, member: Option<&'a Node>) -> &'a str {
    let own = || node.into_iter().flat_map(|n| &n.shown_labels).map(|(k, v)| (k.as_str(), v.as_str()));
    let defined = || member.and_then(|m| m.labels.as_ref()).into_iter().flatten();
    let defined = || defined().map(|(k, v)| (k.as_str(), v.as_str()));
    let of = |end: &str| own().chain(defined()).find(|(k, _)| k.ends_with(end)).map(|(_, v)| v);
    of("/rack").or_else(|| of("/zone")).unwrap_or_default()
}

/// The address that names a Node in the queue: the definition's, else the Node's first IP address.
pub fn address(seen: &Seen, name: &str) -> Option<String> {
    let named = member(seen, name).map(|m| m.address.as_str());
    named.or_else(|| ip_of(node(seen, name)?)).map(str::to_owned)
}

/// A Node's first IP address.
pub fn ip_of(node: &NodeRow) -> Option<&str> {
    node.addresses.iter().map(String::as_str).find(|a| a.parse::<std::net::IpAddr>().is_ok())
}

/// What the leader published about an entry.
pub fn progress(seen: &Seen, id: EntryId) -> Option<&Progress> {
    seen.snapshot.store.progress.get(&id).and_then(Stored::get)
}

/// The attempt of an entry whose command runs: it is open, and the engine that began it is there.
pub fn running(seen: &Seen, id: EntryId) -> Option<&Attempt> {
    let store = &seen.snapshot.store;
    let last = store.attempts_of(id).next_back().and_then(Stored::get)?;
    (last.open() && store.candidates.values().any(|c| c.lease == last.lease)).then_some(last)
}

/// An order that was given and not yet taken up.
pub fn order(seen: &Seen, id: EntryId) -> Option<Verb> {
    seen.snapshot.store.orders.get(&id).and_then(Stored::get).map(|o| o.verb)
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This program.
    Us,
    /// Another cketerm on that host.
    Other(String),
    /// CKE on that host.
    Cke(String),
    /// Nobody.
    Nobody,
    /// etcd does not answer, and this program does not lead: whose key lies there now is not known.
    Unknown,
}

/// Who leads.
pub fn leader(seen: &Seen) -> Leader {
    let store = &seen.snapshot.store;
    let ours = |c: &Candidate| seen.snapshot.engine.leading.as_ref().is_some_and(|l| l.key == c.key);
    match store.leader() {
        None => Leader::Nobody,
        Some(c) if ours(c) => Leader::Us,
        Some(c) if store.is_cke(c) => Leader::Cke(c.host.clone()),
        Some(c) => Leader::Other(c.host.clone()),
    }
}

//! Look-ups in the published state, and sums that are computed once per change instead of once per frame.

use std::{collections::HashSet, mem::discriminant, sync::Arc};

use cketerm_model::{
    attempt::{Attempt, CheckAnswer},
    cketerm_records::{Progress, Verb},
    cluster::{Node, Operation, queue_faults},
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    host::HostRow,
    kube::NodeRow,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::view::{Candidate, StoreView},
    time::after,
};
pub use cketerm_rules::trouble::since;
use cketerm_rules::{seen::Seen, trouble};
use jiff::Timestamp;

pub use super::fleet::{Hosts, NodeNames, known, names};
use super::overview::finishes_anyway;
pub use super::sources::{Lost, STALE_SECONDS, etcd_lost, kube_lost};

/// Entries of one queue, counted by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting for their turn.
    pub queued: usize,
    /// Waiting for the end of a backoff.
    pub backoff: usize,
    /// Draining.
    pub draining: usize,
    /// Rebooting, or watching after a repair command.
    pub after: usize,
    /// Succeeded repairs.
    pub succeeded: usize,
    /// Failed repairs.
    pub failed: usize,
    /// Entries that cannot be read.
    pub broken: usize,
    /// Entries that need an operator.
    pub trouble: usize,
}

/// Entries by Node name (or address).
type Entries = foldhash::HashMap<String, EntryId>;

/// Counts for the header, and the entries of each machine.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    of: Option<Arc<StoreView>>,
    /// First live reboot of each machine, by Node name (or address).
    by_node: Entries,
    /// First unfinished repair of each machine, else its first failed one, by Node name (or address).
    repairs_by_node: Entries,
    /// Counts of the reboot queue; `trouble` includes orphaned cordons.
    pub reboots: Counts,
    /// Counts of the repair queue.
    pub repairs: Counts,
    /// Reasons that hold whole queues: the first entry that waits for each reason, and the number of entries.
    pub holds: Vec<(EntryId, usize)>,
    /// Faults of the stored definition.
    pub faults: Vec<String>,
    /// Names of Nodes that are unexpectedly not Ready: no command ran for them, and nobody holds or restarts their
    /// host.
    pub unready: Vec<String>,
    /// Names of members of the definition without a Node. Empty until the list of Nodes is known.
    pub missing: Vec<String>,
    /// Hosts, grouped by what an operator should know about them.
    pub hosts: Hosts,
    /// Number of nodes in Kubernetes or in the definition.
    pub names: usize,
    /// Width of the longest node name, in columns.
    pub name_width: usize,
    /// Inputs of `names`, `name_width` and `missing`.
    named: Option<NodeNames>,
    /// Counter that increases whenever names may have changed.
    pub names_generation: u64,
}

impl Totals {
    /// Returns the counts of a queue.
    pub fn counts(&self, queue: QueueKind) -> &Counts {
        match queue {
            QueueKind::Reboot => &self.reboots,
            QueueKind::Repair => &self.repairs,
        }
    }

    /// Recomputes the sums. The index by machine is rebuilt only when the live copy of etcd changed, the definition's
    /// faults only when the definition changed.
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
        let named = NodeNames::by(seen);
        if !self.named.as_ref().is_some_and(|of| of.is(&named)) {
            let count = named.count(seen);
            (self.names, self.name_width, self.missing) = (count.names, count.width, count.missing);
            self.named = Some(named);
            self.names_generation += 1;
        }
        self.hosts.refresh(seen);
        self.unready.clear();
        let not_ready = &seen.snapshot.kube.not_ready;
        if not_ready.is_empty() {
            return;
        }
        let hosts = self.hosts.away.iter().filter_map(|id| host_node(seen, id));
        let hosts: HashSet<&str> = hosts.map(|node| node.name.as_str()).collect();
        let is_rebooting =
            |name: &str| hosts.contains(name) || self.entries_of(name).any(|id| finishes_anyway(seen, id));
        self.unready = not_ready.iter().filter(|name| !is_rebooting(name)).cloned().collect();
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
        for predicate in [open as fn(&RepairEntry) -> bool, failed] {
            for (index, stored) in &store.repairs.entries {
                if stored.get().is_some_and(predicate)
                    && let Some(name) = machine(seen, EntryId::repair(*index))
                {
                    self.repairs_by_node.entry(name).or_insert(EntryId::repair(*index));
                }
            }
        }
    }

    /// Returns the first live reboot of a machine, by Node name (or address).
    pub fn reboot_of(&self, name: &str) -> Option<EntryId> {
        self.by_node.get(name).copied()
    }

    /// Returns the first unfinished repair of a machine, else its first failed one.
    pub fn repair_of(&self, name: &str) -> Option<EntryId> {
        self.repairs_by_node.get(name).copied()
    }

    /// Returns both.
    pub fn entries_of(&self, name: &str) -> impl Iterator<Item = EntryId> + use<> {
        self.reboot_of(name).into_iter().chain(self.repair_of(name))
    }
}

fn revision_of(store: &StoreView) -> Option<i64> {
    store.cluster.as_ref().map(|c| c.mod_revision)
}

/// Returns the faults for which `cluster set` would refuse the queue sections, or the parse error of the definition.
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

/// Returns the reasons that hold whole queues and are shown nowhere else: the first entry that waits for each, and the
/// number of entries. Why this engine only observes is shown elsewhere if it does not lead.
fn holds(seen: &Seen) -> Vec<(EntryId, usize)> {
    let engine = &seen.snapshot.engine;
    let banner_shown = engine.leading.is_none() && !engine.observing.is_empty();
    let held = |id: &EntryId, why: &Reason| {
        if matches!(why, Reason::EngineObserving { .. }) { !banner_shown } else { trouble::is_at_gate(seen, *id, why) }
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

/// Returns a host.
pub fn host<'a>(seen: &'a Seen, id: &(String, String)) -> Option<&'a Arc<HostRow>> {
    seen.snapshot.kube.hosts.get(id)
}

/// Returns the Node of a host.
pub fn host_node<'a>(seen: &'a Seen, id: &(String, String)) -> Option<&'a Arc<NodeRow>> {
    seen.snapshot.kube.node_of_host(host(seen, id)?).map(|(node, _)| node)
}

/// Returns the end of an entry's backoff, regardless of other reasons that hold it.
pub fn backoff_until(seen: &Seen, id: EntryId) -> Option<Timestamp> {
    let waiting = seen.snapshot.store.entry(id).filter(|e| e.is_waiting())?;
    waiting.backoff_expire().filter(|until| *until > seen.now.wall)
}

/// Returns the parse error of an entry of either queue.
pub fn broken(seen: &Seen, id: EntryId) -> Option<&str> {
    seen.snapshot.store.stored_entry(id)?.value.err()
}

/// Returns a readable entry of the reboot queue.
pub fn entry(seen: &Seen, id: EntryId) -> Option<&RebootEntry> {
    seen.snapshot.store.entry(id)?.as_reboot()
}

/// Returns a readable entry of the repair queue.
pub fn repair(seen: &Seen, id: EntryId) -> Option<&RepairEntry> {
    seen.snapshot.store.entry(id)?.as_repair()
}

/// Returns the key of an entry of either queue and the revision that a confirmation is bound to. `None` if it is gone.
pub fn stored_at(seen: &Seen, id: EntryId) -> Option<(&str, i64)> {
    seen.snapshot.store.stored_entry(id).map(|stored| (stored.key, stored.mod_revision))
}

/// Returns the address of an entry's machine. `None` if the entry cannot be read.
pub fn address_of(seen: &Seen, id: EntryId) -> Option<&str> {
    seen.snapshot.store.entry(id).map(EntryRef::address)
}

/// Returns the name of an entry's machine: the Node's name, else the address.
pub fn machine(seen: &Seen, id: EntryId) -> Option<String> {
    address_of(seen, id).map(|address| seen.snapshot.machine(address))
}

/// Returns the operation that a repair names, if the definition has it.
pub fn operation<'a>(seen: &'a Seen, entry: &RepairEntry) -> Option<&'a Operation> {
    let definition = seen.snapshot.store.definition()?;
    definition.cluster.repair.operation(&entry.machine_type, &entry.operation).ok()
}

/// Returns the latest answer of a repair's health check: this engine's own, else the one that the leader published.
pub fn health(seen: &Seen, id: EntryId) -> Option<&CheckAnswer> {
    let local = seen.snapshot.work.get(&id).and_then(|w| w.check.as_ref()).map(|(_, answer)| answer);
    local.or_else(|| progress(seen, id)?.check.as_ref().map(|(_, answer)| answer))
}

/// Returns the deadline of a repair's current phase: the watch of its step, its drain, or its backoff.
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

/// Returns the member of the definition with this Node name.
pub fn member<'a>(seen: &'a Seen, node: &str) -> Option<&'a Node> {
    let definition = seen.snapshot.store.definition()?;
    definition.members.by_name(&definition.cluster, node)
}

/// Returns the Kubernetes Node with this name.
pub fn node<'a>(seen: &'a Seen, name: &str) -> Option<&'a Arc<NodeRow>> {
    seen.snapshot.kube.by_name.get(name)
}

/// Returns true if a Node runs an API server: by the definition, or by the Node's role if there is no definition.
pub fn is_api_server(seen: &Seen, name: &str) -> bool {
    runs_api_server(seen, node(seen, name), member(seen, name))
}

fn runs_api_server(seen: &Seen, node: Option<&Arc<NodeRow>>, member: Option<&Node>) -> bool {
    match (seen.snapshot.store.definition(), member) {
        (Some(_), member) => member.is_some_and(|m| m.control_plane),
        _ => node.is_some_and(|n| n.shown_labels.iter().any(|(k, _)| k.ends_with("/control-plane"))),
    }
}

/// Returns `api` for an API server, else the node's role label, else `worker`.
pub fn role<'a>(seen: &'a Seen, name: &str) -> &'a str {
    role_of(seen, node(seen, name), member(seen, name))
}

/// Same as [`role`], for objects that are looked up already.
pub fn role_of<'a>(seen: &Seen, node: Option<&'a Arc<NodeRow>>, member: Option<&Node>) -> &'a str {
    if runs_api_server(seen, node, member) {
        return "api";
    }
    let labels = || node.into_iter().flat_map(|n| &n.shown_labels);
    let by_value = labels().find(|(k, v)| k.ends_with("/role") && !v.is_empty()).map(|(_, v)| v.as_str());
    let by_key = || labels().find_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/"));
    by_value.or_else(by_key).unwrap_or("worker")
}

/// Returns the rack, or the zone if no rack is known. Empty without either.
pub fn rack<'a>(seen: &'a Seen, name: &str) -> &'a str {
    rack_of(node(seen, name), member(seen, name))
}

/// Same as [`rack`], for objects that are looked up already.
pub fn rack_of<'a>(node: Option<&'a Arc<NodeRow>>, member: Option<&'a Node>) -> &'a str {
    let own = || node.into_iter().flat_map(|n| &n.shown_labels).map(|(k, v)| (k.as_str(), v.as_str()));
    let defined = || member.and_then(|m| m.labels.as_ref()).into_iter().flatten();
    let defined = || defined().map(|(k, v)| (k.as_str(), v.as_str()));
    let of = |end: &str| own().chain(defined()).find(|(k, _)| k.ends_with(end)).map(|(_, v)| v);
    of("/rack").or_else(|| of("/zone")).unwrap_or_default()
}

/// Returns the address that names a Node in the queue: the definition's, else the Node's first IP address.
pub fn address(seen: &Seen, name: &str) -> Option<String> {
    let named = member(seen, name).map(|m| m.address.as_str());
    named.or_else(|| ip_of(node(seen, name)?)).map(str::to_owned)
}

/// Returns a Node's first IP address.
pub fn ip_of(node: &NodeRow) -> Option<&str> {
    node.addresses.iter().map(String::as_str).find(|a| a.parse::<std::net::IpAddr>().is_ok())
}

/// Returns the progress that the leader published for an entry.
pub fn progress(seen: &Seen, id: EntryId) -> Option<&Progress> {
    seen.snapshot.store.progress.get(&id).and_then(Stored::get)
}

/// Returns the attempt of an entry whose command runs: the attempt is open, and the engine that started it still holds
/// its lease.
pub fn running(seen: &Seen, id: EntryId) -> Option<&Attempt> {
    let store = &seen.snapshot.store;
    let last = store.attempts_of(id).next_back().and_then(Stored::get)?;
    (last.open() && store.candidates.values().any(|c| c.lease == last.lease)).then_some(last)
}

/// Returns the verb of an order that is not processed yet.
pub fn order(seen: &Seen, id: EntryId) -> Option<Verb> {
    seen.snapshot.store.orders.get(&id).and_then(Stored::get).map(|o| o.verb)
}

/// The current leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This process.
    Us,
    /// Another cketerm, on this host.
    Other(String),
    /// CKE, on this host.
    Cke(String),
    /// No leader.
    Nobody,
    /// Unknown: etcd does not answer, and this process does not lead.
    Unknown,
}

/// Returns the current leader.
pub fn leader(seen: &Seen) -> Leader {
    let store = &seen.snapshot.store;
    let local = |c: &Candidate| seen.snapshot.engine.leading.as_ref().is_some_and(|l| l.key == c.key);
    match store.leader() {
        None => Leader::Nobody,
        Some(c) if local(c) => Leader::Us,
        Some(c) if store.is_cke(c) => Leader::Cke(c.host.clone()),
        Some(c) => Leader::Other(c.host.clone()),
    }
}

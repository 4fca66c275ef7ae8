//! Sums over the published state, computed once per change instead of once per frame.

use std::{collections::HashSet, mem::discriminant, sync::Arc};

use cketerm_model::{
    cluster::queue_faults,
    entry::{EntryId, QueueKind},
    reason::Reason,
    reboot::RebootStatus,
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::view::StoreView,
};
use cketerm_rules::{seen::Seen, trouble};

use super::{
    fleet::{Hosts, NodeNames},
    queries::{finishes_anyway, host_node, machine},
};

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
        self.unready = not_ready.iter().filter(|name| !is_rebooting(name)).map(ToString::to_string).collect();
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

    /// Returns the counts of a queue.
    pub fn counts(&self, queue: QueueKind) -> &Counts {
        match queue {
            QueueKind::Reboot => &self.reboots,
            QueueKind::Repair => &self.repairs,
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

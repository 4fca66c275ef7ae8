//! Sums over the published state, computed once per change instead of once per frame.

use std::{
    collections::{BTreeMap, HashSet},
    mem::discriminant,
    sync::Arc,
};

use cketerm_model::{
    cluster::queue_faults,
    entry::{EntryId, QueueKind, Stored},
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::view::StoreView,
};
use cketerm_rules::{seen::Seen, trouble};
use imbl::OrdMap;
use jiff::{SignedDuration, Timestamp};

use super::{
    fleet::{Hosts, NodeNames},
    queries::{finishes_anyway, host_node, in_work, machine, node},
};

/// Time after which a node that is not Ready needs somebody. A kubelet that has just started, and a node that has just
/// joined, take this long.
const READY_LAG: SignedDuration = SignedDuration::from_secs(120);

/// Most entries in backoff that are looked at for blockers.
const MAX_BACKING_OFF: usize = 16;

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

/// Counts of a queue, and the entries and the time that they hold for.
#[derive(Clone, Debug)]
struct Counted<E: Clone> {
    entries: OrdMap<u64, Stored<E>>,
    at: Timestamp,
    /// End of the first backoff that was counted.
    until: Option<Timestamp>,
    counts: Counts,
}

impl<E: Clone> Counted<E> {
    /// Counts the entries, unless the last counts still hold. It compares pointers, so it costs nothing for a queue that
    /// has not changed. `count` counts an entry; a backoff that it counts ends at its answer.
    fn refresh(
        counted: &mut Option<Self>,
        entries: &OrdMap<u64, Stored<E>>,
        now: Timestamp,
        count: impl Fn(&E, &mut Counts) -> Option<Timestamp>,
    ) -> Counts {
        let holds = |c: &&Self| c.entries.ptr_eq(entries) && c.at <= now && c.until.is_none_or(|until| now < until);
        if let Some(known) = counted.as_ref().filter(holds) {
            return known.counts;
        }
        let (mut counts, mut until) = (Counts::default(), None);
        for stored in entries.values() {
            let Some(entry) = stored.get() else {
                counts.broken += 1;
                continue;
            };
            let ends = count(entry, &mut counts);
            until = [until, ends].into_iter().flatten().min();
        }
        *counted = Some(Self { entries: entries.clone(), at: now, until, counts });
        counts
    }
}

/// Entries by Node name (or address).
type Entries = foldhash::HashMap<String, EntryId>;

/// Counts for the header, and the entries of each machine.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    of: Option<Arc<StoreView>>,
    counted_reboots: Option<Counted<RebootEntry>>,
    counted_repairs: Option<Counted<RepairEntry>>,
    /// First live reboot of each machine, else its first cancelled one, by Node name (or address).
    by_node: Entries,
    /// First unfinished repair of each machine, else its first failed one, by Node name (or address).
    repairs_by_node: Entries,
    /// First maintenance of each machine that is not released, by Node name (or address).
    maintenance_by_node: Entries,
    /// Entries in work, of all kinds.
    pub in_work: Vec<EntryId>,
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
    /// Of these, members that joined the definition while this console watched, with the time of it: a new machine needs
    /// a while until its Node is there.
    pub joining: BTreeMap<String, Timestamp>,
    /// Hosts, grouped by what an operator should know about them.
    pub hosts: Hosts,
    /// Entries that need an operator. To find them takes a look at every entry.
    pub stuck: Vec<EntryId>,
    /// The first entries whose drain backs off for a known cause.
    pub backing_off: Vec<EntryId>,
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
        let now = seen.now.wall;
        let count = |e: &RebootEntry, counts: &mut Counts| count_reboot(e, counts, now);
        self.reboots = Counted::refresh(&mut self.counted_reboots, &store.reboots.entries, now, count);
        self.reboots.trouble = seen.orphans.len();
        let count = |e: &RepairEntry, counts: &mut Counts| count_repair(e, counts, now);
        self.repairs = Counted::refresh(&mut self.counted_repairs, &store.repairs.entries, now, count);
        self.stuck = trouble::all_stuck(seen);
        for id in &self.stuck {
            let counts = if id.queue == QueueKind::Repair { &mut self.repairs } else { &mut self.reboots };
            counts.trouble += 1;
        }
        (self.holds, self.backing_off) = waiting(seen);
        let named = NodeNames::by(seen);
        if !self.named.as_ref().is_some_and(|of| of.has_names_of(&named)) {
            let count = named.count(seen);
            self.joining.retain(|name, _| count.missing.contains(name));
            if let Some(before) = &self.named {
                let joined = before.joined(&named, &count.missing);
                self.joining.extend(joined.into_iter().map(|name| (name, seen.now.wall)));
            }
            (self.names, self.name_width, self.missing) = (count.names, count.width, count.missing);
            self.names_generation += 1;
        }
        self.named = Some(named);
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
        let since = |name: &str| node(seen, name)?.ready_since;
        let is_recent = |name: &str| since(name).is_some_and(|at| seen.now.wall.duration_since(at) < READY_LAG);
        // a line of its own says more about these
        let is_orphan = |name: &str| seen.orphans.keys().any(|orphan| orphan.as_str() == name);
        let is_away = |name: &str| !is_rebooting(name) && !is_recent(name) && !is_orphan(name);
        self.unready = not_ready.iter().filter(|name| is_away(name)).map(ToString::to_string).collect();
    }

    fn index(&mut self, seen: &Seen) {
        let store = &seen.snapshot.store;
        self.by_node.clear();
        self.repairs_by_node.clear();
        self.maintenance_by_node.clear();
        let live = |e: &RebootEntry| e.status != RebootStatus::Cancelled;
        let cancelled = |e: &RebootEntry| e.status == RebootStatus::Cancelled;
        for predicate in [live as fn(&RebootEntry) -> bool, cancelled] {
            for (index, stored) in &store.reboots.entries {
                if let Some(entry) = stored.get().filter(|entry| predicate(entry)) {
                    let name = seen.snapshot.machine(&entry.node);
                    self.by_node.entry(name).or_insert(EntryId::reboot(*index));
                }
            }
        }
        let reboots = store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
        let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
        let maintenance = store.maintenance.entries.keys().map(|index| EntryId::maintenance(*index));
        for (index, stored) in &store.maintenance.entries {
            if let Some(entry) = stored.get().filter(|entry| entry.released.is_none()) {
                let name = seen.snapshot.machine(&entry.node);
                self.maintenance_by_node.entry(name).or_insert(EntryId::maintenance(*index));
            }
        }
        self.in_work = reboots.chain(repairs).chain(maintenance).filter(|id| in_work(seen, *id)).collect();
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
            // a maintenance is part of no count of its own: its Node shows it
            QueueKind::Reboot | QueueKind::Maintenance => &self.reboots,
            QueueKind::Repair => &self.repairs,
        }
    }

    /// Returns the first live reboot of a machine, else its first cancelled one, by Node name (or address).
    pub fn reboot_of(&self, name: &str) -> Option<EntryId> {
        self.by_node.get(name).copied()
    }

    /// Returns the first unfinished repair of a machine, else its first failed one.
    pub fn repair_of(&self, name: &str) -> Option<EntryId> {
        self.repairs_by_node.get(name).copied()
    }

    /// Returns the first maintenance of a machine that is not released.
    pub fn maintenance_of(&self, name: &str) -> Option<EntryId> {
        self.maintenance_by_node.get(name).copied()
    }

    /// Returns the reboot, the repair and the maintenance of a machine.
    pub fn by_kind(&self, name: &str) -> [Option<EntryId>; 3] {
        [self.reboot_of(name), self.repair_of(name), self.maintenance_of(name)]
    }

    /// Returns all of these.
    pub fn entries_of(&self, name: &str) -> impl Iterator<Item = EntryId> + use<> {
        self.by_kind(name).into_iter().flatten()
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

/// Counts a reboot. Returns the end of its backoff if it was counted as backing off.
fn count_reboot(e: &RebootEntry, counts: &mut Counts, now: Timestamp) -> Option<Timestamp> {
    let backoff = e.drain_backoff_expire.filter(|until| *until > now);
    match e.status {
        RebootStatus::Queued if backoff.is_some() => {
            counts.backoff += 1;
            return backoff;
        }
        RebootStatus::Queued => counts.queued += 1,
        RebootStatus::Draining => counts.draining += 1,
        RebootStatus::Rebooting => counts.after += 1,
        RebootStatus::Cancelled => {}
    }
    None
}

/// Counts a repair. Returns the end of its backoff if it was counted as backing off.
fn count_repair(e: &RepairEntry, counts: &mut Counts, now: Timestamp) -> Option<Timestamp> {
    let backoff = e.drain_backoff_expire.filter(|until| *until > now);
    match (e.status, e.step_status) {
        _ if e.deleted => {}
        (RepairStatus::Succeeded, _) => counts.succeeded += 1,
        (RepairStatus::Failed, _) => counts.failed += 1,
        (_, StepStatus::Draining) => counts.draining += 1,
        (_, StepStatus::Watching) => counts.after += 1,
        _ if backoff.is_some() => {
            counts.backoff += 1;
            return backoff;
        }
        _ => counts.queued += 1,
    }
    None
}

/// Returns the reasons that hold whole queues and are shown nowhere else: the first entry that waits for each, and the
/// number of entries. Then the first entries whose drain backs off for a known cause. One pass over all reasons finds
/// both. Why this engine only observes is shown elsewhere if it does not lead.
fn waiting(seen: &Seen) -> (Vec<(EntryId, usize)>, Vec<EntryId>) {
    let engine = &seen.snapshot.engine;
    let banner_shown = engine.leading.is_none() && !engine.observing.is_empty();
    let (mut holds, mut backing_off): (Vec<(&Reason, EntryId, usize)>, _) = (Vec::new(), Vec::new());
    for (id, why) in &*seen.reasons {
        if matches!(why, Reason::Backoff { cause: Some(_), .. }) && backing_off.len() < MAX_BACKING_OFF {
            backing_off.push(*id);
        }
        let observes = matches!(why, Reason::EngineObserving { .. });
        if observes && banner_shown || !observes && !trouble::is_at_gate(seen, *id, why) {
            continue;
        }
        let same = |known: &Reason, at: &EntryId| at.queue == id.queue && discriminant(known) == discriminant(why);
        match holds.iter_mut().find(|(known, at, _)| same(known, at)) {
            Some((.., n)) => *n += 1,
            None => holds.push((why, *id, 1)),
        }
    }
    (holds.into_iter().map(|(_, id, n)| (id, n)).collect(), backing_off)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_queue_is_counted_once_per_change_and_when_a_backoff_ends() {
        let second = |n| Timestamp::from_second(n).unwrap();
        let mut entries: OrdMap<u64, Stored<RebootEntry>> = OrdMap::new();
        let mut entry = RebootEntry::queued(1, &cketerm_model::names::Address::new("10.0.0.1"));
        entry.drain_backoff_expire = Some(second(100));
        entries.insert(1, Stored { key: "1".into(), mod_revision: 1, value: Ok(Arc::new(entry)) });
        let (mut counted, calls) = (None, Cell::new(0));
        let mut count = |entries: &OrdMap<u64, Stored<RebootEntry>>, at| {
            let count = |e: &RebootEntry, counts: &mut Counts| {
                calls.set(calls.get() + 1);
                count_reboot(e, counts, second(at))
            };
            let counts = Counted::refresh(&mut counted, entries, second(at), count);
            (counts.queued, counts.backoff, calls.get())
        };
        assert_eq!(count(&entries, 10), (0, 1, 1));
        assert_eq!(count(&entries.clone(), 99), (0, 1, 1), "nothing changed");
        assert_eq!(count(&entries, 100), (1, 0, 2), "the backoff is over");
        assert_eq!(count(&entries, 5000), (1, 0, 2));
        assert_eq!(count(&entries, 50), (0, 1, 3), "the clock was set back");
        entries.remove(&1);
        assert_eq!(count(&entries, 51), (0, 0, 3));
    }
}

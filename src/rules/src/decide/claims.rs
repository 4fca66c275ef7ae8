//! Machines in progress: claimed machines, taken slots, and the one API server (I1, I3, I4).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    boot_time::BootTime,
    clock::Now,
    entry::{EntryId, QueueKind},
    fault,
    kube::Owner,
    names::Address,
    reboot::RebootStatus,
};
use foldhash::HashMap;

use super::{attempts, maintenance};
use crate::snapshot::Snapshot;

/// Work in progress, over both queues.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Workers in `draining` or `rebooting`, about to start, or with a command that may still run, by address.
    pub workers: BTreeMap<Address, EntryId>,
    /// API servers in the same states, and those with an orphaned cordon that have not recovered, by address.
    pub api_servers: BTreeMap<Address, EntryId>,
    /// API servers in repair, by address.
    pub api_repairs: BTreeMap<Address, EntryId>,
    /// Machines that hold a slot of the repair queue, by address: draining or watching, about to start, or with a
    /// command that may still run.
    pub repairs: BTreeMap<Address, EntryId>,
    /// All machines in progress, with the entry that claimed each first, by address. The entry may be gone.
    pub machines: HashMap<Address, EntryId>,
    /// Machines with a command that may still run although its entry is gone, by address.
    pub commands_without_entry: BTreeMap<Address, EntryId>,
}

impl Claims {
    /// Collects the work in progress. `leading_since`: boot time since which this engine leads.
    pub(super) fn of(snap: &Snapshot, leading_since: Option<BootTime>, now: Now) -> Self {
        let mut claims = Self::default();
        let store = &snap.store;
        let control_plane = |address: &Address| {
            store.definition().and_then(|d| d.members.by_address(&d.cluster, address)).is_some_and(|n| n.control_plane)
        };
        let starting: BTreeSet<EntryId> =
            snap.in_flight.values().filter(|f| f.starts).filter_map(|f| f.entry).collect();
        for (&index, stored) in &store.reboots.entries {
            fault!(UnreadableEntryTakesSlot if stored.get().is_none() => {
                claims.workers.insert(Address::new(&stored.key), EntryId::reboot(index))
            });
            let (id, Some(entry)) = (EntryId::reboot(index), stored.get()) else { continue };
            let in_work = match entry.status {
                RebootStatus::Draining | RebootStatus::Rebooting => true,
                RebootStatus::Queued => starting.contains(&id),
                RebootStatus::Cancelled => false,
            };
            if in_work && store.definition().is_some_and(|d| d.members.by_address(&d.cluster, &entry.node).is_some()) {
                claims.add(&entry.node, id, control_plane(&entry.node));
            }
        }
        for (&index, stored) in &store.maintenance.entries {
            let (id, Some(entry)) = (EntryId::maintenance(index), stored.get()) else { continue };
            let is_member = store.definition().is_some_and(|d| d.members.by_address(&d.cluster, &entry.node).is_some());
            if is_member && (entry.claims_machine() || starting.contains(&id)) {
                claims.add(&entry.node, id, control_plane(&entry.node));
            }
        }
        for (&index, stored) in &store.repairs.entries {
            let (id, Some(entry)) = (EntryId::repair(index), stored.get()) else { continue };
            let in_work = entry.claims_machine() || (entry.unfinished() && starting.contains(&id));
            if in_work {
                // An operation that the definition does not have takes no slot (I5), but its machine is claimed.
                let known = store
                    .definition()
                    .is_some_and(|d| d.cluster.repair.operation(&entry.machine_type, &entry.operation).is_ok());
                claims.add_repair(&entry.address, id, control_plane(&entry.address), known);
            }
        }
        claims.add_machines_of_ended_entries(snap, leading_since, now);
        claims.add_orphaned_api_servers(snap);
        claims.add_nodes_kept_for_hooks(snap, control_plane);
        claims
    }

    /// Adds machines whose command outlived its entry, and API servers that are still cordoned for an ended entry. A
    /// cancel removes an entry at once, but a running command goes on. It keeps its slot and bars the machine. An API
    /// server counts as in progress until it has recovered (REB-51, SAF-27).
    fn add_machines_of_ended_entries(&mut self, snap: &Snapshot, leading_since: Option<BootTime>, now: Now) {
        let store = &snap.store;
        for ((id, _), stored) in &store.attempts {
            let Some(attempt) = stored.get() else { continue };
            let may_run = attempts::may_run_until(snap, leading_since, attempt, now).is_some();
            // A reboot whose machine left the definition is removed in this pass. It counts as removed already, so that
            // its running command keeps the slot: another entry may start in the same pass.
            let is_leaving = id.queue == QueueKind::Reboot
                && store.definition().is_some_and(|d| d.members.by_address(&d.cluster, &attempt.address).is_none());
            if attempts::has_live_entry(snap, *id) && !is_leaving {
                // A success command may run for an entry that has not started. Until it ends, nothing else happens to
                // the machine.
                if may_run && id.queue == QueueKind::Repair {
                    self.machines.entry(attempt.address.clone()).or_insert(*id);
                }
                continue;
            }
            if may_run {
                self.commands_without_entry.insert(attempt.address.clone(), *id);
            }
            let orphaned = attempt.control_plane
                && snap
                    .node_of(&attempt.address)
                    .is_some_and(|n| n.owner().is_some_and(|o| o.entry == *id) && n.unschedulable);
            if !may_run && !orphaned {
                continue;
            }
            match id.queue {
                QueueKind::Reboot | QueueKind::Maintenance => self.add(&attempt.address, *id, attempt.control_plane),
                QueueKind::Repair => self.add_repair(&attempt.address, *id, attempt.control_plane, may_run),
            }
        }
    }

    /// Adds API servers that are still cordoned for an ended entry: another program was rebooting them, or an
    /// operator's `done` or a maintenance ended and the Node is not Ready.
    fn add_orphaned_api_servers(&mut self, snap: &Snapshot) {
        let Some(definition) = snap.store.definition() else { return };
        for name in &snap.kube.marked {
            let Some(node) = snap.kube.by_name.get(name).filter(|n| n.unschedulable) else { continue };
            let ends_when_ready = |o: &Owner| o.called_done || o.entry.queue == QueueKind::Maintenance;
            let unreadable = node.owner().filter(|o| maintenance::is_unreadable(snap, o.entry));
            if let (Some(owner), Some(member)) = (unreadable, definition.members.by_name(&definition.cluster, name))
                && member.control_plane
            {
                self.api_servers.entry(member.address.clone()).or_insert(owner.entry);
                continue;
            }
            let Some(owner) = node.owner().filter(|o| o.taken_over_rebooting || (ends_when_ready(o) && !node.ready))
            else {
                continue;
            };
            let member = definition.members.by_name(&definition.cluster, name).filter(|m| m.control_plane);
            if let Some(member) = member
                && !attempts::has_live_entry(snap, owner.entry)
            {
                self.add(&member.address, owner.entry, true);
            }
        }
    }

    /// Adds machines whose Node stays cordoned until a hook has succeeded, although their entry is queued again or gone,
    /// and those for which a hook after the uncordon holds the slot. They keep their slot: otherwise a hook that fails everywhere would cordon one Node after the other. They are not
    /// in `machines`, because nothing works on them, and their cordon may be removed.
    fn add_nodes_kept_for_hooks(&mut self, snap: &Snapshot, control_plane: impl Fn(&Address) -> bool) {
        fault!(HookSlotFreed => return);
        if snap.store.hooks.is_empty() {
            return;
        }
        let policy = snap.store.policy();
        for (&id, stored) in &snap.store.hooks {
            let Some(record) = stored.get() else { continue };
            let node = snap.kube.by_name.get(&record.node);
            let is_kept = node.is_some_and(|n| n.unschedulable && n.owner().is_some_and(|o| o.entry == id));
            let is_held = || {
                policy.hooks.iter().any(|hook| {
                    let run = record.run(&hook.name, hook.at, record.since);
                    let has_succeeded = run.and_then(|run| run.outcome.as_ref()).is_some_and(|o| o.end.succeeded());
                    hook.holds_slot && record.hooks.contains(&hook.name) && !has_succeeded
                })
            };
            if !is_kept && !is_held() {
                continue;
            }
            let kind = match (id.queue, control_plane(&record.address)) {
                (QueueKind::Reboot | QueueKind::Maintenance, false) => &mut self.workers,
                (QueueKind::Reboot | QueueKind::Maintenance, true) => &mut self.api_servers,
                (QueueKind::Repair, is_control_plane) => {
                    if is_control_plane {
                        self.api_repairs.entry(record.address.clone()).or_insert(id);
                    }
                    &mut self.repairs
                }
            };
            kind.entry(record.address.clone()).or_insert(id);
        }
    }

    /// Adds a machine in repair. `slot`: it counts toward `max_concurrent_repairs`.
    pub(super) fn add_repair(&mut self, address: &Address, id: EntryId, control_plane: bool, slot: bool) {
        if control_plane {
            self.api_repairs.entry(address.clone()).or_insert(id);
        }
        if slot {
            self.repairs.entry(address.clone()).or_insert(id);
        }
        self.machines.entry(address.clone()).or_insert(id);
    }

    /// Adds a machine in reboot.
    pub(super) fn add(&mut self, address: &Address, id: EntryId, control_plane: bool) {
        let kind = if control_plane { &mut self.api_servers } else { &mut self.workers };
        kind.entry(address.clone()).or_insert(id);
        self.machines.entry(address.clone()).or_insert(id);
    }

    /// Reports whether this machine is under the reboot process. Such machines do not count as unreachable with the
    /// rule `outside-reboots`.
    pub(super) fn is_rebooting(&self, address: &Address) -> bool {
        self.workers.contains_key(address) || self.api_servers.contains_key(address)
    }
}

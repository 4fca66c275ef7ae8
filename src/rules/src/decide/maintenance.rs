//! Maintenance: a Node is drained by the rules of a reboot, and stays cordoned until it is released or its time is over
//! (SAF-42; I73). It shares the limits of reboots: slots, one API server at a time, unreachable Nodes, etcd's quorum,
//! windows, freezes, the breaker and the gates of the site.

use cketerm_model::{
    entry::{EntryId, QueueKind, Stored},
    fault,
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    names::{Address, NodeName},
    reason::Reason,
};
use foldhash::HashMap;

use super::{Effect, End, Pass, entry_context::EntryContext, pods::classify_pods, recheck::Recheck};
use crate::snapshot::{FreshRead, Snapshot};

impl<'a> Pass<'a> {
    /// Goes through the maintenances by index. It removes those that are over, moves those in progress, and returns the
    /// queued ones that may be candidates.
    pub(super) fn process_maintenance(&mut self) -> Vec<EntryContext<'a>> {
        let mut waiting = Vec::new();
        let mut first_of: HashMap<&'a Address, u64> = HashMap::default();
        let snap = self.snap;
        for (&index, stored) in &snap.store.maintenance.entries {
            let id = EntryId::maintenance(index);
            let entry = match &stored.value {
                Ok(entry) => entry.as_ref(),
                Err(why) => {
                    self.reason(id, Reason::InvalidEntry { why: format!("cannot be read: {why}") });
                    continue;
                }
            };
            if let Some(end) = self.end_of_maintenance(entry) {
                self.remove(id, stored.mod_revision, &entry.node, end);
                continue;
            }
            self.wake_at_wall(entry.until);
            let Some(definition) = self.definition else {
                let why = self.no_definition();
                self.reason(id, why);
                continue;
            };
            let Some(member) = definition.members.by_address(&definition.cluster, &entry.node) else {
                self.reason(id, Reason::NotMember { address: entry.node.clone() });
                continue;
            };
            if let Some(&first) = first_of.get(&entry.node) {
                self.reason(id, Reason::DuplicateOf { index: first });
                continue;
            }
            first_of.insert(&entry.node, index);
            let Some(ctx) = EntryContext::of_maintenance(id, stored, member) else { continue };
            let reason = match entry.status {
                MaintenanceStatus::Queued => {
                    waiting.push(ctx);
                    continue;
                }
                MaintenanceStatus::Draining => match self.other_work(ctx) {
                    Some(other) => other,
                    None => self.drain(ctx),
                },
                MaintenanceStatus::InMaintenance => self.keep_in_maintenance(ctx, entry),
            };
            self.reason(id, reason);
        }
        waiting
    }

    /// Returns the end of a maintenance that is over: somebody released it, or its time is over. It needs neither a
    /// definition nor a free slot.
    fn end_of_maintenance(&self, entry: &MaintenanceEntry) -> Option<End> {
        if let Some(released) = &entry.released {
            return Some(End::Released(released.clone()));
        }
        let is_over = entry.until <= self.now.wall;
        fault!(MaintenanceForEver => is_over = false);
        is_over.then_some(End::Expired)
    }

    /// Returns the reason while other work goes on on the machine: CKE knows no maintenance and may have begun it while it
    /// led.
    fn other_work(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        let claims = &self.claims;
        let repair = claims.repairs.get(ctx.address).or_else(|| claims.api_repairs.get(ctx.address));
        let other = claims.machines.get(ctx.address).filter(|id| **id != ctx.id).or(repair).copied()?;
        Some(match other.queue {
            QueueKind::Reboot | QueueKind::Maintenance => Reason::MachineInReboot { entry: other },
            QueueKind::Repair => Reason::MachineInRepair { entry: other },
        })
    }

    /// Keeps the Node cordoned. As in a drain, an uncordon by somebody else is undone once and then only reported. Pods
    /// that came meanwhile are reported.
    fn keep_in_maintenance(&mut self, ctx: EntryContext<'a>, entry: &MaintenanceEntry) -> Reason {
        let kept = self.in_maintenance(ctx.id, entry);
        let node = self.node_of(ctx);
        if let Some(reason) = self.other_work(ctx).or_else(|| self.wrong_node(ctx, node.map(AsRef::as_ref))) {
            return reason;
        }
        let work = self.snap.work.get(&ctx.id).filter(|_| self.leading());
        let (Some(work), Some(node)) = (work, node) else { return kept };
        if let Some(reason) = self.stale().or_else(|| self.paused(ctx.id, "keeping the Node cordoned")) {
            return reason;
        }
        if let Err(reason) = self.ensure_cordoned(ctx, node, work) {
            return reason;
        }
        self.out.watch_pods.insert(node.name.clone());
        self.pods_in_maintenance(ctx, &node.name).unwrap_or(kept)
    }

    /// Returns a reason if pods are on the Node that the drain would have evicted.
    fn pods_in_maintenance(&self, ctx: EntryContext<'a>, node: &NodeName) -> Option<Reason> {
        let pods = self.snap.kube.pods.get(node).filter(|pods| pods.synced)?;
        let leaving = classify_pods(pods.pods.values(), self.drain_rules(ctx)?, &self.snap.kube);
        let first = leaving.first()?;
        let left = u32::try_from(leaving.len()).unwrap_or(u32::MAX);
        Some(Reason::PodsLeaving { left, first: first.full_name() })
    }

    /// Returns the reason why a drain or a command of the queues must not go on: the machine is in maintenance.
    pub(super) fn kept_for_maintenance(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        if ctx.queue() == QueueKind::Maintenance {
            return None;
        }
        self.snap.store.maintenance.entries.iter().find_map(|(index, stored)| {
            let entry = stored.get().filter(|entry| entry.node == *ctx.address && entry.released.is_none())?;
            let is_kept = entry.status == MaintenanceStatus::InMaintenance;
            is_kept.then(|| self.in_maintenance(EntryId::maintenance(*index), entry))
        })
    }

    /// Returns a reason if this is a maintenance that cannot be read: nobody knows whether it is over.
    pub(super) fn unreadable_maintenance(&self, id: EntryId) -> Option<Reason> {
        is_unreadable(self.snap, id).then(|| Reason::InvalidEntry {
            why: format!("{id} cannot be read and keeps this Node: fix it with etcdctl, or remove it"),
        })
    }

    /// Returns the reason of a maintenance that goes on, which is also that of other work on the machine.
    fn in_maintenance(&self, id: EntryId, entry: &MaintenanceEntry) -> Reason {
        let request = self.snap.store.requests.get(&id).and_then(Stored::get);
        let why = request.and_then(|request| request.reason.clone());
        Reason::InMaintenance { entry: id, until: entry.until, why }
    }

    /// Returns the reason of work on a machine that this maintenance has claimed, or will claim next.
    pub(super) fn waits_for_maintenance(&self, id: EntryId) -> Reason {
        let entry = self.snap.store.maintenance.entries.get(&id.index).and_then(Stored::get);
        let claimed = || Reason::Working { phase: "its maintenance begins".to_owned() };
        entry.map_or_else(claimed, |entry| self.in_maintenance(id, entry))
    }

    /// Plans the end of the drain, or the fresh read before it, where a reboot would run its command.
    pub(super) fn begin_maintenance(&mut self, ctx: EntryContext<'a>) -> Result<Reason, Reason> {
        let node = self.node_of(ctx).cloned();
        match self.recheck(ctx, node.as_ref(), true, false) {
            Recheck::Allows(Some(FreshRead { node: Some(_), .. })) => {}
            // It may come back with another address or UID.
            Recheck::Allows(_) => return Err(Reason::Working { phase: "waits for its Node".to_owned() }),
            Recheck::Pending(reason) => return Ok(reason),
            Recheck::Waits(reason) => return Err(reason),
        }
        let effect = Effect::BeginMaintenance { entry: ctx.queue_entry() };
        self.plan(ctx.machine, Some(ctx.id), self.disruption_guard(ctx), effect);
        Ok(Reason::Working { phase: "drained".to_owned() })
    }
}

/// Reports whether this is a maintenance that cannot be read.
pub(super) fn is_unreadable(snap: &Snapshot, id: EntryId) -> bool {
    let stored = snap.store.maintenance.entries.get(&id.index).filter(|_| id.queue == QueueKind::Maintenance);
    stored.is_some_and(|stored| stored.value.is_err())
}

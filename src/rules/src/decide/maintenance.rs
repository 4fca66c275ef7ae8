//! Maintenance: a Node is drained by the rules of a reboot, and stays cordoned until it is released or its time is over
//! (SAF-42; I72). It shares the limits of reboots: slots, one API server at a time, unreachable Nodes, etcd's quorum,
//! windows, freezes and the breaker.

use cketerm_model::{
    entry::{EntryId, Stored},
    fault,
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    names::Address,
    reason::Reason,
};
use foldhash::HashMap;

use super::{Effect, End, Pass, entry_context::EntryContext, recheck::Recheck};
use crate::snapshot::FreshRead;

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
                MaintenanceStatus::Draining => self.drain(ctx),
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

    /// Keeps the Node cordoned. As in a drain, an uncordon by somebody else is undone once and then only reported.
    fn keep_in_maintenance(&mut self, ctx: EntryContext<'a>, entry: &MaintenanceEntry) -> Reason {
        let kept = self.in_maintenance(ctx.id, entry);
        // CKE may have rebooted the machine while it led. Its own record, or cketerm's for that reboot, goes first.
        let is_claimed_by_other = self.claims.machines.get(ctx.address).is_some_and(|id| *id != ctx.id);
        let work = self.snap.work.get(&ctx.id).filter(|_| self.leading() && !is_claimed_by_other);
        let (Some(work), Some(node)) = (work, self.node_of(ctx)) else { return kept };
        if let Some(reason) = self.stale().or_else(|| self.wrong_node(ctx, Some(node.as_ref()))) {
            return reason;
        }
        if let Some(reason) = self.paused(ctx.id, "keeping the Node cordoned") {
            return reason;
        }
        self.ensure_cordoned(ctx, node, work).err().unwrap_or(kept)
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

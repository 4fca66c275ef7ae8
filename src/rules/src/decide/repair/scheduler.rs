//! Choice of the repairs that start (REP-15 to REP-20; I1, I3, I4, I7, I30, I43).

use cketerm_model::{attempt::CheckAnswer, entry::QueueKind, fault, reason::Reason};

use super::super::{Pass, attempts, entry_context::EntryContext};

impl<'a> Pass<'a> {
    /// Starts repairs in this order, each group by index: processing API servers, other processing machines, queued API
    /// servers, other queued machines. An entry that cannot start by itself takes no slot and holds up nobody.
    pub(super) fn start_repairs(&mut self, mut waiting: Vec<EntryContext<'a>>) {
        waiting.sort_by_key(|ctx| (ctx.is_queued(), !ctx.control_plane(), ctx.id));
        self.out.probe_often |= !self.claims.api_repairs.is_empty() || waiting.iter().any(EntryContext::control_plane);
        for ctx in waiting {
            let reason = match self.repair_blocker(ctx).or_else(|| self.slot_blocker(ctx)) {
                Some(reason) => reason,
                None => self.start_repair(ctx),
            };
            self.reason(ctx.id, reason);
        }
    }

    fn start_repair(&mut self, ctx: EntryContext<'a>) -> Reason {
        if self.snap.in_flight.contains_key(ctx.machine) {
            return Reason::Working { phase: "starts".to_owned() };
        }
        match self.begin_step(ctx) {
            // Later decisions of this pass find the machine claimed.
            Ok(_) => {
                self.claims.add_repair(ctx.address, ctx.id, ctx.control_plane(), true);
                Reason::Ready
            }
            Err(reason) => reason,
        }
    }

    /// Returns the reason why this entry is no candidate, whatever the limits are.
    fn repair_blocker(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        if let Some(reason) = self.entry_blocker(ctx) {
            return Some(reason);
        }
        let claimed = self.claims.machines.get(ctx.address);
        fault!(RepairBesideReboot => claimed = claimed.filter(|entry| entry.queue == QueueKind::Repair));
        if let Some(&entry) = claimed {
            let live = attempts::has_live_entry(self.snap, entry);
            if entry == ctx.id {
                return Some(Reason::Working { phase: "starts".to_owned() });
            }
            if !live {
                return Some(Reason::OrphanedCordon { node: ctx.machine.to_owned(), entry });
            }
            return Some(match entry.queue {
                QueueKind::Reboot => Reason::MachineInReboot { entry },
                QueueKind::Repair => Reason::DuplicateOf { index: entry.index },
                QueueKind::Maintenance => self.waits_for_maintenance(entry),
            });
        }
        if let Some(reason) = self.backing_off(ctx).or_else(|| self.paused(ctx.id, "the start")) {
            return Some(reason);
        }
        let node = self.node_of(ctx);
        if let Some(orphan) = node.and_then(|n| self.orphaned_cordon_of_other_entry(ctx, n)) {
            return Some(orphan);
        }
        if let Some(wrong) = self.wrong_node(ctx, node.map(AsRef::as_ref)) {
            return Some(wrong);
        }
        let late = || self.step_blocker(ctx);
        if let Some(blocker) = self.leadership_blocker().or_else(|| self.stale_for(ctx)).or_else(late) {
            return Some(blocker);
        }
        // The health check must answer first whether the machine needs a repair. No answer does not count as "not
        // healthy".
        match self.snap.work.get(&ctx.id).and_then(|w| w.check.as_ref()) {
            _ if !self.leading() => None,
            None => Some(Reason::Working { phase: "running the health check".to_owned() }),
            Some((_, CheckAnswer::Unavailable(why))) => Some(Reason::CheckUnavailable { why: why.clone() }),
            Some(_) => None,
        }
    }

    /// Returns the reason of a limit: slots, and one API server over both queues while the others are healthy.
    fn slot_blocker(&self, ctx: EntryContext<'a>) -> Option<Reason> {
        if ctx.control_plane() {
            let others = || self.claims.api_repairs.keys().chain(self.claims.api_servers.keys());
            if let Some(other) = others().find(|address| *address != ctx.address) {
                return Some(Reason::WaitingForControlPlane { other: self.snap.machine(other) });
            }
            // An observing engine has no probes of its own. It shows the reason that the leader published.
            if self.leading()
                && let Some(unhealthy) = self.control_plane_unhealthy_for(ctx)
            {
                return Some(unhealthy);
            }
        }
        if let Some(barred) = self.etcd_blocker(ctx) {
            return Some(barred);
        }
        let limit = self.definition.map_or(0, |d| d.cluster.repair.concurrency());
        let taken = &self.claims.repairs;
        let full = usize::try_from(limit).unwrap_or(0) <= taken.len();
        full.then(|| Reason::WaitingForSlot { holder: taken.values().next().copied(), limit, ahead: false })
    }
}

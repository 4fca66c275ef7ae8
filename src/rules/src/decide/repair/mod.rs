//! Repair queue of a pass (`docs/spec/repair.md`).
//!
//! | module | topic |
//! | --- | --- |
//! | `scheduler` | choice of the entries that start: order, limits, one API server (REP-15 to REP-20) |
//! | `steps` | next action of a step: drain, command, watch, next step (REP-21 to REP-28) |
//! | `health` | health checks of all unfinished entries, and their end (REP-29 to REP-39) |
//!
//! Drains, attempts, cordons and claims are shared with the reboot queue and are not here.

pub(crate) mod health;
mod scheduler;
mod steps;

use cketerm_model::{
    entry::{EntryId, Stored},
    reason::Reason,
    repair::{RepairEntry, StepStatus},
};

use super::{Effect, End, Guard, Pass, attempts::Until, entry_context::EntryContext};

impl<'a> Pass<'a> {
    /// Goes through the queue by index. It removes deleted entries, checks and moves unfinished ones, and starts those
    /// that may.
    pub(super) fn process_repairs(&mut self) {
        let snap = self.snap;
        let (mut waiting, mut checks) = (Vec::new(), Vec::new());
        for (&index, stored) in &snap.store.repairs.entries {
            let id = EntryId::repair(index);
            let entry = match &stored.value {
                Ok(entry) => entry.as_ref(),
                // A broken entry is shown and never stops the others (I5).
                Err(why) => {
                    self.reason(id, Reason::InvalidEntry { why: format!("cannot be read: {why}") });
                    continue;
                }
            };
            // Deleted entries are removed in any status, also while the queue is disabled (REP-10).
            if entry.deleted {
                self.remove(id, stored.mod_revision, &entry.address, End::Deleted);
                continue;
            }
            // Entries that succeeded or failed stay until they are deleted.
            if entry.finished() {
                continue;
            }
            let ctx = match self.validate(id, stored, entry) {
                Ok(ctx) => ctx,
                Err(reason) => {
                    self.give_up_drain(id, stored, entry, &reason);
                    self.reason(id, reason);
                    continue;
                }
            };
            if let Some((open, until)) = self.running_attempt(id) {
                let bounded = matches!(until, Until::At(_));
                let done = bounded.then(|| self.called_done_while_running(ctx)).flatten();
                let reason = done.unwrap_or_else(|| self.running_reason(open, until));
                let reason = self.with_host_reason(ctx, reason);
                self.reason(id, reason);
                continue;
            }
            self.out.ask_etcd |= self.hosts_voting_member(ctx);
            // The health check of every unfinished entry runs, and healthy machines end their entries, also while the
            // queue is disabled (REP-29).
            checks.extend(self.health_check_due(ctx));
            let reason = self.try_end_repair(ctx).or_else(|| self.advance_step(ctx));
            match reason {
                Some(reason) => {
                    let reason = self.with_host_reason(ctx, reason);
                    self.reason(id, reason);
                }
                None => waiting.push(ctx),
            }
        }
        self.start_repairs(waiting);
        self.plan_health_checks(checks);
    }

    /// Returns the entry's operation. An entry with an unknown procedure or operation is reported, and the others go on
    /// (REP-14).
    fn validate(
        &self,
        id: EntryId,
        stored: &'a Stored<RepairEntry>,
        entry: &RepairEntry,
    ) -> Result<EntryContext<'a>, Reason> {
        let Some(definition) = self.definition else { return Err(self.no_definition()) };
        // `ckecli` accepts any text as an address (REP-8).
        if entry.address.parse::<std::net::IpAddr>().is_err() {
            return Err(Reason::InvalidEntry { why: format!("{:?} is not an IP address", entry.address) });
        }
        let found = definition.cluster.repair.operation(&entry.machine_type, &entry.operation);
        let operation = found.map_err(|why| Reason::InvalidEntry { why })?;
        self.repair_context(id, stored, operation)
            .ok_or_else(|| Reason::InvalidEntry { why: "cannot be read".to_owned() })
    }

    /// Backs off a drain that cannot go on, so that its node does not stay cordoned (REP-14).
    fn give_up_drain(&mut self, id: EntryId, stored: &Stored<RepairEntry>, entry: &RepairEntry, cause: &Reason) {
        let draining = entry.claims_machine() && entry.step_status == StepStatus::Draining;
        if draining && matches!(cause, Reason::InvalidEntry { .. }) {
            let machine = self.snap.machine(&entry.address);
            let entry = cketerm_model::any::QueueEntry::Repair(entry.clone());
            let effect = Effect::BackOff { entry, cause: cause.clone() };
            self.plan(&machine, Some(id), Guard::of_entry(id, stored.mod_revision), effect);
        }
    }
}

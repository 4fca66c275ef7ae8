//! The repair queue, each pass (seed `cke-repair.md`; spec/repair.md, Decisions).
//!
//! | file | rule |
//! | --- | --- |
//! | `line` | who starts next: order, limits, one API server over both queues (1–5, 7) |
//! | `steps` | what a step does next: drain, command, watch, the next step (6) |
//! | `health` | health checks of all unfinished entries, and the end they bring (3) |
//!
//! What the repair queue shares with the reboot queue – drains, attempts, cordons, what is claimed – is not here.

pub(crate) mod health;
mod scheduler;
mod steps;

use super::{Effect, End, Guard, Pass, entry_context::EntryContext};
use crate::model::{
    entry::{EntryId, Stored},
    reason::Reason,
    repair::{RepairEntry, StepStatus},
};

impl<'a> Pass<'a> {
    /// Goes through the queue by index: removes what is deleted, checks and moves what is unfinished, starts what may.
    pub(super) fn repairs(&mut self) {
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
            // 1. Deleted entries are removed, whatever their state, also while disabled.
            if entry.deleted {
                self.remove(id, stored.mod_revision, &entry.address, End::Deleted);
                continue;
            }
            // 2. What has succeeded or failed stays until it is deleted.
            if entry.finished() {
                continue;
            }
            let case = match self.valid(id, stored, entry) {
                Ok(case) => case,
                Err(reason) => {
                    self.give_up_drain(id, stored, entry, &reason);
                    self.reason(id, reason);
                    continue;
                }
            };
            if let Some((open, until)) = self.running_attempt(id) {
                let done = until.is_finite().then(|| self.called_done_while_running(case)).flatten();
                let reason = done.unwrap_or_else(|| self.running(open, until));
                let reason = self.by_its_host(case, reason);
                self.reason(id, reason);
                continue;
            }
            self.out.ask_etcd |= self.hosts_voter(case);
            // 3. Every unfinished entry's health check runs, and what is healthy ends, also while disabled.
            checks.extend(self.health_check_due(case));
            let reason = self.repair_end(case).or_else(|| self.step_on(case));
            match reason {
                Some(reason) => {
                    let reason = self.by_its_host(case, reason);
                    self.reason(id, reason);
                }
                None => waiting.push(case),
            }
        }
        self.start_repairs(waiting);
        self.ask_health(checks);
    }

    /// 7. An entry whose procedure or operation is not known is reported, and others go on.
    fn valid(
        &self,
        id: EntryId,
        stored: &'a Stored<RepairEntry>,
        entry: &RepairEntry,
    ) -> Result<EntryContext<'a>, Reason> {
        let Some(definition) = self.definition else { return Err(self.no_definition()) };
        // `ckecli` takes any text as an address.
        if entry.address.parse::<std::net::IpAddr>().is_err() {
            return Err(Reason::InvalidEntry { why: format!("{:?} is no IP address", entry.address) });
        }
        let found = definition.cluster.repair.operation(&entry.machine_type, &entry.operation);
        let operation = found.map_err(|why| Reason::InvalidEntry { why })?;
        self.repair_case(id, stored, operation).ok_or_else(|| Reason::InvalidEntry { why: "cannot be read".to_owned() })
    }

    /// A drain that nobody can go on with does not keep its node.
    fn give_up_drain(&mut self, id: EntryId, stored: &Stored<RepairEntry>, entry: &RepairEntry, cause: &Reason) {
        let draining = entry.claims_machine() && entry.step_status == StepStatus::Draining;
        if draining && matches!(cause, Reason::InvalidEntry { .. }) {
            let machine = self.snap.machine(&entry.address);
            let entry = crate::model::any::QueueEntry::Repair(entry.clone());
            let effect = Effect::BackOff { entry, cause: cause.clone() };
            self.plan(&machine, Some(id), Guard::of_entry(id, stored.mod_revision), effect);
        }
    }
}

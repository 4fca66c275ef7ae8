//! End of a repair: the entry stays in the queue as `succeeded` or `failed`, and its history is written.

use cketerm_model::{
    attempt::Attempt,
    boot_time::BootTime,
    cketerm_records::Ending,
    entry::{EntryId, Stored},
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::transaction::{Change, Put},
};
use cketerm_rules::{
    decide::{End, Guard},
    snapshot::EffectOutcome,
};

use super::{
    Actor, Stop,
    queue::{CLOSE_BATCH, close, mark_done},
};

impl Actor {
    /// Sets the entry to `succeeded` or `failed`. Its attempts stay beside it until it is deleted. The health check, or
    /// an operator, has settled an attempt without an outcome, so it gets the outcome "unknown", unless its command may
    /// still run.
    pub(super) async fn finish_repair(
        &self,
        guard: &Guard,
        decided: BootTime,
        entry: &RepairEntry,
        end: &End,
        running: bool,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let (id, now) = (EntryId::repair(entry.index), self.steady.now().wall);
        let (status, settled, reason) = match end {
            End::Failed(_) => (RepairStatus::Failed, "the repair has failed".to_owned(), None),
            End::DoneBy(order) => (RepairStatus::Succeeded, format!("settled by {}", order.who), order.reason.clone()),
            End::Healthy
            | End::Cancelled
            | End::NotMember
            | End::Booted
            | End::Replaced
            | End::Deleted
            | End::Released(_)
            | End::Expired => (RepairStatus::Succeeded, "settled by the health check".to_owned(), None),
        };
        let next = entry.moved_to(status, StepStatus::Waiting, now);
        let (keys, view) = (self.store.keys(), self.live.borrow());
        let mut change = Change { compares: self.compares(guard), ..Change::default() };
        let mut attempts: Vec<Attempt> = Vec::new();
        // The newest attempts come first: the mark on the newest one, that an operator called the machine back, holds
        // for those before it.
        for stored in view.attempts_of(id).rev() {
            let Some(attempt) = stored.get() else { continue };
            let mut closed = vec![attempt.clone()];
            if !running {
                close(&mut closed, &settled, now);
            }
            mark_done(&mut closed, end);
            if closed.first() != Some(attempt) && change.puts.len() < CLOSE_BATCH {
                change.compares.push((stored.key.clone(), stored.mod_revision));
                change.puts.extend(closed.iter().map(|a| Put::json(stored.key.clone(), a)));
            }
            attempts.append(&mut closed);
        }
        attempts.reverse();
        let ending = Ending {
            entry: id,
            address: entry.address.clone(),
            end: end.kind(),
            outcome: end.outcome(),
            withdrawn_by: None,
            at: now,
            last: serde_json::to_value(&next).unwrap_or_default(),
            request: view.requests.get(&id).and_then(Stored::get).cloned(),
            attempts,
            hooks: Vec::new(),
            omitted: 0,
        }
        .bounded();
        change.puts.push(Put::json(keys.entry(id), &next));
        change.puts.push(Put::json(keys.history_of(id), &ending));
        change.puts.push(self.audit("end", &id.to_string(), reason, &ending.outcome));
        change.deletes = vec![keys.order(id), keys.progress(id)];
        self.commit(&permit, change).await?;
        tracing::info!(entry = %id, address = entry.address.as_str(), outcome = ending.outcome, "repair ended");
        let (what, failed) = ((end.event(), "Repair"), status == RepairStatus::Failed);
        self.record_event_on(&entry.address, what, failed, format!("{id} ended: {}", ending.outcome));
        let error = if status == RepairStatus::Failed { ending.outcome.as_str() } else { "" };
        self.write_cke_record("repair-finish", &entry.address, error, now);
        Ok(EffectOutcome::Done)
    }
}

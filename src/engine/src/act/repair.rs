//! End of a repair: the entry stays in the queue as `succeeded` or `failed`, and its history is written.

use cketerm_model::{boot_time::BootTime, entry::EntryId, repair::RepairEntry};
use cketerm_rules::{
    decide::{End, Guard},
    snapshot::EffectOutcome,
};

use super::{Actor, Stop};

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
        let (id, view) = (EntryId::repair(entry.index), self.live.borrow());
        let transition = self.transition(&view);
        let now = transition.now;
        let (mut change, ending) = transition.finish_repair(guard, entry, end, running);
        let reason = if let End::DoneBy(order) = end { order.reason.clone() } else { None };
        change.puts.push(self.audit("end", &id.to_string(), reason, &ending.outcome));
        self.commit(&permit, change).await?;
        tracing::info!(entry = %id, address = entry.address.as_str(), outcome = ending.outcome, "repair ended");
        let failed = matches!(end, End::Failed(_));
        self.record_event_on(
            &entry.address,
            (end.event(), "Repair"),
            failed,
            format!("{id} ended: {}", ending.outcome),
        );
        let error = if failed { ending.outcome.as_str() } else { "" };
        self.write_cke_record("repair-finish", &entry.address, error, now);
        Ok(EffectOutcome::Done)
    }
}

//! Actions on batches: the entries of one enqueue.

use std::collections::BTreeSet;

use cketerm_clients::store::{StoreError, enqueue::Enqueued};
use cketerm_model::{
    acceptance::OperatorCommand,
    batch::{Batch, BatchId, BatchState, BatchTotals},
    entry::{EntryId, QueueKind, Stored},
    stored::view::StoreView,
};

use super::{accept::MAX_CHECKS, error::ActionError, operator::Operator};

/// Number of batches that an error lists.
const MAX_LISTED: usize = 5;

/// A batch with the counts of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// Id.
    pub id: BatchId,
    /// The stored batch.
    pub batch: Batch,
    /// Counts of its entries.
    pub totals: BatchTotals,
}

impl BatchRow {
    /// Returns the batches of a queue, newest first.
    pub fn all(view: &StoreView, queue: QueueKind) -> Vec<Self> {
        let totals = view.batch_totals();
        let row = |(id, stored): (&BatchId, &Stored<Batch>)| {
            let batch = stored.get().filter(|batch| batch.queue == queue)?.clone();
            Some(Self { id: *id, batch, totals: totals.get(id).copied().unwrap_or_default() })
        };
        view.batches.iter().rev().filter_map(row).collect()
    }

    /// Returns the state of the batch.
    pub fn state(&self) -> BatchState {
        self.totals.state(&self.batch)
    }
}

impl Operator {
    /// Pauses a batch: its queued entries do not start, those in work finish.
    pub async fn pause_batch(&self, queue: QueueKind, id: BatchId, reason: Option<&str>) -> Result<(), ActionError> {
        let mut checks = 1;
        loop {
            let leadership = self.accepted(OperatorCommand::PauseBatch).await?;
            self.known_batch(queue, id).await?;
            match self.store.pause_batch(id, &self.person, reason, &leadership.under).await {
                // another leader has taken over: whether it honours the pause has to be checked again
                Err(StoreError::LeaderChanged) if checks < MAX_CHECKS => checks += 1,
                paused => return Ok(paused?),
            }
        }
    }

    /// Ends the pause of a batch.
    pub async fn resume_batch(&self, queue: QueueKind, id: BatchId, reason: Option<&str>) -> Result<(), ActionError> {
        self.known_batch(queue, id).await?;
        Ok(self.store.resume_batch(id, &self.person, reason).await?)
    }

    /// Cancels the unfinished entries of a batch, those in work included, and returns their indexes.
    pub async fn cancel_batch(
        &self,
        queue: QueueKind,
        id: BatchId,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, ActionError> {
        let view = self.known_batch(queue, id).await?;
        let entries: BTreeSet<EntryId> = view.entries_of_batch(id).collect();
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.store.cancel_entries_of_batch(queue, &entries, &self.person, reason).await?)
    }

    /// Returns the live state if the queue has this batch. The error lists the batches that it has.
    async fn known_batch(&self, queue: QueueKind, id: BatchId) -> Result<StoreView, ActionError> {
        let view = self.store.read_view().await?;
        match view.batches.get(&id).map(|stored| &stored.value) {
            Some(Ok(batch)) if batch.queue == queue => Ok(view),
            Some(Err(why)) => Err(ActionError::failed(format!("batch {id} cannot be read: {why}"))),
            Some(Ok(_)) | None => Err(ActionError::failed(unknown_batch(&view, queue, id))),
        }
    }
}

/// Returns the note about entries that were added without a batch.
pub(super) fn without_batch(added: &Enqueued) -> Option<String> {
    (added.batch.is_none() && !added.indexes.is_empty()).then(|| {
        "note: these entries are no batch: etcd does not let this user write cketerm/batches/; grant etcd.username the \
         role (docs/etcd-roles.md)"
            .to_owned()
    })
}

/// Returns the message about an id that no batch of the queue has.
fn unknown_batch(view: &StoreView, queue: QueueKind, id: BatchId) -> String {
    let rows = BatchRow::all(view, queue);
    let (open, done): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.state() != BatchState::Done);
    let named = open.iter().chain(&done).take(MAX_LISTED).map(|row| format!("{} ({})", row.id, row.state()));
    let listed = named.collect::<Vec<_>>().join(", ");
    let command = queue.command();
    if listed.is_empty() {
        return format!("there is no batch {id}, nor any other; `cketerm {command} add` makes one");
    }
    format!("there is no batch {id}; the batches are {listed}; see `cketerm {command} batches`")
}

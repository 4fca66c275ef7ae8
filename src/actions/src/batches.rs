//! Actions on batches: the entries of one enqueue.

use std::collections::BTreeSet;

use cketerm_clients::store::{StoreError, batches::BatchMark, enqueue::Enqueued};
use cketerm_model::{
    acceptance::OperatorCommand,
    batch::{Batch, BatchId, BatchState, BatchTotals},
    entry::{EntryId, QueueKind, Stored},
    stored::view::StoreView,
};
use jiff::Timestamp;

use super::{accept::checked_again, error::ActionError, operator::Operator};

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
        checked_again(|| async {
            let leadership = self.accepted(OperatorCommand::PauseBatch).await?;
            let view = self.known_batch(queue, id).await?;
            if let Some(why) = nothing_to_pause(&view, id, self.store.clock().wall()) {
                return Err(ActionError::refused(why));
            }
            Ok(self.store.mark_batch(id, BatchMark::Paused(&leadership.under), &self.person, reason).await)
        })
        .await
    }

    /// Ends the pause of a batch. `shown`: revision at which the operator saw it; if its members or its state are others now,
    /// nothing is written.
    pub async fn resume_batch(
        &self,
        queue: QueueKind,
        id: BatchId,
        shown: Option<i64>,
        reason: Option<&str>,
    ) -> Result<(), ActionError> {
        self.known_batch(queue, id).await?;
        Ok(self.store.resume_batch(id, shown, &self.person, reason).await?)
    }

    /// Cancels the unfinished entries of a batch, those in work included, and returns their indexes. An enqueue that
    /// still adds entries to it stops with an error. `shown` as for [`Self::resume_batch`].
    pub async fn cancel_batch(
        &self,
        queue: QueueKind,
        id: BatchId,
        shown: Option<i64>,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, ActionError> {
        let view = self.known_batch(queue, id).await?;
        let growing = view.batch(id).is_some_and(|batch| batch.growing(self.store.clock().wall()));
        if !growing && view.entries_of_batch(id).next().is_none() {
            return Ok(Vec::new());
        }
        let marked = match self.store.mark_batch(id, BatchMark::Cancelled(shown), &self.person, reason).await {
            Ok(()) => true,
            // A role of version 0.1 may cancel entries, not write batches.
            Err(StoreError::Denied { .. }) => false,
            Err(failed) => return Err(failed.into()),
        };
        match self.cancel_entries_of(queue, id, reason).await {
            // the cause alone would say that nothing was written
            Err(failed) if marked => {
                let ActionError { kind, text } = failed.into();
                let text = format!(
                    "batch {id} is marked as cancelled, its entries are not all cancelled: {text}; run the command again"
                );
                Err(ActionError { kind, text })
            }
            cancelled => Ok(cancelled?),
        }
    }

    /// Cancels the unfinished entries that a batch has now, and returns their indexes.
    async fn cancel_entries_of(
        &self,
        queue: QueueKind,
        id: BatchId,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, StoreError> {
        // Read after the mark: the enqueue compares the batch, so nothing joins it later.
        let entries: BTreeSet<EntryId> = self.store.read_view().await?.entries_of_batch(id).collect();
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        self.store.cancel_entries_of_batch(queue, &entries, &self.person, reason).await
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

/// Returns the message of a refused pause: all entries of the batch have ended, and its enqueue is over.
fn nothing_to_pause(view: &StoreView, id: BatchId, now: Timestamp) -> Option<String> {
    let batch = view.batch(id)?;
    let open = view.batch_totals().get(&id).map_or(0, BatchTotals::open);
    (open == 0 && !batch.growing(now)).then(|| {
        let command = batch.queue.command();
        format!(
            "batch {id} is done: none of its entries waits or is in work; nothing was written; see `cketerm {command} \
             batches`"
        )
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

#[cfg(test)]
mod tests {
    use cketerm_model::{
        batch::Cancelled,
        cketerm_records::Who,
        stored::{keys::Keys, row::Row},
        time::after,
    };

    use super::*;

    fn now() -> Timestamp {
        "2026-11-24T10:00:00Z".parse().unwrap()
    }

    /// A view of one batch of a reboot in this state.
    fn view(batch: &Batch, id: BatchId, status: &str) -> StoreView {
        let (keys, mut view, entry) = (Keys::new("/cke/"), StoreView::default(), EntryId::reboot(0));
        let request = serde_json::json!({"who": Who::default(), "at": now(), "batch": id});
        let reboot = serde_json::json!({"index": "0", "node": "10.0.0.1", "status": status});
        let rows = [
            (keys.batch(id), serde_json::to_string(batch).unwrap()),
            (keys.entry(entry), reboot.to_string()),
            (keys.request(entry), request.to_string()),
        ];
        for (key, value) in rows {
            view.put(&keys, &Row::new(&key, &value, 7, 7));
        }
        view
    }

    #[test]
    fn a_batch_without_an_open_entry_cannot_be_paused_unless_its_enqueue_runs() {
        let id = BatchId::at(now());
        let batch = Batch { added: 1, ..Batch::new(QueueKind::Reboot, Who::default(), now(), None, 1) };
        let refused = |batch: &Batch, status: &str, at| nothing_to_pause(&view(batch, id, status), id, at);
        assert_eq!(refused(&batch, "queued", now()), None);
        assert_eq!(refused(&batch, "rebooting", now()), None);
        let why = refused(&batch, "cancelled", now()).unwrap();
        assert!(why.starts_with(&format!("batch {id} is done")) && why.contains("`cketerm rq batches`"), "{why}");
        let half = Batch { asked: 2, ..batch };
        assert_eq!(refused(&half, "cancelled", now()), None, "the second entry is about to join");
        assert!(refused(&half, "cancelled", after(now(), 600)).is_some());
        let cancelled = Some(Cancelled { who: Who::default(), at: now(), reason: None });
        assert!(refused(&Batch { cancelled, ..half }, "cancelled", now()).is_some());
    }
}

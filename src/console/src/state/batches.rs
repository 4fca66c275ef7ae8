//! Batches with the counts of their entries, computed once per change of the queues.

use std::{cmp::Reverse, sync::Arc};

use cketerm_model::{
    batch::{Batch, BatchId, BatchState, BatchTotals},
    entry::{EntryId, QueueKind, Stored},
    stored::view::StoreView,
};
use cketerm_rules::seen::Seen;
use imbl::OrdMap;

/// Identity of a row. The newest batch is the first row.
pub type BatchRowId = Reverse<BatchId>;

/// A batch and the counts of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSummary {
    /// Id.
    pub id: BatchId,
    /// The batch as it is stored.
    pub batch: Arc<Batch>,
    /// Counts of its entries.
    pub totals: BatchTotals,
}

impl BatchSummary {
    /// Returns the state of the batch.
    pub fn state(&self) -> BatchState {
        self.totals.state(&self.batch)
    }

    /// Returns the entries that are in work, done or failed, of all that were added, for a bar: done, in work, failed,
    /// all.
    pub fn parts(&self) -> (u64, u64, u64, u64) {
        (self.totals.done(), self.totals.in_work, self.totals.ends.failed, self.added())
    }

    /// Returns the number of entries, with those that were withdrawn: a batch whose half was cancelled is half done.
    pub fn added(&self) -> u64 {
        self.totals.all().saturating_add(self.totals.ends.withdrawn)
    }
}

/// The readable batches of both queues.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    of: Option<Arc<StoreView>>,
    rows: OrdMap<BatchRowId, BatchSummary>,
}

impl Batches {
    /// Counts again if a queue, a request or a batch has changed. A progress record, which changes all the time, costs
    /// nothing.
    pub fn refresh(&mut self, seen: &Seen) {
        let store = &seen.snapshot.store;
        let same = self.of.as_ref().is_some_and(|of| {
            Arc::ptr_eq(of, store)
                || of.batches.ptr_eq(&store.batches)
                    && of.batch_ends.ptr_eq(&store.batch_ends)
                    && of.cancels.ptr_eq(&store.cancels)
                    && of.requests.ptr_eq(&store.requests)
                    && of.reboots.entries.ptr_eq(&store.reboots.entries)
                    && of.repairs.entries.ptr_eq(&store.repairs.entries)
        });
        if !same {
            let totals = store.batch_totals();
            let row = |(id, stored): (&BatchId, &Stored<Batch>)| {
                let batch = Arc::clone(stored.value.as_ref().ok()?);
                let totals = totals.get(id).copied().unwrap_or_default();
                Some((Reverse(*id), BatchSummary { id: *id, batch, totals }))
            };
            self.rows = store.batches.iter().filter_map(row).collect();
        }
        self.of = Some(Arc::clone(store));
    }

    /// Returns a batch.
    pub fn get(&self, id: BatchId) -> Option<&BatchSummary> {
        self.rows.get(&Reverse(id))
    }

    /// Returns the batches of a queue, newest first.
    pub fn of_queue(&self, queue: QueueKind) -> impl Iterator<Item = &BatchSummary> {
        self.rows.values().filter(move |row| row.batch.queue == queue)
    }

    /// Returns the batches that have entries left, of both queues, oldest first: the order in which they are worked on.
    pub fn open(&self) -> impl Iterator<Item = &BatchSummary> {
        self.rows.values().rev().filter(|row| row.totals.open() > 0)
    }

    /// Returns the paused batches that have entries left.
    pub fn paused(&self) -> impl Iterator<Item = &BatchSummary> {
        self.open().filter(|row| row.state() == BatchState::Paused)
    }

    /// Returns the batch of an entry that is in its queue.
    pub fn of_entry(&self, seen: &Seen, entry: EntryId) -> Option<&BatchSummary> {
        self.get(seen.snapshot.store.batch_of(entry)?)
    }
}

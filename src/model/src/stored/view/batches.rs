//! Batches in the live copy of etcd.

use std::collections::BTreeMap;

use super::StoreView;
use crate::{
    batch::{Batch, BatchId, BatchTotals, Paused},
    cketerm_records::EndKind,
    entry::{EntryId, QueueKind, Stored},
};

impl StoreView {
    /// Returns the batch of an entry that is in its queue; none if version 0.1, CKE or ckecli added it.
    pub fn batch_of(&self, entry: EntryId) -> Option<BatchId> {
        self.requests.get(&entry)?.get()?.batch
    }

    /// Returns a batch; none if it does not exist or cannot be read.
    pub fn batch(&self, id: BatchId) -> Option<&Batch> {
        self.batches.get(&id)?.get()
    }

    /// Returns the batch of an entry if it is paused.
    pub fn paused_batch(&self, entry: EntryId) -> Option<(BatchId, &Paused)> {
        let id = self.batch_of(entry)?;
        Some((id, self.batch(id)?.paused.as_ref()?))
    }

    /// Returns the batch of an entry, its key and the fault if its record cannot be read.
    pub fn unreadable_batch(&self, entry: EntryId) -> Option<(BatchId, &str, &str)> {
        let id = self.batch_of(entry)?;
        let stored = self.batches.get(&id)?;
        Some((id, &stored.key, stored.value.as_ref().err()?))
    }

    /// Returns the indexes of a batch's entries that are in the queue, in order.
    pub fn entries_of_batch(&self, id: BatchId) -> impl Iterator<Item = EntryId> {
        let named = self.requests.iter().filter(move |(_, stored)| stored.get().is_some_and(|r| r.batch == Some(id)));
        named.map(|(entry, _)| *entry).filter(|entry| self.has_entry(*entry))
    }

    /// Counts the entries of every batch. It costs one look at each entry.
    pub fn batch_totals(&self) -> BTreeMap<BatchId, BatchTotals> {
        let mut totals: BTreeMap<BatchId, BatchTotals> = BTreeMap::new();
        if self.batches.is_empty() {
            return totals;
        }
        for (id, batch) in self.batches.iter().filter_map(|(id, stored)| Some((*id, stored.get()?))) {
            totals.insert(id, BatchTotals { ends: batch.ends, ..BatchTotals::default() });
        }
        for (entry, request) in self.requests.iter().filter_map(|(id, stored)| Some((*id, stored.get()?))) {
            let count = request.batch.and_then(|batch| totals.get_mut(&batch));
            if let (Some(count), Some(stored)) = (count, self.stored_entry(entry)) {
                count.count(stored.get());
            }
        }
        for ((batch, _), end) in &self.batch_ends {
            if let Some(count) = totals.get_mut(batch) {
                count.ends.add(end.get().copied().unwrap_or_default());
            }
        }
        for (id, count) in &mut totals {
            let added = self.batches.get(id).and_then(Stored::get).map_or(0, |batch| batch.added);
            count.unrecorded = added.saturating_sub(count.open().saturating_add(count.ends.all()));
        }
        for (_, batch, end) in self.withdrawn_elsewhere() {
            if let Some(count) = totals.get_mut(&batch).filter(|count| count.unrecorded > 0) {
                count.unrecorded -= 1;
                count.ends.add(end);
            }
        }
        totals
    }

    /// Returns the entries of batches that an operator withdrew, that a leader other than cketerm has removed, and whose
    /// end has no record below their batch yet.
    pub fn withdrawn_elsewhere(&self) -> impl Iterator<Item = (EntryId, BatchId, EndKind)> {
        let gone = self.cancels.iter().filter(|(id, _)| !self.has_entry(**id));
        gone.filter_map(|(id, stored)| {
            let (batch, cancel) = (self.batch_of(*id)?, stored.get()?);
            let is_recorded = self.batch_ends.contains_key(&(batch, *id));
            let end = cancel.end.or((id.queue == QueueKind::Reboot).then_some(EndKind::Cancelled))?;
            (!is_recorded).then_some((*id, batch, end))
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        batch::{BatchEnds, BatchState},
        cketerm_records::Who,
        stored::{keys::Keys, row::Row},
    };

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// A view with one batch of five reboots: one ended with a record, one ended under another leader.
    fn view() -> (StoreView, Keys, BatchId) {
        let (keys, id) = (Keys::new("/cke/"), BatchId::at(time("2026-11-24T10:00:00Z")));
        let who = Who { user: "alice".to_owned(), ..Who::default() };
        let batch = Batch { added: 5, ..Batch::new(QueueKind::Reboot, who, time("2026-11-24T10:00:00Z"), None, 6) };
        let mut view = StoreView::default();
        let mut put = |key: String, value: String| view.put(&keys, &Row::new(&key, &value, 7, 7));
        put(keys.batch(id), serde_json::to_string(&batch).unwrap());
        for (index, status) in [(0, "queued"), (1, "draining"), (2, "cancelled")] {
            let entry = EntryId::reboot(index);
            put(keys.entry(entry), format!(r#"{{"index":"{index}","node":"10.0.0.{index}","status":"{status}"}}"#));
            let who = r#"{"user":"alice","host":"ops1"}"#;
            let request = format!(r#"{{"who":{who},"at":"2026-11-24T10:00:00Z","batch":"{id}"}}"#);
            put(keys.request(entry), request);
        }
        put(keys.batch_end(id, EntryId::reboot(3)), r#""booted""#.to_owned());
        (view, keys, id)
    }

    #[test]
    fn totals_count_entries_in_the_queue_records_of_ends_and_entries_that_vanished() {
        let (view, _, id) = view();
        assert_eq!(view.broken.len(), 0, "{:?}", view.broken);
        let totals = view.batch_totals()[&id];
        let ends = BatchEnds { done: 1, failed: 0, withdrawn: 1 };
        assert_eq!(totals, BatchTotals { queued: 1, in_work: 1, ends, unrecorded: 1 });
        assert_eq!((totals.done(), totals.all(), totals.state(view.batch(id).unwrap())), (2, 4, BatchState::Running));
        assert_eq!(view.entries_of_batch(id).map(|entry| entry.index).collect::<Vec<_>>(), [0, 1, 2]);
    }

    /// CKE removes a cancelled entry and records no end; the batch called it done.
    #[test]
    fn an_entry_that_cke_removed_after_its_cancel_is_not_done() {
        let (mut view, keys, id) = view();
        let cancel = |index: u64, end: &str| {
            let who = r#"{"user":"alice","host":"ops1"}"#;
            let at = "2026-11-24T10:05:00Z";
            let value = format!(r#"{{"who":{who},"at":"{at}","address":"10.0.0.{index}","created":7{end}}}"#);
            Row::new(&keys.cancel(EntryId::reboot(index)), &value, 9, 9)
        };
        // in the queue still, ended with a record, and without a batch
        for index in [2, 3, 9] {
            view.put(&keys, &cancel(index, ""));
        }
        let before = view.batch_totals()[&id];
        assert_eq!((before.done(), before.unrecorded, before.ends.withdrawn), (2, 1, 1));
        view.delete(&keys, keys.entry(EntryId::reboot(0)).as_bytes());
        assert_eq!(view.batch_totals()[&id].done(), 3, "nobody cancelled it");
        for end in ["", r#","end":"cancelled""#] {
            view.put(&keys, &cancel(0, end));
            let totals = view.batch_totals()[&id];
            assert_eq!((totals.done(), totals.unrecorded, totals.ends.withdrawn), (2, 1, 2), "{end}");
        }
        // a repair that had failed keeps its end
        view.put(&keys, &cancel(0, r#","end":"failed""#));
        assert_eq!(view.batch_totals()[&id].ends.failed, 1);
    }

    #[test]
    fn the_pause_of_a_batch_is_found_by_its_entries() {
        let (mut view, keys, id) = view();
        assert_eq!(view.paused_batch(EntryId::reboot(0)), None);
        let paused = Paused { who: Who::default(), at: time("2026-11-24T10:05:00Z"), reason: None };
        let batch = Batch { paused: Some(paused.clone()), ..view.batch(id).unwrap().clone() };
        view.put(&keys, &Row::new(&keys.batch(id), &serde_json::to_string(&batch).unwrap(), 9, 7));
        assert_eq!(view.paused_batch(EntryId::reboot(0)), Some((id, &paused)));
        assert_eq!(view.paused_batch(EntryId::reboot(7)), None);
        view.delete(&keys, keys.batch(id).as_bytes());
        assert_eq!((view.paused_batch(EntryId::reboot(0)), view.batch_totals().len()), (None, 0));
    }
}

//! Upkeep of batches by the leader: it folds records of ended entries into their batch, and removes batches that ended
//! long ago (STO-65, STO-66).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    batch::{Batch, BatchId},
    entry::EntryId,
    stored::{
        keys::Keys,
        transaction::{Change, Put},
        view::StoreView,
    },
    time::after,
};
use jiff::Timestamp;

/// Number of records that one transaction folds: etcd takes 128 comparisons and 128 operations.
const FOLDED_AT_ONCE: usize = 100;
/// Number of records that wait before a batch in work is folded, so that it is not written for each end.
const FOLD_FROM: usize = 50;
/// Number of ended batches that are kept, and their age in days.
const KEPT: usize = 200;
const KEPT_DAYS: i64 = 30;

/// Returns the transactions that are due now.
pub fn upkeep(keys: &Keys, store: &StoreView, now: Timestamp) -> Vec<Change> {
    if store.batches.is_empty() && store.batch_ends.is_empty() {
        return Vec::new();
    }
    let mut in_queue: BTreeSet<BatchId> = BTreeSet::new();
    let named = store.requests.iter().filter(|(entry, _)| store.has_entry(**entry));
    in_queue.extend(named.filter_map(|(_, request)| request.get()?.batch));
    let mut ends: BTreeMap<BatchId, Vec<EntryId>> = BTreeMap::new();
    for (batch, entry) in store.batch_ends.keys() {
        ends.entry(*batch).or_default().push(*entry);
    }
    let mut changes = Vec::new();
    for (id, stored) in &store.batches {
        let Some(batch) = stored.get() else { continue };
        let ended = ends.remove(id).unwrap_or_default();
        // While its enqueue runs, the entries added so far may all have ended, and a pause has to bind the next ones.
        let over = !in_queue.contains(id) && !batch.growing(now);
        let ends = batch.ended.is_none() || batch.paused.is_some() || !ended.is_empty();
        if ended.len() >= FOLD_FROM || (over && ends) {
            changes.push(fold(keys, store, (*id, stored.mod_revision, batch), &ended, over, now));
        }
    }
    // Records whose batch somebody removed.
    for (id, entries) in ends {
        if store.batches.contains_key(&id) {
            continue;
        }
        let some = entries.into_iter().take(FOLDED_AT_ONCE).map(|entry| keys.batch_end(id, entry));
        changes.push(Change { deletes: some.collect(), ..Change::default() });
    }
    changes.extend(outdated(keys, store, now));
    changes
}

/// Returns the transaction that adds records of ends to the counts of their batch and deletes them.
fn fold(
    keys: &Keys,
    store: &StoreView,
    (id, revision, batch): (BatchId, i64, &Batch),
    ended: &[EntryId],
    over: bool,
    now: Timestamp,
) -> Change {
    let (mut next, mut change) = (batch.clone(), Change::default());
    change.compares.push((keys.batch(id), revision));
    for entry in ended.iter().take(FOLDED_AT_ONCE) {
        let Some(stored) = store.batch_ends.get(&(id, *entry)) else { continue };
        next.ends.add(stored.get().copied().unwrap_or_default());
        change.compares.push((stored.key.clone(), stored.mod_revision));
        change.deletes.push(stored.key.clone());
    }
    if over && ended.len() <= FOLDED_AT_ONCE {
        next.ended = Some(batch.ended.unwrap_or(now));
        // A pause of nothing would be shown for ever.
        next.paused = None;
    }
    change.puts.push(Put::json(keys.batch(id), &next));
    change
}

/// Returns the transactions that remove batches which ended long ago, or of which there are too many.
fn outdated(keys: &Keys, store: &StoreView, now: Timestamp) -> Vec<Change> {
    let before = after(now, -KEPT_DAYS * 86_400);
    let ended: Vec<(BatchId, i64, Timestamp)> = store
        .batches
        .iter()
        .filter_map(|(id, stored)| Some((*id, stored.mod_revision, stored.get()?.ended?)))
        .collect();
    let too_many = ended.len().saturating_sub(KEPT);
    let gone = ended.iter().enumerate().filter(|(place, (.., at))| *place < too_many || *at < before);
    let removal = |(_, (id, revision, _)): (usize, &(BatchId, i64, Timestamp))| Change {
        compares: vec![(keys.batch(*id), *revision)],
        deletes: vec![keys.batch(*id)],
        ..Change::default()
    };
    gone.map(removal).take(FOLDED_AT_ONCE).collect()
}

#[cfg(test)]
mod tests {
    use cketerm_model::{
        batch::{BatchEnds, BatchState, Cancelled, Paused},
        cketerm_records::Who,
        entry::{QueueKind, Stored},
        stored::row::Row,
    };

    use super::*;

    fn now() -> Timestamp {
        "2026-11-24T10:00:00Z".parse().unwrap()
    }

    struct Scene {
        keys: Keys,
        store: StoreView,
        id: BatchId,
        revision: i64,
    }

    impl Scene {
        /// A paused batch of `added` reboots that were added before `now`.
        fn new(added: u64) -> Self {
            let (keys, id) = (Keys::new("/cke/"), BatchId::at(now()));
            let mut scene = Self { keys, store: StoreView::default(), id, revision: 1 };
            let paused = Some(Paused { who: Who::default(), at: now(), reason: None });
            let batch = Batch { added, paused, ..Batch::new(QueueKind::Reboot, Who::default(), now(), None, added) };
            scene.put(&scene.keys.batch(id), &batch);
            scene
        }

        fn put(&mut self, key: &str, value: &impl serde::Serialize) {
            self.revision += 1;
            let text = serde_json::to_string(value).unwrap();
            self.store.put(&self.keys, &Row::new(key, &text, self.revision, self.revision));
        }

        fn queued(&mut self, index: u64) {
            let entry = EntryId::reboot(index);
            let text = format!(r#"{{"index":"{index}","node":"10.0.0.1","status":"queued"}}"#);
            self.put(&self.keys.entry(entry), &serde_json::from_str::<serde_json::Value>(&text).unwrap());
            let request = serde_json::json!({"who": Who::default(), "at": now(), "batch": self.id});
            self.put(&self.keys.request(entry), &request);
        }

        fn ended(&mut self, indexes: std::ops::Range<u64>, end: &str) {
            for index in indexes {
                self.put(&self.keys.batch_end(self.id, EntryId::reboot(index)), &end);
            }
        }

        /// Carries out what is due, as etcd would. Returns the number of transactions.
        fn upkeep(&mut self, now: Timestamp) -> usize {
            let changes = upkeep(&self.keys, &self.store, now);
            for change in &changes {
                assert!(change.compares.len() < 127 && change.deletes.len() + change.puts.len() < 127);
                for key in &change.deletes {
                    self.store.delete(&self.keys, key.as_bytes());
                }
                for put in &change.puts {
                    self.revision += 1;
                    self.store.put(&self.keys, &Row::new(&put.key, &put.value, self.revision, 1));
                }
            }
            changes.len()
        }

        fn batch(&self) -> &Batch {
            self.store.batches.get(&self.id).and_then(Stored::get).unwrap()
        }
    }

    #[test]
    fn sto65_records_of_ends_are_folded_in_lots_and_no_count_changes() {
        let mut scene = Scene::new(300);
        scene.queued(0);
        scene.ended(1..40, "booted");
        assert_eq!(scene.upkeep(now()), 0, "too few to write the batch for");
        scene.ended(40..240, "booted");
        scene.ended(240..250, "cancelled");
        let before = scene.store.batch_totals();
        for left in [149, 49, 49] {
            scene.upkeep(now());
            assert_eq!((scene.store.batch_ends.len(), scene.store.batch_totals()), (left, before.clone()));
        }
        assert_eq!((scene.batch().paused.is_some(), scene.batch().ended), (true, None));
        assert_eq!(before[&scene.id].unrecorded, 50, "another leader removed the other ones");
    }

    #[test]
    fn sto65_a_batch_without_entries_is_over_and_no_longer_paused() {
        let mut scene = Scene::new(2);
        scene.ended(0..1, "booted");
        scene.ended(1..2, "failed");
        assert_eq!((scene.upkeep(now()), scene.upkeep(now())), (1, 0));
        let batch = scene.batch().clone();
        assert_eq!((batch.ends, batch.ended), (BatchEnds { done: 1, failed: 1, withdrawn: 0 }, Some(now())));
        assert_eq!((batch.paused.is_some(), scene.store.batch_ends.len()), (false, 0));
        assert_eq!(scene.store.batch_totals()[&scene.id].state(&batch), BatchState::Done);
    }

    #[test]
    fn sto65_a_batch_is_not_over_while_its_enqueue_runs_and_a_pause_stays() {
        let mut scene = Scene::new(2);
        scene.put(&scene.keys.batch(scene.id), &Batch { asked: 3, ..scene.batch().clone() });
        scene.ended(0..2, "booted");
        assert_eq!(scene.upkeep(now()), 0);
        assert_eq!((scene.batch().paused.is_some(), scene.batch().ended), (true, None));
        let later = after(now(), 600);
        assert_eq!(scene.upkeep(later), 1, "the enqueue was interrupted");
        assert_eq!((scene.batch().paused.is_some(), scene.batch().ended), (false, Some(later)));
    }

    #[test]
    fn sto65_a_cancelled_batch_is_over_at_once_and_a_late_pause_is_removed() {
        let mut scene = Scene::new(2);
        let cancelled = Some(Cancelled { who: Who::default(), at: now(), reason: None });
        scene.put(&scene.keys.batch(scene.id), &Batch { asked: 3, cancelled, ..scene.batch().clone() });
        assert_eq!((scene.upkeep(now()), scene.batch().ended), (1, Some(now())));
        let paused = Some(Paused { who: Who::default(), at: now(), reason: None });
        scene.put(&scene.keys.batch(scene.id), &Batch { paused, ..scene.batch().clone() });
        assert_eq!((scene.upkeep(after(now(), 60)), scene.upkeep(after(now(), 60))), (1, 0));
        assert_eq!((scene.batch().paused.is_some(), scene.batch().ended), (false, Some(now())));
    }

    #[test]
    fn sto66_batches_go_after_thirty_days_and_the_oldest_above_two_hundred() {
        let mut scene = Scene::new(0);
        let mut id = scene.id;
        for _ in 0..204 {
            id = id.next();
            let ended = Batch { ended: Some(now()), ..scene.batch().clone() };
            scene.put(&scene.keys.batch(id), &ended);
        }
        scene.put(&scene.keys.batch_end(id.next(), EntryId::reboot(1)), &"booted");
        scene.upkeep(now());
        assert_eq!((scene.store.batches.len(), scene.store.batch_ends.len()), (201, 0));
        assert!(scene.batch().ended.is_some(), "ended just now");
        scene.upkeep(now());
        assert_eq!(scene.store.batches.len(), 200);
        scene.upkeep(after(now(), 29 * 86_400));
        assert_eq!(scene.store.batches.len(), 200);
        scene.upkeep(after(now(), 31 * 86_400));
        scene.upkeep(after(now(), 31 * 86_400));
        assert_eq!(scene.store.batches.len(), 0);
    }
}

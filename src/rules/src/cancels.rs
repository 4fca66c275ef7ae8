//! Cancels of reboots and deletions of repairs that were accepted while a program other than cketerm led (STO-68). CKE
//! reads an entry and writes it later without a comparison, so a cancel in between is overwritten.

use std::collections::BTreeMap;

use cketerm_model::{
    batch::BatchId,
    cketerm_records::{AcceptedCancel, EndKind, SCHEMA},
    entry::{EntryId, QueueKind, Stored},
    stored::view::StoreView,
    withdraw::Withdraw,
};

/// State of the entry of an accepted cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelState {
    /// The entry is cancelled; the leader has not removed it yet.
    Waiting,
    /// The entry is no longer cancelled: the cancel was overwritten.
    Lost,
    /// The entry is gone, or another machine's entry has its place: the record is over.
    Over,
}

/// Work on one accepted cancel.
#[derive(Clone, Debug, PartialEq)]
pub struct Due<'a> {
    /// The entry.
    pub id: EntryId,
    /// The record.
    pub stored: &'a Stored<AcceptedCancel>,
    /// Whether to cancel the entry again; else the record is removed.
    pub repeat: bool,
    /// End that is recorded below the entry's batch when the record is removed.
    pub end: Option<BatchEnd>,
}

/// End of an entry that a leader other than cketerm removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// The batch of the entry.
    pub batch: BatchId,
    /// ModRevision of the batch: a leader may fold its ends meanwhile.
    pub revision: i64,
    /// Kind of the end.
    pub end: EndKind,
}

/// Returns the state of an entry that was cancelled. `entry`: as etcd has it now; `None` if it is gone. Nothing is known
/// of an unreadable entry, so it counts as waiting.
pub fn state(cancel: &AcceptedCancel, entry: Option<&Stored<impl Withdraw>>) -> CancelState {
    let Some(stored) = entry else { return CancelState::Over };
    match stored.get() {
        None => CancelState::Waiting,
        Some(entry) if *entry.address() != cancel.address => CancelState::Over,
        Some(entry) if entry.is_withdrawn() => CancelState::Waiting,
        Some(_) => CancelState::Lost,
    }
}

/// Returns the state of the entry of an accepted cancel, as etcd has it now.
pub fn state_in(view: &StoreView, id: EntryId, cancel: &AcceptedCancel) -> CancelState {
    match id.queue {
        QueueKind::Reboot => state(cancel, view.reboots.entries.get(&id.index)),
        QueueKind::Repair => state(cancel, view.repairs.entries.get(&id.index)),
        QueueKind::Maintenance => CancelState::Over,
    }
}

/// Returns the accepted cancels that are to be repeated, and those whose records are over. A record that cannot be read
/// is left alone. Under a schema that this version does not know, nothing is done.
pub fn due(view: &StoreView) -> Vec<Due<'_>> {
    let newer = view.schema.as_ref().is_some_and(|schema| schema.get().is_none_or(|number| *number > SCHEMA));
    if !view.synced || newer {
        return Vec::new();
    }
    let due = |(id, stored): (&EntryId, &'_ Stored<AcceptedCancel>)| match state_in(view, *id, stored.get()?) {
        CancelState::Waiting => None,
        CancelState::Lost => Some((*id, true)),
        CancelState::Over => Some((*id, false)),
    };
    let found = view.cancels.iter().filter_map(due);
    let found: Vec<(EntryId, bool)> = found.collect();
    let ends = if found.iter().all(|(_, repeat)| *repeat) { BTreeMap::new() } else { unrecorded_ends(view) };
    let due = |(id, repeat)| Some(Due { id, stored: view.cancels.get(&id)?, repeat, end: ends.get(&id).copied() });
    found.into_iter().filter_map(due).collect()
}

/// Returns the ends of withdrawn entries that their batches lack. A batch whose entries are all accounted for lacks none:
/// a cketerm that led meanwhile recorded them.
pub fn unrecorded_ends(view: &StoreView) -> BTreeMap<EntryId, BatchEnd> {
    let recorded = |batch: BatchId| {
        let stored = view.batches.get(&batch)?;
        let ends: u64 = view.batch_ends.keys().map(|(of, _)| u64::from(*of == batch)).sum();
        let open = u64::try_from(view.entries_of_batch(batch).count()).unwrap_or(u64::MAX);
        let known = stored.get()?.ends.all().saturating_add(ends).saturating_add(open);
        Some((stored.mod_revision, stored.get()?.added.saturating_sub(known)))
    };
    let mut lacking: BTreeMap<BatchId, Option<(i64, u64)>> = BTreeMap::new();
    let mut ends = BTreeMap::new();
    for (id, batch, end) in view.withdrawn_elsewhere() {
        if let Some((revision, n @ 1..)) = lacking.entry(batch).or_insert_with(|| recorded(batch)) {
            *n -= 1;
            ends.insert(id, BatchEnd { batch, revision: *revision, end });
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use cketerm_model::stored::{keys::Keys, row::Row};
    use serde_json::json;

    use super::*;

    const RECORD: &str = r#"{"who": {"user": "alice", "host": "ops1"}, "at": "2026-11-24T10:00:00Z", "address":
        "10.0.0.11", "created": 5}"#;

    fn view(entry: Option<(&str, &str)>, schema: u32) -> StoreView {
        let (keys, mut view) = (Keys::new("/cke/"), StoreView { synced: true, ..StoreView::default() });
        if let Some((node, status)) = entry {
            let entry = json!({"index": "3", "node": node, "status": status}).to_string();
            view.put(&keys, &Row::new(&keys.reboot(3), &entry, 7, 5));
        }
        view.put(&keys, &Row::new(&keys.cancel(EntryId::reboot(3)), RECORD, 6, 6));
        view.put(&keys, &Row::new(&keys.schema(), &schema.to_string(), 1, 1));
        view
    }

    fn repeats(view: &StoreView) -> Vec<bool> {
        due(view).iter().map(|due| due.repeat).collect()
    }

    #[test]
    fn a_cancel_is_repeated_only_for_its_own_entry_and_only_if_it_was_overwritten() {
        for status in ["queued", "draining", "rebooting"] {
            assert_eq!(repeats(&view(Some(("10.0.0.11", status)), SCHEMA)), [true], "{status}");
        }
        assert_eq!(repeats(&view(Some(("10.0.0.11", "cancelled")), SCHEMA)), [] as [bool; 0]);
        assert_eq!(repeats(&view(Some(("10.0.0.12", "queued")), SCHEMA)), [false], "another machine's entry");
        assert_eq!(repeats(&view(None, SCHEMA)), [false]);
        assert_eq!(repeats(&view(Some(("10.0.0.11", "?")), SCHEMA)), [] as [bool; 0], "an unreadable entry");
    }

    /// As [`view`], for the repair queue: an entry and its mark of deletion.
    fn repair_view(entry: Option<(&str, bool)>) -> StoreView {
        let (keys, mut view) = (Keys::new("/cke/"), StoreView { synced: true, ..StoreView::default() });
        if let Some((address, deleted)) = entry {
            let entry = json!({"index": "3", "address": address, "nodename": "", "machine_type": "t", "operation": "o",
                "status": "processing", "step": 0, "step_status": "draining", "deleted": deleted});
            view.put(&keys, &Row::new(&keys.entry(EntryId::repair(3)), &entry.to_string(), 7, 5));
        }
        view.put(&keys, &Row::new(&keys.cancel(EntryId::repair(3)), RECORD, 6, 6));
        view
    }

    #[test]
    fn a_deletion_of_a_repair_is_repeated_like_a_cancel() {
        assert_eq!(repeats(&repair_view(Some(("10.0.0.11", false)))), [true]);
        assert_eq!(repeats(&repair_view(Some(("10.0.0.11", true)))), [] as [bool; 0]);
        assert_eq!(repeats(&repair_view(Some(("10.0.0.12", false)))), [false], "another machine's entry");
        assert_eq!(repeats(&repair_view(None)), [false]);
    }

    /// The batch of a cancelled entry counts it as cancelled once CKE has removed it, unless its end is known already.
    #[test]
    fn the_end_of_a_cancelled_entry_is_recorded_once_below_its_batch() {
        let (keys, id) = (Keys::new("/cke/"), BatchId::at("2026-11-24T09:00:00Z".parse().unwrap()));
        let of_batch = |added: u64, done: u64, entry: Option<(&str, &str)>| {
            let mut view = view(entry, SCHEMA);
            let who = json!({"user": "alice", "host": "ops1"});
            let batch = json!({"queue": "reboot", "who": who, "at": "2026-11-24T09:00:00Z", "asked": added,
                "added": added, "ends": {"done": done}});
            view.put(&keys, &Row::new(&keys.batch(id), &batch.to_string(), 8, 4));
            let request = json!({"who": who, "at": "2026-11-24T09:00:00Z", "batch": id.to_string()});
            view.put(&keys, &Row::new(&keys.request(EntryId::reboot(3)), &request.to_string(), 4, 4));
            assert!(view.broken.is_empty(), "{:?}", view.broken);
            view
        };
        let ends = |view: &StoreView| due(view).iter().map(|due| due.end).collect::<Vec<_>>();
        let cancelled = BatchEnd { batch: id, revision: 8, end: EndKind::Cancelled };
        let mut removed = of_batch(2, 1, None);
        assert_eq!(ends(&removed), [Some(cancelled)]);
        removed.put(&keys, &Row::new(&keys.batch_end(id, EntryId::reboot(3)), r#""cancelled""#, 9, 9));
        assert_eq!(ends(&removed), [None], "it is recorded");
        assert_eq!(ends(&of_batch(2, 2, None)), [None], "its record was folded into the batch");
        assert_eq!(ends(&of_batch(2, 1, Some(("10.0.0.11", "queued")))), [None], "the cancel is repeated first");
    }

    #[test]
    fn nothing_is_repeated_under_a_newer_schema_or_before_everything_is_read() {
        assert_eq!(repeats(&view(Some(("10.0.0.11", "queued")), SCHEMA + 1)), [] as [bool; 0]);
        let unsynced = StoreView { synced: false, ..view(Some(("10.0.0.11", "queued")), SCHEMA) };
        assert_eq!(repeats(&unsynced), [] as [bool; 0]);
    }
}

//! Pauses and cancels of batches (I53, I54).

use cketerm_model::{
    batch::{Batch, BatchId},
    entry::{EntryId, QueueKind},
    repair::{RepairEntry, RepairStatus},
};
use jiff::Timestamp;

use super::{
    record::Breach,
    repair,
    view::{Timeline, View},
};

/// I53, at each start of a queued entry by an engine, in that very revision (the transaction compares the batch): the
/// batch of the entry is readable and not paused. Entries without a batch are those of other programs.
pub fn i53(view: &View<'_>) -> Vec<Breach> {
    let reboots = view.entry_changes().into_iter().filter(super::view::EntryChange::starts);
    let reboots = reboots.map(|m| (EntryId::reboot(m.index), m.at, m.revision));
    let is_queued = |entry: Option<&RepairEntry>| entry.is_some_and(|e| e.status == RepairStatus::Queued);
    let is_started = |entry: Option<&RepairEntry>| entry.is_some_and(|e| e.status == RepairStatus::Processing);
    let repairs =
        repair::entry_changes(view).into_iter().filter(|m| m.engine && is_queued(m.before) && is_started(m.after));
    let repairs = repairs.map(|m| (EntryId::repair(m.index), m.at, m.revision));
    let mut found = Vec::new();
    for (entry, at, revision) in reboots.chain(repairs) {
        let paused = batch_of(view, entry, revision).and_then(|batch| batch.get(revision)?.paused.as_ref());
        if let Some(paused) = paused {
            let what = format!("{entry} starts although {} paused its batch at {}", paused.who, paused.at);
            found.push(Breach { code: "I53", at, what });
        }
        if batch_id(view, entry, revision).is_some_and(|id| is_unreadable(view, id, revision)) {
            let what = format!("{entry} starts although its batch cannot be read and may be paused");
            found.push(Breach { code: "I53", at, what });
        }
    }
    found
}

/// I54, at each enqueue of an entry, in the revision before: its batch was not cancelled.
pub fn i54(view: &View<'_>) -> Vec<Breach> {
    let queues = [(QueueKind::Reboot, &view.requests), (QueueKind::Repair, &view.repair_requests)];
    let mut found = Vec::new();
    for (queue, requests) in queues {
        for (&index, line) in requests {
            let Some(step) = line.steps().first() else { continue };
            let batch = step.value.as_ref().and_then(|request| view.batches.get(&request.batch?));
            if let Some(cancelled) = batch.and_then(|line| line.before(step.revision)?.cancelled.as_ref()) {
                let what = format!("{} joins a batch that was {cancelled}", EntryId { queue, index });
                found.push(Breach { code: "I54", at: step.at, what });
            }
        }
    }
    found
}

/// States of the batch of an entry, as its request names it at this revision.
pub(super) fn batch_of<'v>(view: &'v View<'_>, entry: EntryId, revision: i64) -> Option<&'v Timeline<Batch>> {
    view.batches.get(&batch_id(view, entry, revision)?)
}

/// Batch of an entry, as its request names it at this revision.
pub(super) fn batch_id(view: &View<'_>, entry: EntryId, revision: i64) -> Option<BatchId> {
    let requests = match entry.queue {
        QueueKind::Reboot => &view.requests,
        QueueKind::Repair => &view.repair_requests,
        QueueKind::Maintenance => return None,
    };
    requests.get(&entry.index)?.get(revision)?.batch
}

pub(super) fn is_unreadable(view: &View<'_>, id: BatchId, revision: i64) -> bool {
    view.unreadable_batches.get(&id).is_some_and(|line| line.get(revision).is_some())
}

/// Reports whether the batch of a reboot was paused or unreadable, or its canaries held it back, at any moment of this time.
pub fn sometime_barred(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> bool {
    sometime_paused(view, index, from, to)
        || sometime_unreadable(view, index, from, to)
        || super::outcomes::sometime_behind_canaries(view, index, from, to)
}

/// Reports whether the batch of a reboot was paused at any moment of this time.
pub fn sometime_paused(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> bool {
    let batch = batch_at(view, index, to).and_then(|id| view.batches.get(&id));
    batch.is_some_and(|line| line.sometime(from, to, |b| b.is_some_and(|b| b.paused.is_some())))
}

/// Reports whether the batch of a reboot could not be read at any moment of this time.
pub fn sometime_unreadable(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> bool {
    let batch = batch_at(view, index, to).and_then(|id| view.unreadable_batches.get(&id));
    batch.is_some_and(|line| line.sometime(from, to, |unreadable| unreadable.is_some()))
}

/// Batch of a reboot at the end of the record, or at this time if it is gone then.
fn batch_at(view: &View<'_>, index: u64, to: Timestamp) -> Option<BatchId> {
    let at_end = batch_id(view, EntryId::reboot(index), i64::MAX);
    at_end.or_else(|| view.requests.get(&index)?.at(to)?.batch)
}

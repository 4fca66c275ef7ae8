//! Pauses of batches (I53).

use cketerm_model::{
    batch::Batch,
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
/// batch of the entry is not paused. Entries without a batch are those of other programs.
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
    }
    found
}

/// States of the batch of an entry, as its request names it at this revision.
fn batch_of<'v>(view: &'v View<'_>, entry: EntryId, revision: i64) -> Option<&'v Timeline<Batch>> {
    let requests = match entry.queue {
        QueueKind::Reboot => &view.requests,
        QueueKind::Repair => &view.repair_requests,
    };
    view.batches.get(&requests.get(&entry.index)?.get(revision)?.batch?)
}

/// Reports whether the batch of a reboot was paused at any moment of this time.
pub fn sometime_paused(view: &View<'_>, index: u64, from: Timestamp, to: Timestamp) -> bool {
    let batch = batch_of(view, EntryId::reboot(index), i64::MAX).or_else(|| {
        let request = view.requests.get(&index)?.at(to)?;
        view.batches.get(&request.batch?)
    });
    batch.is_some_and(|line| line.sometime(from, to, |b| b.is_some_and(|b| b.paused.is_some())))
}

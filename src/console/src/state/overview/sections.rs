//! Parts of a queue that have their own progress: its open batches, and the entries without one.

use std::collections::BTreeMap;

use cketerm_model::{
    batch::{BatchId, BatchState},
    entry::{EntryId, QueueKind},
    entry_ref::EntryRef,
    repair::RepairStatus,
};

use super::motion::Motion;
use crate::state::{App, leaders, queries};

/// Part of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The batch. `None`: the entries without one, which another program added.
    pub batch: Option<BatchId>,
    /// Entries that have reached their goal.
    pub done: usize,
    /// Entries in work.
    pub in_work: usize,
    /// Its entries, counted by how they move.
    pub motion: Motion,
    /// Entries that wait for their turn.
    pub queued: usize,
    /// Entries whose drain backs off.
    pub backing_off: usize,
    /// Failed entries.
    pub failed: usize,
    /// Entries that were cancelled or deleted.
    pub withdrawn: usize,
    /// Whether none of its queued entries starts.
    pub paused: bool,
}

/// Returns the parts of a queue in the order of work: those in work, those that wait, the paused ones, and last the
/// entries without a batch; and the number of failed entries of no open batch. Empty if there is no batch.
pub(super) fn of(app: &App, queue: QueueKind) -> (Vec<Section>, usize) {
    let open = app.knowledge.batches.open().filter(|batch| batch.batch.queue == queue);
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let mut sections: Vec<Section> = open
        .map(|batch| Section {
            batch: Some(batch.id),
            done: number(batch.totals.done()),
            in_work: number(batch.totals.in_work),
            motion: Motion::default(),
            queued: number(batch.totals.queued),
            backing_off: 0,
            withdrawn: number(batch.totals.ends.withdrawn),
            failed: number(batch.totals.ends.failed),
            paused: leaders::batch_state(app, batch) == BatchState::Paused,
        })
        .collect();
    if sections.is_empty() {
        return (sections, 0);
    }
    let places: BTreeMap<BatchId, usize> =
        sections.iter().enumerate().filter_map(|(place, section)| Some((section.batch?, place))).collect();
    let (mut rest, mut others_failed) = (Section::default(), 0);
    let store = &app.seen.snapshot.store;
    let ids: Box<dyn Iterator<Item = EntryId>> = match queue {
        QueueKind::Reboot => Box::new(store.reboots.entries.keys().map(|index| EntryId::reboot(*index))),
        QueueKind::Repair => Box::new(store.repairs.entries.keys().map(|index| EntryId::repair(*index))),
        QueueKind::Maintenance => Box::new(store.maintenance.entries.keys().map(|index| EntryId::maintenance(*index))),
    };
    for id in ids {
        let working = queries::in_work(&app.seen, id);
        let backs_off = !working && queries::backoff_until(&app.seen, id).is_some() && !queries::held(&app.seen, id);
        let place = store.batch_of(id).and_then(|batch| places.get(&batch));
        match (place.and_then(|place| sections.get_mut(*place)), store.entry(id)) {
            (Some(section), _) => {
                section.motion.add(&app.seen, id);
                section.backing_off += usize::from(backs_off);
                section.queued = section.queued.saturating_sub(usize::from(backs_off));
            }
            (None, entry) if entry.is_none_or(EntryRef::unfinished) => {
                rest.motion.add(&app.seen, id);
                rest.in_work += usize::from(working);
                rest.backing_off += usize::from(backs_off);
                rest.queued += usize::from(!working && !backs_off);
            }
            (None, Some(EntryRef::Repair(repair))) if repair.status == RepairStatus::Failed && !repair.deleted => {
                others_failed += 1;
            }
            (None, _) => {}
        }
    }
    sections.sort_by_key(|section| (section.in_work == 0, section.paused, section.batch));
    if rest.in_work + rest.queued + rest.backing_off > 0 {
        sections.push(rest);
    }
    (sections, others_failed)
}

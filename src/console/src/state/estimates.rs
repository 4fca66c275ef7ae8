//! Estimated ends of the queues and batches that the screen shows. An estimate plays many possible futures of a queue, so
//! it is made at most once a second, and only while something on the screen shows it.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{batch::BatchId, entry::QueueKind, names::Address, stored::view::StoreView};
use cketerm_rules::{
    eta::{Answer, NoEstimate},
    start::{Bar, Start},
    usual::UsualTimes,
};
use jiff::{SignedDuration, Timestamp};

use super::{App, Target, View, estimate_inputs, eta, overview};

/// Shortest time between two estimates of a queue, however often etcd changes.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Longest time for which an estimate is shown again while nothing has changed in etcd.
const MAX_AGE: SignedDuration = SignedDuration::from_secs(5);
/// Most batches of a queue that have their own estimate: the first ones in the order of work.
const MAX_BATCHES: usize = 64;

/// Estimates of both queues, as far as they were shown.
#[derive(Clone, Debug, Default)]
pub struct Estimates {
    reboots: Option<Estimated>,
    repairs: Option<Estimated>,
}

/// Estimates of a queue, and what they were made from.
#[derive(Clone, Debug)]
struct Estimated {
    /// The copy of etcd.
    store: Arc<StoreView>,
    /// Time at which it was made.
    at: Timestamp,
    usual: Arc<UsualTimes>,
    /// Condition that kept entries from starting.
    bar: Option<Bar>,
    queue: Answer,
    batches: BTreeMap<BatchId, Answer>,
}

impl Estimates {
    fn of(&self, queue: QueueKind) -> Option<&Estimated> {
        match queue {
            QueueKind::Reboot => self.reboots.as_ref(),
            QueueKind::Repair => self.repairs.as_ref(),
            QueueKind::Maintenance => None,
        }
    }

    /// Returns the estimated end of a queue. `None` until the history was read.
    pub fn of_queue(&self, queue: QueueKind) -> Option<&Answer> {
        self.of(queue).map(|estimated| &estimated.queue)
    }

    /// Returns the estimated end of an open batch. `None` until the history was read.
    pub fn of_batch(&self, queue: QueueKind, batch: BatchId) -> Option<&Answer> {
        self.of(queue)?.batches.get(&batch)
    }
}

/// Makes the estimates again that are shown and due.
pub fn follow(app: &mut App) {
    for queue in QueueKind::QUEUES {
        if !is_shown(app, queue) || !is_due(app, queue) {
            continue;
        }
        let estimated = Some(estimated(app, queue));
        match queue {
            QueueKind::Reboot => app.knowledge.estimates.reboots = estimated,
            QueueKind::Repair => app.knowledge.estimates.repairs = estimated,
            QueueKind::Maintenance => {}
        }
    }
}

/// Reports whether something on the screen shows estimates of this queue.
fn is_shown(app: &App, queue: QueueKind) -> bool {
    if !app.knowledge.past.history.loaded || !app.seen.snapshot.store.synced {
        return false;
    }
    let in_batch = |of: &Target| match of {
        Target::Entry(id) => id.queue == queue && app.seen.snapshot.store.batch_of(*id).is_some(),
        Target::Node(_)
        | Target::Machine(_)
        | Target::Fold(_)
        | Target::Host(_)
        | Target::Past(..)
        | Target::Line(_) => false,
    };
    let detail = app.navigation.pane.as_ref().map(|pane| &pane.of).or(app.navigation.preview.as_ref());
    app.navigation.view == View::Overview
        || (app.navigation.shows_batches() && app.navigation.view == View::of_queue(queue))
        || detail.is_some_and(in_batch)
}

/// Reports whether something has changed since the last estimate.
fn is_due(app: &App, queue: QueueKind) -> bool {
    let Some(known) = app.knowledge.estimates.of(queue) else { return true };
    let age = app.now.wall.duration_since(known.at).abs();
    let start =
        app.knowledge.summary.work_of(queue).left.start.as_ref().filter(|_| app.navigation.view == View::Overview);
    // a freeze or a switch must not leave the old end on the screen
    let is_barred_otherwise = start.is_some_and(|start| start.bar != known.bar);
    !Arc::ptr_eq(&known.usual, &app.knowledge.usual)
        || is_barred_otherwise
        || age >= MAX_AGE
        || (age >= MIN_INTERVAL && !estimate_inputs::are_same(&known.store, &app.seen.snapshot.store))
}

fn estimated(app: &App, queue: QueueKind) -> Estimated {
    let store = &app.seen.snapshot.store;
    let start: Start = overview::start_of_queue(app, queue);
    let open = app.knowledge.batches.open().filter(|batch| batch.batch.queue == queue);
    // in order, because a batch with a smaller id is older
    let ids: Vec<BatchId> = open.map(|batch| batch.id).take(MAX_BATCHES).collect();
    let added: &[Address] = &[];
    let mut answers = eta::answers(app, queue, &start, added, ids.len(), &|entry| {
        store.batch_of(entry).and_then(|batch| ids.binary_search(&batch).ok())
    });
    let whole = answers.pop().unwrap_or(Err(NoEstimate::NothingLeft));
    Estimated {
        store: Arc::clone(store),
        at: app.now.wall,
        usual: Arc::clone(&app.knowledge.usual),
        bar: start.bar,
        queue: whole,
        batches: ids.iter().copied().zip(answers).collect(),
    }
}

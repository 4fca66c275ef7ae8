//! Task of one receiver: new notices are recorded, delivered, and removed, in this order, whatever happens in between.
//! Each write is fenced, and each delivery needs a permit right before it (I24, I38).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_clients::{notices::Receiver, store::commit::CommitError};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    entry::Stored,
    notice::{Kind, NotifierState, Trouble},
    stored::{
        keys::Folder,
        transaction::{Change, Put},
    },
};
use cketerm_rules::{
    decide::Guard,
    notices::{
        ReceiverSeen,
        due::{Endings, Memory, due, new_receiver},
        fold::{Bucket, begin, fold, remove_delivered},
        scene::ended,
    },
    seen::Seen,
};

use super::{DeliveryResult, NotifierContext};

/// Time between two rounds; events within it are notified together.
const GATHER: Duration = Duration::from_secs(1);
/// Wait after a failed request to etcd.
const ETCD_RETRY: Duration = Duration::from_secs(2);
/// Number of history records in one read.
const PAGE: u32 = 200;
/// Longest pause between two failed reads of the history.
const MAX_HISTORY_PAUSE: Seconds = Seconds::new(60.0);
/// Longest pause between two tries of a delivery.
const MAX_RETRY_PAUSE: Seconds = Seconds::new(300.0);
/// Number of tries after which a notice that the receiver rejects is given up.
const MAX_REJECTIONS: u32 = 5;

pub(super) struct NotificationWorker {
    context: NotifierContext,
    receiver: Receiver,
    /// The receiver's record in etcd, with its ModRevision; none before it was read.
    stored: Option<(NotifierState, i64)>,
    memory: Memory,
    bucket: Bucket,
    /// Revision up to which the history was read, and whether that read was complete.
    read: (i64, bool),
    /// Whether another page is to be read at once.
    more_pages: bool,
    /// Number of failed reads of the history in a row, and the boot time of the next allowed read.
    unread: (u32, BootTime),
    /// Tries of the first notice, rejections in a row, and the boot time of the next try.
    tries: u32,
    rejections: u32,
    next_try: BootTime,
    /// Id of a notice that was received but whose removal is not known to be written.
    received: Option<String>,
}

/// The lease has run out, or seems to have. It may prove valid a moment later; only the engine ends this task.
struct LeaseExpired;

impl NotificationWorker {
    pub fn new(context: NotifierContext, receiver: Receiver) -> Self {
        let bucket = Bucket::new(receiver.limits.per_minute, context.actor.steady.now().boot);
        Self {
            context,
            receiver,
            stored: None,
            memory: Memory::default(),
            bucket,
            read: (0, false),
            more_pages: false,
            unread: (0, BootTime::ZERO),
            tries: 0,
            rejections: 0,
            next_try: BootTime::ZERO,
            received: None,
        }
    }

    /// Runs until it is aborted, which happens when leadership ends.
    pub async fn run(mut self) {
        loop {
            let wait = self.round().await.unwrap_or(ETCD_RETRY);
            tokio::time::sleep(wait).await;
        }
    }

    /// Runs one round with at most one delivery; returns how long to sleep.
    async fn round(&mut self) -> Result<Duration, LeaseExpired> {
        let Some((stored, revision)) = self.stored.take() else {
            return Ok(if self.load().await { Duration::ZERO } else { ETCD_RETRY });
        };
        let mut state = stored.clone();
        let seen = self.context.seen.borrow_and_update().clone();
        let now = self.context.actor.steady.now().boot;
        let own_revision = self.context.actor.fence.create_revision();
        let Some(scene) = self.context.scene(&seen).filter(|scene| scene.leader.create_revision == own_revision) else {
            self.stored = Some((stored, revision));
            return Ok(GATHER);
        };
        let endings = self.endings(&seen, state.cursor).await;
        state = due(&state, &scene, &endings, &self.receiver.kinds, &mut self.memory);
        let may = if now >= self.next_try { self.bucket.may(now) } else { 0 };
        fold(&mut state, &scene, may);
        let retries = state.pending.first().is_some_and(|p| p.begun);
        let due_now = now >= self.next_try && !state.pending.is_empty() && (retries || may > 0);
        let notice = if due_now { begin(&mut state) } else { None };
        if due_now && !retries {
            self.bucket.take();
        }
        let known = state.clone();
        let Some(revision) = self.write(&stored, known, revision).await? else { return Ok(ETCD_RETRY) };
        let Some(notice) = notice.filter(|_| self.may_deliver()) else {
            self.show(&state);
            self.stored = Some((state, revision));
            return Ok(if self.more_pages { Duration::ZERO } else { GATHER });
        };
        let delivery = self.context.delivery.deliver(&self.receiver, &notice).await;
        let before = state.clone();
        self.record_delivery(&mut state, &notice.id, &notice.title, delivery);
        self.show(&state);
        let next = self.next_try <= now && !state.pending.is_empty() && self.bucket.may(now) > 0;
        // A received notice is removed at once, because any delay risks a second delivery.
        if let Some(revision) = self.write(&before, state.clone(), revision).await? {
            self.received = None;
            self.stored = Some((state, revision));
        }
        // If the rate limit allows more, the next delivery does not wait.
        Ok(if next { Duration::ZERO } else { GATHER })
    }

    fn may_deliver(&self) -> bool {
        let actor = &self.context.actor;
        actor.permit(&Guard::default(), actor.steady.now().boot).is_ok()
    }

    /// Records the result of a delivery.
    fn record_delivery(&mut self, state: &mut NotifierState, id: &str, title: &str, delivery: DeliveryResult) {
        let (now, name) = (self.context.actor.steady.now(), &self.receiver.name);
        let outcome = match &delivery {
            DeliveryResult::Delivered(_) => "delivered",
            DeliveryResult::Rejected(_) | DeliveryResult::Failed { .. } => "failed",
        };
        self.context.counters.notice(name, outcome);
        let (why, wait) = match delivery {
            DeliveryResult::Delivered(answer) => {
                tracing::debug!(receiver = name, id, answer, "notice delivered");
                if let Some(Trouble { since, .. }) = state.trouble.take() {
                    tracing::info!(receiver = name, %since, "the notice receiver is back");
                }
                (self.tries, self.rejections, self.next_try) = (0, 0, BootTime::ZERO);
                state.delivered = Some(now.wall);
                self.received = Some(id.to_owned());
                remove_delivered(state, id);
                return;
            }
            DeliveryResult::Rejected(why) if self.rejections + 1 >= MAX_REJECTIONS => {
                tracing::error!(receiver = name, id, title, why, "the receiver rejects the notice; giving up");
                self.context.counters.notice(name, "given up");
                (self.tries, self.rejections, self.next_try) = (0, 0, BootTime::ZERO);
                self.received = Some(id.to_owned());
                remove_delivered(state, id);
                return;
            }
            DeliveryResult::Rejected(why) => {
                self.rejections += 1;
                (why, None)
            }
            DeliveryResult::Failed { why, wait } => {
                self.rejections = 0;
                (why, wait)
            }
        };
        self.tries = self.tries.saturating_add(1);
        let pause = Seconds::from(1_u32 << (self.tries - 1).min(9)).min(MAX_RETRY_PAUSE);
        self.next_try = now.boot + pause.max(wait.map_or(Seconds::ZERO, Seconds::from));
        if state.trouble.is_none() {
            tracing::warn!(receiver = name, id, why, "cannot deliver notices to the receiver; retrying");
            state.trouble = Some(Trouble { since: now.wall, why });
        }
    }

    /// Reads the receiver's record; a notice that was received according to this task's memory is removed from it.
    async fn load(&mut self) -> bool {
        let (store, name) = (&self.context.actor.store, &self.receiver.name);
        let needs_history = self.needs_endings();
        let read = async {
            let (revision, state) = store.notifier_state(name).await?;
            // The current revision is read after the record, so no ended entry between the two is left out.
            let current_revision = store.current_revision().await?;
            Ok::<_, cketerm_clients::store::StoreError>((revision, state, current_revision))
        };
        let (revision, state, current_revision) = match read.await {
            Ok(read) => read,
            Err(e) => {
                tracing::debug!(receiver = name, error = %e, "cannot read the record of sent notices");
                return false;
            }
        };
        let at = self.context.actor.steady.now().wall;
        let mut state = match state {
            Some(Ok(state)) => state,
            None => new_receiver(at, current_revision),
            Some(Err(why)) => {
                tracing::error!(receiver = name, why, "the record of sent notices is unreadable; starting anew");
                new_receiver(at, current_revision)
            }
        };
        state.cursor = match (needs_history, state.cursor) {
            (false, _) => 0,
            (true, 0) => current_revision,
            (true, cursor) => cursor,
        };
        if let Some(id) = &self.received {
            remove_delivered(&mut state, id);
        }
        // The read position in the history belonged to an older record.
        self.read = (0, false);
        self.stored = Some((state, revision));
        true
    }

    fn needs_endings(&self) -> bool {
        [Kind::Finished, Kind::Failed].iter().any(|kind| self.receiver.kinds.contains(kind))
    }

    /// Returns the entries that ended after the cursor, if there can be any.
    async fn endings(&mut self, seen: &Seen, cursor: i64) -> Endings {
        let grown = seen.snapshot.store.grown.get(&Folder::History).copied().unwrap_or(0);
        let (revision, complete) = self.read;
        self.more_pages = false;
        if !self.needs_endings() {
            return Endings { list: Vec::new(), complete: true };
        }
        if complete && grown <= revision {
            return Endings { list: Vec::new(), complete: true };
        }
        let now = self.context.actor.steady.now().boot;
        if now < self.unread.1 {
            return Endings::default();
        }
        let store = &self.context.actor.store;
        // The watch names the changed keys. The whole folder is searched only after the watch broke.
        let named = if complete { seen.snapshot.store.recent.after(Folder::History, revision) } else { None };
        let read = match named {
            Some(keys) => store.endings_by_key(&keys, (cursor, revision), PAGE).await,
            None => store.endings_after(cursor, PAGE).await,
        };
        match read {
            Ok(read) => {
                self.read = (read.revision, !read.more);
                self.more_pages = read.more;
                self.unread = (0, BootTime::ZERO);
                let wall = self.context.actor.steady.now().wall;
                let notices_of =
                    |ending: &Stored<_>| ending.get().map_or_else(Vec::new, |e| ended(&seen.snapshot, e, wall));
                let list = read.list.iter().map(|(revision, ending)| (*revision, notices_of(ending))).collect();
                Endings { list, complete: !read.more && read.revision >= grown }
            }
            Err(e) => {
                // The unread part stays unread. But a slow etcd does not get a request for a whole folder every
                // second.
                tracing::debug!(receiver = self.receiver.name, error = %e, "history cannot be read");
                let pause = Seconds::from(2_u32 << self.unread.0.min(5)).min(MAX_HISTORY_PAUSE);
                self.unread = (self.unread.0.saturating_add(1), now + pause);
                Endings::default()
            }
        }
    }

    /// Writes the record if it has changed; returns none if it must be read again.
    async fn write(
        &self,
        stored: &NotifierState,
        state: NotifierState,
        revision: i64,
    ) -> Result<Option<i64>, LeaseExpired> {
        if *stored == state {
            return Ok(Some(revision));
        }
        let actor = &self.context.actor;
        let Ok(permit) = actor.fence.permit_record() else { return Err(LeaseExpired) };
        let key = actor.store.keys().notices(&self.receiver.name);
        let change =
            Change { compares: vec![(key.clone(), revision)], puts: vec![Put::json(key, &state)], deletes: Vec::new() };
        match actor.store.commit(&permit, change).await {
            Ok(revision) => Ok(Some(revision)),
            Err(CommitError::LostLeadership) => Err(LeaseExpired),
            Err(e) => {
                tracing::warn!(receiver = self.receiver.name, error = %e, "record of sent notices not written");
                Ok(None)
            }
        }
    }

    fn show(&self, state: &NotifierState) {
        let pending = state.pending.iter().map(|p| p.notice.count).sum();
        let seen = ReceiverSeen { pending, trouble: state.trouble.clone() };
        self.context.board.send_if_modified(|board| {
            let differs = board.get(&self.receiver.name) != Some(&seen);
            if differs {
                let mut new = BTreeMap::clone(board);
                new.insert(self.receiver.name.clone(), seen);
                *board = Arc::new(new);
            }
            differs
        });
    }
}

#[cfg(test)]
mod tests;

//! The task of one receiver: what is new is written down, delivered, and taken off the list; in this order, whatever happens
//! in between (I24, I38: each write is fenced, each delivery asks for leave right before it).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    DeliveryResult, NotifierContext, ReceiverSeen,
    due::{Endings, Memory, due, stranger},
    fold::{Bucket, begin, done, fold},
    scene::ended,
};
use crate::{
    engine::{
        decide::Guard,
        snapshot::{Seen, secs},
    },
    model::{
        entry::Stored,
        notice::{Kind, NotifierState, Trouble},
    },
    notices::Receiver,
    store::{
        commit::{Change, CommitError, Put},
        keys::Folder,
    },
};

/// Between two looks: what happens within it is told together.
const GATHER: Duration = Duration::from_secs(1);
/// After etcd did not do what it was asked.
const AGAIN: Duration = Duration::from_secs(2);
/// Endings of one read.
const PAGE: u32 = 200;
/// The longest pause between two reads of history that fail, in seconds.
const SLOW: f64 = 60.0;
/// The longest pause between two tries.
const LONGEST: f64 = 300.0;
/// A notice that the receiver does not want is given up after so many tries.
const UNWANTED: u32 = 5;

pub(super) struct NotificationWorker {
    context: NotifierContext,
    receiver: Receiver,
    /// As it lies in etcd, with its ModRevision; none before it was read.
    stored: Option<(NotifierState, i64)>,
    memory: Memory,
    bucket: Bucket,
    /// History was read up to this revision; nothing was left behind.
    read: (i64, bool),
    /// There is another page to read, at once.
    hurries: bool,
    /// Reads of history that failed in a row, and when the next may be made (boot-time seconds).
    unread: (u32, f64),
    /// Tries of the first notice, those in a row that the receiver did not want, and when the next may be made.
    tries: u32,
    unwanted: u32,
    next_try: f64,
    /// Received, and not known to be written down.
    received: Option<String>,
}

/// The lease has run out, or is said to have. It may be known to live a moment later: who ends this task is the engine.
struct Over;

impl NotificationWorker {
    pub fn new(context: NotifierContext, receiver: Receiver) -> Self {
        let bucket = Bucket::new(receiver.limits.per_minute, secs(context.actor.steady.now().boot));
        Self {
            context,
            receiver,
            stored: None,
            memory: Memory::default(),
            bucket,
            read: (0, false),
            hurries: false,
            unread: (0, 0.0),
            tries: 0,
            unwanted: 0,
            next_try: 0.0,
            received: None,
        }
    }

    /// Until it is aborted: with the leadership.
    pub async fn run(mut self) {
        loop {
            let wait = self.round().await.unwrap_or(AGAIN);
            tokio::time::sleep(wait).await;
        }
    }

    /// One look, and one delivery if there is something to deliver; returns how long to sleep.
    async fn round(&mut self) -> Result<Duration, Over> {
        let Some((stored, revision)) = self.stored.take() else {
            return Ok(if self.load().await { Duration::ZERO } else { AGAIN });
        };
        let mut told = stored.clone();
        let seen = self.context.seen.borrow_and_update().clone();
        let now = secs(self.context.actor.steady.now().boot);
        let ours = self.context.actor.fence.create_revision();
        let Some(scene) = self.context.scene(&seen).filter(|scene| scene.leader.create_revision == ours) else {
            self.stored = Some((stored, revision));
            return Ok(GATHER);
        };
        let endings = self.endings(&seen, told.cursor).await;
        told = due(&told, &scene, &endings, &self.receiver.kinds, &mut self.memory);
        let may = if now >= self.next_try { self.bucket.may(now) } else { 0 };
        fold(&mut told, &scene, may);
        let retries = told.pending.first().is_some_and(|p| p.begun);
        let goes = now >= self.next_try && !told.pending.is_empty() && (retries || may > 0);
        let notice = if goes { begin(&mut told) } else { None };
        if goes && !retries {
            self.bucket.take();
        }
        let known = told.clone();
        let Some(revision) = self.write(&stored, known, revision).await? else { return Ok(AGAIN) };
        let Some(notice) = notice else {
            self.show(&told);
            self.stored = Some((told, revision));
            return Ok(if self.hurries { Duration::ZERO } else { GATHER });
        };
        let actor = Arc::clone(&self.context.actor);
        if actor.permit(&Guard::default(), actor.steady.now().boot).is_err() {
            self.stored = Some((told, revision));
            return Ok(GATHER);
        }
        let delivery = self.context.delivery.deliver(&self.receiver, &notice).await;
        let before = told.clone();
        self.came(&mut told, &notice.id, &notice.title, delivery);
        self.show(&told);
        let next = self.next_try <= now && !told.pending.is_empty() && self.bucket.may(now) > 0;
        // what was received is taken off at once: every moment in between is a chance to tell it twice
        if let Some(revision) = self.write(&before, told.clone(), revision).await? {
            self.received = None;
            self.stored = Some((told, revision));
        }
        // where there is leave for more, the next does not wait
        Ok(if next { Duration::ZERO } else { GATHER })
    }

    /// What became of a delivery.
    fn came(&mut self, told: &mut NotifierState, id: &str, title: &str, delivery: DeliveryResult) {
        let (now, name) = (self.context.actor.steady.now(), &self.receiver.name);
        let outcome = match &delivery {
            DeliveryResult::Taken(_) => "delivered",
            DeliveryResult::Unwanted(_) | DeliveryResult::Failed { .. } => "failed",
        };
        self.context.counters.notice(name, outcome);
        let (why, wait) = match delivery {
            DeliveryResult::Taken(answer) => {
                tracing::debug!(receiver = name, id, answer, "told");
                if told.trouble.take().is_some() {
                    tracing::info!(receiver = name, "the receiver of notices is back");
                }
                (self.tries, self.unwanted, self.next_try) = (0, 0, 0.0);
                told.delivered = Some(now.wall);
                self.received = Some(id.to_owned());
                done(told, id);
                return;
            }
            DeliveryResult::Unwanted(why) if self.unwanted + 1 >= UNWANTED => {
                tracing::error!(
                    receiver = name,
                    id,
                    title,
                    why,
                    "a notice that the receiver does not want is given up"
                );
                self.context.counters.notice(name, "given up");
                (self.tries, self.unwanted, self.next_try) = (0, 0, 0.0);
                self.received = Some(id.to_owned());
                done(told, id);
                return;
            }
            DeliveryResult::Unwanted(why) => {
                self.unwanted += 1;
                (why, None)
            }
            DeliveryResult::Failed { why, wait } => {
                self.unwanted = 0;
                (why, wait)
            }
        };
        self.tries = self.tries.saturating_add(1);
        let pause = f64::from(1_u32 << (self.tries - 1).min(9)).min(LONGEST);
        self.next_try = secs(now.boot) + pause.max(wait.map_or(0.0, |w| w.as_secs_f64()));
        if told.trouble.is_none() {
            tracing::warn!(receiver = name, id, why, "the receiver of notices takes nothing; it is tried again");
            told.trouble = Some(Trouble { since: now.wall, why });
        }
    }

    /// Reads the record; what was received according to our memory is off it.
    async fn load(&mut self) -> bool {
        let (store, name) = (&self.context.actor.store, &self.receiver.name);
        let wants = self.wants_endings();
        let read = async {
            let (revision, told) = store.told(name).await?;
            // after a read of the record: no ending between the two is left out
            let head = store.head().await?;
            Ok::<_, crate::store::StoreError>((revision, told, head))
        };
        let (revision, told, head) = match read.await {
            Ok(read) => read,
            Err(e) => {
                tracing::debug!(receiver = name, error = %e, "what it was told cannot be read");
                return false;
            }
        };
        let at = self.context.actor.steady.now().wall;
        let mut told = match told {
            Some(Ok(told)) => told,
            None => stranger(at, head),
            Some(Err(why)) => {
                tracing::error!(receiver = name, why, "begins anew with this receiver of notices");
                stranger(at, head)
            }
        };
        told.cursor = match (wants, told.cursor) {
            (false, _) => 0,
            (true, 0) => head,
            (true, cursor) => cursor,
        };
        if let Some(id) = &self.received {
            done(&mut told, id);
        }
        // what was known of history belongs to an older record
        self.read = (0, false);
        self.stored = Some((told, revision));
        true
    }

    fn wants_endings(&self) -> bool {
        [Kind::Finished, Kind::Failed].iter().any(|kind| self.receiver.kinds.contains(kind))
    }

    /// The endings after the cursor, where there can be any.
    async fn endings(&mut self, seen: &Seen, cursor: i64) -> Endings {
        let grown = seen.snapshot.store.grown.get(&Folder::History).copied().unwrap_or(0);
        let (revision, complete) = self.read;
        self.hurries = false;
        if !self.wants_endings() {
            return Endings { list: Vec::new(), complete: true };
        }
        if complete && grown <= revision {
            return Endings { list: Vec::new(), complete: true };
        }
        let now = secs(self.context.actor.steady.now().boot);
        if now < self.unread.1 {
            return Endings::default();
        }
        let store = &self.context.actor.store;
        // the watch names what was written: the folder is looked through only after a break
        let named = if complete { seen.snapshot.store.fresh.after(Folder::History, revision) } else { None };
        let read = match named {
            Some(keys) => store.endings_of(&keys, (cursor, revision), PAGE).await,
            None => store.endings_after(cursor, PAGE).await,
        };
        match read {
            Ok(read) => {
                self.read = (read.revision, !read.more);
                self.hurries = read.more;
                self.unread = (0, 0.0);
                let wall = self.context.actor.steady.now().wall;
                let said = |ending: &Stored<_>| ending.get().map_or_else(Vec::new, |e| ended(&seen.snapshot, e, wall));
                let list = read.list.iter().map(|(revision, ending)| (*revision, said(ending))).collect();
                Endings { list, complete: !read.more && read.revision >= grown }
            }
            Err(e) => {
                // What was left behind still is; but an etcd that is slow is not asked for a whole folder each second.
                tracing::debug!(receiver = self.receiver.name, error = %e, "history cannot be read");
                let pause = f64::from(2_u32 << self.unread.0.min(5)).min(SLOW);
                self.unread = (self.unread.0.saturating_add(1), now + pause);
                Endings::default()
            }
        }
    }

    /// Writes the record if it has changed; none where it has to be read again.
    async fn write(&self, stored: &NotifierState, told: NotifierState, revision: i64) -> Result<Option<i64>, Over> {
        if *stored == told {
            return Ok(Some(revision));
        }
        let actor = &self.context.actor;
        let Ok(permit) = actor.fence.permit_record() else { return Err(Over) };
        let key = actor.store.keys().notices(&self.receiver.name);
        let change =
            Change { compares: vec![(key.clone(), revision)], puts: vec![Put::json(key, &told)], deletes: Vec::new() };
        match actor.store.commit(&permit, change).await {
            Ok(revision) => Ok(Some(revision)),
            Err(CommitError::LostLeadership) => Err(Over),
            Err(e) => {
                tracing::warn!(receiver = self.receiver.name, error = %e, "what it was told is not written down");
                Ok(None)
            }
        }
    }

    fn show(&self, told: &NotifierState) {
        let pending = told.pending.iter().map(|p| p.notice.count).sum();
        let seen = ReceiverSeen { pending, trouble: told.trouble.clone() };
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

//! Watches: what each one has been told, and the messages that wait to be fetched by their stream.
//!
//! A write puts its events into the streams' queues at once, as a real server does for watches that keep up, so that a
//! compaction right after it takes nothing away from them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    task::Poll,
};

use etcd_client::proto::{PbEvent, PbWatchResponse};
use tokio::sync::Notify;
use tonic::Status;

use super::{
    Refusal,
    revisions::{Revisions, Version},
    span::Span,
    state::State,
    wire::event,
};

/// Revisions that one message of a replay holds at most.
const REPLAY: usize = 1000;
/// What is about a whole stream, or about a watch that was never made, carries this id.
const NO_WATCH: i64 = -1;

/// What a watch asks for.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // etcd's request has as many
pub struct Asked {
    /// Its keys.
    pub span: Span,
    /// The revision it begins at; 0 and less for what comes from now on.
    pub start: i64,
    /// An id of the client's choice; 0 for one of ours.
    pub id: i64,
    /// Puts are not told.
    pub no_put: bool,
    /// Deletions are not told.
    pub no_delete: bool,
    /// With what was there before.
    pub prev_kv: bool,
    /// Progress from time to time.
    pub progress: bool,
}

#[derive(Debug)]
struct Watch {
    asked: Asked,
    /// The first revision it was not told.
    next: i64,
    /// Nothing was told since the last progress.
    quiet: bool,
}

/// The watches of one stream.
#[derive(Debug, Default)]
pub struct Session {
    watches: BTreeMap<i64, Watch>,
    next_id: i64,
    /// What waits to be fetched.
    queue: VecDeque<Result<PbWatchResponse, Status>>,
    /// A request for progress came while watches were stalled.
    owed: bool,
    /// Nothing is added any more.
    ended: bool,
    woken: Arc<Notify>,
}

fn message(revision: i64, watch_id: i64) -> PbWatchResponse {
    PbWatchResponse { header: Some(State::header_at(revision)), watch_id, ..PbWatchResponse::default() }
}

impl Session {
    /// Told when a message waits.
    pub fn woken(&self) -> Arc<Notify> {
        Arc::clone(&self.woken)
    }

    /// The next message, or the end of the stream, if either is there.
    pub fn fetch(&mut self) -> Poll<Option<Result<PbWatchResponse, Status>>> {
        match self.queue.pop_front() {
            None if !self.ended => Poll::Pending,
            message => Poll::Ready(message),
        }
    }

    /// Whether some watch asked for progress from time to time.
    pub fn wants_progress(&self) -> bool {
        self.watches.values().any(|w| w.asked.progress)
    }

    fn push(&mut self, message: PbWatchResponse) {
        if !self.ended {
            self.queue.push_back(Ok(message));
            self.woken.notify_one();
        }
    }

    /// Ends the stream after what waits already.
    pub fn end(&mut self, with: Status) {
        if !self.ended {
            self.queue.push_back(Err(with));
            self.watches.clear();
            self.ended = true;
            self.woken.notify_one();
        }
    }

    /// Makes a watch and tells it what it missed, unless watches are stalled.
    pub fn create(&mut self, asked: Asked, revisions: &Revisions, stalled: bool) {
        let revision = revisions.revision();
        if asked.span.is_empty() {
            return self.refuse(revision, "mvcc: watcher range is empty");
        }
        let id = match asked.id {
            0 => {
                while self.watches.contains_key(&self.next_id) {
                    self.next_id += 1;
                }
                self.next_id += 1;
                self.next_id - 1
            }
            id if self.watches.contains_key(&id) => {
                return self.refuse(revision, "mvcc: duplicate watch ID provided on the WatchStream");
            }
            id => id,
        };
        self.push(PbWatchResponse { created: true, ..message(revision, id) });
        let next = if asked.start <= 0 { revision + 1 } else { asked.start };
        self.watches.insert(id, Watch { asked, next, quiet: true });
        if !stalled {
            self.catch_up(revisions);
        }
    }

    /// Answers that a watch was not made.
    pub fn refuse(&mut self, revision: i64, why: &str) {
        let cancel_reason = why.to_owned();
        self.push(PbWatchResponse { created: true, canceled: true, cancel_reason, ..message(revision, NO_WATCH) });
    }

    /// Ends one watch; an unknown one is no matter.
    pub fn cancel(&mut self, id: i64, revision: i64) {
        if self.watches.remove(&id).is_some() {
            self.push(PbWatchResponse { canceled: true, ..message(revision, id) });
        }
    }

    /// Answers a request for progress. As etcd from 3.5.8 on: only when every watch of the stream has been told
    /// everything and has begun, and there is one at all. While watches are stalled the answer waits with the rest.
    pub fn progress(&mut self, revision: i64, stalled: bool) {
        self.owed = stalled;
        if stalled {
            return;
        }
        let told = |w: &Watch| w.next > revision && w.asked.start <= revision;
        if !self.watches.is_empty() && self.watches.values().all(told) {
            self.push(message(revision, NO_WATCH));
        }
    }

    /// Tells the watches that asked for it how far they are, where nothing else has told them since the last time.
    pub fn regular_progress(&mut self, revision: i64) {
        let mut quiet = Vec::new();
        for (id, watch) in &mut self.watches {
            if watch.asked.progress && watch.quiet && watch.next > revision {
                quiet.push(*id);
            }
            watch.quiet = true;
        }
        for id in quiet {
            self.push(message(revision, id));
        }
    }

    /// Tells every watch what it has not been told.
    pub fn catch_up(&mut self, revisions: &Revisions) {
        let now = revisions.revision();
        let mut gone = Vec::new();
        let mut out = Vec::new();
        for (id, watch) in &mut self.watches {
            if watch.next < revisions.compacted() {
                let compact_revision = revisions.compacted();
                // etcd's header names no revision here
                out.push(PbWatchResponse { canceled: true, compact_revision, ..message(0, *id) });
                gone.push(*id);
                continue;
            }
            while watch.next <= now {
                let (events, next) = watch.events(revisions);
                watch.next = next;
                if !events.is_empty() {
                    watch.quiet = false;
                    out.push(PbWatchResponse { events, ..message(now, *id) });
                }
            }
        }
        for id in gone {
            self.watches.remove(&id);
        }
        for message in out {
            self.push(message);
        }
        if self.owed {
            self.progress(now, false);
        }
    }
}

impl Watch {
    /// The events of the next revisions that have any, whole revisions only, and the revision behind them.
    fn events(&self, revisions: &Revisions) -> (Vec<PbEvent>, i64) {
        let (mut events, mut last, mut seen) = (Vec::new(), 0, 0);
        for version in revisions.since(self.next) {
            if !self.asked.span.contains(&version.key) || self.filtered(version) {
                continue;
            }
            if version.mod_revision != last {
                if seen == REPLAY {
                    return (events, version.mod_revision);
                }
                (last, seen) = (version.mod_revision, seen + 1);
            }
            let created = version.create_revision == version.mod_revision;
            let before = (self.asked.prev_kv && !created && version.mod_revision > revisions.compacted())
                .then(|| revisions.get_at(&version.key, version.mod_revision - 1))
                .flatten();
            events.push(event(version, before.map(Arc::as_ref)));
        }
        (events, revisions.revision() + 1)
    }

    fn filtered(&self, version: &Version) -> bool {
        if version.value.is_some() { self.asked.no_put } else { self.asked.no_delete }
    }
}

/// The reason of a watch that is not allowed, in the form of Go's errors.
pub fn denied(refusal: Refusal) -> String {
    format!("rpc error: code = {:?} desc = {}", refusal.code(), refusal.text())
}

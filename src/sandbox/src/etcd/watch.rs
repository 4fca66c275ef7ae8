//! Watches: the progress of each watch, and the messages that wait for the stream.
//!
//! A write adds its events to the queues of the streams at once, as a real server does for watches that keep up. A
//! compaction right after the write does not lose them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    task::Poll,
};

use etcd_client::proto::{PbEvent, PbWatchResponse};
use tokio::sync::Notify;
use tonic::Status;

use super::{
    RpcError,
    header::header_at,
    key_range::KeyRange,
    revisions::{Revisions, Version},
    wire::event,
};

/// Maximum number of revisions in one message of a replay.
const MAX_REPLAY_REVISIONS: usize = 1000;
/// Watch id of messages that concern the whole stream, or a watch that was not created.
const NO_WATCH: i64 = -1;

/// A watch request.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // as in etcd's request
pub struct WatchOptions {
    /// Watched keys.
    pub key_range: KeyRange,
    /// Start revision; 0 and below mean changes from now on.
    pub start: i64,
    /// Id chosen by the client; 0 for a generated id.
    pub id: i64,
    /// Whether puts are filtered out.
    pub no_put: bool,
    /// Whether deletions are filtered out.
    pub no_delete: bool,
    /// Whether events include the previous value.
    pub prev_kv: bool,
    /// Whether periodic progress is requested.
    pub progress: bool,
}

#[derive(Debug)]
struct Watch {
    options: WatchOptions,
    /// First revision that has not been delivered.
    next: i64,
    /// Whether nothing was delivered since the last periodic progress.
    quiet: bool,
}

/// Watches of one stream.
#[derive(Debug, Default)]
pub struct Session {
    watches: BTreeMap<i64, Watch>,
    next_id: i64,
    /// Messages that wait for the stream.
    queue: VecDeque<Result<PbWatchResponse, Status>>,
    /// Whether a progress request arrived while watches were stalled.
    progress_pending: bool,
    /// Whether the stream has ended: no more messages are added.
    ended: bool,
    notifier: Arc<Notify>,
}

fn message(revision: i64, watch_id: i64) -> PbWatchResponse {
    PbWatchResponse { header: Some(header_at(revision)), watch_id, ..PbWatchResponse::default() }
}

impl Session {
    /// Returns the notifier for waiting messages.
    pub fn notifier(&self) -> Arc<Notify> {
        Arc::clone(&self.notifier)
    }

    /// Returns the next message, or the end of the stream, if either is available.
    pub fn fetch(&mut self) -> Poll<Option<Result<PbWatchResponse, Status>>> {
        match self.queue.pop_front() {
            None if !self.ended => Poll::Pending,
            message => Poll::Ready(message),
        }
    }

    /// Reports whether any watch requested periodic progress.
    pub fn progress_requested(&self) -> bool {
        self.watches.values().any(|w| w.options.progress)
    }

    fn push(&mut self, message: PbWatchResponse) {
        if !self.ended {
            self.queue.push_back(Ok(message));
            self.notifier.notify_one();
        }
    }

    /// Ends the stream after the messages that already wait.
    pub fn end(&mut self, with: Status) {
        if !self.ended {
            self.queue.push_back(Err(with));
            self.watches.clear();
            self.ended = true;
            self.notifier.notify_one();
        }
    }

    /// Creates a watch and delivers the changes that it missed, unless watches are stalled.
    pub fn create(&mut self, options: WatchOptions, revisions: &Revisions, stalled: bool) {
        let revision = revisions.revision();
        if options.key_range.is_empty() {
            return self.refuse(revision, "mvcc: watcher range is empty");
        }
        let id = match options.id {
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
        let next = if options.start <= 0 { revision + 1 } else { options.start };
        self.watches.insert(id, Watch { options, next, quiet: true });
        if !stalled {
            self.catch_up(revisions);
        }
    }

    /// Reports that a watch was not created.
    pub fn refuse(&mut self, revision: i64, why: &str) {
        let cancel_reason = why.to_owned();
        self.push(PbWatchResponse { created: true, canceled: true, cancel_reason, ..message(revision, NO_WATCH) });
    }

    /// Cancels one watch. An unknown id is ignored.
    pub fn cancel(&mut self, id: i64, revision: i64) {
        if self.watches.remove(&id).is_some() {
            self.push(PbWatchResponse { canceled: true, ..message(revision, id) });
        }
    }

    /// Answers a progress request as etcd does since 3.5.8: only if the stream has a watch, and every watch has begun
    /// and is up to date. While watches are stalled, the answer waits with the other messages.
    pub fn progress(&mut self, revision: i64, stalled: bool) {
        self.progress_pending = stalled;
        if stalled {
            return;
        }
        let up_to_date = |w: &Watch| w.next > revision && w.options.start <= revision;
        if !self.watches.is_empty() && self.watches.values().all(up_to_date) {
            self.push(message(revision, NO_WATCH));
        }
    }

    /// Sends periodic progress to the watches that requested it and that received nothing since the last time.
    pub fn send_periodic_progress(&mut self, revision: i64) {
        let mut quiet = Vec::new();
        for (id, watch) in &mut self.watches {
            if watch.options.progress && watch.quiet && watch.next > revision {
                quiet.push(*id);
            }
            watch.quiet = true;
        }
        for id in quiet {
            self.push(message(revision, id));
        }
    }

    /// Brings every watch up to date.
    pub fn catch_up(&mut self, revisions: &Revisions) {
        let now = revisions.revision();
        let mut canceled_ids = Vec::new();
        let mut out = Vec::new();
        for (id, watch) in &mut self.watches {
            if watch.next < revisions.compacted() {
                let compact_revision = revisions.compacted();
                // etcd's header carries no revision here.
                out.push(PbWatchResponse { canceled: true, compact_revision, ..message(0, *id) });
                canceled_ids.push(*id);
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
        for id in canceled_ids {
            self.watches.remove(&id);
        }
        for message in out {
            self.push(message);
        }
        if self.progress_pending {
            self.progress(now, false);
        }
    }
}

impl Watch {
    /// Returns the events of the next revisions that have any, in whole revisions, and the revision after them.
    fn events(&self, revisions: &Revisions) -> (Vec<PbEvent>, i64) {
        let (mut events, mut last, mut seen) = (Vec::new(), 0, 0);
        for version in revisions.since(self.next) {
            if !self.options.key_range.contains(&version.key) || self.filtered(version) {
                continue;
            }
            if version.mod_revision != last {
                if seen == MAX_REPLAY_REVISIONS {
                    return (events, version.mod_revision);
                }
                (last, seen) = (version.mod_revision, seen + 1);
            }
            let created = version.create_revision == version.mod_revision;
            let before = (self.options.prev_kv && !created && version.mod_revision > revisions.compacted())
                .then(|| revisions.get_at(&version.key, version.mod_revision - 1))
                .flatten();
            events.push(event(version, before.map(Arc::as_ref)));
        }
        (events, revisions.revision() + 1)
    }

    fn filtered(&self, version: &Version) -> bool {
        if version.value.is_some() { self.options.no_put } else { self.options.no_delete }
    }
}

/// Returns the cancel reason of a watch without permission, in the form of Go's errors.
pub fn denial_reason(rpc_error: RpcError) -> String {
    format!("rpc error: code = {:?} desc = {}", rpc_error.code(), rpc_error.text())
}

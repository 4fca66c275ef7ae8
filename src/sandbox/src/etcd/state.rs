//! The whole state of the server behind one lock: revisions, leases, users, watchers, and the history that an observer
//! can read.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use cketerm_model::clock::Clock;
use etcd_client::proto::{PbResponseHeader, PbTxnRequest};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    RpcError,
    auth::Auth,
    header::header_at,
    key_range::KeyRange,
    lease::Leases,
    revisions::{Revisions, Version},
    watch::Session,
};

/// One change of one key, as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// Revision of the change; changes of one transaction share it.
    pub revision: i64,
    /// The key.
    pub key: Bytes,
    /// The value; `None` if the key was deleted.
    pub value: Option<Bytes>,
    /// Lease the key is attached to; 0 for none.
    pub lease: i64,
    /// Wall time by the sandbox's clock.
    pub at: Timestamp,
}

/// One transaction, as an observer sees it.
#[derive(Clone, Debug)]
pub struct RecordedTxn {
    /// Wall time by the sandbox's clock.
    pub at: Timestamp,
    /// Sender, from the header [`USER_HEADER`](crate::faults::USER_HEADER); empty without that header.
    pub by: String,
    /// The transaction.
    pub request: PbTxnRequest,
    /// Whether its comparisons held.
    pub succeeded: bool,
    /// The revision after the transaction.
    pub revision: i64,
}

pub(super) struct State {
    /// Transactions, recorded while an observer listens.
    pub sent: Option<Vec<RecordedTxn>>,
    pub clock: Clock,
    pub revisions: Revisions,
    pub leases: Leases,
    pub auth: Auth,
    pub history: VecDeque<KeyChange>,
    /// Maximum number of changes to keep.
    pub max_history: Option<usize>,
    /// Watch streams, by number.
    pub sessions: BTreeMap<u64, Session>,
    pub next_session: u64,
    /// Whether watches currently receive no events.
    pub stalled: bool,
    /// Client URLs of this member.
    pub urls: Vec<String>,
    /// Whether the alarm NOSPACE is raised: every put is refused.
    pub full: bool,
    /// Whether a task waits for the next lease to expire.
    pub expiring: bool,
}

impl State {
    pub fn new(clock: Clock) -> Self {
        Self {
            sent: None,
            clock,
            revisions: Revisions::default(),
            leases: Leases::default(),
            auth: Auth::default(),
            history: VecDeque::new(),
            max_history: None,
            sessions: BTreeMap::new(),
            next_session: 0,
            stalled: false,
            urls: vec!["http://127.0.0.1:2379".to_owned()],
            full: false,
            expiring: false,
        }
    }

    /// Returns a header at the current revision.
    // prost's messages need an `Option`.
    #[allow(clippy::unnecessary_wraps)]
    pub fn header(&self) -> Option<PbResponseHeader> {
        Some(header_at(self.revisions.revision()))
    }

    /// Puts a key within the write in progress. The lease must exist. Returns the previous version.
    pub fn put(&mut self, key: &[u8], value: Bytes, lease: i64) -> Option<Arc<Version>> {
        let (before, after) = self.revisions.put(key, value, lease);
        let held = before.as_ref().map_or(0, |b| b.lease);
        if held != lease {
            self.leases.attach(&after.key, held, lease);
        }
        before
    }

    /// Deletes a range within the write in progress. Returns the previous versions.
    pub fn delete(&mut self, key_range: &KeyRange) -> Vec<Arc<Version>> {
        let found: Vec<Arc<Version>> = self.revisions.range(key_range, 0).cloned().collect();
        for version in &found {
            self.revisions.delete(&version.key);
            self.leases.attach(&version.key, version.lease, 0);
        }
        found
    }

    /// Checks that puts are allowed.
    pub fn check_space(&self) -> Result<(), RpcError> {
        if self.full { Err(RpcError::NoSpace) } else { Ok(()) }
    }

    /// Ends the write in progress and notifies observers and watchers.
    pub fn finish(&mut self) {
        let revision = self.revisions.revision();
        if !self.revisions.finish() {
            return;
        }
        let at = self.clock.wall();
        self.history.extend(self.revisions.since(revision + 1).map(|v| KeyChange {
            revision: v.mod_revision,
            key: v.key.clone(),
            value: v.value.clone(),
            lease: v.lease,
            at,
        }));
        self.notify_watches();
        self.trim();
    }

    /// Brings every watch up to date, unless watches are stalled.
    pub fn notify_watches(&mut self) {
        if !self.stalled {
            for session in self.sessions.values_mut() {
                session.catch_up(&self.revisions);
            }
        }
    }

    /// Limits the history to the requested number of changes. It runs rarely, so that its cost does not grow with the
    /// number of writes.
    fn trim(&mut self) {
        let Some(max_history) = self.max_history else { return };
        if self.history.len() > max_history.saturating_mul(2) {
            self.history.drain(..self.history.len() - max_history);
        }
        if self.revisions.log_len() > max_history.saturating_mul(2)
            && let Some(revision) = self.revisions.revision_of_change(self.revisions.log_len() - max_history)
        {
            // Fails if a later revision has already been compacted, which is fine.
            _ = self.compact(revision);
        }
    }

    pub fn compact(&mut self, revision: i64) -> Result<(), RpcError> {
        self.revisions.compact(revision)
    }

    /// Revokes a lease and deletes its keys in one revision. Returns whether the lease existed.
    pub fn revoke(&mut self, id: i64) -> bool {
        let Some(lease) = self.leases.take(id) else { return false };
        for key in lease.keys {
            self.revisions.delete(&key);
        }
        self.finish();
        true
    }

    /// Revokes the expired leases, each in its own revision.
    pub fn expire(&mut self) {
        for id in self.leases.expired_leases(Instant::now()) {
            self.revoke(id);
        }
    }
}

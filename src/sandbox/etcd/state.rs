//! Everything a server remembers, behind one lock: revisions, leases, users, watchers, and what an observer may read.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use etcd_client::proto::{PbResponseHeader, PbTxnRequest};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Refusal,
    auth::Auth,
    lease::Leases,
    revisions::{Revisions, Version},
    span::Span,
    watch::Session,
};
use crate::clock::Clock;

/// Identity of the cluster in every header.
pub(super) const CLUSTER: u64 = 0xc4e7_0000_5a2d_b0c5;
/// Identity of its only member.
pub(super) const MEMBER: u64 = 0x8e9e_05c5_2164_694d;
/// The first leader's term.
pub(super) const TERM: u64 = 2;

/// One change of one key, as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Revision of the change; changes of one transaction share it.
    pub revision: i64,
    /// The key.
    pub key: Bytes,
    /// The value; nothing when the key was deleted.
    pub value: Option<Bytes>,
    /// Lease the key is attached to; 0 for none.
    pub lease: i64,
    /// Wall time by the sandbox's clock.
    pub at: Timestamp,
}

/// One transaction that was carried out, as an observer sees it.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Wall time by the sandbox's clock.
    pub at: Timestamp,
    /// Who sent it: the header [`USER_HEADER`](crate::sandbox::faults::USER_HEADER); empty without one.
    pub by: String,
    /// What was sent.
    pub request: PbTxnRequest,
    /// Whether its comparisons held.
    pub succeeded: bool,
    /// The revision after it.
    pub revision: i64,
}

pub(super) struct State {
    /// Transactions, while somebody listens.
    pub sent: Option<Vec<Sent>>,
    pub clock: Clock,
    pub revisions: Revisions,
    pub leases: Leases,
    pub auth: Auth,
    pub history: VecDeque<Written>,
    /// How many changes are kept.
    pub most: Option<usize>,
    /// Streams of watches, by number.
    pub sessions: BTreeMap<u64, Session>,
    pub next_session: u64,
    /// Watches are told nothing for the moment.
    pub stalled: bool,
    /// Where clients find it.
    pub urls: Vec<String>,
    /// The alarm NOSPACE is raised: nothing is put any more.
    pub full: bool,
    /// Someone waits for the next lease to run out.
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
            most: None,
            sessions: BTreeMap::new(),
            next_session: 0,
            stalled: false,
            urls: vec!["http://127.0.0.1:2379".to_owned()],
            full: false,
            expiring: false,
        }
    }

    /// A header at a revision.
    pub fn header_at(revision: i64) -> PbResponseHeader {
        PbResponseHeader { cluster_id: CLUSTER, member_id: MEMBER, revision, raft_term: TERM }
    }

    /// A header at the current revision.
    // prost's messages want an option
    #[allow(clippy::unnecessary_wraps)]
    pub fn header(&self) -> Option<PbResponseHeader> {
        Some(Self::header_at(self.revisions.revision()))
    }

    /// Writes a key within the write under way; the lease must be there. Returns what was there.
    pub fn put(&mut self, key: &[u8], value: Bytes, lease: i64) -> Option<Arc<Version>> {
        let (before, made) = self.revisions.put(key, value, lease);
        let held = before.as_ref().map_or(0, |b| b.lease);
        if held != lease {
            self.leases.attach(&made.key, held, lease);
        }
        before
    }

    /// Deletes a range within the write under way. Returns what was there.
    pub fn delete(&mut self, span: &Span) -> Vec<Arc<Version>> {
        let found: Vec<Arc<Version>> = self.revisions.range(span, 0).cloned().collect();
        for version in &found {
            self.revisions.delete(&version.key);
            self.leases.attach(&version.key, version.lease, 0);
        }
        found
    }

    /// Whether anything may be put.
    pub fn must_have_space(&self) -> Result<(), Refusal> {
        if self.full { Err(Refusal::NoSpace) } else { Ok(()) }
    }

    /// Ends the write under way: observers and watchers learn of it.
    pub fn finish(&mut self) {
        let revision = self.revisions.revision();
        if !self.revisions.finish() {
            return;
        }
        let at = self.clock.wall();
        self.history.extend(self.revisions.since(revision + 1).map(|v| Written {
            revision: v.mod_revision,
            key: v.key.clone(),
            value: v.value.clone(),
            lease: v.lease,
            at,
        }));
        self.tell();
        self.trim();
    }

    /// Brings every watch up to date, unless they are stalled.
    pub fn tell(&mut self) {
        if !self.stalled {
            for session in self.sessions.values_mut() {
                session.catch_up(&self.revisions);
            }
        }
    }

    /// Keeps no more changes than asked for. Rarely, so that its cost does not follow the number of writes.
    fn trim(&mut self) {
        let Some(most) = self.most else { return };
        if self.history.len() > most.saturating_mul(2) {
            self.history.drain(..self.history.len() - most);
        }
        if self.revisions.changes() > most.saturating_mul(2)
            && let Some(revision) = self.revisions.revision_of_change(self.revisions.changes() - most)
        {
            // refused when it was compacted further than that already
            _ = self.compact(revision);
        }
    }

    pub fn compact(&mut self, revision: i64) -> Result<(), Refusal> {
        self.revisions.compact(revision)
    }

    /// Takes a lease away and deletes its keys in one revision. Returns whether it was there.
    pub fn revoke(&mut self, id: i64) -> bool {
        let Some(lease) = self.leases.take(id) else { return false };
        for key in lease.keys {
            self.revisions.delete(&key);
        }
        self.finish();
        true
    }

    /// Takes away what has run out, each lease with a revision of its own.
    pub fn expire(&mut self) {
        for id in self.leases.run_out(Instant::now()) {
            self.revoke(id);
        }
    }
}

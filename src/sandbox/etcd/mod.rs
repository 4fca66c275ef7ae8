//! An etcd in the process, behind etcd's own gRPC services: what `etcd-client` and `etcdctl` see is a cluster of one.
//!
//! | file | what |
//! | --- | --- |
//! | `revisions` | every version of every key: pure |
//! | `txn` | reads, writes, transactions |
//! | `watch`, `watching` | who was told what; the stream |
//! | `lease`, `expiry` | leases and their end |
//! | `auth`, `permission` | users, roles, tokens; what a request needs |
//! | `state` | all of it, behind one lock |
//! | `services`, `upkeep`, `accounts` | the services of keys and leases, of the member, of users |
//! | `wire`, `plain`, `span`, `refusal` | etcd's messages, ranges and errors |

mod accounts;
mod auth;
mod expiry;
mod lease;
mod permission;
mod plain;
mod refusal;
mod revisions;
mod services;
mod span;
mod state;
mod txn;
mod upkeep;
mod watch;
mod watching;
mod wire;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use etcd_client::{
    Channel, Client,
    proto::{PbClusterServer, PbKvServer, PbLeaseServer, PbMaintenanceServer, PbWatchServer},
};
use futures::FutureExt;
use tokio::sync::Notify;
use tonic::service::Routes;
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService};

pub use self::{
    refusal::Refusal,
    state::{Sent, Written},
};
use self::{span::Span, state::State};
use crate::clock::Clock;

/// A connection to an etcd: gRPC requests in, answers out. Something that delays, loses or doubles them fits between
/// two of these.
pub type Connection =
    BoxCloneSyncService<http::Request<tonic::body::Body>, http::Response<tonic::body::Body>, BoxError>;

/// An etcd of one member. All clones are the same one.
#[derive(Clone)]
pub struct Etcd(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// A lease may run out earlier than whoever waits thinks.
    leases_changed: Arc<Notify>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Etcd {
    /// An empty one. The clock is for what observers read; leases run by tokio's.
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::new(clock)), leases_changed: Arc::default() }))
    }

    /// Every service, for a server on a port.
    pub fn routes(&self) -> Routes {
        Routes::new(PbKvServer::new(services::Kv(self.clone())).max_decoding_message_size(usize::MAX))
            .add_service(PbWatchServer::new(watching::Watch(self.clone())))
            .add_service(PbLeaseServer::new(services::Lease(self.clone())))
            .add_service(PbMaintenanceServer::new(upkeep::Maintenance(self.clone())))
            .add_service(PbClusterServer::new(upkeep::Cluster(self.clone())))
            .add_service(accounts::Accounts(self.clone()))
            .prepare()
    }

    /// A client of it, without a socket.
    pub fn client(&self) -> Client {
        self.client_through(|connection| connection)
    }

    /// The same, with something between the client and the server.
    pub fn client_through(&self, wrap: impl FnOnce(Connection) -> Connection) -> Client {
        let served = ServiceExt::<http::Request<tonic::body::Body>>::map_err(self.routes(), BoxError::from);
        let connection = wrap(BoxCloneSyncService::new(served));
        // nothing is asked of the server where no user is named, so that the client is there at once
        match Client::from_channel(Channel::Custom(connection), None).now_or_never() {
            Some(Ok(client)) => client,
            _ => unreachable!("a client without a user waits for nothing"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a key, attached to no lease. Returns the revision.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> i64 {
        let mut state = self.state();
        state.put(key.as_ref(), Bytes::from(value.into()), 0);
        state.finish();
        state.revisions.revision()
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.state().revisions.get(key.as_ref()).and_then(|v| v.value.as_ref().map(|value| value.to_vec()))
    }

    /// Deletes a key. Returns the revision, which has not moved where there was no such key.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> i64 {
        let mut state = self.state();
        state.delete(&Span::One(key.as_ref().to_vec()));
        state.finish();
        state.revisions.revision()
    }

    /// The current revision; an empty etcd is at 1.
    pub fn revision(&self) -> i64 {
        self.state().revisions.revision()
    }

    /// Forgets what nobody can see who reads at this revision or later.
    pub fn compact(&self, revision: i64) -> Result<(), Refusal> {
        self.state().compact(revision)
    }

    /// Every change of every key, compacted ones too, oldest first; bounded by [`Self::keep`] alone.
    pub fn history(&self) -> Vec<Written> {
        self.state().history.iter().cloned().collect()
    }

    /// The changes behind a revision.
    pub fn history_since(&self, revision: i64) -> Vec<Written> {
        let state = self.state();
        let from = state.history.partition_point(|w| w.revision <= revision);
        state.history.range(from..).cloned().collect()
    }

    /// For a sandbox that runs for long: keeps about the last `most` changes, in the history and by compaction in the
    /// store. `None`, the default, keeps everything.
    pub fn keep(&self, most: Option<usize>) {
        self.state().most = most;
    }

    /// Notes every transaction from now on, for [`Self::sent`].
    pub fn listen(&self) {
        self.state().sent.get_or_insert_default();
    }

    /// The transactions that were carried out, or refused for their size, since [`Self::listen`], oldest first.
    pub fn sent(&self) -> Vec<Sent> {
        self.state().sent.clone().unwrap_or_default()
    }

    /// The ids of all leases.
    pub fn leases(&self) -> Vec<i64> {
        self.state().leases.iter().map(|(id, _)| id).collect()
    }

    /// Lets a lease run out now. Returns whether it was there.
    pub fn expire_lease(&self, id: i64) -> bool {
        self.state().revoke(id)
    }

    /// Ends every stream of watches with UNAVAILABLE, as a member does that lost its leader.
    pub fn cut_watches(&self) {
        for session in self.state().sessions.values_mut() {
            session.end(Refusal::NoLeader.into());
        }
    }

    /// Says under which URLs it is served; a member's own list of them is what `etcdctl member list` shows.
    pub fn advertise(&self, urls: Vec<String>) {
        self.state().urls = urls;
    }

    fn urls(&self) -> Vec<String> {
        self.state().urls.clone()
    }

    /// Raises the alarm NOSPACE, or disarms it: while it is raised nothing can be put, only read and deleted.
    pub fn fill(&self, full: bool) {
        self.state().full = full;
    }

    /// Holds back what watches would be told, progress too, or tells it now, in order.
    pub fn stall_watches(&self, stalled: bool) {
        let mut state = self.state();
        state.stalled = stalled;
        state.tell();
    }
}

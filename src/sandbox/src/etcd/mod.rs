//! An etcd in the process, behind etcd's own gRPC services. `etcd-client` and `etcdctl` see a cluster of one member.
//!
//! | file | content |
//! | --- | --- |
//! | `revisions` | every version of every key: pure |
//! | `txn` | reads, writes, transactions |
//! | `watch`, `watch_service` | progress of each watch; the stream |
//! | `lease`, `expiry` | leases and their expiry |
//! | `auth`, `permission` | users, roles, tokens; permissions that a request needs |
//! | `state` | the whole state, behind one lock |
//! | `services`, `maintenance`, `accounts` | services for keys and leases, for the member, for users |
//! | `wire`, `protobuf`, `key_range`, `rpc_error` | etcd's messages, ranges and errors |

mod accounts;
mod auth;
mod expiry;
mod header;
mod key_range;
mod lease;
mod maintenance;
mod permission;
mod protobuf;
mod revisions;
mod rpc_error;
mod services;
mod state;
mod txn;
mod watch;
mod watch_service;
mod wire;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use cketerm_model::clock::Clock;
use etcd_client::{
    Channel, Client,
    proto::{PbClusterServer, PbKvServer, PbLeaseServer, PbMaintenanceServer, PbWatchServer},
};
use futures::FutureExt;
use tokio::sync::Notify;
use tonic::service::Routes;
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService};

use self::{key_range::KeyRange, state::State};
pub use self::{
    rpc_error::RpcError,
    state::{KeyChange, RecordedTxn},
};

/// A connection to an etcd: gRPC requests in, responses out. A layer that delays, loses or duplicates them fits between
/// two of these.
pub type Connection =
    BoxCloneSyncService<http::Request<tonic::body::Body>, http::Response<tonic::body::Body>, BoxError>;

/// An etcd of one member. All clones share one state.
#[derive(Clone)]
pub struct Etcd(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when a lease may expire earlier than the waiting task expects.
    leases_changed: Arc<Notify>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Etcd {
    /// Creates an empty etcd. `clock` provides the timestamps for observers. Leases use tokio's time.
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::new(clock)), leases_changed: Arc::default() }))
    }

    /// Returns every service, for a server on a port.
    pub fn routes(&self) -> Routes {
        Routes::new(PbKvServer::new(services::Kv(self.clone())).max_decoding_message_size(usize::MAX))
            .add_service(PbWatchServer::new(watch_service::Watch(self.clone())))
            .add_service(PbLeaseServer::new(services::Lease(self.clone())))
            .add_service(PbMaintenanceServer::new(maintenance::Maintenance(self.clone())))
            .add_service(PbClusterServer::new(maintenance::Cluster(self.clone())))
            .add_service(accounts::AuthService(self.clone()))
            .prepare()
    }

    /// Returns a client without a socket.
    pub fn client(&self) -> Client {
        self.client_through(|connection| connection)
    }

    /// Returns a client, with a layer between the client and the server.
    pub fn client_through(&self, wrap: impl FnOnce(Connection) -> Connection) -> Client {
        let served = ServiceExt::<http::Request<tonic::body::Body>>::map_err(self.routes(), BoxError::from);
        let connection = wrap(BoxCloneSyncService::new(served));
        // Without a user name the client sends nothing while it connects, so it is ready at once.
        match Client::from_channel(Channel::Custom(connection), None).now_or_never() {
            Some(Ok(client)) => client,
            _ => unreachable!("a client without a user waits for nothing"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a key without a lease. Returns the revision.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> i64 {
        let mut state = self.state();
        state.put(key.as_ref(), Bytes::from(value.into()), 0);
        state.finish();
        state.revisions.revision()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.state().revisions.get(key.as_ref()).and_then(|v| v.value.as_ref().map(|value| value.to_vec()))
    }

    /// Deletes a key. Returns the revision, which does not move if there was no such key.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> i64 {
        let mut state = self.state();
        state.delete(&KeyRange::One(key.as_ref().to_vec()));
        state.finish();
        state.revisions.revision()
    }

    /// Returns the current revision; 1 for an empty etcd.
    pub fn revision(&self) -> i64 {
        self.state().revisions.revision()
    }

    /// Returns the number of values that all reads have taken from the store, whether or not they were returned: what the
    /// same reads would cost etcd.
    pub fn values_read(&self) -> usize {
        self.state().revisions.values_read()
    }

    /// Compacts: drops the versions that no read at this revision or later can see.
    pub fn compact(&self, revision: i64) -> Result<(), RpcError> {
        self.state().compact(revision)
    }

    /// Returns every change of every key, oldest first, including compacted ones. Only [`Self::limit_history`] bounds
    /// it.
    pub fn history(&self) -> Vec<KeyChange> {
        self.state().history.iter().cloned().collect()
    }

    /// Returns the changes after a revision.
    pub fn history_since(&self, revision: i64) -> Vec<KeyChange> {
        let state = self.state();
        let from = state.history.partition_point(|w| w.revision <= revision);
        state.history.range(from..).cloned().collect()
    }

    /// Limits the history to about the last `max_history` changes and compacts the store accordingly, for a sandbox
    /// that runs for long. `None`, the default, keeps everything.
    pub fn limit_history(&self, max_history: Option<usize>) {
        self.state().max_history = max_history;
    }

    /// Starts to record transactions for [`Self::sent`].
    pub fn record_txns(&self) {
        self.state().sent.get_or_insert_default();
    }

    /// Returns the transactions since [`Self::record_txns`], oldest first: those that were executed, and those that
    /// were refused for their size.
    pub fn sent(&self) -> Vec<RecordedTxn> {
        self.state().sent.clone().unwrap_or_default()
    }

    /// Returns the ids of all leases.
    pub fn leases(&self) -> Vec<i64> {
        self.state().leases.iter().map(|(id, _)| id).collect()
    }

    /// Expires a lease now. Returns whether it existed.
    pub fn expire_lease(&self, id: i64) -> bool {
        self.state().revoke(id)
    }

    /// Ends every watch stream with UNAVAILABLE, like a member that lost its leader.
    pub fn cut_watches(&self) {
        for session in self.state().sessions.values_mut() {
            session.end(RpcError::NoLeader.into());
        }
    }

    /// Sets the URLs under which this etcd is served. `etcdctl member list` shows them.
    pub fn advertise(&self, urls: Vec<String>) {
        self.state().urls = urls;
    }

    fn urls(&self) -> Vec<String> {
        self.state().urls.clone()
    }

    /// Raises or disarms the alarm NOSPACE. While it is raised, puts are refused; reads and deletions work.
    pub fn set_nospace(&self, full: bool) {
        self.state().full = full;
    }

    /// Holds back all watch messages, including progress, or delivers the held messages in order.
    pub fn stall_watches(&self, stalled: bool) {
        let mut state = self.state();
        state.stalled = stalled;
        state.notify_watches();
    }
}

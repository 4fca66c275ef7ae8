//! The etcd of the simulated Kubernetes: one member on every machine that runs an API server, down while its machine
//! is. It stores nothing. Over etcd's own protocol it reports its members and the progress of each.

mod services;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cketerm_model::clock::Clock;
use etcd_client::{
    Channel, Client,
    proto::{PbClusterServer, PbMaintenanceServer},
};
use futures::FutureExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tonic::service::Routes;
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService};

use self::services::Service;
use super::machines::{self, Machines};

/// Endpoint at which any member that is up answers, inside the process.
pub const ANY_MEMBER_URL: &str = "http://etcd.sandbox:2379";

/// Faults of a member as data. By default there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // independent faults
pub struct MemberFaults {
    /// Its process has ended, although its machine runs.
    pub stopped: bool,
    /// It applies no more entries.
    pub behind: bool,
    /// It has raised the alarm NOSPACE.
    pub alarm: bool,
    /// It has no vote.
    pub learner: bool,
    /// It works and votes, but clients cannot reach it.
    pub unreachable: bool,
}

/// Current state of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Member id.
    pub id: u64,
    /// Name of its machine.
    pub name: String,
    /// Address of its machine.
    pub address: String,
    /// Whether it runs. A member that clients cannot reach still runs.
    pub up: bool,
    /// Its faults.
    pub trouble: MemberFaults,
    /// Raft index that it has applied.
    pub applied: u64,
}

/// A change of a member's faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Wall time.
    pub at: Timestamp,
    /// Address of its machine.
    pub address: String,
    /// Faults from then on.
    pub trouble: MemberFaults,
}

/// All members. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Members {
    machines: Machines,
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    started_at: Instant,
    /// Faults by address.
    faults: BTreeMap<String, MemberFaults>,
    /// Raft index at which each lagging member stopped, by address.
    lagging_at: BTreeMap<String, u64>,
    /// Address of the last leader.
    leader: Option<String>,
    /// URLs at which members are served outside the process, by address.
    urls: BTreeMap<String, String>,
    log: Vec<Change>,
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").finish_non_exhaustive()
    }
}

impl Members {
    /// Creates healthy members on these machines.
    pub fn new(machines: Machines, clock: Clock) -> Self {
        let inner = Inner {
            started_at: Instant::now(),
            faults: BTreeMap::new(),
            lagging_at: BTreeMap::new(),
            leader: None,
            urls: BTreeMap::new(),
            log: Vec::new(),
        };
        Self { machines, clock, inner: Arc::new(Mutex::new(inner)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the faults of the member on this machine. Returns false if there is no such member.
    pub fn trouble(&self, address: &str, trouble: MemberFaults) -> bool {
        if !self.machines.machine(address).is_some_and(|machine| machine.control_plane) {
            return false;
        }
        let mut inner = self.lock();
        let index = inner.index();
        if trouble.behind {
            inner.lagging_at.entry(address.to_owned()).or_insert(index);
        } else {
            inner.lagging_at.remove(address);
        }
        inner.faults.insert(address.to_owned(), trouble);
        inner.log.push(Change { at: self.clock.wall(), address: address.to_owned(), trouble });
        true
    }

    /// Returns the committed raft index.
    pub(super) fn committed(&self) -> u64 {
        self.lock().index()
    }

    /// Returns every change of faults so far, oldest first.
    pub fn log(&self) -> Vec<Change> {
        self.lock().log.clone()
    }

    /// Returns the current state of all members, sorted by the text of their addresses.
    pub fn list(&self) -> Vec<MemberStatus> {
        let machines = self.machines.list();
        let inner = self.lock();
        let members = machines.into_iter().filter(|machine| machine.control_plane).map(|machine| {
            let running =
                self.machines.machine_status(&machine.address).is_some_and(|m| m.state == machines::State::Up);
            let trouble = inner.faults.get(&machine.address).copied().unwrap_or_default();
            MemberStatus {
                id: id(&machine.address),
                name: machine.name,
                up: running && !trouble.stopped,
                trouble,
                applied: inner.lagging_at.get(&machine.address).copied().unwrap_or_else(|| inner.index()),
                address: machine.address,
            }
        });
        members.collect()
    }

    /// Returns the leader's address; `None` while there is no quorum.
    pub fn leader(&self) -> Option<String> {
        let all = self.list();
        let voters = all.iter().filter(|member| !member.trouble.learner);
        let up: Vec<&MemberStatus> = voters.clone().filter(|member| member.up).collect();
        let mut inner = self.lock();
        if up.len() * 2 <= voters.count() {
            return None;
        }
        let leads = |address: &String| up.iter().any(|member| member.address == *address);
        if !inner.leader.as_ref().is_some_and(leads) {
            inner.leader = up.first().map(|member| member.address.clone());
        }
        inner.leader.clone()
    }

    /// Makes the member on this machine the leader. Returns false if it cannot lead.
    pub fn set_leader(&self, address: &str) -> bool {
        let able = |member: &MemberStatus| member.address == address && member.up && !member.trouble.learner;
        let able = self.leader().is_some() && self.list().iter().any(able);
        if able {
            self.lock().leader = Some(address.to_owned());
        }
        able
    }

    /// Sets the URL at which the member on this machine is served outside the process.
    pub fn advertise(&self, address: &str, url: String) {
        self.lock().urls.insert(address.to_owned(), url);
    }

    /// Returns the client URL of a member.
    fn url(&self, address: &str) -> String {
        self.lock().urls.get(address).cloned().unwrap_or_else(|| format!("http://{}:2379", url_host(address)))
    }

    /// Returns the services of the member on this machine, or of any member that is up.
    pub fn routes(&self, address: Option<&str>) -> Routes {
        let service = Service { members: self.clone(), address: address.map(str::to_owned) };
        Routes::new(PbMaintenanceServer::new(service.clone())).add_service(PbClusterServer::new(service)).prepare()
    }

    /// Returns a client of the member at this URL, without a socket.
    pub fn client_at(&self, url: &str) -> Option<Client> {
        let address = self.list().into_iter().find(|member| self.url(&member.address) == url).map(|m| m.address);
        if address.is_none() && url != ANY_MEMBER_URL {
            return None;
        }
        let routes = self.routes(address.as_deref());
        let served = ServiceExt::<http::Request<tonic::body::Body>>::map_err(routes, BoxError::from);
        // Without a user name the client sends nothing while it connects, so it is ready at once.
        Client::from_channel(Channel::Custom(BoxCloneSyncService::new(served)), None).now_or_never()?.ok()
    }
}

impl Inner {
    /// Returns the committed raft index, which grows by a hundred per second.
    fn index(&self) -> u64 {
        1000 + u64::try_from(self.started_at.elapsed().as_millis() / 10).unwrap_or(u64::MAX / 2)
    }
}

/// Returns the id of the member on a machine. It depends only on the address.
pub fn id(address: &str) -> u64 {
    // FNV-1a. The lowest bit is set, so that the id is never 0.
    address
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        | 1
}

fn url_host(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

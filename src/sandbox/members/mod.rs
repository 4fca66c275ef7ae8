//! The etcd of the simulated Kubernetes: a member on every machine that runs an API server, down while its machine is. It
//! stores nothing; it answers who its members are and how far each one is, over etcd's own protocol.

mod services;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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
use crate::clock::Clock;

/// The endpoint that any member answers at, inside the process.
pub const FRONT: &str = "http://etcd.sandbox:2379";

/// What is wrong with a member, as data; everything is well by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // independent faults
pub struct Trouble {
    /// Its process has ended; the machine runs.
    pub stopped: bool,
    /// It applies nothing any more.
    pub behind: bool,
    /// It has raised NOSPACE.
    pub alarm: bool,
    /// It has no vote.
    pub learner: bool,
    /// It works and votes; clients do not reach it.
    pub unreachable: bool,
}

/// One member as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub id: u64,
    /// Its name: the machine's.
    pub name: String,
    /// The machine's address.
    pub address: String,
    /// It runs; those that cannot be reached run, too.
    pub up: bool,
    /// What is wrong with it.
    pub trouble: Trouble,
    /// The raft index that it has applied.
    pub applied: u64,
}

/// A change of what is wrong with a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, in wall time.
    pub at: Timestamp,
    /// The machine's address.
    pub address: String,
    /// What is wrong from then on.
    pub trouble: Trouble,
}

/// All members. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Members {
    machines: Machines,
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    began: Instant,
    /// By address.
    troubles: BTreeMap<String, Trouble>,
    /// Where those that are behind stopped.
    stuck: BTreeMap<String, u64>,
    /// The member that led last, by address.
    leader: Option<String>,
    /// Where members are served beside the process, by address.
    urls: BTreeMap<String, String>,
    log: Vec<Change>,
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").finish_non_exhaustive()
    }
}

impl Members {
    /// Members on these machines, all well.
    pub fn new(machines: Machines, clock: Clock) -> Self {
        let inner = Inner {
            began: Instant::now(),
            troubles: BTreeMap::new(),
            stuck: BTreeMap::new(),
            leader: None,
            urls: BTreeMap::new(),
            log: Vec::new(),
        };
        Self { machines, clock, inner: Arc::new(Mutex::new(inner)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the member on this machine behave so from now on; false if there is none.
    pub fn trouble(&self, address: &str, trouble: Trouble) -> bool {
        if !self.machines.machine(address).is_some_and(|machine| machine.control_plane) {
            return false;
        }
        let mut inner = self.lock();
        let index = inner.index();
        if trouble.behind {
            inner.stuck.entry(address.to_owned()).or_insert(index);
        } else {
            inner.stuck.remove(address);
        }
        inner.troubles.insert(address.to_owned(), trouble);
        inner.log.push(Change { at: self.clock.wall(), address: address.to_owned(), trouble });
        true
    }

    /// The raft index that is committed.
    pub(super) fn committed(&self) -> u64 {
        self.lock().index()
    }

    /// Every change so far, oldest first.
    pub fn log(&self) -> Vec<Change> {
        self.lock().log.clone()
    }

    /// All members as they are, in the order of their addresses' text.
    pub fn list(&self) -> Vec<Seen> {
        let machines = self.machines.list();
        let inner = self.lock();
        let members = machines.into_iter().filter(|machine| machine.control_plane).map(|machine| {
            let running = self.machines.look(&machine.address).is_some_and(|m| m.state == machines::State::Up);
            let trouble = inner.troubles.get(&machine.address).copied().unwrap_or_default();
            Seen {
                id: id(&machine.address),
                name: machine.name,
                up: running && !trouble.stopped,
                trouble,
                applied: inner.stuck.get(&machine.address).copied().unwrap_or_else(|| inner.index()),
                address: machine.address,
            }
        });
        members.collect()
    }

    /// The member that leads, by its address; none while there is no quorum.
    pub fn leader(&self) -> Option<String> {
        let all = self.list();
        let voters = all.iter().filter(|member| !member.trouble.learner);
        let up: Vec<&Seen> = voters.clone().filter(|member| member.up).collect();
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

    /// Lets the member on this machine lead, if it can.
    pub fn lead(&self, address: &str) -> bool {
        let able = |member: &Seen| member.address == address && member.up && !member.trouble.learner;
        let able = self.leader().is_some() && self.list().iter().any(able);
        if able {
            self.lock().leader = Some(address.to_owned());
        }
        able
    }

    /// Says where the member on this machine is served beside the process.
    pub fn advertise(&self, address: &str, url: String) {
        self.lock().urls.insert(address.to_owned(), url);
    }

    /// The client URL of a member.
    fn url(&self, address: &str) -> String {
        self.lock().urls.get(address).cloned().unwrap_or_else(|| format!("http://{}:2379", bracketed(address)))
    }

    /// The services of the member on this machine, or of whichever answers.
    pub fn routes(&self, address: Option<&str>) -> Routes {
        let service = Service { members: self.clone(), address: address.map(str::to_owned) };
        Routes::new(PbMaintenanceServer::new(service.clone())).add_service(PbClusterServer::new(service)).prepare()
    }

    /// A client of what answers at this URL, without a socket.
    pub fn client_at(&self, url: &str) -> Option<Client> {
        let address = self.list().into_iter().find(|member| self.url(&member.address) == url).map(|m| m.address);
        if address.is_none() && url != FRONT {
            return None;
        }
        let routes = self.routes(address.as_deref());
        let served = ServiceExt::<http::Request<tonic::body::Body>>::map_err(routes, BoxError::from);
        // nothing is asked of the server where no user is named, so that the client is there at once
        Client::from_channel(Channel::Custom(BoxCloneSyncService::new(served)), None).now_or_never()?.ok()
    }
}

impl Inner {
    /// The raft index that is committed: a hundred writes a second.
    fn index(&self) -> u64 {
        1000 + u64::try_from(self.began.elapsed().as_millis() / 10).unwrap_or(u64::MAX / 2)
    }
}

/// The id of the member on a machine: the same for the same address.
pub fn id(address: &str) -> u64 {
    // FNV-1a, without the values that look odd
    address
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        | 1
}

fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

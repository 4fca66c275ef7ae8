//! Members of an etcd cluster: the list, the status of each member, and a change of leader. The Kubernetes etcd is
//! queried with the section `cluster_etcd`, cketerm's own store with its own settings.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cketerm_model::{
    etcd::{Member, host},
    fence::Permit,
    secret,
};
use etcd_client::{Client, ConnectOptions};
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};

use super::{
    connect::{EtcdSettings, tls},
    exposure::{REGISTRY, one_key},
    failure::Failure,
};

/// Timeout of an answer.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Time in which one of several addresses is tried alone.
const HEDGE_DELAY: Duration = Duration::from_millis(200);
const NO_URL: &str = "it has no client URL: it has never started";

/// Etcd cluster to query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdCluster {
    /// The Kubernetes etcd, with the section `cluster_etcd`.
    Kubernetes,
    /// cketerm's own store.
    Own,
}

/// Status that a member reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The member that it follows; 0 = none.
    pub leader: u64,
    /// Raft index that it has committed.
    pub committed: u64,
    /// Raft index that it has applied.
    pub applied: u64,
    /// Whether it is a learner, without a vote.
    pub learner: bool,
    /// Alarms and errors that it reports.
    pub errors: Vec<String>,
}

/// Connections to the members of an etcd. Cheap to clone; all clones share them.
#[derive(Clone)]
pub struct EtcdMembers {
    transport: Transport,
    clients: Arc<Mutex<BTreeMap<(bool, String), Client>>>,
}

#[derive(Clone)]
enum Transport {
    /// The network.
    Network { kubernetes: Option<Arc<EtcdSettings>>, own: Arc<EtcdSettings> },
    /// A simulated data centre: its endpoints, and the client for each URL.
    InProcess { endpoints: Arc<[String]>, at: Arc<ClientAt> },
}

/// Function that returns the client for a URL at which a member answers.
type ClientAt = dyn Fn(&str) -> Option<Client> + Send + Sync;

impl fmt::Debug for EtcdMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            Transport::Network { kubernetes, .. } => f.debug_tuple("EtcdMembers").field(kubernetes).finish(),
            Transport::InProcess { endpoints, .. } => f.debug_tuple("EtcdMembers").field(endpoints).finish(),
        }
    }
}

impl EtcdMembers {
    /// Creates connections over the network: `kubernetes` is the section `cluster_etcd`, if there is one, `own`
    /// cketerm's own store.
    pub fn network(kubernetes: Option<EtcdSettings>, own: EtcdSettings) -> Self {
        let transport = Transport::Network { kubernetes: kubernetes.map(Arc::new), own: Arc::new(own) };
        Self { transport, clients: Arc::default() }
    }

    /// Creates connections inside a process: the members' endpoints, and a client for each URL at which a member
    /// answers.
    pub fn in_process(endpoints: Vec<String>, at: impl Fn(&str) -> Option<Client> + Send + Sync + 'static) -> Self {
        Self {
            transport: Transport::InProcess { endpoints: endpoints.into(), at: Arc::new(at) },
            clients: Arc::default(),
        }
    }

    /// Reports whether the Kubernetes etcd can be queried.
    pub fn configured(&self) -> bool {
        match &self.transport {
            Transport::Network { kubernetes, .. } => kubernetes.is_some(),
            Transport::InProcess { .. } => true,
        }
    }

    /// Returns the configured endpoints. If there are none for Kubernetes, only its credentials are configured, and
    /// candidates are tried.
    pub fn endpoints(&self, cluster: EtcdCluster) -> Vec<String> {
        match (&self.transport, cluster) {
            (Transport::Network { kubernetes, .. }, EtcdCluster::Kubernetes) => {
                kubernetes.as_ref().map_or_else(Vec::new, |settings| settings.endpoints.clone())
            }
            (Transport::Network { own, .. }, EtcdCluster::Own) => own.endpoints.clone(),
            (Transport::InProcess { endpoints, .. }, EtcdCluster::Kubernetes) => endpoints.to_vec(),
            (Transport::InProcess { .. }, EtcdCluster::Own) => Vec::new(),
        }
    }

    /// Closes all connections before a time without queries.
    pub fn forget_clients(&self) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the members, as the first of these endpoints that answers lists them.
    pub async fn list(&self, cluster: EtcdCluster, endpoints: &[String]) -> Result<BTreeMap<u64, Member>, String> {
        let each = endpoints.iter().map(|endpoint| async move {
            let answer = self.call(cluster, endpoint, |mut client| async move { client.member_list().await }).await;
            answer.map_err(|why| format!("{}: {why}", secret::url(endpoint)))
        });
        let answer = first_success(each).await.map_err(|failures| failures.join("; "))?;
        let over_network = matches!(self.transport, Transport::Network { .. });
        let members = answer.members().iter().map(|m| async move {
            let mut member = Member {
                name: m.name().to_owned(),
                learner: m.is_learner(),
                peer_urls: m.peer_urls().to_vec(),
                client_urls: m.client_urls().to_vec(),
                ..Member::default()
            };
            if over_network {
                member.resolved = resolved(&member).await;
            }
            (m.id(), member)
        });
        Ok(join_all(members).await.into_iter().collect())
    }

    /// Returns the status of member `id`, which answers at one of these URLs. Several members may advertise one
    /// address; another member's answer does not count.
    pub async fn status(&self, cluster: EtcdCluster, id: u64, urls: &[String]) -> Result<MemberStatus, String> {
        let each = urls.iter().map(|url| async move {
            let answer = self.call(cluster, url, |mut client| async move { client.status().await }).await;
            let answer = answer.map_err(|why| format!("{}: {why}", secret::url(url)))?;
            match answer.header().map(etcd_client::ResponseHeader::member_id) {
                Some(found) if found == id => Ok(answer),
                Some(found) => Err(format!("{}: member {found:x} answers there", secret::url(url))),
                None => Err(format!("{}: the answer names no member", secret::url(url))),
            }
        });
        let answer = first_success(each)
            .await
            .map_err(|failures| failures.last().cloned().unwrap_or_else(|| NO_URL.to_owned()))?;
        Ok(MemberStatus {
            leader: answer.leader(),
            committed: answer.raft_index(),
            applied: answer.raft_applied_index(),
            learner: answer.is_learner(),
            errors: answer.errors().iter().map(|e| e.trim().to_owned()).filter(|e| !e.is_empty()).collect(),
        })
    }

    /// Reports whether cketerm's own store, at these endpoints, holds objects of Kubernetes that its user can read. Without
    /// an answer it does not.
    pub async fn own_holds_kubernetes(&self, endpoints: &[String]) -> bool {
        let each = endpoints.iter().map(|endpoint| {
            self.call(EtcdCluster::Own, endpoint, |client| async move {
                client.kv_client().get(REGISTRY, Some(one_key())).await
            })
        });
        first_success(each).await.is_ok_and(|answer| !answer.kvs().is_empty())
    }

    /// Requests that the leading member, which answers at these URLs, hands over to the member `to`.
    pub async fn move_leader(&self, _: &Permit, cluster: EtcdCluster, urls: &[String], to: u64) -> Result<(), String> {
        let mut last = NO_URL.to_owned();
        for url in urls {
            match self.call(cluster, url, |mut client| async move { client.move_leader(to).await }).await {
                Ok(_) => return Ok(()),
                Err(why) => last = format!("{}: {why}", secret::url(url)),
            }
        }
        Err(last)
    }

    async fn call<T, F: Future<Output = Result<T, etcd_client::Error>>>(
        &self,
        cluster: EtcdCluster,
        url: &str,
        call: impl FnOnce(Client) -> F,
    ) -> Result<T, String> {
        let key = (cluster == EtcdCluster::Own, url.to_owned());
        let request = async {
            let known = self.clients.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
            let client = match known {
                Some(client) => client,
                None => self.connect(cluster, url).await?,
            };
            let answer = call(client.clone()).await.map_err(|e| cause(e.into()))?;
            self.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), client);
            Ok(answer)
        };
        let answer = tokio::time::timeout(TIMEOUT, request).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")));
        if answer.is_err() {
            // The next request begins with a new connection.
            self.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
        answer
    }

    async fn connect(&self, cluster: EtcdCluster, url: &str) -> Result<Client, String> {
        let (kubernetes, own) = match &self.transport {
            Transport::Network { kubernetes, own } => (kubernetes, own),
            Transport::InProcess { at, .. } => {
                return at(url).ok_or_else(|| "connection refused or unreachable".to_owned());
            }
        };
        let settings = match cluster {
            EtcdCluster::Kubernetes => kubernetes.as_ref().ok_or("the section cluster_etcd is missing")?,
            EtcdCluster::Own => own,
        };
        let mut options = ConnectOptions::new().with_connect_timeout(TIMEOUT);
        if url.starts_with("https://") {
            options = options.with_tls(tls(settings));
        }
        if let Some(name) = &settings.username {
            options = options.with_user(name.clone(), settings.password.clone().unwrap_or_default());
        }
        Client::connect([url], Some(options)).await.map_err(|e| cause(e.into()))
    }
}

fn cause(failure: Failure) -> String {
    match failure {
        Failure::NoAnswer { cause, .. } | Failure::Denied(cause) | Failure::Refused(cause) => cause,
        Failure::TooLarge(size) => size.to_string(),
        Failure::NoLease | Failure::Compacted => "an answer that belongs to another request".to_owned(),
    }
}

/// Returns the first good answer of several requests, each started [`HEDGE_DELAY`] after the one before. A request that
/// hangs delays the others by that time only, and all together take no longer than one. If none succeeds, returns all
/// failures in order.
async fn first_success<T>(
    request: impl Iterator<Item = impl Future<Output = Result<T, String>>>,
) -> Result<T, Vec<String>> {
    let mut pending: FuturesUnordered<_> = request
        .enumerate()
        .map(|(position, answer)| async move {
            tokio::time::sleep(HEDGE_DELAY * u32::try_from(position).unwrap_or(u32::MAX)).await;
            (position, answer.await)
        })
        .collect();
    let mut failures = BTreeMap::new();
    while let Some((position, answer)) = pending.next().await {
        match answer {
            Ok(answer) => return Ok(answer),
            Err(why) => failures.insert(position, why),
        };
    }
    Err(failures.into_values().collect())
}

/// Returns the addresses of the names in a member's URLs; empty if one of them cannot be resolved now.
async fn resolved(member: &Member) -> Vec<String> {
    let names = member.peer_urls.iter().chain(&member.client_urls).filter_map(|url| host(url));
    let names: std::collections::BTreeSet<String> = names.filter(|name| name.parse::<IpAddr>().is_err()).collect();
    let each = names.into_iter().map(|name| async move {
        let lookup = tokio::time::timeout(TIMEOUT, tokio::net::lookup_host((name, 0))).await.ok()?.ok()?;
        Some(lookup.map(|address| address.ip().to_string()).collect::<Vec<_>>())
    });
    let found: Option<Vec<Vec<String>>> = join_all(each).await.into_iter().collect();
    found.unwrap_or_default().concat()
}

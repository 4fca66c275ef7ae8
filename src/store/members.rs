//! Members of an etcd cluster: the list, the status of each member, and a change of leader. The Kubernetes etcd is
//! queried with the section `cluster_etcd`, cketerm's own store with its own settings.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use etcd_client::{Client, ConnectOptions};
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};

use super::{
    answer::Failure,
    connect::{EtcdSettings, tls},
};
use crate::model::{
    etcd::{Member, host},
    secret,
};

/// Timeout of an answer.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Time in which one of several addresses is tried alone.
const HEAD_START: Duration = Duration::from_millis(200);
const NO_URL: &str = "it has no client URL: it has never started";

/// Etcd cluster to query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
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
    way: Way,
    clients: Arc<Mutex<BTreeMap<(bool, String), Client>>>,
}

#[derive(Clone)]
enum Way {
    /// The network.
    Network { kubernetes: Option<Arc<EtcdSettings>>, own: Arc<EtcdSettings> },
    /// A simulated data centre: its endpoints, and the client for each URL.
    Within { endpoints: Arc<[String]>, at: Arc<ClientAt> },
}

/// Function that returns the client for a URL at which a member answers.
type ClientAt = dyn Fn(&str) -> Option<Client> + Send + Sync;

impl fmt::Debug for EtcdMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Network { kubernetes, .. } => f.debug_tuple("EtcdMembers").field(kubernetes).finish(),
            Way::Within { endpoints, .. } => f.debug_tuple("EtcdMembers").field(endpoints).finish(),
        }
    }
}

impl EtcdMembers {
    /// Creates connections over the network: `kubernetes` is the section `cluster_etcd`, if there is one, `own`
    /// cketerm's own store.
    pub fn network(kubernetes: Option<EtcdSettings>, own: EtcdSettings) -> Self {
        let way = Way::Network { kubernetes: kubernetes.map(Arc::new), own: Arc::new(own) };
        Self { way, clients: Arc::default() }
    }

    /// Creates connections inside a process: the members' endpoints, and a client for each URL at which a member
    /// answers.
    pub fn within(endpoints: Vec<String>, at: impl Fn(&str) -> Option<Client> + Send + Sync + 'static) -> Self {
        Self { way: Way::Within { endpoints: endpoints.into(), at: Arc::new(at) }, clients: Arc::default() }
    }

    /// Reports whether the Kubernetes etcd can be queried.
    pub fn configured(&self) -> bool {
        match &self.way {
            Way::Network { kubernetes, .. } => kubernetes.is_some(),
            Way::Within { .. } => true,
        }
    }

    /// Returns the configured endpoints. If there are none for Kubernetes, only its credentials are configured, and
    /// candidates are tried.
    pub fn endpoints(&self, whose: Whose) -> Vec<String> {
        match (&self.way, whose) {
            (Way::Network { kubernetes, .. }, Whose::Kubernetes) => {
                kubernetes.as_ref().map_or_else(Vec::new, |settings| settings.endpoints.clone())
            }
            (Way::Network { own, .. }, Whose::Own) => own.endpoints.clone(),
            (Way::Within { endpoints, .. }, Whose::Kubernetes) => endpoints.to_vec(),
            (Way::Within { .. }, Whose::Own) => Vec::new(),
        }
    }

    /// Closes all connections before a time without queries.
    pub fn rest(&self) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the members, as the first of these endpoints that answers lists them.
    pub async fn list(&self, whose: Whose, endpoints: &[String]) -> Result<BTreeMap<u64, Member>, String> {
        let each = endpoints.iter().map(|endpoint| async move {
            let answer = self.ask(whose, endpoint, |mut client| async move { client.member_list().await }).await;
            answer.map_err(|why| format!("{}: {why}", secret::url(endpoint)))
        });
        let answer = first(each).await.map_err(|failures| failures.join("; "))?;
        let over_network = matches!(self.way, Way::Network { .. });
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
    pub async fn status(&self, whose: Whose, id: u64, urls: &[String]) -> Result<MemberStatus, String> {
        let each = urls.iter().map(|url| async move {
            let answer = self.ask(whose, url, |mut client| async move { client.status().await }).await;
            let answer = answer.map_err(|why| format!("{}: {why}", secret::url(url)))?;
            match answer.header().map(etcd_client::ResponseHeader::member_id) {
                Some(found) if found == id => Ok(answer),
                Some(found) => Err(format!("{}: member {found:x} answers there", secret::url(url))),
                None => Err(format!("{}: the answer names no member", secret::url(url))),
            }
        });
        let answer =
            first(each).await.map_err(|failures| failures.last().cloned().unwrap_or_else(|| NO_URL.to_owned()))?;
        Ok(MemberStatus {
            leader: answer.leader(),
            committed: answer.raft_index(),
            applied: answer.raft_applied_index(),
            learner: answer.is_learner(),
            errors: answer.errors().iter().map(|e| e.trim().to_owned()).filter(|e| !e.is_empty()).collect(),
        })
    }

    /// Requests that the leading member, which answers at these URLs, hands over to the member `to`.
    pub async fn move_leader(&self, whose: Whose, urls: &[String], to: u64) -> Result<(), String> {
        let mut last = NO_URL.to_owned();
        for url in urls {
            match self.ask(whose, url, |mut client| async move { client.move_leader(to).await }).await {
                Ok(_) => return Ok(()),
                Err(why) => last = format!("{}: {why}", secret::url(url)),
            }
        }
        Err(last)
    }

    async fn ask<T, F: Future<Output = Result<T, etcd_client::Error>>>(
        &self,
        whose: Whose,
        url: &str,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<T, String> {
        let key = (whose == Whose::Own, url.to_owned());
        let asked = async {
            let known = self.clients.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
            let client = match known {
                Some(client) => client,
                None => self.connect(whose, url).await?,
            };
            let answer = ask(client.clone()).await.map_err(|e| cause(e.into()))?;
            self.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), client);
            Ok(answer)
        };
        let answer = tokio::time::timeout(TIMEOUT, asked).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")));
        if answer.is_err() {
            // The next request begins with a new connection.
            self.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
        answer
    }

    async fn connect(&self, whose: Whose, url: &str) -> Result<Client, String> {
        let (kubernetes, own) = match &self.way {
            Way::Network { kubernetes, own } => (kubernetes, own),
            Way::Within { at, .. } => return at(url).ok_or_else(|| "connection refused or unreachable".to_owned()),
        };
        let settings = match whose {
            Whose::Kubernetes => kubernetes.as_ref().ok_or("the section cluster_etcd is missing")?,
            Whose::Own => own,
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

/// Returns the first good answer of several requests, each started [`HEAD_START`] after the one before. A request that
/// hangs delays the others by that time only, and all together take no longer than one. If none succeeds, returns all
/// failures in order.
async fn first<T>(asked: impl Iterator<Item = impl Future<Output = Result<T, String>>>) -> Result<T, Vec<String>> {
    let mut pending: FuturesUnordered<_> = asked
        .enumerate()
        .map(|(place, answer)| async move {
            tokio::time::sleep(HEAD_START * u32::try_from(place).unwrap_or(u32::MAX)).await;
            (place, answer.await)
        })
        .collect();
    let mut failures = BTreeMap::new();
    while let Some((place, answer)) = pending.next().await {
        match answer {
            Ok(answer) => return Ok(answer),
            Err(why) => failures.insert(place, why),
        };
    }
    Err(failures.into_values().collect())
}

/// Returns the addresses of the names in a member's URLs; empty if one of them cannot be resolved now.
async fn resolved(member: &Member) -> Vec<String> {
    let names = member.peer_urls.iter().chain(&member.client_urls).filter_map(|url| host(url));
    let names: std::collections::BTreeSet<String> = names.filter(|name| name.parse::<IpAddr>().is_err()).collect();
    let each = names.into_iter().map(|name| async move {
        let looked = tokio::time::timeout(TIMEOUT, tokio::net::lookup_host((name, 0))).await.ok()?.ok()?;
        Some(looked.map(|address| address.ip().to_string()).collect::<Vec<_>>())
    });
    let found: Option<Vec<Vec<String>>> = join_all(each).await.into_iter().collect();
    found.unwrap_or_default().concat()
}

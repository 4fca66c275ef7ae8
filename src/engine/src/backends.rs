//! Backends of an engine and a console: real servers, or a sandbox. Their users cannot tell which.

use std::{sync::Arc, time::Duration};

use cketerm_clients::{
    kubernetes::{Kube, Live as KubeLive, Streaming},
    net::Http,
    notices::Receiver,
    power::BmcClients,
    prometheus::Prometheus,
    store::{Store, live::Live, members::EtcdMembers},
};
use cketerm_model::{cketerm_records::EngineMode, names::NodeName};
use cketerm_rules::console_leads::LeadAnswer;
use tokio::sync::watch;

use crate::{
    command::Spawner,
    run::{self, Handle, Options},
};

/// Upper bound of a webhook request. Each receiver has a shorter timeout of its own.
pub const WEBHOOK: Duration = Duration::from_mins(1);

/// Number of bytes that are read of a webhook's answer.
pub const ANSWER: usize = 64 << 10;

/// Connections, commands and probes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Backends {
    /// etcd.
    pub store: Store,
    /// Kubernetes, if it is configured.
    pub kube: Option<Kube>,
    /// Whether lists of Kubernetes may be streamed.
    pub streaming: Streaming,
    /// Starts the definition's commands.
    pub spawner: Spawner,
    /// Client for the health probes of control planes.
    pub probes: Http,
    /// Client for the members of the etcd of Kubernetes.
    pub etcd_members: EtcdMembers,
    /// Client for sabakan.
    pub registry: Http,
    /// Clients for the BMCs of machines.
    pub bmcs: BmcClients,
    /// Receivers of notices.
    pub notices: Arc<Vec<Receiver>>,
    /// Client for webhooks.
    pub webhooks: Http,
    /// Client for the site's gates.
    pub prometheus: Prometheus,
    /// Whether its engines repeat cancels that CKE's write has overwritten: not if the operator asked for a process that
    /// writes nothing.
    pub repeats_cancels: bool,
    /// Whether its engines query the API servers and etcd's members although they neither lead nor campaign: only for
    /// `doctor`.
    pub examines: bool,
    /// TTL of an engine's lease.
    pub ttl: Duration,
    /// Host name: the value of the key in `leader/`, as CKE writes it.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// The Node on which the process runs, if it runs in a pod that knows.
    pub node: Option<NodeName>,
}

impl Backends {
    /// Starts an engine; `http` is the address of its endpoint.
    pub fn start(&self, mode: EngineMode, campaign: bool, http: Option<String>) -> Handle {
        self.start_answered(mode, campaign, http, None)
    }

    /// Starts the engine of a console, which campaigns by the policy `console_leads` and this answer of its operator.
    pub fn start_console(&self, campaign: bool, answer: watch::Receiver<LeadAnswer>) -> Handle {
        self.start_answered(EngineMode::Console, campaign, None, Some(answer))
    }

    fn start_answered(
        &self,
        mode: EngineMode,
        campaign: bool,
        http: Option<String>,
        answer: Option<watch::Receiver<LeadAnswer>>,
    ) -> Handle {
        let live = Arc::new(Live::follow(&self.store));
        let copies = self.kube.clone().map(|kube| {
            let live = KubeLive::follow(&kube, self.streaming);
            (kube, live)
        });
        let options = Options {
            campaign,
            answer,
            mode,
            http,
            repeats_cancels: self.repeats_cancels,
            examines: self.examines,
            ttl: self.ttl,
            host: self.host.clone(),
            node: self.node.clone(),
            pid: self.pid,
            spawner: self.spawner.clone(),
            probes: self.probes.clone(),
            etcd_members: self.etcd_members.clone(),
            registry: self.registry.clone(),
            bmcs: self.bmcs.clone(),
            notices: Arc::clone(&self.notices),
            webhooks: self.webhooks.clone(),
            prometheus: self.prometheus.clone(),
        };
        run::start(&self.store, live, copies, options)
    }
}

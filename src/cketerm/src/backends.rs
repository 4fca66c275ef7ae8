//! Backends of an engine and a console: the real servers of the settings, or a sandbox. Their users cannot tell which.

use std::{sync::Arc, time::Duration};

use cketerm_clients::{
    kubernetes::{Kube, Live as KubeLive, Streaming},
    net::Http,
    notices::Receiver,
    power::BmcClients,
    sabakan as client,
    store::{Store, live::Live, members::EtcdMembers},
};
use cketerm_engine::{
    command::{ResultFolder, Spawner},
    probe,
    run::{self, Handle, Options},
};
use cketerm_model::clock::Clock;

use crate::config::Settings;

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
    /// TTL of an engine's lease.
    pub ttl: Duration,
    /// Host name: the value of the key in `leader/`, as CKE writes it.
    pub host: String,
    /// Process id.
    pub pid: u32,
}

impl Backends {
    /// Connects to the real servers. Connections are opened at first use, except that a user name of etcd is checked at
    /// once.
    pub async fn connect(settings: &Settings) -> anyhow::Result<Self> {
        if let Some(warning) = settings.default_endpoint_warning() {
            tracing::warn!("{warning}");
        }
        let clock = Clock::host();
        let store = Store::connect(&settings.etcd, clock.clone()).await?;
        let kube = if settings.kube.is_none() { None } else { Some(Kube::connect(&settings.kube, clock).await?) };
        let config = settings.files.last().map(|p| p.display().to_string());
        Ok(Self {
            store,
            kube,
            streaming: Streaming::Auto,
            // Not `current_exe`: an upgrade may have replaced the file of a running engine.
            spawner: Spawner::new("/proc/self/exe".into(), config.as_deref(), &settings.command_env)
                .keeping_results(ResultFolder::below(&settings.state_directory)),
            probes: Http::for_liveness(probe::TIMEOUT)?,
            etcd_members: EtcdMembers::network(settings.cluster_etcd.clone(), settings.etcd.clone()),
            registry: Http::verified(client::TIMEOUT, client::MOST_BYTES),
            bmcs: BmcClients::network(settings.bmcs.clone()),
            notices: Arc::new(settings.notices.clone()),
            webhooks: Http::for_webhooks(WEBHOOK, ANSWER),
            ttl: Duration::from_secs(settings.lease_ttl_seconds),
            host: host_name(),
            pid: std::process::id(),
        })
    }

    /// Starts an engine. `mode` is `daemon` or `console`, `http` the address of its endpoint.
    pub fn start(&self, mode: &'static str, campaign: bool, http: Option<String>) -> Handle {
        let live = Arc::new(Live::follow(&self.store));
        let copies = self.kube.clone().map(|kube| {
            let live = KubeLive::follow(&kube, self.streaming);
            (kube, live)
        });
        let options = Options {
            campaign,
            mode,
            http,
            ttl: self.ttl,
            host: self.host.clone(),
            pid: self.pid,
            spawner: self.spawner.clone(),
            probes: self.probes.clone(),
            etcd_members: self.etcd_members.clone(),
            registry: self.registry.clone(),
            bmcs: self.bmcs.clone(),
            notices: Arc::clone(&self.notices),
            webhooks: self.webhooks.clone(),
        };
        run::start(&self.store, live, copies, options)
    }
}

/// Returns this host's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

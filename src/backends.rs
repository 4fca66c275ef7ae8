//! What an engine and a console stand on: the real servers that the settings name, or a sandbox. From here on nobody can
//! tell which.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    config::Settings,
    engine::{
        command::{ResultFolder, Spawner},
        probe,
        run::{self, Handle, Options},
    },
    kubernetes::{Kube, Live as KubeLive, Streaming},
    net::Http,
    notices::Receiver,
    power::BmcClients,
    sabakan::client,
    store::{Store, live::Live, members::EtcdMembers},
};

/// No webhook is waited for longer; each receiver has a time limit of its own below that.
pub const WEBHOOK: Duration = Duration::from_mins(1);

/// So many bytes of a webhook's answer are read.
pub const ANSWER: usize = 64 << 10;

/// Connections, commands and probes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Backends {
    /// etcd.
    pub store: Store,
    /// Kubernetes, where it is configured.
    pub kube: Option<Kube>,
    /// Whether lists of Kubernetes may stream.
    pub streaming: Streaming,
    /// Runs the definition's commands.
    pub spawner: Spawner,
    /// Asks the control planes whether they live.
    pub probes: Http,
    /// Asks the members of the etcd of Kubernetes.
    pub etcd_members: EtcdMembers,
    /// Asks sabakan.
    pub registry: Http,
    /// Speaks to the BMCs of machines.
    pub bmcs: BmcClients,
    /// Who is told what happens.
    pub notices: Arc<Vec<Receiver>>,
    /// Reaches webhooks.
    pub webhooks: Http,
    /// TTL of an engine's lease.
    pub ttl: Duration,
    /// Host name: the value of the key in `leader/`, as CKE writes it.
    pub host: String,
    /// Process id.
    pub pid: u32,
}

impl Backends {
    /// The real servers. Connects when first used, except that a user name of etcd is checked at once.
    pub async fn connect(settings: &Settings) -> anyhow::Result<Self> {
        let clock = Clock::Host;
        let store = Store::connect(&settings.etcd, clock.clone()).await?;
        let kube = if settings.kube.is_none() { None } else { Some(Kube::connect(&settings.kube, clock).await?) };
        let config = settings.files.last().map(|p| p.display().to_string());
        Ok(Self {
            store,
            kube,
            streaming: Streaming::Auto,
            // Not `current_exe`: an upgrade may have replaced the file under a running engine.
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

    /// Starts an engine: `mode` is `daemon` or `console`, `http` the address of its endpoint.
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

/// This host's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

//! Connections to the servers of the settings.

use std::{path::absolute, sync::Arc, time::Duration};

use cketerm_clients::{
    kubernetes::{Kube, Streaming},
    net::Http,
    power::BmcClients,
    prometheus::Prometheus,
    sabakan as client,
    store::{Store, members::EtcdMembers},
};
use cketerm_engine::{
    backends::{ANSWER, Backends, WEBHOOK},
    command::{ResultFolder, Spawner},
    probe,
};
use cketerm_model::clock::Clock;
use cketerm_runtime::host::host_name;

use crate::config::Settings;

/// Connects to the real servers. Connections are opened at first use, except that a user name of etcd is checked at
/// once.
pub async fn connect(settings: &Settings) -> anyhow::Result<Backends> {
    if let Some(warning) = settings.default_endpoint_warning() {
        tracing::warn!("{warning}");
    }
    let clock = Clock::host();
    let store = Store::connect(&settings.etcd, clock.clone()).await?;
    let kube = if settings.kube.is_none() { None } else { Some(Kube::connect(&settings.kube, clock).await?) };
    // Commands do not run in this process's directory.
    let config = settings.files.last().map(|path| absolute(path).unwrap_or_else(|_| path.clone()));
    let config = config.map(|path| path.display().to_string());
    // A command such as `cketerm power` reaches the API server in the same way.
    let of_pod: &[&str] =
        if settings.kube.in_cluster { &["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"] } else { &[] };
    let variables: Vec<String> =
        settings.command_env.iter().cloned().chain(of_pod.iter().map(|name| (*name).to_owned())).collect();
    Ok(Backends {
        store,
        kube,
        streaming: Streaming::Auto,
        // Not `current_exe`: an upgrade may have replaced the file of a running engine.
        spawner: Spawner::new("/proc/self/exe".into(), config.as_deref(), &variables)
            .keeping_results(ResultFolder::below(&settings.state_directory)),
        probes: Http::for_liveness(probe::TIMEOUT)?,
        etcd_members: EtcdMembers::network(settings.cluster_etcd.clone(), settings.etcd.clone()),
        registry: Http::verified(client::TIMEOUT, client::MOST_BYTES),
        bmcs: BmcClients::network(settings.bmcs.clone()),
        notices: Arc::new(settings.notices.clone()),
        webhooks: Http::for_webhooks(WEBHOOK, ANSWER),
        prometheus: Prometheus::network(),
        repeats_cancels: true,
        examines: false,
        ttl: Duration::from_secs(settings.lease_ttl_seconds),
        host: host_name(),
        pid: std::process::id(),
        node: settings.node.clone(),
    })
}

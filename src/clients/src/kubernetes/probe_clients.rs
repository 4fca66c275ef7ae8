//! Clients for API servers other than the configured one. They send the kubeconfig's credentials only to a server whose
//! certificate the cluster's CA signed (SAF-30).

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use kube::{Client, Config};

use super::{error::chain, transport};

/// Clients for servers other than the configured one.
pub(super) struct ProbeClients {
    config: Config,
    /// Clients by scheme, host and port.
    clients: Mutex<BTreeMap<String, Client>>,
}

impl ProbeClients {
    /// Returns none if no CA of the cluster is configured to verify with. Credentials then go to no other server.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let verifies = config.root_cert.as_ref().is_some_and(|certs| !certs.is_empty()) && !config.accept_invalid_certs;
        let mut config = config.clone();
        config.proxy_url = None;
        verifies.then(|| Self { config, clients: Mutex::default() })
    }

    /// Returns the client for a server: `https://`, host and port.
    pub(super) fn client(&self, server: &str) -> Result<Client, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(server) {
            return Ok(client.clone());
        }
        let mut config = self.config.clone();
        config.cluster_url = server.parse().map_err(|e| format!("{server} is not a URL: {e}"))?;
        let client = transport::client(config).map_err(|e| chain(&e))?;
        clients.insert(server.to_owned(), client.clone());
        Ok(client)
    }
}

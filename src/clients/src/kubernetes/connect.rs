//! Choice of the API server: the explicit kubeconfig or the pod's own account. The ambient `KUBECONFIG` and a file in
//! the home directory are never used.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cketerm_model::{clock::Clock, secret};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::{
    error::{Fault, KubeError, chain},
    probe_clients::ProbeClients,
    transport,
};

/// Maximum number of calls under way; others wait for them. Each of them has a connection of its own, and an API server
/// that has to accept thousands answers none.
pub(super) const MAX_CALLS: usize = 128;

/// Settings of the Kubernetes connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeSettings {
    /// Path of a kubeconfig. The ambient one is never used.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig. `None`: its current one.
    pub context: Option<String>,
    /// Whether to use the service account of the pod that cketerm runs in.
    pub in_cluster: bool,
}

impl KubeSettings {
    /// Returns true if nothing was configured. Commands that need Kubernetes then say so.
    pub fn is_none(&self) -> bool {
        self.kubeconfig.is_none() && !self.in_cluster
    }
}

/// Source of the connection, named in error messages.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// URL without user and password.
    server: String,
    file: Option<PathBuf>,
    context: Option<String>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.server.is_empty() { "the API server" } else { &self.server })?;
        match (&self.file, &self.context) {
            (Some(file), Some(context)) => write!(f, " (kubeconfig {}, context {context})", file.display()),
            (Some(file), None) => write!(f, " (kubeconfig {})", file.display()),
            _ => Ok(()),
        }
    }
}

/// Connection to one API server. Cheap to clone. It connects at the first request.
#[derive(Clone)]
pub struct Kube {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) origin: Arc<Origin>,
    /// Signals the live copy that cketerm wrote endpoints.
    pub(super) endpoints_written: Arc<tokio::sync::Notify>,
    /// Permits of calls under way.
    pub(super) calls: Arc<tokio::sync::Semaphore>,
    /// Clients for API servers other than the configured one, where their certificates can be verified.
    pub(super) probe_clients: Option<Arc<ProbeClients>>,
}

impl fmt::Debug for Kube {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kube").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Kube {
    /// Reads the explicit kubeconfig or the pod's account. Sends nothing yet: the first request detects an API server
    /// that is down.
    pub async fn connect(settings: &KubeSettings, clock: Clock) -> Result<Self, KubeError> {
        // Fails only if a provider is installed already, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let (mut config, file, context) = match (&settings.kubeconfig, settings.in_cluster) {
            (Some(file), _) => {
                let (config, context) = from_file(file, settings.context.as_deref()).await?;
                (config, Some(file.clone()), context)
            }
            (None, true) => {
                let config = Config::incluster_env().map_err(|e| KubeError::InCluster(chain(&e)))?;
                (config, None, None)
            }
            (None, false) => return Err(KubeError::NotConfigured),
        };
        // A 429 to an eviction is an answer, not a failure to retry.
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        config.write_timeout = Some(Duration::from_secs(10));
        // Watches are silent for long. Each call and each watch (`follow`) has its own timeout instead.
        config.read_timeout = None;
        let server = secret::url(config.cluster_url.to_string().trim_end_matches('/'));
        let origin = Origin { server, file, context };
        let probe_clients = ProbeClients::of(&config).map(Arc::new);
        let client = transport::client(config).map_err(|e| {
            let problem = chain(&e);
            match &origin.file {
                Some(file) => {
                    KubeError::Kubeconfig { file: file.display().to_string(), context: origin.context.clone(), problem }
                }
                None => KubeError::InCluster(problem),
            }
        })?;
        let origin = Arc::new(origin);
        Ok(Self { origin, probe_clients, ..Self::from_client(client, clock) })
    }

    /// Creates a connection from an existing client: an in-process API server, or a custom transport.
    pub fn from_client(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            origin: Arc::default(),
            endpoints_written: Arc::default(),
            calls: Arc::new(tokio::sync::Semaphore::new(MAX_CALLS)),
            probe_clients: None,
        }
    }

    /// Returns the API server's address as configured, without user and password. Empty for [`Kube::from_client`].
    pub fn server(&self) -> &str {
        &self.origin.server
    }

    /// Returns the clock that measures when sources were last heard.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the error for a fault of a call.
    pub(super) fn error(&self, what: &str, fault: Fault) -> KubeError {
        let (origin, what) = (self.origin.to_string(), what.to_owned());
        match fault {
            Fault::Silent(why) => KubeError::Unreachable { origin, what, why },
            Fault::Answered(status) => match status.code {
                401 => KubeError::Unauthorized { origin, what },
                403 => KubeError::Forbidden { origin, what, why: status.message },
                code => KubeError::Refused { origin, what, code, message: status.message },
            },
        }
    }
}

async fn from_file(file: &Path, context: Option<&str>) -> Result<(Config, Option<String>), KubeError> {
    let fail = |context: Option<&str>, problem: String| KubeError::Kubeconfig {
        file: file.display().to_string(),
        context: context.map(str::to_owned),
        problem,
    };
    // Only the first line: the parser prints the lines around the fault, including tokens.
    let fault = |e: &kube::config::KubeconfigError| chain(e).lines().next().unwrap_or_default().to_owned();
    let kubeconfig = Kubeconfig::read_from(file).map_err(|e| fail(context, fault(&e)))?;
    let context = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone()).filter(|c| !c.is_empty());
    let Some(context_name) = context.as_deref() else {
        return Err(fail(None, "it has no current-context; set kubernetes.context".to_owned()));
    };
    if !kubeconfig.contexts.iter().any(|c| c.name == context_name) {
        let known: Vec<_> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
        return Err(fail(Some(context_name), format!("this context is missing; it has: {}", known.join(", "))));
    }
    let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| fail(Some(context_name), chain(&e)))?;
    Ok((config, context))
}

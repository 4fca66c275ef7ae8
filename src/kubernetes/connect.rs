//! Which API server: the explicit kubeconfig or the pod's own account, never the ambient `KUBECONFIG` or a home
//! directory's file (spec/safety.md, Which cluster).

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::{call::Fault, probe::Elsewhere, transport};
use crate::{clock::Clock, model::secret};

/// Where Kubernetes is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeSettings {
    /// A kubeconfig; never the ambient one.
    pub kubeconfig: Option<PathBuf>,
    /// A context of it; none = its current one.
    pub context: Option<String>,
    /// The service account of the pod we run in.
    pub in_cluster: bool,
}

impl KubeSettings {
    /// Nothing was configured: words that need Kubernetes say so.
    pub fn is_none(&self) -> bool {
        self.kubeconfig.is_none() && !self.in_cluster
    }
}

/// How the API server was found: what error messages name.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// Without a user part.
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

/// Why Kubernetes did not give what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// Neither a kubeconfig nor the in-cluster account is configured.
    #[error(
        "no Kubernetes is configured: name a kubeconfig in the configuration (kubernetes.kubeconfig), or set \
         kubernetes.in_cluster where cketerm runs in a pod"
    )]
    NotConfigured,
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {file}{}: {problem}; correct the file or name another", in_context(.context.as_deref()))]
    Kubeconfig {
        /// Its path.
        file: String,
        /// The context that was asked for.
        context: Option<String>,
        /// What is wrong.
        problem: String,
    },
    /// The in-cluster account cannot be used.
    #[error("the pod's service account cannot be used: {0}; run in a pod that mounts one, or name a kubeconfig")]
    InCluster(String),
    /// No answer.
    #[error("{origin} does not answer {what}: {why}; check that it runs and that the address is right")]
    Unreachable {
        /// Server, file and context.
        origin: String,
        /// What was asked: method and path.
        what: String,
        /// What happened.
        why: String,
    },
    /// 401.
    #[error("{origin} refused our credentials (401) for {what}: renew the token or certificate")]
    Unauthorized {
        /// Server, file and context.
        origin: String,
        /// What was asked.
        what: String,
    },
    /// 403.
    #[error("{origin} forbids {what}: {why}; grant the right (docs/rbac.yaml)")]
    Forbidden {
        /// Server, file and context.
        origin: String,
        /// What was asked.
        what: String,
        /// The server's words.
        why: String,
    },
    /// Another error.
    #[error("{origin} answered {what} with {code}: {message}")]
    Refused {
        /// Server, file and context.
        origin: String,
        /// What was asked.
        what: String,
        /// The status code.
        code: u16,
        /// The server's words.
        message: String,
    },
}

fn in_context(context: Option<&str>) -> String {
    context.map_or_else(String::new, |c| format!(", context {c}"))
}

/// A connection to one API server. Cheap to clone; connects when it is first used.
#[derive(Clone)]
pub struct Kube {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) origin: Arc<Origin>,
    /// Tells the live copy that endpoints were written.
    pub(super) endpoints_written: Arc<tokio::sync::Notify>,
    /// For API servers other than the configured one, where their certificates can be verified.
    pub(super) elsewhere: Option<Arc<Elsewhere>>,
}

impl fmt::Debug for Kube {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kube").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Kube {
    /// Reads the explicit kubeconfig, or the pod's account. Sends nothing yet: an API server that is down is seen by
    /// the first request.
    pub async fn connect(settings: &KubeSettings, clock: Clock) -> Result<Self, KubeError> {
        // Fails only when a provider is installed already, which is as good.
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
        // A 429 of an eviction is an answer, not a failure to try again.
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        config.write_timeout = Some(Duration::from_secs(10));
        // Watches are quiet for long: each call has its own limit instead, each watch its own (`follow`).
        config.read_timeout = None;
        let server = secret::url(config.cluster_url.to_string().trim_end_matches('/'));
        let origin = Origin { server, file, context };
        let elsewhere = Elsewhere::of(&config).map(Arc::new);
        let client = transport::client(config).map_err(|e| {
            let problem = chain(&e);
            match &origin.file {
                Some(file) => {
                    KubeError::Kubeconfig { file: file.display().to_string(), context: origin.context.clone(), problem }
                }
                None => KubeError::InCluster(problem),
            }
        })?;
        Ok(Self { client, clock, origin: Arc::new(origin), endpoints_written: Arc::default(), elsewhere })
    }

    /// On a client that exists: an in-process API server, or one with its own transport.
    pub fn from_client(client: Client, clock: Clock) -> Self {
        Self { client, clock, origin: Arc::default(), endpoints_written: Arc::default(), elsewhere: None }
    }

    /// The API server's address, as configured, without a user or a password; empty for a client from elsewhere.
    pub fn server(&self) -> &str {
        &self.origin.server
    }

    /// The clock that sources' signs of life are measured on.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The sentence for a fault of a call.
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
    // Only the first line of the fault: the parser shows the lines around it, tokens included.
    let fault = |e: &kube::config::KubeconfigError| chain(e).lines().next().unwrap_or_default().to_owned();
    let kubeconfig = Kubeconfig::read_from(file).map_err(|e| fail(context, fault(&e)))?;
    let context = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone()).filter(|c| !c.is_empty());
    let Some(wanted) = context.as_deref() else {
        return Err(fail(None, "it has no current-context and none is configured".to_owned()));
    };
    if !kubeconfig.contexts.iter().any(|c| c.name == wanted) {
        let known: Vec<_> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
        return Err(fail(Some(wanted), format!("it has no such context, only: {}", known.join(", "))));
    }
    let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| fail(Some(wanted), chain(&e)))?;
    Ok((config, context))
}

/// An error and what caused it, each once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}

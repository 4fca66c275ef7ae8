//! Failures of requests: as a call sees them, and as an operator reads them, with their remedy.

use kube::core::Status;

/// Reason why a call returned nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server answered with an error.
    Answered(Box<Status>),
    /// No answer, or one that cannot be read. A write may or may not have been carried out.
    Silent(String),
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Answered(status),
            other => Self::Silent(chain(&other)),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answered(status) => write!(f, "{}: {}", status.code, status.message),
            Self::Silent(why) => f.write_str(why),
        }
    }
}

/// Failure of a request to Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// Neither a kubeconfig nor the in-cluster account is configured.
    #[error(
        "no Kubernetes is configured: set kubernetes.kubeconfig in the configuration, or kubernetes.in_cluster if \
         cketerm runs in a pod"
    )]
    NotConfigured,
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {file}{}: {problem}; correct the file or give another one", in_context(.context.as_deref()))]
    Kubeconfig {
        /// Its path.
        file: String,
        /// The requested context.
        context: Option<String>,
        /// The problem.
        problem: String,
    },
    /// The in-cluster account cannot be used.
    #[error("the pod's service account cannot be used: {0}; run in a pod that has one, or set kubernetes.kubeconfig")]
    InCluster(String),
    /// The API server did not answer.
    #[error("{origin} does not answer {what}: {why}; check that it runs and that the address is right")]
    Unreachable {
        /// Server, file and context.
        origin: String,
        /// The request: method and path.
        what: String,
        /// The cause.
        why: String,
    },
    /// The API server answered 401.
    #[error("{origin} refused our credentials (401) for {what}: renew the token or certificate")]
    Unauthorized {
        /// Server, file and context.
        origin: String,
        /// The request.
        what: String,
    },
    /// The API server answered 403.
    #[error("{origin} forbids {what}: {why}; grant the right (docs/rbac.yaml)")]
    Forbidden {
        /// Server, file and context.
        origin: String,
        /// The request.
        what: String,
        /// The server's message.
        why: String,
    },
    /// The API server answered with another error.
    #[error("{origin} answered {what} with {code}: {message}")]
    Refused {
        /// Server, file and context.
        origin: String,
        /// The request.
        what: String,
        /// The status code.
        code: u16,
        /// The server's message.
        message: String,
    },
}

fn in_context(context: Option<&str>) -> String {
    context.map_or_else(String::new, |c| format!(", context {c}"))
}

/// Returns the text of an error and of its causes, each once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = inner.source();
    }
    text
}

//! Connections that drivers may use: HTTP to BMCs at allowed addresses, over the network or inside the sandbox, and
//! Kubernetes.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use crate::{
    kubernetes::KubeSettings,
    net::{Allow, Http, Trust},
};

/// Timeout of one request to a BMC.
const REQUEST: Duration = Duration::from_secs(15);

type BuildHttp = dyn Fn(&Trust, &Allow) -> Result<Http, String> + Send + Sync;

/// Source of connections. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    build_http: Arc<BuildHttp>,
    /// Kubernetes with the BareMetalHosts that the file names. It is connected to when a driver needs it.
    pub(super) kube: KubeSettings,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl Connector {
    /// Creates connections over the network.
    pub(super) fn network() -> Self {
        let build_http = |trust: &Trust, allow: &Allow| Http::for_bmc(REQUEST, trust, allow).map_err(|e| e.to_string());
        Self { build_http: Arc::new(build_http), kube: KubeSettings::default() }
    }

    /// Creates connections of the sandbox: `http` answers, and `resolve` gives the addresses of names.
    pub(super) fn in_process(http: Http, resolve: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        let resolve = Arc::new(resolve);
        let build_http = move |_: &Trust, allow: &Allow| {
            let resolve = Arc::clone(&resolve);
            Ok(http.clone().within(Arc::clone(allow), move |name| resolve(name)))
        };
        Self { build_http: Arc::new(build_http), kube: KubeSettings::default() }
    }

    /// Returns a client with this trust that connects to allowed addresses only. Fails for authorities that are no PEM.
    pub(super) fn http(&self, trust: &Trust, allow: &Allow) -> Result<Http, String> {
        (self.build_http)(trust, allow)
    }
}

//! HTTP client for everything but etcd and Kubernetes: probes, registries, BMCs, webhooks. It is reqwest on the
//! network, and the sandbox's simulated machines inside the sandbox.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};

/// Limit of an answer from a probe or a BMC.
const ANSWER_LIMIT: SizeLimit = SizeLimit { bytes: 8 << 20, large: Oversize::Refused };

/// Limit of the bytes read of an answer.
#[derive(Clone, Copy)]
struct SizeLimit {
    bytes: usize,
    large: Oversize,
}

/// Treatment of a larger answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Oversize {
    /// It counts as no answer.
    Refused,
    /// It counts, and the rest is not read.
    Truncated,
}

/// Reason why there is no answer, in a few words for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(pub String);

/// An answer with its complete body, or the reason why there is none.
pub type Answer = Result<Response<Bytes>, NoAnswer>;

/// Certificates that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those of the authorities that the host trusts.
    #[default]
    Host,
    /// Only those of these authorities, as PEM.
    Only(Vec<u8>),
    /// Any certificate: the operator chose not to verify it.
    Anybody,
}

/// Filter of the addresses that a connection may be made to.
pub type Allow = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Refusal to connect to a host, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct NotAllowed(String);

/// Resolver that keeps only the allowed addresses of a host name. A connection is made only to one of these. So a name
/// that resolves differently the next time (DNS rebinding) reaches nothing else.
struct FilteringResolver(Allow);

impl reqwest::dns::Resolve for FilteringResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let allow = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<std::net::SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let kept = allowed(name.as_str(), found.iter().map(std::net::SocketAddr::ip), &allow)?;
            let addresses = kept.into_iter().map(|ip| std::net::SocketAddr::new(ip, 0)).collect::<Vec<_>>();
            let addresses: reqwest::dns::Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

/// Returns the allowed addresses of a host name.
fn allowed(name: &str, found: impl Iterator<Item = IpAddr>, allow: &Allow) -> Result<Vec<IpAddr>, NotAllowed> {
    let found: Vec<IpAddr> = found.collect();
    let kept: Vec<IpAddr> = found.iter().copied().filter(|ip| allow(*ip)).collect();
    if kept.is_empty() {
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        return Err(NotAllowed(format!("{name} resolves to {}, outside the allowed BMC networks", found.join(", "))));
    }
    Ok(kept)
}

/// Refuses a request to an address that is not allowed. It reads the host as reqwest does, which also accepts `0x7f.1`
/// and `2130706433` as addresses. A name is left to the resolver.
fn check_address(request: &reqwest::Request, allow: &Allow) -> Result<(), NotAllowed> {
    let host = request.url().host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) if !allow(ip) => Err(NotAllowed(format!("{ip} is outside the allowed BMC networks"))),
        _ => Ok(()),
    }
}

/// HTTP client. Cheap to clone.
#[derive(Clone)]
pub struct Http(Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Answer> + Send + Sync>);

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

impl Http {
    /// Creates a client for health probes. The certificate is not verified, because a probe checks liveness and not
    /// identity. Redirects are not followed, because another server would answer. Fails only if no client can be
    /// created.
    pub fn for_liveness(timeout: Duration) -> Result<Self, reqwest::Error> {
        // Only the first installation counts; a second one changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .timeout(timeout)
            .pool_max_idle_per_host(1)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        Ok(Self::by(move |request| {
            let client = client.clone();
            Box::pin(async move { execute_request(&client, request, timeout, ANSWER_LIMIT, None).await })
        }))
    }

    /// Creates a client that verifies certificates. An answer that is incomplete at the timeout or larger than `limit`
    /// bytes is an error.
    pub fn verified(timeout: Duration, limit: usize) -> Self {
        Self::lazy(
            move || reqwest::Client::builder().timeout(timeout).pool_max_idle_per_host(1).no_proxy().build(),
            timeout,
            SizeLimit { bytes: limit, large: Oversize::Refused },
            None,
        )
    }

    /// Creates the reqwest client at the first request. Reading the host's authorities takes a megabyte and tens of
    /// milliseconds, which would delay the first screen of a console.
    fn lazy(
        make: impl Fn() -> Result<reqwest::Client, reqwest::Error> + Send + Sync + 'static,
        timeout: Duration,
        limit: SizeLimit,
        allow: Option<Allow>,
    ) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kept = OnceLock::new();
        Self::by(move |request| {
            let client = match kept.get() {
                Some(client) => Ok(reqwest::Client::clone(client)),
                None => make().map(|client| kept.get_or_init(|| client).clone()),
            };
            let allow = allow.clone();
            Box::pin(async move {
                let client = client.map_err(|e| NoAnswer(format!("cannot create an HTTP client: {e}")))?;
                execute_request(&client, request, timeout, limit, allow.as_ref()).await
            })
        })
    }

    /// Creates a client for a BMC at an allowed address. Redirects are not followed, because they could take a password
    /// elsewhere. Fails if no client can be created, and for authorities that are no PEM.
    pub fn for_bmc(timeout: Duration, trust: &Trust, allow: &Allow) -> Result<Self, reqwest::Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let resolver = Arc::new(FilteringResolver(Arc::clone(allow)));
        let builder = move || without_redirects(timeout).dns_resolver(Arc::clone(&resolver));
        let built = match trust {
            Trust::Host => Self::lazy(move || builder().build(), timeout, ANSWER_LIMIT, Some(Arc::clone(allow))),
            Trust::Only(pem) => {
                let client = builder().tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?).build()?;
                Self::with_client(client, timeout, Arc::clone(allow))
            }
            Trust::Anybody => {
                let client = builder().tls_danger_accept_invalid_certs(true).build()?;
                Self::with_client(client, timeout, Arc::clone(allow))
            }
        };
        Ok(built)
    }

    fn with_client(client: reqwest::Client, timeout: Duration, allow: Allow) -> Self {
        Self::by(move |request| {
            let (client, allow) = (client.clone(), Arc::clone(&allow));
            Box::pin(async move { execute_request(&client, request, timeout, ANSWER_LIMIT, Some(&allow)).await })
        })
    }

    /// Creates a client for webhooks. Redirects are not followed, because they could take a secret elsewhere. Reads at
    /// most `limit` bytes of an answer.
    pub fn for_webhooks(timeout: Duration, limit: usize) -> Self {
        Self::lazy(
            move || without_redirects(timeout).build(),
            timeout,
            SizeLimit { bytes: limit, large: Oversize::Truncated },
            None,
        )
    }

    /// Creates a client for queries, which trusts these authorities. Redirects are not followed, because they could take
    /// a token elsewhere. An answer larger than `limit` bytes is an error. Fails if no client can be created, and for
    /// authorities that are no PEM.
    pub fn for_queries(timeout: Duration, limit: usize, trust: &Trust) -> Result<Self, reqwest::Error> {
        let limit = SizeLimit { bytes: limit, large: Oversize::Refused };
        let client = match trust {
            Trust::Host => return Ok(Self::lazy(move || without_redirects(timeout).build(), timeout, limit, None)),
            Trust::Only(pem) => {
                let _ = rustls::crypto::ring::default_provider().install_default();
                without_redirects(timeout).tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?).build()?
            }
            Trust::Anybody => {
                let _ = rustls::crypto::ring::default_provider().install_default();
                without_redirects(timeout).tls_danger_accept_invalid_certs(true).build()?
            }
        };
        Ok(Self::by(move |request| {
            let client = client.clone();
            Box::pin(async move { execute_request(&client, request, timeout, limit, None).await })
        }))
    }

    /// Returns this client with another resolver, for the sandbox, which has no name server. A request to a host
    /// without an allowed address is not sent.
    #[must_use]
    pub fn within(self, allow: Allow, resolve: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self::by(move |request| {
            let host = request.uri().host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let addresses = host.parse::<IpAddr>().map_or_else(|_| resolve(&host), |ip| vec![ip]);
            let checked = allowed(&host, addresses.into_iter(), &allow);
            let inner = self.clone();
            Box::pin(async move {
                checked.map_err(|e| NoAnswer(e.to_string()))?;
                inner.send(request).await
            })
        })
    }

    /// Creates a client from a function that answers, for the sandbox.
    pub fn by(answer: impl Fn(Request<Bytes>) -> BoxFuture<'static, Answer> + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }

    /// Sends one request.
    pub async fn send(&self, request: Request<Bytes>) -> Answer {
        (self.0)(request).await
    }

    /// Sends a GET.
    pub async fn get(&self, url: &str) -> Answer {
        let request = Request::get(url).body(Bytes::new());
        self.send(request.map_err(|e| NoAnswer(format!("{url} is not a URL: {e}")))?).await
    }
}

/// Returns the fault of the certificate, if a connection failed because of it.
fn certificate(error: &reqwest::Error) -> Option<String> {
    let mut cause = std::error::Error::source(error);
    let mut found_reason = None;
    while let Some(inner) = cause {
        let text = inner.to_string();
        if text.contains("certificate") {
            found_reason = Some(text);
        }
        cause = inner.source();
    }
    found_reason
}

fn without_redirects(timeout: Duration) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().timeout(timeout).pool_max_idle_per_host(1).no_proxy();
    builder.redirect(reqwest::redirect::Policy::none())
}

/// Returns the guard's refusal, if a connection was refused.
fn not_allowed_reason(error: &reqwest::Error) -> Option<String> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(not_allowed_reason) = inner.downcast_ref::<NotAllowed>() {
            return Some(not_allowed_reason.to_string());
        }
        cause = inner.source();
    }
    None
}

async fn execute_request(
    client: &reqwest::Client,
    request: Request<Bytes>,
    timeout: Duration,
    limit: SizeLimit,
    allow: Option<&Allow>,
) -> Answer {
    let no_answer = |e: reqwest::Error| {
        NoAnswer(match (e.is_timeout(), e.is_connect()) {
            (true, _) => format!("no answer in {} s", timeout.as_secs()),
            (_, true) => not_allowed_reason(&e)
                .or_else(|| certificate(&e).map(|why| format!("its certificate is not trusted: {why}")))
                .unwrap_or_else(|| "connection refused or unreachable".to_owned()),
            _ => e.without_url().to_string(),
        })
    };
    let request = reqwest::Request::try_from(request).map_err(no_answer)?;
    if let Some(allow) = allow {
        check_address(&request, allow).map_err(|e| NoAnswer(e.to_string()))?;
    }
    let mut answer = client.execute(request).await.map_err(no_answer)?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    let mut body = bytes::BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(no_answer)? {
        let free_bytes = limit.bytes - body.len();
        if chunk.len() > free_bytes {
            if limit.large == Oversize::Refused {
                return Err(NoAnswer(format!("the answer is larger than {} bytes", limit.bytes)));
            }
            body.extend_from_slice(&chunk[..free_bytes]);
            break;
        }
        body.extend_from_slice(&chunk);
    }
    *response.body_mut() = body.freeze();
    Ok(response)
}

#[cfg(test)]
mod tests;

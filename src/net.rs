//! HTTP that is neither etcd nor Kubernetes (probes, registries, BMCs, webhooks) goes through one value: reqwest on the network, the sandbox's machines inside it (DESIGN.md, "The sandbox speaks the real protocols").

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};

/// The largest answer of a probe or a BMC.
const MOST: Most = Most { bytes: 8 << 20, large: Large::Refused };

/// How much is read of an answer.
#[derive(Clone, Copy)]
struct Most {
    bytes: usize,
    large: Large,
}

/// What becomes of an answer that is larger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Large {
    /// It is no answer.
    Refused,
    /// It counts, and the rest is not read.
    Cut,
}

/// Why there is no answer, in a few words for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(pub String);

/// An answer, its body read to the end, or why there is none.
pub type Answer = Result<Response<Bytes>, NoAnswer>;

/// Whose certificates are good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those that the host trusts.
    #[default]
    Host,
    /// Those of these authorities alone, PEM.
    Only(Vec<u8>),
    /// Any: a person chose not to know who answers.
    Anybody,
}

/// Addresses that a connection may be made to.
pub type Allow = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// A host that no connection is made to, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Outside(String);

/// Resolves a host name and keeps the allowed addresses: a connection is made to one of these and to no other, so a name
/// that resolves differently the next time (DNS rebinding) reaches nothing else.
struct Guarded(Allow);

impl reqwest::dns::Resolve for Guarded {
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

/// The allowed ones among the addresses of a host name.
fn allowed(name: &str, found: impl Iterator<Item = IpAddr>, allow: &Allow) -> Result<Vec<IpAddr>, Outside> {
    let found: Vec<IpAddr> = found.collect();
    let kept: Vec<IpAddr> = found.iter().copied().filter(|ip| allow(*ip)).collect();
    if kept.is_empty() {
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        return Err(Outside(format!("{name} resolves to {}, outside the allowed BMC networks", found.join(", "))));
    }
    Ok(kept)
}

/// Refuses a request to an address that is not allowed. Reads the host as the client does, which takes `0x7f.1` and
/// `2130706433` for addresses too. A name is left to the resolver.
fn check_address(request: &reqwest::Request, allow: &Allow) -> Result<(), Outside> {
    let host = request.url().host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) if !allow(ip) => Err(Outside(format!("{ip} is outside the allowed BMC networks"))),
        _ => Ok(()),
    }
}

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub struct Http(Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Answer> + Send + Sync>);

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

impl Http {
    /// Over the network. The certificate is not verified: it is liveness that is asked and not identity. Redirects are not
    /// followed: somebody else would answer. Fails only if no client can be made.
    pub fn for_liveness(timeout: Duration) -> Result<Self, reqwest::Error> {
        // The first one counts; a second call changes nothing.
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
            Box::pin(async move { over_the_network(&client, request, timeout, MOST, None).await })
        }))
    }

    /// Over the network, certificates verified; an answer that is not complete in time or larger than `most` bytes is
    /// none.
    pub fn verified(timeout: Duration, most: usize) -> Self {
        Self::when_asked(
            move || reqwest::Client::builder().timeout(timeout).pool_max_idle_per_host(1).no_proxy().build(),
            timeout,
            Most { bytes: most, large: Large::Refused },
            None,
        )
    }

    /// By a client that is made for the first request: to read whom the host trusts takes tens of milliseconds, in which a
    /// console that starts could show something, and a megabyte.
    fn when_asked(
        make: impl Fn() -> Result<reqwest::Client, reqwest::Error> + Send + Sync + 'static,
        timeout: Duration,
        most: Most,
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
                let client = client.map_err(|e| NoAnswer(format!("no client for it can be made: {e}")))?;
                over_the_network(&client, request, timeout, most, allow.as_ref()).await
            })
        })
    }

    /// Over the network to a BMC at an allowed address. Redirects are not followed: they could take a password elsewhere.
    /// Fails if no client can be made, and for authorities that are no PEM.
    pub fn for_bmc(timeout: Duration, trust: &Trust, allow: &Allow) -> Result<Self, reqwest::Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let resolver = Arc::new(Guarded(Arc::clone(allow)));
        let builder = move || without_redirects(timeout).dns_resolver(Arc::clone(&resolver));
        let whole = match trust {
            Trust::Host => Self::when_asked(move || builder().build(), timeout, MOST, Some(Arc::clone(allow))),
            Trust::Only(pem) => {
                let client = builder().tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?).build()?;
                Self::through(client, timeout, Arc::clone(allow))
            }
            Trust::Anybody => {
                let client = builder().tls_danger_accept_invalid_certs(true).build()?;
                Self::through(client, timeout, Arc::clone(allow))
            }
        };
        Ok(whole)
    }

    fn through(client: reqwest::Client, timeout: Duration, allow: Allow) -> Self {
        Self::by(move |request| {
            let (client, allow) = (client.clone(), Arc::clone(&allow));
            Box::pin(async move { over_the_network(&client, request, timeout, MOST, Some(&allow)).await })
        })
    }

    /// Over the network to a webhook. Redirects are not followed: they could take a secret elsewhere. Reads at most
    /// `most` bytes of an answer.
    pub fn for_webhooks(timeout: Duration, most: usize) -> Self {
        Self::when_asked(
            move || without_redirects(timeout).build(),
            timeout,
            Most { bytes: most, large: Large::Cut },
            None,
        )
    }

    /// The same as this one, for whom a host's addresses are what `resolve` says: the sandbox, which has no name server.
    /// A request to a host without an allowed address is not sent.
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

    /// By whatever answers: the sandbox.
    pub fn by(answer: impl Fn(Request<Bytes>) -> BoxFuture<'static, Answer> + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }

    /// Sends one request.
    pub async fn send(&self, request: Request<Bytes>) -> Answer {
        (self.0)(request).await
    }

    /// A GET.
    pub async fn get(&self, url: &str) -> Answer {
        let request = Request::get(url).body(Bytes::new());
        self.send(request.map_err(|e| NoAnswer(format!("{url} is no URL: {e}")))?).await
    }
}

/// What is wrong with the certificate, where a connection failed for its sake.
fn certificate(error: &reqwest::Error) -> Option<String> {
    let mut cause = std::error::Error::source(error);
    let mut said = None;
    while let Some(inner) = cause {
        let text = inner.to_string();
        if text.contains("certificate") {
            said = Some(text);
        }
        cause = inner.source();
    }
    said
}

fn without_redirects(timeout: Duration) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().timeout(timeout).pool_max_idle_per_host(1).no_proxy();
    builder.redirect(reqwest::redirect::Policy::none())
}

/// The refusal of the guard, where a connection was not made for its sake.
fn outside(error: &reqwest::Error) -> Option<String> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(outside) = inner.downcast_ref::<Outside>() {
            return Some(outside.to_string());
        }
        cause = inner.source();
    }
    None
}

async fn over_the_network(
    client: &reqwest::Client,
    request: Request<Bytes>,
    timeout: Duration,
    most: Most,
    allow: Option<&Allow>,
) -> Answer {
    let say = |e: reqwest::Error| {
        NoAnswer(match (e.is_timeout(), e.is_connect()) {
            (true, _) => format!("no answer in {} s", timeout.as_secs()),
            (_, true) => outside(&e)
                .or_else(|| certificate(&e).map(|why| format!("its certificate is not trusted: {why}")))
                .unwrap_or_else(|| "connection refused or unreachable".to_owned()),
            _ => e.without_url().to_string(),
        })
    };
    let request = reqwest::Request::try_from(request).map_err(say)?;
    if let Some(allow) = allow {
        check_address(&request, allow).map_err(|e| NoAnswer(e.to_string()))?;
    }
    let mut answer = client.execute(request).await.map_err(say)?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    let mut body = bytes::BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(say)? {
        let room = most.bytes - body.len();
        if chunk.len() > room {
            if most.large == Large::Refused {
                return Err(NoAnswer(format!("the answer is larger than {} bytes", most.bytes)));
            }
            body.extend_from_slice(&chunk[..room]);
            break;
        }
        body.extend_from_slice(&chunk);
    }
    *response.body_mut() = body.freeze();
    Ok(response)
}

#[cfg(test)]
mod tests;

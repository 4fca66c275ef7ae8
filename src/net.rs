//! HTTP that is neither etcd nor Kubernetes (probes, registries, BMCs, webhooks) goes through one value: reqwest on the network, the sandbox's machines inside it (DESIGN.md, "The sandbox speaks the real protocols").

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};

/// The largest answer to a probe that is read.
const MOST_BYTES: usize = 8 << 20;

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
            Box::pin(async move { over_the_network(&client, request, timeout, MOST_BYTES).await })
        }))
    }

    /// Over the network, certificates verified; an answer that is not complete in time or larger than `most` bytes is
    /// none.
    pub fn verified(timeout: Duration, most: usize) -> Self {
        Self::when_asked(
            move || reqwest::Client::builder().timeout(timeout).pool_max_idle_per_host(1).no_proxy().build(),
            timeout,
            most,
        )
    }

    /// By a client that is made for the first request: to read whom the host trusts takes tens of milliseconds, in which a
    /// console that starts could show something, and a megabyte.
    fn when_asked(
        make: impl Fn() -> Result<reqwest::Client, reqwest::Error> + Send + Sync + 'static,
        timeout: Duration,
        most: usize,
    ) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kept = OnceLock::new();
        Self::by(move |request| {
            let client = match kept.get() {
                Some(client) => Ok(reqwest::Client::clone(client)),
                None => make().map(|client| kept.get_or_init(|| client).clone()),
            };
            Box::pin(async move {
                let client = client.map_err(|e| NoAnswer(format!("no client for it can be made: {e}")))?;
                over_the_network(&client, request, timeout, most).await
            })
        })
    }

    /// Over the network to a BMC. Redirects are not followed: they could take a password elsewhere. Fails if no client
    /// can be made, and for authorities that are no PEM.
    pub fn for_bmc(timeout: Duration, trust: &Trust) -> Result<Self, reqwest::Error> {
        let builder = move || {
            let builder = reqwest::Client::builder().timeout(timeout).pool_max_idle_per_host(1).no_proxy();
            builder.redirect(reqwest::redirect::Policy::none())
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = match trust {
            Trust::Host => return Ok(Self::when_asked(move || builder().build(), timeout, MOST_BYTES)),
            Trust::Only(pem) => builder().tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?),
            Trust::Anybody => builder().tls_danger_accept_invalid_certs(true),
        };
        let client = client.build()?;
        Ok(Self::by(move |request| {
            let client = client.clone();
            Box::pin(async move { over_the_network(&client, request, timeout, MOST_BYTES).await })
        }))
    }

    /// Over the network to a webhook. Redirects are not followed: they could take a secret elsewhere. Fails only if no
    /// client can be made.
    pub fn for_webhooks(timeout: Duration) -> Result<Self, reqwest::Error> {
        Self::for_bmc(timeout, &Trust::Host)
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

async fn over_the_network(client: &reqwest::Client, request: Request<Bytes>, timeout: Duration, most: usize) -> Answer {
    let say = |e: reqwest::Error| {
        NoAnswer(match (e.is_timeout(), e.is_connect()) {
            (true, _) => format!("no answer in {} s", timeout.as_secs()),
            (_, true) if certificate(&e).is_some() => {
                format!("its certificate is not trusted: {}", certificate(&e).unwrap_or_default())
            }
            (_, true) => "connection refused or unreachable".to_owned(),
            _ => e.without_url().to_string(),
        })
    };
    let request = reqwest::Request::try_from(request).map_err(say)?;
    let mut answer = client.execute(request).await.map_err(say)?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    let mut body = bytes::BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(say)? {
        if body.len() + chunk.len() > most {
            return Err(NoAnswer(format!("the answer is larger than {most} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    *response.body_mut() = body.freeze();
    Ok(response)
}

//! The client's connections. With kube's own, the kernel delays small writes (Nagle's algorithm), so every request with
//! a body waited some 45 ms for the API server's delayed acknowledgement. They also never notice that the other end of
//! a quiet watch is gone. Everything else is as in kube's own stack.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config, Error,
    client::{Body, ConfigExt},
};
use tower::{BoxError, ServiceBuilder};

/// TCP keepalive: idle time before the first probe, interval, and number of probes. A server that vanished is noticed
/// after one minute at the latest.
const ASK_AFTER: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_secs(10);
const ASK_TIMES: u32 = 3;

/// User agent in the API server's audit log.
const AGENT: &str = concat!("cketerm/", env!("CARGO_PKG_VERSION"));

/// Creates a client for this configuration.
pub(super) fn client(mut config: Config) -> Result<Client, Error> {
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(AGENT)));
    if config.proxy_url.is_some() {
        // kube reports which proxies it was built without
        return Client::try_from(config);
    }
    let mut tcp = HttpConnector::new();
    // The scheme is https. The TLS layer wraps this connector.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(ASK_AFTER));
    tcp.set_keepalive_interval(Some(ASK_EVERY));
    tcp.set_keepalive_retries(Some(ASK_TIMES));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http = Http::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configured proxy is used or refused, never bypassed: without it another server may answer.
    #[tokio::test]
    async fn an_unsupported_proxy_is_an_error_and_is_never_bypassed() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let config = || Config::new("https://10.0.0.1:6443".parse().unwrap());
        let mut proxied = config();
        proxied.proxy_url = Some("http://proxy.example:3128".parse().unwrap());
        let Err(error) = client(proxied) else { panic!("the proxy was ignored") };
        assert!(error.to_string().to_lowercase().contains("proxy"), "{error}");
        assert!(client(config()).is_ok());
    }
}

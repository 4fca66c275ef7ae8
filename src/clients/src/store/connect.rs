//! The connection: settings, the client, and the conversion of etcd's errors to messages.

use std::{fmt, sync::Arc, time::Duration};

use cketerm_model::{clock::Clock, secret, stored::keys::Keys};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, KvClient, LeaseClient, TlsOptions, WatchClient};

use super::{error::StoreError, failure::Failure};

/// Endpoints and credentials of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// URLs; `https://` for TLS.
    pub endpoints: Vec<String>,
    /// Prefix of all keys, including its final slash; CKE's default is `/cke/`.
    pub prefix: String,
    /// Timeout of every request.
    pub timeout: Duration,
    /// User name, if etcd requires one.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Certificate of the authority that signed etcd's certificate, as PEM.
    pub tls_ca: Option<Vec<u8>>,
    /// Client certificate, as PEM.
    pub tls_cert: Option<Vec<u8>>,
    /// Key of the client certificate, as PEM.
    pub tls_key: Option<Vec<u8>>,
}

impl Default for EtcdSettings {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "/cke/".to_owned(),
            timeout: Duration::from_secs(2),
            username: None,
            password: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
        }
    }
}

impl EtcdSettings {
    /// Returns the endpoints for display, without users and passwords.
    pub fn masked_endpoints(&self) -> Vec<String> {
        self.endpoints.iter().map(|e| secret::url(e)).collect()
    }
}

impl fmt::Debug for EtcdSettings {
    /// Omits the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSettings")
            .field("endpoints", &self.masked_endpoints())
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("tls_ca", &self.tls_ca.is_some())
            .field("tls_cert", &self.tls_cert.is_some())
            .field("tls_key", &self.tls_key.as_ref().map(|_| "…"))
            .finish()
    }
}

/// Client of etcd below one prefix. Cheap to clone; all clones share the connection.
#[derive(Clone)]
pub struct Store {
    client: Client,
    keys: Keys,
    clock: Clock,
    timeout: Duration,
    endpoints: Arc<[String]>,
    endpoint_list: Arc<str>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("endpoints", &self.endpoint_list)
            .field("prefix", &self.keys.prefix())
            .finish_non_exhaustive()
    }
}

/// Largest accepted answer: a page of 500 attempts with their outputs exceeds gRPC's default of 4 MiB.
const MAX_ANSWER_BYTES: usize = 256 << 20;

impl Store {
    /// Creates the client. It connects on first use, but a user name is checked at once. Ends within the settings'
    /// timeout.
    pub async fn connect(settings: &EtcdSettings, clock: Clock) -> Result<Self, StoreError> {
        let endpoints = checked_endpoints(settings)?;
        match Self::client_for(settings, &endpoints, true).await {
            // Like etcd's own client: a user name is no error if authentication is disabled.
            Err(Failure::Refused(cause)) if cause.contains("authentication is not enabled") => {
                let client = Self::client_for(settings, &endpoints, false).await;
                Self::connected(client, settings, endpoints, clock).await
            }
            client => Self::connected(client, settings, endpoints, clock).await,
        }
    }

    async fn connected(
        client: Result<Client, Failure>,
        settings: &EtcdSettings,
        endpoints: Vec<String>,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        match client {
            Ok(client) => Ok(Self {
                client,
                keys: Keys::new(&settings.prefix),
                clock,
                timeout: settings.timeout,
                endpoint_list: endpoint_list(&endpoints).into(),
                endpoints: endpoints.into(),
            }),
            Err(Failure::NoAnswer { cause, .. }) => Err(unreachable(&endpoints, cause).await),
            Err(Failure::Denied(cause)) => Err(StoreError::Denied {
                endpoints: endpoint_list(&endpoints),
                cause,
                remedy: "check etcd.username and etcd.password".to_owned(),
            }),
            Err(other) => Err(StoreError::Settings(match other {
                Failure::Refused(cause) => cause,
                other => format!("{other:?}"),
            })),
        }
    }

    async fn client_for(settings: &EtcdSettings, endpoints: &[String], user: bool) -> Result<Client, Failure> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(settings.timeout)
            // etcd allows a ping every 5 s, and none without a request under way.
            .with_keep_alive(Duration::from_secs(6), Duration::from_secs(4))
            // A member that is cut off reports an error instead of answering from its own old data.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if endpoints.iter().any(|e| e.starts_with("https://")) {
            options = options.with_tls(tls(settings));
        }
        let mut client = match Client::connect(endpoints, Some(options)).await {
            Ok(client) => client,
            Err(etcd_client::Error::InvalidArgs(text)) => return Err(Failure::Refused(text)),
            Err(etcd_client::Error::InvalidUri(e)) => return Err(Failure::Refused(e.to_string())),
            Err(error) => return Err(error.into()),
        };
        if let (true, Some(name)) = (user, &settings.username) {
            let password = settings.password.clone().unwrap_or_default();
            log_in(&mut client, (name.clone(), password), settings.timeout, endpoints.len()).await?;
        }
        Ok(client)
    }

    /// Creates a store over an existing client, for the sandbox.
    pub fn from_client(client: Client, prefix: &str, clock: Clock) -> Self {
        Self {
            client,
            keys: Keys::new(prefix),
            clock,
            timeout: Duration::from_secs(2),
            endpoints: Arc::default(),
            endpoint_list: "the sandbox".into(),
        }
    }

    /// The keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The client, for requests that have no function here.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Endpoints for messages.
    pub fn endpoints(&self) -> &str {
        &self.endpoint_list
    }

    /// Timeout of every request.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Reports whether more than one endpoint may answer.
    pub(crate) fn has_several_endpoints(&self) -> bool {
        self.endpoints.len() > 1
    }

    pub(crate) fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn watch_client(&self) -> WatchClient {
        self.client.watch_client().max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn lease_client(&self) -> LeaseClient {
        self.client.lease_client()
    }

    /// Returns the error for an etcd that does not answer.
    pub(crate) async fn unreachable(&self, cause: String) -> StoreError {
        unreachable(&self.endpoints, cause).await
    }
}

/// Checks the password, with another endpoint if one is down.
async fn log_in(
    client: &mut Client,
    credentials: (String, String),
    bound: Duration,
    endpoints: usize,
) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let failure = match tokio::time::timeout(bound, client.update_user(Some(credentials.clone()))).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => Failure::from(error),
            Err(_) => Failure::NoAnswer { cause: format!("no answer within {bound:?}"), sent: true },
        };
        match failure {
            // A refused connection is faster than a successful one, so the other endpoints need a moment to connect.
            Failure::NoAnswer { sent: false, .. } if endpoints > 1 && tries < 10 => {
                tokio::time::sleep(Duration::from_millis(10 * tries)).await;
            }
            other => return Err(other),
        }
    }
}

/// Returns the URLs with their scheme; TLS and plain endpoints must not be mixed.
fn checked_endpoints(settings: &EtcdSettings) -> Result<Vec<String>, StoreError> {
    let tls = settings.tls_ca.is_some() || settings.tls_cert.is_some();
    let endpoints: Vec<String> = settings
        .endpoints
        .iter()
        .map(|e| e.trim().trim_end_matches('/'))
        .map(|e| if e.contains("://") { e.to_owned() } else { format!("http{}://{e}", if tls { "s" } else { "" }) })
        .collect();
    if endpoints.is_empty() {
        return Err(StoreError::Settings("no endpoint is given; set etcd.endpoints".to_owned()));
    }
    let secure = endpoints.iter().filter(|e| e.starts_with("https://")).count();
    if secure != 0 && secure != endpoints.len() {
        return Err(StoreError::Settings(format!(
            "{} mixes http and https; use one of them",
            endpoint_list(&endpoints)
        )));
    }
    if let Some(invalid) = endpoints.iter().find(|e| host_and_port(e).is_none()) {
        return Err(StoreError::Settings(format!(
            "{:?} is not an etcd URL; expected http://HOST:2379",
            secret::url(invalid)
        )));
    }
    if settings.tls_cert.is_some() != settings.tls_key.is_some() {
        return Err(StoreError::Settings("tls-cert and tls-key belong together; one of them is missing".to_owned()));
    }
    Ok(endpoints)
}

pub(super) fn tls(settings: &EtcdSettings) -> TlsOptions {
    let mut tls = TlsOptions::new();
    tls = match &settings.tls_ca {
        Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
        None => tls.with_enabled_roots(),
    };
    if let (Some(cert), Some(key)) = (&settings.tls_cert, &settings.tls_key) {
        tls = tls.identity(Identity::from_pem(cert, key));
    }
    tls
}

/// Returns the endpoints for messages, without users and passwords.
fn endpoint_list(endpoints: &[String]) -> String {
    endpoints.iter().map(|e| secret::url(e)).collect::<Vec<_>>().join(", ")
}

fn host_and_port(endpoint: &str) -> Option<(String, u16)> {
    let (scheme, rest) = endpoint.split_once("://")?;
    let authority = rest.split('/').next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let default = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty() && matches!(scheme, "http" | "https")).then(|| (host.to_owned(), port))
}

/// Tries a TCP connection to each endpoint, as an operator would, and returns an error that says what to check.
async fn unreachable(endpoints: &[String], cause: String) -> StoreError {
    let mut cause = cause;
    let mut port_open = false;
    for endpoint in endpoints {
        let Some((host, port)) = host_and_port(endpoint) else { continue };
        let connecting = tokio::net::TcpStream::connect((host.as_str(), port));
        match tokio::time::timeout(Duration::from_millis(500), connecting).await {
            Ok(Ok(_)) => port_open = true,
            Ok(Err(e)) if cause.contains(&e.to_string()) => {}
            Ok(Err(e)) => cause = format!("{cause}; {}: {e}", secret::url(endpoint)),
            Err(_) => cause = format!("{cause}; {}: no TCP connection within 500 ms", secret::url(endpoint)),
        }
    }
    let remedy = match (port_open, cause.contains("certificate")) {
        (_, true) => "check tls-ca and the certificate's names, and this host's clock",
        (true, _) => "its port is open: check http or https, the certificates, and whether it has a leader",
        (false, _) => "check that etcd runs there, etcd.endpoints and the network",
    };
    StoreError::Unreachable { endpoints: endpoint_list(endpoints), cause, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_without_a_scheme_use_https_if_certificates_are_set() {
        let mut settings = EtcdSettings { endpoints: vec!["a:1".to_owned()], ..EtcdSettings::default() };
        assert_eq!(checked_endpoints(&settings).unwrap(), ["http://a:1"]);
        settings.tls_ca = Some(Vec::new());
        assert_eq!(checked_endpoints(&settings).unwrap(), ["https://a:1"]);
    }

    #[test]
    fn invalid_endpoints_are_refused_by_name() {
        for (endpoints, word) in
            [(vec!["ftp://a"], "ftp://a"), (vec!["http://a", "https://b"], "mixes"), (vec![], "no endpoint")]
        {
            let endpoints = endpoints.into_iter().map(str::to_owned).collect();
            let error = checked_endpoints(&EtcdSettings { endpoints, ..EtcdSettings::default() }).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[tokio::test]
    async fn a_login_ends_if_no_endpoint_can_be_reached() {
        let closed_port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let endpoints = vec![closed_port(), closed_port()];
        let settings = EtcdSettings { endpoints, username: Some("u".to_owned()), ..EtcdSettings::default() };
        let connecting =
            Store::connect(&settings, cketerm_runtime::tokio_clock::starting_at(jiff::Timestamp::UNIX_EPOCH));
        let ended = tokio::time::timeout(Duration::from_mins(1), connecting).await.expect("it gives up");
        assert!(matches!(ended, Err(StoreError::Unreachable { .. })), "{ended:?}");
    }

    #[test]
    fn secrets_are_not_printed() {
        let settings = EtcdSettings {
            password: Some("hunter2".to_owned()),
            tls_key: Some(b"KEY".to_vec()),
            ..EtcdSettings::default()
        };
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn host_and_port_are_parsed_from_every_form_of_url() {
        assert_eq!(host_and_port("http://[::1]:2379"), Some(("::1".to_owned(), 2379)));
        assert_eq!(host_and_port("https://etcd.site"), Some(("etcd.site".to_owned(), 443)));
        assert_eq!(host_and_port("http://"), None);
    }
}

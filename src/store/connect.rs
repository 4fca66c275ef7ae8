//! The connection: settings, the client, and etcd's errors turned into sentences.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use etcd_client::{Client, ConnectOptions, KvClient, LeaseClient, WatchClient};

use super::{error::StoreError, keys::Keys};
use crate::clock::Clock;

/// Where etcd is and how we get in.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// URLs; `https://` where TLS is used.
    pub endpoints: Vec<String>,
    /// What all keys begin with; CKE's default is `/cke/`.
    pub prefix: String,
    /// Bound of every request.
    pub timeout: Duration,
    /// User name, where etcd asks for one.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Certificate of the authority that signed etcd's, as PEM.
    pub tls_ca: Option<Vec<u8>>,
    /// Our own certificate, as PEM.
    pub tls_cert: Option<Vec<u8>>,
    /// Its key, as PEM.
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

impl fmt::Debug for EtcdSettings {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSettings")
            .field("endpoints", &self.endpoints)
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

/// etcd below one prefix. Cheap to clone; all clones share the connection.
#[derive(Clone)]
pub struct Store {
    client: Client,
    keys: Keys,
    clock: Clock,
    timeout: Duration,
    endpoints: Arc<str>,
}

/// The largest answer that is taken: a page of 500 attempts with their tails passes gRPC's default of 4 MiB.
const LARGEST_ANSWER: usize = 256 << 20;

impl Store {
    /// Connects when first used, except that a user name is checked at once. Ends within the settings' timeout.
    pub async fn connect(settings: &EtcdSettings, clock: Clock) -> Result<Self, StoreError> {
        let _ = (settings, clock);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// A store over a client that is there already (the sandbox's).
    pub fn from_client(client: Client, prefix: &str, clock: Clock) -> Self {
        Self { client, keys: Keys::new(prefix), clock, timeout: Duration::from_secs(2), endpoints: "sandbox".into() }
    }

    /// The keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The client, for what has no word of its own here.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The endpoints as messages name them.
    pub fn endpoints(&self) -> &str {
        &self.endpoints
    }
}

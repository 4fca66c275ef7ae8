//! Whether this user of etcd can read the objects of Kubernetes, Secrets among them.

use etcd_client::GetOptions;

use super::{connect::Store, error::StoreError, failure::Failure};

/// Folder in which an API server keeps its objects, by default.
const REGISTRY: &str = "/registry/";

/// Access to the objects of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// This etcd has none.
    NoObjects,
    /// etcd does not let this user read them.
    Denied,
    /// This user can read them.
    Readable,
}

impl Store {
    /// Checks with one read whether this user can read objects of Kubernetes. No value is transferred.
    pub async fn exposure(&self) -> Result<Exposure, StoreError> {
        let options = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        match self.get(REGISTRY, options).await {
            Ok(answer) if answer.kvs().is_empty() => Ok(Exposure::NoObjects),
            Ok(_) => Ok(Exposure::Readable),
            Err(Failure::Denied(cause)) if cause.contains("permission") => Ok(Exposure::Denied),
            Err(failure) => Err(self.store_error("check who can read /registry/", failure).await),
        }
    }
}

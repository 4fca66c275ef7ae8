//! Whether this user of etcd can read the objects of Kubernetes, Secrets among them.

use etcd_client::GetOptions;

use super::{connect::Store, error::StoreError, failure::Failure};

/// Folder in which an API server keeps its objects, by default.
pub(super) const REGISTRY: &str = "/registry/";
/// Folders in which API servers keep their objects: by default, and those of `OpenShift`.
const FOLDERS: [&str; 3] = [REGISTRY, "/kubernetes.io/", "kubernetes.io/"];

/// Asks for one key of a folder, without its value.
pub(super) fn one_key() -> GetOptions {
    GetOptions::new().with_prefix().with_limit(1).with_keys_only()
}

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
    /// Checks whether this user can read objects of Kubernetes. No value is transferred.
    pub async fn exposure(&self) -> Result<Exposure, StoreError> {
        let mut found = Exposure::NoObjects;
        for folder in FOLDERS {
            match self.get(folder, one_key()).await {
                Ok(answer) if answer.kvs().is_empty() => {}
                Ok(_) => return Ok(Exposure::Readable),
                Err(Failure::Denied(cause)) if cause.contains("permission") => found = Exposure::Denied,
                Err(failure) => {
                    return Err(self.store_error("check who can read the objects of Kubernetes", failure).await);
                }
            }
        }
        Ok(found)
    }
}

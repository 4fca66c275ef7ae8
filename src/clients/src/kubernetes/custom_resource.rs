//! Custom resources, which a cluster may not have.

use serde::de::IgnoredAny;

use super::{
    call::get,
    connect::Kube,
    error::{Fault, KubeError},
    list::PageHead,
};

/// A custom resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct CustomResource {
    /// Path of its group and version.
    pub(super) group: &'static str,
    /// Path of its list.
    pub(super) path: &'static str,
    /// Message for a cluster without it.
    pub(super) absent: &'static str,
}

impl Kube {
    /// Reports whether the cluster has this resource. A definite no is an answer. Errors: no definite answer, or it has
    /// and the account may not list the objects.
    pub(super) async fn serves(&self, custom: &CustomResource) -> Result<bool, KubeError> {
        let path = format!("{}?limit=1", custom.path);
        let Err(fault) = self.send::<PageHead>(get(&path)).await else { return Ok(true) };
        match &fault {
            Fault::Answered(status) if status.code == 404 => Ok(false),
            // The server checks rights first. Every account may read which kinds exist.
            Fault::Answered(status) if status.code == 403 => match self.send::<IgnoredAny>(get(custom.group)).await {
                Err(Fault::Answered(status)) if status.code == 404 => Ok(false),
                _ => Err(self.custom_error(custom, &path, fault)),
            },
            _ => Err(self.custom_error(custom, &path, fault)),
        }
    }

    /// Returns the error for a failed request. A 404 means that the resource is not installed.
    pub(super) fn custom_error(&self, custom: &CustomResource, path: &str, fault: Fault) -> KubeError {
        match fault {
            Fault::Answered(status) if status.code == 404 => KubeError::Refused {
                origin: self.origin.to_string(),
                what: format!("GET {path}"),
                code: 404,
                message: custom.absent.to_owned(),
            },
            fault => self.error(&format!("GET {path}"), fault),
        }
    }
}

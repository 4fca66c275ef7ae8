//! `MaintenanceRequest`s: reads, the finalizer and the status.

use cketerm_model::{
    fence::Permit,
    maintenance_request::{FINALIZER, RequestRow, RequestSpec, RequestStatus},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    call::{percent_encode, with_body},
    connect::Kube,
    custom_resource::CustomResource,
    error::KubeError,
    nodes::{MERGE_PATCH, WriteError},
    wire::{Meta, Wire},
};

/// Path of the list.
pub(super) const PATH: &str = "/apis/cketerm.io/v1alpha1/maintenancerequests";
/// The kind, which a cluster has once its definition is applied.
pub(super) const MAINTENANCE_REQUESTS: CustomResource = CustomResource {
    group: "/apis/cketerm.io/v1alpha1",
    path: PATH,
    absent: "it has no MaintenanceRequests: apply docs/maintenance-request-crd.yaml, or set the policy maintenance_requests \
             to false",
};

#[derive(Clone, Deserialize)]
pub(super) struct MaintenanceRequest {
    metadata: RequestMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Clone, Deserialize)]
struct RequestMeta {
    #[serde(flatten)]
    meta: Meta,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    finalizers: Vec<String>,
}

impl Wire for MaintenanceRequest {
    fn meta(&self) -> &Meta {
        &self.metadata.meta
    }
}

impl From<MaintenanceRequest> for RequestRow {
    fn from(MaintenanceRequest { metadata, spec, status }: MaintenanceRequest) -> Self {
        let RequestMeta { meta, generation, finalizers } = metadata;
        let spec = serde_json::from_value::<RequestSpec>(spec).map_err(|e| format!("spec: {e}"));
        Self {
            deleting: meta.deleting(),
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation,
            finalizers,
            spec: spec.and_then(|spec| spec.fault().map_or(Ok(spec), Err)),
            status: serde_json::from_value(status).unwrap_or_default(),
        }
    }
}

impl Kube {
    /// Reports whether the cluster has `MaintenanceRequest`s. Errors: no definite answer, or the account may not list them.
    pub async fn serves_maintenance_requests(&self) -> Result<bool, KubeError> {
        self.serves(&MAINTENANCE_REQUESTS).await
    }

    /// Adds the leader's finalizer to a request, or removes it. Errors: [`WriteError::Conflict`] if the object has
    /// changed since `row` was read.
    pub async fn hold_request(&self, _: &Permit, row: &RequestRow, is_held: bool) -> Result<RequestRow, WriteError> {
        let others = row.finalizers.iter().map(String::as_str).filter(|name| *name != FINALIZER);
        let finalizers: Vec<&str> = others.chain(is_held.then_some(FINALIZER)).collect();
        let body = json!({
            "metadata": {"resourceVersion": row.resource_version, "uid": row.uid, "finalizers": finalizers},
        });
        let path = request_path(&row.name);
        Ok(self.send::<MaintenanceRequest>(with_body("PATCH", &path, MERGE_PATCH, &body)).await?.into())
    }

    /// Replaces the status of a request. Errors: as for [`Self::hold_request`].
    pub async fn set_request_status(
        &self,
        _: &Permit,
        row: &RequestRow,
        status: &RequestStatus,
    ) -> Result<RequestRow, WriteError> {
        let body = json!({"metadata": {"resourceVersion": row.resource_version, "uid": row.uid}, "status": status});
        let path = format!("{}/status", request_path(&row.name));
        Ok(self.send::<MaintenanceRequest>(with_body("PATCH", &path, MERGE_PATCH, &body)).await?.into())
    }
}

fn request_path(name: &str) -> String {
    format!("{PATH}/{}", percent_encode(name))
}

//! The subresource `scale` of workloads, which contains only the number of replicas.

use http::Method;
use serde_json::{Value, json};

use super::{
    Api,
    call::{Call, Reply},
    cells,
    patch::{Patch, PatchType},
    path::RequestInfo,
    request_body,
    status_error::StatusError,
};
use crate::kubernetes::ObjectError;

impl Api {
    /// Handles GET, PUT and PATCH of a workload's `scale`.
    pub(super) fn scale(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        let kind = info.kind;
        let found = || {
            let found = self.objects.get(kind, &info.namespace, &info.name);
            found.ok_or_else(|| StatusError::from(ObjectError::not_found(kind, &info.name)))
        };
        let requested = match call.method {
            Method::GET | Method::HEAD => return Ok(Reply::Value(200, scale_of(&*found()?))),
            Method::PUT => request_body::object(call.media(), &call.body, "Scale", "autoscaling")?,
            Method::PATCH => {
                let mut scale = scale_of(&*found()?);
                Patch::read(PatchType::of(call.media())?, &call.body)?.apply(&mut scale)?;
                scale
            }
            _ => return Err(StatusError::no_method()),
        };
        let dry = call.dry_run("UpdateOptions", &Value::Null)?;
        let replicas = requested["spec"]["replicas"].as_u64().unwrap_or(0);
        let version = requested["metadata"]["resourceVersion"].as_str();
        let changed = self.change(info, dry, |object| {
            if version.is_some_and(|version| object["metadata"]["resourceVersion"] != version) {
                return Err(ObjectError::conflict(kind, &info.name, super::write::STALE).into());
            }
            if !object["spec"].is_object() {
                object["spec"] = json!({});
            }
            object["spec"]["replicas"] = json!(replicas);
            Ok(())
        })?;
        Ok(Reply::Value(200, scale_of(&changed)))
    }
}

fn scale_of(object: &Value) -> Value {
    let mut meta = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        meta[field] = object["metadata"][field].clone();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
        "spec": {"replicas": object["spec"]["replicas"]},
        "status": {"replicas": cells::count(&object["status"]["replicas"]),
            "selector": cells::selector(&object["spec"]["selector"])}})
}

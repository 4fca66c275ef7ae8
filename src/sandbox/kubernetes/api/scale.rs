//! The subresource `scale` of workloads, which contains only the number of replicas.

use http::Method;
use serde_json::{Value, json};

use super::{
    Api,
    call::{Call, Reply},
    cells,
    failure::Failure,
    patch::{Form, Patch},
    path::Place,
    shape,
};
use crate::sandbox::kubernetes::Refusal;

impl Api {
    /// Handles GET, PUT and PATCH of a workload's `scale`.
    pub(super) fn scale(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        let kind = place.kind;
        let found = || {
            let found = self.objects.get(kind, &place.namespace, &place.name);
            found.ok_or_else(|| Failure::from(Refusal::not_found(kind, &place.name)))
        };
        let wanted = match call.method {
            Method::GET | Method::HEAD => return Ok(Reply::Value(200, scale_of(&*found()?))),
            Method::PUT => shape::object(call.media(), &call.body, "Scale", "autoscaling")?,
            Method::PATCH => {
                let mut scale = scale_of(&*found()?);
                Patch::read(Form::of(call.media())?, &call.body)?.apply(&mut scale)?;
                scale
            }
            _ => return Err(Failure::no_method()),
        };
        let dry = call.dry_run("UpdateOptions", &Value::Null)?;
        let replicas = wanted["spec"]["replicas"].as_u64().unwrap_or(0);
        let version = wanted["metadata"]["resourceVersion"].as_str();
        let changed = self.change(place, dry, |object| {
            if version.is_some_and(|version| object["metadata"]["resourceVersion"] != version) {
                return Err(Refusal::conflict(kind, &place.name, super::write::STALE).into());
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

//! Creations, updates and patches.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::{
    Api,
    call::{Call, Reply},
    defaults,
    patch::{Patch, PatchType},
    path::RequestInfo,
    request_body,
    status_error::StatusError,
    validate,
};
use crate::kubernetes::{ObjectError, Resource, resource::NAMESPACES};

/// The server's message for a stale resourceVersion.
pub(super) const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Api {
    /// Handles POST on a collection.
    pub(super) fn create(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        let kind = info.kind;
        if !info.name.is_empty() || kind.namespaced && info.namespace.is_empty() {
            return Err(StatusError::no_method());
        }
        let dry = call.dry_run("CreateOptions", &Value::Null)?;
        let object = request_body::object(call.media(), &call.body, kind.kind, request_body::package(kind))?;
        self.create_object(info, object, dry).map(|object| Reply::object(201, kind, object))
    }

    fn create_object(&self, info: &RequestInfo, mut object: Value, dry: bool) -> Result<Arc<Value>, StatusError> {
        let kind = info.kind;
        request_body::check(kind, &mut object)?;
        check_namespace(&object, info)?;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (name, stem) = (text("name"), text("generateName"));
        self.check_namespace_active(kind, &info.namespace, if name.is_empty() { &stem } else { &name })?;
        if name.is_empty() && stem.is_empty() {
            let text = "Required value: name or generateName is required".to_owned();
            return Err(StatusError::invalid_field(kind, "", "FieldValueRequired", "metadata.name", text));
        }
        if name.is_empty() {
            validate::check_name(kind, &format!("{stem}x"))?;
        } else {
            validate::check_name(kind, &name)?;
        }
        validate::check(kind, &object)?;
        let containers = object["spec"]["containers"].as_array().map_or(0, Vec::len);
        if kind.plural == "pods" && containers == 0 {
            let text = "Required value".to_owned();
            return Err(StatusError::invalid_field(kind, &name, "FieldValueRequired", "spec.containers", text));
        }
        if !dry && named_version(&object).is_some_and(|version| version.parse::<u64>().is_ok()) {
            return Err(StatusError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "uid", "selfLink"] {
            if let Some(meta) = object["metadata"].as_object_mut() {
                meta.shift_remove(field);
            }
        }
        defaults::fill(kind, &name, &mut object);
        if !dry {
            return Ok(self.objects.create(kind, &info.namespace, object)?);
        }
        if !name.is_empty() && self.objects.get(kind, &info.namespace, &name).is_some() {
            return Err(ObjectError::exists(kind, &name).into());
        }
        let meta = &mut object["metadata"];
        if name.is_empty() {
            meta["name"] = json!(format!("{stem}bcdfg"));
        }
        if kind.namespaced {
            meta["namespace"] = json!(info.namespace);
        }
        meta["uid"] = json!("00000000-0000-4000-8000-ffffffffffff");
        meta["creationTimestamp"] = json!(self.objects.stamp());
        if kind.generations {
            meta["generation"] = json!(1);
        }
        object["kind"] = json!(kind.kind);
        object["apiVersion"] = json!(kind.api_version());
        Ok(Arc::new(object))
    }

    /// Refuses creations in a namespace that does not exist or is terminating.
    pub(super) fn check_namespace_active(
        &self,
        kind: &'static Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(), StatusError> {
        if namespace.is_empty() {
            return Ok(());
        }
        let Some(open) = self.objects.get(&NAMESPACES, "", namespace) else {
            return Err(ObjectError::not_found(&NAMESPACES, namespace).into());
        };
        if open["status"]["phase"] == "Terminating" || !open["metadata"]["deletionTimestamp"].is_null() {
            return Err(StatusError::terminating(kind, namespace, name));
        }
        Ok(())
    }

    /// Handles PUT.
    pub(super) fn replace(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        let kind = info.kind;
        if info.name.is_empty() || !matches!(info.sub.as_str(), "" | "status" | "finalize") {
            return Err(StatusError::no_method());
        }
        let dry = call.dry_run("UpdateOptions", &Value::Null)?;
        let mut new = request_body::object(call.media(), &call.body, kind.kind, request_body::package(kind))?;
        request_body::check(kind, &mut new)?;
        if info.sub != "finalize" {
            defaults::defaults(kind, &mut new);
        }
        check_name(&new, &info.name)?;
        check_namespace(&new, info)?;
        let upserts = matches!(kind.plural, "leases" | "endpoints" | "events") && info.sub.is_empty();
        if upserts && self.objects.get(kind, &info.namespace, &info.name).is_none() {
            copy_field(&mut new["metadata"], &Value::Null, "resourceVersion");
            return self.create_object(info, new, dry).map(|object| Reply::object(201, kind, object));
        }
        let changed = self.change(info, dry, |old| {
            let meta = &new["metadata"];
            if let Some(uid) = meta["uid"].as_str()
                && old["metadata"]["uid"] != uid
            {
                let why = format!(
                    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
                     Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    etcd_key(info),
                    old["metadata"]["uid"].as_str().unwrap_or_default()
                );
                return Err(ObjectError::conflict(kind, &info.name, &why).into());
            }
            check_version(kind, old, &new, &info.name)?;
            check_finalizers(kind, old, &new, &info.name)?;
            validate::check(kind, &new)?;
            merge(info, old, new)
        })?;
        self.remove_if_finalized(info, dry);
        Ok(Reply::object(200, kind, changed))
    }

    /// Handles PATCH.
    pub(super) fn patch(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        let kind = info.kind;
        if info.name.is_empty() || !matches!(info.sub.as_str(), "" | "status") {
            return Err(StatusError::no_method());
        }
        let patch_type = PatchType::of(call.media())?;
        // Custom resources have no strategic merge, because the merge keys of their lists are unknown.
        if patch_type == PatchType::Strategic && kind.group == "metal3.io" {
            return Err(StatusError::no_patch());
        }
        let dry = call.dry_run("PatchOptions", &Value::Null)?;
        if patch_type == PatchType::Apply && call.query.get("fieldManager").is_empty() {
            let text = "Required value: is required for apply patch".to_owned();
            let field_errors = [("FieldValueRequired", "fieldManager", text)];
            return Err(StatusError::invalid("meta.k8s.io", "PatchOptions", "", &field_errors));
        }
        let patch = Patch::read(patch_type, &call.body)?;
        if patch_type == PatchType::Apply
            && info.sub.is_empty()
            && self.objects.get(kind, &info.namespace, &info.name).is_none()
            && let Patch::Strategic(wanted) = &patch
        {
            let mut object = Value::Object(wanted.clone());
            request_body::check(kind, &mut object)?;
            check_name(&object, &info.name)?;
            copy_field(&mut object["metadata"], &Value::Null, "resourceVersion");
            return self.create_object(info, object, dry).map(|object| Reply::object(201, kind, object));
        }
        let changed = self.change(info, dry, |old| {
            let mut new = old.clone();
            patch.apply(&mut new)?;
            let old_uid = old["metadata"]["uid"].as_str().unwrap_or_default();
            if let Some(uid) = patch.metadata("uid").and_then(Value::as_str).filter(|uid| *uid != old_uid) {
                let text = format!("Invalid value: \"{uid}\": field is immutable");
                return Err(duplicate_error(kind, &info.name, "FieldValueInvalid", "metadata.uid", &text));
            }
            request_body::check(kind, &mut new).map_err(|status_error| invalid_patch_result(&status_error))?;
            check_name(&new, &info.name)?;
            check_namespace(&new, info)?;
            check_version(kind, old, &new, &info.name)?;
            check_finalizers(kind, old, &new, &info.name)?;
            validate::check(kind, &new)?;
            merge(info, old, new)
        })?;
        self.remove_if_finalized(info, dry);
        Ok(Reply::object(200, kind, changed))
    }

    /// Updates an object, or computes the result without storing it (`dry`).
    pub(super) fn change(
        &self,
        info: &RequestInfo,
        dry: bool,
        change: impl FnOnce(&mut Value) -> Result<(), StatusError>,
    ) -> Result<Arc<Value>, StatusError> {
        let mut failed = None;
        let mut dry_run_result = None;
        let result = self.objects.update(info.kind, &info.namespace, &info.name, |object| {
            let stop = || ObjectError::new(0, "", "");
            match change(object) {
                Err(status_error) => {
                    failed = Some(status_error);
                    Err(stop())
                }
                Ok(()) if dry => {
                    dry_run_result = Some(object.clone());
                    Err(stop())
                }
                Ok(()) => Ok(()),
            }
        });
        match (result, failed, dry_run_result) {
            (Ok(object), ..) => Ok(object),
            (_, Some(status_error), _) => Err(status_error),
            (_, _, Some(object)) => Ok(Arc::new(object)),
            (Err(object_error), ..) => Err(object_error.into()),
        }
    }

    /// Removes a terminating namespace after its last finalizer, which is in its spec.
    fn remove_if_finalized(&self, info: &RequestInfo, dry: bool) {
        if dry || info.sub != "finalize" {
            return;
        }
        let held = |list: &Value| list.as_array().is_some_and(|held| !held.is_empty());
        let _ = self.objects.remove(info.kind, &info.namespace, &info.name, |object| {
            let removable = !object["metadata"]["deletionTimestamp"].is_null()
                && !held(&object["spec"]["finalizers"])
                && !held(&object["metadata"]["finalizers"]);
            if removable { Ok(()) } else { Err(ObjectError::new(409, "Conflict", "")) }
        });
    }
}

/// Returns the error for a patch whose result has the wrong shape.
fn invalid_patch_result(status_error: &StatusError) -> StatusError {
    let why = status_error.body["message"].as_str().unwrap_or_default();
    let text = format!("Invalid value: {}", why.split_once(": ").map_or(why, |(_, rest)| rest));
    StatusError::invalid("", "", "", &[("FieldValueInvalid", "patch", text)])
}

/// Returns the etcd key of an object in a kube-apiserver.
fn etcd_key(info: &RequestInfo) -> String {
    let plural = if info.kind.plural == "nodes" { "minions" } else { info.kind.plural };
    [plural, &info.namespace, &info.name]
        .iter()
        .filter(|part| !part.is_empty())
        .fold("/registry".to_owned(), |path, part| format!("{path}/{part}"))
}

fn check_name(object: &Value, name: &str) -> Result<(), StatusError> {
    match object["metadata"]["name"].as_str().unwrap_or_default() {
        "" => {
            let why = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
            Err(StatusError::bad(why))
        }
        is if is == name => Ok(()),
        is => {
            let why = format!("the name of the object ({is}) does not match the name on the URL ({name})");
            Err(StatusError::bad(why))
        }
    }
}

/// Checks the namespace: the object may omit it, but must not contradict the path.
pub(super) fn check_namespace(object: &Value, info: &RequestInfo) -> Result<(), StatusError> {
    let named = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if named.is_empty() || named == info.namespace {
        return Ok(());
    }
    Err(StatusError::bad("the namespace of the provided object does not match the namespace sent on the request"))
}

/// Returns the resourceVersion in an object; `0` counts as none.
fn named_version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str().filter(|version| !matches!(*version, "" | "0"))
}

fn check_version(kind: &'static Resource, old: &Value, new: &Value, name: &str) -> Result<(), StatusError> {
    let Some(version) = named_version(new) else {
        if matches!(kind.group, "policy" | "coordination.k8s.io" | "metal3.io") {
            let text = "Invalid value: 0: must be specified for an update".to_owned();
            let field_errors = [("FieldValueInvalid", "metadata.resourceVersion", text)];
            return Err(StatusError::invalid(kind.group, kind.plural, name, &field_errors));
        }
        return Ok(());
    };
    if old["metadata"]["resourceVersion"] == version {
        return Ok(());
    }
    if version.parse::<u64>().is_err() {
        return Err(StatusError::new(500, "", format!("strconv.ParseUint: parsing \"{version}\": invalid syntax")));
    }
    Err(ObjectError::conflict(kind, name, STALE).into())
}

/// Refuses new finalizers on an object that is being deleted. Removing finalizers is allowed.
fn check_finalizers(kind: &'static Resource, old: &Value, new: &Value, name: &str) -> Result<(), StatusError> {
    if old["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let held = |object: &Value| -> BTreeSet<String> {
        let all = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let added: Vec<String> = held(new).difference(&held(old)).map(|name| format!("{name:?}")).collect();
    if added.is_empty() {
        return Ok(());
    }
    let text = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    Err(duplicate_error(kind, name, "FieldValueForbidden", "metadata.finalizers", &text))
}

/// Returns a metadata fault twice: once from the validation common to all kinds, and once from the kind's own
/// validation.
fn duplicate_error(kind: &'static Resource, name: &str, reason: &str, field: &str, text: &str) -> StatusError {
    let fault = (reason, field, text.to_owned());
    StatusError::invalid(kind.group, kind.kind, name, &[fault.clone(), fault])
}

/// Copies from `new` what this path may change.
fn merge(info: &RequestInfo, old: &mut Value, mut new: Value) -> Result<(), StatusError> {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        copy_field(&mut new["metadata"], &old["metadata"], field);
    }
    match info.sub.as_str() {
        "status" => {
            copy_field(old, &new, "status");
            if matches!(info.kind.group, "" | "policy") {
                copy_field(old, &new, "metadata");
            }
        }
        "finalize" => {
            let held = new["spec"]["finalizers"].take();
            old["spec"] = if held.is_null() { json!({}) } else { json!({"finalizers": held}) };
        }
        _ => {
            if info.kind.status {
                copy_field(&mut new, old, "status");
            }
            match info.kind.plural {
                "namespaces" => copy_field(&mut new, old, "spec"),
                "pods" => check_pod(old, &new, &info.name)?,
                _ => {}
            }
            *old = new;
        }
    }
    Ok(())
}

/// Sets the field of `to` to that of `from`, or removes it.
fn copy_field(to: &mut Value, from: &Value, field: &str) {
    let Value::Object(fields) = to else { return };
    match from.get(field) {
        Some(value) => {
            fields.insert(field.to_owned(), value.clone());
        }
        None => {
            fields.shift_remove(field);
        }
    }
}

/// Refuses changes of a pod's spec, except for the few mutable fields.
fn check_pod(old: &Value, new: &Value, name: &str) -> Result<(), StatusError> {
    let immutable_spec = |object: &Value| {
        let mut spec = object["spec"].clone();
        for field in ["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"] {
            copy_field(&mut spec, &Value::Null, field);
        }
        for field in ["containers", "initContainers"] {
            for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
                copy_field(container, &Value::Null, "image");
            }
        }
        spec
    };
    if immutable_spec(old) == immutable_spec(new) {
        return Ok(());
    }
    let text = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
                `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                previously negative)";
    let pods = &crate::kubernetes::resource::PODS;
    Err(StatusError::invalid_field(pods, name, "FieldValueForbidden", "spec", text.to_owned()))
}

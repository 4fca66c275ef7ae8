//! Creations, updates and patches.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::{
    Api,
    call::{Call, Reply},
    defaults,
    failure::Failure,
    patch::{Form, Patch},
    path::Place,
    shape, validate,
};
use crate::sandbox::kubernetes::{Refusal, Resource, resource::NAMESPACES};

/// The server's message for a stale resourceVersion.
pub(super) const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Api {
    /// Handles POST on a collection.
    pub(super) fn create(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        let kind = place.kind;
        if !place.name.is_empty() || kind.namespaced && place.namespace.is_empty() {
            return Err(Failure::no_method());
        }
        let dry = call.dry_run("CreateOptions", &Value::Null)?;
        let object = shape::object(call.media(), &call.body, kind.kind, shape::package(kind))?;
        self.create_object(place, object, dry).map(|object| Reply::object(201, kind, object))
    }

    fn create_object(&self, place: &Place, mut object: Value, dry: bool) -> Result<Arc<Value>, Failure> {
        let kind = place.kind;
        shape::check(kind, &mut object)?;
        check_namespace(&object, place)?;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (name, stem) = (text("name"), text("generateName"));
        self.check_open(kind, &place.namespace, if name.is_empty() { &stem } else { &name })?;
        if name.is_empty() && stem.is_empty() {
            let text = "Required value: name or generateName is required".to_owned();
            return Err(Failure::invalid_field(kind, "", "FieldValueRequired", "metadata.name", text));
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
            return Err(Failure::invalid_field(kind, &name, "FieldValueRequired", "spec.containers", text));
        }
        if !dry && named_version(&object).is_some_and(|version| version.parse::<u64>().is_ok()) {
            return Err(Failure::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "uid", "selfLink"] {
            if let Some(meta) = object["metadata"].as_object_mut() {
                meta.shift_remove(field);
            }
        }
        defaults::fill(kind, &name, &mut object);
        if !dry {
            return Ok(self.objects.create(kind, &place.namespace, object)?);
        }
        if !name.is_empty() && self.objects.get(kind, &place.namespace, &name).is_some() {
            return Err(Refusal::exists(kind, &name).into());
        }
        let meta = &mut object["metadata"];
        if name.is_empty() {
            meta["name"] = json!(format!("{stem}bcdfg"));
        }
        if kind.namespaced {
            meta["namespace"] = json!(place.namespace);
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
    pub(super) fn check_open(&self, kind: &'static Resource, namespace: &str, name: &str) -> Result<(), Failure> {
        if namespace.is_empty() {
            return Ok(());
        }
        let Some(open) = self.objects.get(&NAMESPACES, "", namespace) else {
            return Err(Refusal::not_found(&NAMESPACES, namespace).into());
        };
        if open["status"]["phase"] == "Terminating" || !open["metadata"]["deletionTimestamp"].is_null() {
            return Err(Failure::terminating(kind, namespace, name));
        }
        Ok(())
    }

    /// Handles PUT.
    pub(super) fn replace(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        let kind = place.kind;
        if place.name.is_empty() || !matches!(place.sub.as_str(), "" | "status" | "finalize") {
            return Err(Failure::no_method());
        }
        let dry = call.dry_run("UpdateOptions", &Value::Null)?;
        let mut new = shape::object(call.media(), &call.body, kind.kind, shape::package(kind))?;
        shape::check(kind, &mut new)?;
        if place.sub != "finalize" {
            defaults::defaults(kind, &mut new);
        }
        check_name(&new, &place.name)?;
        check_namespace(&new, place)?;
        let upserts = matches!(kind.plural, "leases" | "endpoints" | "events") && place.sub.is_empty();
        if upserts && self.objects.get(kind, &place.namespace, &place.name).is_none() {
            keep(&mut new["metadata"], &Value::Null, "resourceVersion");
            return self.create_object(place, new, dry).map(|object| Reply::object(201, kind, object));
        }
        let changed = self.change(place, dry, |old| {
            let meta = &new["metadata"];
            if let Some(uid) = meta["uid"].as_str()
                && old["metadata"]["uid"] != uid
            {
                let why = format!(
                    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
                     Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    registry(place),
                    old["metadata"]["uid"].as_str().unwrap_or_default()
                );
                return Err(Refusal::conflict(kind, &place.name, &why).into());
            }
            check_version(kind, old, &new, &place.name)?;
            check_finalizers(kind, old, &new, &place.name)?;
            validate::check(kind, &new)?;
            merge(place, old, new)
        })?;
        self.finalized(place, dry);
        Ok(Reply::object(200, kind, changed))
    }

    /// Handles PATCH.
    pub(super) fn patch(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        let kind = place.kind;
        if place.name.is_empty() || !matches!(place.sub.as_str(), "" | "status") {
            return Err(Failure::no_method());
        }
        let form = Form::of(call.media())?;
        // Custom resources have no strategic merge, because the merge keys of their lists are unknown.
        if form == Form::Strategic && kind.group == "metal3.io" {
            return Err(Failure::no_patch());
        }
        let dry = call.dry_run("PatchOptions", &Value::Null)?;
        if form == Form::Apply && call.query.get("fieldManager").is_empty() {
            let text = "Required value: is required for apply patch".to_owned();
            let faults = [("FieldValueRequired", "fieldManager", text)];
            return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &faults));
        }
        let patch = Patch::read(form, &call.body)?;
        if form == Form::Apply
            && place.sub.is_empty()
            && self.objects.get(kind, &place.namespace, &place.name).is_none()
            && let Patch::Strategic(wanted) = &patch
        {
            let mut object = Value::Object(wanted.clone());
            shape::check(kind, &mut object)?;
            check_name(&object, &place.name)?;
            keep(&mut object["metadata"], &Value::Null, "resourceVersion");
            return self.create_object(place, object, dry).map(|object| Reply::object(201, kind, object));
        }
        let changed = self.change(place, dry, |old| {
            let mut new = old.clone();
            patch.apply(&mut new)?;
            let was = old["metadata"]["uid"].as_str().unwrap_or_default();
            if let Some(uid) = patch.metadata("uid").and_then(Value::as_str).filter(|uid| *uid != was) {
                let text = format!("Invalid value: \"{uid}\": field is immutable");
                return Err(twice(kind, &place.name, "FieldValueInvalid", "metadata.uid", &text));
            }
            shape::check(kind, &mut new).map_err(|failure| unfit(&failure))?;
            check_name(&new, &place.name)?;
            check_namespace(&new, place)?;
            check_version(kind, old, &new, &place.name)?;
            check_finalizers(kind, old, &new, &place.name)?;
            validate::check(kind, &new)?;
            merge(place, old, new)
        })?;
        self.finalized(place, dry);
        Ok(Reply::object(200, kind, changed))
    }

    /// Updates an object, or computes the result without storing it (`dry`).
    pub(super) fn change(
        &self,
        place: &Place,
        dry: bool,
        change: impl FnOnce(&mut Value) -> Result<(), Failure>,
    ) -> Result<Arc<Value>, Failure> {
        let mut failed = None;
        let mut tried = None;
        let result = self.objects.update(place.kind, &place.namespace, &place.name, |object| {
            let stop = || Refusal::new(0, "", "");
            match change(object) {
                Err(failure) => {
                    failed = Some(failure);
                    Err(stop())
                }
                Ok(()) if dry => {
                    tried = Some(object.clone());
                    Err(stop())
                }
                Ok(()) => Ok(()),
            }
        });
        match (result, failed, tried) {
            (Ok(object), ..) => Ok(object),
            (_, Some(failure), _) => Err(failure),
            (_, _, Some(object)) => Ok(Arc::new(object)),
            (Err(refusal), ..) => Err(refusal.into()),
        }
    }

    /// Removes a terminating namespace after its last finalizer, which is in its spec.
    fn finalized(&self, place: &Place, dry: bool) {
        if dry || place.sub != "finalize" {
            return;
        }
        let held = |list: &Value| list.as_array().is_some_and(|held| !held.is_empty());
        let _ = self.objects.remove(place.kind, &place.namespace, &place.name, |object| {
            let goes = !object["metadata"]["deletionTimestamp"].is_null()
                && !held(&object["spec"]["finalizers"])
                && !held(&object["metadata"]["finalizers"]);
            if goes { Ok(()) } else { Err(Refusal::new(409, "Conflict", "")) }
        });
    }
}

/// Returns the error for a patch whose result has the wrong shape.
fn unfit(failure: &Failure) -> Failure {
    let why = failure.body["message"].as_str().unwrap_or_default();
    let text = format!("Invalid value: {}", why.split_once(": ").map_or(why, |(_, rest)| rest));
    Failure::invalid("", "", "", &[("FieldValueInvalid", "patch", text)])
}

/// Returns the etcd key of an object in a kube-apiserver.
fn registry(place: &Place) -> String {
    let plural = if place.kind.plural == "nodes" { "minions" } else { place.kind.plural };
    [plural, &place.namespace, &place.name]
        .iter()
        .filter(|part| !part.is_empty())
        .fold("/registry".to_owned(), |path, part| format!("{path}/{part}"))
}

fn check_name(object: &Value, name: &str) -> Result<(), Failure> {
    match object["metadata"]["name"].as_str().unwrap_or_default() {
        "" => {
            let why = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
            Err(Failure::bad(why))
        }
        is if is == name => Ok(()),
        is => {
            let why = format!("the name of the object ({is}) does not match the name on the URL ({name})");
            Err(Failure::bad(why))
        }
    }
}

/// Checks the namespace: the object may omit it, but must not contradict the path.
pub(super) fn check_namespace(object: &Value, place: &Place) -> Result<(), Failure> {
    let named = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if named.is_empty() || named == place.namespace {
        return Ok(());
    }
    Err(Failure::bad("the namespace of the provided object does not match the namespace sent on the request"))
}

/// Returns the resourceVersion in an object; `0` counts as none.
fn named_version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str().filter(|version| !matches!(*version, "" | "0"))
}

fn check_version(kind: &'static Resource, old: &Value, new: &Value, name: &str) -> Result<(), Failure> {
    let Some(version) = named_version(new) else {
        if matches!(kind.group, "policy" | "coordination.k8s.io" | "metal3.io") {
            let text = "Invalid value: 0: must be specified for an update".to_owned();
            let faults = [("FieldValueInvalid", "metadata.resourceVersion", text)];
            return Err(Failure::invalid(kind.group, kind.plural, name, &faults));
        }
        return Ok(());
    };
    if old["metadata"]["resourceVersion"] == version {
        return Ok(());
    }
    if version.parse::<u64>().is_err() {
        return Err(Failure::new(500, "", format!("strconv.ParseUint: parsing \"{version}\": invalid syntax")));
    }
    Err(Refusal::conflict(kind, name, STALE).into())
}

/// Refuses new finalizers on an object that is being deleted. Removing finalizers is allowed.
fn check_finalizers(kind: &'static Resource, old: &Value, new: &Value, name: &str) -> Result<(), Failure> {
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
    Err(twice(kind, name, "FieldValueForbidden", "metadata.finalizers", &text))
}

/// Returns a metadata fault twice: once from the validation common to all kinds, and once from the kind's own
/// validation.
fn twice(kind: &'static Resource, name: &str, reason: &str, field: &str, text: &str) -> Failure {
    let fault = (reason, field, text.to_owned());
    Failure::invalid(kind.group, kind.kind, name, &[fault.clone(), fault])
}

/// Copies from `new` what this path may change.
fn merge(place: &Place, old: &mut Value, mut new: Value) -> Result<(), Failure> {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        keep(&mut new["metadata"], &old["metadata"], field);
    }
    match place.sub.as_str() {
        "status" => {
            keep(old, &new, "status");
            if matches!(place.kind.group, "" | "policy") {
                keep(old, &new, "metadata");
            }
        }
        "finalize" => {
            let held = new["spec"]["finalizers"].take();
            old["spec"] = if held.is_null() { json!({}) } else { json!({"finalizers": held}) };
        }
        _ => {
            if place.kind.status {
                keep(&mut new, old, "status");
            }
            match place.kind.plural {
                "namespaces" => keep(&mut new, old, "spec"),
                "pods" => check_pod(old, &new, &place.name)?,
                _ => {}
            }
            *old = new;
        }
    }
    Ok(())
}

/// Sets the field of `to` to that of `from`, or removes it.
fn keep(to: &mut Value, from: &Value, field: &str) {
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
fn check_pod(old: &Value, new: &Value, name: &str) -> Result<(), Failure> {
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        for field in ["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"] {
            keep(&mut spec, &Value::Null, field);
        }
        for field in ["containers", "initContainers"] {
            for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
                keep(container, &Value::Null, "image");
            }
        }
        spec
    };
    if fixed(old) == fixed(new) {
        return Ok(());
    }
    let text = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
                `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                previously negative)";
    let pods = &crate::sandbox::kubernetes::resource::PODS;
    Err(Failure::invalid_field(pods, name, "FieldValueForbidden", "spec", text.to_owned()))
}

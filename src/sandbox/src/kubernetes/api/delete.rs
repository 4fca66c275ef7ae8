//! Deletions: immediate, with a grace period, or after finalizers.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Api,
    call::{Call, Reply},
    path::RequestInfo,
    request_body,
    status_error::StatusError,
};
use crate::kubernetes::{
    ObjectError, Resource,
    resource::{JOBS, NAMESPACES},
};

/// Finalizers of the garbage collector: one deletes the dependants first, the other orphans them first.
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// Namespaces that cannot be deleted.
const UNDELETABLE_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// `DeleteOptions`, from the body and the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) dry: bool,
    /// Grace period in seconds.
    pub(super) grace: Option<i64>,
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    propagation: PropagationPolicy,
}

/// Treatment of dependants (`propagationPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PropagationPolicy {
    /// Not specified.
    #[default]
    Unspecified,
    /// Dependants are deleted after the object.
    Background,
    /// Dependants are deleted before the object.
    Foreground,
    /// Dependants stay.
    Orphan,
}

impl Options {
    /// Reads options from a value that has their fields.
    pub(super) fn read(call: &Call, value: &Value) -> Result<Self, StatusError> {
        let policy = match value["propagationPolicy"].as_str() {
            Some(policy) => policy,
            None => call.query.get("propagationPolicy"),
        };
        let propagation = match (policy, value["orphanDependents"].as_bool()) {
            ("Foreground", _) => PropagationPolicy::Foreground,
            ("Background", _) | ("", Some(false)) => PropagationPolicy::Background,
            ("Orphan", _) | ("", Some(true)) => PropagationPolicy::Orphan,
            ("", None) => PropagationPolicy::Unspecified,
            _ => {
                let supported = "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                let text = format!("Unsupported value: \"{policy}\": {supported}");
                let field_errors = [("FieldValueNotSupported", "propagationPolicy", text)];
                return Err(StatusError::invalid("meta.k8s.io", "DeleteOptions", "", &field_errors));
            }
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let preconditions = &value["preconditions"];
        let grace = match value["gracePeriodSeconds"].as_i64() {
            Some(seconds) => Some(seconds),
            None => call.query.number("gracePeriodSeconds")?,
        };
        Ok(Self {
            dry: call.dry_run("DeleteOptions", &value["dryRun"])?,
            grace: grace.map(at_least_a_second),
            uid: text(&preconditions["uid"]),
            version: text(&preconditions["resourceVersion"]),
            propagation,
        })
    }

    /// Returns options for the object with this UID, with the object's own grace period.
    pub(super) fn of_uid(uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), ..Self::default() }
    }

    fn of(call: &Call) -> Result<Self, StatusError> {
        if call.body.is_empty() {
            return Self::read(call, &Value::Null);
        }
        let value = request_body::parse(call.media(), &call.body).map_err(|status_error| {
            if status_error.code == 415 {
                return status_error;
            }
            let why = status_error.body["message"].as_str().unwrap_or_default();
            StatusError::bad(format!("couldn't get version/kind; {why}"))
        })?;
        Self::read(call, &value)
    }

    /// Checks the preconditions: UID and resourceVersion.
    pub(super) fn check(&self, kind: &'static Resource, name: &str, object: &Value) -> Result<(), StatusError> {
        let is = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != is("uid")) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
                 been deleted and then recreated",
                is("uid")
            );
            return Err(StatusError::precondition(kind, name, &why));
        }
        if let Some(version) = self.version.as_deref().filter(|v| *v != is("resourceVersion")) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({}). The object might have been modified",
                is("resourceVersion")
            );
            return Err(StatusError::precondition(kind, name, &why));
        }
        Ok(())
    }
}

impl PropagationPolicy {
    /// Sets the finalizer for what the garbage collector must do before the object is removed.
    fn set_finalizer(self, kind: &'static Resource, object: &mut Value) {
        let held = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let has = |finalizer: &str| held.iter().any(|f| f == finalizer);
        let finalizer = match self {
            Self::Background => None,
            Self::Foreground => Some(FOREGROUND),
            Self::Orphan => Some(ORPHAN),
            Self::Unspecified if has(ORPHAN) => Some(ORPHAN),
            Self::Unspecified if has(FOREGROUND) => Some(FOREGROUND),
            // By default Jobs orphan their pods, for compatibility.
            Self::Unspecified => (kind == &JOBS).then_some(ORPHAN),
        };
        let mut finalizers: Vec<Value> = held.into_iter().filter(|f| f != FOREGROUND && f != ORPHAN).collect();
        finalizers.extend(finalizer.map(|f| json!(f)));
        if let Some(meta) = object["metadata"].as_object_mut() {
            if finalizers.is_empty() {
                meta.shift_remove("finalizers");
            } else {
                meta.insert("finalizers".to_owned(), json!(finalizers));
            }
        }
    }
}

/// Result of a deletion.
pub(super) struct Deleted {
    /// Current or last state of the object.
    pub(super) object: Arc<Value>,
    /// Whether the object still exists.
    pub(super) still_exists: bool,
}

impl Api {
    /// Handles DELETE.
    pub(super) fn delete(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        if !info.sub.is_empty() {
            return Err(StatusError::no_method());
        }
        let options = Options::of(call)?;
        if info.name.is_empty() {
            return self.delete_all(call, info, &options);
        }
        let Deleted { object, still_exists } = self.delete_one(info, &options)?;
        if still_exists || info.kind.plural == "pods" {
            return Ok(Reply::object(200, info.kind, object));
        }
        let mut details = json!({"name": info.name});
        if !info.kind.group.is_empty() {
            details["group"] = json!(info.kind.group);
        }
        details["kind"] = json!(info.kind.plural);
        details["uid"] = object["metadata"]["uid"].clone();
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details});
        Ok(Reply::Value(200, status))
    }

    fn delete_all(&self, call: &Call, info: &RequestInfo, options: &Options) -> Result<Reply, StatusError> {
        if info.kind == &NAMESPACES {
            return Err(StatusError::no_method());
        }
        let selection = call.selection(info)?;
        let page = self.objects.page(info.kind, &info.namespace, None, 0, None, |o| selection.matches(o));
        let page = page.unwrap_or_default();
        for object in &page.items {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let one = RequestInfo { namespace: text("namespace"), name: text("name"), ..info.clone() };
            match self.delete_one(&one, options) {
                // Another client has already deleted it.
                Err(status_error) if status_error.code == 404 => {}
                other => drop(other?),
            }
        }
        Ok(Reply::List { kind: info.kind, page, next: None, counted: false })
    }

    /// Deletes an object, as far as its grace period and its finalizers allow.
    pub(super) fn delete_one(&self, info: &RequestInfo, options: &Options) -> Result<Deleted, StatusError> {
        let kind = info.kind;
        if kind == &NAMESPACES && UNDELETABLE_NAMESPACES.contains(&info.name.as_str()) {
            return Err(StatusError::forbidden(kind, &info.name, "this namespace may not be deleted"));
        }
        let graceful = kind.plural == "pods" || kind == &NAMESPACES;
        let mut still_exists = true;
        let now = self.objects.stamp();
        let object = self.change(info, options.dry, |object| {
            options.check(kind, &info.name, object)?;
            options.propagation.set_finalizer(kind, object);
            let held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            match kind.plural {
                "pods" => begin_pod_deletion(object, options.grace, &now),
                "namespaces" => begin_namespace_deletion(object, &now),
                _ if held && object["metadata"]["deletionTimestamp"].is_null() => {
                    object["metadata"]["deletionTimestamp"] = json!(now);
                    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                }
                _ => {}
            }
            still_exists = held || graceful && object["metadata"]["deletionGracePeriodSeconds"] != 0;
            Ok(())
        })?;
        if still_exists || options.dry {
            return Ok(Deleted { object, still_exists });
        }
        let uid = &object["metadata"]["uid"];
        let removed = self.objects.remove(kind, &info.namespace, &info.name, |found| {
            if found["metadata"]["uid"] == *uid { Ok(()) } else { Err(ObjectError::not_found(kind, &info.name)) }
        })?;
        Ok(Deleted { object: removed, still_exists: false })
    }
}

/// Returns one second for a negative grace period. A server before 1.21 took it for "at once".
fn at_least_a_second(grace: i64) -> i64 {
    if grace < 0 { 1 } else { grace }
}

/// Begins the deletion of a pod. The kubelet has the grace period, unless no container runs. A second deletion can only
/// shorten the grace period.
fn begin_pod_deletion(pod: &mut Value, requested: Option<i64>, now: &str) {
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let default_grace = || pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let meta = &pod["metadata"];
    let (from, grace) = match meta["deletionTimestamp"].as_str() {
        None if !bound || finished => (now.to_owned(), 0),
        None => (now.to_owned(), requested.unwrap_or_else(|| at_least_a_second(default_grace()))),
        Some(at) => {
            let left = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            let Some(shorter) = requested.filter(|grace| *grace < left) else { return };
            (later(at, -left), shorter)
        }
    };
    pod["metadata"]["deletionTimestamp"] = json!(later(&from, grace));
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
}

/// Returns a time plus these seconds, or the time itself if it cannot be parsed.
fn later(stamp: &str, seconds: i64) -> String {
    let moved = stamp.parse::<Timestamp>().ok().and_then(|t| t.checked_add(SignedDuration::from_secs(seconds)).ok());
    moved.map_or_else(|| stamp.to_owned(), |t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Begins the deletion of a namespace. It stays until a controller has emptied it.
fn begin_namespace_deletion(namespace: &mut Value, now: &str) {
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        namespace["metadata"]["deletionTimestamp"] = json!(now);
    }
    if !namespace["status"].is_object() {
        namespace["status"] = json!({});
    }
    namespace["status"]["phase"] = json!("Terminating");
}

//! Deletions: immediate, with a grace period, or after finalizers.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Api,
    call::{Call, Reply},
    failure::Failure,
    path::Place,
    shape,
};
use crate::sandbox::kubernetes::{
    Refusal, Resource,
    resource::{JOBS, NAMESPACES},
};

/// Finalizers of the garbage collector: one deletes the dependants first, the other orphans them first.
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// `DeleteOptions`, from the body and the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) dry: bool,
    /// Grace period in seconds.
    pub(super) grace: Option<i64>,
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    dependants: Dependants,
}

/// Treatment of dependants (`propagationPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Dependants {
    /// Not specified.
    #[default]
    Unsaid,
    /// Dependants are deleted after the object.
    Background,
    /// Dependants are deleted before the object.
    Foreground,
    /// Dependants stay.
    Orphan,
}

impl Options {
    /// Reads options from a value that has their fields.
    pub(super) fn read(call: &Call, value: &Value) -> Result<Self, Failure> {
        let policy = match value["propagationPolicy"].as_str() {
            Some(policy) => policy,
            None => call.query.get("propagationPolicy"),
        };
        let dependants = match (policy, value["orphanDependents"].as_bool()) {
            ("Foreground", _) => Dependants::Foreground,
            ("Background", _) | ("", Some(false)) => Dependants::Background,
            ("Orphan", _) | ("", Some(true)) => Dependants::Orphan,
            ("", None) => Dependants::Unsaid,
            _ => {
                let supported = "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                let text = format!("Unsupported value: \"{policy}\": {supported}");
                let faults = [("FieldValueNotSupported", "propagationPolicy", text)];
                return Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", &faults));
            }
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let asked = &value["preconditions"];
        let grace = match value["gracePeriodSeconds"].as_i64() {
            Some(seconds) => Some(seconds),
            None => call.query.number("gracePeriodSeconds")?,
        };
        Ok(Self {
            dry: call.dry_run("DeleteOptions", &value["dryRun"])?,
            grace: grace.map(at_least_a_second),
            uid: text(&asked["uid"]),
            version: text(&asked["resourceVersion"]),
            dependants,
        })
    }

    /// Returns options for the object with this UID, with the object's own grace period.
    pub(super) fn of_uid(uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), ..Self::default() }
    }

    fn of(call: &Call) -> Result<Self, Failure> {
        if call.body.is_empty() {
            return Self::read(call, &Value::Null);
        }
        let value = shape::parse(call.media(), &call.body).map_err(|failure| {
            if failure.code == 415 {
                return failure;
            }
            let why = failure.body["message"].as_str().unwrap_or_default();
            Failure::bad(format!("couldn't get version/kind; {why}"))
        })?;
        Self::read(call, &value)
    }

    /// Checks the preconditions: UID and resourceVersion.
    pub(super) fn check(&self, kind: &'static Resource, name: &str, object: &Value) -> Result<(), Failure> {
        let is = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != is("uid")) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
                 been deleted and then recreated",
                is("uid")
            );
            return Err(Failure::precondition(kind, name, &why));
        }
        if let Some(version) = self.version.as_deref().filter(|v| *v != is("resourceVersion")) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({}). The object might have been modified",
                is("resourceVersion")
            );
            return Err(Failure::precondition(kind, name, &why));
        }
        Ok(())
    }
}

impl Dependants {
    /// Sets the finalizer for what the garbage collector must do before the object is removed.
    fn hold(self, kind: &'static Resource, object: &mut Value) {
        let held = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let has = |finalizer: &str| held.iter().any(|f| f == finalizer);
        let finalizer = match self {
            Self::Background => None,
            Self::Foreground => Some(FOREGROUND),
            Self::Orphan => Some(ORPHAN),
            Self::Unsaid if has(ORPHAN) => Some(ORPHAN),
            Self::Unsaid if has(FOREGROUND) => Some(FOREGROUND),
            // By default Jobs orphan their pods, for compatibility.
            Self::Unsaid => (kind == &JOBS).then_some(ORPHAN),
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
    pub(super) stays: bool,
}

impl Api {
    /// Handles DELETE.
    pub(super) fn delete(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        if !place.sub.is_empty() {
            return Err(Failure::no_method());
        }
        let options = Options::of(call)?;
        if place.name.is_empty() {
            return self.delete_all(call, place, &options);
        }
        let Deleted { object, stays } = self.delete_one(place, &options)?;
        if stays || place.kind.plural == "pods" {
            return Ok(Reply::object(200, place.kind, object));
        }
        let mut details = json!({"name": place.name});
        if !place.kind.group.is_empty() {
            details["group"] = json!(place.kind.group);
        }
        details["kind"] = json!(place.kind.plural);
        details["uid"] = object["metadata"]["uid"].clone();
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details});
        Ok(Reply::Value(200, status))
    }

    fn delete_all(&self, call: &Call, place: &Place, options: &Options) -> Result<Reply, Failure> {
        if place.kind == &NAMESPACES {
            return Err(Failure::no_method());
        }
        let selection = call.selection(place)?;
        let page = self.objects.page(place.kind, &place.namespace, None, 0, None, |o| selection.matches(o));
        let page = page.unwrap_or_default();
        for object in &page.items {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let one = Place { namespace: text("namespace"), name: text("name"), ..place.clone() };
            match self.delete_one(&one, options) {
                // Another client has already deleted it.
                Err(failure) if failure.code == 404 => {}
                other => drop(other?),
            }
        }
        Ok(Reply::List { kind: place.kind, page, next: None, counted: false })
    }

    /// Deletes an object, as far as its grace period and its finalizers allow.
    pub(super) fn delete_one(&self, place: &Place, options: &Options) -> Result<Deleted, Failure> {
        let kind = place.kind;
        if kind == &NAMESPACES && IMMORTAL.contains(&place.name.as_str()) {
            return Err(Failure::forbidden(kind, &place.name, "this namespace may not be deleted"));
        }
        let graceful = kind.plural == "pods" || kind == &NAMESPACES;
        let mut stays = true;
        let now = self.objects.stamp();
        let object = self.change(place, options.dry, |object| {
            options.check(kind, &place.name, object)?;
            options.dependants.hold(kind, object);
            let held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            match kind.plural {
                "pods" => end_pod(object, options.grace, &now),
                "namespaces" => end_namespace(object, &now),
                _ if held && object["metadata"]["deletionTimestamp"].is_null() => {
                    object["metadata"]["deletionTimestamp"] = json!(now);
                    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                }
                _ => {}
            }
            stays = held || graceful && object["metadata"]["deletionGracePeriodSeconds"] != 0;
            Ok(())
        })?;
        if stays || options.dry {
            return Ok(Deleted { object, stays });
        }
        let uid = &object["metadata"]["uid"];
        let removed = self.objects.remove(kind, &place.namespace, &place.name, |found| {
            if found["metadata"]["uid"] == *uid { Ok(()) } else { Err(Refusal::not_found(kind, &place.name)) }
        })?;
        Ok(Deleted { object: removed, stays: false })
    }
}

/// Returns one second for a negative grace period. A server before 1.21 took it for "at once".
fn at_least_a_second(grace: i64) -> i64 {
    if grace < 0 { 1 } else { grace }
}

/// Begins the deletion of a pod. The kubelet has the grace period, unless no container runs. A second deletion can only
/// shorten the grace period.
fn end_pod(pod: &mut Value, asked: Option<i64>, now: &str) {
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let own = || pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let meta = &pod["metadata"];
    let (from, grace) = match meta["deletionTimestamp"].as_str() {
        None if !bound || over => (now.to_owned(), 0),
        None => (now.to_owned(), asked.unwrap_or_else(|| at_least_a_second(own()))),
        Some(at) => {
            let left = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            let Some(shorter) = asked.filter(|grace| *grace < left) else { return };
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
fn end_namespace(namespace: &mut Value, now: &str) {
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        namespace["metadata"]["deletionTimestamp"] = json!(now);
    }
    if !namespace["status"].is_object() {
        namespace["status"] = json!({});
    }
    namespace["status"]["phase"] = json!("Terminating");
}

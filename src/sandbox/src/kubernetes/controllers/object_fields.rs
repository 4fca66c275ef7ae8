//! Fields of objects that controllers read and write.

use std::collections::BTreeMap;

use cketerm_model::selector::Selector;
use serde_json::{Value, json};

/// Annotation of a pod that never terminates (`true`).
pub const STUCK: &str = "sandbox.cketerm.io/stuck";
/// Annotation of a pod that runs but is never Ready (`true`).
pub const NEVER_READY: &str = "sandbox.cketerm.io/never-ready";
/// Annotation with the seconds that a pod runs before it succeeds.
pub const RUNS: &str = "sandbox.cketerm.io/runs-seconds";
/// Annotation with the seconds that a pod takes to stop, if that differs from the pace's.
pub const STOPS: &str = "sandbox.cketerm.io/stops-seconds";
/// Annotation of a static pod's mirror.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Returns a string value; empty if there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    text(&object["metadata"]["annotations"][name])
}

pub(super) fn labels(object: &Value) -> BTreeMap<String, String> {
    let of = object["metadata"]["labels"].as_object();
    of.into_iter().flatten().map(|(k, v)| (k.clone(), text(v).to_owned())).collect()
}

/// Reports whether the object's labels contain all of `wanted` (a `nodeSelector`).
pub(super) fn has_labels(object: &Value, wanted: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    wanted.as_object().into_iter().flatten().all(|(k, v)| labels.get(k) == Some(v))
}

/// Parses a label selector. Returns `None` if it is missing or invalid.
pub(super) fn selector(value: &Value) -> Option<Selector> {
    serde_json::from_value(value.clone()).ok().filter(|_| !value.is_null())
}

pub(super) fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub(super) fn finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty())
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// Returns the status of a condition: `True`, `False`, `Unknown`, or empty.
pub(super) fn condition_status<'a>(object: &'a Value, kind: &str) -> &'a str {
    condition(object, kind).map_or("", |c| text(&c["status"]))
}

/// Sets a condition. Its transition time changes only with its status.
pub(super) fn set_condition(object: &mut Value, stamp: &str, kind: &str, status: &str, reason: &str, message: &str) {
    let before = condition(object, kind).cloned().unwrap_or(Value::Null);
    let since = if before["status"] == status { before["lastTransitionTime"].clone() } else { json!(stamp) };
    let mut new = json!({"type": kind, "status": status, "lastTransitionTime": since});
    for (field, words) in [("reason", reason), ("message", message)] {
        if !words.is_empty() {
            new[field] = json!(words);
        }
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    match object["status"]["conditions"].as_array_mut() {
        Some(all) => match all.iter_mut().find(|c| c["type"] == kind) {
            Some(old) => *old = new,
            None => all.push(new),
        },
        None => object["status"]["conditions"] = json!([new]),
    }
}

/// Returns the owner reference with `controller: true`.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|o| o["controller"] == true)
}

/// Returns a controller reference to `owner`.
pub(crate) fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}

/// Returns a pod from the template in the owner's spec. `name` is a whole name, or a prefix that ends in `-`.
pub(crate) fn from_template(owner: &Value, name: &str) -> Value {
    let template = &owner["spec"]["template"];
    let mut meta = json!({});
    meta[if name.ends_with('-') { "generateName" } else { "name" }] = json!(name);
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            meta[field] = template["metadata"][field].clone();
        }
    }
    meta["ownerReferences"] = json!([reference(owner)]);
    let mut spec = template["spec"].clone();
    if !spec.is_object() {
        spec = json!({});
    }
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("schedulerName", json!("default-scheduler")),
    ] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    json!({"metadata": meta, "spec": spec, "status": {"phase": "Pending", "qosClass": "BestEffort"}})
}

/// Returns a number, or a percentage (`"30%"`, rounded up) of `total`.
pub(super) fn scaled(value: &Value, total: i64) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let percent: i64 = text(value).strip_suffix('%').and_then(|p| p.parse().ok()).unwrap_or(0);
    (total * percent + 99).div_euclid(100)
}

/// Returns a short hash of a template, the same for the same text (FNV-1a).
pub(super) fn hash(value: &Value) -> String {
    let sum = value
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{:010x}", sum >> 24)
}

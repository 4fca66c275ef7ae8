//! Request bodies with objects: parsing, shape checks, and fields that the server adds.

use serde_json::{Map, Value, json};

use super::{envelope, status_error::StatusError};
use crate::kubernetes::{Resource, resource::ALL};

/// Returns Go's name for the type of a value.
pub(super) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns a parse error with Go's message.
pub(super) fn go_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    let position = match text.as_str() {
        s if s.starts_with("key must be a string") => "looking for beginning of object key string",
        s if s.starts_with("expected `:`") => "after object key",
        s if s.starts_with("expected `,` or `}`") => "after object key:value pair",
        s if s.starts_with("expected `,` or `]`") => "after array element",
        s if s.starts_with("trailing characters") => "after top-level value",
        _ => "looking for beginning of value",
    };
    let line = body.split(|b| *b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let at = line.get(error.column().saturating_sub(1)).copied().unwrap_or(b' ');
    format!("invalid character '{}' {position}", char::from(at))
}

/// Parses a body as JSON, YAML or protobuf, by its media type. An empty media type means JSON.
pub(super) fn parse(media: &str, body: &[u8]) -> Result<Value, StatusError> {
    match media {
        "" | "application/json" => serde_json::from_slice(body)
            .map_err(|e| StatusError::bad(format!("json parse error: {}", go_error(body, &e)))),
        envelope::MEDIA => envelope::read(body),
        "application/yaml" => {
            serde_yaml::from_slice(body).map_err(|e| StatusError::bad(format!("yaml parse error: {e}")))
        }
        _ => Err(StatusError::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Parses a body that must be an object of `kind`, from the Go package `package`.
pub(super) fn object(media: &str, body: &[u8], kind: &str, package: &str) -> Result<Value, StatusError> {
    let decode_error = |why: &str, tail: &str| {
        let must = format!("the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; ");
        StatusError::bad(format!("{must}{why} ({tail})"))
    };
    let value = parse(media, body).map_err(|status_error| {
        if status_error.code == 415 {
            return status_error;
        }
        let tail = if body.is_empty() { "<empty>".to_owned() } else { String::from_utf8_lossy(body).into_owned() };
        decode_error(status_error.body["message"].as_str().unwrap_or_default(), &tail)
    })?;
    let Value::Object(fields) = &value else {
        let what = go_kind(&value);
        let into =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        return Err(decode_error(
            &format!("json parse error: json: cannot unmarshal {what} into Go value of type {into}"),
            &String::from_utf8_lossy(body),
        ));
    };
    let found_kind = fields.get("kind").and_then(Value::as_str).unwrap_or(kind);
    if found_kind != kind {
        let version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or("v1");
        let why = match ALL.iter().find(|r| r.kind == found_kind) {
            Some(other) => {
                let bare = version.rsplit('/').next().unwrap_or(version);
                format!("converting ({bare}.{}) to ({package}.{kind}): unknown conversion", other.kind)
            }
            None => format!(
                "no kind \"{found_kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            ),
        };
        return Err(StatusError::bad(format!(
            "{found_kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
        )));
    }
    if let Some(version) = fields.get("apiVersion").and_then(Value::as_str).filter(|v| !served(kind, v)) {
        return Err(StatusError::bad(format!(
            "{kind} in version \"{bare}\" cannot be handled as a {kind}: no kind \"{kind}\" is registered for version \
             \"{version}\" in scheme \"pkg/runtime/scheme.go:111\"",
            bare = version.rsplit('/').next().unwrap_or(version)
        )));
    }
    Ok(value)
}

/// Reports whether a kind is served in this version. For kinds that are sent but never stored, any version is accepted.
fn served(kind: &str, version: &str) -> bool {
    let mut all = ALL.iter().filter(|r| r.kind == kind).peekable();
    all.peek().is_none() || version.is_empty() || all.any(|r| r.api_version() == version)
}

/// Returns the Go package of a kind's group.
pub(super) fn package(kind: &Resource) -> &'static str {
    if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or(kind.group) }
}

/// Checks the types of all fields that the server uses. Afterwards `metadata` is an object and nothing is `null`.
pub(super) fn check(kind: &'static Resource, object: &mut Value) -> Result<(), StatusError> {
    let type_error = |value: &Value, field: &str, into: &str| {
        StatusError::bad(format!(
            "{0} in version \"{1}\" cannot be handled as a {0}: json: cannot unmarshal {2} into Go struct field \
             {0}.{field} of type {into}",
            kind.kind,
            kind.version,
            go_kind(value)
        ))
    };
    // For custom resources it is unknown which empty lists may be omitted.
    prune(object, kind.group != "metal3.io");
    let Value::Object(fields) = object else { return Err(type_error(object, "", "v1.ObjectMeta")) };
    let meta = fields.entry("metadata").or_insert_with(|| json!({}));
    let Value::Object(meta) = meta else { return Err(type_error(meta, "metadata", "v1.ObjectMeta")) };
    for (field, value) in meta.iter() {
        let valid = match field.as_str() {
            "labels" | "annotations" => value.as_object().is_some_and(|m| m.values().all(Value::is_string)),
            "finalizers" => value.as_array().is_some_and(|a| a.iter().all(Value::is_string)),
            "ownerReferences" | "managedFields" => value.as_array().is_some_and(|a| a.iter().all(Value::is_object)),
            "generation" | "deletionGracePeriodSeconds" => value.is_i64() || value.is_u64(),
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "selfLink" | "creationTimestamp"
            | "deletionTimestamp" => value.is_string(),
            _ => true,
        };
        if !valid {
            return Err(type_error(value, &format!("metadata.{field}"), "string"));
        }
    }
    // Empty fields are omitted, as by Go's encoder.
    meta.retain(|field, value| field == "name" || !empty(value));
    meta.shift_remove("managedFields");
    for field in ["spec", "status"] {
        if let Some(value) = fields.get(field).filter(|v| !v.is_object()) {
            return Err(type_error(value, field, &format!("{}.{}", kind.version, kind.kind)));
        }
    }
    match kind.plural {
        "nodes" => check_node(fields, &type_error)?,
        "pods" => check_pod(fields, &type_error)?,
        _ => {}
    }
    Ok(())
}

type TypeErrorFn<'a> = &'a dyn Fn(&Value, &str, &str) -> StatusError;

fn check_node(fields: &mut Map<String, Value>, type_error: TypeErrorFn<'_>) -> Result<(), StatusError> {
    let Some(Value::Object(spec)) = fields.get_mut("spec") else { return Ok(()) };
    if let Some(value) = spec.get("unschedulable").filter(|v| !v.is_boolean()) {
        return Err(type_error(value, "spec.unschedulable", "bool"));
    }
    spec.retain(|field, value| field != "unschedulable" || value == &json!(true));
    if let Some(value) = spec.get("taints").filter(|v| !v.is_array()) {
        return Err(type_error(value, "spec.taints", "[]v1.Taint"));
    }
    for taint in spec.get("taints").and_then(Value::as_array).into_iter().flatten() {
        if !taint.is_object() {
            return Err(type_error(taint, "spec.taints", "v1.Taint"));
        }
    }
    Ok(())
}

fn check_pod(fields: &mut Map<String, Value>, type_error: TypeErrorFn<'_>) -> Result<(), StatusError> {
    let Some(Value::Object(spec)) = fields.get("spec") else { return Ok(()) };
    for (field, value) in spec {
        let valid = match field.as_str() {
            "nodeName" | "restartPolicy" | "dnsPolicy" | "schedulerName" => value.is_string(),
            "containers" | "initContainers" => value.as_array().is_some_and(|a| a.iter().all(Value::is_object)),
            "terminationGracePeriodSeconds" => value.is_i64(),
            _ => true,
        };
        if !valid {
            return Err(type_error(value, &format!("spec.{field}"), "v1.PodSpec"));
        }
    }
    Ok(())
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Removes every `null` field and, if `lists` is set, every empty list. Go's encoder keeps only a few of them.
fn prune(value: &mut Value, lists: bool) {
    let stays = |field: &str, value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !lists || !list.is_empty() || matches!(field, "containers" | "endpoints"),
        _ => true,
    };
    match value {
        Value::Object(fields) => {
            fields.retain(|field, value| stays(field, value));
            fields.values_mut().for_each(|value| prune(value, lists));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| prune(value, lists)),
        _ => {}
    }
}

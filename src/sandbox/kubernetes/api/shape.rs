//! Bodies that are objects: read, checked for their shape, and filled in with what the server adds.

use serde_json::{Map, Value, json};

use super::failure::Failure;
use crate::sandbox::kubernetes::{Resource, resource::ALL};

/// What a label's or an annotation's key must be.
const KEY_WORDS: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                         with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
/// What a label's value must be.
const VALUE_WORDS: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                           '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                           'my_value',  or '12345', regex used for validation is \
                           '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What Go's decoder calls the kind of a value.
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

/// A parse error as Go words it.
pub(super) fn go_words(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let said = error.to_string();
    let place = match said.as_str() {
        s if s.starts_with("key must be a string") => "looking for beginning of object key string",
        s if s.starts_with("expected `:`") => "after object key",
        s if s.starts_with("expected `,` or `}`") => "after object key:value pair",
        s if s.starts_with("expected `,` or `]`") => "after array element",
        s if s.starts_with("trailing characters") => "after top-level value",
        _ => "looking for beginning of value",
    };
    let line = body.split(|b| *b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let at = line.get(error.column().saturating_sub(1)).copied().unwrap_or(b' ');
    format!("invalid character '{}' {place}", char::from(at))
}

/// Reads the body of a request as JSON or YAML by its media type; empty is JSON too.
pub(super) fn parse(media: &str, body: &[u8]) -> Result<Value, Failure> {
    match media {
        "" | "application/json" => {
            serde_json::from_slice(body).map_err(|e| Failure::bad(format!("json parse error: {}", go_words(body, &e))))
        }
        "application/yaml" => serde_yaml::from_slice(body).map_err(|e| Failure::bad(format!("yaml parse error: {e}"))),
        _ => Err(Failure::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Reads a body that must be an object of `kind`, known to the server by `package` (its Go package).
pub(super) fn object(media: &str, body: &[u8], kind: &str, package: &str) -> Result<Value, Failure> {
    let unread = |why: &str, tail: &str| {
        let must = format!("the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; ");
        Failure::bad(format!("{must}{why} ({tail})"))
    };
    let value = parse(media, body).map_err(|failure| {
        if failure.code == 415 {
            return failure;
        }
        let tail = if body.is_empty() { "<empty>".to_owned() } else { String::from_utf8_lossy(body).into_owned() };
        unread(failure.body["message"].as_str().unwrap_or_default(), &tail)
    })?;
    let Value::Object(fields) = &value else {
        let what = go_kind(&value);
        let into =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        return Err(unread(
            &format!("json parse error: json: cannot unmarshal {what} into Go value of type {into}"),
            &String::from_utf8_lossy(body),
        ));
    };
    let said = fields.get("kind").and_then(Value::as_str).unwrap_or(kind);
    if said != kind {
        let version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or("v1");
        let why = match ALL.iter().find(|r| r.kind == said) {
            Some(other) => {
                let bare = version.rsplit('/').next().unwrap_or(version);
                format!("converting ({bare}.{}) to ({package}.{kind}): unknown conversion", other.kind)
            }
            None => format!(
                "no kind \"{said}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            ),
        };
        return Err(Failure::bad(format!("{said} in version \"{version}\" cannot be handled as a {kind}: {why}")));
    }
    Ok(value)
}

/// The Go package of a kind's group.
pub(super) fn package(kind: &Resource) -> &'static str {
    if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or(kind.group) }
}

/// Whether every field that the server looks into has the right type; after it, `metadata` is an object and nothing
/// is `null`.
pub(super) fn check(kind: &'static Resource, object: &mut Value) -> Result<(), Failure> {
    let wrong = |value: &Value, field: &str, into: &str| {
        Failure::bad(format!(
            "{0} in version \"{1}\" cannot be handled as a {0}: json: cannot unmarshal {2} into Go struct field \
             {0}.{field} of type {into}",
            kind.kind,
            kind.version,
            go_kind(value)
        ))
    };
    prune(object);
    let Value::Object(fields) = object else { return Err(wrong(object, "", "v1.ObjectMeta")) };
    let meta = fields.entry("metadata").or_insert_with(|| json!({}));
    let Value::Object(meta) = meta else { return Err(wrong(meta, "metadata", "v1.ObjectMeta")) };
    for (field, value) in meta.iter() {
        let right = match field.as_str() {
            "labels" | "annotations" => value.as_object().is_some_and(|m| m.values().all(Value::is_string)),
            "finalizers" => value.as_array().is_some_and(|a| a.iter().all(Value::is_string)),
            "ownerReferences" | "managedFields" => value.as_array().is_some_and(|a| a.iter().all(Value::is_object)),
            "generation" | "deletionGracePeriodSeconds" => value.is_i64() || value.is_u64(),
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "selfLink" | "creationTimestamp"
            | "deletionTimestamp" => value.is_string(),
            _ => true,
        };
        if !right {
            return Err(wrong(value, &format!("metadata.{field}"), "string"));
        }
    }
    // What is empty is left out, as Go's encoder does.
    meta.retain(|field, value| field == "name" || !empty(value));
    meta.shift_remove("managedFields");
    for field in ["spec", "status"] {
        if let Some(value) = fields.get(field).filter(|v| !v.is_object()) {
            return Err(wrong(value, field, &format!("{}.{}", kind.version, kind.kind)));
        }
    }
    match kind.plural {
        "nodes" => check_node(fields, &wrong)?,
        "pods" => check_pod(fields, &wrong)?,
        _ => {}
    }
    Ok(())
}

type Wrong<'a> = &'a dyn Fn(&Value, &str, &str) -> Failure;

fn check_node(fields: &mut Map<String, Value>, wrong: Wrong<'_>) -> Result<(), Failure> {
    let Some(Value::Object(spec)) = fields.get_mut("spec") else { return Ok(()) };
    if let Some(value) = spec.get("unschedulable").filter(|v| !v.is_boolean()) {
        return Err(wrong(value, "spec.unschedulable", "bool"));
    }
    spec.retain(|field, value| match field.as_str() {
        "unschedulable" => value == &json!(true),
        "taints" => !empty(value),
        _ => true,
    });
    for taint in spec.get("taints").and_then(Value::as_array).into_iter().flatten() {
        if !taint.is_object() {
            return Err(wrong(taint, "spec.taints", "v1.Taint"));
        }
    }
    Ok(())
}

fn check_pod(fields: &mut Map<String, Value>, wrong: Wrong<'_>) -> Result<(), Failure> {
    let Some(Value::Object(spec)) = fields.get("spec") else { return Ok(()) };
    for (field, value) in spec {
        let right = match field.as_str() {
            "nodeName" | "restartPolicy" | "dnsPolicy" | "schedulerName" => value.is_string(),
            "containers" | "initContainers" => value.as_array().is_some_and(|a| a.iter().all(Value::is_object)),
            "terminationGracePeriodSeconds" => value.is_i64(),
            _ => true,
        };
        if !right {
            return Err(wrong(value, &format!("spec.{field}"), "v1.PodSpec"));
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

/// Takes out every field that is `null`.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(prune);
        }
        Value::Array(list) => list.iter_mut().for_each(prune),
        _ => {}
    }
}

/// Whether labels and the keys of annotations are what they may be; the first fault is told.
pub(super) fn check_words(kind: &'static Resource, object: &Value) -> Result<(), Failure> {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let word = |text: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.len() <= 63
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    for field in ["labels", "annotations"] {
        for (key, value) in meta[field].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            let why = if !word(key.rsplit('/').next().unwrap_or(key)) {
                format!("\"{key}\": {KEY_WORDS}")
            } else if field == "labels" && !value.is_empty() && !word(value) {
                format!("\"{value}\": {VALUE_WORDS}")
            } else {
                continue;
            };
            let (field, text) = (format!("metadata.{field}"), format!("Invalid value: {why}"));
            return Err(Failure::invalid_field(kind, name, "FieldValueInvalid", &field, text));
        }
    }
    Ok(())
}

/// Whether this may be a name: words of lower case letters and digits, joined by `-` and, unless it is a namespace, by
/// dots.
pub(super) fn check_name(kind: &'static Resource, name: &str) -> Result<(), Failure> {
    let word = |w: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = w.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    let label = kind.plural == "namespaces";
    let right = if label { word(name) && name.len() <= 63 } else { name.split('.').all(word) && name.len() <= 253 };
    if right {
        return Ok(());
    }
    let why = if label {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
         with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    } else {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
         and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    };
    let text = format!("Invalid value: \"{name}\": {why}");
    Err(Failure::invalid_field(kind, name, "FieldValueInvalid", "metadata.name", text))
}

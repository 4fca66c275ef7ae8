//! Validation of an object of the right shape: names, labels, and constraints of its kind.

use serde_json::Value;

use super::status_error::StatusError;
use crate::kubernetes::{Resource, resource::BUDGETS};

/// The server's rule for the key of a label or an annotation.
const KEY_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                         with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
/// The server's rule for the value of a label.
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                           '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                           'my_value',  or '12345', regex used for validation is \
                           '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Validates an object's labels and annotations, and the constraints of its kind. Returns the first fault.
pub(super) fn check(kind: &'static Resource, object: &Value) -> Result<(), StatusError> {
    check_labels(kind, object)?;
    let spec = &object["spec"];
    if kind == &BUDGETS && !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let text = format!("Invalid value: {spec}: minAvailable and maxUnavailable cannot be both set");
        return Err(StatusError::invalid_field(kind, name, "FieldValueInvalid", "spec", text));
    }
    Ok(())
}

/// Returns the fault of a label's key, if any. A key is a word, or a domain, a slash and a word.
pub(super) fn key_error(key: &str) -> Option<&'static str> {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let valid = is_qualified_name(name) && domain.is_none_or(|d| d.len() <= 253 && d.split('.').all(is_dns_label));
    (!valid).then_some(KEY_RULE)
}

/// Returns the fault of a label's value, if any.
pub(super) fn value_error(value: &str) -> Option<&'static str> {
    (!value.is_empty() && !is_qualified_name(value)).then_some(VALUE_RULE)
}

fn is_qualified_name(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Reports whether this is one part of a domain.
fn is_dns_label(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn check_labels(kind: &'static Resource, object: &Value) -> Result<(), StatusError> {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    for field in ["labels", "annotations"] {
        for (key, value) in meta[field].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            // Keys of annotations may contain capital letters.
            let low = key.to_lowercase();
            let why = if let Some(why) = key_error(if field == "labels" { key } else { &low }) {
                format!("\"{key}\": {why}")
            } else if let Some(why) = value_error(value).filter(|_| field == "labels") {
                format!("\"{value}\": {why}")
            } else {
                continue;
            };
            let (field, text) = (format!("metadata.{field}"), format!("Invalid value: {why}"));
            return Err(StatusError::invalid_field(kind, name, "FieldValueInvalid", &field, text));
        }
    }
    Ok(())
}

/// Validates a name: words of lower case letters and digits, joined by `-` and, unless it is a namespace, by dots.
pub(super) fn check_name(kind: &'static Resource, name: &str) -> Result<(), StatusError> {
    let label = kind.plural == "namespaces";
    let valid = if label {
        is_dns_label(name) && name.len() <= 63
    } else {
        name.split('.').all(is_dns_label) && name.len() <= 253
    };
    if valid {
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
    Err(StatusError::invalid_field(kind, name, "FieldValueInvalid", "metadata.name", text))
}

//! A failed request as a `Status` object with kube-apiserver's messages.

use serde_json::{Value, json};

use crate::kubernetes::{ObjectError, Resource};

/// HTTP status code and response body.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatusError {
    pub(super) code: u16,
    /// A `Status`, or a string for a plain-text response.
    pub(super) body: Value,
    /// Seconds for the header `Retry-After`.
    pub(super) retry_after: Option<u64>,
}

impl From<ObjectError> for StatusError {
    fn from(object_error: ObjectError) -> Self {
        let retry_after = object_error.retry_after.map(u64::from);
        Self { code: object_error.code, body: object_error.status(), retry_after }
    }
}

impl StatusError {
    /// Creates a failure without details. An empty reason is omitted, as the server omits an unknown one.
    pub(super) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message});
        if !reason.is_empty() {
            body["reason"] = json!(reason);
        }
        body["code"] = json!(code);
        Self { code, body, retry_after: None }
    }

    /// Adds `details`.
    fn with(mut self, details: Value) -> Self {
        self.body["details"] = details;
        self
    }

    /// Returns 400.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns 500.
    pub(super) fn internal(why: &str) -> Self {
        let details = json!({"causes": [{"message": why}]});
        Self::new(500, "InternalError", format!("Internal error occurred: {why}")).with(details)
    }

    /// Returns 404 in plain text, for a path that is not served.
    pub(super) fn no_page() -> Self {
        Self { code: 404, body: json!("404 page not found\n"), retry_after: None }
    }

    /// Returns 404 for a kind or subresource that does not exist.
    pub(super) fn no_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    /// Returns 405.
    pub(super) fn no_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with(json!({}))
    }

    /// Returns 415 for a patch.
    pub(super) fn no_patch() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with(json!({}))
    }

    /// Returns 422 for a JSON patch that cannot be applied.
    pub(super) fn rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message).with(json!({}))
    }

    /// Returns 422 for invalid fields of an object, or of options (group `meta.k8s.io`). Each fault consists of a
    /// reason, a field and a message.
    pub(super) fn invalid(group: &str, kind: &str, name: &str, field_errors: &[(&str, &str, String)]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut messages: Vec<String> =
            field_errors.iter().map(|(_, field, text)| format!("{field}: {text}")).collect();
        // A fault that two validations found occurs twice in the causes, but once in the message.
        messages.dedup();
        let all = match messages.as_slice() {
            [one] => one.clone(),
            more => format!("[{}]", more.join(", ")),
        };
        let mut details = json!({});
        for (field, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details[field] = json!(value);
            }
        }
        details["causes"] = field_errors
            .iter()
            .map(|(reason, field, text)| json!({"reason": reason, "message": text, "field": field}))
            .collect();
        Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {all}")).with(details)
    }

    /// Returns 422 for one field of an object of that kind.
    pub(super) fn invalid_field(kind: &'static Resource, name: &str, reason: &str, field: &str, text: String) -> Self {
        Self::invalid(kind.group, kind.kind, name, &[(reason, field, text)])
    }

    /// Returns 409 for a failed precondition of a deletion. It names the kind instead of the resource.
    pub(super) fn precondition(kind: &'static Resource, name: &str, why: &str) -> Self {
        let qualified =
            if kind.group.is_empty() { kind.kind.to_owned() } else { format!("{}.{}", kind.kind, kind.group) };
        let mut details = json!({"name": name});
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        details["kind"] = json!(kind.kind);
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}"))
            .with(details)
    }

    /// Returns 403 for an object.
    pub(super) fn forbidden(kind: &'static Resource, name: &str, why: &str) -> Self {
        let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let mut details = json!({});
        for (field, value) in [("name", name), ("group", kind.group), ("kind", kind.plural)] {
            if !value.is_empty() {
                details[field] = json!(value);
            }
        }
        Self::new(403, "Forbidden", format!("{}{named} is forbidden: {why}", kind.qualified())).with(details)
    }

    /// Returns 401 for an unknown token.
    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Returns 403 for a path that does not belong to an object.
    pub(super) fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
        Self::new(403, "Forbidden", message).with(json!({}))
    }

    /// Returns 403 for a creation in a terminating namespace.
    pub(super) fn terminating(kind: &'static Resource, namespace: &str, name: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status_error = Self::forbidden(kind, name, &why);
        status_error.body["details"]["causes"] = json!([{"reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"}]);
        status_error
    }

    /// Returns 410: the requested revision is compacted.
    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Returns 504: the client has seen a newer resourceVersion than this server.
    pub(super) fn too_large(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let details = json!({"causes": [{"reason": "ResourceVersionTooLarge",
            "message": "Too large resource version"}], "retryAfterSeconds": 1});
        Self { retry_after: Some(1), ..Self::new(504, "Timeout", message).with(details) }
    }
}

//! A request that is not carried out, as the `Status` that says so in kube-apiserver's words.

use serde_json::{Value, json};

use crate::sandbox::kubernetes::{Refusal, Resource};

/// An HTTP code and the body that comes with it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) code: u16,
    /// `Status`, or a string for an answer in plain text.
    pub(super) body: Value,
    /// Seconds for the header `Retry-After`.
    pub(super) retry_after: Option<u64>,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let retry_after = refusal.retry_after.map(u64::from);
        Self { code: refusal.code, body: refusal.status(), retry_after }
    }
}

impl Failure {
    /// One without details; an empty reason is left out, as the server leaves out an unknown one.
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

    /// The same with `details`.
    fn with(mut self, details: Value) -> Self {
        self.body["details"] = details;
        self
    }

    /// 400.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 500.
    pub(super) fn internal(why: &str) -> Self {
        let details = json!({"causes": [{"message": why}]});
        Self::new(500, "InternalError", format!("Internal error occurred: {why}")).with(details)
    }

    /// 404 in plain text: a path that nobody serves.
    pub(super) fn no_page() -> Self {
        Self { code: 404, body: json!("404 page not found\n"), retry_after: None }
    }

    /// 404 for a kind or subresource that does not exist.
    pub(super) fn no_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    /// 405.
    pub(super) fn no_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with(json!({}))
    }

    /// 415 for a patch.
    pub(super) fn no_patch() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with(json!({}))
    }

    /// 422 for a JSON patch that cannot be applied.
    pub(super) fn rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message).with(json!({}))
    }

    /// 422 for fields of an object, or of options (group `meta.k8s.io`). Each fault is a reason, a field and a message.
    pub(super) fn invalid(group: &str, kind: &str, name: &str, faults: &[(&str, &str, String)]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut said: Vec<String> = faults.iter().map(|(_, field, text)| format!("{field}: {text}")).collect();
        // A fault that two validations found is a cause twice, and said once.
        said.dedup();
        let all = match said.as_slice() {
            [one] => one.clone(),
            more => format!("[{}]", more.join(", ")),
        };
        let mut details = json!({});
        for (field, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details[field] = json!(value);
            }
        }
        details["causes"] = faults
            .iter()
            .map(|(reason, field, text)| json!({"reason": reason, "message": text, "field": field}))
            .collect();
        Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {all}")).with(details)
    }

    /// 422 for one field of an object of that kind.
    pub(super) fn invalid_field(kind: &'static Resource, name: &str, reason: &str, field: &str, text: String) -> Self {
        Self::invalid(kind.group, kind.kind, name, &[(reason, field, text)])
    }

    /// 409 for preconditions of a deletion, which name the kind and not the resource.
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

    /// 403 for an object.
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

    /// 401: a token that nobody knows.
    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for a path that is no object's.
    pub(super) fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
        Self::new(403, "Forbidden", message).with(json!({}))
    }

    /// 403 for something new in a namespace that is going away.
    pub(super) fn terminating(kind: &'static Resource, namespace: &str, name: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Self::forbidden(kind, name, &why);
        failure.body["details"]["causes"] = json!([{"reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"}]);
        failure
    }

    /// 410: the history is forgotten.
    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 504: the client has seen a newer state than ours.
    pub(super) fn too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let details = json!({"causes": [{"reason": "ResourceVersionTooLarge",
            "message": "Too large resource version"}], "retryAfterSeconds": 1});
        Self { retry_after: Some(1), ..Self::new(504, "Timeout", message).with(details) }
    }
}

//! Why a request is not carried out: what becomes a `Status` on the wire.

use serde_json::{Value, json};

use super::Resource;

/// A failure with its HTTP code and its words, as kube-apiserver says them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `reason` of the Status.
    pub reason: &'static str,
    /// `message` of the Status.
    pub message: String,
    /// `details.causes`: reason and message.
    pub causes: Vec<(&'static str, String)>,
    /// `details.name`, `group`, `kind`, where an object is meant.
    pub object: Option<(&'static Resource, String)>,
    /// Seconds: `details.retryAfterSeconds` and the header `Retry-After`.
    pub retry_after: Option<u32>,
}

impl Refusal {
    /// One without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), causes: Vec::new(), object: None, retry_after: None }
    }

    /// 404 for an object.
    pub fn not_found(resource: &'static Resource, name: &str) -> Self {
        Self::about(404, "NotFound", resource, name, format!("{} \"{name}\" not found", resource.qualified()))
    }

    /// 409 for one that exists.
    pub fn exists(resource: &'static Resource, name: &str) -> Self {
        let text = format!("{} \"{name}\" already exists", resource.qualified());
        Self::about(409, "AlreadyExists", resource, name, text)
    }

    /// 409 for a stale resourceVersion or another UID.
    pub fn conflict(resource: &'static Resource, name: &str, why: &str) -> Self {
        let text = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::about(409, "Conflict", resource, name, text)
    }

    /// One about an object.
    pub fn about(code: u16, reason: &'static str, resource: &'static Resource, name: &str, message: String) -> Self {
        Self { object: Some((resource, name.to_owned())), ..Self::new(code, reason, message) }
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason,
        });
        let mut details = json!({});
        if let Some((resource, name)) = &self.object {
            details["name"] = json!(name);
            if !resource.group.is_empty() {
                details["group"] = json!(resource.group);
            }
            details["kind"] = json!(resource.plural);
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|(reason, message)| json!({"reason": reason, "message": message}));
            details["causes"] = causes.collect();
        }
        if let Some(seconds) = self.retry_after {
            details["retryAfterSeconds"] = json!(seconds);
        }
        if details.as_object().is_some_and(|d| !d.is_empty()) {
            status["details"] = details;
        }
        status["code"] = json!(self.code);
        status
    }
}

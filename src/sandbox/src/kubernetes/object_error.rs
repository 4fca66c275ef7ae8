//! Errors that become a `Status` on the wire.

use serde_json::{Value, json};

use super::Resource;

/// A failure with its HTTP status code and kube-apiserver's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectError {
    /// HTTP status code.
    pub code: u16,
    /// `reason` of the Status.
    pub reason: &'static str,
    /// `message` of the Status.
    pub message: String,
    /// `details.causes`: reason and message.
    pub causes: Vec<(&'static str, String)>,
    /// `details.name`, `group` and `kind`, if the failure concerns an object.
    pub object: Option<(&'static Resource, String)>,
    /// Seconds in `details.retryAfterSeconds` and in the header `Retry-After`.
    pub retry_after: Option<u32>,
}

impl ObjectError {
    /// Creates a failure without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), causes: Vec::new(), object: None, retry_after: None }
    }

    /// Returns 404 for an object.
    pub fn not_found(resource: &'static Resource, name: &str) -> Self {
        Self::about(404, "NotFound", resource, name, format!("{} \"{name}\" not found", resource.qualified()))
    }

    /// Returns 409 for an object that exists.
    pub fn exists(resource: &'static Resource, name: &str) -> Self {
        let text = format!("{} \"{name}\" already exists", resource.qualified());
        Self::about(409, "AlreadyExists", resource, name, text)
    }

    /// Returns 409 for a stale resourceVersion or another UID.
    pub fn conflict(resource: &'static Resource, name: &str, why: &str) -> Self {
        let text = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::about(409, "Conflict", resource, name, text)
    }

    /// Creates a failure about an object.
    pub fn about(code: u16, reason: &'static str, resource: &'static Resource, name: &str, message: String) -> Self {
        Self { object: Some((resource, name.to_owned())), ..Self::new(code, reason, message) }
    }

    /// Returns the `Status` object.
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

//! Authentication, authorization, and self subject reviews.

use std::sync::PoisonError;

use http::HeaderMap;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    Api,
    call::{Call, Caller, Reply},
    path::{RequestInfo, Target},
    request_body,
    status_error::StatusError,
};

/// A right that a user lacks. Every other right is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedPermission {
    /// User; `None` = every user.
    pub user: Option<String>,
    /// Verb; `*` = every verb.
    pub verb: String,
    /// API group; empty = the core group, `*` = every group.
    pub group: String,
    /// Plural resource, optionally with a slash and a subresource; `*` = every resource.
    pub resource: String,
}

impl DeniedPermission {
    fn matches(&self, user: &str, verb: &str, group: &str, resource: &str) -> bool {
        // A request for everything is refused if anything is denied.
        let same =
            |denied_value: &str, requested: &str| denied_value == "*" || requested == "*" || denied_value == requested;
        self.user.as_deref().is_none_or(|denied_value| denied_value == user)
            && same(&self.verb, verb)
            && same(&self.group, group)
            && same(&self.resource, resource)
    }
}

/// Reports whether everybody may read this path.
fn public(parts: &[String]) -> bool {
    matches!(parts.first().map(String::as_str), Some("readyz" | "livez" | "healthz" | "version"))
}

/// Returns the password of a base64-encoded pair of user and password. Without TLS, Go's clients send no token, but
/// they send the user and password of the server's URL. The sandbox accepts the token as that password. A real server
/// would not.
fn password(pair: &str) -> Option<String> {
    let decoded: ByteString = serde_json::from_value(json!(pair.trim())).ok()?;
    Some(String::from_utf8(decoded.0).ok()?.split_once(':')?.1.to_owned())
}

impl Api {
    fn allowed(&self, user: &str, verb: &str, group: &str, resource: &str) -> bool {
        let denied = self.shared.denied.lock().unwrap_or_else(PoisonError::into_inner);
        !denied.iter().any(|d| d.matches(user, verb, group, resource))
    }

    pub(super) fn check_permission(&self, call: &Call, verb: &str, info: &RequestInfo) -> Result<(), StatusError> {
        let (user, kind) = (call.user(), info.kind);
        let slash = if info.sub.is_empty() { "" } else { "/" };
        let resource = format!("{}{slash}{}", kind.plural, info.sub);
        if call.caller != Caller::Anonymous && self.allowed(user, verb, kind.group, &resource) {
            return Ok(());
        }
        let within = match info.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let group = kind.group;
        let why = format!("User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {within}");
        Err(StatusError::forbidden(kind, &info.name, &why))
    }

    /// Authenticates a request from outside the process.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Caller {
        let tokens = &self.shared.options.tokens;
        if tokens.is_empty() {
            return Caller::Trusted;
        }
        let header = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let token = match header.split_once(' ') {
            Some(("Bearer", token)) => token.trim().to_owned(),
            Some(("Basic", pair)) => password(pair).unwrap_or_default(),
            _ => return Caller::Anonymous,
        };
        tokens.get(&token).map_or(Caller::Unknown, |user| Caller::Known(user.clone()))
    }

    /// Refuses unknown tokens. Refuses anonymous requests for anything but health and version. Checks the rights to
    /// objects.
    pub(super) fn authorize(&self, call: &Call, verb: &str, target: &Target) -> Result<(), StatusError> {
        match (&call.caller, target) {
            (Caller::Unknown, _) => Err(StatusError::unauthorized()),
            (_, Target::Objects(info)) => self.check_permission(call, verb, info),
            (Caller::Anonymous, Target::Other(parts)) if !public(parts) => {
                let verb = call.method.as_str().to_lowercase();
                Err(StatusError::forbidden_path(call.user(), &verb, &call.path))
            }
            (Caller::Anonymous, Target::Review(name)) => {
                let why = format!("User \"{}\" cannot {verb} resource \"{name}\"", call.user());
                let group = if name == "selfsubjectreviews" { "authentication" } else { "authorization" };
                let (group, within) = (format!("{group}.k8s.io"), "at the cluster scope");
                let message = format!("{name}.{group} is forbidden: {why} in API group \"{group}\" {within}");
                let mut status_error = StatusError::new(403, "Forbidden", message);
                status_error.body["details"] = json!({"group": group, "kind": name});
                Err(status_error)
            }
            _ => Ok(()),
        }
    }

    /// Handles POST of a review.
    pub(super) fn review(&self, call: &Call, name: &str) -> Result<Reply, StatusError> {
        let kind = match name {
            "selfsubjectaccessreviews" => "SelfSubjectAccessReview",
            "selfsubjectrulesreviews" => "SelfSubjectRulesReview",
            "selfsubjectreviews" => "SelfSubjectReview",
            _ => return Err(StatusError::no_resource()),
        };
        if call.method != http::Method::POST {
            return Err(StatusError::no_method());
        }
        let mut review = request_body::object(call.media(), &call.body, kind, "authorization")?;
        let user = call.user();
        let status = match kind {
            "SelfSubjectAccessReview" => {
                let spec = &review["spec"];
                let attributes = &spec["resourceAttributes"];
                if attributes.is_object() == spec["nonResourceAttributes"].is_object() {
                    let text = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be \
                                specified";
                    let field_errors = [("FieldValueInvalid", "spec.resourceAttributes", text.to_owned())];
                    return Err(StatusError::invalid("authorization.k8s.io", "", "", &field_errors));
                }
                let text = |field: &str| attributes[field].as_str().unwrap_or_default();
                let slash = if text("subresource").is_empty() { "" } else { "/" };
                let resource = format!("{}{slash}{}", text("resource"), text("subresource"));
                if self.allowed(user, text("verb"), text("group"), &resource) {
                    json!({"allowed": true})
                } else {
                    json!({"allowed": false})
                }
            }
            "SelfSubjectRulesReview" => {
                json!({"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "incomplete": false})
            }
            _ => json!({"userInfo": {"username": user, "groups": ["system:masters", "system:authenticated"]}}),
        };
        let group = if kind == "SelfSubjectReview" { "authentication.k8s.io/v1" } else { "authorization.k8s.io/v1" };
        review["kind"] = json!(kind);
        review["apiVersion"] = json!(group);
        if !review["metadata"].is_object() {
            review["metadata"] = json!({"creationTimestamp": Value::Null});
        }
        review["status"] = status;
        Ok(Reply::Value(201, review))
    }
}

//! An audit log in memory, for observers.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Request;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::path::Target;

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    /// Time, by the server's clock.
    pub at: Timestamp,
    /// User: the impersonated user, the header [`super::USER_HEADER`], or the bearer token.
    pub user: String,
    /// `User-Agent`.
    pub agent: String,
    /// Verb as in RBAC: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// Path and query.
    pub path: String,
    /// Request body.
    pub body: Bytes,
    /// HTTP status of the response.
    pub code: u16,
    /// Message of a failure; empty if the request succeeded.
    pub message: String,
}

impl ApiRequest {
    /// Returns the entry as in a kube-apiserver's audit log (audit.k8s.io/v1, level `Request`).
    pub fn event(&self) -> Value {
        let path = self.path.split('?').next().unwrap_or_default();
        let object = match Target::read(path) {
            Ok(Target::Objects(info)) => json!({
                "resource": info.kind.plural, "apiGroup": info.kind.group, "apiVersion": info.kind.version,
                "namespace": info.namespace, "name": info.name, "subresource": info.sub,
            }),
            _ => Value::Null,
        };
        let body = String::from_utf8_lossy(&self.body);
        json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Event", "level": "Request", "stage": "ResponseComplete",
            "requestReceivedTimestamp": self.at.to_string(), "user": {"username": self.user}, "userAgent": self.agent,
            "verb": self.verb, "requestURI": self.path, "objectRef": object,
            "requestObject": serde_json::from_str::<Value>(&body).unwrap_or(Value::Null),
            "responseStatus": {"code": self.code, "message": self.message},
        })
    }

    pub(super) fn begin(at: Timestamp, request: &Request<Bytes>) -> Self {
        let agent = request.headers().get("user-agent").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        Self {
            at,
            user: String::new(),
            agent: agent.to_owned(),
            verb: "",
            path,
            body: request.body().clone(),
            code: 0,
            message: String::new(),
        }
    }

    pub(super) fn end(self, user: String, verb: &'static str, code: u16, message: String) -> Self {
        Self { user, verb, code, message, ..self }
    }
}

/// The last requests.
pub(super) struct Log {
    limit: usize,
    requests: VecDeque<ApiRequest>,
}

impl Log {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, requests: VecDeque::new() }
    }

    pub(super) fn push(&mut self, request: ApiRequest) {
        if self.limit == 0 {
            return;
        }
        if self.requests.len() >= self.limit {
            self.requests.pop_front();
        }
        self.requests.push_back(request);
    }

    pub(super) fn all(&self) -> Vec<ApiRequest> {
        self.requests.iter().cloned().collect()
    }
}

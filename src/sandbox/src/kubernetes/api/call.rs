//! A parsed request, and its reply.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use serde_json::Value;

use super::{
    path::{Query, RequestInfo},
    selector::Selection,
    status_error::StatusError,
};
use crate::kubernetes::{Resource, objects::Page};

/// Header that names the user, for callers inside the process.
pub const USER_HEADER: &str = "x-sandbox-user";

/// Sender of a request, as far as the connection and the token show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A sender whose claimed name is trusted: a caller inside the process, or anybody if no tokens are configured.
    Trusted,
    /// The user that the token belongs to.
    Known(String),
    /// A sender without a token.
    Anonymous,
    /// A sender with an unknown token.
    Unknown,
}

/// One request.
pub(super) struct Call {
    pub(super) caller: Caller,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Call {
    pub(super) fn of(request: Request<Bytes>, caller: Caller) -> Self {
        let (head, body) = request.into_parts();
        let query = Query::read(head.uri.query().unwrap_or_default());
        Self { caller, method: head.method, path: head.uri.path().to_owned(), query, headers: head.headers, body }
    }

    /// Returns a header; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// Returns the body's media type without its parameters.
    pub(super) fn media(&self) -> &str {
        self.header("content-type").split(';').next().unwrap_or_default().trim()
    }

    /// Returns the user: the impersonated one, or else the user of the token. For a trusted sender it is the user in
    /// the header [`USER_HEADER`], or else the bearer token is the name.
    pub(super) fn user(&self) -> &str {
        let token = self.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        let known = match &self.caller {
            Caller::Trusted => [self.header("impersonate-user"), self.header(USER_HEADER), token],
            Caller::Known(user) => [self.header("impersonate-user"), user, ""],
            Caller::Anonymous | Caller::Unknown => [""; 3],
        };
        known.into_iter().find(|name| !name.is_empty()).unwrap_or("system:anonymous")
    }

    /// Reports whether it is a watch in the new form.
    pub(super) fn is_watch(&self) -> bool {
        self.query.flag("watch")
    }

    /// Reports whether it is a dry run. `body` is a `dryRun` list that replaces the query's; `options` names the kind
    /// of options.
    pub(super) fn dry_run(&self, options: &str, body: &Value) -> Result<bool, StatusError> {
        let values: Vec<&str> = match body.as_array() {
            Some(list) => list.iter().map(|v| v.as_str().unwrap_or_default()).collect(),
            None => self.query.all("dryRun").iter().map(String::as_str).collect(),
        };
        if let Some(other) = values.iter().find(|v| **v != "All" && !v.is_empty()) {
            let text = format!("Unsupported value: [\"{other}\"]: supported values: \"All\"");
            let field_errors = [("FieldValueNotSupported", "dryRun", text)];
            return Err(StatusError::invalid("meta.k8s.io", options, "", &field_errors));
        }
        Ok(values.contains(&"All"))
    }

    /// Returns the selectors of the query for a place.
    pub(super) fn selection(&self, info: &RequestInfo) -> Result<Selection, StatusError> {
        let selection = Selection::read(info.kind, self.query.get("labelSelector"), self.query.get("fieldSelector"))?;
        Ok(if info.name.is_empty() { selection } else { selection.and_name(&info.name) })
    }

    /// Returns the verb as in RBAC and the audit log.
    pub(super) fn verb(&self, info: Option<&RequestInfo>) -> &'static str {
        let one = info.is_some_and(|p| !p.name.is_empty());
        let is_watch = self.is_watch() || info.is_some_and(|p| p.watch);
        match self.method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if one => "delete",
            Method::DELETE => "deletecollection",
            _ if info.is_none() => "get",
            _ if is_watch => "watch",
            _ if one => "get",
            _ => "list",
        }
    }
}

/// A reply before it is encoded in the requested form.
pub(super) enum Reply {
    /// An object of a kind.
    Object(u16, &'static Resource, Arc<Value>),
    /// Some objects of a kind.
    List {
        kind: &'static Resource,
        page: Page,
        /// Continue token for the rest.
        next: Option<String>,
        /// Whether the number of remaining objects is included.
        counted: bool,
    },
    /// Any other JSON.
    Value(u16, Value),
    /// JSON with another media type.
    Media(&'static str, Value),
    /// Plain text.
    Text(u16, String),
    /// A watch.
    Watch(Box<super::watch::Watch>),
}

impl Reply {
    pub(super) fn object(code: u16, kind: &'static Resource, object: Arc<Value>) -> Self {
        Self::Object(code, kind, object)
    }
}

//! A request as it was understood, and what is answered.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use serde_json::Value;

use super::{
    failure::Failure,
    path::{Place, Query},
    selector::Selection,
};
use crate::sandbox::kubernetes::{Resource, objects::Page};

/// The header that names who asks, for callers inside the process.
pub const USER_HEADER: &str = "x-sandbox-user";

/// Who sent a request, as far as the way it came on tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Who they say: a caller inside the process, or anybody where no tokens are configured.
    Trusted,
    /// The user whom their token names.
    Known(String),
    /// Somebody without a token.
    Anonymous,
    /// Somebody with a token that nobody knows.
    Unknown,
}

/// One request.
pub(super) struct Call {
    pub(super) who: Who,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Call {
    pub(super) fn of(request: Request<Bytes>, who: Who) -> Self {
        let (head, body) = request.into_parts();
        let query = Query::read(head.uri.query().unwrap_or_default());
        Self { who, method: head.method, path: head.uri.path().to_owned(), query, headers: head.headers, body }
    }

    /// A header; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// The body's media type without its parameters.
    pub(super) fn media(&self) -> &str {
        self.header("content-type").split(';').next().unwrap_or_default().trim()
    }

    /// Who asks: as whom they want to be seen, else whom their token names. Who is trusted is the user in the header for
    /// callers inside, else their bearer token is a name.
    pub(super) fn user(&self) -> &str {
        let token = self.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        let known = match &self.who {
            Who::Trusted => [self.header("impersonate-user"), self.header(USER_HEADER), token],
            Who::Known(user) => [self.header("impersonate-user"), user, ""],
            Who::Anonymous | Who::Unknown => [""; 3],
        };
        known.into_iter().find(|name| !name.is_empty()).unwrap_or("system:anonymous")
    }

    /// Whether it is a watch, in the new form.
    pub(super) fn watches(&self) -> bool {
        self.query.flag("watch")
    }

    /// Whether nothing shall happen. `body` is a `dryRun` list beside the query's; `options` names the kind of options.
    pub(super) fn dry_run(&self, options: &str, body: &Value) -> Result<bool, Failure> {
        let said: Vec<&str> = match body.as_array() {
            Some(list) => list.iter().map(|v| v.as_str().unwrap_or_default()).collect(),
            None => self.query.all("dryRun").iter().map(String::as_str).collect(),
        };
        if let Some(other) = said.iter().find(|v| **v != "All" && !v.is_empty()) {
            let text = format!("Unsupported value: [\"{other}\"]: supported values: \"All\"");
            let faults = [("FieldValueNotSupported", "dryRun", text)];
            return Err(Failure::invalid("meta.k8s.io", options, "", &faults));
        }
        Ok(said.contains(&"All"))
    }

    /// The objects of a place that the query selects.
    pub(super) fn selection(&self, place: &Place) -> Result<Selection, Failure> {
        let selection = Selection::read(place.kind, self.query.get("labelSelector"), self.query.get("fieldSelector"))?;
        Ok(if place.name.is_empty() { selection } else { selection.and_name(&place.name) })
    }

    /// The verb, as rights and the audit log name it.
    pub(super) fn verb(&self, place: Option<&Place>) -> &'static str {
        let one = place.is_some_and(|p| !p.name.is_empty());
        let watches = self.watches() || place.is_some_and(|p| p.watch);
        match self.method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if one => "delete",
            Method::DELETE => "deletecollection",
            _ if place.is_none() => "get",
            _ if watches => "watch",
            _ if one => "get",
            _ => "list",
        }
    }
}

/// An answer, before it is written in the form that was asked for.
pub(super) enum Reply {
    /// An object of a kind.
    Object(u16, &'static Resource, Arc<Value>),
    /// Some objects of a kind.
    List {
        kind: &'static Resource,
        page: Page,
        /// The token for the rest.
        next: Option<String>,
        /// Whether how many remain is said.
        counted: bool,
    },
    /// Anything else in JSON.
    Value(u16, Value),
    /// JSON of another media type.
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

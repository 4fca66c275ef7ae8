//! Parses the path and the query of a URL.

use std::collections::BTreeMap;

use super::status_error::StatusError;
use crate::kubernetes::{
    Resource,
    resource::{ALL, NAMESPACES},
};

/// Target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Objects of a kind.
    Objects(RequestInfo),
    /// A review of `authentication.k8s.io` or `authorization.k8s.io`, by its name in paths.
    Review(String),
    /// Everything else (discovery, health, version), as path segments.
    Other(Vec<String>),
}

/// One object, its subresource, or a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestInfo {
    pub(super) kind: &'static Resource,
    /// Namespace; empty for all namespaces, and for cluster-scoped kinds.
    pub(super) namespace: String,
    /// Name; empty for the collection.
    pub(super) name: String,
    /// Subresource; empty for the object itself.
    pub(super) sub: String,
    /// Whether it is the old form of a watch: `/api/v1/watch/…`.
    pub(super) watch: bool,
}

impl Target {
    /// Parses a path.
    pub(super) fn read(path: &str) -> Result<Self, StatusError> {
        let parts: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(|s| decoded(s, false)).collect();
        let segments: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Ok(Self::Other(parts)),
        };
        if let ("authorization.k8s.io" | "authentication.k8s.io", "v1", [review]) = (group, version, rest) {
            return Ok(Self::Review((*review).to_owned()));
        }
        if !ALL.iter().any(|r| r.group == group && r.version == version) {
            return Err(if group.is_empty() { StatusError::no_resource() } else { StatusError::no_page() });
        }
        let (watch, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            _ => (false, rest),
        };
        let find = |plural: &str| Resource::find(group, version, plural).ok_or_else(StatusError::no_resource);
        let (kind, namespace, rest) = match rest {
            ["namespaces"] => (&NAMESPACES, "", &[][..]),
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if group.is_empty() => {
                (&NAMESPACES, "", &rest[1..])
            }
            ["namespaces", namespace, plural, rest @ ..] => {
                let kind = find(plural)?;
                if !kind.namespaced {
                    return Err(StatusError::no_resource());
                }
                (kind, *namespace, rest)
            }
            [plural, rest @ ..] => {
                let kind = find(plural)?;
                // A namespaced object is found only under its namespace.
                if kind.namespaced && !rest.is_empty() {
                    return Err(StatusError::no_resource());
                }
                (kind, "", rest)
            }
            [] => return Err(StatusError::no_resource()),
        };
        if kind == &NAMESPACES && !group.is_empty() {
            return Err(StatusError::no_resource());
        }
        let (name, sub) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, sub] => (*name, *sub),
            _ => return Err(StatusError::no_resource()),
        };
        let known = match sub {
            "" => true,
            "status" => kind.status,
            "eviction" | "log" | "binding" => kind.plural == "pods",
            "scale" => matches!(kind.plural, "deployments" | "replicasets" | "statefulsets"),
            "finalize" => kind == &NAMESPACES,
            _ => false,
        };
        if !known {
            return Err(StatusError::no_resource());
        }
        let [namespace, name, sub] = [namespace, name, sub].map(str::to_owned);
        Ok(Self::Objects(RequestInfo { kind, namespace, name, sub, watch }))
    }
}

/// Parameters after the `?`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    /// Parses the query. Text that cannot be decoded stays as it is.
    pub(super) fn read(query: &str) -> Self {
        let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            out.entry(decoded(name, true)).or_default().push(decoded(value, true));
        }
        Self(out)
    }

    /// Returns the first value; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).and_then(|all| all.first()).map_or("", String::as_str)
    }

    /// Returns all values.
    pub(super) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Parses a flag as Go does: present and neither `false` nor `0`.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|all| !matches!(all.first().map(String::as_str), Some("false" | "0")))
    }

    /// Parses a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, StatusError> {
        match self.get(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| StatusError::bad(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))),
        }
    }
}

/// Percent-decodes a text. In a query, a plus means a space.
fn decoded(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = |i: usize| bytes.get(at + i).and_then(|b| char::from(*b).to_digit(16));
        match (byte, hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 3;
                continue;
            }
            (b'+', ..) if plus => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(path: &str) -> (String, String, String, String) {
        match Target::read(path) {
            Ok(Target::Objects(p)) => (p.kind.plural.to_owned(), p.namespace, p.name, p.sub),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn paths_name_objects_and_their_subresources() {
        let four = |a: &str, b: &str, c: &str, d: &str| (a.to_owned(), b.to_owned(), c.to_owned(), d.to_owned());
        assert_eq!(info("/api/v1/nodes"), four("nodes", "", "", ""));
        assert_eq!(info("/api/v1/nodes/a%2Eb/status"), four("nodes", "", "a.b", "status"));
        assert_eq!(info("/api/v1/namespaces/x/pods/p/eviction"), four("pods", "x", "p", "eviction"));
        assert_eq!(info("/api/v1/namespaces/x"), four("namespaces", "", "x", ""));
        assert_eq!(info("/api/v1/namespaces/x/finalize"), four("namespaces", "", "x", "finalize"));
        assert_eq!(info("/apis/batch/v1/jobs"), four("jobs", "", "", ""));
        let code = |path: &str| Target::read(path).unwrap_err().code;
        for path in ["/api/v1/pods/p", "/api/v1/nodes/n/eviction", "/apis/apps/v1/nope", "/api/v2/nodes"] {
            assert_eq!(code(path), 404, "{path}");
        }
        assert!(matches!(Target::read("/readyz"), Ok(Target::Other(_))));
    }

    #[test]
    fn a_query_with_invalid_escapes_is_decoded() {
        let query = Query::read("fieldSelector=spec.nodeName%3Da&watch&x=%zz%&y=a+b&limit=q");
        assert_eq!(query.get("fieldSelector"), "spec.nodeName=a");
        assert!(query.flag("watch") && !query.flag("nope"));
        assert_eq!((query.get("x"), query.get("y")), ("%zz%", "a b"));
        assert_eq!(query.number("limit").unwrap_err().code, 400);
    }
}

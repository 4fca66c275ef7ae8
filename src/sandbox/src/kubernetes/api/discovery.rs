//! Discovery of groups, versions and kinds; health and version.

use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    openapi,
    status_error::StatusError,
};
use crate::kubernetes::{Resource, resource::ALL};

/// Media type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers a GET of a path that does not belong to an object.
pub(super) fn answer(call: &Call, parts: &[String]) -> Result<Reply, StatusError> {
    let segments: Vec<&str> = parts.iter().map(String::as_str).collect();
    let known = |group: &str, version: &str| ALL.iter().any(|r| r.group == group && r.version == version);
    let value = match segments.as_slice() {
        ["readyz" | "livez" | "healthz"] => return Ok(Reply::Text(200, health(call, segments[0]))),
        ["version"] => version(),
        [] => json!({"paths": paths()}),
        ["api" | "apis"] if call.header("accept").contains("as=APIGroupDiscoveryList") => {
            let groups = if segments[0] == "api" { vec![("", "v1")] } else { groups() };
            return Ok(Reply::Media(AGGREGATED, all(&groups)));
        }
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:443"}]}),
        ["apis"] => json!({"kind": "APIGroupList", "apiVersion": "v1",
            "groups": groups().iter().map(|(g, v)| group(g, v, false)).collect::<Vec<_>>()}),
        ["api", "v1"] => resources("", "v1"),
        ["apis", name] => match groups().iter().find(|(group, _)| group == name) {
            Some((name, version)) => group(name, version, true),
            None => return Err(StatusError::no_page()),
        },
        ["apis", group, version] if known(group, version) => resources(group, version),
        ["apis", group @ ("authorization.k8s.io" | "authentication.k8s.io"), "v1"] => resources(group, "v1"),
        ["openapi", "v3"] => openapi::index(&groups()),
        ["openapi", "v3", "api", "v1"] => openapi::document("", "v1"),
        ["openapi", "v3", "apis", group, version] if known(group, version) => openapi::document(group, version),
        ["api", ..] => return Err(StatusError::no_resource()),
        _ => return Err(StatusError::no_page()),
    };
    if matches!(call.method, http::Method::GET | http::Method::HEAD) {
        Ok(Reply::Value(200, value))
    } else {
        Err(StatusError::no_method())
    }
}

fn health(call: &Call, what: &str) -> String {
    if call.query.flag("verbose") { format!("[+]ping ok\n[+]etcd ok\n{what} check passed\n") } else { "ok".to_owned() }
}

fn version() -> Value {
    json!({"major": "1", "minor": "35", "emulationMajor": "1", "emulationMinor": "35", "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "34", "gitVersion": "v1.35.4", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.25", "compiler": "gc", "platform": "linux/amd64"})
}

/// Returns the groups except the core group, each with its version.
fn groups() -> Vec<(&'static str, &'static str)> {
    let mut out: Vec<(&str, &str)> = vec![("authentication.k8s.io", "v1"), ("authorization.k8s.io", "v1")];
    for kind in ALL.iter().filter(|r| !r.group.is_empty()) {
        if !out.contains(&(kind.group, kind.version)) {
            out.push((kind.group, kind.version));
        }
    }
    out
}

fn group(name: &str, version: &str, standalone: bool) -> Value {
    let this = json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let mut group = json!({"name": name, "versions": [this], "preferredVersion": this});
    if standalone {
        group["kind"] = json!("APIGroup");
        group["apiVersion"] = json!("v1");
    }
    group
}

fn paths() -> Vec<String> {
    let mut out: Vec<String> = ["/api", "/api/v1", "/apis"].map(str::to_owned).into();
    for (group, version) in groups() {
        out.extend([format!("/apis/{group}"), format!("/apis/{group}/{version}")]);
    }
    out.extend(["/healthz", "/livez", "/readyz", "/version"].map(str::to_owned));
    out
}

/// Returns the verbs of a kind.
fn verbs(kind: &Resource) -> Vec<&'static str> {
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    all.into_iter().filter(|verb| kind.plural != "namespaces" || *verb != "deletecollection").collect()
}

/// Returns the subresources of a kind: name, verbs, kind, and the group if it differs.
fn subresources(kind: &Resource) -> Vec<(&'static str, &'static [&'static str], &'static str, &'static str)> {
    let mut out: Vec<(&str, &[&str], &str, &str)> = Vec::new();
    if kind.plural == "pods" {
        out.push(("binding", &["create"], "Binding", ""));
        out.push(("eviction", &["create"], "Eviction", "policy"));
        out.push(("log", &["get"], kind.kind, ""));
    }
    if kind.plural == "namespaces" {
        out.push(("finalize", &["update"], kind.kind, ""));
    }
    if matches!(kind.plural, "deployments" | "replicasets" | "statefulsets") {
        out.push(("scale", &["get", "patch", "update"], "Scale", "autoscaling"));
    }
    if kind.status {
        out.push(("status", &["get", "patch", "update"], kind.kind, ""));
    }
    out
}

/// Returns the aggregated discovery document of some groups.
fn all(groups: &[(&str, &str)]) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let items = groups.iter().map(|(group, version)| {
        let mut list: Vec<Value> = Vec::new();
        for one in ALL.iter().filter(|r| r.group == *group && r.version == *version) {
            let subs = subresources(one).into_iter().map(|(name, verbs, sub, other)| {
                let (group, version) = if other.is_empty() { (*group, *version) } else { (other, "v1") };
                json!({"subresource": name, "responseKind": kind(group, version, sub), "verbs": verbs})
            });
            let subs: Vec<Value> = subs.collect();
            let mut entry = json!({"resource": one.plural, "responseKind": kind(group, version, one.kind),
                "scope": if one.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": one.singular,
                "verbs": verbs(one), "shortNames": one.short, "categories": categories(one)});
            if !subs.is_empty() {
                entry["subresources"] = json!(subs);
            }
            list.push(entry);
        }
        for (name, review) in reviews(group) {
            list.push(json!({"resource": name, "responseKind": kind(group, version, review), "scope": "Cluster",
                "singularResource": review.to_lowercase(), "verbs": ["create"]}));
        }
        let meta = if group.is_empty() { json!({}) } else { json!({"name": group}) };
        json!({"metadata": meta, "versions": [{"version": version, "resources": list, "freshness": "Current"}]})
    });
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items.collect::<Vec<_>>()})
}

/// Returns the reviews of a group: the name in paths, and the kind.
fn reviews(group: &str) -> &'static [(&'static str, &'static str)] {
    match group {
        "authentication.k8s.io" => &[("selfsubjectreviews", "SelfSubjectReview")],
        "authorization.k8s.io" => &[
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
            ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        ],
        _ => &[],
    }
}

fn categories(kind: &Resource) -> &'static [&'static str] {
    match kind.plural {
        "pods" | "services" | "deployments" | "daemonsets" | "replicasets" | "statefulsets" | "jobs" => &["all"],
        _ => &[],
    }
}

fn resources(group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    for kind in ALL.iter().filter(|r| r.group == group && r.version == version) {
        let mut one = json!({"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": verbs(kind)});
        if !kind.short.is_empty() {
            one["shortNames"] = json!(kind.short);
        }
        if !categories(kind).is_empty() {
            one["categories"] = json!(categories(kind));
        }
        list.push(one);
        for (name, verbs, sub, other) in subresources(kind) {
            let mut one = json!({"name": format!("{}/{name}", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": sub, "verbs": verbs});
            if !other.is_empty() {
                one["group"] = json!(other);
                one["version"] = json!("v1");
            }
            list.push(one);
        }
    }
    for (name, review) in reviews(group) {
        list.push(json!({"name": name, "singularName": review.to_lowercase(), "namespaced": false, "kind": review,
            "verbs": ["create"]}));
    }
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": list})
}

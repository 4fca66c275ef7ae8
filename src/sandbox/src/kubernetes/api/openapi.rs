//! The part of `OpenAPI` from which `kubectl` learns that the server validates fields and supports dry runs.

use serde_json::{Map, Value, json};

use crate::kubernetes::{Resource, resource::ALL};

/// Returns `/openapi/v3`, the index of the documents.
pub(super) fn index(groups: &[(&str, &str)]) -> Value {
    let mut paths = Map::new();
    let mut add = |path: String| {
        let url = format!("/openapi/v3/{path}?hash=sandbox");
        paths.insert(path, json!({"serverRelativeURL": url}));
    };
    add("api/v1".to_owned());
    // Reviews have no patches, so they have no document.
    for (group, version) in groups.iter().filter(|(group, _)| ALL.iter().any(|r| r.group == *group)) {
        add(format!("apis/{group}/{version}"));
    }
    json!({"paths": paths})
}

/// Returns the document of one group: its patch operations with the relevant parameters.
pub(super) fn document(group: &str, version: &str) -> Value {
    let mut paths = Map::new();
    for kind in ALL.iter().filter(|r| r.group == group && r.version == version) {
        paths.insert(path(kind), json!({"patch": patch(kind)}));
    }
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.35.4"}, "paths": paths,
        "components": {"schemas": {}}})
}

fn path(kind: &Resource) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let within = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("{root}/{}{within}/{}/{{name}}", kind.version, kind.plural)
}

fn patch(kind: &Resource) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let all: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"].map(parameter).into();
    json!({"operationId": format!("patch{}", kind.kind), "parameters": all,
        "responses": {"200": {"description": "OK"}}, "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind}})
}

//! Reads: one object, selectors, pages, versions, tables.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{BUDGETS, NODES, PODS, Session},
};

crate::conformance::cases!("list":
    what_is_not_there, shape, label_selectors, bad_label_selectors, field_selectors, bad_field_selectors, both_selectors, pages,
    pages_with_a_selector, pages_are_of_one_moment, a_bad_token, at_versions, bad_versions, all_namespaces, a_table_of_nodes, a_table_of_pods, a_table_of_budgets, metadata_only);

impl Session {
    async fn names(&mut self, what: &str, path: &str) {
        let answer = self.get(path).await;
        if answer.code != 200 {
            self.note_answer(what, &answer, &[]);
            return;
        }
        let items = answer.body["items"].as_array().cloned().unwrap_or_default();
        let names: Vec<&Value> = items.iter().map(|i| &i["metadata"]["name"]).collect();
        self.note(what, &json!(names));
    }

    /// Creates p, q and r: on two nodes, with different labels.
    async fn three_pods(&mut self) {
        self.pod("p").await;
        self.pod_as("q", "Pending", false).await;
        self.ok("PATCH", &format!("{PODS}/q"), json!({"metadata": {"labels": {"tier": "front", "app": "b"}}})).await;
        let mut body = super::session::pod("r");
        body["spec"]["nodeName"] = json!("@-m");
        body["metadata"]["labels"] = json!({"tier": "back"});
        self.ok("POST", PODS, body).await;
    }

    async fn code(&mut self, what: &str, path: &str) {
        let answer = self.get(path).await;
        let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
        self.note(what, &seen);
    }
}

async fn what_is_not_there(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for path in [
        format!("{PODS}/none"),
        format!("{NODES}/none"),
        format!("{BUDGETS}/none"),
        "/apis/batch/v1/namespaces/@/jobs/none".to_owned(),
        "/apis/apps/v1/namespaces/@/daemonsets/none".to_owned(),
        "/api/v1/none".to_owned(),
        "/apis/none.example.com/v1/things".to_owned(),
        "/none".to_owned(),
        "/api/v1/namespaces/@/none/x".to_owned(),
    ] {
        k.note_object(&path, &path, &[]).await;
    }
    let answer = k.post(&format!("{PODS}/p"), json!({})).await;
    k.note_answer("POST to an object", &answer, &[]);
    k.end()
}

async fn shape(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let empty = ["/kind", "/apiVersion", "/items", "/metadata/continue", "/metadata/remainingItemCount"];
    k.note_object("no pods", PODS, &empty).await;
    k.pod("p").await;
    let fields = ["/kind", "/apiVersion", "/items/0/kind", "/items/0/apiVersion", "/items/0/metadata/name", "/items/1"];
    k.note_object("a pod", PODS, &fields).await;
    k.note_object("itself", &format!("{PODS}/p"), &["/kind", "/apiVersion"]).await;
    for path in [
        "/apis/apps/v1/namespaces/@/daemonsets",
        "/apis/apps/v1/namespaces/@/replicasets",
        "/apis/batch/v1/namespaces/@/jobs",
        BUDGETS,
    ] {
        k.note_object(path, path, &["/kind", "/apiVersion", "/items"]).await;
    }
    let version = k.get(PODS).await.body["metadata"]["resourceVersion"].clone();
    let number = version.as_str().and_then(|v| v.parse::<u64>().ok());
    k.note("its version is a number", &json!(number.is_some()));
    k.end()
}

async fn label_selectors(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.three_pods().await;
    for selector in [
        "app=a",
        "app==a",
        "app!=a",
        "app",
        "!app",
        "app in (a,b)",
        "app notin (a)",
        "tier",
        "app=b,tier=front",
        "tier=front,app!=b",
        "app=",
        "none",
        "!none",
        "",
        "tier in (back,front),app",
    ] {
        let encoded = selector.replace(' ', "%20").replace('=', "%3D").replace('!', "%21").replace(',', "%2C");
        k.names(selector, &format!("{PODS}?labelSelector={encoded}")).await;
    }
    k.end()
}

async fn bad_label_selectors(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for selector in ["a=b=c", "app in", "-a=b", "app in (a"] {
        let encoded = selector.replace(' ', "%20").replace('=', "%3D");
        k.code(selector, &format!("{PODS}?labelSelector={encoded}")).await;
    }
    k.end()
}

async fn field_selectors(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.three_pods().await;
    for selector in [
        "metadata.name=p",
        "metadata.name!=p",
        "spec.nodeName=@-n",
        "spec.nodeName=@-m",
        "spec.nodeName=",
        "status.phase=Running",
        "status.phase!=Running",
        "spec.nodeName=@-n,status.phase=Pending",
        "metadata.namespace=@",
        "metadata.name==q",
        "",
    ] {
        let encoded = selector.replace("!=", "%21%3D").replace('=', "%3D");
        k.names(selector, &format!("{PODS}?fieldSelector={encoded}")).await;
    }
    let node = k.node("n").await;
    k.node("m").await;
    k.ok("PATCH", &node, json!({"spec": {"unschedulable": true}})).await;
    for selector in ["spec.unschedulable=true", "spec.unschedulable=false", "metadata.name=@-n"] {
        let encoded = selector.replace('=', "%3D");
        k.names(selector, &format!("{NODES}?labelSelector=case%3D@&fieldSelector={encoded}")).await;
    }
    k.end()
}

async fn bad_field_selectors(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.note_object("a field of none", &format!("{PODS}?fieldSelector=spec.none%3Da"), &[]).await;
    k.note_object("of a budget", &format!("{BUDGETS}?fieldSelector=spec.nodeName%3Da"), &[]).await;
    k.code("no operator", &format!("{PODS}?fieldSelector=spec.nodeName")).await;
    k.end()
}

async fn both_selectors(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.three_pods().await;
    k.names("both", &format!("{PODS}?labelSelector=app%3Da&fieldSelector=spec.nodeName%3D@-n")).await;
    k.names("neither", &format!("{PODS}?labelSelector=app%3Da&fieldSelector=spec.nodeName%3D@-m")).await;
    k.end()
}

/// A continue token in the form of a query.
pub fn token(answer: &Value) -> String {
    answer["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D")
}

const PAGE: &[&str] = &[
    "/items/0/metadata/name",
    "/items/1/metadata/name",
    "/items/2/metadata/name",
    "/metadata/continue",
    "/metadata/remainingItemCount",
];

async fn pages(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for name in ["c", "a", "e", "b", "d"] {
        k.pod(name).await;
    }
    let mut next = String::new();
    for _ in 0..3 {
        let answer = k.get(&format!("{PODS}?limit=2&continue={next}")).await;
        k.note_answer("page", &answer, PAGE);
        next = token(&answer.body);
    }
    for limit in [5, 6, 0] {
        let answer = k.get(&format!("{PODS}?limit={limit}")).await;
        k.note_answer(
            &format!("limit {limit}"),
            &answer,
            &["/metadata/continue", "/metadata/remainingItemCount", "/items/4/metadata/name"],
        );
    }
    k.end()
}

async fn pages_with_a_selector(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for name in ["a", "b", "c", "d", "e"] {
        k.pod(name).await;
    }
    k.ok("PATCH", &format!("{PODS}/b"), json!({"metadata": {"labels": {"app": "x"}}})).await;
    let mut next = String::new();
    for _ in 0..2 {
        let answer = k.get(&format!("{PODS}?labelSelector=app%3Da&limit=2&continue={next}")).await;
        k.note_answer("page", &answer, PAGE);
        next = token(&answer.body);
    }
    k.end()
}

async fn pages_are_of_one_moment(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for name in ["a", "b", "d"] {
        k.pod(name).await;
    }
    let first = k.get(&format!("{PODS}?limit=1")).await;
    k.note_answer("first", &first, PAGE);
    k.pod("c").await;
    k.delete(&format!("{PODS}/d"), json!({"gracePeriodSeconds": 0})).await;
    let second = k.get(&format!("{PODS}?limit=9&continue={}", token(&first.body))).await;
    k.note_answer("second", &second, PAGE);
    let same = first.body["metadata"]["resourceVersion"] == second.body["metadata"]["resourceVersion"];
    k.note("one version", &json!(same));
    k.names("now", PODS).await;
    k.end()
}

async fn a_bad_token(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("a").await;
    k.code("not one", &format!("{PODS}?limit=1&continue=nonsense")).await;
    k.pod("b").await;
    let first = k.get(&format!("{PODS}?limit=1")).await;
    k.code("with a version", &format!("{PODS}?limit=1&resourceVersion=5&continue={}", token(&first.body))).await;
    k.end()
}

async fn at_versions(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("a").await;
    let version = k.get(PODS).await.body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    k.pod("b").await;
    // "not older" may be answered by a cache that does not have b yet
    k.cached(PODS).await;
    k.names("not older", &format!("{PODS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan")).await;
    k.names("exactly", &format!("{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    k.names("with a limit", &format!("{PODS}?resourceVersion={version}&limit=9&resourceVersionMatch=Exact")).await;
    let answer = k.get(&format!("{PODS}/a?resourceVersion=0")).await;
    k.note_answer("one from the cache", &answer, &["/metadata/name"]);
    k.end()
}

async fn bad_versions(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.code("a word", &format!("{PODS}?resourceVersion=abc")).await;
    k.code("less than nothing", &format!("{PODS}?resourceVersion=-1")).await;
    k.code("a match without a version", &format!("{PODS}?resourceVersionMatch=Exact")).await;
    k.code("exactly zero", &format!("{PODS}?resourceVersion=0&resourceVersionMatch=Exact")).await;
    k.code("an unknown match", &format!("{PODS}?resourceVersion=1&resourceVersionMatch=Some")).await;
    k.end()
}

async fn all_namespaces(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    k.note_object(
        "pods of a node",
        "/api/v1/pods?fieldSelector=spec.nodeName%3D@-n",
        &["/kind", "/items/0/metadata/namespace", "/items/1"],
    )
    .await;
    k.note_object(
        "namespaces",
        "/api/v1/namespaces?fieldSelector=metadata.name%3D@",
        &["/kind", "/items/0/metadata/name", "/items/0/status/phase"],
    )
    .await;
    for path in [
        "/apis/policy/v1/poddisruptionbudgets?limit=1",
        "/apis/apps/v1/daemonsets?limit=1",
        "/apis/batch/v1/jobs?limit=1",
    ] {
        k.note_object(path, path, &["/kind", "/apiVersion"]).await;
    }
    k.note_object("system", "/api/v1/namespaces/kube-system", &["/metadata/name", "/status/phase"]).await;
    k.end()
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

impl Session {
    async fn table(&mut self, what: &str, path: &str) {
        let answer = self.accepting("GET", path, &Value::Null, "application/json", TABLE).await;
        let columns = answer.body["columnDefinitions"].as_array().cloned().unwrap_or_default();
        let columns: Vec<Value> =
            columns.iter().map(|c| json!([c["name"], c["type"], c["format"], c["priority"]])).collect();
        let rows = answer.body["rows"].as_array().cloned().unwrap_or_default();
        let row = |row: &Value| {
            let cells = row["cells"].as_array().cloned().unwrap_or_default();
            let cells: Vec<Value> =
                cells.into_iter().map(|c| if c.as_str().is_some_and(is_age) { json!("<age>") } else { c }).collect();
            json!({"cells": cells, "kind": row["object"]["kind"], "name": row["object"]["metadata"]["name"]})
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        let kept = json!({"code": answer.code, "kind": answer.body["kind"], "apiVersion": answer.body["apiVersion"], "columns": columns, "rows": rows});
        self.note(what, &kept);
    }
}

/// `4s`, `2m3s`.
pub fn is_age(text: &str) -> bool {
    text.ends_with('s') && text.len() > 1 && text.chars().all(|c| c.is_ascii_digit() || "dhms".contains(c))
}

async fn a_table_of_nodes(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    k.table("ready", &format!("{NODES}?labelSelector=case%3D@")).await;
    k.ok(
        "PATCH",
        &node,
        json!({"spec": {"unschedulable": true}, "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}}),
    )
    .await;
    k.table("cordoned, with a role", &node).await;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    k.ok("PATCH", &format!("{node}/status"), status).await;
    k.ok("PATCH", &node, json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})).await;
    k.table("not ready, with two", &node).await;
    k.table("none", &format!("{NODES}?labelSelector=case%3Dnone")).await;
    k.end()
}

async fn a_table_of_pods(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.three_pods().await;
    for (name, phase) in [("s", "Succeeded"), ("t", "Failed")] {
        k.pod_as(name, phase, false).await;
    }
    let going = k.pod("u").await;
    let ready = json!({"status": {"containerStatuses": [{"name": "c", "ready": true, "restartCount": 3, "image": "i", "imageID": "",
        "state": {"running": {"startedAt": "2025-01-01T00:00:00Z"}}}], "podIP": "10.9.0.1", "podIPs": [{"ip": "10.9.0.1"}]}});
    k.ok("PATCH", &format!("{PODS}/p/status"), ready).await;
    k.delete(&going, json!({})).await;
    k.table("pods", PODS).await;
    k.end()
}

async fn a_table_of_budgets(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 1, 3, 2).await;
    k.budget("c", json!({"maxUnavailable": "25%"})).await;
    k.table("budgets", BUDGETS).await;
    k.table("namespaces", "/api/v1/namespaces/@").await;
    k.end()
}

async fn metadata_only(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    let answer = k.accepting("GET", PODS, &Value::Null, "application/json", accept).await;
    k.note_answer(
        "list",
        &answer,
        &["/kind", "/apiVersion", "/items/0/kind", "/items/0/metadata/labels", "/items/0/spec"],
    );
    k.end()
}

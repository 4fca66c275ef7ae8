//! Watches: from a version, with selectors, with an initial list, and their ends.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{NODES, PODS, Session},
};

crate::conformance::cases!("watch":
    from_a_version, from_zero, from_now, with_labels, with_fields, of_one_object, of_a_deletion_with_grace, of_nodes,
    of_the_whole_cluster, with_initial_events, initial_events_of_nothing, initial_events_that_do_not_fit, ends_in_time, bookmarks, a_version_of_the_past, bad_versions, versions_are_those_of_the_objects);

const EVENT_FIELDS: &[&str] =
    &["/metadata/labels", "/metadata/deletionTimestamp", "/status/phase", "/spec/unschedulable"];

impl Session {
    /// Returns the version of an object or a list.
    pub async fn version(&self, path: &str) -> String {
        self.get(path).await.body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    }

    async fn label(&self, path: &str, app: &str) {
        self.ok("PATCH", path, json!({"metadata": {"labels": {"app": app}}})).await;
    }

    async fn remove(&self, path: &str) {
        self.delete(path, json!({"gracePeriodSeconds": 0})).await;
    }
}

async fn from_a_version(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("old").await;
    let from = k.version(PODS).await;
    let path = k.pod("p").await;
    k.label(&path, "b").await;
    k.remove(&path).await;
    let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion={from}")).await;
    k.events("the past", &mut watch, 4, EVENT_FIELDS).await;
    k.label(&format!("{PODS}/old"), "b").await;
    k.events("now", &mut watch, 1, EVENT_FIELDS).await;
    k.end()
}

async fn from_zero(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    k.pod("q").await;
    k.cached(PODS).await;
    let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion=0")).await;
    k.events("what is there", &mut watch, 2, EVENT_FIELDS).await;
    k.label(&format!("{PODS}/p"), "b").await;
    k.events("then", &mut watch, 1, EVENT_FIELDS).await;
    k.end()
}

async fn from_now(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let mut watch = k.watch(&format!("{PODS}?watch=true")).await;
    k.events("what is there", &mut watch, 1, EVENT_FIELDS).await;
    k.remove(&format!("{PODS}/p")).await;
    k.events("then", &mut watch, 1, EVENT_FIELDS).await;
    k.end()
}

async fn with_labels(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let from = k.version(PODS).await;
    let mut watch = k.watch(&format!("{PODS}?watch=true&labelSelector=app%3Da&resourceVersion={from}")).await;
    let path = k.pod("p").await;
    k.label(&path, "b").await;
    k.ok("PATCH", &path, json!({"metadata": {"labels": {"more": "x"}}})).await;
    k.label(&path, "a").await;
    k.remove(&path).await;
    k.events("it comes, leaves, comes back, goes", &mut watch, 5, EVENT_FIELDS).await;
    k.end()
}

async fn with_fields(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let from = k.version(PODS).await;
    let running = format!("{PODS}?watch=true&fieldSelector=status.phase%3DRunning&resourceVersion={from}");
    let here = format!("{PODS}?watch=true&fieldSelector=spec.nodeName%3D@-n&resourceVersion={from}");
    let mut running = k.watch(&running).await;
    let mut here = k.watch(&here).await;
    let path = k.pod("p").await;
    k.ok("PATCH", &format!("{path}/status"), json!({"status": {"phase": "Failed"}})).await;
    k.remove(&path).await;
    k.events("running", &mut running, 2, EVENT_FIELDS).await;
    k.events("here", &mut here, 4, EVENT_FIELDS).await;
    let node = k.node("n").await;
    let from = k.version(NODES).await;
    let mut cordoned = k
        .watch(&format!(
            "{NODES}?watch=true&fieldSelector=spec.unschedulable%3Dtrue&labelSelector=case%3D@&resourceVersion={from}"
        ))
        .await;
    for cordon in [true, false] {
        k.ok("PATCH", &node, json!({"spec": {"unschedulable": cordon}})).await;
    }
    k.events("cordoned", &mut cordoned, 2, EVENT_FIELDS).await;
    k.end()
}

async fn of_one_object(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    k.pod("q").await;
    let mut watch = k.watch(&format!("{PODS}?watch=true&fieldSelector=metadata.name%3Dq")).await;
    k.label(&format!("{PODS}/p"), "b").await;
    k.events("there", &mut watch, 1, EVENT_FIELDS).await;
    k.label(&format!("{PODS}/q"), "b").await;
    k.events("changed", &mut watch, 1, EVENT_FIELDS).await;
    k.end()
}

async fn of_a_deletion_with_grace(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let from = k.version(PODS).await;
    let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion={from}")).await;
    k.delete(&path, json!({})).await;
    k.remove(&path).await;
    let fields = ["/metadata/deletionTimestamp", "/metadata/deletionGracePeriodSeconds", "/status/phase"];
    k.events("it goes", &mut watch, 2, &fields).await;
    k.end()
}

async fn of_nodes(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    let from = k.version(&node).await;
    let mut watch = k.watch(&format!("{NODES}?watch=true&labelSelector=case%3D@&resourceVersion={from}")).await;
    k.ok("PATCH", &node, json!({"spec": {"unschedulable": true}})).await;
    k.ok("PATCH", &format!("{node}/status"), json!({"status": {"nodeInfo": {"bootID": "boot-2"}}})).await;
    k.ok("PATCH", &node, json!({"spec": {"unschedulable": null}})).await;
    k.delete(&node, json!({})).await;
    k.events("nodes", &mut watch, 4, &["/spec/unschedulable", "/status/nodeInfo/bootID", "/kind", "/apiVersion"]).await;
    k.end()
}

async fn of_the_whole_cluster(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let from = k.version("/api/v1/pods?limit=1").await;
    let mut watch =
        k.watch(&format!("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3D@-n&resourceVersion={from}")).await;
    k.pod("p").await;
    k.events("pods of a node", &mut watch, 2, &["/metadata/namespace", "/status/phase"]).await;
    let mut watch = k.watch("/apis/policy/v1/poddisruptionbudgets?watch=true&labelSelector=case%3D@").await;
    k.budget("b", json!({})).await;
    k.ok(
        "PATCH",
        "/apis/policy/v1/namespaces/@/poddisruptionbudgets/b",
        json!({"metadata": {"labels": {"case": "@"}}}),
    )
    .await;
    k.events("budgets", &mut watch, 1, &["/metadata/namespace", "/kind"]).await;
    k.end()
}

const STREAM: &str = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const BOOKMARK_FIELDS: &[&str] = &["/metadata/annotations", "/metadata/labels"];

async fn with_initial_events(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    k.pod("q").await;
    let mut watch = k.watch(&format!("{PODS}?{STREAM}")).await;
    k.events("what is there, and the mark", &mut watch, 3, BOOKMARK_FIELDS).await;
    watch.marks = false;
    k.label(&format!("{PODS}/p"), "b").await;
    k.events("then", &mut watch, 1, BOOKMARK_FIELDS).await;
    let mut watch = k.watch(&format!("{PODS}?{STREAM}&labelSelector=app%3Da&resourceVersion=0")).await;
    k.events("with a selector", &mut watch, 2, BOOKMARK_FIELDS).await;
    k.end()
}

async fn initial_events_of_nothing(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let mut watch = k.watch(&format!("{PODS}?{STREAM}")).await;
    k.events("the mark", &mut watch, 1, BOOKMARK_FIELDS).await;
    watch.marks = false;
    k.pod("p").await;
    k.events("then", &mut watch, 1, BOOKMARK_FIELDS).await;
    k.end()
}

async fn initial_events_that_do_not_fit(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for (what, query) in [
        ("no match", "watch=true&sendInitialEvents=true&allowWatchBookmarks=true"),
        (
            "another match",
            "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5&allowWatchBookmarks=true",
        ),
        ("no bookmarks", "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"),
        ("no watch", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        ("a match alone", "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=5"),
    ] {
        let mut watch = k.watch(&format!("{PODS}?{query}")).await;
        let code = watch.code;
        let first = if code == 200 { None } else { watch.next().await };
        k.note(what, &json!({"code": code, "reason": first.map(|f| f["reason"].clone())}));
    }
    k.end()
}

async fn ends_in_time(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let from = k.version(PODS).await;
    let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion={from}&timeoutSeconds=1")).await;
    k.pod("p").await;
    k.events("two events and the end", &mut watch, 3, EVENT_FIELDS).await;
    k.end()
}

async fn bookmarks(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let from = k.version(PODS).await;
    let mut watch =
        k.watch(&format!("{PODS}?watch=true&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=5")).await;
    // A bookmark comes before the end of the watch at the latest; the server chooses how many it sends.
    let mut kinds = Vec::new();
    while let Some(event) = watch.next().await {
        let bare = event["object"]["metadata"]["name"].is_null() && event["object"]["spec"]["containers"].is_null();
        kinds.push(json!([
            event["type"],
            event["object"]["kind"],
            bare,
            event["object"]["metadata"]["resourceVersion"].is_string()
        ]));
    }
    kinds.dedup();
    k.note("bookmarks", &json!(kinds));
    k.end()
}

async fn a_version_of_the_past(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let from = k.version(&path).await;
    for app in ["b", "c", "d"] {
        k.label(&path, app).await;
    }
    for _ in 0..2 {
        let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion={from}")).await;
        k.events("every change in order", &mut watch, 3, EVENT_FIELDS).await;
    }
    k.end()
}

async fn bad_versions(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for version in ["abc", "-1"] {
        let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion={version}&timeoutSeconds=1")).await;
        let first = watch.next().await;
        k.note(version, &json!({"code": watch.code, "reason": first.map(|f| f["reason"].clone())}));
    }
    k.end()
}

async fn versions_are_those_of_the_objects(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let from = k.version(PODS).await;
    let mut watch = k.watch(&format!("{PODS}?watch=true&resourceVersion={from}")).await;
    let made = k.ok("POST", PODS, super::session::pod("p")).await;
    let path = format!("{PODS}/p");
    let changed = k.ok("PATCH", &path, json!({"metadata": {"labels": {"x": "y"}}})).await;
    k.remove(&path).await;
    let mut versions: Vec<u64> = Vec::new();
    let mut same = Vec::new();
    for known in [Some(made), Some(changed), None] {
        let event = watch.next().await.unwrap_or_default();
        let version = event["object"]["metadata"]["resourceVersion"].clone();
        same.push(known.map(|k| k["metadata"]["resourceVersion"] == version));
        versions.push(version.as_str().and_then(|v| v.parse().ok()).unwrap_or_default());
    }
    k.note("the same as answered", &json!(same));
    k.note("rising", &json!(versions.windows(2).all(|w| w[0] < w[1])));
    k.end()
}

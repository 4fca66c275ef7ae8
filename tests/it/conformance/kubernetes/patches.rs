//! Patches of all three kinds, and the status subresource.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{JSON, MERGE, NODES, PODS, STRATEGIC, Session},
};

crate::conformance::cases!("patch":
    merge_sets_and_removes, merge_replaces_lists, strategic_merges_lists, strategic_deletes_items, json_operations, json_that_fails,
    stale_versions, versions_of_the_caller, one_that_changes_nothing, status_and_spec_are_apart, generations, a_pod_cannot_move,
    names_cannot_change, another_content_type, nothing_there, a_body_that_is_no_patch, a_cordon_with_its_record, ready_conditions);

const NODE: &[&str] = &["/metadata/labels", "/metadata/annotations", "/spec/unschedulable", "/spec/taints"];

async fn merge_sets_and_removes(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    for body in [
        json!({"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"note": "x"}}}),
        json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"unschedulable": true}}),
        json!({"metadata": {"annotations": null}, "spec": {"unschedulable": null}}),
        json!({"metadata": {"labels": {"none": null}}}),
        json!({"metadata": {"labels": {"empty": ""}}, "spec": {"unschedulable": false}}),
    ] {
        let answer = k.merge(&path, body).await;
        k.note_answer("patch", &answer, NODE);
    }
    k.end()
}

async fn merge_replaces_lists(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    for taints in [json!([taint("a"), taint("b")]), json!([taint("c")]), json!([]), json!(null)] {
        let answer = k.merge(&path, json!({"spec": {"taints": taints}})).await;
        k.note_answer("patch", &answer, NODE);
    }
    k.end()
}

async fn strategic_merges_lists(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let conditions = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    for (kind, status) in [("MemoryPressure", "False"), ("Ready", "Unknown")] {
        let answer = k.call("PATCH", &format!("{path}/status"), &conditions(kind, status), STRATEGIC).await;
        let list = answer.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let mut seen: Vec<String> = list.iter().map(|c| format!("{}={}", c["type"], c["status"])).collect();
        seen.sort();
        k.note(kind, &json!(seen));
    }
    let pod = k.pod("p").await;
    let body = json!({"spec": {"containers": [{"name": "c", "image": "registry.invalid/other:2"}]}});
    let answer = k.call("PATCH", &pod, &body, STRATEGIC).await;
    k.note_answer(
        "a container",
        &answer,
        &["/spec/containers/0/name", "/spec/containers/0/image", "/spec/containers/1"],
    );
    let body = json!({"metadata": {"labels": {"a": "1", "case": null}}, "spec": {"unschedulable": true}});
    let answer = k.call("PATCH", &path, &body, STRATEGIC).await;
    k.note_answer("maps", &answer, NODE);
    k.end()
}

async fn strategic_deletes_items(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let delete = json!({"status": {"addresses": [{"$patch": "delete", "type": "InternalIP"}]}});
    let answer = k.call("PATCH", &format!("{path}/status"), &delete, STRATEGIC).await;
    k.note_answer("an address", &answer, &["/status/addresses"]);
    let body = json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}});
    let answer = k.call("PATCH", &path, &body, STRATEGIC).await;
    k.note_answer("replace a map", &answer, &["/metadata/labels"]);
    k.end()
}

async fn json_operations(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    for body in [
        json!([{"op": "add", "path": "/metadata/labels/example.com~1a", "value": "1"}]),
        json!([{"op": "test", "path": "/metadata/labels/example.com~1a", "value": "1"},
            {"op": "replace", "path": "/metadata/labels/example.com~1a", "value": "2"}]),
        json!([{"op": "add", "path": "/spec/unschedulable", "value": true},
            {"op": "add", "path": "/spec/taints", "value": [{"key": "k", "effect": "NoExecute"}]}]),
        json!([{"op": "remove", "path": "/spec/taints/0"}, {"op": "remove", "path": "/metadata/labels/example.com~1a"}]),
        json!([{"op": "copy", "from": "/metadata/labels/case", "path": "/metadata/labels/copy"}]),
        json!([]),
    ] {
        let answer = k.call("PATCH", &path, &body, JSON).await;
        k.note_answer("patch", &answer, NODE);
    }
    k.end()
}

async fn json_that_fails(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    for (what, body) in [
        ("a test", json!([{"op": "test", "path": "/metadata/labels/case", "value": "other"}])),
        ("remove nothing", json!([{"op": "remove", "path": "/metadata/labels/none"}])),
        ("replace nothing", json!([{"op": "replace", "path": "/metadata/labels/none", "value": "1"}])),
        ("add below nothing", json!([{"op": "add", "path": "/spec/none/deep", "value": "1"}])),
        ("an unknown operation", json!([{"op": "jump", "path": "/spec"}])),
        ("no list", json!({"op": "test"})),
    ] {
        let answer = k.call("PATCH", &path, &body, JSON).await;
        // this message comes from a Go library, so it is not compared
        let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
        k.note(what, &seen);
    }
    k.note_object("unchanged", &path, NODE).await;
    k.end()
}

async fn stale_versions(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let version = k.ok("GET", &path, Value::Null).await["metadata"]["resourceVersion"].clone();
    let body = |cordon: bool| json!({"metadata": {"resourceVersion": version}, "spec": {"unschedulable": cordon}});
    for kind in [MERGE, STRATEGIC] {
        let answer = k.call("PATCH", &path, &body(true), kind).await;
        k.note_answer(kind, &answer, &["/spec/unschedulable"]);
    }
    let test = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": version}]);
    let answer = k.call("PATCH", &path, &test, JSON).await;
    k.note_answer(JSON, &answer, &[]);
    let status = json!({"metadata": {"resourceVersion": version}, "status": {"phase": "Running"}});
    let answer = k.merge(&format!("{path}/status"), status).await;
    k.note_answer("status", &answer, &[]);
    let pod = k.pod("p").await;
    let version = k.ok("GET", &pod, Value::Null).await["metadata"]["resourceVersion"].clone();
    k.ok("PATCH", &pod, json!({"metadata": {"labels": {"x": "y"}}})).await;
    let answer = k.merge(&pod, json!({"metadata": {"resourceVersion": version, "labels": {"x": "z"}}})).await;
    k.note_answer("a pod", &answer, &[]);
    k.note_object("unchanged", &pod, &["/metadata/labels"]).await;
    k.end()
}

async fn versions_of_the_caller(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    for version in [json!(""), json!("0"), json!("abc"), json!(7)] {
        let answer = k.merge(&path, json!({"metadata": {"resourceVersion": version, "labels": {"x": "y"}}})).await;
        let seen = json!({"code": answer.code, "reason": answer.body["reason"], "label": answer.body["metadata"]["labels"]["x"]});
        k.note(&version.to_string(), &seen);
    }
    let uid = json!({"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"x": "z"}}});
    let mut answer = k.merge(&path, uid).await;
    answer.body["message"] = Value::Null;
    k.note_answer("another uid", &answer, &[]);
    k.end()
}

async fn one_that_changes_nothing(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let version = |v: &Value| v["metadata"]["resourceVersion"].clone();
    let before = version(&k.ok("GET", &path, Value::Null).await);
    let same = version(&k.ok("PATCH", &path, json!({"metadata": {"labels": {"case": "@"}}})).await);
    let also = version(&k.ok("PATCH", &path, json!({})).await);
    let other = version(&k.ok("PATCH", &path, json!({"metadata": {"labels": {"case": "other"}}})).await);
    k.note("the version stays, then moves", &json!([before == same, same == also, also == other]));
    k.end()
}

async fn status_and_spec_are_apart(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    let boot = json!({"spec": {"unschedulable": true}, "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}},
        "status": {"nodeInfo": {"bootID": "boot-2"}}});
    let fields = ["/spec/unschedulable", "/status/nodeInfo/bootID", "/metadata/labels/l", "/metadata/annotations/a"];
    let answer = k.merge(&node, boot.clone()).await;
    k.note_answer("a node", &answer, &fields);
    let node = k.node("m").await;
    let answer = k.merge(&format!("{node}/status"), boot).await;
    k.note_answer("a node's status", &answer, &fields);
    let pod = k.pod("p").await;
    let answer = k.merge(&pod, json!({"status": {"phase": "Failed"}})).await;
    k.note_answer("a pod", &answer, &["/status/phase"]);
    let answer = k.merge(&format!("{pod}/status"), json!({"status": {"phase": "Failed"}})).await;
    k.note_answer("a pod's status", &answer, &["/status/phase"]);
    k.note_object("get the status", &format!("{pod}/status"), &["/kind", "/status/phase"]).await;
    let budget = k.budget("b", json!({})).await;
    let both = json!({"spec": {"minAvailable": 9}, "status": {"disruptionsAllowed": 9, "observedGeneration": 1,
        "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}});
    let fields = ["/spec/minAvailable", "/status/disruptionsAllowed", "/metadata/generation"];
    let answer = k.merge(&format!("{budget}/status"), both.clone()).await;
    k.note_answer("a budget's status", &answer, &fields);
    k.ok("PATCH", &format!("{budget}/status"), json!({"status": {"disruptionsAllowed": 3}})).await;
    let answer = k.merge(&budget, both).await;
    k.note_answer("a budget", &answer, &fields);
    k.note_object("the path of no status", "/api/v1/namespaces/@/configmaps/x/status", &[]).await;
    k.end()
}

async fn generations(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let budget = k.budget("b", json!({})).await;
    for body in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"minAvailable": 1}}),
        json!({"spec": {"minAvailable": 1}}),
        json!({"metadata": {"generation": 40}}),
    ] {
        let answer = k.merge(&budget, body).await;
        k.note_answer("a budget", &answer, &["/metadata/generation"]);
    }
    let node = k.node("n").await;
    let answer = k.merge(&node, json!({"spec": {"unschedulable": true}})).await;
    k.note_answer("a node", &answer, &["/metadata/generation"]);
    let template = json!({"metadata": {"labels": {"d": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body = json!({"metadata": {"name": "r"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"d": "1"}}, "template": template}});
    k.ok("POST", "/apis/apps/v1/namespaces/@/replicasets", body).await;
    let set = "/apis/apps/v1/namespaces/@/replicasets/r";
    let answer = k.merge(set, json!({"spec": {"replicas": 2}})).await;
    k.note_answer("a ReplicaSet", &answer, &["/metadata/generation", "/spec/replicas"]);
    k.end()
}

async fn a_pod_cannot_move(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let pod = k.pod("p").await;
    let answer = k.merge(&pod, json!({"spec": {"nodeName": "elsewhere"}})).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("another node", &seen);
    k.note_object("unchanged", &pod, &["/spec/nodeName"]).await;
    k.end()
}

async fn names_cannot_change(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let answer = k.merge(&path, json!({"metadata": {"name": "other"}})).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("a name", &seen);
    let pod = k.pod("p").await;
    let answer = k.merge(&pod, json!({"metadata": {"namespace": "other"}})).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("a namespace", &seen);
    let answer = k.merge(&pod, json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}})).await;
    let old = answer.body["metadata"]["creationTimestamp"] == "2001-01-01T00:00:00Z";
    k.note("a birthday", &json!({"code": answer.code, "moved": old}));
    k.end()
}

async fn another_content_type(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    for kind in ["application/json", "text/plain"] {
        let answer = k.call("PATCH", &path, &json!({"spec": {"unschedulable": true}}), kind).await;
        let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
        k.note(kind, &seen);
    }
    k.end()
}

async fn nothing_there(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for path in [format!("{NODES}/@-none"), format!("{NODES}/@-none/status"), format!("{PODS}/none")] {
        let answer = k.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await;
        k.note_answer(&path, &answer, &[]);
    }
    k.end()
}

async fn a_body_that_is_no_patch(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    for (what, body, kind) in [
        ("a brace", json!("{"), MERGE),
        ("a list", json!("[]"), MERGE),
        ("a number", json!("5"), STRATEGIC),
        ("a wrong type", json!({"spec": {"unschedulable": "yes"}}), MERGE),
        ("a wrong type of list", json!({"spec": {"taints": "yes"}}), MERGE),
    ] {
        let answer = k.call("PATCH", &path, &body, kind).await;
        let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
        k.note(what, &seen);
    }
    k.note_object("unchanged", &path, NODE).await;
    k.end()
}

async fn a_cordon_with_its_record(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let version = |v: &Value| v["metadata"]["resourceVersion"].clone();
    let seen = version(&k.ok("GET", &path, Value::Null).await);
    let cordon = json!({"metadata": {"resourceVersion": seen, "annotations": {"example.com/owner": "{\"lease\":7}", "example.com/mark": "true"}},
        "spec": {"unschedulable": true}});
    let answer = k.merge(&path, cordon.clone()).await;
    k.note_answer("cordon", &answer, NODE);
    let late = k.merge(&path, cordon).await;
    k.note_answer("by a late reader", &late, &[]);
    let release = json!({"metadata": {"resourceVersion": version(&answer.body), "annotations": {"example.com/owner": null, "example.com/mark": null}},
        "spec": {"unschedulable": null}});
    let answer = k.merge(&path, release).await;
    k.note_answer("release", &answer, NODE);
    k.end()
}

async fn ready_conditions(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let beat = |status: &str| {
        json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "NodeStatusUnknown",
            "lastTransitionTime": "2025-02-01T00:00:00Z", "lastHeartbeatTime": "2025-02-01T00:00:00Z"}]}})
    };
    for status in ["Unknown", "True"] {
        let answer = k.merge(&format!("{path}/status"), beat(status)).await;
        k.note_answer(status, &answer, &["/status/conditions", "/spec/taints"]);
    }
    k.end()
}

//! Creation and replacement.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{BUDGETS, NODES, PODS, Session, pod},
};

crate::conformance::cases!("create":
    a_pod, a_node, a_budget, defaults_that_clients_read, twice, a_generated_name, no_name, bad_names, by_a_dry_run, not_json,
    another_kind, another_namespace, an_unknown_namespace, a_version_of_ones_own, bad_values, both_numbers_in_a_budget, replaced,
    replaced_with_a_stale_version, replaced_where_nothing_is, bound_to_a_node);

const IDENTITY_FIELDS: &[&str] =
    &["/kind", "/apiVersion", "/metadata/name", "/metadata/namespace", "/metadata/generation", "/metadata/labels"];

async fn a_pod(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let answer = k.post(PODS, pod("p")).await;
    k.note_answer("create", &answer, IDENTITY_FIELDS);
    let fields = ["/status/phase", "/spec/nodeName", "/spec/terminationGracePeriodSeconds", "/spec/containers/0/image"];
    k.note_answer("its fields", &answer, &fields);
    let set = ["uid", "creationTimestamp", "resourceVersion"].map(|f| answer.body["metadata"][f].is_string());
    k.note("uid, time, version", &json!(set));
    k.note_object("look", &format!("{PODS}/p"), IDENTITY_FIELDS).await;
    k.end()
}

async fn a_node(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let answer = k.post(NODES, json!({"metadata": {"name": "@-n"}})).await;
    k.note_answer("create", &answer, IDENTITY_FIELDS);
    k.note_answer("spec", &answer, &["/spec/unschedulable", "/spec/taints", "/spec/podCIDR"]);
    k.end()
}

async fn a_budget(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for (i, number) in [json!({"minAvailable": "50%"}), json!({"maxUnavailable": 1}), json!({"maxUnavailable": "30%"})]
        .into_iter()
        .enumerate()
    {
        let mut spec = number;
        spec["selector"] = json!({"matchLabels": {"app": "a"}});
        let answer = k.post(BUDGETS, json!({"metadata": {"name": format!("b{i}")}, "spec": spec})).await;
        k.note_answer(&format!("b{i}"), &answer, &["/kind", "/metadata/generation", "/spec", "/status"]);
    }
    k.end()
}

async fn defaults_that_clients_read(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let bare = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let answer = k.post(PODS, bare).await;
    let fields = [
        "/kind",
        "/apiVersion",
        "/spec/terminationGracePeriodSeconds",
        "/spec/restartPolicy",
        "/status/phase",
        "/spec/priority",
    ];
    k.note_answer("a pod", &answer, &fields);
    let template = json!({"metadata": {"labels": {"d": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let selector = json!({"matchLabels": {"d": "1"}});
    let daemons = "/apis/apps/v1/namespaces/@/daemonsets";
    let body = json!({"metadata": {"name": "d"}, "spec": {"selector": selector, "template": template}});
    let answer = k.post(daemons, body).await;
    k.note_answer("a DaemonSet", &answer, &["/spec/updateStrategy/type", "/metadata/generation"]);
    let body = json!({"metadata": {"name": "r"}, "spec": {"selector": selector, "template": template}});
    let answer = k.post("/apis/apps/v1/namespaces/@/replicasets", body).await;
    k.note_answer("a ReplicaSet", &answer, &["/spec/replicas", "/metadata/generation"]);
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let answer = k.post("/apis/batch/v1/namespaces/@/jobs", job).await;
    k.note_answer(
        "a Job",
        &answer,
        &["/spec/parallelism", "/spec/completions", "/spec/backoffLimit", "/metadata/generation"],
    );
    k.end()
}

async fn twice(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for (at, body) in [
        (PODS, pod("p")),
        (NODES, json!({"metadata": {"name": "@-n"}})),
        (BUDGETS, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}})),
        ("/api/v1/namespaces", json!({"metadata": {"name": "@"}})),
    ] {
        for _ in 0..2 {
            let answer = k.post(at, body.clone()).await;
            k.note_answer(at, &answer, &["/metadata/name"]);
        }
    }
    k.end()
}

async fn a_generated_name(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let mut names = Vec::new();
    for _ in 0..2 {
        let mut body = pod("");
        body["metadata"] = json!({"generateName": "web-"});
        let made = k.post(PODS, body).await;
        k.note_answer("create", &made, &["/metadata/generateName"]);
        names.push(made.body["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    }
    let fits = |n: &String| n.starts_with("web-") && n.len() == 9;
    k.note("their names", &json!(names.iter().all(fits) && names[0] != names[1]));
    k.end()
}

async fn no_name(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for (at, body) in
        [(PODS, pod("")), (NODES, json!({"metadata": {}})), (BUDGETS, json!({"spec": {"minAvailable": 1}}))]
    {
        let answer = k.post(at, body).await;
        k.note_answer(at, &answer, &[]);
    }
    k.end()
}

async fn bad_names(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for name in ["Upper", "under_score", "-dash", "a/b", "a..b"] {
        let answer = k.post(NODES, json!({"metadata": {"name": format!("@{name}")}})).await;
        let seen = json!({"code": answer.code, "reason": answer.body["reason"], "field": answer.body["details"]["causes"][0]["field"]});
        k.note(name, &seen);
    }
    let answer = k.post(NODES, json!({"metadata": {"name": "Upper"}})).await;
    k.note_answer("whole", &answer, &[]);
    k.end()
}

async fn by_a_dry_run(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let answer = k.post(&format!("{PODS}?dryRun=All"), pod("p")).await;
    k.note_answer("create", &answer, IDENTITY_FIELDS);
    k.note_object("not there", &format!("{PODS}/p"), &[]).await;
    let path = k.node("n").await;
    let answer = k.merge(&format!("{path}?dryRun=All"), json!({"spec": {"unschedulable": true}})).await;
    k.note_answer("patch", &answer, &["/spec/unschedulable"]);
    k.note_object("unchanged", &path, &["/spec/unschedulable"]).await;
    k.end()
}

async fn not_json(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for (what, body) in [("a brace", "{"), ("text", "hello"), ("a list", "[]"), ("nothing", "")] {
        let answer = k.post(PODS, json!(body)).await;
        let seen = json!({"code": answer.code, "kind": answer.body["kind"], "reason": answer.body["reason"]});
        k.note(what, &seen);
    }
    k.end()
}

async fn another_kind(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let answer = k.post(PODS, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "p"}})).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("a node", &seen);
    let answer = k.post(PODS, json!({"apiVersion": "v9", "kind": "Pod", "metadata": {"name": "p"}})).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("of another version", &seen);
    k.end()
}

async fn another_namespace(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let mut body = pod("p");
    body["metadata"]["namespace"] = json!("elsewhere");
    let answer = k.post(PODS, body).await;
    k.note_answer("create", &answer, &[]);
    k.end()
}

async fn an_unknown_namespace(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let answer = k.post("/api/v1/namespaces/nowhere/pods", pod("p")).await;
    k.note_answer("create", &answer, &[]);
    k.note_object("look", "/api/v1/namespaces/nowhere/pods/p", &[]).await;
    k.note_object("list", "/api/v1/namespaces/nowhere/pods", &["/kind", "/items"]).await;
    k.note_object("the namespace", "/api/v1/namespaces/nowhere", &[]).await;
    k.end()
}

async fn a_version_of_ones_own(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let mut body = pod("p");
    body["metadata"]["resourceVersion"] = json!("5");
    let answer = k.post(PODS, body).await;
    k.note_answer("with a version", &answer, &[]);
    let mut body = pod("q");
    body["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let answer = k.post(PODS, body).await;
    k.note_answer("with a uid", &answer, &[]);
    let kept = answer.body["metadata"]["uid"] == "00000000-0000-0000-0000-000000000000";
    let old = answer.body["metadata"]["creationTimestamp"] == "2001-01-01T00:00:00Z";
    k.note("kept", &json!([kept, old]));
    let mut body = pod("r");
    body["status"] = json!({"phase": "Running"});
    let answer = k.post(PODS, body).await;
    k.note_answer("with a status", &answer, &["/status/phase"]);
    k.end()
}

async fn bad_values(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let answer = k.post(NODES, json!({"metadata": {"name": "@-n"}, "spec": {"unschedulable": "yes"}})).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("a word for a truth value", &seen);
    let answer = k.post(NODES, json!({"metadata": {"name": "@-n", "labels": {"a b": "c"}}})).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("a label with a space", &seen);
    k.end()
}

async fn both_numbers_in_a_budget(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let body = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {}}});
    let answer = k.post(BUDGETS, body).await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("both", &seen);
    k.end()
}

async fn replaced(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let mut body = k.ok("GET", &path, Value::Null).await;
    body["metadata"]["labels"] = json!({"new": "yes"});
    body["spec"]["unschedulable"] = json!(true);
    let answer = k.put(&path, body.clone()).await;
    k.note_answer("replace", &answer, &["/metadata/labels", "/spec/unschedulable", "/status/nodeInfo/bootID"]);
    body["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    body["metadata"]["labels"] = json!({"newer": "yes"});
    let answer = k.put(&path, body.clone()).await;
    k.note_answer("without a version", &answer, &["/metadata/labels"]);
    body["metadata"]["name"] = json!("other");
    let answer = k.put(&path, body.clone()).await;
    k.note_answer("another name", &answer, &[]);
    body["metadata"]["name"] = json!("@-n");
    body["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let mut answer = k.put(&path, body).await;
    answer.body["message"] = Value::Null;
    k.note_answer("another uid", &answer, &[]);
    k.end()
}

async fn replaced_with_a_stale_version(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for path in [k.node("n").await, k.budget("b", json!({})).await, k.pod("p").await] {
        let body = k.ok("GET", &path, Value::Null).await;
        k.ok("PATCH", &path, json!({"metadata": {"labels": {"x": "y"}}})).await;
        let answer = k.put(&path, body).await;
        k.note_answer("replace", &answer, &[]);
    }
    k.end()
}

async fn replaced_where_nothing_is(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let answer = k.put(&format!("{PODS}/p"), pod("p")).await;
    k.note_answer("a pod", &answer, &[]);
    k.end()
}

async fn bound_to_a_node(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let mut body = pod("p");
    body["spec"].as_object_mut().expect("a spec").remove("nodeName");
    k.ok("POST", PODS, body).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "@-n"}});
    for _ in 0..2 {
        let answer = k.post(&format!("{PODS}/p/binding"), binding.clone()).await;
        k.note_answer("bind", &answer, &[]);
    }
    k.note_object("the pod", &format!("{PODS}/p"), &["/spec/nodeName", "/status/phase"]).await;
    k.end()
}

//! Deletions: preconditions, dry runs, grace, finalizers, collections.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{BUDGETS, MERGE, NODES, PODS, Session, pod},
};

crate::conformance::cases!("delete":
    with_preconditions, with_a_stale_version, by_a_dry_run, with_grace, without_grace, grace_is_only_shortened, unscheduled,
    finalizers, nothing, a_node, a_collection, a_namespace_without_its_controller, a_body_that_does_not_fit, options_in_the_query,
    what_is_owned, jobs_leave_their_pods);

const DELETION_FIELDS: &[&str] = &[
    "/kind",
    "/metadata/name",
    "/metadata/deletionTimestamp",
    "/metadata/deletionGracePeriodSeconds",
    "/metadata/finalizers",
];

async fn with_preconditions(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let uid = k.ok("GET", &path, Value::Null).await["metadata"]["uid"].clone();
    let wrong = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}, "gracePeriodSeconds": 0});
    let answer = k.delete(&path, wrong.clone()).await;
    k.note_answer("a wrong uid", &answer, &[]);
    k.note_object("it stays", &path, DELETION_FIELDS).await;
    let answer = k.delete(&path, json!({"preconditions": {"uid": uid}, "gracePeriodSeconds": 0})).await;
    k.note_answer("the right uid", &answer, DELETION_FIELDS);
    k.note_object("it is gone", &path, DELETION_FIELDS).await;
    let answer = k.delete(&path, wrong).await;
    k.note_answer("of one that is gone", &answer, &[]);
    k.end()
}

async fn with_a_stale_version(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let version = k.ok("GET", &path, Value::Null).await["metadata"]["resourceVersion"].clone();
    let after =
        k.ok("PATCH", &path, json!({"metadata": {"labels": {"x": "y"}}})).await["metadata"]["resourceVersion"].clone();
    let mut answer = k.delete(&path, json!({"preconditions": {"resourceVersion": version}})).await;
    answer.body["message"] = json!(answer.body["message"].as_str().unwrap_or_default().split("ResourceVersion").next());
    k.note_answer("stale", &answer, &[]);
    let answer = k.delete(&path, json!({"preconditions": {"resourceVersion": after}})).await;
    k.note_answer("fresh", &answer, &[]);
    k.end()
}

async fn by_a_dry_run(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let answer = k.delete(&path, json!({"dryRun": ["All"]})).await;
    k.note_answer("in the options", &answer, DELETION_FIELDS);
    k.note_object("it stays", &path, DELETION_FIELDS).await;
    let answer = k.call("DELETE", &format!("{path}?dryRun=All"), &Value::Null, "application/json").await;
    k.note_answer("in the query", &answer, DELETION_FIELDS);
    let answer = k.delete(&path, json!({"dryRun": ["All"], "gracePeriodSeconds": 0})).await;
    k.note_answer("without grace", &answer, DELETION_FIELDS);
    k.note_object("it stays", &path, DELETION_FIELDS).await;
    let node = k.node("n").await;
    let answer = k.delete(&node, json!({"dryRun": ["All"]})).await;
    k.note_answer("a node", &answer, DELETION_FIELDS);
    k.note_object("it stays too", &node, DELETION_FIELDS).await;
    k.end()
}

async fn with_grace(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for (name, options) in
        [("p", json!({})), ("q", json!({"gracePeriodSeconds": 30})), ("r", json!({"gracePeriodSeconds": 1}))]
    {
        let path = k.pod(name).await;
        let answer = k.delete(&path, options).await;
        k.note_answer(name, &answer, DELETION_FIELDS);
        k.note_object("then", &path, DELETION_FIELDS).await;
    }
    k.end()
}

async fn without_grace(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let answer = k.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    k.note_answer("delete", &answer, DELETION_FIELDS);
    k.note_object("gone", &path, DELETION_FIELDS).await;
    let path = k.pod("p").await;
    k.delete(&path, json!({})).await;
    let answer = k.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    k.note_answer("of one that goes already", &answer, DELETION_FIELDS);
    k.note_object("gone", &path, DELETION_FIELDS).await;
    let path = k.pod("p").await;
    let answer = k.delete(&path, json!({"gracePeriodSeconds": -1})).await;
    k.note_answer("less than none", &answer, DELETION_FIELDS);
    k.end()
}

async fn grace_is_only_shortened(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    for grace in [60, 90, 20, 20, 1] {
        let answer = k.delete(&path, json!({"gracePeriodSeconds": grace})).await;
        k.note_answer(&format!("{grace}"), &answer, DELETION_FIELDS);
    }
    let answer = k.delete(&path, json!({})).await;
    k.note_answer("its own", &answer, DELETION_FIELDS);
    k.end()
}

async fn unscheduled(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let mut body = pod("p");
    body["spec"].as_object_mut().expect("a spec").remove("nodeName");
    let made = k.post(PODS, body).await;
    k.note_answer("create", &made, &["/status/phase", "/spec/nodeName"]);
    let answer = k.delete(&format!("{PODS}/p"), json!({})).await;
    k.note_answer("delete", &answer, DELETION_FIELDS);
    k.note_object("gone", &format!("{PODS}/p"), DELETION_FIELDS).await;
    k.end()
}

async fn finalizers(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    k.ok("PATCH", &path, json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})).await;
    let answer = k.delete(&path, json!({})).await;
    k.note_answer("delete", &answer, DELETION_FIELDS);
    let answer = k.delete(&path, json!({})).await;
    k.note_answer("again", &answer, DELETION_FIELDS);
    let answer = k.merge(&path, json!({"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}})).await;
    k.note_answer("a new one", &answer, DELETION_FIELDS);
    let answer = k.merge(&path, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    k.note_answer("one less", &answer, DELETION_FIELDS);
    let answer = k.merge(&path, json!({"spec": {"unschedulable": true}})).await;
    k.note_answer("it still changes", &answer, &["/spec/unschedulable"]);
    let answer = k.merge(&path, json!({"metadata": {"finalizers": null}})).await;
    k.note_answer("none left", &answer, DELETION_FIELDS);
    k.note_object("gone", &path, DELETION_FIELDS).await;
    k.end()
}

async fn nothing(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for path in [
        format!("{PODS}/none"),
        format!("{NODES}/@-none"),
        format!("{BUDGETS}/none"),
        "/api/v1/namespaces/none".to_owned(),
    ] {
        let answer = k.delete(&path, json!({})).await;
        k.note_answer(&path, &answer, &[]);
    }
    k.end()
}

async fn a_node(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.node("n").await;
    let answer = k.delete(&path, json!({})).await;
    k.note_answer("delete", &answer, &[]);
    k.note_object("gone", &path, DELETION_FIELDS).await;
    let budget = k.budget("b", json!({})).await;
    let answer = k.delete(&budget, json!({"propagationPolicy": "Background"})).await;
    k.note_answer("a budget", &answer, &[]);
    k.end()
}

async fn a_collection(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for name in ["p", "q", "r"] {
        k.pod(name).await;
    }
    k.ok("PATCH", &format!("{PODS}/q"), json!({"metadata": {"labels": {"app": "b"}}})).await;
    let answer = k.delete(&format!("{PODS}?labelSelector=app%3Da"), json!({"gracePeriodSeconds": 0})).await;
    k.note_answer(
        "delete a",
        &answer,
        &["/kind", "/items/0/metadata/name", "/items/1/metadata/name", "/items/2/metadata/name"],
    );
    k.note_object("the rest", PODS, &["/items/0/metadata/name", "/items/1/metadata/name"]).await;
    k.end()
}

async fn a_namespace_without_its_controller(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = "/api/v1/namespaces/@";
    k.note_object("before", path, &["/status/phase", "/spec/finalizers", "/metadata/labels"]).await;
    let answer = k.delete(path, json!({})).await;
    k.note_answer("delete", &answer, &["/status/phase", "/spec/finalizers", "/metadata/deletionTimestamp"]);
    let answer = k.delete(path, json!({})).await;
    k.note_answer("again", &answer, &["/status/phase"]);
    for (at, body) in [(PODS, pod("p")), (BUDGETS, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}}))] {
        let answer = k.post(at, body).await;
        k.note_answer("create in it", &answer, &[]);
    }
    k.end()
}

async fn a_body_that_does_not_fit(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let answer = k.call("DELETE", &path, &json!("{"), "application/json").await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("not JSON", &seen);
    let answer = k.call("DELETE", &path, &json!({"dryRun": ["Some"]}), "application/json").await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("an unknown dry run", &seen);
    let answer = k.call("DELETE", &path, &json!({"gracePeriodSeconds": 0}), "application/json").await;
    k.note_answer("no kind", &answer, DELETION_FIELDS);
    let answer = k.call("PATCH", &path, &json!({}), MERGE).await;
    k.note_answer("patch of one that is gone", &answer, &[]);
    k.end()
}

async fn options_in_the_query(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let answer = k.call("DELETE", &format!("{path}?gracePeriodSeconds=9"), &Value::Null, "application/json").await;
    k.note_answer("nine seconds", &answer, DELETION_FIELDS);
    let answer = k.call("DELETE", &format!("{path}?gracePeriodSeconds=0"), &Value::Null, "application/json").await;
    k.note_answer("none", &answer, DELETION_FIELDS);
    k.end()
}

async fn what_is_owned(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = "/api/v1/namespaces/@/configmaps";
    for policy in ["Foreground", "Orphan", "Background", "Sideways"] {
        let name = policy.to_lowercase();
        k.ok("POST", path, json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}})).await;
        let answer = k.delete(&format!("{path}/{name}"), json!({"propagationPolicy": policy})).await;
        k.note_answer(policy, &answer, DELETION_FIELDS);
    }
    for policy in ["Orphan", "Foreground"] {
        let answer = k.delete(&format!("{path}/foreground"), json!({"propagationPolicy": policy})).await;
        k.note_answer(&format!("once more: {policy}"), &answer, DELETION_FIELDS);
    }
    let answer = k.delete(&format!("{path}/foreground"), json!({})).await;
    k.note_answer("once more, and nothing is said", &answer, DELETION_FIELDS);
    k.pod("p").await;
    let answer = k.delete(&format!("{PODS}/p"), json!({"propagationPolicy": "Foreground"})).await;
    k.note_answer("a pod", &answer, DELETION_FIELDS);
    let answer = k.merge(&format!("{PODS}/p"), json!({"metadata": {"finalizers": null}})).await;
    k.note_answer("without the finalizer", &answer, DELETION_FIELDS);
    k.end()
}

async fn jobs_leave_their_pods(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = "/apis/batch/v1/namespaces/@/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    for (name, options) in [("j", json!({})), ("k", json!({"propagationPolicy": "Background"}))] {
        k.ok("POST", path, json!({"metadata": {"name": name}, "spec": {"template": template}})).await;
        let answer = k.delete(&format!("{path}/{name}"), options).await;
        k.note_answer(name, &answer, DELETION_FIELDS);
        k.note_object("then", &format!("{path}/{name}"), DELETION_FIELDS).await;
    }
    k.end()
}

//! Deletions: preconditions, dry runs, grace, finalizers, collections.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::place::Place,
    ask::{Ask, BUDGETS, MERGE, NODES, PODS, pod},
};

crate::conformance::cases!("delete":
    with_preconditions, with_a_stale_version, by_a_dry_run, with_grace, without_grace, grace_is_only_shortened, unscheduled,
    finalizers, nothing, a_node, a_collection, a_namespace_without_its_controller, a_body_that_does_not_fit, options_in_the_query,
    what_is_owned, jobs_leave_their_pods);

const GOING: &[&str] = &[
    "/kind",
    "/metadata/name",
    "/metadata/deletionTimestamp",
    "/metadata/deletionGracePeriodSeconds",
    "/metadata/finalizers",
];

async fn with_preconditions(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.pod("p").await;
    let uid = k.ok("GET", &path, Value::Null).await["metadata"]["uid"].clone();
    let wrong = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}, "gracePeriodSeconds": 0});
    let answer = k.delete(&path, wrong.clone()).await;
    k.say("a wrong uid", &answer, &[]);
    k.look("it stays", &path, GOING).await;
    let answer = k.delete(&path, json!({"preconditions": {"uid": uid}, "gracePeriodSeconds": 0})).await;
    k.say("the right uid", &answer, GOING);
    k.look("it is gone", &path, GOING).await;
    let answer = k.delete(&path, wrong).await;
    k.say("of one that is gone", &answer, &[]);
    k.end()
}

async fn with_a_stale_version(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.node("n").await;
    let version = k.ok("GET", &path, Value::Null).await["metadata"]["resourceVersion"].clone();
    let after =
        k.ok("PATCH", &path, json!({"metadata": {"labels": {"x": "y"}}})).await["metadata"]["resourceVersion"].clone();
    let mut answer = k.delete(&path, json!({"preconditions": {"resourceVersion": version}})).await;
    answer.body["message"] = json!(answer.body["message"].as_str().unwrap_or_default().split("ResourceVersion").next());
    k.say("stale", &answer, &[]);
    let answer = k.delete(&path, json!({"preconditions": {"resourceVersion": after}})).await;
    k.say("fresh", &answer, &[]);
    k.end()
}

async fn by_a_dry_run(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.pod("p").await;
    let answer = k.delete(&path, json!({"dryRun": ["All"]})).await;
    k.say("in the options", &answer, GOING);
    k.look("it stays", &path, GOING).await;
    let answer = k.call("DELETE", &format!("{path}?dryRun=All"), &Value::Null, "application/json").await;
    k.say("in the query", &answer, GOING);
    let answer = k.delete(&path, json!({"dryRun": ["All"], "gracePeriodSeconds": 0})).await;
    k.say("without grace", &answer, GOING);
    k.look("it stays", &path, GOING).await;
    let node = k.node("n").await;
    let answer = k.delete(&node, json!({"dryRun": ["All"]})).await;
    k.say("a node", &answer, GOING);
    k.look("it stays too", &node, GOING).await;
    k.end()
}

async fn with_grace(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    for (name, options) in
        [("p", json!({})), ("q", json!({"gracePeriodSeconds": 30})), ("r", json!({"gracePeriodSeconds": 1}))]
    {
        let path = k.pod(name).await;
        let answer = k.delete(&path, options).await;
        k.say(name, &answer, GOING);
        k.look("then", &path, GOING).await;
    }
    k.end()
}

async fn without_grace(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.pod("p").await;
    let answer = k.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    k.say("delete", &answer, GOING);
    k.look("gone", &path, GOING).await;
    let path = k.pod("p").await;
    k.delete(&path, json!({})).await;
    let answer = k.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    k.say("of one that goes already", &answer, GOING);
    k.look("gone", &path, GOING).await;
    let path = k.pod("p").await;
    let answer = k.delete(&path, json!({"gracePeriodSeconds": -1})).await;
    k.say("less than none", &answer, GOING);
    k.end()
}

async fn grace_is_only_shortened(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.pod("p").await;
    for grace in [60, 90, 20, 20, 1] {
        let answer = k.delete(&path, json!({"gracePeriodSeconds": grace})).await;
        k.say(&format!("{grace}"), &answer, GOING);
    }
    let answer = k.delete(&path, json!({})).await;
    k.say("its own", &answer, GOING);
    k.end()
}

async fn unscheduled(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let mut body = pod("p");
    body["spec"].as_object_mut().expect("a spec").remove("nodeName");
    let made = k.post(PODS, body).await;
    k.say("create", &made, &["/status/phase", "/spec/nodeName"]);
    let answer = k.delete(&format!("{PODS}/p"), json!({})).await;
    k.say("delete", &answer, GOING);
    k.look("gone", &format!("{PODS}/p"), GOING).await;
    k.end()
}

async fn finalizers(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.node("n").await;
    k.ok("PATCH", &path, json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})).await;
    let answer = k.delete(&path, json!({})).await;
    k.say("delete", &answer, GOING);
    let answer = k.delete(&path, json!({})).await;
    k.say("again", &answer, GOING);
    let answer = k.merge(&path, json!({"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}})).await;
    k.say("a new one", &answer, GOING);
    let answer = k.merge(&path, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    k.say("one less", &answer, GOING);
    let answer = k.merge(&path, json!({"spec": {"unschedulable": true}})).await;
    k.say("it still changes", &answer, &["/spec/unschedulable"]);
    let answer = k.merge(&path, json!({"metadata": {"finalizers": null}})).await;
    k.say("none left", &answer, GOING);
    k.look("gone", &path, GOING).await;
    k.end()
}

async fn nothing(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    for path in [
        format!("{PODS}/none"),
        format!("{NODES}/@-none"),
        format!("{BUDGETS}/none"),
        "/api/v1/namespaces/none".to_owned(),
    ] {
        let answer = k.delete(&path, json!({})).await;
        k.say(&path, &answer, &[]);
    }
    k.end()
}

async fn a_node(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.node("n").await;
    let answer = k.delete(&path, json!({})).await;
    k.say("delete", &answer, &[]);
    k.look("gone", &path, GOING).await;
    let budget = k.budget("b", json!({})).await;
    let answer = k.delete(&budget, json!({"propagationPolicy": "Background"})).await;
    k.say("a budget", &answer, &[]);
    k.end()
}

async fn a_collection(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    for name in ["p", "q", "r"] {
        k.pod(name).await;
    }
    k.ok("PATCH", &format!("{PODS}/q"), json!({"metadata": {"labels": {"app": "b"}}})).await;
    let answer = k.delete(&format!("{PODS}?labelSelector=app%3Da"), json!({"gracePeriodSeconds": 0})).await;
    k.say(
        "delete a",
        &answer,
        &["/kind", "/items/0/metadata/name", "/items/1/metadata/name", "/items/2/metadata/name"],
    );
    k.look("the rest", PODS, &["/items/0/metadata/name", "/items/1/metadata/name"]).await;
    k.end()
}

async fn a_namespace_without_its_controller(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = "/api/v1/namespaces/@";
    k.look("before", path, &["/status/phase", "/spec/finalizers", "/metadata/labels"]).await;
    let answer = k.delete(path, json!({})).await;
    k.say("delete", &answer, &["/status/phase", "/spec/finalizers", "/metadata/deletionTimestamp"]);
    let answer = k.delete(path, json!({})).await;
    k.say("again", &answer, &["/status/phase"]);
    for (at, body) in [(PODS, pod("p")), (BUDGETS, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}}))] {
        let answer = k.post(at, body).await;
        k.say("create in it", &answer, &[]);
    }
    k.end()
}

async fn a_body_that_does_not_fit(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.pod("p").await;
    let answer = k.call("DELETE", &path, &json!("{"), "application/json").await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("not JSON", &seen);
    let answer = k.call("DELETE", &path, &json!({"dryRun": ["Some"]}), "application/json").await;
    let seen = json!({"code": answer.code, "reason": answer.body["reason"]});
    k.note("an unknown dry run", &seen);
    let answer = k.call("DELETE", &path, &json!({"gracePeriodSeconds": 0}), "application/json").await;
    k.say("no kind", &answer, GOING);
    let answer = k.call("PATCH", &path, &json!({}), MERGE).await;
    k.say("patch of one that is gone", &answer, &[]);
    k.end()
}

async fn options_in_the_query(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = k.pod("p").await;
    let answer = k.call("DELETE", &format!("{path}?gracePeriodSeconds=9"), &Value::Null, "application/json").await;
    k.say("nine seconds", &answer, GOING);
    let answer = k.call("DELETE", &format!("{path}?gracePeriodSeconds=0"), &Value::Null, "application/json").await;
    k.say("none", &answer, GOING);
    k.end()
}

async fn what_is_owned(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = "/api/v1/namespaces/@/configmaps";
    for policy in ["Foreground", "Orphan", "Background", "Sideways"] {
        let name = policy.to_lowercase();
        k.ok("POST", path, json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}})).await;
        let answer = k.delete(&format!("{path}/{name}"), json!({"propagationPolicy": policy})).await;
        k.say(policy, &answer, GOING);
    }
    for policy in ["Orphan", "Foreground"] {
        let answer = k.delete(&format!("{path}/foreground"), json!({"propagationPolicy": policy})).await;
        k.say(&format!("once more: {policy}"), &answer, GOING);
    }
    let answer = k.delete(&format!("{path}/foreground"), json!({})).await;
    k.say("once more, and nothing is said", &answer, GOING);
    k.pod("p").await;
    let answer = k.delete(&format!("{PODS}/p"), json!({"propagationPolicy": "Foreground"})).await;
    k.say("a pod", &answer, GOING);
    let answer = k.merge(&format!("{PODS}/p"), json!({"metadata": {"finalizers": null}})).await;
    k.say("without the finalizer", &answer, GOING);
    k.end()
}

async fn jobs_leave_their_pods(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let path = "/apis/batch/v1/namespaces/@/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    for (name, options) in [("j", json!({})), ("k", json!({"propagationPolicy": "Background"}))] {
        k.ok("POST", path, json!({"metadata": {"name": name}, "spec": {"template": template}})).await;
        let answer = k.delete(&format!("{path}/{name}"), options).await;
        k.say(name, &answer, GOING);
        k.look("then", &format!("{path}/{name}"), GOING).await;
    }
    k.end()
}

//! Every row of the eviction table (REB-27).

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{Answer, BUDGETS, PODS, Session, pod},
};

crate::conformance::cases!("evict":
    no_budget, a_status_that_was_never_written, a_status_behind_its_spec, none_left, none_left_by_a_dry_run, below_the_minimum,
    an_unready_pod_at_the_minimum, always_allow, allowed, several_use_it_up, a_dry_run_counts_nothing, a_wrong_uid_spends_the_budget,
    the_right_uid, a_stale_version, terminating, pending, succeeded, failed, two_budgets, a_pod_that_is_gone, a_terminating_namespace,
    grace_of_ones_own, the_selector_of_all, the_selector_of_none, expressions, a_body_that_does_not_fit, a_budget_that_went);

async fn evict(k: &Session, name: &str, options: Value) -> Answer {
    let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "@"}});
    if !options.is_null() {
        body["deleteOptions"] = options;
    }
    k.post(&format!("{PODS}/{name}/eviction"), body).await
}

const NUMBERS: &[&str] = &[
    "/metadata/generation",
    "/status/observedGeneration",
    "/status/disruptionsAllowed",
    "/status/currentHealthy",
    "/status/desiredHealthy",
    "/status/expectedPods",
    "/status/disruptedPods",
];
const DELETION_FIELDS: &[&str] =
    &["/metadata/deletionTimestamp", "/metadata/deletionGracePeriodSeconds", "/status/phase"];

impl Session {
    async fn evicted(&mut self, what: &str, name: &str, options: Value) {
        let answer = evict(self, name, options).await;
        self.note_answer(what, &answer, &[]);
        self.note_object(&format!("{what}: the pod"), &format!("{PODS}/{name}"), DELETION_FIELDS).await;
    }

    async fn note_budget(&mut self, what: &str, budget: &str) {
        self.note_object(what, budget, NUMBERS).await;
    }
}

async fn no_budget(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    k.evicted("evict", "p", Value::Null).await;
    k.note_object("why it goes", &format!("{PODS}/p"), &["/status/conditions"]).await;
    k.end()
}

async fn a_status_that_was_never_written(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.note_budget("the budget", &budget).await;
    k.evicted("evict", "p", Value::Null).await;
    k.evicted("dry run", "p", json!({"dryRun": ["All"]})).await;
    k.end()
}

async fn a_status_behind_its_spec(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 5, 3, 2).await;
    let answer = k.merge(&budget, json!({"spec": {"minAvailable": 1}})).await;
    k.note_answer("another spec", &answer, NUMBERS);
    k.evicted("evict", "p", Value::Null).await;
    k.budget_status(&budget, 1, 3, 2).await;
    k.evicted("with the status of this spec", "p", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.end()
}

async fn none_left(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 0, 2, 2).await;
    k.evicted("evict", "p", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.end()
}

async fn none_left_by_a_dry_run(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 0, 2, 2).await;
    k.evicted("in the options", "p", json!({"dryRun": ["All"]})).await;
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "@"}});
    let answer = k.post(&format!("{PODS}/p/eviction?dryRun=All"), body).await;
    k.note_answer("in the query", &answer, &[]);
    k.end()
}

async fn below_the_minimum(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod_as("p", "Running", false).await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 0, 1, 2).await;
    k.evicted("an unready pod", "p", Value::Null).await;
    k.end()
}

async fn an_unready_pod_at_the_minimum(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod_as("p", "Running", false).await;
    k.pod_as("q", "Running", false).await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 0, 2, 2).await;
    k.evicted("at", "p", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.budget_status(&budget, 1, 3, 2).await;
    k.evicted("above", "q", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.end()
}

async fn always_allow(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod_as("p", "Running", false).await;
    k.pod("ready").await;
    let budget = k.budget("b", json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"})).await;
    k.budget_status(&budget, 0, 1, 2).await;
    k.evicted("an unready pod", "p", Value::Null).await;
    k.evicted("a ready pod", "ready", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.end()
}

async fn allowed(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 1, 3, 2).await;
    k.evicted("evict", "p", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.evicted("again while it goes", "p", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.end()
}

async fn several_use_it_up(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for name in ["p", "q", "r"] {
        k.pod(name).await;
    }
    let budget = k.budget("b", json!({"minAvailable": 1})).await;
    k.budget_status(&budget, 2, 3, 1).await;
    for name in ["p", "q", "r"] {
        k.evicted(name, name, Value::Null).await;
        k.note_budget("then", &budget).await;
    }
    k.end()
}

async fn a_dry_run_counts_nothing(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 1, 3, 2).await;
    for name in ["p", "q", "r"] {
        k.pod(name).await;
        k.evicted(name, name, json!({"dryRun": ["All"]})).await;
    }
    k.note_budget("then", &budget).await;
    k.end()
}

async fn a_wrong_uid_spends_the_budget(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 1, 3, 2).await;
    let wrong = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    let answer = evict(&k, "p", wrong.clone()).await;
    k.note_answer("evict", &answer, &[]);
    k.note_budget("then", &budget).await;
    k.evicted("again", "p", wrong).await;
    k.end()
}

async fn the_right_uid(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 1, 3, 2).await;
    let uid = k.ok("GET", &path, Value::Null).await["metadata"]["uid"].clone();
    k.evicted("evict", "p", json!({"preconditions": {"uid": uid}})).await;
    k.note_budget("then", &budget).await;
    k.end()
}

async fn a_stale_version(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let version = k.ok("GET", &path, Value::Null).await["metadata"]["resourceVersion"].clone();
    k.ok("PATCH", &path, json!({"metadata": {"labels": {"x": "y"}}})).await;
    let answer = evict(&k, "p", json!({"preconditions": {"resourceVersion": version}})).await;
    let mut answer = answer;
    // the message names both versions, so only its beginning is compared
    answer.body["message"] = json!(answer.body["message"].as_str().unwrap_or_default().split("ResourceVersion").next());
    k.note_answer("evict", &answer, &[]);
    k.note_object("the pod", &path, DELETION_FIELDS).await;
    k.end()
}

async fn evict_in_phase(target: Arc<Target>, phase: &str) -> Value {
    let mut k = Session::new(target).await;
    k.pod_as("p", phase, false).await;
    let budget = k.budget("b", json!({})).await;
    k.evicted("no status yet", "p", json!({"dryRun": ["All"]})).await;
    k.budget_status(&budget, 0, 1, 2).await;
    k.evicted("evict", "p", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.end()
}

async fn terminating(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let path = k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 0, 2, 2).await;
    k.delete(&path, json!({"gracePeriodSeconds": 60})).await;
    k.evicted("evict", "p", Value::Null).await;
    k.note_budget("then", &budget).await;
    k.end()
}

async fn pending(target: Arc<Target>) -> Value {
    evict_in_phase(target, "Pending").await
}

async fn succeeded(target: Arc<Target>) -> Value {
    evict_in_phase(target, "Succeeded").await
}

async fn failed(target: Arc<Target>) -> Value {
    evict_in_phase(target, "Failed").await
}

async fn two_budgets(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    for name in ["b", "c"] {
        let budget = k.budget(name, json!({})).await;
        k.budget_status(&budget, 1, 3, 2).await;
    }
    k.evicted("evict", "p", Value::Null).await;
    k.evicted("dry run", "p", json!({"dryRun": ["All"]})).await;
    k.end()
}

async fn a_pod_that_is_gone(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.evicted("evict", "nobody", Value::Null).await;
    let path = k.pod("p").await;
    k.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    k.evicted("deleted", "p", Value::Null).await;
    k.end()
}

async fn a_terminating_namespace(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let answer = k.delete("/api/v1/namespaces/@", json!({})).await;
    k.note_answer("delete the namespace", &answer, &["/status/phase"]);
    k.evicted("evict", "p", Value::Null).await;
    k.evicted("dry run", "p", json!({"dryRun": ["All"]})).await;
    let answer = k.post(PODS, pod("q")).await;
    k.note_answer("create a pod", &answer, &[]);
    let answer = k.delete(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 0})).await;
    k.note_answer("delete the pod", &answer, &["/metadata/name"]);
    k.end()
}

async fn grace_of_ones_own(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for (name, grace) in [("p", 0), ("q", 7), ("r", 1)] {
        k.pod(name).await;
        k.evicted(name, name, json!({"gracePeriodSeconds": grace})).await;
    }
    k.end()
}

async fn the_selector_of_all(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    k.ok("POST", BUDGETS, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {}}})).await;
    k.evicted("evict", "p", Value::Null).await;
    k.end()
}

async fn the_selector_of_none(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    k.ok("POST", BUDGETS, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}})).await;
    k.evicted("evict", "p", Value::Null).await;
    k.end()
}

async fn expressions(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let all = [
        json!({"key": "app", "operator": "In", "values": ["a", "b"]}),
        json!({"key": "app", "operator": "NotIn", "values": ["a", "b"]}),
        json!({"key": "app", "operator": "Exists"}),
        json!({"key": "app", "operator": "DoesNotExist"}),
        json!({"key": "other", "operator": "NotIn", "values": ["a"]}),
    ];
    k.pod("p").await;
    for (i, expression) in all.into_iter().enumerate() {
        let selector = json!({"selector": {"matchLabels": null, "matchExpressions": [expression]}});
        let path = k.budget(&format!("b{i}"), selector).await;
        let answer = evict(&k, "p", json!({"dryRun": ["All"]})).await;
        k.note_answer(&format!("{i}"), &answer, &[]);
        k.delete(&path, json!({})).await;
    }
    k.end()
}

async fn a_body_that_does_not_fit(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let path = format!("{PODS}/p/eviction");
    let bodies = [
        (
            "another name",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q", "namespace": "@"}}),
        ),
        (
            "another namespace",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "z"}}),
        ),
        ("not JSON", json!("{")),
    ];
    for (what, body) in bodies {
        let answer = k.post(&path, body).await;
        let code = answer.code;
        k.note(what, &json!({"code": code, "reason": answer.body["reason"]}));
    }
    let answer = k.get(&path).await;
    k.note_answer("GET", &answer, &[]);
    k.evicted("no metadata at all", "p", Value::Null).await;
    k.end()
}

async fn a_budget_that_went(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.pod("p").await;
    let budget = k.budget("b", json!({})).await;
    k.evicted("before", "p", Value::Null).await;
    k.delete(&budget, json!({})).await;
    k.evicted("after", "p", Value::Null).await;
    k.end()
}

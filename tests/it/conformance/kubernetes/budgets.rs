//! Status of budgets as the disruption controller writes it, and its effect on evictions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::target::Target,
    controllers::{names, ready},
    session::{BUDGETS, NODES, PODS, Session},
};

crate::conformance::cases!("budgets":
    budget_numbers, a_budget_over_a_drain, bare_pods_and_budgets, a_budget_of_nothing, finished_pods_in_a_budget, unready_pods_in_a_budget, a_stuck_pod_holds_its_place);

const NUMBERS: &[&str] = &[
    "/status/disruptionsAllowed",
    "/status/currentHealthy",
    "/status/desiredHealthy",
    "/status/expectedPods",
    "/status/observedGeneration",
    "/status/conditions/0/type",
    "/status/conditions/0/status",
    "/status/conditions/0/reason",
];

/// Reports whether its status is that of its present spec.
fn observed(budget: &Value) -> bool {
    budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
}

async fn budget_numbers(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.nodes(1).await;
    k.replica_set("web", 4).await;
    k.pods_until("four run", |pods| pods.len() == 4 && pods.iter().all(ready)).await;
    let budget_specs = [
        ("minAvailable", json!(3)),
        ("minAvailable", json!(4)),
        ("minAvailable", json!(5)),
        ("minAvailable", json!(0)),
        ("minAvailable", json!("50%")),
        ("minAvailable", json!("51%")),
        ("minAvailable", json!("100%")),
        ("minAvailable", json!("0%")),
        ("maxUnavailable", json!(1)),
        ("maxUnavailable", json!(0)),
        ("maxUnavailable", json!(9)),
        ("maxUnavailable", json!("30%")),
        ("maxUnavailable", json!("25%")),
        ("maxUnavailable", json!("1%")),
        ("maxUnavailable", json!("100%")),
    ];
    for (i, (field, number)) in budget_specs.into_iter().enumerate() {
        let body = json!({"metadata": {"name": format!("b{i}")}, "spec": {field: number, "selector": {"matchLabels": {"app": "web"}}}});
        k.ok("POST", BUDGETS, body).await;
        let path = format!("{BUDGETS}/b{i}");
        let settled = |b: &Value| observed(b) && b["status"]["currentHealthy"] == 4;
        k.object_until(&format!("{field} {number}"), &path, NUMBERS, settled).await;
    }
    k.ok("PATCH", &format!("{BUDGETS}/b0"), json!({"spec": {"minAvailable": 1}})).await;
    k.object_until("changed", &format!("{BUDGETS}/b0"), NUMBERS, |b| observed(b) && b["status"]["desiredHealthy"] == 1)
        .await;
    k.end()
}

async fn a_budget_over_a_drain(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let nodes = k.nodes(2).await;
    k.replica_set("web", 2).await;
    let before = k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let body =
        json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    k.ok("POST", BUDGETS, body).await;
    let path = format!("{BUDGETS}/b");
    let free = |b: &Value| observed(b) && b["status"]["disruptionsAllowed"] == 1 && b["status"]["currentHealthy"] == 2;
    k.object_until("one to spare", &path, NUMBERS, free).await;
    for node in &nodes {
        k.ok("PATCH", &format!("{NODES}/{node}"), json!({"spec": {"unschedulable": true}})).await;
    }
    let both: Vec<String> = names(&before).into_iter().collect();
    let codes = [k.evict(&both[0]).await, k.evict(&both[1]).await];
    k.note("the first and the second", &json!(codes));
    // No node has room for the new pod: it stays pending, and the budget stays exhausted.
    k.object_until("spent", &path, NUMBERS, |b| {
        b["status"]["disruptionsAllowed"] == 0 && b["status"]["currentHealthy"] == 1
    })
    .await;
    k.pods_until("one waits", |pods| pods.len() == 2 && pods.iter().any(|p| p["spec"]["nodeName"].is_null())).await;
    k.ok("PATCH", &format!("{NODES}/{}", nodes[0]), json!({"spec": {"unschedulable": null}})).await;
    k.pods_until("both run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    k.object_until("one to spare again", &path, NUMBERS, free).await;
    let code = k.evict(&both[1]).await;
    k.note("the second now", &json!(code));
    k.pods_until("all new", |pods| pods.len() == 2 && pods.iter().all(ready) && !names(pods).contains(&both[1])).await;
    k.end()
}

async fn bare_pods_and_budgets(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let nodes = k.nodes(1).await;
    for name in ["p", "q", "r"] {
        k.bare(name, &nodes[0]).await;
    }
    k.pods_until("three run", |pods| pods.len() == 3 && pods.iter().all(ready)).await;
    for (name, field, number) in [
        ("min", "minAvailable", json!(2)),
        ("max", "maxUnavailable", json!(1)),
        ("percent", "minAvailable", json!("50%")),
    ] {
        let body =
            json!({"metadata": {"name": name}, "spec": {field: number, "selector": {"matchLabels": {"app": "bare"}}}});
        k.ok("POST", BUDGETS, body).await;
        let settled = |b: &Value| !b["status"]["conditions"].is_null();
        k.object_until(name, &format!("{BUDGETS}/{name}"), NUMBERS, settled).await;
    }
    k.end()
}

async fn a_budget_of_nothing(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    for (name, field, number) in [
        ("min", "minAvailable", json!(1)),
        ("max", "maxUnavailable", json!(1)),
        ("percent", "minAvailable", json!("50%")),
    ] {
        let body =
            json!({"metadata": {"name": name}, "spec": {field: number, "selector": {"matchLabels": {"app": "none"}}}});
        k.ok("POST", BUDGETS, body).await;
        k.object_until(name, &format!("{BUDGETS}/{name}"), NUMBERS, observed).await;
    }
    k.end()
}

async fn finished_pods_in_a_budget(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let nodes = k.nodes(1).await;
    for name in ["p", "q"] {
        k.bare(name, &nodes[0]).await;
    }
    k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let done = json!({"status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]}});
    k.ok("PATCH", &format!("{PODS}/q/status"), done).await;
    let body =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "bare"}}}});
    k.ok("POST", BUDGETS, body).await;
    let settled = |b: &Value| observed(b) && b["status"]["currentHealthy"] == 1;
    k.object_until("the budget", &format!("{BUDGETS}/b"), NUMBERS, settled).await;
    let codes = [k.evict("p").await, k.evict("q").await];
    k.note("the running one and the finished one", &json!(codes));
    k.pods_until("the finished one is gone", |pods| !names(pods).contains("q")).await;
    k.end()
}

async fn unready_pods_in_a_budget(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    // Without a kubelet, a status that was written manually stays.
    for name in ["p", "q", "r"] {
        k.bare(name, "nowhere").await;
        let ready = if name == "r" { "False" } else { "True" };
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
        k.ok("PATCH", &format!("{PODS}/{name}/status"), status).await;
    }
    let body =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "bare"}}}});
    k.ok("POST", BUDGETS, body).await;
    let settled = |b: &Value| observed(b) && b["status"]["currentHealthy"] == 2;
    k.object_until("the budget", &format!("{BUDGETS}/b"), NUMBERS, settled).await;
    let codes = [k.evict("p").await, k.evict("r").await];
    k.note("a ready one and the unready one", &json!(codes));
    k.end()
}

async fn a_stuck_pod_holds_its_place(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.nodes(1).await;
    k.replica_set("web", 2).await;
    let pods = k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let body =
        json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    k.ok("POST", BUDGETS, body).await;
    let stuck = pods[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    k.ok("PATCH", &format!("{PODS}/{stuck}"), json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    k.object_until("one to spare", &format!("{BUDGETS}/b"), NUMBERS, |b| {
        observed(b) && b["status"]["currentHealthy"] == 2
    })
    .await;
    let code = k.evict(&stuck).await;
    k.note("evict", &json!(code));
    // A ReplicaSet does not wait for the end of a terminating pod.
    k.pods_until("two run beside it", |pods| {
        pods.iter().filter(|p| ready(p)).count() == 2 && names(pods).contains(&stuck)
    })
    .await;
    k.object_until("one to spare again", &format!("{BUDGETS}/b"), NUMBERS, |b| b["status"]["disruptionsAllowed"] == 1)
        .await;
    k.ok("PATCH", &format!("{PODS}/{stuck}"), json!({"metadata": {"finalizers": null}})).await;
    k.pods_until("it goes", |pods| pods.len() == 2 && !names(pods).contains(&stuck)).await;
    k.end()
}

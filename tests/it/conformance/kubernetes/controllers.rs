//! What happens by itself: replica sets, deployments, daemon sets, budgets, namespaces, garbage.
//!
//! On the real side nobody schedules (`tests/servers/up` has no kube-scheduler): the suite binds pods itself there.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    super::place::Place,
    ask::{Ask, BUDGETS, NODES, PODS},
};

crate::conformance::cases!("controllers":
    nodes_are_ready, a_replica_set_makes_its_pods, evicted_pods_come_back_elsewhere, a_replica_set_is_scaled, budget_numbers,
    a_budget_over_a_drain, bare_pods_and_budgets, a_budget_of_nothing, finished_pods_in_a_budget, unready_pods_in_a_budget,
    daemons_on_a_cordoned_node, daemons_follow_labels, a_deployment, garbage_of_a_replica_set, orphans_of_a_replica_set,
    a_namespace_goes, a_bare_pod_does_not_come_back, a_stuck_pod_holds_its_place);

const SETS: &str = "/apis/apps/v1/namespaces/@/replicasets";

fn names(pods: &[Value]) -> BTreeSet<String> {
    pods.iter().filter_map(|p| Some(p["metadata"]["name"].as_str()?.to_owned())).collect()
}

fn on<'a>(pods: &'a [Value], node: &str) -> Vec<&'a Value> {
    pods.iter().filter(|p| p["spec"]["nodeName"] == node).collect()
}

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    ready && pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

impl Ask {
    /// Nodes of the case's own, labelled `case: @`; the answer calls them `<node 0>`, `<node 1>` …
    async fn nodes(&mut self, count: usize) -> Vec<String> {
        let mut taken = Vec::new();
        for i in 0..count {
            let next = self.place.taken.fetch_add(1, Ordering::Relaxed);
            let name = self.place.workers.get(next).expect("enough nodes").name.clone();
            self.ok("PATCH", &format!("{NODES}/{name}"), json!({"metadata": {"labels": {"case": "@"}}})).await;
            self.alias(&name, &format!("<node {i}>"));
            taken.push(name);
        }
        taken
    }

    /// The pods as they are; where nobody schedules, those without a node get one.
    async fn pods(&self) -> Vec<Value> {
        let list = self.ok("GET", PODS, Value::Null).await["items"].as_array().cloned().unwrap_or_default();
        if self.place.schedules {
            return list;
        }
        for pod in
            list.iter().filter(|p| p["spec"]["nodeName"].is_null() && p["metadata"]["deletionTimestamp"].is_null())
        {
            let affinity = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            let fixed = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str().map(str::to_owned);
            let nodes = self.ok("GET", &format!("{NODES}?labelSelector=case%3D@"), Value::Null).await;
            let free = nodes["items"].as_array().into_iter().flatten().filter(|n| n["spec"]["unschedulable"] != true);
            let free = free.filter_map(|n| n["metadata"]["name"].as_str());
            let least = free.min_by_key(|n| on(&list, n).len()).map(str::to_owned);
            let Some(node) = fixed.or(least) else { continue };
            let name = &pod["metadata"]["name"];
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            self.post(&format!("{PODS}/{}/binding", name.as_str().unwrap_or_default()), binding).await;
            break; // the next look counts it
        }
        list
    }

    /// Waits for pods that are as they should be; in vain, the answer says so.
    async fn pods_until(&mut self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        for _ in 0..self.patience {
            let pods = self.pods().await;
            if holds(&pods) {
                self.note(what, &json!("yes"));
                return pods;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.patience = 10;
        let pods = self.pods().await;
        let brief = |p: &Value| json!([p["metadata"]["name"], p["spec"]["nodeName"], p["status"]["phase"]]);
        self.note(what, &json!({"in vain": pods.iter().map(brief).collect::<Vec<_>>()}));
        pods
    }

    /// Waits for an object that is as it should be and keeps its fields; pods are bound meanwhile.
    async fn object_until(&mut self, what: &str, path: &str, fields: &[&str], holds: impl Fn(&Value) -> bool) {
        for _ in 0..self.patience {
            let answer = self.get(path).await;
            if holds(&answer.body) {
                self.say(what, &answer, fields);
                return;
            }
            self.pods().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.patience = 10;
        let answer = self.get(path).await;
        self.say(&format!("{what}: in vain"), &answer, fields);
    }

    async fn replica_set(&self, name: &str, replicas: u32) -> String {
        let body = json!({"metadata": {"name": name}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": name}}, "template": template(name)}});
        self.ok("POST", SETS, body).await;
        format!("{SETS}/{name}")
    }

    async fn evict(&mut self, pod: &str) -> u16 {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "@"}});
        self.post(&format!("{PODS}/{pod}/eviction"), body).await.code
    }
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeSelector": {"case": "@"}, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "registry.invalid/pause:1"}]}})
}

async fn nodes_are_ready(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let nodes = k.nodes(1).await;
    let path = format!("{NODES}/{}", nodes[0]);
    let node = k.ok("GET", &path, Value::Null).await;
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let good = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let boot = node["status"]["nodeInfo"]["bootID"].as_str().is_some_and(|b| !b.is_empty());
    k.note("ready, with a boot id", &json!([good, boot]));
    k.look("the node", &path, &["/spec/unschedulable", "/spec/taints", "/status/nodeInfo/kubeletVersion"]).await;
    k.end()
}

async fn a_replica_set_makes_its_pods(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    k.nodes(1).await;
    let set = k.replica_set("web", 2).await;
    let pods = k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let owner = &pod["metadata"]["ownerReferences"][0];
        k.note("a pod", &json!({"named": name.starts_with("web-") && name.len() == 9, "generateName": pod["metadata"]["generateName"],
            "owner": [owner["kind"], owner["name"], owner["controller"], owner["apiVersion"], owner["blockOwnerDeletion"]],
            "labels": pod["metadata"]["labels"], "node": pod["spec"]["nodeName"], "ip": pod["status"]["podIP"].is_string()}));
    }
    let fields = [
        "/status/replicas",
        "/status/readyReplicas",
        "/status/availableReplicas",
        "/status/fullyLabeledReplicas",
        "/status/observedGeneration",
    ];
    k.object_until("the set", &set, &fields, |s| s["status"]["availableReplicas"] == 2).await;
    k.end()
}

async fn evicted_pods_come_back_elsewhere(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let nodes = k.nodes(2).await;
    k.replica_set("web", 4).await;
    let before = k.pods_until("four run", |pods| pods.len() == 4 && pods.iter().all(ready)).await;
    k.note("on both nodes", &json!(nodes.iter().all(|n| !on(&before, n).is_empty())));
    let gone = nodes[0].clone();
    k.ok("PATCH", &format!("{NODES}/{gone}"), json!({"spec": {"unschedulable": true}})).await;
    for pod in on(&before, &gone) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let code = k.evict(&name).await;
        k.note("evict", &json!(code));
    }
    let moved = |pods: &[Value]| pods.len() == 4 && pods.iter().all(ready) && on(pods, &gone).is_empty();
    let after = k.pods_until("all run on the other", moved).await;
    let kept = names(&before).intersection(&names(&after)).count() == on(&before, &nodes[1]).len();
    k.note("those of the other node are the same", &json!(kept));
    k.end()
}

async fn a_replica_set_is_scaled(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    k.nodes(1).await;
    let set = k.replica_set("web", 1).await;
    k.pods_until("one runs", |pods| pods.len() == 1 && pods.iter().all(ready)).await;
    k.ok("PATCH", &set, json!({"spec": {"replicas": 3}})).await;
    k.pods_until("three run", |pods| pods.len() == 3 && pods.iter().all(ready)).await;
    k.ok("PATCH", &set, json!({"spec": {"replicas": 0}})).await;
    k.pods_until("none", <[Value]>::is_empty).await;
    k.object_until("the set", &set, &["/status/replicas", "/status/readyReplicas"], |s| s["status"]["replicas"] == 0)
        .await;
    k.end()
}

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

/// Its status is that of its spec.
fn observed(budget: &Value) -> bool {
    budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
}

async fn budget_numbers(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    k.nodes(1).await;
    k.replica_set("web", 4).await;
    k.pods_until("four run", |pods| pods.len() == 4 && pods.iter().all(ready)).await;
    let wanted = [
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
    for (i, (field, number)) in wanted.into_iter().enumerate() {
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

async fn a_budget_over_a_drain(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
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
    // Nowhere to go: the new pod waits, and the budget stays spent.
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

impl Ask {
    async fn bare(&self, name: &str, node: &str) {
        let mut body = json!({"metadata": {"name": name, "labels": {"app": "bare"}}, "spec": template("bare")["spec"]});
        body["spec"]["nodeName"] = json!(node);
        self.ok("POST", PODS, body).await;
    }
}

async fn bare_pods_and_budgets(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
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

async fn a_budget_of_nothing(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
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

async fn finished_pods_in_a_budget(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
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

async fn unready_pods_in_a_budget(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    // No machine and no kubelet: what is written by hand stays.
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

impl Ask {
    async fn daemon_set(&self) -> String {
        let path = "/apis/apps/v1/namespaces/@/daemonsets";
        let body = json!({"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")}});
        self.ok("POST", path, body).await;
        format!("{path}/agent")
    }
}

const DAEMONS: &[&str] = &[
    "/status/desiredNumberScheduled",
    "/status/currentNumberScheduled",
    "/status/numberReady",
    "/status/numberAvailable",
    "/status/numberMisscheduled",
    "/status/observedGeneration",
];

async fn daemons_on_a_cordoned_node(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let nodes = k.nodes(2).await;
    k.ok("PATCH", &format!("{NODES}/{}", nodes[0]), json!({"spec": {"unschedulable": true}})).await;
    let set = k.daemon_set().await;
    let each =
        |pods: &[Value]| pods.len() == 2 && pods.iter().all(ready) && nodes.iter().all(|n| on(pods, n).len() == 1);
    let pods = k.pods_until("one on each, the cordoned one too", each).await;
    k.object_until("the set", &set, DAEMONS, |s| s["status"]["numberAvailable"] == 2).await;
    let owner = &pods[0]["metadata"]["ownerReferences"][0];
    k.note("owner", &json!([owner["kind"], owner["name"], owner["controller"]]));
    let tolerations = pods[0]["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    k.note("tolerates a cordon", &json!(tolerations.iter().any(|t| t["key"] == "node.kubernetes.io/unschedulable")));
    let old = on(&pods, &nodes[0])[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let code = k.evict(&old).await;
    k.note("evict on the cordoned node", &json!(code));
    k.pods_until("another one is there", |pods| each(pods) && !names(pods).contains(&old)).await;
    k.end()
}

async fn daemons_follow_labels(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let first = k.nodes(1).await;
    let set = k.daemon_set().await;
    k.pods_until("one", |pods| pods.len() == 1 && pods.iter().all(ready)).await;
    let second = k.nodes(1).await;
    k.pods_until("two", |pods| pods.len() == 2 && pods.iter().all(ready) && on(pods, &second[0]).len() == 1).await;
    k.ok("PATCH", &format!("{NODES}/{}", first[0]), json!({"metadata": {"labels": {"case": null}}})).await;
    k.pods_until("only on the second", |pods| pods.len() == 1 && on(pods, &second[0]).len() == 1).await;
    k.object_until("the set", &set, DAEMONS, |s| {
        s["status"]["desiredNumberScheduled"] == 1 && s["status"]["numberMisscheduled"] == 0
    })
    .await;
    k.end()
}

async fn a_deployment(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    k.nodes(1).await;
    let path = "/apis/apps/v1/namespaces/@/deployments";
    let body = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("web")}});
    k.ok("POST", path, body).await;
    let pods = k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let hash = pods[0]["metadata"]["labels"]["pod-template-hash"].as_str().unwrap_or_default().to_owned();
    let owner = &pods[0]["metadata"]["ownerReferences"][0];
    k.note("owner", &json!([owner["kind"], !hash.is_empty() && owner["name"] == format!("web-{hash}")]));
    let fields = ["/status/replicas", "/status/readyReplicas", "/status/availableReplicas", "/status/updatedReplicas"];
    k.object_until("the deployment", &format!("{path}/web"), &fields, |d| d["status"]["availableReplicas"] == 2).await;
    let first = pods[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let code = k.evict(&first).await;
    k.note("evict", &json!(code));
    k.pods_until("two run again", |pods| pods.len() == 2 && pods.iter().all(ready) && !names(pods).contains(&first))
        .await;
    k.end()
}

async fn garbage_of_a_replica_set(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    k.nodes(1).await;
    let set = k.replica_set("web", 2).await;
    k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let answer = k.delete(&set, json!({"propagationPolicy": "Background"})).await;
    k.say("delete", &answer, &[]);
    k.pods_until("none", <[Value]>::is_empty).await;
    k.look("the set", &set, &[]).await;
    k.end()
}

async fn orphans_of_a_replica_set(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    k.nodes(1).await;
    let set = k.replica_set("web", 1).await;
    k.pods_until("one runs", |pods| pods.len() == 1 && pods.iter().all(ready)).await;
    let answer = k.delete(&set, json!({"propagationPolicy": "Orphan"})).await;
    k.note("delete", &json!(answer.code));
    k.object_until("the set is gone", &set, &[], |s| s["kind"] == "Status").await;
    k.pods_until("the pod stays, without an owner", |pods| {
        pods.len() == 1 && pods[0]["metadata"]["ownerReferences"].is_null()
    })
    .await;
    k.end()
}

async fn a_namespace_goes(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let nodes = k.nodes(1).await;
    k.bare("p", &nodes[0]).await;
    k.replica_set("web", 1).await;
    k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let answer = k.delete("/api/v1/namespaces/@", json!({})).await;
    k.note("delete", &json!(answer.code));
    k.object_until("gone", "/api/v1/namespaces/@", &[], |n| n["kind"] == "Status").await;
    k.look("its pods", PODS, &["/items"]).await;
    k.end()
}

async fn a_bare_pod_does_not_come_back(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
    let nodes = k.nodes(1).await;
    k.bare("p", &nodes[0]).await;
    k.bare("q", &nodes[0]).await;
    k.pods_until("they run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let code = k.evict("p").await;
    k.note("evict", &json!(code));
    k.pods_until("one is gone", |pods| pods.len() == 1).await;
    let answer = k.delete(&format!("{PODS}/q"), json!({})).await;
    k.note("delete", &json!(answer.code));
    k.pods_until("both are gone", <[Value]>::is_empty).await;
    k.end()
}

async fn a_stuck_pod_holds_its_place(place: Arc<Place>) -> Value {
    let mut k = Ask::new(place).await;
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
    // A ReplicaSet does not wait for the end of a pod that goes.
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

//! Work of controllers: replica sets, deployments, daemon sets, budgets, namespaces, garbage collection.
//!
//! The real servers have no scheduler (`tests/servers/up` starts no kube-scheduler): there the suite binds pods itself.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{NODES, PODS, Session},
};

crate::conformance::cases!("controllers":
    nodes_are_ready, a_replica_set_makes_its_pods, evicted_pods_come_back_elsewhere, a_replica_set_is_scaled, daemons_on_a_cordoned_node, daemons_follow_labels, a_deployment, garbage_of_a_replica_set, orphans_of_a_replica_set,
    a_namespace_goes, a_bare_pod_does_not_come_back);

const SETS: &str = "/apis/apps/v1/namespaces/@/replicasets";

/// Names of the pods.
pub fn names(pods: &[Value]) -> BTreeSet<String> {
    pods.iter().filter_map(|p| Some(p["metadata"]["name"].as_str()?.to_owned())).collect()
}

fn on<'a>(pods: &'a [Value], node: &str) -> Vec<&'a Value> {
    pods.iter().filter(|p| p["spec"]["nodeName"] == node).collect()
}

/// Reports whether it runs, is Ready and is not terminating.
pub fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    ready && pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

impl Session {
    /// Creates nodes for the case, labelled `case: @`; the answer calls them `<node 0>`, `<node 1>` …
    pub async fn nodes(&mut self, count: usize) -> Vec<String> {
        let mut taken = Vec::new();
        for i in 0..count {
            let next = self.target.taken.fetch_add(1, Ordering::Relaxed);
            let name = self.target.workers.get(next).expect("enough nodes").name.clone();
            self.ok("PATCH", &format!("{NODES}/{name}"), json!({"metadata": {"labels": {"case": "@"}}})).await;
            self.alias(&name, &format!("<node {i}>"));
            taken.push(name);
        }
        taken
    }

    /// Present pods. Without a scheduler, pods without a node get one here.
    async fn pods(&self) -> Vec<Value> {
        let list = self.ok("GET", PODS, Value::Null).await["items"].as_array().cloned().unwrap_or_default();
        if self.target.schedules {
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
            break; // the next poll counts the pod
        }
        list
    }

    /// Waits until the pods meet the condition; otherwise the answer says so.
    pub async fn pods_until(&mut self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        for _ in 0..self.max_polls {
            let pods = self.pods().await;
            if holds(&pods) {
                self.note(what, &json!("yes"));
                return pods;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.max_polls = 10;
        let pods = self.pods().await;
        let summary = |p: &Value| json!([p["metadata"]["name"], p["spec"]["nodeName"], p["status"]["phase"]]);
        self.note(what, &json!({"in vain": pods.iter().map(summary).collect::<Vec<_>>()}));
        pods
    }

    /// Waits until an object meets the condition and keeps its fields; binds pods meanwhile.
    pub async fn object_until(&mut self, what: &str, path: &str, fields: &[&str], holds: impl Fn(&Value) -> bool) {
        for _ in 0..self.max_polls {
            let answer = self.get(path).await;
            if holds(&answer.body) {
                self.note_answer(what, &answer, fields);
                return;
            }
            self.pods().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.max_polls = 10;
        let answer = self.get(path).await;
        self.note_answer(&format!("{what}: in vain"), &answer, fields);
    }

    /// Creates a set of pods `app: name`.
    pub async fn replica_set(&self, name: &str, replicas: u32) -> String {
        let body = json!({"metadata": {"name": name}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": name}}, "template": template(name)}});
        self.ok("POST", SETS, body).await;
        format!("{SETS}/{name}")
    }

    /// Evicts a pod and returns the code.
    pub async fn evict(&mut self, pod: &str) -> u16 {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "@"}});
        self.post(&format!("{PODS}/{pod}/eviction"), body).await.code
    }
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeSelector": {"case": "@"}, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "registry.invalid/pause:1"}]}})
}

async fn nodes_are_ready(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let nodes = k.nodes(1).await;
    let path = format!("{NODES}/{}", nodes[0]);
    let node = k.ok("GET", &path, Value::Null).await;
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let good = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let boot = node["status"]["nodeInfo"]["bootID"].as_str().is_some_and(|b| !b.is_empty());
    k.note("ready, with a boot id", &json!([good, boot]));
    k.note_object("the node", &path, &["/spec/unschedulable", "/spec/taints", "/status/nodeInfo/kubeletVersion"]).await;
    k.end()
}

async fn a_replica_set_makes_its_pods(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
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

async fn evicted_pods_come_back_elsewhere(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
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

async fn a_replica_set_is_scaled(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
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

impl Session {
    /// Creates a pod without a controller.
    pub async fn bare(&self, name: &str, node: &str) {
        let mut body = json!({"metadata": {"name": name, "labels": {"app": "bare"}}, "spec": template("bare")["spec"]});
        body["spec"]["nodeName"] = json!(node);
        self.ok("POST", PODS, body).await;
    }
}

impl Session {
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

async fn daemons_on_a_cordoned_node(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
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

async fn daemons_follow_labels(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
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

async fn a_deployment(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
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

async fn garbage_of_a_replica_set(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.nodes(1).await;
    let set = k.replica_set("web", 2).await;
    k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let answer = k.delete(&set, json!({"propagationPolicy": "Background"})).await;
    k.note_answer("delete", &answer, &[]);
    k.pods_until("none", <[Value]>::is_empty).await;
    k.note_object("the set", &set, &[]).await;
    k.end()
}

async fn orphans_of_a_replica_set(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
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

async fn a_namespace_goes(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let nodes = k.nodes(1).await;
    k.bare("p", &nodes[0]).await;
    k.replica_set("web", 1).await;
    k.pods_until("two run", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    let answer = k.delete("/api/v1/namespaces/@", json!({})).await;
    k.note("delete", &json!(answer.code));
    k.object_until("gone", "/api/v1/namespaces/@", &[], |n| n["kind"] == "Status").await;
    k.note_object("its pods", PODS, &["/items"]).await;
    k.end()
}

async fn a_bare_pod_does_not_come_back(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
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

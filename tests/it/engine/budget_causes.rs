//! Causes behind budgets, on a real disruption controller and scheduler: each crafted cause is named by `rq plan`, and a
//! deadlock of two drains before they start.

use serde_json::{Value, json};

use crate::world::{Options, World, cluster::machines, wait_for};

const NAMESPACE: &str = "default";

fn options() -> Options {
    Options { kcm: true, kwok: true, scheduler: true, ..Options::default() }
}

/// Creates a `ReplicaSet` of `app`, on a node or wherever the scheduler puts its pods.
fn add_replicas(world: &World, app: &str, replicas: u64, spec: &Value) {
    let mut pod = json!({"terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "registry.invalid/pause:1"}]});
    for (name, value) in spec.as_object().into_iter().flatten() {
        pod[name] = value.clone();
    }
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/replicasets");
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": app}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": app}},
        "template": {"metadata": {"labels": {"app": app}}, "spec": pod}}});
    world.ok("POST", &path, Some(&set));
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{app}");
    wait_for("the pods exist", 30, || {
        let all = world.ok("GET", &pods, None)["items"].as_array()?.len();
        (all as u64 == replicas).then_some(())
    });
}

fn on(node: &str) -> Value {
    json!({"nodeName": node})
}

fn add_budget(world: &World, name: &str, app: &str, limit: &Value) {
    let path = format!("/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets");
    let mut budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}}});
    for (name, value) in limit.as_object().into_iter().flatten() {
        budget["spec"][name] = value.clone();
    }
    world.ok("POST", &path, Some(&budget));
}

/// Makes the first pod of `app` unhealthy.
fn make_unhealthy(world: &World, app: &str, containers: &Value) {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let first = wait_for("the pods run", 60, || {
        let list = world.ok("GET", &format!("{pods}?labelSelector=app%3D{app}"), None);
        let all = list["items"].as_array()?.clone();
        let ready = |p: &Value| {
            let conditions = p["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        all.iter().all(ready).then(|| all[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    });
    let status =
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": containers}});
    world.ok("PATCH", &format!("{pods}/{first}/status"), Some(&status));
}

/// Returns the blockers of a node by the budget that they name, as text.
fn blockers(world: &World, node: &str) -> Vec<String> {
    let plan: Value = serde_json::from_str(&world.run(&["rq", "plan", "-o", "json", node])).expect("a plan");
    let blockers = plan[0]["drain"]["blockers"].as_array().cloned().unwrap_or_default();
    blockers.iter().map(ToString::to_string).collect()
}

#[test]
fn eight_crafted_causes_are_named() {
    let Some(world) = World::start(options()) else { return };
    let machines = machines(1, 3);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({}));
    let container = |state: Value| json!([{"name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 5, "state": state}]);

    add_replicas(&world, "zero", 2, &on("w1"));
    add_budget(&world, "zero", "zero", &json!({"maxUnavailable": 0}));
    add_replicas(&world, "single", 1, &on("w1"));
    add_budget(&world, "single", "single", &json!({"minAvailable": 1}));
    add_replicas(&world, "all", 3, &on("w1"));
    add_budget(&world, "all", "all", &json!({"minAvailable": "100%"}));
    world.add_pod(NAMESPACE, "bare", "w1", "bare", None);
    add_budget(&world, "bare", "bare", &json!({"maxUnavailable": 1}));
    add_replicas(&world, "two", 2, &on("w1"));
    add_budget(&world, "two-a", "two", &json!({"maxUnavailable": 1}));
    add_budget(&world, "two-b", "two", &json!({"maxUnavailable": 1}));
    add_replicas(&world, "crash", 2, &on("w1"));
    add_budget(&world, "crash", "crash", &json!({"minAvailable": 1}));
    let waiting =
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}});
    make_unhealthy(&world, "crash", &container(waiting));
    // three wanted, of which the scheduler places two: one more would need more CPU than any node has free
    let big = json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "20"}}}],
        "nodeSelector": {"node-role.kubernetes.io/worker": ""}, "tolerations": []});
    add_replicas(&world, "big", 4, &big);
    add_budget(&world, "big", "big", &json!({"maxUnavailable": 1}));
    add_budget(&world, "nothing", "no-such-app", &json!({"maxUnavailable": 1}));
    let expected = [
        ("default/zero", "none_unavailable"),
        ("default/single", "one_replica"),
        ("default/all", "all_needed"),
        ("default/bare", "not_counted"),
        ("default/two-a", "many_budgets"),
        ("default/crash", "CrashLoopBackOff"),
        ("default/big", "unschedulable"),
    ];
    let found = wait_for("each cause is named", 60, || {
        let found = blockers(&world, "w1");
        let named = |(budget, cause): &(&str, &str)| {
            found.iter().any(|b| b.contains(&format!("\"{budget}\"")) && b.contains(cause))
        };
        let missing: Vec<_> = expected.iter().filter(|e| !named(e)).collect();
        missing.is_empty().then_some(found)
    });
    let big = found.iter().find(|b| b.contains("\"default/big\"")).expect("the budget");
    assert!(big.contains("Insufficient cpu"), "the scheduler's message: {big}");
    let text = world.run(&["rq", "plan", "w1"]);
    assert!(text.contains("maxUnavailable is 0: set it to 1 or more"), "{text}");
    assert!(text.contains("pdb default/nothing selects no pod: it protects nothing"), "{text}");

    // the eighth: a node that is not Ready, seen from the drain of another one
    world.add_pod(NAMESPACE, "lost-one", "w2", "lost", None);
    world.add_pod(NAMESPACE, "lost-other", "w1", "lost", None);
    add_budget(&world, "lost", "lost", &json!({"minAvailable": 1}));
    let ready = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Dlost");
    wait_for("both pods run", 60, || {
        let list = world.ok("GET", &ready, None);
        let running = list["items"].as_array()?.iter().filter(|p| p["status"]["phase"] == "Running").count();
        (running == 2).then_some(())
    });
    make_unhealthy_on(&world, "lost", "w2");
    world.act("stop", "kwok");
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test"}]}});
    world.ok("PATCH", "/api/v1/nodes/w2/status", Some(&not_ready));
    wait_for("the node is named", 60, || {
        let found = blockers(&world, "w1");
        found.iter().find(|b| b.contains("\"default/lost\"")).filter(|b| b.contains("node_not_ready")).map(drop)
    });
}

/// Makes the pod of `app` on this node unhealthy.
fn make_unhealthy_on(world: &World, app: &str, node: &str) {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let list = world.ok("GET", &format!("{pods}?labelSelector=app%3D{app}"), None);
    let all = list["items"].as_array().cloned().unwrap_or_default();
    let pod = all.iter().find(|pod| pod["spec"]["nodeName"] == node).expect("a pod on the node");
    let name = pod["metadata"]["name"].as_str().expect("a name");
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    world.ok("PATCH", &format!("{pods}/{name}/status"), Some(&status));
}

#[test]
fn a_deadlock_of_two_drains_is_named_before_it_starts() {
    let Some(world) = World::start(options()) else { return };
    let machines = machines(1, 3);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({"max_concurrent_reboots": 2}));
    // pods of each of the two nodes fit on the other one only
    let pair = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["w1", "w2"]}]}]}}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "pair"}}}]});
    add_replicas(&world, "pair", 4, &pair);
    world.wait_for_running_pods(NAMESPACE);
    add_budget(&world, "pair", "pair", &json!({"maxUnavailable": 2}));
    let both = world.run_with_notes(&["rq", "plan", "w1", "w2"]);
    assert!(both.contains("deadlock: pods of w1 fit only on w2, and pods of w2 only on w1"), "{both}");
    assert!(both.contains("returns only here") || both.contains("return only here"), "{both}");
    let one = world.run_with_notes(&["rq", "plan", "w1", "w3"]);
    assert!(!one.contains("deadlock") && one.contains("pods fit elsewhere"), "{one}");
    // by the order that respects budgets, the two go one after the other, because both share the budget
    world.run(&["policy", "set", "worker_order", "budgets", "--for-handover"]);
    let plan: Value = serde_json::from_str(&world.run(&["rq", "plan", "-o", "json", "w1", "w2"])).expect("a plan");
    assert_eq!((&plan[0]["wave"], &plan[1]["wave"]), (&json!(1), &json!(2)), "{plan}");
}

//! Gates before the uncordon (policy `uncordon_gates`), on real servers: a condition, a start-up taint and the pod of a
//! DaemonSet, each waited for by two leaders, and an operator's `done`.

use serde_json::{Value, json};

use crate::world::{Options, World, cluster::machines, wait_for};

const NODE: &str = "/api/v1/nodes/w1";

fn gate(world: &World, index: &str) -> Option<String> {
    let why: Value = serde_json::from_str(&world.run(&["rq", "why", index, "-o", "json"])).expect("JSON");
    let reason = why["reason"].to_string();
    reason.contains("UncordonGateClosed").then_some(reason)
}

fn wait_for_gate(world: &World, missing: &str) {
    wait_for(&format!("the gate waits for {missing}"), 90, || {
        gate(world, "0").filter(|reason| reason.contains(missing))
    });
    assert_eq!(world.cordoned(), ["w1"]);
}

/// Sets the status of a condition, as node-problem-detector does. The other conditions stay.
fn set_condition(world: &World, name: &str, status: &str) {
    let node = world.ok("GET", NODE, None);
    let mut all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|condition| condition["type"] != name);
    all.push(json!({"type": name, "status": status, "reason": "Test", "message": ""}));
    world.ok("PATCH", &format!("{NODE}/status"), Some(&json!({"status": {"conditions": all}})));
}

#[test]
fn a_worker_is_uncordoned_once_each_gate_is_open() {
    let Some(world) = World::start(Options { kcm: false, kwok: true, ..Options::default() }) else { return };
    let all = machines(1, 2);
    world.add_nodes(&all);
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "cni"}, "spec": {
        "selector": {"matchLabels": {"app": "cni"}}, "template": {"metadata": {"labels": {"app": "cni"}},
        "spec": {"containers": [{"name": "c", "image": "registry.invalid/pause:1"}]}}}});
    let set = world.ok("POST", "/apis/apps/v1/namespaces/default/daemonsets", Some(&set));
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cni", "controller": true,
        "uid": set["metadata"]["uid"]});
    world.add_pod("default", "cni-w1", "w1", "cni", Some(&owner));
    world.wait_for_running_pods("default");
    world.set_up(&all, &json!({}));
    let gates = json!({"conditions": {"RaidHealthy": "True"}, "taints_gone": ["cni/not-ready"], "daemon_sets": true});
    world.run(&["policy", "set", "uncordon_gates", &gates.to_string()]);
    let taint = json!({"spec": {"taints": [{"key": "cni/not-ready", "effect": "NoSchedule"}]}});
    world.ok("PATCH", NODE, Some(&taint));

    let first = world.daemon("first");
    first.ready();
    world.queue(&[&all[1]]);
    wait_for_gate(&world, "condition RaidHealthy is absent, not True");
    set_condition(&world, "RaidHealthy", "False");
    wait_for_gate(&world, "condition RaidHealthy is False, not True");

    // a new leader waits too
    first.kill();
    let second = world.daemon("second");
    second.ready();
    set_condition(&world, "RaidHealthy", "True");
    wait_for_gate(&world, "the taint cni/not-ready is not gone");
    let pod = "/api/v1/namespaces/default/pods/cni-w1";
    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    world.ok("PATCH", &format!("{pod}/status"), Some(&ready("False")));
    world.ok("PATCH", NODE, Some(&json!({"spec": {"taints": null}})));
    wait_for_gate(&world, "pod default/cni-w1 of a DaemonSet is not Ready");
    world.ok("PATCH", &format!("{pod}/status"), Some(&ready("True")));
    world.wait_for_empty_queue(60);
    wait_for("the Node is uncordoned", 30, || world.cordoned().is_empty().then_some(()));
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 1, "one reboot");

    // a gate that no machine passes: an operator goes on without it
    set_condition(&world, "RaidHealthy", "False");
    world.queue(&[&all[1]]);
    wait_for("the gate is closed", 90, || gate(&world, "1"));
    assert_eq!(world.cordoned(), ["w1"]);
    world.run(&["rq", "done", "1", "--reason", "the gate is wrong"]);
    world.wait_for_empty_queue(60);
    wait_for("the Node is uncordoned", 30, || world.cordoned().is_empty().then_some(()));
}

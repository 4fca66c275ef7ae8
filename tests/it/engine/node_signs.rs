//! Conditions on Nodes, the taint of planned reboots, and Events of pods, as other programs see them: in order and
//! cleared although leaders are killed, and nothing of other programs is touched.

use serde_json::{Value, json};

use crate::world::{
    Options, World,
    cluster::{Machine, machines},
    in_both_worlds, wait_for,
};

in_both_worlds! {
    Options { kcm: true, kwok: true, audit: true, etcd34: false, scheduler: false };
    i67_i68_conditions_come_in_order_and_go_although_leaders_are_killed,
    i67_i68_a_policy_that_is_turned_off_leaves_nothing_behind,
}

/// The conditions in the order in which a Node goes through them.
const ORDER: [&str; 4] = ["MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress"];
const TAINT: &str = "cketerm.io/reboot-planned";

/// Conditions of the life cycle on a Node that are True and cketerm's, in their order.
fn conditions(world: &World, node: &str) -> Vec<String> {
    let object = world.node(node);
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is_own = |c: &&Value| c["status"] == "True" && c["reason"].as_str().is_some_and(|r| r.starts_with("Cketerm"));
    let own: Vec<&str> = all.iter().filter(is_own).filter_map(|c| c["type"].as_str()).collect();
    ORDER.iter().filter(|name| own.contains(name)).map(|name| (*name).to_owned()).collect()
}

fn tainted(world: &World) -> Vec<String> {
    let list = world.ok("GET", "/api/v1/nodes", None);
    let nodes = list["items"].as_array().cloned().unwrap_or_default();
    let has = |node: &&Value| {
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().any(|taint| taint["key"] == TAINT && taint["effect"] == "PreferNoSchedule")
    };
    nodes.iter().filter(has).filter_map(|n| Some(n["metadata"]["name"].as_str()?.to_owned())).collect()
}

fn wait_for_conditions(world: &World, node: &str, wanted: &[&str], seconds: u64) {
    wait_for(&format!("{node} has {wanted:?}"), seconds, || (conditions(world, node) == wanted).then_some(()));
}

/// Adds a condition of another program, and keeps all others.
fn add_foreign_condition(world: &World, node: &str, condition: &Value) {
    wait_for("the status is written", 20, || {
        let object = world.node(node);
        let mut all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.push(condition.clone());
        let patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
            "status": {"conditions": all}});
        (world.call("PATCH", &format!("/api/v1/nodes/{node}/status"), Some(&patch)).0 == 200).then_some(())
    });
}

/// Changes of conditions on a Node by engines, in their order: type, and whether it was set.
fn condition_changes(world: &World, node: &str) -> Vec<Vec<(String, bool)>> {
    let mut all = Vec::new();
    for entry in world.audit() {
        let object = &entry["objectRef"];
        let is_own = object["resource"] == "nodes"
            && object["subresource"] == "status"
            && object["name"] == node
            && entry["verb"] == "patch"
            && entry["responseStatus"]["code"] == 200;
        let list = entry["requestObject"]["status"]["conditions"].as_array().filter(|_| is_own);
        let change = |c: &Value| {
            let name = ORDER.iter().find(|name| c["type"] == **name)?;
            let is_set = c["reason"].as_str().is_some_and(|reason| reason.starts_with("Cketerm"));
            (is_set || c["$patch"] == "delete").then(|| ((*name).to_owned(), is_set))
        };
        let changes: Vec<(String, bool)> = list.into_iter().flatten().filter_map(change).collect();
        if !changes.is_empty() {
            all.push(changes);
        }
    }
    all
}

fn i67_i68_conditions_come_in_order_and_go_although_leaders_are_killed(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    for name in ["w1", "w2", "w3"] {
        world.add_pod("default", &format!("web-{name}"), name, "web", None);
    }
    world.wait_for_running_pods("default");
    world.set_up(&all, &json!({"max_concurrent_reboots": 1}));
    world.set_command_seconds(5);
    let foreign = json!({"type": "Drained", "status": "False", "reason": "SomebodyElse", "message": "not cketerm's"});
    add_foreign_condition(world, "w3", &foreign);
    for (name, value) in [("node_conditions", "true"), ("planned_taint_waves", "1"), ("pod_events", "true")] {
        world.run(&["policy", "set", name, value]);
    }

    // pods stay Terminating without their kubelet, so the drain of the first lasts
    world.act("freeze", "kwok");
    world.queue(&[&all[1], &all[2], &all[3]]);
    let first = world.daemon("first");
    first.ready();
    wait_for_conditions(world, "w1", &["DrainInProgress"], 60);
    wait_for_conditions(world, "w2", &["MaintenancePlanned"], 30);
    wait_for_conditions(world, "w3", &["MaintenancePlanned"], 30);
    wait_for("only the next wave is tainted", 30, || (tainted(world) == ["w2"]).then_some(()));
    let found = world.node("w1")["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let drain = found.iter().find(|c| c["type"] == "DrainInProgress").expect("a condition");
    assert_eq!(drain["reason"], "CketermReboot");
    assert!(drain["message"].as_str().is_some_and(|m| m.contains("reboots/0, requested by")), "{drain}");
    assert!(drain["lastTransitionTime"].is_string() && drain["lastHeartbeatTime"].is_string(), "{drain}");

    // killed in a drain
    first.kill();
    let second = world.daemon("second");
    world.act("thaw", "kwok");
    wait_for_conditions(world, "w1", &["Drained", "MaintenanceInProgress"], 90);
    // killed while a command runs; before its start only a person could say that it never began
    let runs = |machine: &Machine| world.power().iter().any(|p| p.what == "begin" && p.address == machine.address);
    wait_for("the command of w1 runs", 30, || runs(&all[1]).then_some(()));
    second.kill();
    let third = world.daemon("third");
    third.ready();
    wait_for_conditions(world, "w2", &["Drained", "MaintenanceInProgress"], 120);
    wait_for_conditions(world, "w1", &[], 30);
    wait_for("only the next wave is tainted", 30, || (tainted(world) == ["w3"]).then_some(()));
    // killed with a planned reboot that is cancelled while nobody leads
    wait_for("the command of w2 runs", 30, || runs(&all[2]).then_some(()));
    third.kill();
    world.run(&["rq", "cancel", "2"]);
    let fourth = world.daemon("fourth");
    fourth.ready();
    world.wait_for_empty_queue(120);
    for node in ["w1", "w2", "w3"] {
        wait_for_conditions(world, node, &[], 30);
    }
    wait_for("no taint is left", 30, || tainted(world).is_empty().then_some(()));
    wait_for("no cordon is left", 30, || world.cordoned().is_empty().then_some(()));

    let kept = world.node("w3")["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let drained: Vec<&Value> = kept.iter().filter(|c| c["type"] == "Drained").collect();
    assert!(drained.len() == 1 && drained[0]["reason"] == "SomebodyElse", "{drained:?}");
    assert!(kept.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"), "{kept:?}");
    for node in ["w1", "w2"] {
        assert_in_order(&condition_changes(world, node), node);
    }
    let events = world.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events", None);
    let events = events["items"].as_array().cloned().unwrap_or_default();
    for pod in ["web-w1", "web-w2"] {
        let evicting = events.iter().find(|e| e["regarding"]["kind"] == "Pod" && e["regarding"]["name"] == pod);
        let evicting = evicting.unwrap_or_else(|| panic!("no Event of {pod}: {events:?}"));
        assert_eq!((&evicting["reason"], &evicting["type"]), (&json!("Evicting"), &json!("Normal")));
    }
}

/// Asserts that the conditions of a Node were set in their order, each once, and that what was set was removed.
fn assert_in_order(changes: &[Vec<(String, bool)>], node: &str) {
    let place = |name: &str| ORDER.iter().position(|known| *known == name).expect("a condition");
    let set: Vec<usize> = changes.iter().flatten().filter(|(_, is_set)| *is_set).map(|(name, _)| place(name)).collect();
    assert!(set.is_sorted() && set.contains(&1) && set.contains(&3), "{node}: {changes:?}");
    for name in ORDER {
        let of = |wanted: bool| changes.iter().flatten().filter(|(n, is_set)| n == name && *is_set == wanted).count();
        assert!(of(true) <= 1 && of(true) == of(false), "{node}: {name}: {changes:?}");
    }
}

fn i67_i68_a_policy_that_is_turned_off_leaves_nothing_behind(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    world.add_pod("default", "web-0", "w1", "web", None);
    world.wait_for_running_pods("default");
    world.add_budget("default", "web", "web", 1);
    world.set_up(&all, &json!({"max_concurrent_reboots": 1, "evict_retries": 100, "evict_interval": 1}));
    let others = json!([{"key": "example.com/a", "value": "x", "effect": "NoSchedule"},
        {"key": TAINT, "effect": "NoExecute"}]);
    world.ok("PATCH", "/api/v1/nodes/w2", Some(&json!({"spec": {"taints": others}})));
    for (name, value) in [("node_conditions", "true"), ("planned_taint_waves", "2"), ("pod_events", "true")] {
        world.run(&["policy", "set", name, value]);
    }
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&all[1], &all[2], &all[3]]);
    wait_for_conditions(world, "w1", &["DrainInProgress"], 60);
    wait_for_conditions(world, "w3", &["MaintenancePlanned"], 30);
    wait_for("two waves are tainted", 30, || (tainted(world) == ["w2", "w3"]).then_some(()));
    let events = || {
        let list = world.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events", None);
        let all = list["items"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|e| e["regarding"]["name"] == "web-0" && e["reason"] == "EvictionBlocked")
    };
    let blocked = wait_for("an Event names the budget", 30, events);
    assert_eq!(blocked["type"], "Warning");
    assert!(blocked["note"].as_str().is_some_and(|note| note.contains("default/web")), "{blocked}");

    // an entry on hold is not planned any longer, and the next one does not move up for it
    world.run(&["rq", "hold", "1", "--reason", "later"]);
    wait_for("the taint of the held entry goes", 30, || (tainted(world) == ["w3"]).then_some(()));
    for (name, value) in [("node_conditions", "false"), ("planned_taint_waves", "0")] {
        world.run(&["policy", "set", name, value]);
    }
    for node in ["w1", "w2", "w3"] {
        wait_for_conditions(world, node, &[], 30);
    }
    wait_for("no taint is left", 30, || tainted(world).is_empty().then_some(()));
    assert_eq!(world.node("w2")["spec"]["taints"], others, "taints of other programs stay");
}

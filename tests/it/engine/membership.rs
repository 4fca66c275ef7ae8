//! The definition follows the Nodes (policy `membership: nodes`), on real servers.

use serde_json::{Value, json};

use crate::world::{Options, World, cluster::machines, wait_for};

/// Names of the members, with `*` behind a control plane.
fn members(world: &World) -> Vec<String> {
    let definition: Value = serde_json::from_str(&world.run(&["cluster", "get", "-o", "json"])).expect("a definition");
    let name = |node: &Value| {
        let mark = if node["control_plane"] == true { "*" } else { "" };
        format!("{}{mark}", node["hostname"].as_str().expect("a name"))
    };
    let mut names: Vec<String> = definition["nodes"].as_array().expect("nodes").iter().map(name).collect();
    names.sort();
    names
}

fn wait_for_members(world: &World, names: &[&str]) {
    wait_for(&format!("the members are {}", names.join(" ")), 30, || (members(world) == names).then_some(()));
}

/// Creates the static Pod of an API server, as the kubelet of a control plane reports it.
fn add_api_server(world: &World, node: &str) {
    world.ok(
        "POST",
        "/api/v1/namespaces/kube-system/pods",
        Some(&json!({
            "metadata": {
                "name": format!("kube-apiserver-{node}"), "labels": {"component": "kube-apiserver"},
                "annotations": {"kubernetes.io/config.mirror": "0123", "kubernetes.io/config.source": "file"},
            },
            "spec": {"nodeName": node, "hostNetwork": true,
                "containers": [{"name": "kube-apiserver", "image": "registry.example/kube-apiserver:1"}]},
        })),
    );
}

/// Row of a Node in `membership list`.
fn listed(world: &World, node: &str) -> Value {
    let rows: Value = serde_json::from_str(&world.run(&["membership", "list", "-o", "json"])).expect("rows");
    let row = rows.as_array().expect("a list").iter().find(|row| row["node"] == node).cloned();
    row.unwrap_or_else(|| panic!("{node} is not listed: {rows}"))
}

#[test]
fn members_join_and_leave_with_their_nodes() {
    let Some(world) = World::start(Options { kcm: false, kwok: true, audit: true, etcd34: false, scheduler: false })
    else {
        return;
    };
    let all = machines(1, 4);
    world.add_nodes(&all[..3]);
    world.set_up(&all[..3], &json!({}));
    add_api_server(&world, "cp1");
    world.run(&["policy", "set", "node_grace_seconds", "3"]);
    world.run(&["policy", "set", "membership", "nodes"]);
    let daemon = world.daemon("engine");
    daemon.ready();

    // a new Node joins, and can be rebooted
    world.add_nodes(&all[3..4]);
    wait_for_members(&world, &["cp1*", "w1", "w2", "w3"]);
    world.queue(&[&all[3]]);
    world.wait_for_empty_queue(60);
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 1);

    // a Node that is gone leaves after its grace period; meanwhile another joins
    world.ok("DELETE", "/api/v1/nodes/w2", None);
    world.add_nodes(&all[4..]);
    wait_for_members(&world, &["cp1*", "w1", "w3", "w4"]);

    // a control plane waits for an approval
    world.ok("DELETE", "/api/v1/nodes/cp1", None);
    wait_for("the removal of the control plane waits", 30, || {
        world.run(&["membership", "diff"]).contains("waits for approval").then_some(())
    });
    assert_eq!(members(&world), ["cp1*", "w1", "w3", "w4"]);
    assert_eq!(listed(&world, "cp1")["state"], "absent");
    world.run(&["membership", "approve", "--reason", "it was dismantled"]);
    wait_for_members(&world, &["w1", "w3", "w4"]);
    let audit = world.run(&["audit", "-o", "json"]);
    for words in ["new Nodes: w3", "no Node for", "it was dismantled"] {
        assert!(audit.contains(words), "{words}: {audit}");
    }
}

#[test]
fn a_machine_that_may_be_a_control_plane_is_not_rebooted() {
    let Some(world) = World::start(Options { kcm: false, kwok: true, audit: true, etcd34: false, scheduler: false })
    else {
        return;
    };
    let all = machines(1, 3);
    world.add_nodes(&all[..3]);
    world.set_up(&all[..3], &json!({}));
    add_api_server(&world, "cp1");
    world.run(&["policy", "set", "membership", "nodes"]);
    let daemon = world.daemon("engine");
    daemon.ready();

    // a worker on which an API server runs becomes a control plane, and nobody knows by which rules it may be rebooted
    add_api_server(&world, "w1");
    wait_for_members(&world, &["cp1*", "w1*", "w2"]);
    world.queue(&[&all[1]]);
    wait_for("the entry is refused", 30, || {
        world.run(&["rq", "why", "0"]).contains("do not agree whether its Node is a control plane").then_some(())
    });
    assert_eq!(listed(&world, "w1")["signals"], json!({"label": false, "endpoint": null, "static_pod": true}));
    assert!(world.run(&["membership", "list"]).contains("SOURCES DISAGREE"));

    // others go on
    world.queue(&[&all[2]]);
    wait_for("the other machine reboots", 60, || world.power().iter().any(|p| p.what == "end").then_some(()));
    assert!(world.power().iter().all(|p| p.address == all[2].address));

    // the label ends the doubt
    let patch = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    world.ok("PATCH", "/api/v1/nodes/w1", Some(&patch));
    wait_for("the entry is no longer refused", 30, || {
        (!world.run(&["rq", "why", "0"]).contains("do not agree")).then_some(())
    });
}

//! The words that are about Kubernetes, on a real API server.

use serde_json::{Value, json};

use super::rig::Rig;
use crate::world::{Options, World};

fn add_node(world: &World, name: &str, address: &str, labels: &Value) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    world.ok("POST", "/api/v1/nodes", Some(&node));
    let status = json!({"status": {
        "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    world.ok("PATCH", &format!("/api/v1/nodes/{name}/status"), Some(&status));
}

#[tokio::test]
async fn a_first_definition_is_made_from_the_nodes_and_can_be_set() {
    let Some(world) = World::start(Options::default()) else { return };
    let rig = Rig::on(&world.etcd).await;
    add_node(&world, "cp0", "10.0.0.1", &json!({"node-role.kubernetes.io/control-plane": ""}));
    add_node(&world, "cp1", "10.0.0.2", &json!({"node-role.kubernetes.io/control-plane": ""}));
    add_node(&world, "10.0.0.3", "10.0.0.3", &json!({}));
    let kubeconfig = world.kubeconfig.to_str().unwrap();
    let run = |words: &[&str]| rig.run(&[&["--kubeconfig", kubeconfig], words].concat());

    let made = run(&["cluster", "init", "--from-kubernetes", "--name", "edge"]);
    assert_eq!(made.status, 0, "{made:?}");
    assert!(made.stdout.starts_with("name: edge\n"), "{made:?}");
    assert!(made.stderr.contains("constraints set control-plane-count 2"), "{made:?}");
    assert_eq!(run(&["constraints", "set", "control-plane-count", "2"]).status, 0);
    assert_eq!(run(&["cluster", "set", &rig.file("c.yml", &made.stdout)]).status, 0);

    assert_eq!(rig.run_with(&["rq", "add", "-"], "10.0.0.3").status, 0);
    let listed: Value = serde_json::from_str(&run(&["nodes", "list", "-o", "json"]).stdout).unwrap();
    let one = |name: &str| listed.as_array().unwrap().iter().find(|n| n["name"] == name).unwrap().clone();
    assert_eq!((&one("cp0")["address"], &one("cp0")["control_plane"]), (&json!("10.0.0.1"), &json!(true)));
    assert_eq!(one("10.0.0.3")["entries"], json!(["reboots/0"]));
    assert_eq!(one("10.0.0.3")["ready"], true);
}

#[tokio::test]
async fn etcd_and_kubernetes_are_confirmed_once_and_another_cluster_is_refused() {
    let Some(world) = World::start(Options::default()) else { return };
    let rig = Rig::on(&world.etcd).await;
    let kubeconfig = world.kubeconfig.to_str().unwrap();
    let identify = |words: &[&str]| rig.run(&[&["--kubeconfig", kubeconfig, "cluster", "identify"], words].concat());

    let before = identify(&[]);
    assert_eq!(before.status, 0, "{before:?}");
    assert!(before.stdout.contains("not proposed"), "{before:?}");
    assert_eq!(identify(&["--confirm"]).status, 0);
    assert!(identify(&[]).stdout.contains("confirmed"));

    rig.put("/cke/cketerm/identity", r#"{"uid":"other","at":"2026-06-01T00:00:00Z"}"#).await;
    let mismatch = identify(&[]);
    assert_eq!(mismatch.status, 3, "{mismatch:?}");
    assert!(mismatch.stderr.contains("do not belong together"), "{mismatch:?}");
    assert_eq!(identify(&["--confirm"]).status, 3);
    assert_eq!(identify(&["--confirm", "--replace", "wrong"]).status, 3);
    assert_eq!(identify(&["--confirm", "--replace", "other"]).status, 0);
    assert_eq!(identify(&[]).status, 0);
}

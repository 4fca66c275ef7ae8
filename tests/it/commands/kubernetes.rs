//! Commands that concern Kubernetes, on a real API server.

use cketerm_actions::{Kind, Operator};
use cketerm_clients::{
    kubernetes::{Kube, KubeSettings},
    store::{EtcdSettings, Store},
};
use cketerm_model::{
    clock::Clock,
    names::{Address, NodeName},
    stored::keys::SwitchName,
};
use serde_json::{Value, json};

use super::rig::Rig;
use crate::{
    stalls::Stopwatch,
    world::{Options, World},
};

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
async fn a_first_definition_is_generated_from_the_nodes_and_can_be_set() {
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
    assert!(one("cp0")["cordoned_by"].is_null());

    // a colleague's cordon names the program that set it
    let cordon = json!({"spec": {"unschedulable": true}});
    world.ok("PATCH", "/api/v1/nodes/cp0?fieldManager=kubectl-by-ann", Some(&cordon));
    let table = run(&["nodes", "list"]).stdout;
    let row = table.lines().find(|line| line.starts_with("cp0")).unwrap();
    assert!(row.contains("cordoned") && row.contains("kubectl-by-ann since 20"), "{table}");

    // by the Nodes' labels, where Kubernetes is configured; a dry run shows the plan and writes nothing
    world.ok("PATCH", "/api/v1/nodes/cp1", Some(&json!({"metadata": {"labels": {"topology.example/rack": "7"}}})));
    let dry = run(&["rq", "add", "--rack", "7", "--dry-run", "-o", "json"]);
    let planned: Value = serde_json::from_str(&dry.stdout).unwrap();
    assert_eq!((&planned[0]["address"], &planned[0]["api_server"]), (&json!("10.0.0.2"), &json!(true)), "{dry:?}");
    assert_eq!(planned.as_array().unwrap().len(), 1);
    assert_eq!(rig.get("/cke/reboots/write-index").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn the_cluster_identity_is_confirmed_once_and_another_cluster_is_refused() {
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
    assert!(mismatch.stderr.contains("belong to different clusters"), "{mismatch:?}");
    assert_eq!(identify(&["--confirm"]).status, 3);
    assert_eq!(identify(&["--confirm", "--replace", "wrong"]).status, 3);
    assert_eq!(identify(&["--confirm", "--replace", "other"]).status, 0);
    assert_eq!(identify(&[]).status, 0);
}

#[tokio::test]
async fn a_request_records_the_nodes_uid_and_another_cluster_is_refused() {
    let Some(world) = World::start(Options::default()) else { return };
    let rig = Rig::on(&world.etcd).await;
    rig.define();
    add_node(&world, "worker13", "10.0.0.13", &json!({}));
    let uid = world.ok("GET", "/api/v1/nodes/worker13", None)["metadata"]["uid"].clone();
    let etcd = EtcdSettings { endpoints: vec![world.etcd.clone()], ..EtcdSettings::default() };
    let store = Store::connect(&etcd, Clock::host()).await.unwrap();
    let settings = KubeSettings { kubeconfig: Some(world.kubeconfig.clone()), ..KubeSettings::default() };
    let kube = Kube::connect(&settings, Clock::host()).await.unwrap();
    let operator = Operator::new(store, Some(kube));

    // worker13 is the name of 10.0.0.13 in the definition; 10.0.0.12 has no Node
    let added = operator.add_reboots(&[Address::new("10.0.0.13"), Address::new("10.0.0.12")], None).await.unwrap();
    assert_eq!(added.indexes, [0, 1]);
    let request = async |index: u32| -> Value {
        serde_json::from_str(&rig.get(&format!("/cke/cketerm/requests/reboots/{index}")).await.unwrap()).unwrap()
    };
    assert_eq!(request(0).await["node_uid"], uid);
    assert_eq!(request(1).await.get("node_uid"), None);

    operator.confirm_identity(None).await.unwrap();
    rig.put("/cke/cketerm/identity", r#"{"uid":"other","at":"2026-06-01T00:00:00Z"}"#).await;
    let refused = operator.add_reboots(&[Address::new("10.0.0.13")], None).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Refused);
    assert!(refused.text.contains("cluster identify"), "{refused}");
    assert!(operator.set_switch(SwitchName::Reboots, true, None).await.is_err());
    // commands that end or hold work are always accepted
    operator.set_switch(SwitchName::Reboots, false, None).await.unwrap();
    operator.cancel_reboot(0, None, None).await.unwrap();
    assert_eq!(operator.cancel_all_reboots(None).await.unwrap(), [1]);

    operator.keep_cordoned(&NodeName::new("worker13"), true, None).await.unwrap();
    let node = world.ok("GET", "/api/v1/nodes/worker13", None);
    assert!(node["metadata"]["annotations"].get("cketerm.io/keep-cordoned").is_some(), "{node}");
    let all = etcd_client::GetOptions::new().with_prefix();
    let audit = rig.client.kv_client().get("/cke/cketerm/audit/", Some(all)).await.unwrap();
    assert!(
        audit.kvs().iter().any(|kv| kv.value_str().unwrap().contains("keep-cordoned")),
        "keep-cordoned is recorded in the audit log"
    );

    // an unreachable API server delays a command only briefly and does not block it
    rig.delete("/cke/cketerm/identity").await;
    world.act("freeze", "apiserver");
    let begun = Stopwatch::start();
    operator.add_reboots(&[Address::new("10.0.0.14")], None).await.unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(8), "{:?}", begun.elapsed());
    world.act("thaw", "apiserver");
}

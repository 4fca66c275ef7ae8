//! `nodes cordon`, `uncordon`, `drain`, `keep-cordoned`: one node manually, by the queues' rules.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use serde_json::{Value, json};

use super::rig::Rig;
use crate::world::{
    Options, World, in_both_worlds,
    program::{self, cketerm},
    wait_for,
};

in_both_worlds! {
    Options { kcm: true, kwok: true, audit: false, etcd34: false, scheduler: false };
    a_manual_drain_leaves_the_node_cordoned,
    i15_a_refusing_budget_is_named_with_its_numbers_and_no_pod_is_evicted,
    an_interrupted_manual_drain_leaves_the_node_cordoned_and_reports_it,
    manual_actions_are_refused_while_an_entry_processes_the_node,
}

/// Number of pods in the namespace without a requested deletion.
fn pods(world: &World) -> usize {
    let list = world.ok("GET", "/api/v1/namespaces/default/pods", None);
    list["items"].as_array().unwrap().iter().filter(|p| p["metadata"]["deletionTimestamp"].is_null()).count()
}

fn kept(world: &World) -> bool {
    world.node("w1")["metadata"]["annotations"].get("cketerm.io/keep-cordoned").is_some()
}

fn a_manual_drain_leaves_the_node_cordoned(world: &World) {
    world.set_up_web(1);
    let output = world.run(&["nodes", "drain", "10.0.1.11", "--reason", "new disk"]);
    assert!(
        output.contains("/2 pods gone") && output.ends_with("10.0.1.11 is drained and stays cordoned\n"),
        "{output}"
    );
    assert_eq!((pods(world), world.cordoned(), kept(world)), (0, vec!["w1".to_owned()], true));
    let audit = world.run(&["audit", "-o", "json", "-n", "3"]);
    let audit: Vec<Value> = serde_json::Deserializer::from_str(&audit).into_iter().map(Result::unwrap).collect();
    let records: Vec<(&str, &str)> =
        audit.iter().map(|a| (a["what"].as_str().unwrap(), a["result"].as_str().unwrap())).collect();
    assert_eq!(records, [("node drain", "drained, 2 pods"), ("node drain", "begun"), ("node cordon", "done")]);
    assert!(audit.iter().all(|a| a["on"] == "node w1" && a["reason"] == "new disk"), "{audit:?}");

    // an engine that leads does not touch the node
    let daemon = world.daemon("engine");
    wait_for("the engine leads", 30, || daemon.ready().contains("leading").then_some(()));
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!((world.cordoned(), kept(world)), (vec!["w1".to_owned()], true));
    daemon.terminate();

    let again = cketerm(&world.config(), &["nodes", "cordon", "w1"]);
    assert_eq!((again.code, again.stderr.as_str()), (0, "w1 is cordoned already\n"));
    let free = cketerm(&world.config(), &["nodes", "uncordon", "w1"]);
    assert_eq!((free.code, free.stderr.as_str()), (0, "w1 is uncordoned\n"));
    assert_eq!((world.cordoned().len(), kept(world)), (0, false));
    let empty = world.run(&["nodes", "drain", "w1", "-o", "json"]);
    let empty: Value = serde_json::from_str(&empty).unwrap();
    assert_eq!((&empty["pods_at_start"], &empty["blockers"]), (&json!(0), &json!([])));

    let nobody = cketerm(&world.config(), &["nodes", "drain", "w7"]);
    assert_eq!(nobody.code, 1, "{}", nobody.stderr);
    assert!(nobody.stderr.contains("Kubernetes has no Node w7"), "{}", nobody.stderr);
}

fn i15_a_refusing_budget_is_named_with_its_numbers_and_no_pod_is_evicted(world: &World) {
    world.set_up_web(1);
    world.add_budget("default", "web", "web", 2);
    let ran = cketerm(&world.config(), &["nodes", "drain", "w1"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("not drained, w1 stays cordoned (`cketerm nodes uncordon w1`)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("pdb default/web (healthy 2, needs 2)"), "{}", ran.stderr);
    assert_eq!((pods(world), world.cordoned(), kept(world)), (2, vec!["w1".to_owned()], true));
}

fn an_interrupted_manual_drain_leaves_the_node_cordoned_and_reports_it(world: &World) {
    world.set_up_web(1);
    // only one of the two pods may be evicted; the preview checks each pod alone, so it allows both
    world.add_budget("default", "web", "web", 1);
    let mut child = program::command()
        .arg("--config")
        .arg(world.config())
        .args(["nodes", "drain", "w1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let held = lines.find(|line| line.contains("1/2 pods gone: pod default/web-") && line.contains("default/web"));
    assert!(held.is_some(), "the drain names the budget that blocks it");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    drop(lines);
    let out = child.wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{output}");
    assert!(output.contains("interrupted: w1 stays cordoned") && output.contains("nodes uncordon w1"), "{output}");
    assert_eq!((pods(world), world.cordoned()), (1, vec!["w1".to_owned()]));
}

fn manual_actions_are_refused_while_an_entry_processes_the_node(world: &World) {
    world.set_up_web(1);
    let entry = json!({
        "index": "0", "node": "10.0.1.11", "status": "rebooting", "last_transition_time": "2026-06-01T00:00:00Z",
        "drain_backoff_expire": "0001-01-01T00:00:00Z",
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        Rig::on(&world.etcd).await.put("/cke/reboots/data/0000000000000000", &entry.to_string()).await;
    });
    let before = world.node("w1")["metadata"]["annotations"].clone();
    for verb in ["cordon", "uncordon", "drain"] {
        let ran = cketerm(&world.config(), &["nodes", verb, "w1"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{verb}: {}", ran.stderr);
        assert!(ran.stderr.contains("node w1: reboots/0 (rebooting) works on it"), "{verb}: {}", ran.stderr);
    }
    assert_eq!((world.cordoned().len(), &world.node("w1")["metadata"]["annotations"]), (0, &before));
    // a command that only keeps a cordon is always accepted
    let ran = cketerm(&world.config(), &["nodes", "keep-cordoned", "w1"]);
    assert_eq!((ran.code, kept(world)), (0, true), "{}", ran.stderr);
    assert_eq!(cketerm(&world.config(), &["nodes", "keep-cordoned", "w1", "--give-back"]).code, 0);
    assert!(!kept(world));
}

#[test]
fn manual_actions_need_kubernetes() {
    let ran = super::rig::run(&["--etcd-endpoints", "http://127.0.0.1:1", "nodes", "cordon", "w1"], "");
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert!(ran.stderr.contains("--kubeconfig FILE"), "{}", ran.stderr);
}

//! Events of Nodes for an engine's actions, as kubectl shows them. Without the right to write them everything else
//! works.

use std::process::Command;

use serde_json::{Value, json};

use crate::world::{
    Options, World, built,
    cluster::{Machine, machines},
    in_both_worlds,
    program::{Daemon, config},
    wait_for,
};

in_both_worlds! {
    Options { kcm: true, kwok: true, ..Options::default() };
    kubectl_shows_the_engines_actions_on_a_node,
}

fn kubectl(world: &World, args: &[&str]) -> String {
    let kubectl = built("kubectl").expect("kubectl is built");
    // without TLS kubectl sends no token except one in the URL
    let text =
        std::fs::read_to_string(&world.kubeconfig).expect("a kubeconfig").replace("http://", "http://admin:admin@");
    let kubeconfig = world.dir().join("kubeconfig-kubectl");
    std::fs::write(&kubeconfig, text).expect("a kubeconfig");
    let out = Command::new(kubectl).arg("--kubeconfig").arg(&kubeconfig).args(args).output().expect("kubectl starts");
    assert!(out.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn events(world: &World, node: &str) -> Vec<Value> {
    let list = world.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events", None);
    let all = list["items"].as_array().cloned().unwrap_or_default();
    all.into_iter()
        .filter(|e| e["regarding"]["name"] == node && e["reportingController"] == "cketerm.io/engine")
        .collect()
}

fn reasons(world: &World, node: &str) -> Vec<String> {
    let mut all = events(world, node);
    all.sort_by_key(|e| e["eventTime"].as_str().unwrap_or_default().to_owned());
    all.iter().map(|e| e["reason"].as_str().unwrap_or_default().to_owned()).collect()
}

fn kubectl_shows_the_engines_actions_on_a_node(world: &World) {
    if built("kubectl").is_none() {
        return;
    }
    let machines = machines(1, 2);
    world.add_nodes(&machines);
    world.add_pod("default", "web-0", "w2", "web", None);
    world.wait_for_running_pods("default");
    world.add_budget("default", "web", "web", 1);
    world.set_up(&machines, &json!({"evict_retries": 0, "eviction_timeout_seconds": 5}));
    let daemon = world.daemon("engine");
    daemon.ready();
    let worker = |name: &str| machines.iter().find(|m| m.name == name).expect("a worker");

    // a whole reboot
    world.queue(&[worker("w1")]);
    world.wait_for_empty_queue(90);
    wait_for("all four events are written", 20, || (reasons(world, "w1").len() >= 4).then_some(()));
    assert_eq!(reasons(world, "w1"), ["DrainStarted", "RebootOrdered", "Rebooted", "Uncordoned"]);
    let described = kubectl(world, &["describe", "node", "w1"]);
    let shown = described.split("Events:").nth(1).expect("events");
    for wanted in
        ["DrainStarted", "drain for reboots/0 started, requested by", "RebootOrdered", "Rebooted", "Uncordoned"]
    {
        assert!(shown.contains(wanted), "no {wanted}: {described}");
    }
    assert!(shown.contains("cketerm.io/engine"), "the event must name the engine as its reporter: {shown}");

    // a drain that a budget blocks
    world.queue(&[worker("w2")]);
    wait_for("the drain backs off", 60, || reasons(world, "w2").contains(&"DrainBackedOff".to_owned()).then_some(()));
    let got = kubectl(world, &["get", "events", "--field-selector", "involvedObject.name=w2,type=Warning"]);
    assert!(got.contains("DrainBackedOff") && got.contains("default/web-0 blocked by pdb default/web"), "{got}");
    world.run(&["rq", "cancel", "1"]);
    wait_for("the Cancelled event is written", 20, || {
        reasons(world, "w2").contains(&"Cancelled".to_owned()).then_some(())
    });
    let uid = world.node("w2")["metadata"]["uid"].clone();
    assert!(events(world, "w2").iter().all(|e| e["regarding"]["uid"] == uid));
}

/// Without the right to write Events only the Events are missing.
#[test]
fn without_the_right_to_write_events_one_warning_is_logged_and_the_rest_works() {
    let Some(world) = World::start(Options { kwok: true, audit: true, ..Options::default() }) else { return };
    let machines = machines(1, 2);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({}));
    let kubeconfig = world.granted("quiet", &["cketerm", "cketerm-endpoints"]);
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cketerm";
    let role = world.ok("GET", path, None);
    let all = role["rules"].as_array().expect("rules");
    let rules: Vec<&Value> = all.iter().filter(|r| r["apiGroups"] != json!(["events.k8s.io"])).collect();
    world.ok("PATCH", path, Some(&json!({"rules": rules})));
    let settings = config(world.dir(), "quiet.yaml", &world.etcd, Some(&kubeconfig), 5);
    let daemon = Daemon::start(world.dir(), &settings, "quiet");
    daemon.ready();
    let workers: Vec<&Machine> = machines.iter().filter(|m| !m.control_plane).collect();
    world.queue(&workers);
    world.wait_for_empty_queue(90);
    wait_for("the nodes are uncordoned", 20, || world.cordoned().is_empty().then_some(()));
    let warnings = daemon.logged().matches("Events in this namespace are refused").count();
    assert_eq!(warnings, 1, "{}", daemon.logged());
    assert!(events(&world, "w1").is_empty());
    // the engine does not keep trying to write Events
    let refused = world.refused("quiet");
    assert_eq!(refused.iter().filter(|r| r.contains("/events")).count(), 1, "{refused:?}");
}

//! `MaintenanceRequest`s in both worlds: kept and released, rebooted once, over killed leaders.

use serde_json::{Value, json};

use crate::world::{
    Options, World,
    cluster::machines,
    in_both_worlds,
    program::{Daemon, cketerm, config},
    wait_for,
};

in_both_worlds! {
    Options { kcm: false, kwok: true, ..Options::default() };
    i74_a_request_keeps_a_node_until_it_is_deleted,
    i74_a_request_reboots_each_node_once_over_killed_leaders,
    i74_two_requests_for_the_same_nodes_take_turns_over_killed_leaders,
}

const REQUESTS: &str = "/apis/cketerm.io/v1alpha1/maintenancerequests";

/// Applies the resource definition of docs/, which the sandbox has.
fn define(world: &World) {
    let crd: Value = serde_yaml::from_str(include_str!("../../../docs/maintenance-request-crd.yaml")).unwrap();
    if world.call("GET", REQUESTS, None).0 != 200 {
        world.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Some(&crd));
        wait_for("the API server serves the resource", 30, || {
            (world.call("GET", REQUESTS, None).0 == 200).then_some(())
        });
    }
}

fn document(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "cketerm.io/v1alpha1", "kind": "MaintenanceRequest", "metadata": {"name": name}, "spec": spec})
}

fn status(world: &World, name: &str) -> Value {
    world.ok("GET", &format!("{REQUESTS}/{name}"), None)["status"].clone()
}

/// Returns status and reason of a condition.
fn condition(status: &Value, of: &str) -> (String, String) {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == of).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn is(status: &Value, of: &str, value: &str, reason: &str) -> bool {
    condition(status, of) == (value.to_owned(), reason.to_owned())
}

fn in_an_hour() -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn i74_a_request_keeps_a_node_until_it_is_deleted(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    define(world);
    world.set_up(&all, &json!({"max_concurrent_reboots": 2}));
    world.run(&["policy", "set", "maintenance_requests", "true"]);
    let first = world.daemon("first");
    first.ready();
    let end = in_an_hour();
    let spec = json!({"nodeNames": ["w1", "w9"], "reason": "x", "action": "Keep", "window": {"end": end}});
    world.ok("POST", REQUESTS, Some(&document("typo", &spec)));
    wait_for("the refusal", 60, || is(&status(world, "typo"), "Accepted", "False", "NoNodes").then_some(()));

    let spec = json!({"nodeNames": ["w1"], "reason": "disk sdb", "action": "Keep", "window": {"end": end}});
    world.ok("POST", REQUESTS, Some(&document("disk", &spec)));
    let kept = || (status(world, "disk")["nodes"][0]["state"] == "InMaintenance").then_some(());
    wait_for("the Node is kept", 90, kept);
    assert!(is(&status(world, "disk"), "Complete", "False", "InProgress"));
    assert_eq!(world.cordoned(), ["w1"]);
    let why = world.run(&["maintenance", "list", "-o", "json"]);
    assert!(why.contains("disk sdb") && why.contains("maintenancerequest/disk"), "{why}");

    // the deletion waits for a leader, and the next leader releases the Node
    first.kill();
    world.ok("DELETE", &format!("{REQUESTS}/disk"), None);
    assert_eq!(world.cordoned(), ["w1"]);
    let second = world.daemon("second");
    second.ready();
    wait_for("the object is gone", 90, || {
        (world.call("GET", &format!("{REQUESTS}/disk"), None).0 == 404).then_some(())
    });
    wait_for("nothing is cordoned", 60, || world.cordoned().is_empty().then_some(()));
    world.ok("DELETE", &format!("{REQUESTS}/typo"), None);
    let audit = world.run(&["audit", "-o", "json"]);
    assert!(audit.contains("request end") && audit.contains("was deleted"), "{audit}");
}

fn i74_a_request_reboots_each_node_once_over_killed_leaders(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    define(world);
    world.set_up(&all, &json!({"max_concurrent_reboots": 2}));
    world.run(&["policy", "set", "maintenance_requests", "true"]);
    for node in ["w1", "w2"] {
        world.ok(
            "PATCH",
            &format!("/api/v1/nodes/{node}"),
            Some(&json!({"metadata": {"labels": {"firmware": "old"}}})),
        );
    }
    // a leader that is killed while a command begins leaves an outcome that only a person can settle
    world.run(&["rq", "disable"]);
    let selector = json!({"matchLabels": {"firmware": "old"}});
    let spec = json!({"nodeSelector": selector, "reason": "firmware 7", "action": "Reboot"});
    world.ok("POST", REQUESTS, Some(&document("firmware", &spec)));
    let first = world.daemon("first");
    first.ready();
    wait_for("its entries", 60, || (!world.entries().is_empty()).then_some(()));
    first.kill();
    let second = world.daemon("second");
    second.ready();
    world.run(&["rq", "enable"]);
    wait_for("the end", 180, || is(&status(world, "firmware"), "Complete", "True", "Ended").then_some(()));
    let begun = || world.power().iter().filter(|power| power.what == "begin").count();
    assert_eq!(begun(), 2);
    let batches = world.run(&["rq", "batches", "-o", "json"]);
    assert!(batches.contains("firmware 7") && batches.contains("maintenancerequest/firmware"), "{batches}");
    // the selector still matches, and nothing is queued again
    second.kill();
    let third = world.daemon("third");
    third.ready();
    world.ok("DELETE", &format!("{REQUESTS}/firmware"), None);
    let gone = || (world.call("GET", &format!("{REQUESTS}/firmware"), None).0 == 404).then_some(());
    wait_for("the object is gone", 60, gone);
    assert_eq!((begun(), world.entries().len()), (2, 0));
}

/// One request keeps w1, and another one reboots w1 and w2. The leader is killed while both are open.
fn i74_two_requests_for_the_same_nodes_take_turns_over_killed_leaders(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    define(world);
    world.set_up(&all, &json!({"max_concurrent_reboots": 3}));
    world.run(&["policy", "set", "maintenance_requests", "true"]);
    let first = world.daemon("first");
    first.ready();
    let keep = json!({"nodeNames": ["w1"], "reason": "disk", "action": "Keep", "window": {"end": in_an_hour()}});
    world.ok("POST", REQUESTS, Some(&document("disk", &keep)));
    let state = |name: &str, node: usize| status(world, name)["nodes"][node]["state"].clone();
    wait_for("w1 is kept", 90, || (state("disk", 0) == "InMaintenance").then_some(()));
    // the queue is disabled while leaders are killed: a command that begins then would wait for a person
    world.run(&["rq", "disable"]);
    let reboot = json!({"nodeNames": ["w1", "w2"], "reason": "firmware", "action": "Reboot"});
    world.ok("POST", REQUESTS, Some(&document("firmware", &reboot)));
    wait_for("the entries", 60, || (world.entries().len() == 2).then_some(()));
    first.kill();
    let second = world.daemon("second");
    second.ready();
    world.run(&["rq", "enable"]);
    wait_for("w2 is rebooted", 120, || (state("firmware", 1) == "Ended").then_some(()));
    let begun = || world.power().iter().filter(|power| power.what == "begin").count();
    // w1 waits, and says for what
    wait_for("w2 is uncordoned", 60, || (world.cordoned() == ["w1"]).then_some(()));
    let left: Vec<String> = world.entries().keys().map(u64::to_string).collect();
    assert_eq!((begun(), left.len()), (1, 1));
    let why = world.run(&["rq", "why", &left[0]]);
    assert!(why.contains("maintenance"), "{why}");
    assert!(is(&status(world, "firmware"), "Complete", "False", "InProgress"));
    // another request for w1 waits without an entry until the first one is gone
    world.ok("POST", REQUESTS, Some(&document("disk-2", &keep)));
    wait_for("it waits", 60, || (state("disk-2", 0) == "Waiting").then_some(()));
    let gone = |name: &str| (world.call("GET", &format!("{REQUESTS}/{name}"), None).0 == 404).then_some(());
    world.ok("DELETE", &format!("{REQUESTS}/disk-2"), None);
    wait_for("the waiting request is gone", 60, || gone("disk-2"));
    assert_eq!(world.cordoned(), ["w1"]);

    world.run(&["rq", "disable"]);
    world.ok("DELETE", &format!("{REQUESTS}/disk"), None);
    second.kill();
    let third = world.daemon("third");
    third.ready();
    wait_for("the first request is gone", 90, || gone("disk"));
    world.run(&["rq", "enable"]);
    wait_for("w1 was rebooted", 240, || is(&status(world, "firmware"), "Complete", "True", "Ended").then_some(()));
    assert_eq!(begun(), 2);
    world.ok("DELETE", &format!("{REQUESTS}/firmware"), None);
    wait_for("the second request is gone", 90, || gone("firmware"));
    wait_for("nothing is cordoned", 60, || world.cordoned().is_empty().then_some(()));
}

#[test]
fn the_definition_refuses_bad_requests_and_the_documented_role_suffices() {
    let Some(world) = World::start(Options { kcm: false, kwok: true, audit: true, ..Options::default() }) else {
        return;
    };
    let all = machines(1, 2);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    world.run(&["policy", "set", "maintenance_requests", "true"]);
    let kubeconfig = world.granted("engine", &["cketerm"]);
    let settings = config(world.dir(), "requests.yaml", &world.etcd, Some(&kubeconfig), 5);
    let doctor = cketerm(&settings, &["doctor", "--problems"]).stdout;
    assert!(doctor.contains("the cluster has no MaintenanceRequests"), "{doctor}");
    define(&world);
    let doctor = cketerm(&settings, &["doctor", "--problems"]).stdout;
    assert!(doctor.contains("cketerm-maintenance-requests"), "{doctor}");
    let kubeconfig = world
        .granted("engine2", &["cketerm", "cketerm-endpoints", "cketerm-hosts-view", "cketerm-maintenance-requests"]);
    let settings = config(world.dir(), "requests2.yaml", &world.etcd, Some(&kubeconfig), 5);
    let doctor = cketerm(&settings, &["doctor", "--problems"]).stdout;
    assert!(!doctor.contains("maintenance"), "{doctor}");

    let refused = [
        (json!({"action": "Keep", "reason": "x", "nodeNames": ["w1"]}), "needs an end"),
        (json!({"action": "Reboot", "reason": "x"}), "nodeNames or nodeSelector"),
        (json!({"action": "Reboot", "reason": "x", "nodeSelector": {}}), "every Node"),
        (json!({"action": "Reboot", "reason": " ", "nodeNames": ["w1"]}), "reason"),
        (json!({"action": "Drain", "reason": "x", "nodeNames": ["w1"]}), "action"),
        (
            json!({"action": "Reboot", "reason": "x", "nodeNames": ["w1"],
                "window": {"start": "2026-12-02T00:00:00+09:00", "end": "2026-12-01T12:00:00Z"}}),
            "not after",
        ),
    ];
    for (spec, expected) in refused {
        let (code, answer) = world.call("POST", REQUESTS, Some(&document("bad", &spec)));
        assert!(code == 422 && answer.to_string().contains(expected), "{spec}: {code} {answer}");
    }
    let spec = json!({"action": "Reboot", "reason": "x", "nodeNames": ["w1"]});
    world.ok("POST", REQUESTS, Some(&document("good", &spec)));
    let changed = json!({"spec": {"nodeNames": ["w2"]}});
    let (code, answer) = world.call("PATCH", &format!("{REQUESTS}/good"), Some(&changed));
    assert!(code == 422 && answer.to_string().contains("does not change"), "{answer}");

    let daemon = Daemon::start(world.dir(), &settings, "requests");
    daemon.ready();
    wait_for("the end", 120, || is(&status(&world, "good"), "Complete", "True", "Ended").then_some(()));
    world.ok("DELETE", &format!("{REQUESTS}/good"), None);
    let gone = || (world.call("GET", &format!("{REQUESTS}/good"), None).0 == 404).then_some(());
    wait_for("the object is gone", 60, gone);
    assert_eq!(world.refused("engine2"), Vec::<String>::new(), "the engine uses rights that the role does not grant");
    let mut unused = world.unused("engine2", "cketerm-maintenance-requests");
    let streamed = |right: &str| right.strip_prefix("list ").is_some_and(|what| world.asked("engine2", "watch", what));
    unused.retain(|right| !streamed(right));
    assert_eq!(unused, Vec::<String>::new(), "the role grants rights that the engine does not use");
}

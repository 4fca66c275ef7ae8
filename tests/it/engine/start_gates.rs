//! Gates of the site for new reboots (policy `start_gates`), on real servers and a Prometheus that fires, fails, hangs,
//! and answers nonsense: nothing starts meanwhile, and what has begun goes on, also under a new leader.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use crate::{
    store::connection::authority,
    world::{
        Options, World,
        cluster::machines,
        program::cketerm,
        prometheus::{Behaviour, Prometheus},
        wait_for,
    },
};

const BUDGET: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web";

fn reason(world: &World, index: u64) -> String {
    let why: Value = serde_json::from_str(&world.run(&["rq", "why", &index.to_string(), "-o", "json"])).expect("JSON");
    why["reason"].to_string()
}

fn set_gates(world: &World, gates: &Value) {
    world.run(&["policy", "set", "start_gates", &gates.to_string()]);
}

/// Writes a file that only its owner can read.
fn secret(world: &World, name: &str, text: &str) -> PathBuf {
    let path = world.dir().join(name);
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    path
}

/// Waits until the entry's reason is a closed gate with these words.
fn wait_for_gate(world: &World, index: u64, words: &[&str]) {
    world.wait_or_explain(index, &format!("the gate is closed: {words:?}"), 30, || {
        let reason = reason(world, index);
        (reason.contains("StartGateClosed") && words.iter().all(|word| reason.contains(word))).then_some(())
    });
    assert_eq!(world.entries()[&index]["status"], "queued");
}

#[test]
fn i72_no_reboot_starts_behind_a_closed_gate_and_a_drain_that_has_begun_goes_on() {
    let Some(world) = World::start(Options { kcm: true, kwok: true, audit: true, etcd34: false, scheduler: false })
    else {
        return;
    };
    world.set_up_web(2);
    let all = machines(1, 2);
    let prometheus = Prometheus::start();
    let token = secret(&world, "token", "s3cret\n");
    set_gates(
        &world,
        &json!({"prometheus": prometheus.url, "alerts": {"ignore": "Watchdog", "labels": {"severity": "critical"}},
            "queries": [{"name": "ceph", "query": "ceph_health_status > 0"}], "interval_seconds": 1,
            "timeout_seconds": 2, "bearer_token_file": token}),
    );
    let first = world.daemon("first");
    first.ready();
    std::thread::sleep(Duration::from_secs(3));
    assert!(prometheus.asked().is_empty(), "nothing waits for its start");

    // every answer but an empty result keeps the gate closed
    prometheus.behave(Behaviour::Fires("HostDown"), Behaviour::Quiet);
    world.queue(&[&all[1]]);
    wait_for_gate(&world, 0, &["\"gate\":\"alerts\"", "HostDown"]);
    let asked = prometheus.asked();
    let alerts = "GET /api/v1/query?query=ALERTS%7Balertstate%3D%22firing%22%2Calertname%21~%22Cketerm.%2A%22\
                  %2Calertname%21~%22Watchdog%22%2Cseverity%3D~%22critical%22%7D HTTP/1.1";
    assert!(asked.iter().any(|asked| asked.line == alerts), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.authorization == "Bearer s3cret"), "{asked:?}");
    let (_, page) = first.page("/metrics");
    assert!(page.contains("cketerm_start_gate_closed{gate=\"alerts\"} 1"), "{page}");
    assert!(page.contains("cketerm_entries{queue=\"reboot\",reason=\"StartGateClosed\"} 1"), "{page}");
    for (alerts, other, words) in [
        (Behaviour::Quiet, Behaviour::Fires("HEALTH_WARN"), ["\"gate\":\"ceph\"", "HEALTH_WARN"]),
        (Behaviour::Status(500), Behaviour::Quiet, ["\"failed\":true", "answered 500: broken"]),
        (Behaviour::Quiet, Behaviour::Hangs, ["\"gate\":\"ceph\"", "none in 2 s"]),
        (Behaviour::Garbage, Behaviour::Quiet, ["\"gate\":\"alerts\"", "not of Prometheus"]),
        (Behaviour::Quiet, Behaviour::Large, ["\"gate\":\"ceph\"", "larger than 1048576 bytes"]),
    ] {
        // both are closed for a round, because one may be answered before the other
        let closed = |behaviour| if behaviour == Behaviour::Quiet { Behaviour::Status(503) } else { behaviour };
        prometheus.behave(closed(alerts), closed(other));
        std::thread::sleep(Duration::from_secs(6));
        prometheus.behave(alerts, other);
        wait_for_gate(&world, 0, &words);
    }
    let text = world.run(&["rq", "why", "0"]);
    assert!(text.contains("`policy set start_gates none` starts without it"), "{text}");
    assert!(world.cordoned().is_empty());
    assert!(world.power().is_empty());
    // the last of the answers: the alerts' gate is open, and ceph's has none
    let doctor: Value =
        serde_json::from_str(&cketerm(&world.config(), &["doctor", "-o", "json"]).stdout).expect("JSON");
    let checks = doctor["checks"].as_array().expect("checks");
    let gates: Vec<_> = checks.iter().filter(|check| check["subject"] == "start-gates").collect();
    let [failed, open] = gates[..] else { panic!("{gates:?}") };
    assert_eq!((&failed["outcome"], &open["outcome"]), (&json!("failed"), &json!("ok")));
    assert!(failed["text"].as_str().is_some_and(|text| text.contains("ceph") && text.contains("1048576")), "{failed}");

    // an open gate lets the drain begin; a closed one does not stop it
    world.add_budget("default", "web", "web", 1);
    prometheus.behave(Behaviour::Quiet, Behaviour::Quiet);
    world.wait_for_entry_status(0, "draining", 30);
    prometheus.behave(Behaviour::Fires("HostDown"), Behaviour::Quiet);
    world.queue(&[&all[2]]);
    wait_for_gate(&world, 1, &["HostDown"]);
    first.kill();
    let second = world.daemon("second");
    second.ready();
    world.wait_for_entry_status(0, "draining", 1);
    world.ok("PATCH", BUDGET, Some(&json!({"spec": {"minAvailable": 0}})));
    world.wait_or_explain(0, "the drain that had begun ends with a reboot", 60, || {
        (!world.entries().contains_key(&0)).then_some(())
    });
    wait_for("the Node is uncordoned", 30, || world.cordoned().is_empty().then_some(()));
    wait_for_gate(&world, 1, &["HostDown"]);
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 1);

    prometheus.behave(Behaviour::Quiet, Behaviour::Quiet);
    world.wait_for_empty_queue(60);
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 2);
    let before = prometheus.asked().len();
    std::thread::sleep(Duration::from_secs(4));
    assert!(prometheus.asked().len() <= before + 2, "nothing waits any more");
}

#[test]
fn a_prometheus_is_trusted_by_the_authority_in_the_policy() {
    let Some(world) = World::start(Options { kcm: false, kwok: true, audit: false, etcd34: false, scheduler: false })
    else {
        return;
    };
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    let dir = world.dir().join("prometheus");
    std::fs::create_dir_all(&dir).expect("a folder");
    authority(&dir, &["server"]);
    let prometheus = Prometheus::start_tls(&dir);
    let gates = |ca: Option<&str>| {
        let ca = ca.map(|name| dir.join(name));
        json!({"prometheus": prometheus.url, "alerts": {}, "interval_seconds": 1, "ca_file": ca})
    };
    set_gates(&world, &gates(None));
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&all[1]]);
    wait_for_gate(&world, 0, &["its certificate is not trusted"]);
    set_gates(&world, &gates(Some("other.crt")));
    wait_for_gate(&world, 0, &["its certificate is not trusted"]);
    set_gates(&world, &gates(Some("missing.crt")));
    wait_for_gate(&world, 0, &["missing.crt cannot be read"]);
    assert!(prometheus.asked().is_empty());
    set_gates(&world, &gates(Some("ca.crt")));
    world.wait_for_empty_queue(60);
    assert!(!prometheus.asked().is_empty());
}

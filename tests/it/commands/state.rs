//! `state` and `decide`: an engine's snapshot is written, read back, and decided on again.

use std::{sync::Arc, time::Duration};

use cketerm_model::cketerm_records::EngineMode;
use cketerm_rules::{decide::decide, seen::Seen, state::State};
use cketerm_scenario::{Options, Scenario, Stage};
use serde_json::{Value, json};

use super::rig::Rig;
use crate::world::{Options as Servers, World};

/// Passes of an engine that works through a scenario, each with its decisions.
async fn passes(name: &str, minutes: u64) -> Vec<Arc<Seen>> {
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-11-21T10:00:00Z".parse().unwrap());
    let stage = Stage::set(Scenario::named(name).unwrap(), Options::default(), clock).await.unwrap();
    let engine = stage.backends("boot-0").start(EngineMode::Daemon, true, None);
    let mut seen = engine.seen();
    let watch = async {
        let mut all = Vec::new();
        while seen.changed().await.is_ok() {
            all.push(Arc::clone(&seen.borrow_and_update()));
        }
        all
    };
    let play = async {
        stage.play().await;
        tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
        engine.stop().await;
    };
    let (all, ()) = tokio::join!(watch, play);
    all
}

/// I45, and `decide --from`: a bug report can be replayed.
#[tokio::test(start_paused = true)]
async fn decide_replays_every_pass_of_an_engine_from_its_saved_state() {
    let mut effects = 0;
    for (name, minutes) in [("budget", 10), ("repairs", 10), ("registry", 5), ("hosts", 2), ("api-servers", 10)] {
        let all = Box::pin(passes(name, minutes)).await;
        assert!(all.len() > 50, "{name}: only {} passes were recorded", all.len());
        let decisions = || all.iter().map(|seen| (seen, decide(&seen.snapshot, seen.now)));
        let works = decisions().filter(|(_, decided)| !decided.effects.is_empty()).take(30);
        for (seen, decided) in works.chain(decisions().step_by(all.len() / 15)) {
            effects += decided.effects.len();
            let document = State::of(seen).document().unwrap();
            let again = State::read(&document.to_string()).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(format!("{:?}", again.decide()), format!("{decided:?}"), "{name}");
            assert_eq!(again.document().unwrap(), document, "{name}: writing the state again changes it");
        }
    }
    assert!(effects > 50, "only {effects} effects were compared");
}

#[tokio::test]
async fn decide_reads_the_output_of_state_and_neither_writes_to_etcd() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.run_with(&["rq", "add", "-"], "10.0.0.12 10.0.0.13");
    rig.put("/cke/sabakan/url", "http://user:hunter2@127.0.0.1:1/graphql").await;
    rig.put("/cke/sabakan/disabled", "true").await;
    let before = rig.keys().await;
    let written = rig.run(&["state"]);
    assert_eq!((written.status, written.stderr.as_str()), (0, ""), "{written:?}");
    assert!(!written.stdout.contains("hunter2") && written.stdout.contains("***@127.0.0.1"), "a secret");
    let document: Value = serde_json::from_str(&written.stdout).unwrap();
    assert_eq!(document["snapshot"]["store"]["reboots"]["entries"]["0"]["value"]["Ok"]["node"], "10.0.0.12");

    let file = rig.file("state.json", &written.stdout);
    let decided = rig.run(&["decide", "--from", &file]);
    assert_eq!(decided.status, 0, "{decided:?}");
    assert!(decided.stdout.starts_with("phase: reboot-nodes\n\nno actions\n"), "{decided:?}");
    assert!(decided.stdout.contains("reboots/1 the engine only observes: Kubernetes is not configured"), "{decided:?}");
    assert!(decided.stderr.contains("--as-leader"), "{decided:?}");
    let yaml = rig.run(&["state", "-o", "yaml"]);
    let from_yaml = rig.run(&["decide", "--from", &rig.file("state.yaml", &yaml.stdout), "-o", "json"]);
    assert_eq!(from_yaml.status, 0, "{from_yaml:?}");
    let value: Value = serde_json::from_str(&from_yaml.stdout).unwrap();
    assert_eq!(value["reasons"]["reboots/0"]["reason"], "EngineObserving", "{value}");
    assert!(value["reasons"]["reboots/0"]["text"].as_str().unwrap().contains("Kubernetes is not configured"));
    assert_eq!(rig.run(&["decide", "--from", &file, "--as-leader"]).status, 0);

    for (text, message) in [
        ("{", "is not a cketerm state: EOF"),
        ("", "is not a cketerm state"),
        ("{}", "it has no cketerm_state"),
        (r#"{"cketerm_state":9,"version":"7.0.0"}"#, "was written by cketerm 7.0.0 (form 9)"),
        (
            concat!(r#"{"cketerm_state":1,"version":""#, env!("CARGO_PKG_VERSION"), r#"","now":1}"#),
            "is not a cketerm state",
        ),
    ] {
        let output = rig.run_with(&["decide", "--from", "-"], text);
        assert_eq!((output.status, output.stdout.as_str()), (1, ""), "{text}: {output:?}");
        assert!(output.stderr.contains(message), "{text}: {}", output.stderr);
    }
    let mut odd = document.clone();
    odd["snapshot"]["store"]["of_tomorrow"] = json!(1);
    let output = rig.run_with(&["decide", "--from", "-"], &odd.to_string());
    assert!(output.status == 1 && output.stderr.contains("/snapshot/store/of_tomorrow"), "{output:?}");
    assert_eq!(rig.run(&["decide"]).status, 2);
    assert_eq!(rig.run(&["state", "-o", "table"]).status, 2);
    assert_eq!(rig.keys().await, before, "I45: `state` and `decide` must not write");
}

#[tokio::test]
async fn state_includes_kubernetes_and_decide_as_leader_starts_a_drain() {
    let Some(world) = World::start(Servers::default()) else { return };
    let rig = Rig::on(&world.etcd).await;
    rig.define();
    for n in 1..=4 {
        let (name, address) =
            (if n == 3 { "worker13".to_owned() } else { format!("10.0.0.1{n}") }, format!("10.0.0.1{n}"));
        world.ok(
            "POST",
            "/api/v1/nodes",
            Some(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})),
        );
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}], "conditions": [{"type": "Ready", "status": "True"}],
        }});
        world.ok("PATCH", &format!("/api/v1/nodes/{name}/status"), Some(&status));
    }
    rig.run_with(&["rq", "add", "-"], "10.0.0.13");
    let kubeconfig = world.kubeconfig.to_str().unwrap();
    let written = rig.run(&["--kubeconfig", kubeconfig, "state"]);
    assert_eq!((written.status, written.stderr.as_str()), (0, ""));
    let file = rig.file("state.json", &written.stdout);
    let decided = rig.run(&["decide", "--from", &file, "--as-leader", "-o", "json"]);
    let value: Value = serde_json::from_str(&decided.stdout).unwrap();
    let effect = &value["effects"][0];
    assert_eq!(
        (&effect["entry"], &effect["word"], &effect["machine"]),
        (&json!("reboots/0"), &json!("starting"), &json!("worker13")),
        "{value}"
    );
}

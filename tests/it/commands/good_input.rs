//! Commands on good input.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::Rig;

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn entries_are_added_listed_held_and_cancelled_with_user_and_reason() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let output = rig.run_with(&["rq", "add", "-", "--reason", "INC-7"], "10.0.0.12 10.0.0.13\n\t10.0.0.11\n");
    let message = "warning: 10.0.0.11 is the only control plane: the Kubernetes API is down while it is in work\n\
                   1 API server(s) included, each rebooted alone: 10.0.0.11\nadded: 0–2\n";
    assert_eq!((output.status, output.stdout.as_str()), (0, ""));
    assert!(output.stderr.starts_with(&format!("{message}batch: ")), "{output:?}");
    let listed = json_of(&rig.run(&["rq", "list"]).stdout);
    let nodes: Vec<&str> = listed.as_array().unwrap().iter().map(|e| e["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["10.0.0.12", "10.0.0.13", "10.0.0.11"]);
    let request = json_of(&rig.get("/cke/cketerm/requests/reboots/1").await.unwrap());
    assert_eq!(request["reason"], "INC-7");
    assert_ne!(request["who"]["user"], "");

    assert_eq!(rig.run(&["rq", "hold", "0", "--reason", "wait for Anna"]).status, 0);
    let order = json_of(&rig.get("/cke/cketerm/orders/reboots/0").await.unwrap());
    assert_eq!((&order["verb"], &order["reason"]), (&json!("hold"), &json!("wait for Anna")));

    // An option that a command cannot honour is refused, and nothing is done.
    let read_only = rig.run(&["--read-only", "rq", "cancel", "1"]);
    assert_eq!(read_only.status, 2, "{}", read_only.stderr);
    let listed = json_of(&rig.run(&["rq", "list"]).stdout);
    assert_eq!(listed[1]["status"], "queued");

    assert_eq!(rig.run(&["rq", "cancel", "1"]).status, 0);
    let listed = json_of(&rig.run(&["rq", "list"]).stdout);
    assert_eq!(listed[1]["status"], "cancelled");
    assert_eq!(rig.run(&["rq", "cancel-all"]).status, 0);
    let yaml = rig.run(&["rq", "list", "-o", "yaml"]).stdout;
    assert_eq!(yaml.matches("status: cancelled").count(), 3);
}

#[tokio::test]
async fn an_empty_queue_is_listed_as_an_empty_list() {
    let Some(rig) = Rig::start().await else { return };
    assert_eq!(rig.run(&["rq", "list"]).stdout, "[]\n");
    assert_eq!(rig.run(&["repair-queue", "list"]).stdout, "[]\n");
}

#[tokio::test]
async fn the_queue_is_disabled_enabled_and_queried() {
    let Some(rig) = Rig::start().await else { return };
    assert_eq!(rig.run(&["rq", "disable"]).status, 0);
    assert_eq!(rig.run(&["rq", "is-enabled"]).stdout, "false\n");
    assert_eq!(rig.get("/cke/reboots/disabled").await.as_deref(), Some("true"));
    assert_eq!(rig.run(&["reboot-queue", "enable"]).status, 0);
    assert_eq!(rig.run(&["rq", "is-enabled"]).stdout, "true\n");
}

#[tokio::test]
async fn cluster_set_accepts_the_output_of_cluster_get() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let stored = json_of(&rig.get("/cke/cluster").await.unwrap());
    let printed = rig.run(&["cluster", "get"]).stdout;
    let set = rig.run_with(&["cluster", "set", "-"], &printed);
    assert_eq!((set.status, set.stderr.as_str()), (0, ""));
    assert_eq!(json_of(&rig.get("/cke/cluster").await.unwrap()), stored);
    assert_eq!(json_of(&rig.run(&["cluster", "get", "-o", "json"]).stdout), stored);
}

#[tokio::test]
async fn unknown_fields_outside_of_nodes_reboot_and_repair_are_kept_with_a_warning() {
    let Some(rig) = Rig::start().await else { return };
    let text = format!("{}site_contact: ops\n", super::rig::DEFINITION);
    let set = rig.run(&["cluster", "set", &rig.file("c.yml", &text)]);
    assert_eq!(set.status, 0);
    assert!(set.stderr.contains("warning: site_contact"), "{}", set.stderr);
    assert_eq!(json_of(&rig.get("/cke/cluster").await.unwrap())["site_contact"], "ops");
}

#[tokio::test]
async fn cluster_check_lists_every_error_and_stores_nothing() {
    let Some(rig) = Rig::start().await else { return };
    let text = super::rig::DEFINITION.replace("10.0.0.14", "10.0.0.13").replace("name: test", "name: ''");
    let output = rig.run(&["cluster", "check", &rig.file("c.yml", &text)]);
    assert_eq!(output.status, 1);
    assert_eq!(
        output.stdout,
        "error: name must not be empty\nerror: nodes[3].address 10.0.0.13 is also nodes[2]'s address\n"
    );
    assert!(rig.keys().await.is_empty());
    let good = rig.run(&["cluster", "check", &rig.file("good.yml", super::rig::DEFINITION)]);
    assert_eq!(good.status, 0);
    for explained in ["note: no drain starts while any node is unreachable", "note: a drain backs off at once"] {
        assert!(good.stdout.contains(explained), "{good:?}");
    }
}

#[tokio::test]
async fn the_policy_is_shown_and_set_by_field() {
    let Some(rig) = Rig::start().await else { return };
    let shown = rig.run(&["policy", "show"]);
    assert!(shown.stdout.contains("settle_seconds: 60"), "{}", shown.stdout);
    assert!(shown.stderr.contains("no policy is stored yet"));
    assert_eq!(rig.run(&["policy", "set", "settle_seconds", "5"]).status, 0);
    assert_eq!(json_of(&rig.run(&["policy", "show", "-o", "json"]).stdout)["settle_seconds"], 5);
    assert_eq!(rig.get("/cke/cketerm/schema").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn the_first_policy_beside_cke_does_not_campaign() {
    let Some(rig) = Rig::start().await else { return };
    rig.put("/cke/records", "4").await;
    // no engine leads, and the first policy will select CKE
    assert_eq!(rig.run(&["policy", "set", "settle_seconds", "5"]).status, 3);
    assert!(rig.run(&["policy", "show"]).stdout.contains("settle_seconds: 60\n"));
    assert_eq!(rig.run(&["policy", "set", "settle_seconds", "5", "--for-handover"]).status, 0);
    assert!(rig.run(&["policy", "show"]).stdout.contains("engine: cke\n"));
}

#[tokio::test]
async fn constraints_keep_fields_that_ckecli_does_not_know() {
    let Some(rig) = Rig::start().await else { return };
    rig.put("/cke/constraints", r#"{"control-plane-count":3,"minimum-workers":7,"x":1}"#).await;
    assert_eq!(rig.run(&["constraints", "set", "control-plane-count", "5"]).status, 0);
    let shown = json_of(&rig.run(&["constraints", "show"]).stdout);
    assert_eq!(
        (&shown["control-plane-count"], &shown["minimum-workers"], &shown["x"]),
        (&json!(5), &json!(7), &json!(1))
    );
}

#[tokio::test]
async fn the_leader_and_its_status_are_printed() {
    let Some(rig) = Rig::start().await else { return };
    assert_eq!(rig.run(&["leader"]).status, 1);
    rig.put("/cke/leader//7a", "boot-0").await;
    rig.put("/cke/leader//7b", "boot-1").await;
    rig.put("/cke/status", r#"{"phase":"completed","timestamp":"2026-06-01T00:00:00.5Z"}"#).await;
    assert_eq!(rig.run(&["leader"]).stdout, "boot-0\n");
    assert_eq!(json_of(&rig.run(&["status"]).stdout)["phase"], "completed");
}

#[tokio::test]
async fn why_prints_the_reason_that_the_leader_published() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.run_with(&["rq", "add", "-"], "10.0.0.12");
    let alone = rig.run(&["rq", "why", "0"]);
    assert!(alone.stdout.contains("reboots/0 (10.0.0.12, queued): no engine leads"), "{alone:?}");
    rig.put("/cke/leader//7a", "boot-0").await;
    let cke = rig.run(&["rq", "why", "0"]);
    assert!(cke.stdout.contains("CKE on boot-0 leads"), "{cke:?}");
    let engine = json!({"host": "boot-0", "pid": 1, "version": "0", "mode": "daemon"});
    rig.put("/cke/cketerm/engines/7a", &engine.to_string()).await;
    let blocked = json!({
        "phase": "waiting for pods", "since": "2026-06-01T00:00:00Z", "pods_at_start": 9, "pods_gone": 7,
        "reason": {"reason": "BlockedByPDB", "pod": "default/web-1", "pdb": "default/web", "healthy": 2, "needed": 2},
        "blockers": [{"pod": "default/web-1", "why": {"kind": "budget", "budget": "default/web", "healthy": 2, "needed": 2}}],
    });
    rig.put("/cke/cketerm/progress/reboots/0", &blocked.to_string()).await;
    let why = rig.run(&["rq", "why", "0"]);
    assert!(why.stdout.contains("pod default/web-1 blocked by pdb default/web (healthy 2, needs 2)"), "{why:?}");
    assert_eq!(json_of(&rig.run(&["rq", "why", "0", "-o", "json"]).stdout)["reason"]["reason"], "BlockedByPDB");
}

fn ending(index: u64, outcome: &str) -> String {
    json!({
        "entry": format!("reboots/{index}"), "address": "10.0.0.12", "outcome": outcome,
        "end": outcome.split([' ', ':']).next(),
        "at": "2026-06-01T00:00:00Z", "last": {},
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_returns_when_the_entries_end_and_reports_how() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.run_with(&["rq", "add", "-"], "10.0.0.12 10.0.0.13");
    let timed_out = rig.run(&["rq", "wait", "--timeout-seconds", "1"]);
    assert_eq!(timed_out.status, 1);
    assert!(timed_out.stderr.contains("not ended after 1 s"), "{timed_out:?}");

    let end = |index: u64, outcome: &'static str| {
        let client = rig.client.clone();
        let (history, entry) = (
            rig.key(&format!("/cke/cketerm/history/reboots-{index:016x}")),
            rig.key(&format!("/cke/reboots/data/{index:016x}")),
        );
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let mut kv = client.kv_client();
            kv.put(history, ending(index, outcome), None).await.unwrap();
            kv.delete(entry, None).await.unwrap();
        })
    };
    let ended = end(0, "booted");
    let output = rig.run(&["rq", "wait", "0"]);
    ended.await.unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    assert!(output.stdout.contains(" 0 10.0.0.12 queued: no engine leads"), "{output:?}");
    assert!(output.stdout.ends_with("0 10.0.0.12 ended: booted\n"), "{output:?}");

    let ended = end(1, "cancelled");
    let output = rig.run(&["rq", "wait"]);
    ended.await.unwrap();
    assert_eq!(output.status, 1, "{output:?}");
    assert!(output.stderr.contains("1 of 1 entries did not boot: 1"), "{output:?}");

    let why = rig.run(&["rq", "why", "1"]);
    assert!(why.stdout.contains("reboots/1 (10.0.0.12) ended at 2026-06-01T00:00:00Z: cancelled"), "{why:?}");
}

#[tokio::test]
async fn reboots_are_queued_by_attributes_and_a_dry_run_writes_nothing() {
    let Some(rig) = Rig::start().await else { return };
    let labelled = super::rig::DEFINITION
        .replace(
            "10.0.0.12, user: root",
            "10.0.0.12, user: root, labels: {cke.cybozu.com/role: cs, cke.cybozu.com/rack: '1'}",
        )
        .replace(
            "10.0.0.14, user: root",
            "10.0.0.14, user: root, labels: {cke.cybozu.com/role: cs, cke.cybozu.com/rack: '2'}",
        );
    assert_eq!(rig.run(&["cluster", "set", &rig.file("l.yml", &labelled)]).status, 0);
    let before = rig.keys().await;

    let dry = rig.run(&["rq", "add", "--role", "cs", "--dry-run"]);
    assert_eq!((dry.status, dry.stdout.as_str()), (0, "10.0.0.12\n10.0.0.14\n"), "{dry:?}");
    assert!(dry.stderr.contains("dry run: 2 nodes would be queued, nothing was written"), "{dry:?}");
    let json = rig.run(&["rq", "add", "--selector", "cke.cybozu.com/rack in (2,3)", "--dry-run", "-o", "json"]);
    assert_eq!(json_of(&json.stdout), json!(["10.0.0.14"]));
    for (args, status, message) in [
        (&["rq", "add"][..], 2, "--role, --rack, --selector or --needed"),
        (&["rq", "add", "--role", "ss"], 1, "roles: cs; racks: 1, 2"),
        (&["rq", "add", "--rack", "x"], 2, "invalid value 'x' for '--rack <NUMBER>'"),
        (&["rq", "add", "--selector", "a in (b"], 2, "missing )"),
        (&["rq", "add", "-", "--role", "cs"], 1, "10.0.0.99"),
    ] {
        let output = rig.run_with(args, "10.0.0.99");
        assert_eq!(output.status, status, "{args:?}: {output:?}");
        assert!(output.stderr.contains(message), "{args:?}: {}", output.stderr);
    }
    assert_eq!(rig.keys().await, before, "I45: a dry run or a refused command must not write");

    // a file and attributes: only machines that match both
    let output = rig.run_with(&["rq", "add", "-", "--rack", "1", "--reason", "INC-9"], "10.0.0.12 10.0.0.14");
    assert!(output.status == 0 && output.stderr.starts_with("added: 0\nbatch: "), "{output:?}");
    assert_eq!(json_of(&rig.run(&["rq", "list"]).stdout)[0]["node"], "10.0.0.12");
    let audit = json_of(&rig.run(&["audit", "-n", "1", "-o", "json"]).stdout);
    assert_eq!((&audit["what"], &audit["reason"]), (&json!("reboot add"), &json!("INC-9")));
}

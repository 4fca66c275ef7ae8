//! `repair-queue`: entries are added, marked as deleted, given orders and waited for.

use serde_json::{Value, json};

use super::rig::{DEFINITION, Rig};

const REPAIR: &str = "\
repair:
  repair_procedures:
  - machine_types: [QEMU, iDRAC-9]
    repair_operations:
    - operation: unreachable
      health_check_command: [/bin/echo, \"true\"]
      repair_steps:
      - {repair_command: [/bin/true], watch_seconds: 60}
      - {repair_command: [/bin/false], need_drain: true, watch_seconds: 60}
    - operation: unhealthy
      health_check_command: [/bin/echo, \"true\"]
      repair_steps: [{repair_command: [/bin/true]}]
";

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

async fn rig() -> Option<Rig> {
    let rig = Rig::start().await?;
    let set = rig.run(&["cluster", "set", &rig.file("repair.yml", &format!("{DEFINITION}{REPAIR}"))]);
    assert_eq!((set.status, set.stderr.as_str()), (0, ""), "{set:?}");
    Some(rig)
}

const ADD: [&str; 5] = ["repair-queue", "add", "unreachable", "QEMU", "10.0.0.12"];

#[tokio::test]
async fn a_repair_records_user_and_reason_and_may_be_outside_the_cluster() {
    let Some(rig) = rig().await else { return };
    let output = rig.run(&[&ADD[..], &["--reason", "INC-9"]].concat());
    assert_eq!((output.status, output.stdout.as_str()), (0, ""));
    assert!(output.stderr.starts_with("added: 0\nbatch: "), "{output:?}");
    let request = json_of(&rig.get("/cke/cketerm/requests/repairs/0").await.unwrap());
    assert_eq!(request["reason"], "INC-9");
    let output = rig.run(&["repair-queue", "add", "unhealthy", "iDRAC-9", "10.9.9.9", "SN7"]);
    assert_eq!(output.status, 0, "{output:?}");
    assert!(output.stderr.contains("10.9.9.9 is not in the cluster definition; it is not drained"), "{output:?}");
    let again = rig.run(&ADD);
    assert!(again.stderr.contains("10.0.0.12 already has repair entry 0"), "{again:?}");
    let listed = json_of(&rig.run(&["repair-queue", "list"]).stdout);
    let rows: Vec<(&Value, &Value)> =
        listed.as_array().unwrap().iter().map(|e| (&e["address"], &e["serial"])).collect();
    let (twelve, nine) = (json!("10.0.0.12"), json!("10.9.9.9"));
    assert_eq!(rows, [(&twelve, &Value::Null), (&nine, &json!("SN7")), (&twelve, &Value::Null)]);
    rig.put("/cke/repairs/data/0000000000000001", "{oops").await;
    let table = rig.run(&["repair-queue", "list", "-o", "table"]).stdout;
    let column = table.lines().next().and_then(|titles| titles.find("Reason")).expect("the table has the reasons");
    let reasons: Vec<&str> = table.lines().skip(1).map(|row| row.get(column..).unwrap_or_default()).collect();
    assert!(reasons[0].starts_with("INC-9") && reasons[1].contains("it begins with {oops"), "{table}");
}

/// REP-7: an operation that the definition does not have is refused with the known types or operations.
#[tokio::test]
async fn an_undefined_repair_operation_is_refused_with_the_defined_ones() {
    let Some(rig) = rig().await else { return };
    for (words, status, text) in [
        (["unreachable", "qemu", "10.0.0.12"], 3, "known types: QEMU, iDRAC-9"),
        (["reachable", "QEMU", "10.0.0.12"], 3, "known operations: unreachable, unhealthy"),
        (["unreachable", "QEMU", "worker31"], 2, "\"worker31\" is not an IP address"),
    ] {
        let output = rig.run(&[&["repair-queue", "add"][..], &words].concat());
        assert_eq!(output.status, status, "{output:?}");
        assert!(output.stderr.contains(text), "{output:?}");
    }
    assert_eq!(rig.run(&["repair-queue", "list"]).stdout, "[]\n");
    assert_eq!(rig.get("/cke/repairs/write-index").await, None);
}

fn entry(index: u64, status: &str, step_status: &str) -> String {
    json!({
        "index": index.to_string(), "address": format!("10.0.0.1{index}"), "nodename": "", "machine_type": "QEMU",
        "operation": "unreachable", "status": status, "step": 0, "step_status": step_status, "deleted": false,
        "last_transition_time": "2026-06-01T01:02:03Z", "drain_backoff_expire": "0001-01-01T00:00:00Z", "site": 1,
    })
    .to_string()
}

async fn put(rig: &Rig, index: u64, status: &str, step_status: &str) {
    rig.put(&format!("/cke/repairs/data/{index:016x}"), &entry(index, status, step_status)).await;
}

#[tokio::test]
async fn deletion_marks_the_entries_and_prints_their_indexes() {
    let Some(rig) = rig().await else { return };
    for (index, status) in ["succeeded", "queued", "failed", "processing"].iter().enumerate() {
        put(&rig, index as u64, status, "waiting").await;
    }
    assert_eq!(rig.run(&["repair-queue", "delete-finished"]).stdout, "0\n2\n");
    assert_eq!(rig.run(&["repair-queue", "delete-finished"]).stdout, "");
    let stored = json_of(&rig.get("/cke/repairs/data/0000000000000000").await.unwrap());
    assert_eq!(
        (&stored["deleted"], &stored["site"]),
        (&json!(true), &json!(1)),
        "other fields of the entry must not change"
    );
    assert_eq!(rig.run(&["repair-queue", "delete", "1"]).status, 0);
    assert_eq!(rig.run(&["repair-queue", "delete-unfinished"]).stdout, "3\n", "entry 1 was already marked as deleted");
    let gone = rig.run(&["repair-queue", "delete", "99"]);
    assert_eq!((gone.status, gone.stderr.contains("repairs/99 does not exist")), (1, true), "{gone:?}");
}

#[tokio::test]
async fn repair_orders_are_accepted_or_refused_depending_on_the_entrys_state() {
    let Some(rig) = rig().await else { return };
    put(&rig, 0, "processing", "watching").await;
    put(&rig, 1, "queued", "waiting").await;
    put(&rig, 2, "failed", "watching").await;
    let order = |verb: &str, index: &str| rig.run(&["repair-queue", verb, index, "--reason", "seen by eye"]);
    assert_eq!(rig.run(&["repair-queue", "done", "0"]).status, 2, "`done` requires a reason");
    for (verb, index) in [("done", "0"), ("retry", "0"), ("hold", "1"), ("unhold", "1"), ("force", "1")] {
        let output = order(verb, index);
        assert_eq!(output.status, 0, "{verb}: {output:?}");
    }
    let given = json_of(&rig.get("/cke/cketerm/orders/repairs/1").await.unwrap());
    assert_eq!((&given["verb"], &given["reason"]), (&json!("force"), &json!("seen by eye")));
    for (verb, index, text) in [
        ("hold", "0", "is processing, step 1 watching"),
        ("retry", "1", "is queued"),
        ("done", "2", "a failed repair is final: delete it and add it again"),
        ("retry", "9", "entry repairs/9 does not exist"),
    ] {
        let output = order(verb, index);
        assert_ne!(output.status, 0, "{verb} {index}");
        assert!(output.stderr.contains(text), "{output:?}");
    }
}

/// REP-36: whatever the state of the entry, only an operator knows what its success command did.
#[tokio::test]
async fn retry_and_done_are_accepted_after_a_success_command_of_unknown_outcome() {
    let Some(rig) = rig().await else { return };
    let attempt = |index: u64, success: bool, outcome: &Value| {
        json!({
            "id": format!("repairs-{index}-1"), "entry": format!("repairs/{index}"), "number": 1, "step": 0,
            "success": success, "address": format!("10.0.0.1{index}"), "lease": 0x7a, "host": "boot-0",
            "argv": ["/bin/true"], "bound_seconds": 60, "start": "2026-06-01T00:00:00Z", "outcome": outcome,
        })
        .to_string()
    };
    let unknown = json!({"end": {"unknown": "killed"}, "at": "2026-06-01T00:00:05Z", "stdout": "", "stderr": ""});
    let succeeded = json!({"end": {"exit": 0}, "at": "2026-06-01T00:00:05Z", "stdout": "", "stderr": ""});
    put(&rig, 0, "queued", "waiting").await;
    put(&rig, 1, "processing", "draining").await;
    put(&rig, 2, "processing", "draining").await;
    put(&rig, 3, "succeeded", "waiting").await;
    for (index, success, outcome) in
        [(0, true, &Value::Null), (1, true, &unknown), (2, false, &succeeded), (3, true, &unknown)]
    {
        let key = format!("/cke/cketerm/attempts/repairs/{index}/1");
        rig.put(&key, &attempt(index, success, outcome)).await;
    }
    let order = |verb: &str, index: &str| rig.run(&["repair-queue", verb, index, "--reason", "seen by eye"]).status;
    for verb in ["retry", "done"] {
        let statuses = ["0", "1", "2", "3"].map(|index| order(verb, index));
        assert_eq!(statuses, [0, 0, 3, 3], "{verb}");
    }
}

#[tokio::test]
async fn wait_prints_ckeclis_lines_and_checks_once_with_timeout_0() {
    let Some(rig) = rig().await else { return };
    assert_eq!(rig.run(&["repair-queue", "wait"]).stdout, "repair queue is empty\n");
    put(&rig, 0, "succeeded", "watching").await;
    let output = rig.run(&["repair-queue", "wait", "--timeout-seconds", "0"]);
    assert_eq!(
        (output.status, output.stdout.as_str()),
        (1, "repair queue entries: 1\n"),
        "finished entries keep the queue non-empty"
    );
    assert!(output.stderr.contains("timed out waiting for repair queue to become empty after 0s"), "{output:?}");
}

#[tokio::test]
async fn why_names_machine_operation_and_step() {
    let Some(rig) = rig().await else { return };
    put(&rig, 2, "processing", "watching").await;
    let output = rig.run(&["repair-queue", "why", "2"]);
    let named = "repairs/2 (10.0.0.12 QEMU unreachable, processing, step 1 watching): ";
    assert!(output.status == 0 && output.stdout.starts_with(named), "{output:?}");
    assert_eq!(rig.run(&["repair-queue", "why", "3"]).status, 1);
}

#[tokio::test]
async fn a_plan_shows_the_steps_and_writes_nothing() {
    let Some(rig) = rig().await else { return };
    put(&rig, 2, "processing", "watching").await;
    let before = rig.keys().await;
    let output = rig.run(&["repair-queue", "plan", "unreachable", "QEMU", "10.0.0.12"]);
    assert_eq!(output.status, 0, "{output:?}");
    assert_eq!(
        output.stdout,
        "unreachable of QEMU 10.0.0.12: 10.0.0.12\n  \
         step 1: /bin/true 10.0.0.12, then check its health for 60s\n  \
         step 2: drain, then /bin/false 10.0.0.12, then check its health for 60s\n  \
         healthy once `/bin/echo true 10.0.0.12` prints true\n\
         ahead of it: repairs/2 (processing, step 1 watching)\n"
    );
    assert!(
        output.stderr.contains("no preview of the drain"),
        "without Kubernetes the drain has no preview: {output:?}"
    );
    let outside = rig.run(&["repair-queue", "plan", "unhealthy", "QEMU", "10.9.9.9"]);
    assert!(outside.stdout.contains("10.9.9.9: not a member of the cluster: nothing is drained"), "{outside:?}");
    let unknown = rig.run(&["repair-queue", "plan", "unhealthy", "R640", "10.9.9.9"]);
    assert_eq!((unknown.status, unknown.stderr.contains("known types: QEMU, iDRAC-9")), (3, true), "{unknown:?}");
    assert_eq!(rig.keys().await, before);
}

/// A finished repair stays until a user deletes it: `why` reports how it ended, never that something is next.
#[tokio::test]
async fn why_of_a_finished_repair_reports_how_it_ended() {
    let Some(rig) = rig().await else { return };
    put(&rig, 1, "failed", "waiting").await;
    put(&rig, 2, "succeeded", "waiting").await;
    let ending = json!({
        "entry": "repairs/1", "address": "10.0.0.11", "end": "failed", "outcome": "failed: the command of step 1: exit 3",
        "at": "2026-06-01T01:02:03Z", "last": {"index": "1"},
    });
    rig.put("/cke/cketerm/history/repairs-0000000000000001", &ending.to_string()).await;
    let text = rig.run(&["repair-queue", "why", "1"]).stdout;
    let expected = "ended at 2026-06-01T01:02:03Z: failed: the command of step 1: exit 3";
    assert!(text.contains("10.0.0.11 QEMU unreachable") && text.contains(expected), "{text}");
    assert!(!text.contains("next"), "{text}");
    let text = json_of(&rig.run(&["repair-queue", "why", "1", "-o", "json"]).stdout);
    assert_eq!(text["outcome"], "failed: the command of step 1: exit 3", "{text}");
    // ended by CKE, which writes no history record
    let text = rig.run(&["repair-queue", "why", "2"]).stdout;
    assert!(text.contains("ended at 2026-06-01T01:02:03Z: succeeded; no record says why"), "{text}");
    let text = json_of(&rig.run(&["repair-queue", "why", "2", "-o", "json"]).stdout);
    assert_eq!((&text["entry"], &text["at"]), (&json!("repairs/2"), &json!("2026-06-01T01:02:03Z")), "{text}");
    assert_eq!(text["last"]["status"], "succeeded", "{text}");
}

#[tokio::test]
async fn each_repair_is_a_batch_that_is_paused_and_deleted() {
    let Some(rig) = rig().await else { return };
    let added = rig.run(&ADD);
    let listed = json_of(&rig.run(&["repair-queue", "batches", "-o", "json"]).stdout);
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    assert!(added.stderr.ends_with(&format!("batch: {id}\n")), "{added:?}");
    assert_eq!(rig.run(&["rq", "batches", "-o", "json"]).stdout, "[]\n");
    assert_eq!(rig.run(&["repair-queue", "pause", &id]).status, 0);
    let listed = json_of(&rig.run(&["repair-queue", "batches", "-o", "json"]).stdout);
    assert_eq!((&listed[0]["state"], &listed[0]["queued"]), (&json!("paused"), &json!(1)));
    assert_eq!(rig.run(&["repair-queue", "delete", "--batch", &id]).status, 0);
    assert_eq!(json_of(&rig.run(&["repair-queue", "list"]).stdout)[0]["deleted"], true);
}

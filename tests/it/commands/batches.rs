//! Batches: list, pause, resume and cancel what one `rq add` queued.

use serde_json::{Value, json};

use super::rig::{Rig, RunOutput};

fn assert_message(output: &RunOutput, status: i32, words: &[&str]) {
    assert_eq!(output.status, status, "{output:?}");
    for word in words {
        assert!(output.stderr.contains(word), "{word:?} is missing: {}", output.stderr);
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Queues reboots of these addresses and returns the id of their batch.
fn add(rig: &Rig, addresses: &str, reason: &str) -> String {
    let added = rig.run_with(&["rq", "add", "-", "--reason", reason], addresses);
    assert_eq!(added.status, 0, "{added:?}");
    let line = added.stderr.lines().find_map(|line| line.strip_prefix("batch: "));
    line.unwrap_or_else(|| panic!("{added:?}")).to_owned()
}

#[tokio::test]
async fn a_batch_is_listed_paused_resumed_and_cancelled() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let first = add(&rig, "10.0.0.12 10.0.0.13", "kernel 6.12");
    let second = add(&rig, "10.0.0.14", "CHG-7");
    let listed = json_of(&rig.run(&["rq", "batches", "-o", "json"]).stdout);
    let of = |field: &str| [listed[0][field].clone(), listed[1][field].clone()];
    assert_eq!(of("id"), [json!(second), json!(first)], "newest first");
    assert_eq!((of("reason"), of("queued")), ([json!("CHG-7"), json!("kernel 6.12")], [json!(1), json!(2)]));
    assert_eq!((of("state"), of("asked")), ([json!("running"), json!("running")], [json!(1), json!(2)]));
    assert_ne!(listed[0]["who"]["user"], "");
    assert!(rig.run(&["rq", "list", "-o", "table"]).stdout.contains(&first));
    assert_eq!(json_of(&rig.run(&["rq", "list"]).stdout)[0].get("batch"), None, "the JSON is that of ckecli");
    let stored = rig.get("/cke/reboots/data/0000000000000000").await.unwrap();
    assert!(!stored.contains("batch"), "{stored}");

    let paused = rig.run(&["rq", "pause", &first, "--reason", "budget"]);
    assert_eq!(paused.status, 0, "{paused:?}");
    let table = rig.run(&["rq", "batches"]).stdout;
    assert!(table.contains("paused") && table.contains("kernel 6.12; paused by"), "{table}");
    let record = json_of(&rig.get(&format!("/cke/cketerm/batches/{first}")).await.unwrap());
    assert_eq!(record["paused"]["reason"], "budget");
    assert_eq!(rig.run(&["rq", "resume", &first]).status, 0);
    assert!(!rig.run(&["rq", "batches"]).stdout.contains("paused"));
    let audit = rig.run(&["audit", "-n", "2"]).stdout;
    assert!(audit.contains("batch pause") && audit.contains("batch resume"), "{audit}");

    let cancelled = rig.run(&["rq", "cancel", "--batch", &first]);
    assert_eq!((cancelled.status, cancelled.stderr.as_str()), (0, "cancelled: 0, 1\n"));
    let listed = json_of(&rig.run(&["rq", "list"]).stdout);
    let states: Vec<&str> = listed.as_array().unwrap().iter().map(|e| e["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["cancelled", "cancelled", "queued"]);
    let again = rig.run(&["rq", "cancel", "--batch", &first]);
    assert_message(&again, 0, &["nothing", "has no open entry"]);
}

/// The cancel of a batch is several writes. The error of a later one said nothing about the first, the mark of the batch.
#[tokio::test]
async fn a_cancel_that_stops_after_the_mark_says_that_the_batch_is_marked() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let id = add(&rig, "10.0.0.12", "INC-7");
    let key = "/cke/reboots/data/0000000000000000";
    let entry = rig.get(key).await.unwrap();
    // etcd takes an entry of this size, but no transaction with it and an audit record
    let ticket = "x".repeat((3 << 19) - 600);
    rig.put(key, &entry.replacen('{', &format!("{{\"ticket\":\"{ticket}\","), 1)).await;
    let failed = rig.run(&["rq", "cancel", "--batch", &id]);
    assert_message(&failed, 1, &[&format!("batch {id} is marked as cancelled"), "run the command again"]);
    let record = json_of(&rig.get(&format!("/cke/cketerm/batches/{id}")).await.unwrap());
    assert!(record["cancelled"].is_object(), "{record}");
    rig.put(key, &entry).await;
    let again = rig.run(&["rq", "cancel", "--batch", &id]);
    assert_eq!((again.status, again.stderr.as_str()), (0, "cancelled: 0\n"));
}

#[tokio::test]
async fn an_unknown_batch_is_an_error_that_lists_the_existing_ones() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    assert_message(&rig.run(&["rq", "pause", "00000000"]), 1, &["no batch 00000000", "`cketerm rq add` makes one"]);
    let id = add(&rig, "10.0.0.12", "INC-7");
    let before = rig.keys().await;
    for args in [&["pause", "00000000"][..], &["resume", "00000000"], &["cancel", "--batch", "00000000"]] {
        let ran = rig.run(&[&["rq"], args].concat());
        assert_message(&ran, 1, &["no batch 00000000", &format!("{id} (running)"), "`cketerm rq batches`"]);
    }
    // a batch of the other queue is none of this one
    assert_message(&rig.run(&["repair-queue", "pause", &id]), 1, &["no batch"]);
    for args in
        [&["rq", "pause", "batch-1"][..], &["rq", "pause"], &["rq", "cancel"], &["rq", "cancel", "1", "--batch", &id]]
    {
        assert_eq!(rig.run(args).status, 2, "{args:?}");
    }
    assert_eq!(rig.keys().await, before, "nothing was written");
}

#[tokio::test]
async fn a_pause_is_refused_while_cke_leads_and_a_resume_is_not() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let id = add(&rig, "10.0.0.12", "INC-7");
    assert_eq!(rig.run(&["rq", "pause", &id]).status, 0);
    rig.put("/cke/leader//7a", "boot-0").await;
    assert_eq!(rig.run(&["rq", "resume", &id]).status, 0);
    let before = rig.keys().await;
    let refused = rig.run(&["rq", "pause", &id]);
    assert_message(
        &refused,
        3,
        &["CKE on boot-0 leads", "CKE does not know `pause`", "`cketerm rq cancel --batch BATCH`"],
    );
    assert_eq!(rig.keys().await, before);
}

/// In a rolling upgrade an engine of version 0.1 may still lead. It would start the entries of a paused batch.
#[tokio::test]
async fn a_pause_is_refused_while_an_older_engine_leads() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let id = add(&rig, "10.0.0.12", "INC-7");
    let engine = |version: &str| json!({"host": "boot-1", "pid": 1, "version": version, "mode": "daemon"}).to_string();
    rig.put("/cke/cketerm/engines/7a", &engine("0.1.0")).await;
    rig.put("/cke/leader//7a", "boot-1").await;
    let before = rig.keys().await;
    let refused = rig.run(&["rq", "pause", &id]);
    assert_message(&refused, 3, &["cketerm on boot-1 leads", "0.1.0", "`pause`", "Update cketerm there first"]);
    assert_eq!(rig.keys().await, before, "nothing was written");
    rig.put("/cke/cketerm/engines/7a", &engine("0.2.0")).await;
    assert_eq!(rig.run(&["rq", "pause", &id]).status, 0);
}

#[tokio::test]
async fn a_batch_without_an_open_entry_cannot_be_paused() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let id = add(&rig, "10.0.0.12", "INC-7");
    assert_eq!(rig.run(&["rq", "cancel", "--batch", &id, "--reason", "wrong rack"]).status, 0);
    let record = json_of(&rig.get(&format!("/cke/cketerm/batches/{id}")).await.unwrap());
    assert_eq!(record["cancelled"]["reason"], "wrong rack");
    assert!(rig.run(&["rq", "batches"]).stdout.contains("cancelled by"));
    let before = rig.keys().await;
    assert_message(&rig.run(&["rq", "pause", &id]), 3, &[&format!("batch {id} is done"), "`cketerm rq batches`"]);
    assert_eq!(rig.keys().await, before, "nothing was written");
}

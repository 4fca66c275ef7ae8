//! `history` and `audit`: past actions, newest first, and new ones as they come.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};

use super::rig::Rig;
use crate::world::program;

fn record(id: u64, status: &str) -> String {
    json!({
        "id": id.to_string(), "status": status, "operation": "reboot-drain-start",
        "command": {"name": "rebootDrainStartCommand", "target": "10.0.0.12"}, "targets": ["10.0.0.12"],
        "info": "", "error": "", "start-at": "2026-06-01T00:00:01.5Z", "end-at": "0001-01-01T00:00:00Z",
    })
    .to_string()
}

fn ids(stdout: &str) -> Vec<String> {
    let all = serde_json::Deserializer::from_str(stdout).into_iter::<Value>();
    all.map(|v| v.unwrap()["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn history_matches_the_recorded_ckecli_output_byte_for_byte() {
    let Some(rig) = Rig::start().await else { return };
    let cases = include_str!("../../fixtures/ckecli.jsonl").lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let case = cases.filter(|c| c["name"] == "history").collect::<Vec<_>>().pop().unwrap();
    for (key, value) in case["before"].as_object().unwrap() {
        rig.put(key, value.as_str().unwrap()).await;
    }
    let before = rig.keys().await;
    let ran = rig.run(&["history"]);
    assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (0, case["stdout"].as_str().unwrap(), ""));
    assert_eq!(rig.keys().await, before, "I45: a read command must not write");
    let table = rig.run(&["history", "-n", "1", "-o", "table"]).stdout;
    assert_eq!(
        table,
        "Id Status  Operation          Targets   Start                  End Error\n\
         3  running reboot-drain-start 10.0.0.12 2026-06-01T00:00:03.5Z      \n"
    );
}

#[tokio::test]
async fn history_reads_a_thousand_records_in_pages_newest_first() {
    let Some(rig) = Rig::start().await else { return };
    for id in 1..=1000_u64 {
        rig.put(&format!("/cke/records/{id:016x}"), &record(id, "completed")).await;
    }
    let all = ids(&rig.run(&["history"]).stdout);
    assert_eq!((all.len(), all[0].as_str(), all[999].as_str()), (1000, "1000", "1"));
    assert_eq!(ids(&rig.run(&["history", "-n", "0"]).stdout).len(), 1000);
    let some = ids(&rig.run(&["history", "-n", "501"]).stdout);
    assert_eq!((some.len(), some[500].as_str()), (501, "500"));
}

#[tokio::test]
async fn an_unreadable_history_record_is_reported_and_hides_no_other() {
    let Some(rig) = Rig::start().await else { return };
    rig.put("/cke/records/0000000000000001", &record(1, "completed")).await;
    rig.put("/cke/records/0000000000000002", "{").await;
    let ran = rig.run(&["history"]);
    assert_eq!((ran.status, ids(&ran.stdout)), (5, vec!["1".to_owned()]));
    assert!(ran.stderr.contains("/cke/records/0000000000000002: "), "{}", ran.stderr);
}

#[tokio::test]
async fn lists_with_an_unreadable_value_print_the_others_and_exit_with_5() {
    let Some(rig) = Rig::start().await else { return };
    let ended = ending(3, "10.0.0.3", "booted", "2026-06-01T00:01:00Z");
    rig.put("/cke/cketerm/history/reboots-0000000000000003", &ended).await;
    rig.put("/cke/cketerm/history/reboots-0000000000000004", "{").await;
    let ran = rig.run(&["history", "--ended"]);
    assert_eq!(ran.status, 5, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("reboots/3 10.0.0.3: "), "{}", ran.stdout);
    assert!(ran.stderr.contains("/cke/cketerm/history/reboots-0000000000000004: "), "{}", ran.stderr);

    let entry = json!({"index": "3", "node": "10.0.0.3", "status": "in-maintenance", "until": "2126-11-21T10:00:00Z"});
    rig.put("/cke/cketerm/maintenance/data/0000000000000003", &entry.to_string()).await;
    rig.put("/cke/cketerm/maintenance/data/0000000000000004", "{").await;
    let ran = rig.run(&["maintenance", "list"]);
    assert_eq!(ran.status, 5, "{}", ran.stderr);
    assert!(ran.stdout.contains("10.0.0.3"), "{}", ran.stdout);
    assert!(ran.stderr.contains("maintenance/4 cannot be read: "), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_follow_prints_the_last_twenty_then_new_records_oldest_first() {
    let Some(rig) = Rig::start().await else { return };
    for id in 1..=25_u64 {
        rig.put(&format!("/cke/records/{id:016x}"), &record(id, "completed")).await;
    }
    let config = rig.file("f.yml", &format!("endpoints: [\"{}\"]\nprefix: {}\n", rig.url, rig.key("/cke/")));
    let mut child = program::command()
        .args(["--config", &config, "history", "-f", "-o", "table"])
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap().split_whitespace().next().unwrap().to_owned();
    assert_eq!(next(), "Id");
    let first: Vec<String> = (0..20).map(|_| next()).collect();
    assert_eq!((first[0].as_str(), first[19].as_str()), ("6", "25"));
    rig.put(&format!("/cke/records/{:016x}", 26), &record(26, "running")).await;
    assert_eq!(next(), "26");
    rig.put(&format!("/cke/records/{:016x}", 26), &record(26, "completed")).await;
    assert_eq!(next(), "26", "a changed record is printed again");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn ending(index: u64, address: &str, outcome: &str, at: &str) -> String {
    json!({
        "entry": format!("reboots/{index}"), "address": address, "outcome": outcome, "at": at, "last": {},
        "end": outcome.split([' ', ':']).next(),
        "request": {"who": {"user": "anna", "host": "h"}, "at": "2026-06-01T00:00:00Z", "reason": "INC-7"},
        "attempts": [{
            "id": "a", "entry": format!("reboots/{index}"), "number": 1, "address": address, "lease": 7,
            "host": "boot-0", "argv": ["ipmi", address], "bound_seconds": 60, "start": "2026-06-01T00:00:20Z",
            "outcome": {"end": {"exit": 1}, "at": "2026-06-01T00:00:21Z", "stderr": "no route\n"},
        }],
    })
    .to_string()
}

#[tokio::test]
async fn history_reads_as_many_ended_entries_as_it_prints() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let key = |index: u64| format!("/cke/cketerm/history/reboots-{index:016x}");
    rig.put(&key(900), "{").await;
    let begin: jiff::Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    let at = |index: u64| (begin + jiff::SignedDuration::from_hours(index.cast_signed())).to_string();
    for index in 1..=230 {
        let address = if index == 5 { "10.0.0.13" } else { "10.0.0.12" };
        rig.put(&key(index), &ending(index, address, "booted", &at(index))).await;
    }
    let run = |args: &[&str]| {
        let ran = rig.run(&[&["history"], args, &["-o", "json"]].concat());
        let all = serde_json::Deserializer::from_str(&ran.stdout).into_iter::<Value>();
        let entries: Vec<String> = all.map(|v| v.unwrap()["entry"].as_str().unwrap().to_owned()).collect();
        (ran.status, entries, ran.stderr)
    };
    let newest_first = |oldest: u64| (oldest..=230).rev().map(|i| format!("reboots/{i}")).collect::<Vec<_>>();
    // what is older is not read, so an unreadable record there is not reported
    assert_eq!(run(&["--ended", "-n", "150"]), (0, newest_first(81), String::new()));
    assert_eq!(run(&["--since", &at(150)]), (0, newest_first(150), String::new()));
    let (status, entries, stderr) = run(&["--ended"]);
    assert_eq!((status, entries), (5, newest_first(1)));
    assert!(stderr.contains(&key(900)) && stderr.contains("fix or delete them with etcdctl"), "{stderr}");
    // a machine whose only entry is old, and one that the definition does not know
    let (status, entries, _) = run(&["--node", "10.0.0.13"]);
    assert_eq!((status, entries), (5, vec!["reboots/5".to_owned()]));
    let (status, entries, stderr) = run(&["--node", "10.0.0.99", "--since", &at(229)]);
    assert_eq!((status, entries), (1, Vec::new()), "{stderr}");
}

#[tokio::test]
async fn history_lists_ended_entries_with_their_timelines() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    for (index, address, outcome, at) in [
        (1, "10.0.0.12", "booted", "2026-06-01T00:01:00Z"),
        (2, "10.0.0.13", "cancelled", "2026-06-03T00:00:00Z"),
        (9, "10.0.0.12", "done by anna@h", "2026-06-02T00:00:00Z"),
    ] {
        rig.put(&format!("/cke/cketerm/history/reboots-{index:016x}"), &ending(index, address, outcome, at)).await;
    }
    let drain = json!({
        "at": "2026-06-01T00:00:05Z", "who": {"user": "engine", "host": "boot-0"}, "what": "drain",
        "on": "reboots/1", "result": "started",
    });
    rig.put("/cke/cketerm/audit/01780272005000000000-1", &drain.to_string()).await;
    let entries = |args: &[&str]| {
        let ran = rig.run(&[&["history"], args, &["-o", "json"]].concat());
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{args:?}");
        let all = serde_json::Deserializer::from_str(&ran.stdout).into_iter::<Value>();
        all.map(|v| v.unwrap()["entry"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(entries(&["--ended"]), ["reboots/2", "reboots/9", "reboots/1"], "newest first");
    assert_eq!(entries(&["--ended", "-n", "1"]), ["reboots/2"]);
    assert_eq!(entries(&["--failed"]), ["reboots/2"]);
    assert_eq!(entries(&["--since", "2026-06-02"]), ["reboots/2", "reboots/9"]);
    assert_eq!(entries(&["--node", "10.0.0.12"]), ["reboots/9", "reboots/1"]);
    assert_eq!(entries(&["--node", "worker13"]), ["reboots/2"], "nodes are also found by their name in the definition");
    let nobody = rig.run(&["history", "--node", "10.0.0.99"]);
    assert_eq!((nobody.status, nobody.stdout.as_str()), (1, ""));
    assert!(nobody.stderr.contains("--node 10.0.0.99: no machine of the definition"), "{}", nobody.stderr);
    let output = rig.run(&["history", "--node", "10.0.0.12", "--since", "2026-06-01", "-n", "2"]).stdout;
    let timeline = "reboots/1 10.0.0.12: booted\n\
                 \x20 2026-06-01T00:00:00Z  requested, anna@h (INC-7)\n\
                 \x20 2026-06-01T00:00:05Z  drain: started, engine@boot-0\n\
                 \x20 2026-06-01T00:00:20Z  command, attempt 1 on boot-0: ipmi 10.0.0.12\n\
                 \x20 2026-06-01T00:00:21Z  command, attempt 1: exit 1 (no route)\n\
                 \x20 2026-06-01T00:01:00Z  ended: booted\n";
    assert!(output.ends_with(timeline), "{output}");
    for (args, message) in [
        (&["history", "--since", "yesterday"][..], "expected a time such as"),
        (&["history", "-n", "-1"], "'-1'"),
        (&["history", "-n", "x"], "invalid value 'x' for '-n <N>'"),
        (&["history", "--failed", "-f"], "-f follows CKE's records"),
        (&["history", "3"], "unexpected argument '3'"),
    ] {
        let ran = rig.run(args);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn the_audit_shows_user_action_reason_and_host() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.run_with(&["rq", "add", "-", "--reason", "INC-7"], "10.0.0.12");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(rig.run(&["rq", "disable", "--reason", "storm"]).status, 0);
    let ran = rig.run(&["audit", "-o", "json", "-n", "2"]);
    let all: Vec<Value> =
        serde_json::Deserializer::from_str(&ran.stdout).into_iter::<Value>().map(Result::unwrap).collect();
    assert_eq!((&all[0]["what"], &all[0]["reason"]), (&json!("disable"), &json!("storm")));
    assert_eq!((&all[1]["what"], &all[1]["on"]), (&json!("reboot add"), &json!("10.0.0.12")));
    assert_eq!((&all[1]["result"], &all[1]["reason"]), (&json!("entries 0"), &json!("INC-7")));
    assert_eq!(all.len(), 2);
    assert_ne!(all[0]["who"]["user"], "");
    let table = rig.run(&["audit"]).stdout;
    assert!(table.starts_with("At ") && table.contains("cluster set"), "{table}");
    let yaml = rig.run(&["audit", "-o", "yaml", "-n", "1"]).stdout;
    assert!(yaml.starts_with("---\nat: ") && yaml.contains("\nreason: storm\n"), "{yaml}");
}

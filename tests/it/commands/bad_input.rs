//! Bad input: each message names the object and the remedy, and nothing else is lost or stopped.

use std::{path::Path, time::Duration};

use super::rig::{DEFINITION, Rig, RunOutput, run};
use crate::{stalls::Stopwatch, world::program::cketerm};

/// Asserts that it failed with `status` and that its message has all these words.
fn assert_message(output: &RunOutput, status: i32, words: &[&str]) {
    assert_eq!(output.status, status, "{output:?}");
    for word in words {
        assert!(output.stderr.contains(word), "{word:?} is missing: {}", output.stderr);
    }
}

#[tokio::test]
async fn an_unknown_address_rejects_the_whole_list() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let before = rig.keys().await;
    let output = rig.run_with(&["rq", "add", "-"], "10.0.0.12 10.0.0.99 worker31");
    assert_message(
        &output,
        1,
        &["10.0.0.99", "worker31 (did you mean worker13?)", "nothing was written", "cluster get"],
    );
    assert_eq!(rig.keys().await, before);
}

#[tokio::test]
async fn without_a_definition_the_message_names_the_remedy() {
    let Some(rig) = Rig::start().await else { return };
    assert_message(&rig.run_with(&["rq", "add", "-"], "10.0.0.12"), 1, &["no cluster definition", "cluster set FILE"]);
    assert_message(&rig.run(&["cluster", "get"]), 1, &["no cluster definition"]);
}

#[tokio::test]
async fn a_duplicate_is_queued_like_ckecli_does_with_a_warning() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    assert_message(&rig.run_with(&["rq", "add", "-"], "10.0.0.12 10.0.0.12"), 0, &["10.0.0.12 is given twice"]);
    assert_message(&rig.run_with(&["rq", "add", "-"], "10.0.0.12"), 0, &["10.0.0.12 already has entry 0"]);
}

#[tokio::test]
async fn an_invalid_definition_is_refused_and_the_stored_one_stays() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let before = rig.keys().await;
    for (from, to, words) in [
        ("reboot:", "reboot:\n  command_retries: -1", &["reboot.command_retries must not be negative, is -1"][..]),
        ("reboot:", "reboot:\n  max_concurrent_reboots: 0", &["reboot.max_concurrent_reboots must be positive"]),
        ("reboot:", "reboot:\n  comand_retries: 1", &["reboot.comand_retries", "did you mean command_retries?"]),
        (
            "reboot:",
            "reboot:\n  protected_namespaces: {matchExpressions: [{key: a, operator: Is}]}",
            &["reboot.protected_namespaces is not a label selector"],
        ),
        ("control_plane: true", "control_plane: yes", &["nodes[0].control_plane", "YAML 1.1", "write true"]),
        ("10.0.0.13", "10.0.0.12", &["nodes[2].address 10.0.0.12 is also nodes[1]'s address"]),
        ("10.0.0.13", "host13", &["nodes[2].address is an invalid IP address: host13"]),
        (", control_plane: true", "", &["control-plane-count is 1", "constraints set"]),
        ("nodes:", "nodes: [", &["neither YAML nor JSON", "line"]),
    ] {
        let file = rig.file("bad.yml", &DEFINITION.replacen(from, to, 1));
        let output = rig.run(&["cluster", "set", &file]);
        assert_message(&output, 1, words);
        assert!(output.stderr.contains("bad.yml"), "{}", output.stderr);
        assert_eq!(rig.keys().await, before, "{to}");
    }
}

#[tokio::test]
async fn a_definition_without_commands_is_stored_with_a_warning() {
    let Some(rig) = Rig::start().await else { return };
    let text = &DEFINITION[..DEFINITION.find("reboot:").unwrap()];
    let output = rig.run(&["cluster", "set", &rig.file("c.yml", text)]);
    assert_message(&output, 0, &["warning: reboot.reboot_command is not set", "boot_check_command"]);
}

#[tokio::test]
async fn an_entry_that_is_not_json_is_reported_and_does_not_stop_the_others() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.run_with(&["rq", "add", "-"], "10.0.0.12 10.0.0.13");
    rig.put("/cke/reboots/data/0000000000000000", "{oops").await;
    let output = rig.run(&["rq", "list"]);
    assert_message(
        &output,
        5,
        &["/cke/reboots/data/0000000000000000 cannot be read", "it begins with {oops", "rq cancel 0"],
    );
    assert_eq!(
        output.stderr.matches("0000000000000000").count(),
        1,
        "the message must name the key once: {}",
        output.stderr
    );
    assert!(output.stdout.contains("10.0.0.13"), "{}", output.stdout);
    let table = rig.run(&["rq", "list", "-o", "table"]);
    assert!(table.status == 5 && table.stdout.contains("BROKEN"), "{}", table.stdout);
    let first = table.stdout.lines().nth(1).unwrap_or_default();
    assert!(first.starts_with('0') && first.contains("it begins with {oops"), "rows must be sorted by index: {first}");
    assert!(
        !rig.run(&["rq", "list", "-o", "simple"]).stdout.contains("BROKEN"),
        "the format `simple` equals that of ckecli"
    );
    let refused = rig.run(&["rq", "cancel", "0"]);
    assert_message(
        &refused,
        3,
        &["reboots/0 cannot be read", "it begins with {oops", "a newer program may have written it"],
    );
    assert_eq!(rig.run(&["rq", "cancel", "1"]).status, 0);
    assert_message(&rig.run(&["rq", "cancel-all"]), 5, &["unreadable entries are left: 0", "rq cancel 0"]);
    assert_eq!(
        rig.get("/cke/reboots/data/0000000000000000").await.as_deref(),
        Some("{oops"),
        "an unreadable entry must not be changed"
    );
    assert_eq!(rig.run_with(&["rq", "add", "-"], "10.0.0.14").status, 0);
    assert!(rig.run(&["rq", "why", "0"]).stdout.contains("cannot be read"));
    // the refusal names the command that removes exactly the shown value
    let word = refused.stderr.rsplit('`').nth(1).unwrap_or_default();
    let words: Vec<&str> = word.split_whitespace().skip(1).collect();
    assert_eq!(words[..4], ["rq", "cancel", "0", "--unreadable"], "{}", refused.stderr);
    rig.put("/cke/reboots/data/0000000000000000", "{newer").await;
    assert_message(&rig.run(&words), 3, &["reboots/0 has changed meanwhile"]);
    let again = rig.run(&["rq", "cancel", "0"]);
    let word = again.stderr.rsplit('`').nth(1).unwrap_or_default().to_owned();
    assert_message(
        &rig.run(&word.split_whitespace().skip(1).collect::<Vec<_>>()),
        0,
        &["removed: 0", "stays cordoned"],
    );
    assert_eq!(rig.get("/cke/reboots/data/0000000000000000").await, None);
    assert_eq!(rig.run(&["rq", "list"]).status, 0);
    assert!(rig.run(&["audit"]).stdout.contains("reboot remove unreadable"));
    rig.put("/cke/repairs/data/0000000000000003", r#"{"a":1}"#).await;
    let refused = rig.run(&["repair-queue", "delete", "3"]);
    assert_message(&refused, 3, &["repairs/3 cannot be read", "missing field", "repair-queue delete 3 --unreadable"]);
    let word = refused.stderr.rsplit('`').nth(1).unwrap_or_default().to_owned();
    assert_message(&rig.run(&word.split_whitespace().skip(1).collect::<Vec<_>>()), 0, &["removed: 3"]);
    assert_eq!(rig.get("/cke/repairs/data/0000000000000003").await, None);
}

#[tokio::test]
async fn an_invalid_write_index_is_reported_with_the_remedy() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.put("/cke/reboots/write-index", "x").await;
    assert_message(&rig.run_with(&["rq", "add", "-"], "10.0.0.12"), 1, &["/cke/reboots/write-index", "etcdctl put"]);
    assert_eq!(rig.run(&["rq", "list"]).status, 0);
}

#[tokio::test]
async fn an_unknown_value_of_a_switch_counts_as_enabled_with_a_warning() {
    let Some(rig) = Rig::start().await else { return };
    rig.put("/cke/reboots/disabled", "True").await;
    let output = rig.run(&["rq", "is-enabled"]);
    assert_message(&output, 0, &["/cke/reboots/disabled", "\"True\"", "counts as enabled"]);
    assert_eq!(output.stdout, "true\n");
}

#[tokio::test]
async fn names_and_values_of_constraints_and_policy_are_validated() {
    let Some(rig) = Rig::start().await else { return };
    for (words, fragments) in [
        (&["constraints", "set", "control-plane-count", "-1"][..], &["control-plane-count must not be negative"][..]),
        (&["constraints", "set", "control-plane-count", "x"], &["must be a whole number, not \"x\""]),
        (&["constraints", "set", "control-plane-cuont", "1"], &["did you mean control-plane-count?"]),
        (&["policy", "set", "settle_seconds", "-1"], &["settle_seconds must be a whole number"]),
        (&["policy", "set", "settle_second", "1"], &["did you mean settle_seconds?"]),
        (&["policy", "set", "engine", "ours"], &["policy engine", "`cke`, `cketerm`, `always`"]),
    ] {
        assert_message(&rig.run(words), 2, fragments);
    }
    assert!(rig.keys().await.is_empty());
    assert_eq!(rig.get("/cke/cketerm/policy").await, None);
}

#[tokio::test]
async fn an_order_that_the_entry_does_not_allow_is_refused() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.run_with(&["rq", "add", "-"], "10.0.0.12");
    assert_message(
        &rig.run(&["rq", "retry", "0", "--reason", "x"]),
        3,
        &["reboots/0 (10.0.0.12) is queued", "retry works only after"],
    );
    assert_message(&rig.run(&["rq", "force", "0"]), 2, &["needs a reason", "--reason TEXT"]);
    assert_message(&rig.run(&["rq", "done", "7", "--reason", "x"]), 1, &["reboots/7 does not exist", "rq list"]);
    assert_message(&rig.run(&["rq", "cancel", "7"]), 1, &["reboots/7"]);
    assert_message(&rig.run(&["rq", "why", "7"]), 1, &["reboots/7 does not exist"]);
    assert_message(&rig.run(&["rq", "wait", "7"]), 1, &["reboots/7 does not exist"]);
    assert_eq!(rig.get("/cke/cketerm/orders/reboots/0").await, None);
}

#[tokio::test]
async fn a_retry_is_refused_while_the_command_runs() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    rig.put("/cke/reboots/data/0000000000000000", r#"{"index":"0","node":"10.0.0.12","status":"rebooting"}"#).await;
    rig.put("/cke/leader//7a", "boot-0").await;
    let attempt = serde_json::json!({
        "id": "x", "entry": "reboots/0", "number": 1, "address": "10.0.0.12", "lease": 0x7a, "host": "boot-0",
        "argv": ["/bin/true", "10.0.0.12"], "bound_seconds": 60, "start": "2026-06-01T00:00:00Z",
    });
    rig.put("/cke/cketerm/attempts/reboots/0/1", &attempt.to_string()).await;
    let retry = ["rq", "retry", "0", "--reason", "x"];
    assert_message(&rig.run(&retry), 3, &["reboots/0 (10.0.0.12) runs on boot-0", "limit 60 s", "cancel"]);
    rig.delete("/cke/leader//7a").await;
    assert_eq!(rig.run(&retry).status, 0, "an operator may retry after the leader is gone");
}

#[tokio::test]
async fn commands_that_use_only_etcd_never_contact_kubernetes() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let nowhere = rig.file("kubeconfig", KUBECONFIG);
    let with = |words: &[&str], stdin: &str| {
        let mut all = vec!["--kubeconfig", &nowhere];
        all.extend(words);
        rig.run_with(&all, stdin)
    };
    assert_eq!(with(&["rq", "add", "-"], "10.0.0.12").status, 0);
    assert_eq!(with(&["rq", "cancel", "0"], "").status, 0);
    assert_eq!(with(&["rq", "disable"], "").status, 0);
    assert_message(&with(&["nodes", "list"], ""), 1, &["nodes list", "127.0.0.1:1"]);
    assert_message(&with(&["cluster", "identify"], ""), 1, &["127.0.0.1:1"]);
    assert_message(&rig.run(&["nodes", "list"]), 2, &["which is not configured", "--kubeconfig FILE"]);
}

#[tokio::test]
async fn an_etcd_that_fails_or_does_not_answer_is_named() {
    let begun = Stopwatch::start();
    let output = run(&["--etcd-endpoints", "http://127.0.0.1:1", "rq", "list"], "");
    assert_message(&output, 1, &["http://127.0.0.1:1"]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());

    let Some(rig) = Rig::dedicated().await else { return };
    let mut auth = rig.client.auth_client();
    auth.user_add("root", "secret", None).await.unwrap();
    auth.user_grant_role("root", "root").await.unwrap();
    auth.auth_enable().await.unwrap();
    assert_message(&rig.run(&["rq", "list"]), 1, &[&rig.url, "user"]);
    assert_message(&rig.run_with(&["rq", "add", "-"], "10.0.0.12"), 1, &[&rig.url]);
}

#[test]
fn a_daemon_without_its_servers_names_the_missing_ones() {
    assert_message(&run(&["--daemon", "--http", "127.0.0.1:0"], ""), 1, &["no etcd is configured"]);
    let etcd = ["--etcd-endpoints", "http://127.0.0.1:1", "--daemon", "--http", "127.0.0.1:0"];
    assert_message(&run(&etcd, ""), 1, &["no Kubernetes is configured", "--kubeconfig"]);
}

#[test]
fn a_missing_file_is_named() {
    assert_message(&run(&["cluster", "check", "/nowhere.yml"], ""), 1, &["/nowhere.yml: cannot be read"]);
    assert_message(&run(&["rq", "add", "/nowhere.txt"], ""), 1, &["/nowhere.txt: cannot be read"]);
    assert_message(&run(&["--config", "/nowhere.yaml", "rq", "list"], ""), 2, &["/nowhere.yaml"]);
}

const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: x, cluster: {server: \"http://127.0.0.1:1\"}}]
users: [{name: x, user: {}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
current-context: x
";

/// Forty kilobytes that expand to gigabytes. cketerm expands an operator's file only up to the reading limit, and a
/// value in etcd not at all.
#[tokio::test]
async fn a_yaml_alias_bomb_is_refused() {
    let Some(rig) = Rig::start().await else { return };
    rig.define();
    let list = |of: &str| vec![of; 300].join(", ");
    let levels = (1..20).map(|level| format!("a{level}: &a{level} [{}]\n", list(&format!("*a{}", level - 1))));
    let bomb = format!("a0: &a0 [{}]\n", list("ha")) + &levels.collect::<Vec<_>>().concat();
    assert!(bomb.len() < 50_000, "{}", bomb.len());
    let before = rig.keys().await;
    let file = rig.file("bomb.yml", &bomb);
    assert_message(&rig.run(&["cluster", "set", &file]), 1, &["bomb.yml", "neither YAML nor JSON"]);
    assert_message(&rig.run(&["cluster", "check", &file]), 1, &["bomb.yml"]);
    assert_eq!(rig.keys().await, before, "nothing was written");
    rig.put("/cke/sabakan/template", &bomb).await;
    assert_message(&rig.run(&["sabakan", "get-template"]), 1, &["set-template FILE"]);
}

/// Somebody on call reads the runbook while the configuration is broken.
#[test]
fn explain_needs_no_configuration() {
    let explained = cketerm(Path::new("/nonexistent/cketerm.yaml"), &["explain", "OutcomeUnknown"]);
    assert_eq!(explained.code, 0, "{}", explained.stderr);
    assert!(explained.stdout.contains("OutcomeUnknown"), "{}", explained.stdout);
    assert_eq!(cketerm(Path::new("/nonexistent/cketerm.yaml"), &["rq", "list"]).code, 2);
}

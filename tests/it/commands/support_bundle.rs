//! `support-bundle`: complete, without secrets, and never half-written.

use std::{collections::BTreeMap, io::Read as _, os::unix::fs::PermissionsExt as _};

use serde_json::{Value, json};

use super::rig::{DEFINITION, Rig, run};
use crate::world::program;

/// The secret.
const SECRET: &str = "hunter2";
const NAMES: [&str; 14] = [
    "README.txt",
    "about.json",
    "audit.json",
    "configuration.json",
    "constraints.json",
    "definition.json",
    "doctor.json",
    "entries.json",
    "errors.txt",
    "history.json",
    "leader.json",
    "log.txt",
    "metrics.txt",
    "policy.json",
];

/// Files of an archive, without their folder.
fn unpacked(archive: &[u8]) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().strip_prefix("cketerm-support").unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(name, text);
    }
    files
}

/// Plants the secret in etcd, wherever it has free text or unknown fields.
async fn plant(rig: &Rig) {
    let definition = DEFINITION.replace("[/bin/true]", "[sh, -c, \"ipmitool -P hunter2 -U root power cycle\"]");
    let definition = definition.replace("{cri_endpoint:", "{extra_env: {A: hunter2}, cri_endpoint:");
    assert_eq!(rig.run(&["cluster", "set", &rig.file("d.yml", &definition)]).status, 0);
    let (at, who) = (jiff::Timestamp::now().to_string(), json!({"user": "alice", "host": "admin1"}));
    let attempt = |entry: &str| {
        json!({
            "id": "a", "entry": entry, "number": 1, "address": "10.0.0.12", "lease": 7, "host": "boot-0",
            "argv": ["reset", "hunter2", "10.0.0.12"], "bound_seconds": 60, "start": at,
            "outcome": {"end": {"exit": 1}, "at": at, "stdout": "hunter2", "stderr": "hunter2"},
        })
    };
    let entry = r#"{"index":"0","node":"10.0.0.12","status":"rebooting","odd":"hunter2"}"#;
    let ended = json!({
        "entry": "reboots/1", "address": "10.0.0.12", "end": "cancelled", "outcome": "cancelled", "at": at,
        "last": {"odd": "hunter2"}, "attempts": [attempt("reboots/1")],
    });
    let audit = json!({
        "at": at, "who": who, "what": "policy set", "on": "cketerm/policy", "reason": "login root:hunter2@bmc ok",
        "result": "url: https://chat.example/hunter2?token=hunter2, header_file: /etc/headers",
    });
    let ran = json!({"at": at, "who": who, "what": "power", "on": "reboots/0", "result": "reset hunter2 10.0.0.12"});
    let policy = json!({
        "of_tomorrow": "hunter2",
        "hooks": [{"name": "silence", "at": "before_drain", "url": "https://chat.example/hunter2", "header_file": "/hunter2"}],
        "start_gates": {"prometheus": "https://prom.example/hunter2", "queries": [{"name": "a", "query": "hunter2"}]},
    });
    let stamp = format!("{:020}", jiff::Timestamp::now().as_nanosecond());
    for (key, value) in [
        ("/cke/reboots/data/0000000000000000", entry.to_owned()),
        ("/cke/reboots/data/0000000000000002", "hunter2".to_owned()),
        ("/cke/cketerm/attempts/reboots/0/1", attempt("reboots/0").to_string()),
        ("/cke/cketerm/requests/reboots/0", json!({"who": who, "at": at, "reason": "password: hunter2"}).to_string()),
        ("/cke/cketerm/history/reboots-0000000000000001", ended.to_string()),
        (&format!("/cke/cketerm/audit/{stamp}-1"), audit.to_string()),
        (&format!("/cke/cketerm/audit/{stamp}-2"), ran.to_string()),
        ("/cke/cketerm/policy", policy.to_string()),
        ("/cke/sabakan/url", "http://user:hunter2@127.0.0.1:1/graphql".to_owned()),
        ("/cke/sabakan/disabled", "true".to_owned()),
        ("/cke/leader//7a", "boot-0".to_owned()),
    ] {
        rig.put(key, &value).await;
    }
}

#[tokio::test]
async fn no_planted_secret_is_in_a_support_bundle() {
    let Some(rig) = Rig::start().await else { return };
    plant(&rig).await;
    let log = rig.dir.path().join("log");
    std::fs::create_dir(&log).unwrap();
    let now = jiff::Timestamp::now();
    let lines = format!(
        "{now}  INFO url=https://u:hunter2@h/x?k=hunter2 -P hunter2\nhunter2\n{now}  INFO command started argv=\"reset hunter2\"\n"
    );
    std::fs::write(log.join("cketerm.log.2026-11-21"), lines).unwrap();
    let bmcs = rig.file("bmcs.yaml", "10.0.0.12: {url: 'https://10.9.0.12', username: root, password: hunter2}\n");
    let prefix = rig.key("/cke/");
    let text = format!(
        "etcd: {{endpoints: [\"{}\"], prefix: \"{prefix}\", timeout: 20s}}\nlog: {{directory: \"{}\"}}\n\
         engine: {{command_env: [BMC_SECRET], http: \"127.0.0.1:1\"}}\npower: {{bmcs: \"{bmcs}\"}}\n\
         notices: [{{name: chat, url: 'https://chat.example/hunter2'}}]\n",
        rig.url,
        log.display()
    );
    let config = rig.file("config.yaml", &text);
    for file in [&config, &bmcs] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let keys = rig.keys().await;
    let file = rig.dir.path().join("b.tar.gz");
    let made = || {
        let mut command = program::command();
        command.args(["--config", &config, "support-bundle", file.to_str().unwrap()]).env("BMC_SECRET", SECRET);
        command.output().unwrap()
    };
    let output = made();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout.is_empty(), "{stderr}");
    assert!(stderr.contains("look into it before you send it") && !stderr.contains(SECRET), "{stderr}");
    let archive = std::fs::read(&file).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let files = unpacked(&archive);
    let mut names: Vec<&str> = files.keys().map(String::as_str).collect();
    names.push("metrics.txt"); // no daemon runs
    names.sort_unstable();
    assert_eq!(names, NAMES);
    for (name, text) in &files {
        assert!(!text.contains(SECRET), "{name}: {text}");
    }
    for (name, known) in [
        ("errors.txt", "metrics.txt: 127.0.0.1:1: "),
        ("errors.txt", "Kubernetes: not configured"),
        ("definition.json", "worker13"),
        ("entries.json", "\"reboots/0\""),
        ("entries.json", "\"program\": \"reset\""),
        ("entries.json", "\"reboots/2\""),
        ("leader.json", "boot-0"),
        ("history.json", "\"reboots/1\""),
        ("audit.json", "https://chat.example/…"),
        ("policy.json", "of_tomorrow"),
        ("log.txt", "-P ***"),
        ("configuration.json", "BMC_SECRET"),
    ] {
        assert!(files[name].contains(known), "{name}, {known}: {}", files[name]);
    }
    let doctor: Value = serde_json::from_str(&files["doctor.json"]).unwrap();
    assert!(doctor["checks"].as_array().unwrap().iter().any(|check| check["subject"] == "etcd"), "{doctor}");
    assert_eq!(rig.keys().await, keys, "a bundle writes nothing");

    // a second one does not replace the first without --force
    let again = made();
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    assert_eq!(std::fs::read(&file).unwrap(), archive);
}

/// Servers that do not answer are named, and the rest is written.
#[test]
fn a_support_bundle_needs_no_server_and_can_go_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let output = program::command()
        .current_dir(folder.path())
        .args(["--etcd-endpoints", "http://root:hunter2@127.0.0.1:1", "support-bundle", "-"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    let files = unpacked(&output.stdout);
    assert!(files["errors.txt"].contains("leader.json: etcd: "), "{}", files["errors.txt"]);
    assert!(files.contains_key("about.json") && !files.contains_key("entries.json"), "{files:?}");
    assert!(!files.values().any(|text| text.contains(SECRET)) && !stderr.contains(SECRET), "{files:?} {stderr}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_list_names_every_file_and_contacts_no_server() {
    let output = run(&["support-bundle", "--list"], "");
    assert_eq!((output.status, output.stderr.as_str()), (0, ""), "{output:?}");
    let mut names: Vec<&str> = output.stdout.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    let output = run(&["--etcd-endpoints", "http://127.0.0.1:1", "support-bundle", "/no/such/folder/b"], "");
    assert!(output.status == 1 && output.stderr.contains("nothing was written"), "{output:?}");
}

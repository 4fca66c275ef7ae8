//! No secret is shown: the test plants one in each form and searches all output for it.

use serde_json::{Value, json};

use super::rig::{DEFINITION, Rig, RunOutput, run};

/// The secret.
const SECRET: &str = "hunter2";

const REPAIR: &str = "\
repair:
  repair_procedures:
  - machine_types: [QEMU]
    repair_operations:
    - operation: unreachable
      health_check_command: [sh, -c, \"PASSWORD=hunter2 check\"]
      success_command: [sshpass, -p, hunter2, ssh, root@bmc]
      repair_steps:
      - {repair_command: [curl, -u, \"root:hunter2\", \"https://bmc/reset\"], watch_seconds: 60}
";

fn attempt(entry: &str, outcome: &Value) -> Value {
    json!({
        "id": "a", "entry": entry, "number": 1, "address": "10.0.0.12", "lease": 7, "host": "boot-0",
        "argv": ["sh", "-c", "ipmitool -I lanplus -U root -P hunter2 power cycle", "10.0.0.12"],
        "bound_seconds": 60, "start": "2026-06-01T00:00:20Z", "outcome": outcome,
    })
}

#[tokio::test]
async fn a_secret_in_any_common_form_is_in_no_output() {
    let Some(rig) = Rig::start().await else { return };
    let definition = DEFINITION.replace("[/bin/true]", "[sh, -c, \"ipmitool -P hunter2 -U root power cycle\"]");
    assert!(definition.contains(SECRET));
    let set = rig.run(&["cluster", "set", &rig.file("d.yml", &format!("{definition}{REPAIR}"))]);
    assert_eq!(set.status, 0, "{set:?}");
    let outcome = json!({
        "end": {"exit": 1}, "at": "2026-06-01T00:00:21Z", "stdout": "GET https://root:hunter2@bmc/redfish\n",
        "stderr": "sent {\"UserName\": \"root\", \"Password\": \"hunter2\"}\nAuthorization: Basic hunter2\n",
    });
    rig.put("/cke/reboots/data/0000000000000000", r#"{"index":"0","node":"10.0.0.12","status":"rebooting"}"#).await;
    rig.put("/cke/cketerm/attempts/reboots/0/1", &attempt("reboots/0", &outcome).to_string()).await;
    let ended = json!({
        "entry": "reboots/1", "address": "10.0.0.12", "end": "cancelled", "outcome": "cancelled", "at": "2026-06-01T00:01:00Z", "last": {},
        "attempts": [attempt("reboots/1", &outcome)],
    });
    rig.put("/cke/cketerm/history/reboots-0000000000000001", &ended.to_string()).await;
    let audit = json!({
        "at": "2026-06-01T00:00:20Z", "who": {"user": "engine", "host": "boot-0"}, "what": "power",
        "on": "reboots/1", "result": "ipmitool -P hunter2 power cycle 10.0.0.12",
    });
    rig.put("/cke/cketerm/audit/01780272020000000000-1", &audit.to_string()).await;
    rig.put("/cke/sabakan/url", "http://user:hunter2@127.0.0.1:1/graphql").await;
    rig.put("/cke/sabakan/disabled", "true").await;
    rig.run(&["repair-queue", "add", "unreachable", "QEMU", "10.0.0.13"]);

    let state = rig.run(&["state"]);
    let file = rig.file("state.json", &state.stdout);
    let commands: [&[&str]; 18] = [
        &["state"],
        &["decide", "--from", &file, "--as-leader"],
        &["decide", "--from", &file, "--as-leader", "-o", "json"],
        &["screenshot", "--view", "reboots", "--size", "200x60", "--keys", "enter"],
        &["screenshot", "--view", "history", "--size", "200x60", "--keys", "enter"],
        &["screenshot", "--view", "audit", "--size", "200x60"],
        &["screenshot", "--view", "repairs", "--size", "200x60", "--keys", "enter"],
        &["history", "--ended", "-o", "table"],
        &["history", "--ended"],
        &["history", "--ended", "-o", "yaml"],
        &["audit"],
        &["audit", "-o", "json"],
        &["rq", "why", "0"],
        &["rq", "why", "1"],
        &["rq", "why", "1", "-o", "json"],
        &["repair-queue", "plan", "unreachable", "QEMU", "10.0.0.13"],
        &["repair-queue", "plan", "unreachable", "QEMU", "10.0.0.13", "-o", "json"],
        &["info"],
    ];
    for arguments in commands {
        let output: RunOutput = rig.run(arguments);
        assert_eq!(output.status, 0, "{arguments:?}: {output:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stdout.contains(SECRET) && !output.stderr.contains(SECRET), "{arguments:?}: {output:?}");
    }
    let detail = rig.run(&["screenshot", "--view", "reboots", "--size", "200x60", "--keys", "enter"]).stdout;
    assert!(detail.contains("-P *** power cycle") && detail.contains("\"Password\": \"***\""), "{detail}");
}

/// Messages do not print the credentials in the kubeconfig's server URL.
#[test]
fn credentials_in_a_url_are_never_printed() {
    let dir = tempfile::TempDir::new().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
                users: [{name: a, user: {}}]\nclusters: [{name: a, cluster: {server: 'http://admin:hunter2@127.0.0.1:1'}}]\n";
    std::fs::write(&kubeconfig, text).unwrap();
    let all = ["--etcd-endpoints", "http://root:hunter2@127.0.0.1:1", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let commands: [&[&str]; 7] = [
        &["info"],
        &["config", "show"],
        &["config", "show", "-o", "json"],
        &["config", "check"],
        &["nodes", "list"],
        &["rq", "list"],
        &["nodes", "cordon", "w1"],
    ];
    for arguments in commands {
        let output = run(&[&all, arguments].concat(), "");
        assert!(!output.stdout.contains(SECRET) && !output.stderr.contains(SECRET), "{arguments:?}: {output:?}");
        let named = format!("{}{}", output.stdout, output.stderr).contains("127.0.0.1:1");
        assert!(named || arguments == ["config", "check"], "{arguments:?}: {output:?}");
    }
}

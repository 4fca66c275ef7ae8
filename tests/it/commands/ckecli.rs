//! Cases in which the real `ckecli` and CKE refuse, or print something else (CLI-23 to CLI-37).

use serde_json::{Value, json};

use super::rig::{DEFINITION, Rig};

const WITHOUT_CRI_ENDPOINT: &str = "\
name: test
nodes:
- {address: 10.0.0.11, user: root, control_plane: true}
- {address: 10.0.0.12, user: root}
reboot:
  reboot_command: [/bin/true]
  boot_check_command: [/bin/echo, \"true\"]
";

/// CKE exits at its start with such a definition, and its leader stops working (CLI-30).
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_without_cri_endpoint_is_refused_beside_cke_and_warned_about_elsewhere() {
    let Some(rig) = Rig::start().await else { return };
    let without = rig.file("without.yml", WITHOUT_CRI_ENDPOINT);
    let output = rig.run(&["cluster", "set", &without]);
    assert_eq!(output.status, 0, "{output:?}");
    assert!(output.stderr.contains("note: options.kubelet.cri_endpoint is empty"), "{}", output.stderr);
    for (key, value) in [
        ("/cke/leader//10", "boot-0"),
        ("/cke/status", "{}"),
        ("/cke/records", "4"),
        ("/cke/cketerm/policy", r#"{"engine": "cke"}"#),
    ] {
        rig.clear().await;
        rig.put(key, value).await;
        let output = rig.run(&["cluster", "set", &without]);
        assert!(
            output.status == 1 && output.stderr.contains("kubelet.cri_endpoint should not be empty"),
            "{key}: {output:?}"
        );
        assert_eq!(rig.get("/cke/cluster").await, None, "{key}");
        let with = rig.run(&["cluster", "set", &rig.file("with.yml", DEFINITION)]);
        assert_eq!((with.status, with.stderr.as_str()), (0, ""), "{key}");
    }
    // cketerm also writes records and status: once a policy exists, they do not prove that CKE runs here
    rig.clear().await;
    rig.put("/cke/cketerm/policy", r#"{"engine": "cketerm"}"#).await;
    rig.put("/cke/records", "4").await;
    assert_eq!(rig.run(&["cluster", "set", &without]).status, 0);
    // a part that CKE has used cannot be removed
    assert_eq!(rig.run(&["cluster", "set", &rig.file("with.yml", DEFINITION)]).status, 0);
    assert_eq!(rig.run(&["cluster", "set", &without]).status, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_states_are_refused_with_ckes_message() {
    let Some(rig) = Rig::start().await else { return };
    let file = rig.file("v.json", r#"{"having": {"states": ["healthy"]}}"#);
    for noun in ["sabakan", "auto-repair"] {
        let output = rig.run(&[noun, "set-variables", &file]);
        assert!(output.status == 1 && output.stderr.contains("invalid state: healthy"), "{output:?}");
        assert_eq!(rig.get(&format!("/cke/{noun}/query-variables")).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_listed_in_whole_seconds() {
    let Some(rig) = Rig::start().await else { return };
    let entry = json!({"index": "0", "node": "10.0.0.12", "status": "draining",
        "last_transition_time": "2026-08-01T12:00:00.123456789Z", "drain_backoff_expire": "0001-01-01T00:00:00Z"});
    rig.put("/cke/reboots/data/0000000000000000", &entry.to_string()).await;
    let listed: Value = serde_json::from_str(&rig.run(&["rq", "list"]).stdout).unwrap();
    assert_eq!(listed[0]["last_transition_time"], "2026-08-01T12:00:00Z");
    assert_eq!(listed[0]["drain_backoff_expire"], "0001-01-01T00:00:00Z");
    assert!(rig.run(&["rq", "list", "-o", "simple"]).stdout.contains(" draining 2026-08-01T12:00:00Z 0 "));
}

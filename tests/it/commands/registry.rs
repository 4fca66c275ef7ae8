//! Commands of `sabakan` and `auto-repair` that touch only etcd: they store exactly what was set. Bad input is reported
//! and stores nothing.

use std::io::{Read as _, Write as _};

use super::rig::{Rig, RunOutput};

const TEMPLATE: &str = "\
name: cluster
nodes:
- user: cybozu
  control_plane: true
  labels: {cke.cybozu.com/role: compute}
- user: cybozu
  labels: {cke.cybozu.com/role: compute, cke.cybozu.com/weight: \"6.0\", place: 'r{{ .Rack }}'}
- user: cybozu
  labels: {cke.cybozu.com/role: storage, cke.cybozu.com/weight: \"3.0\"}
service_subnet: 10.68.0.0/16
";

#[tokio::test]
async fn template_and_variables_are_stored_in_ckes_keys_and_printed_back() {
    let Some(rig) = Rig::start().await else { return };
    assert_eq!(rig.run(&["sabakan", "set-template", &rig.file("t.yml", TEMPLATE)]).status, 0);
    let stored: serde_json::Value = serde_json::from_str(&rig.get("/cke/sabakan/template").await.unwrap()).unwrap();
    assert_eq!((&stored["nodes"][0]["address"], &stored["nodes"][0]["taints"]), (&"".into(), &serde_json::Value::Null));
    let shown = rig.run(&["sabakan", "get-template"]).stdout;
    assert!(shown.contains("name: cluster\n") && shown.contains("r{{ .Rack }}"), "{shown}");
    let variables = "{\"notHaving\": {\"states\": [\"RETIRED\"]}}\n";
    let file = rig.file("v.json", variables);
    for noun in ["sabakan", "auto-repair"] {
        assert_eq!(rig.run(&[noun, "set-variables", &file]).status, 0);
        assert_eq!(rig.get(&format!("/cke/{noun}/query-variables")).await.unwrap(), variables);
        assert_eq!(rig.run(&[noun, "get-variables"]).stdout, variables);
    }
}

#[tokio::test]
async fn an_unusable_template_is_refused_with_the_reason() {
    let Some(rig) = Rig::start().await else { return };
    for (from, to, words) in [
        ("  control_plane: true\n", "", "no template for control planes"),
        (
            "labels: {cke.cybozu.com/role: storage",
            "control_plane: true\n  labels: {x: y",
            "2 templates for control planes",
        ),
        ("role: storage", "role: compute", "is compute, and so is nodes[1]'s"),
        ("cke.cybozu.com/role: storage, ", "", "nodes[2].labels[cke.cybozu.com/role] is missing"),
        (
            "- user: cybozu\n  control",
            "- user: cybozu\n  address: 10.0.0.1\n  control",
            "must not be set in a template",
        ),
        ("weight: \"3.0\"", "weight: \"0\"", "must be a positive number"),
        ("{{ .Rack }}", "{{ .Rak }}", "did you mean .Rack?"),
        ("user: cybozu\n  control", "usr: cybozu\n  control", "did you mean user?"),
    ] {
        let text = TEMPLATE.replacen(from, to, 1);
        assert_ne!(text, TEMPLATE);
        let output = rig.run(&["sabakan", "set-template", &rig.file("bad.yml", &text)]);
        assert_eq!(output.status, 1, "{output:?}");
        assert!(output.stderr.contains("bad.yml") && output.stderr.contains(words), "{words}: {}", output.stderr);
        assert_eq!(rig.get("/cke/sabakan/template").await, None);
    }
    let output = rig.run(&["auto-repair", "set-variables", &rig.file("v", r#"{"having": {"states": ["BAD"]}}"#)]);
    assert!(output.status == 1 && output.stderr.contains("invalid state: BAD"), "{output:?}");
    assert_eq!(rig.get("/cke/auto-repair/query-variables").await, None);
}

/// Starts a sabakan with these machines (last number of the address, state), until the test ends.
fn sabakan(machines: &[(u8, &str)]) -> String {
    let list: Vec<String> = machines
        .iter()
        .map(|(i, state)| {
            format!(
                r#"{{"spec":{{"serial":"m{i}","rack":{},"indexInRack":{i},"role":"cs","ipv4":["10.0.0.{i}"],
                    "registerDate":"2026-01-01T00:00:00Z","retireDate":"2036-01-01T00:00:00Z","bmc":{{"bmcType":"ipmi"}}}},
                    "status":{{"state":"{state}","timestamp":"2026-07-01T00:00:00Z","duration":9999.5}}}}"#,
                i % 3
            )
        })
        .collect();
    let body = format!(r#"{{"data":{{"searchMachines":[{}]}}}}"#, list.join(","));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut some = [0; 4096];
            // the body is one JSON object, so the request is complete at its closing brace
            while !request.windows(4).any(|w| w == b"\r\n\r\n") || !request.ends_with(b"}") {
                match stream.read(&mut some) {
                    Ok(n) if n > 0 => request.extend_from_slice(&some[..n]),
                    _ => break,
                }
            }
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
        }
    });
    url
}

const SMALL: &str = "name: test\nnodes:\n- {user: root, control_plane: true}\n- {user: root}\n";

/// The rig's cluster with a sabakan that knows its machines, and one change that waits at the gate: two of three
/// workers are gone from sabakan.
async fn rig_with_pending_change() -> Option<Rig> {
    let rig = Rig::start().await?;
    rig.define();
    let url = sabakan(&[(11, "HEALTHY"), (12, "HEALTHY")]);
    for args in [
        &["sabakan", "disable"][..],
        &["sabakan", "set-url", &url],
        &["sabakan", "set-template", &rig.file("t.yml", SMALL)],
        &["constraints", "set", "minimum-workers", "1"],
        &["constraints", "set", "control-plane-count", "1"],
        &["sabakan", "enable"],
    ] {
        let output = rig.run(args);
        assert_eq!(output.status, 0, "{output:?}");
    }
    Some(rig)
}

fn assert_output(output: &RunOutput, words: &str) {
    assert!(output.stdout.contains(words) || output.stderr.contains(words), "{words:?} is missing: {output:?}");
}

/// `diff` and `approve` report what the leader would do with a change.
#[tokio::test]
async fn diff_and_approve_report_why_a_change_waits_and_approve_needs_a_pending_approval() {
    let Some(rig) = rig_with_pending_change().await else { return };
    let (diff, approve) = (|| rig.run(&["sabakan", "diff"]), || rig.run(&["sabakan", "approve"]));
    assert_output(&diff(), "waits for approval of ");
    // on hold
    assert_eq!(rig.run(&["sabakan", "hold", "--reason", "moving racks"]).status, 0);
    assert_output(&diff(), "waits: on hold by ");
    assert_output(&diff(), "moving racks");
    let output = approve();
    assert_eq!(output.status, 3, "{output:?}");
    assert_output(&output, "while applying is on hold by ");
    assert_eq!(rig.run(&["sabakan", "unhold"]).status, 0);
    // disabled
    assert_eq!(rig.run(&["sabakan", "disable"]).status, 0);
    assert_output(&diff(), "is not applied: disabled: `cketerm sabakan enable`");
    let output = approve();
    assert_eq!(output.status, 3, "{output:?}");
    assert_output(&output, "no change waits for approval: disabled");
    assert_eq!(rig.run(&["sabakan", "enable"]).status, 0);
    // an API server in progress
    let entry =
        r#"{"index":"0","node":"10.0.0.11","status":"rebooting","last_transition_time":"2026-11-21T10:00:00Z"}"#;
    rig.put("/cke/reboots/data/0000000000000000", entry).await;
    assert_output(&diff(), "waits: API server 10.0.0.11 is in work (reboots/0)");
    assert_output(&diff(), "waits for approval of ");
    rig.delete("/cke/reboots/data/0000000000000000").await;
    // the policy requires no approval
    assert_eq!(rig.run(&["policy", "set", "approval", "never"]).status, 0);
    let output = diff();
    assert!(!output.stdout.contains("waits for approval"), "{output:?}");
    assert_output(&output, "start `cketerm --daemon`");
    let json: serde_json::Value = serde_json::from_str(&rig.run(&["sabakan", "diff", "-o", "json"]).stdout).unwrap();
    assert_eq!((&json["gate"], &json["applying"]["state"]), (&serde_json::Value::Null, &"waits".into()), "{json}");
    let output = approve();
    assert_eq!(output.status, 3, "{output:?}");
    assert_output(&output, "policy approval is never");
    // the policy requires approval again: one approval is enough, and a second one is refused
    assert_eq!(rig.run(&["policy", "set", "approval", "gate"]).status, 0);
    assert_eq!(approve().status, 0);
    assert_output(&diff(), "start `cketerm --daemon`");
    assert_eq!(approve().status, 3);
}

/// A list without plans states the reason; a template that was never set is no error.
#[tokio::test]
async fn machines_list_explains_why_there_is_no_plan() {
    let Some(rig) = rig_with_pending_change().await else { return };
    let output = rig.run(&["machines", "list"]);
    assert!(
        output.status == 0 && output.stdout.contains("10.0.0.12") && !output.stderr.contains("no plan"),
        "{output:?}"
    );
    assert_eq!(rig.run(&["policy", "set", "strategy", "all-healthy"]).status, 0);
    let output = rig.run(&["machines", "list"]);
    assert!(output.status == 0 && output.stdout.contains("10.0.0.12"), "{output:?}");
    assert!(output.stderr.contains("warning: no plan: strategy all-healthy"), "{output:?}");
    rig.delete("/cke/sabakan/template").await;
    let output = rig.run(&["machines", "list"]);
    assert!(output.status == 0 && !output.stderr.contains("no plan"), "{output:?}");
}

//! `sabakan plan` and `auto-repair plan` from files: they need no server and send no request.

use std::{path::PathBuf, process::Command};

use serde_json::{Value, json};

struct Files(tempfile::TempDir);

impl Files {
    fn file(&self, name: &str, value: &Value) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.to_string_lossy().into_owned()
    }
}

fn example(name: &str) -> String {
    PathBuf::from(crate::ROOT).join("docs/examples/sabakan").join(name).to_string_lossy().into_owned()
}

/// Exit status, standard output, standard error.
fn run(words: &[&str]) -> (i32, String, String) {
    let out = Command::new(crate::binary::cketerm()).args(words).env_clear().output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

fn plan(machines: &str, template: &str, constraints: &str, more: &[&str]) -> (i32, Value, String) {
    let words =
        ["sabakan", "plan", "-o", "json", "--machines", machines, "--template", template, "--constraints", constraints];
    let words: Vec<&str> = words.iter().chain(&["--now", "2026-06-01T00:00:00Z"]).chain(more).copied().collect();
    let (status, out, err) = run(&words);
    (status, serde_json::from_str(&out).unwrap_or(Value::Null), err)
}

#[test]
fn the_example_inventory_of_200_machines_gives_a_stable_plan() {
    let files = [example("machines.json"), example("template.yml"), example("constraints.json")];
    let (status, made, _) = plan(&files[0], &files[1], &files[2], &[]);
    assert_eq!((status, &made["action"], &made["changed"]), (0, &json!("initialize"), &json!(true)));
    let nodes = made["nodes"].as_array().unwrap();
    let workers = |role: &str| nodes.iter().filter(|n| n["control_plane"] == false && n["role"] == role).count();
    assert_eq!([workers("compute"), workers("storage"), workers("gpu")], [60, 30, 10]);
    assert!(nodes.iter().all(|n| n["score"].is_i64() && n["why"].as_str().unwrap().contains("score")));
    assert_eq!(nodes.len() + made["unused"].as_array().unwrap().len(), 200);
    // a second run on the resulting definition changes nothing
    let dir = Files(tempfile::tempdir().unwrap());
    let current = dir.file("current.json", &made["cluster"]);
    let (status, again, _) = plan(&files[0], &files[1], &files[2], &["--current", &current]);
    assert_eq!((status, &again["action"], &again["cluster"]), (0, &json!("none"), &made["cluster"]));
    let (_, table, _) = run(&[
        "sabakan",
        "plan",
        "--machines",
        &files[0],
        "--template",
        &files[1],
        "--constraints",
        &files[2],
        "--now",
        "2026-06-01T00:00:00Z",
    ]);
    assert!(
        table.starts_with("action: initialize\n") && table.contains("workers: 100 (compute 60, gpu 10, storage 30)"),
        "{table}"
    );
}

#[test]
fn a_plan_from_bad_input_fails_names_the_object_and_keeps_the_definition() {
    let dir = Files(tempfile::tempdir().unwrap());
    let machines: Value = serde_json::from_str(&std::fs::read_to_string(example("machines.json")).unwrap()).unwrap();
    let (template, constraints) = (example("template.yml"), example("constraints.json"));
    for (pointer, value, message) in [
        ("/3/spec/retireDate", json!("soon"), "machine SN00003: retireDate: \"soon\""),
        ("/3/status/state", json!("BROKEN"), "machine SN00003: state: \"BROKEN\" is not known"),
        ("/3/spec/ipv4", json!(["10.69.0.4"]), "machines SN00000 and SN00003 both have the address 10.69.0.4"),
    ] {
        let mut bad = machines.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        let (status, made, err) = plan(&dir.file("bad.json", &bad), &template, &constraints, &[]);
        assert_eq!((status, &made["changed"], &made["cluster"]), (1, &json!(false), &Value::Null));
        assert!(made["error"].as_str().unwrap().contains(message) && err.contains(message), "{made} {err}");
    }
    let mut without = machines.clone();
    *without.pointer_mut("/3/spec/ipv4").unwrap() = json!([]);
    let (status, made, _) = plan(&dir.file("without.json", &without), &template, &constraints, &[]);
    assert_eq!((status, &made["warnings"][0]), (0, &json!("machine SN00003 has no IPv4 address and is ignored")));
    let many = dir.file("many.json", &json!({"control-plane-count": 3, "minimum-workers": 500}));
    let (status, made, _) = plan(&example("machines.json"), &template, &many, &[]);
    assert!(status == 1 && made["error"].as_str().unwrap().contains("at least 500 healthy workers wanted"), "{made}");
    let (status, _, err) = run(&["sabakan", "plan", "--machines", &example("machines.json")]);
    assert!(status == 2 && err.contains("--template FILE"), "{err}");
}

#[test]
fn auto_repair_plan_lists_its_repairs_and_why_other_machines_get_none() {
    let dir = Files(tempfile::tempdir().unwrap());
    let machine = |serial: &str, state: &str, n: u8| {
        json!({"spec": {"serial": serial, "rack": 0, "indexInRack": n, "role": "cs", "ipv4": [format!("10.0.0.{n}")],
            "registerDate": "2026-01-01T00:00:00Z", "retireDate": "2026-01-01T00:00:00Z", "bmc": {"bmcType": "IPMI-2.0"}},
            "status": {"state": state, "duration": 10.5}})
    };
    let machines = dir.file(
        "m",
        &json!({"data": {"searchMachines": [machine("a", "UNHEALTHY", 1), machine("b", "UNREACHABLE", 2)]}}),
    );
    let constraints =
        dir.file("c", &json!({"maximum-repair-queue-entries": 3, "wait-seconds-to-repair-rebooting": 60}));
    let words = [
        "auto-repair",
        "plan",
        "--machines",
        &machines,
        "--constraints",
        &constraints,
        "--now",
        "2026-06-01T00:00:00Z",
    ];
    let (status, out, _) = run(&[&words[..], &["-o", "json"]].concat());
    let made: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (status, &made["entries"][0]["operation"], &made["entries"][0]["index"]),
        (0, &json!("unhealthy"), &json!("0"))
    );
    let why = "it is not a member of the cluster; unreachable for only 10 s of wait-seconds-to-repair-rebooting 60";
    assert_eq!((&made["skipped"][0]["serial"], &made["skipped"][0]["why"]), (&json!("b"), &json!(why)));
    let (_, table, _) = run(&words);
    assert!(table.contains("unreachable skipped"), "{table}");
}

/// A misspelt constraint has no effect: the message names it with the nearest known one, and the plan is made without
/// it.
#[test]
fn an_unknown_constraint_is_reported_with_the_nearest_known_name() {
    let dir = Files(tempfile::tempdir().unwrap());
    let constraints = json!({"control-plane-count": 3, "minimum-worker": 90, "colour": 1});
    let file = dir.file("constraints.json", &constraints);
    let (status, made, err) = plan(&example("machines.json"), &example("template.yml"), &file, &[]);
    assert_eq!((status, &made["action"]), (0, &json!("initialize")), "{err}");
    assert!(
        err.contains("constraints.json: no such constraint: minimum-worker; did you mean minimum-workers?"),
        "{err}"
    );
    assert!(err.contains("no such constraint: colour; known: control-plane-count"), "{err}");
}

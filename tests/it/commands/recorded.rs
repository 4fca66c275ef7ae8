//! Recorded runs of `ckecli` (`tests/fixtures/ckecli.jsonl`). The same arguments must leave the same keys, the same
//! standard output and the same kind of exit status. In cases marked `differs` cketerm answers differently on purpose.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rig::Rig;

/// First arguments that cketerm supports; the others are counted, not compared.
const WORDS: [&str; 10] = [
    "reboot-queue",
    "rq",
    "cluster",
    "constraints",
    "leader",
    "status",
    "nope",
    "repair-queue",
    "sabakan",
    "auto-repair",
];

#[derive(Deserialize)]
struct Case {
    name: String,
    before: Map<String, Value>,
    argv: Vec<String>,
    exit: i32,
    stdout: String,
    puts: Map<String, Value>,
    deletes: Vec<String>,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    files: Map<String, Value>,
    differs: Option<String>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Reports whether everything expected is there; objects may have more.
fn covers(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) => {
            want.iter().all(|(key, want)| got.get(key).is_some_and(|got| covers(got, want)))
        }
        (Value::Array(got), Value::Array(want)) => {
            got.len() == want.len() && got.iter().zip(want).all(|(got, want)| covers(got, want))
        }
        _ => got == want,
    }
}

fn same(got: &str, want: &str) -> bool {
    if got == want {
        return true;
    }
    match (serde_json::from_str(got), serde_json::from_str(want)) {
        (Ok(got), Ok(want)) => covers(&got, &want),
        _ => false,
    }
}

#[tokio::test]
async fn recorded_ckecli_runs_give_the_same_results() {
    let Some(rig) = Rig::start().await else { return };
    let (mut compared, mut other) = (0, 0);
    let mut wrong = Vec::new();
    for line in include_str!("../../fixtures/ckecli.jsonl").lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let known = case.argv.first().is_some_and(|word| WORDS.contains(&word.as_str()));
        if !known || case.differs.is_some() {
            other += 1;
            continue;
        }
        compared += 1;
        rig.clear().await;
        for (key, value) in &case.before {
            rig.put(key, text(value)).await;
        }
        let before = rig.keys().await;
        let argv: Vec<String> = case
            .argv
            .iter()
            .map(|word| word.strip_prefix('@').map_or(word.clone(), |name| rig.file(name, text(&case.files[name]))))
            .collect();
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let output = rig.run_with(&argv, &case.stdin);
        let after = rig.keys().await;

        let mut bad = Vec::new();
        if (output.status == 0) != (case.exit == 0) {
            bad.push(format!("exit {}, recorded {}: {}", output.status, case.exit, output.stderr));
        }
        if case.exit == 0 && !same(&output.stdout, &case.stdout) {
            bad.push(format!("stdout {:?}, recorded {:?}", output.stdout, case.stdout));
        }
        let written: Vec<&String> =
            after.iter().filter(|(k, v)| before.get(*k).is_none_or(|b| b.1 != v.1)).map(|(k, _)| k).collect();
        let mut expected: Vec<&String> = case.puts.keys().collect();
        expected.sort();
        if written != expected {
            bad.push(format!("wrote {written:?}, recorded {expected:?}"));
        }
        for (key, want) in &case.puts {
            if let Some((got, _)) = after.get(key)
                && !same(got, text(want))
            {
                bad.push(format!("{key} = {got}, recorded {want}"));
            }
        }
        let mut gone: Vec<&String> = before.keys().filter(|k| !after.contains_key(*k)).collect();
        gone.sort();
        if gone != case.deletes.iter().collect::<Vec<_>>() {
            bad.push(format!("deleted {gone:?}, recorded {:?}", case.deletes));
        }
        if !bad.is_empty() {
            wrong.push(format!("{}:\n  {}", case.name, bad.join("\n  ")));
        }
    }
    eprintln!("{compared} recorded runs compared, {other} skipped (intended difference or not in WORDS)");
    assert!(compared >= 38, "only {compared} recorded runs were compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

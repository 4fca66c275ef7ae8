//! Tests that the schema, the policy's types, `policy set` and the document agree.

use cketerm_model::{cketerm_records::Who, policy::Policy};

use super::*;
use crate::policy::{DOCUMENTS, SetBy, with_field};

/// Former words of settings, which are still accepted.
const FORMER: [&str; 2] = ["newer", "older"];

fn set(name: &str, text: &str) -> Result<Policy, String> {
    let who = Who { user: "ann".to_owned(), host: "admin1".to_owned(), ssh_client: Some("10.0.0.9".to_owned()) };
    with_field(&Policy::default(), name, text, SetBy { who: &who, now: "2026-08-01T12:00:00Z".parse().unwrap() })
}

/// Faults of a value by a schema of the keywords used here. An unknown keyword is a fault of the test.
fn faults(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "title" | "description" | "format" => {}
            "type" => {
                let is = match value {
                    Value::Null => "null",
                    Value::Bool(_) => "boolean",
                    Value::Number(n) if n.is_u64() => "integer",
                    Value::Number(_) => "number",
                    Value::String(_) => "string",
                    Value::Array(_) => "array",
                    Value::Object(_) => "object",
                };
                let one = |rule: &Value| rule == is || (rule == "number" && is == "integer");
                let good = rule.as_array().map_or_else(|| one(rule), |all| all.iter().any(one));
                found.extend((!good).then(|| format!("{at}: {is} is no {rule}")));
            }
            "minimum" => {
                let bad = value.as_u64().is_some_and(|n| n < rule.as_u64().unwrap());
                found.extend(bad.then(|| format!("{at}: less than {rule}")));
            }
            "maximum" => {
                let bad = value.as_u64().is_some_and(|n| n > rule.as_u64().unwrap());
                found.extend(bad.then(|| format!("{at}: more than {rule}")));
            }
            "pattern" => assert_eq!(rule, "^[a-z0-9-]{1,40}$"),
            "enum" => {
                let bad = !rule.as_array().unwrap().contains(value);
                found.extend(bad.then(|| format!("{at}: none of {rule}")));
            }
            "anyOf" => {
                let good = rule.as_array().unwrap().iter().any(|rule| faults(rule, value, at).is_empty());
                found.extend((!good).then(|| format!("{at}: none of the forms")));
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(faults(rule, item, &format!("{at}[{i}]")));
                }
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    let missing = value.is_object() && value.get(name.as_str().unwrap()).is_none();
                    found.extend(missing.then(|| format!("{at}: {name} is missing")));
                }
            }
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    match rule.get(name) {
                        Some(rule) => found.extend(faults(rule, value, &format!("{at}.{name}"))),
                        None => found.push(format!("{at}: unknown {name}")),
                    }
                }
            }
            "additionalProperties" if rule == false => {}
            "additionalProperties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    found.extend(faults(rule, value, &format!("{at}.{name}")));
                }
            }
            other => panic!("{other}"),
        }
    }
    found
}

/// A value of each structured setting, with every field. Of alternatives there is one value for each.
const SAMPLES: [(&str, &str); 10] = [
    (
        "reboot_needed_signals",
        "[kured, flatcar, node-problem-detector, {condition: A, status: 'False'}, {annotation: a.b/c, value: x}, \
         {label: a.b/c, value: x}, {kernel: '6.1'}, {os_image: Debian}]",
    ),
    (
        "windows",
        "{time_zone: UTC, allow: ['* 1-4 * * *'], deny: ['* 2 * * 0'], margin_seconds: 60, queues: [reboot, repair], \
         machines: [{name: a, role: cs, rack: 3, selector: 'a=b', allow: ['* 1-4 * * *'], deny: ['* 2 * * *']}]}",
    ),
    ("freeze", "{until: 2026-12-28T00:00:00Z, reason: holidays}"),
    ("groups", "{by: rack, limit: 2}"),
    (
        "hooks",
        "[{name: a, at: after_uncordon, queue: reboot, role: cs, rack: '3', selector: 'a=b', command: [/bin/a, b], \
           timeout_seconds: 5, retries: 1, retry_interval_seconds: 7, holds_slot: true}, \
          {name: b, at: before_drain, url: 'https://a.example/x', header_file: /etc/h}]",
    ),
    ("uncordon_gates", "{conditions: {A: 'True'}, taints_gone: [a.b/c], daemon_sets: true, overdue_seconds: 5}"),
    ("breaker", "{failures: 2, of: 5}"),
    ("canary", "{first: 2, soak_seconds: 60}"),
    (
        "start_gates",
        "{prometheus: 'https://a.example', alerts: {match: A, ignore: B, labels: {a: b}, pending: true}, \
          queries: [{name: a, query: up}], interval_seconds: 9, timeout_seconds: 8, header_file: /h, ca_file: /c}",
    ),
    ("start_gates", "{prometheus: 'https://a.example', queries: [{name: a, query: up}], bearer_token_file: /t}"),
];

/// Names of all fields in a value, or of all properties in a schema.
fn names(value: &Value, is_schema: bool, found: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let fields = if is_schema { map.get("properties").and_then(Value::as_object) } else { Some(map) };
            found.extend(fields.into_iter().flat_map(|fields| fields.keys().cloned()));
            map.values().for_each(|value| names(value, is_schema, found));
        }
        Value::Array(all) => all.iter().for_each(|value| names(value, is_schema, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_setting_of_the_policy_is_in_the_schema() {
    let written = serde_json::to_value(Policy::default()).unwrap();
    let known = written.as_object().unwrap().keys().map(String::as_str).chain(DOCUMENTS);
    let known: std::collections::BTreeSet<&str> = known.collect();
    assert_eq!(SETTINGS.iter().map(|(name, ..)| *name).collect::<std::collections::BTreeSet<_>>(), known);
    assert_eq!(SETTINGS.len(), known.len());
    assert_eq!(faults(&schema(), &written, "policy"), Vec::<String>::new());
    let faulty = json!({"engine": "x", "gate_percent": 101, "of_tomorrow": 1, "hooks": [{"name": "a"}]});
    assert_eq!(faults(&schema(), &faulty, "policy").len(), 4);
}

#[test]
fn words_and_limits_are_those_that_policy_set_accepts() {
    for (name, form, _) in SETTINGS {
        match *form {
            Form::Words(words) => {
                for word in words {
                    set(name, word).unwrap_or_else(|e| panic!("{name} {word}: {e}"));
                }
                // serde's error lists all words
                let error = set(name, "no-such-word").unwrap_err();
                let listed: Vec<&str> = error.split('`').skip(3).step_by(2).filter(|w| !FORMER.contains(w)).collect();
                assert_eq!(listed.len(), words.len(), "{name}: {error}");
            }
            Form::Number(least, most) => {
                set(name, &least.to_string()).unwrap_or_else(|e| panic!("{name} {least}: {e}"));
                if let Some(below) = least.checked_sub(1) {
                    assert!(set(name, &below.to_string()).is_err(), "{name} {below}");
                }
                let largest = most.unwrap_or(u64::MAX);
                set(name, &largest.to_string()).unwrap_or_else(|e| panic!("{name} {largest}: {e}"));
                if let Some(most) = most {
                    assert!(set(name, &(most + 1).to_string()).is_err(), "{name} {most}");
                }
            }
            Form::Flag => assert!(set(name, "true").is_ok() && set(name, "maybe").is_err(), "{name}"),
            Form::Text => assert!(!DOCUMENTS.contains(name), "{name}"),
            Form::Document(_) => assert!(DOCUMENTS.contains(name), "{name}"),
        }
    }
}

#[test]
fn structured_settings_have_the_fields_of_their_types() {
    let schema = schema();
    for name in DOCUMENTS {
        let (mut in_samples, mut in_schema) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for (_, text) in SAMPLES.iter().filter(|(of, _)| *of == name) {
            let policy = set(name, text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let value = serde_json::to_value(policy).unwrap()[name].clone();
            assert_eq!(faults(&schema["properties"][name], &value, name), Vec::<String>::new());
            names(&value, false, &mut in_samples);
        }
        names(&schema["properties"][name], true, &mut in_schema);
        // names that a site chooses
        for chosen in ["A", "a"] {
            in_samples.remove(chosen);
        }
        assert_eq!(in_samples, in_schema, "{name}");
    }
}

/// The column of values in the document says the same.
#[test]
fn the_table_of_the_document_has_the_same_values() {
    let document = include_str!("../../../../docs/reference/policy.md");
    let section = document.split("## All settings").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<(&str, &str)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(name, rest)| (name, rest.split(" | ").next().unwrap()))
        .collect();
    assert_eq!(rows.len(), SETTINGS.len());
    for ((name, form, _), (row, values)) in SETTINGS.iter().zip(rows) {
        assert_eq!(*name, row, "the same order");
        let quoted: Vec<&str> = values.split('`').skip(1).step_by(2).collect();
        match *form {
            Form::Words(words) => assert_eq!(quoted, words, "{name}"),
            Form::Flag => assert_eq!(quoted, ["true", "false"], "{name}"),
            Form::Number(least, None) => assert!(values.ends_with(&format!(", from {least}")), "{name}: {values}"),
            Form::Number(_, Some(most)) => assert!(values.contains(&format!("to {most}")), "{name}: {values}"),
            Form::Text => assert!(values.contains("URL") || values.contains("selector"), "{name}: {values}"),
            Form::Document(_) => assert_eq!(values, "document, `none`", "{name}"),
        }
    }
}

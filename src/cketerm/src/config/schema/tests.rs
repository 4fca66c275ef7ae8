//! Tests that the schema, the reader and the samples agree.

use serde_json::Value;

use super::*;
use crate::config::Settings;

const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json");

/// Returns the faults by a schema of the keywords used here. An unknown keyword is a fault of the test.
fn faults(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "title" | "description" => {}
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
                found.extend((!good).then(|| format!("{at}: {is} is none of {rule}")));
            }
            "minimum" => {
                let less = value.as_u64().is_some_and(|n| n < rule.as_u64().unwrap());
                found.extend(less.then(|| format!("{at}: less than {rule}")));
            }
            "pattern" => {
                let form = regex::Regex::new(rule.as_str().unwrap()).unwrap();
                let bad = value.as_str().is_some_and(|text| !form.is_match(text));
                found.extend(bad.then(|| format!("{at}: not like {rule}")));
            }
            "enum" => {
                let bad = !rule.as_array().unwrap().contains(value);
                found.extend(bad.then(|| format!("{at}: none of {rule}")));
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
                    if let Some(rule) = rule.get(name) {
                        found.extend(faults(rule, value, &format!("{at}.{name}")));
                    }
                }
            }
            "additionalProperties" => {
                if rule.is_object() {
                    for (name, value) in value.as_object().into_iter().flatten() {
                        found.extend(faults(rule, value, &format!("{at}.{name}")));
                    }
                    continue;
                }
                assert_eq!(rule, false);
                let known = schema["properties"].as_object().unwrap();
                let unknown = value.as_object().into_iter().flatten().filter(|(name, _)| !known.contains_key(*name));
                found.extend(unknown.map(|(name, _)| format!("{at}: unknown key {name}")));
            }
            other => panic!("the test has no rule for the schema keyword {other:?}"),
        }
    }
    found
}

fn judged(text: &str) -> Vec<String> {
    faults(&schema(), &serde_yaml::from_str::<Value>(text).unwrap(), "")
}

/// `UPDATE_DOCS=1` writes the document.
#[test]
fn docs_config_schema_json_matches_the_printed_schema() {
    let wanted = to_json_text();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PUBLISHED, wanted).unwrap();
    } else {
        let there = std::fs::read_to_string(PUBLISHED).unwrap_or_default();
        assert!(there == wanted, "docs/config.schema.json differs from `config schema`: run `make docs`");
    }
}

/// Tests the default file as it is, and with every commented line in force.
#[test]
fn the_default_file_and_its_commented_examples_match_the_schema() {
    assert_eq!(judged(Settings::default_yaml()), Vec::<String>::new());
    let uncommented: Vec<String> = Settings::default_yaml()
        .lines()
        .filter(|line| !line.starts_with("notices:"))
        .map(|line| {
            let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
            let proposed = rest.strip_prefix("# ").filter(|rest| !indent.is_empty() && rest.contains(": "));
            proposed.map_or_else(|| line.to_owned(), |rest| format!("{indent}{rest}"))
        })
        .collect();
    let text = uncommented.join("\n");
    assert!(text.contains("\n  kubeconfig: /etc") && text.contains("\n  tls-key-file: "), "{text}");
    assert_eq!(judged(&text), Vec::<String>::new());
    let receivers: Vec<&str> = Settings::default_yaml()
        .split_once("notices: []")
        .unwrap()
        .1
        .lines()
        .skip(1)
        .filter_map(|line| line.strip_prefix("# "))
        .collect();
    let text = format!("notices:\n{}\n", receivers.join("\n"));
    assert!(text.contains("- name: mail"), "{text}");
    assert_eq!(judged(&text), Vec::<String>::new());
}

#[test]
fn the_schema_refuses_what_config_check_refuses_for_its_form() {
    for (text, fault) in [
        ("etcd: {endpoint: x}", "etcd: unknown key endpoint"),
        ("ectd: {}", ": unknown key ectd"),
        ("engine: {lease_ttl_seconds: 1}", ".engine.lease_ttl_seconds: less than 2"),
        ("log: {json: \"yes\"}", ".log.json: string is none of"),
        ("etcd: {timeout: 2x}", ".etcd.timeout: not like"),
        ("notices: [{url: \"http://x/\"}]", ".notices[0]: \"name\" is missing"),
        ("notices: [{name: a, kinds: [stuk]}]", ".notices[0].kinds[0]: none of"),
        ("notices: {name: a}", ".notices: object is none of"),
    ] {
        let found = judged(text);
        assert!(found.iter().any(|why| why.contains(fault)), "{text}: {found:?}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        assert!(Settings::load_file(&path).is_err(), "{text}");
    }
}

/// A key that is described but not requested would be refused by the reader.
#[test]
fn every_key_of_the_schema_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let load = |text: String| {
        std::fs::write(&path, &text).unwrap();
        Settings::load_file(&path).map(drop).map_err(|e| format!("{text}: {e}"))
    };
    for (section, keys) in SECTIONS {
        for (key, ..) in *keys {
            assert_eq!(load(format!("{section}:\n  {key}:\n")), Ok(()));
        }
    }
    for (key, ..) in RECEIVER.iter().filter(|(key, ..)| !["name", "program"].contains(key)) {
        assert_eq!(load(format!("notices:\n- name: a\n  program: [x]\n  {key}:\n")), Ok(()));
    }
}

use allocation_counter::measure;
use serde_json::json;

use super::*;

#[test]
fn yaml_and_json_parse_to_the_same_value() {
    let yaml = parse("name: x\nnodes:\n- {address: 10.0.0.1, control_plane: true}\n").unwrap();
    let json =
        parse("{\n\t\"name\": \"x\", \"nodes\": [{\"address\": \"10.0.0.1\", \"control_plane\": true}]}").unwrap();
    assert_eq!(yaml, json);
    assert_eq!(stored(&json.to_string()).unwrap(), json);
    let merged = parse("base: &b {a: 1, c: 2}\nx: {<<: *b, c: 3}\ny: *b\n").unwrap();
    assert_eq!(merged["x"], json!({"a": 1, "c": 3}));
    assert_eq!(merged["y"], json!({"a": 1, "c": 2}));
}

#[test]
fn syntax_errors_are_reported_with_their_line() {
    for (text, expected) in [
        ("name: x\n  nodes: [", "line 2"),
        ("name: a\nname: b\n", "uplicate"),
        (r#"{"name": "a", "name": "b"}"#, "duplicate"),
        ("a: .nan\n", "neither YAML nor JSON"),
        ("a: !site x\n", "tag"),
        ("a: 1\n---\nb: 2\n", "document"),
    ] {
        let why = parse(text).unwrap_err();
        assert!(why.contains(expected), "{text:?}: {why}");
    }
    for text in ["name: x\n", "", "{\"a\": 1,}", "{\"a\": 1} x", "a: &a [1]\nb: *a", r#"{"a": 1, "a": 2}"#] {
        assert!(stored(text).unwrap_err().contains("is not JSON"), "{text}");
    }
    let large = format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_TEXT_BYTES));
    assert!(parse(&large).unwrap_err().contains("too large") && stored(&large).unwrap_err().contains("too large"));
}

/// Returns documents of forty kilobytes that expand to gigabytes.
fn bombs() -> Vec<(&'static str, String)> {
    let ten = |alias: &str| vec![format!("*{alias}"); 10].join(", ");
    let levels = (1..12).map(|level| format!("a{level}: &a{level} [{}]\n", ten(&format!("a{}", level - 1))));
    let laughs = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n".to_owned() + &levels.collect::<Vec<_>>().concat();
    let long = "x".repeat(30_000);
    let wide = format!("a: &a {long}\nb: [{}]\n", vec!["*a"; 2_500].join(", "));
    let nodes = format!("a: &a [{}]\nb: [{}]\n", vec!["1"; 10_000].join(","), vec!["*a"; 5_000].join(","));
    let merges = format!(
        "a: &a {{{}}}\n{}",
        (0..2_000).map(|n| format!("k{n}: 1")).collect::<Vec<_>>().join(", "),
        (0..1_000).map(|n| format!("m{n}: {{<<: *a}}\n")).collect::<Vec<_>>().concat()
    );
    let deep = format!("a: {}{}", "[".repeat(20_000), "]".repeat(20_000));
    vec![("laughs", laughs), ("wide", wide), ("nodes", nodes), ("merges", merges), ("deep", deep)]
}

/// Memory is bounded because values are counted while they are made.
#[test]
fn an_alias_bomb_is_refused_with_bounded_memory() {
    for (name, text) in bombs() {
        assert!(text.len() < 64_000, "{name}: {}", text.len());
        let mut read = Ok(Value::Null);
        let took = measure(|| read = parse(&text));
        assert!(read.is_err(), "{name} is accepted");
        assert!(took.bytes_max < 4 * MAX_VALUE_BYTES as u64, "{name}: {} bytes allocated at once", took.bytes_max);
        // In etcd such a text is not valid JSON, and nothing is expanded.
        let mut read = Ok(Value::Null);
        let took = measure(|| read = stored(&text));
        assert!(read.is_err() && took.bytes_max < 1 << 20, "{name}: {} bytes allocated at once", took.bytes_max);
    }
    // Inside JSON an alias is text, and a JSON document is counted like any other.
    assert_eq!(stored(r#"{"a": "&a", "b": "*a"}"#).unwrap(), json!({"a": "&a", "b": "*a"}));
    let many = format!("[{}1]", "[],".repeat(1_000_000));
    assert!(stored(&many).is_ok_and(|v| v.as_array().is_some_and(|all| all.len() == 1_000_001)));
}

/// Reads the text with `serde_yaml`, the reference for documents that users have written so far.
fn before(text: &str) -> Option<Value> {
    let mut yaml: serde_yaml::Value = serde_yaml::from_str(text).ok()?;
    yaml.apply_merge().ok()?;
    serde_json::to_value(yaml).ok()
}

/// Scalars that are refused now, so that their meaning does not change silently.
const STRICTER: [&str; 2] = ["1e400", "-.inf"];

/// Compares both parsers on all documents of users in this repository and on generated ones, and JSON on texts of
/// programs.
#[test]
fn the_parser_agrees_with_serde_yaml() {
    let mut texts: Vec<String> = Vec::new();
    for folder in
        ["tests/fixtures", "docs", "docs/examples/sabakan", "src/scenario/src/files", "src/cketerm/src/config"]
    {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        for file in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = file.path();
            if path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json") {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    assert!(texts.len() > 10, "{}", texts.len());
    let mut compared = 0;
    for text in &texts {
        // One document each: rbac.yaml has several.
        for text in text.split("\n---\n").filter(|text| text.len() <= MAX_TEXT_BYTES) {
            if let Some(before) = before(text).filter(|value| !value.is_null()) {
                assert_eq!(parse(text).as_ref(), Ok(&before), "{text}");
                compared += 1;
            }
        }
    }
    assert!(compared > 10, "{compared}");
    let scalars = [
        "a",
        "10.0.0.1",
        "true",
        "false",
        "null",
        "~",
        "",
        "0",
        "-7",
        "18446744073709551615",
        "1.5",
        "-0.25",
        "1e3",
        "yes",
        "no",
        "on",
        "off",
        "012",
        "0x1f",
        "0o17",
        "2026-01-01",
        "2026-01-01T00:00:00Z",
        "1:30",
        "+5",
        "1_000",
        "'quoted'",
        "\"esc\\u00e9\\n\"",
        "a b",
        "v1.35.0",
        "NaN",
        "a#b",
        "@x",
        ".5",
        "5.",
        "True",
        "NULL",
        "Yes",
        "y",
        "n",
        "|\n  block\n  text\n",
        ">\n  folded\n  text\n",
        "1e400",
        "0b11",
        "-",
        "=",
        "é",
        "99999999999999999999",
        "0.1",
        "00",
        "1.0",
        "-.inf",
    ];
    let mut differ = Vec::new();
    for scalar in scalars {
        let text = format!("a: {scalar}\nb: 1\n");
        let (old, new) = (before(&text), parse(&text).ok());
        if STRICTER.contains(&scalar) {
            assert_eq!(new, None, "{scalar}");
        } else if old.is_some() && new != old {
            differ.push(format!("{scalar:?}: {old:?}, now {new:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    let mut rng = fastrand::Rng::with_seed(14);
    for _ in 0..2_000 {
        let value = document(&mut rng, 4);
        let yaml = serde_yaml::to_string(&value).unwrap();
        assert_eq!(parse(&yaml).as_ref(), Ok(&value), "{yaml}");
        assert_eq!(stored(&value.to_string()).as_ref(), Ok(&value));
        let in_flow = value.to_string();
        assert_eq!(parse(&in_flow).as_ref(), Ok(&value), "{in_flow}");
    }
}

/// Returns a document like a definition: words, addresses, numbers, lists and maps.
fn document(rng: &mut fastrand::Rng, depth: u32) -> Value {
    let words = [
        "a",
        "10.0.0.1",
        "yes",
        "012",
        "1e3",
        "null",
        "",
        " x ",
        "a: b",
        "- c",
        "#",
        "é\u{1f600}",
        "line\nline",
        "\ttab",
        "'",
        "\"",
        "*a",
        "&a",
        "!t",
    ];
    match rng.u32(..if depth == 0 { 5 } else { 8 }) {
        0 => Value::Bool(rng.bool()),
        1 => rng.i64(..).into(),
        2 => json!(f64::from(rng.i32(..)) / 8.0),
        3 => Value::Null,
        4 => words[rng.usize(..words.len())].into(),
        5 => (0..rng.usize(..4)).map(|_| document(rng, depth - 1)).collect(),
        _ => {
            let fields = (0..rng.usize(1..5)).map(|n| {
                let word = words[rng.usize(..words.len())];
                (format!("{word}{n}"), document(rng, depth - 1))
            });
            Value::Object(fields.collect())
        }
    }
}

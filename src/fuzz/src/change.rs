//! Changes that turn a good input into a bad one. A text is cut, has bits flipped, or has parts doubled. In JSON or
//! YAML, values and fields are swapped, removed, doubled, nested, or made huge.

use serde_json::{Value, json};

/// One change. The numbers are positions modulo the length of the input.
#[derive(Clone, Debug)]
pub(super) struct Change {
    kind: u8,
    at: usize,
    which: usize,
    more: usize,
}

impl From<(u8, usize, usize, usize)> for Change {
    fn from((kind, at, which, more): (u8, usize, usize, usize)) -> Self {
        Self { kind, at, which, more }
    }
}

/// Snippets that are significant to parsers.
pub(super) const SNIPPETS: [&str; 56] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    ":",
    ",",
    "\n",
    "\r",
    "\t",
    "\\",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{feff}",
    "\u{1f468}\u{200d}\u{1f469}",
    "e\u{301}",
    "null",
    "true",
    "-",
    "- ",
    "? ",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "|",
    ">",
    "%",
    "#",
    "{{",
    "}}",
    "{{ if ",
    "{{ end }}",
    "{{ range ",
    "(",
    ")",
    "!",
    "/",
    "*/5",
    "0",
    "1e999",
    "-1",
    "..",
    "@",
    "=",
    "~",
    "or",
    "and",
    "9999-12-31T23:59:59Z",
    "-009999-01-01T00:00:00Z",
    "\u{3000}",
    "\u{ff10}",
];

/// Returns a value of an unexpected type or size.
fn odd_value(which: usize) -> Value {
    let all = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e308),
        json!(0.5),
        json!(""),
        json!(" "),
        json!("x".repeat(10_000)),
        json!("\u{0}\u{1b}[2J\u{202e}\u{7f}\r\n"),
        json!("../../etc/passwd"),
        json!("9999-12-31T23:59:59Z"),
        json!("9999-12-30T22:00:00Z"),
        json!("-009999-01-02T01:59:59Z"),
        json!("0001-01-01T00:00:00Z"),
        json!("2026-02-30T25:61:61Z"),
        json!("18446744073709551615"),
        json!("-1"),
        json!("999999999999h"),
        json!("0/0"),
        json!([]),
        json!({}),
        json!([null]),
        json!({"": {}}),
        json!([[], {}, "", 0]),
        json!("10.0.0.300"),
        json!("\u{1f680}".repeat(40)),
        json!("http://[::1"),
        json!("{{ .Serial }}{{"),
    ];
    all[which % all.len()].clone()
}

/// Returns a text that no `Value` can represent, to be used in place of a value.
fn raw_text(which: usize, depth: usize) -> String {
    let depth = depth % 6000;
    match which % 8 {
        0 => "1e400".into(),
        1 => "99999999999999999999999999999".into(),
        2 => "-0".into(),
        3 => "NaN".into(),
        4 => format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
        5 => format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
        6 => "[".repeat(depth),
        _ => "\"\\ud800\"".into(),
    }
}

const PLACEHOLDER: &str = "@@here@@";

/// Applies these changes to a seed in order.
pub(super) fn changed(seed: &str, changes: &[Change]) -> Vec<u8> {
    let mut text = seed.to_owned();
    for change in changes {
        if change.kind % 5 < 4
            && let Some(next) = change_structure(&text, change)
        {
            text = next;
        } else if let Some(bytes) = change_text(&mut text, change) {
            // The result is no longer UTF-8.
            return bytes;
        }
    }
    text.into_bytes()
}

/// Changes the structure of a document. Returns `None` if the text is not a document.
fn change_structure(text: &str, change: &Change) -> Option<String> {
    if text.len() > 200_000 {
        return None;
    }
    let json = serde_json::from_str::<Value>(text).ok();
    let is_json = json.is_some();
    let mut value = json.or_else(|| serde_yaml::from_str(text).ok())?;
    if !matches!(value, Value::Object(_) | Value::Array(_)) {
        return None;
    }
    let places = count(&value);
    let write = |value: &Value| {
        if is_json { Some(value.to_string()) } else { serde_yaml::to_string(value).ok() }
    };
    let slot = find(&mut value, &mut (change.at % places))?;
    match change.which % 6 {
        0 | 1 => *slot = odd_value(change.more),
        2 => {
            let inside = raw_text(change.more, change.more / 8);
            *slot = Value::String(PLACEHOLDER.to_owned());
            let text = write(&value)?;
            return Some(text.replacen(&format!("\"{PLACEHOLDER}\""), &inside, 1).replacen(PLACEHOLDER, &inside, 1));
        }
        3 => {
            // Duplicate key.
            let Value::Object(map) = slot else { return None };
            let name = map.keys().nth(change.more % map.len().max(1))?.clone();
            let (twice, whole) = (odd_value(change.more / 7), Value::Object(map.clone()).to_string());
            let inside = format!("{{{}:{twice},{}", Value::String(name), whole.get(1..)?);
            *slot = Value::String(PLACEHOLDER.to_owned());
            let text = write(&value)?;
            return Some(text.replacen(&format!("\"{PLACEHOLDER}\""), &inside, 1).replacen(PLACEHOLDER, &inside, 1));
        }
        4 => match slot {
            Value::Object(map) => {
                let name = map.keys().nth(change.more % map.len().max(1))?.clone();
                map.remove(&name);
            }
            Value::Array(list) if !list.is_empty() => {
                let at = change.more % list.len();
                let one = list[at].clone();
                list.extend(std::iter::repeat_n(one, change.more / 7 % 4));
            }
            slot => *slot = Value::Null,
        },
        _ => match slot {
            Value::Object(map) => drop(map.insert(format!("x-{}", change.more % 5), odd_value(change.more / 5))),
            Value::Array(list) => list.push(odd_value(change.more)),
            slot => *slot = odd_value(change.more),
        },
    }
    write(&value)
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Object(map) => map.values().map(count).sum(),
        Value::Array(list) => list.iter().map(count).sum(),
        _ => 0,
    }
}

fn find<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Object(map) => map.values_mut().find_map(|value| find(value, left)),
        Value::Array(list) => list.iter_mut().find_map(|value| find(value, left)),
        _ => None,
    }
}

/// Changes the text. Returns bytes if the result is not UTF-8.
fn change_text(text: &mut String, change: &Change) -> Option<Vec<u8>> {
    let near = |text: &str, at: usize| {
        let mut at = at % (text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (from, to) = (near(text, change.at), near(text, change.at.wrapping_add(change.more % 40)));
    let (from, to) = (from.min(to), from.max(to));
    let snippet = SNIPPETS[change.which % SNIPPETS.len()];
    match change.more % 7 {
        0 => text.truncate(from),
        1 => text.replace_range(from..to, ""),
        2 => text.insert_str(from, snippet),
        3 => text.replace_range(from..to, snippet),
        4 => {
            let part = text[from..to].repeat(1 + change.which % 20);
            text.insert_str(from, &part);
        }
        5 => text.insert_str(from, &snippet.repeat(1 + change.which % 3000)),
        _ => {
            let mut bytes = std::mem::take(text).into_bytes();
            if let Some(byte) = bytes.get_mut(from) {
                *byte ^= 1 << (change.which % 8);
            }
            match String::from_utf8(bytes) {
                Ok(good) => *text = good,
                Err(bad) => return Some(bad.into_bytes()),
            }
        }
    }
    None
}

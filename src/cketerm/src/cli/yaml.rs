//! YAML in the format of `ckecli cluster get`: sorted keys, and double quotes around text that another parser could
//! read as a number or a boolean. A site that keeps the definition in a repository sees no difference.

use std::cmp::Ordering;

use cketerm_model::text::steers;
use serde_json::{Map, Value};

/// Order of the fields of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fields {
    Sorted,
    AsTheyStand,
}

/// Returns a JSON value as such a document.
pub fn document(value: &Value) -> String {
    written(value, Fields::Sorted)
}

/// Returns the same document with the fields in their own order.
pub fn in_given_order(value: &Value) -> String {
    written(value, Fields::AsTheyStand)
}

fn written(value: &Value, order: Fields) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => object(fields, "", order, &mut out),
        Value::Array(items) if !items.is_empty() => list(items, "", order, &mut out),
        other => {
            out.push_str(&scalar(other, ""));
            out.push('\n');
        }
    }
    out
}

fn object(fields: &Map<String, Value>, indent: &str, order: Fields, out: &mut String) {
    let mut names: Vec<&String> = fields.keys().collect();
    if order == Fields::Sorted {
        names.sort_by(|a, b| in_order(a, b));
    }
    let mut first = true;
    for name in names {
        // the first field of a list's item follows its dash
        if !first || !out.ends_with("- ") {
            out.push_str(indent);
        }
        first = false;
        out.push_str(&text(name, indent));
        out.push(':');
        match &fields[name.as_str()] {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                object(inner, &format!("{indent}  "), order, out);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                list(items, indent, order, out);
            }
            other => {
                out.push(' ');
                out.push_str(&scalar(other, indent));
                out.push('\n');
            }
        }
    }
}

fn list(items: &[Value], indent: &str, order: Fields, out: &mut String) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 || !out.ends_with("- ") {
            out.push_str(indent);
        }
        out.push_str("- ");
        let deeper = format!("{indent}  ");
        match item {
            Value::Object(inner) if !inner.is_empty() => object(inner, &deeper, order, out),
            Value::Array(inner) if !inner.is_empty() => list(inner, &deeper, order, out),
            other => {
                out.push_str(&scalar(other, indent));
                out.push('\n');
            }
        }
    }
}

fn scalar(value: &Value, indent: &str) -> String {
    match value {
        Value::String(s) => text(s, indent),
        other => other.to_string(), // null, true, 12, {}, []
    }
}

fn text(s: &str, indent: &str) -> String {
    if s.contains(steers) {
        return quoted(s);
    }
    if ambiguous(s) {
        return format!("{s:?}");
    }
    let plain = serde_yaml::to_string(s).unwrap_or_else(|_| format!("{s:?}"));
    let plain = plain.strip_suffix('\n').unwrap_or(&plain);
    // indents the lines of a block below its field
    plain.replace('\n', &format!("\n{indent}"))
}

/// Returns the text between double quotes. Terminal control characters are escaped, also those that YAML allows
/// literally.
fn quoted(s: &str) -> String {
    let inner = s.chars().map(|c| match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        c if steers(c) => match u32::from(c) {
            code @ ..=0xff => format!("\\x{code:02x}"),
            code @ ..=0xffff => format!("\\u{code:04x}"),
            code => format!("\\U{code:08x}"),
        },
        c => c.to_string(),
    });
    format!("\"{}\"", inner.collect::<String>())
}

/// Reports whether YAML 1.1 reads the text as something other than text.
fn ambiguous(s: &str) -> bool {
    const WORDS: [&str; 12] = ["", "~", "y", "n", "yes", "no", "on", "off", "true", "false", "null", "<<"];
    if WORDS.contains(&s.to_ascii_lowercase().as_str()) {
        return true;
    }
    let body = s.trim_start_matches(['+', '-']);
    let starts_like_a_number = body.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let number_characters = |c: char| c.is_ascii_hexdigit() || "xob_.+-:TtZz ".contains(c);
    if !starts_like_a_number || !body.chars().all(number_characters) {
        return matches!(body.to_ascii_lowercase().as_str(), ".inf" | ".nan");
    }
    let digits = body.replace('_', "");
    let radix = |prefix: &str| digits.strip_prefix(prefix).is_some_and(|d| d.chars().all(|c| c.is_ascii_hexdigit()));
    let base_60 = body.contains(':')
        && body.split(':').all(|p| !p.is_empty() && p.chars().all(|c| c.is_ascii_digit() || c == '.'));
    let date = body.len() >= 8
        && body.split('-').count() == 3
        && body.split(['-', ' ', 'T', 't']).take(3).all(|p| p.chars().all(|c| c.is_ascii_digit()) && !p.is_empty());
    digits.parse::<f64>().is_ok() || radix("0x") || radix("0b") || radix("0o") || base_60 || date
}

/// Compares keys with letters after everything else, as Go's YAML sorts them.
fn in_order(a: &str, b: &str) -> Ordering {
    for (x, y) in a.chars().zip(b.chars()) {
        if x != y {
            return x.is_alphabetic().cmp(&y.is_alphabetic()).then(x.cmp(&y));
        }
    }
    a.len().cmp(&b.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_printed_like_ckecli() {
        let value = json!({
            "name": "t", "dns_service": "", "dns_servers": null,
            "nodes": [{"address": "10.0.0.1", "labels": {"a": "true", "b": "1", "c": "x"}, "taints": []}],
            "reboot": {"reboot_command": ["sh", "-c", "a: b"], "command_retries": null},
            "empty": {},
        });
        let wanted = "\
dns_servers: null
dns_service: \"\"
empty: {}
name: t
nodes:
- address: 10.0.0.1
  labels:
    a: \"true\"
    b: \"1\"
    c: x
  taints: []
reboot:
  command_retries: null
  reboot_command:
  - sh
  - -c
  - 'a: b'
";
        assert_eq!(document(&value), wanted);
    }

    #[test]
    fn printed_yaml_is_parsed_back() {
        let odd = [
            "",
            "yes",
            "N",
            "0x1f",
            "1_000",
            "1:30",
            "2026-01-01",
            "a\nb",
            "a\nb\n",
            " x",
            "# c",
            "10.0.0.1",
            "::1",
            "é",
            "\u{1b}[2J",
            "-",
            "{a}",
            ".5",
            "1e3",
            "\t",
            "a\u{9b}31m\u{85}\n\"b\"\r\\",
            "\u{202e}\u{2028}\u{e0041}",
            "a\nb\u{1b}]0;x\u{7}\n",
        ];
        let value = json!({"list": odd, "deep": [[{"a": odd[7]}], ["x", "y"]], "k: e": {"~": {"x": odd[8]}}});
        let printed = document(&value);
        let read: Value = serde_yaml::from_str(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        assert_eq!(read, value, "{printed}");
        let read: Value = serde_yaml::from_str(&in_given_order(&value)).unwrap();
        assert_eq!(read, value);
    }
}

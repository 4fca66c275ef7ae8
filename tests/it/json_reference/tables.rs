//! The document: its sections with their tables, and the comparison of an answer with them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Section of the document.
#[derive(Debug)]
pub struct Section {
    /// Heading as written.
    pub heading: String,
    /// Text below it, up to the next heading.
    pub text: String,
    rows: Vec<Row>,
    /// Whether a test writes its tables from the sources.
    is_generated: bool,
}

/// Row of a table.
#[derive(Debug)]
struct Row {
    path: String,
    kinds: Vec<String>,
    absent: String,
}

/// Returns the anchor of a heading.
pub fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Texts between backticks.
pub fn code_spans(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the sections of a document.
pub fn sections(text: &str) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
            let heading = heading.to_owned();
            all.push(Section { heading, text: String::new(), rows: Vec::new(), is_generated: false });
        } else if let Some(section) = all.last_mut() {
            section.text.push_str(line);
            section.text.push('\n');
        }
    }
    for section in &mut all {
        section.is_generated = section.text.contains("<!-- from: ");
        section.rows = rows(&section.text);
    }
    all
}

fn rows(text: &str) -> Vec<Row> {
    let (mut all, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("| field |") {
            inside = true;
        } else if inside && line.starts_with("| `") {
            let cells: Vec<&str> = line.trim_matches('|').splitn(4, " | ").map(str::trim).collect();
            let [path, kinds, absent, _] = cells.as_slice() else { panic!("not four cells: {line}") };
            let kinds = kinds.split("; or ").map(str::to_owned).collect();
            all.push(Row { path: path.trim_matches('`').to_owned(), kinds, absent: (*absent).to_owned() });
        } else if !line.starts_with("| ---") {
            inside = false;
        }
    }
    all
}

impl Row {
    /// Path of the object that holds the field.
    fn parent(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(parent, _)| parent)
    }
}

/// Comparison of answers with the document.
pub struct Comparison<'a> {
    sections: &'a [Section],
    seen: BTreeSet<(usize, usize)>,
    /// Differences, each once.
    pub differences: BTreeSet<String>,
}

impl<'a> Comparison<'a> {
    /// Creates a comparison without an answer.
    pub fn with(sections: &'a [Section]) -> Self {
        Self { sections, seen: BTreeSet::new(), differences: BTreeSet::new() }
    }

    /// Compares an answer with the section of its command.
    pub fn compare(&mut self, command: &str, answer: &Value) {
        let is_its = |section: &Section| code_spans(&section.heading).iter().any(|span| span == command);
        let Some(section) = self.sections.iter().position(is_its) else {
            self.differences.insert(format!("no section has the heading `{command}`"));
            return;
        };
        let text = &self.sections[section].text;
        let written = if answer.is_array() { "Prints an array" } else { "Prints " };
        if !text.contains(written) || (!answer.is_array() && text.contains("Prints an array")) {
            self.differences.insert(format!("`{command}`: array or not is written otherwise"));
        }
        if !self.sections[section].rows.is_empty() {
            self.walk(section, "", answer);
        }
    }

    /// Rows written by hand that must occur and did not.
    pub fn missing(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (i, section) in self.sections.iter().enumerate().filter(|(_, section)| !section.is_generated) {
            for (j, row) in section.rows.iter().enumerate() {
                if row.absent.is_empty() && !self.seen.contains(&(i, j)) {
                    all.push(format!("{}: `{}` occurs in no answer", section.heading, row.path));
                }
            }
        }
        all
    }

    fn walk(&mut self, section: usize, path: &str, value: &Value) {
        match value {
            Value::Array(list) => list.iter().for_each(|one| self.walk(section, path, one)),
            Value::Object(fields) => self.object(section, path, fields),
            Value::String(text) => {
                let described = code_spans(&self.sections[section].text).contains(text);
                self.expect(described, section, path, &format!("the text {text:?} is not described"));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                self.expect(path.is_empty(), section, path, &format!("{value} is not described"));
            }
        }
    }

    fn object(&mut self, section: usize, path: &str, fields: &Map<String, Value>) {
        let sections = self.sections;
        let rows = &sections[section].rows;
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (name, value) in fields {
            let named = |at: &str| rows.iter().enumerate().filter(|(_, row)| row.path == at).collect::<Vec<_>>();
            let mut found = named(&below(name));
            if found.is_empty() {
                found = named(&below("*"));
            }
            self.expect(!found.is_empty(), section, &below(name), "the field is not described");
            self.seen.extend(found.iter().map(|(j, _)| (section, *j)));
            if found.is_empty() {
                continue;
            }
            if value.is_null() {
                let may_be = found.iter().any(|(_, row)| row.absent.contains("null"));
                self.expect(may_be, section, &below(name), "null is not described");
                continue;
            }
            let kinds = found.iter().flat_map(|(_, row)| row.kinds.iter().map(|kind| (&row.path, kind)));
            let fitting: Vec<_> = kinds.clone().filter(|(_, kind)| fits(kind, value)).collect();
            if fitting.is_empty() {
                let kinds: Vec<&String> = kinds.map(|(_, kind)| kind).collect();
                self.expect(false, section, &below(name), &format!("{value} is none of {kinds:?}"));
            }
            // of several objects that it may be, it has to be one
            let trials = fitting.into_iter().map(|(path, kind)| {
                let mut trial = Self::with(sections);
                trial.descend(section, path, kind, value);
                trial
            });
            if let Some(best) = trials.min_by_key(|trial| trial.differences.len()) {
                self.seen.extend(best.seen);
                self.differences.extend(best.differences);
            }
        }
        for row in rows.iter().filter(|row| row.parent() == path && row.absent.is_empty()) {
            let name = row.path.rsplit('.').next().unwrap_or_default();
            let there = name == "*" || fields.contains_key(name);
            self.expect(there, section, &row.path, "the field is absent, and the document says always there");
        }
    }

    fn descend(&mut self, section: usize, path: &str, kind: &str, value: &Value) {
        if let Some(map) = kind.strip_prefix("map of ") {
            for one in value.as_object().into_iter().flat_map(Map::values) {
                let fits = fits(map, one);
                self.expect(fits, section, path, &format!("{one} is no {map}"));
                if fits {
                    self.descend(section, &format!("{path}.*"), map, one);
                }
            }
            return;
        }
        if let Some(list) = kind.strip_prefix("array of ") {
            value.as_array().into_iter().flatten().for_each(|one| self.descend(section, path, list, one));
            return;
        }
        if let Some((_, target)) = kind.split_once("](#") {
            let target = target.trim_end_matches(')');
            match self.sections.iter().position(|section| anchor(&section.heading) == target) {
                Some(target) => self.walk(target, "", value),
                None => self.expect(false, section, path, &format!("no section has the anchor {target}")),
            }
        } else if kind.starts_with("object") {
            self.walk(section, path, value);
        }
    }

    fn expect(&mut self, good: bool, section: usize, path: &str, what: &str) {
        if !good {
            self.differences.insert(format!("{}: `{path}`: {what}", self.sections[section].heading));
        }
    }
}

/// Whether a value has this type.
fn fits(kind: &str, value: &Value) -> bool {
    if let Some(inner) = kind.strip_prefix("array of ") {
        return value.as_array().is_some_and(|list| list.iter().all(|one| fits(inner, one)));
    }
    if let Some(names) = kind.strip_prefix("string: ") {
        return value.as_str().is_some_and(|text| code_spans(names).iter().any(|name| name == text));
    }
    if kind.starts_with("array: ") {
        return value.is_array();
    }
    if kind.starts_with("map of ") || kind.starts_with("object") {
        return value.is_object();
    }
    match kind.trim_end_matches('s') {
        "string" => value.is_string(),
        "time" => value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "any" => true,
        link if link.contains("](#") => value.is_object() || value.is_string(),
        link if link.contains("](") => true,
        other => panic!("the type {other:?} is not known"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "## `a list`\n\nPrints an array of objects:\n\n| field | type | absent or null | meaning |\n\
                        | --- | --- | --- | --- |\n| `name` | string |  | x |\n| `at` | time | null if none | x |\n\
                        | `state` | string: `on`, `off` | absent if none | x |\n| `who` | [user](#user) |  | x |\n\
                        | `all` | array of objects |  | x |\n| `all.n` | integer |  | x |\n\n\
                        ## User\n\n| field | type | absent or null | meaning |\n| --- | --- | --- | --- |\n\
                        | `user` | string |  | x |\n";

    fn differences(answer: &Value) -> Vec<String> {
        let sections = sections(TEXT);
        let mut comparison = Comparison::with(&sections);
        comparison.compare("a list", answer);
        let missing = comparison.missing();
        comparison.differences.into_iter().chain(missing).collect()
    }

    #[test]
    fn an_answer_that_the_document_describes_has_no_difference() {
        let good = json!([{"name": "x", "at": null, "who": {"user": "u"}, "all": [{"n": 1}]}]);
        assert_eq!(differences(&good), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_found() {
        let good = json!({"name": "x", "at": null, "who": {"user": "u"}, "all": [{"n": 1}]});
        let cases = [
            ("/more", json!(1), "the field is not described"),
            ("/name", json!(1), "is none of"),
            ("/name", json!(null), "null is not described"),
            ("/at", json!("soon"), "is none of"),
            ("/state", json!("odd"), "is none of"),
            ("/who/host", json!("h"), "the field is not described"),
            ("/all/0/n", json!("1"), "is none of"),
            ("/all/0/m", json!(1), "the field is not described"),
            ("/all", json!([{}]), "always there"),
            ("/all", json!([]), "occurs in no answer"),
        ];
        for (path, value, expected) in cases {
            let mut answer = good.clone();
            let (parent, name) = path.rsplit_once('/').unwrap();
            answer.pointer_mut(parent).unwrap()[name] = value;
            let found = differences(&json!([answer]));
            assert!(found.iter().any(|line| line.contains(expected)), "{path}: {found:?}");
        }
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove("name");
        assert!(!differences(&json!([without])).is_empty());
        assert!(!differences(&good).is_empty(), "not an array");
    }
}

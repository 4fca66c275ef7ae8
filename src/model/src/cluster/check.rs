//! Check of a definition that an operator wants to set. It reports every fault with its place, not only the first
//! (CLU-31).

use std::fmt;

use serde_json::{Map, Value};

use super::{
    Cluster, limits,
    schema::{CLUSTER, Object, Shape},
};
use crate::{constraints::Constraints, text::nearest};

/// One fault at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The place: `reboot.command_retries`, `nodes[3].address`.
    pub path: String,
    /// The fault and its remedy.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.what) } else { write!(f, "{} {}", self.path, self.what) }
    }
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// Faults that bar the definition.
    pub faults: Vec<Fault>,
    /// Warnings for the operator.
    pub warnings: Vec<Fault>,
}

impl Checked {
    pub(super) fn fault(&mut self, path: impl Into<String>, what: impl Into<String>) {
        self.faults.push(Fault { path: path.into(), what: what.into() });
    }

    pub(super) fn warn(&mut self, path: impl Into<String>, what: impl Into<String>) {
        self.warnings.push(Fault { path: path.into(), what: what.into() });
    }
}

/// Checks a parsed definition. With constraints it also checks the number of control planes.
pub fn check(definition: &Value, constraints: Option<&Constraints>) -> Checked {
    check_definition(definition, false, constraints)
}

/// Checks the shape of a parsed template: a definition whose nodes have no addresses, and labels in Go's template
/// syntax. `sabakan::Template` checks whether its nodes make a template.
pub fn check_template(template: &Value) -> Checked {
    check_definition(template, true, None)
}

fn check_definition(definition: &Value, template: bool, constraints: Option<&Constraints>) -> Checked {
    let mut found = Checked::default();
    match definition {
        Value::Object(fields) => object(&CLUSTER, fields, "", &mut found),
        other => found.fault("", format!("the definition is {}, not a map of fields", kind(other))),
    }
    if !found.faults.is_empty() {
        return found; // the limits need a readable definition
    }
    match serde_json::from_value::<Cluster>(definition.clone()) {
        Ok(cluster) => limits::check(&cluster, definition, template, constraints, &mut found),
        Err(e) => found.fault("", format!("the definition cannot be read: {e}")),
    }
    found
}

/// Returns the faults in the sections of a stored definition that the queues depend on. A program with fewer checks may
/// have stored it.
pub fn queue_faults(cluster: &Cluster) -> Vec<Fault> {
    let mut found = Checked::default();
    limits::queues(cluster, &Value::Null, &mut found);
    found.faults
}

fn object(shape: &Object, fields: &Map<String, Value>, at: &str, found: &mut Checked) {
    for (name, value) in fields {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        if let Some(field) = shape.fields.iter().find(|f| f.name == name) {
            if !value.is_null() {
                walk(&field.shape, value, &path, found);
            }
            continue;
        }
        let known = || shape.fields.iter().map(|f| f.name);
        let hint = match nearest(name, known()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known fields: {}", known().collect::<Vec<_>>().join(", ")),
        };
        if shape.strict {
            found.fault(path, format!("is not a known field; {hint}"));
        } else {
            found.warn(path, format!("is not a known field and is kept as it is; {hint}"));
        }
    }
}

fn walk(shape: &Shape, value: &Value, at: &str, found: &mut Checked) {
    match (shape, value) {
        (Shape::Free, _)
        | (Shape::Text, Value::String(_))
        | (Shape::Flag, Value::Bool(_))
        // CKE reads null as the zero value.
        | (Shape::List(_) | Shape::Map(_) | Shape::Object(_), Value::Null) => {}
        (Shape::Number, Value::Number(n)) if n.is_i64() => {}
        (Shape::List(inner), Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                walk(inner, item, &format!("{at}[{i}]"), found);
            }
        }
        (Shape::Map(inner), Value::Object(fields)) => {
            for (name, item) in fields {
                walk(inner, item, &format!("{at}[{name}]"), found);
            }
        }
        (Shape::Object(inner), Value::Object(fields)) => object(inner, fields, at, found),
        (Shape::Flag, Value::String(word)) if yaml_1_1(word).is_some() => {
            let meant = yaml_1_1(word).unwrap_or_default();
            found.fault(at, format!("must be true or false; {word:?} is a boolean only in YAML 1.1, write {meant}"));
        }
        (Shape::Text, other) => found.fault(at, format!("must be text, not {}; put it in quotes", kind(other))),
        (Shape::Flag, other) => found.fault(at, format!("must be true or false, not {}", kind(other))),
        (Shape::Number, other) => found.fault(at, format!("must be a whole number, not {}", kind(other))),
        (Shape::List(_), other) => found.fault(at, format!("must be a list, not {}", kind(other))),
        (Shape::Map(_) | Shape::Object(_), other) => {
            found.fault(at, format!("must be a map of fields, not {}", kind(other)));
        }
    }
}

fn yaml_1_1(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "yes" | "y" | "on" => Some(true),
        "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "empty".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::String(text) => format!("{text:?}"),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

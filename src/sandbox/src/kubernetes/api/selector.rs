//! Label selectors and field selectors of a query.

use serde_json::Value;

use super::{status_error::StatusError, validate};
use crate::kubernetes::Resource;

/// Both selectors of a request. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    labels: Vec<Requirement>,
    fields: Vec<Field>,
}

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

/// One requirement on a field: path, value, equal or not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    path: String,
    value: String,
    equal: bool,
}

impl Selection {
    /// Parses `labelSelector` and `fieldSelector`.
    pub(super) fn read(kind: &'static Resource, labels: &str, fields: &str) -> Result<Self, StatusError> {
        Ok(Self { labels: read_labels(labels)?, fields: read_fields(kind, fields)? })
    }

    /// Reports whether it selects everything.
    pub(super) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Adds a requirement on the name, for the old form of a watch on one object.
    pub(super) fn and_name(mut self, name: &str) -> Self {
        self.fields.push(Field { path: "metadata.name".to_owned(), value: name.to_owned(), equal: true });
        self
    }

    /// Reports whether it selects this object.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|r| r.holds(labels)) && self.fields.iter().all(|f| f.holds(object))
    }
}

impl Requirement {
    fn holds(&self, labels: &Value) -> bool {
        let value = |key: &String| labels.get(key).and_then(Value::as_str);
        let any = |values: &[String], is: &str| values.iter().any(|v| v == is);
        match self {
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
            Self::In(key, values) => value(key).is_some_and(|is| any(values, is)),
            Self::NotIn(key, values) => value(key).is_none_or(|is| !any(values, is)),
        }
    }
}

impl Field {
    fn holds(&self, object: &Value) -> bool {
        let at = |path: &str| path.split('.').try_fold(object, |at, step| at.get(step));
        // An event is stored with the field names of the group in which it was written.
        let other = || match self.path.split_once('.')? {
            ("involvedObject", rest) => at(&format!("regarding.{rest}")),
            ("regarding", rest) => at(&format!("involvedObject.{rest}")),
            _ => None,
        };
        let found = at(&self.path).or_else(other);
        let equal = match found {
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Bool(flag)) => flag.to_string() == self.value,
            Some(Value::Number(number)) => number.to_string() == self.value,
            _ if self.path == "spec.unschedulable" || self.path == "spec.hostNetwork" => self.value == "false",
            _ if self.path.starts_with("status.rep") || self.path == "status.successful" => self.value == "0",
            _ => self.value.is_empty(),
        };
        equal == self.equal
    }
}

/// Returns the fields of a kind that can be selected, besides name and namespace.
fn known(kind: &'static Resource) -> &'static [&'static str] {
    match kind.plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "replicasets" => &["status.replicas"],
        "jobs" => &["status.successful"],
        "services" => &["spec.clusterIP", "spec.type"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "reportingComponent",
            "reportingController",
            "source",
            "type",
        ],
        _ => &[],
    }
}

fn read_fields(kind: &'static Resource, text: &str) -> Result<Vec<Field>, StatusError> {
    let mut out = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
            (path, value, false)
        } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (path, value, true)
        } else {
            return Err(StatusError::bad(format!("invalid selector: '{text}'; can't understand '{part}'")));
        };
        let named = path == "metadata.name" || (path == "metadata.namespace" && kind.namespaced);
        if !named && !known(kind).contains(&path) {
            return Err(StatusError::bad(if known(kind).is_empty() {
                format!("\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {path}")
            }));
        }
        out.push(Field { path: path.to_owned(), value: value.to_owned(), equal });
    }
    Ok(out)
}

/// Splits a text into words and the signs between them.
fn tokens(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        let plain = !matches!(sign, ',' | '(' | ')' | '=' | '!' | '<' | '>') && !sign.is_whitespace();
        if plain {
            word.push(sign);
            continue;
        }
        if !word.is_empty() {
            out.push(std::mem::take(&mut word));
        }
        if sign.is_whitespace() {
            continue;
        }
        let mut token = String::from(sign);
        if matches!(sign, '=' | '!') && signs.peek() == Some(&'=') {
            signs.next();
            token.push('=');
        }
        out.push(token);
    }
    if !word.is_empty() {
        out.push(word);
    }
    out
}

fn is_word(token: &str) -> bool {
    !matches!(token, "" | "," | "(" | ")" | "=" | "==" | "!=" | "!" | "<" | ">")
}

fn read_labels(text: &str) -> Result<Vec<Requirement>, StatusError> {
    let fault = |found: &str, expected: &str| {
        StatusError::bad(format!("unable to parse requirement: found '{found}', expected: {expected}"))
    };
    let tokens = tokens(text);
    let mut rest = tokens.iter().map(String::as_str).peekable();
    let mut out = Vec::new();
    while let Some(first) = rest.next() {
        if first == "!" {
            let key = rest.next().unwrap_or("");
            if !is_word(key) {
                return Err(fault(key, "identifier"));
            }
            check_key(key)?;
            out.push(Requirement::Absent(key.to_owned()));
        } else if is_word(first) {
            let key = first.to_owned();
            check_key(first)?;
            match rest.peek().copied().unwrap_or("") {
                "" | "," => out.push(Requirement::Exists(key)),
                sign @ ("=" | "==" | "!=") => {
                    rest.next();
                    let value = rest.next_if(|t| is_word(t)).unwrap_or("").to_owned();
                    check_values(first, std::slice::from_ref(&value))?;
                    out.push(if sign == "!=" {
                        Requirement::NotIn(key, vec![value])
                    } else {
                        Requirement::In(key, vec![value])
                    });
                }
                set @ ("in" | "notin") => {
                    rest.next();
                    let values = read_set(&mut rest, fault)?;
                    check_values(first, &values)?;
                    out.push(if set == "in" { Requirement::In(key, values) } else { Requirement::NotIn(key, values) });
                }
                other => return Err(fault(other, "in, notin, =, ==, !=, gt, lt")),
            }
        } else {
            return Err(fault(first, "!, identifier, or 'end of string'"));
        }
        match rest.next() {
            None => break,
            Some(",") if rest.peek().is_some() => {}
            Some(",") => return Err(fault("", "identifier after ','")),
            Some(other) => return Err(fault(other, "',' or 'end of string'")),
        }
    }
    Ok(out)
}

fn check_key(key: &str) -> Result<(), StatusError> {
    validate::key_error(key).map_or(Ok(()), |why| {
        Err(StatusError::bad(format!("unable to parse requirement: <nil>: Invalid value: \"{key}\": {why}")))
    })
}

fn check_values(key: &str, values: &[String]) -> Result<(), StatusError> {
    for (i, value) in values.iter().enumerate() {
        if let Some(why) = validate::value_error(value) {
            let at = format!("values[{i}][{key}]");
            return Err(StatusError::bad(format!(
                "unable to parse requirement: {at}: Invalid value: \"{value}\": {why}"
            )));
        }
    }
    Ok(())
}

/// Parses `(a,b)` after `in`.
fn read_set<'a>(
    rest: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    fault: impl Fn(&str, &str) -> StatusError,
) -> Result<Vec<String>, StatusError> {
    match rest.next().unwrap_or("") {
        "(" => {}
        other => return Err(fault(other, "'('")),
    }
    let mut values = Vec::new();
    loop {
        match rest.next().unwrap_or("") {
            ")" => return Ok(values),
            "," => {}
            word if is_word(word) => values.push(word.to_owned()),
            other => return Err(fault(other, "',', ')' or identifier")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::resource::{BUDGETS, NODES, PODS};

    #[test]
    fn labels_are_selected_by_value_set_and_presence() {
        let pod = json!({"metadata": {"labels": {"app": "a", "tier": ""}}});
        let selects = |text: &str| Selection::read(&PODS, text, "").unwrap().matches(&pod);
        for text in
            ["", "app", "app=a", "app==a", "app in (a, b)", "app!=b", "x!=b", "!x", "x notin (a)", "tier=", "app,tier"]
        {
            assert!(selects(text), "{text}");
        }
        for text in ["x", "app=b", "app!=a", "!app", "app in (b)", "app notin (a,b)", "app in ()", "app=a,x"] {
            assert!(!selects(text), "{text}");
        }
        for text in
            ["a b", "a in (", "a in b", "(", "a,", "!", "a=b c", "a in (b", ",,", "-a=b", "a=-b", "a in (b,c-)", "!.a"]
        {
            assert_eq!(Selection::read(&PODS, text, "").unwrap_err().code, 400, "{text}");
        }
        let message = Selection::read(&PODS, "a b", "").unwrap_err().body["message"].clone();
        assert_eq!(message, "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
    }

    #[test]
    fn only_the_field_selectors_of_a_kind_are_supported() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        let selects = |text: &str| Selection::read(&PODS, "", text).unwrap().matches(&pod);
        assert!(selects("spec.nodeName=n,status.phase!=Failed,metadata.name==p"));
        assert!(!selects("spec.nodeName="));
        let bare = Selection::read(&NODES, "", "spec.unschedulable=false").unwrap();
        assert!(bare.matches(&json!({"spec": {}})));
        assert!(!bare.matches(&json!({"spec": {"unschedulable": true}})));
        for (kind, text) in [(&NODES, "spec.foo=a"), (&NODES, "foo"), (&BUDGETS, "spec.a=b")] {
            assert_eq!(Selection::read(kind, "", text).unwrap_err().code, 400, "{text}");
        }
    }
}

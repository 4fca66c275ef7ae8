//! Variables of the query to sabakan. They are stored under `sabakan/query-variables` and `auto-repair/query-variables`
//! as the operator gave them (SAB-3 to SAB-5).

use cketerm_model::text::nearest;
use serde_json::{Map, Value};

/// The conditions of a `MachineParams`.
const PARAMS: [&str; 5] = ["labels", "racks", "roles", "states", "minDaysBeforeRetire"];
/// Sabakan's states, as its schema spells them.
pub const STATES: [&str; 7] =
    ["UNINITIALIZED", "HEALTHY", "UNHEALTHY", "UNREACHABLE", "UPDATING", "RETIRING", "RETIRED"];

/// Parses and checks stored or given variables: an object with `having` and `notHaving`, each absent, `null` or a
/// `MachineParams`. An absent one stays absent, so that the query's default holds. An explicit `null` is passed on. The
/// error names the field and the accepted values; sabakan itself silently ignores unknown variables.
pub fn parse(text: &str) -> Result<Map<String, Value>, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("the variables are not JSON: {e}"))?;
    let Value::Object(variables) = value else {
        return Err(format!("the variables must be a JSON object with `having` and `notHaving`, not {}", kind(&value)));
    };
    for (name, params) in &variables {
        if !["having", "notHaving"].contains(&name.as_str()) {
            return Err(unknown("", name, &["having", "notHaving"]));
        }
        match params {
            Value::Null => {}
            Value::Object(params) => check(name, params)?,
            other => return Err(format!("{name} must be a map of conditions, not {}", kind(other))),
        }
    }
    Ok(variables)
}

fn check(at: &str, params: &Map<String, Value>) -> Result<(), String> {
    for (name, value) in params {
        let path = format!("{at}.{name}");
        match (name.as_str(), value) {
            (_, Value::Null) if PARAMS.contains(&name.as_str()) => {}
            ("labels", Value::Array(labels)) => labels.iter().try_for_each(|l| label(&path, l))?,
            ("racks", Value::Array(racks)) => racks.iter().try_for_each(|r| check_integer(&path, r))?,
            ("roles", Value::Array(roles)) => roles.iter().try_for_each(|r| text(&path, r).map(drop))?,
            ("states", Value::Array(states)) => states.iter().try_for_each(|s| state(&path, s))?,
            ("labels" | "racks" | "roles" | "states", other) => {
                return Err(format!("{path} must be a list, not {}", kind(other)));
            }
            ("minDaysBeforeRetire", days) => check_integer(&path, days)?,
            _ => return Err(unknown(at, name, &PARAMS)),
        }
    }
    Ok(())
}

fn label(path: &str, value: &Value) -> Result<(), String> {
    let Value::Object(fields) = value else {
        return Err(format!("{path} must hold objects with name and value, not {}", kind(value)));
    };
    if let Some(name) = fields.keys().find(|k| !["name", "value"].contains(&k.as_str())) {
        return Err(unknown(path, name, &["name", "value"]));
    }
    for field in ["name", "value"] {
        match fields.get(field) {
            None => return Err(format!("{path} has a label without {field}")),
            Some(given) => text(path, given).map(drop)?,
        }
    }
    Ok(())
}

fn state(path: &str, value: &Value) -> Result<(), String> {
    let given = text(path, value)?;
    if STATES.contains(&given) {
        return Ok(());
    }
    let hint = nearest(&given.to_uppercase(), STATES)
        .map_or_else(|| format!("known: {}", STATES.join(", ")), |near| format!("did you mean {near}?"));
    // the wording of CKE
    Err(format!("invalid state: {given} ({path}); {hint}"))
}

fn check_integer(path: &str, value: &Value) -> Result<(), String> {
    // sabakan accepts "1" for 1 too
    let number = value.is_i64() || value.as_str().is_some_and(|t| t.parse::<i64>().is_ok());
    if number { Ok(()) } else { Err(format!("{path} must be a whole number, not {}", kind(value))) }
}

fn text<'a>(path: &str, value: &'a Value) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{path} must be text, not {}", kind(value)))
}

fn unknown(at: &str, name: &str, known: &[&str]) -> String {
    let place = if at.is_empty() { String::new() } else { format!("{at}.") };
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("{place}{name} is not a known variable; did you mean {near}?"),
        None => format!("{place}{name} is not a known variable; known: {}", known.join(", ")),
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_variables_stay_absent_and_null_stays_null() {
        let both = parse(r#"{"having": null, "notHaving": {}}"#).unwrap();
        assert_eq!((both.get("having"), both.get("notHaving").is_some()), (Some(&Value::Null), true));
        assert!(parse("{}").unwrap().is_empty());
        assert!(!parse(r#"{"having": {"roles": ["gpu"]}}"#).unwrap().contains_key("notHaving"));
    }

    #[test]
    fn variables_that_sabakan_accepts_are_accepted() {
        for good in [
            r#"{"having": {"labels": [{"name": "a", "value": "b"}], "racks": [0, "1"], "roles": ["cs"],
                "states": ["HEALTHY", "RETIRING"], "minDaysBeforeRetire": -10}}"#,
            r#"{"notHaving": {"racks": null}}"#,
        ] {
            parse(good).unwrap();
        }
    }

    #[test]
    fn variables_that_sabakan_refuses_or_ignores_are_refused_by_name() {
        for (bad, names) in [
            ("[]", "object"),
            ("{", "JSON"),
            (r#"{"foo": 1}"#, "foo"),
            (r#"{"nothaving": {}}"#, "notHaving?"),
            (r#"{"having": {"state": []}}"#, "having.state is not a known variable; did you mean states?"),
            (r#"{"having": {"states": ["UNHELTHY"]}}"#, "UNHEALTHY?"),
            (r#"{"having": {"states": ["healthy"]}}"#, "invalid state: healthy (having.states); did you mean HEALTHY?"),
            (r#"{"notHaving": {"states": ["RETIRED", "gone"]}}"#, "invalid state: gone"),
            (r#"{"having": {"states": "HEALTHY"}}"#, "having.states must be a list"),
            (r#"{"having": {"labels": [{"name": "a"}]}}"#, "without value"),
            (r#"{"having": {"racks": [1.5]}}"#, "whole number"),
            (r#"{"having": 3}"#, "having must be"),
        ] {
            let why = parse(bad).unwrap_err();
            assert!(why.contains(names), "{bad}: {why}");
        }
    }
}

//! Actions on what decisions are made by: policy and constraints.

use serde_json::{Map, Value};

use super::{ActionError, Operator};
use crate::model::{constraints::Constraints, policy::Policy, text::nearest};

/// The constraints by name.
pub const CONSTRAINTS: [&str; 7] = [
    "control-plane-count",
    "minimum-workers-rate",
    "maximum-unreachable-nodes-for-reboot",
    "maximum-repair-queue-entries",
    "wait-seconds-to-repair-rebooting",
    "minimum-workers",
    "maximum-workers",
];

impl Operator {
    /// Sets one field of the policy, judged by its type.
    pub async fn set_policy(&self, name: &str, value: &str, reason: Option<&str>) -> Result<Policy, ActionError> {
        with_field(&Policy::default(), name, value).map_err(ActionError::misused)?;
        let set = self.store.update_policy(&self.who, reason, |policy| {
            *policy = with_field(policy, name, value)?;
            Ok(())
        });
        Ok(set.await?)
    }

    /// Sets one constraint.
    pub async fn set_constraint(
        &self,
        name: &str,
        value: &str,
        reason: Option<&str>,
    ) -> Result<Constraints, ActionError> {
        let number = constraint(name, value).map_err(ActionError::misused)?;
        let set = self.store.update_constraints(&self.who, reason, |c| {
            put(c, name, number);
            match (c.minimum_workers, c.maximum_workers) {
                (Some(least), Some(most)) if most > 0 && least > most => {
                    Err(format!("constraint minimum-workers ({least}) would be above maximum-workers ({most})"))
                }
                _ => Ok(()),
            }
        });
        Ok(set.await?)
    }
}

/// A constraint's number from text; the sentence says what is wrong with its name or its value.
pub fn constraint(name: &str, value: &str) -> Result<i64, String> {
    if !CONSTRAINTS.contains(&name) {
        return Err(unknown_constraint(name));
    }
    let number = value.parse::<i64>();
    let number = number.map_err(|_| format!("constraint {name} must be a whole number, not {value:?}"))?;
    if number < 0 {
        return Err(format!("constraint {name} must not be negative, is {number}"));
    }
    if name == "minimum-workers-rate" && number > 100 {
        return Err(format!("constraint {name} is a percentage, at most 100, is {number}"));
    }
    Ok(number)
}

/// That there is no constraint of this name, and which one was probably meant.
pub fn unknown_constraint(name: &str) -> String {
    unknown("constraint", name, CONSTRAINTS)
}

fn put(c: &mut Constraints, name: &str, number: i64) {
    match name {
        "control-plane-count" => c.control_plane_count = number,
        "minimum-workers-rate" => c.minimum_workers_rate = number,
        "maximum-unreachable-nodes-for-reboot" => c.maximum_unreachable_nodes_for_reboot = number,
        "maximum-repair-queue-entries" => c.maximum_repair_queue_entries = number,
        "wait-seconds-to-repair-rebooting" => c.wait_seconds_to_repair_rebooting = number,
        "minimum-workers" => c.minimum_workers = Some(number),
        "maximum-workers" => c.maximum_workers = Some(number),
        _ => {} // `set_constraint` let nothing else through
    }
}

fn unknown(what: &str, name: &str, known: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let known: Vec<String> = known.into_iter().map(|k| k.as_ref().to_owned()).collect();
    match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("no such {what}: {name}; did you mean {near}?"),
        None => format!("no such {what}: {name}; there are {}", known.join(", ")),
    }
}

/// `policy` with one field set from text; the sentence says why not.
fn with_field(policy: &Policy, name: &str, text: &str) -> Result<Policy, String> {
    let defaults = fields(&Policy::default())?;
    if ["windows", "freeze", "groups"].contains(&name) {
        return Err(format!("policy {name} is not in this version: it changes no decision yet"));
    }
    let Some(default) = defaults.get(name) else {
        return Err(unknown("policy field", name, defaults.keys()));
    };
    let value = match default {
        Value::Number(_) => {
            let number = text.parse::<u64>();
            number.map_err(|_| format!("policy {name} must be a whole number, not negative, not {text:?}"))?.into()
        }
        Value::Bool(_) => {
            let flag = text.parse::<bool>();
            flag.map_err(|_| format!("policy {name} must be true or false, not {text:?}"))?.into()
        }
        _ => Value::String(text.to_owned()),
    };
    within(name, &value)?;
    let mut all = fields(policy)?;
    all.insert(name.to_owned(), value);
    // the only values that can still be wrong are words: serde names those it knows
    serde_json::from_value(Value::Object(all)).map_err(|e| format!("policy {name}: {e}"))
}

fn within(name: &str, value: &Value) -> Result<(), String> {
    let number = value.as_u64().unwrap_or_default();
    match name {
        "gate_percent" if number > 100 => Err(format!("policy {name} is a percentage, at most 100, not {number}")),
        "command_cap_seconds" | "sabakan_poll_seconds" | "stuck_seconds" if number == 0 => {
            Err(format!("policy {name} must be positive"))
        }
        "control_plane_probe" => {
            let text = value.as_str().unwrap_or_default();
            let url = text.starts_with("http://") || text.starts_with("https://");
            if text == "node" || (url && text.contains("{address}")) {
                Ok(())
            } else {
                Err(format!("policy {name} must be `node`, or an http(s) URL with {{address}} in it, not {text:?}"))
            }
        }
        _ => Ok(()),
    }
}

fn fields(policy: &Policy) -> Result<Map<String, Value>, String> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("the policy is not an object".to_owned()),
        Err(e) => Err(format!("the policy cannot be written: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::ApiServerOrder;

    fn set(name: &str, text: &str) -> Result<Policy, String> {
        with_field(&Policy::default(), name, text)
    }

    #[test]
    fn a_field_is_judged_by_its_type() {
        assert_eq!(set("api_server_order", "first").unwrap().api_server_order, ApiServerOrder::First);
        assert_eq!(set("settle_seconds", "5").unwrap().settle_seconds, 5);
        assert!(set("metal3_controller", "true").unwrap().metal3_controller);
        assert!(set("settle_seconds", "-5").unwrap_err().contains("settle_seconds"));
        assert!(set("metal3_controller", "yes").unwrap_err().contains("true or false"));
        assert!(set("api_server_order", "middle").unwrap_err().contains("`last` or `first`"));
        assert!(set("control_plane_probe", "https://x/readyz").unwrap_err().contains("{address}"));
        assert!(set("control_plane_probe", "node").is_ok());
        assert!(set("gate_percent", "101").is_err());
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest() {
        assert_eq!(
            set("setle_seconds", "1").unwrap_err(),
            "no such policy field: setle_seconds; did you mean settle_seconds?"
        );
        assert!(set("colour", "1").unwrap_err().contains("there are engine, "));
    }

    #[test]
    fn fields_of_a_newer_version_survive() {
        let newer: Policy = serde_json::from_str(r#"{"later": {"a": 1}}"#).unwrap();
        assert_eq!(with_field(&newer, "settle_seconds", "7").unwrap().unknown["later"]["a"], 1);
    }
}

//! CKE's written form of a definition: every field of its structures, with `null`, `""` and `false` where nothing was
//! given. `cluster set` and `ckecli` therefore store the same JSON (CLU-5 to CLU-7).

use serde_json::{Map, Value};

use super::schema::{Absent, CLUSTER, OPTIONS, Object, Shape};

/// Returns a definition in CKE's written form. Unknown fields follow the known ones of their structure.
pub fn written(definition: &Value) -> Value {
    object(&CLUSTER, definition.as_object())
}

/// Reports whether `options` has values beyond those that CKE writes if nothing was given.
pub(super) fn has_options(definition: &Value) -> bool {
    let options = definition.get("options").and_then(Value::as_object);
    options.is_some() && object(&OPTIONS, options) != object(&OPTIONS, None)
}

fn object(shape: &Object, given: Option<&Map<String, Value>>) -> Value {
    let empty = Map::new();
    let given = given.unwrap_or(&empty);
    let mut out = Map::new();
    for field in shape.fields {
        let value = given.get(field.name).filter(|v| !v.is_null());
        let filled = match (value, field.absent) {
            (Some(v), Absent::Omit) if zero(&field.shape, v) => None,
            (Some(v), _) => Some(fill(&field.shape, v)),
            (None, Absent::Omit) => None,
            (None, Absent::Literal(word)) => Some(word.into()),
            (None, Absent::Zero) => Some(match &field.shape {
                Shape::Text => "".into(),
                Shape::Flag => false.into(),
                Shape::Object(inner) => object(inner, None),
                Shape::Number | Shape::Free | Shape::List(_) | Shape::Map(_) => Value::Null,
            }),
        };
        if let Some(filled) = filled {
            out.insert(field.name.to_owned(), filled);
        }
    }
    for (name, value) in given {
        if shape.fields.iter().all(|f| f.name != name) {
            out.insert(name.clone(), value.clone());
        }
    }
    Value::Object(out)
}

fn fill(shape: &Shape, value: &Value) -> Value {
    match (shape, value) {
        (Shape::Object(inner), Value::Object(given)) => object(inner, Some(given)),
        (Shape::List(inner), Value::Array(items)) => items.iter().map(|v| fill(inner, v)).collect(),
        _ => value.clone(),
    }
}

/// Reports whether Go leaves the value out under `omitempty`. Numbers and structures are pointers there and stay.
fn zero(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Flag, Value::Bool(false)) => true,
        (Shape::Text, Value::String(text)) => text.is_empty(),
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(items)) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_minimal_definition_is_normalized_with_all_cke_fields() {
        let out = written(&json!({"name": "x"}));
        assert_eq!(out["nodes"], Value::Null);
        assert_eq!(out["reboot"]["command_retries"], Value::Null);
        assert_eq!(out["repair"], json!({"repair_procedures": null}));
        assert_eq!(out["options"]["etcd"]["volume_name"], "etcd-cke");
        assert!(out.get("trusted_rest_mappings").is_none());
        assert!(!has_options(&out));
    }

    #[test]
    fn unknown_fields_and_zero_numbers_survive_and_optional_zero_values_do_not() {
        let step = json!({"repair_command": ["x"], "need_drain": false, "watch_seconds": 0});
        let operation = json!({"operation": "o", "repair_steps": [step], "success_command": []});
        let out = written(&json!({
            "mine": {"a": 1},
            "repair": {"repair_procedures": [{"machine_types": ["m"], "repair_operations": [operation]}]},
            "reboot": {"protected_namespaces": {}, "command_timeout_seconds": 0},
        }));
        assert_eq!(out["mine"]["a"], 1);
        let operation = &out["repair"]["repair_procedures"][0]["repair_operations"][0];
        assert_eq!(operation["repair_steps"][0], json!({"repair_command": ["x"], "watch_seconds": 0}));
        assert!(operation.get("success_command").is_none());
        assert_eq!(operation["health_check_command"], Value::Null);
        assert_eq!(out["reboot"]["protected_namespaces"], json!({}));
        assert_eq!(out["reboot"]["command_timeout_seconds"], 0);
    }

    #[test]
    fn normalizing_is_idempotent() {
        let once = written(
            &json!({"name": "x", "nodes": [{"address": "10.0.0.1", "taints": [{"key": "k", "effect": "NoExecute"}]}]}),
        );
        assert_eq!(written(&once), once);
    }
}

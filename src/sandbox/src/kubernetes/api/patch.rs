//! Patch types: merge, JSON and strategic merge patches. Apply is a strategic merge of the applied configuration.

use json_patch::{AddOperation, PatchOperation};
use serde_json::{Map, Value};

use super::status_error::StatusError;

/// Patch type, by media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Merge,
    Json,
    Strategic,
    Apply,
}

impl PatchType {
    /// Determines the type from the request's `Content-Type`.
    pub(super) fn of(media: &str) -> Result<Self, StatusError> {
        match media {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/json-patch+json" => Ok(Self::Json),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(StatusError::no_patch()),
        }
    }
}

/// A parsed patch, which can be applied to any state of its object.
#[derive(Clone, Debug)]
pub(super) enum Patch {
    Merge(Value),
    /// `None` for a list of operations with an unknown one. It fails when it is applied.
    Json(Option<json_patch::Patch>),
    Strategic(Map<String, Value>),
}

impl Patch {
    /// Parses the body.
    pub(super) fn read(patch_type: PatchType, body: &[u8]) -> Result<Self, StatusError> {
        if patch_type == PatchType::Apply {
            let read: Result<Value, _> = serde_yaml::from_slice(body);
            let value = read.map_err(|e| StatusError::bad(format!("error decoding YAML: {e}")))?;
            return match value {
                Value::Object(fields) => Ok(Self::Strategic(fields)),
                _ => Err(StatusError::bad("error decoding YAML: the object is not a map")),
            };
        }
        let prefix = if patch_type == PatchType::Strategic { "" } else { "error decoding patch: " };
        let value: Value = serde_json::from_slice(body)
            .map_err(|e| StatusError::bad(format!("{prefix}{}", super::request_body::go_error(body, &e))))?;
        let wrong = |what: &str, into: &str| {
            StatusError::bad(format!("{prefix}json: cannot unmarshal {what} into Go value of type {into}"))
        };
        match (patch_type, value) {
            (PatchType::Json, value) => {
                let what = super::request_body::go_kind(&value);
                let operations = value.as_array().is_some_and(|all| all.iter().all(Value::is_object));
                match serde_json::from_value(value) {
                    Ok(patch) => Ok(Self::Json(Some(patch))),
                    Err(_) if operations => Ok(Self::Json(None)),
                    Err(_) => Err(wrong(what, "jsonpatch.Patch")),
                }
            }
            (PatchType::Merge, value @ Value::Object(_)) => Ok(Self::Merge(value)),
            (_, Value::Object(fields)) => Ok(Self::Strategic(fields)),
            (_, other) => Err(wrong(super::request_body::go_kind(&other), "map[string]interface {}")),
        }
    }

    /// Applies the patch. The result is not validated.
    pub(super) fn apply(&self, object: &mut Value) -> Result<(), StatusError> {
        match self {
            Self::Merge(patch) => json_patch::merge(object, patch),
            Self::Json(patch) => {
                for operation in &patch.as_ref().ok_or_else(StatusError::rejected)?.0 {
                    let operation = lenient(operation, object);
                    json_patch::patch(object, &[operation]).map_err(|_| StatusError::rejected())?;
                }
            }
            Self::Strategic(patch) => match object {
                Value::Object(fields) => merge_map(fields, patch, "")?,
                other => *other = Value::Object(patch.clone()),
            },
        }
        Ok(())
    }

    /// Returns the patch's value of a field of `metadata`; `None` for a JSON patch.
    pub(super) fn metadata(&self, field: &str) -> Option<&Value> {
        match self {
            Self::Merge(patch) => patch.get("metadata")?.get(field),
            Self::Strategic(patch) => patch.get("metadata")?.get(field),
            Self::Json(_) => None,
        }
    }
}

/// Accepts the replacement of a missing field, as the server's library does.
fn lenient(operation: &PatchOperation, object: &Value) -> PatchOperation {
    match operation {
        PatchOperation::Replace(replace) if object.pointer(replace.path.as_str()).is_none() => {
            PatchOperation::Add(AddOperation { path: replace.path.clone(), value: replace.value.clone() })
        }
        other => other.clone(),
    }
}

/// Returns the merge key of a list. `None` means that the list is replaced as a whole, as for taints and tolerations.
/// `parent` distinguishes a container's ports from a service's.
fn merge_key(parent: &str, field: &str) -> Option<&'static str> {
    match (parent, field) {
        (
            _,
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "imagePullSecrets"
            | "env"
            | "secrets",
        ) => Some("name"),
        (_, "conditions") | ("status", "addresses") => Some("type"),
        (_, "ownerReferences") => Some("uid"),
        (_, "volumeMounts") => Some("mountPath"),
        (_, "volumeDevices") => Some("devicePath"),
        (_, "hostAliases" | "podIPs" | "hostIPs") => Some("ip"),
        (_, "topologySpreadConstraints") => Some("topologyKey"),
        ("spec", "ports") => Some("port"),
        ("containers" | "initContainers" | "ephemeralContainers", "ports") => Some("containerPort"),
        _ => None,
    }
}

/// Reports whether a list of plain values is merged as a set.
fn is_set(field: &str) -> bool {
    matches!(field, "finalizers" | "podCIDRs")
}

fn merge_map(to: &mut Map<String, Value>, patch: &Map<String, Value>, parent: &str) -> Result<(), StatusError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("delete") => {
            to.clear();
            return Ok(());
        }
        Some("replace") => {
            to.clone_from(patch);
            to.shift_remove("$patch");
            return Ok(());
        }
        _ => {}
    }
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        to.retain(|key, _| kept.iter().any(|k| k.as_str() == Some(key)));
    }
    for (field, desired) in patch {
        if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(target)), Value::Array(removed)) = (to.get_mut(list), desired) {
                target.retain(|v| !removed.contains(v));
            }
            continue;
        }
        if field.starts_with('$') {
            continue;
        }
        match (to.get_mut(field), desired) {
            (_, Value::Null) => {
                to.shift_remove(field);
            }
            (Some(Value::Object(target)), Value::Object(desired)) => merge_map(target, desired, field)?,
            (Some(Value::Array(target)), Value::Array(desired)) => merge_list(target, desired, parent, field)?,
            (Some(Value::Object(_)), other) => {
                let what = super::request_body::go_kind(other);
                let text = format!("Invalid value: \"{field}\": cannot restore struct from: {what}");
                return Err(StatusError::invalid("", "", "", &[("FieldValueInvalid", "patch", text)]));
            }
            (_, Value::Object(desired)) => {
                let mut fresh = Map::new();
                merge_map(&mut fresh, desired, field)?;
                to.insert(field.clone(), Value::Object(fresh));
            }
            (_, Value::Array(desired)) => {
                let mut fresh = Vec::new();
                merge_list(&mut fresh, desired, parent, field)?;
                to.insert(field.clone(), Value::Array(fresh));
            }
            (_, plain) => {
                to.insert(field.clone(), plain.clone());
            }
        }
    }
    Ok(())
}

fn merge_list(to: &mut Vec<Value>, patch: &[Value], parent: &str, field: &str) -> Result<(), StatusError> {
    if is_set(field) {
        for value in patch {
            if !to.contains(value) {
                to.push(value.clone());
            }
        }
        return Ok(());
    }
    let Some(key) = merge_key(parent, field) else {
        *to = patch.to_vec();
        return Ok(());
    };
    let replace = |v: &Value| v.get("$patch").and_then(Value::as_str) == Some("replace");
    if patch.iter().any(replace) {
        *to = patch.iter().filter(|v| !replace(v)).cloned().collect();
        return Ok(());
    }
    for desired in patch {
        let Value::Object(fields) = desired else { continue };
        let Some(id) = fields.get(key) else {
            return Err(StatusError::new(
                500,
                "",
                format!("map: {desired} does not contain declared merge key: {key}"),
            ));
        };
        let found = to.iter().position(|v| v.get(key) == Some(id));
        if fields.get("$patch").and_then(Value::as_str) == Some("delete") {
            to.retain(|v| v.get(key) != Some(id));
        } else if let Some(Value::Object(target)) = found.and_then(|at| to.get_mut(at)) {
            merge_map(target, fields, field)?;
        } else {
            let mut fresh = Map::new();
            merge_map(&mut fresh, fields, field)?;
            to.push(Value::Object(fresh));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn strategic(object: Value, patch: &Value) -> Value {
        let mut object = object;
        Patch::read(PatchType::Strategic, patch.to_string().as_bytes()).unwrap().apply(&mut object).unwrap();
        object
    }

    #[test]
    fn strategic_merge_patches_merge_keyed_lists_and_replace_taints() {
        let node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "x"}, {"type": "Disk", "status": "F"}]}});
        let patched = strategic(
            node,
            &json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}], "unschedulable": null},
                "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Disk", "$patch": "delete"},
                    {"type": "New", "status": "True"}]}}),
        );
        assert_eq!(
            patched,
            json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}, {"type": "New", "status": "True"}]}})
        );
        let pod = json!({"metadata": {"finalizers": ["a", "b"], "ownerReferences": [{"uid": "1"}]},
            "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "x", "value": "1"}]}]}});
        let patched = strategic(
            pod,
            &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"],
                "$setElementOrder/finalizers": ["b", "c"], "ownerReferences": [{"uid": "1", "$patch": "delete"}]},
                "spec": {"containers": [{"name": "c", "env": [{"name": "y", "value": "2"}]}]}}),
        );
        assert_eq!(patched["metadata"], json!({"finalizers": ["b", "c"], "ownerReferences": []}));
        assert_eq!(patched["spec"]["containers"][0]["env"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn invalid_patches_fail_without_a_panic() {
        let error_message =
            |patch_type, body: &str| Patch::read(patch_type, body.as_bytes()).unwrap_err().body["message"].clone();
        assert_eq!(
            error_message(PatchType::Merge, "{bad"),
            "error decoding patch: invalid character 'b' looking for beginning of object key string"
        );
        assert_eq!(
            error_message(PatchType::Merge, "[1]"),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
        for body in ["", "null", "{}", "5", "{\"op\":1}", "[5]"] {
            assert_eq!(Patch::read(PatchType::Json, body.as_bytes()).unwrap_err().code, 400, "{body}");
        }
        let unknown = Patch::read(PatchType::Json, br#"[{"op":"nope"}]"#).unwrap();
        assert_eq!(unknown.apply(&mut json!({})).unwrap_err().code, 422);
        let test = Patch::read(PatchType::Json, br#"[{"op":"test","path":"/a","value":1}]"#).unwrap();
        assert_eq!(test.apply(&mut json!({"a": 2})).unwrap_err().code, 422);
        assert_eq!(
            strategic(json!({"spec": 1}), &json!({"spec": {"a": [1, null]}})),
            json!({"spec": {"a": [1, null]}})
        );
        let replace = Patch::read(PatchType::Json, br#"[{"op":"replace","path":"/a/b","value":1}]"#).unwrap();
        let mut object = json!({"a": {}});
        replace.apply(&mut object).unwrap();
        assert_eq!(object, json!({"a": {"b": 1}}));
        assert_eq!(replace.apply(&mut json!({})).unwrap_err().code, 422);
        assert_eq!(PatchType::of("application/json").unwrap_err().code, 415);
    }
}

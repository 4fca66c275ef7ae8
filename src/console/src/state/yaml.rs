//! YAML of values, with their secrets masked.

use cketerm_model::secret;
use serde_json::Value;

/// Returns a value as YAML, its secrets masked.
pub fn masked(mut value: Value) -> String {
    secret::mask(&mut value);
    serde_yaml::to_string(&value).unwrap_or_else(|e| format!("# cannot be written as YAML: {e}\n"))
}

/// Returns an object of Kubernetes as YAML, without the API server's bookkeeping, which is longer than all the rest.
pub fn of_object(content: &Value) -> String {
    let mut content = content.clone();
    if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    masked(content)
}

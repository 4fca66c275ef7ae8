//! JSON without secrets.

use cketerm_model::secret::mask;
use serde::Serialize;
use serde_json::Value;

/// Serializes a value and masks everything in command lines and outputs that looks like a secret.
pub fn masked(value: &impl Serialize) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(value)?;
    mask(&mut value);
    Ok(value)
}

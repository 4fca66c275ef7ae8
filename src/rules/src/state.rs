//! Export and import of a snapshot, so that a decision can be repeated elsewhere: `state` and `decide --from` (CLI-5).
//! The document is the snapshot as serde derives it. A document that was read must serialize to the same document
//! again. Otherwise it holds something that this version would silently ignore.

use cketerm_model::{clock::Now, secret::mask};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    assumptions::Assumptions,
    beside_cke,
    decide::{Decision, decide_assuming},
    seen::Seen,
    snapshot::Snapshot,
};

/// Version of the document's form.
const FORMAT_VERSION: u32 = 1;

/// A snapshot and the time that it is decided for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Version of the form. Its key marks the file as a state of cketerm.
    #[serde(rename = "cketerm_state")]
    form: u32,
    /// Version of the cketerm that wrote it.
    version: String,
    /// Time of the snapshot.
    pub now: Now,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// Reason why a document cannot be decided on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Not a state of cketerm.
    #[error("is not a cketerm state: {0}")]
    Shape(String),
    /// Written by another version.
    #[error(
        "was written by cketerm {found_version} (form {form}); this is {} (form {FORMAT_VERSION}): use the same version",
        version()
    )]
    Version {
        /// Version of that cketerm.
        found_version: String,
        /// Form of the document.
        form: u64,
    },
    /// The document contains something unknown to this version.
    #[error("differs at {0} from what this cketerm would write: it was edited, or use the build that wrote it")]
    Differs(String),
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

impl State {
    /// Creates the state of a pass, for the time of the pass.
    pub fn of(seen: &Seen) -> Self {
        let snapshot = seen.snapshot.clone();
        Self { form: FORMAT_VERSION, version: version().to_owned(), now: seen.now, snapshot }
    }

    /// Returns the document to print, with secrets masked.
    pub fn document(&self) -> Result<Value, StateError> {
        let mut value = serde_json::to_value(self).map_err(|e| StateError::Shape(e.to_string()))?;
        mask(&mut value);
        Ok(value)
    }

    /// Reads a document (JSON or YAML).
    pub fn read(text: &str) -> Result<Self, StateError> {
        let shape = |e: &dyn std::fmt::Display| StateError::Shape(e.to_string());
        let value: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|e| shape(&e))?
        } else {
            serde_yaml::from_str(text).map_err(|e| shape(&e))?
        };
        let form = value.get("cketerm_state").and_then(Value::as_u64);
        let form =
            form.ok_or_else(|| StateError::Shape("it has no cketerm_state; `cketerm state` prints one".to_owned()))?;
        let found_version = value.get("version").and_then(Value::as_str).unwrap_or("?").to_owned();
        if form != u64::from(FORMAT_VERSION) || found_version != version() {
            return Err(StateError::Version { found_version, form });
        }
        let mut state: Self = serde_json::from_value(value.clone()).map_err(|e| shape(&e))?;
        std::sync::Arc::make_mut(&mut state.snapshot.kube).index_names();
        match difference(&value, &state.document()?, String::new()) {
            Some(place) => Err(StateError::Differs(place)),
            None => Ok(state),
        }
    }

    /// Applies the rules to the snapshot.
    pub fn decide(&self) -> Decision {
        beside_cke::decision(&self.snapshot, self.now).0
    }

    /// Applies the rules as if the engine of the snapshot led, to show what a leader would do. Its own memory is empty,
    /// like a new leader's.
    pub fn decide_as_leader(&self) -> Decision {
        decide_assuming(&self.snapshot, &Assumptions::leading_since(self.now.boot), self.now)
    }
}

/// Returns the first place where two documents differ.
fn difference(one: &Value, other: &Value, place: String) -> Option<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let gone = other.keys().find(|key| !one.contains_key(*key)).map(|key| format!("{place}/{key}"));
            let each = |(key, value): (&String, &Value)| {
                let place = format!("{place}/{key}");
                match other.get(key) {
                    Some(there) => difference(value, there, place),
                    None => Some(place),
                }
            };
            one.iter().find_map(each).or(gone)
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).enumerate().find_map(|(i, (a, b))| difference(a, b, format!("{place}/{i}")))
        }
        _ => (one != other).then_some(place),
    }
}

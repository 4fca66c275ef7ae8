//! A snapshot written out and read back whole, so that a decision can be made again elsewhere: `state` and `decide --from`
//! (spec/cli.md). What is written is the snapshot as serde derives it; what is read must give the same document again,
//! else it holds something that this version would silently leave out.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    decide::{Decision, decide},
    snapshot::{Leading, Seen, Snapshot, secs},
};
use crate::{clock::Now, model::secret::mask};

/// The number of this form.
const FORM: u32 = 1;

/// A snapshot and the moment that it is decided for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// The number of the form: what makes the file one of ours.
    #[serde(rename = "cketerm_state")]
    form: u32,
    /// Which cketerm wrote it.
    version: String,
    /// The moment.
    pub now: Now,
    /// What was seen.
    pub snapshot: Snapshot,
}

/// Why a document cannot be decided on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Not a state at all.
    #[error("is no state of cketerm: {0}")]
    Shape(String),
    /// Another version's.
    #[error("was written by cketerm {theirs} (form {form}); this is {} (form {FORM}): use the same version", version())]
    Version {
        /// Its version.
        theirs: String,
        /// Its form.
        form: u64,
    },
    /// Something in it is not this version's.
    #[error("differs at {0} from what this cketerm would write: it was changed by hand, or is another build's")]
    Differs(String),
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

impl State {
    /// What a pass saw, for the moment it was made for.
    pub fn of(seen: &Seen) -> Self {
        let snapshot = seen.snapshot.clone();
        Self { form: FORM, version: version().to_owned(), now: seen.now, snapshot }
    }

    /// As it is printed: secrets are masked.
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
        let theirs = value.get("version").and_then(Value::as_str).unwrap_or("?").to_owned();
        if form != u64::from(FORM) || theirs != version() {
            return Err(StateError::Version { theirs, form });
        }
        let mut state: Self = serde_json::from_value(value.clone()).map_err(|e| shape(&e))?;
        std::sync::Arc::make_mut(&mut state.snapshot.kube).index_names();
        match difference(&value, &state.document()?, String::new()) {
            Some(place) => Err(StateError::Differs(place)),
            None => Ok(state),
        }
    }

    /// The same seen by an engine that leads: what it would do. Its own memory is empty, as a new leader's is.
    pub fn led(&mut self) {
        let engine = &mut self.snapshot.engine;
        if engine.leading.is_none() {
            let since = secs(self.now.boot);
            engine.leading = Some(Leading { key: String::new(), create_revision: 0, since, acknowledged: since });
        }
        (engine.standing_back, engine.resigning) = (None, None);
        engine.observing.clear();
    }

    /// What the rules make of it.
    pub fn decide(&self) -> Decision {
        decide(&self.snapshot, self.now)
    }
}

/// The first place where two documents differ.
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

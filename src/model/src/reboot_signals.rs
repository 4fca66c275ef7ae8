//! Signals that a Node needs a reboot: which conditions, labels, annotations and versions count (policy
//! `reboot_needed_signals`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cluster::{self, is_label_key};

/// Annotation with which anybody can ask for a reboot. Its value is the cause that people see.
pub const REBOOT_NEEDED_ANNOTATION: &str = "cketerm.io/reboot-needed";

/// Maximum number of signals.
const MAX_SIGNALS: usize = 32;

/// Named set of signals that a known program sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// kured with `--annotate-nodes`.
    Kured,
    /// The Flatcar Linux update operator.
    Flatcar,
    /// Permanent problems of node-problem-detector.
    NodeProblemDetector,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::Kured, Self::Flatcar, Self::NodeProblemDetector];

    /// Returns the name in the policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kured => "kured",
            Self::Flatcar => "flatcar",
            Self::NodeProblemDetector => "node-problem-detector",
        }
    }
}

/// One signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Signal {
    /// Signals of a known program.
    Preset(Preset),
    /// A condition of the Node with this status.
    Condition {
        /// Its type.
        condition: String,
        /// Its status: `True`, `False` or `Unknown`.
        status: String,
    },
    /// An annotation of the Node.
    Annotation(Wanted),
    /// A label of the Node.
    Label(Wanted),
    /// A Node with another kernel needs a reboot.
    Kernel(String),
    /// A Node with another OS image needs a reboot.
    OsImage(String),
}

/// Key of a label or annotation, and the value that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The whole key.
    pub key: String,
    /// The value; none = any but `false`.
    pub value: Option<String>,
}

/// The signals, the most telling first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signals(pub Vec<Signal>);

impl Default for Signals {
    /// Returns kured's and Flatcar's signals, and cketerm's own annotation.
    fn default() -> Self {
        let own = Wanted { key: REBOOT_NEEDED_ANNOTATION.to_owned(), value: None };
        Self(vec![Signal::Preset(Preset::Kured), Signal::Preset(Preset::Flatcar), Signal::Annotation(own)])
    }
}

impl Signals {
    /// Reads a document that a user wrote: a list in YAML or JSON, or `none`.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self(Vec::new()));
        }
        let value = cluster::parse(text).map_err(|e| format!("reboot_needed_signals: {e}"))?;
        let Value::Array(all) = value else {
            return Err(
                "reboot_needed_signals: expected a list, such as [kured, {condition: KernelDeadlock}]".to_owned()
            );
        };
        if all.len() > MAX_SIGNALS {
            return Err(format!("reboot_needed_signals: {} signals; at most {MAX_SIGNALS}", all.len()));
        }
        let read = |(place, value): (usize, Value)| {
            Signal::try_from(value).map_err(|why| format!("reboot_needed_signals[{place}]: {why}"))
        };
        all.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// Takes a text field out of a map.
fn take(map: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match map.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Err(format!("{name} is empty")),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name} must be a text, not {other}: write \"{}\"", unquoted(&other))),
    }
}

fn unquoted(value: &Value) -> String {
    value.as_bool().map_or_else(|| value.to_string(), |flag| if flag { "True" } else { "False" }.to_owned())
}

fn key(key: String) -> Result<String, String> {
    if is_label_key(&key) { Ok(key) } else { Err(format!("{key:?} is not a key of a label or annotation")) }
}

impl TryFrom<Value> for Signal {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        const FORMS: &str = "{condition: TYPE}, {annotation: KEY}, {label: KEY}, {kernel: VERSION} or {os_image: TEXT}";
        let mut map = match value {
            Value::String(name) => {
                let preset = Preset::ALL.into_iter().find(|preset| preset.name() == name);
                let known = Preset::ALL.map(Preset::name).join(", ");
                return preset
                    .map(Self::Preset)
                    .ok_or_else(|| format!("no such preset: {name}; known: {known}; or write {FORMS}"));
            }
            Value::Object(map) => map,
            other => return Err(format!("expected a preset's name, {FORMS}, not {other}")),
        };
        let signal = if let Some(condition) = take(&mut map, "condition")? {
            let status = take(&mut map, "status")?.unwrap_or_else(|| "True".to_owned());
            if !matches!(status.as_str(), "True" | "False" | "Unknown") {
                return Err(format!("status must be \"True\", \"False\" or \"Unknown\", not {status:?}"));
            }
            if condition == "Ready" {
                return Err("the condition Ready shows no need of a reboot: a Node that is away would count".to_owned());
            }
            Self::Condition { condition, status }
        } else if let Some(annotation) = take(&mut map, "annotation")? {
            Self::Annotation(Wanted { key: key(annotation)?, value: take(&mut map, "value")? })
        } else if let Some(label) = take(&mut map, "label")? {
            Self::Label(Wanted { key: key(label)?, value: take(&mut map, "value")? })
        } else if let Some(kernel) = take(&mut map, "kernel")? {
            Self::Kernel(kernel)
        } else if let Some(image) = take(&mut map, "os_image")? {
            Self::OsImage(image)
        } else {
            return Err(format!("expected a preset's name, {FORMS}"));
        };
        match map.keys().next() {
            Some(field) => Err(format!("unknown field {field}")),
            None => Ok(signal),
        }
    }
}

impl From<Signal> for Value {
    fn from(signal: Signal) -> Self {
        let map = |name: &str, text: String, more: Option<(&str, String)>| {
            let mut map = Map::new();
            map.insert(name.to_owned(), Self::String(text));
            map.extend(more.map(|(name, text)| (name.to_owned(), Self::String(text))));
            Self::Object(map)
        };
        match signal {
            Signal::Preset(preset) => Self::String(preset.name().to_owned()),
            Signal::Condition { condition, status } => map("condition", condition, Some(("status", status))),
            Signal::Annotation(wanted) => map("annotation", wanted.key, wanted.value.map(|value| ("value", value))),
            Signal::Label(wanted) => map("label", wanted.key, wanted.value.map(|value| ("value", value))),
            Signal::Kernel(version) => map("kernel", version, None),
            Signal::OsImage(image) => map("os_image", image, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_and_written_in_the_same_form() {
        let text = "- kured\n- node-problem-detector\n- condition: KernelDeadlock\n- {condition: UpToDate, status: 'False'}\n\
                    - annotation: example.com/os-update\n- {label: example.com/reboot, value: soon}\n- kernel: 6.12.60\n\
                    - os_image: Flatcar 4230.2.1\n";
        let signals = Signals::read(text).unwrap();
        assert_eq!(signals.0.len(), 8);
        assert_eq!(signals.0[2], Signal::Condition { condition: "KernelDeadlock".into(), status: "True".into() });
        let json = serde_json::to_string(&signals).unwrap();
        assert_eq!(serde_json::from_str::<Signals>(&json).unwrap(), signals);
        assert_eq!(Signals::read(&json).unwrap(), signals);
        assert_eq!(Signals::read(" none\n").unwrap(), Signals(Vec::new()));
    }

    #[test]
    fn a_wrong_signal_is_refused_with_its_place_and_the_remedy() {
        for (text, expected) in [
            ("kured: yes", "expected a list"),
            ("[kurd]", "reboot_needed_signals[0]: no such preset: kurd; known: kured, flatcar, node-problem-detector"),
            ("[kured, 5]", "reboot_needed_signals[1]: expected a preset's name"),
            ("[{kernel: 6.12}]", "kernel must be a text, not 6.12: write \"6.12\""),
            ("[{condition: X, status: true}]", "status must be a text, not true: write \"True\""),
            ("[{condition: X, status: Yes}]", "status must be"),
            ("[{condition: Ready, status: 'False'}]", "a Node that is away would count"),
            ("[{annotation: 'a b'}]", "is not a key"),
            ("[{annotation: a/b, status: x}]", "unknown field status"),
            ("[{annotation: ''}]", "annotation is empty"),
            ("[{}]", "expected a preset's name"),
        ] {
            let why = Signals::read(text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}

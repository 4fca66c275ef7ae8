//! All keys of a configuration file in cketerm's form, from which the published JSON schema is made. A debug assertion
//! checks that the reader requests no other key, and a test checks that it requests every one of them.

use cketerm_model::notice::Kind;
use serde_json::{Map, Value, json};

/// Type of a key's value.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Text; a number is taken as its digits.
    Text,
    /// Duration in Go's notation: `2s`, `1m30s`.
    Time,
    /// True or false.
    Flag,
    /// Number with this minimum.
    AtLeast(u64),
    /// Texts, or one text with commas.
    List,
    /// Several of these words.
    Some(fn() -> Vec<&'static str>),
    /// One of these words, true or false.
    Word(&'static [&'static str]),
    /// Names, each with a list of texts.
    Lists,
}

/// Key: its name, the type of its value, its meaning.
type Key = (&'static str, Form, &'static str);

/// Sections with their keys.
const SECTIONS: &[(&str, &[Key])] = &[
    (
        "etcd",
        &[
            ("endpoints", Form::List, "etcd URLs; a file that sets them replaces the whole section"),
            ("prefix", Form::Text, "etcd key prefix"),
            ("timeout", Form::Time, "request timeout"),
            ("username", Form::Text, "user name"),
            ("password", Form::Text, "password; keep the file unreadable for others"),
            ("tls-ca", Form::Text, "trusted CA certificates, PEM text"),
            ("tls-ca-file", Form::Text, "the same, as a file"),
            ("tls-cert", Form::Text, "client certificate, PEM text"),
            ("tls-cert-file", Form::Text, "the same, as a file"),
            ("tls-key", Form::Text, "client key, PEM text"),
            ("tls-key-file", Form::Text, "the same, as a file"),
        ],
    ),
    (
        "cluster_etcd",
        &[
            ("endpoints", Form::List, "URLs of the etcd of Kubernetes; default: the control planes at port 2379"),
            ("username", Form::Text, "user name"),
            ("password", Form::Text, "password; keep the file unreadable for others"),
            ("tls-ca", Form::Text, "trusted CA certificates, PEM text"),
            ("tls-ca-file", Form::Text, "the same, as a file"),
            ("tls-cert", Form::Text, "client certificate, PEM text"),
            ("tls-cert-file", Form::Text, "the same, as a file"),
            ("tls-key", Form::Text, "client key, PEM text"),
            ("tls-key-file", Form::Text, "the same, as a file"),
        ],
    ),
    (
        "kubernetes",
        &[
            ("kubeconfig", Form::Text, "kubeconfig file; KUBECONFIG is never used"),
            ("context", Form::Text, "context in the kubeconfig"),
            ("in_cluster", Form::Flag, "use the pod's service account"),
        ],
    ),
    (
        "engine",
        &[
            ("lease_ttl_seconds", Form::AtLeast(2), "TTL of the engine's lease, in seconds"),
            ("http", Form::Text, "address of the daemon's metrics and health; off = none"),
            ("state_directory", Form::Text, "directory for results of commands until they are recorded"),
            ("command_env", Form::List, "environment variables passed to commands of the definition"),
        ],
    ),
    (
        "console",
        &[
            ("theme", Form::Text, "theme name"),
            ("view", Form::Text, "first view"),
            ("mouse", Form::Word(&["always"]), "use of the mouse; true: without SSH and tmux only"),
            ("title", Form::Flag, "show the cluster's state in the terminal's title"),
            ("bell", Form::Word(&["never", "stuck", "ended", "both"]), "when the terminal's bell rings"),
            ("ascii", Form::Word(&["auto"]), "draw lines and borders in ASCII"),
            ("keys", Form::Lists, "keys by command name (docs/keys.md); an empty list unbinds"),
        ],
    ),
    ("power", &[("bmcs", Form::Text, "file with the BMC of each node's address")]),
    (
        "log",
        &[
            ("level", Form::Text, "error, warn, info, debug, trace, or a filter"),
            ("directory", Form::Text, "directory of the rotated log files"),
            ("json", Form::Flag, "JSON lines instead of text"),
        ],
    ),
];

/// Keys of a receiver of notifications.
const RECEIVER: &[Key] = &[
    ("name", Form::Text, "up to 40 lower-case letters, digits or -"),
    ("kinds", Form::Some(kinds), "kinds of notices to send"),
    ("url", Form::Text, "webhook URL"),
    ("url_file", Form::Text, "file with the webhook URL"),
    ("header_file", Form::Text, "file with HTTP headers, one per line"),
    ("program", Form::List, "program and its arguments, instead of a URL"),
    ("template", Form::Text, "Jinja template that renders JSON"),
    ("template_file", Form::Text, "the same, as a file"),
    ("timeout", Form::Time, "timeout of one delivery"),
    ("per_minute", Form::AtLeast(1), "deliveries per minute; further notices are combined"),
];

fn kinds() -> Vec<&'static str> {
    Kind::CHOICE.iter().map(|kind| kind.as_str()).collect()
}

impl Form {
    fn schema(self, about: &str) -> Value {
        let text = || json!({"type": "string"});
        match self {
            Self::Text => json!({"description": about, "type": ["string", "number", "null"]}),
            Self::Time => json!({"description": about, "type": ["string", "null"], "pattern": TIME}),
            Self::Flag => json!({"description": about, "type": ["boolean", "null"]}),
            Self::AtLeast(least) => json!({"description": about, "type": ["integer", "null"], "minimum": least}),
            Self::List => json!({"description": about, "type": ["array", "string", "null"], "items": text()}),
            Self::Some(words) => {
                json!({"description": about, "type": ["array", "string", "null"], "items": {"enum": words()}})
            }
            Self::Word(words) => {
                let all: Vec<Value> =
                    words.iter().map(|word| json!(word)).chain([json!(true), json!(false), Value::Null]).collect();
                json!({"description": about, "enum": all})
            }
            Self::Lists => {
                let list = json!({"type": ["array", "string", "null"], "items": text()});
                json!({"description": about, "type": ["object", "null"], "additionalProperties": list})
            }
        }
    }
}

/// Numbers with units, in Go's notation of durations.
const TIME: &str = "^([0-9.]+(ns|us|ms|s|m|h))+$";

fn object(keys: &[Key]) -> Map<String, Value> {
    let properties: Map<String, Value> =
        keys.iter().map(|(name, form, about)| ((*name).to_owned(), form.schema(about))).collect();
    let all = json!({"type": ["object", "null"], "additionalProperties": false, "properties": properties});
    all.as_object().cloned().unwrap_or_default()
}

/// Reports whether a key of this path (`etcd.`, `notices[0] (chat).`, or empty) is described here.
pub(super) fn has_key(path: &str, name: &str) -> bool {
    let has = |keys: &[Key]| keys.iter().any(|(key, ..)| *key == name);
    match path.split_once(['.', '[']) {
        // CKE's form consists of the keys of the section `etcd`
        None => {
            name == "notices"
                || SECTIONS.iter().any(|(section, keys)| *section == name || (*section == "etcd" && has(keys)))
        }
        Some(("notices", _)) => has(RECEIVER),
        // names of commands: their reader knows the valid ones
        Some(("console", below)) if below.starts_with("keys") => true,
        Some((section, _)) => SECTIONS.iter().any(|(of, keys)| *of == section && has(keys)),
    }
}

/// Returns the JSON schema of cketerm's form, for editors and for checks before a rollout.
pub fn schema() -> Value {
    let mut properties: Map<String, Value> =
        SECTIONS.iter().map(|(name, keys)| ((*name).to_owned(), Value::Object(object(keys)))).collect();
    let mut receiver = object(RECEIVER);
    receiver.insert("type".to_owned(), json!("object"));
    receiver.insert("required".to_owned(), json!(["name"]));
    let about = "receivers of notices; the leading engine sends them";
    properties
        .insert("notices".to_owned(), json!({"description": about, "type": ["array", "null"], "items": receiver}));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cketerm's configuration file",
        "description": "Generated by `cketerm config schema`; `cketerm config check FILE` checks more than the schema.",
        "type": ["object", "null"],
        "additionalProperties": false,
        "properties": properties,
    })
}

/// Returns the schema as it is printed and published.
pub fn to_json_text() -> String {
    format!("{:#}\n", schema())
}

#[cfg(test)]
mod tests;

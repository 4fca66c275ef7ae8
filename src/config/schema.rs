//! All keys of a configuration file in cketerm's form, from which the published JSON schema is made. A debug assertion
//! checks that the reader requests no other key, and a test checks that it requests every one of them.

use serde_json::{Map, Value, json};

use crate::model::notice::Kind;

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
    From(u64),
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
            ("endpoints", Form::List, "URLs of etcd; a file that names them replaces the whole section"),
            ("prefix", Form::Text, "what all keys begin with"),
            ("timeout", Form::Time, "how long an answer may take"),
            ("username", Form::Text, "user name"),
            ("password", Form::Text, "password; the file must not be readable by everyone then"),
            ("tls-ca", Form::Text, "certificates that are trusted, as PEM"),
            ("tls-ca-file", Form::Text, "the same in a file"),
            ("tls-cert", Form::Text, "client certificate, as PEM"),
            ("tls-cert-file", Form::Text, "the same in a file"),
            ("tls-key", Form::Text, "client key, as PEM"),
            ("tls-key-file", Form::Text, "the same in a file"),
        ],
    ),
    (
        "cluster_etcd",
        &[
            ("endpoints", Form::List, "URLs of the etcd of Kubernetes; without them the control planes at port 2379"),
            ("username", Form::Text, "user name"),
            ("password", Form::Text, "password; the file must not be readable by everyone then"),
            ("tls-ca", Form::Text, "certificates that are trusted, as PEM"),
            ("tls-ca-file", Form::Text, "the same in a file"),
            ("tls-cert", Form::Text, "client certificate, as PEM"),
            ("tls-cert-file", Form::Text, "the same in a file"),
            ("tls-key", Form::Text, "client key, as PEM"),
            ("tls-key-file", Form::Text, "the same in a file"),
        ],
    ),
    (
        "kubernetes",
        &[
            ("kubeconfig", Form::Text, "a kubeconfig; never the ambient one"),
            ("context", Form::Text, "a context of it"),
            ("in_cluster", Form::Flag, "the service account of the pod"),
        ],
    ),
    (
        "engine",
        &[
            ("lease_ttl_seconds", Form::From(2), "TTL of the engine's lease"),
            ("http", Form::Text, "metrics and health of the daemon; off = none"),
            ("state_directory", Form::Text, "where results of commands are kept until they are recorded"),
            ("command_env", Form::List, "variables that commands of the definition get from our environment"),
        ],
    ),
    (
        "console",
        &[
            ("theme", Form::Text, "a theme by name"),
            ("view", Form::Text, "the view shown first"),
            ("mouse", Form::Word(&["always"]), "whether the mouse is used; true: not over SSH"),
            ("title", Form::Flag, "the terminal's title says what the cluster is at"),
            ("bell", Form::Word(&["never", "stuck", "ended", "both"]), "when the bell rings"),
            ("ascii", Form::Word(&["auto"]), "lines and borders in ASCII"),
            ("keys", Form::Lists, "keys by the names of docs/keys.md; an empty list unbinds"),
        ],
    ),
    ("power", &[("bmcs", Form::Text, "the file that says which BMC a node's address has")]),
    (
        "log",
        &[
            ("level", Form::Text, "error, warn, info, debug, trace, or a filter"),
            ("directory", Form::Text, "the folder of rolling files"),
            ("json", Form::Flag, "JSON lines instead of text"),
        ],
    ),
];

/// Keys of a receiver of notifications.
const RECEIVER: &[Key] = &[
    ("name", Form::Text, "up to 40 small letters, digits or -"),
    ("kinds", Form::Some(kinds), "what it is told of"),
    ("url", Form::Text, "where a POST goes"),
    ("url_file", Form::Text, "a file with that URL"),
    ("header_file", Form::Text, "a file with headers, a line each"),
    ("program", Form::List, "a program with its arguments in place of a URL"),
    ("template", Form::Text, "Jinja that renders JSON"),
    ("template_file", Form::Text, "the same in a file"),
    ("timeout", Form::Time, "how long a delivery may take"),
    ("per_minute", Form::From(1), "what is more is folded into one"),
];

fn kinds() -> Vec<&'static str> {
    Kind::CHOICE.iter().map(|kind| kind.word()).collect()
}

impl Form {
    fn schema(self, about: &str) -> Value {
        let text = || json!({"type": "string"});
        match self {
            Self::Text => json!({"description": about, "type": ["string", "number", "null"]}),
            Self::Time => json!({"description": about, "type": ["string", "null"], "pattern": TIME}),
            Self::Flag => json!({"description": about, "type": ["boolean", "null"]}),
            Self::From(least) => json!({"description": about, "type": ["integer", "null"], "minimum": least}),
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
pub(super) fn knows(path: &str, name: &str) -> bool {
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
    let about = "who is told what happens, by the engine that leads";
    properties
        .insert("notices".to_owned(), json!({"description": about, "type": ["array", "null"], "items": receiver}));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cketerm's configuration file",
        "description": "Made by `cketerm config schema`; `cketerm config check FILE` checks more than a schema can.",
        "type": ["object", "null"],
        "additionalProperties": false,
        "properties": properties,
    })
}

/// Returns the schema as it is printed and published.
pub fn printed() -> String {
    format!("{:#}\n", schema())
}

#[cfg(test)]
mod tests;

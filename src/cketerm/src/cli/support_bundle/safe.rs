//! Text that may go into a support bundle. Only [`Mask`] makes one, so no document of a bundle can hold text that was
//! not masked.

use cketerm_model::{secret, text::visible};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::Settings;

/// Longest text, in characters.
const MAX_CHARACTERS: usize = 4000;
/// Shortest secret that is searched for by its value. A shorter one would be found in unrelated words.
const MIN_SECRET: usize = 4;
/// Text in place of a secret, as `model::secret` writes it.
const MASKED: &str = "***";

/// Masked text without details of URLs and without control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(super) struct Text(String);

impl Text {
    /// Returns the text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// JSON whose names and texts are all masked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Document(Value);

/// Masking of texts. It also knows the secrets of this process by their value.
#[derive(Debug, Default)]
pub(super) struct Mask {
    known: Vec<String>,
}

impl Mask {
    /// Creates a mask that knows the passwords of these settings, and the values of the variables that the settings
    /// hand to commands.
    pub(super) fn of(settings: &Settings, environment: impl Fn(&str) -> Option<String>) -> Self {
        let members = settings.cluster_etcd.as_ref().and_then(|etcd| etcd.password.clone());
        let variables = settings.command_env.iter().filter_map(|name| environment(name));
        let all = settings.etcd.password.iter().cloned().chain(members).chain(variables);
        let mut known: Vec<String> = all.filter(|value| value.len() >= MIN_SECRET).collect();
        // a value that contains another one is replaced as a whole
        known.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { known }
    }

    /// Returns a text for a bundle.
    pub(super) fn text(&self, text: &str) -> Text {
        let mut hidden = text.to_owned();
        for value in &self.known {
            hidden = hidden.replace(value.as_str(), MASKED);
        }
        let masked = secret::beginning(hidden.as_bytes(), MAX_CHARACTERS);
        Text(visible(&without_url_details(&masked), false))
    }

    /// Returns JSON for a bundle. Fields whose name says so are secrets, lists of texts are command lines.
    pub(super) fn document(&self, mut value: Value) -> Document {
        secret::mask(&mut value);
        Document(self.every_text(value))
    }

    fn every_text(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text).0),
            Value::Array(list) => list.into_iter().map(|value| self.every_text(value)).collect(),
            Value::Object(map) => {
                let fields = map.into_iter().map(|(name, value)| (self.text(&name).0, self.every_text(value)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }
}

/// Returns a text in which each URL has only its scheme, host and port. The path of a webhook is often a secret, and so
/// is a query.
fn without_url_details(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(SIGN) {
        let (before, after) = rest.split_at(at + SIGN.len());
        out.push_str(before);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
        let url = &after[..after.find(is_end).unwrap_or(after.len())];
        let authority = authority_length(url);
        out.push_str(url[..authority].rsplit('@').next().unwrap_or_default());
        let details = &url[authority..];
        let kept = if is_separator(details) { 0 } else { details.len() };
        if kept > 1 {
            out.push_str("/…");
        }
        rest = &after[authority + kept..];
    }
    out.push_str(rest);
    out
}

/// Sign of a URL.
const SIGN: &str = "://";
/// Returns the length of user, host and port at the beginning of a URL without its scheme.
fn authority_length(url: &str) -> usize {
    url.find(['/', '?', '#', '\\', ',', ';']).unwrap_or(url.len())
}

/// Reports whether this text behind a host only ends the URL, or separates it from the next one.
fn is_separator(text: &str) -> bool {
    let next = text.trim_start_matches([',', ';']);
    let scheme = next.split_once(SIGN).map(|(scheme, _)| scheme);
    next.is_empty()
        || next.len() < text.len() && scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use cketerm_clients::store::EtcdSettings;
    use serde_json::json;

    use super::*;

    #[test]
    fn urls_keep_scheme_host_and_port_only() {
        for (text, expected) in [
            ("http://10.0.0.1:2379,http://10.0.0.2:2379", "http://10.0.0.1:2379,http://10.0.0.2:2379"),
            ("https://hooks.example.com/services/T0/B0/zzz next", "https://hooks.example.com/… next"),
            ("(https://u:pw@bmc/redfish?token=zzz)", "(https://bmc/…"),
            ("(see https://bmc:8443) next", "(see https://bmc:8443) next"),
            ("https://bmc)/x?token=zzz", "https://bmc)/…"),
            ("https://{address}:6443/readyz", "https://{address}:6443/…"),
            ("GET \"https://a.example/x?y=zzz\" 200", "GET \"https://a.example/…\" 200"),
            ("https://[fd00::1]:6443/readyz?zzz", "https://[fd00::1]:6443/…"),
            ("no url: //x", "no url: //x"),
        ] {
            let shown = without_url_details(text);
            assert_eq!(shown, expected, "{text}");
            assert!(!shown.contains("zzz") && !shown.contains("pw"), "{shown}");
        }
    }

    #[test]
    fn secrets_of_the_process_are_found_by_their_value() {
        let etcd = EtcdSettings { password: Some("correct horse".to_owned()), ..EtcdSettings::default() };
        let command_env = vec!["SITE_WORD".to_owned(), "SHORT".to_owned()];
        let settings = Settings { etcd, command_env, ..Settings::default() };
        let value = |name: &str| Some(if name == "SHORT" { "abc" } else { "battery staple" }.to_owned());
        let mask = Mask::of(&settings, value);
        let text = mask.text("login with correct horse, then battery staple, then abc");
        assert_eq!(text.as_str(), "login with ***, then ***, then abc");
        let document = mask.document(json!({"a": ["x", {"correct horse": "correct horse", "token": "zzz", "n": 1}]}));
        assert_eq!(serde_json::to_string(&document).unwrap(), r#"{"a":["x",{"***":"***","token":"***","n":1}]}"#);
    }

    #[test]
    fn known_forms_of_secrets_are_masked_and_no_text_controls_a_terminal() {
        let mask = Mask::default();
        for text in [
            "ipmitool -U root -P zzz power cycle",
            "Authorization: Bearer zzz",
            "{\"Password\": \"zzz\"}",
            "https://root:zzz@bmc/redfish",
            "IPMI_PASSWORD=zzz run",
            "-----BEGIN PRIVATE KEY-----\nzzz",
        ] {
            let shown = mask.text(text);
            assert!(!shown.as_str().contains("zzz"), "{text}: {shown:?}");
        }
        assert_eq!(mask.text("a\u{1b}[2Jb\nc").as_str(), "a␛[2Jb␊c");
        assert!(mask.text(&"x ".repeat(9000)).as_str().chars().count() <= MAX_CHARACTERS);
    }
}

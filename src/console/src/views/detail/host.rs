//! Pane of a host: its power, requests and their authors, its times, its BMC, and the state of cketerm's controller.

use std::sync::Arc;

use cketerm_model::host::Mode;
use ratatui::style::Style;
use serde_json::Value;

use super::Text;
use crate::state::{HostId, queries, short_text};

impl Text<'_> {
    pub(super) fn host(&mut self, id: &HostId) {
        let seen = Arc::clone(&self.app.seen);
        let theme = self.app.config.theme.clone();
        let Some(host) = queries::host(&seen, id) else {
            self.plain("", &format!("host {}/{} is gone", id.0, id.1));
            return;
        };
        self.plain("power", short_text::host_power(host));
        let online = if host.online { "yes" } else { "no: kept off, whatever is requested" };
        self.plain("online", online);
        self.plain("state", &host.provisioning);
        match seen.snapshot.kube.node_of_host(host) {
            Some((node, by)) => self.plain("node", &format!("{}, matched by {by} (o goes there)", node.name)),
            None => self.plain("node", "none known; annotation cketerm.io/node sets it"),
        }
        if let Some(why) = host.hindrance() {
            self.field("why", &why.to_string(), theme.trouble);
        }
        if !host.error_type.is_empty() || !host.error.is_empty() {
            self.field("error", &format!("{}: {}", host.error_type, host.error), theme.danger);
        }
        self.heading(format!("Requests: {}", host.asked.keys.len() + usize::from(host.asked.base.is_some())));
        if let Some(value) = &host.asked.base {
            self.plain("reboot", &request(value));
        }
        for (key, value) in &host.asked.keys {
            self.plain("held by", &format!("{key}, {}", request(value)));
        }
        if let Some(at) = host.pending_reboot_since {
            let label = if host.pending() { "pending" } else { "rebooted" };
            self.plain(label, &self.moment(at));
        }
        if let Some(at) = host.last_powered_on {
            self.plain("last on", &self.moment(at));
        }
        self.heading("Machine".to_owned());
        for (label, text) in [
            ("BMC", &host.bmc_address),
            ("Secret", &host.credentials),
            ("consumer", &host.consumer),
            ("addresses", &host.addresses.join(", ")),
        ] {
            if !text.is_empty() {
                self.plain(label, text);
            }
        }
        if let Some(controller) = seen.snapshot.metal3.hosts.get(&host.full_name()) {
            self.heading("This engine processes its requests".to_owned());
            self.plain("BMC says", controller.power.as_deref().unwrap_or("nothing yet"));
            self.plain("doing", &controller.doing);
            if let Some(error) = &controller.error {
                self.field("error", error, theme.danger);
            }
        }
        self.field("", "W power, L release, I fence (isolate)", Style::new());
    }
}

/// Returns the mode that an annotation asks for, and the words that its value holds beside it: the fields of an object,
/// or a text, which may be a note.
fn request(value: &str) -> String {
    let note = value.trim();
    let mode = Mode::of(note).to_string();
    let words = match serde_json::from_str::<Value>(note) {
        Ok(Value::Object(fields)) => {
            let others = fields.iter().filter(|(name, _)| *name != "mode");
            others.map(|(name, value)| format!("{name} {}", word(value))).collect()
        }
        Ok(other) => vec![word(&other)],
        Err(_) => vec![note.to_owned()],
    };
    let words = words.into_iter().filter(|word| !word.is_empty());
    std::iter::once(mode).chain(words).collect::<Vec<_>>().join(", ")
}

/// Returns a JSON value as a reader would write it: texts without quotes, lists with commas.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => fields.iter().map(|(n, v)| format!("{n} {}", word(v))).collect::<Vec<_>>().join(" "),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_in_words_and_never_as_json() {
        for (value, shown) in [
            ("", "soft"),
            (r#"{"mode":"hard"}"#, "hard"),
            (
                r#"{"mode":"hard","reason":"disk swap","since":"2026-11-24T05:00:00Z","who":"alice"}"#,
                "hard, reason disk swap, since 2026-11-24T05:00:00Z, who alice",
            ),
            (r#"{"by":{"user":"bob","host":"ops2"}}"#, "soft, by user bob host ops2"),
            (r#"["a","b"]"#, "soft, a b"),
            (r#""note""#, "soft, note"),
            ("moved by bob", "soft, moved by bob"),
        ] {
            assert_eq!(request(value), shown, "{value}");
        }
    }
}

//! Events on Nodes, for `kubectl describe node` and `kubectl get events` (events.k8s.io/v1). They are for people: nothing
//! is decided from them, and none is worth a second try.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{call::with_body, connect::Kube, nodes::MERGE, nodes::WriteError};
use crate::{fence::Permit, model::kube::NodeRow};

/// Who reports, as `kubectl describe` shows it.
const CONTROLLER: &str = "cketerm.io/engine";
/// Events of objects without a namespace lie here.
const FOLDER: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// The server's limits, in bytes.
const NOTE: usize = 1024;
const INSTANCE: usize = 128;
const NAME: usize = 253;

/// Something that was done to a Node, or for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeEvent {
    /// The Node's name.
    pub node: String,
    /// Its UID.
    pub uid: String,
    /// A person should look.
    pub warning: bool,
    /// In one word: `DrainStarted`.
    pub reason: &'static str,
    /// What was at work: `Drain`.
    pub action: &'static str,
    /// What there is to say.
    pub note: String,
}

impl NodeEvent {
    /// Something about this Node.
    pub fn on(row: &NodeRow, (reason, action): (&'static str, &'static str), note: String) -> Self {
        Self { node: row.name.clone(), uid: row.uid.clone(), warning: false, reason, action, note }
    }
}

impl Kube {
    /// Writes a new Event under this name, as `host`.
    pub async fn create_event(
        &self,
        _: &Permit,
        name: &str,
        event: &NodeEvent,
        host: &str,
        at: Timestamp,
    ) -> Result<(), WriteError> {
        let body = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "eventTime": micro(at),
            "reportingController": CONTROLLER,
            "reportingInstance": cut(host, INSTANCE),
            "action": event.action,
            "reason": event.reason,
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": event.node, "uid": event.uid},
            "note": cut(&event.note, NOTE),
            "type": if event.warning { "Warning" } else { "Normal" },
        });
        self.send::<Value>(with_body("POST", FOLDER, "application/json", &body)).await?;
        Ok(())
    }

    /// Notes that it happened again, so many times by now. Errors: [`WriteError::NotFound`] where the server has forgotten
    /// the Event.
    pub async fn repeat_event(&self, _: &Permit, name: &str, count: u32, at: Timestamp) -> Result<(), WriteError> {
        let patch = json!({"series": {"count": count, "lastObservedTime": micro(at)}});
        self.send::<Value>(with_body("PATCH", &format!("{FOLDER}/{name}"), MERGE, &patch)).await?;
        Ok(())
    }
}

/// A name for an Event of this Node; `mark` tells it from the others.
pub fn event_name(node: &str, mark: &str) -> String {
    let room = NAME.saturating_sub(mark.len() + 1);
    format!("{}.{mark}", cut(node, room).trim_end_matches(['.', '-']))
}

/// As Kubernetes' `MicroTime` wants it.
fn micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// The first so many bytes, cut at a character.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_and_names_and_notes_fit() {
        assert_eq!(micro("2026-06-01T00:00:20Z".parse().unwrap()), "2026-06-01T00:00:20.000000Z");
        assert_eq!(micro("2026-06-01T00:00:20.123456789Z".parse().unwrap()), "2026-06-01T00:00:20.123456Z");
        assert_eq!(event_name("w1", "17f"), "w1.17f");
        assert_eq!(event_name(&"n".repeat(253), "17f").len(), 253);
        assert_eq!(cut("aé", 2), "a");
    }
}

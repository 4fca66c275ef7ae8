//! Events on Nodes, for `kubectl describe node` and `kubectl get events` (events.k8s.io/v1). They are for operators:
//! cketerm decides nothing from them and retries none.

use cketerm_model::{fence::Permit, kube::NodeRow, names::NodeName};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{call::with_body, connect::Kube, nodes::MERGE_PATCH, nodes::WriteError};

/// Reporting controller, as `kubectl describe` shows it.
const CONTROLLER: &str = "cketerm.io/engine";
/// Path of the Events of objects without a namespace.
const EVENTS_PATH: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// The server's limits, in bytes.
const MAX_NOTE: usize = 1024;
const MAX_INSTANCE: usize = 128;
const MAX_NAME: usize = 253;

/// Something that cketerm did to a Node, or for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeEvent {
    /// The Node's name.
    pub node: NodeName,
    /// Its UID.
    pub uid: String,
    /// Whether an operator should look at it.
    pub warning: bool,
    /// Reason in one word, for example `DrainStarted`.
    pub reason: &'static str,
    /// Action in one word, for example `Drain`.
    pub action: &'static str,
    /// Text of the Event.
    pub note: String,
}

impl NodeEvent {
    /// Creates an event about this Node.
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
            "eventTime": format_micros(at),
            "reportingController": CONTROLLER,
            "reportingInstance": truncate(host, MAX_INSTANCE),
            "action": event.action,
            "reason": event.reason,
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": event.node, "uid": event.uid},
            "note": truncate(&event.note, MAX_NOTE),
            "type": if event.warning { "Warning" } else { "Normal" },
        });
        self.send::<Value>(with_body("POST", EVENTS_PATH, "application/json", &body)).await?;
        Ok(())
    }

    /// Records that the event occurred again, `count` times in all. Errors: [`WriteError::NotFound`] if the server has
    /// deleted the Event.
    pub async fn repeat_event(&self, _: &Permit, name: &str, count: u32, at: Timestamp) -> Result<(), WriteError> {
        let patch = json!({"series": {"count": count, "lastObservedTime": format_micros(at)}});
        self.send::<Value>(with_body("PATCH", &format!("{EVENTS_PATH}/{name}"), MERGE_PATCH, &patch)).await?;
        Ok(())
    }
}

/// Returns a name for an Event of this Node. `mark` distinguishes it from others.
pub fn event_name(node: &NodeName, mark: &str) -> String {
    let max_node_bytes = MAX_NAME.saturating_sub(mark.len() + 1);
    format!("{}.{mark}", truncate(node, max_node_bytes).trim_end_matches(['.', '-']))
}

/// Formats a time as a `MicroTime` of Kubernetes.
fn format_micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Returns at most the first `bytes` bytes, cut at a character boundary.
fn truncate(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_times_have_microseconds_and_names_and_notes_are_truncated() {
        assert_eq!(format_micros("2026-06-01T00:00:20Z".parse().unwrap()), "2026-06-01T00:00:20.000000Z");
        assert_eq!(format_micros("2026-06-01T00:00:20.123456789Z".parse().unwrap()), "2026-06-01T00:00:20.123456Z");
        assert_eq!(event_name(&NodeName::new("w1"), "17f"), "w1.17f");
        assert_eq!(event_name(&NodeName::new("n".repeat(253)), "17f").len(), 253);
        assert_eq!(truncate("aé", 2), "a");
    }
}

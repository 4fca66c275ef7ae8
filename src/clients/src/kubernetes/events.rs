//! Events on Nodes and Pods, for `kubectl describe` and `kubectl get events` (events.k8s.io/v1). They are for operators:
//! cketerm decides nothing from them and retries none.

use cketerm_model::{
    fence::Permit,
    kube::{NodeRow, PodRow},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{call::with_body, connect::Kube, nodes::MERGE_PATCH, nodes::WriteError};

/// Reporting controller, as `kubectl describe` shows it.
const CONTROLLER: &str = "cketerm.io/engine";
/// Namespace of the Events of objects without a namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// The server's limits, in bytes.
const MAX_NOTE: usize = 1024;
const MAX_INSTANCE: usize = 128;
const MAX_NAME: usize = 253;

/// Object that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Regarding {
    /// Its kind.
    kind: &'static str,
    /// Its namespace; empty for a Node.
    namespace: String,
    /// Its name.
    name: String,
    /// Its UID.
    uid: String,
}

impl Regarding {
    /// Returns the namespace of the object's Events.
    fn events_namespace(&self) -> &str {
        if self.namespace.is_empty() { DEFAULT_NAMESPACE } else { &self.namespace }
    }

    fn events_path(&self) -> String {
        format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.events_namespace())
    }
}

/// Something that cketerm did to a Node or a Pod, or for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectEvent {
    /// The object.
    pub regarding: Regarding,
    /// Whether an operator should look at it.
    pub warning: bool,
    /// Reason in one word, for example `DrainStarted`.
    pub reason: &'static str,
    /// Action in one word, for example `Drain`.
    pub action: &'static str,
    /// Text of the Event.
    pub note: String,
}

impl ObjectEvent {
    /// Creates an event about this Node.
    pub fn on(row: &NodeRow, what: (&'static str, &'static str), note: String) -> Self {
        let (name, uid) = (row.name.to_string(), row.uid.clone());
        Self::about(Regarding { kind: "Node", namespace: String::new(), name, uid }, what, note)
    }

    /// Creates an event about this Pod.
    pub fn on_pod(row: &PodRow, what: (&'static str, &'static str), note: String) -> Self {
        let (namespace, name, uid) = (row.namespace.clone(), row.name.clone(), row.uid.clone());
        Self::about(Regarding { kind: "Pod", namespace, name, uid }, what, note)
    }

    fn about(regarding: Regarding, (reason, action): (&'static str, &'static str), note: String) -> Self {
        Self { regarding, warning: false, reason, action, note }
    }

    /// Returns the object for messages: `Node w1`, `Pod shop/web-0`.
    pub fn object(&self) -> String {
        let Regarding { kind, namespace, name, .. } = &self.regarding;
        if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
    }

    /// Returns the namespace in which the Event is.
    pub fn namespace(&self) -> &str {
        self.regarding.events_namespace()
    }

    /// Reports whether it is about a pod, not about a Node.
    pub fn is_about_pod(&self) -> bool {
        !self.regarding.namespace.is_empty()
    }

    /// Returns a name for this Event. `mark` distinguishes it from others.
    pub fn event_name(&self, mark: &str) -> String {
        event_name(&self.regarding.name, mark)
    }
}

impl Kube {
    /// Writes a new Event under this name, as `host`.
    pub async fn create_event(
        &self,
        _: &Permit,
        name: &str,
        event: &ObjectEvent,
        host: &str,
        at: Timestamp,
    ) -> Result<(), WriteError> {
        let Regarding { kind, namespace, name: object, uid } = &event.regarding;
        let mut regarding = json!({"apiVersion": "v1", "kind": kind, "name": object, "uid": uid});
        if !namespace.is_empty() {
            regarding["namespace"] = json!(namespace);
        }
        let body = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": event.regarding.events_namespace()},
            "eventTime": format_micros(at),
            "reportingController": CONTROLLER,
            "reportingInstance": truncate(host, MAX_INSTANCE),
            "action": event.action,
            "reason": event.reason,
            "regarding": regarding,
            "note": truncate(&event.note, MAX_NOTE),
            "type": if event.warning { "Warning" } else { "Normal" },
        });
        self.send::<Value>(with_body("POST", &event.regarding.events_path(), "application/json", &body)).await?;
        Ok(())
    }

    /// Records that the event occurred again, `count` times in all, with its present note. Errors: [`WriteError::NotFound`] if the server has
    /// deleted the Event.
    pub async fn repeat_event(
        &self,
        _: &Permit,
        name: &str,
        event: &ObjectEvent,
        count: u32,
        at: Timestamp,
    ) -> Result<(), WriteError> {
        let series = json!({"count": count, "lastObservedTime": format_micros(at)});
        let body = json!({"series": series, "note": truncate(&event.note, MAX_NOTE)});
        let path = format!("{}/{name}", event.regarding.events_path());
        self.send::<Value>(with_body("PATCH", &path, MERGE_PATCH, &body)).await?;
        Ok(())
    }
}

/// Returns a name for an Event of the object with this name.
fn event_name(object: &str, mark: &str) -> String {
    let max_object_bytes = MAX_NAME.saturating_sub(mark.len() + 1);
    format!("{}.{mark}", truncate(object, max_object_bytes).trim_end_matches(['.', '-']))
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
        assert_eq!(event_name("w1", "17f"), "w1.17f");
        assert_eq!(event_name(&"n".repeat(253), "17f").len(), 253);
        assert_eq!(truncate("aé", 2), "a");
    }
}

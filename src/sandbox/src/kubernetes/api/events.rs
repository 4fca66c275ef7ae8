//! The two API groups of events have different names for the same fields. Events are stored as they were written, and
//! converted when they are read.

use serde_json::{Value, json};

use crate::kubernetes::Resource;

/// Each field's name in the core group and in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("reportingComponent", "reportingController"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
];

/// Converts an event to the requested group. Returns `None` if no conversion is necessary.
pub(super) fn converted_to(kind: &'static Resource, object: &Value) -> Option<Value> {
    if kind.plural != "events" || object["apiVersion"] == kind.api_version().as_str() {
        return None;
    }
    let core = kind.group.is_empty();
    let mut out = object.clone();
    out["apiVersion"] = json!(kind.api_version());
    let fields = out.as_object_mut()?;
    for (old, new) in NAMES {
        let (from, to) = if core { (new, old) } else { (old, new) };
        if let Some(value) = fields.shift_remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::resource::{CORE_EVENTS, EVENTS};

    #[test]
    fn an_event_is_converted_to_the_requested_api_group() {
        let event = json!({"kind": "Event", "apiVersion": "events.k8s.io/v1", "note": "n", "regarding": {"name": "x"}});
        let core = converted_to(&CORE_EVENTS, &event).unwrap();
        assert_eq!(core["message"], "n");
        assert_eq!(core["involvedObject"]["name"], "x");
        assert_eq!(converted_to(&EVENTS, &event), None);
        assert_eq!(converted_to(&EVENTS, &core).unwrap()["note"], "n");
    }
}

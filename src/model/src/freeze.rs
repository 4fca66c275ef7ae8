//! Freezes: no new work starts until a given time (policy `freeze`; REB-52, I6, I8). Also groups: the number of racks,
//! zones or other groups in progress at once (policy `groups`, REB-18).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    cketerm_records::Who,
    labels::{Labels, attribute},
};

/// A freeze of both queues until `until`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Freeze {
    /// End of the freeze.
    pub until: Timestamp,
    /// Reason.
    pub reason: String,
    /// User who set it.
    #[serde(default)]
    pub who: Who,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Freeze {
    /// Returns true while the freeze lasts.
    pub fn holds(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// Limit of the groups of machines in progress at once, in the reboot queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Groups {
    /// Label whose value is the group: a whole key, or its last part (`rack`).
    pub by: String,
    /// Maximum number of groups in progress at once.
    #[serde(default = "one")]
    pub limit: u32,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

fn one() -> u32 {
    1
}

impl Groups {
    /// Reads a document that a user wrote, YAML or JSON.
    pub fn read(text: &str) -> Result<Self, String> {
        let value = super::cluster::parse(text).map_err(|e| format!("groups: {e}"))?;
        let found: Self = serde_json::from_value(value).map_err(|e| format!("groups: {e}"))?;
        if let Some(field) = found.unknown.keys().next() {
            return Err(format!("groups: unknown field {field}; known fields: by, limit"));
        }
        if found.limit == 0 {
            return Err("groups: limit must be positive: with 0 nothing would start".to_owned());
        }
        if !super::cluster::is_label_key(&found.by) {
            return Err(format!("groups: by: {:?} is not a label key: use rack or a full key", found.by));
        }
        Ok(found)
    }

    /// Returns the group of a machine with these labels. Machines without the label belong to the group `none`.
    pub fn of(&self, labels: &Labels) -> String {
        attribute(labels, &self.by).cloned().unwrap_or_else(|| "none".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_parsed_or_refused_with_their_field() {
        let groups = Groups::read("by: rack").unwrap();
        assert_eq!(groups.limit, 1);
        let labels = |key: &str| [(key.to_owned(), "7".to_owned())].into();
        assert_eq!(groups.of(&labels("cke.cybozu.com/rack")), "7");
        assert_eq!(groups.of(&labels("zone")), "none");
        for (text, expected) in [
            ("{by: rack, limit: 0}", "limit must be positive"),
            ("{by: 'a b'}", "is not a label key"),
            ("{by: rack, most: 2}", "unknown field most"),
            ("{limit: 2}", "missing field `by`"),
        ] {
            assert!(Groups::read(text).unwrap_err().contains(expected), "{text}");
        }
    }

    #[test]
    fn a_freeze_expires_and_keeps_unknown_fields() {
        let text = r#"{"until":"2026-08-01T08:00:00Z","reason":"quarter end","later":1}"#;
        let freeze: Freeze = serde_json::from_str(text).unwrap();
        assert!(freeze.holds("2026-08-01T07:59:59Z".parse().unwrap()));
        assert!(!freeze.holds("2026-08-01T08:00:00Z".parse().unwrap()));
        assert_eq!(serde_json::to_value(&freeze).unwrap()["later"], 1);
    }
}

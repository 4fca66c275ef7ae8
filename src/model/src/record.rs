//! CKE's operation record, which `ckecli history` prints (STO-20, STO-21).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Number of records that are kept (STO-14).
pub const MAX_RECORDS: u64 = 1000;

/// Value of `records/%016x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number in a JSON string; the first is 1.
    #[serde(with = "super::entry::text_number")]
    pub id: u64,
    /// `new`, `running`, `cancelled` or `completed`.
    pub status: String,
    /// Operation, such as `reboot-drain-start`.
    pub operation: String,
    /// The action and its object.
    pub command: RecordCommand,
    /// Addresses of the machines.
    #[serde(default)]
    pub targets: Option<Vec<String>>,
    /// Free text.
    #[serde(default)]
    pub info: String,
    /// The error, if any.
    #[serde(default)]
    pub error: String,
    /// Start, with nanoseconds.
    #[serde(rename = "start-at", with = "super::time::go", default)]
    pub start_at: Option<Timestamp>,
    /// End, with nanoseconds; none while it runs.
    #[serde(rename = "end-at", with = "super::time::go", default)]
    pub end_at: Option<Timestamp>,
    /// Fields that cketerm does not know; kept as they are.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// Command of a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordCommand {
    /// CKE's name of the command.
    pub name: String,
    /// One or several addresses.
    #[serde(default)]
    pub target: String,
    /// Further details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Record {
    /// Returns a record of a completed action in CKE's wording. `target` is what CKE names for this operation: mostly a
    /// machine's address, for pods of DaemonSets the Node.
    pub fn completed(id: u64, operation: &str, target: &str, error: &str, start: Timestamp, end: Timestamp) -> Self {
        Self {
            id,
            status: "completed".to_owned(),
            operation: operation.to_owned(),
            command: RecordCommand {
                name: format!("{operation} (cketerm)"),
                target: target.to_owned(),
                detail: String::new(),
            },
            targets: Some(vec![target.to_owned()]),
            info: String::new(),
            error: error.to_owned(),
            start_at: Some(start),
            end_at: Some(end),
            unknown: Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cke_record_round_trips_unchanged() {
        let text = r#"{"id":"3","status":"running","operation":"reboot-drain-start","command":{"name":"rebootDrainStartCommand","target":"10.0.0.12"},"targets":["10.0.0.12"],"info":"","error":"","start-at":"2026-06-01T00:00:03.5Z","end-at":"0001-01-01T00:00:00Z"}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
    }
}

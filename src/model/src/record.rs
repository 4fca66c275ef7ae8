//! CKE's operation record, which `ckecli history` prints (STO-20, STO-21).

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::Address;

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

/// End of the command's name in records that cketerm writes.
const BY_CKETERM: &str = " (cketerm)";

impl Record {
    /// Reports whether cketerm wrote the record; else CKE did.
    pub fn by_cketerm(&self) -> bool {
        self.command.name.ends_with(BY_CKETERM)
    }

    /// Returns the machines on which the operation failed although it was completed. CKE lists them in `info`:
    /// `failed to reboot some nodes: [10.0.0.12 10.0.0.13]`.
    pub fn failed_machines(&self) -> Vec<Address> {
        let list = self.info.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(list, _)| list);
        let words = list.into_iter().flat_map(str::split_whitespace);
        words.filter(|word| word.parse::<IpAddr>().is_ok()).map(Address::new).collect()
    }

    /// Returns a record of a completed action in CKE's wording. `target` is what CKE names for this operation: mostly a
    /// machine's address, for pods of DaemonSets the Node.
    pub fn completed(id: u64, operation: &str, target: &str, error: &str, start: Timestamp, end: Timestamp) -> Self {
        Self {
            id,
            status: "completed".to_owned(),
            operation: operation.to_owned(),
            command: RecordCommand {
                name: format!("{operation}{BY_CKETERM}"),
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
        assert!(!record.by_cketerm() && record.failed_machines().is_empty());
    }

    #[test]
    fn the_machines_on_which_ckes_work_failed_are_read_from_its_info() {
        let mut record = Record::completed(1, "reboot-reboot", "x", "", Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        assert!(record.by_cketerm());
        record.info = "failed to reboot some nodes: [10.0.0.12 fd00::1]".to_owned();
        assert_eq!(record.failed_machines(), ["10.0.0.12", "fd00::1"].map(Address::new));
        record.info = "nothing in brackets, 10.0.0.12".to_owned();
        assert_eq!(record.failed_machines(), [] as [Address; 0]);
    }
}

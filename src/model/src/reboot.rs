//! Entries of the reboot queue (REB-1, REB-2).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{fault, names::Address};

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RebootStatus {
    /// Waits for its turn, or for the end of its backoff.
    Queued,
    /// The node is cordoned and its pods are leaving.
    Draining,
    /// The reboot command ran, or is about to run.
    Rebooting,
    /// Is removed at once.
    Cancelled,
}

impl fmt::Display for RebootStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Queued => "queued",
            Self::Draining => "draining",
            Self::Rebooting => "rebooting",
            Self::Cancelled => "cancelled",
        })
    }
}

/// Value of `reboots/data/%016x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebootEntry {
    /// Its index; a number in a JSON string.
    #[serde(with = "super::entry::text_number")]
    pub index: u64,
    /// The node's IP address.
    pub node: Address,
    /// Its state.
    pub status: RebootStatus,
    /// Last change of `status`; none for a fresh entry.
    #[serde(with = "super::time::go", default)]
    pub last_transition_time: Option<Timestamp>,
    /// Number of drains that backed off. CKE leaves it out if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drain_backoff_count: i64,
    /// End of the backoff.
    #[serde(with = "super::time::go", default)]
    pub drain_backoff_expire: Option<Timestamp>,
    /// Fields that cketerm does not know; kept as they are.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_zero(n: &i64) -> bool {
    *n == 0
}

impl RebootEntry {
    /// Returns a fresh entry, as `ckecli reboot-queue add` writes it.
    pub fn queued(index: u64, address: &Address) -> Self {
        Self {
            index,
            node: address.clone(),
            status: RebootStatus::Queued,
            last_transition_time: None,
            drain_backoff_count: 0,
            drain_backoff_expire: None,
            unknown: Map::new(),
        }
    }

    /// Returns true while the entry claims its machine: draining, or after its reboot command.
    pub fn claims_machine(&self) -> bool {
        matches!(self.status, RebootStatus::Draining | RebootStatus::Rebooting)
    }

    /// Returns the entry in another state since `now`, in whole seconds.
    #[must_use]
    pub fn moved_to(&self, status: RebootStatus, now: Timestamp) -> Self {
        let before = self.clone();
        fault!(UnknownFieldsLost => before = Self { unknown: Map::new(), ..before });
        Self { status, last_transition_time: Some(super::time::whole_seconds(now)), ..before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_entry_is_written_byte_for_byte_as_ckecli_does() {
        let text = serde_json::to_string(&RebootEntry::queued(0, &Address::new("10.0.0.12"))).unwrap();
        assert_eq!(
            text,
            r#"{"index":"0","node":"10.0.0.12","status":"queued","last_transition_time":"0001-01-01T00:00:00Z","drain_backoff_expire":"0001-01-01T00:00:00Z"}"#
        );
    }

    #[test]
    fn the_last_three_fields_may_be_absent_and_unknown_fields_survive() {
        let text = r#"{"index":"7","node":"10.0.0.1","status":"draining","ticket":{"a":[1]}}"#;
        let entry: RebootEntry = serde_json::from_str(text).unwrap();
        assert_eq!((entry.index, entry.drain_backoff_count, entry.drain_backoff_expire), (7, 0, None));
        let back: Value = serde_json::to_value(&entry).unwrap();
        assert_eq!(back["ticket"]["a"][0], 1);
    }

    #[test]
    fn an_index_that_is_not_a_numeric_string_is_refused() {
        for index in ["3", "\"x\""] {
            let text = format!(r#"{{"index":{index},"node":"10.0.0.1","status":"queued"}}"#);
            assert!(serde_json::from_str::<RebootEntry>(&text).is_err(), "{index}");
        }
    }
}

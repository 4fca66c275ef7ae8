//! Maintenance: a Node that is drained and stays cordoned, without a reboot, until somebody releases it or its time is
//! over (STO-75). CKE does not read these keys: its queue would reboot the machine.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{cketerm_records::Who, names::Address, time::whole_seconds};

/// State of a maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaintenanceStatus {
    /// Waits for its turn, or for the end of its backoff.
    Queued,
    /// The Node is cordoned and its pods are leaving.
    Draining,
    /// The Node is empty and stays cordoned.
    InMaintenance,
}

impl fmt::Display for MaintenanceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Queued => "queued",
            Self::Draining => "draining",
            Self::InMaintenance => "in-maintenance",
        })
    }
}

/// End of a maintenance by an operator. The leader then removes it and uncordons the Node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Released {
    /// The operator.
    pub who: Who,
    /// Time of the command.
    pub at: Timestamp,
    /// The operator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Value of `cketerm/maintenance/data/%016x`. Who requested it, why, and the UID of the Node are in its request, as for
/// entries of the queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaintenanceEntry {
    /// Its index; a number in a JSON string, as in the queues.
    #[serde(with = "super::entry::text_number")]
    pub index: u64,
    /// The machine's IP address.
    pub node: Address,
    /// Its state.
    pub status: MaintenanceStatus,
    /// End of the maintenance: it is removed then, whatever its state is.
    pub until: Timestamp,
    /// Set once somebody has ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Released>,
    /// Last change of `status`; none for a fresh one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// Number of drains that backed off.
    #[serde(default)]
    pub drain_backoff_count: i64,
    /// End of the backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_backoff_expire: Option<Timestamp>,
    /// Fields that this version does not know; kept as they are.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl MaintenanceEntry {
    /// Returns a fresh maintenance of a machine.
    pub fn queued(index: u64, address: &Address, until: Timestamp) -> Self {
        Self {
            index,
            node: address.clone(),
            status: MaintenanceStatus::Queued,
            until,
            released: None,
            last_transition_time: None,
            drain_backoff_count: 0,
            drain_backoff_expire: None,
            unknown: Map::new(),
        }
    }

    /// Reports whether it claims its machine: its drain has begun, and it is not over.
    pub fn claims_machine(&self) -> bool {
        self.status != MaintenanceStatus::Queued
    }

    /// Returns it in another state since `now`, in whole seconds.
    #[must_use]
    pub fn moved_to(&self, status: MaintenanceStatus, now: Timestamp) -> Self {
        Self { status, last_transition_time: Some(whole_seconds(now)), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_maintenance_is_written_with_the_names_of_the_queues_and_keeps_unknown_fields() {
        let fresh = MaintenanceEntry::queued(3, &Address::new("10.0.0.12"), time("2026-11-27T14:00:00Z"));
        let mut value = serde_json::to_value(&fresh).unwrap();
        assert_eq!((&value["index"], &value["status"]), (&"3".into(), &"queued".into()));
        value["ticket"] = "OPS-7".into();
        let read: MaintenanceEntry = serde_json::from_value(value).unwrap();
        let moved = read.moved_to(MaintenanceStatus::InMaintenance, time("2026-11-27T10:05:00.5Z"));
        let text = serde_json::to_value(&moved).unwrap();
        assert_eq!((&text["ticket"], &text["status"]), (&"OPS-7".into(), &"in-maintenance".into()));
        assert_eq!(text["last_transition_time"], "2026-11-27T10:05:00Z");
        assert!(moved.claims_machine() && !fresh.claims_machine());
    }
}

//! The record that the leader keeps of each `MaintenanceRequest` that it has accepted (STO-76).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    batch::BatchId,
    entry::EntryId,
    maintenance_request::{RequestReason, RequestedAction},
    names::{Address, NodeName},
};

/// Value of `cketerm/maintenance-requests/<uid>`: what the leader made of a request that it accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptedRequest {
    /// Name of the object.
    pub name: String,
    /// The cause.
    pub reason: String,
    /// The action.
    pub action: RequestedAction,
    /// End of its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// Time of the acceptance.
    pub at: Timestamp,
    /// The Nodes, chosen at that time, in the order of their names.
    pub nodes: Vec<AcceptedNode>,
    /// Batch of its reboots, once the first is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Set once nothing more is queued for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<RequestEnd>,
    /// Fields that this version does not know; kept as they are.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl AcceptedRequest {
    /// Returns its entries.
    pub fn entries(&self) -> impl Iterator<Item = EntryId> {
        let queue = self.action.queue();
        self.nodes.iter().filter_map(move |node| Some(EntryId { queue, index: node.index? }))
    }
}

/// A Node of an accepted request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedNode {
    /// Its name.
    pub name: NodeName,
    /// Address of the machine.
    pub address: Address,
    /// UID of the Node at the acceptance.
    pub uid: String,
    /// Index of its entry. Once it is set, no second one is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

/// End of an accepted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEnd {
    /// Time at which the leader found it.
    pub at: Timestamp,
    /// Its cause.
    pub cause: RequestReason,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_unknown_fields_and_names_its_entries() {
        let text = r#"{"name": "disk", "reason": "x", "action": "Reboot", "at": "2026-12-01T00:00:00Z", "ticket": 7,
            "nodes": [{"name": "w1", "address": "10.0.0.1", "uid": "u", "index": 4},
                      {"name": "w2", "address": "10.0.0.2", "uid": "v"}]}"#;
        let record: AcceptedRequest = serde_json::from_str(text).unwrap();
        assert_eq!(record.entries().collect::<Vec<_>>(), [EntryId::reboot(4)]);
        assert_eq!(serde_json::to_value(&record).unwrap()["ticket"], 7);
    }
}

//! `constraints`: limits that administrators set (CLU-27 to CLU-30).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// JSON object under `constraints`. Defaults apply if the whole key is missing. A member that is missing from a stored
/// object counts as 0, as in CKE (CLU-28).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Constraints {
    /// Number of control-plane nodes that the definition must have.
    #[serde(default)]
    pub control_plane_count: i64,
    /// Minimum share of healthy workers in percent (strategy `all-healthy`).
    #[serde(default)]
    pub minimum_workers_rate: i64,
    /// Number of unreachable nodes above which no new drain starts.
    #[serde(default)]
    pub maximum_unreachable_nodes_for_reboot: i64,
    /// Maximum length of the repair queue up to which automatic repair adds entries; 0 = add none.
    #[serde(default)]
    pub maximum_repair_queue_entries: i64,
    /// Seconds before a rebooting machine that is unreachable is repaired.
    #[serde(default)]
    pub wait_seconds_to_repair_rebooting: i64,
    /// Minimum number of workers of a generated definition (strategy `weighted`; current CKE does not know it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_workers: Option<i64>,
    /// Maximum number of workers of a generated definition, 0 = no limit (as above).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_workers: Option<i64>,
    /// Members that cketerm does not know; kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Constraints {
    /// Takes the two constraints that today's `ckecli` drops from cketerm's copy if CKE's object lacks them.
    pub fn fill_workers(&mut self, own: &Self) {
        self.minimum_workers = self.minimum_workers.or(own.minimum_workers);
        self.maximum_workers = self.maximum_workers.or(own.maximum_workers);
    }
}

impl Default for Constraints {
    fn default() -> Self {
        Self {
            control_plane_count: 1,
            minimum_workers_rate: 80,
            maximum_unreachable_nodes_for_reboot: 0,
            maximum_repair_queue_entries: 0,
            wait_seconds_to_repair_rebooting: 0,
            minimum_workers: None,
            maximum_workers: None,
            unknown: Map::new(),
        }
    }
}

//! `constraints`: the limits that administrators set (spec/sabakan.md, spec/etcd.md).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The JSON object under `constraints`. Defaults apply when the whole key is missing; a member that is
/// missing from a stored object reads as 0, as in CKE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Constraints {
    /// How many control-plane nodes the definition must have.
    #[serde(default)]
    pub control_plane_count: i64,
    /// Fewest healthy workers in percent (strategy all-healthy).
    #[serde(default)]
    pub minimum_workers_rate: i64,
    /// Above so many unreachable nodes no new drain starts.
    #[serde(default)]
    pub maximum_unreachable_nodes_for_reboot: i64,
    /// Automatic repair keeps the repair queue at or below this; 0 = none.
    #[serde(default)]
    pub maximum_repair_queue_entries: i64,
    /// Seconds before an unreachable machine that we reboot is repaired.
    #[serde(default)]
    pub wait_seconds_to_repair_rebooting: i64,
    /// Fewest workers of a generated definition (strategy weighted; today's CKE does not know it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_workers: Option<i64>,
    /// Most workers of a generated definition, 0 = no limit (likewise).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_workers: Option<i64>,
    /// Members that we do not know, kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
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

//! Conditions of a site for the uncordon of a rebooted worker (policy `uncordon_gates`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{cluster, kube::NodeRow};

/// Maximum number of conditions, and of taints.
const MAX_NAMES: usize = 32;
/// Seconds after which a closed gate counts as a fault, unless the document says otherwise.
const OVERDUE_SECONDS: u64 = 1800;
/// Conditions of the kubelet that a Node's row holds only while they are not False.
const USUALLY_FALSE: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

/// Conditions that a worker must meet after its reboot before it is uncordoned. The default has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UncordonGates {
    /// Conditions of the Node, with the status that each must have: `True`, `False` or `Unknown`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, String>,
    /// Keys of taints that must be gone, such as those that a CNI plugin removes once it works.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints_gone: Vec<String>,
    /// Whether all pods of DaemonSets on the Node must be Ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub daemon_sets: bool,
    /// Seconds after the start of the reboot command from which a closed gate counts as a fault.
    pub overdue_seconds: u64,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Default for UncordonGates {
    fn default() -> Self {
        Self {
            conditions: BTreeMap::new(),
            taints_gone: Vec::new(),
            daemon_sets: false,
            overdue_seconds: OVERDUE_SECONDS,
            unknown: Map::new(),
        }
    }
}

impl UncordonGates {
    /// Reads a document that a user wrote: YAML or JSON, or `none`.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self::default());
        }
        let value = cluster::parse(text).map_err(|e| format!("uncordon_gates: {e}"))?;
        let gates: Self = serde_json::from_value(value).map_err(|e| format!("uncordon_gates: {e}"))?;
        if let Some(field) = gates.unknown.keys().next() {
            return Err(format!(
                "uncordon_gates: unknown field {field}; known: conditions, taints_gone, daemon_sets, overdue_seconds"
            ));
        }
        if let Some((name, status)) =
            gates.conditions.iter().find(|(_, status)| !matches!(status.as_str(), "True" | "False" | "Unknown"))
        {
            return Err(format!("uncordon_gates: conditions: {name}: {status:?} is not True, False or Unknown"));
        }
        if gates.conditions.len().max(gates.taints_gone.len()) > MAX_NAMES {
            return Err(format!("uncordon_gates: at most {MAX_NAMES} conditions, and as many taints"));
        }
        if gates.overdue_seconds == 0 {
            return Err("uncordon_gates: overdue_seconds must be positive".to_owned());
        }
        Ok(gates)
    }

    /// Reports whether there is no gate.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.taints_gone.is_empty() && !self.daemon_sets
    }

    /// Returns the first condition or taint that keeps the gate closed.
    pub fn missing_of_node(&self, node: &NodeRow) -> Option<String> {
        let condition = self.conditions.iter().find_map(|(name, wanted)| {
            let found = condition(node, name);
            (found != Some(wanted)).then(|| format!("condition {name} is {}, not {wanted}", found.unwrap_or("absent")))
        });
        condition.or_else(|| {
            let key = self.taints_gone.iter().find(|key| node.described.taints.iter().any(|t| t.key == **key))?;
            Some(format!("the taint {key} is not gone"))
        })
    }
}

/// Returns the status of a Node's condition.
fn condition<'n>(node: &'n NodeRow, name: &str) -> Option<&'n str> {
    if name == "Ready" {
        return Some(if node.ready { "True" } else { "False" });
    }
    node.conditions.get(name).or_else(|| USUALLY_FALSE.contains(&name).then_some("False"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Taint;

    #[test]
    fn a_document_is_checked_and_none_is_empty() {
        assert!(UncordonGates::read("none").unwrap().is_empty());
        let gates =
            UncordonGates::read("{conditions: {Ready: 'True'}, taints_gone: [a/b], daemon_sets: true}").unwrap();
        assert!(!gates.is_empty() && gates.overdue_seconds == 1800);
        for (text, expected) in [
            ("{condition: {}}", "unknown field condition"),
            ("{conditions: {Ready: 'yes'}}", "not True, False or Unknown"),
            ("{overdue_seconds: 0}", "must be positive"),
            ("[1]", "uncordon_gates"),
        ] {
            let why = UncordonGates::read(text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }

    #[test]
    fn the_first_fault_of_a_node_is_named() {
        let text = "{conditions: {Ready: 'True', RaidHealthy: 'True', DiskPressure: 'False'}, taints_gone: [cni/off]}";
        let gates = UncordonGates::read(text).unwrap();
        let mut node = NodeRow { ready: true, ..NodeRow::default() };
        let missing = |node: &NodeRow| gates.missing_of_node(node);
        assert_eq!(missing(&node).unwrap(), "condition RaidHealthy is absent, not True");
        let set = |status: &str| [("RaidHealthy".to_owned(), status.to_owned())].into_iter().collect();
        node.conditions = set("False");
        assert_eq!(missing(&node).unwrap(), "condition RaidHealthy is False, not True");
        node.conditions = set("True");
        node.described.taints = vec![Taint { key: "cni/off".to_owned(), ..Taint::default() }];
        assert_eq!(missing(&node).unwrap(), "the taint cni/off is not gone");
        node.described.taints.clear();
        assert_eq!(missing(&node), None);
        node.ready = false;
        assert_eq!(missing(&node).unwrap(), "condition Ready is False, not True");
    }
}

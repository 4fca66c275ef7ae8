//! The cluster definition: CKE's format, of which we use a part and keep the rest (spec/cluster.md).
//!
//! Reading what is stored is lenient: whatever CKE took must not stop an engine. What a person sets is read by
//! [`parse`], judged by [`check`] and brought into CKE's form by [`written`].

mod check;
mod limits;
mod parse;
mod procedures;
mod schema;
mod work;
mod written;

pub use check::{Checked, Fault, check, check_template, queue_faults};
pub use limits::{is_label_key, is_label_value};
pub use parse::{parse, stored};
pub use procedures::steps_in_words;
pub use work::Eviction;
pub use written::written;

use std::collections::BTreeMap;

use foldhash::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::selector::Selector;

/// What lies under `cluster`, as CKE writes it: `null` and `""` where nothing was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The members.
    #[serde(deserialize_with = "null_is_default")]
    pub nodes: Vec<Node>,
    /// Whether control planes are tainted.
    #[serde(deserialize_with = "null_is_default")]
    pub taint_control_plane: bool,
    /// Keys of taints that control planes tolerate.
    pub control_plane_tolerations: Option<Vec<String>>,
    /// Kept.
    #[serde(deserialize_with = "null_is_default")]
    pub service_subnet: String,
    /// Kept.
    pub dns_servers: Option<Vec<String>>,
    /// Kept.
    #[serde(deserialize_with = "null_is_default")]
    pub dns_service: String,
    /// How nodes are rebooted.
    #[serde(deserialize_with = "null_is_default")]
    pub reboot: Reboot,
    /// How machines are repaired.
    #[serde(deserialize_with = "null_is_default")]
    pub repair: Repair,
    /// sabakan's own settings; kept.
    pub sabakan: Value,
    /// Options of CKE's programs; kept.
    pub options: Value,
    /// Everything else; kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A member of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// IP address; empty in templates.
    #[serde(deserialize_with = "null_is_default")]
    pub address: String,
    /// The Kubernetes Node's name where it is not the address.
    #[serde(deserialize_with = "null_is_default")]
    pub hostname: String,
    /// SSH user of CKE.
    #[serde(deserialize_with = "null_is_default")]
    pub user: String,
    /// Runs an API server.
    #[serde(deserialize_with = "null_is_default")]
    pub control_plane: bool,
    /// Annotations of the Kubernetes Node.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels of the Kubernetes Node.
    pub labels: Option<BTreeMap<String, String>>,
    /// Taints of the Kubernetes Node.
    pub taints: Option<Vec<Taint>>,
    /// Everything else; refused by `cluster set`, kept where it is there already.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Node {
    /// The Kubernetes Node's name: `hostname`, or the address.
    pub fn node_name(&self) -> &str {
        if self.hostname.is_empty() { &self.address } else { &self.hostname }
    }
}

/// A taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    #[serde(deserialize_with = "null_is_default")]
    pub key: String,
    /// Its value.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(deserialize_with = "null_is_default")]
    pub effect: String,
}

/// The `reboot` section (spec/reboot.md).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reboot {
    /// Command line; the node's address is appended.
    pub reboot_command: Option<Vec<String>>,
    /// Command line; the address and the Unix time of the last transition are appended.
    pub boot_check_command: Option<Vec<String>>,
    /// Deadline of one drain in seconds; default 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_timeout_seconds: Option<i64>,
    /// Timeout in seconds of both commands; 0 = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_seconds: Option<i64>,
    /// Nodes in `draining` or `rebooting` at once; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reboots: Option<i64>,
    /// Further tries of the reboot command.
    pub command_retries: Option<i64>,
    /// Seconds between them.
    pub command_interval: Option<i64>,
    /// Further previews or first evictions after a refusal.
    pub evict_retries: Option<i64>,
    /// Seconds between them.
    pub evict_interval: Option<i64>,
    /// Namespaces whose pods are never deleted; none = all.
    #[serde(deserialize_with = "selector_or_all", skip_serializing_if = "Option::is_none")]
    pub protected_namespaces: Option<Selector>,
    /// Running Job-managed pods that hold a drain back; none = all.
    #[serde(deserialize_with = "selector_or_all", skip_serializing_if = "Option::is_none")]
    pub protected_job_pods: Option<Selector>,
    /// Everything else; refused by `cluster set`, kept where it is there already.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Reboot {
    /// Deadline of one drain in seconds.
    pub fn eviction_timeout(&self) -> i64 {
        self.eviction_timeout_seconds.unwrap_or(600)
    }

    /// How many nodes may be in work at once.
    pub fn concurrency(&self) -> i64 {
        self.max_concurrent_reboots.unwrap_or(1)
    }

    /// Tries of the reboot command: 1 + retries.
    pub fn tries(&self) -> u32 {
        1 + u32::try_from(self.command_retries.unwrap_or(0)).unwrap_or(0)
    }

    /// Seconds that a command may run, under the policy's cap where none is set.
    pub fn command_bound(&self, cap: u64) -> u64 {
        match self.command_timeout_seconds {
            Some(n) if n > 0 => n.unsigned_abs(),
            _ => cap,
        }
    }
}

/// The `repair` section (spec/repair.md).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Repair {
    /// What to do, by machine type.
    pub repair_procedures: Option<Vec<Procedure>>,
    /// Machines in repair at once; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_repairs: Option<i64>,
    /// As for reboots.
    #[serde(deserialize_with = "selector_or_all", skip_serializing_if = "Option::is_none")]
    pub protected_namespaces: Option<Selector>,
    /// As for reboots.
    #[serde(deserialize_with = "selector_or_all", skip_serializing_if = "Option::is_none")]
    pub protected_job_pods: Option<Selector>,
    /// As for reboots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_retries: Option<i64>,
    /// As for reboots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_interval: Option<i64>,
    /// As for reboots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_timeout_seconds: Option<i64>,
    /// Everything else; refused by `cluster set`, kept where it is there already.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// What to do with machines of some types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Procedure {
    /// The types.
    pub machine_types: Option<Vec<String>>,
    /// The operations.
    pub repair_operations: Option<Vec<Operation>>,
    /// Everything else.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub operation: String,
    /// Its steps.
    pub repair_steps: Option<Vec<Step>>,
    /// Command line of the health check; the address is appended.
    pub health_check_command: Option<Vec<String>>,
    /// Timeout of the health check; default 30, 0 = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_seconds: Option<i64>,
    /// Run once the machine is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_command: Option<Vec<String>>,
    /// Its timeout; default 30, 0 = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_command_timeout: Option<i64>,
    /// Everything else.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Command line; the address is appended.
    pub repair_command: Option<Vec<String>>,
    /// Timeout; default 30, 0 = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_seconds: Option<i64>,
    /// Further tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_retries: Option<i64>,
    /// Seconds between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_interval: Option<i64>,
    /// Whether the node is drained first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub need_drain: Option<bool>,
    /// Seconds for which the health check is watched afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch_seconds: Option<i64>,
    /// Everything else.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

fn null_is_default<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// A stored selector that cannot be read protects all, like a missing one: that errs on the side of the pods.
fn selector_or_all<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Selector>, D::Error> {
    let selector = serde_json::from_value(Value::deserialize(from)?).unwrap_or_default();
    Ok(selector)
}

/// The members of a definition by address, made once for each definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    by_address: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
    /// Places by Node name, in the order of the names.
    sorted: Vec<usize>,
    control_planes: Vec<usize>,
}

impl Members {
    /// Indexes a definition.
    pub fn of(cluster: &Cluster) -> Self {
        let each = || cluster.nodes.iter().enumerate();
        let mut sorted: Vec<usize> = (0..cluster.nodes.len()).collect();
        sorted.sort_by_key(|&i| cluster.nodes[i].node_name());
        Self {
            sorted,
            by_address: each().map(|(i, n)| (n.address.clone(), i)).collect(),
            by_name: each().map(|(i, n)| (n.node_name().to_owned(), i)).collect(),
            control_planes: each().filter(|(_, n)| n.control_plane).map(|(i, _)| i).collect(),
        }
    }

    /// The member with this address.
    pub fn by_address<'a>(&self, cluster: &'a Cluster, address: &str) -> Option<&'a Node> {
        self.place_of(address).and_then(|i| cluster.nodes.get(i))
    }

    /// The place of the member with this address among the definition's nodes.
    pub fn place_of(&self, address: &str) -> Option<usize> {
        self.by_address.get(address).copied()
    }

    /// The member whose Kubernetes Node has this name.
    pub fn by_name<'a>(&self, cluster: &'a Cluster, name: &str) -> Option<&'a Node> {
        self.by_name.get(name).and_then(|&i| cluster.nodes.get(i))
    }

    /// All members in the order of their Node names.
    pub fn by_order_of_name<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Node> {
        self.sorted.iter().filter_map(|&i| cluster.nodes.get(i))
    }

    /// The control-plane nodes in the definition's order.
    pub fn control_planes<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Node> {
        self.control_planes.iter().filter_map(|&i| cluster.nodes.get(i))
    }
}

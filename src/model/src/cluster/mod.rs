//! Cluster definition in CKE's format. cketerm uses a part of it and keeps the rest (`docs/spec/cluster.md`).
//!
//! Reading a stored definition is lenient: a value that CKE accepted must not stop an engine (CLU-4). A definition that
//! an operator sets is read by [`mod@parse`], checked by [`mod@check`] and converted to CKE's form by [`mod@written`].

mod check;
mod limits;
mod naming;
mod parse;
mod procedures;
mod schema;
mod work;
mod written;

use std::{borrow::Borrow, collections::BTreeMap, hash::Hash, ops::Deref};

use foldhash::HashMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    names::{Address, NodeName},
    selector::Selector,
};
pub use check::{Checked, Fault, check, check_template, queue_faults};
pub use limits::{is_label_key, is_label_value};
pub use naming::{MemberNames, NamingError};
pub use parse::{parse, stored};
pub use procedures::describe_steps;
pub use work::Eviction;
pub use written::written;

/// Value of `cluster` as CKE writes it: `null` and `""` where nothing was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Name of the cluster.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Members of the cluster.
    #[serde(deserialize_with = "null_is_default")]
    pub nodes: Vec<Node>,
    /// Whether control planes are tainted; kept for CKE.
    #[serde(deserialize_with = "null_is_default")]
    pub taint_control_plane: bool,
    /// Keys of taints that control planes tolerate.
    pub control_plane_tolerations: Option<Vec<String>>,
    /// Kept for CKE.
    #[serde(deserialize_with = "null_is_default")]
    pub service_subnet: String,
    /// Kept for CKE.
    pub dns_servers: Option<Vec<String>>,
    /// Kept for CKE.
    #[serde(deserialize_with = "null_is_default")]
    pub dns_service: String,
    /// Rules of reboots.
    #[serde(deserialize_with = "null_is_default")]
    pub reboot: Reboot,
    /// Rules of repairs.
    #[serde(deserialize_with = "null_is_default")]
    pub repair: Repair,
    /// Settings of sabakan. cketerm keeps them and uses only the key of the spare taint.
    pub sabakan: Value,
    /// Options of the programs that CKE runs; kept.
    pub options: Value,
    /// All other fields; kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A member of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// IP address; empty in templates.
    #[serde(deserialize_with = "null_is_default")]
    pub address: Address,
    /// Name of the Kubernetes Node, if it is not the address.
    #[serde(deserialize_with = "null_is_default")]
    pub hostname: NodeName,
    /// SSH user of CKE.
    #[serde(deserialize_with = "null_is_default")]
    pub user: String,
    /// Whether it runs an API server.
    #[serde(deserialize_with = "null_is_default")]
    pub control_plane: bool,
    /// Annotations of the Kubernetes Node.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels of the Kubernetes Node.
    pub labels: Option<BTreeMap<String, String>>,
    /// Taints of the Kubernetes Node.
    pub taints: Option<Vec<Taint>>,
    /// All other fields. `cluster set` refuses them; stored ones are kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Node {
    /// Returns the name of the Kubernetes Node: `hostname`; without one, CKE registers it under its address.
    pub fn node_name(&self) -> NodeName {
        if self.hostname.is_empty() { NodeName::new(self.address.as_str()) } else { self.hostname.clone() }
    }
}

/// A taint. Two taints are equal if their key, value and effect are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Key of the taint.
    #[serde(deserialize_with = "null_is_default")]
    pub key: String,
    /// Value of the taint.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(deserialize_with = "null_is_default")]
    pub effect: String,
    /// Fields that no rule reads, such as `timeAdded`: a write of all taints keeps those of other programs.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl PartialEq for Taint {
    fn eq(&self, other: &Self) -> bool {
        (&self.key, &self.value, &self.effect) == (&other.key, &other.value, &other.effect)
    }
}

impl Eq for Taint {}

/// The `reboot` section (CLU-16, CLU-17).
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
    /// Timeout of both commands in seconds; 0 = the policy's `command_cap_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_seconds: Option<i64>,
    /// Nodes in `draining` or `rebooting` at once; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reboots: Option<i64>,
    /// Further tries of the reboot command.
    pub command_retries: Option<i64>,
    /// Seconds between tries.
    pub command_interval: Option<i64>,
    /// Further previews, or further first rounds of evictions, after a refusal.
    pub evict_retries: Option<i64>,
    /// Seconds between tries.
    pub evict_interval: Option<i64>,
    /// Namespaces whose pods are never deleted; none = all.
    #[serde(deserialize_with = "selector_or_all", skip_serializing_if = "Option::is_none")]
    pub protected_namespaces: Option<Selector>,
    /// Running pods of Jobs that hold a drain back; none = all.
    #[serde(deserialize_with = "selector_or_all", skip_serializing_if = "Option::is_none")]
    pub protected_job_pods: Option<Selector>,
    /// All other fields. `cluster set` refuses them; stored ones are kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Reboot {
    /// Returns the deadline of one drain in seconds.
    pub fn eviction_timeout(&self) -> i64 {
        self.eviction_timeout_seconds.unwrap_or(600)
    }

    /// Returns the maximum number of nodes in progress at once.
    pub fn concurrency(&self) -> i64 {
        self.max_concurrent_reboots.unwrap_or(1)
    }

    /// Returns the number of tries of the reboot command: 1 + retries.
    pub fn tries(&self) -> u32 {
        1 + u32::try_from(self.command_retries.unwrap_or(0)).unwrap_or(0)
    }

    /// Returns the bound of a command in seconds. `cap` is the policy's bound for commands without a timeout.
    pub fn command_bound(&self, cap: u64) -> u64 {
        match self.command_timeout_seconds {
            Some(n) if n > 0 => n.unsigned_abs(),
            _ => cap,
        }
    }
}

/// The `repair` section (CLU-19).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Repair {
    /// Procedures by machine type.
    pub repair_procedures: Option<Vec<Procedure>>,
    /// Machines in repair at once; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_repairs: Option<i64>,
    /// Same meaning as in [`Reboot`].
    #[serde(deserialize_with = "selector_or_all", skip_serializing_if = "Option::is_none")]
    pub protected_namespaces: Option<Selector>,
    /// Same meaning as in [`Reboot`].
    #[serde(deserialize_with = "selector_or_all", skip_serializing_if = "Option::is_none")]
    pub protected_job_pods: Option<Selector>,
    /// Same meaning as in [`Reboot`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_retries: Option<i64>,
    /// Same meaning as in [`Reboot`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_interval: Option<i64>,
    /// Same meaning as in [`Reboot`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_timeout_seconds: Option<i64>,
    /// All other fields. `cluster set` refuses them; stored ones are kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// Procedure for machines of some types (CLU-20).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Procedure {
    /// Machine types that the procedure is for.
    pub machine_types: Option<Vec<String>>,
    /// Operations for these types.
    pub repair_operations: Option<Vec<Operation>>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// One operation (CLU-21).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// Name of the operation.
    #[serde(deserialize_with = "null_is_default")]
    pub operation: String,
    /// Steps of the operation, in order.
    pub repair_steps: Option<Vec<Step>>,
    /// Command line of the health check; the address is appended.
    pub health_check_command: Option<Vec<String>>,
    /// Timeout of the health check in seconds; default 30, 0 = the policy's `command_cap_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_seconds: Option<i64>,
    /// Command that runs once the machine is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_command: Option<Vec<String>>,
    /// Timeout of the success command in seconds; default 30, 0 = the policy's `command_cap_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_command_timeout: Option<i64>,
    /// All other fields.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// One step (CLU-22).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Command line; the address is appended.
    pub repair_command: Option<Vec<String>>,
    /// Timeout in seconds; default 30, 0 = the policy's `command_cap_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_seconds: Option<i64>,
    /// Further tries of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_retries: Option<i64>,
    /// Seconds between tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_interval: Option<i64>,
    /// Whether the node is drained first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub need_drain: Option<bool>,
    /// Seconds after the command in which the machine must become healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch_seconds: Option<i64>,
    /// All other fields.
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

/// Reads a selector. One that cannot be read protects everything, like a missing one, because that is safe for the
/// pods.
fn selector_or_all<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Selector>, D::Error> {
    let selector = serde_json::from_value(Value::deserialize(from)?).unwrap_or_default();
    Ok(selector)
}

/// A member together with the name of its Kubernetes Node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member<'a> {
    node: &'a Node,
    name: &'a NodeName,
}

impl<'a> Member<'a> {
    /// Returns the member as the definition has it.
    pub fn node(self) -> &'a Node {
        self.node
    }

    /// Returns the name of the Kubernetes Node, without the copy of [`Node::node_name`].
    pub fn node_name(self) -> &'a NodeName {
        self.name
    }

    /// Returns the address.
    pub fn address(self) -> &'a Address {
        &self.node.address
    }
}

impl Deref for Member<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node
    }
}

/// Index of a definition's members by address. It is built once for each definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    by_address: HashMap<Address, usize>,
    by_name: HashMap<NodeName, usize>,
    /// Names of the Kubernetes Nodes in the definition's order.
    names: Vec<NodeName>,
    /// Positions in the order of the Node names.
    sorted: Vec<usize>,
    control_planes: Vec<usize>,
}

impl Members {
    /// Builds the index of a definition.
    pub fn of(cluster: &Cluster) -> Self {
        let each = || cluster.nodes.iter().enumerate();
        let names: Vec<NodeName> = cluster.nodes.iter().map(Node::node_name).collect();
        let mut sorted: Vec<usize> = (0..cluster.nodes.len()).collect();
        sorted.sort_by_key(|&i| &names[i]);
        Self {
            sorted,
            by_address: each().map(|(i, n)| (n.address.clone(), i)).collect(),
            by_name: names.iter().enumerate().map(|(i, name)| (name.clone(), i)).collect(),
            control_planes: each().filter(|(_, n)| n.control_plane).map(|(i, _)| i).collect(),
            names,
        }
    }

    /// Returns the member at this position among the definition's nodes.
    pub fn at<'a>(&'a self, cluster: &'a Cluster, position: usize) -> Option<Member<'a>> {
        Some(Member { node: cluster.nodes.get(position)?, name: self.names.get(position)? })
    }

    /// Returns the member with this address.
    pub fn by_address<'a>(&'a self, cluster: &'a Cluster, address: &Address) -> Option<Member<'a>> {
        self.index_of(address).and_then(|i| self.at(cluster, i))
    }

    /// Returns the position of the member with this address among the definition's nodes.
    pub fn index_of(&self, address: &Address) -> Option<usize> {
        self.by_address.get(address).copied()
    }

    /// Returns the member whose Kubernetes Node has this name: a [`NodeName`], or a text of a screen or an operator.
    pub fn by_name<'a, N: Eq + Hash + ?Sized>(&'a self, cluster: &'a Cluster, name: &N) -> Option<Member<'a>>
    where
        NodeName: Borrow<N>,
    {
        self.by_name.get(name).and_then(|&i| self.at(cluster, i))
    }

    /// Returns the member that an operator or another program names by its address or by its Node's name. The address
    /// goes first.
    pub fn by_text<'a>(&'a self, cluster: &'a Cluster, text: &str) -> Option<Member<'a>> {
        let found = self.by_address.get(text).or_else(|| self.by_name.get(text));
        found.and_then(|&i| self.at(cluster, i))
    }

    /// Returns all members in the order of their Node names.
    pub fn sorted_by_name<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = Member<'a>> {
        self.sorted.iter().filter_map(|&i| self.at(cluster, i))
    }

    /// Returns the control-plane nodes in the definition's order.
    pub fn control_planes<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = Member<'a>> {
        self.control_planes.iter().filter_map(|&i| self.at(cluster, i))
    }
}

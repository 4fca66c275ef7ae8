//! Difference between a generated definition and the current one, by node and field. It serves the approval gate, the
//! views, and the digest that an approval names (SAB-67 to SAB-71).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cluster::{Cluster, Node},
    names::Address,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Machine;

/// Effect of a change on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It leaves.
    Removed,
    /// A control plane becomes a worker.
    Demoted,
    /// A worker becomes a control plane.
    Promoted,
    /// It is new.
    Added,
    /// Other fields of it change.
    Changed,
}

impl Kind {
    /// Returns the name for views and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Demoted => "demoted",
            Self::Promoted => "promoted",
            Self::Added => "added",
            Self::Changed => "changed",
        }
    }
}

/// One field that changes. A missing side means that the field is absent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FieldChange {
    /// `labels[cke.cybozu.com/rack]`, `taints[cke.cybozu.com/state:NoSchedule]`, `hostname` …
    pub field: String,
    /// Present value.
    pub before: Option<String>,
    /// New value.
    pub after: Option<String>,
}

/// One node that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeChange {
    /// Its address.
    pub address: Address,
    /// The effect on it.
    pub kind: Kind,
    /// Whether it is a control plane, before or after.
    pub control_plane: bool,
    /// Changed fields. Empty for a node that is added or removed.
    pub fields: Vec<FieldChange>,
    /// Whether it gets a `NoExecute` taint that it did not have.
    pub evicts: bool,
    /// Whether its taints change.
    pub taints: bool,
}

/// Difference between two definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Changed nodes: the most serious kind first, then by their place in the definition.
    pub nodes: Vec<NodeChange>,
    /// Changed fields of the definition beside its nodes.
    pub fields: Vec<String>,
}

/// Decision of the approval gate about a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Number of removals, demotions and new `NoExecute` taints.
    pub weight: usize,
    /// Number of nodes in the current definition.
    pub of: usize,
    /// Control planes that are removed or replaced.
    pub control_planes: Vec<Address>,
    /// Reason why it waits for approval. `None`: it passes.
    pub why: Option<String>,
}

/// Members of the current definition that its source lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Sabakan's list lacks so many machines.
    Machines(usize),
    /// So many members have no Node in Kubernetes. One alone is no reason to ask.
    Nodes(usize),
}

impl Missing {
    /// Reports whether so many members lack their source that an operator has to confirm it: more than `percent` of them,
    /// and of Nodes more than one.
    pub fn is_much(self, members: u64, percent: u64) -> bool {
        let (count, least) = match self {
            Self::Machines(count) => (count, 0),
            Self::Nodes(count) => (count, 1),
        };
        count > least && count as u64 * 100 > percent * members
    }

    /// Returns the members that sabakan's list lacks.
    pub fn from_list(current: Option<&Cluster>, machines: &[Machine]) -> Self {
        let known: BTreeSet<&str> = machines.iter().map(|m| m.address.as_str()).collect();
        let nodes = current.map_or(&[][..], |c| &c.nodes);
        Self::Machines(nodes.iter().filter(|n| !known.contains(n.address.as_str())).count())
    }
}

/// Returns the changes from `current` to `next`. Without a current definition all nodes are added.
pub fn diff(current: Option<&Cluster>, next: &Cluster) -> Change {
    let empty = Cluster::default();
    let current = current.unwrap_or(&empty);
    let before: BTreeMap<&str, &Node> = current.nodes.iter().map(|n| (n.address.as_str(), n)).collect();
    let after: BTreeSet<&str> = next.nodes.iter().map(|n| n.address.as_str()).collect();
    let mut nodes: Vec<NodeChange> = current
        .nodes
        .iter()
        .filter(|n| !after.contains(n.address.as_str()))
        .map(|n| node_change(n, Kind::Removed))
        .chain(next.nodes.iter().filter_map(|n| match before.get(n.address.as_str()) {
            None => Some(NodeChange { evicts: false, ..node_change(n, Kind::Added) }),
            Some(was) => changed(was, n),
        }))
        .collect();
    nodes.sort_by_key(|n| n.kind);
    Change { nodes, fields: changed_fields(current, next) }
}

fn node_change(node: &Node, kind: Kind) -> NodeChange {
    let address = node.address.clone();
    NodeChange { address, kind, control_plane: node.control_plane, fields: Vec::new(), evicts: false, taints: false }
}

fn changed(was: &Node, now: &Node) -> Option<NodeChange> {
    if was == now {
        return None;
    }
    let mut fields = Vec::new();
    let mut add = |field: String, before: Option<&str>, after: Option<&str>| {
        if before != after {
            let own = |side: Option<&str>| side.map(str::to_owned);
            fields.push(FieldChange { field, before: own(before), after: own(after) });
        }
    };
    let text = |value: &'static str, known: bool| known.then_some(value);
    add("control_plane".to_owned(), text("true", was.control_plane), text("true", now.control_plane));
    for (name, before, after) in [("hostname", &*was.hostname, &*now.hostname), ("user", &*was.user, &*now.user)] {
        let given = |side| Some(side).filter(|side: &&str| !side.is_empty());
        add(name.to_owned(), given(before), given(after));
    }
    let empty = BTreeMap::new();
    for (name, before, after) in
        [("labels", &was.labels, &now.labels), ("annotations", &was.annotations, &now.annotations)]
    {
        let (before, after) = (before.as_ref().unwrap_or(&empty), after.as_ref().unwrap_or(&empty));
        for key in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let side = |map: &BTreeMap<String, String>| map.get(key).cloned();
            add(format!("{name}[{key}]"), side(before).as_deref(), side(after).as_deref());
        }
    }
    let taints = |node: &Node| -> BTreeMap<String, String> {
        let all = node.taints.iter().flatten();
        all.map(|t| (format!("taints[{}:{}]", t.key, t.effect), t.value.clone())).collect()
    };
    let (before, after) = (taints(was), taints(now));
    for key in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        add(key.clone(), before.get(key).map(String::as_str), after.get(key).map(String::as_str));
    }
    let evicts = after.keys().any(|key| key.ends_with(":NoExecute]") && !before.contains_key(key));
    let kind = match (was.control_plane, now.control_plane) {
        (true, false) => Kind::Demoted,
        (false, true) => Kind::Promoted,
        _ => Kind::Changed,
    };
    let control_plane = was.control_plane || now.control_plane;
    // `null` and an empty map are equivalent
    let same = fields.is_empty() && was.unknown == now.unknown;
    (!same).then(|| NodeChange {
        address: now.address.clone(),
        kind,
        control_plane,
        fields,
        evicts,
        taints: before != after,
    })
}

/// Returns the names of the differing fields beside the nodes.
fn changed_fields(current: &Cluster, next: &Cluster) -> Vec<String> {
    let fields = |cluster: &Cluster| match serde_json::to_value(Cluster { nodes: Vec::new(), ..cluster.clone() }) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (before, after) = (fields(current), fields(next));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let nothing = |v: Option<&Value>| v.is_none_or(Value::is_null);
    names
        .into_iter()
        .filter(|n| before.get(*n) != after.get(*n) && !(nothing(before.get(*n)) && nothing(after.get(*n))))
        .cloned()
        .collect()
}

impl Change {
    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.fields.is_empty()
    }

    /// Returns the addresses that become control planes.
    pub fn new_control_planes(&self) -> Vec<Address> {
        let new = self.nodes.iter().filter(|n| n.kind == Kind::Promoted || (n.kind == Kind::Added && n.control_plane));
        new.map(|n| n.address.clone()).collect()
    }

    /// Returns the nodes that are removed, change their kind or get other taints. A machine in work must not be among
    /// them (SAB-67).
    pub fn touched(&self) -> impl Iterator<Item = &NodeChange> {
        self.nodes.iter().filter(|n| match n.kind {
            Kind::Removed | Kind::Demoted | Kind::Promoted => true,
            Kind::Added => false,
            Kind::Changed => n.taints,
        })
    }

    /// Returns the nodes of [`Self::touched`] and those that are added. Their machines must not be in repair.
    pub fn disturbed(&self) -> impl Iterator<Item = &NodeChange> {
        self.touched().chain(self.nodes.iter().filter(|n| n.kind == Kind::Added))
    }

    /// Evaluates the gate against the current definition (SAB-68). The change needs approval if more than `percent` of
    /// the nodes are affected, if a control plane is removed or demoted, or if the source lacks more than `percent` of
    /// the members. The last does not concern a change that only adds Nodes.
    pub fn gate(&self, current: Option<&Cluster>, missing: Missing, percent: u64) -> Gate {
        let nodes = current.map_or(&[][..], |c| &c.nodes);
        let weight = self.nodes.iter().filter(|n| n.evicts || matches!(n.kind, Kind::Removed | Kind::Demoted)).count();
        let planes = self.nodes.iter().filter(|n| match n.kind {
            Kind::Removed => n.control_plane,
            Kind::Demoted => true,
            _ => false,
        });
        let control_planes: Vec<Address> = planes.map(|n| n.address.clone()).collect();
        let above = |count: usize| count as u64 * 100 > percent * nodes.len() as u64;
        let is_much = missing.is_much(nodes.len() as u64, percent);
        let lost = match missing {
            Missing::Machines(count) if is_much => {
                Some(format!("sabakan's list lacks {count} of {} machines of the definition", nodes.len()))
            }
            Missing::Nodes(count) if is_much && weight > 0 => {
                Some(format!("{count} of {} members have no Node", nodes.len()))
            }
            Missing::Machines(_) | Missing::Nodes(_) => None,
        };
        let one_node = weight == 1 && matches!(missing, Missing::Nodes(_));
        let why = if !control_planes.is_empty() {
            Some(format!("control planes leave or are replaced: {}", control_planes.join(", ")))
        } else if lost.is_some() {
            lost
        } else if weight > 0 && above(weight) && !one_node {
            Some(format!(
                "{weight} of {} nodes are removed, replaced or emptied, more than gate_percent {percent}",
                nodes.len()
            ))
        } else {
            None
        };
        Gate { weight, of: nodes.len(), control_planes, why }
    }

    /// Groups equal changes of a field over several nodes, with their addresses. So a change that a template or a
    /// strategy makes to all nodes takes one line.
    pub fn folded(&self) -> Vec<(String, Vec<Address>)> {
        let mut by_field: BTreeMap<String, Vec<Address>> = BTreeMap::new();
        for node in self.nodes.iter().filter(|n| n.kind == Kind::Changed) {
            for field in &node.fields {
                let what = match (&field.before, &field.after) {
                    (None, _) => "added",
                    (_, None) => "removed",
                    _ => "changed",
                };
                by_field.entry(format!("{} {what}", field.field)).or_default().push(node.address.clone());
            }
        }
        by_field.into_iter().filter(|(_, nodes)| nodes.len() > MAX_UNFOLDED).collect()
    }

    /// Returns the fields of a node that are not part of a group.
    pub fn own<'a>(
        &'a self,
        node: &'a NodeChange,
        folds: &'a [(String, Vec<Address>)],
    ) -> impl Iterator<Item = &'a FieldChange> {
        node.fields.iter().filter(move |f| {
            let folded = folds.iter().any(|(what, _)| what.strip_prefix(&f.field).is_some_and(|r| r.starts_with(' ')));
            node.kind != Kind::Changed || !folded
        })
    }
}

/// Equal changes of a field on more nodes than this are grouped.
const MAX_UNFOLDED: usize = 5;

/// Returns the digest that an approval names, over the definition, the template and the machines. It protects against a
/// change in between, not against malice: whoever may write approvals may also write the definition.
pub fn digest(cluster: &str, template: &str, machines: &[Machine]) -> String {
    // FNV-1a, 64 bit
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(cluster);
    add(template);
    let mut sorted: Vec<&Machine> = machines.iter().collect();
    sorted.sort_by(|a, b| a.serial.cmp(&b.serial));
    for m in sorted {
        for text in
            [&m.serial, m.address.as_str(), &m.role, &m.rack.to_string(), m.state.as_str(), &m.retire_date.to_string()]
        {
            add(text);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
#[path = "tests/change.rs"]
mod tests;

//! Warnings before machines are added to a queue: what will keep their entries from starting, or their drains from
//! ending. They hold whoever leads, and refuse nothing.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use cketerm_model::{
    cluster::{Eviction, Member},
    entry::{EntryId, QueueKind},
    entry_ref::EntryRef,
    kube::{KubeView, NodeReadiness, PodRow},
    names::{Address, NodeName},
    policy::UnreachableRule,
    stored::view::{Definition, StoreView},
};

use crate::decide::{PodVerdict, classify_pod};

/// Number of nodes that a warning names.
const NAMED: usize = 5;

/// Machines that are about to be added.
#[derive(Clone, Copy, Debug)]
pub struct Added<'a> {
    /// The queue.
    pub queue: QueueKind,
    /// Addresses of the machines.
    pub addresses: &'a [Address],
    /// Rules of their drains; `None` if they are not drained.
    pub drain: Option<Eviction<'a>>,
}

/// Facts of Kubernetes.
#[derive(Clone, Debug, Default)]
pub struct KubeFacts {
    /// All Nodes.
    pub nodes: BTreeMap<NodeName, NodeReadiness>,
    /// Namespaces and budgets.
    pub view: KubeView,
    /// Pods of the machines' Nodes, as far as they were read.
    pub pods: BTreeMap<NodeName, Vec<PodRow>>,
}

impl KubeFacts {
    fn is_ready(&self, member: &Member<'_>) -> bool {
        self.nodes.get(member.node_name()).is_some_and(|node| node.ready)
    }
}

/// Warning about machines that are about to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddWarning {
    /// The machine has an unfinished entry in the other queue.
    InOtherQueue {
        /// The machine.
        node: NodeName,
        /// Its entry.
        entry: EntryId,
        /// Status of the entry.
        status: String,
    },
    /// The machine is the only control plane of the definition.
    OnlyControlPlane {
        /// The machine.
        node: NodeName,
    },
    /// No other control plane is Ready.
    LastReadyControlPlane {
        /// The machine.
        node: NodeName,
        /// The other control planes.
        others: Vec<NodeName>,
    },
    /// Another control plane is in work.
    ControlPlaneInWork {
        /// The machine.
        node: NodeName,
        /// The other control plane.
        other: NodeName,
        /// The entry that works on it.
        entry: EntryId,
    },
    /// As many nodes are unreachable as the constraint allows, or more.
    Unreachable {
        /// Number of such nodes.
        count: i64,
        /// `maximum-unreachable-nodes-for-reboot`.
        limit: i64,
        /// The first of them.
        names: Vec<NodeName>,
    },
    /// A budget that can never allow the eviction of a pod of the machine.
    BudgetNeverAllows {
        /// The machine.
        node: NodeName,
        /// The pod, `namespace/name`.
        pod: String,
        /// The budget, `namespace/name`.
        budget: String,
        /// Number of pods that the budget needs healthy.
        needed: i32,
        /// Number of pods that it selects.
        pods: i32,
    },
}

impl fmt::Display for AddWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOtherQueue { node, entry, status } => {
                write!(f, "{node} is in the {} queue already: {entry} ({status})", entry.queue)
            }
            Self::OnlyControlPlane { node } => {
                write!(f, "{node} is the only control plane: the Kubernetes API is down while it is in work")
            }
            Self::LastReadyControlPlane { node, others } => {
                write!(f, "{node} is the last control plane that is Ready; not Ready: {}", named(others, others.len()))
            }
            Self::ControlPlaneInWork { node, other, entry } => {
                write!(f, "{node} waits for another API server: {other} is in work ({entry})")
            }
            Self::Unreachable { count, limit, names } => {
                let names = named(names, usize::try_from(*count).unwrap_or(usize::MAX));
                write!(f, "{count} nodes are unreachable ({names}), ")?;
                if count > limit {
                    write!(
                        f,
                        "more than the {limit} of maximum-unreachable-nodes-for-reboot: no reboot starts until then"
                    )
                } else {
                    write!(f, "the limit of maximum-unreachable-nodes-for-reboot: with one more, no reboot starts")
                }
            }
            Self::BudgetNeverAllows { node, pod, budget, needed, pods } => write!(
                f,
                "pod {pod} on {node} can never be evicted: PodDisruptionBudget {budget} needs {needed} healthy of {pods} \
                 pods; change the budget, or add replicas"
            ),
        }
    }
}

/// Returns the first names, and the number of further ones.
fn named(names: &[NodeName], all: usize) -> String {
    let shown = names.iter().take(NAMED).map(NodeName::as_str).collect::<Vec<_>>().join(", ");
    let more = all.saturating_sub(names.len().min(NAMED));
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// Returns the Nodes whose pods the warnings need: those of the added machines that are drained, if a budget can never
/// allow an eviction.
pub fn nodes_to_read(store: &StoreView, kube: &KubeFacts, added: Added<'_>) -> Vec<NodeName> {
    let never_opens = kube.view.budgets.values().any(|budget| budget.never_allows());
    let Some(definition) = store.definition().filter(|_| never_opens && added.drain.is_some()) else {
        return Vec::new();
    };
    let member = |address: &Address| definition.members.by_address(&definition.cluster, address);
    let names = added.addresses.iter().filter_map(member).map(|member| member.node_name().clone());
    names.filter(|name| kube.nodes.contains_key(name)).collect()
}

/// Returns the warnings, in a fixed order. Without Kubernetes (`None`), those that need it are left out. An address of no
/// member has none.
pub fn warnings(store: &StoreView, kube: Option<&KubeFacts>, added: Added<'_>) -> Vec<AddWarning> {
    let Some(definition) = store.definition() else { return Vec::new() };
    let member = |address: &Address| definition.members.by_address(&definition.cluster, address);
    let members: BTreeMap<&NodeName, Member<'_>> =
        added.addresses.iter().filter_map(member).map(|m| (m.node_name(), m)).collect();
    let mut warnings: Vec<AddWarning> =
        members.values().filter_map(|member| in_other_queue(store, added.queue, member)).collect();
    for member in members.values().filter(|member| member.control_plane) {
        warnings.extend(control_plane(store, definition, kube, member));
    }
    let Some(kube) = kube else { return warnings };
    if added.queue == QueueKind::Reboot && !members.is_empty() {
        warnings.extend(unreachable(store, definition, kube));
    }
    if let Some(rules) = added.drain {
        warnings.extend(members.keys().flat_map(|node| budgets(kube, node, rules)));
    }
    warnings
}

/// Returns all readable entries of a queue.
fn entries(store: &StoreView, queue: QueueKind) -> Vec<(EntryId, EntryRef<'_>)> {
    let ids: Vec<u64> = match queue {
        QueueKind::Reboot => store.reboots.entries.keys().copied().collect(),
        QueueKind::Repair => store.repairs.entries.keys().copied().collect(),
        QueueKind::Maintenance => store.maintenance.entries.keys().copied().collect(),
    };
    let ids = ids.into_iter().map(|index| EntryId { queue, index });
    ids.filter_map(|id| Some((id, store.entry(id)?))).collect()
}

fn in_other_queue(store: &StoreView, queue: QueueKind, member: &Member<'_>) -> Option<AddWarning> {
    let others = QueueKind::ALL.into_iter().filter(|other| *other != queue);
    let mut others = others.flat_map(|other| entries(store, other));
    let (entry, found) = others.find(|(_, entry)| entry.unfinished() && *entry.address() == member.address)?;
    Some(AddWarning::InOtherQueue { node: member.node_name().clone(), entry, status: found.status() })
}

/// Returns the warnings about a control plane: that it is the last one, and that another one is in work.
fn control_plane(
    store: &StoreView,
    definition: &Definition,
    kube: Option<&KubeFacts>,
    member: &Member<'_>,
) -> Vec<AddWarning> {
    let node = member.node_name().clone();
    let control_planes = definition.members.control_planes(&definition.cluster);
    let others: Vec<Member<'_>> = control_planes.filter(|other| other.node_name() != member.node_name()).collect();
    if others.is_empty() {
        return vec![AddWarning::OnlyControlPlane { node }];
    }
    let mut warnings = Vec::new();
    let ready = |other: &Member<'_>| kube.is_some_and(|kube| kube.is_ready(other));
    if kube.is_some() && !others.iter().any(ready) {
        let others = others.iter().map(|other| other.node_name().clone()).collect();
        warnings.push(AddWarning::LastReadyControlPlane { node: node.clone(), others });
    }
    let mut working = QueueKind::QUEUES.into_iter().flat_map(|queue| entries(store, queue));
    let in_work = working.find_map(|(id, entry)| {
        let other = others.iter().find(|other| entry.claims_machine() && *entry.address() == other.address)?;
        Some((other.node_name().clone(), id))
    });
    warnings.extend(in_work.map(|(other, entry)| AddWarning::ControlPlaneInWork { node, other, entry }));
    warnings
}

/// Returns the warning if no further node may become unreachable, by the rule of the CKE that the policy names. Nodes
/// that are not Ready count as unreachable.
fn unreachable(store: &StoreView, definition: &Definition, kube: &KubeFacts) -> Option<AddWarning> {
    let limit = store.constraints().maximum_unreachable_nodes_for_reboot;
    let under_reboot: BTreeSet<&Address> = match store.policy().unreachable_rule {
        UnreachableRule::OutsideReboots => {
            let entries = store.reboots.entries.values().filter_map(|stored| stored.get());
            entries.filter(|entry| entry.claims_machine()).map(|entry| &entry.node).collect()
        }
        UnreachableRule::All => BTreeSet::new(),
    };
    let unreachable = |member: &Member<'_>| !kube.is_ready(member) && !under_reboot.contains(&member.address);
    let members = definition.members.sorted_by_name(&definition.cluster).filter(unreachable);
    let all: Vec<NodeName> = members.map(|member| member.node_name().clone()).collect();
    let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
    (count > 0 && count >= limit).then(|| AddWarning::Unreachable {
        count,
        limit,
        names: all.into_iter().take(NAMED).collect(),
    })
}

/// Returns one warning for each budget that can never allow the eviction of a pod of this node.
fn budgets(kube: &KubeFacts, node: &NodeName, rules: Eviction<'_>) -> Vec<AddWarning> {
    let mut found: BTreeMap<String, AddWarning> = BTreeMap::new();
    for pod in kube.pods.get(node).into_iter().flatten() {
        // a pod of an unprotected namespace is deleted if its budget refuses
        if classify_pod(pod, rules, &kube.view) != (PodVerdict::Evict { protected: true }) {
            continue;
        }
        for budget in kube.view.budgets_of(pod).filter(|budget| budget.never_allows()) {
            found.entry(budget.full_name()).or_insert_with(|| AddWarning::BudgetNeverAllows {
                node: node.clone(),
                pod: pod.full_name(),
                budget: budget.full_name(),
                needed: budget.needed,
                pods: budget.pods,
            });
        }
    }
    found.into_values().collect()
}

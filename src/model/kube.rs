//! Typed rows of Kubernetes objects: only what decisions and screens need, so that 5,000 nodes stay small.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use super::described::{Described, Description, Words};
use super::{entry::EntryId, host::HostRow, selector::Selector};

/// CKE's mark of a node that a queue cordoned, shared with CKE: value `true`.
pub const CKE_ANNOTATION: &str = "cke.cybozu.com/reboot";
/// Our record of who cordoned and what was before: JSON of [`Owner`].
pub const OWNER_ANNOTATION: &str = "cketerm.io/owner";
/// Makes a cordon of ours the administrator's; any value.
pub const KEEP_CORDONED_ANNOTATION: &str = "cketerm.io/keep-cordoned";

/// What the watch of BareMetalHosts is called among [`KubeView::sources`].
pub const HOSTS_SOURCE: &str = "baremetalhosts";

/// The value of `cketerm.io/owner` (spec/safety.md, Effects and Cordons; I9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The leader's lease: late patches of an older leader fail on the resourceVersion.
    pub lease: i64,
    /// The entry for which the node was cordoned.
    pub entry: EntryId,
    /// Whether pods could be scheduled before us. `false`: the cordon stays when we go (I11).
    pub schedulable_before: bool,
    /// UID of the Node when the work began.
    pub uid: String,
    /// The node's boot id before.
    pub boot_id: String,
    /// The machine was already rebooting under another program when this was written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_over_rebooting: bool,
    /// A person said that the machine is back (`done`): the node is uncordoned once it is Ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub called_done: bool,
    /// Since when it was rebooting then: what the boot check is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How often we cordoned again after somebody uncordoned the node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recordoned: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// What we read of a Node.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, which every patch of ours carries.
    pub resource_version: String,
    /// `status.addresses[].address`, host names included.
    pub addresses: Vec<String>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Condition Ready is True.
    pub ready: bool,
    /// When that condition last changed.
    pub ready_since: Option<Timestamp>,
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet: String,
    /// `status.volumesInUse`.
    pub volumes_in_use: Vec<String>,
    /// It carries CKE's annotation with the value `true`.
    pub cke_mark: bool,
    /// Our annotation: none, readable, or why not.
    pub owner: Option<Result<Owner, String>>,
    /// An administrator keeps the cordon.
    pub keep_cordoned: bool,
    /// Labels that screens group by: `topology.kubernetes.io/zone`, `…/rack`, roles. Not all labels.
    pub shown_labels: Vec<(String, String)>,
    /// What a definition can say about it.
    #[serde(default)]
    pub described: Described,
}

impl NodeRow {
    /// Our record, if there is a readable one.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref().and_then(|o| o.as_ref().ok())
    }

    /// Whether a newer row differs in nothing but its version and its annotations, ours excepted: what no decision waits
    /// for. (Every field is named here, so that a new one is thought of.)
    pub fn says_the_same(&self, newer: &Self) -> bool {
        let Self {
            name,
            uid,
            resource_version: _,
            addresses,
            unschedulable,
            ready,
            ready_since,
            boot_id,
            kubelet,
            volumes_in_use,
            cke_mark,
            owner,
            keep_cordoned,
            shown_labels,
            described: Described { labels, annotations: _, taints },
        } = newer;
        (name, uid, addresses, boot_id, kubelet)
            == (&self.name, &self.uid, &self.addresses, &self.boot_id, &self.kubelet)
            && (unschedulable, ready, ready_since) == (&self.unschedulable, &self.ready, &self.ready_since)
            && (cke_mark, owner, keep_cordoned) == (&self.cke_mark, &self.owner, &self.keep_cordoned)
            && (volumes_in_use, shown_labels) == (&self.volumes_in_use, &self.shown_labels)
            && (labels, taints) == (&self.described.labels, &self.described.taints)
    }
}

/// The controlling owner of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// `DaemonSet`, `Job`, `ReplicaSet`, `Node` …
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// What we read of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodRow {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, the precondition of every eviction and deletion (I17).
    pub uid: String,
    /// `spec.nodeName`.
    pub node: String,
    /// `status.phase`.
    pub phase: String,
    /// Condition Ready is True.
    pub ready: bool,
    /// All labels: budgets and job selectors need them.
    pub labels: std::collections::BTreeMap<String, String>,
    /// The owner with `controller: true`.
    pub controller: Option<Controller>,
    /// It carries `kubernetes.io/config.mirror`: a static pod, which never leaves.
    pub mirror: bool,
    /// `metadata.deletionTimestamp`, minus the grace period: when its deletion was asked.
    pub terminating_since: Option<Timestamp>,
    /// `metadata.deletionTimestamp`: the end of its grace period.
    #[serde(default)]
    pub grace_ends: Option<Timestamp>,
}

impl PodRow {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Ended by itself: `Succeeded` or `Failed`.
    pub fn finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether a controller of this kind owns it.
    pub fn controlled_by(&self, kind: &str) -> Option<&Controller> {
        self.controller.as_ref().filter(|c| c.kind == kind)
    }
}

/// What we read of a `PodDisruptionBudget`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetRow {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`: a change of it is what a refused eviction waits for.
    pub resource_version: String,
    /// Which pods; an empty selector selects all, an absent one none (policy/v1).
    pub selector: Option<Selector>,
    /// `status.disruptionsAllowed`.
    pub allowed: i32,
    /// `status.currentHealthy`.
    pub healthy: i32,
    /// `status.desiredHealthy`.
    pub needed: i32,
}

impl BudgetRow {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it selects this pod.
    pub fn selects(&self, pod: &PodRow) -> bool {
        self.namespace == pod.namespace && self.selector.as_ref().is_some_and(|s| s.matches(&pod.labels))
    }
}

/// What we read of a Namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamespaceRow {
    /// `metadata.name`.
    pub name: String,
    /// All labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// `status.phase` is Terminating.
    pub terminating: bool,
}

/// What we read of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonSetRow {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.updateStrategy.type` is `OnDelete`.
    pub on_delete: bool,
}

/// The addresses behind the API server's service, as far as CKE manages them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointsRow {
    /// `Endpoints` or `EndpointSlice`.
    pub kind: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// All ready addresses.
    pub addresses: Vec<String>,
}

/// The pods of one node that is under work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePods {
    /// Listed completely since the node was added to the watched ones.
    pub synced: bool,
    /// As in [`SourceState::proved`], for this node's watch.
    #[serde(default)]
    pub proved: f64,
    /// By UID.
    pub pods: OrdMap<String, Arc<PodRow>>,
}

/// How one watch is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// Listed completely at least once.
    pub synced: bool,
    /// Boot-time seconds of the last sign of life (event, bookmark, successful list or open connection): for people.
    pub heard: f64,
    /// Boot-time seconds of the last proof by this watch's own connection: the copy is what the server had then, or newer.
    /// Decisions that start work ask for this one.
    #[serde(default)]
    pub proved: f64,
    /// What went wrong last, until something went right again.
    pub error: Option<String>,
}

/// How the line to the API server is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KubeLine {
    /// Boot-time seconds of the next try, where something has to be tried again. Once that has been, it is being tried.
    pub retry: Option<f64>,
    /// Whole seconds that its last answer took.
    pub lag: u64,
}

/// By a name or an address; the hash is one of the quick ones: every entry is looked up in every pass.
pub type Index<V> = imbl::GenericHashMap<String, V, foldhash::fast::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

/// In the order of the keys, so that the same copy is written the same way.
fn sorted<S: serde::Serializer>(index: &Index<String>, out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(index.iter().collect::<std::collections::BTreeMap<_, _>>())
}

/// A live copy of what the engine and the screens need of Kubernetes. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KubeView {
    /// By name.
    pub nodes: OrdMap<String, Arc<NodeRow>>,
    /// Address (or host name in `status.addresses`) → node name.
    #[serde(serialize_with = "sorted")]
    pub by_address: Index<String>,
    /// The same rows, for looking one up: a hash is several times faster than an ordered map of names.
    #[serde(skip)]
    pub by_name: Index<Arc<NodeRow>>,
    /// Names of nodes whose Ready condition is not True.
    pub not_ready: OrdSet<String>,
    /// Names of nodes that carry CKE's or our annotation.
    pub marked: OrdSet<String>,
    /// By name.
    pub namespaces: OrdMap<String, Arc<NamespaceRow>>,
    /// By namespace and name.
    #[serde(with = "super::pairs")]
    pub budgets: OrdMap<(String, String), Arc<BudgetRow>>,
    /// By UID.
    pub daemon_sets: OrdMap<String, Arc<DaemonSetRow>>,
    /// By node name: only nodes under work.
    pub pods: OrdMap<String, NodePods>,
    /// The API server's endpoints and slices; empty until watched.
    pub endpoints: Vec<EndpointsRow>,
    /// BareMetalHosts by namespace and name; empty until watched.
    #[serde(with = "super::pairs")]
    pub hosts: OrdMap<(String, String), Arc<HostRow>>,
    /// The watches by resource name: `nodes`, `namespaces`, `poddisruptionbudgets`, `daemonsets`, `pods`, `endpoints`,
    /// `baremetalhosts`.
    pub sources: OrdMap<String, SourceState>,
    /// How the line to the server is, for people: nothing is decided by it.
    #[serde(skip)]
    pub line: KubeLine,
    /// UID of the `kube-system` namespace, once known.
    pub cluster_uid: Option<String>,
    /// API server's clock minus ours in seconds, once known.
    pub clock_ahead: Option<f64>,
    /// How far our wall clock was ahead of our boot-time clock when that was measured, in seconds: another number is a clock that
    /// has been set since.
    #[serde(default)]
    pub clock_offset: f64,
    /// When that was measured, in boot-time seconds.
    #[serde(default)]
    pub clock_measured: f64,
    /// Rights that the queues need and this account lacks, e.g. `create pods/eviction`.
    pub missing_rights: Vec<String>,
    /// Whether the rights were asked.
    pub rights_known: bool,
}

impl KubeView {
    /// The four cluster-wide watches that decisions need are complete.
    pub fn synced(&self) -> bool {
        ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"]
            .iter()
            .all(|name| self.sources.get(*name).is_some_and(|s| s.synced))
    }

    /// Puts a node in, keeping the indexes. What stays as it was is not written: it would be copied.
    pub fn put_node(&mut self, row: NodeRow) {
        if let Some(old) = self.nodes.get(&row.name).cloned() {
            for address in old.addresses.iter().filter(|address| !row.addresses.contains(*address)) {
                self.forget_address(address, &row.name);
            }
        }
        for address in &row.addresses {
            if self.by_address.get(address) != Some(&row.name) {
                self.by_address.insert(address.clone(), row.name.clone());
            }
        }
        keep(&mut self.not_ready, &row.name, !row.ready);
        keep(&mut self.marked, &row.name, row.cke_mark || row.owner.is_some());
        let row = Arc::new(row);
        self.by_name.insert(row.name.clone(), Arc::clone(&row));
        self.nodes.insert(row.name.clone(), row);
    }

    /// Makes the index that is not written down anew.
    pub fn index_names(&mut self) {
        self.by_name = self.nodes.iter().map(|(name, row)| (name.clone(), Arc::clone(row))).collect();
    }

    /// Takes a node out, keeping the indexes.
    pub fn remove_node(&mut self, name: &str) {
        if let Some(old) = self.nodes.remove(name) {
            for address in &old.addresses {
                self.forget_address(address, name);
            }
        }
        self.by_name.remove(name);
        self.not_ready.remove(name);
        self.marked.remove(name);
    }

    /// An address is not this node's any more.
    fn forget_address(&mut self, address: &str, name: &str) {
        if self.by_address.get(address).is_some_and(|n| n == name) {
            self.by_address.remove(address);
        }
    }

    /// The budgets that select a pod.
    pub fn budgets_of<'a>(&'a self, pod: &'a PodRow) -> impl Iterator<Item = &'a Arc<BudgetRow>> {
        self.budgets
            .range((pod.namespace.clone(), String::new())..)
            .take_while(|((namespace, _), _)| *namespace == pod.namespace)
            .map(|(_, budget)| budget)
            .filter(|budget| budget.selects(pod))
    }
}

/// Whether a name is in a set.
fn keep(names: &mut OrdSet<String>, name: &str, in_it: bool) {
    match (names.contains(name), in_it) {
        (false, true) => drop(names.insert(name.to_owned())),
        (true, false) => drop(names.remove(name)),
        _ => {}
    }
}

//! Live copy of Kubernetes, and the indexes by which decisions and screens find its rows.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use super::{
    BudgetRow, DaemonSetRow, EndpointsRow, KubeLinkState, NamespaceRow, NodePods, NodeRow, OUT_OF_SERVICE_ANNOTATION,
    PodRow, SourceState,
};
use crate::{
    boot_time::{BootTime, Seconds},
    host::HostRow,
    maintenance_request::RequestRow,
    names::{Address, NodeName},
};

/// Index by name or address. The hasher is a fast one, because every pass looks up every entry.
pub type Index<K, V> = imbl::GenericHashMap<K, V, foldhash::fast::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

/// Serializes in the order of the keys, so that the same view always has the same text.
fn sorted<S: serde::Serializer>(index: &Index<Address, NodeName>, out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(index.iter().collect::<std::collections::BTreeMap<_, _>>())
}

/// Name of the source of [`KubeView::control_plane_pods`].
pub const CONTROL_PLANE_PODS: &str = "control-plane pods";

/// Live copy of the Kubernetes objects that the engine and the screens need. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KubeView {
    /// Nodes by name.
    pub nodes: OrdMap<NodeName, Arc<NodeRow>>,
    /// Address (or host name in `status.addresses`) → node name.
    #[serde(serialize_with = "sorted")]
    pub by_address: Index<Address, NodeName>,
    /// The same rows for look-ups: a hash map is several times faster than an ordered map.
    #[serde(skip)]
    pub by_name: Index<NodeName, Arc<NodeRow>>,
    /// Names of nodes whose Ready condition is not True.
    pub not_ready: OrdSet<NodeName>,
    /// Names of nodes that have CKE's or cketerm's annotation.
    pub marked: OrdSet<NodeName>,
    /// Names of nodes with the sign of another program that drains them. Almost always empty, which spares each queued
    /// entry a look at its Node.
    #[serde(default)]
    pub drained_by_other: OrdSet<NodeName>,
    /// Names of nodes that cketerm took out of service. Almost always empty.
    #[serde(default)]
    pub out_of_service: OrdSet<NodeName>,
    /// Names of nodes with conditions of cketerm, or with its taint.
    #[serde(default, skip_serializing_if = "OrdSet::is_empty")]
    pub signed: OrdSet<NodeName>,
    /// Namespaces by name.
    pub namespaces: OrdMap<String, Arc<NamespaceRow>>,
    /// Budgets by namespace and name.
    #[serde(with = "crate::pairs")]
    pub budgets: OrdMap<(String, String), Arc<BudgetRow>>,
    /// DaemonSets by UID.
    pub daemon_sets: OrdMap<String, Arc<DaemonSetRow>>,
    /// Pods by node name, only of nodes in progress.
    pub pods: OrdMap<NodeName, NodePods>,
    /// Endpoints and slices of the API server; empty until watched.
    pub endpoints: Vec<EndpointsRow>,
    /// Node of each static Pod of an API server or etcd, by the UID of the Pod; empty until watched.
    #[serde(default)]
    pub control_plane_pods: OrdMap<String, NodeName>,
    /// BareMetalHosts by namespace and name; empty until watched.
    #[serde(with = "crate::pairs")]
    pub hosts: OrdMap<(String, String), Arc<HostRow>>,
    /// `MaintenanceRequest`s by name; empty until watched.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub maintenance_requests: OrdMap<String, Arc<RequestRow>>,
    /// State of each watch by resource name: `nodes`, `namespaces`, `poddisruptionbudgets`, `daemonsets`, `pods`,
    /// `endpoints`, `baremetalhosts`, `maintenancerequests`, [`CONTROL_PLANE_PODS`].
    pub sources: OrdMap<String, SourceState>,
    /// State of the link to the API server, for display; no decision depends on it.
    #[serde(skip)]
    pub link: KubeLinkState,
    /// UID of the `kube-system` namespace, once known.
    pub cluster_uid: Option<String>,
    /// API server's clock minus the local clock, once known.
    pub clock_ahead: Option<Seconds>,
    /// Local wall clock minus boot-time clock at that measurement. A different value now means that the clock was set.
    #[serde(default)]
    pub clock_offset: Seconds,
    /// Boot time of that measurement.
    #[serde(default)]
    pub clock_measured: BootTime,
    /// Rights that the queues need and this account lacks, for example `create pods/eviction`.
    pub missing_rights: Vec<String>,
    /// Whether the rights were queried.
    pub rights_known: bool,
}

impl KubeView {
    /// Returns true if the four cluster-wide watches that decisions need are complete.
    pub fn synced(&self) -> bool {
        ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"]
            .iter()
            .all(|name| self.sources.get(*name).is_some_and(|s| s.synced))
    }

    /// Inserts or replaces a node and updates the indexes. It does not write unchanged parts, because that would copy
    /// them.
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
        keep(&mut self.drained_by_other, &row.name, row.drain_sign().is_some());
        let annotations = &row.described.annotations;
        keep(&mut self.out_of_service, &row.name, annotations.get(OUT_OF_SERVICE_ANNOTATION).is_some());
        keep(&mut self.signed, &row.name, row.has_signs());
        let row = Arc::new(row);
        self.by_name.insert(row.name.clone(), Arc::clone(&row));
        self.nodes.insert(row.name.clone(), row);
    }

    /// Rebuilds the index that is not serialized.
    pub fn index_names(&mut self) {
        self.by_name = self.nodes.iter().map(|(name, row)| (name.clone(), Arc::clone(row))).collect();
    }

    /// Removes a node and updates the indexes.
    pub fn remove_node(&mut self, name: &NodeName) {
        if let Some(old) = self.nodes.remove(name) {
            for address in &old.addresses {
                self.forget_address(address, name);
            }
        }
        self.by_name.remove(name);
        self.not_ready.remove(name);
        self.marked.remove(name);
        self.drained_by_other.remove(name);
        self.out_of_service.remove(name);
        self.signed.remove(name);
    }

    /// Removes an address from the index if it is this node's.
    fn forget_address(&mut self, address: &Address, name: &NodeName) {
        if self.by_address.get(address).is_some_and(|n| n == name) {
            self.by_address.remove(address);
        }
    }

    /// Returns the Node of a BareMetalHost and the evidence for it (MET-9 to MET-11): cketerm's annotation, an address,
    /// or the host name. A host that was never inspected is the Node of the same name.
    pub fn node_of_host(&self, host: &HostRow) -> Option<(&Arc<NodeRow>, &'static str)> {
        if !host.node.is_empty() {
            return Some((self.by_name.get(&host.node)?, "its annotation"));
        }
        let by_address = host.addresses.iter().find_map(|address| self.by_name.get(self.by_address.get(address)?));
        let by_host_name = || self.by_name.get(host.hostname.as_str()).filter(|_| !host.hostname.is_empty());
        let known = !host.addresses.is_empty() || !host.hostname.is_empty();
        by_address
            .map(|node| (node, "its address"))
            .or_else(|| by_host_name().map(|node| (node, "its host name")))
            .or_else(|| {
                self.by_name.get(host.name.as_str()).filter(|_| !known).map(|node| (node, "its own name alone"))
            })
    }

    /// Returns the budgets that select a pod.
    pub fn budgets_of<'a>(&'a self, pod: &'a PodRow) -> impl Iterator<Item = &'a Arc<BudgetRow>> {
        self.budgets
            .range((pod.namespace.clone(), String::new())..)
            .take_while(|((namespace, _), _)| *namespace == pod.namespace)
            .map(|(_, budget)| budget)
            .filter(|budget| budget.selects(pod))
    }
}

/// Adds the name to the set or removes it.
fn keep(names: &mut OrdSet<NodeName>, name: &NodeName, in_it: bool) {
    match (names.contains(name), in_it) {
        (false, true) => drop(names.insert(name.clone())),
        (true, false) => drop(names.remove(name)),
        _ => {}
    }
}

//! The kinds that the live copy watches, and where their rows go in the view.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use cketerm_model::{
    boot_time::BootTime,
    host::HostRow,
    kube::{
        BudgetRow, CONTROL_PLANE_PODS, DaemonSetRow, HOSTS_SOURCE, KubeView, NamespaceRow, NodePods, NodeRow, PodRow,
    },
    maintenance_request::{MAINTENANCE_REQUESTS_SOURCE, RequestRow},
    names::NodeName,
};
use imbl::OrdMap;

use super::{
    hosts, maintenance_requests,
    publish_throttle::Urgency,
    read::on_node,
    wire::{self, Meta, Wire},
};

/// One kind of object that is kept live.
pub(super) trait Kind: Clone + Send + Sync + 'static {
    /// The object as the server sends it.
    type Wire: Wire;
    /// The row that is kept of it.
    type Row: From<Self::Wire> + Send;
    /// Name of the source in the view.
    const SOURCE: &'static str;
    /// Path of the list.
    const PATH: &'static str;

    /// Part of the query, percent-encoded. Empty: all objects.
    fn query(&self) -> String {
        String::new()
    }
    /// Stores a complete list. Rows that are not in it are removed.
    fn replace(&self, view: &mut KubeView, rows: Vec<Self::Row>);
    /// Stores an object that was added or changed.
    fn put(&self, view: &mut KubeView, row: Self::Row) -> Urgency;
    /// Removes an object that was deleted.
    fn remove(&self, view: &mut KubeView, meta: &Meta);
    /// Records that the rows are what the server had at that boot time, or newer.
    fn set_fresh_as_of(&self, _view: &mut KubeView, _at: BootTime) {}
}

/// Replaces the content of a map but keeps the `Arc` of every unchanged row, so that readers can compare pointers.
fn replace<K, R>(map: &mut OrdMap<K, Arc<R>>, rows: Vec<R>, key: impl Fn(&R) -> K)
where
    K: Ord + Clone + Hash + Eq,
    R: PartialEq,
{
    let mut listed = HashSet::with_capacity(rows.len());
    for row in rows {
        let k = key(&row);
        listed.insert(k.clone());
        if map.get(&k).is_none_or(|old| **old != row) {
            map.insert(k, Arc::new(row));
        }
    }
    let removed: Vec<K> = map.keys().filter(|k| !listed.contains(*k)).cloned().collect();
    for k in removed {
        map.remove(&k);
    }
}

/// All Nodes.
#[derive(Clone)]
pub(super) struct Nodes;

impl Kind for Nodes {
    type Wire = wire::Node;
    type Row = NodeRow;
    const SOURCE: &'static str = "nodes";
    const PATH: &'static str = "/api/v1/nodes";

    fn replace(&self, view: &mut KubeView, rows: Vec<NodeRow>) {
        let listed: HashSet<NodeName> = rows.iter().map(|r| r.name.clone()).collect();
        let removed: Vec<NodeName> = view.nodes.keys().filter(|n| !listed.contains(*n)).cloned().collect();
        for name in removed {
            view.remove_node(&name);
        }
        for row in rows {
            if view.nodes.get(&row.name).is_none_or(|old| **old != row) {
                view.put_node(row);
            }
        }
    }

    /// Stores the Node. A change of the version or of annotations alone wakes nobody: the kubelet reports every five
    /// minutes, and other programs write annotations at any rate.
    fn put(&self, view: &mut KubeView, row: NodeRow) -> Urgency {
        let immediate = view.by_name.get(&row.name).is_none_or(|old| !old.same_state(&row));
        view.put_node(row);
        Urgency::immediate_if(immediate)
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.remove_node(&NodeName::new(meta.name.as_str()));
    }
}

/// All Namespaces.
#[derive(Clone)]
pub(super) struct Namespaces;

impl Kind for Namespaces {
    type Wire = wire::Namespace;
    type Row = NamespaceRow;
    const SOURCE: &'static str = "namespaces";
    const PATH: &'static str = "/api/v1/namespaces";

    fn replace(&self, view: &mut KubeView, rows: Vec<NamespaceRow>) {
        replace(&mut view.namespaces, rows, |r| r.name.clone());
    }

    fn put(&self, view: &mut KubeView, row: NamespaceRow) -> Urgency {
        view.namespaces.insert(row.name.clone(), Arc::new(row));
        Urgency::Immediate
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.namespaces.remove(&meta.name);
    }
}

/// All `PodDisruptionBudget`s.
#[derive(Clone)]
pub(super) struct Budgets;

impl Kind for Budgets {
    type Wire = wire::Budget;
    type Row = BudgetRow;
    const SOURCE: &'static str = "poddisruptionbudgets";
    const PATH: &'static str = "/apis/policy/v1/poddisruptionbudgets";

    fn replace(&self, view: &mut KubeView, rows: Vec<BudgetRow>) {
        replace(&mut view.budgets, rows, |r| (r.namespace.clone(), r.name.clone()));
    }

    fn put(&self, view: &mut KubeView, row: BudgetRow) -> Urgency {
        view.budgets.insert((row.namespace.clone(), row.name.clone()), Arc::new(row));
        Urgency::Immediate
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.budgets.remove(&(meta.namespace.clone(), meta.name.clone()));
    }
}

/// All DaemonSets.
#[derive(Clone)]
pub(super) struct DaemonSets;

impl Kind for DaemonSets {
    type Wire = wire::DaemonSet;
    type Row = DaemonSetRow;
    const SOURCE: &'static str = "daemonsets";
    const PATH: &'static str = "/apis/apps/v1/daemonsets";

    fn replace(&self, view: &mut KubeView, rows: Vec<DaemonSetRow>) {
        replace(&mut view.daemon_sets, rows, |r| r.uid.clone());
    }

    fn put(&self, view: &mut KubeView, row: DaemonSetRow) -> Urgency {
        view.daemon_sets.insert(row.uid.clone(), Arc::new(row));
        Urgency::Immediate
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.daemon_sets.remove(&meta.uid);
    }
}

/// All BareMetalHosts.
#[derive(Clone)]
pub(super) struct Hosts;

impl Kind for Hosts {
    type Wire = hosts::Host;
    type Row = HostRow;
    const SOURCE: &'static str = HOSTS_SOURCE;
    const PATH: &'static str = "/apis/metal3.io/v1alpha1/baremetalhosts";

    fn replace(&self, view: &mut KubeView, rows: Vec<HostRow>) {
        replace(&mut view.hosts, rows, |r| (r.namespace.clone(), r.name.clone()));
    }

    fn put(&self, view: &mut KubeView, row: HostRow) -> Urgency {
        view.hosts.insert((row.namespace.clone(), row.name.clone()), Arc::new(row));
        Urgency::Immediate
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.hosts.remove(&(meta.namespace.clone(), meta.name.clone()));
    }
}

/// All `MaintenanceRequest`s.
#[derive(Clone)]
pub(super) struct MaintenanceRequests;

impl Kind for MaintenanceRequests {
    type Wire = maintenance_requests::MaintenanceRequest;
    type Row = RequestRow;
    const SOURCE: &'static str = MAINTENANCE_REQUESTS_SOURCE;
    const PATH: &'static str = maintenance_requests::PATH;

    fn replace(&self, view: &mut KubeView, rows: Vec<RequestRow>) {
        replace(&mut view.maintenance_requests, rows, |r| r.name.clone());
    }

    fn put(&self, view: &mut KubeView, row: RequestRow) -> Urgency {
        view.maintenance_requests.insert(row.name.clone(), Arc::new(row));
        Urgency::Immediate
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.maintenance_requests.remove(&meta.name);
    }
}

/// The static Pods of API servers and etcd members.
#[derive(Clone)]
pub(super) struct ControlPlanePods;

impl Kind for ControlPlanePods {
    type Wire = wire::Pod;
    type Row = PodRow;
    const SOURCE: &'static str = CONTROL_PLANE_PODS;
    const PATH: &'static str = "/api/v1/namespaces/kube-system/pods";

    fn query(&self) -> String {
        "labelSelector=component%20in%20(kube-apiserver,etcd)".to_owned()
    }

    fn replace(&self, view: &mut KubeView, rows: Vec<PodRow>) {
        let pods = rows.into_iter().filter(|pod| pod.mirror).map(|pod| (pod.uid, pod.node));
        view.control_plane_pods = pods.collect();
    }

    fn put(&self, view: &mut KubeView, row: PodRow) -> Urgency {
        let is_new = row.mirror && view.control_plane_pods.get(&row.uid) != Some(&row.node);
        if is_new {
            view.control_plane_pods.insert(row.uid, row.node);
        }
        Urgency::immediate_if(is_new)
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.control_plane_pods.remove(&meta.uid);
    }
}

/// The pods of one Node.
#[derive(Clone)]
pub(super) struct PodsOn(pub(super) Arc<NodeName>);

impl PodsOn {
    fn pods<'a>(&self, view: &'a mut KubeView) -> &'a mut NodePods {
        view.pods.entry(NodeName::clone(&self.0)).or_default()
    }
}

impl Kind for PodsOn {
    type Wire = wire::Pod;
    type Row = PodRow;
    const SOURCE: &'static str = "pods";
    const PATH: &'static str = "/api/v1/pods";

    fn query(&self) -> String {
        on_node(&self.0)
    }

    fn replace(&self, view: &mut KubeView, rows: Vec<PodRow>) {
        let pods = self.pods(view);
        replace(&mut pods.pods, rows, |r| r.uid.clone());
        pods.synced = true;
    }

    fn put(&self, view: &mut KubeView, row: PodRow) -> Urgency {
        self.pods(view).pods.insert(row.uid.clone(), Arc::new(row));
        Urgency::Immediate
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        self.pods(view).pods.remove(&meta.uid);
    }

    fn set_fresh_as_of(&self, view: &mut KubeView, at: BootTime) {
        let pods = self.pods(view);
        pods.fresh_as_of = pods.fresh_as_of.max(at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use cketerm_model::kube::PackedPairs;
    use cketerm_model::names::Address;

    fn row(name: &str, version: &str, addresses: &[&str]) -> NodeRow {
        let addresses = addresses.iter().map(|a| Address::new(*a)).collect();
        NodeRow {
            name: NodeName::new(name),
            resource_version: version.into(),
            addresses,
            ready: true,
            ..NodeRow::default()
        }
    }

    fn string_map(value: &str) -> PackedPairs {
        [("example.org/churn".to_owned(), value.to_owned())].into_iter().collect()
    }

    #[test]
    fn a_mere_status_report_of_a_node_is_stored_without_waking_readers() {
        let mut view = KubeView::default();
        assert_eq!(Nodes.put(&mut view, row("n", "1", &["10.0.0.1"])), Urgency::Immediate, "a new Node");
        let mut reports = row("n", "2", &["10.0.0.1"]);
        reports.described.annotations = string_map("1");
        assert_eq!(Nodes.put(&mut view, reports), Urgency::Deferred);
        let kept = view.by_name.get("n").unwrap();
        assert_eq!((kept.resource_version.as_str(), &kept.described.annotations), ("2", &string_map("1")));
        assert!(Arc::ptr_eq(kept, view.nodes.get("n").unwrap()));
    }

    #[test]
    fn any_other_change_of_a_node_wakes_all_readers() {
        type Change = fn(&mut NodeRow);
        let changes: [(&str, Change); 13] = [
            ("uid", |n| n.uid = "2".into()),
            ("addresses", |n| n.addresses.push(Address::new("10.0.0.2"))),
            ("cordon", |n| n.unschedulable = true),
            ("ready", |n| n.ready = false),
            ("ready since", |n| n.ready_since = Some(jiff::Timestamp::UNIX_EPOCH)),
            ("boot id", |n| n.boot_id = "2".into()),
            ("kubelet", |n| n.kubelet = "v2".into()),
            ("volumes", |n| n.volumes_in_use.push("v".into())),
            ("CKE's mark", |n| n.cke_mark = true),
            ("cketerm's record", |n| n.owner = Some(Err("odd".into()))),
            ("kept cordoned", |n| n.keep_cordoned = true),
            ("labels", |n| n.described.labels = string_map("1")),
            ("taints", |n| n.described.taints.push(cketerm_model::cluster::Taint::default())),
        ];
        for (what, change) in changes {
            let mut view = KubeView::default();
            Nodes.put(&mut view, row("n", "1", &["10.0.0.1"]));
            let mut newer = row("n", "2", &["10.0.0.1"]);
            change(&mut newer);
            assert_eq!(Nodes.put(&mut view, newer), Urgency::Immediate, "{what}");
        }
    }

    /// Two Nodes may claim an address one after the other, and Nodes may lose and regain theirs. The indexes must be
    /// those of the rows put in afresh.
    #[test]
    fn the_indexes_match_the_rows_in_any_order_of_updates() {
        let (names, addresses) = (["a", "b", "c"], ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let (mut view, mut claims) = (KubeView::default(), BTreeMap::<Address, NodeName>::new());
            for version in 0..12 {
                let name = names[rng.usize(..3)];
                if rng.u8(..4) == 0 {
                    view.remove_node(&NodeName::new(name));
                    claims.retain(|_, of| of != name);
                    continue;
                }
                let has: Vec<&str> = addresses.iter().filter(|_| rng.bool()).copied().collect();
                let mut new = row(name, &version.to_string(), &has);
                (new.ready, new.cke_mark) = (rng.bool(), rng.bool());
                view.put_node(new);
                claims.retain(|_, of| of != name);
                claims.extend(has.iter().map(|address| (Address::new(*address), NodeName::new(name))));
            }
            let indexed = view.by_address.iter().map(|(a, n)| (a.clone(), n.clone())).collect::<BTreeMap<_, _>>();
            assert_eq!(indexed, claims);
            let of = |predicate: fn(&NodeRow) -> bool| {
                view.nodes.values().filter(|n| predicate(n)).map(|n| n.name.clone()).collect::<imbl::OrdSet<_>>()
            };
            assert_eq!((&view.not_ready, &view.marked), (&of(|n| !n.ready), &of(|n| n.cke_mark)));
            assert_eq!(view.by_name.len(), view.nodes.len());
        }
    }
}

//! What is watched, and where its rows go in the view.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use imbl::OrdMap;

use super::{
    hosts,
    read::on_node,
    wire::{self, Meta, Wire},
};
use crate::model::{
    host::HostRow,
    kube::{BudgetRow, DaemonSetRow, HOSTS_SOURCE, KubeView, NamespaceRow, NodePods, NodeRow, PodRow},
};

/// One list that is kept live.
pub(super) trait Kind: Clone + Send + Sync + 'static {
    /// How its objects come.
    type Wire: Wire;
    /// What is kept of them.
    type Row: From<Self::Wire> + Send;
    /// The source's name in the view.
    const SOURCE: &'static str;
    /// Its path.
    const PATH: &'static str;

    /// Part of the query, encoded; empty = everything.
    fn query(&self) -> String {
        String::new()
    }
    /// A complete list came: what is not in it has vanished.
    fn replace(&self, view: &mut KubeView, rows: Vec<Self::Row>);
    /// One object was added or changed.
    fn put(&self, view: &mut KubeView, row: Self::Row);
    /// One object vanished.
    fn remove(&self, view: &mut KubeView, meta: &Meta);
}

/// Replaces a map, keeping rows that are the same, so that readers can tell by the pointer.
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
    let gone: Vec<K> = map.keys().filter(|k| !listed.contains(*k)).cloned().collect();
    for k in gone {
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
        let listed: HashSet<String> = rows.iter().map(|r| r.name.clone()).collect();
        let gone: Vec<String> = view.nodes.keys().filter(|n| !listed.contains(*n)).cloned().collect();
        for name in gone {
            view.remove_node(&name);
        }
        for row in rows {
            if view.nodes.get(&row.name).is_none_or(|old| **old != row) {
                view.put_node(row);
            }
        }
    }

    fn put(&self, view: &mut KubeView, row: NodeRow) {
        view.put_node(row);
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.remove_node(&meta.name);
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

    fn put(&self, view: &mut KubeView, row: NamespaceRow) {
        view.namespaces.insert(row.name.clone(), Arc::new(row));
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

    fn put(&self, view: &mut KubeView, row: BudgetRow) {
        view.budgets.insert((row.namespace.clone(), row.name.clone()), Arc::new(row));
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

    fn put(&self, view: &mut KubeView, row: DaemonSetRow) {
        view.daemon_sets.insert(row.uid.clone(), Arc::new(row));
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

    fn put(&self, view: &mut KubeView, row: HostRow) {
        view.hosts.insert((row.namespace.clone(), row.name.clone()), Arc::new(row));
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        view.hosts.remove(&(meta.namespace.clone(), meta.name.clone()));
    }
}

/// The pods of one Node.
#[derive(Clone)]
pub(super) struct PodsOn(pub(super) Arc<str>);

impl PodsOn {
    fn pods<'a>(&self, view: &'a mut KubeView) -> &'a mut NodePods {
        view.pods.entry(self.0.to_string()).or_default()
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

    fn put(&self, view: &mut KubeView, row: PodRow) {
        self.pods(view).pods.insert(row.uid.clone(), Arc::new(row));
    }

    fn remove(&self, view: &mut KubeView, meta: &Meta) {
        self.pods(view).pods.remove(&meta.uid);
    }
}

//! Updates the index and schedules work from changes of objects and of power.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Manager, Work,
    index::{Index, Name, Pod, name_of},
    is_same_kind,
    object_fields::text,
};
use crate::{
    durations::duration_from_secs,
    kubernetes::{
        Change, Resource, Verb,
        objects::Key,
        resource::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS, STATEFUL_SETS},
    },
    machines::{Power, PowerEvent},
};

/// Kinds that own pods, or that own such owners.
const OWNERS: [&Resource; 5] = [&DEPLOYMENTS, &REPLICA_SETS, &STATEFUL_SETS, &DAEMON_SETS, &JOBS];

impl Manager {
    /// Reads everything for the first time.
    pub(super) fn begin(&mut self) {
        self.power_seen = *self.machines.subscribe().borrow();
        self.init_kubelets();
        self.relist();
    }

    /// Reads everything, like an informer that lost its watch.
    fn relist(&mut self) {
        self.index = Index::default();
        self.scheduler = super::scheduler::Scheduler::default();
        // Changes that happen during the lists are in the lists and come again as events. All handlers tolerate
        // duplicates.
        self.seen = self.objects.revision();
        for resource in OWNERS.into_iter().chain([&NAMESPACES, &BUDGETS, &NODES, &PODS]) {
            for object in self.objects.list(resource, "").0 {
                self.apply_change(&Change {
                    at: self.objects.clock().wall(),
                    revision: self.seen,
                    resource,
                    verb: Verb::Added,
                    object,
                    before: None,
                });
            }
        }
        self.prune_kubelet_steps();
    }

    /// Processes the changes since the last call.
    pub(super) fn catch_up(&mut self) {
        if *self.machines.subscribe().borrow() != self.power_seen {
            let entries = self.machines.power_since(self.power_seen);
            self.power_seen += entries.len();
            for Power { what, address, .. } in entries {
                match what {
                    PowerEvent::Down => self.machine_down(&address),
                    PowerEvent::Up => self.machine_up(&address),
                    PowerEvent::Begin | PowerEvent::End(_) => {}
                }
            }
        }
        while self.objects.revision() != self.seen {
            match self.objects.since(self.seen) {
                Some(changes) => {
                    for change in changes {
                        self.seen = change.revision;
                        self.apply_change(&change);
                    }
                }
                None => self.relist(),
            }
        }
    }

    fn apply_change(&mut self, change: &Change) {
        let (object, deleted) = (&change.object, change.verb == Verb::Deleted);
        let is = |resource: &'static Resource| is_same_kind(change.resource, resource);
        if is(&PODS) {
            if deleted {
                self.pod_deleted(object);
            } else {
                self.pod_updated(object);
            }
        } else if is(&NODES) {
            self.node_changed(change.before.as_deref(), (!deleted).then_some(object));
        } else if is(&BUDGETS) {
            self.budget_changed(change);
        } else if is(&NAMESPACES) {
            self.namespace_changed(change);
        } else if OWNERS.into_iter().any(is) {
            self.owner_changed(change);
        }
        if !deleted && super::garbage::awaits_garbage_collection(object) && !OWNERS.into_iter().any(is) {
            self.enqueue(Work::Release(change.resource, name_of(object)));
        }
        let namespace = object["metadata"]["namespace"].as_str();
        if deleted && let Some(ending) = namespace.filter(|n| self.index.terminating_namespaces.contains(*n)) {
            self.enqueue(Work::Namespace(ending.to_owned()));
        }
    }

    fn pod_updated(&mut self, object: &Arc<Value>) {
        let name = name_of(object);
        let selected = self.index.budgets_of(&name);
        let before = self.index.put(&name, Pod::read(object));
        self.pod_changed(&name, before.as_ref(), selected);
        let node = text(&object["spec"]["nodeName"]);
        if !node.is_empty() && !self.index.nodes.contains_key(node) {
            self.enqueue_after(duration_from_secs(self.durations.orphan_grace), Work::Orphans(node.to_owned()));
        }
    }

    fn pod_deleted(&mut self, object: &Arc<Value>) {
        let name = name_of(object);
        let selected = self.index.budgets_of(&name);
        if let Some(before) = self.index.remove(&name) {
            self.pod_changed(&name, Some(&before), selected);
        }
    }

    /// Notifies every controller of a pod's change. The index already has the new state. `selected` are the budgets
    /// that selected the pod before.
    fn pod_changed(&mut self, name: &Name, before: Option<&Pod>, selected: Vec<Key>) {
        self.kubelet_on_pod(name, before);
        self.scheduler_on_pod(name, before);
        self.owners_on_pod(name, before);
        self.budgets_on_pod(name, before, selected);
    }
}

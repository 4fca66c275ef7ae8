//! The scheduler: binds an unbound pod to the Ready, schedulable node with the fewest pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    Manager, Work,
    index::{Name, Pod},
    object_fields::{self, text},
};

/// Maximum number of pods bound in one go.
const BATCH: usize = 64;

/// State of the scheduler.
#[derive(Default)]
pub(super) struct Scheduler {
    /// Nodes that accept pods, by number of pods, fewest first.
    schedulable: BTreeSet<(usize, String)>,
    /// Number under which each node is in `schedulable`.
    pod_counts: BTreeMap<String, usize>,
    /// Pods to schedule in order of arrival, and the number of each.
    queue: BTreeMap<u64, Name>,
    queued: BTreeMap<Name, u64>,
    /// Pods that no node accepts.
    unschedulable: BTreeSet<Name>,
    count: u64,
}

impl Scheduler {
    fn enqueue_pod(&mut self, name: &Name) {
        if !self.queued.contains_key(name) {
            self.count += 1;
            self.queue.insert(self.count, Arc::clone(name));
            self.queued.insert(Arc::clone(name), self.count);
        }
    }

    fn dequeue_pod(&mut self, name: &Name) {
        self.unschedulable.remove(name);
        if let Some(place) = self.queued.remove(name) {
            self.queue.remove(&place);
        }
    }
}

/// Reports whether a node is Ready, not cordoned and not being deleted.
fn schedulable(node: &Value) -> bool {
    node["spec"]["unschedulable"] != true
        && object_fields::condition_status(node, "Ready") == "True"
        && !object_fields::is_being_deleted(node)
}

fn accepts(node: &Value, pod: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut barring = taints.filter(|t| t["effect"] != "PreferNoSchedule");
    barring.all(|taint| tolerated(taint, &pod["spec"]["tolerations"]))
        && object_fields::has_labels(node, &pod["spec"]["nodeSelector"])
}

fn tolerated(taint: &Value, tolerations: &Value) -> bool {
    tolerations.as_array().into_iter().flatten().any(|t| {
        let effect = text(&t["effect"]);
        let key = text(&t["key"]);
        let exists = t["operator"] == "Exists";
        (effect.is_empty() || taint["effect"] == effect)
            && (key == text(&taint["key"]) && (exists || text(&t["value"]) == text(&taint["value"]))
                || key.is_empty() && exists)
    })
}

impl Manager {
    pub(super) fn scheduler_on_pod(&mut self, name: &Name, before: Option<&Pod>) {
        let now = self.index.pods.get(name);
        let node = now.map(|pod| pod.node.clone()).filter(|node| !node.is_empty());
        let old_node = before.map(|pod| pod.node.clone()).filter(|node| !node.is_empty());
        if now.is_some_and(|pod| pod.node.is_empty() && pod.active()) {
            if !self.scheduler.unschedulable.contains(name) {
                self.scheduler.enqueue_pod(name);
                self.enqueue(Work::Schedule);
            }
        } else {
            self.scheduler.dequeue_pod(name);
        }
        if node != old_node {
            for node in [node, old_node].into_iter().flatten() {
                self.place(&node);
            }
        }
    }

    /// Handles a node that was added, changed or deleted. Waiting pods are tried again.
    pub(super) fn scheduler_on_node(&mut self, node: &str) {
        self.place(node);
        if self.scheduler.pod_counts.contains_key(node) && !self.scheduler.unschedulable.is_empty() {
            for name in std::mem::take(&mut self.scheduler.unschedulable) {
                self.scheduler.enqueue_pod(&name);
            }
            self.enqueue(Work::Schedule);
        }
    }

    /// Updates a node's position among the open ones.
    fn place(&mut self, node: &str) {
        let scheduler = &mut self.scheduler;
        if let Some(place) = scheduler.pod_counts.remove(node) {
            scheduler.schedulable.remove(&(place, node.to_owned()));
        }
        if self.index.nodes.get(node).is_some_and(|n| schedulable(n)) {
            let pods = self.index.by_node.get(node).map_or(0, BTreeSet::len);
            scheduler.pod_counts.insert(node.to_owned(), pods);
            scheduler.schedulable.insert((pods, node.to_owned()));
        }
    }

    /// Binds the pods in the queue.
    pub(super) fn schedule(&mut self) {
        for _ in 0..BATCH {
            let Some((_, name)) = self.scheduler.queue.pop_first() else { return };
            self.scheduler.queued.remove(&name);
            let Some(pod) = self.index.pods.get(&name) else { continue };
            let nodes = &self.index.nodes;
            let fits = |node: &String| nodes.get(node).is_some_and(|n| accepts(n, &pod.object));
            let place = self.scheduler.schedulable.iter().find(|(_, node)| fits(node)).map(|(_, node)| node.clone());
            let (uid, stamp) = (pod.uid.clone(), self.objects.stamp());
            let Some(node) = place else {
                let why = format!("0/{} nodes are available.", nodes.len());
                self.scheduler.unschedulable.insert(Arc::clone(&name));
                self.write_pod(&name, &uid, |pod| {
                    object_fields::set_condition(pod, &stamp, "PodScheduled", "False", "Unschedulable", &why);
                });
                self.catch_up();
                continue;
            };
            self.write_pod(&name, &uid, |pod| {
                if text(&pod["spec"]["nodeName"]).is_empty() && !object_fields::is_being_deleted(pod) {
                    pod["spec"]["nodeName"] = json!(node);
                    object_fields::set_condition(pod, &stamp, "PodScheduled", "True", "", "");
                }
            });
            self.catch_up();
        }
        self.work_queue.add_at(Work::Schedule, tokio::time::Instant::now());
    }
}

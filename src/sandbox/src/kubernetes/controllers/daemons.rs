//! DaemonSets: one pod on every node that matches the selector, cordoned or not.

use serde_json::{Value, json};

use super::{
    Manager, Work,
    index::{Name, Owner},
    is_same_kind,
    object_fields::{self, text},
};
use crate::kubernetes::resource::DAEMON_SETS;

/// Returns the pod of a DaemonSet on a node. It is bound from the beginning and tolerates every condition taint of a
/// node.
pub(crate) fn daemon(set: &Value, name: &str, node: &str) -> Value {
    let mut pod = object_fields::from_template(set, &format!("{name}-"));
    pod["spec"]["nodeName"] = json!(node);
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["not-ready", "unreachable", "unschedulable", "disk-pressure", "memory-pressure", "pid-pressure"] {
        tolerations.push(json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists"}));
    }
    pod["spec"]["tolerations"] = json!(tolerations);
    pod
}

impl Manager {
    /// Schedules a check of every node for a new or changed DaemonSet.
    pub(super) fn daemon_set_changed(&mut self, uid: &str) {
        let nodes: Vec<String> = self.index.nodes.keys().cloned().collect();
        for node in nodes {
            self.enqueue(Work::Daemon(uid.to_owned(), node));
        }
    }

    /// Schedules a check of every DaemonSet for a new or relabelled node.
    pub(super) fn daemon_sets_on_node(&mut self, node: &str) {
        let sets = self.index.owners.iter().filter(|(_, owner)| is_same_kind(owner.resource, &DAEMON_SETS));
        let sets: Vec<String> = sets.map(|(uid, _)| uid.clone()).collect();
        for uid in sets {
            self.enqueue(Work::Daemon(uid.clone(), node.to_owned()));
            self.enqueue(Work::Owner(uid));
        }
    }

    /// Reconciles one DaemonSet on one node.
    pub(super) fn daemon(&mut self, uid: &str, node: &str) {
        let Some(Owner { resource, name }) = self.index.owners.get(uid).cloned() else { return };
        let Some(set) = self.objects.get(resource, &name.0, &name.1) else { return };
        let Some(object) = self.index.nodes.get(node).filter(|_| !object_fields::is_being_deleted(&set)) else {
            return;
        };
        let desired = object_fields::has_labels(object, &set["spec"]["template"]["spec"]["nodeSelector"]);
        let owned = self.index.by_node.get(node).into_iter().flatten();
        let owned: Vec<_> = owned
            .filter_map(|name| Some((name, self.index.pods.get(name)?)))
            .filter(|(_, p)| p.owner.as_deref() == Some(uid))
            .collect();
        if desired && owned.is_empty() {
            return self.create_pod(&name.0, daemon(&set, &name.1, node));
        }
        // A finished pod is replaced; of two pods the second one is surplus.
        let keep = owned.iter().position(|(_, pod)| desired && !pod.finished());
        let surplus: Vec<Name> = owned
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != keep)
            .map(|(_, (name, _))| Name::clone(name))
            .collect();
        for name in surplus {
            self.delete_pod(&name);
        }
    }

    /// Writes the status of a DaemonSet.
    pub(super) fn daemon_set(&mut self, uid: &str, _: &Name, object: &Value) {
        let selector = &object["spec"]["template"]["spec"]["nodeSelector"];
        let desired = self.index.nodes.values().filter(|node| object_fields::has_labels(node, selector)).count();
        let (active, ready) = self.index.counts(uid);
        self.write_status(uid, |status, generation| {
            status["desiredNumberScheduled"] = json!(desired);
            status["currentNumberScheduled"] = json!(active);
            status["updatedNumberScheduled"] = json!(active);
            status["numberReady"] = json!(ready);
            status["numberAvailable"] = json!(ready);
            status["numberUnavailable"] = json!(desired.saturating_sub(ready));
            status["numberMisscheduled"] = json!(0);
            status["observedGeneration"] = generation;
        });
    }

    /// Reports whether a node's labels or UID changed. The labels decide which DaemonSets the node gets.
    pub(super) fn relabelled(before: Option<&Value>, now: &Value) -> bool {
        before.is_none_or(|b| {
            b["metadata"]["labels"] != now["metadata"]["labels"]
                || text(&b["metadata"]["uid"]) != text(&now["metadata"]["uid"])
        })
    }
}

//! DaemonSets: one pod on every node that the selector takes, cordoned or not.

use serde_json::{Value, json};

use super::{
    Manager, Work,
    index::{Name, Owner},
    same,
    shape::{self, text},
};
use crate::sandbox::kubernetes::resource::DAEMON_SETS;

/// The pod of a DaemonSet on a node. It is bound from the beginning and tolerates what a node can have.
pub(crate) fn daemon(set: &Value, name: &str, node: &str) -> Value {
    let mut pod = shape::from_template(set, &format!("{name}-"));
    pod["spec"]["nodeName"] = json!(node);
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["not-ready", "unreachable", "unschedulable", "disk-pressure", "memory-pressure", "pid-pressure"] {
        tolerations.push(json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists"}));
    }
    pod["spec"]["tolerations"] = json!(tolerations);
    pod
}

impl Manager {
    /// A DaemonSet is new or says something else: every node is looked at.
    pub(super) fn daemon_set_changed(&mut self, uid: &str) {
        let nodes: Vec<String> = self.index.nodes.keys().cloned().collect();
        for node in nodes {
            self.soon(Work::Daemon(uid.to_owned(), node));
        }
    }

    /// A node is new, or its labels are.
    pub(super) fn daemons_see_node(&mut self, node: &str) {
        let sets = self.index.owners.iter().filter(|(_, owner)| same(owner.resource, &DAEMON_SETS));
        let sets: Vec<String> = sets.map(|(uid, _)| uid.clone()).collect();
        for uid in sets {
            self.soon(Work::Daemon(uid.clone(), node.to_owned()));
            self.soon(Work::Owner(uid));
        }
    }

    /// One DaemonSet on one node.
    pub(super) fn daemon(&mut self, uid: &str, node: &str) {
        let Some(Owner { resource, name }) = self.index.owners.get(uid).cloned() else { return };
        let Some(set) = self.objects.get(resource, &name.0, &name.1) else { return };
        let Some(object) = self.index.nodes.get(node).filter(|_| !shape::being_deleted(&set)) else { return };
        let wanted = shape::has_labels(object, &set["spec"]["template"]["spec"]["nodeSelector"]);
        let ours = self.index.by_node.get(node).into_iter().flatten();
        let ours: Vec<_> = ours
            .filter_map(|name| Some((name, self.index.pods.get(name)?)))
            .filter(|(_, p)| p.owner.as_deref() == Some(uid))
            .collect();
        if wanted && ours.is_empty() {
            return self.create_pod(&name.0, daemon(&set, &name.1, node));
        }
        // One that ended is replaced; of two the second is too many.
        let keep = ours.iter().position(|(_, pod)| wanted && !pod.finished());
        let surplus: Vec<Name> = ours
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != keep)
            .map(|(_, (name, _))| Name::clone(name))
            .collect();
        for name in surplus {
            self.delete_pod(&name);
        }
    }

    /// The status of a DaemonSet.
    pub(super) fn daemon_set(&mut self, uid: &str, _: &Name, object: &Value) {
        let selector = &object["spec"]["template"]["spec"]["nodeSelector"];
        let wanted = self.index.nodes.values().filter(|node| shape::has_labels(node, selector)).count();
        let (active, ready) = self.index.counts(uid);
        self.write_status(uid, |status, generation| {
            status["desiredNumberScheduled"] = json!(wanted);
            status["currentNumberScheduled"] = json!(active);
            status["updatedNumberScheduled"] = json!(active);
            status["numberReady"] = json!(ready);
            status["numberAvailable"] = json!(ready);
            status["numberUnavailable"] = json!(wanted.saturating_sub(ready));
            status["numberMisscheduled"] = json!(0);
            status["observedGeneration"] = generation;
        });
    }

    /// Labels decide which DaemonSets a node has.
    pub(super) fn relabelled(before: Option<&Value>, now: &Value) -> bool {
        before.is_none_or(|b| {
            b["metadata"]["labels"] != now["metadata"]["labels"]
                || text(&b["metadata"]["uid"]) != text(&now["metadata"]["uid"])
        })
    }
}

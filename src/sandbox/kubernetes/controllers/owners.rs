//! Common parts of the pod controllers, and `ReplicaSets`.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::{
    Manager, Work, expected,
    index::{Name, Owner, Phase, Pod},
    same,
    shape::{self, text},
    the_one,
};
use crate::sandbox::kubernetes::{
    Change, Resource, Verb,
    resource::{DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS},
};

impl Manager {
    /// Handles an owner that was added, changed or deleted.
    pub(super) fn owner_changed(&mut self, change: &Change) {
        let (object, name) = (&change.object, super::watch::name_of(&change.object));
        let uid = text(&object["metadata"]["uid"]).to_owned();
        if same(change.resource, &REPLICA_SETS) {
            if let Some(before) = change.before.as_deref() {
                self.replica_set_changed(&name, before, true);
            }
            if change.verb != Verb::Deleted {
                self.replica_set_changed(&name, object, false);
            }
        }
        if change.verb == Verb::Deleted {
            self.index.owners.remove(&uid);
            self.jobs.forget(&uid);
            return self.soon(Work::Dependants(uid));
        }
        self.index.owners.insert(uid.clone(), Owner { resource: change.resource, name });
        let before = change.before.as_deref();
        let as_before = |field: &str| before.is_some_and(|b| b[field] == object[field]);
        let same_end = before.is_some_and(|b| shape::being_deleted(b) == shape::being_deleted(object));
        if !as_before("spec") || !same_end {
            if same(change.resource, &DAEMON_SETS) {
                self.daemon_set_changed(&uid);
            }
            self.soon(Work::Owner(uid));
        }
    }

    /// Handles an owned pod that was added, changed or deleted.
    pub(super) fn owners_see(&mut self, name: &Name, before: Option<&Pod>) {
        let now = self.index.pods.get(name);
        if let (Some(before), Some(now)) = (before, now)
            && before.owner == now.owner
            && before.same_for_owners(now)
        {
            return;
        }
        let kind = |pod: &Pod| shape::controller(&pod.object).map(|o| text(&o["kind"]).to_owned());
        let of = |pod: &Pod| Some((pod.owner.clone()?, kind(pod)?, pod.node.clone()));
        let concerned: Vec<_> = [before, now].into_iter().flatten().filter_map(of).collect();
        for (uid, kind, node) in concerned {
            if self.index.owners.contains_key(&uid) {
                if kind == DAEMON_SETS.kind && !node.is_empty() {
                    self.soon(Work::Daemon(uid.clone(), node));
                }
                self.soon(Work::Owner(uid));
            } else if [REPLICA_SETS.kind, STATEFUL_SETS.kind, DAEMON_SETS.kind, JOBS.kind].contains(&kind.as_str()) {
                self.soon(Work::Dependants(uid));
            }
        }
    }

    /// Reconciles an owner.
    pub(super) fn owner(&mut self, uid: &str) {
        let Some(Owner { resource, name }) = self.index.owners.get(uid).cloned() else { return };
        let Some(object) = self.objects.get(resource, &name.0, &name.1) else { return };
        if object["metadata"]["uid"] != uid {
            return;
        }
        if shape::being_deleted(&object) {
            return self.owner_ends(uid, &object);
        }
        match resource {
            r if same(r, &REPLICA_SETS) => self.replica_set(uid, &name, &object),
            r if same(r, &DEPLOYMENTS) => self.deployment(uid, &name, &object),
            r if same(r, &STATEFUL_SETS) => self.stateful_set(uid, &name, &object),
            r if same(r, &DAEMON_SETS) => self.daemon_set(uid, &name, &object),
            r if same(r, &JOBS) => self.job(uid, &name, &object),
            _ => {}
        }
    }

    fn replica_set(&mut self, uid: &str, name: &Name, object: &Value) {
        let wanted = count(&object["spec"]["replicas"]);
        let (active, _) = self.index.counts(uid);
        for _ in active..wanted {
            self.create_pod(&name.0, shape::from_template(object, &format!("{}-", name.1)));
        }
        if active > wanted {
            self.delete_some(uid, active - wanted);
        }
        self.catch_up();
        let (active, ready) = self.index.counts(uid);
        self.write_status(uid, |status, generation| {
            status["replicas"] = json!(active);
            status["fullyLabeledReplicas"] = json!(active);
            status["readyReplicas"] = json!(ready);
            status["availableReplicas"] = json!(ready);
            status["observedGeneration"] = generation;
        });
    }

    /// Deletes the pods of an owner that matter least: first those that are not bound, not running or not Ready, and
    /// the youngest.
    pub(super) fn delete_some(&self, uid: &str, number: usize) {
        let mut pods = self.index.of(uid);
        pods.retain(|name| self.index.pods.get(name).is_some_and(Pod::active));
        pods.sort_by_cached_key(|name| {
            let pod = self.index.pods.get(name);
            let rank = pod.map(|p| (!p.node.is_empty(), p.phase != Phase::Pending, p.ready));
            (rank, Reverse(pod.map(|p| text(&p.object["metadata"]["creationTimestamp"]).to_owned())), name.clone())
        });
        for name in pods.iter().take(number) {
            self.delete_pod(name);
        }
    }

    /// Creates a pod, unless its namespace is terminating.
    pub(super) fn create_pod(&self, namespace: &str, pod: Value) {
        if !self.index.ending_namespaces.contains(namespace) {
            expected(self.objects.create(&PODS, namespace, pod));
        }
    }

    /// Writes the status of an owner. `write` gets the status and the observed generation.
    pub(super) fn write_status(&self, uid: &str, write: impl FnOnce(&mut Value, Value)) {
        let Some(Owner { resource, name }) = self.index.owners.get(uid) else { return };
        expected(self.objects.update(resource, &name.0, &name.1, |object| {
            the_one(object, uid)?;
            let generation = object["metadata"]["generation"].clone();
            if !object["status"].is_object() {
                object["status"] = json!({});
            }
            write(&mut object["status"], generation);
            if let Some(status) = object["status"].as_object_mut() {
                status.retain(|field, value| *value != 0 || !unsaid(resource, field));
            }
            Ok(())
        }));
    }
}

/// Returns a count such as `spec.replicas`; 1 if it is missing.
pub(super) fn count(value: &Value) -> usize {
    value.as_u64().map_or(1, |n| usize::try_from(n).unwrap_or(0))
}

/// Reports whether Go's encoder omits this status field when it is 0.
fn unsaid(resource: &'static Resource, field: &str) -> bool {
    match field {
        "readyReplicas"
        | "fullyLabeledReplicas"
        | "updatedReplicas"
        | "currentReplicas"
        | "unavailableReplicas"
        | "updatedNumberScheduled"
        | "numberAvailable"
        | "numberUnavailable"
        | "active"
        | "succeeded"
        | "failed" => true,
        "availableReplicas" => !same(resource, &STATEFUL_SETS),
        "replicas" => same(resource, &DEPLOYMENTS),
        _ => false,
    }
}

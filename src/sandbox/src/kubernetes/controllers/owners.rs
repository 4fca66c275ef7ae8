//! Common parts of the pod controllers, and `ReplicaSets`.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::{
    Manager, Work, check_uid, expected,
    index::{Name, Owner, Phase, Pod, name_of},
    is_same_kind,
    object_fields::{self, text},
};
use crate::kubernetes::{
    Change, Resource, Verb,
    resource::{DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS},
};

impl Manager {
    /// Handles an owner that was added, changed or deleted.
    pub(super) fn owner_changed(&mut self, change: &Change) {
        let (object, name) = (&change.object, name_of(&change.object));
        let uid = text(&object["metadata"]["uid"]).to_owned();
        if is_same_kind(change.resource, &REPLICA_SETS) {
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
            return self.enqueue(Work::Dependants(uid));
        }
        self.index.owners.insert(uid.clone(), Owner { resource: change.resource, name });
        let before = change.before.as_deref();
        let as_before = |field: &str| before.is_some_and(|b| b[field] == object[field]);
        let same_end =
            before.is_some_and(|b| object_fields::is_being_deleted(b) == object_fields::is_being_deleted(object));
        if !as_before("spec") || !same_end {
            if is_same_kind(change.resource, &DAEMON_SETS) {
                self.daemon_set_changed(&uid);
            }
            self.enqueue(Work::Owner(uid));
        }
    }

    /// Handles an owned pod that was added, changed or deleted.
    pub(super) fn owners_on_pod(&mut self, name: &Name, before: Option<&Pod>) {
        let now = self.index.pods.get(name);
        if let (Some(before), Some(now)) = (before, now)
            && before.owner == now.owner
            && before.same_for_owners(now)
        {
            return;
        }
        let kind = |pod: &Pod| object_fields::controller(&pod.object).map(|o| text(&o["kind"]).to_owned());
        let of = |pod: &Pod| Some((pod.owner.clone()?, kind(pod)?, pod.node.clone()));
        let concerned: Vec<_> = [before, now].into_iter().flatten().filter_map(of).collect();
        for (uid, kind, node) in concerned {
            if self.index.owners.contains_key(&uid) {
                if kind == DAEMON_SETS.kind && !node.is_empty() {
                    self.enqueue(Work::Daemon(uid.clone(), node));
                }
                self.enqueue(Work::Owner(uid));
            } else if [REPLICA_SETS.kind, STATEFUL_SETS.kind, DAEMON_SETS.kind, JOBS.kind].contains(&kind.as_str()) {
                self.enqueue(Work::Dependants(uid));
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
        if object_fields::is_being_deleted(&object) {
            return self.finish_owner_deletion(uid, &object);
        }
        match resource {
            r if is_same_kind(r, &REPLICA_SETS) => self.replica_set(uid, &name, &object),
            r if is_same_kind(r, &DEPLOYMENTS) => self.deployment(uid, &name, &object),
            r if is_same_kind(r, &STATEFUL_SETS) => self.stateful_set(uid, &name, &object),
            r if is_same_kind(r, &DAEMON_SETS) => self.daemon_set(uid, &name, &object),
            r if is_same_kind(r, &JOBS) => self.job(uid, &name, &object),
            _ => {}
        }
    }

    fn replica_set(&mut self, uid: &str, name: &Name, object: &Value) {
        let desired = count(&object["spec"]["replicas"]);
        let (active, _) = self.index.counts(uid);
        for _ in active..desired {
            self.create_pod(&name.0, object_fields::from_template(object, &format!("{}-", name.1)));
        }
        if active > desired {
            self.scale_down(uid, active - desired);
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
    pub(super) fn scale_down(&self, uid: &str, number: usize) {
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
        if !self.index.terminating_namespaces.contains(namespace) {
            expected(self.objects.create(&PODS, namespace, pod));
        }
    }

    /// Writes the status of an owner. `write` gets the status and the observed generation.
    pub(super) fn write_status(&self, uid: &str, write: impl FnOnce(&mut Value, Value)) {
        let Some(Owner { resource, name }) = self.index.owners.get(uid) else { return };
        expected(self.objects.update(resource, &name.0, &name.1, |object| {
            check_uid(object, uid)?;
            let generation = object["metadata"]["generation"].clone();
            if !object["status"].is_object() {
                object["status"] = json!({});
            }
            write(&mut object["status"], generation);
            if let Some(status) = object["status"].as_object_mut() {
                status.retain(|field, value| *value != 0 || !is_omitted_when_zero(resource, field));
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
fn is_omitted_when_zero(resource: &'static Resource, field: &str) -> bool {
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
        "availableReplicas" => !is_same_kind(resource, &STATEFUL_SETS),
        "replicas" => is_same_kind(resource, &DEPLOYMENTS),
        _ => false,
    }
}

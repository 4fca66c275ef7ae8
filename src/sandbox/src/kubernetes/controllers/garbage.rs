//! Garbage collection: dependants of deleted owners, pods of deleted Nodes, and the objects of a terminating namespace.

use serde_json::{Value, json};

use super::{
    Manager, Work, expected,
    index::{Name, name_of},
    is_same_kind,
    object_fields::{self, text},
};
use crate::kubernetes::{
    Change, Resource, Verb,
    resource::{ALL, NAMESPACES, PODS, REPLICA_SETS},
};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

fn held_by(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|held| held.iter().any(|f| f == finalizer))
}

/// Reports whether the object is being deleted and waits for the garbage collector.
pub(super) fn awaits_garbage_collection(object: &Value) -> bool {
    object_fields::is_being_deleted(object) && (held_by(object, FOREGROUND) || held_by(object, ORPHAN))
}

/// Removes the matching elements from a list in the metadata, and the list itself once it is empty.
fn remove_elements(object: &mut Value, field: &str, predicate: impl Fn(&Value) -> bool) {
    let Some(list) = object["metadata"].get_mut(field).and_then(Value::as_array_mut) else { return };
    list.retain(|one| !predicate(one));
    if list.is_empty()
        && let Some(meta) = object["metadata"].as_object_mut()
    {
        meta.shift_remove(field);
    }
}

impl Manager {
    /// Deletes the dependants of an owner that is gone.
    pub(super) fn dependants(&mut self, uid: &str) {
        if self.index.owners.contains_key(uid) {
            return;
        }
        self.delete_dependants(uid);
    }

    fn delete_dependants(&mut self, uid: &str) {
        for pod in self.index.of(uid) {
            self.delete_pod(&pod);
        }
        let sets: Vec<_> = self.index.replica_sets.get(uid).into_iter().flatten().cloned().collect();
        for set in sets {
            expected(self.objects.remove(&REPLICA_SETS, &set.0, &set.1, |_| Ok(())));
        }
    }

    /// Finishes the deletion of an owner. With foreground deletion the owner is removed once its dependants are gone.
    /// With orphan deletion it is removed once no dependant refers to it.
    pub(super) fn finish_owner_deletion(&mut self, uid: &str, object: &Value) {
        if held_by(object, ORPHAN) {
            self.orphan_dependants(uid);
        } else if held_by(object, FOREGROUND) {
            self.delete_dependants(uid);
        } else {
            return;
        }
        self.catch_up();
        let empty = self.index.of(uid).is_empty() && !self.index.replica_sets.contains_key(uid);
        if let Some(owner) = self.index.owners.get(uid).filter(|_| empty).cloned() {
            self.remove_gc_finalizers(owner.resource, &owner.name);
        }
    }

    /// Removes the owner reference from all dependants.
    fn orphan_dependants(&mut self, uid: &str) {
        let pods = self.index.of(uid).into_iter().map(|name| (&PODS, name));
        let sets = self.index.replica_sets.get(uid).into_iter().flatten().map(|name| (&REPLICA_SETS, name.clone()));
        let all: Vec<_> = pods.chain(sets).collect();
        for (resource, name) in all {
            expected(self.objects.update(resource, &name.0, &name.1, |object| {
                remove_elements(object, "ownerReferences", |owner| owner["uid"] == uid);
                Ok(())
            }));
        }
    }

    /// Removes the garbage collector's finalizers from an object that is being deleted and owns nothing.
    pub(super) fn remove_gc_finalizers(&self, resource: &'static Resource, name: &Name) {
        expected(self.objects.update(resource, &name.0, &name.1, |object| {
            if object_fields::is_being_deleted(object) {
                remove_elements(object, "finalizers", |f| f == FOREGROUND || f == ORPHAN);
            }
            Ok(())
        }));
    }

    /// Deletes the pods of a Node that is gone.
    pub(super) fn orphans(&mut self, node: &str) {
        if self.index.nodes.contains_key(node) {
            return;
        }
        for name in self.index.on(node) {
            if let Some(pod) = self.index.pods.get(&name) {
                self.remove_pod(&name, &pod.uid);
            }
        }
    }

    /// Handles a namespace that was added, changed or deleted.
    pub(super) fn namespace_changed(&mut self, change: &Change) {
        let name = text(&change.object["metadata"]["name"]).to_owned();
        if change.verb == Verb::Deleted {
            self.index.terminating_namespaces.remove(&name);
        } else if object_fields::is_being_deleted(&change.object)
            && self.index.terminating_namespaces.insert(name.clone())
        {
            self.enqueue(Work::Namespace(name));
        }
    }

    /// Empties a terminating namespace. The last step removes the namespace itself.
    pub(super) fn namespace(&mut self, namespace: &str) {
        if !self.index.terminating_namespaces.contains(namespace) {
            return;
        }
        let (mut left, stamp) = (0, self.objects.stamp());
        for resource in ALL.iter().filter(|r| r.namespaced) {
            for object in self.objects.list(resource, namespace).0 {
                let name = text(&object["metadata"]["name"]);
                if is_same_kind(resource, &PODS) {
                    self.delete_pod(&name_of(&object));
                } else if object_fields::finalizers(&object) {
                    expected(self.objects.update(resource, namespace, name, |object| {
                        if !object_fields::is_being_deleted(object) {
                            object["metadata"]["deletionTimestamp"] = json!(stamp);
                        }
                        Ok(())
                    }));
                } else {
                    expected(self.objects.remove(resource, namespace, name, |_| Ok(())));
                }
                left += usize::from(self.objects.get(resource, namespace, name).is_some());
            }
        }
        if left == 0 {
            expected(self.objects.remove(&NAMESPACES, "", namespace, |namespace| {
                if object_fields::finalizers(namespace) { Err(super::not_empty_error()) } else { Ok(()) }
            }));
        }
    }
}

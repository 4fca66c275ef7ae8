//! The objects and their history: the role of etcd behind a kube-apiserver.
//!
//! Every change has its resourceVersion, counted over all kinds. It stays in the history until it is compacted.
//! Followers wait with [`Objects::subscribe`] and read with [`Objects::since`].

mod page;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cketerm_model::clock::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ObjectError, Resource};
pub use page::Page;

/// Number of changes to keep; older ones are compacted automatically.
const HISTORY: usize = 20_000;

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The object was created.
    Added,
    /// The object was modified.
    Modified,
    /// The object was deleted.
    Deleted,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Time, by the clock of the objects.
    pub at: Timestamp,
    /// resourceVersion of the change.
    pub revision: u64,
    /// Kind of the object.
    pub resource: &'static Resource,
    /// Kind of the change.
    pub verb: Verb,
    /// The object after the change. A deleted object has its last state, with the resourceVersion of this change.
    pub object: Arc<Value>,
    /// The object before the change.
    pub before: Option<Arc<Value>>,
}

/// Namespace (empty for cluster-scoped kinds) and name.
pub type Key = (String, String);

/// All objects of one sandbox. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Objects {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Inner {
    /// Maximum number of changes to keep.
    max_history: usize,
    revision: u64,
    /// Last revision that is no longer in the history.
    compacted: u64,
    uids: u64,
    kinds: HashMap<&'static str, BTreeMap<Key, Arc<Value>>>,
    history: VecDeque<Change>,
}

impl Objects {
    /// Creates an empty store. `clock` provides all timestamps.
    pub fn new(clock: Clock) -> Self {
        let inner = Inner { revision: 1, max_history: HISTORY, ..Inner::default() };
        Self { clock, inner: Arc::new(Mutex::new(inner)), changed: Arc::new(watch::Sender::new(1)) }
    }

    /// Returns the clock for timestamps.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the current time in Kubernetes' format: RFC 3339 with whole seconds.
    pub fn stamp(&self) -> String {
        self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest resourceVersion.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Subscribes to changes. The value is the newest resourceVersion.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns one object.
    pub fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.lock().kinds.get(&place(resource))?.get(&key).cloned()
    }

    /// Returns all objects of a kind in one namespace (empty = all), in order of namespace and name, and the revision
    /// of the list.
    pub fn list(&self, resource: &'static Resource, namespace: &str) -> (Vec<Arc<Value>>, u64) {
        let inner = self.lock();
        let Some(kind) = inner.kinds.get(&place(resource)) else { return (Vec::new(), inner.revision) };
        let of = |key: &Key| namespace.is_empty() || key.0 == namespace;
        (kind.iter().filter(|(key, _)| of(key)).map(|(_, object)| Arc::clone(object)).collect(), inner.revision)
    }

    /// Returns the changes after this revision, oldest first. Returns `None` if they are compacted (410 on the wire).
    pub fn since(&self, revision: u64) -> Option<Vec<Change>> {
        let inner = self.lock();
        if revision < inner.compacted {
            return None;
        }
        let from = inner.history.partition_point(|change| change.revision <= revision);
        Some(inner.history.range(from..).cloned().collect())
    }

    /// Keeps every change, for observers.
    pub fn keep_everything(&self) {
        self.lock().max_history = usize::MAX;
    }

    /// Returns every stored change, compacted or not, oldest first.
    pub fn history(&self) -> Vec<Change> {
        self.lock().history.iter().cloned().collect()
    }

    /// Compacts the history. Watches from an older revision get 410.
    pub fn compact(&self) {
        let mut inner = self.lock();
        inner.compacted = inner.revision;
        if inner.max_history != usize::MAX {
            inner.history.clear();
        }
    }

    /// Creates an object. Sets its name (from `generateName`), UID, resourceVersion, generation, creation timestamp and
    /// kind.
    pub fn create(
        &self,
        resource: &'static Resource,
        namespace: &str,
        mut object: Value,
    ) -> Result<Arc<Value>, ObjectError> {
        let mut inner = self.lock();
        inner.uids += 1;
        let count = inner.uids;
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let meta = &mut object["metadata"];
        if meta["name"].as_str().is_none_or(str::is_empty) {
            let Some(stem) = meta["generateName"].as_str() else {
                let text = format!("{} \"\" is invalid: metadata.name: Required value", resource.kind);
                return Err(ObjectError::new(422, "Invalid", text));
            };
            meta["name"] = json!(format!("{stem}{}", suffix(count)));
        }
        let name = meta["name"].as_str().unwrap_or_default().to_owned();
        let key = (namespace.to_owned(), name.clone());
        if inner.kinds.get(&place(resource)).is_some_and(|kind| kind.contains_key(&key)) {
            return Err(ObjectError::exists(resource, &name));
        }
        if resource.namespaced {
            meta["namespace"] = json!(namespace);
        }
        meta["uid"] = json!(format!("00000000-0000-4000-8000-{count:012x}"));
        meta["creationTimestamp"] = json!(self.stamp());
        if resource.generations {
            meta["generation"] = json!(1);
        }
        object["apiVersion"] = json!(resource.api_version());
        object["kind"] = json!(resource.kind);
        Ok(self.commit(&mut inner, resource, key, Verb::Added, object, None))
    }

    /// Updates an object with `change`, which gets the current state and may refuse. Without a difference nothing is
    /// written. `kind`, name, UID and creation timestamp cannot change. The generation grows with each change of the
    /// spec and with the first deletion. An object is removed once it is being deleted, has no grace period left, and
    /// has lost its last finalizer.
    ///
    /// `change` runs under the lock of all objects. Calling any function of `Objects` inside it causes a deadlock.
    pub fn update(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value) -> Result<(), ObjectError>,
    ) -> Result<Arc<Value>, ObjectError> {
        let mut inner = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        let found = inner.kinds.get(&place(resource)).and_then(|kind| kind.get(&key)).cloned();
        let before = found.ok_or_else(|| ObjectError::not_found(resource, name))?;
        let mut object = Value::clone(&before);
        change(&mut object)?;
        for field in ["name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation"] {
            restore(&mut object["metadata"], &before["metadata"], field);
        }
        for field in ["apiVersion", "kind"] {
            restore(&mut object, &before, field);
        }
        if object == *before {
            return Ok(before);
        }
        let deleted = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        let bumps_generation = object.get("spec") != before.get("spec") || deleted(&object) && !deleted(&before);
        if resource.generations && bumps_generation {
            object["metadata"]["generation"] = json!(before["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
        }
        let finalizers =
            |object: &Value| object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        let ended = object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0) == 0;
        let done = deleted(&before) && ended && finalizers(&before) && !finalizers(&object);
        let verb = if done { Verb::Deleted } else { Verb::Modified };
        Ok(self.commit(&mut inner, resource, key, verb, object, Some(before)))
    }

    /// Removes an object at once, regardless of its grace period. `check` gets the object and may refuse. It runs under
    /// the lock, as in [`Self::update`].
    pub fn remove(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        check: impl FnOnce(&Value) -> Result<(), ObjectError>,
    ) -> Result<Arc<Value>, ObjectError> {
        let mut inner = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        let found = inner.kinds.get(&place(resource)).and_then(|kind| kind.get(&key)).cloned();
        let before = found.ok_or_else(|| ObjectError::not_found(resource, name))?;
        check(&before)?;
        let object = Value::clone(&before);
        Ok(self.commit(&mut inner, resource, key, Verb::Deleted, object, Some(before)))
    }

    fn commit(
        &self,
        inner: &mut Inner,
        resource: &'static Resource,
        key: Key,
        verb: Verb,
        mut object: Value,
        before: Option<Arc<Value>>,
    ) -> Arc<Value> {
        inner.revision += 1;
        let revision = inner.revision;
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        let object = Arc::new(object);
        let kind = inner.kinds.entry(place(resource)).or_default();
        if verb == Verb::Deleted {
            kind.remove(&key);
        } else {
            kind.insert(key, Arc::clone(&object));
        }
        inner.history.push_back(Change {
            at: self.clock.wall(),
            revision,
            resource,
            verb,
            object: Arc::clone(&object),
            before,
        });
        if inner.history.len() > inner.max_history
            && let Some(dropped) = inner.history.pop_front()
        {
            inner.compacted = dropped.revision;
        }
        self.changed.send_replace(revision);
        object
    }
}

/// Both kinds of events are stored in one place, as on a real server.
fn place(resource: &'static Resource) -> &'static str {
    resource.plural
}

fn restore(to: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => {
            to.as_object_mut().and_then(|to| to.shift_remove(field));
        }
    }
}

/// Returns five characters that differ for every number, like those of `generateName`.
fn suffix(mut number: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut out = String::new();
    for _ in 0..5 {
        let at = usize::try_from(number % 27).unwrap_or(0);
        out.push(char::from(LETTERS[at]));
        number = number / 27 + 7;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{
        super::resource::{BUDGETS, NODES, PODS},
        *,
    };

    fn objects() -> Objects {
        Objects::new(Clock::host())
    }

    #[test]
    fn every_change_has_a_revision_and_a_no_op_update_has_none() {
        let objects = objects();
        let made = objects.create(&NODES, "", json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!((made["kind"].as_str(), made["metadata"]["resourceVersion"].as_str()), (Some("Node"), Some("2")));
        let same = objects.update(&NODES, "", "a", |_| Ok(())).unwrap();
        assert_eq!(same, made);
        objects
            .update(&NODES, "", "a", |n| {
                n["spec"] = json!({"unschedulable": true});
                Ok(())
            })
            .unwrap();
        objects.remove(&NODES, "", "a", |_| Ok(())).unwrap();
        let seen: Vec<_> = objects.since(1).unwrap().into_iter().map(|c| (c.revision, c.verb)).collect();
        assert_eq!(seen, [(2, Verb::Added), (3, Verb::Modified), (4, Verb::Deleted)]);
        objects.compact();
        assert!(objects.since(3).is_none() && objects.since(4).is_some_and(|c| c.is_empty()));
    }

    #[test]
    fn the_generation_grows_with_the_spec_and_the_uid_is_immutable() {
        let objects = objects();
        objects.create(&BUDGETS, "x", json!({"metadata": {"name": "b"}, "spec": {}})).unwrap();
        let changed = objects.update(&BUDGETS, "x", "b", |b| {
            b["status"] = json!({"disruptionsAllowed": 1});
            b["metadata"]["uid"] = json!("another");
            Ok(())
        });
        let changed = changed.unwrap();
        assert_eq!(changed["metadata"]["generation"], 1);
        assert_ne!(changed["metadata"]["uid"], "another");
        let spec = objects
            .update(&BUDGETS, "x", "b", |b| {
                b["spec"]["minAvailable"] = json!(1);
                Ok(())
            })
            .unwrap();
        assert_eq!(spec["metadata"]["generation"], 2);
    }

    #[test]
    fn names_are_generated_and_duplicates_are_refused() {
        let objects = objects();
        let make = || objects.create(&PODS, "x", json!({"metadata": {"generateName": "p-"}})).unwrap();
        assert_ne!(make()["metadata"]["name"], make()["metadata"]["name"]);
        let named = || objects.create(&PODS, "x", json!({"metadata": {"name": "p"}}));
        named().unwrap();
        assert_eq!(named().unwrap_err().code, 409);
        assert_eq!(objects.create(&PODS, "x", json!({})).unwrap_err().code, 422);
    }
}

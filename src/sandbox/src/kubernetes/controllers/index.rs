//! Index of pods by node, owner and budget, updated with every change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::selector::Selector;
use serde_json::Value;

use super::object_fields::{self, text};
use crate::kubernetes::{Resource, objects::Key};

/// Namespace and name, shared.
pub(super) type Name = Arc<Key>;

/// Returns namespace and name of an object.
pub(super) fn name_of(object: &Value) -> Name {
    let meta = &object["metadata"];
    Arc::new((text(&meta["namespace"]).to_owned(), text(&meta["name"]).to_owned()))
}

/// Indexed facts of a pod.
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(super) struct Pod {
    pub(super) uid: String,
    /// Name of its node; empty until it is bound.
    pub(super) node: String,
    /// UID of its controller.
    pub(super) owner: Option<String>,
    pub(super) phase: Phase,
    pub(super) ready: bool,
    /// Grace period in seconds once its deletion was requested.
    pub(super) terminating: Option<u64>,
    /// Whether nothing terminates it: it has finalizers or the annotation [`object_fields::STUCK`].
    pub(super) held: bool,
    pub(super) never_ready: bool,
    pub(super) runs: bool,
    pub(super) mirror: bool,
    pub(super) object: Arc<Value>,
}

/// `status.phase`. `Pending` also stands for a missing phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Pod {
    pub(super) fn read(object: &Arc<Value>) -> Self {
        let meta = &object["metadata"];
        let grace = || meta["deletionGracePeriodSeconds"].as_u64().unwrap_or(30);
        Self {
            uid: text(&meta["uid"]).to_owned(),
            node: text(&object["spec"]["nodeName"]).to_owned(),
            owner: object_fields::controller(object).map(|o| text(&o["uid"]).to_owned()),
            phase: match text(&object["status"]["phase"]) {
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                _ => Phase::Pending,
            },
            ready: object_fields::condition_status(object, "Ready") == "True",
            terminating: object_fields::is_being_deleted(object).then(grace),
            held: object_fields::finalizers(object)
                || object_fields::annotation(object, object_fields::STUCK) == "true",
            never_ready: object_fields::annotation(object, object_fields::NEVER_READY) == "true",
            runs: !object_fields::annotation(object, object_fields::RUNS).is_empty(),
            mirror: meta["annotations"].get(object_fields::MIRROR).is_some(),
            object: Arc::clone(object),
        }
    }

    pub(super) fn finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Reports whether it is neither finished nor terminating. Owners count such pods.
    pub(super) fn active(&self) -> bool {
        self.terminating.is_none() && !self.finished()
    }

    /// Returns the facts that matter to owners and budgets.
    fn state(&self) -> (&str, Phase, bool, bool, &str) {
        (&self.node, self.phase, self.ready, self.terminating.is_some(), &self.uid)
    }

    pub(super) fn same_for_owners(&self, other: &Self) -> bool {
        self.state() == other.state()
    }
}

/// The pods of one owner.
#[derive(Default)]
pub(super) struct Owned {
    pub(super) pods: BTreeSet<Name>,
    pub(super) active: usize,
    pub(super) ready: usize,
}

/// A budget's selector and the pods that it selects.
pub(super) struct Budget {
    pub(super) selector: Option<Selector>,
    pub(super) pods: BTreeSet<Name>,
}

/// An object that owns others.
#[derive(Clone)]
pub(super) struct Owner {
    pub(super) resource: &'static Resource,
    pub(super) name: Name,
}

/// The whole index.
#[derive(Default)]
pub(super) struct Index {
    pub(super) pods: BTreeMap<Name, Pod>,
    pub(super) by_node: BTreeMap<String, BTreeSet<Name>>,
    /// Pods by the owner's UID.
    pub(super) by_owner: BTreeMap<String, Owned>,
    /// Nodes by name.
    pub(super) nodes: BTreeMap<String, Arc<Value>>,
    /// Possible owners of pods, by UID.
    pub(super) owners: BTreeMap<String, Owner>,
    /// `ReplicaSets` by the Deployment's UID.
    pub(super) replica_sets: BTreeMap<String, BTreeSet<Name>>,
    pub(super) budgets: BTreeMap<Key, Budget>,
    pub(super) terminating_namespaces: BTreeSet<String>,
}

impl Index {
    /// Inserts a pod. Returns the previous one.
    pub(super) fn put(&mut self, name: &Name, pod: Pod) -> Option<Pod> {
        let before = self.take(name);
        if !pod.node.is_empty() {
            insert(&mut self.by_node, &pod.node, name);
        }
        if let Some(owner) = &pod.owner {
            if !self.by_owner.contains_key(owner) {
                self.by_owner.insert(owner.clone(), Owned::default());
            }
            if let Some(owned) = self.by_owner.get_mut(owner) {
                owned.pods.insert(Arc::clone(name));
                owned.active += usize::from(pod.active());
                owned.ready += usize::from(pod.active() && pod.ready);
            }
        }
        let relabelled =
            before.as_ref().is_none_or(|b| b.object["metadata"]["labels"] != pod.object["metadata"]["labels"]);
        if relabelled {
            self.select(name, &pod.object);
        }
        self.pods.insert(Arc::clone(name), pod);
        before
    }

    fn select(&mut self, name: &Name, object: &Value) {
        let mut labels = None;
        for (_, budget) in in_namespace_mut(&mut self.budgets, &name.0) {
            let labels = labels.get_or_insert_with(|| object_fields::labels(object));
            if budget.selector.as_ref().is_some_and(|s| s.matches(labels)) {
                budget.pods.insert(Arc::clone(name));
            } else {
                budget.pods.remove(name);
            }
        }
    }

    /// Removes a pod, except from its budgets.
    fn take(&mut self, name: &Name) -> Option<Pod> {
        let pod = self.pods.remove(name)?;
        remove(&mut self.by_node, &pod.node, name);
        if let Some(owner) = &pod.owner
            && let Some(owned) = self.by_owner.get_mut(owner)
        {
            owned.pods.remove(name);
            owned.active -= usize::from(pod.active());
            owned.ready -= usize::from(pod.active() && pod.ready);
            if owned.pods.is_empty() {
                self.by_owner.remove(owner);
            }
        }
        Some(pod)
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, name: &Name) -> Option<Pod> {
        for (_, budget) in in_namespace_mut(&mut self.budgets, &name.0) {
            budget.pods.remove(name);
        }
        self.take(name)
    }

    /// Returns the budgets that select a pod.
    pub(super) fn budgets_of(&self, name: &Name) -> Vec<Key> {
        let from = (name.0.clone(), String::new());
        let those = self.budgets.range(from..).take_while(|(key, _)| key.0 == name.0);
        those.filter(|(_, b)| b.pods.contains(name)).map(|(key, _)| key.clone()).collect()
    }

    /// Inserts a budget with the pods that it selects.
    pub(super) fn put_budget(&mut self, key: &Key, selector: Option<Selector>) {
        if self.budgets.get(key).is_some_and(|b| b.selector == selector) {
            return;
        }
        let from = Arc::new((key.0.clone(), String::new()));
        let those = self.pods.range(from..).take_while(|(name, _)| name.0 == key.0);
        let selects = |pod: &Pod| selector.as_ref().is_some_and(|s| s.matches(&object_fields::labels(&pod.object)));
        let pods = those.filter(|(_, pod)| selects(pod)).map(|(name, _)| Arc::clone(name)).collect();
        self.budgets.insert(key.clone(), Budget { selector, pods });
    }

    /// Returns the pods on a node.
    pub(super) fn on(&self, node: &str) -> Vec<Name> {
        self.by_node.get(node).into_iter().flatten().cloned().collect()
    }

    /// Returns the pods of an owner.
    pub(super) fn of(&self, uid: &str) -> Vec<Name> {
        self.by_owner.get(uid).into_iter().flat_map(|owned| &owned.pods).cloned().collect()
    }

    /// Returns the number of active pods of an owner, and how many of those are Ready.
    pub(super) fn counts(&self, uid: &str) -> (usize, usize) {
        self.by_owner.get(uid).map_or((0, 0), |owned| (owned.active, owned.ready))
    }
}

pub(super) fn insert(map: &mut BTreeMap<String, BTreeSet<Name>>, key: &str, name: &Name) {
    match map.get_mut(key) {
        Some(names) => {
            names.insert(Arc::clone(name));
        }
        None => {
            map.insert(key.to_owned(), BTreeSet::from([Arc::clone(name)]));
        }
    }
}

pub(super) fn remove(map: &mut BTreeMap<String, BTreeSet<Name>>, key: &str, name: &Name) {
    if let Some(names) = map.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            map.remove(key);
        }
    }
}

fn in_namespace_mut<'a>(
    budgets: &'a mut BTreeMap<Key, Budget>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a Key, &'a mut Budget)> {
    budgets.range_mut((namespace.to_owned(), String::new())..).take_while(move |(key, _)| key.0 == namespace)
}

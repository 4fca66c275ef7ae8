//! Following: changes of objects and of power become index and work.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Manager,
    index::{Index, Name, Pod},
    shape::text,
};
use crate::sandbox::{
    kubernetes::{
        Change, Verb,
        resource::{NODES, PODS},
    },
    machines::{Power, What},
};

pub(super) fn name_of(object: &Value) -> Name {
    let meta = &object["metadata"];
    Arc::new((text(&meta["namespace"]).to_owned(), text(&meta["name"]).to_owned()))
}

impl Manager {
    /// Reads everything for the first time.
    pub(super) fn begin(&mut self) {
        self.power_seen = *self.machines.subscribe().borrow();
        self.kubelets_begin();
        self.relist();
    }

    /// Reads everything, as an informer does whose watch is gone.
    fn relist(&mut self) {
        self.index = Index::default();
        self.scheduler = super::scheduler::Scheduler::default();
        let (nodes, revision) = self.objects.list(&NODES, "");
        self.seen = revision;
        for node in nodes {
            self.node_changed(None, Some(&node));
        }
        for pod in self.objects.list(&PODS, "").0 {
            self.pod_seen(&pod);
        }
        self.kubelets_forget();
    }

    /// Takes in what happened since the last time.
    pub(super) fn catch_up(&mut self) {
        if *self.machines.subscribe().borrow() != self.power_seen {
            let lines = self.machines.power_since(self.power_seen);
            self.power_seen += lines.len();
            for Power { what, address, .. } in lines {
                match what {
                    What::Down => self.machine_down(&address),
                    What::Up => self.machine_up(&address),
                    What::Begin | What::End(_) => {}
                }
            }
        }
        while self.objects.revision() != self.seen {
            match self.objects.since(self.seen) {
                Some(changes) => {
                    for change in changes {
                        self.seen = change.revision;
                        self.take_in(&change);
                    }
                }
                None => self.relist(),
            }
        }
    }

    fn take_in(&mut self, change: &Change) {
        let (object, gone) = (&change.object, change.verb == Verb::Deleted);
        let is = |resource| std::ptr::eq(change.resource, resource);
        if is(&PODS) {
            if gone {
                self.pod_gone(object);
            } else {
                self.pod_seen(object);
            }
        } else if is(&NODES) {
            self.node_changed(change.before.as_deref(), (!gone).then_some(object));
        }
    }

    fn pod_seen(&mut self, object: &Arc<Value>) {
        let name = name_of(object);
        let before = self.index.put(&name, Pod::read(object));
        self.pod_changed(&name, before.as_ref());
    }

    fn pod_gone(&mut self, object: &Arc<Value>) {
        let name = name_of(object);
        if let Some(before) = self.index.remove(&name) {
            self.pod_changed(&name, Some(&before));
        }
    }

    /// Tells everybody whom a pod concerns; the index knows it as it is now.
    fn pod_changed(&mut self, name: &Name, before: Option<&Pod>) {
        self.kubelet_sees(name, before);
        self.scheduler_sees(name, before);
    }
}

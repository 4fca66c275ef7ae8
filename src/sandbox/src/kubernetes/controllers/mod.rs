//! Kubelets, the scheduler and the controllers of kube-controller-manager.
//!
//! They run as one task. It follows the history of the objects and the machines' power log, keeps an index, and has one
//! agenda of deadlines. It sleeps while nothing changes and nothing is due. Each file is one controller: its reaction
//! to changes, and its work when a deadline is due.

pub(crate) mod daemons;
pub(crate) mod deployments;
mod disruption;
mod garbage;
mod index;
mod jobs;
pub(crate) mod kubelet;
pub(crate) mod nodes;
pub(crate) mod object_fields;
mod owners;
mod scheduler;
pub(crate) mod stateful;
#[cfg(test)]
mod tests;
mod watch;
mod work_queue;

use std::{collections::BTreeSet, time::Duration};

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

pub use self::object_fields::{MIRROR, NEVER_READY, RUNS, STOPS, STUCK};
use self::{
    index::{Index, Name},
    work_queue::WorkQueue,
};
use super::{ObjectError, Objects, Resource, objects::Key, resource::PODS};
use crate::{
    durations::{Durations, duration_from_secs},
    machines::Machines,
};

/// Maximum number of work items in one go, before other tasks get their turn.
const BATCH: usize = 256;

/// The running controllers. They stop when this is dropped.
pub struct Controllers {
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Controllers {
    /// Starts the controllers over these objects and machines. `seed` determines every random choice.
    pub fn start(objects: Objects, machines: Machines, durations: Durations, seed: u64) -> Self {
        Self { task: tokio::spawn(Manager::new(objects, machines, durations, seed).run()) }
    }
}

/// A work item with a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// First report of the kubelet after a boot, by the machine's address.
    Kubelet(String),
    /// Report of a Ready kubelet, by the machine's address.
    NodeReady(String),
    /// A Node whose kubelet was silent for too long.
    NodeSilent(String),
    /// Next step of a pod on its machine.
    Pod(Name),
    /// Scheduling of the pods that wait for a node.
    Schedule,
    /// Reconciliation of the owner with this UID, including its status.
    Owner(String),
    /// Reconciliation of one DaemonSet (UID) on one node.
    Daemon(String, String),
    /// Update of a budget's status.
    Budget(Key),
    /// Deletion of the dependants of a deleted owner (UID).
    Dependants(String),
    /// Removal of the garbage collector's finalizers from an object that owns nothing.
    Release(&'static Resource, Name),
    /// Deletion of the pods of a deleted Node.
    Orphans(String),
    /// Emptying of a namespace.
    Namespace(String),
}

struct Manager {
    objects: Objects,
    machines: Machines,
    durations: Durations,
    index: Index,
    work_queue: WorkQueue<Work>,
    /// Last revision that the index contains.
    seen: u64,
    /// Number of power log entries that were read.
    power_seen: usize,
    kubelets: kubelet::Kubelets,
    /// Work that kubelets would have done since they were frozen.
    frozen_work: BTreeSet<Work>,
    scheduler: scheduler::Scheduler,
    jobs: jobs::Jobs,
}

impl Manager {
    fn new(objects: Objects, machines: Machines, durations: Durations, seed: u64) -> Self {
        let mut seeds = Rng::with_seed(seed);
        Self {
            objects,
            machines,
            durations,
            index: Index::default(),
            work_queue: WorkQueue::new(),
            seen: 0,
            power_seen: 0,
            kubelets: kubelet::Kubelets::new(&mut seeds),
            frozen_work: BTreeSet::new(),
            scheduler: scheduler::Scheduler::default(),
            jobs: jobs::Jobs::default(),
        }
    }

    async fn run(mut self) {
        let mut changes = self.objects.subscribe();
        let mut power = self.machines.subscribe();
        self.begin();
        loop {
            changes.borrow_and_update();
            power.borrow_and_update();
            let mut done = 0;
            loop {
                self.catch_up();
                if !self.frozen_work.is_empty() && !self.machines.kubelets_frozen() {
                    for work in std::mem::take(&mut self.frozen_work) {
                        self.work_queue.add_at(work, Instant::now());
                    }
                }
                let Some(work) = self.work_queue.pop(Instant::now()) else { break };
                let is_kubelet_work = matches!(work, Work::Kubelet(_) | Work::NodeReady(_) | Work::Pod(_));
                if is_kubelet_work && self.machines.kubelets_frozen() {
                    self.frozen_work.insert(work);
                } else {
                    self.process(work);
                }
                done += 1;
                if done % BATCH == 0 {
                    tokio::task::yield_now().await;
                }
            }
            let due = self.work_queue.next();
            let wait = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // `self` holds both senders, so `changed` cannot fail.
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                _ = power.changed() => {}
                () = wait => {}
            }
        }
    }

    fn process(&mut self, work: Work) {
        match work {
            Work::Kubelet(address) => self.kubelet_reports(&address),
            Work::NodeReady(address) => self.node_ready(&address),
            Work::NodeSilent(node) => self.node_silent(&node),
            Work::Pod(name) => self.pod_step(&name),
            Work::Schedule => self.schedule(),
            Work::Owner(uid) => self.owner(&uid),
            Work::Daemon(uid, node) => self.daemon(&uid, &node),
            Work::Budget(key) => self.budget(&key),
            Work::Dependants(uid) => self.dependants(&uid),
            Work::Release(resource, name) => self.remove_gc_finalizers(resource, &name),
            Work::Orphans(node) => self.orphans(&node),
            Work::Namespace(name) => self.namespace(&name),
        }
    }

    /// Schedules the work after the controllers' lag.
    fn enqueue(&mut self, work: Work) {
        self.enqueue_after(duration_from_secs(self.durations.lag), work);
    }

    fn enqueue_after(&mut self, lag: Duration, work: Work) {
        self.work_queue.add_at(work, Instant::now() + lag);
    }

    /// Updates a pod, if it still has this UID.
    fn write_pod(&self, name: &Name, uid: &str, change: impl FnOnce(&mut Value)) {
        let written = self.objects.update(&PODS, &name.0, &name.1, |pod| {
            check_uid(pod, uid)?;
            change(pod);
            Ok(())
        });
        expected(written);
    }

    /// Removes a pod, if it still has this UID.
    fn remove_pod(&self, name: &Name, uid: &str) {
        expected(self.objects.remove(&PODS, &name.0, &name.1, |pod| check_uid(pod, uid)));
    }

    /// Deletes a pod gracefully. An unbound pod without finalizers is removed at once.
    fn delete_pod(&self, name: &Name) {
        let Some(pod) = self.index.pods.get(name).filter(|pod| pod.terminating.is_none()) else { return };
        if pod.node.is_empty() && !object_fields::finalizers(&pod.object) {
            return self.remove_pod(name, &pod.uid);
        }
        let now = self.objects.clock().wall();
        self.write_pod(name, &pod.uid, |pod| {
            if object_fields::is_being_deleted(pod) {
                return;
            }
            let grace = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
            let at = now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
            pod["metadata"]["deletionTimestamp"] = json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        });
    }
}

/// Reports whether both are the same kind.
fn is_same_kind(a: &'static Resource, b: &'static Resource) -> bool {
    std::ptr::eq(a, b)
}

/// Refuses another object of the same name.
fn check_uid(object: &Value, uid: &str) -> Result<(), ObjectError> {
    if object["metadata"]["uid"] == uid {
        Ok(())
    } else {
        Err(ObjectError::new(409, "Conflict", "another of this name"))
    }
}

/// Refuses a removal that is not possible yet.
fn not_empty_error() -> ObjectError {
    ObjectError::new(409, "Conflict", "it is not empty yet")
}

/// Ignores a failed write. The object may have been deleted or replaced meanwhile, and the controller will see that
/// change.
fn expected<T>(result: Result<T, ObjectError>) {
    if let Err(object_error) = result {
        tracing::debug!(code = object_error.code, "a controller's write: {}", object_error.message);
    }
}

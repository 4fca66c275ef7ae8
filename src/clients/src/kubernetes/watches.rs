//! The watches that keep the live copy: which of them run, and their tasks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_model::{kube::KubeView, names::NodeName};
use cketerm_runtime::tasks::OwnedTask;
use tokio::sync::watch;

use super::{
    connect::Kube,
    custom_resource::CustomResource,
    follow::Follow,
    heartbeat,
    hosts::HOSTS,
    live::{Shared, Streaming, lock},
    maintenance_requests::MAINTENANCE_REQUESTS,
    sources::{Budgets, ControlPlanePods, DaemonSets, Hosts, Kind, MaintenanceRequests, Namespaces, Nodes, PodsOn},
};

/// Live copy of Kubernetes. It watches the API server until it is dropped.
pub struct Live {
    shared: Arc<Shared>,
    tasks: Vec<OwnedTask>,
    pods: Mutex<BTreeMap<NodeName, (u64, OwnedTask)>>,
    endpoints: Mutex<Option<(u64, OwnedTask)>>,
    control_plane_pods: Mutex<Option<(u64, OwnedTask)>>,
    hosts: Mutex<Option<(u64, OwnedTask)>>,
    maintenance_requests: Mutex<Option<(u64, OwnedTask)>>,
}

impl Live {
    /// Starts the watches. Must be called inside a tokio runtime. It never fails: errors are shown in the view's
    /// sources, and the watches retry.
    pub fn follow(kube: &Kube, streaming: Streaming) -> Self {
        let shared = Arc::new(Shared::new(kube, streaming));
        let tasks = vec![
            watch_kind(&shared, Nodes).1,
            watch_kind(&shared, Namespaces).1,
            watch_kind(&shared, Budgets).1,
            watch_kind(&shared, DaemonSets).1,
            OwnedTask::spawn(heartbeat::beat(Arc::clone(&shared))),
            OwnedTask::spawn(heartbeat::poll_identity(Arc::clone(&shared))),
            OwnedTask::spawn(publish(Arc::clone(&shared))),
        ];
        shared.publish();
        Self {
            shared,
            tasks,
            pods: Mutex::default(),
            endpoints: Mutex::default(),
            control_plane_pods: Mutex::default(),
            hosts: Mutex::default(),
            maintenance_requests: Mutex::default(),
        }
    }

    /// Returns the view as it is now, including changes that were not published yet.
    pub fn borrow(&self) -> Arc<KubeView> {
        self.shared.view()
    }

    /// Waits until the view satisfies `what`, for at most `within`.
    pub async fn wait_for_view(&self, within: Duration, what: impl FnMut(&Arc<KubeView>) -> bool) {
        let _awaited = self.shared.throttle.awaited();
        let mut views = self.subscribe();
        let _ = tokio::time::timeout(within, views.wait_for(what)).await;
    }

    /// Makes every watch prove its own connection for the next 15 s, so that no copy becomes 10 s old while the server
    /// answers. Call it again for as long as work is next or under way. Without calls it costs nothing.
    pub fn require_fresh_proof(&self) {
        self.shared.require_fresh_proof();
    }

    /// Subscribes to the view.
    pub fn subscribe(&self) -> watch::Receiver<Arc<KubeView>> {
        self.shared.subscribe()
    }

    /// Watches the pods of exactly these Nodes from now on. When it returns, the view has an entry for each of them. A
    /// newly added Node is not synced until a list that began after this call is complete.
    pub fn watch_pods(&self, nodes: BTreeSet<NodeName>) {
        let mut watched = lock(&self.pods);
        if watched.len() == nodes.len() && watched.keys().all(|n| nodes.contains(n)) {
            return;
        }
        watched.retain(|node, (link, _)| {
            let keep = nodes.contains(node);
            if !keep {
                self.shared.unlink(*link, |view| {
                    view.pods.remove(node);
                });
            }
            keep
        });
        for node in nodes {
            watched.entry(node).or_insert_with_key(|node| {
                self.shared.add_unlisted(node);
                watch_kind(&self.shared, PodsOn(Arc::new(node.clone())))
            });
        }
        self.shared.publish();
    }

    /// Starts or stops watching BareMetalHosts. If the cluster has none, or the account may not list them, the source's
    /// error says so, and cketerm checks again once a minute.
    pub fn watch_hosts(&self, on: bool) {
        let mut watched = lock(&self.hosts);
        match (on, watched.take()) {
            (true, Some(running)) => *watched = Some(running),
            (true, None) => {
                *watched = Some(watch_custom(&self.shared, Hosts, HOSTS));
                self.shared.publish();
            }
            (false, Some((link, _))) => {
                self.shared.unlink(link, |view| view.hosts.clear());
                self.shared.publish();
            }
            (false, None) => {}
        }
    }

    /// Starts or stops watching `MaintenanceRequest`s, as [`Self::watch_hosts`] does.
    pub fn watch_maintenance_requests(&self, on: bool) {
        let mut watched = lock(&self.maintenance_requests);
        match (on, watched.take()) {
            (true, Some(running)) => *watched = Some(running),
            (true, None) => {
                *watched = Some(watch_custom(&self.shared, MaintenanceRequests, MAINTENANCE_REQUESTS));
                self.shared.publish();
            }
            (false, Some((link, _))) => {
                self.shared.unlink(link, |view| view.maintenance_requests.clear());
                self.shared.publish();
            }
            (false, None) => {}
        }
    }

    /// Starts or stops watching the static Pods of control planes.
    pub fn watch_control_plane_pods(&self, on: bool) {
        let mut watched = lock(&self.control_plane_pods);
        match (on, watched.take()) {
            (true, Some(running)) => *watched = Some(running),
            (true, None) => {
                *watched = Some(watch_kind(&self.shared, ControlPlanePods));
                self.shared.publish();
            }
            (false, Some((link, _))) => {
                self.shared.unlink(link, |view| view.control_plane_pods.clear());
                self.shared.publish();
            }
            (false, None) => {}
        }
    }

    /// Starts or stops reading the endpoints of the API server's services.
    pub fn watch_endpoints(&self, on: bool) {
        let mut watched = lock(&self.endpoints);
        match (on, watched.take()) {
            (true, Some(running)) => *watched = Some(running),
            (true, None) => {
                let link = self.shared.link("endpoints");
                let task = OwnedTask::spawn(heartbeat::poll_endpoints(Arc::clone(&self.shared), link));
                *watched = Some((link, task));
                self.shared.publish();
            }
            (false, Some((link, _))) => {
                self.shared.unlink(link, |view| view.endpoints.clear());
                self.shared.publish();
            }
            (false, None) => {}
        }
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

/// Publishes changes until the task is aborted.
async fn publish(shared: Arc<Shared>) {
    shared.publish_changes().await;
}

/// Starts the watch of a custom resource, which the cluster may not have.
fn watch_custom<K: Kind>(shared: &Arc<Shared>, kind: K, custom: CustomResource) -> (u64, OwnedTask) {
    let link = shared.link(K::SOURCE);
    let watch = heartbeat::run_custom_watch(Arc::clone(shared), link, kind, custom);
    (link, OwnedTask::spawn(watch))
}

/// Starts the watch of a kind. Returns its link and its task.
fn watch_kind<K: Kind>(shared: &Arc<Shared>, kind: K) -> (u64, OwnedTask) {
    let link = shared.link(K::SOURCE);
    (link, OwnedTask::spawn(Follow::new(Arc::clone(shared), link, kind).run()))
}

//! Live copy of Kubernetes: one view that the watches maintain. It is published at most fifty times a second, and once
//! a second while only signs of life or changes that no decision waits for arrive.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cketerm_model::{
    fault,
    kube::{KubeView, NodePods},
};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    connect::{Kube, KubeError},
    follow::{Follow, PROOF_TIMEOUT},
    heartbeat,
    links::{Link, State},
    publish_throttle::{PublishThrottle, Urgency},
    sources::{Budgets, DaemonSets, Hosts, Kind, Namespaces, Nodes, PodsOn},
};

/// Whether lists may be requested as streams (`sendInitialEvents`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// Streams where the server supports them. A refusal is remembered.
    Auto,
    /// Pages and a watch, never streams.
    Off,
}

/// Live copy of Kubernetes. It watches the API server until it is dropped.
pub struct Live {
    shared: Arc<Shared>,
    tasks: Vec<Task>,
    pods: Mutex<BTreeMap<String, (u64, Task)>>,
    endpoints: Mutex<Option<(u64, Task)>>,
    hosts: Mutex<Option<(u64, Task)>>,
}

/// A task that is aborted when its owner is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// State that the watches share.
pub(super) struct Shared {
    pub(super) kube: Kube,
    state: Mutex<State>,
    throttle: PublishThrottle,
    published: watch::Sender<Arc<KubeView>>,
    streaming: AtomicBool,
    /// Counter that is incremented when the server answers again after an outage.
    pub(super) epoch: watch::Sender<u64>,
    /// Boot time in seconds. A watch whose last request was sent before it must be reopened.
    pub(super) renew: watch::Sender<f64>,
    /// Boot time in milliseconds until which every watch proves its own connection.
    proving_until: AtomicU64,
}

/// Time for which every watch goes on proving its connection after the last [`Live::require_fresh_proof`].
const PROOF_LINGER: Duration = Duration::from_secs(15);

impl Live {
    /// Starts the watches. Must be called inside a tokio runtime. It never fails: errors are shown in the view's
    /// sources, and the watches retry.
    pub fn follow(kube: &Kube, streaming: Streaming) -> Self {
        let shared = Arc::new(Shared {
            kube: kube.clone(),
            state: Mutex::default(),
            throttle: PublishThrottle::default(),
            published: watch::Sender::new(Arc::default()),
            streaming: AtomicBool::new(streaming == Streaming::Auto),
            epoch: watch::Sender::new(0),
            renew: watch::Sender::new(0.0),
            proving_until: AtomicU64::new(0),
        });
        let tasks = vec![
            shared.watch(Nodes).1,
            shared.watch(Namespaces).1,
            shared.watch(Budgets).1,
            shared.watch(DaemonSets).1,
            Task(cketerm_runtime::tasks::spawn(heartbeat::beat(Arc::clone(&shared)))),
            Task(cketerm_runtime::tasks::spawn(heartbeat::poll_identity(Arc::clone(&shared)))),
            Task(cketerm_runtime::tasks::spawn(publish(Arc::clone(&shared)))),
        ];
        shared.publish();
        Self { shared, tasks, pods: Mutex::default(), endpoints: Mutex::default(), hosts: Mutex::default() }
    }

    /// Returns the view as it is now, including changes that were not published yet.
    pub fn borrow(&self) -> Arc<KubeView> {
        self.shared.publish_silently();
        Arc::clone(&self.shared.published.borrow())
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
        let now = self.shared.kube.clock.boot();
        let until = millis(now + PROOF_LINGER);
        if self.shared.proving_until.fetch_max(until, Ordering::SeqCst) < millis(now) {
            // the connections may have been dead for a long time
            self.shared.renew.send_replace(now.as_secs_f64());
        }
    }

    /// Subscribes to the view.
    pub fn subscribe(&self) -> watch::Receiver<Arc<KubeView>> {
        self.shared.published.subscribe()
    }

    /// Watches the pods of exactly these Nodes from now on. When it returns, the view has an entry for each of them. A
    /// newly added Node is not synced until a list that began after this call is complete.
    pub fn watch_pods(&self, nodes: BTreeSet<String>) {
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
                lock(&self.shared.state).view.pods.insert(node.clone(), NodePods::default());
                self.shared.watch(PodsOn(node.as_str().into()))
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
                let link = self.shared.link(Hosts::SOURCE);
                let task = cketerm_runtime::tasks::spawn(heartbeat::run_hosts_watch(Arc::clone(&self.shared), link));
                *watched = Some((link, Task(task)));
                self.shared.publish();
            }
            (false, Some((link, _))) => {
                self.shared.unlink(link, |view| view.hosts.clear());
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
                let task = cketerm_runtime::tasks::spawn(heartbeat::poll_endpoints(Arc::clone(&self.shared), link));
                *watched = Some((link, Task(task)));
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

fn millis(boot: Duration) -> u64 {
    u64::try_from(boot.as_millis()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Publishes changes, and coalesces those that arrive shortly after one another.
async fn publish(shared: Arc<Shared>) {
    shared.throttle.publish_loop(|| shared.publish_and_notify()).await;
}

impl Shared {
    fn watch<K: Kind>(self: &Arc<Self>, kind: K) -> (u64, Task) {
        let link = self.link(K::SOURCE);
        (link, Task(cketerm_runtime::tasks::spawn(Follow::new(Arc::clone(self), link, kind).run())))
    }

    /// Returns the boot time in seconds.
    pub(super) fn now(&self) -> f64 {
        self.kube.clock.boot().as_secs_f64()
    }

    /// Reports whether every watch must prove its own connection now.
    pub(super) fn is_proving(&self) -> bool {
        self.proving_until.load(Ordering::SeqCst) >= millis(self.kube.clock.boot())
    }

    /// Records that this watch sends a request now. Returns that boot time.
    pub(super) fn mark_sent(&self, id: u64) -> f64 {
        let now = self.now();
        if let Some(link) = lock(&self.state).links.get_mut(&id) {
            link.sent = now;
        }
        now
    }

    /// Reports whether this watch sent its last request before `moment`.
    pub(super) fn sent_before(&self, id: u64, moment: f64) -> bool {
        lock(&self.state).links.get(&id).is_some_and(|link| link.sent < moment)
    }

    /// Returns the boot time at which this watch last proved that its connection lives.
    pub(super) fn proved_at(&self, id: u64) -> f64 {
        lock(&self.state).links.get(&id).map_or(0.0, |link| link.state.fresh_as_of)
    }

    /// Reports whether lists may still be requested as streams.
    pub(super) fn streaming_enabled(&self) -> bool {
        self.streaming.load(Ordering::Relaxed)
    }

    /// Records that the server cannot stream lists.
    pub(super) fn disable_streaming(&self) {
        self.streaming.store(false, Ordering::Relaxed);
    }

    /// Publishes the view and wakes its subscribers.
    fn publish(&self) {
        // under the lock, so that no older view is published after a newer one
        let mut state = lock(&self.state);
        state.fresh = false;
        self.published.send_replace(Arc::new(state.view.clone()));
    }

    /// Wakes the subscribers. If `borrow` has published this view already, they get the same `Arc` again and can tell
    /// by the pointer.
    fn publish_and_notify(&self) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.fresh) {
            self.published.send_replace(Arc::new(state.view.clone()));
        } else {
            self.published.send_modify(|_| {});
        }
    }

    /// Updates the published view for a reader that looks now. Subscribers are not woken; the throttle wakes them
    /// later.
    fn publish_silently(&self) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.fresh) {
            self.published.send_if_modified(|published| {
                *published = Arc::new(state.view.clone());
                false
            });
        }
    }

    fn link(&self, source: &'static str) -> u64 {
        let mut state = lock(&self.state);
        state.last_link += 1;
        let id = state.last_link;
        state.links.insert(id, Link { source, ..Link::default() });
        state.summarize(source);
        id
    }

    /// Removes a link. Later results of its watch are dropped.
    fn unlink(&self, id: u64, clear: impl FnOnce(&mut KubeView)) {
        let mut state = lock(&self.state);
        if let Some(link) = state.links.remove(&id) {
            clear(&mut state.view);
            state.summarize(link.source);
        }
    }

    /// Records a sign of life and the change that came with it. `complete`: it was a whole list. `fresh_as_of`: the
    /// copy is what the server had at that boot time, or newer.
    pub(super) fn record_answer(
        &self,
        id: u64,
        complete: bool,
        fresh_as_of: Option<f64>,
        change: impl FnOnce(&mut KubeView) -> Urgency,
    ) {
        let now = self.now();
        self.update(id, |view, link| {
            let urgency = change(view);
            link.open = true;
            link.retry = None;
            link.state.synced |= complete;
            link.state.last_seen = now;
            (link.state.error, link.state.forbidden) = (None, false);
            let Some(fresh_as_of) = fresh_as_of else { return urgency };
            let before = link.state.fresh_as_of;
            link.state.fresh_as_of = before.max(fresh_as_of);
            // work that waits for a fresh copy can go on
            if now - before > PROOF_TIMEOUT.as_secs_f64() { Urgency::Immediate } else { urgency }
        });
    }

    /// Records that the server has no such kind, by a definite answer. It counts as a whole list for as long as the
    /// server answers.
    pub(super) fn mark_absent(&self, id: u64, why: &str, clear: impl FnOnce(&mut KubeView)) {
        self.record_answer(id, true, Some(self.now()), |view| {
            clear(view);
            Urgency::Immediate
        });
        self.update(id, |_, link| {
            link.state.error = Some(why.to_owned());
            Urgency::Immediate
        });
    }

    /// Records that the connection was closed as planned.
    pub(super) fn closed(&self, id: u64) {
        self.update(id, |_, link| {
            link.open = false;
            Urgency::Immediate
        });
    }

    /// Records that the connection failed. `of` names what was read.
    pub(super) fn failed(&self, id: u64, of: &str, error: &KubeError) {
        self.update(id, |_, link| {
            link.open = false;
            link.state.error = Some(format!("{of}: {error}"));
            link.state.forbidden = matches!(error, KubeError::Forbidden { .. });
            Urgency::Immediate
        });
    }

    /// Records that the connection is retried after this delay.
    pub(super) fn schedule_retry(&self, id: u64, after: Duration) {
        let at = self.now() + after.as_secs_f64();
        self.update(id, |_, link| {
            link.retry = Some(at);
            Urgency::Immediate
        });
    }

    fn update(&self, id: u64, change: impl FnOnce(&mut KubeView, &mut Link) -> Urgency) {
        let mut state = lock(&self.state);
        let State { view, links, .. } = &mut *state;
        let Some(link) = links.get_mut(&id) else { return };
        let source = link.source;
        let before = link.summary();
        let urgency = change(view, link);
        let same = before == link.summary();
        state.summarize(source);
        state.fresh = true;
        drop(state);
        self.throttle.signal(if same { urgency } else { Urgency::Immediate });
    }

    /// Records that the server answered a cheap request. Every open connection then counts as heard in the views. The
    /// answer proves no watch (SAF-22).
    pub(super) fn heartbeat_answered(&self, took: Duration, change: impl FnOnce(&mut KubeView)) {
        let now = self.now();
        let mut state = lock(&self.state);
        let was = (state.beat, state.view.link.lag);
        (state.beat, state.view.link.lag) = (None, took.as_secs());
        let urgency = Urgency::immediate_if(was != (state.beat, state.view.link.lag));
        for link in state.links.values_mut().filter(|l| l.open) {
            link.state.last_seen = now;
            fault!(WatchTrusted => link.state.fresh_as_of = now);
        }
        state.summarize_all();
        change(&mut state.view);
        state.fresh = true;
        drop(state);
        self.throttle.signal(urgency);
    }

    /// Records that the server did not answer the cheap request. Every connection counts as closed.
    pub(super) fn heartbeat_failed(&self, why: &str, again: Duration) {
        let at = self.now() + again.as_secs_f64();
        let mut state = lock(&self.state);
        state.beat = Some(at);
        for link in state.links.values_mut() {
            link.open = false;
            link.state.error.get_or_insert_with(|| why.to_owned());
        }
        state.summarize_all();
        state.fresh = true;
        drop(state);
        self.throttle.signal(Urgency::Immediate);
    }

    /// Changes a part of the view that belongs to no watch.
    pub(super) fn update_view(&self, change: impl FnOnce(&mut KubeView)) {
        let mut state = lock(&self.state);
        change(&mut state.view);
        state.fresh = true;
        drop(state);
        self.throttle.signal(Urgency::Immediate);
    }
}

//! The live copy: one view that the watches keep, published at most fifty times a second; once a second while there is
//! nothing but signs of life and what no decision waits for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle};

use super::{
    connect::Kube,
    follow::{Follow, PROVED_WITHIN},
    heartbeat,
    links::{Link, State},
    publish_throttle::{PublishThrottle, Urgency},
    sources::{Budgets, DaemonSets, Hosts, Kind, Namespaces, Nodes, PodsOn},
};
use crate::{
    model::kube::{KubeView, NodePods},
    mutation::{Mutation, on},
};

/// Whether lists may come as streams (`sendInitialEvents`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// Where the server can; a refusal is remembered.
    Auto,
    /// Never: pages and a watch.
    Off,
}

/// Watches Kubernetes until it is dropped.
pub struct Live {
    shared: Arc<Shared>,
    tasks: Vec<Task>,
    pods: Mutex<BTreeMap<String, (u64, Task)>>,
    endpoints: Mutex<Option<(u64, Task)>>,
    hosts: Mutex<Option<(u64, Task)>>,
}

/// A task that ends with its owner.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the watches share.
pub(super) struct Shared {
    pub(super) kube: Kube,
    state: Mutex<State>,
    bell: PublishThrottle,
    published: watch::Sender<Arc<KubeView>>,
    streaming: AtomicBool,
    /// Counted up when the server was away and is back.
    pub(super) epoch: watch::Sender<u64>,
    /// Watches that were opened before this boot time are to be opened anew.
    pub(super) renew: watch::Sender<f64>,
    /// Boot time in milliseconds until which every watch proves its own connection.
    proving_until: AtomicU64,
}

/// For so long after it was asked for last every watch goes on to prove its connection.
const LINGER: Duration = Duration::from_secs(15);

impl Live {
    /// Starts to watch. Call it inside a tokio runtime. It never fails: what goes wrong stands in the view's sources,
    /// and is tried again.
    pub fn follow(kube: &Kube, streaming: Streaming) -> Self {
        let shared = Arc::new(Shared {
            kube: kube.clone(),
            state: Mutex::default(),
            bell: PublishThrottle::default(),
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
            Task(crate::tasks::spawn(heartbeat::beat(Arc::clone(&shared)))),
            Task(crate::tasks::spawn(heartbeat::keep_identity(Arc::clone(&shared)))),
            Task(crate::tasks::spawn(publish(Arc::clone(&shared)))),
        ];
        shared.publish();
        Self { shared, tasks, pods: Mutex::default(), endpoints: Mutex::default(), hosts: Mutex::default() }
    }

    /// The view as it is now, with what has come since it was published last.
    pub fn borrow(&self) -> Arc<KubeView> {
        self.shared.bring_up_to_date();
        Arc::clone(&self.shared.published.borrow())
    }

    /// Waits until the view shows something that is expected of it, for so long at most.
    pub async fn shows(&self, within: Duration, what: impl FnMut(&Arc<KubeView>) -> bool) {
        let _awaited = self.shared.bell.awaited();
        let mut views = self.subscribe();
        let _ = tokio::time::timeout(within, views.wait_for(what)).await;
    }

    /// While work is next or under way: every watch proves that its own connection lives, often enough for its copy never to
    /// be 10 s old while the server answers. Wanted for 15 s: call it again for as long as it is. Costs nothing where it is
    /// not called.
    pub fn keep_proving(&self) {
        let now = self.shared.kube.clock.boot();
        let until = millis(now + LINGER);
        if self.shared.proving_until.fetch_max(until, Ordering::SeqCst) < millis(now) {
            // they may have been dead for a long time
            self.shared.renew.send_replace(now.as_secs_f64());
        }
    }

    /// Follows the view.
    pub fn subscribe(&self) -> watch::Receiver<Arc<KubeView>> {
        self.shared.published.subscribe()
    }

    /// From now on exactly these Nodes' pods are watched. When it returns the view has an entry for each of them; a
    /// newly added one is not synced until a list that began after this call is complete.
    pub fn watch_pods(&self, nodes: BTreeSet<String>) {
        let mut watched = lock(&self.pods);
        if watched.len() == nodes.len() && watched.keys().all(|n| nodes.contains(n)) {
            return;
        }
        watched.retain(|node, (link, _)| {
            let stays = nodes.contains(node);
            if !stays {
                self.shared.unlink(*link, |view| {
                    view.pods.remove(node);
                });
            }
            stays
        });
        for node in nodes {
            watched.entry(node).or_insert_with_key(|node| {
                lock(&self.shared.state).view.pods.insert(node.clone(), NodePods::default());
                self.shared.watch(PodsOn(node.as_str().into()))
            });
        }
        self.shared.publish();
    }

    /// Whether BareMetalHosts are kept in the view. Where the cluster has none, or we may not see them, that stands in
    /// the source's error and is asked again once a minute.
    pub fn watch_hosts(&self, on: bool) {
        let mut watched = lock(&self.hosts);
        match (on, watched.take()) {
            (true, Some(running)) => *watched = Some(running),
            (true, None) => {
                let link = self.shared.link(Hosts::SOURCE);
                let task = crate::tasks::spawn(heartbeat::keep_hosts(Arc::clone(&self.shared), link));
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

    /// Whether the endpoints of the API server's services are kept in the view.
    pub fn watch_endpoints(&self, on: bool) {
        let mut watched = lock(&self.endpoints);
        match (on, watched.take()) {
            (true, Some(running)) => *watched = Some(running),
            (true, None) => {
                let link = self.shared.link("endpoints");
                let task = crate::tasks::spawn(heartbeat::keep_endpoints(Arc::clone(&self.shared), link));
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

/// Publishes what changed, and gathers what comes in the meantime.
async fn publish(shared: Arc<Shared>) {
    shared.bell.heed(|| shared.tell()).await;
}

impl Shared {
    fn watch<K: Kind>(self: &Arc<Self>, kind: K) -> (u64, Task) {
        let link = self.link(K::SOURCE);
        (link, Task(crate::tasks::spawn(Follow::new(Arc::clone(self), link, kind).run())))
    }

    /// Boot-time seconds.
    pub(super) fn now(&self) -> f64 {
        self.kube.clock.boot().as_secs_f64()
    }

    /// Whether every watch is to prove its own connection now.
    pub(super) fn proving(&self) -> bool {
        self.proving_until.load(Ordering::SeqCst) >= millis(self.kube.clock.boot())
    }

    /// A request of this watch is sent now; returns that moment.
    pub(super) fn sends(&self, id: u64) -> f64 {
        let now = self.now();
        if let Some(link) = lock(&self.state).links.get_mut(&id) {
            link.sent = now;
        }
        now
    }

    /// Whether the last request of this watch was sent before that moment.
    pub(super) fn sent_before(&self, id: u64, moment: f64) -> bool {
        lock(&self.state).links.get(&id).is_some_and(|link| link.sent < moment)
    }

    /// When this watch last proved that its connection lives.
    pub(super) fn proved_at(&self, id: u64) -> f64 {
        lock(&self.state).links.get(&id).map_or(0.0, |link| link.state.proved)
    }

    /// Whether lists may still be asked for as streams.
    pub(super) fn streams(&self) -> bool {
        self.streaming.load(Ordering::Relaxed)
    }

    /// The server cannot stream lists.
    pub(super) fn no_streams(&self) {
        self.streaming.store(false, Ordering::Relaxed);
    }

    /// Publishes the view and wakes those who follow it.
    fn publish(&self) {
        // under the lock, so that no older view comes after a newer one
        let mut state = lock(&self.state);
        state.fresh = false;
        self.published.send_replace(Arc::new(state.view.clone()));
    }

    /// Wakes those who follow the view. Where one of them has looked meanwhile it is the same that he has: he can tell.
    fn tell(&self) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.fresh) {
            self.published.send_replace(Arc::new(state.view.clone()));
        } else {
            self.published.send_modify(|_| {});
        }
    }

    /// Publishes what has come since, for whoever looks now. Those who follow the view are woken for it in its time.
    fn bring_up_to_date(&self) {
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
        state.sum_up(source);
        id
    }

    /// Ends a link: nothing that its watch still brings gets in.
    fn unlink(&self, id: u64, clear: impl FnOnce(&mut KubeView)) {
        let mut state = lock(&self.state);
        if let Some(link) = state.links.remove(&id) {
            clear(&mut state.view);
            state.sum_up(link.source);
        }
    }

    /// A sign of life with what it brought. `complete` = a whole list; `proved` = the copy is what the server had at that
    /// moment, or a newer one.
    pub(super) fn heard(
        &self,
        id: u64,
        complete: bool,
        proved: Option<f64>,
        change: impl FnOnce(&mut KubeView) -> Urgency,
    ) {
        let now = self.now();
        self.update(id, |view, link| {
            let news = change(view);
            link.open = true;
            link.retry = None;
            link.state.synced |= complete;
            link.state.heard = now;
            link.state.error = None;
            let Some(proved) = proved else { return news };
            let before = link.state.proved;
            link.state.proved = before.max(proved);
            // work that waits for it goes on
            if now - before > PROVED_WITHIN.as_secs_f64() { Urgency::Loud } else { news }
        });
    }

    /// There is nothing to watch, and that was said definitely: as good as a whole list, for as long as the server answers.
    pub(super) fn absent(&self, id: u64, why: &str, clear: impl FnOnce(&mut KubeView)) {
        self.heard(id, true, Some(self.now()), |view| {
            clear(view);
            Urgency::Loud
        });
        self.update(id, |_, link| {
            link.state.error = Some(why.to_owned());
            Urgency::Loud
        });
    }

    /// The connection is closed: by plan, or for a reason.
    pub(super) fn closed(&self, id: u64, error: Option<String>) {
        self.update(id, |_, link| {
            link.open = false;
            if error.is_some() {
                link.state.error = error;
            }
            Urgency::Loud
        });
    }

    /// The connection is tried again after so long.
    pub(super) fn tries_again(&self, id: u64, after: Duration) {
        let at = self.now() + after.as_secs_f64();
        self.update(id, |_, link| {
            link.retry = Some(at);
            Urgency::Loud
        });
    }

    fn update(&self, id: u64, change: impl FnOnce(&mut KubeView, &mut Link) -> Urgency) {
        let mut state = lock(&self.state);
        let State { view, links, .. } = &mut *state;
        let Some(link) = links.get_mut(&id) else { return };
        let source = link.source;
        let before = link.standing();
        let news = change(view, link);
        let same = before == link.standing();
        state.sum_up(source);
        state.fresh = true;
        drop(state);
        self.bell.ring(if same { news } else { Urgency::Loud });
    }

    /// The server answered a cheap request: for people every open connection is as good as heard. It proves no watch.
    pub(super) fn alive(&self, took: Duration, change: impl FnOnce(&mut KubeView)) {
        let now = self.now();
        let mut state = lock(&self.state);
        let was = (state.beat, state.view.line.lag);
        (state.beat, state.view.line.lag) = (None, took.as_secs());
        let news = Urgency::loud_if(was != (state.beat, state.view.line.lag));
        for link in state.links.values_mut().filter(|l| l.open) {
            link.state.heard = now;
            if on(Mutation::WatchTrusted) {
                link.state.proved = now;
            }
        }
        state.sum_up_all();
        change(&mut state.view);
        state.fresh = true;
        drop(state);
        self.bell.ring(news);
    }

    /// The server did not answer it: no connection can be trusted.
    pub(super) fn silent(&self, why: &str, again: Duration) {
        let at = self.now() + again.as_secs_f64();
        let mut state = lock(&self.state);
        state.beat = Some(at);
        for link in state.links.values_mut() {
            link.open = false;
            link.state.error.get_or_insert_with(|| why.to_owned());
        }
        state.sum_up_all();
        state.fresh = true;
        drop(state);
        self.bell.ring(Urgency::Loud);
    }

    /// Changes what belongs to no watch.
    pub(super) fn note(&self, change: impl FnOnce(&mut KubeView)) {
        let mut state = lock(&self.state);
        change(&mut state.view);
        state.fresh = true;
        drop(state);
        self.bell.ring(Urgency::Loud);
    }
}

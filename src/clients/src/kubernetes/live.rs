//! Live copy of Kubernetes: one view that the watches maintain. It is published at most fifty times a second, and once
//! a second while only signs of life or changes that no decision waits for arrive.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cketerm_model::{
    boot_time::BootTime,
    fault,
    kube::{KubeView, NodePods},
    names::NodeName,
};
use tokio::sync::watch;

use super::{
    connect::Kube,
    error::KubeError,
    links::{Link, State},
    publish_throttle::{PublishThrottle, Urgency},
};

/// Time for which every watch goes on proving its connection after the last [`Shared::require_fresh_proof`].
const PROOF_LINGER: Duration = Duration::from_secs(15);
/// While watches prove their connections, a watch that proved nothing for this long is reopened on another connection.
pub(super) const PROOF_TIMEOUT: Duration = Duration::from_secs(8);

/// Whether lists may be requested as streams (`sendInitialEvents`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// Streams where the server supports them. A refusal is remembered.
    Auto,
    /// Pages and a watch, never streams.
    Off,
}

/// The view, and the state that its watches share.
pub(super) struct Shared {
    pub(super) kube: Kube,
    state: Mutex<State>,
    pub(super) throttle: PublishThrottle,
    published: watch::Sender<Arc<KubeView>>,
    streaming: AtomicBool,
    /// Counter that is incremented when the server answers again after an outage.
    pub(super) epoch: watch::Sender<u64>,
    /// Boot time. A watch whose last request was sent before it must be reopened.
    pub(super) renew: watch::Sender<BootTime>,
    /// Boot time in milliseconds until which every watch proves its own connection.
    proving_until: AtomicU64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Creates the state without any watch.
    pub(super) fn new(kube: &Kube, streaming: Streaming) -> Self {
        Self {
            kube: kube.clone(),
            state: Mutex::default(),
            throttle: PublishThrottle::default(),
            published: watch::Sender::new(Arc::default()),
            streaming: AtomicBool::new(streaming == Streaming::Auto),
            epoch: watch::Sender::new(0),
            renew: watch::Sender::new(BootTime::ZERO),
            proving_until: AtomicU64::new(0),
        }
    }

    /// Returns the view as it is now, including changes that were not published yet.
    pub(super) fn view(&self) -> Arc<KubeView> {
        self.publish_silently();
        Arc::clone(&self.published.borrow())
    }

    /// Subscribes to the view.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<KubeView>> {
        self.published.subscribe()
    }

    /// Publishes changes, and coalesces those that arrive shortly after one another. Never returns.
    pub(super) async fn publish_changes(&self) {
        self.throttle.publish_loop(|| self.publish_and_notify()).await;
    }

    /// Makes every watch prove its own connection until [`PROOF_LINGER`] after the last call.
    pub(super) fn require_fresh_proof(&self) {
        let now = self.kube.clock.boot();
        let until = (now + PROOF_LINGER).millis();
        if self.proving_until.fetch_max(until, Ordering::SeqCst) < now.millis() {
            // the connections may have been dead for a long time
            self.renew.send_replace(now);
        }
    }

    /// Adds a Node whose pods are not listed yet.
    pub(super) fn add_unlisted(&self, node: &NodeName) {
        lock(&self.state).view.pods.insert(node.to_owned(), NodePods::default());
    }

    /// Returns the present boot time.
    pub(super) fn now(&self) -> BootTime {
        self.kube.clock.boot()
    }

    /// Reports whether every watch must prove its own connection now.
    pub(super) fn is_proving(&self) -> bool {
        self.proving_until.load(Ordering::SeqCst) >= self.kube.clock.boot().millis()
    }

    /// Records that this watch sends a request now. Returns that boot time.
    pub(super) fn mark_sent(&self, id: u64) -> BootTime {
        let now = self.now();
        if let Some(link) = lock(&self.state).links.get_mut(&id) {
            link.sent = now;
        }
        now
    }

    /// Reports whether this watch sent its last request before `moment`.
    pub(super) fn sent_before(&self, id: u64, moment: BootTime) -> bool {
        lock(&self.state).links.get(&id).is_some_and(|link| link.sent < moment)
    }

    /// Returns the boot time at which this watch last proved that its connection lives.
    pub(super) fn proved_at(&self, id: u64) -> BootTime {
        lock(&self.state).links.get(&id).map_or(BootTime::ZERO, |link| link.state.fresh_as_of)
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
    pub(super) fn publish(&self) {
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

    /// Adds a link for a watch of this source. Returns its id.
    pub(super) fn link(&self, source: &'static str) -> u64 {
        let mut state = lock(&self.state);
        state.last_link += 1;
        let id = state.last_link;
        state.links.insert(id, Link { source, ..Link::default() });
        state.summarize(source);
        id
    }

    /// Removes a link. Later results of its watch are dropped.
    pub(super) fn unlink(&self, id: u64, clear: impl FnOnce(&mut KubeView)) {
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
        fresh_as_of: Option<BootTime>,
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
            if now - before > PROOF_TIMEOUT.into() { Urgency::Immediate } else { urgency }
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
        let at = self.now() + after;
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
        let at = self.now() + again;
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

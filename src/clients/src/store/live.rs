//! Live copy of etcd: a paged read at one revision, then one watch over the whole prefix (STO-49 to STO-51). It ends
//! only when it is dropped; every failure of etcd is shown in the copy.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cketerm_model::{
    boot_time::BootTime,
    stored::{
        keys::{Folder, KeyKind},
        recent::RecentRecords,
        view::StoreView,
    },
};
use etcd_client::{EventType, GetOptions, WatchOptions, WatchResponse};
use futures::StreamExt;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};

use super::read::row;
use super::{
    connect::Store,
    failure::{Failure, cancellation},
    read::Reading,
};

/// Time between two requests for progress. While etcd answers, the copy never looks older than this (SAF-22).
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);
/// Time without an answer after which the watch is reopened. It is below the 10 s after which no new work starts.
const SILENCE_LIMIT: Duration = Duration::from_secs(8);
/// A watch that lasted longer is reopened at once when it ends.
const SETTLED: Duration = Duration::from_secs(10);
/// Longest pause before a failed read or watch is retried.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Most answers that are applied together before the copy is published.
const MAX_BATCH: usize = 256;

/// Live copy that follows etcd until it is dropped.
#[derive(Debug)]
pub struct Live {
    views: watch::Receiver<Arc<StoreView>>,
    _task: JoinSet<()>,
}

impl Live {
    /// Starts to follow etcd; the first views are not `synced` yet.
    pub fn follow(store: &Store) -> Self {
        let (publish, views) = watch::channel(Arc::<StoreView>::default());
        let follower = Follower {
            store: store.clone(),
            view: StoreView::default(),
            known: HashMap::new(),
            next: 0,
            cluster: 0,
            publish,
        };
        let mut task = JoinSet::new();
        task.spawn(cketerm_runtime::tasks::held(follower.run()));
        Self { views, _task: task }
    }

    /// Creates a copy from views that another task publishes. It follows no etcd.
    pub fn from_views(views: watch::Receiver<Arc<StoreView>>) -> Self {
        Self { views, _task: JoinSet::new() }
    }

    /// Returns the current copy.
    pub fn borrow(&self) -> Arc<StoreView> {
        self.views.borrow().clone()
    }

    /// Subscribes to changes of the copy, coalesced.
    pub fn subscribe(&self) -> watch::Receiver<Arc<StoreView>> {
        self.views.clone()
    }
}

/// Reason why a watch ended.
enum WatchEnd {
    /// It may continue where it stopped.
    Broken(Failure),
    /// The revisions in between are compacted, so everything must be read again.
    Compacted,
}

struct Follower {
    store: Store,
    view: StoreView,
    /// ModRevision of every key in the copy.
    known: HashMap<Vec<u8>, i64>,
    /// First revision that is not in the copy; 0 = nothing was read yet.
    next: i64,
    /// Cluster id of the etcd that is followed.
    cluster: u64,
    publish: watch::Sender<Arc<StoreView>>,
}

impl Follower {
    async fn run(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            let began = Instant::now();
            let ended = match self.catch_up().await {
                Ok(()) => self.follow().await,
                Err(failure) => WatchEnd::Broken(failure),
            };
            let settled = began.elapsed() > SETTLED;
            pause =
                if settled { Duration::ZERO } else { (pause * 2).clamp(Duration::from_millis(50), MAX_RETRY_DELAY) };
            match ended {
                WatchEnd::Compacted => self.next = 0,
                WatchEnd::Broken(failure) => {
                    let store_error = self.store.store_error("watch", failure).await.to_string();
                    tracing::warn!(error = store_error, "the live copy of etcd is not updated");
                    self.view.error = Some(store_error);
                    self.view.watch_health.retry = Some(self.now() + pause);
                    self.publish_view();
                }
            }
            sleep(pause).await;
        }
    }

    /// Ensures that a watch from `next` on misses nothing. It reads everything at the start, after a gap, and if this
    /// is another etcd or another history than before (restored from a backup, rebuilt).
    async fn catch_up(&mut self) -> Result<(), Failure> {
        if self.next != 0 {
            let probe = self.store.get(self.store.keys().cluster(), GetOptions::new().with_count_only()).await?;
            let (revision, cluster) = probe.header().map_or((0, 0), |h| (h.revision(), h.cluster_id()));
            if cluster == self.cluster && revision + 1 >= self.next {
                return Ok(());
            }
            tracing::warn!(revision, was = self.next - 1, "etcd has another history; reading everything again");
            self.known.clear();
            self.view = StoreView { revision: 0, last_seen: self.view.last_seen, ..StoreView::default() };
        }
        let last_seen = self.now();
        let reading = self.store.reading().await?;
        self.take(&reading);
        (self.view.last_seen, self.view.synced, self.view.error) = (last_seen, true, None);
        self.view.watch_health.retry = None;
        self.publish_view();
        Ok(())
    }

    /// Compares a complete read with the copy. It parses only changed values and deletes missing keys.
    fn take(&mut self, reading: &Reading) {
        if self.cluster != reading.cluster {
            // Its revisions cannot be compared with those of the copy.
            self.known.clear();
            self.view = StoreView { last_seen: self.view.last_seen, ..StoreView::default() };
        }
        let mut seen = HashMap::with_capacity(reading.rows.len());
        for row in &reading.rows {
            if self.known.get(&row.key) != Some(&row.mod_revision) {
                self.view.put(self.store.keys(), row);
            }
            seen.insert(row.key.clone(), row.mod_revision);
        }
        for key in self.known.keys().filter(|key| !seen.contains_key(*key)) {
            self.view.delete(self.store.keys(), key);
        }
        self.known = seen;
        // Writes below the on-demand folders may have been missed, so these folders must be read again.
        self.view.recent = RecentRecords::after_revision(reading.revision);
        for folder in Folder::ALL {
            self.view.grown.insert(folder, reading.revision);
        }
        self.view.revision = reading.revision;
        self.next = reading.revision + 1;
        self.cluster = reading.cluster;
    }

    /// Watches from `next` on until the watch ends.
    async fn follow(&mut self) -> WatchEnd {
        // The watch starts at the last known revision, not the one after it: etcd 3.6 answers no request for progress
        // before the watch's first revision exists. A repeated event changes nothing.
        let from = (self.next - 1).max(1);
        let options = WatchOptions::new().with_prefix().with_start_revision(from).with_progress_notify();
        let prefix = self.store.keys().prefix().to_owned();
        let mut watch_client = self.store.watch_client();
        let stream = match self.store.with_timeout(watch_client.watch(prefix, Some(options))).await {
            Ok(stream) => stream,
            Err(failure) => return WatchEnd::Broken(failure),
        };
        let (mut requests, answers) = stream.split();
        // Answers that have arrived already are applied together.
        let mut answers = answers.ready_chunks(MAX_BATCH);
        let mut progress_timer = interval_at(Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
        progress_timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        // Time of the request for progress that is not answered yet.
        let mut requested_at: Option<Instant> = None;
        loop {
            let answers = tokio::select! {
                biased;
                answers = answers.next() => Some(answers),
                _ = progress_timer.tick() => None,
            };
            let Some(answers) = answers else {
                if last.elapsed() > SILENCE_LIMIT {
                    let cause = format!("the watch was silent for {SILENCE_LIMIT:?}");
                    return WatchEnd::Broken(Failure::NoAnswer { cause, sent: true });
                }
                match timeout(self.store.timeout(), requests.request_progress()).await {
                    Ok(Ok(())) => {
                        requested_at.get_or_insert_with(Instant::now);
                        continue;
                    }
                    Ok(Err(error)) => return WatchEnd::Broken(error.into()),
                    Err(_) => {
                        let cause = "a request for progress could not be sent".to_owned();
                        return WatchEnd::Broken(Failure::NoAnswer { cause, sent: true });
                    }
                }
            };
            let Some(answers) = answers else {
                let cause = "etcd ended the watch".to_owned();
                return WatchEnd::Broken(Failure::NoAnswer { cause, sent: true });
            };
            for answer in answers {
                let answer = match answer {
                    Ok(answer) => answer,
                    Err(error) => return WatchEnd::Broken(error.into()),
                };
                if answer.created() {
                    // etcd does not answer a request for progress before this.
                    progress_timer.reset_immediately();
                } else if let Some(requested_at) = requested_at.take() {
                    self.view.watch_health.lag = requested_at.elapsed().as_secs();
                }
                if let Err(gap) = self.answer(&answer) {
                    self.publish_view();
                    return gap;
                }
            }
            last = Instant::now();
            self.publish_view();
        }
    }

    /// Applies one answer of the watch.
    fn answer(&mut self, answer: &WatchResponse) -> Result<(), WatchEnd> {
        match cancellation(answer) {
            None => {}
            Some(Failure::Compacted) => return Err(WatchEnd::Compacted),
            Some(failure) => return Err(WatchEnd::Broken(failure)),
        }
        for event in answer.events() {
            let Some(kv) = event.kv() else { continue };
            self.next = self.next.max(kv.mod_revision() + 1);
            self.view.revision = self.view.revision.max(kv.mod_revision());
            match self.store.keys().parse(kv.key()) {
                // The value is not read here. Readers of the folder learn that it has grown.
                Some(KeyKind::OnDemand(folder)) if event.event_type() == EventType::Put => {
                    self.view.grown.insert(folder, kv.mod_revision());
                    self.view.recent.record_value(folder, kv.mod_revision(), kv.value());
                    let key = String::from_utf8_lossy(kv.key()).into_owned();
                    self.view.recent.key_written(folder, kv.mod_revision(), key);
                }
                None | Some(KeyKind::OnDemand(_)) => {}
                Some(_) if event.event_type() == EventType::Put => {
                    self.view.put(self.store.keys(), &row(kv));
                    self.known.insert(kv.key().to_vec(), kv.mod_revision());
                }
                Some(_) => {
                    self.view.delete(self.store.keys(), kv.key());
                    self.known.remove(kv.key());
                }
            }
        }
        // The creation of a watch does not show yet how far it is behind.
        if !answer.created() {
            self.view.last_seen = self.now();
            self.view.error = None;
            self.view.watch_health.retry = None;
        }
        Ok(())
    }

    fn publish_view(&self) {
        self.publish.send_replace(Arc::new(self.view.clone()));
    }

    fn now(&self) -> BootTime {
        self.store.clock().boot()
    }
}

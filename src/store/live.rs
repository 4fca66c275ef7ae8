//! The live copy: one watch over the whole prefix, begun from a paged read at one revision (spec/etcd.md, Reading
//! and watching). It ends only when it is dropped; whatever happens to etcd is shown in the copy.

use std::{collections::HashMap, sync::Arc, time::Duration};

use etcd_client::{EventType, GetOptions, WatchOptions, WatchResponse};
use futures::{FutureExt, StreamExt};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};

use super::{
    answer::Failure,
    apply::Row,
    connect::Store,
    fresh::Fresh,
    keys::{Folder, KeyKind},
    read::Reading,
    view::StoreView,
};

/// Between two requests for progress: the copy is never thought older than this while etcd answers.
const PROGRESS: Duration = Duration::from_secs(3);
/// Without an answer for so long the watch is begun anew; below the 10 s after which no new work starts.
const SILENCE: Duration = Duration::from_secs(8);
/// The longest pause before a failed read or watch is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Answers that are taken together before the copy is published.
const TOGETHER: usize = 256;

/// Follows etcd until it is dropped.
#[derive(Debug)]
pub struct Live {
    views: watch::Receiver<Arc<StoreView>>,
    _task: JoinSet<()>,
}

impl Live {
    /// Begins to follow; the first views are not `synced` yet.
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
        task.spawn(crate::tasks::held(follower.run()));
        Self { views, _task: task }
    }

    /// The copy as it is now.
    pub fn borrow(&self) -> Arc<StoreView> {
        self.views.borrow().clone()
    }

    /// Every change of the copy, coalesced.
    pub fn subscribe(&self) -> watch::Receiver<Arc<StoreView>> {
        self.views.clone()
    }
}

/// Why a watch ended.
enum Gap {
    /// It may go on where it stopped.
    Broken(Failure),
    /// What lies between is not to be had any more: read again.
    Compacted,
}

struct Follower {
    store: Store,
    view: StoreView,
    /// The ModRevision of every key that the copy shows.
    known: HashMap<Vec<u8>, i64>,
    /// The first revision that is not in the copy; 0 = read first.
    next: i64,
    /// Which etcd we follow.
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
                Err(failure) => Gap::Broken(failure),
            };
            let settled = began.elapsed() > Duration::from_secs(10);
            pause = if settled { Duration::ZERO } else { (pause * 2).clamp(Duration::from_millis(50), LONGEST_PAUSE) };
            match ended {
                Gap::Compacted => self.next = 0,
                Gap::Broken(failure) => {
                    let sentence = self.store.sentence("watch", failure).await.to_string();
                    tracing::warn!(error = sentence, "the live copy of etcd stands still");
                    self.view.error = Some(sentence);
                    self.view.line.retry = Some(self.now() + pause.as_secs_f64());
                    self.show();
                }
            }
            sleep(pause).await;
        }
    }

    /// Makes sure that a watch from `next` on misses nothing: reads everything at first, after a gap, and when this
    /// is not the etcd, or the history, that we followed (restored from a backup, rebuilt).
    async fn catch_up(&mut self) -> Result<(), Failure> {
        if self.next != 0 {
            let probe = self.store.get(self.store.keys().cluster(), GetOptions::new().with_count_only()).await?;
            let (revision, cluster) = probe.header().map_or((0, 0), |h| (h.revision(), h.cluster_id()));
            if cluster == self.cluster && revision + 1 >= self.next {
                return Ok(());
            }
            tracing::warn!(revision, was = self.next - 1, "another history of etcd: everything is read again");
            self.known.clear();
            self.view = StoreView { revision: 0, heard: self.view.heard, ..StoreView::default() };
        }
        let heard = self.now();
        let reading = self.store.reading().await?;
        self.take(&reading);
        (self.view.heard, self.view.synced, self.view.error) = (heard, true, None);
        self.view.line.retry = None;
        self.show();
        Ok(())
    }

    /// Compares a reading with the copy: only what changed is parsed, what is not there any more is deleted.
    fn take(&mut self, reading: &Reading) {
        if self.cluster != reading.cluster {
            // its revisions say nothing about ours
            self.known.clear();
            self.view = StoreView { heard: self.view.heard, ..StoreView::default() };
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
        // what was written meanwhile below the folders that are read on demand, nobody knows: they are looked at again
        self.view.fresh = Fresh::after_revision(reading.revision);
        for folder in Folder::ALL {
            self.view.grown.insert(folder, reading.revision);
        }
        self.view.revision = reading.revision;
        self.next = reading.revision + 1;
        self.cluster = reading.cluster;
    }

    /// Watches from `next` on until something ends it.
    async fn follow(&mut self) -> Gap {
        // From the last revision that is known, not the one behind it: etcd 3.6 answers no request for progress before
        // a watch's first revision exists. What is told twice changes nothing.
        let from = (self.next - 1).max(1);
        let options = WatchOptions::new().with_prefix().with_start_revision(from).with_progress_notify();
        let prefix = self.store.keys().prefix().to_owned();
        let mut watching = self.store.watching();
        let mut stream = match self.store.once(watching.watch(prefix, Some(options))).await {
            Ok(stream) => stream,
            Err(failure) => return Gap::Broken(failure),
        };
        let mut ask = interval_at(Instant::now() + PROGRESS, PROGRESS);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        // when the progress was asked for that has not been answered yet
        let mut asked: Option<Instant> = None;
        loop {
            let message = tokio::select! {
                biased;
                message = stream.next() => Some(message),
                _ = ask.tick() => None,
            };
            let Some(mut message) = message else {
                if last.elapsed() > SILENCE {
                    let cause = format!("the watch was silent for {SILENCE:?}");
                    return Gap::Broken(Failure::NoAnswer { cause, sent: true });
                }
                match timeout(self.store.timeout(), stream.request_progress()).await {
                    Ok(Ok(())) => {
                        asked.get_or_insert_with(Instant::now);
                        continue;
                    }
                    Ok(Err(error)) => return Gap::Broken(error.into()),
                    Err(_) => {
                        let cause = "a request for progress could not be sent".to_owned();
                        return Gap::Broken(Failure::NoAnswer { cause, sent: true });
                    }
                }
            };
            for taken in 0.. {
                match message {
                    Some(Ok(answer)) => {
                        if answer.created() {
                            // before this, etcd does not answer a request for progress
                            ask.reset_immediately();
                        } else if let Some(asked) = asked.take() {
                            self.view.line.lag = asked.elapsed().as_secs();
                        }
                        if let Err(gap) = self.answer(&answer) {
                            self.show();
                            return gap;
                        }
                    }
                    Some(Err(error)) => return Gap::Broken(error.into()),
                    None => {
                        let cause = "etcd ended the watch".to_owned();
                        return Gap::Broken(Failure::NoAnswer { cause, sent: true });
                    }
                }
                match stream.next().now_or_never() {
                    Some(next) if taken < TOGETHER => message = next,
                    // never dropped: what was taken is handled in the next round
                    Some(next) => {
                        message = next;
                        self.show();
                    }
                    None => break,
                }
            }
            last = Instant::now();
            self.show();
        }
    }

    /// Takes one answer of the watch over.
    fn answer(&mut self, answer: &WatchResponse) -> Result<(), Gap> {
        if answer.canceled() {
            return Err(match answer.compact_revision() {
                0 => Gap::Broken(Failure::Refused(format!("the watch was cancelled: {}", answer.cancel_reason()))),
                _ => Gap::Compacted,
            });
        }
        for event in answer.events() {
            let Some(kv) = event.kv() else { continue };
            self.next = self.next.max(kv.mod_revision() + 1);
            self.view.revision = self.view.revision.max(kv.mod_revision());
            match self.store.keys().parse(kv.key()) {
                // not read here: who shows the folder is told that it has grown
                Some(KeyKind::OnDemand(folder)) if event.event_type() == EventType::Put => {
                    self.view.grown.insert(folder, kv.mod_revision());
                    self.view.fresh.told(folder, kv.mod_revision(), kv.value());
                    let key = String::from_utf8_lossy(kv.key()).into_owned();
                    self.view.fresh.wrote(folder, kv.mod_revision(), key);
                }
                None | Some(KeyKind::OnDemand(_)) => {}
                Some(_) if event.event_type() == EventType::Put => {
                    self.view.put(self.store.keys(), &Row::from(kv));
                    self.known.insert(kv.key().to_vec(), kv.mod_revision());
                }
                Some(_) => {
                    self.view.delete(self.store.keys(), kv.key());
                    self.known.remove(kv.key());
                }
            }
        }
        // that a watch was made says nothing yet about what it is behind with
        if !answer.created() {
            self.view.heard = self.now();
            self.view.error = None;
            self.view.line.retry = None;
        }
        Ok(())
    }

    fn show(&self) {
        self.publish.send_replace(Arc::new(self.view.clone()));
    }

    fn now(&self) -> f64 {
        self.store.clock().boot().as_secs_f64()
    }
}

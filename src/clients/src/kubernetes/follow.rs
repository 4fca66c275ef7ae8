//! One list kept live by a watch (SAF-22): a streamed list where the server can, otherwise pages and a watch. It
//! resumes where the connection broke, and lists again if the server no longer has that part of the history.

use std::{sync::Arc, time::Duration};

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    fault,
    kube::KubeView,
};
use futures::StreamExt;
use kube::core::{Status, WatchEvent};

use super::{
    call::{CALL_TIMEOUT, get},
    error::Fault,
    live::{PROOF_TIMEOUT, Shared},
    publish_throttle::Urgency,
    sources::Kind,
    wire::Wire,
};

/// Timeout in seconds after which the server is asked to end a watch.
const WATCH_SECONDS: u64 = 290;
/// The same timeout while watches prove their connections. The connection of an ended answer stays open for the next
/// request.
const PROOF_WATCH_SECONDS: u64 = 6;
/// Limits of the backlog. The events since the last connection follow directly after the response headers. The backlog
/// is over after a pause as long as the first value, and at the latest after the second.
const BACKLOG: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));
/// A watch that is silent for this long is reopened, whatever the state of the connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// First and longest wait after a failure.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Annotation of the bookmark that ends a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub(super) struct Follow<K> {
    shared: Arc<Shared>,
    link: u64,
    kind: K,
    /// Resource version to resume from. `None`: list again.
    version: Option<String>,
    wait: Duration,
    /// Whether a 404 ends the loop, because not every cluster has this kind.
    stop_if_missing: bool,
}

/// Reason for the end of one connection.
enum End {
    /// Ended as planned: continue at once.
    Planned,
    /// Given up: reopen on another connection at once.
    Renewed,
    /// The history is gone: list again.
    Gone(String),
    /// The server cannot stream lists.
    CannotStream(String),
    /// Any other failure: wait, then continue.
    Failed(Fault),
}

impl<K: Kind> Follow<K> {
    pub(super) fn new(shared: Arc<Shared>, link: u64, kind: K) -> Self {
        Self { shared, link, kind, version: None, wait: RETRY_DELAY.0, stop_if_missing: false }
    }

    /// Runs until the task is aborted.
    pub(super) async fn run(mut self) {
        self.run_loop().await;
    }

    /// Runs until the task is aborted, or until the server no longer has this kind.
    pub(super) async fn run_while_served(mut self) {
        self.stop_if_missing = true;
        self.run_loop().await;
    }

    async fn run_loop(&mut self) {
        let (shared, link) = (Arc::clone(&self.shared), self.link);
        let mut renew = shared.renew.subscribe();
        loop {
            let began = shared.now();
            let end = {
                let mut list_and_watch = std::pin::pin!(self.list_and_watch());
                loop {
                    tokio::select! {
                        biased;
                        end = &mut list_and_watch => break end,
                        // This connection may be dead without knowing it, unless it was opened later.
                        _ = renew.changed() => {
                            let before = *renew.borrow_and_update();
                            if shared.sent_before(link, before) {
                                break End::Renewed;
                            }
                        }
                    }
                }
            };
            match end {
                End::Renewed => {}
                End::Planned => {
                    // A proxy or load balancer may end every watch at once.
                    if shared.now() - began < Seconds::new(1.0) {
                        shared.closed(link);
                        self.pause(&mut renew).await;
                    }
                }
                End::Gone(why) => {
                    tracing::info!(source = K::SOURCE, why, "the watch cannot continue; listing again");
                    self.version = None;
                    self.shared.closed(self.link);
                    self.pause(&mut renew).await;
                }
                End::CannotStream(why) => {
                    tracing::info!(source = K::SOURCE, why, "the server cannot stream lists; using pages and a watch");
                    self.shared.disable_streaming();
                }
                End::Failed(Fault::Answered(status)) if self.stop_if_missing && status.code == 404 => return,
                End::Failed(fault) => {
                    let error = self.shared.kube.error(&format!("GET {}", K::PATH), fault);
                    tracing::warn!(source = K::SOURCE, %error, "watch failed");
                    self.shared.failed(self.link, K::SOURCE, &error);
                    self.pause(&mut renew).await;
                }
            }
        }
    }

    /// Waits with exponential backoff and jitter. A recovered server ends the wait early.
    async fn pause(&mut self, renew: &mut tokio::sync::watch::Receiver<BootTime>) {
        let jitter = self.shared.kube.clock.wall().subsec_nanosecond().unsigned_abs() % 256;
        let wait = self.wait.mul_f64(0.75 + f64::from(jitter) / 512.0);
        self.wait = (self.wait * 2).min(RETRY_DELAY.1);
        self.shared.schedule_retry(self.link, wait);
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => {}
            _ = renew.changed() => {}
        }
    }

    /// Runs one connection from its beginning to its end.
    async fn list_and_watch(&mut self) -> End {
        let listing = self.version.is_none() && self.shared.streaming_enabled();
        if self.version.is_none() && !listing {
            let sent = self.shared.mark_sent(self.link);
            match self.shared.kube.list::<K::Wire, K::Row>(K::PATH, &self.kind.query()).await {
                Ok((rows, version)) => self.complete(rows, version, sent),
                Err(fault) => return End::Failed(fault),
            }
        }
        match self.watch(listing).await {
            Ok(()) => End::Planned,
            Err(Fault::Answered(status)) if status.code == 410 => End::Gone(status.message),
            Err(Fault::Answered(status)) if listing && self.version.is_none() && cannot_stream(&status) => {
                End::CannotStream(status.message)
            }
            Err(fault) => End::Failed(fault),
        }
    }

    /// Stores a whole list that was requested at boot time `sent`.
    fn complete(&mut self, rows: Vec<K::Row>, version: String, sent: BootTime) {
        self.version = Some(version);
        self.wait = RETRY_DELAY.0;
        self.shared.record_answer(self.link, true, Some(sent), |view| {
            self.kind.replace(view, rows);
            self.kind.set_fresh_as_of(view, sent);
            Urgency::Immediate
        });
    }

    /// Records a sign of life on this watch's own connection. `fresh_as_of` is as in [`Shared::record_answer`].
    fn record_answer(&self, fresh_as_of: Option<BootTime>, change: impl FnOnce(&mut KubeView) -> Urgency) {
        self.shared.record_answer(self.link, false, fresh_as_of, |view| {
            let urgency = change(view);
            if let Some(at) = fresh_as_of {
                self.kind.set_fresh_as_of(view, at);
            }
            urgency
        });
    }

    /// Returns the present boot time as the proof of an event, or none while older events may still follow.
    fn proof_time(&self, backlog: bool) -> Option<BootTime> {
        (!backlog).then(|| self.shared.now())
    }

    /// Returns how long an open watch waits for its next event.
    fn silence_limit(&self) -> Duration {
        fault!(WatchTrusted => return IDLE_TIMEOUT);
        if !self.shared.is_proving() {
            return IDLE_TIMEOUT;
        }
        let age = self.shared.now().saturating_duration_since(self.shared.proved_at(self.link));
        let left = PROOF_TIMEOUT.saturating_sub(age);
        left.max(BACKLOG.0)
    }

    /// Opens a watch and follows it to its end. With `listing` the stream starts with the list.
    async fn watch(&mut self, listing: bool) -> Result<(), Fault> {
        // A list may take longer than a proof.
        let timeout_seconds = if self.shared.is_proving() && !listing { PROOF_WATCH_SECONDS } else { WATCH_SECONDS };
        fault!(WatchTrusted => timeout_seconds = WATCH_SECONDS);
        let mut url = format!("{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout_seconds}", K::PATH);
        let from = match &self.version {
            Some(version) => format!("resourceVersion={version}"),
            // Without a version: not older than the present state.
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        for part in [from, self.kind.query()] {
            if !part.is_empty() {
                url = format!("{url}&{part}");
            }
        }
        let request = get(&url).map_err(|e| Fault::Silent(e.to_string()))?;
        let sent = self.shared.mark_sent(self.link);
        let opening = self.shared.kube.client.request_events::<K::Wire>(request);
        let stream = tokio::time::timeout(CALL_TIMEOUT, opening)
            .await
            .map_err(|_| Fault::Silent(format!("no answer within {} s", CALL_TIMEOUT.as_secs())))??;
        let mut stream = std::pin::pin!(stream);
        if !listing {
            self.record_answer(None, |_| Urgency::Deferred);
        }
        let (mut listing, mut rows) = (listing, Vec::new());
        // Events since the last connection come first. Until they are all here, the answer proves nothing.
        let opened = self.shared.now();
        let mut backlog = !listing;
        loop {
            if backlog && self.shared.now() - opened >= BACKLOG.1.into() {
                backlog = false;
                self.record_answer(Some(sent), |_| Urgency::Deferred);
            }
            // A list comes without pauses.
            let limit = if listing {
                CALL_TIMEOUT
            } else if backlog {
                BACKLOG.0
            } else {
                self.silence_limit()
            };
            let next = match tokio::time::timeout(limit, stream.next()).await {
                Ok(next) => next.transpose()?,
                Err(_) if listing => return Err(list_timeout(limit)),
                Err(_) if backlog => {
                    backlog = false;
                    self.record_answer(Some(sent), |_| Urgency::Deferred);
                    continue;
                }
                // A kind that never changes sends nothing if the server's etcd reports no progress either. Reopening
                // the watch shows whether the server is there.
                Err(_) => {
                    tracing::debug!(source = K::SOURCE, "the watch was silent for {} s; reopening it", limit.as_secs());
                    return Ok(());
                }
            };
            match next {
                None if listing => return Err(Fault::Silent("the list ended early".to_owned())),
                None => return Ok(()),
                Some(WatchEvent::Error(status)) => return Err(Fault::Answered(status)),
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) if listing => {
                    rows.push(K::Row::from(object));
                }
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    self.version = Some(object.meta().resource_version.clone());
                    let row = K::Row::from(object);
                    self.record_answer(self.proof_time(backlog), |view| self.kind.put(view, row));
                }
                Some(WatchEvent::Deleted(object)) => {
                    self.version = Some(object.meta().resource_version.clone());
                    self.record_answer(self.proof_time(backlog), |view| {
                        self.kind.remove(view, object.meta());
                        Urgency::Immediate
                    });
                }
                Some(WatchEvent::Bookmark(mark)) => {
                    let version = mark.metadata.resource_version;
                    if listing && mark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        listing = false;
                        self.complete(std::mem::take(&mut rows), version, sent);
                    } else if !listing {
                        self.version = Some(version);
                        self.record_answer(self.proof_time(backlog), |_| Urgency::Deferred);
                    }
                }
            }
            self.wait = RETRY_DELAY.0;
        }
    }
}

/// Returns the fault for a list that never ends. Such a server does not know the query, which equals "not implemented".
fn list_timeout(limit: Duration) -> Fault {
    let why = format!("the streamed list did not end: silent for {} s", limit.as_secs());
    Fault::Answered(Status::failure(&why, "NotImplemented").with_code(501).boxed())
}

/// Reports whether this answer to a streamed list means that the server, or its etcd, does not support it. An older
/// etcd causes a 500 inside the stream ("required storage feature `RequestWatchProgress` is disabled"). An older server
/// answers 400 or 422.
fn cannot_stream(status: &Status) -> bool {
    match status.code {
        400 | 405 | 422 | 501 => true,
        500 => status.message.contains("storage feature") || status.message.contains("RequestWatchProgress"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_without_streaming_lists_disables_them() {
        let refusal = "a watch stream was requested by the client but the required storage feature \
                       RequestWatchProgress is disabled";
        assert!(cannot_stream(&Status::failure(refusal, "InternalError").with_code(500)));
        assert!(!cannot_stream(&Status::failure("etcdserver: leader changed", "InternalError").with_code(500)));
        assert!(!cannot_stream(&Status::failure("forbidden", "Forbidden").with_code(403)));
    }
}

//! Following of a folder that is read on demand: every value written below it, in order, for `-f`.

use std::{sync::Arc, time::Duration};

use cketerm_model::entry::Stored;
use etcd_client::{EventType, KeyValue, WatchOptions};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, interval, sleep, timeout};

use super::{
    connect::Store,
    failure::{Failure, cancellation},
};

/// Time between two requests for progress, and the silence after which the watch is reopened.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);
const SILENCE_LIMIT: Duration = Duration::from_secs(8);
/// Pause before a watch that ended is reopened.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Item of a followed folder.
#[derive(Clone, Debug)]
pub enum Tailed<T> {
    /// A written value, new or changed.
    Value(Stored<T>),
    /// An error; the watch is retried.
    Trouble(String),
}

/// Place in the revisions of etcd up to which a folder was followed.
struct Place {
    /// Revision of the last change that was passed, or of the read before the watch.
    seen: i64,
    /// Revision up to which etcd has said that there was no other change.
    confirmed: i64,
    /// The last compaction that ended a watch; 0 = none. etcd starts no watch before it.
    compacted: i64,
}

impl Place {
    /// Returns the first revision of the next watch. It is one that exists: etcd 3.6 answers no request for progress of a
    /// watch that starts in the future.
    fn start(&self) -> i64 {
        self.seen.max(self.compacted).max(1)
    }

    /// Reports whether the compaction may have removed a revision after the last known one.
    fn has_gap(&self) -> bool {
        self.compacted > self.seen.max(self.confirmed).saturating_add(1)
    }
}

/// Returns one value below a folder.
pub(super) fn stored<T: DeserializeOwned>(kv: &KeyValue) -> Stored<T> {
    let key = String::from_utf8_lossy(kv.key()).into_owned();
    let value = serde_json::from_slice(kv.value()).map(Arc::new).map_err(|e| format!("{key}: {e}"));
    Stored { key, mod_revision: kv.mod_revision(), value }
}

impl Store {
    /// Passes every value written below `folder` after `revision` to `on_item`, until that fails. It ends only then:
    /// every failure of etcd is passed as trouble, and retried.
    pub async fn tail<T: DeserializeOwned, E>(
        &self,
        folder: &str,
        revision: i64,
        mut on_item: impl FnMut(Tailed<T>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut place, mut reported) = (Place { seen: revision, confirmed: revision, compacted: 0 }, false);
        loop {
            let failure = match self.tail_once(folder, &mut place, &mut reported, &mut on_item).await {
                Ok(failure) => failure,
                Err(e) => return Err(e),
            };
            match failure {
                Failure::Compacted => {}
                other if !reported => {
                    let store_error = self.store_error(&format!("watch {folder}"), other).await;
                    on_item(Tailed::Trouble(format!("{store_error}; retrying")))?;
                    reported = true;
                }
                _ => {}
            }
            sleep(RETRY_DELAY).await;
        }
    }

    /// Runs one watch until it ends; the outer error is that of `on_item`.
    async fn tail_once<T: DeserializeOwned, E>(
        &self,
        folder: &str,
        place: &mut Place,
        reported: &mut bool,
        on_item: &mut impl FnMut(Tailed<T>) -> Result<(), E>,
    ) -> Result<Failure, E> {
        let known = place.seen;
        let options = WatchOptions::new().with_prefix().with_start_revision(place.start());
        let mut watch_client = self.watch_client();
        let mut stream = match self.with_timeout(watch_client.watch(folder, Some(options))).await {
            Ok(stream) => stream,
            Err(failure) => return Ok(failure),
        };
        let (mut progress_timer, mut last) = (interval(PROGRESS_INTERVAL), Instant::now());
        let no_answer = |cause: &str| Failure::NoAnswer { cause: cause.to_owned(), sent: true };
        loop {
            let message = tokio::select! {
                biased;
                message = stream.next() => message,
                _ = progress_timer.tick() => {
                    if last.elapsed() > SILENCE_LIMIT {
                        return Ok(no_answer("the watch is silent"));
                    }
                    match timeout(self.timeout(), stream.request_progress()).await {
                        Ok(Ok(())) => continue,
                        Ok(Err(error)) => return Ok(error.into()),
                        Err(_) => return Ok(no_answer("a request for progress could not be sent")),
                    }
                }
            };
            let answer = match message {
                Some(Ok(answer)) => answer,
                Some(Err(error)) => return Ok(error.into()),
                None => return Ok(no_answer("etcd ended the watch")),
            };
            last = Instant::now();
            // The next trouble is a different one.
            let cancelled = cancellation(&answer);
            *reported &= cancelled.is_some();
            if let Some(failure) = cancelled {
                if failure == Failure::Compacted {
                    place.compacted = answer.compact_revision();
                    if place.has_gap() {
                        let gap = format!("etcd was compacted; some changes below {folder} were missed");
                        on_item(Tailed::Trouble(gap))?;
                    }
                }
                return Ok(failure);
            }
            if answer.events().is_empty() && !answer.created() {
                let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
                place.confirmed = place.confirmed.max(revision);
            }
            for event in answer.events() {
                let Some(kv) = event.kv() else { continue };
                place.seen = place.seen.max(kv.mod_revision());
                if kv.mod_revision() > known && event.event_type() == EventType::Put {
                    on_item(Tailed::Value(stored(kv)))?;
                }
            }
        }
    }
}

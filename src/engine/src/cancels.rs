//! Repeats of cancels that CKE's write has overwritten (STO-68).
//!
//! Every engine does it, leading or not: a console, a daemon that stands by, one with `--observe`. The write compares the
//! entry and the record, so of several processes one writes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_clients::store::{Store, live::Live};
use cketerm_model::{cketerm_records::AcceptedCancel, entry::EntryId, fault, stored::view::StoreView};
use cketerm_rules::cancels::{Due, due};
use tokio::time::{Instant, sleep_until};

/// Pause of one entry after the first repeat. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause of one entry.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Repeats cancels for one engine.
pub(super) struct CancelRepeater {
    /// Client of etcd.
    pub store: Store,
    /// Live copy of etcd.
    pub live: Arc<Live>,
}

/// Pause of one entry.
#[derive(Clone, Copy)]
struct Pause {
    until: Instant,
    next: Duration,
}

impl CancelRepeater {
    /// Runs until the engine ends.
    pub(super) async fn run(self) {
        let mut views = self.live.subscribe();
        let mut pauses: BTreeMap<EntryId, Pause> = BTreeMap::new();
        loop {
            let view = views.borrow_and_update().clone();
            pauses.retain(|id, _| view.cancels.contains_key(id));
            let wake = self.round(&view, &mut pauses).await;
            let pause_over = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = views.changed() => if changed.is_err() { return },
                () = pause_over => {}
            }
        }
    }

    /// Does what is due. Returns the time of the next round, unless a change of etcd comes first.
    async fn round(&self, view: &StoreView, pauses: &mut BTreeMap<EntryId, Pause>) -> Option<Instant> {
        let mut wake: Option<Instant> = None;
        for Due { id, stored, repeat, end } in due(view) {
            let now = Instant::now();
            let mut sooner = |at: Instant| wake = Some(wake.map_or(at, |wake| wake.min(at)));
            let pause = pauses.get(&id).copied();
            if let Some(pause) = pause.filter(|pause| pause.until > now) {
                sooner(pause.until);
                continue;
            }
            let length = pause.map_or(FIRST_PAUSE, |pause| pause.next);
            // A write that fails changes nothing that would wake this task.
            sooner(now + length);
            pauses.insert(id, Pause { until: now + length, next: (length * 2).min(LONGEST_PAUSE) });
            match stored.get().filter(|_| repeat) {
                Some(cancel) => self.repeat(id, cancel, stored.mod_revision).await,
                None => {
                    if let Err(error) =
                        self.store.forget_cancel(id, stored, end.map(|end| (end.batch, end.revision, end.end))).await
                    {
                        tracing::debug!(entry = %id, %error, "the record of a cancel was not removed");
                    }
                }
            }
        }
        wake
    }

    async fn repeat(&self, id: EntryId, cancel: &AcceptedCancel, record: i64) {
        fault!(LostCancelForgotten => return);
        match self.store.repeat_cancel(id, cancel, Some(record)).await {
            Ok(true) => tracing::warn!(entry = %id, node = %cancel.address, by = %cancel.who,
                "cancel repeated: CKE's write had lost it"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(entry = %id, %error, "a cancel that CKE's write had lost was not repeated yet");
            }
        }
    }
}

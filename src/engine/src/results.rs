//! Publisher of the results of commands that this host ran for a leader that is gone (SAF-20).
//!
//! Every engine of the host that may campaign publishes them, leading or not. The leader may be on another host and
//! then sees neither the helper nor its file. The leader takes a result over by itself (`decide::results`).

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use cketerm_clients::store::{Store, live::Live};
use cketerm_model::{
    attempt::Attempt,
    cketerm_records::{Identity, Who},
    entry::Stored,
    fault,
    result::ResultLabel,
    stored::view::StoreView,
};

use super::command::Spawner;

/// Time between two searches for results of open attempts.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Number of searches between two tests whether this host can start programs again.
const RETRY: u32 = 5;
/// Number of searches between two scans of the whole directory.
const SCAN_EVERY: u32 = 60;

/// Publisher of one engine.
pub(super) struct Publisher {
    /// Client of etcd.
    pub store: Store,
    /// Live copy of etcd.
    pub live: Arc<Live>,
    /// Runner that keeps the results.
    pub spawner: Spawner,
    /// Author of the writes.
    pub who: Who,
}

impl Publisher {
    /// Runs until the engine ends.
    pub(super) async fn run(self) {
        let mut warned = BTreeSet::new();
        if let Some(Err(why)) = self.spawner.prepare_results() {
            tracing::warn!(why, "command results cannot be kept; after a crash their outcome is unknown");
        }
        let mut rounds = 0;
        loop {
            let view = self.live.borrow();
            if view.synced {
                for (stored, label) in open_attempts(&view) {
                    self.publish(stored, &label, &mut warned).await;
                }
                if rounds == 0 {
                    self.scan(&view, &mut warned);
                }
                rounds = (rounds + 1) % SCAN_EVERY;
            }
            if rounds % RETRY == 0 {
                self.spawner.try_again().await;
            }
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    async fn publish(&self, stored: &Stored<Attempt>, label: &ResultLabel, warned: &mut BTreeSet<String>) {
        let result = match self.spawner.result(label) {
            Ok(Some(result)) => result,
            Ok(None) => return,
            Err(why) => return warn_once(warned, &why),
        };
        fault!(ResultOfAnother => result = cketerm_model::result::CommandResult { label: label.clone(), ..result });
        let Some(attempt) = stored.get() else { return };
        if !result.belongs_to(attempt, &label.cluster) {
            return warn_once(warned, &format!("{}: result of another cluster or command line", label.file_name()));
        }
        match self.store.publish_result(stored, &result, &self.who).await {
            Ok(written) => {
                tracing::info!(attempt = label.attempt, end = %result.outcome.end, written, "command result reported");
                if written {
                    self.spawner.forget_result(label);
                }
            }
            Err(e) => tracing::warn!(attempt = label.attempt, error = %e, "command result not reported yet"),
        }
    }

    /// Scans the directory: removes results that are recorded by now or too old, and logs foreign files.
    fn scan(&self, view: &StoreView, warned: &mut BTreeSet<String>) {
        let Some(look) = self.spawner.scan_results(SystemTime::now()) else { return };
        for file in &look.foreign {
            warn_once(warned, &format!("{file}: not a command result, left alone"));
        }
        for file in &look.removed {
            tracing::info!(file, "removed a command result that no attempt needs");
        }
        let Some(cluster) = cluster_of(view) else { return };
        let closed = view.attempts.values().filter_map(Stored::get).filter(|a| !a.open()).map(|a| a.label(cluster));
        for label in closed.filter(|label| look.results.contains(&label.file_name())) {
            self.spawner.forget_result(&label);
        }
        warned.retain(|warning| look.foreign.iter().chain(&look.results).any(|file| warning.contains(file)));
    }
}

/// Logs a warning once for each file.
fn warn_once(warned: &mut BTreeSet<String>, why: &str) {
    if warned.insert(why.to_owned()) {
        tracing::warn!(why, "ignoring a file among the command results");
    }
}

fn cluster_of(view: &StoreView) -> Option<&str> {
    let identity: Option<&Identity> = view.identity.as_ref().and_then(Stored::get);
    identity.map(|identity| identity.uid.as_str())
}

/// Returns the open attempts of former leaders. The current leader records its own commands itself.
fn open_attempts(view: &StoreView) -> Vec<(&Stored<Attempt>, ResultLabel)> {
    let Some(cluster) = cluster_of(view) else { return Vec::new() };
    let leader = view.leader().map(|leader| leader.lease);
    view.attempts
        .iter()
        .filter(|(id, _)| !view.results.contains_key(*id))
        .filter_map(|(_, stored)| {
            let attempt = stored.get().filter(|a| a.open() && Some(a.lease) != leader)?;
            Some((stored, attempt.label(cluster)))
        })
        .collect()
}

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
        let mut rounds = Rounds::default();
        loop {
            let view = self.live.borrow();
            if view.synced {
                for (stored, label) in open_attempts(&view) {
                    self.publish(stored, &label, &mut warned).await;
                }
                if rounds.is_scan_due() {
                    scan(&self.spawner, &view, SystemTime::now(), &mut warned);
                }
                rounds.count();
            }
            if rounds.is_retry_due() {
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
}

/// Number of searches since the last scan of the whole directory.
#[derive(Default)]
struct Rounds(u32);

impl Rounds {
    /// Counts a search.
    fn count(&mut self) {
        self.0 = (self.0 + 1) % SCAN_EVERY;
    }

    /// Reports whether the whole directory is scanned in this round.
    fn is_scan_due(&self) -> bool {
        self.0 == 0
    }

    /// Reports whether this host's ability to start programs is tested in this round.
    fn is_retry_due(&self) -> bool {
        self.0.is_multiple_of(RETRY)
    }
}

/// Scans the directory: removes results that are recorded by now or too old, and logs foreign files. Forgets the
/// warnings about files that are gone, so that they are logged again if they come back.
fn scan(spawner: &Spawner, view: &StoreView, now: SystemTime, warned: &mut BTreeSet<String>) {
    let Some(look) = spawner.scan_results(now) else { return };
    for file in &look.foreign {
        warn_once(warned, &format!("{file}: not a command result, left alone"));
    }
    for file in &look.removed {
        tracing::info!(file, "removed a command result that no attempt needs");
    }
    let Some(cluster) = cluster_of(view) else { return };
    let closed = view.attempts.values().filter_map(Stored::get).filter(|a| !a.open()).map(|a| a.label(cluster));
    for label in closed.filter(|label| look.results.contains(&label.file_name())) {
        spawner.forget_result(&label);
    }
    warned.retain(|warning| look.foreign.iter().chain(&look.results).any(|file| warning.contains(file)));
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

#[cfg(test)]
mod tests {
    use cketerm_model::{
        attempt::{Ended, Outcome},
        result::{CommandResult, argv_digest},
    };

    use super::*;
    use crate::command::ResultFolder;

    const CLUSTER: &str = "uid-1";

    /// A runner that keeps results in this folder.
    fn keeping(dir: &tempfile::TempDir) -> (Spawner, ResultFolder) {
        let folder = ResultFolder::below(dir.path());
        folder.prepare().unwrap();
        (Spawner::new("/nonexistent".into(), None, &[]).keeping_results(folder.clone()), folder)
    }

    fn attempt(index: u64, outcome: Option<Outcome>) -> Attempt {
        let text = format!(
            r#"{{"id": "reboots-{index}-1", "entry": "reboots/{index}", "number": 1, "address": "10.0.0.1", "lease": 122,
                "host": "boot-1", "argv": ["ipmi"], "bound_seconds": 60, "start": "2026-01-01T00:00:00Z"}}"#
        );
        Attempt { outcome, ..serde_json::from_str(&text).unwrap() }
    }

    fn outcome() -> Outcome {
        let (stdout, stderr) = (String::new(), String::new());
        Outcome { end: Ended::Exit(0), at: jiff::Timestamp::UNIX_EPOCH, stdout, stderr }
    }

    fn view(attempts: impl IntoIterator<Item = Attempt>) -> StoreView {
        let identity = Identity { uid: CLUSTER.to_owned(), confirmed_by: None, at: jiff::Timestamp::UNIX_EPOCH };
        let identity = Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(identity)) };
        let attempts = attempts.into_iter().map(|attempt| {
            ((attempt.entry, 1), Stored { key: String::new(), mod_revision: 2, value: Ok(Arc::new(attempt)) })
        });
        StoreView { identity: Some(identity), attempts: attempts.collect(), ..StoreView::default() }
    }

    #[test]
    fn a_scan_removes_results_that_etcd_has_and_keeps_those_of_open_attempts() {
        let dir = tempfile::tempdir().unwrap();
        let (spawner, folder) = keeping(&dir);
        let (closed, open) = (attempt(5, Some(outcome())), attempt(6, None));
        for attempt in [&closed, &open] {
            let (label, argv) = (attempt.label(CLUSTER), argv_digest(&attempt.argv));
            folder.write(&CommandResult { label, argv, outcome: outcome() }).unwrap();
        }
        let (recorded, unrecorded) = (closed.label(CLUSTER), open.label(CLUSTER));
        scan(&spawner, &view([closed, open]), SystemTime::now(), &mut BTreeSet::new());
        assert_eq!(spawner.result(&recorded), Ok(None));
        assert!(spawner.result(&unrecorded).unwrap().is_some());
    }

    #[test]
    fn a_warning_about_a_file_is_forgotten_once_the_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (spawner, folder) = keeping(&dir);
        let mut warned = BTreeSet::new();
        for name in ["notes.txt", "todo.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        scan(&spawner, &view([]), SystemTime::now(), &mut warned);
        assert_eq!(warned.len(), 2, "{warned:?}");
        std::fs::remove_file(folder.path().join("notes.txt")).unwrap();
        scan(&spawner, &view([]), SystemTime::now(), &mut warned);
        assert!(warned.iter().all(|warning| warning.contains("todo.txt")) && warned.len() == 1, "{warned:?}");
    }

    #[test]
    fn the_directory_is_scanned_in_the_first_round_and_once_a_minute() {
        let mut rounds = Rounds::default();
        let mut due = |is_due: fn(&Rounds) -> bool| {
            let found = (0..121).filter(|_| {
                let due = is_due(&rounds);
                rounds.count();
                due
            });
            let found: Vec<u32> = found.collect();
            rounds = Rounds::default();
            found
        };
        assert_eq!(due(Rounds::is_scan_due), [0, 60, 120]);
        assert_eq!(due(Rounds::is_retry_due)[..3], [0, 5, 10]);
    }
}

//! Work of the loop beside its passes: it prunes old records, publishes progress, and ends gracefully.

use std::{sync::Arc, time::Duration};

use cketerm_clients::store::{Store, folders::AuditRetention};
use cketerm_model::{
    boot_time::Seconds,
    clock::Now,
    fence::Fence,
    stored::{keys::Folder, transaction::Change},
    time::after,
};
use cketerm_rules::{batches, decide::Decision, outcomes, publish, seen::Seen};
use tokio::task::AbortHandle;

use super::{Loop, TICK};
use crate::{lead::CandidacyOrder, preflight};

/// Time between two searches for history and audit records to prune.
const PRUNE: Seconds = Seconds::new(600.0);
/// Limits of what is kept: the number of history records, the number of audit records of engines and of operators, and
/// their age in days (`docs/reliability.md`, "What is kept and for how long"; I48).
const KEPT: usize = 10_000;
const KEPT_AUDIT: AuditRetention = AuditRetention { engine: 10_000, people: 100_000 };
const KEPT_DAYS: i64 = 90;
/// Time between two looks at the batches.
const BATCH_UPKEEP: Seconds = Seconds::new(20.0);
/// Number of records deleted in one transaction.
const DELETE_BATCH: usize = 64;
/// Time between two writes of progress.
const PUBLISH: Seconds = Seconds::new(0.5);
/// Time that a graceful end waits for commands (SAF-7).
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a graceful end without another engine waits for hosts between off and on (SAF-7).
const POWER_CYCLES_TIMEOUT: Duration = Duration::from_mins(1);
/// Time that a graceful end waits for etcd to revoke the lease (SAF-7).
const REVOKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest duration of a graceful end. Everything that waits for one must wait longer: the unit file's
/// `TimeoutStopSec`, and a console that is stopped.
pub const LONGEST_END: Duration =
    Duration::from_secs(COMMANDS_TIMEOUT.as_secs() + POWER_CYCLES_TIMEOUT.as_secs() + REVOKE_TIMEOUT.as_secs());

/// Deletes these keys while this engine leads. Returns false if some of them are left.
async fn forget(store: &Store, fence: &Fence, keys: &[String]) -> bool {
    for some in keys.chunks(DELETE_BATCH) {
        let Ok(permit) = fence.permit_record() else { return false };
        if let Err(e) = store.commit(&permit, Change { deletes: some.to_vec(), ..Change::default() }).await {
            tracing::debug!(error = %e, "old records not deleted");
            return false;
        }
    }
    true
}

impl Loop {
    /// Prunes old history and audit records. Attempts are never pruned (I38).
    pub(super) fn prune(&mut self, now: Now) {
        let at = now.boot;
        let Some(leader) = &self.leader else { return };
        if at < self.next_prune {
            return;
        }
        self.next_prune = at + PRUNE;
        let (store, fence) = (self.store.clone(), leader.fence.clone());
        let before = after(now.wall, -KEPT_DAYS * 86_400);
        let prune_progress = std::sync::Arc::clone(&self.prune_progress);
        cketerm_runtime::tasks::spawn(async move {
            let mut prune_progress = prune_progress.lock().await;
            for folder in [Folder::Audit, Folder::History] {
                let walk = prune_progress.entry(store.keys().folder(folder)).or_default();
                walk.count_again();
                loop {
                    let outdated = match folder {
                        Folder::Audit => store.outdated_audit(KEPT_AUDIT, before, walk).await,
                        Folder::History | Folder::Records => store.outdated_history(KEPT, before, walk).await,
                    };
                    match outdated {
                        Ok(keys) if !keys.is_empty() && forget(&store, &fence, &keys).await => {}
                        Ok(_) => break,
                        Err(e) => {
                            tracing::warn!(error = %e, "old records not pruned; the next round tries again");
                            break;
                        }
                    }
                }
            }
        });
    }

    /// Folds records of ended entries into their batches, and removes batches that ended long ago (STO-65, STO-66).
    pub(super) fn keep_batches(&mut self, now: Now) {
        let at = now.boot;
        let Some(leader) = &self.leader else { return };
        if at < self.next_batch_upkeep {
            return;
        }
        self.next_batch_upkeep = at + BATCH_UPKEEP;
        let mut changes = batches::upkeep(self.store.keys(), &self.snap.store, now.wall);
        changes.extend(outcomes::upkeep(self.store.keys(), &self.snap.store));
        if changes.is_empty() {
            return;
        }
        let (store, fence) = (self.store.clone(), leader.fence.clone());
        cketerm_runtime::tasks::spawn(async move {
            for change in changes {
                let Ok(permit) = fence.permit_record() else { return };
                // A conflict is a pause or a new end: the next round folds what it finds then.
                if let Err(e) = store.commit(&permit, change).await {
                    tracing::debug!(error = %e, "batch not folded");
                }
            }
        });
    }

    pub(super) fn publish_progress(&mut self, decision: &Decision, now: Now) {
        let at = now.boot;
        let Some(leader) = &self.leader else { return };
        if at < self.next_publish {
            return;
        }
        let Some(change) = publish::changes(self.store.keys(), &self.snap, decision, now) else { return };
        self.next_publish = at + PUBLISH;
        let Ok(permit) = leader.fence.permit_record() else { return };
        let store = self.store.clone();
        // The pass does not wait for this write: progress is only displayed.
        cketerm_runtime::tasks::spawn(async move {
            if let Err(e) = store.commit(&permit, change).await {
                tracing::debug!(error = %e, "progress not written");
            }
        });
    }

    /// Ends gracefully: nothing new starts, commands and records get 10 s, outcomes are recorded, and the lease is
    /// revoked (SAF-7).
    pub(super) async fn shut_down(mut self) {
        if let Some(leader) = &self.leader {
            leader.actor.ending.store(true, std::sync::atomic::Ordering::SeqCst);
            self.effects.values().filter_map(|running| running.check.as_ref()).for_each(AbortHandle::abort);
            let deadline = tokio::time::sleep(COMMANDS_TIMEOUT);
            tokio::pin!(deadline);
            loop {
                tokio::select! {
                    biased;
                    () = &mut deadline => break,
                    done = self.tasks.join_next() => match done {
                        Some(done) => self.effect_completed(done),
                        None => break,
                    },
                    () = tokio::time::sleep(TICK) => self.publish_shutdown(),
                }
            }
            if let Some(actor) = self.leader.as_ref().map(|leader| Arc::clone(&leader.actor)) {
                let written = actor.write_waiting_records();
                tokio::pin!(written);
                loop {
                    tokio::select! {
                        biased;
                        () = &mut deadline => break,
                        () = &mut written => break,
                        () = tokio::time::sleep(TICK) => self.publish_shutdown(),
                    }
                }
            }
            // If another engine is there, the next leader finishes these power cycles, as after a crash, whatever the
            // policy is.
            let alone = !preflight::has_other_engine(&self.live.borrow(), self.snap.engine.lease);
            if let Some(leader) = self.leader.take().filter(|_| alone) {
                let finished = leader.metal3.finish(POWER_CYCLES_TIMEOUT);
                tokio::pin!(finished);
                loop {
                    tokio::select! {
                        biased;
                        () = &mut finished => break,
                        () = tokio::time::sleep(TICK) => self.publish_shutdown(),
                    }
                }
            }
        }
        self.heartbeat.beat();
        if let Some(mut running_campaign) = self.running_campaign.take() {
            running_campaign.ask(CandidacyOrder::Resign);
            let ended = async { while running_campaign.events.recv().await.is_some() {} };
            let _ = tokio::time::timeout(REVOKE_TIMEOUT, ended).await;
        }
    }

    /// Publishes a snapshot while nothing is decided any more, so that health probes see a living engine.
    fn publish_shutdown(&mut self) {
        self.heartbeat.beat();
        let now = self.look();
        let snapshot = self.snap.clone();
        self.seen_sender.send_modify(|seen| *seen = Arc::new(Seen { snapshot, now, ..Seen::clone(seen) }));
    }
}

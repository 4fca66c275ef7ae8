//! Operators' writes to batches: pause, resume and cancel, compared, each with its audit record in the same transaction
//! (STO-62, STO-63).

use std::collections::BTreeSet;

use cketerm_model::{
    batch::{Batch, BatchId, Paused},
    entry::{EntryId, QueueKind},
    fence::Person,
    reboot::RebootEntry,
    repair::RepairEntry,
    stored::leadership::LeaderGuard,
};
use etcd_client::{Compare, CompareOp, TxnOp};

use super::{
    connect::Store,
    error::StoreError,
    leadership::compare,
    operator::{AuditNote, WriteOutcome, json},
    queue::{MAX_CONFLICTS, cancelled},
    repairs::deleted,
};

impl Store {
    /// Pauses a batch. A paused batch stays as it is, with the first pause. It is written only while this leader leads.
    pub async fn pause_batch(
        &self,
        id: BatchId,
        person: &Person,
        reason: Option<&str>,
        under: &LeaderGuard,
    ) -> Result<(), StoreError> {
        let (at, reason_text) = (self.clock().wall(), reason.map(str::to_owned));
        let paused = Paused { who: person.who().clone(), at, reason: reason_text };
        let change =
            |batch: &Batch| batch.paused.is_none().then(|| Batch { paused: Some(paused.clone()), ..batch.clone() });
        self.change_batch(id, ("batch pause", "paused"), person, reason, Some(under), change).await
    }

    /// Ends the pause of a batch. A batch that is not paused stays as it is.
    pub async fn resume_batch(&self, id: BatchId, person: &Person, reason: Option<&str>) -> Result<(), StoreError> {
        let change = |batch: &Batch| batch.paused.is_some().then(|| Batch { paused: None, ..batch.clone() });
        self.change_batch(id, ("batch resume", "resumed"), person, reason, None, change).await
    }

    async fn change_batch(
        &self,
        id: BatchId,
        (what, result): (&str, &str),
        person: &Person,
        reason: Option<&str>,
        under: Option<&LeaderGuard>,
        change: impl Fn(&Batch) -> Option<Batch>,
    ) -> Result<(), StoreError> {
        let (key, on) = (self.keys().batch(id), format!("batch {id}"));
        for _ in 0..MAX_CONFLICTS {
            let raw = self.raw(&key).await?.ok_or_else(|| StoreError::NotFound { what: on.clone() })?;
            let batch: Batch = serde_json::from_str(&raw.text).map_err(|e| StoreError::Broken {
                key: key.clone(),
                cause: e.to_string(),
                remedy: "fix it with etcdctl, or remove it".to_owned(),
            })?;
            let Some(changed) = change(&batch) else { return Ok(()) };
            let mut compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, raw.mod_revision)];
            compares.extend(under.map(|under| compare(under, self.keys())));
            let ops = vec![TxnOp::put(key.as_str(), json(&changed), None)];
            let note = AuditNote { who: person.who(), what, on: &on, reason };
            if let WriteOutcome::At(_) = self.write(note, result, compares, ops).await? {
                return Ok(());
            }
            self.check_same_leader(under).await?;
        }
        Err(StoreError::Conflict { what: on })
    }

    /// Cancels the unfinished entries of a batch that are in this set, and returns their indexes: reboots as `cancel`
    /// does it, repairs as `delete`. Unreadable entries stay.
    pub async fn cancel_entries_of_batch(
        &self,
        queue: QueueKind,
        entries: &BTreeSet<EntryId>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, StoreError> {
        let note = ("batch cancel", person.who(), reason);
        match queue {
            QueueKind::Reboot => {
                let change = |e: &RebootEntry| cancelled(e).filter(|_| entries.contains(&EntryId::reboot(e.index)));
                self.change_entries(queue, None, note, change).await
            }
            QueueKind::Repair => {
                let change = |e: &RepairEntry| {
                    deleted(e).filter(|_| e.unfinished() && entries.contains(&EntryId::repair(e.index)))
                };
                self.change_entries(queue, None, note, change).await
            }
        }
    }
}

//! Operators' writes to batches: pause, resume and cancel, compared, each with its audit record in the same transaction
//! (STO-62, STO-63).

use std::collections::BTreeSet;

use cketerm_model::{
    batch::{Batch, BatchId, Cancelled, Paused},
    entry::{EntryId, QueueKind},
    fence::Person,
    reboot::RebootEntry,
    repair::RepairEntry,
    stored::leadership::LeaderGuard,
};
use etcd_client::{Compare, CompareOp, GetOptions, TxnOp};

use super::{
    connect::Store,
    error::StoreError,
    leadership::compare,
    operator::{AuditNote, WriteOutcome, json},
    queue::MAX_CONFLICTS,
};

/// Mark of an operator on a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchMark<'a> {
    /// Pause: its queued entries do not start. It is written only while this leader leads.
    Paused(&'a LeaderGuard),
    /// Cancellation: an enqueue that still runs stops. With the revision at which the operator saw the batch, as for
    /// [`Store::resume_batch`].
    Cancelled(Option<i64>),
}

impl Store {
    /// Writes an operator's mark on a batch: its pause or its cancellation. A batch that has this mark stays as it is.
    pub async fn mark_batch(
        &self,
        id: BatchId,
        mark: BatchMark<'_>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let (who, at, why) = (person.who(), self.clock().wall(), reason.map(str::to_owned));
        let (shown, under, note) = match mark {
            BatchMark::Paused(under) => (None, Some(under), ("batch pause", "paused")),
            BatchMark::Cancelled(shown) => (shown, None, ("batch cancel", "no entry is added any more")),
        };
        let change = |batch: &Batch| {
            let (who, reason) = (who.clone(), why.clone());
            match mark {
                BatchMark::Paused(_) if batch.paused.is_none() => {
                    Some(Batch { paused: Some(Paused { who, at, reason }), ..batch.clone() })
                }
                BatchMark::Cancelled(_) if batch.cancelled.is_none() => {
                    Some(Batch { cancelled: Some(Cancelled { who, at, reason }), ..batch.clone() })
                }
                BatchMark::Paused(_) | BatchMark::Cancelled(_) => None,
            }
        };
        self.change_batch((id, shown), note, person, reason, under, change).await
    }

    /// Ends the pause of a batch. A batch that is not paused stays as it is. `shown`: revision at which the operator saw
    /// the batch; if its members or its state are others now, that is a conflict.
    pub async fn resume_batch(
        &self,
        id: BatchId,
        shown: Option<i64>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let change = |batch: &Batch| batch.paused.is_some().then(|| Batch { paused: None, ..batch.clone() });
        self.change_batch((id, shown), ("batch resume", "resumed"), person, reason, None, change).await
    }

    async fn change_batch(
        &self,
        (id, shown): (BatchId, Option<i64>),
        (what, result): (&str, &str),
        person: &Person,
        reason: Option<&str>,
        under: Option<&LeaderGuard>,
        change: impl Fn(&Batch) -> Option<Batch>,
    ) -> Result<(), StoreError> {
        let (key, on) = (self.keys().batch(id), format!("batch {id}"));
        for _ in 0..MAX_CONFLICTS {
            let raw = self.raw(&key).await?.ok_or_else(|| StoreError::NotFound { what: on.clone() })?;
            let batch = read_batch(&key, &raw.text)?;
            if let Some(shown) = shown.filter(|shown| *shown != raw.mod_revision)
                && !self.batch_at(&key, shown).await.is_some_and(|before| before.matches(&batch))
            {
                break;
            }
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

    /// Returns a batch as it was at a revision. `None` if etcd no longer has it, or does not answer.
    async fn batch_at(&self, key: &str, revision: i64) -> Option<Batch> {
        let got = self.get(key, GetOptions::new().with_revision(revision)).await.ok()?;
        serde_json::from_slice(got.kvs().first()?.value()).ok()
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
        match queue {
            QueueKind::Reboot => {
                let wanted = |e: &RebootEntry| entries.contains(&EntryId::reboot(e.index));
                self.withdraw_all("batch cancel", person, reason, wanted).await
            }
            QueueKind::Repair => {
                let wanted = |e: &RepairEntry| e.unfinished() && entries.contains(&EntryId::repair(e.index));
                self.withdraw_all("batch cancel", person, reason, wanted).await
            }
            // it has no batches
            QueueKind::Maintenance => Ok(Vec::new()),
        }
    }
}

/// Returns the batch that a key holds; an error that names the key and the remedy if it cannot be read.
pub(super) fn read_batch(key: &str, text: &str) -> Result<Batch, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Broken {
        key: key.to_owned(),
        cause: e.to_string(),
        remedy: "fix it with etcdctl, or remove it".to_owned(),
    })
}

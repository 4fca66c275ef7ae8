//! Cancels of reboots: each under a leader other than cketerm with a record, from which it is repeated if CKE's write
//! overwrites it, and the repeat itself (STO-67 to STO-69).

use std::collections::BTreeSet;

use cketerm_model::{
    acceptance::LeaderKind,
    cketerm_records::{AcceptedCancel, REPEATED_CANCEL},
    entry::{EntryId, QueueKind, Stored},
    fence::Person,
    reboot::{RebootEntry, RebootStatus},
    stored::leadership::LeaderGuard,
};
use etcd_client::{Compare, CompareOp, KeyValue, TxnOp};

use super::{
    connect::Store,
    error::StoreError,
    operator::{AuditNote, WriteOutcome, json},
    queue::EntryChange,
};

/// Number of cancels that are tied to the present leader. A further one is written with records.
const MAX_TIED: usize = 3;

/// Reason in the audit record of a repeated cancel.
const LOST: &str = "CKE's write had lost it";

/// Whether a cancel writes records.
#[derive(Clone, Debug)]
enum Records {
    /// It does: the leader may overwrite the cancel.
    Written,
    /// It does not, and the write is tied to this leader: a cketerm, which compares.
    None(LeaderGuard),
    /// etcd does not let this user write them.
    Denied,
}

impl Store {
    /// Cancels one reboot; `expect` is the ModRevision that the operator saw, if any. A cancelled entry stays as it is.
    pub async fn cancel_reboot(
        &self,
        index: u64,
        expect: Option<i64>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let note = ("reboot cancel", person.who(), reason);
        let describe = |entry: &RebootEntry| format!("cancelled {} ({})", entry.node, entry.status);
        let mut tries = 0;
        let mut records = self.records().await;
        loop {
            let change = |kv: &KeyValue, entry: &RebootEntry| self.cancelled(&records, (kv, entry), person, reason);
            let under = records.guard();
            let ended = self.change_entry_with(EntryId::reboot(index), expect, note, under, change, describe).await;
            let Err(failed) = ended else { return Ok(()) };
            records = self.other_records(&records, failed, &mut tries).await?;
        }
    }

    /// Cancels every reboot in the queue and returns the indexes that it cancelled. Unreadable entries stay.
    pub async fn cancel_all_reboots(&self, person: &Person, reason: Option<&str>) -> Result<Vec<u64>, StoreError> {
        self.cancel_reboots("reboot cancel-all", person, reason, |_| true).await
    }

    /// Cancels the reboots of a batch that are in this set, and returns their indexes.
    pub(super) async fn cancel_reboots_of_batch(
        &self,
        entries: &BTreeSet<EntryId>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, StoreError> {
        self.cancel_reboots("batch cancel", person, reason, |index| entries.contains(&EntryId::reboot(index))).await
    }

    async fn cancel_reboots(
        &self,
        what: &str,
        person: &Person,
        reason: Option<&str>,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<Vec<u64>, StoreError> {
        let note = (what, person.who(), reason);
        let mut tries = 0;
        let mut records = self.records().await;
        let mut cancelled = Vec::new();
        loop {
            let change = |kv: &KeyValue, entry: &RebootEntry| {
                let change = self.cancelled(&records, (kv, entry), person, reason);
                change.filter(|_| wanted(entry.index))
            };
            let under = records.guard();
            let ended = self.change_entries_with(QueueKind::Reboot, None, note, under, &mut cancelled, change).await;
            let Err(failed) = ended else { break };
            records = self.other_records(&records, failed, &mut tries).await?;
        }
        cancelled.sort_unstable();
        cancelled.dedup();
        Ok(cancelled)
    }

    /// Decides whether the cancels that follow write records. A cancel is never refused because the leader is unknown.
    async fn records(&self) -> Records {
        match self.leadership().await {
            Ok(leadership) => match leadership.lead {
                LeaderKind::Cketerm => Records::None(leadership.under),
                LeaderKind::Yielding | LeaderKind::Cke | LeaderKind::Nobody | LeaderKind::Unknown => Records::Written,
            },
            Err(_) => Records::Written,
        }
    }

    /// Decides the same again after a failed write, or returns its error.
    async fn other_records(
        &self,
        records: &Records,
        failed: StoreError,
        tries: &mut usize,
    ) -> Result<Records, StoreError> {
        *tries += 1;
        match (records, failed) {
            (Records::None(_), StoreError::LeaderChanged) if *tries < MAX_TIED => Ok(self.records().await),
            (Records::None(_), StoreError::LeaderChanged) => Ok(Records::Written),
            // A role of an older version may cancel entries, not write these records.
            (Records::Written, StoreError::Denied { .. }) => Ok(Records::Denied),
            (Records::Written | Records::None(_) | Records::Denied, failed) => Err(failed),
        }
    }

    /// Cancels an entry as `ckecli reboot-queue cancel` writes it: only the status changes. Returns `None` if it is
    /// cancelled already.
    fn cancelled(
        &self,
        records: &Records,
        (kv, entry): (&KeyValue, &RebootEntry),
        person: &Person,
        reason: Option<&str>,
    ) -> Option<EntryChange<RebootEntry>> {
        let beside = match records {
            Records::None(_) | Records::Denied => None,
            Records::Written => {
                let cancel = AcceptedCancel {
                    who: person.who().clone(),
                    at: self.clock().wall(),
                    reason: reason.map(str::to_owned),
                    address: entry.node.clone(),
                    created: kv.create_revision(),
                };
                Some(TxnOp::put(self.keys().cancel(EntryId::reboot(entry.index)), json(&cancel), None))
            }
        };
        let open = entry.status != RebootStatus::Cancelled;
        open.then(|| EntryChange { entry: RebootEntry { status: RebootStatus::Cancelled, ..entry.clone() }, beside })
    }

    /// Cancels an entry again if a write of CKE has overwritten its cancel. Only the entry that the cancel was accepted
    /// for is written, and only as it was read. `record`: ModRevision of the record in etcd; the write needs it
    /// unchanged. Returns whether the entry was cancelled again.
    pub async fn repeat_cancel(
        &self,
        index: u64,
        cancel: &AcceptedCancel,
        record: Option<i64>,
    ) -> Result<bool, StoreError> {
        let id = EntryId::reboot(index);
        let Some((entry, kv)) = self.entry_if_there::<RebootEntry>(id).await? else { return Ok(false) };
        let same = kv.create_revision() == cancel.created && entry.node == cancel.address;
        if !same || entry.status == RebootStatus::Cancelled {
            return Ok(false);
        }
        let key = self.keys().entry(id);
        let mut compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, kv.mod_revision())];
        compares.extend(record.map(|at| Compare::mod_revision(self.keys().cancel(id), CompareOp::Equal, at)));
        let result = format!("cancelled {} again ({})", entry.node, entry.status);
        let ops = vec![TxnOp::put(key, json(&RebootEntry { status: RebootStatus::Cancelled, ..entry }), None)];
        let (person, on) = (Person::asked(cancel), id.to_string());
        let note = AuditNote::new(&person, REPEATED_CANCEL, &on, Some(LOST));
        Ok(matches!(self.write(note, &result, compares, ops).await?, WriteOutcome::At(_)))
    }

    /// Removes the record of a cancel whose entry is gone. While the entry exists, or if the record has changed, nothing
    /// is removed.
    pub async fn forget_cancel(&self, id: EntryId, stored: &Stored<AcceptedCancel>) -> Result<(), StoreError> {
        let Some(cancel) = stored.get() else { return Ok(()) };
        let compares = vec![
            Compare::create_revision(self.keys().entry(id), CompareOp::NotEqual, cancel.created),
            Compare::mod_revision(stored.key.as_str(), CompareOp::Equal, stored.mod_revision),
        ];
        match self.transact(compares, vec![TxnOp::delete(stored.key.as_str(), None)], Vec::new()).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.store_error(&format!("remove the record of the cancel of {id}"), failure).await),
        }
    }

    /// Returns the CreateRevision and the machine of each of these entries that exist and can be read.
    pub async fn created_reboots(&self, indexes: &[u64]) -> Result<Vec<(u64, RebootEntry, i64)>, StoreError> {
        let mut found = Vec::new();
        for kv in self.entries_of(QueueKind::Reboot, None).await? {
            let Ok(entry) = serde_json::from_slice::<RebootEntry>(kv.value()) else { continue };
            if indexes.contains(&entry.index) {
                found.push((entry.index, entry, kv.create_revision()));
            }
        }
        Ok(found)
    }
}

impl Records {
    fn guard(&self) -> Option<LeaderGuard> {
        match self {
            Self::None(under) => Some(under.clone()),
            Self::Written | Self::Denied => None,
        }
    }
}

//! Withdrawals of entries: cancels of reboots and deletions of repairs. Each under a leader other than cketerm has a
//! record, from which it is repeated if CKE's write overwrites it (STO-67 to STO-69).

use cketerm_model::{
    acceptance::LeaderKind,
    batch::BatchId,
    cketerm_records::{AcceptedCancel, EndKind, repeated},
    entry::{EntryId, QueueKind, Stored},
    fence::Person,
    names::Address,
    reboot::RebootEntry,
    repair::RepairEntry,
    stored::leadership::LeaderGuard,
    withdraw::Withdraw,
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
        self.withdraw::<RebootEntry>("reboot cancel", index, expect, person, reason).await
    }

    /// Cancels every reboot in the queue and returns the indexes that it cancelled. Unreadable entries stay.
    pub async fn cancel_all_reboots(&self, person: &Person, reason: Option<&str>) -> Result<Vec<u64>, StoreError> {
        self.withdraw_all::<RebootEntry>("reboot cancel-all", person, reason, |_| true).await
    }

    /// Withdraws one entry; `expect` is the ModRevision that the operator saw, if any. A withdrawn one stays as it is.
    pub(super) async fn withdraw<E: Withdraw>(
        &self,
        what: &str,
        index: u64,
        expect: Option<i64>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let (id, note) = (EntryId { queue: E::QUEUE, index }, (what, person.who(), reason));
        let mut tries = 0;
        let mut records = self.records().await;
        loop {
            let change = |kv: &KeyValue, entry: &E| self.withdrawn(&records, (kv, entry), person, reason);
            let under = records.guard();
            let ended = self.change_entry_with(id, expect, note, under, change, E::withdrawal).await;
            let Err(failed) = ended else { return Ok(()) };
            records = self.other_records(&records, failed, &mut tries).await?;
        }
    }

    /// Withdraws the entries of a queue that are wanted, and returns their indexes. Unreadable entries stay.
    pub(super) async fn withdraw_all<E: Withdraw>(
        &self,
        what: &str,
        person: &Person,
        reason: Option<&str>,
        wanted: impl Fn(&E) -> bool,
    ) -> Result<Vec<u64>, StoreError> {
        let note = (what, person.who(), reason);
        let mut tries = 0;
        let mut records = self.records().await;
        let mut withdrawn = Vec::new();
        loop {
            let change = |kv: &KeyValue, entry: &E| {
                let change = self.withdrawn(&records, (kv, entry), person, reason);
                change.filter(|_| wanted(entry))
            };
            let under = records.guard();
            let ended = self.change_entries_with(E::QUEUE, None, note, under, &mut withdrawn, change).await;
            let Err(failed) = ended else { break };
            records = self.other_records(&records, failed, &mut tries).await?;
        }
        withdrawn.sort_unstable();
        withdrawn.dedup();
        Ok(withdrawn)
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

    /// Withdraws an entry as `ckecli` writes it: only the mark changes. Returns `None` if it is withdrawn already.
    fn withdrawn<E: Withdraw>(
        &self,
        records: &Records,
        (kv, entry): (&KeyValue, &E),
        person: &Person,
        reason: Option<&str>,
    ) -> Option<EntryChange<E>> {
        let beside = match records {
            Records::None(_) | Records::Denied => None,
            Records::Written => {
                let cancel = AcceptedCancel {
                    who: person.who().clone(),
                    at: self.clock().wall(),
                    reason: reason.map(str::to_owned),
                    address: entry.address().clone(),
                    created: kv.create_revision(),
                    end: Some(entry.end()),
                };
                let id = EntryId { queue: E::QUEUE, index: entry.index() };
                Some(TxnOp::put(self.keys().cancel(id), json(&cancel), None))
            }
        };
        (!entry.is_withdrawn()).then(|| EntryChange { entry: entry.withdrawn(), beside })
    }

    /// Withdraws an entry again if a write of CKE has overwritten its withdrawal. Only the entry that the cancel was
    /// accepted for is written, and only as it was read. `record`: ModRevision of the record in etcd; the write needs it
    /// unchanged. Returns whether the entry was withdrawn again.
    pub async fn repeat_cancel(
        &self,
        id: EntryId,
        cancel: &AcceptedCancel,
        record: Option<i64>,
    ) -> Result<bool, StoreError> {
        match id.queue {
            QueueKind::Reboot => self.repeat::<RebootEntry>(id, cancel, record).await,
            QueueKind::Repair => self.repeat::<RepairEntry>(id, cancel, record).await,
            // its release is a write of its own, which no other program can lose
            QueueKind::Maintenance => Ok(false),
        }
    }

    async fn repeat<E: Withdraw>(
        &self,
        id: EntryId,
        cancel: &AcceptedCancel,
        record: Option<i64>,
    ) -> Result<bool, StoreError> {
        let Some((entry, kv)) = self.entry_if_there::<E>(id).await? else { return Ok(false) };
        let same = kv.create_revision() == cancel.created && *entry.address() == cancel.address;
        if !same || entry.is_withdrawn() {
            return Ok(false);
        }
        let key = self.keys().entry(id);
        let mut compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, kv.mod_revision())];
        compares.extend(record.map(|at| Compare::mod_revision(self.keys().cancel(id), CompareOp::Equal, at)));
        let result = format!("{} again", entry.withdrawal());
        let ops = vec![TxnOp::put(key, json(&entry.withdrawn()), None)];
        let (person, on) = (Person::asked(cancel), id.to_string());
        let note = AuditNote::new(&person, repeated(id.queue), &on, Some(LOST));
        Ok(matches!(self.write(note, &result, compares, ops).await?, WriteOutcome::At(_)))
    }

    /// Removes the record of a cancel whose entry is gone, and records the entry's end below its batch. While the entry
    /// exists, or if the record or the batch has changed, nothing is written. `end`: the batch, its ModRevision, the end.
    pub async fn forget_cancel(
        &self,
        id: EntryId,
        stored: &Stored<AcceptedCancel>,
        end: Option<(BatchId, i64, EndKind)>,
    ) -> Result<(), StoreError> {
        let Some(cancel) = stored.get() else { return Ok(()) };
        let compares = [
            Compare::create_revision(self.keys().entry(id), CompareOp::NotEqual, cancel.created),
            Compare::mod_revision(stored.key.as_str(), CompareOp::Equal, stored.mod_revision),
        ];
        let removal = TxnOp::delete(stored.key.as_str(), None);
        let mut written = (compares.to_vec(), vec![removal.clone()]);
        if let Some((batch, revision, end)) = end {
            let key = self.keys().batch_end(batch, id);
            written.0.push(Compare::mod_revision(self.keys().batch(batch), CompareOp::Equal, revision));
            written.0.push(Compare::mod_revision(key.as_str(), CompareOp::Equal, 0));
            written.1.push(TxnOp::put(key, json(&end), None));
        }
        let what = format!("remove the record of the cancel of {id}");
        let failure = match self.transact(written.0, written.1, Vec::new()).await {
            Ok(_) => return Ok(()),
            Err(failure) => self.store_error(&what, failure).await,
        };
        match failure {
            // a role of an older version may not write batches
            StoreError::Denied { .. } if end.is_some() => {
                match self.transact(compares.to_vec(), vec![removal], Vec::new()).await {
                    Ok(_) => Ok(()),
                    Err(failure) => Err(self.store_error(&what, failure).await),
                }
            }
            failure => Err(failure),
        }
    }

    /// Returns the machine and the CreateRevision of each of these entries that exist and can be read.
    pub async fn created(&self, queue: QueueKind, indexes: &[u64]) -> Result<Vec<(u64, Address, i64)>, StoreError> {
        match queue {
            QueueKind::Reboot => self.created_of::<RebootEntry>(indexes).await,
            QueueKind::Repair => self.created_of::<RepairEntry>(indexes).await,
            QueueKind::Maintenance => Ok(Vec::new()),
        }
    }

    async fn created_of<E: Withdraw>(&self, indexes: &[u64]) -> Result<Vec<(u64, Address, i64)>, StoreError> {
        let mut found = Vec::new();
        for kv in self.entries_of(E::QUEUE, None).await? {
            let Ok(entry) = serde_json::from_slice::<E>(kv.value()) else { continue };
            if indexes.contains(&entry.index()) {
                found.push((entry.index(), entry.address().clone(), kv.create_revision()));
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

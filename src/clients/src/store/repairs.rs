//! Operators' writes to the repair queue: enqueue, and the mark of deletion, both compared, each with its audit record
//! in the same transaction (REP-7 to REP-10; I27, I28, I29).

use cketerm_model::{
    cketerm_records::Request,
    entry::{EntryId, QueueKind},
    fence::Person,
    repair::RepairEntry,
};
use etcd_client::{Compare, CompareOp, TxnOp};

use super::{
    connect::Store,
    error::StoreError,
    operator::{AuditNote, WriteOutcome, json},
    queue::MAX_CONFLICTS,
};

/// Selection of entries for `delete-finished` and `delete-unfinished`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Succeeded and failed entries.
    Finished,
    /// Queued entries and those in progress.
    Unfinished,
}

impl Store {
    /// Queues one repair and returns its index. `entry` describes the repair; its index is assigned here.
    pub async fn add_repair(&self, person: &Person, entry: &RepairEntry, request: &Request) -> Result<u64, StoreError> {
        let index_key = self.keys().write_index(QueueKind::Repair);
        for _ in 0..=MAX_CONFLICTS {
            let next = self.next_index(QueueKind::Repair).await?;
            let id = EntryId::repair(next.index);
            let entry = RepairEntry { index: next.index, ..entry.clone() };
            let after = next.index.saturating_add(1);
            let compares = vec![
                Compare::mod_revision(index_key.as_str(), CompareOp::Equal, next.mod_revision),
                Compare::create_revision(self.keys().entry(id), CompareOp::Equal, 0),
            ];
            let ops = vec![
                TxnOp::put(index_key.as_str(), after.to_string(), None),
                TxnOp::put(self.keys().entry(id), json(&entry), None),
                TxnOp::put(self.keys().request(id), json(request), None),
            ];
            let on = format!("{} {} {}", entry.operation, entry.machine_type, entry.address);
            let note = AuditNote { who: person.who(), what: "repair add", on: &on, reason: request.reason.as_deref() };
            if let WriteOutcome::At(_) = self.write(note, &format!("entry {}", next.index), compares, ops).await? {
                return Ok(next.index);
            }
        }
        Err(StoreError::Conflict { what: index_key })
    }

    /// Marks one repair as deleted, whatever its state; the leader removes it. `expect` is the ModRevision that the
    /// operator saw, if any. A marked entry stays as it is.
    pub async fn delete_repair(
        &self,
        index: u64,
        expect: Option<i64>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let who = person.who();
        let describe =
            |entry: &RepairEntry| format!("deleted {} ({} {})", entry.address, entry.operation, entry.status);
        self.change_entry(EntryId::repair(index), expect, ("repair delete", who, reason), deleted, describe).await
    }

    /// Marks all finished or all unfinished repairs as deleted; returns the indexes that it marked. Unreadable entries
    /// stay.
    pub async fn delete_repairs(
        &self,
        which: Which,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, StoreError> {
        let who = person.who();
        let what = match which {
            Which::Finished => "repair delete-finished",
            Which::Unfinished => "repair delete-unfinished",
        };
        let matches = |entry: &RepairEntry| entry.finished() == (which == Which::Finished);
        let change = |entry: &RepairEntry| deleted(entry).filter(|_| matches(entry));
        self.change_entries(QueueKind::Repair, None, (what, who, reason), change).await
    }
}

/// Marks an entry as `ckecli repair-queue delete` does: only the mark changes. Returns `None` if it is marked already.
fn deleted(entry: &RepairEntry) -> Option<RepairEntry> {
    (!entry.deleted).then(|| RepairEntry { deleted: true, ..entry.clone() })
}

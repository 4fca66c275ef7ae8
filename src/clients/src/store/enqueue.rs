//! Enqueue of an operator: entries, their requests and their batch, compared, with an audit record in each transaction
//! (STO-44, STO-61; I27, I28, I29).

use std::collections::BTreeMap;

use cketerm_model::{
    batch::{Batch, BatchId},
    cketerm_records::Request,
    entry::{EntryId, QueueKind, format_indexes},
    fault,
    fence::Person,
    names::Address,
    reboot::RebootEntry,
    repair::RepairEntry,
    stored::{keys::KeyKind, limits::MAX_OPS},
};
use etcd_client::{Compare, CompareOp, GetOptions, SortOrder, SortTarget, TxnOp};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    answer::found_key,
    batches::read_batch,
    connect::Store,
    error::StoreError,
    operator::{AuditNote, WriteOutcome, json},
    queue::MAX_CONFLICTS,
};

/// Number of entries in one transaction. Each needs two operations, for the entry and its request, beside the index, the
/// batch and the audit record.
const ENTRIES_AT_ONCE: usize = (MAX_OPS - 3) / 2;

/// Result of an enqueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    /// Indexes of the new entries, in the order of the machines.
    pub indexes: Vec<u64>,
    /// Their batch; none if nothing was added, or if etcd lets this user write no batch.
    pub batch: Option<BatchId>,
}

/// Text of an enqueue for its audit record.
pub(super) struct Note<'a> {
    pub person: &'a Person,
    pub what: &'static str,
    pub on: String,
}

/// Position of an enqueue of several transactions.
struct Cursor {
    /// The next free index and the ModRevision at which it was read; none = it must be read.
    next: Option<NextIndex>,
    id: BatchId,
    /// The batch with the entries that were added so far, and its ModRevision; none = it is not written yet.
    batch: Option<(Batch, i64)>,
    /// Whether etcd refused to write the batch. Roles that were made for version 0.1 lack this right, and entries have to
    /// be queued nevertheless.
    denied: bool,
}

impl Cursor {
    fn at(time: Timestamp) -> Self {
        Self { next: None, id: BatchId::at(time), batch: None, denied: false }
    }
}

/// The next free index and the ModRevision at which it was read.
#[derive(Clone, Copy, Debug)]
struct NextIndex {
    index: u64,
    mod_revision: i64,
}

impl Store {
    /// Queues one reboot for each address, in this order, as one batch. `uids` holds the Node's UID by address, if
    /// Kubernetes was queried. Writes nothing if there is no address. Returns [`StoreError::Partial`] if it had to stop
    /// between two transactions: the batch then holds the entries that were added.
    pub async fn add_reboots(
        &self,
        person: &Person,
        addresses: &[Address],
        request: &Request,
        uids: &BTreeMap<Address, String>,
    ) -> Result<Enqueued, StoreError> {
        let asked = addresses.len();
        let mut added: Vec<u64> = Vec::with_capacity(asked);
        let mut cursor = Cursor::at(self.clock().wall());
        let mut conflicts = 0;
        while added.len() < asked {
            let some = &addresses[added.len()..asked.min(added.len() + ENTRIES_AT_ONCE)];
            let entries = some.iter().map(|address| {
                let request = Request { node_uid: uids.get(address).cloned(), ..request.clone() };
                (move |index| RebootEntry::queued(index, address), request)
            });
            let note = Note { person, what: "reboot add", on: some.join(" ") };
            match self
                .add_entries(QueueKind::Reboot, &note, entries.collect(), asked as u64, &mut cursor, Vec::new())
                .await
            {
                Ok(Some(indexes)) => {
                    added.extend(indexes);
                    conflicts = 0;
                }
                Ok(None) if conflicts < MAX_CONFLICTS => conflicts += 1,
                Ok(None) => return Err(StoreError::Conflict { what: self.keys().write_index(QueueKind::Reboot) }),
                // Perhaps the batch is all that etcd refused. One that has entries already is not left.
                Err(StoreError::Denied { .. }) if !cursor.denied && added.is_empty() => cursor.denied = true,
                Err(cause) if added.is_empty() => return Err(cause),
                Err(cause) => {
                    return Err(StoreError::Partial { done: added.len(), all: asked, cause: Box::new(cause) });
                }
            }
        }
        let batch = cursor.batch.map(|_| cursor.id);
        Ok(Enqueued { indexes: added, batch })
    }

    /// Queues one repair. `entry` describes the repair; its index is assigned here. If the request names a batch, the
    /// entry joins it; else it is a batch of its own.
    pub async fn add_repair(
        &self,
        person: &Person,
        entry: &RepairEntry,
        request: &Request,
    ) -> Result<Enqueued, StoreError> {
        let on = format!("{} {} {}", entry.operation, entry.machine_type, entry.address);
        let note = Note { person, what: "repair add", on };
        let mut cursor = Cursor::at(self.clock().wall());
        if let Some(id) = request.batch {
            cursor.id = id;
            let joined = self.open_batch(id).await?;
            cursor.batch = Some(joined.ok_or_else(|| StoreError::NotFound { what: format!("batch {id}") })?);
        }
        for _ in 0..=MAX_CONFLICTS {
            let entries = vec![(|index| RepairEntry { index, ..entry.clone() }, request.clone())];
            let asked = cursor.batch.as_ref().map_or(1, |(batch, _)| batch.asked.saturating_add(1));
            match self.add_entries(QueueKind::Repair, &note, entries, asked, &mut cursor, Vec::new()).await {
                Ok(Some(indexes)) => {
                    let batch = cursor.batch.map(|_| cursor.id);
                    return Ok(Enqueued { indexes, batch });
                }
                Ok(None) => {}
                Err(StoreError::Denied { .. }) if !cursor.denied => (cursor.denied, cursor.batch) = (true, None),
                Err(cause) => return Err(cause),
            }
        }
        Err(StoreError::Conflict { what: self.keys().write_index(QueueKind::Repair) })
    }

    /// Returns the maximum number of entries of [`Store::add_without_batch`].
    pub(super) fn entries_at_once() -> usize {
        ENTRIES_AT_ONCE
    }

    /// Adds entries that belong to no batch, if `further` holds too. Returns `None` if another writer was faster, or it does not hold.
    pub(super) async fn add_without_batch<E: Serialize>(
        &self,
        queue: QueueKind,
        note: &Note<'_>,
        entries: Vec<(impl Fn(u64) -> E, Request)>,
        further: Vec<Compare>,
    ) -> Result<Option<Vec<u64>>, StoreError> {
        let mut cursor = Cursor { denied: true, ..Cursor::at(self.clock().wall()) };
        let asked = entries.len() as u64;
        self.add_entries(queue, note, entries, asked, &mut cursor, further).await
    }

    /// Runs one transaction of an enqueue of `asked` entries; returns `None` if another writer was faster.
    async fn add_entries<E: Serialize>(
        &self,
        queue: QueueKind,
        note: &Note<'_>,
        entries: Vec<(impl Fn(u64) -> E, Request)>,
        asked: u64,
        cursor: &mut Cursor,
        further: Vec<Compare>,
    ) -> Result<Option<Vec<u64>>, StoreError> {
        let from = match cursor.next {
            Some(next) => next,
            None => self.next_index(queue).await?,
        };
        let count = entries.len() as u64;
        let indexes: Vec<u64> = (from.index..).take(entries.len()).collect();
        let after = from.index.saturating_add(count);
        let (index_key, batch_key) = (self.keys().write_index(queue), self.keys().batch(cursor.id));
        let Some(reason) = entries.first().map(|(_, request)| request.reason.clone()) else {
            return Ok(Some(Vec::new()));
        };
        let (mut batch, batch_revision) = if let Some(known) = &cursor.batch {
            known.clone()
        } else {
            let (who, at) = (note.person.who().clone(), self.clock().wall());
            (Batch::new(queue, who, at, reason.clone(), asked), 0)
        };
        batch.asked = asked;
        batch.added = batch.added.saturating_add(count);
        batch.ended = None;
        let mut compares = further;
        compares.push(Compare::mod_revision(index_key.as_str(), CompareOp::Equal, from.mod_revision));
        let mut ops = vec![TxnOp::put(index_key, after.to_string(), None)];
        if !cursor.denied {
            compares.push(Compare::mod_revision(batch_key.as_str(), CompareOp::Equal, batch_revision));
            ops.push(TxnOp::put(batch_key.as_str(), json(&batch), None));
        }
        for (&index, (entry, request)) in indexes.iter().zip(entries) {
            let id = EntryId { queue, index };
            let request = Request { batch: (!cursor.denied).then_some(cursor.id), ..request };
            compares.push(Compare::create_revision(self.keys().entry(id), CompareOp::Equal, 0));
            ops.push(TxnOp::put(self.keys().entry(id), json(&entry(index)), None));
            ops.push(TxnOp::put(self.keys().request(id), json(&request), None));
        }
        let which = if queue == QueueKind::Repair { "entry" } else { "entries" };
        let result = format!("{which} {}", format_indexes(&indexes));
        let note = AuditNote { who: note.person.who(), what: note.what, on: &note.on, reason: reason.as_deref() };
        match self.write(note, &result, compares, ops).await? {
            WriteOutcome::At(mod_revision) => {
                cursor.next = Some(NextIndex { index: after, mod_revision });
                cursor.batch = (!cursor.denied).then_some((batch, mod_revision));
                Ok(Some(indexes))
            }
            WriteOutcome::Conflict => {
                cursor.next = None;
                self.read_batch_again(cursor).await?;
                Ok(None)
            }
        }
    }

    /// Prepares a further try after a conflict: somebody may have paused or cancelled the batch meanwhile, or another
    /// batch has taken its id.
    async fn read_batch_again(&self, cursor: &mut Cursor) -> Result<(), StoreError> {
        if cursor.denied {
            return Ok(());
        }
        let Some((_, revision)) = &mut cursor.batch else {
            cursor.id = cursor.id.next().max(BatchId::at(self.clock().wall()));
            return Ok(());
        };
        match self.open_batch(cursor.id).await? {
            Some(found) => cursor.batch = Some(found),
            // A batch that was removed is written again, with what is known of it.
            None => *revision = 0,
        }
        Ok(())
    }

    /// Returns a batch and its ModRevision, or `None` if it does not exist. It is an error if no entry may join it: it
    /// was cancelled, or it cannot be read and may be paused.
    async fn open_batch(&self, id: BatchId) -> Result<Option<(Batch, i64)>, StoreError> {
        let key = self.keys().batch(id);
        let Some(raw) = self.raw(&key).await? else { return Ok(None) };
        let batch = read_batch(&key, &raw.text)?;
        let cancelled = batch.cancelled.as_ref();
        fault!(EnqueueOutlivesCancel => cancelled = None);
        match cancelled {
            None => Ok(Some((batch, raw.mod_revision))),
            Some(cancelled) => Err(StoreError::NotAllowed(format!("batch {id} was {cancelled}"))),
        }
    }

    /// Returns the next index: `write-index`, or the index after the last entry if that is greater. An index is never
    /// used again (I29, STO-9).
    async fn next_index(&self, queue: QueueKind) -> Result<NextIndex, StoreError> {
        let key = self.keys().write_index(queue);
        let last = GetOptions::new()
            .with_prefix()
            .with_keys_only()
            .with_sort(SortTarget::Key, SortOrder::Descend)
            .with_limit(1);
        let reads = vec![(key.clone(), GetOptions::new()), (self.keys().entries_prefix(queue), last)];
        let answer = match self.get_all(reads).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.store_error(&format!("read {key}"), failure).await),
        };
        let mut found = answer.op_responses().into_iter().map(found_key);
        let (stored, last) = (found.next().flatten(), found.next().flatten());
        let last = last.and_then(|kv| match self.keys().parse(kv.key()) {
            Some(KeyKind::Entry(_, Ok(index))) => Some(index),
            _ => None,
        });
        let behind_last = last.map_or(0, |index| index.saturating_add(1));
        let Some(stored) = stored else { return Ok(NextIndex { index: behind_last, mod_revision: 0 }) };
        let text = String::from_utf8_lossy(stored.value()).into_owned();
        let index: u64 = text.trim().parse().map_err(|_| StoreError::Broken {
            key: key.clone(),
            cause: format!("{text:?} is not a number"),
            remedy: format!("write the next free index there: etcdctl put {key} {behind_last}"),
        })?;
        Ok(NextIndex { index: index.max(behind_last), mod_revision: stored.mod_revision() })
    }
}

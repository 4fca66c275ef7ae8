//! CKE's operation records of the engine's work, so that `ckecli history` is complete (STO-17, STO-20, STO-21).

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use cketerm_clients::store::commit::CommitError;
use cketerm_model::{
    record::{MAX_RECORDS, Record},
    stored::transaction::{Change, Put},
};
use jiff::Timestamp;

use super::Actor;

/// Number of reads of the record counter while another writer, such as a CKE that has just led, changes it.
const TRIES: usize = 5;
/// Number of the newest records that a new leader reads.
const NEWEST: u32 = 1000;
/// Most records of one transaction. Each is one put and one deletion.
const RECORDS_AT_ONCE: usize = 32;

/// Records that wait to be written. All share one counter, so they are written in turn; those that wait at the same time
/// are written together.
#[derive(Default)]
pub(crate) struct WaitingRecords {
    waiting: Mutex<VecDeque<Finished>>,
    turn: tokio::sync::Mutex<()>,
}

/// A finished operation.
struct Finished {
    operation: &'static str,
    target: String,
    error: String,
    start: Timestamp,
    end: Timestamp,
}

impl WaitingRecords {
    fn add(&self, finished: Finished) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(finished);
    }

    /// Takes the oldest ones.
    fn take(&self) -> Vec<Finished> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(RECORDS_AT_ONCE);
        waiting.drain(..count).collect()
    }
}

impl Actor {
    /// Writes a record of a finished operation in the background, so that it never delays the work.
    pub(super) fn write_cke_record(&self, operation: &'static str, target: &str, error: &str, start: Timestamp) {
        let (target, error) = (target.to_owned(), error.to_owned());
        self.cke_records.add(Finished { operation, target, error, start, end: self.steady.now().wall });
        let actor = self.clone();
        cketerm_runtime::tasks::spawn(async move {
            let _turn = actor.cke_records.turn.lock().await;
            let finished = actor.cke_records.take();
            // Empty if the task before it has written this record, too.
            if !finished.is_empty()
                && let Err(why) = actor.write_records(&finished).await
            {
                let (count, first) = (finished.len(), finished.first().map(|f| f.operation));
                tracing::debug!(count, first, why, "no record written");
            }
        });
    }

    /// Sets the records of an earlier leader that are still `running` to `cancelled` (STO-15).
    pub(crate) async fn cancel_running_records(&self) {
        let Ok(records) = self.store.newest::<Record>(&self.store.keys().records_prefix(), NEWEST).await else {
            return;
        };
        for stored in records {
            let Some(record) = stored.get().filter(|r| r.status == "running") else { continue };
            let cancelled = Record { status: "cancelled".to_owned(), ..record.clone() };
            let change = Change {
                compares: vec![(stored.key.clone(), stored.mod_revision)],
                puts: vec![Put::json(stored.key.clone(), &cancelled)],
                deletes: Vec::new(),
            };
            let Ok(permit) = self.fence.permit_record() else { return };
            if let Err(e) = self.store.commit(&permit, change).await {
                tracing::debug!(error = %e, key = stored.key, "record not cancelled");
            }
        }
    }

    async fn write_records(&self, finished: &[Finished]) -> Result<(), String> {
        let keys = self.store.keys();
        for _ in 0..TRIES {
            let counter = self.store.raw(&keys.records()).await.map_err(|e| e.to_string())?;
            let (id, revision) = match &counter {
                Some(raw) => {
                    (raw.text.trim().parse().map_err(|_| format!("records is {:?}", raw.text))?, raw.mod_revision)
                }
                None => (1_u64, 0),
            };
            let next = (id..).nth(finished.len()).ok_or("the counter of records is too large")?;
            let counter = Put { key: keys.records(), value: next.to_string(), leased: false };
            let mut change =
                Change { compares: vec![(keys.records(), revision)], puts: vec![counter], deletes: Vec::new() };
            for (id, Finished { operation, target, error, start, end }) in (id..next).zip(finished) {
                let record = Record::completed(id, operation, target, error, *start, *end);
                change.puts.push(Put::json(keys.record(id), &record));
                change.deletes.extend(id.checked_sub(MAX_RECORDS).map(|old| keys.record(old)));
            }
            let permit = self.fence.permit_record().map_err(|e| e.to_string())?;
            match self.store.commit(&permit, change).await {
                Ok(_) => return Ok(()),
                Err(CommitError::Conflict { .. }) => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        Err("the counter of records changes all the time".to_owned())
    }
}

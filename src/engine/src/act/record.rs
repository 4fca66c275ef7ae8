//! CKE's operation records of the engine's work, so that `ckecli history` is complete (STO-17, STO-20, STO-21).

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cketerm_clients::store::{commit::CommitError, error::StoreError};
use cketerm_model::{
    record::{MAX_RECORDS, Record},
    stored::{
        keys::Keys,
        transaction::{Change, Put},
    },
};
use jiff::Timestamp;

use super::Actor;

/// Number of tries to write the same records.
const TRIES: usize = 5;
/// Pause after a failed try. A new leader of etcd may be elected meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of the newest records that a new leader reads.
const NEWEST: u32 = 1000;
/// Most records of one transaction. Each is one put and one deletion.
const RECORDS_AT_ONCE: usize = 32;

/// Records that are not written yet. All share one counter, so they are written in turn; those that wait at the same time
/// are written together.
#[derive(Default)]
pub(crate) struct WaitingRecords {
    operations: Mutex<VecDeque<FinishedOperation>>,
    turn: tokio::sync::Mutex<()>,
}

/// A finished operation.
#[derive(Clone)]
struct FinishedOperation {
    name: &'static str,
    target: String,
    error: String,
    start: Timestamp,
    end: Timestamp,
}

impl WaitingRecords {
    fn operations(&self) -> MutexGuard<'_, VecDeque<FinishedOperation>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the oldest ones. They stay until they are written.
    fn oldest(&self) -> Vec<FinishedOperation> {
        self.operations().iter().take(RECORDS_AT_ONCE).cloned().collect()
    }

    /// Reports whether all are written.
    pub(crate) fn is_empty(&self) -> bool {
        self.operations().is_empty()
    }
}

/// The reason why records were not written.
enum NotWritten {
    /// The engine leads no more, so it writes nothing.
    Lost,
    /// It makes no sense to try again.
    Never(String),
    /// The counter was changed between the read and the write.
    Changed,
    /// Failed, or there was no answer. The first record was to get this id.
    Failed { first: Option<u64>, why: String },
}

impl Actor {
    /// Writes a record of a finished operation in the background, so that it never delays the work.
    pub(super) fn write_cke_record(&self, name: &'static str, target: &str, error: &str, start: Timestamp) {
        let (target, error) = (target.to_owned(), error.to_owned());
        let operation = FinishedOperation { name, target, error, start, end: self.steady.now().wall };
        self.cke_records.operations().push_back(operation);
        let actor = self.clone();
        cketerm_runtime::tasks::spawn(async move { actor.write_waiting_records().await });
    }

    /// Writes all records that wait. Each record has a task that calls this; most of them find nothing left.
    pub(crate) async fn write_waiting_records(&self) {
        let _turn = self.cke_records.turn.lock().await;
        loop {
            let operations = self.cke_records.oldest();
            let (Some(first), Some(last)) = (operations.first(), operations.last()) else { return };
            match self.try_to_write(&operations).await {
                Ok(()) => {}
                Err(NotWritten::Lost) => {
                    self.cke_records.operations().clear();
                    return;
                }
                Err(NotWritten::Never(why) | NotWritten::Failed { why, .. }) => {
                    let (from, to) =
                        (format!("{} {}", first.name, first.target), format!("{} {}", last.name, last.target));
                    tracing::warn!(count = operations.len(), from, to, why, "records for ckecli history not written");
                }
                Err(NotWritten::Changed) => {
                    tracing::warn!(
                        count = operations.len(),
                        "records for ckecli history not written: their counter changes all the time"
                    );
                }
            }
            self.cke_records.operations().drain(..operations.len());
        }
    }

    async fn try_to_write(&self, operations: &[FinishedOperation]) -> Result<(), NotWritten> {
        let (mut tries, mut unsure) = (0, None);
        loop {
            tries += 1;
            match self.write_records(operations, unsure).await {
                Err(NotWritten::Changed) if tries < TRIES => {}
                Err(NotWritten::Failed { first, .. }) if tries < TRIES => {
                    unsure = first.or(unsure);
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    /// Writes these records. `unsure`: the first of them may have been written with this id.
    async fn write_records(&self, operations: &[FinishedOperation], unsure: Option<u64>) -> Result<(), NotWritten> {
        let permit = self.fence.permit_record().map_err(|_| NotWritten::Lost)?;
        let keys = self.store.keys();
        let failed = |e: StoreError| NotWritten::Failed { first: None, why: e.to_string() };
        if let Some((id, first)) = unsure.zip(operations.first()) {
            let found = self.store.raw(&keys.record(id)).await.map_err(failed)?;
            if found.is_some_and(|raw| raw.text == Put::json(String::new(), &first.record(id)).value) {
                return Ok(());
            }
        }
        let counter = self.store.raw(&keys.records()).await.map_err(failed)?;
        let (text, revision) = counter.map_or(("1".to_owned(), 0), |raw| (raw.text, raw.mod_revision));
        let Some((id, change)) = records(keys, text.trim().parse().ok(), revision, operations) else {
            return Err(NotWritten::Never(format!("{} is {text:?}", keys.records())));
        };
        match self.store.commit(&permit, change).await {
            Ok(_) => Ok(()),
            Err(CommitError::LostLeadership) => Err(NotWritten::Lost),
            Err(CommitError::Conflict { .. }) => Err(NotWritten::Changed),
            Err(CommitError::Unknown(why)) => Err(NotWritten::Failed { first: Some(id), why }),
            Err(CommitError::Refused(why)) => Err(NotWritten::Failed { first: None, why }),
            Err(CommitError::TooLarge(size)) => Err(NotWritten::Never(size.to_string())),
        }
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
}

impl FinishedOperation {
    fn record(&self, id: u64) -> Record {
        Record::completed(id, self.name, &self.target, &self.error, self.start, self.end)
    }
}

/// Returns the change that writes these records, from this id on, and deletes the oldest ones. `revision` is that of
/// the counter. Returns none if the counter cannot be read or increased; CKE reads it as a signed number.
fn records(keys: &Keys, id: Option<u64>, revision: i64, operations: &[FinishedOperation]) -> Option<(u64, Change)> {
    let id = id?;
    let next = id.checked_add(u64::try_from(operations.len()).ok()?).filter(|next| i64::try_from(*next).is_ok())?;
    let counter = Put { key: keys.records(), value: next.to_string(), leased: false };
    let mut change = Change { compares: vec![(keys.records(), revision)], puts: vec![counter], deletes: Vec::new() };
    for (id, operation) in (id..next).zip(operations) {
        change.puts.push(Put::json(keys.record(id), &operation.record(id)));
        change.deletes.extend(id.checked_sub(MAX_RECORDS).map(|old| keys.record(old)));
    }
    Some((id, change))
}

#[cfg(test)]
mod tests {
    use cketerm_model::stored::limits::MAX_OPS;

    use super::*;

    fn operation(n: usize) -> FinishedOperation {
        let (start, end) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        FinishedOperation { name: "reboot-cancel", target: format!("10.0.0.{n}"), error: String::new(), start, end }
    }

    #[test]
    fn records_get_numbers_in_a_row_and_the_oldest_go() {
        let (keys, operations) = (Keys::new("/cke/"), (0..RECORDS_AT_ONCE).map(operation).collect::<Vec<_>>());
        let (id, change) = records(&keys, Some(990), 7, &operations).unwrap();
        assert_eq!((id, change.compares), (990, vec![(keys.records(), 7)]));
        let numbers: Vec<u64> = (990..1022).collect();
        let written: Vec<(&str, &str)> = change.puts.iter().map(|put| (&*put.key, &*put.value)).collect();
        assert_eq!(written[0], (&*keys.records(), "1022"));
        assert_eq!(
            written[1..].iter().map(|(key, _)| *key).collect::<Vec<_>>(),
            numbers.iter().map(|n| keys.record(*n)).collect::<Vec<_>>()
        );
        for ((_, text), (n, operation)) in written[1..].iter().zip(numbers.iter().zip(&operations)) {
            let record: Record = serde_json::from_str(text).unwrap();
            assert_eq!((record.id, record.command.target.as_str()), (*n, operation.target.as_str()));
        }
        assert_eq!(change.deletes, (0..22).map(|n| keys.record(n)).collect::<Vec<_>>());
        assert!(change.puts.len() + RECORDS_AT_ONCE < MAX_OPS, "one operation is left for the fence");
    }

    #[test]
    fn a_counter_that_cannot_grow_is_left_alone() {
        let keys = Keys::new("/cke/");
        for counter in [None, Some(u64::MAX), Some(9_223_372_036_854_775_807)] {
            assert!(records(&keys, counter, 1, &[operation(1)]).is_none(), "{counter:?}");
        }
    }

    #[test]
    fn waiting_records_are_taken_in_their_order_and_stay_until_they_are_written() {
        let waiting = WaitingRecords::default();
        waiting.operations().extend((0..70).map(operation));
        for (from, count) in [(0, 32), (32, 32), (64, 6)] {
            for _ in 0..2 {
                let targets: Vec<String> = waiting.oldest().into_iter().map(|operation| operation.target).collect();
                assert_eq!(targets, (from..from + count).map(|n| operation(n).target).collect::<Vec<_>>());
            }
            waiting.operations().drain(..count);
        }
        assert!(waiting.is_empty());
    }
}

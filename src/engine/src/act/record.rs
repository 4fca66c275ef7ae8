//! CKE's operation records of the engine's work, so that `ckecli history` is complete (STO-17, STO-20, STO-21).

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

impl Actor {
    /// Writes a record of a finished operation in the background, so that it never delays the work.
    pub(super) fn write_cke_record(&self, operation: &'static str, target: &str, error: &str, start: Timestamp) {
        let (actor, target, error) = (self.clone(), target.to_owned(), error.to_owned());
        cketerm_runtime::tasks::spawn(async move {
            // Records are written one at a time, because they share a counter.
            let _turn = actor.cke_records.lock().await;
            if let Err(why) = actor.write_record(operation, &target, &error, start).await {
                tracing::debug!(operation, target, why, "no record written");
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

    async fn write_record(&self, operation: &str, target: &str, error: &str, start: Timestamp) -> Result<(), String> {
        let keys = self.store.keys();
        for _ in 0..TRIES {
            let counter = self.store.raw(&keys.records()).await.map_err(|e| e.to_string())?;
            let (id, revision) = match &counter {
                Some(raw) => {
                    (raw.text.trim().parse().map_err(|_| format!("records is {:?}", raw.text))?, raw.mod_revision)
                }
                None => (1_u64, 0),
            };
            let record = Record::completed(id, operation, target, error, start, self.steady.now().wall);
            let next = Put { key: keys.records(), value: (id + 1).to_string(), leased: false };
            let change = Change {
                compares: vec![(keys.records(), revision)],
                puts: vec![next, Put::json(keys.record(id), &record)],
                deletes: id.checked_sub(MAX_RECORDS).map(|old| keys.record(old)).into_iter().collect(),
            };
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

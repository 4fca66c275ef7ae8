//! CKE's operation records of what we do, so that `ckecli history` tells the whole story (spec/etcd.md, Names that
//! other programs read).

use jiff::Timestamp;

use super::Actor;
use crate::{
    model::record::{KEPT, Record},
    store::commit::{Change, CommitError, Put},
};

/// Another writer of the counter (a CKE that has just led) makes us read it again, so often.
const TRIES: usize = 5;

impl Actor {
    /// Writes a record of something done just now, in the background: the story never holds the work up.
    pub(super) fn record(&self, operation: &'static str, address: &str, error: &str, start: Timestamp) {
        let (actor, address, error) = (self.clone(), address.to_owned(), error.to_owned());
        tokio::spawn(async move {
            // One at a time: they share a counter.
            let _turn = actor.recording.lock().await;
            if let Err(why) = actor.write_record(operation, &address, &error, start).await {
                tracing::debug!(operation, address, why, "no record written");
            }
        });
    }

    async fn write_record(&self, operation: &str, address: &str, error: &str, start: Timestamp) -> Result<(), String> {
        let keys = self.store.keys();
        for _ in 0..TRIES {
            let counter = self.store.raw(&keys.records()).await.map_err(|e| e.to_string())?;
            let (id, revision) = match &counter {
                Some(raw) => {
                    (raw.text.trim().parse().map_err(|_| format!("records is {:?}", raw.text))?, raw.mod_revision)
                }
                None => (1_u64, 0),
            };
            let record = Record::completed(id, operation, address, error, start, self.steady.now().wall);
            let next = Put { key: keys.records(), value: (id + 1).to_string(), leased: false };
            let change = Change {
                compares: vec![(keys.records(), revision)],
                puts: vec![next, Put::json(keys.record(id), &record)],
                deletes: id.checked_sub(KEPT).map(|old| keys.record(old)).into_iter().collect(),
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

//! Removal of unreadable entries: the key is removed only with the value that was shown (I5, I28).

use cketerm_model::{entry::EntryId, fence::Person, stored::row};
use etcd_client::{Compare, CompareOp, TxnOp};

use super::{
    connect::Store,
    error::StoreError,
    operator::{AuditNote, WriteOutcome},
};

/// An unreadable entry as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its `ModRevision`.
    pub revision: i64,
    /// Reason, and the beginning of the value.
    pub why: String,
}

impl Store {
    /// Returns the reason why this entry cannot be read; none if it can, or if it does not exist.
    pub async fn unreadable(&self, id: EntryId) -> Result<Option<Unreadable>, StoreError> {
        match self.stored_entry(id).await {
            Ok(kv) => {
                let why = row::unreadable(id, kv.value());
                Ok(why.map(|why| Unreadable { revision: kv.mod_revision(), why }))
            }
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Removes the key of an unreadable entry, its request and its progress, if the key still has this revision.
    /// Everything that the leader still needs stays: a cordon, an attempt, an order.
    pub async fn remove_unreadable(
        &self,
        id: EntryId,
        revision: i64,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let who = person.who();
        let conflict = || StoreError::Conflict { what: id.to_string() };
        let kv = self.stored_entry(id).await?;
        if kv.mod_revision() != revision {
            return Err(conflict());
        }
        let why = row::unreadable(id, kv.value()).ok_or_else(conflict)?;
        let what = format!("{} remove unreadable", id.queue);
        let key = self.keys().entry(id);
        let compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, revision)];
        // Request and progress would otherwise stay for ever.
        let (keys, mut ops) = (self.keys(), vec![TxnOp::delete(key.as_str(), None)]);
        ops.extend([keys.request(id), keys.progress(id)].map(|key| TxnOp::delete(key, None)));
        let note = AuditNote { who, what: &what, on: &id.to_string(), reason };
        match self.write(note, &format!("removed: {why}"), compares, ops).await? {
            WriteOutcome::At(_) => Ok(()),
            WriteOutcome::Conflict => Err(conflict()),
        }
    }
}

//! Operators' writes to the entries of the repair queue: the mark of deletion, compared, with its audit record in the
//! same transaction (REP-7 to REP-10; I27, I28).

use super::{connect::Store, error::StoreError};
use cketerm_model::{fence::Person, repair::RepairEntry};

/// Selection of entries for `delete-finished` and `delete-unfinished`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Succeeded and failed entries.
    Finished,
    /// Queued entries and those in progress.
    Unfinished,
}

impl Store {
    /// Marks one repair as deleted, whatever its state; the leader removes it. `expect` is the ModRevision that the
    /// operator saw, if any. A marked entry stays as it is.
    pub async fn delete_repair(
        &self,
        index: u64,
        expect: Option<i64>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        self.withdraw::<RepairEntry>("repair delete", index, expect, person, reason).await
    }

    /// Marks all finished or all unfinished repairs as deleted; returns the indexes that it marked. Unreadable entries
    /// stay.
    pub async fn delete_repairs(
        &self,
        which: Which,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, StoreError> {
        let what = match which {
            Which::Finished => "repair delete-finished",
            Which::Unfinished => "repair delete-unfinished",
        };
        let wanted = |entry: &RepairEntry| entry.finished() == (which == Which::Finished);
        self.withdraw_all(what, person, reason, wanted).await
    }
}

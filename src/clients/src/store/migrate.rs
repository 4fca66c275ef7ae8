//! Migration of an older cketerm's records: once, by the first leader of this version, each step a fenced transaction
//! (STO-54 to STO-59).
//!
//! The schema number is raised first, together with a note that the work is not done. From then on an older engine or
//! console only observes, and the next leader continues the migration. After each step the state is valid, and
//! repeating a step changes nothing.

mod history;

use std::{collections::BTreeMap, time::Duration};

use cketerm_model::{
    attempt::Attempt,
    cketerm_records::{Audit, SCHEMA, Who},
    entry::{EntryId, Stored},
    fence::{Fence, Permit},
    stored::{
        keys::{KeyKind, prefix_end},
        transaction::{Change, Put},
        view::StoreView,
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{commit::CommitError, connect::Store, error::StoreError, tail::stored};

/// Number of attempts deleted in one transaction.
const BATCH_SIZE: usize = 32;
/// First and longest pause before a failed step is retried.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// `cketerm/migration`: records of an older version are being migrated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// Number that `cketerm/schema` had.
    pub from: u32,
    /// Start of the migration.
    pub at: Timestamp,
    /// The engine that began it.
    pub by: Who,
}

/// Reports whether a migration is needed, according to the live copy.
pub fn needed(view: &StoreView) -> bool {
    let older = view.schema.as_ref().and_then(Stored::get).is_some_and(|number| *number < SCHEMA);
    older || view.migrating
}

/// Reason why a step failed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Read(StoreError),
    #[error(transparent)]
    Write(CommitError),
}

impl Store {
    /// Runs all steps, and retries failed ones, until the migration is done or the lease is over. `on_error` receives
    /// the reason of each failure. Does nothing if no migration is needed. If it is dropped, the next leader continues.
    pub async fn migrate(&self, fence: &Fence, who: &Who, on_error: impl Fn(String)) {
        let mut wait = RETRY_DELAYS.0;
        while let Ok(permit) = fence.permit_record() {
            match self.migrate_once(&permit, who).await {
                Ok(()) | Err(Failed::Write(CommitError::LostLeadership)) => return,
                Err(failed) => {
                    let again = wait.as_secs();
                    tracing::warn!(error = %failed, again, "records of an older version are not migrated yet");
                    on_error(failed.to_string());
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_DELAYS.1);
        }
    }

    async fn migrate_once(&self, permit: &Permit, who: &Who) -> Result<(), Failed> {
        let read = async |key: String| self.raw(&key).await.map_err(Failed::Read);
        let Some(schema) = read(self.keys().schema()).await? else { return Ok(()) };
        let Ok(number) = schema.text.trim().parse::<u32>() else { return Ok(()) };
        if number < SCHEMA {
            // Left by an unfinished migration, if an operator manually reset the number afterwards.
            let marker_revision = read(self.keys().migration()).await?.map_or(0, |note| note.mod_revision);
            let note = Migration { from: number, at: self.clock().wall(), by: who.clone() };
            let description = format!("from {number} to {SCHEMA}: older versions only observe from now on");
            let change = Change {
                compares: vec![(schema.key.clone(), schema.mod_revision), (self.keys().migration(), marker_revision)],
                puts: vec![
                    Put { key: schema.key.clone(), value: SCHEMA.to_string(), leased: false },
                    Put::json(self.keys().migration(), &note),
                    self.migration_audit(who, &description),
                ],
                deletes: Vec::new(),
            };
            self.commit(permit, change).await.map_err(Failed::Write)?;
            tracing::info!(from = number, to = SCHEMA, "the schema in etcd was upgraded");
        }
        let Some(note) = read(self.keys().migration()).await? else { return Ok(()) };
        self.fold_withheld(permit).await?;
        self.name_ends(permit).await?;
        let change = Change {
            compares: vec![(note.key.clone(), note.mod_revision)],
            puts: vec![self.migration_audit(who, "done")],
            deletes: vec![note.key.clone()],
        };
        self.commit(permit, change).await.map_err(Failed::Write)?;
        tracing::info!("records of an older version are migrated");
        Ok(())
    }

    /// Deletes withheld attempts. Version 0.1 kept every attempt that it had withheld, one every five seconds outside a
    /// window. Only the first attempt of an entry and the newest one are needed; no withheld attempt counts as a try.
    async fn fold_withheld(&self, permit: &Permit) -> Result<(), Failed> {
        let span = self.keys().all_attempts();
        let (_, kvs) = match self.read_range(span.from.as_bytes(), &prefix_end(span.from.as_bytes()), 0).await {
            Ok(read) => read,
            Err(failure) => return Err(Failed::Read(self.store_error(&format!("read {}", span.from), failure).await)),
        };
        let mut entries: BTreeMap<EntryId, BTreeMap<u32, Stored<Attempt>>> = BTreeMap::new();
        for kv in &kvs {
            if let Some(KeyKind::Attempt(Ok((id, number)))) = self.keys().parse(kv.key()) {
                entries.entry(id).or_default().insert(number, stored(kv));
            }
        }
        for attempts in entries.values() {
            self.fold_entry(permit, attempts).await?;
        }
        Ok(())
    }

    async fn fold_entry(&self, permit: &Permit, attempts: &BTreeMap<u32, Stored<Attempt>>) -> Result<(), Failed> {
        let first_and_last = [attempts.keys().next(), attempts.keys().next_back()];
        let is_folded = |(number, s): &(&u32, &Stored<Attempt>)| {
            !first_and_last.contains(&Some(*number)) && s.get().is_some_and(Attempt::withheld)
        };
        let folded_attempts: Vec<&Stored<Attempt>> =
            attempts.iter().filter(is_folded).map(|(_, stored)| stored).collect();
        let Some((stored, newest)) = attempts.values().next_back().and_then(|s| Some((s, s.get()?))) else {
            return Ok(());
        };
        let (mut newest, mut revision) = (newest.clone(), stored.mod_revision);
        for batch in folded_attempts.chunks(BATCH_SIZE) {
            newest.folded = newest.folded.saturating_add(u32::try_from(batch.len()).unwrap_or(u32::MAX));
            let mut compares: Vec<_> = batch.iter().map(|s| (s.key.clone(), s.mod_revision)).collect();
            compares.push((stored.key.clone(), revision));
            let change = Change {
                compares,
                puts: vec![Put::json(stored.key.clone(), &newest)],
                deletes: batch.iter().map(|s| s.key.clone()).collect(),
            };
            revision = self.commit(permit, change).await.map_err(Failed::Write)?;
        }
        Ok(())
    }

    fn migration_audit(&self, who: &Who, result: &str) -> Put {
        let (at, result) = (self.clock().wall(), result.to_owned());
        let (what, on) = ("migrate".to_owned(), "cketerm/schema".to_owned());
        self.audit_put(&Audit {
            at,
            who: who.clone(),
            what,
            on,
            reason: None,
            result,
            failed: false,
            entry: None,
            repeats: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_an_older_schema_or_an_unfinished_migration_needs_one() {
        let with_schema = |number| {
            let stored = Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(number)) };
            StoreView { schema: Some(stored), ..StoreView::default() }
        };
        assert!(!needed(&StoreView::default()), "an empty store");
        assert!(needed(&with_schema(SCHEMA - 1)));
        assert!(!needed(&with_schema(SCHEMA)));
        assert!(!needed(&with_schema(SCHEMA + 1)));
        assert!(needed(&StoreView { migrating: true, ..with_schema(SCHEMA) }));
    }
}

//! Entries that ended, for commands: newest first, some at a time, with the audit records of their lifetimes. So a
//! command holds the entries that it prints, not the whole folder.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cketerm_records::{Audit, Ending},
    entry::{EntryId, Stored},
};
use etcd_client::GetOptions;
use jiff::Timestamp;

use super::{connect::Store, error::StoreError, failure::Failure, folder_keys::VALUES_AT_ONCE, read::page};

/// Entries that ended and were not read yet.
#[derive(Clone, Debug)]
pub struct EndedEntries {
    /// Keys, the newest at the end.
    keys: Vec<String>,
    /// Number of entries that were read.
    read: usize,
    /// Number of those that were read last, and of their bytes.
    last: (usize, usize),
}

/// Number of small entries that are read together, and the bytes that these are meant to have.
const SMALL_ENTRIES: usize = 400;
const SMALL_BYTES: usize = 1 << 20;

impl EndedEntries {
    /// Returns the number of entries to read next: a first page needs few.
    fn next(&self) -> usize {
        let (last, bytes) = self.last;
        let fit = SMALL_BYTES.saturating_mul(last) / bytes.max(1);
        self.read.min(fit).clamp(VALUES_AT_ONCE, SMALL_ENTRIES)
    }
}

impl Store {
    /// Lists the entries that ended. The order is that in which etcd accepted the ends.
    pub async fn ended_entries(&self) -> Result<EndedEntries, StoreError> {
        let folder = self.keys().history_prefix();
        match self.folder_keys(&folder, &folder).await {
            Ok((_, mut keys)) => {
                keys.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.name.cmp(&b.name)));
                Ok(EndedEntries { keys: keys.into_iter().map(|key| key.name).collect(), read: 0, last: (0, 0) })
            }
            Err(failure) => Err(self.store_error(&format!("read {folder}"), failure).await),
        }
    }

    /// Reads the newest entries that were not read yet, newest first, including unreadable ones. Returns none after the
    /// last one.
    pub async fn next_ended(&self, entries: &mut EndedEntries) -> Result<Option<Vec<Stored<Ending>>>, StoreError> {
        let batch = entries.keys.split_off(entries.keys.len().saturating_sub(entries.next()));
        if batch.is_empty() {
            return Ok(None);
        }
        let names: Vec<&str> = batch.iter().rev().map(String::as_str).collect();
        match self.read_keys_at_once(&names).await {
            Ok((values, bytes)) => {
                entries.read += values.len();
                entries.last = (values.len(), bytes);
                Ok(Some(values))
            }
            Err(failure) => Err(self.store_error(&format!("read {}", self.keys().history_prefix()), failure).await),
        }
    }

    /// Reads the ends of these entries, as far as they are recorded. An unreadable record affects only itself.
    pub async fn ends_of(&self, selected: &BTreeSet<EntryId>) -> Result<BTreeMap<EntryId, Ending>, StoreError> {
        let names: Vec<String> = selected.iter().map(|id| self.keys().history_of(*id)).collect();
        match self.read_keys::<Ending>(&names.iter().map(String::as_str).collect::<Vec<_>>()).await {
            Ok(found) => {
                Ok(found.iter().filter_map(Stored::get).map(|ending| (ending.entry, ending.clone())).collect())
            }
            Err(failure) => Err(self.store_error(&format!("read {}", self.keys().history_prefix()), failure).await),
        }
    }

    /// Reads the audit records that may belong to these entries, oldest first: those of their lifetimes, without the
    /// records of other entries and the unreadable ones.
    pub async fn audit_of(&self, endings: &[&Ending]) -> Result<Vec<Audit>, StoreError> {
        let ids: BTreeSet<EntryId> = endings.iter().map(|ending| ending.entry).collect();
        let folder = self.keys().audit_prefix();
        let mut records = Vec::new();
        for (from, to) in merged(endings.iter().map(|ending| ending.lifetime()).collect()) {
            let read = self.read_lifetime(&folder, (from, to), &ids, &mut records);
            if let Err(failure) = read.await {
                return Err(self.store_error(&format!("read {folder}"), failure).await);
            }
        }
        Ok(records)
    }

    async fn read_lifetime(
        &self,
        folder: &str,
        (from, to): (Timestamp, Timestamp),
        ids: &BTreeSet<EntryId>,
        records: &mut Vec<Audit>,
    ) -> Result<(), Failure> {
        let key = |at: Timestamp| format!("{folder}{:020}", at.as_nanosecond().max(0)).into_bytes();
        let (mut next, end) = (Some(key(from)), key(to));
        let (mut read, mut bytes) = (0, 0);
        while let Some(at) = next {
            let options = GetOptions::new().with_range(end.clone()).with_limit(page(read, bytes));
            let got = self.get(at, options).await?;
            read += got.kvs().len();
            bytes += got.kvs().iter().map(|kv| kv.key().len() + kv.value().len()).sum::<usize>();
            let readable = got.kvs().iter().filter_map(|kv| serde_json::from_slice::<Audit>(kv.value()).ok());
            records.extend(readable.filter(|audit| audit.may_concern(ids)));
            next = got.kvs().last().filter(|_| got.more()).map(|last| [last.key(), &[0]].concat());
        }
        Ok(())
    }
}

/// Returns periods that cover these, without those that overlap.
fn merged(mut periods: Vec<(Timestamp, Timestamp)>) -> Vec<(Timestamp, Timestamp)> {
    periods.sort_unstable();
    let mut merged: Vec<(Timestamp, Timestamp)> = Vec::new();
    for (from, to) in periods {
        match merged.last_mut().filter(|last| from <= last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => merged.push((from, to)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_that_overlap_are_read_once() {
        let periods = |all: &[(i64, i64)]| -> Vec<(Timestamp, Timestamp)> {
            let at = |second| Timestamp::from_second(second).unwrap();
            all.iter().map(|(from, to)| (at(*from), at(*to))).collect()
        };
        assert_eq!(
            merged(periods(&[(50, 60), (10, 20), (15, 30), (30, 31), (12, 13)])),
            periods(&[(10, 31), (50, 60)])
        );
        assert_eq!(merged(Vec::new()), Vec::new());
    }
}

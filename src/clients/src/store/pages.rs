//! Pages of the folders that only grow, newest first, for scrolling. They are ordered by `ModRevision`, the order in
//! which etcd accepted the values, whatever their writers' clocks showed and however the keys are named.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{entry::Stored, stored::keys::Folder};
use etcd_client::{GetOptions, SortOrder, SortTarget, TxnOp, TxnOpResponse};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{connect::Store, error::StoreError, failure::Failure, tail::stored};

/// Number of values read in one transaction; etcd takes 128 operations.
const KEYS_PER_TXN: usize = 100;
/// Number of additional values read by key before the values are sorted by revision, because clocks differ.
const SLACK: usize = 64;

/// Selection of values of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The newest.
    Newest,
    /// Those written before this revision, newest first.
    Before(i64),
    /// Those written after this revision. If a page cannot hold all, it holds the oldest.
    After(i64),
}

/// Values of a folder.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Revision of the read.
    pub revision: i64,
    /// Values, newest first, including unreadable ones.
    pub values: Vec<Stored<T>>,
    /// Whether there are more values of this part.
    pub more: bool,
}

impl Store {
    /// Reads one page of a folder, with at most `n` values.
    pub async fn page<T: DeserializeOwned>(&self, folder: Folder, part: Part, n: u32) -> Result<Page<T>, StoreError> {
        let prefix = self.keys().folder(folder);
        match self.read_page(&prefix, part, n).await {
            Ok(page) => Ok(page),
            Err(failure) => Err(self.store_error(&format!("read {prefix}"), failure).await),
        }
    }

    /// Reads the values of a folder whose ids begin with a time (the audit) that were written between two moments by
    /// their writers' clocks, oldest first; at most `n`.
    pub async fn read_between<T: DeserializeOwned>(
        &self,
        folder: Folder,
        (from, to): (Timestamp, Timestamp),
        n: u32,
    ) -> Result<Vec<Stored<T>>, StoreError> {
        let prefix = self.keys().folder(folder);
        let key = |at: Timestamp| format!("{prefix}{:020}", at.as_nanosecond().max(0));
        let options = GetOptions::new().with_range(key(to)).with_limit(i64::from(n));
        match self.get(key(from), options).await {
            Ok(got) => Ok(got.kvs().iter().map(stored).collect()),
            Err(failure) => Err(self.store_error(&format!("read {prefix}"), failure).await),
        }
    }

    /// Reads the values written to a folder after a revision, if the live copy knows their keys
    /// ([`cketerm_model::stored::view::StoreView::recent`]). It reads at most `n` of these keys, not the whole folder.
    pub async fn page_of_keys<T: DeserializeOwned>(
        &self,
        folder: Folder,
        revision: i64,
        keys: &[(i64, String)],
        n: u32,
    ) -> Result<Page<T>, StoreError> {
        let limit = usize::try_from(n).unwrap_or(usize::MAX);
        let (now, more) = (&keys[..keys.len().min(limit)], keys.len() > limit);
        let key_names: Vec<&str> = now.iter().map(|(_, key)| key.as_str()).collect();
        let mut values = match self.read_keys(&key_names).await {
            Ok(values) => values,
            Err(failure) => {
                return Err(self.store_error(&format!("read {}", self.keys().folder(folder)), failure).await);
            }
        };
        values.sort_by_key(|value| std::cmp::Reverse(value.mod_revision));
        // The page extends to the last of these keys. A value written again since then is among the next ones too.
        let revision = now.last().map_or(revision, |(at, _)| *at);
        if more {
            for value in &mut values {
                value.mod_revision = value.mod_revision.min(revision);
            }
        }
        Ok(Page { revision, values, more })
    }

    /// Reads the values of these keys, each once, as far as they exist.
    async fn read_keys<T: DeserializeOwned>(&self, keys: &[&str]) -> Result<Vec<Stored<T>>, Failure> {
        let mut values: BTreeMap<String, Stored<T>> = BTreeMap::new();
        for batch in keys.chunks(KEYS_PER_TXN) {
            let gets = batch.iter().map(|key| TxnOp::get(*key, None)).collect();
            let answer = self.transact(Vec::new(), gets, Vec::new()).await?;
            for answer in answer.op_responses() {
                if let TxnOpResponse::Get(got) = answer {
                    values.extend(got.kvs().iter().map(|kv| stored(kv)).map(|one| (one.key.clone(), one)));
                }
            }
        }
        Ok(values.into_values().collect())
    }

    /// Reads the values written after this revision whose keys have an earlier time, because their writer's clock is
    /// behind. By their names they are not among the last. Only these values are read.
    async fn read_late_keys<T: DeserializeOwned>(
        &self,
        prefix: &str,
        revision: i64,
        known: &[Stored<T>],
    ) -> Result<Vec<Stored<T>>, Failure> {
        let options = GetOptions::new().with_prefix().with_keys_only().with_min_mod_revision(revision + 1);
        let got = self.get(prefix, options).await?;
        let names: Vec<&str> = got.kvs().iter().filter_map(|kv| kv.key_str().ok()).collect();
        let seen: BTreeSet<&str> = known.iter().map(|value| value.key.as_str()).collect();
        let missing: Vec<&str> = names.into_iter().filter(|name| !seen.contains(name)).collect();
        self.read_keys(&missing).await
    }

    async fn read_page<T: DeserializeOwned>(&self, prefix: &str, part: Part, n: u32) -> Result<Page<T>, Failure> {
        // If the keys show the order, the newest are at the end.
        if part == Part::Newest && self.has_ordered_keys(prefix) {
            let limit = usize::try_from(n).unwrap_or(usize::MAX);
            let (revision, mut values) = self.read_newest(prefix, limit.saturating_add(SLACK)).await?;
            values.sort_by_key(|value| std::cmp::Reverse(value.mod_revision));
            if let Some(oldest) = values.get(limit.saturating_sub(1)).map(|value| value.mod_revision) {
                values.extend(self.read_late_keys(prefix, oldest, &values).await?);
                values.sort_by_key(|value| std::cmp::Reverse(value.mod_revision));
            }
            values.truncate(limit);
            let more = values.len() >= limit;
            return Ok(Page { revision, values, more });
        }
        let options = GetOptions::new().with_prefix().with_limit(i64::from(n));
        let options = match part {
            Part::Newest => options.with_sort(SortTarget::Mod, SortOrder::Descend),
            Part::Before(revision) => {
                options.with_sort(SortTarget::Mod, SortOrder::Descend).with_max_mod_revision(revision.max(2) - 1)
            }
            Part::After(revision) => {
                options.with_sort(SortTarget::Mod, SortOrder::Ascend).with_min_mod_revision(revision + 1)
            }
        };
        let got = self.get(prefix, options).await?;
        let mut values: Vec<Stored<T>> = got.kvs().iter().map(stored).collect();
        if matches!(part, Part::After(_)) {
            values.reverse();
        }
        let more = values.len() >= usize::try_from(n).unwrap_or(usize::MAX);
        Ok(Page { revision: got.header().map_or(0, etcd_client::ResponseHeader::revision), values, more })
    }
}

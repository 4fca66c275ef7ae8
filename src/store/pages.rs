//! Pages of the folders that only grow, newest first, for whoever scrolls through them: by `ModRevision`, which is the
//! order in which etcd took the values whatever the clocks of their writers said, and however they are named.

use std::collections::{BTreeMap, BTreeSet};

use etcd_client::{GetOptions, SortOrder, SortTarget, TxnOp, TxnOpResponse};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{answer::Failure, connect::Store, error::StoreError, keys::Folder, tail::stored};
use crate::model::entry::Stored;

/// Values read in one transaction; etcd takes 128 operations.
const IN_ONE: usize = 100;
/// Clocks differ: so many more are read by key before they are put in the order of revisions.
const SLACK: usize = 64;

/// Which values of a folder are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The newest.
    Newest,
    /// Those written before this revision, the newest of them first.
    Before(i64),
    /// Those written after this revision, the oldest of them first if there are more than a page holds.
    After(i64),
}

/// Values of a folder.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The revision that they were read at.
    pub revision: i64,
    /// Newest first; one that cannot be read is among them.
    pub values: Vec<Stored<T>>,
    /// There are more of this part.
    pub more: bool,
}

impl Store {
    /// One page of a folder, of `n` values at most.
    pub async fn page<T: DeserializeOwned>(&self, folder: Folder, part: Part, n: u32) -> Result<Page<T>, StoreError> {
        let prefix = self.keys().folder(folder);
        match self.page_of(&prefix, part, n).await {
            Ok(page) => Ok(page),
            Err(failure) => Err(self.sentence(&format!("read {prefix}"), failure).await),
        }
    }

    /// The values of a folder whose ids begin with a time (the audit) that were written between two moments by their
    /// writers' clocks, oldest first; `n` of them at most.
    pub async fn between<T: DeserializeOwned>(
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
            Err(failure) => Err(self.sentence(&format!("read {prefix}"), failure).await),
        }
    }

    /// What was written to a folder after a revision, where the live copy knows which keys that were ([`super::view::StoreView::fresh`]):
    /// these are read, `n` of them at most, and the folder is not looked through.
    pub async fn written<T: DeserializeOwned>(
        &self,
        folder: Folder,
        revision: i64,
        keys: &[(i64, String)],
        n: u32,
    ) -> Result<Page<T>, StoreError> {
        let most = usize::try_from(n).unwrap_or(usize::MAX);
        let (now, more) = (&keys[..keys.len().min(most)], keys.len() > most);
        let named: Vec<&str> = now.iter().map(|(_, key)| key.as_str()).collect();
        let mut values = match self.of_keys(&named).await {
            Ok(values) => values,
            Err(failure) => {
                return Err(self.sentence(&format!("read {}", self.keys().folder(folder)), failure).await);
            }
        };
        values.sort_by_key(|value| std::cmp::Reverse(value.mod_revision));
        // as far as these keys go; a value that was written again since is among the next ones too
        let revision = now.last().map_or(revision, |(at, _)| *at);
        if more {
            for value in &mut values {
                value.mod_revision = value.mod_revision.min(revision);
            }
        }
        Ok(Page { revision, values, more })
    }

    /// The values of these keys, each once, as far as they are there.
    async fn of_keys<T: DeserializeOwned>(&self, keys: &[&str]) -> Result<Vec<Stored<T>>, Failure> {
        let mut values: BTreeMap<String, Stored<T>> = BTreeMap::new();
        for some in keys.chunks(IN_ONE) {
            let gets = some.iter().map(|key| TxnOp::get(*key, None)).collect();
            let answer = self.transact(Vec::new(), gets, Vec::new()).await?;
            for answer in answer.op_responses() {
                if let TxnOpResponse::Get(got) = answer {
                    values.extend(got.kvs().iter().map(|kv| stored(kv)).map(|one| (one.key.clone(), one)));
                }
            }
        }
        Ok(values.into_values().collect())
    }

    /// What was written after this revision under the name of an earlier time, by somebody whose clock is behind: it is not
    /// among the last by their names. No value is sent for it but these.
    async fn belated<T: DeserializeOwned>(
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
        if missing.is_empty() { Ok(Vec::new()) } else { self.of_keys(&missing).await }
    }

    async fn page_of<T: DeserializeOwned>(&self, prefix: &str, part: Part, n: u32) -> Result<Page<T>, Failure> {
        // where the keys tell the order, the newest lie at the end
        if part == Part::Newest && self.in_order(prefix) {
            let most = usize::try_from(n).unwrap_or(usize::MAX);
            let (revision, mut values) = self.last_of(prefix, most.saturating_add(SLACK)).await?;
            values.sort_by_key(|value| std::cmp::Reverse(value.mod_revision));
            if let Some(oldest) = values.get(most.saturating_sub(1)).map(|value| value.mod_revision) {
                values.extend(self.belated(prefix, oldest, &values).await?);
                values.sort_by_key(|value| std::cmp::Reverse(value.mod_revision));
            }
            values.truncate(most);
            let more = values.len() >= most;
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

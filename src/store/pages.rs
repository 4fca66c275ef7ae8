//! Pages of the folders that only grow, newest first, for whoever scrolls through them: by `ModRevision`, which is the
//! order in which etcd took the values whatever the clocks of their writers said, and however they are named.

use etcd_client::{GetOptions, SortOrder, SortTarget};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{answer::Failure, connect::Store, error::StoreError, keys::Folder, tail::stored};
use crate::model::entry::Stored;

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

    async fn page_of<T: DeserializeOwned>(&self, prefix: &str, part: Part, n: u32) -> Result<Page<T>, Failure> {
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

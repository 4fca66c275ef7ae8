//! The folders that only grow and are read on demand: history, audit, records (spec/etcd.md, Our own keys).

use etcd_client::{GetOptions, SortOrder, SortTarget};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{answer::MOST_OPS, connect::Store, error::StoreError, keys::end_of, tail::stored};
use crate::model::entry::Stored;

/// Values of one page.
const PAGE: i64 = 500;

impl Store {
    /// The newest `n` values below a folder (see [`super::keys::Keys::audit_prefix`] and its like), newest first.
    pub async fn newest<T: DeserializeOwned>(&self, folder: &str, n: u32) -> Result<Vec<Stored<T>>, StoreError> {
        self.newest_at(folder, usize::try_from(n).unwrap_or(usize::MAX)).await.map(|(_, values)| values)
    }

    /// The same, and the revision that it was read at: from there on it can be followed ([`Store::tail`]).
    pub async fn newest_at<T: DeserializeOwned>(
        &self,
        folder: &str,
        n: usize,
    ) -> Result<(i64, Vec<Stored<T>>), StoreError> {
        self.downwards(folder, folder, n).await
    }

    /// The newest `n` values of `folder` whose keys are not before `from`, in pages at one revision.
    pub async fn downwards<T: DeserializeOwned>(
        &self,
        folder: &str,
        from: &str,
        n: usize,
    ) -> Result<(i64, Vec<Stored<T>>), StoreError> {
        let (mut at, mut values): (i64, Vec<Stored<T>>) = (0, Vec::new());
        let mut to = end_of(folder.as_bytes());
        loop {
            let left = i64::try_from(n - values.len()).unwrap_or(i64::MAX);
            let options = GetOptions::new()
                .with_range(to.clone())
                .with_sort(SortTarget::Key, SortOrder::Descend)
                .with_limit(left.min(PAGE))
                .with_revision(at);
            let page = match self.get(from, options).await {
                Ok(page) => page,
                Err(failure) => return Err(self.sentence(&format!("read {folder}"), failure).await),
            };
            if at == 0 {
                at = page.header().map_or(0, etcd_client::ResponseHeader::revision);
            }
            values.extend(page.kvs().iter().map(stored));
            match page.kvs().last() {
                Some(oldest) if page.more() && values.len() < n => to = oldest.key().to_vec(),
                _ => return Ok((at, values)),
            }
        }
    }

    /// Keys below `cketerm/audit/` or `cketerm/history/` that may go: the oldest beyond `keep`, and those before
    /// `before`; never more than one transaction of the leader can delete. Ask again until it is empty.
    pub async fn outdated(&self, folder: &str, keep: u64, before: Timestamp) -> Result<Vec<String>, StoreError> {
        let at_most = u64::try_from(MOST_OPS - 8).unwrap_or(0);
        let options = GetOptions::new()
            .with_prefix()
            .with_keys_only()
            .with_sort(SortTarget::Key, SortOrder::Ascend)
            .with_limit(i64::try_from(at_most).unwrap_or(0));
        let got = match self.get(folder, options).await {
            Ok(got) => got,
            Err(failure) => return Err(self.sentence(&format!("read {folder}"), failure).await),
        };
        let beyond = u64::try_from(got.count()).unwrap_or(0).saturating_sub(keep);
        let oldest_kept = format!("{folder}{:020}", before.as_nanosecond().max(0));
        let keys = got.kvs().iter().map(|kv| String::from_utf8_lossy(kv.key()).into_owned());
        Ok(keys.zip(0..).take_while(|(key, place)| *place < beyond || *key < oldest_kept).map(|(key, _)| key).collect())
    }
}

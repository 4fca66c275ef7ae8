//! The folders that only grow and are read on demand: history, audit, records (spec/etcd.md, Our own keys).

use std::sync::Arc;

use etcd_client::{GetOptions, SortOrder, SortTarget};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{answer::MOST_OPS, connect::Store, error::StoreError};
use crate::model::entry::Stored;

impl Store {
    /// The newest `n` values below a folder (see [`super::keys::Keys::audit_prefix`] and its like), newest first.
    pub async fn newest<T: DeserializeOwned>(&self, folder: &str, n: u32) -> Result<Vec<Stored<T>>, StoreError> {
        let options =
            GetOptions::new().with_prefix().with_sort(SortTarget::Key, SortOrder::Descend).with_limit(i64::from(n));
        let got = match self.get(folder, options).await {
            Ok(got) => got,
            Err(failure) => return Err(self.sentence(&format!("read {folder}"), failure).await),
        };
        Ok(got
            .kvs()
            .iter()
            .map(|kv| {
                let key = String::from_utf8_lossy(kv.key()).into_owned();
                let value = serde_json::from_slice(kv.value()).map(Arc::new).map_err(|e| format!("{key}: {e}"));
                Stored { key, mod_revision: kv.mod_revision(), value }
            })
            .collect())
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

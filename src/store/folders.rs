//! The folders that only grow and are read on demand: history, audit, records (spec/etcd.md, Our own keys).

use etcd_client::{GetOptions, SortOrder, SortTarget};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{connect::Store, error::StoreError, keys::end_of, tail::stored};
use crate::model::entry::Stored;

/// Values of one page.
const PAGE: i64 = 500;
/// Old records looked at together: the history's hold the ends of outputs, some 10 KiB each.
const AT_ONCE: i64 = 64;

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
    ///
    /// The oldest is what was written first: the keys of the history are those of the entries, and tell no time.
    pub async fn outdated(&self, folder: &str, keep: u64, before: Timestamp) -> Result<Vec<String>, StoreError> {
        let options =
            GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(AT_ONCE);
        let got = match self.get(folder, options).await {
            Ok(got) => got,
            Err(failure) => return Err(self.sentence(&format!("read {folder}"), failure).await),
        };
        let beyond = u64::try_from(got.count()).unwrap_or(0).saturating_sub(keep);
        // what cannot be read goes only with the number
        let past = |value: &[u8]| serde_json::from_slice::<Dated>(value).is_ok_and(|dated| dated.at < before);
        let old = got.kvs().iter().zip(0..).take_while(|(kv, place)| *place < beyond || past(kv.value()));
        Ok(old.map(|(kv, _)| String::from_utf8_lossy(kv.key()).into_owned()).collect())
    }
}

/// What records of both folders have.
#[derive(serde::Deserialize)]
struct Dated {
    at: Timestamp,
}

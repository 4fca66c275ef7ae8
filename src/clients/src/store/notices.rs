//! Reads for notices: the records of receivers, and the entries that ended after a revision (`docs/notices.md`).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{cketerm_records::Ending, entry::Stored, notice::NotifierState, stored::keys::prefix_end};
use etcd_client::GetOptions;

use super::{connect::Store, error::StoreError, tail::stored};

/// History of entries that ended after a revision.
#[derive(Clone, Debug, Default)]
pub struct EndingsAfter {
    /// Each record with its create revision, oldest first, including unreadable ones.
    pub list: Vec<(i64, Stored<Ending>)>,
    /// Whether there are more.
    pub more: bool,
    /// Revision of the read.
    pub revision: i64,
}

impl Store {
    /// Reads a receiver's record; returns a ModRevision of 0 and none if there is no record. An unreadable record is an
    /// error inside.
    pub async fn notifier_state(
        &self,
        receiver: &str,
    ) -> Result<(i64, Option<Result<NotifierState, String>>), StoreError> {
        let key = self.keys().notices(receiver);
        let raw = self.raw(&key).await?;
        let read = |text: &str| serde_json::from_str(text).map_err(|e| format!("{key}: invalid: {e}"));
        Ok(raw.map_or((0, None), |raw| (raw.mod_revision, Some(read(&raw.text)))))
    }

    /// Reads the records of all receivers, by name.
    pub async fn all_notifier_states(&self) -> Result<BTreeMap<String, Stored<NotifierState>>, StoreError> {
        let prefix = self.keys().notices_prefix();
        match self.read_range(prefix.as_bytes(), &prefix_end(prefix.as_bytes()), 0).await {
            Ok((_, kvs)) => {
                let each = kvs.iter().map(|kv| {
                    let stored: Stored<NotifierState> = stored(kv);
                    (stored.key.trim_start_matches(&prefix).to_owned(), stored)
                });
                Ok(each.collect())
            }
            Err(failure) => Err(self.store_error(&format!("read {prefix}"), failure).await),
        }
    }

    /// Returns etcd's present revision.
    pub async fn current_revision(&self) -> Result<i64, StoreError> {
        let prefix = self.keys().notices_prefix();
        match self.get(prefix.as_str(), GetOptions::new().with_prefix().with_count_only()).await {
            Ok(got) => Ok(got.header().map_or(0, etcd_client::ResponseHeader::revision)),
            Err(failure) => Err(self.store_error(&format!("read {prefix}"), failure).await),
        }
    }

    /// Reads the first `n` of these keys, which were written after the revision `read`
    /// ([`cketerm_model::stored::recent::RecentRecords::after`]). The rest of the folder is not read.
    pub async fn endings_by_key(
        &self,
        keys: &[(i64, String)],
        (after, read): (i64, i64),
        n: u32,
    ) -> Result<EndingsAfter, StoreError> {
        let limit = usize::try_from(n).unwrap_or(usize::MAX);
        let (batch, more) = (&keys[..keys.len().min(limit)], keys.len() > limit);
        let names: BTreeSet<&str> = batch.iter().map(|(_, key)| key.as_str()).collect();
        let mut list = Vec::new();
        for key in names {
            let got = match self.get(key, GetOptions::new()).await {
                Ok(got) => got,
                Err(failure) => return Err(self.store_error(&format!("read {key}"), failure).await),
            };
            list.extend(got.kvs().iter().map(|kv| (kv.create_revision(), stored(kv))));
        }
        list.retain(|(created, _)| *created > after);
        list.sort_by_key(|(created, _)| *created);
        Ok(EndingsAfter { list, more, revision: batch.last().map_or(read, |(at, _)| *at) })
    }

    /// Reads the first `n` entries that ended after this revision, in the order of their end. A history record that is
    /// written again, because its attempts were settled, does not count again.
    pub async fn endings_after(&self, revision: i64, n: u32) -> Result<EndingsAfter, StoreError> {
        let prefix = self.keys().history_prefix();
        let read = async {
            let (at, mut keys) = self.folder_keys(&prefix, &prefix).await?;
            keys.retain(|key| key.created > revision);
            keys.sort_by_key(|key| key.created);
            // The next read continues after the last revision, so all entries that ended at it are returned.
            let last = usize::try_from(n).ok().and_then(|n| keys.get(n.checked_sub(1)?)).map(|key| key.created);
            let all = keys.len();
            keys.retain(|key| last.is_none_or(|last| key.created <= last));
            let more = keys.len() < all;
            let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
            let mut keys = keys.iter();
            let values = self.read_keys::<Ending>(&names).await?.into_iter();
            let mut created =
                |value: &Stored<Ending>| keys.find(|key| key.name == value.key).map_or(at, |key| key.created);
            Ok(EndingsAfter { list: values.map(|v| (created(&v), v)).collect(), more, revision: at })
        };
        match read.await {
            Ok(found) => Ok(found),
            Err(failure) => Err(self.store_error(&format!("read {prefix}"), failure).await),
        }
    }
}

//! Folders that only grow and are read on demand: history, audit, records (STO-23, STO-51).

use cketerm_model::{
    entry::{QueueKind, Stored},
    fault,
    stored::keys::prefix_end,
};
use etcd_client::{GetOptions, KeyValue};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{
    connect::Store,
    error::StoreError,
    failure::Failure,
    key_pages::{FolderKey, KeyRange},
    tail::stored,
};

/// Number of pages that one search by age reads.
const MAX_PAGES: usize = 4;
/// Number of records in a page of such a search: those of the history contain outputs, some 10 KiB each.
const HISTORY_PAGE: i64 = 64;
const AUDIT_PAGE: i64 = 1_000;
/// Number of first keys of each queue that are read for the oldest entries beyond their number: at most, and at least.
const FIRST_KEYS: usize = 10_000;
const MIN_FIRST_KEYS: usize = 64;

impl Store {
    /// Reads the newest `n` values below a folder (see [`cketerm_model::stored::keys::Keys::audit_prefix`] and similar functions),
    /// newest first.
    pub async fn newest<T: DeserializeOwned>(&self, folder: &str, n: u32) -> Result<Vec<Stored<T>>, StoreError> {
        self.newest_with_revision(folder, usize::try_from(n).unwrap_or(usize::MAX)).await.map(|(_, values)| values)
    }

    /// Reads the same and the revision of the read, from which the folder can be followed ([`Store::tail`]).
    pub async fn newest_with_revision<T: DeserializeOwned>(
        &self,
        folder: &str,
        n: usize,
    ) -> Result<(i64, Vec<Stored<T>>), StoreError> {
        let read = async {
            let (at, mut values) = self.read_newest(folder, n).await?;
            values.truncate(n);
            Ok((at, values))
        };
        match read.await {
            Ok(read) => Ok(read),
            Err(failure) => Err(self.store_error(&format!("read {folder}"), failure).await),
        }
    }

    /// Reads all values of `folder` whose keys are not before `from`, newest first, in pages at one revision.
    pub async fn newest_first_from<T: DeserializeOwned>(
        &self,
        folder: &str,
        from: &str,
    ) -> Result<(i64, Vec<Stored<T>>), StoreError> {
        match self.read_newest_first(folder, from).await {
            Ok(read) => Ok(read),
            Err(failure) => Err(self.store_error(&format!("read {folder}"), failure).await),
        }
    }

    /// Reads the last `n` values of a folder and perhaps some more, last key first.
    pub(super) async fn read_newest<T: DeserializeOwned>(
        &self,
        folder: &str,
        n: usize,
    ) -> Result<(i64, Vec<Stored<T>>), Failure> {
        let from = if n == usize::MAX { folder.to_owned() } else { self.start_of_newest(folder, n).await? };
        self.read_newest_first(folder, &from).await
    }

    /// Reads upwards, as etcd does without sorting. For any other order, etcd would fetch the whole range for each
    /// page.
    async fn read_newest_first<T: DeserializeOwned>(
        &self,
        folder: &str,
        from: &str,
    ) -> Result<(i64, Vec<Stored<T>>), Failure> {
        let (at, kvs) = self.read_range(from.as_bytes(), &prefix_end(folder.as_bytes()), 0).await?;
        Ok((at, kvs.iter().rev().map(stored).collect()))
    }

    /// Returns keys below `cketerm/history/` to prune: the oldest beyond `keep`, then those before `before`. It returns
    /// 5,000 at most, so it must be called until the result is empty. To find records by age, it reads some pages from
    /// the position of `walk`, never the whole folder; the next call continues there.
    pub async fn outdated_history(
        &self,
        keep: usize,
        before: Timestamp,
        walk: &mut FolderCursor,
    ) -> Result<Vec<String>, StoreError> {
        let folder = self.keys().history_prefix();
        match self.find_outdated_history(&folder, keep, before, walk).await {
            Ok(keys) => Ok(keys),
            Err(failure) => Err(self.store_error(&format!("read {folder}"), failure).await),
        }
    }

    async fn find_outdated_history(
        &self,
        folder: &str,
        keep: usize,
        before: Timestamp,
        walk: &mut FolderCursor,
    ) -> Result<Vec<String>, Failure> {
        let surplus = self.count(folder, folder).await?.saturating_sub(keep);
        // An entry may have ended long after others with higher numbers, so only the older half of them goes.
        let looked_at = (2 * surplus.min(FIRST_KEYS)).clamp(MIN_FIRST_KEYS, FIRST_KEYS);
        let mut oldest = if surplus > 0 { self.first_keys(folder, looked_at).await? } else { Vec::new() };
        if !oldest.is_empty() {
            oldest.sort_by_key(|key| key.created);
            oldest.truncate(surplus.min(looked_at / 2));
            return Ok(oldest.into_iter().map(|key| key.name).collect());
        }
        self.expired((folder.as_bytes(), &prefix_end(folder.as_bytes())), HISTORY_PAGE, before, walk).await
    }

    /// Returns the keys in this range whose records are from before this moment, in some pages from the position of
    /// `walk`.
    async fn expired(
        &self,
        (start, end): (&[u8], &[u8]),
        page: i64,
        before: Timestamp,
        walk: &mut FolderCursor,
    ) -> Result<Vec<String>, Failure> {
        let name = |kv: &KeyValue| String::from_utf8_lossy(kv.key()).into_owned();
        for _ in 0..MAX_PAGES {
            let from = walk.next.take().unwrap_or_else(|| start.to_vec());
            if from.as_slice() >= end {
                break;
            }
            let options = GetOptions::new().with_range(end).with_limit(page);
            let got = self.get(from, options).await?;
            // An unreadable record is pruned only by number.
            let is_expired =
                |kv: &&KeyValue| serde_json::from_slice::<DatedRecord>(kv.value()).is_ok_and(|d| d.newest() < before);
            let found: Vec<String> = got.kvs().iter().filter(is_expired).map(name).collect();
            if let Some(last) = got.kvs().last().filter(|_| got.more()) {
                walk.next = Some([last.key(), &[0]].concat());
            }
            if !found.is_empty() || walk.next.is_none() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// Returns audit records to prune, oldest first: those beyond the limits for engines and for operators. Each is
    /// counted separately, so that no engine displaces operators' records (I48). Otherwise returns those before
    /// `before`, as [`Store::outdated_history`] finds them. Some are returned at a time, so it must be called until the
    /// result is empty; the records are counted again only then, or after [`FolderCursor::count_again`].
    pub async fn outdated_audit(
        &self,
        keep: AuditRetention,
        before: Timestamp,
        walk: &mut FolderCursor,
    ) -> Result<Vec<String>, StoreError> {
        let folder = self.keys().audit_prefix();
        let found = match self.surplus(&folder, keep, walk).await {
            Ok(surplus) if surplus.is_empty() => {
                // The keys are times, and no record is older than its key.
                let end = format!("{folder}{:020}", before.as_nanosecond().max(0));
                self.expired((folder.as_bytes(), end.as_bytes()), AUDIT_PAGE, before, walk).await
            }
            found => found,
        };
        match found {
            Ok(keys) => Ok(keys),
            Err(failure) => Err(self.store_error(&format!("read {folder}"), failure).await),
        }
    }

    /// Reads only keys, and only if there are more records than the smaller limit.
    async fn surplus(
        &self,
        folder: &str,
        keep: AuditRetention,
        walk: &mut FolderCursor,
    ) -> Result<Vec<String>, Failure> {
        fault!(AuditFlooded => keep = AuditRetention { engine: 5, people: 0 });
        let is_by_person = |key: &str| {
            fault!(AuditFlooded => return false);
            self.keys().is_person_audit(key)
        };
        if walk.surplus.is_none() {
            if self.count(folder, folder).await? <= keep.engine.min(keep.people) {
                return Ok(Vec::new());
            }
            let (mut counts, mut next) = (AuditRetention::default(), Some(KeyRange::starting_at(folder)));
            while let Some(range) = next {
                let page = self.key_page(folder, range, 0).await?;
                let people = page.keys.iter().filter(|key| is_by_person(&key.name)).count();
                counts.people += people;
                counts.engine += page.keys.len() - people;
                next = page.next;
            }
            walk.surplus = Some(Surplus {
                engine: counts.engine.saturating_sub(keep.engine),
                people: counts.people.saturating_sub(keep.people),
                left: KeyRange::starting_at(folder),
            });
        }
        while let Some(mut surplus) = walk.surplus.take().filter(|surplus| surplus.engine + surplus.people > 0) {
            let page = self.key_page(folder, surplus.left.clone(), 0).await?;
            let mut keys: Vec<String> = page.keys.into_iter().map(|key| key.name).collect();
            keys.retain(|key| surplus.takes(is_by_person(key)));
            walk.surplus = page.next.map(|left| Surplus { left, ..surplus });
            if !keys.is_empty() {
                return Ok(keys);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the first `n` keys of each queue in the history: their numbers are independent.
    async fn first_keys(&self, folder: &str, n: usize) -> Result<Vec<FolderKey>, Failure> {
        let mut first = Vec::new();
        for queue in QueueKind::ALL {
            let part = format!("{folder}{}-", queue.folder());
            let options = GetOptions::new().with_prefix().with_keys_only();
            let got = self.get(part, options.with_limit(i64::try_from(n).unwrap_or(i64::MAX))).await?;
            first.extend(got.kvs().iter().map(FolderKey::from));
        }
        Ok(first)
    }
}

/// Number of audit records to keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditRetention {
    /// Records of engines.
    pub engine: usize,
    /// Records of operators.
    pub people: usize,
}

/// Audit records beyond the limits that a search has not returned yet.
#[derive(Clone, Debug)]
struct Surplus {
    engine: usize,
    people: usize,
    /// Range in which the search continues; the oldest records are the first.
    left: KeyRange,
}

impl Surplus {
    /// Takes one record, if there are too many of its kind.
    fn takes(&mut self, by_person: bool) -> bool {
        let left = if by_person { &mut self.people } else { &mut self.engine };
        let takes = *left > 0;
        *left = left.saturating_sub(1);
        takes
    }
}

/// Position of a search through a folder for old records.
#[derive(Clone, Debug, Default)]
pub struct FolderCursor {
    next: Option<Vec<u8>>,
    surplus: Option<Surplus>,
}

impl FolderCursor {
    /// Makes the next search count the records again: another engine may have pruned them meanwhile.
    pub fn count_again(&mut self) {
        self.surplus = None;
    }
}

/// Common fields of records in both folders.
#[derive(serde::Deserialize)]
struct DatedRecord {
    at: Timestamp,
    /// For an audit record of several tries: the time of the last one. For a history record: the entry.
    #[serde(default)]
    last: serde_json::Value,
}

impl DatedRecord {
    fn newest(&self) -> Timestamp {
        self.last.as_str().and_then(|last| last.parse().ok()).unwrap_or(self.at)
    }
}

//! Folders that only grow and are read on demand: history, audit, records (STO-23, STO-51).

use etcd_client::{GetOptions, KeyValue};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{answer::Failure, connect::Store, error::StoreError, keys::end_of, tail::stored};
use crate::{
    model::entry::{QueueKind, Stored},
    mutation::{Mutation, on},
};

/// Number of pages that one search for old records reads.
const LOOKS: usize = 4;
/// Number of old records read together: those of the history contain outputs, some 10 KiB each.
const AT_ONCE: i64 = 64;
/// Number of keys read together, and of old keys remembered for each kind of author.
const KEYS_AT_ONCE: i64 = 2000;
const OLDEST: usize = 1000;

impl Store {
    /// Reads the newest `n` values below a folder (see [`super::keys::Keys::audit_prefix`] and similar functions),
    /// newest first.
    pub async fn newest<T: DeserializeOwned>(&self, folder: &str, n: u32) -> Result<Vec<Stored<T>>, StoreError> {
        self.newest_at(folder, usize::try_from(n).unwrap_or(usize::MAX)).await.map(|(_, values)| values)
    }

    /// Reads the same and the revision of the read, from which the folder can be followed ([`Store::tail`]).
    pub async fn newest_at<T: DeserializeOwned>(
        &self,
        folder: &str,
        n: usize,
    ) -> Result<(i64, Vec<Stored<T>>), StoreError> {
        let read = async {
            let (at, mut values) = self.last_of(folder, n).await?;
            values.truncate(n);
            Ok((at, values))
        };
        match read.await {
            Ok(read) => Ok(read),
            Err(failure) => Err(self.sentence(&format!("read {folder}"), failure).await),
        }
    }

    /// Reads all values of `folder` whose keys are not before `from`, newest first, in pages at one revision.
    pub async fn downwards<T: DeserializeOwned>(
        &self,
        folder: &str,
        from: &str,
    ) -> Result<(i64, Vec<Stored<T>>), StoreError> {
        match self.backwards(folder, from).await {
            Ok(read) => Ok(read),
            Err(failure) => Err(self.sentence(&format!("read {folder}"), failure).await),
        }
    }

    /// Reads the last `n` values of a folder and perhaps some more, last key first.
    pub(super) async fn last_of<T: DeserializeOwned>(
        &self,
        folder: &str,
        n: usize,
    ) -> Result<(i64, Vec<Stored<T>>), Failure> {
        let from = if n == usize::MAX { folder.to_owned() } else { self.last_from(folder, n).await? };
        self.backwards(folder, &from).await
    }

    /// Reads upwards, as etcd does without sorting. For any other order, etcd would fetch the whole range for each
    /// page.
    async fn backwards<T: DeserializeOwned>(&self, folder: &str, from: &str) -> Result<(i64, Vec<Stored<T>>), Failure> {
        let (at, kvs) = self.pages(from.as_bytes(), &end_of(folder.as_bytes()), 0).await?;
        Ok((at, kvs.iter().rev().map(stored).collect()))
    }

    /// Reports whether the keys of a folder, its numbers or times, show the order in which they were written.
    pub(super) fn in_order(&self, folder: &str) -> bool {
        folder == self.keys().audit_prefix() || folder == self.keys().records_prefix()
    }

    /// Returns a key from which on a folder holds `n` values, and not many more. It searches by counts, for which etcd
    /// reads no values. Returns the folder itself if its keys show no order.
    async fn last_from(&self, folder: &str, n: usize) -> Result<String, Failure> {
        let decimal = folder == self.keys().audit_prefix();
        let place = |at: u64| if decimal { format!("{folder}{at:020}") } else { format!("{folder}{at:016x}") };
        if !self.in_order(folder) || self.count(folder, folder).await? <= n {
            return Ok(folder.to_owned());
        }
        let (mut low, mut high) = (0_u64, u64::MAX);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let count = self.count(folder, &place(middle)).await?;
            if count < n {
                high = middle;
                continue;
            }
            low = middle;
            if count <= n.saturating_mul(2) {
                break;
            }
        }
        Ok(place(low))
    }

    async fn count(&self, folder: &str, from: &str) -> Result<usize, Failure> {
        let options = GetOptions::new().with_range(end_of(folder.as_bytes())).with_count_only();
        let got = self.get(from, options).await?;
        Ok(usize::try_from(got.count()).unwrap_or(0))
    }

    /// Returns keys below `cketerm/audit/` or `cketerm/history/` to prune: the oldest beyond `keep`, then those before
    /// `before`. It never returns more than one transaction of the leader can delete, so it must be called until the
    /// result is empty. To find records by age, it reads some pages from the position of `walk`, never the whole
    /// folder; the next call continues there.
    pub async fn outdated(
        &self,
        folder: &str,
        keep: u64,
        before: Timestamp,
        walk: &mut Walk,
    ) -> Result<Vec<String>, StoreError> {
        match self.outdated_of(folder, keep, before, walk).await {
            Ok(keys) => Ok(keys),
            Err(failure) => Err(self.sentence(&format!("read {folder}"), failure).await),
        }
    }

    async fn outdated_of(
        &self,
        folder: &str,
        keep: u64,
        before: Timestamp,
        walk: &mut Walk,
    ) -> Result<Vec<String>, Failure> {
        let name = |kv: &KeyValue| String::from_utf8_lossy(kv.key()).into_owned();
        let count = self.count(folder, folder).await?;
        let beyond = count.saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX));
        if beyond > 0 {
            let mut oldest = self.first_of_each(folder).await?;
            oldest.sort_by_key(KeyValue::create_revision);
            return Ok(oldest.iter().take(beyond.min(64)).map(name).collect());
        }
        self.aged(folder, before, walk).await
    }

    /// Returns the keys from before this moment, in some pages from the position of `walk`.
    async fn aged(&self, folder: &str, before: Timestamp, walk: &mut Walk) -> Result<Vec<String>, Failure> {
        let name = |kv: &KeyValue| String::from_utf8_lossy(kv.key()).into_owned();
        let end = end_of(folder.as_bytes());
        for _ in 0..LOOKS {
            let from = walk.next.take().unwrap_or_else(|| folder.as_bytes().to_vec());
            let options = GetOptions::new().with_range(end.clone()).with_limit(AT_ONCE);
            let got = self.get(from, options).await?;
            // An unreadable record is pruned only by number.
            let past = |kv: &&KeyValue| serde_json::from_slice::<Dated>(kv.value()).is_ok_and(|d| d.newest() < before);
            let found: Vec<String> = got.kvs().iter().filter(past).map(name).collect();
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
    /// `before`, as [`Store::outdated`] finds them.
    pub async fn outdated_audit(
        &self,
        keep: KeptAudit,
        before: Timestamp,
        walk: &mut Walk,
    ) -> Result<Vec<String>, StoreError> {
        let folder = self.keys().audit_prefix();
        let found = match self.beyond(&folder, keep).await {
            Ok(beyond) if beyond.is_empty() => self.aged(&folder, before, walk).await,
            found => found,
        };
        match found {
            Ok(keys) => Ok(keys),
            Err(failure) => Err(self.sentence(&format!("read {folder}"), failure).await),
        }
    }

    /// Reads only keys, and only if there are more records than the smaller limit.
    async fn beyond(&self, folder: &str, keep: KeptAudit) -> Result<Vec<String>, Failure> {
        let flooded = on(Mutation::AuditFlooded);
        let keep = if flooded { KeptAudit { engine: 5, people: 0 } } else { keep };
        if self.count(folder, folder).await? <= keep.engine.min(keep.people) && !flooded {
            return Ok(Vec::new());
        }
        let (end, mut from) = (end_of(folder.as_bytes()), folder.as_bytes().to_vec());
        let (mut engine, mut people) = (Oldest::default(), Oldest::default());
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(KEYS_AT_ONCE).with_keys_only();
            let got = self.get(from, options).await?;
            for kv in got.kvs() {
                let key = String::from_utf8_lossy(kv.key());
                let theirs = self.keys().audit_of_person(&key) && !flooded;
                if theirs { people.add(&key) } else { engine.add(&key) }
            }
            match got.kvs().last().filter(|_| got.more()) {
                Some(last) => from = [last.key(), &[0]].concat(),
                None => break,
            }
        }
        Ok(engine.beyond(keep.engine).chain(people.beyond(keep.people)).collect())
    }

    /// Returns the first keys of a folder; for the history, those of both queues, whose numbers are independent.
    async fn first_of_each(&self, folder: &str) -> Result<Vec<KeyValue>, Failure> {
        let queues = [QueueKind::Reboot, QueueKind::Repair].map(|queue| format!("{folder}{}-", queue.folder()));
        let parts = if folder == self.keys().history_prefix() { queues.to_vec() } else { vec![folder.to_owned()] };
        let mut first = Vec::new();
        for part in parts {
            let options = GetOptions::new().with_prefix().with_limit(AT_ONCE);
            first.extend(self.get(part, options).await?.take_kvs());
        }
        Ok(first)
    }
}

/// Number of audit records to keep.
#[derive(Clone, Copy, Debug)]
pub struct KeptAudit {
    /// Records of engines.
    pub engine: usize,
    /// Records of operators.
    pub people: usize,
}

/// Number of keys, and the oldest of them.
#[derive(Default)]
struct Oldest {
    count: usize,
    keys: Vec<String>,
}

impl Oldest {
    fn add(&mut self, key: &str) {
        self.count += 1;
        if self.keys.len() < OLDEST {
            self.keys.push(key.to_owned());
        }
    }

    fn beyond(self, keep: usize) -> impl Iterator<Item = String> {
        let beyond = self.count.saturating_sub(keep);
        self.keys.into_iter().take(beyond)
    }
}

/// Position of a search through a folder for old records.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    next: Option<Vec<u8>>,
}

/// Common fields of records in both folders.
#[derive(serde::Deserialize)]
struct Dated {
    at: Timestamp,
    /// For an audit record of several tries: the time of the last one. For a history record: the entry.
    #[serde(default)]
    last: serde_json::Value,
}

impl Dated {
    fn newest(&self) -> Timestamp {
        self.last.as_str().and_then(|last| last.parse().ok()).unwrap_or(self.at)
    }
}

//! Keys of the folders that only grow, with the order in which etcd accepted their values. First the keys are read, then
//! as many values as are needed, neighbours together. etcd reads the values of these keys both times, but sends them
//! once. For an order other than that of the keys, and for limits of revisions, it would read all values of a folder for
//! each page.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{entry::Stored, stored::keys::prefix_end};
use etcd_client::{GetOptions, KeyValue, TxnOpResponse};
use serde::de::DeserializeOwned;

use super::{
    connect::Store,
    failure::Failure,
    key_pages::{FolderKey, KeyRange},
    key_runs::KeyRun,
    tail::stored,
};

/// Number of restarts of a read whose revision was compacted meanwhile.
const COMPACTIONS: u32 = 3;
/// Number of reads in one transaction; etcd takes 128 operations.
const READS_PER_TXN: usize = 100;
/// Number of values read together, whatever their size.
pub(super) const VALUES_AT_ONCE: usize = 100;
/// Ages at which the search for the newest records looks first, in nanoseconds: one minute, and each time so many times
/// more.
const FIRST_AGE: u64 = 60_000_000_000;
const AGE_FACTOR: u64 = 8;

impl Store {
    /// Reads the keys of a folder that are not before `from`, at one revision, which is returned too.
    pub(super) async fn folder_keys(&self, folder: &str, from: &str) -> Result<(i64, Vec<FolderKey>), Failure> {
        let mut compactions = 0;
        loop {
            match self.folder_keys_once(folder, from).await {
                Err(Failure::Compacted) if compactions < COMPACTIONS => compactions += 1,
                other => return other,
            }
        }
    }

    async fn folder_keys_once(&self, folder: &str, from: &str) -> Result<(i64, Vec<FolderKey>), Failure> {
        let first = self.key_page(folder, KeyRange::starting_at(from), 0).await?;
        let (mut keys, mut next) = (first.keys, first.next);
        while let Some(range) = next {
            let page = self.key_page(folder, range, first.revision).await?;
            keys.extend(page.keys);
            next = page.next;
        }
        Ok((first.revision, keys))
    }

    /// Reads the values of these keys in their order, each once, as far as they exist.
    pub(super) async fn read_keys<T: DeserializeOwned>(&self, keys: &[&str]) -> Result<Vec<Stored<T>>, Failure> {
        let mut named = BTreeSet::new();
        let keys: Vec<&str> = keys.iter().copied().filter(|key| named.insert(*key)).collect();
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(VALUES_AT_ONCE) {
            found.extend(self.read_keys_at_once(some).await?.0);
        }
        Ok(found)
    }

    /// Reads the values of these few keys, all different, and returns the number of their bytes too.
    pub(super) async fn read_keys_at_once<T: DeserializeOwned>(
        &self,
        keys: &[&str],
    ) -> Result<(Vec<Stored<T>>, usize), Failure> {
        let wanted: BTreeSet<&str> = keys.iter().copied().collect();
        let (mut values, mut cut_off) = (WantedValues { wanted, found: BTreeMap::new(), bytes: 0 }, false);
        for runs in KeyRun::of(&values.wanted).chunks(READS_PER_TXN) {
            cut_off |= self.read_into(&mut values, runs.iter().map(KeyRun::read).collect()).await?;
        }
        if cut_off {
            let missing: Vec<&str> = keys.iter().copied().filter(|key| !values.found.contains_key(*key)).collect();
            for some in missing.chunks(READS_PER_TXN) {
                let reads = some.iter().map(|key| ((*key).to_owned(), GetOptions::new())).collect();
                self.read_into(&mut values, reads).await?;
            }
        }
        Ok((keys.iter().filter_map(|key| values.found.remove(*key)).collect(), values.bytes))
    }

    /// Takes the wanted values of these reads. Returns true if etcd has more values in the range of one of them.
    async fn read_into<T: DeserializeOwned>(
        &self,
        values: &mut WantedValues<'_, T>,
        reads: Vec<(String, GetOptions)>,
    ) -> Result<bool, Failure> {
        let answer = self.get_all(reads).await?;
        let mut more = false;
        for answer in answer.op_responses() {
            if let TxnOpResponse::Get(got) = answer {
                more |= got.more();
                got.kvs().iter().for_each(|kv| values.take(kv));
            }
        }
        Ok(more)
    }

    /// Reports whether the keys of a folder, its numbers or times, show the order in which they were written.
    pub(super) fn has_ordered_keys(&self, folder: &str) -> bool {
        folder == self.keys().audit_prefix() || folder == self.keys().records_prefix()
    }

    /// Returns a key from which on a folder holds `n` values, and not many more. It searches by counts, for which etcd
    /// reads no values. Returns the folder itself if it holds no more, or if its keys show no order.
    pub(super) async fn start_of_newest(&self, folder: &str, n: usize) -> Result<String, Failure> {
        if !self.has_ordered_keys(folder) {
            return Ok(folder.to_owned());
        }
        let is_audit = folder == self.keys().audit_prefix();
        let key_at = |at: u64| if is_audit { format!("{folder}{at:020}") } else { format!("{folder}{at:016x}") };
        let (mut low, mut high) = (0, u64::MAX);
        // The keys of the audit are times, and its newest records are recent: etcd then counts few keys, not all.
        let now = u64::try_from(self.clock().wall().as_nanosecond()).unwrap_or(0);
        let ages = std::iter::successors(Some(FIRST_AGE), |age| age.checked_mul(AGE_FACTOR));
        let mut count = 0;
        for at in ages.map_while(|age| now.checked_sub(age)).filter(|_| is_audit) {
            count = self.count(folder, &key_at(at)).await?;
            if count >= n {
                low = at;
                break;
            }
            high = at;
        }
        if low == 0 {
            count = self.count(folder, folder).await?;
            if count <= n {
                return Ok(folder.to_owned());
            }
        }
        while count > n.saturating_mul(2) && high - low > 1 {
            let middle = low + (high - low) / 2;
            let above = self.count(folder, &key_at(middle)).await?;
            if above < n {
                high = middle;
            } else {
                (low, count) = (middle, above);
            }
        }
        Ok(key_at(low))
    }

    pub(super) async fn count(&self, folder: &str, from: &str) -> Result<usize, Failure> {
        let options = GetOptions::new().with_range(prefix_end(folder.as_bytes())).with_count_only();
        let got = self.get(from, options).await?;
        Ok(usize::try_from(got.count()).unwrap_or(0))
    }
}

/// Values of some keys of a folder, as far as they were read.
struct WantedValues<'a, T> {
    wanted: BTreeSet<&'a str>,
    found: BTreeMap<String, Stored<T>>,
    bytes: usize,
}

impl<T: DeserializeOwned> WantedValues<'_, T> {
    fn take(&mut self, kv: &KeyValue) {
        if kv.key_str().is_ok_and(|key| self.wanted.contains(key)) {
            self.bytes += kv.value().len();
            let one = stored(kv);
            self.found.insert(one.key.clone(), one);
        }
    }
}

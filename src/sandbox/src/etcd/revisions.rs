//! Key-value state by revision (MVCC): every version of every key since the last compaction, and the log that watches
//! read. Pure: no clock, no leases, no wire format.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;

use super::{RpcError, key_range::KeyRange};

/// One version of a key, or its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_field_names)] // etcd's names
pub struct Version {
    /// The key.
    pub key: Bytes,
    /// The value; `None` for a deletion.
    pub value: Option<Bytes>,
    /// Revision that created the key; 0 for a deletion.
    pub create_revision: i64,
    /// Revision of this change.
    pub mod_revision: i64,
    /// Changes since the key was created, this one included; 0 for a deletion.
    pub version: i64,
    /// Lease the key is attached to; 0 for none.
    pub lease: i64,
}

/// All versions since the last compaction.
#[derive(Debug)]
pub struct Revisions {
    /// Versions of each key in the order of their revisions; never empty.
    keys: BTreeMap<Bytes, Vec<Arc<Version>>>,
    /// Changes since the last compaction, including the compacted revision.
    log: VecDeque<Arc<Version>>,
    revision: i64,
    compacted: i64,
    values_read: AtomicUsize,
}

impl Default for Revisions {
    /// An empty store is at revision 1, and was never compacted.
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            log: VecDeque::new(),
            revision: 1,
            compacted: -1,
            values_read: AtomicUsize::new(0),
        }
    }
}

impl Revisions {
    /// Returns the revision of the last finished write.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the compacted revision; -1 if the store was never compacted.
    pub fn compacted(&self) -> i64 {
        self.compacted
    }

    /// Counts values that a read takes from the store, whether or not it returns them.
    pub fn note_read(&self, values: usize) {
        self.values_read.fetch_add(values, Ordering::Relaxed);
    }

    /// Returns the number of values that all reads have taken from the store.
    pub fn values_read(&self) -> usize {
        self.values_read.load(Ordering::Relaxed)
    }

    /// Returns the number of changes in the log.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Returns the total size of all keys and values in bytes.
    pub fn bytes(&self) -> usize {
        let versions = self.keys.values().flatten();
        versions.map(|v| v.key.len() + v.value.as_ref().map_or(0, Bytes::len)).sum()
    }

    /// Returns the revision of the change at this index of the log.
    pub fn revision_of_change(&self, at: usize) -> Option<i64> {
        self.log.get(at).map(|v| v.mod_revision)
    }

    /// Reports whether a write is in progress that has changed something.
    pub fn has_pending_write(&self) -> bool {
        self.log.back().is_some_and(|last| last.mod_revision > self.revision)
    }

    /// Returns the revision that a read sees. It includes the writes of the read's own transaction.
    pub fn visible_revision(&self) -> i64 {
        self.revision + i64::from(self.has_pending_write())
    }

    /// Checks that this revision can be read; 0 and below mean the current one.
    pub fn check(&self, revision: i64) -> Result<(), RpcError> {
        match revision {
            ..=0 => Ok(()),
            r if r > self.visible_revision() => Err(RpcError::Future),
            r if r < self.compacted => Err(RpcError::Compacted),
            _ => Ok(()),
        }
    }

    /// Returns the current version of the key.
    pub fn get(&self, key: &[u8]) -> Option<&Arc<Version>> {
        self.keys.get(key)?.last().filter(|v| v.value.is_some())
    }

    /// Returns the key as of a revision that [`Self::check`] allows.
    pub fn get_at(&self, key: &[u8], revision: i64) -> Option<&Arc<Version>> {
        at(self.keys.get(key)?, revision)
    }

    /// Returns the keys of a range in order, now or as of a revision that [`Self::check`] allows.
    pub fn range(&self, key_range: &KeyRange, revision: i64) -> impl Iterator<Item = &Arc<Version>> {
        let found = (!key_range.is_empty()).then(|| self.keys.range::<[u8], _>(key_range.bounds()));
        let revision = if revision <= 0 { i64::MAX } else { revision };
        found.into_iter().flatten().filter_map(move |(_, versions)| at(versions, revision))
    }

    /// Returns the changes of this revision and later ones, oldest first.
    pub fn since(&self, revision: i64) -> impl Iterator<Item = &Arc<Version>> {
        let from = self.log.partition_point(|v| v.mod_revision < revision);
        self.log.range(from..)
    }

    /// Puts a key within the write in progress, or begins a write. Returns the previous version and the new one.
    pub fn put(&mut self, key: &[u8], value: Bytes, lease: i64) -> (Option<Arc<Version>>, Arc<Version>) {
        let before = self.get(key).cloned();
        let mod_revision = self.revision + 1;
        let after = Arc::new(Version {
            key: before.as_ref().map_or_else(|| Bytes::copy_from_slice(key), |b| b.key.clone()),
            value: Some(value),
            create_revision: before.as_ref().map_or(mod_revision, |b| b.create_revision),
            mod_revision,
            version: before.as_ref().map_or(0, |b| b.version) + 1,
            lease,
        });
        self.append(&after);
        (before, after)
    }

    /// Deletes a key within the write in progress, or begins a write. Returns the previous version and the deletion, or
    /// `None` if there was no such key.
    pub fn delete(&mut self, key: &[u8]) -> Option<(Arc<Version>, Arc<Version>)> {
        let before = Arc::clone(self.get(key)?);
        let (key, mod_revision) = (before.key.clone(), self.revision + 1);
        let after = Arc::new(Version { key, value: None, create_revision: 0, mod_revision, version: 0, lease: 0 });
        self.append(&after);
        Some((before, after))
    }

    fn append(&mut self, after: &Arc<Version>) {
        self.keys.entry(after.key.clone()).or_default().push(Arc::clone(after));
        self.log.push_back(Arc::clone(after));
    }

    /// Ends the write in progress. All its changes share one revision; without changes there is none. Returns whether
    /// the revision moved.
    pub fn finish(&mut self) -> bool {
        let has_pending_write = self.has_pending_write();
        self.revision += i64::from(has_pending_write);
        has_pending_write
    }

    /// Drops the versions that no read at this revision or later can see.
    pub fn compact(&mut self, revision: i64) -> Result<(), RpcError> {
        if revision <= self.compacted {
            return Err(RpcError::Compacted);
        }
        if revision > self.revision {
            return Err(RpcError::Future);
        }
        self.compacted = revision;
        let old = self.log.partition_point(|v| v.mod_revision < revision);
        // A key whose last change is the compacted revision also loses its older versions.
        let end = self.log.partition_point(|v| v.mod_revision <= revision);
        let changed: BTreeSet<Bytes> = self.log.range(..end).map(|v| v.key.clone()).collect();
        self.log.drain(..old);
        for key in changed {
            let Some(versions) = self.keys.get_mut(&key) else { continue };
            let seen = versions.partition_point(|v| v.mod_revision <= revision);
            versions.drain(..seen.saturating_sub(1));
            if versions.first().is_some_and(|v| v.value.is_none()) {
                versions.remove(0);
            }
            if versions.is_empty() {
                self.keys.remove(&key);
            }
        }
        Ok(())
    }
}

fn at(versions: &[Arc<Version>], revision: i64) -> Option<&Arc<Version>> {
    let upto = versions.partition_point(|v| v.mod_revision <= revision);
    versions[..upto].last().filter(|v| v.value.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(revisions: &mut Revisions, key: &str, value: Option<&str>) {
        match value {
            Some(value) => _ = revisions.put(key.as_bytes(), Bytes::copy_from_slice(value.as_bytes()), 0),
            None => _ = revisions.delete(key.as_bytes()),
        }
        revisions.finish();
    }

    #[test]
    fn a_write_has_one_revision_and_a_no_op_write_has_none() {
        let mut all = Revisions::default();
        all.put(b"a", Bytes::new(), 0);
        all.put(b"b", Bytes::new(), 0);
        assert_eq!((all.revision(), all.visible_revision()), (1, 2));
        assert!(all.finish());
        assert!(all.delete(b"none").is_none() && !all.finish());
        assert_eq!(all.revision(), 2);
    }

    #[test]
    fn older_revisions_can_be_read_until_they_are_compacted() {
        let mut all = Revisions::default();
        for (key, value) in [("a", Some("1")), ("a", Some("2")), ("b", Some("3")), ("a", None), ("a", Some("4"))] {
            write(&mut all, key, value);
        }
        let read = |all: &Revisions, revision| -> Vec<(i64, i64)> {
            all.range(&KeyRange::From(vec![0]), revision).map(|v| (v.mod_revision, v.version)).collect()
        };
        assert_eq!(read(&all, 2), [(2, 1)]);
        assert_eq!(read(&all, 4), [(3, 2), (4, 1)]);
        assert_eq!(read(&all, 5), [(4, 1)]);
        assert_eq!(read(&all, 0), [(6, 1), (4, 1)]);
        all.compact(5).unwrap();
        assert_eq!(all.check(4), Err(RpcError::Compacted));
        assert_eq!(all.check(7), Err(RpcError::Future));
        assert_eq!(read(&all, 5), [(4, 1)]);
        assert_eq!(all.since(0).map(|v| v.mod_revision).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(all.keys.values().map(Vec::len).sum::<usize>(), 2);
        assert_eq!(all.compact(5), Err(RpcError::Compacted));
        assert_eq!(all.compact(9), Err(RpcError::Future));
    }

    #[test]
    fn compaction_removes_deleted_keys_completely() {
        let mut all = Revisions::default();
        for round in 0..100 {
            write(&mut all, &format!("k{round}"), Some("x"));
            write(&mut all, &format!("k{round}"), None);
        }
        all.compact(all.revision()).unwrap();
        assert_eq!((all.keys.len(), all.log_len()), (0, 1));
    }
}

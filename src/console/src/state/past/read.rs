//! Part of a folder that was read in pages, newest first. Newer values are read after it, older ones on demand.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use cketerm_clients::store::pages::{Page, Part};
use cketerm_model::{
    boot_time::BootTime,
    entry::Stored,
    stored::{keys::Folder, view::StoreView},
};

use super::{PastId, ReadRequest};

/// Pause after a failed read.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Pause between two reads of newer values, and between two pages of older ones.
const PAGE_INTERVAL: Duration = Duration::from_secs(1);

/// The part of a folder that was read.
#[derive(Clone, Debug)]
pub struct Read<T> {
    /// Newest first. Unreadable values have their error.
    pub rows: BTreeMap<PastId, Result<Arc<T>, String>>,
    /// Whether there may be older values.
    pub more: bool,
    /// The error of the last read.
    pub error: Option<String>,
    /// Whether the first page was read.
    pub loaded: bool,
    ids: HashMap<String, PastId>,
    synced_revision: i64,
    /// The live copy's revision at the last look. It never decreases within one etcd history.
    seen: i64,
    requested: bool,
    not_before: BootTime,
}

impl<T> Default for Read<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            more: true,
            error: None,
            loaded: false,
            ids: HashMap::new(),
            synced_revision: 0,
            seen: 0,
            requested: false,
            not_before: BootTime::ZERO,
        }
    }
}

impl<T> Read<T> {
    /// Returns the next page to read, if any: the first one, values written meanwhile, or older ones if `older` is set.
    pub fn next_request(
        &mut self,
        folder: Folder,
        store: &StoreView,
        older: bool,
        boot: BootTime,
    ) -> Option<ReadRequest> {
        if self.requested || !store.synced || boot < self.not_before {
            return None;
        }
        if store.revision < self.seen {
            // This is a different etcd history: nothing that was read belongs to it.
            *self = Self { not_before: self.not_before, ..Self::default() };
        }
        self.seen = store.revision;
        let oldest = self.rows.keys().next_back().map(|id| id.revision.0);
        let part = match oldest {
            _ if !self.loaded => Part::Newest,
            _ if store.grown.get(&folder).is_some_and(|at| *at > self.synced_revision) => {
                Part::After(self.synced_revision)
            }
            Some(oldest) if older && self.more => Part::Before(oldest),
            _ => return None,
        };
        self.requested = true;
        Some(ReadRequest::Page(folder, part))
    }

    /// Takes an answer.
    pub fn take(&mut self, part: Part, answer: Result<Page<T>, String>, boot: BootTime) {
        self.requested = false;
        let page = match answer {
            Ok(page) => page,
            Err(why) => {
                self.error = Some(why);
                self.not_before = boot + RETRY_DELAY;
                return;
            }
        };
        self.error = None;
        self.loaded = true;
        match part {
            Part::Newest => (self.synced_revision, self.more) = (page.revision, page.more),
            Part::Before(_) => {
                self.more = page.more;
                self.not_before = boot + PAGE_INTERVAL;
            }
            // If the page was full, the next read continues after it.
            Part::After(_) => {
                self.synced_revision = if page.more {
                    page.values.first().map_or(page.revision, |s| s.mod_revision)
                } else {
                    page.revision
                };
                self.not_before = boot + PAGE_INTERVAL;
            }
        }
        for Stored { key, mod_revision, value } in page.values {
            let id = self.ids.entry(key.clone()).or_insert_with(|| PastId { revision: Reverse(mod_revision), key });
            self.rows.insert(id.clone(), value);
        }
    }

    /// Keeps the newest `n` values, and remembers that there are older ones.
    pub fn truncate(&mut self, n: usize) {
        // An answer in progress continues after the oldest value, so that value must stay.
        while !self.requested && self.rows.len() > n {
            let Some((id, _)) = self.rows.pop_last() else { return };
            self.ids.remove(&id.key);
            self.more = true;
        }
    }

    /// Returns a readable value.
    pub fn get(&self, id: &PastId) -> Option<&Arc<T>> {
        self.rows.get(id)?.as_ref().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(revision: i64, more: bool, values: &[(i64, &str)]) -> Page<u8> {
        let stored =
            |(at, key): &(i64, &str)| Stored { key: (*key).to_owned(), mod_revision: *at, value: Ok(Arc::new(0)) };
        Page { revision, more, values: values.iter().map(stored).collect() }
    }

    fn store(revision: i64, grown: i64) -> StoreView {
        let mut store = StoreView { synced: true, revision, ..StoreView::default() };
        store.grown.insert(Folder::Audit, grown);
        store
    }

    #[test]
    fn pages_are_read_newest_first_then_new_records_and_older_ones_on_demand() {
        let mut read = Read::default();
        let at = BootTime::new(100.0);
        let ask = |read: &mut Read<u8>, store: &StoreView, older| {
            read.next_request(Folder::Audit, store, older, at + RETRY_DELAY)
        };
        assert_eq!(ask(&mut read, &store(50, 40), true), Some(ReadRequest::Page(Folder::Audit, Part::Newest)));
        assert_eq!(ask(&mut read, &store(50, 40), true), None, "one request at a time");
        read.take(Part::Newest, Ok(page(50, true, &[(40, "b"), (30, "a")])), at);
        assert_eq!(ask(&mut read, &store(50, 40), false), None, "nothing changed and nobody scrolls");
        assert_eq!(ask(&mut read, &store(55, 52), false), Some(ReadRequest::Page(Folder::Audit, Part::After(50))));
        read.take(Part::After(50), Ok(page(55, false, &[(52, "c")])), at);
        assert_eq!(ask(&mut read, &store(55, 52), true), Some(ReadRequest::Page(Folder::Audit, Part::Before(30))));
        read.take(Part::Before(30), Ok(page(55, false, &[(20, "z")])), at);
        assert_eq!(ask(&mut read, &store(55, 52), true), None, "the oldest record is read already");
        let order: Vec<&str> = read.rows.keys().map(|id| id.key.as_str()).collect();
        assert_eq!(order, ["c", "b", "a", "z"], "newest first");
    }

    #[test]
    fn a_failed_read_is_retried_later_and_a_restored_etcd_is_read_from_scratch() {
        let mut read: Read<u8> = Read::default();
        let at = BootTime::new(100.0);
        read.take(Part::Newest, Err("away".into()), at);
        assert_eq!(read.next_request(Folder::Audit, &store(50, 0), false, at), None);
        assert!(read.next_request(Folder::Audit, &store(50, 0), false, at + RETRY_DELAY).is_some());
        read.take(Part::Newest, Ok(page(50, false, &[(40, "b")])), at);
        let read_request = read.next_request(Folder::Audit, &store(7, 0), false, at + RETRY_DELAY);
        assert_eq!(read_request, Some(ReadRequest::Page(Folder::Audit, Part::Newest)));
        assert!(read.rows.is_empty());
    }
}

//! Pages of the folders that only grow, newest first, for scrolling. They are ordered by `ModRevision`, the order in
//! which etcd accepted the values, whatever their writers' clocks showed and however the keys are named.

use std::collections::BTreeSet;

use cketerm_model::{entry::Stored, stored::keys::Folder};
use serde::de::DeserializeOwned;

use super::{connect::Store, error::StoreError, failure::Failure, key_pages::FolderKey};

/// Number of a folder's last keys that are read first, if its keys show an order, and the factor by which there are
/// more if the page is not among them.
const KEYS: usize = 5_000;
const MORE_KEYS: usize = 8;
/// Number of additional keys among which a page is searched, because clocks differ. A value whose writer's clock was so
/// far behind that more newer ones lie between is on the page of its time.
const SLACK: usize = 1_000;

/// Selection of values of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The newest.
    Newest,
    /// Those written before this revision, newest first.
    Before(i64),
    /// Those written after this revision. If a page cannot hold all, it holds the oldest.
    After(i64),
}

/// Values of a folder.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Revision of the read.
    pub revision: i64,
    /// Values, newest first, including unreadable ones.
    pub values: Vec<Stored<T>>,
    /// Whether there are more values of this part.
    pub more: bool,
}

impl Store {
    /// Reads one page of a folder, with `n` values, the others of the last one's transaction, and those that were written
    /// late.
    pub async fn page<T: DeserializeOwned>(&self, folder: Folder, part: Part, n: u32) -> Result<Page<T>, StoreError> {
        let prefix = self.keys().folder(folder);
        match self.read_page(&prefix, part, n).await {
            Ok(page) => Ok(page),
            Err(failure) => Err(self.store_error(&format!("read {prefix}"), failure).await),
        }
    }

    /// Reads the values written to a folder after a revision, if the live copy knows their keys
    /// ([`cketerm_model::stored::view::StoreView::recent`]). It reads at most `n` of these keys, not the whole folder.
    pub async fn page_of_keys<T: DeserializeOwned>(
        &self,
        folder: Folder,
        revision: i64,
        keys: &[(i64, String)],
        n: u32,
    ) -> Result<Page<T>, StoreError> {
        let limit = usize::try_from(n).unwrap_or(usize::MAX);
        let (now, more) = (&keys[..keys.len().min(limit)], keys.len() > limit);
        let key_names: Vec<&str> = now.iter().map(|(_, key)| key.as_str()).collect();
        let mut values = match self.read_keys(&key_names).await {
            Ok(values) => values,
            Err(failure) => {
                return Err(self.store_error(&format!("read {}", self.keys().folder(folder)), failure).await);
            }
        };
        values.sort_by_key(|value| std::cmp::Reverse(value.mod_revision));
        // The page extends to the last of these keys. A value written again since then is among the next ones too.
        let revision = now.last().map_or(revision, |(at, _)| *at);
        if more {
            for value in &mut values {
                value.mod_revision = value.mod_revision.min(revision);
            }
        }
        Ok(Page { revision, values, more })
    }

    async fn read_page<T: DeserializeOwned>(&self, prefix: &str, part: Part, n: u32) -> Result<Page<T>, Failure> {
        let limit = usize::try_from(n).unwrap_or(usize::MAX);
        let mut last_keys = KEYS;
        let (revision, keys, is_whole) = loop {
            let from = self.start_of_newest(prefix, last_keys).await?;
            let (revision, keys) = self.folder_keys(prefix, &from).await?;
            let held = keys.iter().filter(|key| part.holds(key.modified)).count();
            let surplus = match part {
                Part::Newest | Part::Before(_) => held.saturating_sub(limit),
                Part::After(_) => keys.len() - held,
            };
            if from == prefix || surplus >= SLACK {
                break (revision, keys, from == prefix);
            }
            last_keys = last_keys.saturating_mul(MORE_KEYS);
        };
        let (mut found, more) = part.first(&keys, limit);
        if self.has_ordered_keys(prefix) {
            let late = part.late(&keys, &found);
            found.splice(0..0, late);
        }
        let names: Vec<&str> = found.iter().map(|key| key.name.as_str()).collect();
        let mut values = self.read_keys(&names).await?;
        let mut listed = found.iter();
        for value in &mut values {
            // A value that was written again meanwhile keeps its place.
            let key = listed.find(|key| key.name == value.key);
            value.mod_revision = key.map_or(value.mod_revision, |key| key.modified.min(value.mod_revision));
        }
        let more = more || (!is_whole && !matches!(part, Part::After(_)));
        Ok(Page { revision, values, more })
    }
}

impl Part {
    /// Reports whether a value of this `ModRevision` belongs to it.
    fn holds(self, modified: i64) -> bool {
        match self {
            Self::Newest => true,
            Self::Before(revision) => modified < revision,
            Self::After(revision) => modified > revision,
        }
    }

    /// Returns the keys of one page, newest first, and whether there are more. The values of one transaction have one
    /// revision, by which the next page continues, so that all of them are on the same page.
    fn first(self, keys: &[FolderKey], n: usize) -> (Vec<FolderKey>, bool) {
        let mut keys: Vec<FolderKey> = keys.iter().filter(|key| self.holds(key.modified)).cloned().collect();
        keys.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| b.name.cmp(&a.name)));
        if matches!(self, Self::After(_)) {
            keys.reverse();
        }
        let last = n.checked_sub(1).and_then(|last| keys.get(last)).map(|key| key.modified);
        let end = last.map_or(keys.len(), |last| n + keys[n..].iter().take_while(|key| key.modified == last).count());
        let more = end < keys.len();
        keys.truncate(end);
        if matches!(self, Self::After(_)) {
            keys.reverse();
        }
        (keys, more)
    }

    /// Returns the keys whose places by name are on this page of older values although they were written later: their
    /// writer's clock was behind. If it was so far behind that no earlier page had them, they would be on no page.
    fn late(self, keys: &[FolderKey], page: &[FolderKey]) -> Vec<FolderKey> {
        let Self::Before(revision) = self else { return Vec::new() };
        let page: BTreeSet<&str> = page.iter().map(|key| key.name.as_str()).collect();
        let mut late = Vec::new();
        let mut later: Vec<&FolderKey> = Vec::new();
        for key in keys {
            if key.modified >= revision {
                later.push(key);
                continue;
            }
            // A long row of later ones shows that this writer's clock was ahead, not that theirs were behind.
            if page.contains(key.name.as_str()) && later.len() < SLACK {
                late.extend(later.drain(..).cloned());
            }
            later.clear();
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, modified: i64) -> FolderKey {
        FolderKey { name: name.to_owned(), created: modified, modified }
    }

    #[test]
    fn a_page_holds_all_values_of_its_last_transaction() {
        let keys = || vec![key("a", 5), key("b", 9), key("c", 7), key("d", 7), key("e", 7), key("f", 3)];
        let page = |part: Part, n| {
            let (keys, more) = part.first(&keys(), n);
            (keys.iter().map(|key| key.name.clone()).collect::<String>(), more)
        };
        let expect = |names: &str, more| (names.to_owned(), more);
        assert_eq!(page(Part::Newest, 1), expect("b", true));
        assert_eq!(page(Part::Newest, 2), expect("bedc", true));
        assert_eq!(page(Part::Newest, 6), expect("bedcaf", false));
        assert_eq!(page(Part::Before(7), 1), expect("a", true));
        assert_eq!(page(Part::Before(7), 9), expect("af", false));
        assert_eq!(page(Part::After(3), 2), expect("edca", true), "the oldest, newest first");
        assert_eq!(page(Part::After(7), 2), expect("b", false));
        assert_eq!(page(Part::Before(3), 2), expect("", false));
    }
    #[test]
    fn a_page_of_older_values_has_the_late_ones_among_them() {
        let keys = [key("a", 3), key("b", 90), key("c", 91), key("d", 4), key("e", 92), key("f", 5), key("g", 6)];
        let late = |revision, n| {
            let part = Part::Before(revision);
            let (page, _) = part.first(&keys, n);
            part.late(&keys, &page).iter().map(|key| key.name.clone()).collect::<String>()
        };
        assert_eq!([late(6, 1), late(5, 1), late(4, 1), late(6, 3)], ["e", "bc", "", "bce"]);
        assert_eq!(Part::Newest.late(&keys, &keys), Vec::new());
    }
}

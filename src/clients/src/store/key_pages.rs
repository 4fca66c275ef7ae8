//! Pages of the keys of a large folder. For each page, etcd counts all keys that follow in the requested range, so a
//! range ends where as many keys are expected as in the page before. The numbers in the keys tell where that is.

use cketerm_model::stored::keys::prefix_end;
use etcd_client::{GetOptions, KeyValue};

use super::{connect::Store, failure::Failure};

/// Number of keys read together. etcd reads their values too, but does not send them.
const PAGE_SIZE: i64 = 10_000;
/// A page with fewer keys than this says little about the number of keys that follow.
const TYPICAL: usize = 5_000;

/// A key of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderKey {
    pub(super) name: String,
    /// Revision of the first write of its value.
    pub(super) created: i64,
    /// Revision of the last one.
    pub(super) modified: i64,
}

impl From<&KeyValue> for FolderKey {
    fn from(kv: &KeyValue) -> Self {
        let name = String::from_utf8_lossy(kv.key()).into_owned();
        Self { name, created: kv.create_revision(), modified: kv.mod_revision() }
    }
}

/// A part of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    from: Vec<u8>,
    /// The first key that does not belong to it; none: it ends with the folder.
    end: Option<Vec<u8>>,
}

impl KeyRange {
    /// All keys of a folder that are not before this one.
    pub(super) fn starting_at(from: &str) -> Self {
        Self { from: from.as_bytes().to_vec(), end: None }
    }

    /// Returns the range after a page of this one. `more`: the range holds more keys than the page.
    fn after(self, keys: &[FolderKey], more: bool) -> Option<Self> {
        let last = keys.last().map_or("", |key| &key.name);
        let from = if more { [last.as_bytes(), &[0]].concat() } else { self.end? };
        let first = keys.first().filter(|_| keys.len() >= TYPICAL);
        let end = first.and_then(|first| end_of_as_many(&first.name, last)).filter(|end| *end > from);
        Some(Self { from, end })
    }
}

/// A page of keys.
pub(super) struct KeyPage {
    /// Revision of the read.
    pub(super) revision: i64,
    pub(super) keys: Vec<FolderKey>,
    /// Range of the next page, which may be empty. None after the last one.
    pub(super) next: Option<KeyRange>,
}

impl Store {
    /// Reads a page of a folder's keys at `revision`, or at the present one if that is 0.
    pub(super) async fn key_page(&self, folder: &str, range: KeyRange, revision: i64) -> Result<KeyPage, Failure> {
        let end = range.end.clone().unwrap_or_else(|| prefix_end(folder.as_bytes()));
        let options = GetOptions::new().with_range(end).with_limit(PAGE_SIZE).with_keys_only().with_revision(revision);
        let got = self.get(range.from.clone(), options).await?;
        let keys: Vec<FolderKey> = got.kvs().iter().map(FolderKey::from).collect();
        let next = range.after(&keys, got.more());
        Ok(KeyPage { revision: got.header().map_or(0, etcd_client::ResponseHeader::revision), keys, next })
    }
}

/// Returns the key up to which as many keys follow as lie between these two, if their numbers go on as they do there.
fn end_of_as_many(first: &str, last: &str) -> Option<Vec<u8>> {
    let (first, last) = (Numbered::of(first)?, Numbered::of(last)?);
    if (first.before, first.is_time) != (last.before, last.is_time) {
        return None;
    }
    let span = last.number.checked_sub(first.number)?;
    let number = last.number.checked_add(span)?.checked_add(1)?;
    let number = if last.is_time { format!("{number:020}") } else { format!("{number:016x}") };
    Some([last.before, &number].concat().into_bytes())
}

/// A key that is ordered by a number.
pub(super) struct Numbered<'a> {
    pub(super) before: &'a str,
    pub(super) number: u64,
    /// It is a time of twenty decimal digits, as in the audit. Otherwise: sixteen hexadecimal ones at the end.
    pub(super) is_time: bool,
}

impl<'a> Numbered<'a> {
    pub(super) fn of(key: &'a str) -> Option<Self> {
        let folder = key.rfind('/')? + 1;
        let time = key.get(folder..folder + 20).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        if let Some(time) = time {
            return Some(Self { before: &key[..folder], number: time.parse().ok()?, is_time: true });
        }
        let (before, digits) = key.split_at_checked(key.len().checked_sub(16)?)?;
        Some(Self { before, number: u64::from_str_radix(digits, 16).ok()?, is_time: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: impl Iterator<Item = u64>) -> Vec<FolderKey> {
        numbers.map(|n| FolderKey { name: format!("/h/reboots-{n:016x}"), created: 1, modified: 1 }).collect()
    }

    fn range(from: &str, end: Option<&str>) -> KeyRange {
        KeyRange { from: from.as_bytes().to_vec(), end: end.map(|end| end.as_bytes().to_vec()) }
    }

    #[test]
    fn a_range_holds_as_many_keys_as_the_page_before() {
        let first = KeyRange::starting_at("/h/").after(&keys(0..10_000), true).unwrap();
        assert_eq!(first, range("/h/reboots-000000000000270f\0", Some("/h/reboots-0000000000004e1f")));
        // every third number is missing
        let sparse = first.after(&keys((10_000..30_000).filter(|n| n % 3 > 0).take(10_000)), true).unwrap();
        assert_eq!(sparse.end.unwrap(), format!("/h/reboots-{:016x}", 24_998 + 14_998 + 1).as_bytes());
    }

    #[test]
    fn what_follows_a_range_is_read_too() {
        let bounded = range("/h/a", Some("/h/reboots-0000000000004e1f"));
        let next = bounded.clone().after(&keys(10_000..16_000), false).unwrap();
        assert_eq!(next, range("/h/reboots-0000000000004e1f", Some("/h/reboots-00000000000055ef")));
        let gap = bounded.clone().after(&keys(10_000..15_000), false).unwrap();
        assert_eq!(gap, range("/h/reboots-0000000000004e1f", None), "as many keys as in this page end before it");
        let few = bounded.clone().after(&keys(10_000..10_010), false).unwrap();
        assert_eq!(few, range("/h/reboots-0000000000004e1f", None));
        assert_eq!(bounded.after(&[], false).unwrap(), range("/h/reboots-0000000000004e1f", None));
        assert_eq!(KeyRange::starting_at("/h/").after(&keys(0..9_000), false), None);
        assert_eq!(KeyRange::starting_at("/h/").after(&[], false), None);
    }

    #[test]
    fn keys_without_a_common_number_end_with_the_folder() {
        for (first, last) in [
            ("/h/reboots-000000000000270f", "/h/repairs-0000000000000001"),
            ("/h/reboots-0000000000000002", "/h/reboots-0000000000000001"),
            ("/h/reboots-0000000000000002", "/h/reboots-ffffffffffffffff"),
            ("/h/x", "/h/y"),
            ("/h/ü000000000000000", "/h/ü000000000000001"),
            ("", ""),
        ] {
            assert_eq!(end_of_as_many(first, last), None, "{first} {last}");
        }
        let audit = |at: &str| format!("/a/{at}-000000000000000f");
        let end = end_of_as_many(&audit("01764000000000000000"), &audit("01764000000000000500")).unwrap();
        assert_eq!(end, b"/a/01764000000000001001");
    }
}

//! Batches: the entries of one enqueue, with its cause, owner and time (STO-60 to STO-66).

use std::{collections::BTreeMap, fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    cketerm_records::{EndKind, Who},
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    repair::RepairStatus,
    stored::view::StoreView,
};

/// Digits of an id: Crockford's base 32, which has no letters that are easily confused.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Number of digits of an id.
const LENGTH: usize = 8;
/// Largest number that an id can hold.
const MAX: u64 = (1 << (5 * LENGTH)) - 1;
/// 2020-01-01T00:00:00Z in milliseconds since the epoch: the time of the id 0. The last id is of the year 2054.
const ORIGIN: i64 = 1_577_836_800_000;

/// Identifier of a batch: eight digits that sort by the time of the enqueue. It is the number of milliseconds since
/// 2020 unless another batch of the same millisecond has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(u64);

impl BatchId {
    /// Returns the id of a batch that is made at this time.
    pub fn at(time: Timestamp) -> Self {
        let since = time.as_millisecond().saturating_sub(ORIGIN).max(0);
        Self(u64::try_from(since).unwrap_or(0).min(MAX))
    }

    /// Returns the id after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1).min(MAX))
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |place: usize| {
            let digit = usize::try_from(self.0 >> (5 * place) & 31).unwrap_or(0);
            DIGITS.get(digit).copied().unwrap_or(b'0')
        };
        let text: String = (0..LENGTH).rev().map(|place| char::from(digit(place))).collect();
        f.pad(&text)
    }
}

impl FromStr for BatchId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digit = |byte: u8| DIGITS.iter().position(|digit| *digit == byte).and_then(|at| u64::try_from(at).ok());
        let number = text.bytes().try_fold(0_u64, |number, byte| Some(number.checked_mul(32)? | digit(byte)?));
        let id = number.filter(|_| text.len() == LENGTH).map(Self);
        id.ok_or_else(|| format!("{text:?} is not a batch id of {LENGTH} digits"))
    }
}

impl Serialize for BatchId {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BatchId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Pause of a batch: none of its queued entries starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// The user.
    pub who: Who,
    /// Time of the pause.
    pub at: Timestamp,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Value of `cketerm/batches/<id>`. The transactions that add its entries write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Queue of all its entries.
    pub queue: QueueKind,
    /// Owner: the user who asked for the entries.
    pub who: Who,
    /// Time of the enqueue.
    pub at: Timestamp,
    /// Cause: the reason or ticket of the enqueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of entries that were asked for.
    pub asked: u64,
    /// Number of entries that were written. It stays below `asked` if the enqueue was interrupted.
    pub added: u64,
    /// Counts of the ended entries whose records below `cketerm/batches/<id>/` are folded into this value.
    #[serde(default, skip_serializing_if = "BatchEnds::is_empty")]
    pub ends: BatchEnds,
    /// The pause, if it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// Time at which the leader found that none of its entries is in the queue any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

impl Batch {
    /// Returns a batch without entries.
    pub fn new(queue: QueueKind, who: Who, at: Timestamp, reason: Option<String>, asked: u64) -> Self {
        Self { queue, who, at, reason, asked, added: 0, ends: BatchEnds::default(), paused: None, ended: None }
    }
}

/// Counts of ended entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchEnds {
    /// Entries that reached their goal.
    #[serde(default)]
    pub done: u64,
    /// Repairs that failed.
    #[serde(default)]
    pub failed: u64,
    /// Entries that were cancelled, deleted or dequeued.
    #[serde(default)]
    pub withdrawn: u64,
}

impl BatchEnds {
    /// Counts one end.
    pub fn add(&mut self, end: EndKind) {
        let count = match end {
            EndKind::Booted | EndKind::Done | EndKind::Succeeded | EndKind::Unrecorded => &mut self.done,
            EndKind::Failed => &mut self.failed,
            EndKind::Cancelled | EndKind::Deleted | EndKind::Dequeued => &mut self.withdrawn,
        };
        *count = count.saturating_add(1);
    }

    /// Returns the sum.
    pub fn all(&self) -> u64 {
        self.done.saturating_add(self.failed).saturating_add(self.withdrawn)
    }

    /// Reports whether nothing has ended.
    pub fn is_empty(&self) -> bool {
        self.all() == 0
    }
}

/// State of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchState {
    /// Its entries wait or are in work.
    Running,
    /// Its queued entries do not start.
    Paused,
    /// All of its entries have ended.
    Done,
}

impl fmt::Display for BatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
        })
    }
}

/// Entries of one batch, counted by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchTotals {
    /// Entries in the queue that wait for their turn, including unreadable ones.
    pub queued: u64,
    /// Entries in work.
    pub in_work: u64,
    /// Ended entries.
    pub ends: BatchEnds,
    /// Entries that are gone without a record of their end: another program removed them.
    pub unrecorded: u64,
}

impl BatchTotals {
    /// Returns the number of entries that reached their goal, as far as it is known.
    pub fn done(&self) -> u64 {
        self.ends.done.saturating_add(self.unrecorded)
    }

    /// Returns the number of entries that have not ended.
    pub fn open(&self) -> u64 {
        self.queued.saturating_add(self.in_work)
    }

    /// Returns the number of entries that were or are to be worked on: all but those that were withdrawn.
    pub fn all(&self) -> u64 {
        self.open().saturating_add(self.done()).saturating_add(self.ends.failed)
    }

    /// Returns the state of the batch.
    pub fn state(&self, batch: &Batch) -> BatchState {
        match (self.open(), &batch.paused) {
            (0, _) => BatchState::Done,
            (_, Some(_)) => BatchState::Paused,
            (_, None) => BatchState::Running,
        }
    }

    fn count(&mut self, entry: Option<EntryRef<'_>>) {
        let count = match entry {
            None => &mut self.queued,
            Some(EntryRef::Repair(repair)) if repair.status == RepairStatus::Failed => &mut self.ends.failed,
            Some(entry) if entry.finished() => &mut self.ends.done,
            Some(entry) if !entry.unfinished() => &mut self.ends.withdrawn,
            Some(entry) if entry.is_queued() => &mut self.queued,
            Some(_) => &mut self.in_work,
        };
        *count = count.saturating_add(1);
    }
}

impl StoreView {
    /// Returns the batch of an entry that is in its queue; none if version 0.1, CKE or ckecli added it.
    pub fn batch_of(&self, entry: EntryId) -> Option<BatchId> {
        self.requests.get(&entry)?.get()?.batch
    }

    /// Returns a batch; none if it does not exist or cannot be read.
    pub fn batch(&self, id: BatchId) -> Option<&Batch> {
        self.batches.get(&id)?.get()
    }

    /// Returns the batch of an entry if it is paused.
    pub fn paused_batch(&self, entry: EntryId) -> Option<(BatchId, &Paused)> {
        let id = self.batch_of(entry)?;
        Some((id, self.batch(id)?.paused.as_ref()?))
    }

    /// Returns the indexes of a batch's entries that are in the queue, in order.
    pub fn entries_of_batch(&self, id: BatchId) -> impl Iterator<Item = EntryId> {
        let named = self.requests.iter().filter(move |(_, stored)| stored.get().is_some_and(|r| r.batch == Some(id)));
        named.map(|(entry, _)| *entry).filter(|entry| self.has_entry(*entry))
    }

    /// Counts the entries of every batch. It costs one look at each entry.
    pub fn batch_totals(&self) -> BTreeMap<BatchId, BatchTotals> {
        let mut totals: BTreeMap<BatchId, BatchTotals> = BTreeMap::new();
        if self.batches.is_empty() {
            return totals;
        }
        for (id, batch) in self.batches.iter().filter_map(|(id, stored)| Some((*id, stored.get()?))) {
            totals.insert(id, BatchTotals { ends: batch.ends, ..BatchTotals::default() });
        }
        for (entry, request) in self.requests.iter().filter_map(|(id, stored)| Some((*id, stored.get()?))) {
            let count = request.batch.and_then(|batch| totals.get_mut(&batch));
            if let (Some(count), Some(stored)) = (count, self.stored_entry(entry)) {
                count.count(stored.get());
            }
        }
        for ((batch, _), end) in &self.batch_ends {
            if let Some(count) = totals.get_mut(batch) {
                count.ends.add(end.get().copied().unwrap_or_default());
            }
        }
        for (id, count) in &mut totals {
            let added = self.batches.get(id).and_then(Stored::get).map_or(0, |batch| batch.added);
            count.unrecorded = added.saturating_sub(count.open().saturating_add(count.ends.all()));
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{keys::Keys, row::Row};

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn ids_sort_by_time_and_are_read_as_they_are_written() {
        let first = BatchId::at(time("2026-11-24T10:00:00.001Z"));
        let ids =
            [first, first.next(), BatchId::at(time("2026-11-24T10:00:01Z")), BatchId::at(time("2053-01-01T00:00:00Z"))];
        let texts = ids.map(|id| id.to_string());
        assert!(texts.is_sorted() && texts.iter().all(|text| text.len() == LENGTH), "{texts:?}");
        assert_eq!(texts.clone().map(|text| text.parse()), ids.map(Ok));
        assert_eq!(BatchId::at(time("1999-01-01T00:00:00Z")).to_string(), "00000000");
        for bad in ["", "0000000", "000000000", "0000000i", "0000000A", "0000000 "] {
            assert!(bad.parse::<BatchId>().unwrap_err().contains("batch id"), "{bad}");
        }
    }

    /// A view with one batch of five reboots: one ended with a record, one ended under another leader.
    fn view() -> (StoreView, Keys, BatchId) {
        let (keys, id) = (Keys::new("/cke/"), BatchId::at(time("2026-11-24T10:00:00Z")));
        let who = Who { user: "alice".to_owned(), ..Who::default() };
        let batch = Batch { added: 5, ..Batch::new(QueueKind::Reboot, who, time("2026-11-24T10:00:00Z"), None, 6) };
        let mut view = StoreView::default();
        let mut put = |key: String, value: String| view.put(&keys, &Row::new(&key, &value, 7, 7));
        put(keys.batch(id), serde_json::to_string(&batch).unwrap());
        for (index, status) in [(0, "queued"), (1, "draining"), (2, "cancelled")] {
            let entry = EntryId::reboot(index);
            put(keys.entry(entry), format!(r#"{{"index":"{index}","node":"10.0.0.{index}","status":"{status}"}}"#));
            let who = r#"{"user":"alice","host":"ops1"}"#;
            let request = format!(r#"{{"who":{who},"at":"2026-11-24T10:00:00Z","batch":"{id}"}}"#);
            put(keys.request(entry), request);
        }
        put(keys.batch_end(id, EntryId::reboot(3)), r#""booted""#.to_owned());
        (view, keys, id)
    }

    #[test]
    fn totals_count_entries_in_the_queue_records_of_ends_and_entries_that_vanished() {
        let (view, _, id) = view();
        assert_eq!(view.broken.len(), 0, "{:?}", view.broken);
        let totals = view.batch_totals()[&id];
        let ends = BatchEnds { done: 1, failed: 0, withdrawn: 1 };
        assert_eq!(totals, BatchTotals { queued: 1, in_work: 1, ends, unrecorded: 1 });
        assert_eq!((totals.done(), totals.all(), totals.state(view.batch(id).unwrap())), (2, 4, BatchState::Running));
        assert_eq!(view.entries_of_batch(id).map(|entry| entry.index).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn the_pause_of_a_batch_is_found_by_its_entries() {
        let (mut view, keys, id) = view();
        assert_eq!(view.paused_batch(EntryId::reboot(0)), None);
        let paused = Paused { who: Who::default(), at: time("2026-11-24T10:05:00Z"), reason: None };
        let batch = Batch { paused: Some(paused.clone()), ..view.batch(id).unwrap().clone() };
        view.put(&keys, &Row::new(&keys.batch(id), &serde_json::to_string(&batch).unwrap(), 9, 7));
        assert_eq!(view.paused_batch(EntryId::reboot(0)), Some((id, &paused)));
        assert_eq!(view.paused_batch(EntryId::reboot(7)), None);
        view.delete(&keys, keys.batch(id).as_bytes());
        assert_eq!((view.paused_batch(EntryId::reboot(0)), view.batch_totals().len()), (None, 0));
    }
}

//! History: ended entries, audit records, CKE's records. The console reads them in pages, newest first, only while they
//! are shown. It reads newer values afterwards. Start-up time and memory do not grow with the folders.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use cketerm_actions::plan::Drains;
use cketerm_clients::store::pages::{Page, Part};
use cketerm_model::{
    attempt::Attempt,
    boot_time::{BootTime, Seconds},
    cketerm_records::{Audit, EndKind, Ending, OneAnAction, Request, Who},
    entry::{EntryId, QueueKind, Stored},
    names::{Address, NodeName},
    record::Record,
    rights::Rights,
    stored::{keys::Folder, view::StoreView},
    timeline::TimelineEntry,
};
use cketerm_rules::usual::{EndedTimes, Phase};
use cketerm_runtime::telemetry::LogLine;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{HostId, yaml};

/// Values per page.
pub const PAGE: u32 = 200;
/// Pages of older values that a key press allows: an operator who keeps reading keeps pressing keys.
pub const PAGES_PER_KEY: u8 = 5;
/// Pause after a failed read.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Pause between two reads of newer values, and between two pages of older ones.
const PAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Identity of a value: newest first, then by key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PastId {
    /// `ModRevision` at which it was first read.
    pub revision: Reverse<i64>,
    /// Its whole key.
    pub key: String,
}

/// An ended entry, without the output of its attempts. The output is read when somebody opens the entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The entry.
    pub entry: EntryId,
    /// Its machine's address.
    pub address: Address,
    /// Its Node's name, if an attempt has it.
    pub node: Option<NodeName>,
    /// The outcome.
    pub outcome: String,
    /// The operator who cancelled or deleted it, if known.
    pub withdrawn_by: Option<Who>,
    /// Kind of its end.
    pub end: EndKind,
    /// Time of its end.
    pub at: Timestamp,
    /// The request: who, when and why.
    pub request: Option<Request>,
    /// Start of its first command.
    pub command_started: Option<Timestamp>,
    /// Number of attempts.
    pub attempts: usize,
    /// Durations of its phases.
    pub times: EndedTimes,
}

impl Ended {
    /// Returns how long the work on the machine took: from the start of its first drain, or of its first command, to its
    /// end. Time in the queue does not count. Every view shows this figure. `None` if no command began.
    pub fn took(&self) -> Option<SignedDuration> {
        let whole = self.times.seconds_of(Phase::Whole).map(|seconds| Seconds::new(seconds).signed_duration());
        // Records of version 0.1 have no start of the drain.
        whole.or_else(|| self.command_started.map(|began| self.at.duration_since(began)))
    }
}

impl Ended {
    /// Returns the outcome with the time that the work took: `booted in 14s`.
    pub fn outcome_and_time(&self) -> String {
        match self.took().filter(|_| self.end.good()) {
            Some(took) => format!("{} in {}", self.outcome, super::when::span(took)),
            None => self.described(),
        }
    }

    /// Returns the outcome with the operator who cancelled or deleted the entry: `cancelled by alice@admin1`.
    pub fn described(&self) -> String {
        self.end.described(&self.outcome, self.withdrawn_by.as_ref())
    }
}

impl From<&Ending> for Ended {
    fn from(ending: &Ending) -> Self {
        Self {
            entry: ending.entry,
            address: ending.address.clone(),
            node: ending.attempts.iter().find_map(|a| a.node.clone()),
            outcome: ending.outcome.clone(),
            withdrawn_by: ending.withdrawn_by.clone(),
            end: ending.end,
            at: ending.at,
            request: ending.request.clone(),
            command_started: ending.attempts.iter().filter(|a| a.began()).map(|a| a.start).min(),
            attempts: ending.attempts.iter().filter(|a: &&Attempt| a.began()).count(),
            times: EndedTimes::of(ending),
        }
    }
}

/// The full timeline of an ended entry.
#[derive(Clone, Debug)]
pub struct EntryTimeline {
    /// The record as stored in etcd.
    pub ending: Ending,
    /// The events, oldest first, including the audit records of that time.
    pub moments: Vec<TimelineEntry>,
    /// The reason why audit records are missing.
    pub gap: Option<String>,
}

/// A read that the console requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadRequest {
    /// A page of a folder.
    Page(Folder, Part),
    /// The full timeline of an ended entry, by its key.
    Ending(String),
    /// The log lines after this number.
    Logs(u64),
    /// The blockers that drains of these nodes would meet under a queue's rules, for the dialog with this number.
    Plan(u64, QueueKind, Vec<String>),
    /// The operator's permissions.
    Rights,
    /// A Node or a host as Kubernetes stores it, for its YAML.
    Object(ObjectId),
}

/// Object of Kubernetes that is read on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectId {
    /// A Node, by name.
    Node(String),
    /// A BareMetalHost.
    Host(HostId),
}

/// The object that was read last.
#[derive(Clone, Debug, Default)]
pub struct ReadObject {
    /// The object as YAML, which is made once per answer: a pane shows it at every event. The error says why it could
    /// not be read.
    pub loaded: Option<(ObjectId, Result<Arc<str>, String>)>,
    /// The object that is being read.
    pub requested: Option<ObjectId>,
}

impl ReadObject {
    /// Returns an object's YAML, if it was read last.
    pub fn get(&self, id: &ObjectId) -> Option<&Result<Arc<str>, String>> {
        self.loaded.as_ref().filter(|(loaded, _)| loaded == id).map(|(_, content)| content)
    }
}

/// Answer to a [`ReadRequest`], or an error message.
#[derive(Clone, Debug)]
pub enum ReadResponse {
    /// Entries that ended.
    History(Part, Result<Page<Ended>, String>),
    /// Audit records.
    Audit(Part, Result<Page<Audit>, String>),
    /// CKE's records.
    Records(Part, Result<Page<Record>, String>),
    /// The full timeline of an ended entry, by its key.
    Ending(String, Result<Arc<EntryTimeline>, String>),
    /// Log lines.
    Logs(Vec<Arc<LogLine>>),
    /// The blockers that the drains would meet, for the dialog with this number.
    Plan(u64, Result<Drains, String>),
    /// The changes that the operator has no permission for.
    Rights(Rights),
    /// An object of Kubernetes.
    Object(ObjectId, Result<Arc<Value>, String>),
}

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

/// Everything that was read of the past.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Entries that ended.
    pub history: Read<Ended>,
    /// Audit records.
    pub audit: Read<Audit>,
    /// CKE's records.
    pub records: Read<Record>,
    /// The timeline that was read last, by its key.
    pub ending: Option<(String, Result<Arc<EntryTimeline>, String>)>,
    /// The key of the timeline that is being read.
    pub requested: Option<String>,
    /// The object of Kubernetes that was read last.
    pub object: ReadObject,
    /// Pages of older values that may be read before the next key press.
    pub page_budget: u8,
}

impl Past {
    /// Returns the record of an entry that has just ended: it is among the newest ones.
    pub fn ended(&self, id: EntryId) -> Option<(&PastId, &Arc<Ended>)> {
        let newest = self.history.rows.iter().take(PAGE as usize);
        newest.filter_map(|(key, read)| Some((key, read.as_ref().ok()?))).find(|(_, ended)| ended.entry == id)
    }

    /// Returns the audit records, newest first: by the second of their last time, as the table shows it, then by their
    /// revision. A record that only says that an action began is left out once the record of its end is there.
    pub fn audited(&self) -> Vec<PastId> {
        let read = |id: &PastId| self.audit.get(id).map(Arc::as_ref);
        let mut ids: Vec<&PastId> = self.audit.rows.keys().collect();
        // nearly sorted already; the sort is stable
        ids.sort_by_key(|id| Reverse(read(id).map_or(i64::MAX, |audit| audit.last().as_second())));
        let mut actions = OneAnAction::default();
        let is_shown = |id: &&PastId| read(id).is_none_or(|audit| actions.shows(audit));
        ids.into_iter().filter(is_shown).cloned().collect()
    }

    /// Returns the timeline of an ended entry, if it was read last.
    pub fn timeline(&self, key: &str) -> Option<&Result<Arc<EntryTimeline>, String>> {
        self.ending.as_ref().filter(|(read, _)| read == key).map(|(_, ending)| ending)
    }

    /// Takes an answer.
    pub fn take(&mut self, answer: ReadResponse, boot: BootTime) {
        match answer {
            ReadResponse::History(part, page) => self.history.take(part, page, boot),
            ReadResponse::Audit(part, page) => self.audit.take(part, page, boot),
            ReadResponse::Records(part, page) => self.records.take(part, page, boot),
            ReadResponse::Ending(key, ending) => {
                if self.requested.as_ref() == Some(&key) {
                    self.requested = None;
                }
                self.ending = Some((key, ending));
            }
            ReadResponse::Object(id, content) => {
                if self.object.requested.as_ref() == Some(&id) {
                    self.object.requested = None;
                }
                self.object.loaded = Some((id, content.map(|content| yaml::of_object(&content).into())));
            }
            ReadResponse::Logs(_) | ReadResponse::Plan(..) | ReadResponse::Rights(_) => {}
        }
    }
}

impl ReadRequest {
    /// Returns the answer that reports a failed read.
    pub fn refused(self, why: String) -> ReadResponse {
        match self {
            Self::Page(Folder::History, part) => ReadResponse::History(part, Err(why)),
            Self::Page(Folder::Audit, part) => ReadResponse::Audit(part, Err(why)),
            Self::Page(Folder::Records, part) => ReadResponse::Records(part, Err(why)),
            Self::Ending(key) => ReadResponse::Ending(key, Err(why)),
            Self::Logs(_) => ReadResponse::Logs(Vec::new()),
            Self::Plan(number, ..) => ReadResponse::Plan(number, Err(why)),
            // The servers refuse changes themselves.
            Self::Rights => ReadResponse::Rights(Rights::default()),
            Self::Object(id) => ReadResponse::Object(id, Err(why)),
        }
    }
}

/// Reduces the values of a page.
pub fn map_page<T, S>(page: Page<T>, of: impl Fn(&T) -> S) -> Page<S> {
    let values = page.values.into_iter().map(|s| Stored {
        key: s.key,
        mod_revision: s.mod_revision,
        value: s.value.map(|value| Arc::new(of(&value))),
    });
    Page { revision: page.revision, more: page.more, values: values.collect() }
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

//! What lies behind: entries that ended, who did what, CKE's records. Read in pages, newest first, only while somebody
//! looks; what is written meanwhile is read after it. Start-up and memory do not grow with the folders.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    actions::plan::Drains,
    model::{
        attempt::Attempt,
        cketerm_records::{Audit, Ending, Request},
        entry::{EntryId, QueueKind, Stored},
        record::Record,
        rights::Rights,
        timeline::Moment,
    },
    store::{
        keys::Folder,
        pages::{Page, Part},
        view::StoreView,
    },
    telemetry::LogLine,
};

/// Values that are asked for at once.
pub const PAGE: u32 = 200;
/// Pages of older values that a key press pays for: a person who reads on presses keys.
pub const PAGES_A_KEY: u8 = 5;
/// After a question that failed, and between two questions about what is new.
const PAUSE: Duration = Duration::from_secs(2);
/// Between two questions about what was written meanwhile, and between two pages of older ones.
const CALM: Duration = Duration::from_secs(1);

/// The identity of a value: newest first, then by key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PastId {
    /// `ModRevision` at which it was read first.
    pub revision: Reverse<i64>,
    /// Its whole key.
    pub key: String,
}

/// An entry that ended, without its attempts' output: that is read when somebody opens it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The entry.
    pub entry: EntryId,
    /// Its machine's address.
    pub address: String,
    /// Its Node's name, where an attempt names it.
    pub node: Option<String>,
    /// How it ended.
    pub outcome: String,
    /// It ended as it was meant to.
    pub good: bool,
    /// When.
    pub at: Timestamp,
    /// Who asked for it, when, why.
    pub request: Option<Request>,
    /// When its first command began.
    pub commanded: Option<Timestamp>,
    /// How many attempts it took.
    pub attempts: usize,
}

impl From<&Ending> for Ended {
    fn from(ending: &Ending) -> Self {
        Self {
            entry: ending.entry,
            address: ending.address.clone(),
            node: ending.attempts.iter().find_map(|a| a.node.clone()),
            outcome: ending.outcome.clone(),
            good: ending.good(),
            at: ending.at,
            request: ending.request.clone(),
            commanded: ending.attempts.iter().filter(|a| a.began()).map(|a| a.start).min(),
            attempts: ending.attempts.iter().filter(|a: &&Attempt| a.began()).count(),
        }
    }
}

/// The whole story of an entry that ended.
#[derive(Clone, Debug)]
pub struct Story {
    /// As it lies in etcd.
    pub ending: Ending,
    /// What happened, oldest first; the audit's records of the time are among it.
    pub moments: Vec<Moment>,
    /// Why the audit is not among it.
    pub gap: Option<String>,
}

/// What the console asks of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A page of a folder.
    Page(Folder, Part),
    /// The whole story of an entry that ended, by its key.
    Ending(String),
    /// The log lines after this number.
    Logs(u64),
    /// What the drains of these nodes would meet under a queue's rules; for the dialog with this number.
    Plan(u64, QueueKind, Vec<String>),
    /// What this person may change.
    Rights,
}

/// What was answered, or a sentence that says why not.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Entries that ended.
    History(Part, Result<Page<Ended>, String>),
    /// Audit records.
    Audit(Part, Result<Page<Audit>, String>),
    /// CKE's records.
    Records(Part, Result<Page<Record>, String>),
    /// The whole story of an entry that ended, by its key.
    Ending(String, Result<Arc<Story>, String>),
    /// Log lines.
    Logs(Vec<Arc<LogLine>>),
    /// What drains would meet, for the dialog with this number.
    Plan(u64, Result<Drains, String>),
    /// What this person may not change.
    Rights(Rights),
}

/// A folder as far as it was read.
#[derive(Clone, Debug)]
pub struct Read<T> {
    /// Newest first; broken ones with what is wrong.
    pub rows: BTreeMap<PastId, Result<Arc<T>, String>>,
    /// Older ones may be there.
    pub more: bool,
    /// Why the last question was not answered.
    pub error: Option<String>,
    /// The first page was read.
    pub begun: bool,
    ids: HashMap<String, PastId>,
    upto: i64,
    /// The copy's revision when it was last looked at: it never goes back by itself.
    seen: i64,
    asked: bool,
    not_before: Duration,
}

impl<T> Default for Read<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            more: true,
            error: None,
            begun: false,
            ids: HashMap::new(),
            upto: 0,
            seen: 0,
            asked: false,
            not_before: Duration::ZERO,
        }
    }
}

impl<T> Read<T> {
    /// The page that is wanted now, if any: the first, what was written meanwhile, older ones where `older` says so.
    pub fn wants(&mut self, folder: Folder, store: &StoreView, older: bool, boot: Duration) -> Option<Question> {
        if self.asked || !store.synced || boot < self.not_before {
            return None;
        }
        if store.revision < self.seen {
            // another history of etcd: nothing that was read is of it
            *self = Self { not_before: self.not_before, ..Self::default() };
        }
        self.seen = store.revision;
        let oldest = self.rows.keys().next_back().map(|id| id.revision.0);
        let part = match oldest {
            _ if !self.begun => Part::Newest,
            _ if store.grown.get(&folder).is_some_and(|at| *at > self.upto) => Part::After(self.upto),
            Some(oldest) if older && self.more => Part::Before(oldest),
            _ => return None,
        };
        self.asked = true;
        Some(Question::Page(folder, part))
    }

    /// Takes an answer in.
    pub fn take(&mut self, part: Part, answer: Result<Page<T>, String>, boot: Duration) {
        self.asked = false;
        let page = match answer {
            Ok(page) => page,
            Err(why) => {
                self.error = Some(why);
                self.not_before = boot + PAUSE;
                return;
            }
        };
        self.error = None;
        self.begun = true;
        match part {
            Part::Newest => (self.upto, self.more) = (page.revision, page.more),
            Part::Before(_) => {
                self.more = page.more;
                self.not_before = boot + CALM;
            }
            // what a full page left over is asked for next
            Part::After(_) => {
                self.upto = if page.more {
                    page.values.first().map_or(page.revision, |s| s.mod_revision)
                } else {
                    page.revision
                };
                self.not_before = boot + CALM;
            }
        }
        for Stored { key, mod_revision, value } in page.values {
            let id = self.ids.entry(key.clone()).or_insert_with(|| PastId { revision: Reverse(mod_revision), key });
            self.rows.insert(id.clone(), value);
        }
    }

    /// Keeps the newest `n`, and knows that there are older ones.
    pub fn keep(&mut self, n: usize) {
        // an answer under way is about what lies beyond the last one
        while !self.asked && self.rows.len() > n {
            let Some((id, _)) = self.rows.pop_last() else { return };
            self.ids.remove(&id.key);
            self.more = true;
        }
    }

    /// A value that can be read.
    pub fn get(&self, id: &PastId) -> Option<&Arc<T>> {
        self.rows.get(id)?.as_ref().ok()
    }
}

/// All that was read of the past.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Entries that ended.
    pub history: Read<Ended>,
    /// Who did what.
    pub audit: Read<Audit>,
    /// CKE's records.
    pub records: Read<Record>,
    /// The story that was read last, by its key.
    pub ending: Option<(String, Result<Arc<Story>, String>)>,
    /// The story that is asked for.
    pub asked: Option<String>,
    /// Pages of older values that may still be asked for before somebody presses a key.
    pub paid: u8,
}

impl Past {
    /// Takes an answer in.
    pub fn take(&mut self, answer: Answer, boot: Duration) {
        match answer {
            Answer::History(part, page) => self.history.take(part, page, boot),
            Answer::Audit(part, page) => self.audit.take(part, page, boot),
            Answer::Records(part, page) => self.records.take(part, page, boot),
            Answer::Ending(key, ending) => {
                if self.asked.as_ref() == Some(&key) {
                    self.asked = None;
                }
                self.ending = Some((key, ending));
            }
            Answer::Logs(_) | Answer::Plan(..) | Answer::Rights(_) => {}
        }
    }
}

impl Question {
    /// The answer of whoever cannot read.
    pub fn refused(self, why: String) -> Answer {
        match self {
            Self::Page(Folder::History, part) => Answer::History(part, Err(why)),
            Self::Page(Folder::Audit, part) => Answer::Audit(part, Err(why)),
            Self::Page(Folder::Records, part) => Answer::Records(part, Err(why)),
            Self::Ending(key) => Answer::Ending(key, Err(why)),
            Self::Logs(_) => Answer::Logs(Vec::new()),
            Self::Plan(number, ..) => Answer::Plan(number, Err(why)),
            // the servers say no themselves
            Self::Rights => Answer::Rights(Rights::default()),
        }
    }
}

/// A page with its values made smaller.
pub fn small<T, S>(page: Page<T>, of: impl Fn(&T) -> S) -> Page<S> {
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
    fn the_newest_page_is_read_first_then_what_is_written_meanwhile_and_older_ones_only_when_they_are_wanted() {
        let mut read = Read::default();
        let at = Duration::from_secs(100);
        let ask = |read: &mut Read<u8>, store: &StoreView, older| read.wants(Folder::Audit, store, older, at * 2);
        assert_eq!(ask(&mut read, &store(50, 40), true), Some(Question::Page(Folder::Audit, Part::Newest)));
        assert_eq!(ask(&mut read, &store(50, 40), true), None, "one question at a time");
        read.take(Part::Newest, Ok(page(50, true, &[(40, "b"), (30, "a")])), at);
        assert_eq!(ask(&mut read, &store(50, 40), false), None, "nothing is new, and nobody scrolls");
        assert_eq!(ask(&mut read, &store(55, 52), false), Some(Question::Page(Folder::Audit, Part::After(50))));
        read.take(Part::After(50), Ok(page(55, false, &[(52, "c")])), at);
        assert_eq!(ask(&mut read, &store(55, 52), true), Some(Question::Page(Folder::Audit, Part::Before(30))));
        read.take(Part::Before(30), Ok(page(55, false, &[(20, "z")])), at);
        assert_eq!(ask(&mut read, &store(55, 52), true), None, "the oldest was read");
        let order: Vec<&str> = read.rows.keys().map(|id| id.key.as_str()).collect();
        assert_eq!(order, ["c", "b", "a", "z"], "newest first");
    }

    #[test]
    fn an_error_is_kept_and_the_question_asked_again_later_and_another_etcd_is_read_anew() {
        let mut read: Read<u8> = Read::default();
        let at = Duration::from_secs(100);
        read.take(Part::Newest, Err("away".into()), at);
        assert_eq!(read.wants(Folder::Audit, &store(50, 0), false, at), None);
        assert!(read.wants(Folder::Audit, &store(50, 0), false, at + PAUSE).is_some());
        read.take(Part::Newest, Ok(page(50, false, &[(40, "b")])), at);
        let question = read.wants(Folder::Audit, &store(7, 0), false, at * 2);
        assert_eq!(question, Some(Question::Page(Folder::Audit, Part::Newest)));
        assert!(read.rows.is_empty());
    }
}

//! History: ended entries, audit records, CKE's records. The console reads them in pages, newest first, only while they
//! are shown. It reads newer values afterwards. Start-up time and memory do not grow with the folders.

mod ended;
mod read;

use std::{cmp::Reverse, sync::Arc};

use cketerm_actions::plan::Drains;
use cketerm_clients::store::pages::{Page, Part};
use cketerm_model::{
    boot_time::BootTime,
    cketerm_records::{Audit, OneAnAction},
    entry::{EntryId, QueueKind, Stored},
    record::Record,
    rights::Rights,
    stored::keys::Folder,
};
use cketerm_runtime::telemetry::LogLine;
use serde_json::Value;

pub use self::{
    ended::{Ended, EntryTimeline},
    read::Read,
};

use super::{HostId, yaml};

/// Values per page.
pub const PAGE: u32 = 200;
/// Pages of older values that a key press allows: an operator who keeps reading keeps pressing keys.
pub const PAGES_PER_KEY: u8 = 5;

/// Identity of a value: newest first, then by key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PastId {
    /// `ModRevision` at which it was first read.
    pub revision: Reverse<i64>,
    /// Its whole key.
    pub key: String,
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

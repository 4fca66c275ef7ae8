//! Recent writes below the folders that only grow, as the watch reports them. A view of a folder reads these keys
//! instead of searching the whole folder for new ones.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::kind::Folder;
use crate::{
    cketerm_records::{Audit, Who},
    entry::EntryId,
    names::Address,
    record::Record,
};

/// Largest number of remembered keys.
const MAX_KEYS: usize = 1000;
/// Largest number of remembered operators' actions, and of remembered ends of entries.
const MAX_ACTIONS: usize = 64;

/// Fields that are read of a history record.
#[derive(serde::Deserialize)]
struct Ended {
    entry: EntryId,
    outcome: String,
}

/// Operation with which CKE removes reboots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// `reboot-dequeue`: the machines have booted, or have left the definition.
    Dequeued,
    /// `reboot-cancel`: the entries were cancelled.
    Cancelled,
}

/// Keys in the order in which etcd accepted their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentRecords {
    keys: OrdMap<(i64, String), Folder>,
    /// Operators' actions while the folder was watched, by revision.
    actions: OrdMap<i64, Arc<Audit>>,
    /// Revisions of actions that are no longer kept.
    dropped: OrdSet<i64>,
    /// Outcomes of entries that ended while the folder was watched, by revision.
    endings: OrdMap<i64, (EntryId, Arc<str>)>,
    /// Removals of reboots that CKE recorded while its records were watched, by revision: the machines, and how.
    removals: OrdMap<i64, (Arc<[Address]>, Removal)>,
    /// Writes up to this revision are not known.
    since: i64,
}

impl RecentRecords {
    /// Creates the list of writes after this revision.
    pub fn after_revision(revision: i64) -> Self {
        Self { since: revision, ..Self::default() }
    }

    /// Adds a written key.
    pub fn key_written(&mut self, folder: Folder, revision: i64, key: String) {
        self.keys.insert((revision, key), folder);
        while self.keys.len() > MAX_KEYS {
            let Some((oldest, _)) = self.keys.get_min().cloned() else { return };
            self.since = self.since.max(oldest.0);
            self.keys.remove(&oldest);
        }
    }

    /// Adds a value that operators want to see at once: an operator's action, or the end of an entry. It costs no read,
    /// because the watch delivers the value.
    pub fn record_value(&mut self, folder: Folder, revision: i64, value: &[u8]) {
        match folder {
            Folder::Audit => {
                let audit = serde_json::from_slice::<Audit>(value).ok().filter(|audit| !audit.by_engine());
                if let Some(audit) = audit {
                    self.actions.insert(revision, Arc::new(audit));
                }
            }
            Folder::History => {
                if let Ok(Ended { entry, outcome }) = serde_json::from_slice(value) {
                    self.endings.insert(revision, (entry, outcome.into()));
                }
            }
            Folder::Records => {
                // CKE writes the record before it removes the entries, and again after that
                let record = serde_json::from_slice::<Record>(value).ok().filter(|record| !record.by_cketerm());
                let removal = match record.as_ref().map(|record| record.operation.as_str()) {
                    Some("reboot-dequeue") => Some(Removal::Dequeued),
                    Some("reboot-cancel") => Some(Removal::Cancelled),
                    Some(_) | None => None,
                };
                if let (Some(record), Some(removal)) = (record, removal) {
                    let targets = record.targets.iter().flatten().map(|target| Address::new(target.as_str()));
                    self.removals.insert(revision, (targets.collect(), removal));
                }
            }
        }
        while self.removals.len() > MAX_ACTIONS {
            let Some(oldest) = self.removals.get_min().map(|(at, _)| *at) else { return };
            self.removals.remove(&oldest);
        }
        while self.endings.len() > MAX_ACTIONS {
            let Some(oldest) = self.endings.get_min().map(|(at, _)| *at) else { return };
            self.endings.remove(&oldest);
        }
        while self.actions.len() > MAX_ACTIONS {
            let Some(oldest) = self.actions.get_min().map(|(at, _)| *at) else { return };
            self.actions.remove(&oldest);
            self.dropped.insert(oldest);
        }
        while self.dropped.len() > MAX_KEYS {
            let Some(oldest) = self.dropped.get_min().copied() else { return };
            self.dropped.remove(&oldest);
        }
    }

    /// Returns the outcome of an entry that ended recently, as far as it was watched.
    pub fn ended(&self, entry: EntryId) -> Option<&str> {
        self.endings.values().rev().find(|(of, _)| *of == entry).map(|(_, outcome)| &**outcome)
    }

    /// Returns how CKE removed the entry of a machine after this revision, as far as its records were watched.
    pub fn removed_by_cke(&self, address: &Address, revision: i64) -> Option<Removal> {
        let mut newest = self.removals.range(revision + 1..).rev();
        newest.find(|(_, (of, _))| of.contains(address)).map(|(_, (_, removal))| *removal)
    }

    /// Returns the operator who wrote this revision, if the write was an action that was watched and is still kept.
    pub fn author_of(&self, revision: i64) -> Option<&Who> {
        self.actions.get(&revision).map(|audit| &audit.who)
    }

    /// Returns operators' actions after this revision, oldest first, as far as they were watched.
    pub fn actions_after(&self, revision: i64) -> impl Iterator<Item = (i64, &Arc<Audit>)> {
        self.actions.range(revision + 1..).map(|(at, audit)| (*at, audit))
    }

    /// Returns how many further actions after this revision are no longer kept, and whether that number is only a lower
    /// bound.
    pub fn dropped_after(&self, revision: i64) -> (usize, bool) {
        let dropped = self.dropped.range(revision + 1..).count();
        (dropped, dropped >= MAX_KEYS)
    }

    /// Returns the keys of a folder written after a revision, oldest first, each with its revision; none if not all of
    /// them are known.
    pub fn after(&self, folder: Folder, revision: i64) -> Option<Vec<(i64, String)>> {
        let known = self.since > 0 && revision >= self.since;
        let newer = || self.keys.range((revision + 1, String::new())..).filter(|(_, of)| **of == folder);
        known.then(|| newer().map(|(key, _)| key.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_after_a_revision_are_listed_only_while_all_of_them_are_known() {
        let mut recent = RecentRecords::after_revision(10);
        for revision in 11..15 {
            recent.key_written(Folder::Audit, revision, format!("a{revision}"));
            recent.key_written(Folder::History, revision, format!("h{revision}"));
        }
        let keys = |recent: &RecentRecords, at| {
            Some(recent.after(Folder::Audit, at)?.into_iter().map(|(_, key)| key).collect::<Vec<_>>())
        };
        assert_eq!(keys(&recent, 12).unwrap(), ["a13", "a14"]);
        assert_eq!(keys(&recent, 14).unwrap(), Vec::<String>::new());
        assert_eq!((keys(&recent, 9), keys(&RecentRecords::default(), 0)), (None, None));
        for revision in 20..20 + i64::try_from(MAX_KEYS).unwrap() {
            recent.key_written(Folder::Audit, revision, "x".to_owned());
        }
        assert_eq!(keys(&recent, 13), None, "keys that old are no longer kept");
        assert_eq!(keys(&recent, 1018).unwrap(), ["x"]);
    }

    /// A leader that watched a cancel names its operator. One that no longer keeps the action, or never watched it, does
    /// not know the operator, and the record must not read as if nobody had cancelled.
    #[test]
    fn the_end_of_a_cancelled_entry_says_that_its_operator_is_unknown_once_the_action_is_no_longer_kept() {
        let mut recent = RecentRecords::after_revision(10);
        let action = |user: &str, on: &str| {
            let who = serde_json::json!({"user": user, "host": "ops2"});
            let audit = serde_json::json!({
                "at": "2026-11-21T10:00:00Z", "who": who, "what": "reboot cancel", "on": on, "result": "done",
            });
            audit.to_string()
        };
        let ending = || {
            let ending = serde_json::json!({
                "entry": "reboots/3", "address": "10.0.0.12", "end": "cancelled", "outcome": "cancelled",
                "at": "2026-11-21T10:00:30Z", "last": {},
            });
            serde_json::from_value::<crate::cketerm_records::Ending>(ending).unwrap()
        };
        let described = |recent: &RecentRecords| ending().withdrawn_by(recent.author_of(11)).described();
        recent.record_value(Folder::Audit, 11, action("bob", "reboots/3").as_bytes());
        assert_eq!(described(&recent), "cancelled by bob@ops2");
        let later = 12..12 + i64::try_from(MAX_ACTIONS).unwrap();
        for revision in later {
            recent.record_value(Folder::Audit, revision, action("carol", "reboots/9").as_bytes());
        }
        assert_eq!(described(&recent), "cancelled, by whom is not recorded");
        assert_eq!(described(&RecentRecords::after_revision(20)), "cancelled, by whom is not recorded");
    }

    #[test]
    fn audit_records_of_people_are_kept_and_those_of_engines_are_not() {
        let mut recent = RecentRecords::after_revision(10);
        let audit = |user: &str, what: &str| {
            let who = serde_json::json!({"user": user, "host": "ops2"});
            serde_json::json!({"at": "2026-11-21T10:00:00Z", "who": who, "what": what, "on": "x", "result": "done"})
        };
        for revision in 11..40 {
            let user = if revision % 2 == 0 { "engine" } else { "bob" };
            recent.record_value(Folder::Audit, revision, audit(user, &revision.to_string()).to_string().as_bytes());
        }
        recent.record_value(Folder::Audit, 40, b"no JSON");
        recent.record_value(Folder::History, 41, br#"{"entry": "reboots/3", "outcome": "booted", "attempts": []}"#);
        assert_eq!((recent.ended(EntryId::reboot(3)), recent.ended(EntryId::reboot(4))), (Some("booted"), None));
        assert_eq!(recent.author_of(41), None, "the end of an entry is no action");
        let actions: Vec<i64> = recent.actions_after(0).map(|(at, _)| at).collect();
        assert_eq!((actions.len(), actions.last()), (15, Some(&39)));
        assert_eq!(recent.dropped_after(0), (0, false));
        for revision in 50..60 + i64::try_from(MAX_ACTIONS).unwrap() {
            recent.record_value(Folder::Audit, revision, audit("bob", "more").to_string().as_bytes());
        }
        assert_eq!(
            [recent.dropped_after(0), recent.dropped_after(49)],
            [(25, false), (10, false)],
            "the 15 actions from before and 10 of the new ones were dropped"
        );
        let mut recent = RecentRecords::after_revision(10);
        for revision in 37..40 {
            recent.record_value(Folder::Audit, revision, audit("bob", &revision.to_string()).to_string().as_bytes());
        }
        assert_eq!(recent.actions_after(38).map(|(_, a)| a.what.as_str()).collect::<Vec<_>>(), ["39"]);
    }
}

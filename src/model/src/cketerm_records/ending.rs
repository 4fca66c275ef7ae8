//! Endings: history of the entries that have left their queues.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Request, Who};
use crate::{attempt::Attempt, entry::EntryId, hook_runs::HookRun, names::Address};

/// The ways an entry ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// Its machine has booted.
    Booted,
    /// An operator declared it done.
    Done,
    /// Its machine was repaired.
    Succeeded,
    /// Its repair failed.
    Failed,
    /// An operator cancelled it.
    Cancelled,
    /// An operator deleted the repair.
    Deleted,
    /// Its node left the cluster definition.
    Dequeued,
    /// Unknown: the record is of a version that stored the text alone.
    #[default]
    Unrecorded,
}

impl EndKind {
    /// Reports whether the entry reached its goal.
    pub fn good(self) -> bool {
        match self {
            Self::Booted | Self::Done | Self::Succeeded => true,
            Self::Failed | Self::Cancelled | Self::Deleted | Self::Dequeued | Self::Unrecorded => false,
        }
    }

    /// Returns an outcome of this kind for people, with the operator who took the entry out of its queue. A record without
    /// one says so: the operator is unknown, not absent.
    pub fn described(self, outcome: &str, by: Option<&Who>) -> String {
        match (self, by) {
            (_, Some(who)) => format!("{outcome} by {who}"),
            (Self::Cancelled | Self::Deleted, None) => format!("{outcome}, by whom is not recorded"),
            (Self::Booted | Self::Done | Self::Succeeded | Self::Failed | Self::Dequeued | Self::Unrecorded, None) => {
                outcome.to_owned()
            }
        }
    }

    /// Reports whether the entry was taken out of its queue: it neither reached its goal nor failed.
    pub fn withdrawn(self) -> bool {
        match self {
            Self::Cancelled | Self::Deleted | Self::Dequeued => true,
            Self::Booted | Self::Done | Self::Succeeded | Self::Failed | Self::Unrecorded => false,
        }
    }
}

/// `cketerm/history/<id>`: one entry that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// The entry.
    pub entry: EntryId,
    /// Address of the machine.
    pub address: Address,
    /// Kind of its end.
    #[serde(default)]
    pub end: EndKind,
    /// The same for people: `booted`, `cancelled`, `dequeued: …`, `done by …`.
    pub outcome: String,
    /// The operator who cancelled or deleted it, if known: other programs record none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn_by: Option<Who>,
    /// Time of the end.
    pub at: Timestamp,
    /// Last state of the entry, in CKE's JSON.
    pub last: serde_json::Value,
    /// The request for the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// Attempts of the entry: the first one and as many of the newest as are kept.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// The last run of each hook of its last drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookRun>,
    /// Number of attempts that are not kept.
    #[serde(default, skip_serializing_if = "crate::attempt::none")]
    pub omitted: u32,
}

/// Number of attempts that an ending keeps.
const MAX_ATTEMPTS: usize = 32;
/// Maximum number of bytes of an ending's attempts, and of its entry.
const MAX_ATTEMPTS_BYTES: usize = 256 << 10;
const MAX_ENTRY_BYTES: usize = 128 << 10;

impl Ending {
    /// Returns the outcome for people, with the operator who took the entry out of its queue: `cancelled by alice@admin1`.
    pub fn described(&self) -> String {
        self.end.described(&self.outcome, self.withdrawn_by.as_ref())
    }

    /// Adds the operator who took the entry out of its queue. An entry that ended otherwise stays as it is.
    #[must_use]
    pub fn withdrawn_by(self, who: Option<&Who>) -> Self {
        match (self.end, who) {
            (EndKind::Cancelled | EndKind::Deleted, Some(who)) => Self { withdrawn_by: Some(who.clone()), ..self },
            (
                EndKind::Booted
                | EndKind::Done
                | EndKind::Succeeded
                | EndKind::Failed
                | EndKind::Cancelled
                | EndKind::Deleted
                | EndKind::Dequeued
                | EndKind::Unrecorded,
                _,
            ) => self,
        }
    }

    /// Returns an ending that can always be stored. It keeps the first attempt and as many of the newest ones as fit,
    /// and the number of the others. An entry of excessive size is left out.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let size = |value: &serde_json::Value| value.to_string().len();
        if size(&self.last) > MAX_ENTRY_BYTES {
            self.last = serde_json::json!({ "left_out": format!("{} bytes", size(&self.last)) });
        }
        let before: u32 = self.attempts.iter().map(|a| a.folded).sum();
        let (mut bytes_left, mut kept_indexes) = (MAX_ATTEMPTS_BYTES, std::collections::BTreeSet::new());
        let last = self.attempts.len().saturating_sub(1);
        // The newest attempt first, which holds the end; then the first one; then the others from new to old.
        for index in (0..self.attempts.len()).rev().take(1).chain([0]).chain((0..last).rev()) {
            let Some(attempt) = self.attempts.get(index).filter(|_| !kept_indexes.contains(&index)) else { continue };
            let bytes = serde_json::to_string(attempt).map_or(0, |text| text.len());
            if kept_indexes.len() == MAX_ATTEMPTS || bytes > bytes_left {
                break;
            }
            bytes_left -= bytes;
            kept_indexes.insert(index);
        }
        let all = std::mem::take(&mut self.attempts).into_iter().enumerate();
        let (retained, dropped): (Vec<_>, Vec<_>) = all.partition(|(index, _)| kept_indexes.contains(index));
        self.attempts = retained.into_iter().map(|(_, attempt)| attempt).collect();
        self.omitted = self.omitted.max(before.saturating_add(u32::try_from(dropped.len()).unwrap_or(u32::MAX)));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_withdrawn_entry_names_an_operator_and_old_records_stay_readable() {
        let old = serde_json::json!({
            "entry": "reboots/3", "address": "10.0.0.12", "end": "cancelled", "outcome": "cancelled",
            "at": "2026-06-01T00:00:30Z", "last": {},
        });
        let old: Ending = serde_json::from_value(old).unwrap();
        let unknown = "cancelled, by whom is not recorded";
        assert_eq!((old.described().as_str(), &old.withdrawn_by), (unknown, &None));
        let who = Who { user: "alice".into(), host: "admin1".into(), ssh_client: None };
        assert_eq!(old.clone().withdrawn_by(None), old, "ckecli records nobody");
        let new = old.withdrawn_by(Some(&who));
        assert_eq!(new.described(), "cancelled by alice@admin1");
        let read: Ending = serde_json::from_str(&serde_json::to_string(&new).unwrap()).unwrap();
        assert_eq!(read.withdrawn_by, Some(who.clone()));
        let dequeued = Ending { end: EndKind::Dequeued, withdrawn_by: None, ..new };
        assert_eq!(dequeued.withdrawn_by(Some(&who)).withdrawn_by, None);
    }
}

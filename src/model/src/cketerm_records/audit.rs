//! Audit records: actions of users and engines.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Who;
use crate::{entry::EntryId, secret};

/// Further tries that one audit record covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Number of tries, including the first.
    pub count: u32,
    /// Time of the last try.
    pub last: Timestamp,
}

/// Value of `cketerm/audit/<id>`: one action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Time of the action; of several tries, the first.
    pub at: Timestamp,
    /// A user, or the engine (`engine@host`).
    pub who: Who,
    /// Action: `reboot add`, `reboot cancel`, `queue disable`, `cordon`, `power` …
    pub what: String,
    /// Object: entries, nodes, a key.
    pub on: String,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Result; of several tries, that of the last one.
    pub result: String,
    /// True if the action failed or was refused. Records of 0.1 lack the field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Entry that an engine acted for, if the object is another one (its Node, its pods).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryId>,
    /// Further tries that this record covers.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeats>,
}

impl Audit {
    /// Returns the time of the last try.
    pub fn last(&self) -> Timestamp {
        self.repeats.map_or(self.at, |repeats| repeats.last)
    }

    /// Returns the number of tries.
    pub fn count(&self) -> u32 {
        self.repeats.map_or(1, |repeats| repeats.count)
    }

    /// Returns the action, with the number of tries if there were several.
    pub fn what_with_count(&self) -> String {
        match self.count() {
            1 => self.what.clone(),
            count => format!("{} x{count}", self.what),
        }
    }

    /// Returns the record after another try.
    #[must_use]
    pub fn again(self, at: Timestamp, reason: Option<String>, result: &str) -> Self {
        let repeats = Some(Repeats { count: self.count().saturating_add(1), last: at.max(self.last()) });
        Self { reason, result: result.to_owned(), failed: false, repeats, ..self }
    }

    /// Result of a record that is written before an action on the world. The record of its end follows; this one stays
    /// alone if the program dies in between.
    pub const BEGUN: &'static str = "begun";

    /// Action of an engine that runs a reboot command. The result is the command line.
    pub const REBOOT_COMMAND: &'static str = "power";
    /// Action of an engine that runs a repair step. The result is the command line.
    pub const REPAIR_COMMAND: &'static str = "repair command";
    /// Action of an engine that runs a success command. The result is the command line.
    pub const SUCCESS_COMMAND: &'static str = "success command";

    /// Returns true if the result is a command line, whose arguments may hold a secret.
    pub fn shows_command_line(&self) -> bool {
        let commands = [Self::REBOOT_COMMAND, Self::REPAIR_COMMAND, Self::SUCCESS_COMMAND];
        !self.failed && commands.contains(&self.what.as_str())
    }

    /// Returns true if the record only says that the action began.
    pub fn begins(&self) -> bool {
        !self.failed && self.result == Self::BEGUN
    }

    /// Returns true if an engine is the author.
    pub fn by_engine(&self) -> bool {
        self.who.user == "engine"
    }

    /// Returns the record for display: secrets in the result, for example in an old command line, are masked.
    #[must_use]
    pub fn shown(&self) -> Self {
        Self { result: secret::masked(&self.result), ..self.clone() }
    }
}

/// Filter of audit records, newest first: one action is one record. A record that only says that an action began is left
/// out once the record of its end was seen.
#[derive(Debug, Default)]
pub struct OneAnAction<'a>(HashSet<(&'a str, &'a str, &'a str, &'a str)>);

impl<'a> OneAnAction<'a> {
    /// Reports whether a record is shown.
    pub fn shows(&mut self, audit: &'a Audit) -> bool {
        let action = (audit.who.user.as_str(), audit.who.host.as_str(), audit.what.as_str(), audit.on.as_str());
        if audit.begins() {
            return !self.0.remove(&action);
        }
        self.0.insert(action);
        true
    }
}

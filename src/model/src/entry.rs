//! Identifiers of entries of either queue, and stored values of etcd.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Kind of work on a machine: an entry of one of CKE's two queues, or a maintenance of cketerm's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueKind {
    /// `reboots/` in etcd, `reboot-queue` on the command line.
    Reboot,
    /// `repairs/` in etcd, `repair-queue` on the command line.
    Repair,
    /// `cketerm/maintenance/` in etcd, `maintenance` on the command line. It has no batches, and follows the switch of the
    /// reboot queue.
    Maintenance,
}

impl QueueKind {
    /// CKE's two queues, in the order in which they are shown.
    pub const QUEUES: [Self; 2] = [Self::Reboot, Self::Repair];

    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Reboot, Self::Repair, Self::Maintenance];

    /// Returns the first part of an entry's name: `reboots`, `repairs` or `maintenance`.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Reboot => "reboots",
            Self::Repair => "repairs",
            Self::Maintenance => "maintenance",
        }
    }

    /// Returns the folder below the prefix. CKE's queues have it beside CKE's other keys.
    pub fn path(self) -> &'static str {
        match self {
            Self::Reboot => "reboots",
            Self::Repair => "repairs",
            Self::Maintenance => "cketerm/maintenance",
        }
    }

    /// Returns cketerm's command for the queue, in its short form: `rq` or `repair-queue`.
    pub fn command(self) -> &'static str {
        match self {
            Self::Reboot => "rq",
            Self::Repair => "repair-queue",
            Self::Maintenance => "maintenance",
        }
    }

    /// Returns cketerm's command that removes an entry from the queue: `rq cancel` or `repair-queue delete`.
    pub fn remove_command(self) -> &'static str {
        match self {
            Self::Reboot => "rq cancel",
            Self::Repair => "repair-queue delete",
            Self::Maintenance => "maintenance release",
        }
    }

    /// Returns the status of an entry after its drain: `rebooting`, `watching` or `in-maintenance`.
    pub fn status_after_command(self) -> &'static str {
        match self {
            Self::Reboot => "rebooting",
            Self::Repair => "watching",
            Self::Maintenance => "in-maintenance",
        }
    }
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reboot => "reboot",
            Self::Repair => "repair",
            Self::Maintenance => "maintenance",
        })
    }
}

/// Identifier of an entry: its queue and its index, written `reboots/12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The queue that holds it.
    pub queue: QueueKind,
    /// Its index, counted from 0 and never reused.
    pub index: u64,
}

impl EntryId {
    /// Returns the identifier of an entry of the reboot queue.
    pub fn reboot(index: u64) -> Self {
        Self { queue: QueueKind::Reboot, index }
    }

    /// Returns the identifier of an entry of the repair queue.
    pub fn repair(index: u64) -> Self {
        Self { queue: QueueKind::Repair, index }
    }

    /// Returns the identifier of a maintenance.
    pub fn maintenance(index: u64) -> Self {
        Self { queue: QueueKind::Maintenance, index }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.queue.folder(), self.index)
    }
}

impl FromStr for EntryId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(folder, index)| {
            let queue = match folder {
                "reboots" => QueueKind::Reboot,
                "repairs" => QueueKind::Repair,
                "maintenance" => QueueKind::Maintenance,
                _ => return None,
            };
            Some(Self { queue, index: index.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            format!("{text:?} is not an entry: expected reboots/INDEX, repairs/INDEX or maintenance/INDEX")
        })
    }
}

impl Serialize for EntryId {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A value of etcd with its revision, readable or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored<T> {
    /// The whole key.
    pub key: String,
    /// ModRevision, which every write compares.
    pub mod_revision: i64,
    /// The value, or why it cannot be read. An unreadable value is shown and never stops the others.
    pub value: Result<Arc<T>, String>,
}

impl<T> Stored<T> {
    /// Returns the value if it can be read.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().ok().map(AsRef::as_ref)
    }
}

/// For `#[serde(with = "text_number")]`: a number that CKE stores as a JSON string.
pub mod text_number {
    use super::{Deserialize, Deserializer, Serializer};

    /// Writes `"12"`.
    pub fn serialize<S: Serializer>(number: &u64, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(number)
    }

    /// Reads `"12"`; anything else is an error that shows the text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|_| serde::de::Error::custom(format!("{text:?} is not a number in a string")))
    }
}

/// Formats the indexes of entries for people: commas, and a dash for three or more in a row ("3, 5–7, 12").
pub fn format_indexes(indexes: &[u64]) -> String {
    let runs = indexes.chunk_by(|before, after| before.checked_add(1) == Some(*after));
    let texts = runs.map(|run| match run {
        [first, _, .., last] => format!("{first}–{last}"),
        few => few.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_or_more_consecutive_indexes_are_written_as_a_range() {
        assert_eq!(format_indexes(&[3, 5, 6, 7, 12, 13]), "3, 5–7, 12, 13");
        assert_eq!(format_indexes(&[9, 8, 8, u64::MAX]), format!("9, 8, 8, {}", u64::MAX));
        assert_eq!(format_indexes(&[]), "");
    }
}

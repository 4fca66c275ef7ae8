//! Rows of etcd, and the values parsed from them. Nothing else reads a value, so commands, consoles and engines agree on
//! what is unreadable.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::{
    entry::{EntryId, QueueKind, Stored},
    maintenance::MaintenanceEntry,
    reboot::RebootEntry,
    repair::RepairEntry,
    secret,
    text::visible,
};

/// Number of characters shown of an unreadable value.
const MAX_EXCERPT: usize = 80;
/// Number of characters shown of a parser's error.
const MAX_FAULT_LENGTH: usize = 300;

/// One key and value of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The whole key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// ModRevision.
    pub mod_revision: i64,
    /// CreateRevision.
    pub create_revision: i64,
}

impl Row {
    /// Creates a row for tests and scenarios.
    pub fn new(key: &str, value: &str, mod_revision: i64, create_revision: i64) -> Self {
        Self { key: key.as_bytes().to_vec(), value: value.as_bytes().to_vec(), mod_revision, create_revision }
    }
}

/// Parses a value. The error names the key and the remedy.
pub(super) fn parse<T: DeserializeOwned>(key: &str, row: &Row) -> Result<T, String> {
    serde_json::from_slice(&row.value)
        .map_err(|e| format!("{key}: invalid: {}; look with `etcdctl get {key}`, fix it or remove it", fault(&e)))
}

/// Returns the parser's error, shortened. It quotes the offending value, which may be long, or a secret.
fn fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let short = secret::beginning(text.as_bytes(), MAX_FAULT_LENGTH);
    if short.chars().count() < MAX_FAULT_LENGTH {
        return short;
    }
    format!("{short}… at line {} column {}", error.line(), error.column())
}

/// Returns the value as it is stored, and the reason why it cannot be read.
pub(super) fn store<T>(key: &str, row: &Row, value: Result<T, String>) -> (Stored<T>, Result<(), String>) {
    let fault = value.as_ref().map(|_| ()).map_err(Clone::clone);
    (Stored { key: key.to_owned(), mod_revision: row.mod_revision, value: value.map(Arc::new) }, fault)
}

/// Parses a value into its slot.
pub(super) fn set_value<T: DeserializeOwned>(slot: &mut Option<Stored<T>>, key: &str, row: &Row) -> Result<(), String> {
    let (stored, fault) = store(key, row, parse(key, row));
    *slot = Some(stored);
    fault
}

/// Parses a value into its place among those of its folder. `id`: the part of the key that names the place.
pub(super) fn insert_value<I: Ord + Clone, T: DeserializeOwned + Clone>(
    map: &mut imbl::OrdMap<I, Stored<T>>,
    id: Result<I, String>,
    key: &str,
    row: &Row,
) -> Result<(), String> {
    let id = id.map_err(|why| format!("{key}: {why}; remove it with etcdctl"))?;
    let (stored, fault) = store(key, row, parse(key, row));
    map.insert(id, stored);
    fault
}

/// Parses an entry. The error says why it cannot be read, with the beginning of the stored text.
pub(super) fn read<E: DeserializeOwned>(index: u64, value: &[u8], index_of: impl Fn(&E) -> u64) -> Result<E, String> {
    let excerpt = || format!("it begins with {}", visible(&secret::beginning(value, MAX_EXCERPT), false));
    let entry: E = serde_json::from_slice(value).map_err(|e| format!("{}; {}", fault(&e), excerpt()))?;
    match index_of(&entry) {
        stored_index if stored_index == index => Ok(entry),
        other => Err(format!("has index {other}, but its key has {index}; {}", excerpt())),
    }
}

/// Returns the reason why an entry cannot be read, if it cannot.
pub fn unreadable(id: EntryId, value: &[u8]) -> Option<String> {
    match id.queue {
        QueueKind::Reboot => read(id.index, value, |e: &RebootEntry| e.index).err(),
        QueueKind::Repair => read(id.index, value, |e: &RepairEntry| e.index).err(),
        QueueKind::Maintenance => read(id.index, value, |e: &MaintenanceEntry| e.index).err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message about 1.2 MB of text that is no entry is short, and contains no part of a secret.
    #[test]
    fn the_error_for_an_unreadable_entry_is_short_and_shows_no_secret() {
        let long = "hunter2".repeat(170_000);
        for text in [
            format!("{{\"index\": \"1\", \"node\": \"10.0.0.1\", \"status\": \"password: {long}\"}}"),
            format!("{{\"index\": \"1\", \"password\": \"{long}\", \"node\": 5}}"),
            format!("\"token={long}\""),
        ] {
            let why = unreadable(EntryId { queue: QueueKind::Reboot, index: 1 }, text.as_bytes()).unwrap();
            assert!(why.len() < 1_000 && !why.contains("hunter2"), "{why}");
        }
    }
}

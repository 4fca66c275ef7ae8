//! Records of ended entries, from `cketerm/history/`.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_actions::ActionError;
use cketerm_clients::store::Store;
use cketerm_model::{
    cketerm_records::Ending,
    entry::{EntryId, Stored},
    secret::mask,
};
use serde::Serialize;
use serde_json::Value;

/// Number of entries above which one read of the whole history replaces single reads.
const MAX_SINGLE_READS: usize = 20;

/// Returns the endings of these entries, as far as they are recorded.
pub async fn endings(store: &Store, selected: &BTreeSet<EntryId>) -> Result<BTreeMap<EntryId, Ending>, ActionError> {
    let keys = store.keys();
    // few are read by their keys, many in one read; an unreadable record affects only itself
    if selected.len() > MAX_SINGLE_READS {
        let (_, all) = store.newest_with_revision::<Ending>(&keys.history_prefix(), usize::MAX).await?;
        let ended = all.iter().filter_map(Stored::get).filter(|e| selected.contains(&e.entry));
        return Ok(ended.map(|e| (e.entry, e.clone())).collect());
    }
    let mut found = BTreeMap::new();
    for id in selected {
        let raw = store.raw(&keys.history_of(*id)).await?;
        if let Some(ending) = raw.and_then(|raw| serde_json::from_str(&raw.text).ok()) {
            found.insert(*id, ending);
        }
    }
    Ok(found)
}

/// Serializes a value and masks everything in command lines and outputs that looks like a secret.
pub fn shown(value: &impl Serialize) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(value)?;
    mask(&mut value);
    Ok(value)
}

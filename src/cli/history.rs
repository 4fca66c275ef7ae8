//! Entries that have ended, read on demand from `cketerm/history/`.

use std::collections::{BTreeMap, BTreeSet};

use etcd_client::{GetOptions, SortOrder, SortTarget};

use crate::{
    actions::ActionError,
    model::{entry::EntryId, ours::Ending},
    store::{Store, keys::end_of},
};

const PAGE: i64 = 500;

/// The endings of these entries, as far as they are recorded; ids sort by time, so the newest are read first.
pub async fn endings(store: &Store, wanted: &BTreeSet<EntryId>) -> Result<BTreeMap<EntryId, Ending>, ActionError> {
    let from = store.keys().history_prefix().into_bytes();
    let mut to = end_of(&from);
    let mut found = BTreeMap::new();
    while found.len() < wanted.len() {
        let options =
            GetOptions::new().with_range(to.clone()).with_sort(SortTarget::Key, SortOrder::Descend).with_limit(PAGE);
        let page = store.client().get(from.clone(), Some(options)).await;
        let page = page.map_err(|e| {
            ActionError::failed(format!("etcd at {}: the history was not read: {e}", store.endpoints()))
        })?;
        for kv in page.kvs() {
            // a record that cannot be read hides nothing but itself
            if let Ok(ending) = serde_json::from_slice::<Ending>(kv.value())
                && wanted.contains(&ending.entry)
            {
                found.entry(ending.entry).or_insert(ending);
            }
        }
        match page.kvs().last() {
            Some(oldest) if page.more() => to = oldest.key().to_vec(),
            _ => break,
        }
    }
    Ok(found)
}

/// Whether the machine was rebooted as asked.
pub fn good(ending: &Ending) -> bool {
    ending.outcome.starts_with("booted") || ending.outcome.starts_with("done")
}

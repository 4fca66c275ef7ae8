//! Why an entry waits, for words that ask etcd alone: what the leader has published, else what etcd itself tells.

use std::sync::Arc;

use super::{decide::decide, publish, snapshot::Snapshot};
use crate::{
    clock::Now,
    model::{entry::EntryId, reason::Reason},
    store::view::StoreView,
};

/// The reason of one entry; `None` when there is no such entry.
pub fn explain(store: &StoreView, entry: EntryId, now: Now) -> Option<Reason> {
    let snap = Snapshot { store: Arc::new(store.clone()), ..Snapshot::default() };
    let reasons = publish::merged(&snap, decide(&snap, now).reasons);
    reasons.get(&entry).cloned()
}

//! `MaintenanceRequest`s: the choice of their Nodes, the entries that they need and that their end withdraws, and their
//! status (SAF-43).

mod choice;
mod status;

use cketerm_model::{
    accepted_request::{AcceptedNode, AcceptedRequest, RequestEnd},
    entry::{EntryId, Stored},
    maintenance_request::{RequestReason, RequestedAction},
    names::Address,
    reboot::RebootStatus,
    stored::view::StoreView,
};
use jiff::Timestamp;

pub use self::{
    choice::{Refusal, choose},
    status::{RequestAnswer, status},
};

/// Number of entries in one transaction. Each needs three operations.
const ENTRIES_AT_ONCE: usize = 30;

/// Reports whether this machine has an unfinished entry of the request's kind. A further one would do the same again.
pub fn is_busy(store: &StoreView, action: RequestedAction, address: &Address) -> bool {
    match action {
        RequestedAction::Keep => {
            let mut all = store.maintenance.entries.values().filter_map(Stored::get);
            all.any(|entry| entry.node == *address)
        }
        RequestedAction::Reboot => {
            let mut all = store.reboots.entries.values().filter_map(Stored::get);
            all.any(|entry| entry.node == *address)
        }
    }
}

/// Returns the Nodes that may get their entries now, as many as one transaction may write.
pub fn next_nodes<'a>(store: &StoreView, record: &'a AcceptedRequest) -> Vec<&'a AcceptedNode> {
    let waiting = record.nodes.iter().filter(|node| node.index.is_none());
    waiting.filter(|node| !is_busy(store, record.action, &node.address)).take(ENTRIES_AT_ONCE).collect()
}

/// Returns the cause for which nothing more is queued for an accepted request; `is_deleted`: the object is being deleted.
pub fn end_of(store: &StoreView, record: &AcceptedRequest, is_deleted: bool, now: Timestamp) -> Option<RequestReason> {
    if is_deleted {
        return Some(RequestReason::Deleted);
    }
    // somebody may have forgotten the batch, long after its end: its entries are gone then, too
    let batch = record.batch.and_then(|id| store.batches.get(&id)).and_then(Stored::get);
    if batch.is_some_and(|batch| batch.cancelled.is_some()) {
        return Some(RequestReason::BatchCancelled);
    }
    let is_over = record.end.is_some_and(|end| end <= now);
    is_over.then_some(RequestReason::WindowEnded)
}

/// Returns the entries that this end withdraws.
pub fn to_withdraw(store: &StoreView, record: &AcceptedRequest, cause: RequestReason) -> Vec<EntryId> {
    record.entries().filter(|id| withdraws(store, *id, cause)).collect()
}

/// Reports whether the end of a request withdraws an entry. The end of a window leaves alone what has begun; a maintenance
/// ends by itself then.
fn withdraws(store: &StoreView, id: EntryId, cause: RequestReason) -> bool {
    let is_deleted = match cause {
        RequestReason::Deleted => true,
        RequestReason::WindowEnded => false,
        // whoever cancels a batch cancels its entries
        RequestReason::BatchCancelled
        | RequestReason::Queued
        | RequestReason::BeforeWindow
        | RequestReason::InvalidSpec
        | RequestReason::NoNodes
        | RequestReason::TooManyNodes
        | RequestReason::NotMember
        | RequestReason::TooLong
        | RequestReason::InvalidRecord
        | RequestReason::InProgress
        | RequestReason::Ended => return false,
    };
    if let Some(entry) = store.maintenance.entries.get(&id.index).filter(|_| id == EntryId::maintenance(id.index)) {
        return is_deleted && entry.get().is_some_and(|entry| entry.released.is_none());
    }
    let reboot = store.reboots.entries.get(&id.index).filter(|_| id == EntryId::reboot(id.index));
    match reboot.and_then(Stored::get).map(|entry| entry.status) {
        Some(RebootStatus::Queued) => true,
        Some(RebootStatus::Draining | RebootStatus::Rebooting) => is_deleted,
        Some(RebootStatus::Cancelled) | None => false,
    }
}

/// Reports whether some entry of a request is still in its queue.
pub fn has_entries(store: &StoreView, record: &AcceptedRequest) -> bool {
    record.entries().any(|id| store.has_entry(id))
}

/// Returns the record with its end.
pub fn ended(record: &AcceptedRequest, cause: RequestReason, now: Timestamp) -> AcceptedRequest {
    AcceptedRequest { ended: Some(RequestEnd { at: now, cause }), ..record.clone() }
}

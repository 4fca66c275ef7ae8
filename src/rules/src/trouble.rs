//! Classification of entries that do not proceed: waiting or stuck. An entry is stuck at once if only an operator can
//! help. If the cause may pass by itself, the entry is stuck after the policy's `stuck_seconds`, or after too many
//! drain backoffs. Before that it waits: the reason is shown, but no metric counts it and no notice is sent. A gate
//! that holds all waiting entries is notified once and makes none of them stuck. The console, the notices and the
//! metrics use this classification.

use cketerm_model::{
    boot_time::Seconds,
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    reason::{ATTENTION_BACKOFF_COUNT, Attention, Reason},
    repair::RepairStatus,
    stored::view::StoreView,
    time::seconds_between,
};
use jiff::Timestamp;

use super::seen::Seen;

/// Classification of an entry that does not proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// It waits for something that may pass by itself, and has not waited long.
    Waits,
    /// An operator should look at it.
    Stuck,
}

/// Classifies an entry: it is unreadable, its reason blocks it, or it is a failed repair.
pub fn of(seen: &Seen, id: EntryId) -> Option<Trouble> {
    let classified = || seen.reasons.get(&id).and_then(|why| by(seen, id, why));
    match seen.snapshot.store.entry(id) {
        None => Some(Trouble::Stuck),
        Some(EntryRef::Repair(e)) if e.deleted || e.status == RepairStatus::Succeeded => None,
        Some(EntryRef::Repair(e)) if e.status == RepairStatus::Failed => Some(Trouble::Stuck),
        Some(EntryRef::Reboot(_) | EntryRef::Repair(_) | EntryRef::Maintenance(_)) => classified(),
    }
}

/// Classifies an entry with this reason.
pub fn by(seen: &Seen, id: EntryId, why: &Reason) -> Option<Trouble> {
    kept_by(&seen.snapshot.store, seen.now.wall, id, why)
}

/// Classifies an entry with this reason from the live copy of etcd alone.
pub fn kept_by(store: &StoreView, now: Timestamp, id: EntryId, why: &Reason) -> Option<Trouble> {
    let given_up = matches!(why, Reason::Backoff { count, .. } if *count >= ATTENTION_BACKOFF_COUNT);
    match why.attention() {
        _ if !own(why) => None,
        _ if given_up => Some(Trouble::Stuck),
        _ if why.is_gate() && !in_work(store, id) => Some(Trouble::Waits),
        Attention::None => None,
        Attention::Later if !is_overdue(store, now, id) => Some(Trouble::Waits),
        Attention::Later | Attention::Now => Some(Trouble::Stuck),
    }
}

/// Reports whether the entry waits for a gate, with all others of its queue.
pub fn is_at_gate(seen: &Seen, id: EntryId, why: &Reason) -> bool {
    why.is_gate() && !in_work(&seen.snapshot.store, id)
}

/// Returns all entries, and maintenances, that an operator should look at. It looks up only entries that are held up: it
/// runs at every change, and ten thousand entries may merely wait.
pub fn all_stuck(seen: &Seen) -> Vec<EntryId> {
    let store = &seen.snapshot.store;
    let mut stuck = Vec::new();
    for (index, stored) in &store.reboots.entries {
        if stored.value.is_err() {
            stuck.push(EntryId::reboot(*index));
        }
    }
    for (index, stored) in &store.maintenance.entries {
        if stored.value.is_err() {
            stuck.push(EntryId::maintenance(*index));
        }
    }
    for (id, why) in &*seen.reasons {
        if id.queue != QueueKind::Repair && own(why) && store.entry(*id).is_some() && is_stuck(seen, *id) {
            stuck.push(*id);
        }
    }
    let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    stuck.extend(repairs.filter(|id| is_stuck(seen, *id)));
    stuck
}

/// Reports whether an operator should look at this entry.
pub fn is_stuck(seen: &Seen, id: EntryId) -> bool {
    of(seen, id) == Some(Trouble::Stuck)
}

/// Reports whether the reason is about this entry. This includes a drain that was held up and is retried by itself. A
/// missing engine and stale sources concern the whole cluster and are reported elsewhere.
pub fn own(reason: &Reason) -> bool {
    let whole = matches!(reason, Reason::EngineObserving { .. } | Reason::NoEngine { .. } | Reason::Stale { .. });
    !whole && reason.attention() > Attention::None
}

/// Returns since when the entry has been in its state: its transition, else its request. A cancel or a deletion leaves the
/// time of the transition before it, so its own record has the time; without one it is not known.
pub fn since(seen: &Seen, id: EntryId) -> Option<Timestamp> {
    in_state_since(&seen.snapshot.store, id)
}

fn in_state_since(store: &StoreView, id: EntryId) -> Option<Timestamp> {
    let asked = || store.requests.get(&id).and_then(Stored::get).map(|r| r.at);
    let entry = store.entry(id)?;
    if entry.is_withdrawn() {
        return store.cancels.get(&id).and_then(Stored::get).map(|cancel| cancel.at);
    }
    entry.last_transition_time().or_else(asked)
}

/// Reports whether the entry has been in its state for `stuck_seconds`, or has had too many drain backoffs.
fn is_overdue(store: &StoreView, now: Timestamp, id: EntryId) -> bool {
    let given_up = store.entry(id).map_or(0, EntryRef::backoff_count);
    let most = || Seconds::from(store.policy().stuck_seconds);
    given_up >= ATTENTION_BACKOFF_COUNT
        || in_state_since(store, id).is_some_and(|since| seconds_between(since, now) >= most())
}

/// Reports whether the entry is in progress: draining, rebooting, or at a step of its repair.
fn in_work(store: &StoreView, id: EntryId) -> bool {
    store.entry(id).is_some_and(EntryRef::in_work)
}

/// Reports whether the stored value of this entry cannot be read.
pub fn unreadable(store: &StoreView, id: EntryId) -> bool {
    store.stored_entry(id).is_some_and(|stored| stored.value.is_err())
}

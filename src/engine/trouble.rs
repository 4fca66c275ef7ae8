//! What holds an entry up, and from when on that is called stuck: at once where only a person ends it; where it may pass by
//! itself, once the entry has stood there for the policy's `stuck_seconds`, or once its drain was given up too often. Before
//! that it waits on something, which is said, counted nowhere and rung for by nobody. A gate that holds all that
//! waits is told once and makes none of them stuck. The console, the notices and the metrics go by this.

use jiff::Timestamp;

use super::snapshot::Seen;
use crate::{
    model::{
        entry::{EntryId, QueueKind, Stored},
        reason::{Attention, GIVEN_UP, Reason},
        reboot::{RebootEntry, RebootStatus},
        repair::{RepairEntry, RepairStatus},
        time::seconds_between,
    },
    store::view::StoreView,
};

/// How an entry stands that does not go on as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// On something that may pass by itself, and not for long.
    Waits,
    /// A person should look.
    Stuck,
}

/// How this entry stands: it cannot be read, something keeps it, or it is a repair that has failed.
pub fn of(seen: &Seen, id: EntryId) -> Option<Trouble> {
    let kept = || seen.reasons.get(&id).and_then(|why| by(seen, id, why));
    match id.queue {
        QueueKind::Reboot if entry(seen, id).is_none() => Some(Trouble::Stuck),
        QueueKind::Reboot => kept(),
        QueueKind::Repair => match repair(seen, id) {
            None => Some(Trouble::Stuck),
            Some(e) if e.deleted || e.status == RepairStatus::Succeeded => None,
            Some(e) if e.status == RepairStatus::Failed => Some(Trouble::Stuck),
            Some(_) => kept(),
        },
    }
}

/// How an entry stands that is kept by this.
pub fn by(seen: &Seen, id: EntryId, why: &Reason) -> Option<Trouble> {
    kept_by(&seen.snapshot.store, seen.now.wall, id, why)
}

/// The same, from etcd's copy alone.
pub fn kept_by(store: &StoreView, now: Timestamp, id: EntryId, why: &Reason) -> Option<Trouble> {
    let given_up = matches!(why, Reason::Backoff { count, .. } if *count >= GIVEN_UP);
    match why.attention() {
        _ if !own(why) => None,
        _ if given_up => Some(Trouble::Stuck),
        _ if why.is_gate() && !in_work(store, id) => Some(Trouble::Waits),
        Attention::None => None,
        Attention::Later if !for_long(store, now, id) => Some(Trouble::Waits),
        Attention::Later | Attention::Now => Some(Trouble::Stuck),
    }
}

/// It waits for a gate, with all others of its queue.
pub fn at_gate(seen: &Seen, id: EntryId, why: &Reason) -> bool {
    why.is_gate() && !in_work(&seen.snapshot.store, id)
}

/// All that a person should look at, entries of both queues. Looked up is only what is held up: this is asked at all news, and
/// there may be ten thousand entries that merely wait.
pub fn all_stuck(seen: &Seen) -> impl Iterator<Item = EntryId> {
    let (reboots, repairs) = (&seen.snapshot.store.reboots.entries, &seen.snapshot.store.repairs.entries);
    let broken = reboots.iter().filter(|(_, stored)| stored.get().is_none()).map(|(index, _)| EntryId::reboot(*index));
    let held = seen.reasons.iter().filter(|(id, why)| id.queue == QueueKind::Reboot && own(why));
    let held = held.map(|(id, _)| *id).filter(|id| entry(seen, *id).is_some() && is_stuck(seen, *id));
    let repairs = repairs.keys().map(|index| EntryId::repair(*index)).filter(|id| is_stuck(seen, *id));
    broken.chain(held).chain(repairs)
}

/// Whether a person should look at this entry.
pub fn is_stuck(seen: &Seen, id: EntryId) -> bool {
    of(seen, id) == Some(Trouble::Stuck)
}

/// It is said of this entry: also when its last drain was held up, and is tried again by itself. That there is no engine and
/// that sources are stale is said of the whole, by other means.
pub fn own(reason: &Reason) -> bool {
    let whole = matches!(reason, Reason::EngineObserving { .. } | Reason::NoEngine { .. } | Reason::Stale { .. });
    !whole && reason.attention() > Attention::None
}

/// Since when an entry stands where it stands: its transition, else its request.
pub fn since(seen: &Seen, id: EntryId) -> Option<Timestamp> {
    stands_since(&seen.snapshot.store, id)
}

fn stands_since(store: &StoreView, id: EntryId) -> Option<Timestamp> {
    let asked = || store.requests.get(&id).and_then(Stored::get).map(|r| r.at);
    let moved = match id.queue {
        QueueKind::Reboot => reboot_in(store, id)?.last_transition_time,
        QueueKind::Repair => repair_in(store, id)?.last_transition_time,
    };
    moved.or_else(asked)
}

/// It has stood there for as long as a reboot may take, or each of its drains ended so.
fn for_long(store: &StoreView, now: Timestamp, id: EntryId) -> bool {
    let given_up = match id.queue {
        QueueKind::Reboot => reboot_in(store, id).map_or(0, |e| e.drain_backoff_count),
        QueueKind::Repair => repair_in(store, id).map_or(0, |e| e.drain_backoff_count),
    };
    #[allow(clippy::cast_precision_loss)] // seconds
    let most = || store.policy().stuck_seconds as f64;
    given_up >= GIVEN_UP || stands_since(store, id).is_some_and(|since| seconds_between(since, now) >= most())
}

/// It has a machine in hand: it drains, reboots, or is at a step of its repair.
fn in_work(store: &StoreView, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => {
            reboot_in(store, id).is_some_and(|e| matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting))
        }
        QueueKind::Repair => repair_in(store, id).is_some_and(|e| e.unfinished() && e.claims_machine()),
    }
}

/// What lies there as this entry cannot be read.
pub fn unreadable(store: &StoreView, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => store.reboots.entries.get(&id.index).is_some_and(|stored| stored.value.is_err()),
        QueueKind::Repair => store.repairs.entries.get(&id.index).is_some_and(|stored| stored.value.is_err()),
    }
}

fn reboot_in(store: &StoreView, id: EntryId) -> Option<&RebootEntry> {
    store.reboots.entries.get(&id.index).filter(|_| id.queue == QueueKind::Reboot).and_then(Stored::get)
}

fn repair_in(store: &StoreView, id: EntryId) -> Option<&RepairEntry> {
    store.repairs.entries.get(&id.index).filter(|_| id.queue == QueueKind::Repair).and_then(Stored::get)
}

fn entry(seen: &Seen, id: EntryId) -> Option<&RebootEntry> {
    reboot_in(&seen.snapshot.store, id)
}

fn repair(seen: &Seen, id: EntryId) -> Option<&RepairEntry> {
    repair_in(&seen.snapshot.store, id)
}

//! What holds an entry up, and from when on that is called stuck: at once where only a person ends it; where it may pass by
//! itself, once the entry has stood there for the policy's `stuck_seconds`, or once its drain was given up too often. Before
//! that it waits on something, which is said, counted nowhere and rung for by nobody.

use super::facts::{self, entry, repair};
use crate::{
    engine::snapshot::Seen,
    model::{
        entry::{EntryId, QueueKind},
        reason::{GIVEN_UP, Reason, SWITCHED_OFF},
        repair::RepairStatus,
        time::seconds_between,
    },
};

/// How an entry stands that does not go on as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// On something that may pass by itself, and not for long.
    Waits,
    /// A person should look.
    Stuck,
}

/// What holds this entry up is worth a word: it cannot be read, something keeps it, or it is a repair that has failed.
pub fn of(seen: &Seen, id: EntryId) -> Option<Trouble> {
    let why = || seen.reasons.get(&id).filter(|why| own(why));
    let kept = || why().map(|why| if passes(why) && !for_long(seen, id) { Trouble::Waits } else { Trouble::Stuck });
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

/// It is this entry that is held up: also when its last drain was, and it is tried again by itself. What holds the whole
/// queue (no engine, stale sources) is said once, in the header.
pub fn own(reason: &Reason) -> bool {
    match reason {
        Reason::EngineObserving { .. } | Reason::NoEngine { .. } | Reason::Stale { .. } => false,
        // whom the switch sent back nothing holds up but a timer
        Reason::Backoff { cause, .. } => cause.as_ref().is_some_and(|why| !why.starts_with(SWITCHED_OFF)),
        other => other.needs_attention(),
    }
}

/// It may be over at the next look, and nobody has done anything.
fn passes(why: &Reason) -> bool {
    matches!(
        why,
        Reason::UnreachableGate { .. }
            | Reason::ControlPlaneUnhealthy { .. }
            | Reason::BlockedByPdb { .. }
            | Reason::BlockedByJob { .. }
            | Reason::EvictionRefused { .. }
            | Reason::VolumeAttached { .. }
            | Reason::CheckUnavailable { .. }
            | Reason::PowerError { .. }
            | Reason::EffectFailed { .. }
            | Reason::Backoff { .. }
            | Reason::OutcomeUnknown { until: Some(_), .. }
    )
}

/// It has stood there for as long as a reboot may take, or each of its drains ended so.
fn for_long(seen: &Seen, id: EntryId) -> bool {
    let given_up = match id.queue {
        QueueKind::Reboot => entry(seen, id).map_or(0, |e| e.drain_backoff_count),
        QueueKind::Repair => repair(seen, id).map_or(0, |e| e.drain_backoff_count),
    };
    #[allow(clippy::cast_precision_loss)] // seconds
    let most = || seen.snapshot.store.policy().stuck_seconds as f64;
    given_up >= GIVEN_UP || facts::since(seen, id).is_some_and(|since| seconds_between(since, seen.now.wall) >= most())
}

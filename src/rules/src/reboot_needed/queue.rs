//! Limits of the reboots that the leader queues by itself.

use std::collections::BTreeMap;

use cketerm_model::{
    batch::{Batch, BatchId},
    cketerm_records::{NeededLog, REBOOT_NEEDED_USER, Who},
    entry::{EntryId, QueueKind, Stored},
    fault,
    names::Address,
    policy::Policy,
    reboot::RebootStatus,
    stored::view::StoreView,
    time::after,
};
use jiff::Timestamp;

/// Number of entries in one transaction. Each needs three operations.
const ENTRIES_AT_ONCE: usize = 30;
/// Number of times that the log keeps, and greatest limit a day.
pub const MAX_PER_DAY: u64 = 1000;
/// Seconds of a day.
const DAY: i64 = 86_400;

/// Batch of a cause, which further entries join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseBatch {
    /// There is none yet, or none of the last day.
    None,
    /// The entries join this one.
    Open(BatchId),
    /// Somebody has paused or cancelled it: no entry is queued for the cause.
    Stopped(BatchId),
}

fn is_own(who: &Who) -> bool {
    who.user == REBOOT_NEEDED_USER
}

/// Reason why the leader queues no needed reboot now, whatever the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeededWait {
    /// The reboot queue is disabled.
    #[error("the reboot queue is disabled: `cketerm rq enable`")]
    Disabled,
    /// Both queues are frozen.
    #[error("frozen until {until}: `cketerm unfreeze`")]
    Frozen {
        /// End of the freeze.
        until: Timestamp,
    },
    /// The record for the limit a day cannot be read.
    #[error(
        "the key cketerm/needed-log cannot be read, so the limit a day is unknown: fix it with etcdctl, or remove it"
    )]
    LogUnreadable,
    /// As many entries of its own are open as it may have.
    #[error("{open} of its entries are open; the policy reboot_needed_at_once allows {limit}")]
    AtOnce {
        /// Number of open entries.
        open: usize,
        /// The limit.
        limit: u64,
    },
    /// It has queued as many in 24 hours as it may.
    #[error("it has queued {queued} in 24 hours; the policy reboot_needed_per_day allows {limit}")]
    PerDay {
        /// Number of entries in 24 hours.
        queued: usize,
        /// The limit.
        limit: u64,
    },
}

/// Returns the number of open entries that the leader has queued.
fn open_entries(store: &StoreView) -> usize {
    let open = store.requests.iter().filter(|(id, request)| {
        let is_open = || match id.queue {
            // an entry that cannot be read counts
            QueueKind::Reboot => store
                .reboots
                .entries
                .get(&id.index)
                .is_some_and(|entry| entry.get().is_none_or(|entry| entry.status != RebootStatus::Cancelled)),
            QueueKind::Repair | QueueKind::Maintenance => false,
        };
        request.get().is_some_and(|request| is_own(&request.who)) && is_open()
    });
    open.count()
}

/// Returns the number of entries that the leader has queued in 24 hours. `None`: the log cannot be read.
fn queued_in_a_day(store: &StoreView, now: Timestamp) -> Option<usize> {
    match store.needed_log.as_ref().map(Stored::get) {
        None => Some(0),
        Some(log) => Some(log?.queued.iter().filter(|at| **at > after(now, -DAY)).count()),
    }
}

/// Returns the reason why the leader queues nothing now, if there is one for all machines. Windows, cordons and other
/// work on a machine are not among them.
pub fn wait(store: &StoreView, policy: &Policy, now: Timestamp) -> Option<NeededWait> {
    if !store.switch(QueueKind::Reboot).enabled() {
        return Some(NeededWait::Disabled);
    }
    if let Some(freeze) = policy.freeze.as_ref().filter(|freeze| freeze.holds(now)) {
        return Some(NeededWait::Frozen { until: freeze.until });
    }
    let (open, limit) = (open_entries(store), policy.reboot_needed_at_once);
    if open >= usize::try_from(limit).unwrap_or(usize::MAX) {
        return Some(NeededWait::AtOnce { open, limit });
    }
    let limit = policy.reboot_needed_per_day;
    match queued_in_a_day(store, now) {
        _ if limit == 0 => None,
        None => Some(NeededWait::LogUnreadable),
        Some(queued) => {
            (queued >= usize::try_from(limit).unwrap_or(usize::MAX)).then_some(NeededWait::PerDay { queued, limit })
        }
    }
}

/// Returns the number of entries that may be queued now. `None`: the log cannot be read, so it is unknown.
pub fn free_places(store: &StoreView, policy: &Policy, now: Timestamp) -> Option<usize> {
    let open = open_entries(store);
    let mut free_places = usize::try_from(policy.reboot_needed_at_once).unwrap_or(usize::MAX).saturating_sub(open);
    if policy.reboot_needed_per_day > 0 {
        let queued = queued_in_a_day(store, now)?;
        free_places =
            free_places.min(usize::try_from(policy.reboot_needed_per_day).unwrap_or(usize::MAX).saturating_sub(queued));
    }
    fault!(NeededLimitsIgnored => free_places = ENTRIES_AT_ONCE);
    Some(free_places.min(ENTRIES_AT_ONCE))
}

/// Returns the log with so many further entries.
pub fn logged(log: Option<&NeededLog>, count: usize, now: Timestamp) -> NeededLog {
    let before = log.map(|log| log.queued.as_slice()).unwrap_or_default();
    let mut queued: Vec<Timestamp> = before.iter().copied().filter(|at| *at > after(now, -DAY)).collect();
    queued.extend(std::iter::repeat_n(now, count));
    let most = usize::try_from(MAX_PER_DAY).unwrap_or(usize::MAX);
    queued.drain(..queued.len().saturating_sub(most));
    NeededLog { queued }
}

/// Returns the batches of the leader's own entries, each with its cause.
fn own_batches(store: &StoreView) -> impl Iterator<Item = (BatchId, &str, &Batch)> {
    store.batches.iter().filter_map(|(id, stored)| {
        let batch = stored.get().filter(|batch| is_own(&batch.who) && batch.queue == QueueKind::Reboot)?;
        Some((*id, batch.reason.as_deref()?, batch))
    })
}

/// Returns the causes for which the leader queues nothing more, with their batch. A cancelled batch stops its cause as
/// long as it is kept, a paused one until it goes on.
pub fn stopped_causes(store: &StoreView) -> BTreeMap<&str, BatchId> {
    let stopped = own_batches(store).filter(|(_, _, batch)| batch.cancelled.is_some() || batch.paused.is_some());
    stopped.map(|(id, cause, _)| (cause, id)).collect()
}

/// Returns the batch of the leader's own entries for this cause.
pub fn batch_of(store: &StoreView, cause: &str, now: Timestamp) -> CauseBatch {
    if let Some(id) = stopped_causes(store).get(cause) {
        return CauseBatch::Stopped(*id);
    }
    let recent = own_batches(store).filter(|(_, of, batch)| *of == cause && batch.at > after(now, -DAY));
    recent.last().map_or(CauseBatch::None, |(id, ..)| CauseBatch::Open(id))
}

/// Returns the batch with so many further entries; `before`: the batch that they join.
pub fn grown(before: Option<&Batch>, who: &Who, cause: &str, count: u64, now: Timestamp) -> Batch {
    let new = || Batch::new(QueueKind::Reboot, who.clone(), now, Some(cause.to_owned()), 0);
    let batch = before.cloned().unwrap_or_else(new);
    Batch { asked: batch.asked.saturating_add(count), added: batch.added.saturating_add(count), ended: None, ..batch }
}

/// Returns the unfinished entries of both queues by address; of several, the first.
pub fn entries_by_address(store: &StoreView) -> BTreeMap<&Address, EntryId> {
    let mut all = BTreeMap::new();
    for (index, entry) in &store.reboots.entries {
        if let Some(entry) = entry.get().filter(|entry| entry.status != RebootStatus::Cancelled) {
            all.entry(&entry.node).or_insert(EntryId::reboot(*index));
        }
    }
    for (index, entry) in &store.repairs.entries {
        if let Some(entry) = entry.get().filter(|entry| entry.unfinished()) {
            all.entry(&entry.address).or_insert(EntryId::repair(*index));
        }
    }
    all
}

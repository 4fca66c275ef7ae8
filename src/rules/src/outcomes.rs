//! Outcomes of reboots: which ends have one, and how many of them the leader keeps (STO-74).

use cketerm_model::{
    attempt::Attempt,
    cketerm_records::EndKind,
    entry::{EntryId, QueueKind, Stored},
    fault,
    outcomes::{BadEnd, Outcome},
    policy::Policy,
    reboot::RebootStatus,
    stored::{keys::Keys, transaction::Change, view::StoreView},
    time::after,
};
use jiff::Timestamp;

/// Number of outcomes that are kept: more than a breaker looks at.
const KEPT: usize = 256;
/// Number of outcomes that one transaction removes: etcd takes 128 comparisons and 128 operations.
const REMOVED_AT_ONCE: usize = 100;

/// Returns the outcome of a reboot entry that ends now. `None`: its reboot command was never run, or no policy asks for
/// outcomes.
pub fn of(store: &StoreView, id: EntryId, end: EndKind, now: Timestamp) -> Option<Outcome> {
    let policy = store.policy();
    if id.queue != QueueKind::Reboot || !are_kept(&policy) || !was_run(store, id) {
        return None;
    }
    let entry = store.reboots.entries.get(&id.index)?.get()?;
    fault!(OutcomeForgotten if entry.status == RebootStatus::Cancelled => return None);
    let since = entry.last_transition_time.filter(|_| entry.status == RebootStatus::Rebooting);
    let stuck_at = since.map(|since| counts_as_stuck_at(&policy, since)).filter(|stuck| *stuck <= now);
    let bad = match end {
        EndKind::Cancelled | EndKind::Deleted | EndKind::Dequeued | EndKind::Failed | EndKind::Unrecorded => {
            Some(BadEnd::Withdrawn)
        }
        EndKind::Booted | EndKind::Done | EndKind::Succeeded => stuck_at.map(|_| BadEnd::Late),
    };
    Some(Outcome { address: entry.node.clone(), at: now, bad, stuck_at, batch: store.batch_of(id) })
}

/// Reports whether a command of the entry was ever begun. An attempt that cannot be read may have been.
pub(crate) fn was_run(store: &StoreView, id: EntryId) -> bool {
    store.attempts_of(id).any(|stored| stored.get().is_none_or(Attempt::began))
}

/// Returns the time from which a reboot that has lasted since then counts as stuck.
pub(crate) fn counts_as_stuck_at(policy: &Policy, since: Timestamp) -> Timestamp {
    after(since, i64::try_from(policy.stuck_seconds).unwrap_or(i64::MAX))
}

/// Reports whether a reboot that has lasted since then counts as stuck.
pub(crate) fn has_counted_as_stuck(policy: &Policy, since: Timestamp, now: Timestamp) -> bool {
    now >= counts_as_stuck_at(policy, since)
}

fn are_kept(policy: &Policy) -> bool {
    policy.breaker.is_some() || policy.canary.is_some()
}

/// Returns the transactions that remove the outcomes which are no longer needed: the oldest ones, or all of them if no
/// policy asks for outcomes.
pub fn upkeep(keys: &Keys, store: &StoreView) -> Vec<Change> {
    let kept = if are_kept(&store.policy()) { KEPT } else { 0 };
    if store.outcomes.len() <= kept {
        return Vec::new();
    }
    let mut by_age: Vec<(i64, u64)> = store.outcomes.iter().map(|(index, s)| (s.mod_revision, *index)).collect();
    by_age.sort_unstable();
    let outdated = &by_age[..by_age.len() - kept];
    let removal = |lot: &[(i64, u64)]| Change {
        compares: lot.iter().map(|(revision, index)| (keys.outcome(*index), *revision)).collect(),
        deletes: lot.iter().map(|(_, index)| keys.outcome(*index)).collect(),
        ..Change::default()
    };
    outdated.chunks(REMOVED_AT_ONCE).map(removal).collect()
}

/// Returns the readable outcomes that the breaker counts, oldest first: those since its last reset that it did not forgive.
pub fn since_reset(store: &StoreView) -> Vec<&Outcome> {
    let outcomes = in_order(store).into_iter();
    let Some(reset) = &store.breaker_reset else { return outcomes.map(|(.., outcome)| outcome).collect() };
    let forgiven: &[EntryId] = reset.get().map_or(&[], |reset| &reset.forgiven);
    outcomes
        .filter(|(revision, id, _)| *revision > reset.mod_revision && !forgiven.contains(id))
        .map(|(.., outcome)| outcome)
        .collect()
}

/// Returns the readable outcomes in the order in which they were written, with their revisions and entries.
pub(crate) fn in_order(store: &StoreView) -> Vec<(i64, EntryId, &Outcome)> {
    let readable = |(index, stored): (&u64, &'_ Stored<Outcome>)| (stored.mod_revision, EntryId::reboot(*index));
    let mut found: Vec<_> = store
        .outcomes
        .iter()
        .filter_map(|(index, stored)| {
            let (revision, id) = readable((index, stored));
            Some((revision, id, stored.get()?))
        })
        .collect();
    found.sort_unstable_by_key(|(revision, ..)| *revision);
    found
}

#[cfg(test)]
mod tests {
    use cketerm_model::{
        outcomes::{Breaker, Canary},
        stored::row::Row,
    };

    use super::*;

    fn now() -> Timestamp {
        "2026-11-27T12:00:00Z".parse().unwrap()
    }

    fn put(store: &mut StoreView, key: &str, value: &serde_json::Value, revision: i64) {
        store.put(&Keys::new("/cke/"), &Row::new(key, &value.to_string(), revision, revision));
    }

    /// One entry in this state since then, whose command was run.
    fn store(status: &str, since: &str) -> StoreView {
        let (keys, id, mut store) = (Keys::new("/cke/"), EntryId::reboot(3), StoreView::default());
        put(
            &mut store,
            &keys.policy(),
            &serde_json::json!({"breaker": {"failures": 1, "of": 1}, "stuck_seconds": 600}),
            1,
        );
        let entry =
            serde_json::json!({"index": "3", "node": "10.0.0.1", "status": status, "last_transition_time": since});
        put(&mut store, &keys.entry(id), &entry, 2);
        let attempt = serde_json::json!({"id": "reboots/3/1", "number": 1, "start": since, "argv": []});
        put(&mut store, &keys.attempt(id, 1), &attempt, 3);
        store
    }

    #[test]
    fn a_machine_ends_badly_if_its_entry_is_withdrawn_or_it_comes_back_late() {
        let early = store("rebooting", "2026-11-27T11:55:00Z");
        let late = store("rebooting", "2026-11-27T11:50:00Z");
        let id = EntryId::reboot(3);
        let bad = |store: &StoreView, end| of(store, id, end, now()).map(|outcome| outcome.bad);
        assert_eq!(bad(&early, EndKind::Booted), Some(None));
        assert_eq!(bad(&late, EndKind::Booted), Some(Some(BadEnd::Late)));
        assert_eq!(bad(&late, EndKind::Done), Some(Some(BadEnd::Late)));
        assert_eq!(bad(&early, EndKind::Dequeued), Some(Some(BadEnd::Withdrawn)));
        assert_eq!(bad(&store("cancelled", "2026-11-27T11:55:00Z"), EndKind::Cancelled), Some(Some(BadEnd::Withdrawn)));
    }

    #[test]
    fn an_entry_without_a_command_and_a_site_without_the_policies_have_no_outcome() {
        let (keys, id) = (Keys::new("/cke/"), EntryId::reboot(3));
        let mut drained = store("cancelled", "2026-11-27T11:55:00Z");
        drained.delete(&keys, keys.attempt(id, 1).as_bytes());
        assert_eq!(of(&drained, id, EndKind::Cancelled, now()), None);
        let mut off = store("rebooting", "2026-11-27T11:55:00Z");
        off.delete(&keys, keys.policy().as_bytes());
        assert_eq!(of(&off, id, EndKind::Booted, now()), None);
        put(&mut off, &keys.policy(), &serde_json::json!({"canary": {"first": 1}}), 9);
        assert!(of(&off, id, EndKind::Booted, now()).is_some());
    }

    #[test]
    fn the_oldest_outcomes_go_and_all_of_them_if_no_policy_asks_for_them() {
        let (keys, mut store) = (Keys::new("/cke/"), StoreView::default());
        let outcome = serde_json::json!({"address": "10.0.0.1", "at": now()});
        for revision in 0..KEPT + 150 {
            // the oldest ones have the highest indexes
            let index = (1000 - revision) as u64;
            put(&mut store, &keys.outcome(index), &outcome, i64::try_from(revision).unwrap() + 1);
        }
        let carried_out = |store: &mut StoreView| {
            let changes = upkeep(&keys, store);
            for key in changes.iter().flat_map(|change| &change.deletes) {
                store.delete(&keys, key.as_bytes());
            }
            changes.len()
        };
        let mut policy = Policy { canary: Some(Canary::read("first: 1").unwrap()), ..Policy::default() };
        put(&mut store, &keys.policy(), &serde_json::to_value(&policy).unwrap(), 9000);
        assert_eq!((carried_out(&mut store), store.outcomes.len()), (2, KEPT));
        assert!(!store.outcomes.contains_key(&1000) && store.outcomes.contains_key(&(1001 - KEPT as u64 - 150)));
        policy = Policy { breaker: Some(Breaker::read("{failures: 1, of: 1}").unwrap()), canary: None, ..policy };
        put(&mut store, &keys.policy(), &serde_json::to_value(&policy).unwrap(), 9001);
        assert_eq!(carried_out(&mut store), 0);
        put(&mut store, &keys.policy(), &serde_json::json!({}), 9002);
        assert_eq!((carried_out(&mut store), store.outcomes.len()), (3, 0));
    }
}

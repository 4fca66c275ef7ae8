//! Breaker after machines that ended badly (policy `breaker`; REB-60, REB-61).

use cketerm_model::{
    entry::{EntryId, Stored},
    fault,
    names::{Address, NodeName},
    outcomes::Breaker,
    reason::{MAX_NAMES, Reason},
    reboot::{RebootEntry, RebootStatus},
};
use jiff::Timestamp;

use super::Pass;
use crate::outcomes;

/// A reboot that the breaker looks at.
struct Looked<'a> {
    /// Time from which it counts.
    from: Timestamp,
    address: &'a Address,
    is_bad: bool,
}

impl Pass<'_> {
    /// Returns a reason while the breaker is open: at some time since its last reset, `failures` of `of` reboots in
    /// succession ended badly, or are stuck now. What ends later does not close it: it comes after them.
    pub(super) fn breaker_open(&self) -> Option<Reason> {
        let breaker = self.policy.breaker.as_ref()?;
        fault!(BreakerForgotten => return None);
        let looked = self.looked_at();
        // with 0 the breaker would be open for ever; `policy set` refuses it, but etcd may hold any value
        let of = usize::try_from(breaker.of.max(1)).unwrap_or(usize::MAX).min(looked.len());
        let failures = usize::try_from(breaker.failures.max(1)).unwrap_or(usize::MAX);
        let failed = |machines: &[Looked<'_>]| machines.iter().filter(|machine| machine.is_bad).count();
        if of == 0 {
            return None;
        }
        let bad = looked.windows(of).rev().find(|machines| failed(machines) >= failures)?;
        let mut names: Vec<NodeName> = Vec::new();
        for reboot in bad.iter().filter(|reboot| reboot.is_bad) {
            let name = NodeName::new(self.snap.machine(reboot.address));
            if names.len() < MAX_NAMES && !names.contains(&name) {
                names.push(name);
            }
        }
        let of = looked_in_all(breaker, bad.len());
        Some(Reason::BreakerOpen { count: failed(bad) as u64, of, names: names.into() })
    }

    /// Returns the reboots that count since the last reset, in the order in which they count: those that ended, those that
    /// are stuck, and those that were withdrawn and whose outcome is written next.
    fn looked_at(&self) -> Vec<Looked<'_>> {
        let store = &self.snap.store;
        let reset = store.breaker_reset.as_ref().and_then(Stored::get);
        let forgiven: &[EntryId] = reset.map_or(&[], |reset| &reset.forgiven);
        let ended = outcomes::since_reset(store).into_iter();
        let mut looked: Vec<Looked<'_>> = ended
            .map(|outcome| Looked {
                from: outcome.counts_from(),
                address: &outcome.address,
                is_bad: outcome.bad.is_some(),
            })
            .collect();
        let open = store.reboots.entries.iter().filter(|(index, _)| !forgiven.contains(&EntryId::reboot(**index)));
        let bad = open.filter_map(|(index, stored)| {
            let entry = stored.get()?;
            let from = self.bad_since(EntryId::reboot(*index), entry)?;
            Some(Looked { from, address: &entry.node, is_bad: true })
        });
        looked.extend(bad);
        // Those of one moment keep the order in which they were written.
        looked.sort_by_key(|reboot| reboot.from);
        looked
    }

    /// Returns the time from which an open entry counts as bad: its machine is stuck, or it was withdrawn after its command
    /// was run and is removed next. The slot of a withdrawn one is free already, and its outcome is not there yet.
    fn bad_since(&self, id: EntryId, entry: &RebootEntry) -> Option<Timestamp> {
        let is_member = || self.definition.is_none_or(|d| d.members.by_address(&d.cluster, &entry.node).is_some());
        let is_rebooting = entry.status == RebootStatus::Rebooting;
        if is_rebooting && is_member() {
            // By time alone, as in outcomes: a machine whose command failed may boot nevertheless, and an open breaker
            // would close by itself.
            let stuck = outcomes::counts_as_stuck_at(&self.policy, entry.last_transition_time?);
            return (stuck <= self.now.wall).then_some(stuck);
        }
        let is_withdrawn = entry.status == RebootStatus::Cancelled || !is_member();
        (is_withdrawn && outcomes::was_run(&self.snap.store, id)).then_some(self.now.wall)
    }
}

/// Returns the number of reboots for the message: as many as the policy names, or fewer if fewer have ended.
fn looked_in_all(breaker: &Breaker, seen: usize) -> u64 {
    breaker.of.min(seen as u64)
}

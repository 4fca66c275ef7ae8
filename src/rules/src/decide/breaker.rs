//! Breaker after machines that ended badly (policy `breaker`; REB-60, REB-61).

use cketerm_model::{
    entry::{EntryId, QueueKind, Stored},
    fault,
    names::{Address, NodeName},
    outcomes::Breaker,
    reason::{MAX_NAMES, Reason},
    reboot::RebootStatus,
};

use super::Pass;
use crate::outcomes;

/// A machine that the breaker looks at.
struct Looked<'a> {
    address: &'a Address,
    is_bad: bool,
}

impl Pass<'_> {
    /// Returns a reason while the breaker is open: at some time since its last reset, `failures` of `of` machines in
    /// succession ended badly, or are stuck now. What ends later does not close it, because nothing new starts.
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
        let names = bad.iter().filter(|machine| machine.is_bad).take(MAX_NAMES);
        Some(Reason::BreakerOpen {
            count: failed(bad) as u64,
            of: looked_in_all(breaker, bad.len()),
            names: names.map(|machine| NodeName::new(self.snap.machine(machine.address))).collect(),
        })
    }

    /// Returns the machines that ended since the last reset, in order, and then those that are stuck.
    fn looked_at(&self) -> Vec<Looked<'_>> {
        let store = &self.snap.store;
        let reset = store.breaker_reset.as_ref();
        let reset_revision = reset.map_or(0, |stored| stored.mod_revision);
        let forgiven: &[EntryId] = reset.and_then(Stored::get).map_or(&[], |reset| &reset.forgiven);
        let ended = outcomes::in_order(store).into_iter();
        let mut looked: Vec<Looked<'_>> = ended
            .filter(|(revision, id, _)| *revision > reset_revision && !forgiven.contains(id))
            .map(|(.., outcome)| Looked { address: &outcome.address, is_bad: outcome.bad.is_some() })
            .collect();
        let in_work = self.claims.workers.iter().chain(&self.claims.api_servers);
        // By time alone, as in outcomes: a machine whose command failed may boot nevertheless, and an open breaker would
        // close by itself.
        let is_stuck = |id: &EntryId| {
            let entry = store.reboots.entries.get(&id.index).filter(|_| id.queue == QueueKind::Reboot)?.get()?;
            let since = entry.last_transition_time.filter(|_| entry.status == RebootStatus::Rebooting)?;
            Some(outcomes::has_counted_as_stuck(&self.policy, since, self.now.wall))
        };
        let stuck = in_work.filter(|(_, id)| !forgiven.contains(id) && is_stuck(id) == Some(true));
        looked.extend(stuck.map(|(address, _)| Looked { address, is_bad: true }));
        looked
    }
}

/// Returns the number of machines for the message: as many as the policy names, or fewer if fewer have ended.
fn looked_in_all(breaker: &Breaker, seen: usize) -> u64 {
    breaker.of.min(seen as u64)
}

//! Canaries: the first machines of a batch are rebooted alone, and must stay back for some time (policy `canary`; REB-62).

use std::collections::BTreeMap;

use cketerm_model::{
    batch::{Batch, BatchId},
    entry::EntryId,
    fault,
    outcomes::{BadEnd, Canary, Outcome},
    policy::ApiServerOrder,
    reason::Reason,
    time::after,
};

use super::{Pass, entry_context::EntryContext};
use crate::outcomes;

/// State of a batch's canaries.
enum Canaries {
    /// They are back, so that any of its entries may start.
    Back,
    /// So many more of its entries may start, as canaries.
    Free(u64, Reason),
    /// None of its entries may start.
    Awaited(Reason),
}

/// State of the canaries of the batches of this pass.
#[derive(Default)]
struct CanarySlots {
    of: BTreeMap<BatchId, Canaries>,
}

impl CanarySlots {
    /// Takes a canary's slot for an entry of this batch, or returns the reason why it waits.
    fn take(&mut self, batch: BatchId) -> Option<Reason> {
        match self.of.get_mut(&batch)? {
            Canaries::Back => None,
            Canaries::Awaited(reason) | Canaries::Free(0, reason) => Some(reason.clone()),
            Canaries::Free(free, _) => {
                *free -= 1;
                None
            }
        }
    }
}

impl<'a> Pass<'a> {
    /// Removes the candidates that wait for the canaries of their batch. They hold up nobody.
    pub(super) fn keep_canaries(
        &mut self,
        workers: &mut Vec<EntryContext<'a>>,
        api_servers: &mut Vec<EntryContext<'a>>,
    ) {
        if self.policy.canary.is_none() {
            return;
        }
        let mut slots = CanarySlots::default();
        let [first, last] = match self.policy.api_server_order {
            ApiServerOrder::Last => [workers, api_servers],
            ApiServerOrder::First => [api_servers, workers],
        };
        for candidates in [first, last] {
            candidates.retain(|&ctx| {
                let pending = self.canary_pending(ctx, &mut slots);
                let may = pending.is_none();
                self.reasons.extend(pending.map(|reason| (ctx.id, reason)));
                may
            });
        }
    }

    /// Returns the reason why an entry waits for the canaries of its batch. Asked in the order in which entries start.
    fn canary_pending(&mut self, ctx: EntryContext<'a>, slots: &mut CanarySlots) -> Option<Reason> {
        let policy = std::sync::Arc::clone(&self.policy);
        let canary = policy.canary.as_ref()?;
        fault!(CanariesForgotten => return None);
        let id = self.snap.store.batch_of(ctx.id)?;
        let batch = self.snap.store.batch(id)?;
        slots.of.entry(id).or_insert_with(|| self.canaries_of(canary, id, batch));
        slots.take(id)
    }

    fn canaries_of(&mut self, canary: &Canary, id: BatchId, batch: &Batch) -> Canaries {
        let store = &self.snap.store;
        let first = canary.first.max(1);
        let of_batch = store.batch_ends.range((id, EntryId::reboot(0))..).take_while(|((batch, _), _)| *batch == id);
        let ended = of_batch.filter(|(_, end)| end.get().is_some_and(|end| end.good())).count() as u64;
        let all = outcomes::in_order(store);
        let is_late = |outcome: &Outcome| outcome.batch == Some(id) && outcome.bad == Some(BadEnd::Late);
        let late = all.iter().filter(|(.., outcome)| is_late(outcome)).count() as u64;
        let booted = batch.ends.done.saturating_add(ended).saturating_sub(late);
        let in_claims = self.claims.workers.values().chain(self.claims.api_servers.values());
        let in_work = in_claims.filter(|entry| store.batch_of(**entry) == Some(id)).count() as u64;
        let pending = |until, fault| Reason::CanaryPending { batch: id, booted, first, until, fault };
        if booted < first {
            return Canaries::Free(first.saturating_sub(booted.saturating_add(in_work)), pending(None, None));
        }
        // Others have started, so the canaries were back.
        if booted.saturating_add(in_work) > first {
            return Canaries::Back;
        }
        let good = |outcome: &&Outcome| outcome.batch == Some(id) && outcome.bad.is_none();
        let some = usize::try_from(first).unwrap_or(usize::MAX);
        let canaries: Vec<&Outcome> = all.iter().map(|(.., outcome)| *outcome).filter(good).take(some).collect();
        // An outcome that is no longer kept is older than the oldest one.
        let last =
            if (canaries.len() as u64) < first { all.first().map(|(.., o)| *o) } else { canaries.last().copied() };
        let until = last.map(|outcome| after(outcome.at, i64::try_from(canary.soak_seconds).unwrap_or(i64::MAX)));
        if let Some(until) = until.filter(|until| *until > self.now.wall) {
            self.wake_at_wall(until);
            return Canaries::Awaited(pending(Some(until), self.fault_of(&canaries)));
        }
        match self.fault_of(&canaries) {
            Some(fault) => Canaries::Awaited(pending(until, Some(fault))),
            None => Canaries::Back,
        }
    }

    /// Returns the first fault of a machine that should be back.
    fn fault_of(&self, canaries: &[&Outcome]) -> Option<String> {
        if !self.kube_synced {
            return None;
        }
        canaries.iter().find_map(|outcome| match self.snap.node_of(&outcome.address) {
            Some(node) if node.ready => None,
            Some(node) => Some(format!("{} is not Ready", node.name)),
            None => Some(format!("the Node of {} is gone", outcome.address)),
        })
    }
}

//! Evictions that each budget still allows (REB-67). A drain sends no eviction that its budget would refuse: it waits
//! for the budget's watch, and the API server gets no storm of requests that it answers with 429.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use cketerm_model::{
    boot_time::Seconds,
    drain::{Answer, Verdict},
    entry::EntryId,
    fault,
    kube::{BudgetRow, KubeView, PodRow},
    reason::{PodHold, Reason, budget_cause::PodTrouble},
};

use super::{Effect, Guard, Pass, entry_context::EntryContext};
use crate::{
    budget_cause::circle,
    snapshot::{DrainWork, Snapshot},
};

/// Time without an answer to an eviction after which a drain asks for the cause behind the budget that holds it.
const EXPLAIN_AFTER: Seconds = Seconds::new(5.0);
/// Time after which a cause is looked up again if its budget has changed, and if it has not.
const EXPLAIN_AGAIN: [Seconds; 2] = [Seconds::new(10.0), Seconds::new(60.0)];

/// Evictions under way by budget (`namespace/name`).
#[derive(Debug, Default)]
pub(super) struct BudgetUse(BTreeMap<String, i32>);

impl BudgetUse {
    /// Counts the evictions whose effect on the budgets the live copy does not show yet: requests in flight, and
    /// accepted ones of pods that the copy shows as running, or whose budget it shows as it was before.
    pub(super) fn of(snap: &Snapshot) -> Self {
        let mut uses = Self::default();
        for flight in snap.in_flight.values() {
            for (budget, n) in &flight.evictions {
                uses.add(budget, i32::try_from(*n).unwrap_or(i32::MAX));
            }
        }
        let answers = snap.work.values().flat_map(|work| &work.drain.answers);
        let accepted =
            |(_, answer): &(&String, &Answer)| answer.verdict == Verdict::Accepted && !answer.budgets.is_empty();
        let mut accepted = answers.filter(accepted).peekable();
        let running = accepted.peek().map(|_| running_pods(&snap.kube)).unwrap_or_default();
        for (uid, answer) in accepted {
            for budget in unseen(&snap.kube, running.contains(uid.as_str()), answer) {
                uses.add(budget, 1);
            }
        }
        uses
    }

    fn add(&mut self, budget: &str, n: i32) {
        let count = self.0.entry(budget.to_owned()).or_default();
        *count = count.saturating_add(n);
    }

    /// Returns the number of evictions under way of this budget.
    pub(super) fn of_budget(&self, budget: &BudgetRow) -> i32 {
        self.0.get(&budget.full_name()).copied().unwrap_or(0)
    }

    /// Takes one eviction of the budget that counts it.
    pub(super) fn take(&mut self, pod: &PodRow, budgets: &[Arc<BudgetRow>]) {
        if let Some(budget) = counting(pod, budgets) {
            self.add(&budget.full_name(), 1);
        }
    }

    /// Returns the budget by which the API server would refuse to evict this pod now. It evicts pending pods, and some
    /// that are not Ready, whatever their budget allows, and no pod with several budgets.
    pub(super) fn refusing<'b, B: AsRef<BudgetRow>>(&self, pod: &PodRow, budgets: &'b [B]) -> Option<&'b B> {
        fault!(PacingIgnored => return None);
        let budget = counting(pod, budgets)?;
        let row = budget.as_ref();
        (row.allowed.saturating_sub(self.of_budget(row)) <= 0).then_some(budget)
    }
}

/// Returns the budget that counts the eviction of this pod. The API server evicts no pod with several budgets.
pub(super) fn counting<'b, B: AsRef<BudgetRow>>(pod: &PodRow, budgets: &'b [B]) -> Option<&'b B> {
    match budgets {
        [budget] if budget.as_ref().judges(pod) => Some(budget),
        [] | [_] | [_, _, ..] => None,
    }
}

/// Returns the UIDs of the watched pods that do not terminate.
fn running_pods(kube: &KubeView) -> HashSet<&str> {
    let pods = kube.pods.values().flat_map(|on| on.pods.iter());
    pods.filter(|(_, pod)| pod.terminating_since.is_none()).map(|(uid, _)| uid.as_str()).collect()
}

/// Returns the budgets of an accepted eviction whose effect the live copy does not show yet. `runs`: it shows the pod, and
/// not as terminating.
fn unseen<'a>(kube: &KubeView, runs: bool, answer: &'a Answer) -> Vec<&'a str> {
    let as_before = |name: &str, version: &str| {
        let key = name.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        key.and_then(|key| kube.budgets.get(&key)).is_some_and(|row| row.resource_version == version)
    };
    let budgets = answer.budgets.iter().filter(|(name, version)| runs || as_before(name, version));
    budgets.map(|(name, _)| name.as_str()).collect()
}

/// Returns the budget by which the API server would refuse to evict this pod now, evictions under way aside.
pub(crate) fn full_budget<'k>(kube: &'k KubeView, pod: &'k PodRow) -> Option<&'k BudgetRow> {
    let budgets: Vec<&Arc<BudgetRow>> = kube.budgets_of(pod).collect();
    BudgetUse::default().refusing(pod, &budgets).map(|budget| &***budget)
}

/// Returns the hold of a pod whose budget allows no eviction now, with the cause as far as this drain knows it.
pub(crate) fn budget_hold(budget: &BudgetRow, drain: Option<&DrainWork>) -> PodHold {
    let name = budget.full_name();
    let cause = drain.and_then(|drain| drain.causes.get(&name)).map(|known| Box::new(known.cause.clone()));
    PodHold::Budget { healthy: budget.healthy, needed: budget.needed, cause, budget: name }
}

/// Returns a hold with the present numbers of its budget and the newest cause. Other holds stay as they are.
pub(super) fn present(held: &PodHold, budget: Option<&Arc<BudgetRow>>, drain: &DrainWork) -> PodHold {
    let PodHold::Budget { budget: name, cause: told, .. } = held else { return held.clone() };
    let Some(row) = budget.filter(|row| row.full_name() == *name) else { return held.clone() };
    let mut now = budget_hold(row, Some(drain));
    if let PodHold::Budget { cause, .. } = &mut now
        && cause.is_none()
    {
        cause.clone_from(told);
    }
    now
}

impl<'a> Pass<'a> {
    /// Adds to the reason of a drain the others with which it forms a circle: each waits for pods that wait for the
    /// Node of another one.
    pub(super) fn with_deadlock(&self, id: EntryId, mut reason: Reason) -> Reason {
        if let Reason::BlockedByPdb { cause: Some(cause), .. } = &mut reason {
            cause.deadlock = circle(id, |of| self.awaited_entries(of));
        }
        reason
    }

    /// Returns the entries for whose Nodes the pods of the budgets wait that hold this entry's drain.
    fn awaited_entries(&self, of: EntryId) -> Vec<EntryId> {
        let causes = self.snap.work.get(&of).into_iter().flat_map(|work| work.drain.causes.values());
        let troubles = causes.flat_map(|known| &known.cause.unhealthy).map(|pod| &pod.why);
        let awaited = troubles.flat_map(|why| match why {
            PodTrouble::Unschedulable { waits_for, .. } => waits_for.as_slice(),
            PodTrouble::Waiting { .. }
            | PodTrouble::NodeNotReady
            | PodTrouble::NodeGone
            | PodTrouble::Terminating
            | PodTrouble::Starting
            | PodTrouble::NotReady => &[],
        });
        awaited.filter_map(|node| node.entry).collect()
    }

    /// Looks up the cause behind a budget that holds a drain, once evictions have stopped for a while.
    pub(super) fn explain(&mut self, ctx: EntryContext<'a>, budget: &Arc<BudgetRow>, drain: &DrainWork) {
        let answered = drain.answers.values().map(|answer| answer.at).max();
        let due = match drain.causes.get(&budget.full_name()) {
            Some(known) => {
                let [changed, same] = EXPLAIN_AGAIN;
                known.at + if known.version == budget.resource_version { same } else { changed }
            }
            None => answered.map_or(self.monotonic_now(), |at| at + EXPLAIN_AFTER),
        };
        if self.monotonic_now() < due {
            self.wake_at(due);
            return;
        }
        let guard = Guard::of_entry(ctx.id, ctx.mod_revision);
        self.plan(ctx.machine, Some(ctx.id), guard, Effect::Explain { budgets: vec![Arc::clone(budget)] });
    }
}

//! Removal of the pods of one node: preview, eviction of all pods together, retries, wait until the pods are gone
//! (REB-24 to REB-33; I15, I18, I20–I22).

use std::{collections::BTreeSet, sync::Arc};

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    cluster::Eviction,
    drain::Verdict,
    fault,
    kube::{BudgetRow, NodeRow, PodRow},
    reason::{PodHold, Reason},
    time::seconds_between,
};

use super::{
    Effect, Pass,
    budget_room::{self, BudgetUse},
    drain::Waits,
    entry_context::EntryContext,
    pods::{Leaving, pod_hold_reason},
    preview::Budgeted,
};
use crate::snapshot::{DrainWork, Work};

/// Time after the end of its grace period at which a terminating pod counts as stuck (REB-32, I22).
const TERMINATING_STUCK_AFTER: Seconds = Seconds::new(60.0);
/// Time before a request is repeated: after a replaced pod, and after the first undecided answer.
const RETRY_DELAY: Seconds = Seconds::new(1.0);
/// Time between evictions that a webhook defers without `Retry-After`, and longest backoff of undecided requests
/// (REB-30, REB-31).
const DEFERRED_RETRY_DELAY: Seconds = Seconds::new(10.0);

#[derive(Clone, Copy, PartialEq)]
enum Removal {
    Delete,
    Evict,
    EvictProtected,
}

/// Next round of evictions and deletions, and the pods to wait for.
#[derive(Default)]
struct RemovalPlan {
    evict: Vec<Budgeted>,
    delete: Vec<Arc<PodRow>>,
    held: Option<Reason>,
    failed: Option<Reason>,
    wake: Option<BootTime>,
    /// Evictions under way by budget, these included.
    budget_use: BudgetUse,
    /// Protected pods whose budget allows no eviction now, with that budget.
    full: Vec<(Budgeted, Arc<BudgetRow>)>,
}

impl<'a> Pass<'a> {
    /// Previews, then evicts all pods together, then waits until they are gone.
    pub(super) fn remove_pods(
        &mut self,
        ctx: EntryContext<'a>,
        node: &NodeRow,
        work: &Work,
        rules: Eviction<'_>,
        leaving: &Leaving<'a>,
    ) -> Waits {
        let drain = &work.drain;
        // A drain that another leader began counts as one with an accepted eviction (REB-28).
        let removal_began = drain.taken_over || drain.accepted;
        // A protected running Job is known without a request. The cordon keeps other pods away from the node. Unless
        // pods have left already, the drain backs off after the grace for Jobs, and the node is uncordoned (REB-25).
        if let Some((pod, job)) = leaving.jobs.first() {
            let blocked = Reason::BlockedByJob { pod: pod.full_name(), job: job.clone() };
            if removal_began {
                return Waits::For(blocked);
            }
            let left = self.job_grace_left(ctx);
            if left <= Seconds::ZERO {
                return Waits::BackOff(blocked);
            }
            self.wake_at(self.monotonic_now() + left + Seconds::new(0.001));
            return Waits::For(blocked);
        }
        let interval = Seconds::new(i32::try_from(rules.interval).unwrap_or(i32::MAX).into());
        if let (false, Some((at, cause))) = (removal_began, &drain.refused) {
            let unasked = self.unasked_tries(drain, *at, interval, rules.tries);
            if drain.refusals.saturating_add(unasked) >= rules.tries {
                return Waits::BackOff(cause.clone());
            }
            let next = *at + interval * f64::from(unasked.saturating_add(1));
            if self.monotonic_now() < next {
                self.wake_at(next);
                return Waits::For(cause.clone());
            }
        }
        if !removal_began
            && !drain.previewed
            && let Some(waits) = self.preview(ctx, node, drain, leaving)
        {
            return waits;
        }
        let budget_use = self.budget_use.take().unwrap_or_else(|| BudgetUse::of(self.snap));
        let mut next = RemovalPlan { budget_use, ..RemovalPlan::default() };
        for &pod in &leaving.delete {
            self.plan_removal(pod, Removal::Delete, drain, &mut next);
        }
        for &(pod, protected) in &leaving.evict {
            let removal = if protected { Removal::EvictProtected } else { Removal::Evict };
            self.plan_removal(pod, removal, drain, &mut next);
        }
        // The first round asks the server about one pod, so that a refused drain backs off (REB-28).
        let asks = |verdict: &Verdict| matches!(verdict, Verdict::Held { .. } | Verdict::Undecided { .. });
        let is_first = !removal_began && !drain.answers.values().any(|answer| asks(&answer.verdict));
        if next.evict.is_empty()
            && next.delete.is_empty()
            && is_first
            && let Some((first, _)) = next.full.first()
        {
            next.evict.push(first.clone());
        }
        self.budget_use = Some(std::mem::take(&mut next.budget_use));
        if let Some(failed) = next.failed {
            return Waits::BackOff(failed);
        }
        if let Some(at) = next.wake {
            self.wake_at(at);
        }
        if !next.evict.is_empty() || !next.delete.is_empty() {
            let effect = Effect::Evict { evict: next.evict, delete: next.delete, unprotected: unprotected(leaving) };
            let guard = self.start_guard(ctx);
            self.plan(&node.name, Some(ctx.id), guard, effect);
        } else if let Some((_, budget)) = next.full.first() {
            self.explain(ctx, budget, drain);
        }
        let reason = self.remaining_reason(node, leaving, next.held);
        Waits::For(self.with_deadlock(ctx.id, reason))
    }

    /// Returns the number of tries since the last refusal whose answer is known without a request: the budget that
    /// refused is still the same (REB-28).
    fn unasked_tries(&self, drain: &DrainWork, at: BootTime, interval: Seconds, tries: u32) -> u32 {
        let Some((name, version)) = &drain.refused_by else { return 0 };
        let is_same = self.budget_row(name).is_some_and(|row| row.resource_version == *version && row.allowed <= 0);
        let due = |n: &u32| self.monotonic_now() >= at + interval * f64::from(*n);
        if is_same { u32::try_from((1..=tries).take_while(due).count()).unwrap_or(tries) } else { 0 }
    }

    /// Returns the time until a drain that has removed no pod yet backs off because of a protected running Job (REB-25).
    fn job_grace_left(&self, ctx: EntryContext<'_>) -> Seconds {
        let since = ctx.since.unwrap_or(self.now.wall);
        let grace = i32::try_from(self.policy.job_grace_seconds).unwrap_or(i32::MAX);
        Seconds::new(grace.into()) - seconds_between(since, self.now.wall)
    }

    /// Sends a dry run for each pod that will be evicted and has not passed yet. Returns `None` if no dry run is left
    /// (I15).
    fn preview(
        &mut self,
        ctx: EntryContext<'a>,
        node: &NodeRow,
        drain: &DrainWork,
        leaving: &Leaving<'a>,
    ) -> Option<Waits> {
        let pods: Vec<Budgeted> = leaving
            .evict
            .iter()
            .filter(|(pod, _)| !drain.passed.contains(&pod.uid))
            .map(|(pod, _)| (Arc::clone(pod), self.budgets(pod)))
            .collect();
        if pods.is_empty() {
            return None;
        }
        let reason = (drain.undecided.as_ref().map(|u| u.reason.clone()))
            .or(drain.refused.as_ref().map(|(_, cause)| cause.clone()))
            .unwrap_or_else(|| Reason::Working { phase: "previews".to_owned() });
        if let Some(undecided) = &drain.undecided {
            let at = undecided.at + retry_delay(undecided.times, undecided.retry_after);
            if self.monotonic_now() < at {
                self.wake_at(at);
                return Some(Waits::For(reason));
            }
        }
        let guard = self.start_guard(ctx);
        let effect = Effect::Preview { pods, unprotected: unprotected(leaving) };
        self.plan(&node.name, Some(ctx.id), guard, effect);
        Some(Waits::For(reason))
    }

    fn budgets(&self, pod: &PodRow) -> Vec<Arc<BudgetRow>> {
        self.snap.kube.budgets_of(pod).cloned().collect()
    }

    /// Sorts one pod: sends a request for it now, or records the reason that holds it.
    fn plan_removal(&self, pod: &Arc<PodRow>, removal: Removal, drain: &DrainWork, next: &mut RemovalPlan) {
        let send = |next: &mut RemovalPlan| {
            if removal == Removal::Delete {
                return next.delete.push(Arc::clone(pod));
            }
            let budgets = self.budgets(pod);
            // A pod of an unprotected namespace is deleted if its budget refuses, so it does not wait (I18).
            let full = next.budget_use.refusing(pod, &budgets).filter(|_| removal == Removal::EvictProtected).cloned();
            if let Some(full) = full {
                next.held.get_or_insert_with(|| pod_hold_reason(pod, &budget_room::budget_hold(&full, Some(drain))));
                next.full.push(((Arc::clone(pod), budgets), full));
                return;
            }
            next.budget_use.take(pod, &budgets);
            next.evict.push((Arc::clone(pod), budgets));
        };
        let Some(answer) = drain.answers.get(&pod.uid) else {
            send(next);
            return;
        };
        // The server said when to ask again, or has not decided: the budget's row says nothing about that.
        let ask = |next: &mut RemovalPlan| match removal {
            Removal::Delete => next.delete.push(Arc::clone(pod)),
            Removal::Evict | Removal::EvictProtected => next.evict.push((Arc::clone(pod), self.budgets(pod))),
        };
        let wait_until = |next: &mut RemovalPlan, at: BootTime| {
            if self.monotonic_now() >= at {
                ask(next);
            } else {
                next.wake = Some(next.wake.map_or(at, |w| w.min(at)));
            }
        };
        let (hold, retry_after) = match &answer.verdict {
            // The watch will show it.
            Verdict::Accepted | Verdict::Gone => return,
            Verdict::Failed(text) => {
                next.failed = Some(Reason::EvictionRefused { pod: pod.full_name(), answer: text.clone() });
                return;
            }
            Verdict::Undecided { answer: text, retry_after, .. } => {
                let failing = Reason::EvictionFailing { pod: pod.full_name(), answer: text.clone() };
                fault!(FailureFatal => return next.failed = Some(failing));
                next.held.get_or_insert(failing);
                wait_until(next, answer.at + retry_delay(answer.undecided, *retry_after));
                return;
            }
            Verdict::Held { hold, retry_after } => (hold, *retry_after),
        };
        let hold = &budget_room::present(hold, self.budgets(pod).first(), drain);
        next.held.get_or_insert_with(|| pod_hold_reason(pod, hold));
        fault!(DeleteProtected if matches!(hold, PodHold::Budget { .. } | PodHold::BudgetLag { .. }) => {
            return next.delete.push(Arc::clone(pod));
        });
        fault!(DeferredDeleted if matches!((hold, removal), (PodHold::Deferred { .. }, Removal::Evict)) => {
            return next.delete.push(Arc::clone(pod));
        });
        match hold {
            // One or more budgets refuse, or a budget's controller lags behind (429). In an unprotected namespace the
            // pod is deleted (I18).
            PodHold::Budget { .. } | PodHold::BudgetLag { .. } | PodHold::ManyBudgets { .. }
                if removal == Removal::Evict =>
            {
                next.delete.push(Arc::clone(pod));
            }
            // `Retry-After` is a wait and not a try. Without it the drain waits for a change of the budget (REB-29).
            PodHold::Budget { .. } | PodHold::BudgetLag { .. } => {
                let budgets = self.budgets(pod);
                // a budget that was deleted, or selects the pod no more, has changed too
                let changed = budgets.len() != answer.budgets.len()
                    || budgets.iter().any(|b| answer.budgets.get(&b.full_name()) != Some(&b.resource_version));
                match retry_after {
                    _ if changed => send(next),
                    Some(_) => wait_until(next, answer.at + seconds(retry_after, DEFERRED_RETRY_DELAY)),
                    None if answer.budgets.is_empty() => wait_until(next, answer.at + DEFERRED_RETRY_DELAY),
                    None => next
                        .full
                        .extend(budgets.first().map(|full| ((Arc::clone(pod), budgets.clone()), Arc::clone(full)))),
                }
            }
            // The webhook moves the pod itself, or allows the eviction later. The pod is never deleted for that
            // (REB-30).
            PodHold::Deferred { .. } => wait_until(next, answer.at + seconds(retry_after, DEFERRED_RETRY_DELAY)),
            // No later try of the eviction can succeed ("any other error" in CKE's rules).
            PodHold::ManyBudgets { .. } | PodHold::Denied { .. } => next.failed = Some(pod_hold_reason(pod, hold)),
            PodHold::Replaced => wait_until(next, answer.at + RETRY_DELAY),
            // A terminating namespace deletes its pods itself. The other holds are no answers of the API server.
            PodHold::NamespaceTerminating
            | PodHold::Job { .. }
            | PodHold::Failing { .. }
            | PodHold::Terminating { .. }
            | PodHold::Leaving
            | PodHold::Refused { .. } => {}
        }
    }

    fn remaining_reason(&mut self, node: &NodeRow, leaving: &Leaving<'a>, held: Option<Reason>) -> Reason {
        for pod in &leaving.terminating {
            let requested = pod.terminating_since;
            let ends = pod.grace_ends.or(requested);
            fault!(GraceForgotten => ends = requested);
            let Some(since) = ends else { continue };
            let over = seconds_between(since, self.now.wall);
            if over >= TERMINATING_STUCK_AFTER {
                return Reason::TerminatingStuck { pod: pod.full_name(), since, node_ready: node.ready };
            }
            self.wake_at(self.monotonic_now() + TERMINATING_STUCK_AFTER - over + Seconds::new(0.01));
        }
        fault!(RefusalUnnamed => return Reason::Working { phase: "drains".to_owned() });
        held.unwrap_or_else(|| {
            let first =
                (leaving.terminating.first()).or(leaving.evict.first().map(|(pod, _)| pod)).or(leaving.delete.first());
            Reason::PodsLeaving {
                left: u32::try_from(leaving.len()).unwrap_or(u32::MAX),
                first: first.map_or_else(String::new, |pod| pod.full_name()),
            }
        })
    }
}

/// Returns the UIDs of the pods to evict whose namespace is not protected.
fn unprotected(leaving: &Leaving<'_>) -> BTreeSet<String> {
    leaving.evict.iter().filter(|(_, protected)| !protected).map(|(pod, _)| pod.uid.clone()).collect()
}

/// Returns the time before a request is sent again, after this number of undecided answers in a row (REB-31). It
/// is 1, 2, 4, 8, 10 s, or the server's `Retry-After`.
fn retry_delay(undecided: u32, retry_after: Option<u64>) -> Seconds {
    let doubled = RETRY_DELAY * f64::from(1_u32 << undecided.saturating_sub(1).min(8));
    seconds(retry_after, doubled.min(DEFERRED_RETRY_DELAY))
}

fn seconds(retry_after: Option<u64>, otherwise: Seconds) -> Seconds {
    retry_after.map_or(otherwise, Seconds::from)
}

//! Hooks of the site around a drain (policy `hooks`; REB-56, I62 to I64).
//!
//! A record in etcd begins with the drain and ends after the hooks that follow the uncordon ([`HookRuns`]). It holds the
//! last run of each hook, so every leader knows which hooks have succeeded for this drain. A drain without a record has
//! no hooks: another program began it, or the policy had no hook for its machine then.

use std::sync::Arc;

use cketerm_model::{
    cluster::Member,
    entry::{EntryId, Stored},
    fault,
    hook::Hook,
    hook_runs::{HookEnd, HookOutcome, HookPoint, HookRun, HookRuns},
    kube::{NodeRow, Owner},
    labels::Labels,
    names::Address,
    reason::{HookRetry, Reason},
    time::after,
};

use super::{
    Effect, Guard, Pass,
    attempts::{Until, may_run_for},
    drain::{self, Waits},
    entry_context::EntryContext,
};

/// Seconds before a withheld hook is tried again.
const WITHHELD_RETRY_SECONDS: i64 = 5;
/// Seconds before a hook of which no try is left is tried again, if nothing else begins its tries anew.
const EXHAUSTED_RETRY_SECONDS: i64 = 300;

/// State of the hooks of one moment.
#[derive(Debug)]
pub(super) enum HookState {
    /// All have succeeded, or there are none.
    Done,
    /// One runs, is planned, or is tried again. Holds the reason that is shown.
    Pending(Reason),
    /// One has failed, and no try is left.
    Failed(Reason),
}

/// Hook that ran last or runs next, with the record of its entry.
struct Next<'p> {
    id: EntryId,
    stored: &'p Stored<HookRuns>,
    record: &'p HookRuns,
    hook: &'p Hook,
}

impl<'a> Pass<'a> {
    /// Returns the record with which a drain begins, if hooks are for its machine. Without a Node there is no cordon,
    /// so no hook.
    pub(super) fn hooks_at_start(&self, ctx: EntryContext<'a>) -> Option<HookRuns> {
        if self.policy.hooks.is_empty() || self.snap.store.hooks.contains_key(&ctx.id) {
            return None;
        }
        let node = self.node_of(ctx)?;
        let labels = labels(ctx.member, Some(node));
        let any = self.policy.hooks.iter().any(|hook| hook.is_for(ctx.queue(), &labels));
        let (address, node) = (ctx.address.clone(), node.name.clone());
        any.then(|| HookRuns { address, node, since: self.now.wall, runs: Vec::new() })
    }

    /// Runs the hooks of a drain. A hook of which no try is left backs this drain off; no other entry waits for it.
    pub(super) fn hooks_of_drain(&mut self, ctx: EntryContext<'a>, at: HookPoint) -> Result<(), Waits> {
        fault!(HookSkipped => return Ok(()));
        let guard = self.start_guard(ctx);
        match self.run_hooks(ctx.id, ctx.machine, ctx.member, at, &guard) {
            HookState::Done => Ok(()),
            HookState::Pending(reason) => Err(Waits::For(reason)),
            HookState::Failed(reason) => Err(Waits::BackOff(reason)),
        }
    }

    /// Returns the reason why a reboot whose machine has booted does not end yet: a hook before the uncordon has not
    /// succeeded. The entry keeps its slot meanwhile.
    pub(super) fn hooks_before_end(&mut self, ctx: EntryContext<'a>, node: Option<&Arc<NodeRow>>) -> Option<Reason> {
        let owner = node?.owner().filter(|owner| owner.entry == ctx.id)?;
        if !uncordons(node?) || !owner.schedulable_before {
            return None;
        }
        let guard = Guard::of_entry(ctx.id, ctx.mod_revision);
        self.hooks_before_uncordon(ctx.id, ctx.machine, ctx.member, &guard)
    }

    /// Returns the reason why a Node whose entry is no longer in progress stays cordoned: a hook before the uncordon
    /// has not succeeded. An operator's order to uncordon does not wait for hooks.
    pub(super) fn hooks_before_release(&mut self, node: &NodeRow, owner: Option<&Owner>) -> Option<Reason> {
        let id = owner?.entry;
        if self.snap.store.hooks.is_empty() || !uncordons(node) || self.has_uncordon_order(id) {
            return None;
        }
        let member = self.definition.and_then(|d| d.members.by_name(&d.cluster, &node.name));
        self.hooks_before_uncordon(id, &node.name, member, &Guard::default())
    }

    fn hooks_before_uncordon(
        &mut self,
        id: EntryId,
        machine: &str,
        member: Option<Member<'a>>,
        guard: &Guard,
    ) -> Option<Reason> {
        fault!(UncordonHookSkipped => return None);
        match self.run_hooks(id, machine, member, HookPoint::BeforeUncordon, guard) {
            HookState::Done => None,
            HookState::Pending(reason) | HookState::Failed(reason) => Some(reason),
        }
    }

    /// Runs the hooks after the uncordon, and then deletes the record. One that fails is not waited for: nothing
    /// depends on it.
    pub(super) fn end_hooks(&mut self) {
        let snap = self.snap;
        if snap.store.hooks.is_empty() || self.definition.is_none() || !self.leading() || self.stale().is_some() {
            return;
        }
        for (&id, stored) in &snap.store.hooks {
            let Some(record) = stored.get() else { continue };
            let node = snap.kube.by_name.get(&record.node);
            if self.in_work(id) || node.is_some_and(|n| n.owner().is_some_and(|o| o.entry == id)) {
                continue;
            }
            let machine = snap.machine(&record.address);
            let member = self.definition.and_then(|d| d.members.by_address(&d.cluster, &record.address));
            match self.run_hooks(id, &machine, member, HookPoint::AfterUncordon, &Guard::default()) {
                HookState::Pending(_) => {}
                HookState::Done | HookState::Failed(_) => {
                    let effect = Effect::EndHooks { entry: id, record: stored.clone() };
                    self.plan(&machine, Some(id), Guard::default(), effect);
                }
            }
        }
    }

    /// Returns the reason why no drain of this machine starts yet: hooks of its last drain are not done, or their record
    /// cannot be read.
    pub(super) fn hooks_pending(&self, id: EntryId, address: &Address) -> Option<Reason> {
        if self.snap.store.hooks.is_empty() {
            return None;
        }
        self.snap.store.hooks.iter().find_map(|(&of, stored)| match &stored.value {
            Err(why) => (of == id).then(|| unreadable(why)),
            Ok(record) if record.address == *address => Some(unfinished(record)),
            Ok(_) => None,
        })
    }

    /// Plans the next run of the hooks of one moment, one after the other in the policy's order. Each must have
    /// succeeded before the next one runs.
    fn run_hooks(
        &mut self,
        id: EntryId,
        machine: &str,
        member: Option<Member<'a>>,
        at: HookPoint,
        guard: &Guard,
    ) -> HookState {
        let snap = self.snap;
        let Some(stored) = snap.store.hooks.get(&id) else { return HookState::Done };
        let record = match &stored.value {
            Ok(record) => record,
            Err(why) => return HookState::Pending(unreadable(why)),
        };
        let labels = labels(member, snap.kube.by_name.get(&record.node));
        let policy = Arc::clone(&self.policy);
        for hook in policy.hooks.iter().filter(|hook| hook.at == at && hook.is_for(id.queue, &labels)) {
            match self.run_hook(machine, guard, &Next { id, stored, record, hook }) {
                HookState::Done => {}
                // Nothing waits for a hook after the uncordon, so the next one runs.
                HookState::Failed(_) if at == HookPoint::AfterUncordon => {}
                state @ (HookState::Pending(_) | HookState::Failed(_)) => return state,
            }
        }
        HookState::Done
    }

    /// Plans the next run of one hook, unless it has succeeded or may still be running.
    fn run_hook(&mut self, machine: &str, guard: &Guard, next: &Next<'_>) -> HookState {
        let hook = next.hook;
        let (name, at) = (hook.name.clone(), hook.at);
        let Some(last) = next.record.run(&hook.name, hook.at) else { return self.plan_hook(machine, guard, next, 1) };
        let Some(outcome) = &last.outcome else {
            let until = self.hook_may_run_until(next.id, last);
            fault!(HookBesideItself => until = until.filter(|until| *until == Until::Unbounded));
            return match until {
                Some(until) => {
                    if let Until::At(until) = until {
                        self.wake_at(until);
                    }
                    HookState::Pending(Reason::HookRunning { hook: name, at, since: Some(last.start) })
                }
                // Its leader is gone, and so is its outcome.
                None => self.after_failure(machine, guard, next, last, None),
            };
        };
        fault!(HookFailureIgnored => return HookState::Done);
        if outcome.end.succeeded() {
            HookState::Done
        } else {
            self.after_failure(machine, guard, next, last, Some(outcome))
        }
    }

    /// Decides what follows a run that failed. A run of unknown outcome counts as one.
    fn after_failure(
        &mut self,
        machine: &str,
        guard: &Guard,
        next: &Next<'_>,
        last: &HookRun,
        outcome: Option<&HookOutcome>,
    ) -> HookState {
        let hook = next.hook;
        let unknown = || HookEnd::Command(cketerm_model::attempt::Ended::Unknown("its leader is gone".to_owned()));
        let end = outcome.map_or_else(unknown, |outcome| outcome.end.clone());
        let output = outcome.map_or_else(String::new, |outcome| outcome.output.clone());
        let ended = outcome.map_or(self.now.wall, |outcome| outcome.at);
        let reason =
            |retry| Reason::HookFailed { hook: hook.name.clone(), at: hook.at, end: end.clone(), output, retry };
        let interval = i64::try_from(hook.retry_interval_seconds).unwrap_or(i64::MAX);
        let left = last.tries <= hook.retries;
        let (wait, tries, retry) = if end.withheld() {
            (WITHHELD_RETRY_SECONDS, last.tries, HookRetry::Scheduled)
        } else if left {
            (interval, last.tries.saturating_add(1), HookRetry::Scheduled)
        } else {
            match hook.at {
                // The drain backs off, and the next drain begins anew.
                HookPoint::BeforeDrain | HookPoint::AfterDrain | HookPoint::AfterUncordon => {
                    return HookState::Failed(reason(HookRetry::Exhausted));
                }
                HookPoint::BeforeUncordon => {
                    (EXHAUSTED_RETRY_SECONDS.max(interval), last.tries.saturating_add(1), HookRetry::Exhausted)
                }
            }
        };
        let due = if outcome.is_some() { after(ended, wait) } else { self.now.wall };
        if self.now.wall >= due {
            return match self.plan_hook(machine, guard, next, tries) {
                HookState::Pending(Reason::HookRunning { .. }) => HookState::Pending(reason(retry)),
                state => state,
            };
        }
        self.wake_at_wall(due);
        HookState::Pending(reason(retry))
    }

    /// Plans one run. Its record is written before it starts.
    fn plan_hook(&mut self, machine: &str, guard: &Guard, next: &Next<'_>, tries: u32) -> HookState {
        let (id, hook) = (next.id, next.hook);
        if let Some(missing) = hook.program().and_then(|program| self.program_missing(std::slice::from_ref(program))) {
            return HookState::Pending(missing);
        }
        if let Some(reason) = self.paused(id, "the hook") {
            return HookState::Pending(reason);
        }
        let run = HookRun {
            hook: hook.name.clone(),
            at: hook.at,
            tries,
            target: hook.target(),
            lease: self.snap.engine.lease,
            host: self.snap.engine.host.clone(),
            bound_seconds: hook.timeout_seconds,
            start: self.now.wall,
            outcome: None,
        };
        let effect = Effect::RunHook { entry: id, record: next.stored.clone(), hook: hook.clone(), run };
        self.plan(machine, Some(id), guard.clone(), effect);
        HookState::Pending(Reason::HookRunning { hook: hook.name.clone(), at: hook.at, since: None })
    }

    fn hook_may_run_until(&self, id: EntryId, run: &HookRun) -> Option<Until> {
        may_run_for(self.snap, self.leading_since(), &run.id(id), run.bound_seconds, self.now)
    }
}

/// Returns the reason of a machine whose last drain has a record still.
fn unfinished(record: &HookRuns) -> Reason {
    match record.runs.last().map(|run| (run, run.outcome.as_ref())) {
        Some((run, None)) => Reason::HookRunning { hook: run.hook.clone(), at: run.at, since: Some(run.start) },
        Some((run, Some(outcome))) if !outcome.end.succeeded() => Reason::HookFailed {
            hook: run.hook.clone(),
            at: run.at,
            end: outcome.end.clone(),
            output: outcome.output.clone(),
            retry: HookRetry::Scheduled,
        },
        Some(_) | None => Reason::Working { phase: "finishing the hooks of its last drain".to_owned() },
    }
}

fn unreadable(why: &str) -> Reason {
    Reason::InvalidEntry { why: format!("the record of its hooks cannot be read: {why}") }
}

/// Returns the labels by which hooks choose a machine: those of the definition and of its Node.
fn labels(member: Option<Member<'_>>, node: Option<&Arc<NodeRow>>) -> Labels {
    let of_node = node.map(|node| node.described.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
    let of_definition = member.and_then(|member| member.node().labels.clone()).unwrap_or_default();
    of_definition.into_iter().chain(of_node.into_iter().flatten()).collect()
}

/// Reports whether the release of the Node uncordons it.
fn uncordons(node: &NodeRow) -> bool {
    node.unschedulable && drain::schedulable_before(node) && !node.keep_cordoned
}

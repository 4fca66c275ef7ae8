//! Hooks of the site around a drain (policy `hooks`; REB-56 to REB-58; I64 to I66).
//!
//! A record in etcd begins with the drain and ends after the hooks that follow the uncordon ([`HookRuns`]). It names the
//! hooks that are for the machine and holds the last run of each, so every leader knows which hooks have succeeded. A
//! drain without a record has no hooks: another program began it, or the policy had no hook for its machine then.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    cketerm_records::{Order, Verb},
    cluster::{Eviction, Member},
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
use jiff::Timestamp;

use super::{
    Effect, Guard, Pass,
    attempts::{Until, WITHHELD_RETRY_SECONDS, may_run_for},
    drain::{self, Waits},
    entry_context::EntryContext,
};
use crate::snapshot::Snapshot;

/// Seconds before a hook of which no try is left is tried again, if nothing else begins its tries anew.
const EXHAUSTED_RETRY_SECONDS: i64 = 300;
/// Least time in seconds for a hook of a drain that is near its deadline.
const LEAST_SECONDS: u64 = 5;

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

/// Hooks of one moment of one entry.
struct Moment<'p> {
    id: EntryId,
    /// Key under which effects of the machine exclude one another.
    machine: &'p str,
    at: HookPoint,
    /// Conditions for a run.
    guard: Guard,
    /// Longest time of a run, in seconds.
    bound: Option<u64>,
    /// Runs before this time do not count: they were for an earlier drain or reboot.
    from: Timestamp,
    /// An operator's order to try again, which the next run uses up.
    order: Option<&'p Stored<Order>>,
}

/// One hook with the record of its entry.
#[derive(Clone, Copy)]
struct Next<'p> {
    stored: &'p Stored<HookRuns>,
    record: &'p HookRuns,
    hook: &'p Hook,
}

/// Returns the entries with a record of hooks, by address.
pub(super) fn records_by_address(snap: &Snapshot) -> BTreeMap<Address, Vec<EntryId>> {
    let mut all: BTreeMap<Address, Vec<EntryId>> = BTreeMap::new();
    for (&id, stored) in &snap.store.hooks {
        if let Some(record) = stored.get() {
            all.entry(record.address.clone()).or_default().push(id);
        }
    }
    all
}

impl<'a> Pass<'a> {
    /// Returns the record with which a drain begins, if hooks are for its machine. Without a Node there is no cordon,
    /// so no hook.
    pub(super) fn hooks_at_start(&self, ctx: EntryContext<'a>) -> Option<HookRuns> {
        fault!(HookRecordForgotten => return None);
        let node = self.node_of(ctx).filter(|_| !self.policy.hooks.is_empty())?;
        let labels = labels(ctx.member, Some(node));
        let chosen = self.policy.hooks.iter().filter(|hook| hook.is_for(ctx.queue(), &labels));
        let hooks: Vec<String> = chosen.map(|hook| hook.name.clone()).collect();
        let (address, node) = (ctx.address.clone(), node.name.clone());
        (!hooks.is_empty()).then(|| HookRuns { address, node, since: self.now.wall, hooks, runs: Vec::new() })
    }

    /// Returns a reason if this host lacks the program of a hook for the machine: it would fail only after the pods have
    /// left.
    pub(super) fn hook_program_missing(&self, ctx: EntryContext<'a>) -> Option<Reason> {
        if self.policy.hooks.is_empty() || self.snap.engine.missing_programs.is_empty() || !self.leading() {
            return None;
        }
        if ctx.is_repair() && !self.needs_drain(ctx) {
            return None;
        }
        let labels = labels(ctx.member, self.node_of(ctx));
        let mut hooks = self.policy.hooks.iter().filter(|hook| {
            (hook.at != HookPoint::AfterUncordon || hook.holds_slot) && hook.is_for(ctx.queue(), &labels)
        });
        hooks.find_map(|hook| self.program_missing(std::slice::from_ref(hook.program()?)))
    }

    /// Runs the hooks of a drain. A hook of which no try is left backs this drain off; no other entry waits for it.
    pub(super) fn hooks_of_drain(
        &mut self,
        ctx: EntryContext<'a>,
        rules: Eviction<'_>,
        at: HookPoint,
    ) -> Result<(), Waits> {
        fault!(HookSkipped => return Ok(()));
        if self.snap.store.hooks.is_empty() {
            return Ok(());
        }
        // A run ends with the drain at the latest.
        let left = self.drain_time_left(ctx, rules).whole();
        let bound = Some(u64::try_from(left).unwrap_or(0).max(1));
        let from = ctx.since.unwrap_or(self.now.wall);
        let guard = self.start_guard(ctx);
        let moment = Moment { id: ctx.id, machine: ctx.machine, at, guard, bound, from, order: None };
        match self.run_hooks(&moment) {
            HookState::Done => Ok(()),
            HookState::Pending(reason) => Err(Waits::For(reason)),
            HookState::Failed(reason) => Err(Waits::BackOff(reason)),
        }
    }

    /// Returns the reason why an entry whose machine is back does not end yet: a hook before the uncordon has not
    /// succeeded. The entry keeps its slot meanwhile.
    pub(super) fn hooks_before_end(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        fault!(HookSlotFreed => return None);
        let guard = Guard::of_entry(ctx.id, ctx.mod_revision);
        self.hooks_before_uncordon(ctx.id, ctx.machine, guard, self.order_of(ctx, Verb::Retry))
    }

    /// Reports whether a hook before the uncordon has run since the entry's last command: the machine was back. An
    /// operator's `retry` is then for the hook, and not for the command.
    pub(super) fn was_back(&self, id: EntryId) -> bool {
        let Some(record) = self.snap.store.hooks.get(&id).and_then(Stored::get) else { return false };
        let from = self.last_command_or_drain(id, record);
        record.runs.iter().any(|run| run.at == HookPoint::BeforeUncordon && run.start >= from)
    }

    /// Returns the time since which hooks before the uncordon count: after another command, the machine has to be judged
    /// anew.
    fn last_command_or_drain(&self, id: EntryId, record: &HookRuns) -> Timestamp {
        let command = self.snap.store.attempts_of(id).next_back().and_then(Stored::get).map(|attempt| attempt.start);
        command.map_or(record.since, |command| command.max(record.since))
    }

    /// Returns the reason why a Node whose entry is no longer in progress stays cordoned: a hook before the uncordon
    /// has not succeeded. An operator's order to uncordon does not wait for hooks.
    pub(super) fn hooks_before_release(&mut self, node: &NodeRow, owner: Option<&Owner>) -> Option<Reason> {
        let id = owner?.entry;
        if !drain::is_uncordoned_by_release(node) || self.has_uncordon_order(id) {
            return None;
        }
        self.hooks_before_uncordon(id, &node.name, Guard::default(), None)
    }

    fn hooks_before_uncordon(
        &mut self,
        id: EntryId,
        machine: &str,
        guard: Guard,
        order: Option<&'a Stored<Order>>,
    ) -> Option<Reason> {
        fault!(UncordonHookSkipped => return None);
        if self.snap.store.hooks.is_empty() {
            return None;
        }
        let record = self.snap.store.hooks.get(&id).and_then(Stored::get);
        let from = record.map_or(self.now.wall, |record| self.last_command_or_drain(id, record));
        let moment = Moment { id, machine, at: HookPoint::BeforeUncordon, guard, bound: None, from, order };
        match self.run_hooks(&moment) {
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
            let is_its_own = |node: &NodeRow| node.owner().is_some_and(|owner| owner.entry == id);
            let Some(record) = stored.get() else {
                // Nobody knows its Node.
                let any_node =
                    || snap.kube.marked.iter().any(|n| snap.kube.by_name.get(n).is_some_and(|n| is_its_own(n)));
                if !self.in_work(id) && !any_node() {
                    self.end_record(id, &format!("hooks of {id}"), stored);
                }
                continue;
            };
            let is_cordoned = snap.kube.by_name.get(&record.node).is_some_and(|node| is_its_own(node));
            fault!(HooksEndEarly => is_cordoned = false);
            if self.in_work(id) || is_cordoned {
                continue;
            }
            // A hook of a dead leader may still do what the next one undoes.
            let mut earlier = record.runs.iter().filter(|run| run.at != HookPoint::AfterUncordon);
            if let Some(until) = earlier.find_map(|run| self.may_be_running(id, run)) {
                if let Until::At(until) = until {
                    self.wake_at(until);
                }
                continue;
            }
            let machine = snap.machine(&record.address);
            let (at, guard) = (HookPoint::AfterUncordon, Guard::default());
            let moment = Moment { id, machine: &machine, at, guard, bound: None, from: record.since, order: None };
            fault!(AfterHookForgotten => {
                self.end_record(id, &machine, stored);
                continue;
            });
            match self.run_hooks(&moment) {
                HookState::Pending(_) => {}
                HookState::Done | HookState::Failed(_) => self.end_record(id, &machine, stored),
            }
        }
    }

    fn end_record(&mut self, id: EntryId, machine: &str, stored: &Stored<HookRuns>) {
        let effect = Effect::EndHooks { entry: id, record: stored.clone() };
        self.plan(machine, Some(id), Guard::default(), effect);
    }

    /// Returns the reason why no drain of this machine starts yet: a hook may be running for it, or its Node is still
    /// cordoned for the hooks of its last drain. A repair does not wait for the latter: it may be what the hook needs.
    pub(super) fn hooks_pending(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        let snap = self.snap;
        if snap.store.hooks.is_empty() {
            return None;
        }
        let others = self.hook_records.get(ctx.address).into_iter().flatten().copied();
        let ended = others.filter(|id| !self.in_work(*id));
        ended.filter_map(|id| Some((id, snap.store.hooks.get(&id)?.get()?))).find_map(|(id, record)| {
            let running = record.runs.iter().find(|run| self.may_be_running(id, run).is_some());
            if let Some(run) = running {
                return Some(Reason::HookRunning { hook: run.hook.clone(), at: run.at, since: Some(run.start) });
            }
            let node = snap.kube.by_name.get(&record.node)?;
            let is_kept = node.unschedulable && node.owner().is_some_and(|owner| owner.entry == id);
            (is_kept && !ctx.is_repair()).then(|| self.last_failure(record))
        })
    }

    /// Returns the reason of a Node that stays cordoned for its hooks.
    fn last_failure(&self, record: &HookRuns) -> Reason {
        let before = record.runs.iter().rfind(|run| run.at == HookPoint::BeforeUncordon);
        let failed = before.and_then(|run| Some((run, run.outcome.as_ref().filter(|o| !o.end.succeeded())?)));
        let Some((run, outcome)) = failed else {
            return Reason::Working { phase: "uncordoning after its last drain".to_owned() };
        };
        let left = self.policy.hooks.iter().any(|hook| hook.name == run.hook && run.tries <= hook.retries);
        let retry = if left { HookRetry::Scheduled } else { HookRetry::Exhausted };
        failure(&run.hook, run.at, &outcome.end, &outcome.output, retry)
    }

    /// Plans the next run of the hooks of one moment, one after the other in the policy's order. Each must have
    /// succeeded before the next one runs, except after the uncordon.
    fn run_hooks(&mut self, moment: &Moment<'_>) -> HookState {
        let snap = self.snap;
        let Some(stored) = snap.store.hooks.get(&moment.id) else { return HookState::Done };
        // A policy that cannot be read may have any hook.
        if let Some(unreadable) = self.schedule.unreadable.clone() {
            return HookState::Pending(unreadable);
        }
        let policy = Arc::clone(&self.policy);
        let mut hooks = policy.hooks.iter().filter(|hook| hook.at == moment.at).peekable();
        if hooks.peek().is_none() {
            return HookState::Done;
        }
        let record = match &stored.value {
            Ok(record) => record,
            Err(why) => {
                let why = format!("the record of its hooks cannot be read: {why}");
                return HookState::Pending(Reason::InvalidEntry { why });
            }
        };
        let mut pending = None;
        for hook in hooks.filter(|hook| record.hooks.contains(&hook.name)) {
            match self.run_hook(moment, Next { stored, record, hook }) {
                HookState::Done => {}
                HookState::Failed(_) if moment.at == HookPoint::AfterUncordon => {}
                HookState::Pending(reason) if moment.at == HookPoint::AfterUncordon => pending = Some(reason),
                state @ (HookState::Pending(_) | HookState::Failed(_)) => return state,
            }
        }
        pending.map_or(HookState::Done, HookState::Pending)
    }

    /// Plans the next run of one hook, unless it has succeeded or may still be running.
    fn run_hook(&mut self, moment: &Moment<'_>, next: Next<'_>) -> HookState {
        let hook = next.hook;
        let Some(last) = next.record.run(&hook.name, hook.at, moment.from) else {
            return self.plan_hook(moment, next, 1, None);
        };
        let Some(outcome) = &last.outcome else {
            let until = self.may_be_running(moment.id, last);
            fault!(HookBesideItself => until = until.filter(|until| *until == Until::Unbounded));
            return match until {
                Some(until) => {
                    if let Until::At(until) = until {
                        self.wake_at(until);
                    }
                    // It keeps its place among what needs somebody, although it is being tried again.
                    if let Some(end) = &last.previous {
                        return HookState::Pending(failure(&hook.name, hook.at, end, "", HookRetry::Exhausted));
                    }
                    let (hook, at) = (hook.name.clone(), hook.at);
                    HookState::Pending(Reason::HookRunning { hook, at, since: Some(last.start) })
                }
                // Its leader is gone, and its outcome will never be known: that was no try.
                None => self.plan_hook(moment, next, last.tries, last.previous.clone()),
            };
        };
        fault!(HookFailureIgnored => return HookState::Done);
        if outcome.end.succeeded() { HookState::Done } else { self.after_failure(moment, next, last, outcome) }
    }

    /// Decides what follows a run that failed.
    fn after_failure(
        &mut self,
        moment: &Moment<'_>,
        next: Next<'_>,
        last: &HookRun,
        outcome: &HookOutcome,
    ) -> HookState {
        let hook = next.hook;
        let reason = |retry| failure(&hook.name, hook.at, &outcome.end, &outcome.output, retry);
        let interval = i64::try_from(hook.retry_interval_seconds).unwrap_or(i64::MAX);
        let (wait, tries, retry) = if outcome.end.is_void() {
            (WITHHELD_RETRY_SECONDS, last.tries, HookRetry::Scheduled)
        } else if last.tries <= hook.retries {
            (interval, last.tries.saturating_add(1), HookRetry::Scheduled)
        } else {
            match hook.at {
                // The drain backs off, and the next drain begins anew.
                HookPoint::BeforeDrain | HookPoint::AfterDrain => {
                    return HookState::Failed(reason(HookRetry::Exhausted));
                }
                HookPoint::AfterUncordon if !hook.holds_slot => return HookState::Failed(reason(HookRetry::Exhausted)),
                HookPoint::BeforeUncordon | HookPoint::AfterUncordon => {
                    (EXHAUSTED_RETRY_SECONDS.max(interval), last.tries.saturating_add(1), HookRetry::Exhausted)
                }
            }
        };
        let due = after(outcome.at, wait);
        if self.now.wall < due && moment.order.is_none() {
            self.wake_at_wall(due);
            return HookState::Pending(reason(retry));
        }
        let previous = (retry == HookRetry::Exhausted).then(|| outcome.end.clone());
        match self.plan_hook(moment, next, tries, previous) {
            HookState::Pending(Reason::HookRunning { .. }) => HookState::Pending(reason(retry)),
            state @ (HookState::Pending(_) | HookState::Failed(_) | HookState::Done) => state,
        }
    }

    /// Plans one run. Its record is written before it starts.
    fn plan_hook(&mut self, moment: &Moment<'_>, next: Next<'_>, tries: u32, previous: Option<HookEnd>) -> HookState {
        let (id, hook) = (moment.id, next.hook);
        if let Some(missing) = hook.program().and_then(|program| self.program_missing(std::slice::from_ref(program))) {
            return match moment.at {
                HookPoint::AfterUncordon if !hook.holds_slot => HookState::Failed(missing),
                HookPoint::BeforeDrain
                | HookPoint::AfterDrain
                | HookPoint::BeforeUncordon
                | HookPoint::AfterUncordon => HookState::Pending(missing),
            };
        }
        if let Some(reason) = self.paused(id, "the hook") {
            return HookState::Pending(reason);
        }
        // Too little time is left of the drain to learn anything.
        if moment.bound.is_some_and(|left| left < hook.timeout_seconds.min(LEAST_SECONDS)) {
            return HookState::Pending(Reason::HookRunning { hook: hook.name.clone(), at: hook.at, since: None });
        }
        let run = HookRun {
            hook: hook.name.clone(),
            at: hook.at,
            tries,
            target: hook.target(),
            lease: self.snap.engine.lease,
            host: self.snap.engine.host.clone(),
            bound_seconds: hook.timeout_seconds.min(moment.bound.unwrap_or(u64::MAX)),
            // The clock of this host may be behind that of an earlier leader.
            start: self.now.wall.max(moment.from),
            previous,
            outcome: None,
        };
        let (record, order) = (next.stored.clone(), moment.order.cloned());
        let effect = Effect::RunHook { entry: id, record, hook: hook.clone(), run, order };
        self.plan(moment.machine, Some(id), moment.guard.clone(), effect);
        HookState::Pending(Reason::HookRunning { hook: hook.name.clone(), at: hook.at, since: None })
    }

    /// Returns the time until which a run without an outcome must be assumed to run.
    fn may_be_running(&self, id: EntryId, run: &HookRun) -> Option<Until> {
        if run.outcome.is_some() {
            return None;
        }
        may_run_for(self.snap, self.leading_since(), &run.id(id), run.bound_seconds, self.now)
    }
}

fn failure(hook: &str, at: HookPoint, end: &HookEnd, output: &str, retry: HookRetry) -> Reason {
    Reason::HookFailed { hook: hook.to_owned(), at, end: Box::new(end.clone()), output: output.to_owned(), retry }
}

/// Returns the labels by which hooks choose a machine: those of its Node, and those of the definition, which win.
fn labels(member: Option<Member<'_>>, node: Option<&Arc<NodeRow>>) -> Labels {
    let of_node = node.map(|node| node.described.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
    let of_definition = member.and_then(|member| member.node().labels.clone()).unwrap_or_default();
    of_node.into_iter().flatten().chain(of_definition).collect()
}

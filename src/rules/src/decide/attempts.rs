//! Commands of both queues as attempts: whether one may still run, and whether and when the next may run (SAF-15,
//! SAF-16, I25).

use cketerm_model::{
    attempt::{Attempt, Ended, Outcome, attempt_id},
    boot_time::{BootTime, Seconds},
    cketerm_records::{Order, Verb},
    clock::Now,
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    fault,
    kube::NodeRow,
    names::Address,
    policy::UnreachableRule,
    reason::{CommandRetry, Reason},
    time::after,
};
use jiff::Timestamp;

use super::{
    Effect, Guard, Pass,
    entry_context::{CommandSpec, EntryContext, EntryKind},
    recheck::Recheck,
};
use crate::snapshot::Snapshot;

/// Seconds before the leader tries a withheld command again.
pub(super) const WITHHELD_RETRY_SECONDS: i64 = 5;
/// Number of newest tries that are kept when an operator orders another one. More are kept if the definition allows
/// more.
const MAX_KEPT_TRIES: usize = 32;
/// Maximum number of attempts that one transaction removes.
const MAX_FOLDED_PER_RUN: usize = 32;
/// Time that the helper may need beyond a command's bound to kill its process group.
const KILL_TIME: Seconds = Seconds::new(5.0);

/// End of the time in which a command must be assumed to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// By this boot time it has ended.
    At(BootTime),
    /// Nothing is known of its end.
    Unbounded,
}

/// Returns the time until which an open attempt's command must be assumed to run, or `None` if it cannot run.
///
/// While this engine has the command in flight, the end is unknown. So it is while this engine does not lead. A command
/// of a dead leader may run until TTL + TTL/12 + its bound + 5 s after this engine won the lock (SAF-16).
/// `leading_since`: boot time of that win; `None` while this engine does not lead.
pub(super) fn may_run_until(
    snap: &Snapshot,
    leading_since: Option<BootTime>,
    attempt: &Attempt,
    now: Now,
) -> Option<Until> {
    if !attempt.open() {
        return None;
    }
    may_run_for(snap, leading_since, &attempt.id, attempt.bound_seconds, now)
}

/// Returns the same for a run without an outcome, by its id and its bound in seconds.
pub(super) fn may_run_for(
    snap: &Snapshot,
    leading_since: Option<BootTime>,
    id: &str,
    bound: u64,
    now: Now,
) -> Option<Until> {
    if snap.in_flight.values().any(|f| f.attempt.as_deref() == Some(id)) {
        return Some(Until::Unbounded);
    }
    let Some(since) = leading_since else { return Some(Until::Unbounded) };
    fault!(SecondRun => return None);
    let seconds = |n: u64| Seconds::from(u32::try_from(n).unwrap_or(u32::MAX));
    let ttl = seconds(snap.engine.ttl);
    let until = since + ttl + ttl / 12.0 + seconds(bound) + KILL_TIME;
    (now.boot < until).then_some(Until::At(until))
}

/// Reports whether the entry exists and is unfinished: a reboot that is not cancelled, a repair that is neither
/// finished nor deleted. An entry that cannot be read counts as live.
pub(super) fn has_live_entry(snap: &Snapshot, id: EntryId) -> bool {
    snap.store.stored_entry(id).is_some_and(|stored| stored.get().is_none_or(EntryRef::unfinished))
}

/// Reports whether the entry's key exists, whatever its value.
pub(super) fn has_entry(snap: &Snapshot, id: EntryId) -> bool {
    snap.store.has_entry(id)
}

/// Reports whether a command of this entry may have changed its machine. A repair's success command does not count.
pub(super) fn any_command_began(snap: &Snapshot, id: EntryId) -> bool {
    snap.store.attempts_of(id).filter_map(Stored::get).any(|a| a.began() && !a.success)
}

/// Result of a command over all of its tries.
pub(super) enum CommandState<'s> {
    /// No attempt is recorded. If the command ran at all, another program ran it.
    NoAttempt,
    /// The outcome is unknown and will stay unknown.
    Unknown(&'s Attempt),
    /// The command exited with 0.
    Succeeded(&'s Outcome),
    /// The command failed, and no try is left.
    Failed(&'s Outcome),
    /// The command failed or was withheld, and a try is left.
    TriesLeft(&'s Outcome),
}

impl<'a> Pass<'a> {
    /// Returns the attempts of one command of an entry: the command of a step, or the success command.
    pub(super) fn attempts_for(
        &self,
        id: EntryId,
        command_spec: CommandSpec<'_>,
    ) -> impl DoubleEndedIterator<Item = &'a Stored<Attempt>> + use<'a> {
        let (step, success) = (command_spec.step, command_spec.success);
        let snap = self.snap;
        snap.store
            .attempts_of(id)
            .filter(move |s| s.get().is_some_and(|a| a.success == success && (success || a.step == step)))
    }

    /// Returns the reason to unwind an entry after its command was withheld: a closed window, a freeze, a disabled
    /// queue or a hold. No command of the entry began, so the machine need not stay drained until it may run
    /// (REB-41, I8).
    pub(super) fn withheld_unwind_reason(&self, ctx: EntryContext<'a>) -> Option<Reason> {
        let attempts = || self.snap.store.attempts_of(ctx.id).filter_map(Stored::get);
        let nothing_done = attempts().next_back().is_some_and(Attempt::withheld) && !attempts().any(Attempt::began);
        // If an operator ordered the first attempt, CKE may have run a command before it: nothing is unwound.
        let automatic = attempts().next().is_some_and(|a| a.ordered_by.is_none());
        // An attempt that cannot be read may have done anything.
        let read = self.snap.store.attempts_of(ctx.id).all(|stored| stored.get().is_some());
        if !nothing_done || !automatic || !read || !self.leading() {
            return None;
        }
        let disabled = || (!self.queue_enabled(ctx.queue())).then_some(Reason::QueueDisabled);
        self.command_window_blocker(ctx).or_else(|| self.on_hold(ctx)).or_else(disabled)
    }

    /// Returns an attempt of this entry whose command may still run, and the time until which it may.
    pub(super) fn running_attempt(&self, id: EntryId) -> Option<(&'a Attempt, Until)> {
        let (snap, leading_since) = (self.snap, self.leading_since());
        let mut attempts = snap.store.attempts_of(id).filter_map(Stored::get);
        attempts.find_map(|a| may_run_until(snap, leading_since, a, self.now).map(|until| (a, until)))
    }

    /// Returns an attempt of another entry whose command may still run on this machine, and the time until which it may.
    pub(super) fn attempt_of_another(&self, id: EntryId, address: &Address) -> Option<(&'a Attempt, Until)> {
        fault!(OtherEntryForgotten => return None);
        let (snap, leading_since) = (self.snap, self.leading_since());
        let others = snap.store.attempts.iter().filter(|((of, _), _)| *of != id).filter_map(|(_, stored)| stored.get());
        let mut here = others.filter(|attempt| attempt.address == *address);
        here.find_map(|a| may_run_until(snap, leading_since, a, self.now).map(|until| (a, until)))
    }

    /// Returns the reason for an attempt whose command may still run. Until it has ended, the machine gets no further
    /// effect.
    pub(super) fn running_reason(&mut self, open: &Attempt, until: Until) -> Reason {
        match until {
            Until::At(until) => {
                self.wake_at(until);
                let at = after(self.now.wall, self.seconds_until(until));
                Reason::OutcomeUnknown { attempt: Some(open.id.clone()), until: Some(at) }
            }
            Until::Unbounded => Reason::CommandRunning { attempt: open.id.clone(), since: open.start },
        }
    }

    /// Returns the result of a command over all leaders. Tries are counted from the stored attempts, never from memory
    /// (I25).
    pub(super) fn command_state(&self, id: EntryId, command_spec: CommandSpec<'_>) -> CommandState<'a> {
        let Some(attempt) = self.attempts_for(id, command_spec).next_back().and_then(Stored::get) else {
            return CommandState::NoAttempt;
        };
        let Some(outcome) = attempt.outcome.as_ref() else { return CommandState::Unknown(attempt) };
        // `done` ended this entry, and its key was written again later. Nothing is known about the new one.
        if attempt.done_by.is_some() {
            return CommandState::Unknown(attempt);
        }
        if attempt.succeeded() {
            return CommandState::Succeeded(outcome);
        }
        if matches!(outcome.end, Ended::Unknown(_)) {
            return CommandState::Unknown(attempt);
        }
        let counted = |a: &&Attempt| {
            fault!(RetriesInMemory => return !a.withheld() && a.lease == self.snap.engine.lease);
            !a.withheld()
        };
        let tries = self.attempts_for(id, command_spec).filter_map(Stored::get).filter(counted).count();
        let exhausted = u32::try_from(tries).unwrap_or(u32::MAX) >= command_spec.tries || attempt.ordered_by.is_some();
        if exhausted && !attempt.withheld() { CommandState::Failed(outcome) } else { CommandState::TriesLeft(outcome) }
    }

    /// Honours an operator's `retry`: runs one more command, whatever the number of tries. Returns `None` without such
    /// an order, else the reason that the entry shows, also if the command may not run now.
    pub(super) fn retry_ordered(&mut self, ctx: EntryContext<'a>, command_spec: CommandSpec<'a>) -> Option<Reason> {
        let order = self.order_of(ctx, Verb::Retry)?.clone();
        let reason = Reason::Working { phase: format!("running {} again, as ordered", command_spec.name) };
        self.plan_next_command(ctx, command_spec, Some(order)).or(Some(reason))
    }

    /// Same as [`Pass::retry_ordered`], except that after a hook before the uncordon the order is for that hook: the
    /// machine was back (REB-57).
    pub(super) fn retry_unless_back(&mut self, ctx: EntryContext<'a>, command_spec: CommandSpec<'a>) -> Option<Reason> {
        fault!(RetryReachesCommand => return self.retry_ordered(ctx, command_spec));
        if self.was_back(ctx.id) {
            return None;
        }
        self.retry_ordered(ctx, command_spec)
    }

    /// Runs the further tries that the definition allows: `command_retries` commands, `command_interval` apart. Each
    /// follows a recorded outcome of the one before. A command of unknown outcome never runs again by itself (I25).
    pub(super) fn retry_by_definition(
        &mut self,
        ctx: EntryContext<'a>,
        command_spec: CommandSpec<'a>,
    ) -> Option<Reason> {
        let last = self.attempts_for(ctx.id, command_spec).next_back()?.get()?;
        fault!(SecondRun if last.open() => return self.plan_next_command(ctx, command_spec, None));
        let CommandState::TriesLeft(outcome) = self.command_state(ctx.id, command_spec) else { return None };
        // While the queue is disabled, no command runs except the success command, which ends a repair.
        if !command_spec.success && !self.queue_enabled(ctx.queue()) {
            return None;
        }
        // A withheld command did nothing to the machine, so the next try need not wait for `command_interval`.
        let again = after(outcome.at, if last.withheld() { WITHHELD_RETRY_SECONDS } else { command_spec.interval });
        let reason = Reason::CommandFailed {
            end: outcome.end.clone(),
            stderr: outcome.stderr.clone(),
            retry: CommandRetry::Scheduled,
        };
        if self.now.wall < again {
            self.wake_at_wall(again);
            return Some(reason);
        }
        // After a command that began, the check must answer once before the next try. `Work::check` is cleared when a
        // command ends, so an answer there is newer.
        let checked = self.snap.work.get(&ctx.id).is_some_and(|w| w.check.is_some());
        if last.began() && !checked {
            return Some(self.no_health_check(ctx).unwrap_or(reason));
        }
        self.plan_next_command(ctx, command_spec, None).or(Some(reason))
    }

    /// Plans a further command, or any success command. `None`: it is planned. `Some`: the reason why it may not run
    /// now, which includes a fresh read that is under way.
    pub(super) fn plan_next_command(
        &mut self,
        ctx: EntryContext<'a>,
        command_spec: CommandSpec<'a>,
        order: Option<Stored<Order>>,
    ) -> Option<Reason> {
        if let Some(reason) = self.paused(ctx.id, command_spec.name) {
            return Some(reason);
        }
        let node = self.node_of(ctx);
        // The success command ends a repair, and repairs end while the queue is disabled too.
        let drained = !command_spec.success && self.needs_drain(ctx);
        let barred = if command_spec.success {
            self.program_missing(command_spec.argv)
        } else if !self.queue_enabled(ctx.queue()) {
            Some(Reason::QueueDisabled)
        } else {
            let mismatch = || self.wrong_node(ctx, node.map(AsRef::as_ref));
            let unhealthy = || self.others_unhealthy(ctx);
            let barred = self.stale_for(ctx).or_else(|| self.command_window_blocker(ctx));
            let barred = barred.or_else(|| self.no_command(ctx)).or_else(mismatch).or_else(unhealthy);
            barred.or_else(|| self.drained_by_other_for(ctx, node?))
        };
        if barred.is_some() {
            return barred;
        }
        // Somebody uncordoned the Node in the meantime. Pods may run on it again, so the command must not run.
        if drained && node.is_some_and(|n| !n.unschedulable || n.owner().is_none_or(|o| o.entry != ctx.id)) {
            let since = self.snap.work.get(&ctx.id).and_then(|w| w.drain.uncordoned);
            return Some(Reason::UncordonedByOther { since: since.unwrap_or(self.now.wall) });
        }
        if !ctx.is_repair()
            && self.policy.unreachable_rule == UnreachableRule::All
            && let Some(gate) = self.unreachable_gate()
        {
            return Some(gate);
        }
        if !command_spec.success
            && let Err(barred) = self.check_etcd_before_power(ctx)
        {
            return Some(barred);
        }
        let before = self.attempts_for(ctx.id, command_spec).next_back();
        let forced = before.and_then(Stored::get).is_some_and(|before| before.forced);
        let fresh = match self.recheck(ctx, node.filter(|_| !command_spec.success), drained, forced) {
            Recheck::Allows(fresh) => fresh,
            Recheck::Pending(reason) | Recheck::Waits(reason) => return Some(reason),
        };
        let found = fresh.as_ref().and_then(|f| f.node.as_deref());
        let mut attempt = self.next_attempt(ctx, command_spec, found.or(node.map(AsRef::as_ref)));
        attempt.forced = forced;
        attempt.ordered_by = order.as_ref().and_then(Stored::get).map(|o| {
            let why = o.reason.as_ref().map_or_else(String::new, |r| format!(": {r}"));
            format!("{}{why}", o.who)
        });
        // An ordered command that was withheld is still the order of the same operator.
        let withheld = before.and_then(Stored::get).filter(|a| a.withheld());
        attempt.ordered_by = attempt.ordered_by.or_else(|| withheld.and_then(|a| a.ordered_by.clone()));
        let folded = self.folded(ctx.id, command_spec, order.is_some());
        let folded_counts = folded.iter().filter_map(Stored::get).map(|a| a.folded.saturating_add(1));
        attempt.folded = folded_counts.fold(0, u32::saturating_add);
        let guard =
            if command_spec.success { Guard::of_entry(ctx.id, ctx.mod_revision) } else { self.disruption_guard(ctx) };
        let effect =
            Effect::RunAgain { entry: ctx.queue_entry(), fresh, before: before.cloned(), folded, order, attempt };
        self.plan(ctx.machine, Some(ctx.id), guard, effect);
        None
    }

    /// Returns attempts of a command that may be deleted once another one is written, which counts them in
    /// `Attempt::folded`. Without this, an entry that is tried for weeks would grow without bound (I49):
    ///
    /// * Withheld attempts, which never count. The entry's first attempt stays, because
    ///   [`Pass::withheld_unwind_reason`] reads it.
    /// * Old attempts, if an operator orders the next one. After such an order the definition allows no further try
    ///   ([`Pass::command_state`]). As many attempts as the definition allows stay nevertheless: a program that counts
    ///   the keys would otherwise run the command again. An attempt goes only if a newer one holds the same facts about
    ///   the machine ([`Attempt::is_covered_by`]).
    fn folded(&self, id: EntryId, command_spec: CommandSpec<'_>, ordered: bool) -> Vec<Stored<Attempt>> {
        let first = self.snap.store.attempts_of(id).next().and_then(Stored::get).map(|a| a.number);
        let all = self.attempts_for(id, command_spec).filter(|s| s.get().is_some_and(|a| Some(a.number) != first));
        let all: Vec<_> = all.collect();
        let withheld = |s: &&&Stored<Attempt>| s.get().is_some_and(Attempt::withheld);
        let mut folded: Vec<Stored<Attempt>> = all.iter().filter(withheld).map(|s| Stored::clone(s)).collect();
        if ordered {
            let counted: Vec<_> = all.iter().filter(|s| !withheld(s)).collect();
            let tries = usize::try_from(command_spec.tries).unwrap_or(usize::MAX);
            let (old, kept) = counted.split_at(counted.len().saturating_sub(tries.max(MAX_KEPT_TRIES)));
            let is_covered = |a: &Attempt| kept.iter().filter_map(|s| s.get()).any(|newer| a.is_covered_by(newer));
            folded.extend(old.iter().filter(|s| s.get().is_some_and(is_covered)).map(|s| Stored::clone(s)));
        }
        folded.truncate(MAX_FOLDED_PER_RUN);
        folded
    }

    /// Reports whether the next step drains a Node first.
    pub(super) fn needs_drain(&self, ctx: EntryContext<'a>) -> bool {
        match ctx.kind {
            EntryKind::Reboot(_) | EntryKind::Maintenance(_) => true,
            EntryKind::Repair { operation, step, .. } => {
                let required = operation.step(step).is_some_and(|s| s.need_drain.unwrap_or(false));
                required && self.node_of(ctx).is_some()
            }
        }
    }

    /// Returns the attempt that is written before the command starts.
    pub(super) fn next_attempt(
        &self,
        ctx: EntryContext<'_>,
        command_spec: CommandSpec<'_>,
        node: Option<&NodeRow>,
    ) -> Attempt {
        // Number by key, so that an attempt that cannot be read is not overwritten.
        let number = self.snap.store.last_attempt(ctx.id).map_or(1, |last| last.saturating_add(1));
        let mut argv = command_spec.argv.to_vec();
        argv.push(ctx.address.to_string());
        let (machine_type, operation) = match ctx.kind {
            EntryKind::Reboot(_) | EntryKind::Maintenance(_) => (None, None),
            EntryKind::Repair { entry, .. } => (Some(entry.machine_type.clone()), Some(entry.operation.clone())),
        };
        Attempt {
            id: attempt_id(ctx.id, number),
            entry: ctx.id,
            number,
            step: command_spec.step,
            success: command_spec.success,
            machine_type,
            operation,
            address: ctx.address.to_owned(),
            node: node.map(|n| n.name.clone()),
            control_plane: ctx.control_plane(),
            lease: self.snap.engine.lease,
            host: self.snap.engine.host.clone(),
            argv,
            bound_seconds: command_spec.bound,
            boot_id: None,
            not_ready: false,
            node_uid: node.map(|n| n.uid.clone()),
            start: self.now.wall,
            drain_start: self.drain_start(ctx, command_spec),
            forced: false,
            ordered_by: None,
            done_by: None,
            folded: 0,
            outcome: None,
        }
        .with_node(node)
    }

    /// Returns the start of the drain before this command: of the present drain, or the one before the earlier tries.
    fn drain_start(&self, ctx: EntryContext<'_>, command_spec: CommandSpec<'_>) -> Option<Timestamp> {
        let entry = self.snap.store.entry(ctx.id)?;
        if !entry.is_after_command() {
            return ctx.since.filter(|_| entry.in_work());
        }
        let before = self.snap.store.attempts_of(ctx.id).rev().find_map(Stored::get);
        before.filter(|a| a.step == command_spec.step && a.success == command_spec.success)?.drain_start
    }
}

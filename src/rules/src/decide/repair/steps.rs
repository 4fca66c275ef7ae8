//! Next action of a repair (REP-21 to REP-28; I25, I41).
//!
//! `waiting` → drain or command; `draining` → the drain of both queues; `watching` → healthy, the next step, or the
//! end.

use cketerm_model::{
    attempt::{CheckAnswer, Outcome},
    boot_time::BootTime,
    fault,
    reason::{Awaited, CommandRetry, Reason},
    repair::{RepairStatus, StepStatus},
    time::{after, seconds_between},
};
use jiff::Timestamp;

use super::super::{
    End, Pass,
    attempts::CommandState,
    entry_context::{EntryContext, EntryKind},
};

impl<'a> Pass<'a> {
    /// Moves an entry in progress on. Returns `None` if the entry waits for its turn.
    pub(super) fn advance_step(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        let EntryKind::Repair { entry, operation, step } = ctx.kind else { return None };
        // An entry in backoff goes to the scheduler, which shows the reason.
        if !entry.claims_machine() && ctx.backoff.1.is_some_and(|until| until > self.now.wall) {
            return None;
        }
        // Past the last step the entry fails, also while the queue is disabled (REP-11).
        if operation.step(step).is_none() {
            return Some(self.finish_repair(ctx, End::Failed(no_steps_left(operation.steps().len()))));
        }
        match (entry.status, entry.step_status) {
            (RepairStatus::Processing, StepStatus::Draining) => Some(self.drain(ctx)),
            (RepairStatus::Processing, StepStatus::Watching) => Some(self.watch(ctx)),
            _ => None,
        }
    }

    /// Watches after the command, or runs a further try. The health check decides what follows.
    fn watch(&mut self, ctx: EntryContext<'a>) -> Reason {
        if let Some(node) = self.node_of(ctx) {
            self.renew_owner(ctx, node);
        }
        if !self.leading() {
            let last = String::new();
            return self.leadership_blocker().unwrap_or_else(|| waiting_for_health(ctx, None, last, Awaited::Check));
        }
        let Some(command_spec) = self.command_spec(ctx) else { return self.no_definition() };
        if let Some(why) = self.withheld_unwind_reason(ctx) {
            return self.unwind_withheld(ctx, why);
        }
        if let Some(reason) = self.retry_unless_back(ctx, command_spec) {
            return reason;
        }
        match self.command_state(ctx.id, command_spec) {
            CommandState::Succeeded(outcome) => self.watched(ctx, outcome),
            CommandState::TriesLeft(outcome) => {
                let disabled = || Reason::CommandFailed {
                    end: outcome.end.clone(),
                    stderr: outcome.stderr.clone(),
                    retry: CommandRetry::OnceEnabled,
                };
                self.retry_by_definition(ctx, command_spec).unwrap_or_else(disabled)
            }
            // A failed command fails the entry, and later steps do not run (REP-25).
            CommandState::Failed(outcome) => {
                let step = command_spec.step.unwrap_or(0) + 1;
                self.finish_repair(ctx, End::Failed(format!("the command of step {step}: {}", outcome.end)))
            }
            // The health check may still end the entry, else an operator has to.
            CommandState::Unknown(attempt) => Reason::OutcomeUnknown { attempt: Some(attempt.id.clone()), until: None },
            CommandState::NoAttempt => Reason::OutcomeUnknown { attempt: None, until: None },
        }
    }

    /// Waits for the end of the watch after a command that succeeded. Begins the next step if the machine was not
    /// healthy within `watch_seconds`. A missing answer does not count as "not healthy" (REP-28).
    fn watched(&mut self, ctx: EntryContext<'a>, outcome: &Outcome) -> Reason {
        let until = watch_until(ctx, outcome);
        let last = self.last_health_text(ctx);
        if self.now.wall < until {
            self.wake_at_wall(until);
            return waiting_for_health(ctx, Some(until), last, Awaited::Check);
        }
        let over = self.boot_time_of(until);
        let began_after = self.check_began(ctx.id).is_some_and(|began| began >= over);
        fault!(CheckWithinWatch => began_after = self.checked_at(ctx.id).is_some_and(|ended| ended >= over));
        match self.snap.work.get(&ctx.id).and_then(|w| w.check.as_ref()) {
            Some((_, CheckAnswer::Unavailable(why))) => Reason::CheckUnavailable { why: why.clone() },
            // The check was sent again after the watch was over.
            Some((_, CheckAnswer::No(_) | CheckAnswer::Failed { .. } | CheckAnswer::TimedOut(_))) if began_after => {
                self.next_step(ctx, &last)
            }
            Some((
                _,
                CheckAnswer::Yes | CheckAnswer::No(_) | CheckAnswer::Failed { .. } | CheckAnswer::TimedOut(_),
            ))
            | None => {
                let unable = self.no_health_check(ctx);
                unable.unwrap_or_else(|| waiting_for_health(ctx, Some(until), last, Awaited::Check))
            }
        }
    }

    fn next_step(&mut self, ctx: EntryContext<'a>, last: &str) -> Reason {
        let EntryKind::Repair { entry, operation, step } = ctx.kind else { return Reason::Ready };
        let next = EntryContext { kind: EntryKind::Repair { entry, operation, step: step.saturating_add(1) }, ..ctx };
        fault!(StepTwice => next = ctx);
        if operation.step(step.saturating_add(1)).is_none() {
            let why = format!("{}, the health check says: {last}", no_steps_left(operation.steps().len()));
            return self.finish_repair(ctx, End::Failed(why));
        }
        // While the queue is disabled, the entry stays in `watching`.
        if !self.queue_enabled(ctx.queue()) {
            return Reason::QueueDisabled;
        }
        if let Some(reason) = self.paused(ctx.id, "the next step") {
            return reason;
        }
        self.begin_step(next).unwrap_or_else(|reason| reason)
    }

    /// Starts the first action of a step: its drain or its command. Both results hold the reason that the entry shows.
    /// `Ok`: the action is planned.
    pub(super) fn begin_step(&mut self, ctx: EntryContext<'a>) -> Result<Reason, Reason> {
        if let Some(reason) = self.stale_for(ctx).or_else(|| self.no_command(ctx)) {
            return Err(reason);
        }
        if let Some(late) = self.step_blocker(ctx) {
            return Err(late);
        }
        if !self.needs_drain(ctx) {
            return self.command(ctx, None, None);
        }
        let node = self.node_of(ctx);
        if let Some(reason) = self.wrong_node(ctx, node.map(AsRef::as_ref)) {
            return Err(reason);
        }
        if let Some(barred) = self.etcd_blocker(ctx).or_else(|| self.hook_program_missing(ctx)) {
            return Err(barred);
        }
        if let Some(reason) = self.leader_is_on(ctx) {
            return Err(reason);
        }
        self.start_drain(ctx);
        Ok(Reason::Working { phase: "starting the drain".to_owned() })
    }

    /// Returns the reason why the step may not begin now. A drain needs time before the end of its window; a command
    /// needs only an open window (I8).
    pub(super) fn step_blocker(&self, ctx: EntryContext<'a>) -> Option<Reason> {
        if self.needs_drain(ctx) { self.drain_window_blocker(ctx) } else { self.command_window_blocker(ctx) }
    }

    /// Returns the boot time at which the watch after an entry's command ended, if it has ended.
    pub(super) fn watch_ended_at(&self, ctx: EntryContext<'a>) -> Option<BootTime> {
        let EntryKind::Repair { entry, .. } = ctx.kind else { return None };
        if !entry.claims_machine() || entry.step_status != StepStatus::Watching {
            return None;
        }
        let CommandState::Succeeded(outcome) = self.command_state(ctx.id, self.command_spec(ctx)?) else { return None };
        let until = watch_until(ctx, outcome);
        (self.now.wall >= until).then(|| self.boot_time_of(until))
    }

    fn boot_time_of(&self, wall: Timestamp) -> BootTime {
        self.monotonic_now() - seconds_between(wall, self.now.wall)
    }
}

/// Returns the end of the watch after this command.
fn watch_until(ctx: EntryContext<'_>, outcome: &Outcome) -> Timestamp {
    let EntryKind::Repair { operation, step, .. } = ctx.kind else { return outcome.at };
    let seconds = operation.step(step).and_then(|s| s.watch_seconds).unwrap_or(0);
    fault!(StepUnwatched => seconds = 0);
    after(outcome.at, seconds.max(0))
}

/// Returns the waiting reason of an entry whose health check decides.
pub(super) fn waiting_for_health(
    ctx: EntryContext<'_>,
    until: Option<Timestamp>,
    last: String,
    awaited: Awaited,
) -> Reason {
    let EntryKind::Repair { step, .. } = ctx.kind else { return Reason::Ready };
    Reason::WaitingForHealth { step, until, last, awaited }
}

fn no_steps_left(steps: usize) -> String {
    format!("not healthy after the last of {steps} step{}", if steps == 1 { "" } else { "s" })
}

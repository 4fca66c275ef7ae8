//! Health checks, and the end of a repair: healthy, then the success command, then `succeeded` or `failed`. An API
//! server must also be Ready with a settled probe (REP-29 to REP-39, SAF-31; I36, I40).

use cketerm_model::{
    any::QueueEntry,
    attempt::{Attempt, CheckAnswer},
    boot_time::{BootTime, Seconds},
    cketerm_records::Verb,
    cluster::Operation,
    entry::{EntryId, Stored},
    fault,
    names::Address,
    reason::{Awaited, CommandRetry, Reason},
};
use jiff::Timestamp;

use super::super::{
    Effect, End, Guard, Pass,
    attempts::CommandState,
    entry_context::{CommandSpec, EntryContext, EntryKind, HEALTH_CHECK_FIELD},
};
use super::steps::waiting_for_health;

/// Maximum number of health checks under way at once.
const MAX_QUICK_CHECKS: usize = 32;
/// Time after which a check no longer counts toward that number, so that a check that hangs delays only its own
/// entry.
const SLOW_AFTER: Seconds = Seconds::new(5.0);
/// Maximum number of health checks under way, including slow ones.
const MAX_RUNNING_CHECKS: usize = 128;

/// Prefix of the keys of health checks among the effects under way.
pub const HEALTH_CHECK_PREFIX: &str = "health of ";

/// A health check that is due.
pub(super) struct DueCheck {
    /// Boot time at which the last check ended; none = never. The smallest goes first.
    last: Option<BootTime>,
    id: EntryId,
    guard: Guard,
    argv: Vec<String>,
    bound: u64,
}

/// Returns the key of an entry's health check. A check that hangs then delays neither the drain of its machine nor
/// other entries.
fn flight_key(id: EntryId) -> String {
    format!("{HEALTH_CHECK_PREFIX}{id}")
}

impl<'a> Pass<'a> {
    /// Returns the health check of an entry if it is due.
    pub(super) fn health_check_due(&mut self, ctx: EntryContext<'a>) -> Option<DueCheck> {
        let EntryKind::Repair { entry, operation, .. } = ctx.kind else { return None };
        // A leader that is about to resign checks only entries that claim a machine.
        if !self.leading() || (self.resigning() && !entry.claims_machine()) {
            return None;
        }
        // An entry that claims no machine has not started: the long interval applies, so its start is set long ago.
        let since = ctx.since.filter(|_| entry.claims_machine()).unwrap_or(Timestamp::UNIX_EPOCH);
        // The watch after the command is over, and no check has begun since then: the last check is due at once.
        let watched = self.watch_ended_at(ctx).is_some_and(|over| self.check_began(ctx.id).is_none_or(|at| at < over));
        if !watched && !self.check_is_due(ctx.id, since) {
            return None;
        }
        self.health_check(ctx.id, operation, ctx.address, Guard::of_entry(ctx.id, ctx.mod_revision))
    }

    /// Returns the boot time at which the last check ended.
    pub(super) fn checked_at(&self, id: EntryId) -> Option<BootTime> {
        self.snap.work.get(&id)?.check.as_ref().map(|(at, _)| *at)
    }

    /// Returns the boot time at which the last check that was answered began.
    pub(super) fn check_began(&self, id: EntryId) -> Option<BootTime> {
        self.snap.work.get(&id)?.check_began.or_else(|| self.checked_at(id))
    }

    /// Returns the reason why a repair's health check cannot be sent: the operation has none any more, or this host
    /// lacks its program.
    pub(in super::super) fn no_health_check(&self, ctx: EntryContext<'a>) -> Option<Reason> {
        let EntryKind::Repair { operation, .. } = ctx.kind else { return None };
        match operation.health_check_command.as_ref().filter(|argv| !argv.is_empty()) {
            None => Some(Reason::NoCommand { field: HEALTH_CHECK_FIELD.to_owned() }),
            Some(argv) => self.program_missing(argv),
        }
    }

    fn health_check(&self, id: EntryId, operation: &Operation, address: &Address, guard: Guard) -> Option<DueCheck> {
        let mut argv = operation.health_check_command.clone().filter(|c| !c.is_empty())?;
        if self.program_missing(&argv).is_some() {
            return None;
        }
        argv.push(address.to_string());
        let bound = operation.health_bound(self.policy.command_cap_seconds);
        Some(DueCheck { last: self.checked_at(id), id, guard, argv, bound })
    }

    /// Plans as many checks as the limits allow. Entries that were not checked for the longest time come first (I36).
    pub(super) fn plan_health_checks(&mut self, mut due: Vec<DueCheck>) {
        let under_way = self.snap.in_flight.iter().filter(|(name, _)| name.starts_with(HEALTH_CHECK_PREFIX));
        let (all, quick) = under_way.fold((0, 0), |(all, quick), (_, flight)| {
            (all + 1, quick + usize::from(self.monotonic_now() - flight.since < SLOW_AFTER))
        });
        let free = MAX_QUICK_CHECKS.saturating_sub(quick).min(MAX_RUNNING_CHECKS.saturating_sub(all));
        if all > 0 {
            self.wake_at(self.monotonic_now() + Seconds::new(1.0));
        }
        due.retain(|d| !self.snap.in_flight.contains_key(&flight_key(d.id)));
        due.sort_by_key(|d| (d.last, d.id));
        let asked = self.monotonic_now();
        for check in due.into_iter().take(free) {
            let effect = Effect::HealthCheck { argv: check.argv, bound: check.bound, asked };
            self.plan(&flight_key(check.id), Some(check.id), check.guard, effect);
        }
    }

    /// Checks the health of a deleted repair's machine whose Node stays cordoned. The answer shows that it has
    /// recovered.
    pub(in super::super) fn check_health_of_orphan(
        &mut self,
        id: EntryId,
        attempt: Option<&Attempt>,
        address: &Address,
        since: Timestamp,
    ) {
        let named = attempt.and_then(|a| a.machine_type.as_deref().zip(a.operation.as_deref()));
        let (Some(definition), Some((machine_type, operation))) = (self.definition, named) else { return };
        let Ok(operation) = definition.cluster.repair.operation(machine_type, operation) else { return };
        if self.check_is_due(id, since) {
            let check = self.health_check(id, operation, address, Guard::default());
            self.plan_health_checks(check.into_iter().collect());
        }
    }

    fn healthy(&self, id: EntryId) -> bool {
        matches!(self.snap.work.get(&id).and_then(|w| w.check.as_ref()), Some((_, CheckAnswer::Yes)))
    }

    /// Returns the success command, if the operation has one.
    fn success_command_spec(&self, ctx: EntryContext<'a>) -> Option<CommandSpec<'a>> {
        let EntryKind::Repair { operation, step, .. } = ctx.kind else { return None };
        let argv = operation.success_command.as_deref().filter(|argv| !argv.is_empty())?;
        let bound = operation.success_bound(self.policy.command_cap_seconds);
        let name = "the success command";
        Some(CommandSpec { name, argv, bound, tries: 1, interval: 0, step: Some(step), success: true })
    }

    /// Ends the repair if its conditions are met. Once the success command has begun, only its outcome counts: it runs
    /// at most once (I40).
    pub(super) fn try_end_repair(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        if !self.leading() {
            return None;
        }
        let success = self.success_command_spec(ctx);
        let begun = success.filter(|&command_spec| self.attempts_for(ctx.id, command_spec).next().is_some());
        fault!(SuccessTwice => begun = begun.filter(|&spec| self.attempts_for(ctx.id, spec).count() > 1));
        if let Some(command_spec) = begun {
            return Some(self.after_success(ctx, command_spec));
        }
        let order = self.order_of(ctx, Verb::Done);
        if order.is_none() && !self.healthy(ctx.id) {
            return None;
        }
        let unready = match order {
            Some(_) => self.not_ready_for_done(ctx),
            None if ctx.control_plane() => self.settling(ctx, self.node_of(ctx), true),
            None => None,
        };
        if unready.is_some() {
            return unready;
        }
        if let Some(reason) = self.paused(ctx.id, "ending the entry") {
            return Some(reason);
        }
        if let Some(command_spec) = success {
            // A queued entry may end while a dead leader's command for another one still runs.
            if let Some((attempt, until)) = self.attempt_of_another(ctx.id, ctx.address) {
                return Some(self.running_reason(attempt, until));
            }
            let reason = Reason::Working { phase: "healthy, running the success command".to_owned() };
            return Some(self.plan_next_command(ctx, command_spec, order.cloned()).unwrap_or(reason));
        }
        let done = order.and_then(Stored::get).cloned();
        Some(self.finish_repair(ctx, done.map_or(End::Healthy, End::DoneBy)))
    }

    /// Ends the entry by an operator's `done` while a command of a dead leader may still run. No success command runs
    /// beside that one. The cordon stays until the command has ended or its bound has passed (REP-38).
    pub(super) fn called_done_while_running(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        let order = self.order_of(ctx, Verb::Done).filter(|_| self.leading())?;
        let order = order.get()?.clone();
        let unready = self.not_ready_for_done(ctx);
        Some(unready.unwrap_or_else(|| self.end_repair(ctx, End::DoneBy(order), true)))
    }

    /// Returns a reason until an operator's `done` may end the entry. `done` counts as a healthy answer, but the Node
    /// must be Ready before the uncordon, and an API server must have settled (REP-38).
    fn not_ready_for_done(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        let node = self.node_of(ctx);
        let settling = if ctx.control_plane() { self.settling(ctx, node, false) } else { None };
        let unready = || waiting_for_health(ctx, None, String::new(), Awaited::NodeReady);
        settling.or_else(|| node.is_some_and(|n| !n.ready).then(unready))
    }

    /// Decides once the success command was tried. Ends the repair: `succeeded`, or `failed` if the command failed.
    /// With an unknown outcome the entry waits for an operator.
    fn after_success(&mut self, ctx: EntryContext<'a>, command_spec: CommandSpec<'a>) -> Reason {
        if let Some(reason) = self.retry_unless_back(ctx, command_spec) {
            return reason;
        }
        if let Some(order) = self.order(ctx.id, ctx.mod_revision, Verb::Done) {
            let unready = self.not_ready_for_done(ctx);
            return unready.unwrap_or_else(|| self.finish_repair(ctx, End::DoneBy(order.clone())));
        }
        match self.command_state(ctx.id, command_spec) {
            CommandState::Succeeded(_) => self.finish_repair(ctx, End::Healthy),
            CommandState::Failed(outcome) => {
                self.finish_repair(ctx, End::Failed(format!("the success command: {}", outcome.end)))
            }
            CommandState::TriesLeft(outcome) => {
                let reason = Reason::CommandFailed {
                    end: outcome.end.clone(),
                    stderr: outcome.stderr.clone(),
                    retry: CommandRetry::Scheduled,
                };
                self.retry_by_definition(ctx, command_spec).unwrap_or(reason)
            }
            CommandState::Unknown(attempt) => Reason::OutcomeUnknown { attempt: Some(attempt.id.clone()), until: None },
            CommandState::NoAttempt => Reason::OutcomeUnknown { attempt: None, until: None },
        }
    }

    /// Writes the end. The entry stays in the queue.
    pub(super) fn finish_repair(&mut self, ctx: EntryContext<'a>, end: End) -> Reason {
        self.end_repair(ctx, end, false)
    }

    fn end_repair(&mut self, ctx: EntryContext<'a>, end: End, running: bool) -> Reason {
        let reason = Reason::Working { phase: format!("ends: {}", end.outcome()) };
        let QueueEntry::Repair(entry) = ctx.queue_entry() else { return reason };
        if end == End::Healthy
            && let Some(reason) = self.hooks_before_end(ctx)
        {
            return reason;
        }
        let guard = Guard::of_entry(ctx.id, ctx.mod_revision);
        self.plan(ctx.machine, Some(ctx.id), guard, Effect::Finish { entry, end, running });
        reason
    }

    /// Describes the last answer of the health check. For a healthy API server it names the condition that is still
    /// missing.
    pub(super) fn last_health_text(&self, ctx: EntryContext<'a>) -> String {
        match self.snap.work.get(&ctx.id).and_then(|w| w.check.as_ref()) {
            None => String::new(),
            Some((_, CheckAnswer::Yes)) => {
                let node = self.node_of(ctx);
                let status = self.readiness(ctx, node);
                status.missing.map_or_else(|| "true".to_owned(), |m| format!("true, but {m}"))
            }
            Some((_, answer)) => answer.to_string(),
        }
    }
}

//! Reboot from the power command to its end: boot check, end, and the reasons of a reboot that does not end (REB-38 to
//! REB-43, SAF-31; I14, I35).

use std::sync::Arc;

use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended},
    boot_time::Seconds,
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    fault,
    kube::{NodeRow, Owner},
    names::Address,
    reason::{Awaited, CommandRetry, Reason},
    time::seconds_between,
};
use jiff::Timestamp;

use super::{Effect, End, Guard, Pass, attempts::Until, entry_context::EntryContext};

impl<'a> Pass<'a> {
    /// Moves an entry in `rebooting` on.
    pub(super) fn process_rebooting(&mut self, ctx: EntryContext<'a>) -> Reason {
        let node = self.node_of(ctx);
        self.out.ask_etcd |= self.hosts_voting_member(ctx);
        if let Some(node) = node {
            self.renew_owner(ctx, node);
        }
        if !self.leading() {
            return self
                .leadership_blocker()
                .unwrap_or_else(|| self.waiting_for_boot(ctx, String::new(), Awaited::Check));
        }
        let Some(command_spec) = self.command_spec(ctx) else { return self.no_definition() };
        if let Some((open, until)) = self.running_attempt(ctx.id) {
            // A command of this leader is waited for. For a command of a dead leader an operator may order `done`
            // (REB-49).
            if matches!(until, Until::At(_))
                && let Some(done) = self.called_done(ctx, node)
            {
                return done.map_or_else(|reason| reason, |end| self.end(ctx, node, end, true));
            }
            let reason = self.running_reason(open, until);
            return self.with_host_reason(ctx, reason);
        }
        // The end comes first: a machine that has booted is not rebooted again, whatever the result of its command.
        let attempt = self.attempts_for(ctx.id, command_spec).next_back().and_then(Stored::get);
        if let Some(reason) = self.try_end_reboot(ctx, node, attempt) {
            return reason;
        }
        if let Some(why) = self.withheld_unwind_reason(ctx) {
            return self.unwind_withheld(ctx, why);
        }
        // An order that has to wait does not delay the boot check.
        let ordered = self.retry_unless_back(ctx, command_spec);
        let again = ordered.or_else(|| self.retry_by_definition(ctx, command_spec));
        self.check_boot(ctx);
        let reason = again.unwrap_or_else(|| self.why_not_booted(ctx, attempt));
        self.with_host_reason(ctx, reason)
    }

    /// Ends the entry if its conditions are met.
    fn try_end_reboot(
        &mut self,
        ctx: EntryContext<'a>,
        node: Option<&Arc<NodeRow>>,
        attempt: Option<&Attempt>,
    ) -> Option<Reason> {
        let work = self.snap.work.get(&ctx.id);
        let end = if let (Some(node), Some(uid)) = (node, attempt.and_then(|a| a.node_uid.as_ref()))
            && *uid != node.uid
            && node.ready
        {
            End::Replaced
        } else if let Some(done) = self.called_done(ctx, node) {
            match done {
                Ok(end) => end,
                Err(reason) => return Some(reason),
            }
        } else if matches!(work.and_then(|w| w.check.as_ref()), Some((_, CheckAnswer::Yes)))
            && self.readiness(ctx, node).missing.is_none()
        {
            End::Booted
        } else {
            return None;
        };
        Some(self.end(ctx, node, end, false))
    }

    /// Returns the end by an operator's `done`. `None`: there is no such order. `Ok`: the entry ends. `Err`: it waits
    /// until its Node is Ready (REB-49).
    fn called_done(&self, ctx: EntryContext<'a>, node: Option<&Arc<NodeRow>>) -> Option<Result<End, Reason>> {
        let order = self.order(ctx.id, ctx.mod_revision, Verb::Done)?;
        if node.is_some_and(|n| n.ready) {
            return Some(Ok(End::DoneBy(order.clone())));
        }
        Some(Err(self.waiting_for_boot(ctx, String::new(), Awaited::NodeReady)))
    }

    /// Ends the entry; an API server must have settled first. `running`: a command of the entry may still run. The
    /// cordon then stays until that command has ended or its bound has passed.
    fn end(&mut self, ctx: EntryContext<'a>, node: Option<&Arc<NodeRow>>, end: End, running: bool) -> Reason {
        if ctx.control_plane()
            && let Some(reason) = self.settling(ctx, node, matches!(end, End::Booted))
        {
            return reason;
        }
        if matches!(end, End::Booted | End::Replaced)
            && let Some(reason) =
                self.uncordon_gate(ctx, node.map(AsRef::as_ref)).or_else(|| self.hooks_before_end(ctx))
        {
            return reason;
        }
        let guard = Guard::of_entry(ctx.id, ctx.mod_revision);
        let effect = match node.and_then(|n| n.owner().map(|o| (n, o))) {
            // The machine has recovered, so its cordon must not become an orphaned cordon when the entry is gone. This
            // pass clears the flag on the Node; a later pass removes the entry.
            Some((node, owner)) if owner.taken_over_rebooting => {
                let called_done = matches!(end, End::DoneBy(_));
                let owner = Owner { taken_over_rebooting: false, called_done, since: None, ..owner.clone() };
                let mark = owner.schedulable_before;
                Effect::Stamp { node: Arc::clone(node), owner, cordon: false, mark }
            }
            _ => {
                let by_order = matches!(end, End::DoneBy(_));
                Effect::Remove { end, ready: node.filter(|_| by_order).map(|n| n.name.clone()), running }
            }
        };
        self.plan(ctx.machine, Some(ctx.id), guard, effect);
        Reason::Working { phase: "booted, finishing".to_owned() }
    }

    /// Runs the boot check when it is due, also after a command that failed or has an unknown outcome: the
    /// machine may have booted nevertheless.
    fn check_boot(&mut self, ctx: EntryContext<'a>) {
        let Some(reboot) = self.definition.map(|d| &d.cluster.reboot) else { return };
        let since = ctx.since.unwrap_or(self.now.wall);
        self.plan_boot_check(
            ctx.id,
            ctx.machine,
            ctx.address,
            since,
            reboot,
            Guard::of_entry(ctx.id, ctx.mod_revision),
        );
    }

    /// Plans one boot check when it is due.
    pub(super) fn plan_boot_check(
        &mut self,
        id: EntryId,
        machine: &str,
        address: &Address,
        since: Timestamp,
        reboot: &cketerm_model::cluster::Reboot,
        guard: Guard,
    ) {
        let Some(mut argv) = reboot.boot_check_command.clone().filter(|c| !c.is_empty()) else { return };
        if argv.first().is_some_and(|p| self.snap.engine.missing_programs.contains(p)) {
            return;
        }
        if !self.check_is_due(id, since) {
            return;
        }
        argv.push(address.to_string());
        argv.push(since.as_second().to_string());
        let bound = reboot.command_bound(self.policy.command_cap_seconds);
        self.plan(machine, Some(id), guard, Effect::BootCheck { argv, bound });
    }

    fn why_not_booted(&self, ctx: EntryContext<'a>, attempt: Option<&Attempt>) -> Reason {
        let work = self.snap.work.get(&ctx.id);
        let (last, unavailable) = match work.and_then(|w| w.check.as_ref()) {
            Some((_, CheckAnswer::Unavailable(why))) => (String::new(), Some(why.clone())),
            Some((_, CheckAnswer::No(output))) => (output.clone(), None),
            Some((_, answer @ (CheckAnswer::Failed { .. } | CheckAnswer::TimedOut(_)))) => (answer.to_string(), None),
            Some((_, CheckAnswer::Yes)) => {
                let node = self.snap.node_of(ctx.address);
                let status = self.readiness(ctx, node);
                (status.missing.map_or_else(String::new, |m| format!("true, but {m}")), None)
            }
            None => (String::new(), None),
        };
        if let Some(reason @ Reason::ProgramMissing { .. }) = self.no_command(ctx) {
            return reason;
        }
        if let Some(why) = unavailable {
            return Reason::CheckUnavailable { why };
        }
        match attempt {
            None => Reason::OutcomeUnknown { attempt: None, until: None },
            Some(a) if a.open() => Reason::OutcomeUnknown { attempt: Some(a.id.clone()), until: None },
            Some(a) => match a.outcome.as_ref().filter(|_| !a.succeeded()) {
                Some(o) if matches!(o.end, Ended::Unknown(_)) => {
                    Reason::OutcomeUnknown { attempt: Some(a.id.clone()), until: None }
                }
                Some(o) => {
                    let output = if o.stderr.trim().is_empty() { &o.stdout } else { &o.stderr };
                    Reason::CommandFailed { end: o.end.clone(), stderr: output.clone(), retry: CommandRetry::Never }
                }
                None => self.waiting_for_boot(ctx, last, Awaited::Check),
            },
        }
    }

    fn waiting_for_boot(&self, ctx: EntryContext<'_>, last: String, awaited: Awaited) -> Reason {
        let since = ctx.since.unwrap_or(self.now.wall);
        let stuck = seconds_between(since, self.now.wall) >= Seconds::from(self.policy.stuck_seconds);
        fault!(StuckUnreported => stuck = false);
        Reason::WaitingForBoot { since, last, stuck, awaited }
    }
}

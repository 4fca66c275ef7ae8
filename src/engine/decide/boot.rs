//! From the power command to the end: attempts, retries, boot check, settling (spec/safety.md, Attempts, Ends and
//! starts of API servers; spec/reboot.md, Decisions 1; I14, I25, I35).

use std::sync::Arc;

use jiff::Timestamp;

use super::{Effect, End, Guard, Member, Pass, gates::to_seconds};
use crate::{
    clock::Now,
    engine::snapshot::{CheckAnswer, Snapshot, Work},
    model::{
        attempt::{Attempt, Ended},
        entry::{EntryId, Stored},
        kube::{NodeRow, Owner},
        ours::Verb,
        policy::WorkerCompletion,
        reason::Reason,
        reboot::RebootStatus,
        time::{after, seconds_between},
    },
    mutation::{Mutation, on},
};

/// Seconds between boot checks while the reboot is young, and later.
const CHECK_SOON: f64 = 1.0;
const CHECK_LATER: f64 = 5.0;
/// A reboot is young for so many seconds.
const YOUNG: f64 = 60.0;
/// Seconds before a command that we withheld is tried again.
const WITHHELD: i64 = 5;
/// A control plane's probe counts as good for so long, in seconds (spec/safety.md, Ends and starts).
const PROBE_FRESH: f64 = 60.0;
/// What the helper may need beyond a command's bound to end its whole group, in seconds.
const KILLING: f64 = 5.0;

/// Whether an open attempt's command may still be running, and until when (boot-time seconds) that must be assumed:
/// under us as long as it is in flight; under a dead leader until TTL + TTL/12 + the command's bound have passed since
/// we won.
pub(super) fn may_still_run(snap: &Snapshot, attempt: &Attempt, now: Now) -> Option<f64> {
    if !attempt.open() {
        return None;
    }
    if snap.in_flight.values().any(|f| f.attempt.as_deref() == Some(&attempt.id)) {
        return Some(f64::INFINITY);
    }
    let Some(leading) = &snap.engine.leading else { return Some(f64::INFINITY) };
    if on(Mutation::SecondRun) {
        return None;
    }
    let seconds = |n: u64| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let ttl = seconds(snap.engine.ttl);
    let until = leading.since + ttl + ttl / 12.0 + seconds(attempt.bound_seconds) + KILLING;
    (now.boot.as_secs_f64() < until).then_some(until)
}

/// Whether the entry is there and not cancelled; one that cannot be read counts as there.
pub(super) fn has_live_entry(snap: &Snapshot, id: EntryId) -> bool {
    let stored = snap.store.reboots.entries.get(&id.index);
    stored.is_some_and(|s| s.get().is_none_or(|e| e.status != RebootStatus::Cancelled))
}

/// Booted, Ready and, for API servers, answering.
pub(crate) struct Soundness {
    /// What is missing; none = all good.
    pub missing: Option<String>,
}

impl<'a> Pass<'a> {
    /// An entry in `rebooting`.
    pub(super) fn go_on_rebooting(&mut self, member: Member<'a>) {
        let reason = self.after_power(member);
        self.reason(member.id, reason);
    }

    fn after_power(&mut self, member: Member<'a>) -> Reason {
        let node = self.snap.node_of(&member.entry.node);
        if let Some(node) = node {
            self.restamp(member, node);
        }
        if !self.leading() {
            return self.not_ours().unwrap_or_else(|| self.waiting_for_boot(member, String::new()));
        }
        let last = self.snap.store.attempts_of(member.id).next_back();
        let attempt = last.and_then(Stored::get);
        // Nothing happens to a machine whose command may still be running.
        if let Some(open) = attempt
            && let Some(until) = may_still_run(self.snap, open, self.now)
        {
            return self.running(open, until);
        }
        // First the end: a machine that has booted is not rebooted again, whatever its command said.
        if let Some(reason) = self.finish(member, node, attempt) {
            return reason;
        }
        // An order that has to wait does not keep the boot check from being asked.
        if let Some(reason) = self.retry_ordered(member, node, last) {
            self.check_boot(member);
            return reason;
        }
        if let Some(reason) = self.retry_by_definition(member, node, last) {
            self.check_boot(member);
            return reason;
        }
        self.check_boot(member);
        self.why_not_booted(member, attempt)
    }

    fn running(&mut self, open: &Attempt, until: f64) -> Reason {
        if until.is_finite() {
            self.wake_at(until);
            let at = after(self.now.wall, to_seconds(until - self.boot()));
            return Reason::OutcomeUnknown { attempt: Some(open.id.clone()), until: Some(at) };
        }
        Reason::CommandRunning { attempt: open.id.clone(), since: open.start }
    }

    /// A person's `retry`: one more command, whatever the count.
    fn retry_ordered(
        &mut self,
        member: Member<'a>,
        node: Option<&Arc<NodeRow>>,
        last: Option<&Stored<Attempt>>,
    ) -> Option<Reason> {
        let order = self.order_of(member, Verb::Retry)?.clone();
        let reason = Reason::Working { phase: "runs the reboot command again, as ordered".to_owned() };
        self.run_again(member, node, last, Some(order)).or(Some(reason))
    }

    /// `command_retries` more commands, `command_interval` apart, each only after a recorded outcome of the one
    /// before. One whose outcome is unknown is never run again by itself (I25).
    fn retry_by_definition(
        &mut self,
        member: Member<'a>,
        node: Option<&Arc<NodeRow>>,
        last: Option<&Stored<Attempt>>,
    ) -> Option<Reason> {
        let reboot = &self.definition?.cluster.reboot;
        let attempt = last?.get()?;
        if on(Mutation::SecondRun) && attempt.open() {
            return self.run_again(member, node, last, None);
        }
        let outcome = attempt.outcome.as_ref()?;
        let unknown = matches!(outcome.end, Ended::Unknown(_));
        let all = self.snap.store.attempts_of(member.id).filter_map(Stored::get);
        let lease = self.snap.engine.lease;
        let counted = |a: &&Attempt| !a.withheld() && (!on(Mutation::RetriesInMemory) || a.lease == lease);
        let tries = u32::try_from(all.filter(counted).count()).unwrap_or(u32::MAX);
        let spent = tries >= reboot.tries() || attempt.ordered_by.is_some();
        if attempt.succeeded() || unknown || (spent && !attempt.withheld()) {
            return None;
        }
        // Disabled: no power command. What is rebooting is left to its boot check.
        if !self.snap.store.reboots.switch.enabled() {
            return None;
        }
        // What we withheld ourselves is tried again soon, but not in a circle.
        let floor = if attempt.withheld() { WITHHELD } else { 0 };
        let again = after(outcome.at, reboot.command_interval.unwrap_or(0).max(floor));
        let how = outcome.end.to_string();
        let reason = Reason::CommandFailed { how: format!("{how}, tries again"), stderr: outcome.stderr.clone() };
        if self.now.wall < again {
            self.wake_at_wall(again);
            return Some(reason);
        }
        // The boot check is asked once more before the command, unless nothing was done to the machine.
        let checked = self.snap.work.get(&member.id).is_some_and(|w| w.check.is_some());
        if attempt.began() && !checked {
            return Some(reason);
        }
        self.run_again(member, node, last, None).or(Some(reason))
    }

    /// Plans the next command, or says why it may not run now.
    fn run_again(
        &mut self,
        member: Member<'a>,
        node: Option<&Arc<NodeRow>>,
        last: Option<&Stored<Attempt>>,
        order: Option<Stored<crate::model::ours::Order>>,
    ) -> Option<Reason> {
        let reboot = &self.definition?.cluster.reboot;
        if !self.snap.store.reboots.switch.enabled() {
            return Some(Reason::QueueDisabled);
        }
        if let Some(reason) = self.stale().or_else(|| self.no_command()) {
            return Some(reason);
        }
        if let Some((until, why)) = self.snap.work.get(&member.id).and_then(|w| w.pause.clone())
            && until > self.boot()
        {
            self.wake_at(until);
            return Some(Reason::EffectFailed { what: "the reboot command".to_owned(), why });
        }
        let Some(node) = node else { return self.wrong_node(member, None) };
        // Uncordoned meanwhile: pods may be on it again, and nothing switches it off under them.
        if !node.unschedulable || node.owner().is_none_or(|o| o.entry != member.id) {
            let since = self.snap.work.get(&member.id).and_then(|w| w.drain.uncordoned);
            return Some(Reason::UncordonedByOther { since: since.unwrap_or(self.now.wall) });
        }
        if let Some(reason) = self.wrong_node(member, Some(node)) {
            return Some(reason);
        }
        if self.policy.unreachable_rule == crate::model::policy::UnreachableRule::Older
            && let Some(gate) = self.unreachable_gate()
        {
            return Some(gate);
        }
        let mut attempt = self.next_attempt(member, reboot, node);
        // The boot id that counts is the one from before the first command.
        if let Some(before) = last.and_then(Stored::get) {
            attempt.boot_id.clone_from(&before.boot_id);
            attempt.forced = before.forced;
        }
        attempt.ordered_by = order.as_ref().and_then(Stored::get).map(|o| {
            let why = o.reason.as_ref().map_or_else(String::new, |r| format!(": {r}"));
            format!("{}{why}", o.who)
        });
        // What was ordered and then withheld is still what that person ordered.
        let withheld = last.and_then(Stored::get).filter(|a| a.withheld());
        attempt.ordered_by = attempt.ordered_by.or_else(|| withheld.and_then(|a| a.ordered_by.clone()));
        let guard = Guard::starting(member.id, member.stored.mod_revision, &self.snap.store);
        let effect = Effect::RunAgain {
            entry: member.entry.clone(),
            node: Arc::clone(node),
            before: last.cloned(),
            order,
            attempt,
        };
        self.plan(member.node.node_name(), Some(member.id), guard, effect);
        None
    }

    /// The end, if it has come.
    fn finish(&mut self, member: Member<'a>, node: Option<&Arc<NodeRow>>, attempt: Option<&Attempt>) -> Option<Reason> {
        let work = self.snap.work.get(&member.id);
        let end = if let (Some(node), Some(uid)) = (node, attempt.and_then(|a| a.node_uid.as_ref()))
            && *uid != node.uid
            && node.ready
        {
            End::Replaced
        } else if let Some(order) = self.order(member.id, member.stored.mod_revision, Verb::Done) {
            // Treated as booted; the Node must still be Ready before the uncordon.
            if !node.is_some_and(|n| n.ready) {
                let since = member.entry.last_transition_time.unwrap_or(self.now.wall);
                return Some(Reason::WaitingForBoot {
                    since,
                    last: "done by order, but the Node is not Ready".to_owned(),
                    stuck: false,
                });
            }
            End::DoneBy(order.clone())
        } else if matches!(work.and_then(|w| w.check.as_ref()), Some((_, CheckAnswer::Yes)))
            && soundness(self.snap, member.id, member.node.control_plane, node, self.now).missing.is_none()
        {
            End::Booted
        } else {
            return None;
        };
        if member.node.control_plane
            && let Some(reason) = self.settling(member, node, work, &end)
        {
            return Some(reason);
        }
        let guard = Guard::of_entry(member.id, member.stored.mod_revision);
        let effect = match node.and_then(|n| n.owner().map(|o| (n, o))) {
            // It has come back: its cordon is no orphan's when the entry is gone.
            Some((node, owner)) if owner.taken_over_rebooting => {
                let owner = Owner { taken_over_rebooting: false, since: None, ..owner.clone() };
                let mark = owner.schedulable_before;
                Effect::Stamp { node: Arc::clone(node), owner, cordon: false, mark }
            }
            _ => Effect::Remove { end },
        };
        self.plan(member.node.node_name(), Some(member.id), guard, effect);
        Some(Reason::Working { phase: "booted, ends".to_owned() })
    }

    /// An API server's reboot ends only when its own probe has been good for `settle_seconds`, together with boot
    /// check, boot id and Ready, without a break.
    fn settling(
        &mut self,
        member: Member<'a>,
        node: Option<&Arc<NodeRow>>,
        work: Option<&Work>,
        end: &End,
    ) -> Option<Reason> {
        let name = member.node.node_name().to_owned();
        #[allow(clippy::cast_precision_loss)] // seconds
        let settle = self.policy.settle_seconds as f64;
        let since = if matches!(end, End::Booted) {
            work.and_then(|w| w.sound_since).unwrap_or(self.boot())
        } else {
            // By order or by a new UID: boot check and boot id do not count, Ready and the probe do.
            let not_answering = if node.is_some_and(|n| n.ready) {
                self.probe_good(&member.entry.node)
            } else {
                Some("the Node is not Ready".to_owned())
            };
            if let Some(missing) = not_answering {
                return Some(Reason::Settling { node: name, until: None, missing });
            }
            let good_since = self.snap.probes.get(&member.entry.node).and_then(|p| p.good_since);
            if self.policy.control_plane_probe == "node" {
                self.boot() - settle
            } else {
                good_since.unwrap_or(self.boot())
            }
        };
        let until = since + settle;
        if self.boot() < until {
            self.wake_at(until);
            let at = after(self.now.wall, to_seconds(until - self.boot()));
            return Some(Reason::Settling {
                node: name,
                until: Some(at),
                missing: "its probe is good and must stay so".to_owned(),
            });
        }
        None
    }

    fn probe_good(&self, address: &str) -> Option<String> {
        probe_missing(self.snap, address, &self.policy.control_plane_probe, self.now)
    }

    /// Runs the boot check when it is due: also after a command that failed or is of unknown outcome, for it may
    /// settle that.
    fn check_boot(&mut self, member: Member<'a>) {
        let Some(reboot) = self.definition.map(|d| &d.cluster.reboot) else { return };
        let since = member.entry.last_transition_time.unwrap_or(self.now.wall);
        self.plan_check(
            member.id,
            member.node.node_name(),
            &member.entry.node,
            since,
            reboot,
            Guard::of_entry(member.id, member.stored.mod_revision),
        );
    }

    /// One boot check, at most every second in the first minute and every five seconds later.
    pub(super) fn plan_check(
        &mut self,
        id: EntryId,
        machine: &str,
        address: &str,
        since: Timestamp,
        reboot: &crate::model::cluster::Reboot,
        guard: Guard,
    ) {
        let Some(mut argv) = reboot.boot_check_command.clone().filter(|c| !c.is_empty()) else { return };
        if argv.first().is_some_and(|p| self.snap.engine.missing_programs.contains(p)) {
            return;
        }
        let every = if seconds_between(since, self.now.wall) < YOUNG { CHECK_SOON } else { CHECK_LATER };
        let due = self.snap.work.get(&id).and_then(|w| w.check.as_ref()).map_or(0.0, |(at, _)| at + every);
        if self.boot() < due {
            self.wake_at(due);
            return;
        }
        argv.push(address.to_owned());
        argv.push(since.as_second().to_string());
        let bound = reboot.command_bound(self.policy.command_cap_seconds);
        self.plan(machine, Some(id), guard, Effect::BootCheck { argv, bound });
    }

    fn why_not_booted(&self, member: Member<'a>, attempt: Option<&Attempt>) -> Reason {
        let work = self.snap.work.get(&member.id);
        let (last, unavailable) = match work.and_then(|w| w.check.as_ref()) {
            Some((_, CheckAnswer::Unavailable(why))) => (String::new(), Some(why.clone())),
            Some((_, CheckAnswer::No(text))) => (text.clone(), None),
            Some((_, CheckAnswer::Yes)) => {
                let node = self.snap.node_of(&member.entry.node);
                let sound = soundness(self.snap, member.id, member.node.control_plane, node, self.now);
                (sound.missing.map_or_else(String::new, |m| format!("true, but {m}")), None)
            }
            None => (String::new(), None),
        };
        if let Some(reason @ Reason::ProgramMissing { .. }) = self.no_command() {
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
                    let said = if o.stderr.trim().is_empty() { &o.stdout } else { &o.stderr };
                    Reason::CommandFailed { how: o.end.to_string(), stderr: said.clone() }
                }
                None => self.waiting_for_boot(member, last),
            },
        }
    }

    fn waiting_for_boot(&self, member: Member<'_>, last: String) -> Reason {
        let since = member.entry.last_transition_time.unwrap_or(self.now.wall);
        #[allow(clippy::cast_precision_loss)] // seconds
        let stuck = seconds_between(since, self.now.wall) >= self.policy.stuck_seconds as f64;
        Reason::WaitingForBoot { since, last, stuck }
    }
}

/// Whether a machine that was rebooted is sound again: a new boot id (where the one before was recorded) and Ready for
/// API servers and under policy `boot_id`; the probe good for API servers. The boot check is judged apart.
pub(crate) fn soundness(
    snap: &Snapshot,
    id: EntryId,
    control_plane: bool,
    node: Option<&Arc<NodeRow>>,
    now: Now,
) -> Soundness {
    let policy = snap.store.policy();
    if !control_plane && policy.worker_completion == WorkerCompletion::BootCheck {
        return Soundness { missing: None };
    }
    let missing = back_again(snap, id, node).or_else(|| {
        let address = snap.store.reboots.entries.get(&id.index)?.get()?.node.clone();
        control_plane.then(|| probe_missing(snap, &address, &policy.control_plane_probe, now)).flatten()
    });
    Soundness { missing }
}

/// New boot id, where the one before was recorded, and Ready; else what is missing.
pub(super) fn back_again(snap: &Snapshot, id: EntryId, node: Option<&Arc<NodeRow>>) -> Option<String> {
    let Some(node) = node else { return Some("the Node is gone".to_owned()) };
    let recorded = recorded_boot_id(snap, id, node);
    if recorded.is_some_and(|before| before == node.boot_id) {
        return Some("the Node still has the boot id from before".to_owned());
    }
    (!node.ready).then(|| "the Node is not Ready".to_owned())
}

/// The boot id from before the first command, where it was recorded.
pub(super) fn recorded_boot_id(snap: &Snapshot, id: EntryId, node: &NodeRow) -> Option<String> {
    let attempt = snap.store.attempts_of(id).next().and_then(Stored::get);
    attempt
        .and_then(|a| a.boot_id.clone())
        .or_else(|| node.owner().filter(|o| o.entry == id && !o.taken_over_rebooting).map(|o| o.boot_id.clone()))
        .filter(|b| !b.is_empty())
}

/// What is wrong with one control plane's probe; none = good now, or not asked for by the policy.
pub(super) fn probe_missing(snap: &Snapshot, address: &str, policy: &str, now: Now) -> Option<String> {
    if policy == "node" {
        return None;
    }
    match snap.probes.get(address) {
        None => Some("not probed yet".to_owned()),
        Some(probe) => match (&probe.error, probe.last_good) {
            (Some(error), _) => Some(format!("{} answers {error}", probe.url)),
            (None, Some(at)) if now.boot.as_secs_f64() - at <= PROBE_FRESH => None,
            (None, _) => Some(format!("{} gave no good answer for 60 s", probe.url)),
        },
    }
}

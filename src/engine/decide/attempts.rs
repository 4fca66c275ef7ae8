//! Commands as attempts, for both queues: what may still run, what may be run again, and when (spec/safety.md, Attempts;
//! I25).

use super::{
    Effect, Guard, Pass,
    entry_context::{EntryContext, EntryKind, Task},
    recheck::Recheck,
};
use crate::{
    clock::Now,
    engine::snapshot::Snapshot,
    model::{
        attempt::{Attempt, Ended, Outcome, attempt_id},
        cketerm_records::{Order, Verb},
        entry::{EntryId, QueueKind, Stored},
        kube::NodeRow,
        policy::UnreachableRule,
        reason::{Reason, TRIES_AGAIN},
        reboot::RebootStatus,
        time::after,
    },
    mutation::{Mutation, on},
};

/// Seconds before a command that we withheld is tried again.
const WITHHELD: i64 = 5;
/// Tries of a command that are kept when a person orders another one, or as many as the definition allows.
const KEPT_TRIES: usize = 32;
/// Attempts that go in one transaction.
const FOLDED_AT_ONCE: usize = 32;
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

/// Whether the entry is there and goes on: a reboot that is not cancelled, a repair that is neither finished nor deleted;
/// one that cannot be read counts as there.
pub(super) fn has_live_entry(snap: &Snapshot, id: EntryId) -> bool {
    let store = &snap.store;
    match id.queue {
        QueueKind::Reboot => {
            let stored = store.reboots.entries.get(&id.index);
            stored.is_some_and(|s| s.get().is_none_or(|e| e.status != RebootStatus::Cancelled))
        }
        QueueKind::Repair => {
            let stored = store.repairs.entries.get(&id.index);
            stored.is_some_and(|s| s.get().is_none_or(crate::model::repair::RepairEntry::unfinished))
        }
    }
}

/// Whether the entry's key is there, whatever it says.
pub(super) fn has_entry(snap: &Snapshot, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => snap.store.reboots.entries.contains_key(&id.index),
        QueueKind::Repair => snap.store.repairs.entries.contains_key(&id.index),
    }
}

/// Whether a command of this entry may have done something to its machine: a repair's success command does nothing to it.
pub(super) fn commanded(snap: &Snapshot, id: EntryId) -> bool {
    snap.store.attempts_of(id).filter_map(Stored::get).any(|a| a.began() && !a.success)
}

/// What became of a command, and what comes of that.
pub(super) enum After<'s> {
    /// No attempt of ours: another program ran it, if anybody did.
    NoAttempt,
    /// Nobody knows how it ended, and nobody will.
    Unknown(&'s Attempt),
    /// It ended with 0.
    Succeeded(&'s Outcome),
    /// It failed, and no try is left.
    Failed(&'s Outcome),
    /// It failed, or was withheld, and a try is left.
    TriesLeft(&'s Outcome),
}

impl<'a> Pass<'a> {
    /// The attempts of one command of an entry: of its step, or of its success command.
    pub(super) fn attempts_for(
        &self,
        id: EntryId,
        task: Task<'_>,
    ) -> impl DoubleEndedIterator<Item = &'a Stored<Attempt>> + use<'a> {
        let (step, success) = (task.step, task.success);
        let snap = self.snap;
        snap.store
            .attempts_of(id)
            .filter(move |s| s.get().is_some_and(|a| a.success == success && (success || a.step == step)))
    }

    /// Why the command that we withheld takes its drain back: the machine's window has ended, a freeze has begun, the queue
    /// is disabled, or a person holds it. Nothing was done to the machine, by any step, so that it need not stand empty until
    /// it may (I8).
    pub(super) fn taken_back(&self, case: EntryContext<'a>) -> Option<Reason> {
        let attempts = || self.snap.store.attempts_of(case.id).filter_map(Stored::get);
        let nothing_done = attempts().next_back().is_some_and(Attempt::withheld) && !attempts().any(Attempt::began);
        // A first command that a person ordered: another program may have run one before us.
        let ours = attempts().next().is_some_and(|a| a.ordered_by.is_none());
        // One that cannot be read may have done anything.
        let read = self.snap.store.attempts_of(case.id).all(|stored| stored.get().is_some());
        if !nothing_done || !ours || !read || !self.leading() {
            return None;
        }
        let disabled = || (!self.switch(case.queue()).enabled()).then_some(Reason::QueueDisabled);
        self.barred(case).or_else(|| self.on_hold(case)).or_else(disabled)
    }

    /// An attempt of this entry that may still be running, and until when.
    pub(super) fn running_attempt(&self, id: EntryId) -> Option<(&'a Attempt, f64)> {
        let snap = self.snap;
        let mut attempts = snap.store.attempts_of(id).filter_map(Stored::get);
        attempts.find_map(|a| may_still_run(snap, a, self.now).map(|until| (a, until)))
    }

    /// Nothing happens to a machine whose command may still be running.
    pub(super) fn running(&mut self, open: &Attempt, until: f64) -> Reason {
        if until.is_finite() {
            self.wake_at(until);
            let at = after(self.now.wall, self.seconds_until(until));
            return Reason::OutcomeUnknown { attempt: Some(open.id.clone()), until: Some(at) };
        }
        Reason::CommandRunning { attempt: open.id.clone(), since: open.start }
    }

    /// What became of a command, over all leaders: counters come from the attempts, never from memory (I25).
    pub(super) fn what_came_of(&self, id: EntryId, task: Task<'_>) -> After<'a> {
        let Some(attempt) = self.attempts_for(id, task).next_back().and_then(Stored::get) else {
            return After::NoAttempt;
        };
        let Some(outcome) = attempt.outcome.as_ref() else { return After::Unknown(attempt) };
        // Left by an entry of this index that had ended, and that somebody put back.
        if attempt.done_by.is_some() {
            return After::Unknown(attempt);
        }
        if attempt.succeeded() {
            return After::Succeeded(outcome);
        }
        if matches!(outcome.end, Ended::Unknown(_)) {
            return After::Unknown(attempt);
        }
        let lease = self.snap.engine.lease;
        let counted = |a: &&Attempt| !a.withheld() && (!on(Mutation::RetriesInMemory) || a.lease == lease);
        let tries = self.attempts_for(id, task).filter_map(Stored::get).filter(counted).count();
        let spent = u32::try_from(tries).unwrap_or(u32::MAX) >= task.tries || attempt.ordered_by.is_some();
        if spent && !attempt.withheld() { After::Failed(outcome) } else { After::TriesLeft(outcome) }
    }

    /// A person's `retry`: one more command, whatever the count.
    pub(super) fn retry_ordered(&mut self, case: EntryContext<'a>, task: Task<'a>) -> Option<Reason> {
        let order = self.order_of(case, Verb::Retry)?.clone();
        let reason = Reason::Working { phase: format!("runs {} again, as ordered", task.name) };
        self.run_again(case, task, Some(order)).or(Some(reason))
    }

    /// `command_retries` more commands, `command_interval` apart, each only after a recorded outcome of the one
    /// before. One whose outcome is unknown is never run again by itself (I25).
    pub(super) fn retry_by_definition(&mut self, case: EntryContext<'a>, task: Task<'a>) -> Option<Reason> {
        let last = self.attempts_for(case.id, task).next_back()?.get()?;
        if on(Mutation::SecondRun) && last.open() {
            return self.run_again(case, task, None);
        }
        let After::TriesLeft(outcome) = self.what_came_of(case.id, task) else { return None };
        // Disabled: no command, but for the one that ends a repair.
        if !task.success && !self.switch(case.queue()).enabled() {
            return None;
        }
        // Nothing was done to the machine by what we withheld: it need not wait for `command_interval`.
        let again = after(outcome.at, if last.withheld() { WITHHELD } else { task.interval });
        let how = outcome.end.to_string();
        let reason = Reason::CommandFailed { how: format!("{how}, {TRIES_AGAIN}"), stderr: outcome.stderr.clone() };
        if self.now.wall < again {
            self.wake_at_wall(again);
            return Some(reason);
        }
        // The check is asked once more before the command, unless nothing was done to the machine.
        let checked = self.snap.work.get(&case.id).is_some_and(|w| w.check.is_some());
        if last.began() && !checked {
            return Some(reason);
        }
        self.run_again(case, task, None).or(Some(reason))
    }

    /// Plans the next command, or says why it may not run now.
    pub(super) fn run_again(
        &mut self,
        case: EntryContext<'a>,
        task: Task<'a>,
        order: Option<Stored<Order>>,
    ) -> Option<Reason> {
        if let Some(reason) = self.paused(case.id, task.name) {
            return Some(reason);
        }
        let node = self.node_of(case);
        // The success command is the end of a repair, which goes on while the queue is disabled.
        let drained = !task.success && self.needs_drain(case);
        let barred = if task.success {
            self.program_missing(task.argv)
        } else if !self.switch(case.queue()).enabled() {
            Some(Reason::QueueDisabled)
        } else {
            let wrong = || self.wrong_node(case, node.map(AsRef::as_ref));
            let unwell = || self.others_unhealthy(case);
            let barred = self.stale_for(case).or_else(|| self.barred(case));
            barred.or_else(|| self.no_command(case)).or_else(wrong).or_else(unwell)
        };
        if barred.is_some() {
            return barred;
        }
        // Uncordoned meanwhile: pods may be on it again, and nothing switches it off under them.
        if drained && node.is_some_and(|n| !n.unschedulable || n.owner().is_none_or(|o| o.entry != case.id)) {
            let since = self.snap.work.get(&case.id).and_then(|w| w.drain.uncordoned);
            return Some(Reason::UncordonedByOther { since: since.unwrap_or(self.now.wall) });
        }
        if !case.is_repair()
            && self.policy.unreachable_rule == UnreachableRule::All
            && let Some(gate) = self.unreachable_gate()
        {
            return Some(gate);
        }
        if !task.success
            && let Err(barred) = self.etcd_before_power(case)
        {
            return Some(barred);
        }
        let before = self.attempts_for(case.id, task).next_back();
        let forced = before.and_then(Stored::get).is_some_and(|before| before.forced);
        let fresh = match self.recheck(case, node.filter(|_| !task.success), drained, forced) {
            Recheck::Allows(fresh) => fresh,
            Recheck::Asks(reason) | Recheck::Waits(reason) => return Some(reason),
        };
        let found = fresh.as_ref().and_then(|f| f.node.as_deref());
        let mut attempt = self.next_attempt(case, task, found.or(node.map(AsRef::as_ref)));
        attempt.forced = forced;
        attempt.ordered_by = order.as_ref().and_then(Stored::get).map(|o| {
            let why = o.reason.as_ref().map_or_else(String::new, |r| format!(": {r}"));
            format!("{}{why}", o.who)
        });
        // What was ordered and then withheld is still what that person ordered.
        let withheld = before.and_then(Stored::get).filter(|a| a.withheld());
        attempt.ordered_by = attempt.ordered_by.or_else(|| withheld.and_then(|a| a.ordered_by.clone()));
        let folded = self.folded(case.id, task, order.is_some());
        let gone = folded.iter().filter_map(Stored::get).map(|a| a.folded.saturating_add(1));
        attempt.folded = gone.fold(0, u32::saturating_add);
        let guard = if task.success { Guard::of_entry(case.id, case.mod_revision) } else { self.disrupting(case) };
        let effect = Effect::RunAgain { entry: case.owned(), fresh, before: before.cloned(), folded, order, attempt };
        self.plan(case.machine, Some(case.id), guard, effect);
        None
    }

    /// Attempts of a command that are not needed any more once another one is written, so that an entry that is tried for weeks
    /// does not grow without end (I49):
    ///
    /// * those that we withheld, which never count, but for the entry's first one, from which a drain is taken back;
    /// * where a person orders the next one, the oldest but for the first. The tries of the definition are over for good by such
    ///   an order ([`Pass::what_came_of`]); as many as it allows are kept all the same, because a program that counts the keys
    ///   would run the command once more; and of what is known of the machine nothing is lost ([`Attempt::tells_the_same`]).
    fn folded(&self, id: EntryId, task: Task<'_>, ordered: bool) -> Vec<Stored<Attempt>> {
        let first = self.snap.store.attempts_of(id).next().and_then(Stored::get).map(|a| a.number);
        let all = self.attempts_for(id, task).filter(|s| s.get().is_some_and(|a| Some(a.number) != first));
        let all: Vec<_> = all.collect();
        let withheld = |s: &&&Stored<Attempt>| s.get().is_some_and(Attempt::withheld);
        let mut folded: Vec<Stored<Attempt>> = all.iter().filter(withheld).map(|s| Stored::clone(s)).collect();
        if ordered {
            let counted: Vec<_> = all.iter().filter(|s| !withheld(s)).collect();
            let tries = usize::try_from(task.tries).unwrap_or(usize::MAX);
            let (old, kept) = counted.split_at(counted.len().saturating_sub(tries.max(KEPT_TRIES)));
            let told = |a: &Attempt| kept.iter().filter_map(|s| s.get()).any(|newer| a.tells_the_same(newer));
            folded.extend(old.iter().filter(|s| s.get().is_some_and(told)).map(|s| Stored::clone(s)));
        }
        folded.truncate(FOLDED_AT_ONCE);
        folded
    }

    /// Whether the step that is next drains a Node first.
    pub(super) fn needs_drain(&self, case: EntryContext<'a>) -> bool {
        match case.of {
            EntryKind::Reboot(_) => true,
            EntryKind::Repair { operation, step, .. } => {
                let asked = operation.step(step).is_some_and(|s| s.need_drain.unwrap_or(false));
                asked && self.node_of(case).is_some()
            }
        }
    }

    /// The attempt that is written before the command starts.
    pub(super) fn next_attempt(&self, case: EntryContext<'_>, task: Task<'_>, node: Option<&NodeRow>) -> Attempt {
        // By the key, so that one that cannot be read is not written over.
        let all = self.snap.store.attempts.range((case.id, 0)..=(case.id, u32::MAX));
        let number = all.into_iter().next_back().map_or(1, |((_, last), _)| last.saturating_add(1));
        let mut argv = task.argv.to_vec();
        argv.push(case.address.to_owned());
        let (machine_type, operation) = match case.of {
            EntryKind::Reboot(_) => (None, None),
            EntryKind::Repair { entry, .. } => (Some(entry.machine_type.clone()), Some(entry.operation.clone())),
        };
        Attempt {
            id: attempt_id(case.id, number),
            entry: case.id,
            number,
            step: task.step,
            success: task.success,
            machine_type,
            operation,
            address: case.address.to_owned(),
            node: node.map(|n| n.name.clone()),
            control_plane: case.control_plane(),
            lease: self.snap.engine.lease,
            host: self.snap.engine.host.clone(),
            argv,
            bound_seconds: task.bound,
            boot_id: None,
            not_ready: false,
            node_uid: node.map(|n| n.uid.clone()),
            start: self.now.wall,
            forced: false,
            ordered_by: None,
            done_by: None,
            folded: 0,
            outcome: None,
        }
        .met(node)
    }
}

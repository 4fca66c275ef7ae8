//! Conditions of the table: a rule, what it asks of a step, and the question to the state before it.

use std::collections::BTreeSet;

use cketerm_model::{
    attempt::{Attempt, Ended},
    cketerm_records::Verb,
    cluster::Step as RepairStep,
    entry::{EntryId, QueueKind},
    policy::{ApiServerOrder, UnreachableRule, WorkerCompletion},
};
use jiff::{SignedDuration, Timestamp};

use crate::state::{Entry, Fact, Machine, Place, State, Step, unknown_if};

/// One condition of a row.
#[derive(Debug)]
pub struct Condition {
    /// The rule that says so.
    pub rule: &'static str,
    /// The condition in words.
    pub says: &'static str,
    /// Whether it is so. A step is refused only if it definitely is not.
    pub holds: fn(&State, &Step) -> Fact,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        (self.rule, self.says) == (other.rule, other.says)
    }
}

impl Eq for Condition {}

/// Seconds after its time limit in which the command of a dead leader may still run (SAF-16).
const KILL_TIME: u64 = 5;
/// Seconds after its time limit by which a leader has surely recorded the end of its own command.
const RECORDED: u64 = 120;
/// Seconds by which the wait for the command of a dead leader may seem shorter.
const WAIT_TOLERANCE: f64 = 1.0;
/// Seconds by which a watch may seem shorter: times are cut to whole seconds, and copies lag.
const WATCH_TOLERANCE: f64 = 2.0;

macro_rules! conditions {
    ($($name:ident $rule:literal $says:literal: $holds:expr;)*) => {
        $(pub(crate) const $name: Condition = Condition { rule: $rule, says: $says, holds: $holds };)*
    };
}

conditions! {
    // which entry may begin
    ENABLED "REB-50, REP-11" "its queue is enabled": |s, t| Some(!s.is_disabled(t.entry.queue));
    MEMBER "REB-8" "its machine is a member": |s, t| Some(s.api_server(t.address()).is_some());
    COMMANDS "REB-11" "the definition has both commands": |s, _| s.cluster.as_ref().map(|c| {
        c.reboot.reboot_command.is_some() && c.reboot.boot_check_command.is_some()
    });
    NOT_HELD "REB-48" "nobody holds it": |s, t| not(s.order(t.entry, Verb::Hold));
    NOT_PAUSED "REB-55" "its batch is neither paused nor unreadable": |s, t| {
        Some(t.change.0.place != Place::Queued || !s.paused.contains(&t.entry))
    };
    RESTED "REB-46, REP-41" "its backoff is over, or it is forced": |s, t| match t.change.0.backoff.1 {
        None => Some(true),
        Some(until) => either(Some(later(s.now?, s.skew) >= until), s.order(t.entry, Verb::Force)),
    };
    MACHINE_FREE "REB-11, REP-9, REP-19" "no other entry works on its machine": |s, t| {
        Some(!s.in_progress().any(|(id, e)| id != t.entry && e.address == t.address()))
    };
    FIRST "REB-9" "it is the first entry of its machine": |s, t| {
        let mut own = s.entries.range(EntryId { index: 0, ..t.entry }..t.entry);
        let waits = |e: &Entry| e.place == Place::Queued && e.address == t.address();
        Some(!own.any(|(id, e)| waits(e) && s.steady.contains(id)))
    };
    NO_COMMAND "REB-11, SAF-16" "no open command works on its machine": |s, t| {
        // an ordered retry closes the attempt before it in the same transaction
        let closed = |a: &Attempt| ordered(t) && a.entry == t.entry;
        let is_open = |a: &Attempt| a.outcome.is_none() && a.address == *t.address() && !closed(a);
        let mut open = s.attempts.iter().filter(|(_, a)| is_open(a));
        let (now, (lease, since)) = (s.now?, s.leader?);
        let until = |(number, a): (&(EntryId, u32), &Attempt)| {
            // the leader knows which of its own commands run
            if a.lease == lease && !s.unbegun.contains(number) {
                return later(a.start, seconds(a.bound_seconds.saturating_add(RECORDED)));
            }
            let limit = seconds(a.bound_seconds.saturating_add(KILL_TIME));
            later(since, s.ttl + s.ttl / 12.0 + limit - WAIT_TOLERANCE)
        };
        Some(open.all(|attempt| until(attempt) <= now))
    };
    NO_ORPHAN "SAF-35" "no cordon is left on its machine": |s, t| not(s.machine(t)?.orphaned);
    RIGHT_NODE "SAF-14" "its Node is the right one": |s, t| s.machine(t)?.matches;
    OPEN_FOR_DRAIN "REB-52, REB-53" "a drain may start now": |s, t| not(s.machine(t)?.closing);
    OPEN "REB-52, REB-53" "a command may run now": |s, t| not(s.machine(t)?.closed);
    // how entries share the machines
    CLASSES_APART "REB-13, REB-14" "API servers and workers are not rebooted together": |s, t| {
        let other = |e: &Entry| s.api_server(&e.address).is_some_and(|is| is != s.is_api(t.address()));
        Some(!others(s, t).any(|(id, e)| id.queue == QueueKind::Reboot && other(e)))
    };
    ONE_API_SERVER "REB-15, REP-17" "no other API server is in progress": |s, t| {
        let orphan = |(of, m): (&String, &Machine)| m.orphaned == Some(true) && of != t.address() && s.is_api(of);
        let busy = others(s, t).any(|(_, e)| s.is_api(&e.address)) || s.machines.iter().any(orphan);
        Some(!s.is_api(t.address()) || !busy)
    };
    AFTER_WORKERS "REB-13" "no worker could start": |s, t| {
        let last = s.is_api(t.address()) && s.policy.api_server_order == ApiServerOrder::Last;
        Some(!last || waiting(s, &s.startable).next().is_none())
    };
    IN_TURN "REB-16" "no worker before it could start": |s, t| {
        Some(s.is_api(t.address()) || !waiting(s, &s.left_behind).any(|id| id < t.entry))
    };
    SLOT "REB-16, REP-16" "a slot is free": |s, t| {
        let (repair, cluster) = (t.entry.queue == QueueKind::Repair, s.cluster.as_ref()?);
        let same = |id: EntryId, e: &Entry| {
            (id.queue == QueueKind::Repair) == repair && (repair || s.api_server(&e.address).is_some())
        };
        let busy: BTreeSet<_> = others(s, t).filter(|(id, e)| same(*id, e)).map(|(_, e)| &e.address).collect();
        let reboots = cluster.reboot.max_concurrent_reboots;
        let limit = if repair { cluster.repair.max_concurrent_repairs } else { reboots };
        Some(count(busy.len()) < limit.unwrap_or(1))
    };
    REACHABLE "REB-17" "not too many nodes are unreachable": |s, _| reachable(s);
    REACHABLE_IF_ALL "REB-17" "not too many nodes are unreachable (rule all)": |s, _| {
        if s.policy.unreachable_rule == UnreachableRule::All { reachable(s) } else { Some(true) }
    };
    HEALTHY "SAF-29" "each other control plane is Ready": |s, t| {
        let down = |(of, m): (&String, &Machine)| m.ready == Some(false) && of != t.address() && s.is_api(of);
        Some(!s.is_api(t.address()) || !s.machines.iter().any(down))
    };
    QUORUM "REB-19, SAF-23" "the other members of etcd are healthy": |s, t| s.machine(t)?.quorum;
    BREAKER "REB-60, REB-62" "the breaker is closed and the canaries are back": |s, _| not(s.breaker);
    GATES "REB-63" "each gate before the start is open": |s, _| not(s.gate);
    // how an entry is written
    TIMED "REB-1, REP-5" "it has the time of the transition": |_, t| Some(t.change.1.since.is_some());
    SAME_TIME "REB-1, REP-5" "the time of the transition stays": |_, t| Some(t.change.0.since == t.change.1.since);
    FIELDS "REB-1" "all other fields stay": |_, t| {
        let of = |e: &Entry| (e.address.clone(), e.repair.clone(), e.rest.clone());
        Some(of(&t.change.0) == of(&t.change.1))
    };
    SAME_BACKOFF "REB-47, REP-42" "count and time of the backoff stay": |_, t| {
        Some(t.change.0.backoff == t.change.1.backoff)
    };
    SAME_STEP "REP-3" "the step stays": |_, t| Some(t.change.0.step == t.change.1.step);
    FRESH "REB-1" "it is a new entry": |_, t| Some(t.change.1.backoff == (0, None) && t.change.1.step == 0);
    BACKED_OFF "REB-46, REP-41" "count and time of the backoff are right": |_, t| {
        let (before, (counted, until)) = (t.change.0.backoff.0, t.change.1.backoff);
        let (Some(until), Some(since)) = (until, t.change.1.since) else { return Some(false) };
        let wait = until.duration_since(since).as_secs();
        let reboot = 300_i64.saturating_mul(1 << before.clamp(0, 8)).min(1200);
        let repair = t.entry.queue == QueueKind::Repair;
        let most = if repair { counted.saturating_add(1).saturating_mul(300) } else { reboot + 299 };
        let right = counted == before.saturating_add(1) && (if repair { 300 } else { reboot }..=most).contains(&wait);
        // other programs write nonsense
        unknown_if(!(0..i64::MAX).contains(&before), right)
    };
    UNWINDS "REB-47, REP-42" "a freeze, its window or a hold stops it": |s, t| {
        either(s.order(t.entry, Verb::Hold), s.machine(t)?.closed)
    };
    NEVER_BEGAN "REB-41" "no command of it ever began": |s, t| {
        let own: Vec<&Attempt> = s.attempts_of(t.entry).collect();
        Some(!own.is_empty() && !own.into_iter().any(began))
    };
    // commands
    DRAINED "REB-33" "no pod and no volume is left, or it is forced": |s, t| {
        let forced = t.attempt.as_ref().is_some_and(|a| a.forced);
        if forced { s.order(t.entry, Verb::Force) } else { s.machine(t)?.empty }
    };
    CORDONED "SAF-17" "its Node is cordoned for it": |s, t| s.machine(t)?.cordoned;
    ARGUMENTS "SAF-15, REP-24" "the attempt has the definition's command and its machine": |s, t| {
        let (attempt, after) = (t.attempt.as_ref()?, &t.change.1);
        let command = match (t.entry.queue, attempt.success) {
            (QueueKind::Repair, true) => s.operation(after).and_then(|o| o.success_command.as_ref()),
            (QueueKind::Repair, false) => repair_step(s, after).and_then(|step| step.repair_command.as_ref()),
            _ => s.cluster.as_ref()?.reboot.reboot_command.as_ref(),
        };
        let (last, words) = attempt.argv.split_last()?;
        let numbered = t.entry.queue != QueueKind::Repair || attempt.step == Some(after.step);
        let own = attempt.entry == t.entry && attempt.address == *after.address && *last == after.address;
        Some(own && numbered && command.is_some_and(|command| command == words))
    };
    TRY_FAILED "REB-37, REP-25, REP-26" "the last try failed, or somebody ordered a retry": |s, t| {
        Some(match earlier(s, t, false).next().map(end) {
            None | Some(None | Some(Ended::Unknown(_) | Ended::Exit(0))) => ordered(t),
            Some(Some(_)) => true,
        })
    };
    TRIES_LEFT "REB-37, REP-25" "tries are left, counted over all leaders": |s, t| {
        let tries: Vec<&Attempt> = earlier(s, t, false).filter(|a| began(a)).collect();
        let after_order = t.entry.queue == QueueKind::Reboot && tries.first().is_some_and(|a| a.ordered_by.is_some());
        let own = count(tries.iter().filter(|a| a.ordered_by.is_none()).count());
        Some(ordered(t) || (!after_order && own <= retries(s, t)?))
    };
    SUCCESS_ONCE "REP-37" "the success command has not run": |s, t| Some(ordered(t) || !earlier(s, t, true).any(began));
    // ends
    STRANGER "REB-8" "its machine is not a member": |s, t| {
        Some(s.cluster.is_some() && s.api_server(t.address()).is_none())
    };
    BACK "REB-39, REB-40" "its machine was Ready with a new boot id": |s, t| {
        let strict = s.is_api(t.address()) || s.policy.worker_completion == WorkerCompletion::BootId;
        if strict { s.machine(t)?.back } else { None }
    };
    REPLACED "REB-42" "a Ready Node with another UID has its address": |s, t| s.machine(t)?.replaced;
    DONE "REB-49, REP-38" "an operator ordered done": |s, t| s.order(t.entry, Verb::Done);
    READY "REB-49, REP-35" "its Node is Ready": |s, t| s.machine(t)?.ready;
    API_READY "REP-35" "its Node is Ready if it is an API server": |s, t| {
        if s.is_api(t.address()) { s.machine(t)?.ready } else { Some(true) }
    };
    WITHDRAWN "STO-68, SAF-43" "somebody's cancel was accepted": |s, _| s.withdrawn;
    SUCCESS_RAN "REP-36" "the success command succeeded": |s, t| {
        let command = s.operation(&t.change.0)?.success_command.as_ref().is_some_and(|c| !c.is_empty());
        let ran = earlier(s, t, true).next().and_then(end) == Some(&Ended::Exit(0));
        either(Some(!command || ran), s.order(t.entry, Verb::Done))
    };
    SUCCESS_FAILED "REP-36" "the success command failed": |s, t| Some(earlier(s, t, true).next().is_some_and(failed));
    ALL_TRIES_FAILED "REP-25" "the last try of the command failed": |s, t| {
        let withheld = |a: &&Attempt| matches!(end(a), Some(Ended::Withheld(_)));
        let tries: Vec<&Attempt> = earlier(s, t, false).filter(|a| !withheld(a)).collect();
        let Some(last) = tries.first().filter(|last| failed(last)) else { return Some(false) };
        let enough = last.ordered_by.is_some() || count(tries.len()) > retries(s, t)?;
        unknown_if(!enough && tries.iter().any(|a| a.folded > 0), enough)
    };
    // repairs
    ROOM "REP-52" "the queue stays below its limit": |s, t| {
        let others = s.entries.keys().filter(|id| id.queue == QueueKind::Repair && **id != t.entry);
        Some(count(others.count()) < s.repair_limit)
    };
    ONLY_ONE "REP-46" "its machine has no other repair": |s, t| {
        let mut others = s.entries.iter().filter(|(id, _)| id.queue == QueueKind::Repair && **id != t.entry);
        Some(!others.any(|(_, e)| e.address == t.address()))
    };
    KNOWN "REP-14" "the definition has its operation and step": |s, t| {
        s.cluster.as_ref().map(|_| repair_step(s, &t.change.1).is_some())
    };
    DRAINS "REP-22" "the step drains": |s, t| need_drain(s, t);
    DRAINS_NOT "REP-22" "the step does not drain": |s, t| not(need_drain(s, t));
    NEXT_STEP "REP-28" "it is the next step": |_, t| Some(Some(t.change.1.step) == t.change.0.step.checked_add(1));
    WATCHED "REP-27, REP-28" "the watch after the command is over": |s, t| {
        let watch = repair_step(s, &t.change.0)?.watch_seconds.unwrap_or(0).unsigned_abs();
        let succeeded = earlier(s, t, false).next().and_then(end) == Some(&Ended::Exit(0));
        Some(succeeded && s.lasted + WATCH_TOLERANCE >= seconds(watch))
    };
    LAST_STEP "REP-28" "no step is left": |s, t| {
        let steps = s.operation(&t.change.0)?.repair_steps.as_ref()?.len();
        Some(t.change.0.step.saturating_add(1) >= count(steps))
    };
    // cordons
    CLAIMED "SAF-33, REB-44" "the entry of the record is draining or rebooting": |_, t| t.cordon.1.claimed;
    UNCLAIMED "REB-44" "no entry in progress claims the Node": |_, t| not(t.cordon.0.claimed);
    TRUE_RECORD "SAF-33" "the record says whether the Node was schedulable before": |_, t| match t.change.0.place {
        Place::Free => Some(t.cordon.1.schedulable_before),
        Place::Foreign => Some(!t.cordon.1.schedulable_before),
        Place::Owned => Some(t.cordon.0.schedulable_before == t.cordon.1.schedulable_before),
        _ => None,
    };
    ALONE "I59" "no other program works on the Node": |_, t| Some(!t.cordon.0.other_program);
    ONCE_MORE "REB-23" "it was not repeated before": |_, t| {
        Some(t.cordon.0.owner != t.cordon.1.owner || t.cordon.0.repeated == 0)
    };
    NOT_KEPT "REB-44" "no administrator keeps the cordon": |_, t| Some(!t.cordon.0.keep);
    WAS_SCHEDULABLE "REB-44" "the Node was schedulable before": |_, t| Some(t.cordon.0.schedulable_before);
    STAYS "REB-44" "the cordon is an administrator's": |_, t| Some(t.cordon.0.keep || !t.cordon.0.schedulable_before);
    CAME_BACK "SAF-35" "the machine is back from its command": |_, t| t.cordon.0.back;
    SAME_OR_BACK "SAF-35" "the record's entry stays, or its machine is back": |_, t| {
        either(Some(t.cordon.0.owner == t.cordon.1.owner), t.cordon.0.back)
    };
}

/// Needs of a queued worker besides its place in the schedule (REB-11).
pub(crate) const STARTABLE: &[Condition] = &[
    ENABLED,
    MEMBER,
    COMMANDS,
    NOT_HELD,
    NOT_PAUSED,
    RESTED,
    MACHINE_FREE,
    FIRST,
    NO_COMMAND,
    NO_ORPHAN,
    RIGHT_NODE,
    OPEN_FOR_DRAIN,
];

fn not(fact: Fact) -> Fact {
    fact.map(|known| !known)
}

fn either(a: Fact, b: Fact) -> Fact {
    if a == Some(true) || b == Some(true) { Some(true) } else { a.and(b) }
}

fn later(at: Timestamp, seconds: f64) -> Timestamp {
    SignedDuration::try_from_secs_f64(seconds).ok().and_then(|by| at.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

fn seconds(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Entries in progress on other machines.
fn others<'s>(s: &'s State, t: &'s Step) -> impl Iterator<Item = (EntryId, &'s Entry)> {
    s.in_progress().filter(|(id, e)| *id != t.entry && e.address != t.address())
}

/// Workers of a set that could have started: no condition contradicts.
fn waiting<'s>(s: &'s State, of: &'s BTreeSet<EntryId>) -> impl Iterator<Item = EntryId> + 's {
    let entries = of.iter().filter_map(|id| Some((*id, s.entries.get(id)?)));
    let workers = entries.filter(|(_, e)| e.place == Place::Queued && s.api_server(&e.address) == Some(false));
    workers
        .filter(|(id, e)| {
            let start = Step::of(*id, (*e).clone(), Entry { place: Place::Draining, ..(*e).clone() });
            STARTABLE.iter().all(|condition| (condition.holds)(s, &start) != Some(false))
        })
        .map(|(id, _)| id)
}

fn reachable(s: &State) -> Fact {
    let all = s.policy.unreachable_rule == UnreachableRule::All;
    let counts =
        |(of, m): &(&String, &Machine)| m.ready == Some(false) && (all || !m.in_reboot) && s.api_server(of).is_some();
    Some(count(s.machines.iter().filter(counts).count()) <= s.unreachable_limit?)
}

fn repair_step<'s>(s: &'s State, entry: &Entry) -> Option<&'s RepairStep> {
    s.operation(entry)?.repair_steps.as_ref()?.get(usize::try_from(entry.step).ok()?)
}

/// Whether the step that begins drains its machine. A member may lack a Node, which nothing here tells.
fn need_drain(s: &State, t: &Step) -> Fact {
    let wanted = repair_step(s, &t.change.1)?.need_drain == Some(true) && s.api_server(t.address()).is_some();
    if wanted { s.machine(t)?.matches.filter(|matches| *matches) } else { Some(false) }
}

/// Earlier attempts of the entry's command in this step, or of its success command; the newest first.
fn earlier<'s>(s: &'s State, t: &'s Step, success: bool) -> impl Iterator<Item = &'s Attempt> {
    let any_step = success || t.entry.queue != QueueKind::Repair;
    let own = move |a: &&Attempt| a.success == success && (any_step || a.step == Some(t.change.0.step));
    s.attempts_of(t.entry).rev().filter(own)
}

fn retries(s: &State, t: &Step) -> Option<i64> {
    let retries = match t.entry.queue {
        QueueKind::Repair => repair_step(s, &t.change.0)?.command_retries,
        _ => s.cluster.as_ref()?.reboot.command_retries,
    };
    Some(retries.unwrap_or(0))
}

fn end(attempt: &Attempt) -> Option<&Ended> {
    attempt.outcome.as_ref().map(|outcome| &outcome.end)
}

fn began(attempt: &Attempt) -> bool {
    !matches!(end(attempt), Some(Ended::Withheld(_) | Ended::NotStarted(_)))
}

fn failed(attempt: &Attempt) -> bool {
    end(attempt).is_some_and(|end| !matches!(end, Ended::Exit(0) | Ended::Unknown(_) | Ended::Withheld(_)))
}

fn ordered(t: &Step) -> bool {
    t.attempt.as_ref().is_some_and(|attempt| attempt.ordered_by.is_some())
}

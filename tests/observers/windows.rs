//! Windows and freezes (I8), and the conditions under which a drain may be unwound without a count.

use cketerm_model::{
    cluster::Cluster,
    entry::{EntryId, QueueKind},
    labels::Labels,
    policy::Policy,
    reboot::RebootStatus,
    repair::StepStatus,
};
use jiff::Timestamp;

use super::{
    record::{Breach, PowerEvent},
    repair,
    view::{View, in_progress, member, shift, status},
};

/// Seconds that may be cut off: times of transitions are written without their fractions.
const TRUNCATION: f64 = 1.0;
/// Seconds of deviation above which a clock counts as wrong and is not used to judge.
const CLOCK_TOLERANCE: f64 = 15.0;

/// Reason for which this policy forbids a power command for this machine at this moment; with `margin`, a new drain.
/// None also if its window depends on labels that only its Node has.
pub fn closed_reason(
    policy: &Policy,
    cluster: &Cluster,
    of: (QueueKind, &str),
    at: Timestamp,
    margin: bool,
) -> Option<String> {
    if let Some(freeze) = policy.freeze.as_ref().filter(|f| f.holds(at)) {
        return Some(format!("frozen until {}", freeze.until));
    }
    let windows = policy.windows.as_ref().filter(|w| w.bind(of.0))?;
    let labels: Option<&Labels> = member(cluster, of.1).and_then(|m| m.labels.as_ref()).filter(|l| !l.is_empty());
    if windows.by_machine() && labels.is_none() {
        return None;
    }
    let place = labels.map_or(0, |labels| windows.index_for(labels));
    let window_state = windows.all().nth(place)?.1.state_at(at);
    let late =
        window_state.closes.is_some_and(|closes| margin && shift(at, f64::from(windows.margin_seconds())) > closes);
    match (window_state.open, late) {
        (false, _) => Some(format!("outside the window, which opens {:?}", window_state.opens)),
        (true, true) => Some(format!("{:?}, the end of the window, is too near", window_state.closes)),
        (true, false) => None,
    }
}

/// Reason if the machine is outside its window or frozen at this moment, whose fraction may have been cut off.
pub(super) fn closed_reason_at(
    view: &View<'_>,
    revision: i64,
    of: (QueueKind, &str),
    written: Timestamp,
    margin: bool,
) -> Option<String> {
    let (policy, cluster) = (view.policy(revision), view.clusters.get(revision)?);
    let why = closed_reason(policy, cluster, of, written, margin)?;
    // a freeze may end within this second, and a window may begin with the next one
    let end = policy.freeze.as_ref().map(|f| f.until).filter(|u| *u > written && *u < shift(written, TRUNCATION));
    let later = [end, Some(shift(written, TRUNCATION))].into_iter().flatten();
    later
        .map(|at| closed_reason(policy, cluster, of, at, margin))
        .all(|closed_reason| closed_reason.is_some())
        .then_some(why)
}

/// Reports whether the machine was outside its window or frozen during this whole time, by the policies and definitions
/// of the time, also for a clock that is ahead.
pub fn closed_throughout(view: &View<'_>, of: (QueueKind, &str), from: Timestamp, to: Timestamp) -> bool {
    let Some(cluster) = view.clusters.at(from) else { return false };
    let until = shift(to, CLOCK_TOLERANCE);
    let same = view.clusters.throughout(from, to, |c| c == Some(cluster));
    let closed_reason = |p: Option<&Policy>| {
        p.is_some_and(|p| {
            let mut at = from;
            while at < until {
                if closed_reason(p, cluster, of, at, false).is_none() {
                    return false;
                }
                at = shift(at, 1.0);
            }
            // a freeze may end between two of these seconds, and a window with the next one
            let freeze_end = p.freeze.as_ref().map(|f| f.until).filter(|at| *at >= from && *at < until);
            freeze_end.into_iter().chain([to, until]).all(|at| closed_reason(p, cluster, of, at, false).is_some())
        })
    };
    same && view.policies.throughout(from, to, closed_reason)
}

/// I8, by the policy of the very revision (the transaction compares it) and the clock of the engine that wrote: no
/// drain starts outside the machine's window, in a freeze, or within the margin before the window's end. No attempt of
/// either queue is made outside the window or in a freeze, except success commands.
///
/// By the true clock: no power command begins on a machine that has been outside its window or frozen for longer than a
/// command may be late. The machine must also stay so for as long as the engine's clock may be ahead. Commands of an
/// engine with a wrong clock are excepted.
///
/// No engine puts a `rebooting` or `watching` entry back into the queue, unless its command never began. And, without
/// faults, no drain is still there 30 s after its window ended or its freeze began.
///
/// Not covered: machines whose window depends on labels that only their Nodes have.
pub fn i8(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut report_breach = |at: Timestamp, what: String| found.push(Breach { code: "I8", at, what });
    for step in view.entry_changes().iter().filter(|m| m.engine) {
        let Some(Ok(after)) = step.after else { continue };
        let of = (QueueKind::Reboot, after.node.as_str());
        let written = after.last_transition_time.unwrap_or(step.at);
        if step.starts()
            && let Some(why) = closed_reason_at(view, step.revision, of, written, true)
        {
            report_breach(step.at, format!("reboots/{} starts: {why}", step.index));
        }
        let begun = || !never_began(view, EntryId::reboot(step.index), step.revision);
        // a cancel in the name of a deleted request may come at any time, as an operator's may
        let stays = matches!(after.status, RebootStatus::Rebooting | RebootStatus::Cancelled);
        if status(step.before) == Some(RebootStatus::Rebooting) && !stays && begun() {
            report_breach(step.at, format!("reboots/{} went from rebooting to {}", step.index, after.status));
        }
    }
    for step in repair::entry_changes(view).iter().filter(|m| m.engine) {
        let (before, Some(after)) = (step.before, step.after) else { continue };
        let drains =
            |e: &cketerm_model::repair::RepairEntry| e.claims_machine() && e.step_status == StepStatus::Draining;
        let begins = drains(after) && !before.is_some_and(drains);
        let written = after.last_transition_time.unwrap_or(step.at);
        if begins
            && let Some(why) = closed_reason_at(view, step.revision, (QueueKind::Repair, &after.address), written, true)
        {
            report_breach(step.at, format!("repairs/{} starts to drain: {why}", step.index));
        }
        let watched = before.is_some_and(|b| b.claims_machine() && b.step_status == StepStatus::Watching);
        let begun = || !never_began(view, EntryId::repair(step.index), step.revision);
        if watched && after.unfinished() && !after.claims_machine() && begun() {
            report_breach(step.at, format!("repairs/{} went from watching back to waiting", step.index));
        }
    }
    for (id, line) in attempts(view) {
        let Some(first) = line.steps().first() else { continue };
        let Some(attempt) = first.value.as_ref().filter(|a| !a.success && view.written_by_engine(first.revision))
        else {
            continue;
        };
        let of = (id.queue, attempt.address.as_str());
        if let Some(why) = closed_reason_at(view, first.revision, of, attempt.start, false) {
            report_breach(first.at, format!("attempt {} is created: {why}", attempt.id));
        }
    }
    for power in view.record.power.iter().filter(|p| p.what == PowerEvent::Begin) {
        let Ok(id) = power.entry.parse::<EntryId>() else { continue };
        let made = attempts(view).find_map(|(of, line)| {
            let first = line.steps().first().filter(|_| of == id)?;
            first.value.as_ref().filter(|a| a.id == power.attempt).map(|a| (a.success, a.start, first.at))
        });
        let Some((false, start, written)) = made else { continue };
        let wrong = start.duration_since(written).as_secs_f64().abs() > CLOCK_TOLERANCE;
        let from = shift(power.at, -(view.lag() + CLOCK_TOLERANCE));
        if !wrong && closed_throughout(view, (id.queue, &power.address), from, power.at) {
            report_breach(
                power.at,
                format!("a power command of {} begins, outside its window or frozen since {from}", power.entry),
            );
        }
    }
    let Some(calm) = view.record.calm_since else { return found };
    let quiet = shift(calm, 2.0 * view.ttl() + 75.0);
    for (index, line) in &view.entries {
        for (i, step) in line.steps().iter().enumerate() {
            let Some(Ok(entry)) = step.value.as_ref().filter(|l| in_progress(Some(l))) else { continue };
            let end = line.steps().get(i + 1).map_or(view.record.end, |next| next.at);
            let from = shift(end, -30.0);
            let drains = entry.status == RebootStatus::Draining && from >= quiet.max(step.at);
            if drains && closed_throughout(view, (QueueKind::Reboot, &entry.node), from, end) {
                report_breach(end, format!("reboots/{index} still drains, outside its window or frozen since {from}"));
            }
        }
    }
    found
}

/// Reports whether no command of this entry began, by the state right before this revision, which deletes its attempts.
fn never_began(view: &View<'_>, id: EntryId, revision: i64) -> bool {
    let mut made = attempts(view).filter(|(of, _)| *of == id).filter_map(|(_, line)| line.before(revision)).peekable();
    made.peek().is_some() && made.all(|a| !a.began())
}

/// Attempts of both queues.
fn attempts<'v>(
    view: &'v View<'_>,
) -> impl Iterator<Item = (EntryId, &'v super::view::Timeline<cketerm_model::attempt::Attempt>)> {
    let reboots = view.attempts.iter().map(|(&(index, _), line)| (EntryId::reboot(index), line));
    reboots.chain(view.repair_attempts.iter().map(|(&(index, _), line)| (EntryId::repair(index), line)))
}

/// Reports whether a drain of the reboot queue may be unwound without a count in this revision: its machine is outside
/// its window or frozen, or was a moment ago.
pub fn may_unwind(view: &View<'_>, revision: i64, address: &str, at: Timestamp) -> bool {
    let of = (QueueKind::Reboot, address);
    let Some(cluster) = view.clusters.get(revision) else { return true };
    // the policy that it was decided from may have been replaced since
    let from = shift(at, -(view.late() + CLOCK_TOLERANCE));
    let seen = view.policies.steps().iter().filter(|s| s.at >= from && s.revision <= revision);
    let all = seen.filter_map(|s| s.value.as_ref()).chain([view.policy(revision)]);
    let before = view.policies.step(revision).map_or(revision, |s| s.revision);
    let mut all = all.chain([view.policy(before - 1)]);
    // a clock may be wrong in either direction
    let moments = || (-15..=20).map(|i| shift(at, -f64::from(i)));
    all.any(|policy| moments().any(|moment| closed_reason(policy, cluster, of, moment, false).is_some()))
}

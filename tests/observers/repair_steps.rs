//! Steps of repairs: which commands, how often, in which order, and none after the end (I25 to I27, I40, I41).

use std::collections::BTreeMap;

use cketerm_model::{
    attempt::{Attempt, Ended},
    cluster::{Cluster, Operation, Step},
    repair::{RepairEntry, RepairStatus, StepStatus},
};
use jiff::Timestamp;

use super::{
    record::{Breach, Power, PowerEvent},
    repair::{enabled, entry_changes, read},
    view::{Timeline, View, shift},
};

/// Seconds by which the wall clocks of two leaders may differ, in which the end of a watch is computed.
const CLOCKS: f64 = 2.0;

/// Seconds that a health check takes at least. One that began right before the next step was not answered by then.
const CHECK: f64 = 0.05;

/// Commands of the repair queue, in the order in which they began.
fn begins<'r>(view: &View<'r>) -> impl Iterator<Item = (u64, &'r Power)> {
    let log = view.record.power.iter().filter(|p| p.what == PowerEvent::Begin);
    log.filter_map(|p| Some((p.entry.strip_prefix("repairs/")?.parse().ok()?, p)))
}

fn attempt<'v>(view: &'v View<'_>, index: u64, id: &str) -> Option<(u32, &'v Timeline<Attempt>)> {
    let mut own = view.repair_attempts.range((index, 0)..=(index, u32::MAX));
    let named = |line: &Timeline<Attempt>| line.steps().iter().any(|s| s.value.as_ref().is_some_and(|a| a.id == id));
    own.find(|(_, line)| named(line)).map(|((_, n), line)| (*n, line))
}

fn operation<'c>(cluster: &'c Cluster, entry: &RepairEntry) -> Option<&'c Operation> {
    let mut procedures = cluster.repair.repair_procedures.iter().flatten();
    let procedure = procedures.find(|p| p.machine_types.iter().flatten().any(|t| *t == entry.machine_type))?;
    procedure.repair_operations.iter().flatten().find(|o| o.operation == entry.operation)
}

fn step_of<'c>(cluster: &'c Cluster, entry: &RepairEntry, step: i64) -> Option<&'c Step> {
    operation(cluster, entry)?.repair_steps.as_deref()?.get(usize::try_from(step).ok()?)
}

/// I25, I26, I27 and I40 by the machines' log:
///
/// - Each command of a repair has an attempt of its own that was in etcd before it began. It begins once for it, on the
///   attempt's and the entry's machine, with the command of the definition's step (or success command) before the
///   address.
/// - Commands of one step without a person's order are at most 1 + `command_retries`. A success command begins at most
///   once.
/// - None begins for an entry that was deleted long before.
pub fn commands(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut begun: BTreeMap<(u64, &str), usize> = BTreeMap::new();
    let mut attempt_counts: BTreeMap<(u64, i64, bool), usize> = BTreeMap::new();
    for (index, power) in begins(view) {
        let mut report_breach = |code, what: String| found.push(Breach { code, at: power.at, what });
        let times = begun.entry((index, &power.attempt)).or_default();
        *times += 1;
        if *times > 1 {
            report_breach("I25", format!("the command of attempt {} of {} begins twice", power.attempt, power.entry));
        }
        let first = attempt(view, index, &power.attempt).and_then(|(_, line)| line.steps().first());
        let Some((step, attempted)) = first.and_then(|first| Some((first, first.value.as_ref()?))) else {
            report_breach(
                "I25",
                format!("a command of {} begins without an attempt ({:?})", power.entry, power.attempt),
            );
            continue;
        };
        if step.at > power.at {
            report_breach("I25", format!("the command of {} begins before its attempt is written", power.entry));
        }
        if attempted.address != power.address.as_str()
            || attempted.argv != power.argv
            || power.argv.last() != Some(&power.address)
        {
            let what = format!(
                "{}: {:?} began on {}, but the attempt is {:?} on {}",
                power.entry, power.argv, power.address, attempted.argv, attempted.address
            );
            report_breach("I26", what);
        }
        let line = view.repairs.get(&index);
        let entry = line.and_then(|l| read(l.get(step.revision)));
        let cluster = view.clusters.get(step.revision);
        if let (Some(entry), Some(cluster), Some(number)) = (entry, cluster, attempted.step) {
            if entry.address != power.address.as_str() {
                report_breach(
                    "I26",
                    format!("the command is for {}, but {} is for {}", power.address, power.entry, entry.address),
                );
            }
            let words = if attempted.success {
                operation(cluster, entry).and_then(|o| o.success_command.as_deref())
            } else {
                step_of(cluster, entry, number).and_then(|s| s.repair_command.as_deref())
            };
            if words != attempted.argv.split_last().map(|(_, words)| words) {
                report_breach(
                    "I26",
                    format!("{:?} of {} is not the definition's {words:?}", attempted.argv, power.entry),
                );
            }
        }
        if attempted.ordered_by.is_none() && !attempted.withheld() {
            let count = attempt_counts.entry((index, attempted.step.unwrap_or(-1), attempted.success)).or_default();
            *count += 1;
            let retries = retries(view, entry, attempted, step.at, power.at);
            let allowed = if attempted.success { 1 } else { 1 + retries };
            if *count > allowed {
                let code = if attempted.success { "I40" } else { "I25" };
                report_breach(
                    code,
                    format!(
                        "command {count} of {} step {:?} begins, but only {allowed} are allowed",
                        power.entry, attempted.step
                    ),
                );
            }
        }
        if let Some(line) = line {
            let from = shift(power.at, -view.late());
            if line.throughout(from, power.at, |l| l.is_none() || read(l).is_some_and(|e| e.deleted)) {
                report_breach("I27", format!("a command begins for {}, long after it was deleted", power.entry));
            }
        }
    }
    for (&(index, n), line) in &view.repair_attempts {
        let Some(first) = line.steps().first().filter(|s| view.written_by_engine(s.revision)) else { continue };
        let Some(this) = first.value.as_ref() else { continue };
        if let Some(what) = premature_reason(view, index, n, first.revision, this) {
            found.push(Breach { code: "I25", at: first.at, what: format!("attempt {n} of repairs/{index}: {what}") });
            // a step that succeeded is finished, whatever its health check reports
            if !this.success && what.ends_with("had succeeded") {
                let what = format!("attempt {n} of repairs/{index} begins step {:?} again: {what}", this.step);
                found.push(Breach { code: "I41", at: first.at, what });
            }
        }
    }
    found
}

/// Time at which the watch after the last command of this step was over by the true clock, if that command succeeded.
fn watch_end(view: &View<'_>, index: u64, step: i64, revision: i64, watch: f64) -> Option<Timestamp> {
    let attempts = view.repair_attempts.range((index, 0)..=(index, u32::MAX)).rev();
    let mut before = attempts.filter_map(|(_, line)| line.before(revision));
    let attempt = before.find(|attempt| attempt.step == Some(step) && !attempt.success)?;
    if !attempt.succeeded() {
        return None;
    }
    let is_end = |power: &&Power| power.attempt == attempt.id && matches!(power.what, PowerEvent::End(_));
    let end = view.record.power.iter().rfind(is_end)?;
    Some(shift(end.at, watch))
}

/// Largest number of retries that the definition allowed for this step in this time.
fn retries(view: &View<'_>, entry: Option<&RepairEntry>, attempted: &Attempt, from: Timestamp, to: Timestamp) -> usize {
    let (Some(entry), Some(number)) = (entry, attempted.step) else { return usize::MAX - 1 };
    let steps = view.clusters.steps();
    let first = steps.partition_point(|s| s.at < from).saturating_sub(1);
    let during = steps[first..].iter().take_while(|s| s.at <= to).filter_map(|s| s.value.as_ref());
    let each = during.filter_map(|c| usize::try_from(step_of(c, entry, number)?.command_retries.unwrap_or(0)).ok());
    each.max().unwrap_or(0)
}

/// Reason for which this attempt should not have been made yet: the one before of the same step has no recorded
/// outcome, an unknown one, or success, and nobody ordered a retry.
fn premature_reason(view: &View<'_>, index: u64, n: u32, revision: i64, this: &Attempt) -> Option<String> {
    if this.ordered_by.is_some() {
        return None;
    }
    let before = view.repair_attempts.range((index, 0)..(index, n)).rev();
    let (m, last) = before
        .filter_map(|((_, m), line)| Some((m, line.before(revision)?)))
        .find(|(_, a)| a.step == this.step && a.success == this.success)?;
    match last.outcome.as_ref().map(|o| &o.end) {
        None => Some(format!("attempt {m} has no recorded outcome")),
        Some(Ended::Unknown(_)) => Some(format!("the outcome of attempt {m} is unknown, and nobody ordered a retry")),
        Some(Ended::Exit(0)) => Some(format!("attempt {m} had succeeded")),
        Some(_) => None,
    }
}

/// I40, at each change of an entry by an engine: in an entry that succeeded, failed or is deleted only `nodename`
/// changes. [`commands`] judges that its success command begins at most once.
pub fn i40(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for m in entry_changes(view).iter().filter(|m| m.engine) {
        let (Some(before), Some(after)) = (m.before, m.after) else { continue };
        let ended = matches!(before.status, RepairStatus::Succeeded | RepairStatus::Failed);
        let state_of = |e: &RepairEntry| (e.status, e.step, e.step_status, e.last_transition_time);
        if (ended || before.deleted) && state_of(before) != state_of(after) {
            let (was, deleted, is) = (before.status, before.deleted, after.status);
            let what = format!("repairs/{}: it went from {was} (deleted: {deleted}) back to {is}", m.index);
            found.push(Breach { code: "I40", at: m.at, what });
        }
    }
    found
}

/// I41, at each change of an entry by an engine: the step grows by at most one, only from `watching`, and not while the
/// queue is disabled. It does not grow before the definition's watch has lasted by the true clock, nor without a health
/// check that began after that, and never passes the last step. No step that was watched is drained for again.
pub fn i41(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for m in entry_changes(view).iter().filter(|m| m.engine) {
        let (Some(before), Some(after)) = (m.before, m.after) else { continue };
        let mut report_breach = |what: String| {
            let what = format!("repairs/{}: {what}", m.index);
            found.push(Breach { code: "I41", at: m.at, what });
        };
        if after.step == before.step {
            let watched = |e: &RepairEntry| e.claims_machine() && e.step_status == StepStatus::Watching;
            let drains = after.claims_machine() && after.step_status == StepStatus::Draining;
            if watched(before) && drains {
                report_breach(format!("step {} was already watched, but is drained for again", before.step));
            }
            continue;
        }
        if after.step != before.step + 1 || before.step_status != StepStatus::Watching {
            report_breach(format!("goes from step {} ({}) to step {}", before.step, before.step_status, after.step));
        }
        if !enabled(view, m.revision) {
            report_breach(format!("continues with step {} while the queue is disabled", after.step));
        }
        let Some(cluster) = view.clusters.get(m.revision) else { continue };
        if step_of(cluster, before, after.step).is_none() && after.status == RepairStatus::Processing {
            report_breach(format!("continues with step {}, which does not exist", after.step));
        }
        let Some(step) = step_of(cluster, before, before.step) else { continue };
        let line = &view.repairs[&m.index];
        let since = line.steps().iter().rev().skip_while(|s| s.revision >= m.revision).take_while(|s| {
            read(s.value.as_ref()).is_some_and(|e| e.step == before.step && e.step_status == StepStatus::Watching)
        });
        let watch = f64::from(i32::try_from(step.watch_seconds.unwrap_or(0)).unwrap_or(i32::MAX));
        // times are whole seconds, and a leader's live copy shows its own write a little later
        if since.last().is_some_and(|s| shift(s.at, watch - 2.0) > m.at) {
            report_breach(format!("step {} was watched for less than {watch} s", before.step));
        }
        if let Some(over) = watch_end(view, m.index, before.step, m.revision, watch)
            && let Some(checks) = &view.record.health_checks
            && !checks.iter().any(|(at, address)| {
                address.as_str() == before.address.as_str() && (shift(over, -CLOCKS)..=shift(m.at, -CHECK)).contains(at)
            })
        {
            report_breach(format!("step {} ended without a health check that began after its watch", before.step));
        }
    }
    found
}

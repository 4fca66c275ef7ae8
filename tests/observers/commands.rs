//! Power commands: their machine and their number (I25, I26).

use std::collections::BTreeMap;

use cketerm_model::{
    attempt::{Attempt, Ended},
    cketerm_records::Verb,
};
use jiff::Timestamp;

use super::{
    power_log,
    record::{Breach, Power},
    view::{View, member, shift},
};

/// I25, by the machines' log and by the attempts. By the log:
///
/// - Each power command of a reboot has an attempt of its own, for that address, that was in etcd before it began. It
///   begins once for it.
/// - Commands without a person's order are at most 1 + `command_retries` (the largest of the definition since the
///   first).
/// - None begins on a machine where another one has not ended, unless that one's bound has passed.
///
/// By the attempts: each is made when the one before has a recorded outcome that was neither unknown nor success, or it
/// consumes a `retry` in its own transaction.
pub fn i25(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut report_breach = |at: Timestamp, what: String| found.push(Breach { code: "I25", at, what });
    let mut begin_counts: BTreeMap<(u64, &str), usize> = BTreeMap::new();
    let mut tries: BTreeMap<u64, Vec<&Power>> = BTreeMap::new();
    let mut last: BTreeMap<&str, (u64, &Power)> = BTreeMap::new();
    for (index, power) in power_log::begins(view) {
        let times = begin_counts.entry((index, &power.attempt)).or_default();
        *times += 1;
        if *times > 1 {
            report_breach(
                power.at,
                format!("the command of attempt {} of {} begins twice", power.attempt, power.entry),
            );
        }
        let first = view.attempt(index, &power.attempt).and_then(|(_, line)| line.steps().first());
        match first.and_then(|s| Some((s.at, s.value.as_ref()?))) {
            None => {
                report_breach(
                    power.at,
                    format!("a command of {} begins without an attempt ({:?})", power.entry, power.attempt),
                );
            }
            Some((at, attempt)) => {
                if at > power.at {
                    report_breach(
                        power.at,
                        format!("the command of {} begins before its attempt is written", power.entry),
                    );
                }
                if attempt.ordered_by.is_none() {
                    tries.entry(index).or_default().push(power);
                }
            }
        }
        if let Some((other, before)) = last.insert(&power.address, (index, power)) {
            let has_ended = power_log::ended(view, before).is_some_and(|end| end.at <= power.at);
            let bound = view.attempt(other, &before.attempt).and_then(|(_, l)| l.steps().first()?.value.as_ref());
            #[allow(clippy::cast_precision_loss)] // seconds
            let passed = bound.is_some_and(|a| shift(before.at, a.bound_seconds as f64) <= power.at);
            if !has_ended && !passed {
                let what = format!(
                    "a command of {} begins on {} while one of {} still runs",
                    power.entry, power.address, before.entry
                );
                report_breach(power.at, what);
            }
        }
    }
    for (index, all) in tries {
        let Some(first) = view.attempts_of(index).next().and_then(|(_, l)| l.steps().first()) else { continue };
        for (i, power) in all.iter().enumerate() {
            let allowed = 1 + retries(view, first.at, power.at);
            if i >= allowed {
                report_breach(
                    power.at,
                    format!(
                        "command {} of {} begins, but only {allowed} are allowed without an order",
                        i + 1,
                        power.entry
                    ),
                );
            }
        }
    }
    for (&(index, n), line) in &view.attempts {
        let Some(first) = line.steps().first() else { continue };
        let Some(attempt) = first.value.as_ref().filter(|_| view.written_by_engine(first.revision)) else { continue };
        if let Some(what) = premature_reason(view, index, n, first.revision, attempt) {
            report_breach(first.at, format!("attempt {n} of reboots/{index}: {what}"));
        }
    }
    found
}

/// Largest `command_retries` in this time.
fn retries(view: &View<'_>, from: Timestamp, to: Timestamp) -> usize {
    let steps = view.clusters.steps();
    let first = steps.partition_point(|s| s.at < from).saturating_sub(1);
    let during = steps[first..].iter().take_while(|s| s.at <= to).filter_map(|s| s.value.as_ref());
    during.filter_map(|c| usize::try_from(c.reboot.command_retries?).ok()).max().unwrap_or(0)
}

/// Reason for which this attempt should not have been made yet.
fn premature_reason(view: &View<'_>, index: u64, n: u32, revision: i64, attempt: &Attempt) -> Option<String> {
    if attempt.ordered_by.is_some() {
        // an ordered attempt that was withheld is retried under the same order
        let before =
            n.checked_sub(1).and_then(|n| view.attempts.get(&(index, n))).and_then(|line| line.before(revision));
        if before.is_some_and(|a| a.withheld() && a.ordered_by == attempt.ordered_by) {
            return None;
        }
        let order = view.orders.get(&index);
        let given = order.and_then(|o| o.before(revision)).is_some_and(|o| o.verb == Verb::Retry);
        let consumed = order.is_some_and(|o| o.get(revision).is_none());
        return (!given || !consumed).then(|| "it is marked as ordered, but consumes no `retry`".to_owned());
    }
    let before = view.attempts_of(index).filter(|(m, _)| *m < n);
    let (m, last) = before.filter_map(|(m, line)| Some((m, line.before(revision)?))).last()?;
    match last.outcome.as_ref().map(|o| &o.end) {
        None => Some(format!("attempt {m} has no recorded outcome")),
        Some(Ended::Unknown(_)) => Some(format!("the outcome of attempt {m} is unknown, and nobody ordered a retry")),
        Some(Ended::Exit(0)) => Some(format!("attempt {m} had succeeded")),
        Some(_) => None,
    }
}

/// I26, at each power command of a reboot:
///
/// - The last argument of its command line is the address of its machine, of its attempt and of its entry.
/// - The arguments before are the definition's in the revision in which the attempt was made.
/// - The Node that was cordoned for the entry (by the owner record) had that address at some moment from shortly before
///   the attempt. It also had the UID that the attempt names, which is the request's UID where one was noted.
pub fn i26(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for (index, power) in power_log::begins(view) {
        let mut report_breach = |what: String| {
            found.push(Breach { code: "I26", at: power.at, what: format!("{}: {what}", power.entry) });
        };
        let target = power.argv.last().map(String::as_str);
        if target != Some(power.address.as_str()) {
            report_breach(format!("the command line {:?} does not name {}", power.argv, power.address));
        }
        let Some((_, line)) = view.attempt(index, &power.attempt) else { continue };
        let Some(first) = line.steps().first() else { continue };
        let Some(attempt) = first.value.as_ref() else { continue };
        if attempt.address != power.address.as_str() || attempt.argv != power.argv {
            report_breach(format!(
                "{:?} was run, but the attempt is {:?} on {}",
                power.argv, attempt.argv, attempt.address
            ));
        }
        if let Some(entry) = view.entry(index, first.revision).filter(|e| e.node != power.address.as_str()) {
            report_breach(format!("the command is for {}, but the entry is for {}", power.address, entry.node));
        }
        let Some(cluster) = view.clusters.get(first.revision) else { continue };
        let command = cluster.reboot.reboot_command.as_deref().unwrap_or_default();
        if attempt.argv.split_last().is_none_or(|(_, words)| words != command) {
            report_breach(format!("{:?} is not the definition's command {command:?}", attempt.argv));
        }
        let Some(node) = member(cluster, &power.address) else { continue }; // I31 covers it
        let from = shift(first.at, -view.late());
        let right = view.nodes.get(node.node_name().as_str()).is_some_and(|line| {
            line.sometime(from, power.at, |n| {
                n.is_some_and(|n| {
                    n.owned_by(index)
                        && n.addresses.contains(&power.address)
                        && attempt.node_uid.as_ref().is_none_or(|uid| *uid == n.uid)
                })
            })
        });
        if !right {
            report_breach(format!(
                "no Node with address {} (UID {:?}) was cordoned for it",
                power.address, attempt.node_uid
            ));
        }
        let noted = view.requests.get(&index).and_then(|r| r.before(first.revision)).and_then(|r| r.node_uid.as_ref());
        if noted.is_some() && attempt.node_uid.as_ref() != noted {
            report_breach(format!("the attempt names UID {:?}, but the request was for {noted:?}", attempt.node_uid));
        }
    }
    found
}

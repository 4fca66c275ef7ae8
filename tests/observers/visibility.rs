//! Visibility of the entries' state, and their end within a bound (I32 to I37, I39).

use std::collections::BTreeMap;

use cketerm_model::{
    cketerm_records::Verb,
    reboot::{RebootEntry, RebootStatus},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    record::{AcknowledgedCommand, Breach, EngineReport},
    view::{StoredReboot, Timeline, View, in_progress, member, named, shift, status},
};

/// Seconds by which clocks of engines may differ.
const CLOCK_SKEW: f64 = 15.0;

fn name(reason: Option<&Value>) -> &str {
    reason.map(named).unwrap_or_default()
}

fn seconds(n: i64) -> f64 {
    f64::from(i32::try_from(n).unwrap_or(i32::MAX))
}

/// I32, by the leader's report of each second. Consider each entry, readable or not, that was there at the revision the
/// leader had seen and 3 s before. It has a reason or an effect in flight. Silence of more than 3 s is a breach.
pub fn i32(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut silent: BTreeMap<(u64, &str), (Timestamp, Timestamp)> = BTreeMap::new();
    for report in view.leading() {
        let from = shift(report.at, -3.0);
        for (&index, line) in &view.entries {
            let there = line.get(report.revision).is_some()
                && line.throughout(from, report.at, |l| l.is_some() && status(l) != Some(RebootStatus::Cancelled));
            let has_reason = !name(report.reasons.get(&index)).is_empty() || report.moving.contains(&index);
            if !there || has_reason {
                silent.remove(&(index, report.by.as_str()));
                continue;
            }
            let (since, last) = silent.entry((index, report.by.as_str())).or_insert((report.at, report.at));
            // it did not lead in between
            if shift(*last, 2.5) < report.at {
                *since = report.at;
            }
            *last = report.at;
            if shift(*since, 3.0) < report.at {
                let what = format!("{} has led but reported no reason for reboots/{index} since {since}", report.by);
                found.push(Breach { code: "I32", at: report.at, what });
                *since = Timestamp::MAX;
            }
        }
    }
    found
}

/// I33, in the rest of the record after `calm_since` and the time until an engine leads (two TTL and 75 s), if an
/// engine of cketerm led to the end:
///
/// - A cancelled entry is gone after that time.
/// - No entry has been `draining` for a minute longer than the deadline of drains.
/// - No entry has been `rebooting`, with no reported reason but that it is in progress, for too long. The bound is the
///   time of all its commands with their intervals, a dead leader's last one, and four minutes of boot and settling.
/// - No queued entry is reported for a minute as next, as in progress, or as backed off until a time that has passed.
///
/// An entry that waits for its place in the schedule waits for one of these.
pub fn i33(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let (Some(calm), end) = (view.record.calm_since, view.record.end) else { return found };
    let quiet = shift(calm, 2.0 * view.ttl() + 75.0);
    let Some(cluster) = view.clusters.at(end).filter(|_| view.led_until_end(shift(end, -30.0))) else { return found };
    let (reboot, policy) = (&cluster.reboot, view.policy(i64::MAX));
    let bound = seconds(i64::try_from(reboot.command_bound(policy.command_cap_seconds)).unwrap_or(i64::MAX));
    let tries = f64::from(reboot.tries());
    let drain = seconds(reboot.eviction_timeout()) + 60.0;
    let settle = seconds(i64::try_from(policy.settle_seconds).unwrap_or(i64::MAX));
    let command = (bound + 5.0) * (tries + 1.0) + seconds(reboot.command_interval.unwrap_or(0)) * tries;
    let rebooting = command + 2.0 * view.ttl() + 240.0 + settle;
    for (&index, line) in &view.entries {
        let had_status = |span: f64, expected: RebootStatus| {
            let from = shift(end, -span);
            from >= quiet && line.throughout(from, end, |l| status(l) == Some(expected))
        };
        let last = view.leading().filter(|s| shift(s.at, 5.0) >= end).filter_map(|s| s.reasons.get(&index)).last();
        let last = last.map_or_else(|| "nothing".to_owned(), Value::to_string);
        let mut report_breach = |what: &str| {
            let what = format!("reboots/{index}, faults over since {calm}: {what}; the leader reports {last}");
            found.push(Breach { code: "I33", at: end, what });
        };
        if had_status(10.0, RebootStatus::Cancelled) {
            report_breach("is cancelled but still there");
        }
        if had_status(drain, RebootStatus::Draining) {
            report_breach("still drains after its deadline");
        }
        let reported_for = |span: f64, idle: &dyn Fn(&EngineReport, &Value) -> bool| {
            let from = shift(end, -span);
            let mut lately = view.leading().filter(|s| s.at >= from).peekable();
            lately.peek().is_some() && lately.all(|s| s.reasons.get(&index).is_none_or(|r| idle(s, r)))
        };
        let is_active = |_: &EngineReport, r: &Value| {
            matches!(name(Some(r)), "CommandRunning" | "Working" | "Ready" | "EffectFailed" | "Stale" | "")
        };
        if had_status(rebooting, RebootStatus::Rebooting) && reported_for(60.0, &is_active) {
            report_breach("still reboots after every bound, without a reported cause");
        }
        let next = |s: &EngineReport, r: &Value| {
            let over = || r["until"].as_str().and_then(|t| t.parse().ok()).is_some_and(|t| shift(t, CLOCK_SKEW) < s.at);
            match name(Some(r)) {
                "Backoff" => over(),
                other => matches!(other, "Ready" | "Working" | "EffectFailed" | "Stale" | ""),
            }
        };
        if had_status(60.0, RebootStatus::Queued) && reported_for(60.0, &next) {
            report_breach("could start but does not");
        }
    }
    found
}

/// I34, at each change that an engine makes to an entry. From `draining` to `queued` the count goes up by one, and the
/// backoff ends min(300·2^(count−1), 1200) to 299 s more after the transition that is written with it. A drain that is
/// unwound because its window ended, a freeze began or a person holds it keeps its backoff as it was. In any other
/// change count and end stay. No entry starts before its backoff has ended (clocks may differ by 15 s), unless a
/// person's `force` was there.
///
/// And an acknowledged reset left neither count nor end.
///
/// Not covered: counts below zero or near the largest number, which only other programs can have written.
pub fn i34(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for acknowledged in
        view.record.acknowledged.iter().filter(|t| matches!(t.command, AcknowledgedCommand::ResetBackoff(_)))
    {
        if let Some(what) = super::acknowledged_commands::missing_change(view, acknowledged) {
            found.push(Breach { code: "I34", at: acknowledged.at, what });
        }
    }
    for step in view.entry_changes().iter().filter(|m| m.engine) {
        let (Some(Ok(before)), Some(Ok(after))) = (step.before, step.after) else { continue };
        let mut report_breach = |what: String| {
            found.push(Breach { code: "I34", at: step.at, what: format!("reboots/{}: {what}", step.index) });
        };
        let back = before.status == RebootStatus::Draining && after.status == RebootStatus::Queued;
        let kept = before.drain_backoff_count == after.drain_backoff_count
            && before.drain_backoff_expire == after.drain_backoff_expire;
        // unwound: its window ended, a freeze began, or a person holds it
        let orders = |verb: Verb| {
            let from = view.seen_since(step.revision, step.at);
            let line = view.orders.get(&step.index);
            line.is_some_and(|l| l.sometime(from, step.at, |o| o.is_some_and(|o| o.verb == verb)))
        };
        if back && kept && (orders(Verb::Hold) || super::windows::may_unwind(view, step.revision, &after.node, step.at))
        {
            continue;
        }
        if !back {
            if !kept {
                report_breach(format!("{} → {} changes its backoff", before.status, after.status));
            }
        } else if before.drain_backoff_count >= 0 && before.drain_backoff_count < i64::MAX {
            if after.drain_backoff_count != before.drain_backoff_count + 1 {
                report_breach(format!("count {} becomes {}", before.drain_backoff_count, after.drain_backoff_count));
            }
            if let Some(what) = wrong_backoff(after) {
                report_breach(what);
            }
        }
        let early_backoff =
            before.drain_backoff_expire.filter(|until| step.starts() && *until > shift(step.at, CLOCK_SKEW));
        if let Some(until) = early_backoff.filter(|_| !orders(Verb::Force)) {
            report_breach(format!("starts while it is backed off until {until}"));
        }
    }
    found
}

fn wrong_backoff(after: &RebootEntry) -> Option<String> {
    let (Some(since), Some(until)) = (after.last_transition_time, after.drain_backoff_expire) else {
        return Some("backed off without an end".to_owned());
    };
    let shift = u32::try_from((after.drain_backoff_count - 1).clamp(0, 8)).unwrap_or(0);
    let (least, wait) = ((300_i64 << shift).min(1200), until.duration_since(since).as_secs());
    let good = wait >= least && wait <= least + 299;
    (!good).then(|| {
        format!("backed off for {wait} s after {} backoffs, expected at least {least}", after.drain_backoff_count)
    })
}

/// I35, by the leader's report: an entry that has been `rebooting` for 15 s longer than `stuck_seconds`, and that the
/// leader reports as waiting for its boot, is reported stuck. A former leader that is paused keeps its last report.
pub fn i35(view: &View<'_>) -> Vec<Breach> {
    for report in view.leading().filter(|report| view.led_by(&report.by, report.at, report.at) != Some(false)) {
        for (index, _) in report.reasons.iter().filter(|(_, r)| name(Some(r)) == "WaitingForBoot" && r["stuck"] != true)
        {
            let Some(entry) = view.entry(*index, report.revision) else { continue };
            let stuck = seconds(i64::try_from(view.policy(report.revision).stuck_seconds).unwrap_or(i64::MAX));
            let since = entry.last_transition_time.filter(|_| entry.status == RebootStatus::Rebooting);
            // a leader with a wrong clock writes wrong times, so the time of the write counts
            let written = view
                .entries
                .get(index)
                .and_then(|line| line.steps().iter().rev().find(|s| s.revision <= report.revision).map(|s| s.at));
            let since = since.max(written.filter(|_| since.is_some()));
            let settled = view.policies.throughout(shift(report.at, -CLOCK_SKEW), report.at, |p| {
                p.is_none_or(|p| seconds(i64::try_from(p.stuck_seconds).unwrap_or(i64::MAX)) <= stuck)
            });
            if since.is_some_and(|since| shift(since, stuck + CLOCK_SKEW) < report.at) && settled {
                let what = format!("reboots/{index} reboots since {since:?} but is not reported stuck");
                return vec![Breach { code: "I35", at: report.at, what }];
            }
        }
    }
    Vec::new()
}

/// I36, after faults have ended and an engine leads (see [`i33`]): an entry whose cancel was acknowledged is gone 5 s
/// and a twelfth of the TTL later, whatever the other entries do.
pub fn i36(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let Some(calm) = view.record.calm_since else { return found };
    let quiet = shift(calm, 2.0 * view.ttl() + 75.0);
    for acknowledged in view.record.acknowledged.iter().filter(|t| t.at >= quiet) {
        let one;
        let all = match &acknowledged.command {
            AcknowledgedCommand::Cancel(index) => {
                one = [*index];
                &one[..]
            }
            AcknowledgedCommand::CancelAll(all) => all,
            _ => continue,
        };
        let until = shift(acknowledged.at, 5.0 + view.ttl() / 12.0);
        let led = view.candidates.iter().any(|c| {
            c.registered
                && view.led(&c.lease, acknowledged.at, acknowledged.at)
                && c.deleted.is_none_or(|(_, deleted)| deleted > until)
        });
        for index in all.iter().filter(|_| led && until <= view.record.end) {
            let remains =
                view.entries.get(index).is_some_and(|l| l.throughout(acknowledged.at, until, |l| l.is_some()));
            if remains {
                let what = format!("reboots/{index} was cancelled at {} but is still there", acknowledged.at);
                found.push(Breach { code: "I36", at: until, what });
            }
        }
    }
    found
}

/// I37, after faults have ended and an engine leads (see [`i33`]), by the true clock: no drain takes a minute longer
/// than its deadline. And always: no drain backs off more than 2 s before its deadline because of a mere wait, if the
/// leader that began it backs it off. Mere waits are pods that are leaving or stuck, evictions that a webhook defers or
/// that have no decision yet, volumes, and a cordon that somebody removed.
///
/// Not covered: the arguments of the boot check; a drain that one leader began and another one backed off.
pub fn i37(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    early_backoff(view, &mut found);
    let Some(calm) = view.record.calm_since else { return found };
    let quiet = shift(calm, 2.0 * view.ttl() + 75.0);
    let longest = view.clusters.steps().iter().filter_map(|s| Some(s.value.as_ref()?.reboot.eviction_timeout())).max();
    let most = seconds(longest.unwrap_or(600)) + 60.0;
    for step in view
        .entry_changes()
        .iter()
        .filter(|m| status(m.before) == Some(RebootStatus::Draining) && !in_progress(m.after))
    {
        let drain_began = drain_began(&view.entries[&step.index], step.revision);
        if let Some(drain_began) = drain_began.filter(|b| *b >= quiet && shift(*b, most) < step.at) {
            let what = format!("reboots/{} drained from {drain_began} on, for longer than {most} s", step.index);
            found.push(Breach { code: "I37", at: step.at, what });
        }
    }
    found
}

/// Waits of a drain, as its audit record names them.
const WAIT_REASONS: [&str; 7] = [
    "is leaving: ",
    " pods are leaving",
    "is stuck terminating",
    "volumes still in use",
    ": cordon or cancel",
    " is deferred to webhook ",
    " failed, retrying: ",
];

fn early_backoff(view: &View<'_>, found: &mut Vec<Breach>) {
    let all = view.clusters.steps().iter().filter_map(|s| Some(s.value.as_ref()?.reboot.eviction_timeout()));
    let Some(shortest) = all.min() else { return };
    for step in view.entry_changes().iter().filter(|m| m.engine && status(m.before) == Some(RebootStatus::Draining)) {
        let (Some(Ok(before)), Some(Ok(after))) = (step.before, step.after) else { continue };
        let gives_up = after.status == RebootStatus::Queued && after.drain_backoff_count > before.drain_backoff_count;
        let why = view.audit_at(step.revision).filter(|_| gives_up);
        let why = why.and_then(|a| a["reason"].as_str().map(str::to_owned)).unwrap_or_default();
        if !WAIT_REASONS.iter().any(|wait| why.contains(wait)) {
            continue;
        }
        let line = &view.entries[&step.index];
        let began = line.steps().iter().rev().skip_while(|s| s.revision >= step.revision);
        let began = began.take_while(|s| status(s.value.as_ref()) == Some(RebootStatus::Draining)).last();
        let leader = |revision: i64| view.leader(revision).map(|c| c.created);
        let Some(began) = began.filter(|b| leader(b.revision) == leader(step.revision)) else { continue };
        // a drain's time counts from its decision: the write may come later, by as long as a lease allows
        let decided = view.audit_at(began.revision).and_then(|a| a["at"].as_str()?.parse::<Timestamp>().ok());
        let decision_delay = decided.map_or(0.0, |at| began.at.duration_since(at).as_secs_f64());
        let decision_delay = if (0.0..=view.ttl()).contains(&decision_delay) { decision_delay } else { 0.0 };
        if shift(began.at, seconds(shortest) - 2.0 - decision_delay) > step.at {
            let what =
                format!("reboots/{} drains since {} and backs off before its deadline: {why}", step.index, began.at);
            found.push(Breach { code: "I37", at: step.at, what });
        }
    }
}

/// Time at which the state before this revision had begun.
fn drain_began(line: &Timeline<StoredReboot>, revision: i64) -> Option<Timestamp> {
    let before = line.steps().iter().rev().skip_while(|s| s.revision >= revision);
    let same = before.take_while(|s| status(s.value.as_ref()) == Some(RebootStatus::Draining));
    same.last().map(|s| s.at)
}

/// I39, by the leader's report, compared with etcd at the revision that it had seen and for 2 s before: that the queue
/// is disabled, and that an entry is a duplicate, no member, unreadable, on hold or backed off. And at the end, if an
/// engine of cketerm led for 30 s: `reboots/running` is `true` exactly while the queue is enabled and not empty.
///
/// Not covered: metrics and screens.
pub fn i39(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut reported = std::collections::BTreeSet::new();
    for report in view.leading() {
        let keys = &view.record.keys;
        let seen = keys[..keys.partition_point(|k| k.revision <= report.revision)].last();
        let Some(to) = seen.map(|k| k.at) else { continue };
        let from = shift(to, -2.0);
        for (&index, reason) in report.reasons.iter() {
            let Some(line) = view.entries.get(&index) else { continue };
            let reason_name = name(Some(reason));
            let readable = |l: Option<&StoredReboot>| matches!(l, Some(Ok(_)));
            let untrue = match reason_name {
                "QueueDisabled" => view.switch.throughout(from, to, |raw| raw.is_none_or(|raw| raw != b"true")),
                "DuplicateOf" => reason["index"].as_u64().is_none_or(|other| {
                    view.entries.get(&other).is_none_or(|l| l.throughout(from, to, |l| !readable(l)))
                }),
                "NotMember" => view.clusters.throughout(from, to, |c| {
                    let entry = view.entry(index, report.revision);
                    c.zip(entry).is_some_and(|(c, e)| member(c, &e.node).is_some())
                }),
                "InvalidEntry" => line.throughout(from, to, readable),
                "OnHold" => view.orders.get(&index).is_none_or(|o| {
                    o.throughout(from, to, |o| o.is_none_or(|o| o.verb != Verb::Hold))
                }),
                "BatchPaused" => !super::batches::sometime_paused(view, index, from, to),
                "BatchUnreadable" => !super::batches::sometime_unreadable(view, index, from, to),
                "Frozen" => view.policies.throughout(from, to, |p| p.is_none_or(|p| p.freeze.is_none())),
                "OutsideWindow" => view.policies.throughout(from, to, |p| p.is_none_or(|p| p.windows.is_none())),
                "WaitingForBudget" => view.policies.throughout(from, to, |p| {
                    p.is_none_or(|p| p.worker_order == cketerm_model::policy::WorkerOrder::Queue)
                }),
                "PodsCannotLand" | "LandingUnknown" => view.policies.throughout(from, to, |p| {
                    p.is_none_or(|p| p.landing_check == cketerm_model::policy::LandingCheck::Advise)
                }),
                "WaitingForGroup" => view.policies.throughout(from, to, |p| p.is_none_or(|p| p.groups.is_none())),
                "Backoff" => line.throughout(from, to, |l| {
                    matches!(l, Some(Ok(e)) if e.status != RebootStatus::Queued || e.drain_backoff_expire.is_none())
                }),
                _ => false,
            };
            if untrue && reported.insert((index, reason_name.to_owned())) {
                let what = format!("{} reports for reboots/{index}: {reason}, which is wrong", report.by);
                found.push(Breach { code: "I39", at: report.at, what });
            }
        }
    }
    let end = view.record.end;
    let is_idle = view.record.keys.last().is_none_or(|k| shift(k.at, 10.0) <= end);
    let calm = view.record.calm_since.is_some_and(|calm| shift(calm, 2.0 * view.ttl() + 75.0) <= end);
    if is_idle && calm && view.led_until_end(shift(end, -30.0)) {
        let runs = view.enabled(i64::MAX) && view.entries.values().any(|l| l.last().is_some());
        let stored = view.running.last().map(Vec::as_slice) == Some(b"true");
        if runs != stored {
            let what = format!("reboots/running is {stored}, expected {runs}");
            found.push(Breach { code: "I39", at: end, what });
        }
    }
    found
}

//! Outcomes of commands whose leader is gone (I47).

use cketerm_model::attempt::{Attempt, Ended};
use jiff::Timestamp;

use super::{
    power_log,
    record::{Breach, EngineReport, Power, PowerEvent},
    view::{View, shift},
};

/// Seconds within which the outcome of a command is recorded, once it has ended, its leader no longer leads, another
/// one does, and an engine runs on its host.
const RECORDED_WITHIN: f64 = 45.0;
/// Seconds by which an engine's view of etcd may be old while the engine counts as running and connected.
const MAX_VIEW_AGE: f64 = 8.0;
/// Largest number of seconds between two reports of an engine.
const MAX_REPORT_GAP: f64 = 3.0;

/// I47, for each reboot command in the machines' log, where hosts keep results. `RECORDED_WITHIN` after it has ended
/// and its leader no longer leads, its attempt has an outcome or is gone. The condition is that all that time an engine
/// ran on its host and one led, both with a fresh copy of etcd. An attempt that is recorded as ended by itself did end
/// so on its machine: the result of one command is never that of another.
///
/// Not covered: repairs.
pub fn i47(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for (index, begin) in power_log::begins(view) {
        let Some((n, line)) = view.attempt(index, &begin.attempt) else { continue };
        let end = power_log::ended(view, begin);
        let ends = line.steps().iter().filter_map(|s| Some((s.at, s.value.as_ref()?.outcome.as_ref()?)));
        for (at, outcome) in ends.filter(|(at, _)| *at >= begin.at) {
            if let Ended::Exit(code) = outcome.end
                && view.record.keeps_results
                && !end.is_some_and(|e| e.at <= at && e.what == PowerEvent::End(Some(code)))
            {
                let what = format!(
                    "attempt {n} of reboots/{index} is recorded as {}, but its machine saw {end:?}",
                    outcome.end
                );
                found.push(Breach { code: "I47", at, what });
            }
        }
        let Some(end) = end.filter(|_| view.record.keeps_results) else { continue };
        found.extend(missing_outcome(view, index, n, end));
    }
    found
}

/// Breach if the attempt of an ended command has no outcome when it should have one.
fn missing_outcome(view: &View<'_>, index: u64, n: u32, end: &Power) -> Option<Breach> {
    let line = view.attempts.get(&(index, n))?;
    let open: &Attempt = line.at(end.at).filter(|a| a.open())?;
    let lease = format!("{:x}", open.lease);
    let (_, deleted) = view.candidates.iter().find(|c| c.lease == lease)?.deleted?;
    let from = deleted.max(end.at);
    let until = shift(from, RECORDED_WITHIN);
    if until > view.record.end {
        return None;
    }
    let runs = |report: &&EngineReport| report.by == open.host;
    if !throughout(view, from, until, runs) || !throughout(view, from, until, |report| report.leads) {
        return None;
    }
    let was_paused = view.record.paused.iter().any(|(_, a, b)| *a <= until && *b >= from);
    let still_open = line.at(until).is_some_and(|a| a.open() && a.lease == open.lease);
    (still_open && !was_paused).then(|| Breach {
        code: "I47",
        at: until,
        what: format!(
            "the command of attempt {n} of reboots/{index} ended at {}, but no result is recorded although {} runs",
            end.at, open.host
        ),
    })
}

/// Reports whether such an engine reported all that time, and had seen the latest writes.
fn throughout(view: &View<'_>, from: Timestamp, until: Timestamp, which: impl Fn(&&EngineReport) -> bool) -> bool {
    let mut last = from;
    let reports = view.record.reports.iter().filter(|s| s.at >= from && s.at <= until).filter(|s| which(s));
    for report in reports {
        if shift(last, MAX_REPORT_GAP) < report.at {
            return false;
        }
        let lately = shift(report.at, -MAX_VIEW_AGE);
        let seen = view.record.keys.partition_point(|k| k.at <= lately);
        if seen.checked_sub(1).is_some_and(|i| view.record.keys[i].revision > report.revision) {
            return false;
        }
        last = report.at;
    }
    shift(last, MAX_REPORT_GAP) >= until
}

//! No wait is silent (I51).

use std::collections::BTreeMap;

use cketerm_model::reboot::RebootStatus;
use jiff::Timestamp;

use super::{
    record::Breach,
    view::{View, named, shift, status},
};

/// Seconds for which an entry may be reported as in progress without a step forward. The bound covers several
/// consecutive requests of the longest duration, with the waits in between.
const MAX_SILENCE: f64 = 150.0;

/// I51, by the leader's report of each second: for an entry that is `queued` or `draining` and has made no step for 150
/// s, the leader has named at least once what it waits for. "In progress" and "next" name no cause.
///
/// Not covered: whether the named cause is the right one.
pub fn i51(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    // by entry and engine: start of the time without a cause, state, and time of the last report
    let mut without_cause: BTreeMap<(u64, &str), (Timestamp, Option<RebootStatus>, Timestamp)> = BTreeMap::new();
    for report in view.leading() {
        for (&index, line) in &view.entries {
            let key = (index, report.by.as_str());
            let state = status(line.get(report.revision));
            let waits = matches!(state, Some(RebootStatus::Queued | RebootStatus::Draining));
            let reason = report.reasons.get(&index).map(named).unwrap_or_default();
            let names_no_cause = matches!(reason, "Working" | "Ready");
            if !waits || !names_no_cause {
                without_cause.remove(&key);
                continue;
            }
            let (since, before, last) = without_cause.entry(key).or_insert((report.at, state, report.at));
            // a step forward, or it did not lead in between
            if *before != state || shift(*last, 2.5) < report.at {
                (*since, *before) = (report.at, state);
            }
            *last = report.at;
            if shift(*since, MAX_SILENCE) < report.at {
                let what = format!("{} has reported only {reason} for reboots/{index} since {since}", report.by);
                found.push(Breach { code: "I51", at: report.at, what });
                *since = Timestamp::MAX;
            }
        }
    }
    found
}

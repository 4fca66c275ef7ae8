//! No wait is silent (I51).

use std::collections::BTreeMap;

use cketerm::model::reboot::RebootStatus;
use jiff::Timestamp;

use super::{
    record::Breach,
    view::{View, named, shift, status},
};

/// Seconds for which an entry may be reported as in progress without a step forward. The bound covers several
/// consecutive requests of the longest duration, with the waits in between.
const BOUND: f64 = 150.0;

/// I51, by the leader's report of each second: for an entry that is `queued` or `draining` and has made no step for 150
/// s, the leader has named at least once what it waits for. "In progress" and "next" name no cause.
///
/// Not covered: whether the named cause is the right one.
pub fn i51(view: &View<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    // by entry and engine: start of the time without a cause, state, and time of the last report
    let mut silent: BTreeMap<(u64, &str), (Timestamp, Option<RebootStatus>, Timestamp)> = BTreeMap::new();
    for said in view.leading() {
        for (&index, line) in &view.entries {
            let key = (index, said.by.as_str());
            let state = status(line.get(said.revision));
            let waits = matches!(state, Some(RebootStatus::Queued | RebootStatus::Draining));
            let reason = said.reasons.get(&index).map(named).unwrap_or_default();
            let names_no_cause = matches!(reason, "Working" | "Ready");
            if !waits || !names_no_cause {
                silent.remove(&key);
                continue;
            }
            let (since, before, last) = silent.entry(key).or_insert((said.at, state, said.at));
            // a step forward, or it did not lead in between
            if *before != state || shift(*last, 2.5) < said.at {
                (*since, *before) = (said.at, state);
            }
            *last = said.at;
            if shift(*since, BOUND) < said.at {
                let what = format!("{} says of reboots/{index} nothing but {reason} since {since}", said.by);
                found.push(Breach { code: "I51", at: said.at, what });
                *since = Timestamp::MAX;
            }
        }
    }
    found
}

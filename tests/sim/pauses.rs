//! Times in which the process of an engine stood still: the observers then expect nothing of it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    plan::{Fault, Plan},
    selection::Selection,
};

/// Name of a process, and the time in which it stood still.
pub type Pause = (String, Timestamp, Timestamp);

/// Pauses that the plan has and the selection keeps.
pub fn planned(plan: &Plan, selection: &Selection, start: Timestamp) -> Vec<Pause> {
    let faults = plan.faults.iter().enumerate().filter(|(i, _)| selection.has(&format!("f{i}")));
    faults
        .filter_map(|(_, (at, fault))| match fault {
            Fault::Freeze { engine, seconds } => {
                let from = start + *at;
                Some((format!("engine-{engine}"), from, from + Duration::from_secs(*seconds)))
            }
            _ => None,
        })
        .collect()
}

/// Times in which a stuck engine counts as paused for the observers: until its process has ended. Its watchdog needs
/// its time while the process runs, so a pause of the process that begins before delays the end.
pub fn while_stuck(stuck: &[(String, Timestamp)], paused: &[Pause], ttl: u64) -> Vec<Pause> {
    let long = Duration::from_secs(ttl.max(20) / 2 + 15);
    let end = |name: &str, at: Timestamp| {
        let mut own: Vec<_> = paused.iter().filter(|(who, _, to)| who == name && *to > at).collect();
        own.sort_by_key(|(_, from, _)| *from);
        own.into_iter().fold(at + long, |end, (_, from, to)| if *from <= end { end.max(*to + long) } else { end })
    };
    stuck.iter().map(|(name, at)| (name.clone(), *at, end(name, *at))).collect()
}

/// Times during which each process was paused, ordered by time. A pause ends at the latest when another process of that
/// name starts, and overlapping pauses are merged.
pub fn merge(mut all: Vec<Pause>, start_times: &BTreeMap<String, Vec<Timestamp>>) -> Vec<Pause> {
    for (name, from, to) in &mut all {
        let next = start_times.get(name).and_then(|all| all.iter().find(|born| *born > from));
        *to = next.map_or(*to, |born| *born.min(to));
    }
    all.sort();
    all.dedup_by(|later, earlier| {
        let one = later.0 == earlier.0 && later.1 <= earlier.2;
        if one {
            earlier.2 = earlier.2.max(later.2);
        }
        one
    });
    all.sort_by_key(|(_, from, _)| *from);
    all
}

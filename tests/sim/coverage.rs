//! Coverage: counts which faults met which states, from the record and the time of each fault.

use std::{collections::BTreeMap, fmt::Write as _};

use cketerm_model::{
    reboot::RebootStatus,
    repair::{RepairStatus, StepStatus},
};
use jiff::Timestamp;

use crate::{observers::View, plan};

/// States in which a fault may meet the site.
pub static STATES: &[&str] = &[
    "idle",
    "queued",
    "backoff",
    "draining",
    "rebooting",
    "cancelled",
    "unreadable",
    "command",
    "orphan",
    "disabled",
    "window",
    "repair queued",
    "repair draining",
    "repair watching",
    "repair backoff",
    "host asked",
    "host off",
];

/// States that every kind of fault has to meet somewhere in a run of a thousand seeds.
pub static REQUIRED: &[&str] = &["queued", "draining", "rebooting", "repair watching", "host off"];

/// Short-lived states that faults of single requests have to meet too.
pub static REQUIRED_OF_REQUESTS: &[&str] = &["backoff", "command", "repair draining"];

/// Number of times that each fault met each state.
pub type Pairs = BTreeMap<(&'static str, &'static str), u32>;

/// Counts the pairs of one run. `hits` are the faults with the time at which each of them began.
pub fn pairs(view: &View<'_>, hits: &[(Timestamp, &'static str)]) -> Pairs {
    let mut pairs = Pairs::new();
    for (at, fault) in hits {
        for state in states(view, *at) {
            *pairs.entry((fault, state)).or_default() += 1;
        }
    }
    pairs
}

/// Pairs that a large run should have met and has not.
pub fn missing(pairs: &Pairs, effect_pairs: &Pairs) -> Vec<String> {
    let each = plan::FAULTS.iter().flat_map(|fault| REQUIRED.iter().map(move |state| (*fault, *state)));
    let requests = plan::FAULTS[..plan::REQUEST_FAULT_COUNT].iter();
    let required =
        each.chain(requests.flat_map(|fault| REQUIRED_OF_REQUESTS.iter().map(move |state| (*fault, *state))));
    let states = required.filter(|pair| !pairs.contains_key(pair));
    let required =
        plan::FATES.iter().flat_map(|request_fault| plan::EFFECTS.iter().map(move |aim| (*request_fault, aim.what)));
    let effects = required.filter(|pair| !effect_pairs.contains_key(pair));
    states.chain(effects).map(|(fault, met)| format!("{fault} × {met}")).collect()
}

/// Faults by kind of effect: a line for each.
pub fn effects(effect_pairs: &Pairs) -> String {
    let mut text = String::new();
    for aim in plan::EFFECTS {
        let met = effect_pairs
            .iter()
            .filter(|((_, what), _)| *what == aim.what)
            .map(|((request_fault, _), n)| format!("{request_fault} {n}"));
        let _ = writeln!(text, "  {:18} {}", aim.what, met.collect::<Vec<_>>().join(", "));
    }
    text
}

/// The table: a line for each fault, with the number of times that it met each state.
pub fn table(pairs: &Pairs) -> String {
    let mut text = String::new();
    for fault in plan::FAULTS {
        let met = STATES.iter().filter_map(|state| Some(format!("{state} {}", pairs.get(&(*fault, *state))?)));
        let _ = writeln!(text, "  {fault:18} {}", met.collect::<Vec<_>>().join(", "));
    }
    text
}

/// States of the site at this moment.
fn states(view: &View<'_>, at: Timestamp) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = Vec::new();
    for line in view.entries.values() {
        found.extend(match line.at(at) {
            None => continue,
            Some(Err(())) => Some("unreadable"),
            Some(Ok(entry)) => Some(match entry.status {
                RebootStatus::Queued if entry.drain_backoff_expire.is_some_and(|until| until > at) => "backoff",
                RebootStatus::Queued => "queued",
                RebootStatus::Draining => "draining",
                RebootStatus::Rebooting => "rebooting",
                RebootStatus::Cancelled => "cancelled",
            }),
        });
    }
    for ((index, _), line) in &view.attempts {
        let Some(attempt) = line.at(at) else { continue };
        let there = view.entries.get(index).and_then(|l| l.at(at)).is_some();
        found.extend(attempt.open().then_some("command"));
        found.extend((!there).then_some("orphan"));
    }
    for line in view.repairs.values() {
        let Some(Ok(entry)) = line.at(at) else { continue };
        found.extend(match (entry.status, entry.step_status) {
            _ if !entry.unfinished() || entry.deleted => None,
            _ if entry.drain_backoff_expire.is_some_and(|until| until > at) => Some("repair backoff"),
            (RepairStatus::Processing, StepStatus::Draining) => Some("repair draining"),
            (RepairStatus::Processing, StepStatus::Watching) => Some("repair watching"),
            _ => Some("repair queued"),
        });
    }
    if found.is_empty() {
        found.push("idle");
    }
    if view.switch.at(at).is_some_and(|raw| raw == b"true") {
        found.push("disabled");
    }
    if view.policies.at(at).is_some_and(|p| p.windows.is_some() || p.freeze.as_ref().is_some_and(|f| f.holds(at))) {
        found.push("window");
    }
    found.extend(hosts(view, at));
    found.sort_unstable();
    found.dedup();
    found
}

fn hosts(view: &View<'_>, at: Timestamp) -> Vec<&'static str> {
    let mut last = BTreeMap::new();
    for change in view.record.objects.iter().filter(|c| c.resource == "baremetalhosts" && c.at <= at) {
        last.insert(&change.name, change.after.as_ref());
    }
    let mut found = Vec::new();
    for host in last.into_values().flatten() {
        found.extend((host["status"]["poweredOn"] == false).then_some("host off"));
        let requested = host["metadata"]["annotations"].as_object();
        let requested = requested.is_some_and(|all| all.keys().any(|name| name.starts_with("reboot.metal3.io")));
        found.extend(requested.then_some("host asked"));
    }
    found
}

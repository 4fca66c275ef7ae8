//! Faults in the rules: the search has to find each that a small world can express.

use cketerm_model::mutation::{ALL, Mutation};

use crate::{
    plans::PLANS,
    search::{Limits, replay, search},
    steps::Step,
    traces::TRACES,
    world::Plan,
};

/// Faults that small worlds can express, and the invariants that may find them.
pub const EXPRESSIBLE: &[(Mutation, &[&str])] = &[
    (Mutation::CompareNothing, &["I27"]),
    (Mutation::ForgottenCordon, &["I10", "I33"]),
    (Mutation::CancelOverwritten, &["I27"]),
    (Mutation::SecondRun, &["I25"]),
    (Mutation::TwoApiServers, &["I1"]),
    (Mutation::WorkersForgotten, &["I2"]),
    (Mutation::LimitIgnored, &["I3"]),
    (Mutation::DuplicateStarts, &["I4"]),
    (Mutation::ForeignCordonLost, &["I11", "I10"]),
    (Mutation::SwitchIgnored, &["I13"]),
    (Mutation::EarlyUncordon, &["I14"]),
    (Mutation::DoneForgotten, &["I14", "I33", "I10"]),
    (Mutation::DrainedTooEarly, &["I21"]),
    (Mutation::UncordonOnDisable, &["I14"]),
    (Mutation::UnfencedWrite, &["I23"]),
    (Mutation::KeepForgotten, &["I12"]),
    (Mutation::SilentEntry, &["I32"]),
    (Mutation::RepairBesideReboot, &["I4"]),
    (Mutation::StepTwice, &["I25"]),
    (Mutation::LateEffect, &["I24"]),
];

/// Numbers of states that are searched first in each world.
const DEPTHS: [usize; 2] = [2_000, 20_000];

/// Searches with this fault, or with each one.
pub fn find(name: &str, plans: &[&Plan], limits: Limits) -> bool {
    let wanted: Vec<Mutation> = ALL.iter().copied().filter(|m| name == "all" || format!("{m:?}") == name).collect();
    if wanted.is_empty() {
        println!("there is no mutation {name}");
        return false;
    }
    let (mut well, mut found) = (true, 0);
    for mutation in wanted {
        let Some((_, codes)) = EXPRESSIBLE.iter().find(|(known, _)| *known == mutation) else {
            if name != "all" {
                println!("{name}: no small world can express it");
                well = false;
            }
            continue;
        };
        // most faults show early: every world is searched a little before one is searched far
        let hit = DEPTHS.iter().map(|states| limits.states.min(*states)).chain([limits.states]).find_map(|states| {
            plans.iter().find_map(|plan| {
                let report = search(plan, Some(mutation), Limits { states, ..limits });
                let (breach, trace) = report.breach?;
                Some((plan.name, report.states, breach, trace))
            })
        });
        match hit {
            Some((world, states, breach, trace)) if codes.contains(&breach.code) => {
                found += 1;
                println!("found {mutation:?} in {world} after {} steps, {states} states: {breach}", trace.len());
                if std::env::var_os("TRACES").is_some() {
                    print_trace(mutation, world, &trace);
                }
            }
            Some((world, _, breach, _)) => {
                println!("MISSED {mutation:?}: {world} breaks another invariant: {breach}");
                well = false;
            }
            None => {
                println!("MISSED {mutation:?}");
                well = false;
            }
        }
    }
    println!("mutations found in small worlds: {found}");
    well
}

/// Prints a trace as it stands in `traces.rs`, up to the fair run.
fn print_trace(mutation: Mutation, world: &str, trace: &[Step]) {
    let steps = trace.iter().take_while(|step| !matches!(step, Step::Rest));
    let steps: Vec<String> = steps.map(|step| format!("{step:?}")).collect();
    println!("    (Mutation::{mutation:?}, {world:?}, &[{}]),", steps.join(", "));
}

/// Plays the shortest trace to each fault. It has to break an invariant with the fault, and none without it.
pub fn replay_all() -> bool {
    let mut well = true;
    for (mutation, world, trace) in TRACES {
        let Some(plan) = PLANS.iter().find(|plan| plan.name == *world) else { continue };
        let codes = EXPRESSIBLE.iter().find(|(known, _)| known == mutation).map_or(&[][..], |(_, codes)| *codes);
        match replay(plan, Some(*mutation), trace) {
            Some(breach) if codes.contains(&breach.code) => {}
            other => {
                println!("the trace to {mutation:?} in {world} ends with {other:?}");
                well = false;
            }
        }
        if let Some(breach) = replay(plan, None, trace) {
            println!("the trace to {mutation:?} in {world} breaks an invariant without it: {breach}");
            well = false;
        }
    }
    println!("traces to faults: {} replayed", TRACES.len());
    well
}

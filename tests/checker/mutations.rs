//! Faults in the rules: the search has to find each that a small world can express.

use cketerm_model::mutation::{ALL, Mutation};

use crate::{
    search::{Limits, search},
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
        let hit = plans.iter().find_map(|plan| {
            let report = search(plan, Some(mutation), limits);
            let (breach, trace) = report.breach?;
            Some((plan.name, report.states, breach, trace))
        });
        match hit {
            Some((world, states, breach, trace)) if codes.contains(&breach.code) => {
                found += 1;
                println!("found {mutation:?} in {world} after {} steps, {states} states: {breach}", trace.len());
                if name != "all" {
                    for step in trace {
                        println!("    {step:?}");
                    }
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

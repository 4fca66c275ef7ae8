//! A model checker over the real rules: every state of small worlds, breadth first.
//!
//! `decide`, the memory, the transitions and the fence are those of the engine. Only what answers is small: an etcd, a
//! Kubernetes and machines of a few hundred lines. Each step of an engine, a machine, a person or a fault is a step of the
//! search.
//!
//! - `STATES=1000000` limits the states of each world, `WORLDS=handover,cancel` chooses worlds.
//! - `MUTATION=NAME` searches with a fault in the rules, which must be found; `MUTATION=all`: each fault that such a world
//!   can express.

mod canon;
mod effects;
mod engine;
mod etcd;
mod laws;
mod liveness;
mod losses;
mod mutations;
mod plans;
mod search;
mod steps;
mod traces;
mod world;

use std::process::ExitCode;

use crate::{
    plans::PLANS,
    search::{Limits, Report, search},
    world::Plan,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of states of each world unless `STATES` says otherwise.
const STATES: usize = 20_000;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let limits = Limits { states: number("STATES").unwrap_or(STATES), threads: number("THREADS").unwrap_or(threads) };
    let chosen = std::env::var("WORLDS").unwrap_or_default();
    let plans: Vec<&Plan> =
        PLANS.iter().filter(|plan| chosen.is_empty() || chosen.split(',').any(|n| n == plan.name)).collect();
    let well = if let Some(name) = std::env::var("MUTATION").ok().filter(|name| !name.is_empty()) {
        mutations::find(&name, &plans, limits)
    } else {
        let replayed = !cfg!(feature = "mutations") || mutations::replay_all();
        all(&plans, limits) && replayed
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn all(plans: &[&Plan], limits: Limits) -> bool {
    let (mut well, mut states, mut seconds) = (true, 0, 0.0);
    for plan in plans {
        let report = search(plan, None, limits);
        states += report.states;
        seconds += report.took.as_secs_f64();
        print(plan, &report);
        well &= report.breach.is_none();
    }
    println!("small worlds: {states} states in {seconds:.1} s, peak memory {} MiB", peak_memory());
    well
}

fn print(plan: &Plan, report: &Report) {
    let extent = if report.whole { "all" } else { "limited" };
    println!(
        "{:<12} {:>9} states ({extent}), {:>10} steps, depth {:>3}, {:>6.1} s",
        plan.name,
        report.states,
        report.steps,
        report.depth,
        report.took.as_secs_f64()
    );
    if let Some((breach, trace)) = &report.breach {
        println!("  {breach}\n  after {} steps:", trace.len());
        for step in trace {
            println!("    {step:?}");
        }
    }
}

/// Returns the largest memory that this process has had, in MiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() / 1024
}

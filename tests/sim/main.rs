//! The simulation: engines, people and faults on a sandbox with a paused clock, and observers that judge the record.
//!
//! Run it with `make sim SEEDS=1000 SEED_FROM=1`, or `cargo test --test sim`. A seed that fails prints its trace and
//! the command that repeats it. The same seed always gives the same scenario.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test, though it has its own harness

#[path = "../observers/mod.rs"]
mod observers;

/// The agent's own code, which the program runs on each node.
#[path = "../../src/cketerm/src/agent/protocol.rs"]
mod agent_protocol;

mod admission_webhooks;
mod agents;
mod batch_operator;
mod breaker;
mod cke;
mod coverage;
mod definition_editor;
mod engine_reports;
mod engines;
mod enqueues;
mod found_by_oracle;
mod gather;
mod handovers;
mod histories;
mod hooks;
mod hosts;
mod inject;
mod long_runs;
mod maintenance_requests;
mod maintenance_windows;
mod membership;
mod mutations;
mod node_maintenance;
mod node_signs;
mod other_drainers;
mod outages;
mod output;
mod pauses;
mod people;
mod plan;
mod policy_editor;
mod quorum;
mod reboot_needed;
mod refusals;
mod registry;
mod regressions;
mod run;
mod runtime;
mod selection;
mod settle;
mod shrink;
mod site;
mod start_gates;
mod stories;
mod stuck;
mod ticks;
mod viewer;
mod webhook_receiver;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use run::Outcome;
use selection::Selection;
use stories::Stories;

/// Allocation takes a fifth of a run. This one is as quick as the program's, and builds in seconds instead of minutes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of seeds from which a run counts as complete: it then also plays the long scenarios, and every fault has to
/// meet its states.
const COMPLETE_RUN: u64 = 100;

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        println!("simulation: test");
        return ExitCode::SUCCESS;
    }
    let (seeds, from, threads) = (env_number("SEEDS", 4), env_number("SEED_FROM", 1), env_number("SIM_THREADS", 2));
    let verbose = seeds == 1;
    if verbose {
        let level = std::env::var("SIM_LOG").unwrap_or_else(|_| "off".to_owned());
        tracing_subscriber::fmt().with_env_filter(level).without_time().with_writer(std::io::stderr).init();
    }
    match std::env::var("MUTATION") {
        Ok(name) if !name.is_empty() => return mutations::find_mutations(&name, seeds, from, threads),
        _ => {}
    }
    if let Ok(name) = std::env::var(histories::VARIABLE) {
        return if histories::run(Some(&name)) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    for stories in STORIES {
        if let Ok(number) = std::env::var(stories.variable) {
            let number = number.parse().unwrap_or(stories.seeds);
            return if stories.run(from..=from + number - 1) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    }
    if let Ok(line) = std::env::var("ONLY")
        && !line.is_empty()
    {
        let outcome = run::seed_with(from, &Selection::parse(&line));
        println!("{}\ndigest {:x}", outcome.report(), outcome.digest);
        return if outcome.breaches.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let began = Instant::now();
    // each fixed scenario needs one processor for minutes; the seeds need all of them
    let (fixed_scenarios_ok, mut total) = std::thread::scope(|scope| {
        let fixed_scenarios = scope.spawn(|| verbose || fixed_scenarios(seeds >= COMPLETE_RUN));
        let total = run_all(seeds, from, threads, verbose);
        (fixed_scenarios.join().unwrap_or(false), total)
    });
    total.print(began.elapsed().as_secs_f64());
    let mut ok = total.failed == 0 && fixed_scenarios_ok;
    if seeds >= COMPLETE_RUN {
        let missing = total.faults_never_hit();
        if !missing.is_empty() {
            println!("faults that never took effect: {}", missing.join(", "));
        }
        ok &= missing.is_empty() & is_reproducible(from, total.first.as_slice(), threads);
    }
    if seeds >= 1000 {
        let mut further = from + seeds;
        // rare pairs depend on chance: further seeds may reach some that a thousand did not
        while !coverage::missing(&total.pairs, &total.effect_pairs).is_empty() && further < from + seeds + EXTRA_MAX {
            println!("continues  for {}", coverage::missing(&total.pairs, &total.effect_pairs).join(", "));
            total.join(run_all(EXTRA_BATCH, further, threads, false));
            further += EXTRA_BATCH;
        }
        ok &= total.failed == 0;
        let missing = coverage::missing(&total.pairs, &total.effect_pairs);
        if !missing.is_empty() {
            println!("faults that never met a required state: {}", missing.join(", "));
        }
        ok &= missing.is_empty();
    }
    for (seed, code) in total.seeds_to_shrink() {
        match shrink::shrink(seed, code, MAX_REPLAYS) {
            Some(shrunk) => {
                let (line, of, left) = (shrunk.line(seed), shrunk.of, shrunk.names.len());
                println!(
                    "shrunk     {code} of seed {seed}: {of} to {left} in {} replays; again: {line}",
                    shrunk.replays
                );
                print!("{}", shrunk.report);
            }
            None => println!("shrunk     {code} of seed {seed} was not reproduced"),
        }
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All kinds of stories.
static STORIES: &[Stories] = &[
    handovers::STORIES,
    refusals::STORIES,
    membership::STORIES,
    reboot_needed::STORIES,
    other_drainers::STORIES,
    hooks::STORIES,
    agents::STORIES,
    node_signs::STORIES,
    breaker::STORIES,
    node_maintenance::STORIES,
    maintenance_requests::STORIES,
    start_gates::STORIES,
];

/// Plays the scenarios that are not drawn from a seed, in a complete run the long ones too, and reports whether all went
/// well.
fn fixed_scenarios(complete: bool) -> bool {
    regressions::run_all()
        & maintenance_windows::run_all()
        & (!complete
            || (histories::run(None)
                & long_runs::run_all()
                & STORIES.iter().fold(true, |ok, stories| stories.run_all() & ok)))
}

/// Seeds that are added while a fault has not met one of its states: the number of each batch, and the maximum.
const EXTRA_BATCH: u64 = 250;
const EXTRA_MAX: u64 = 1000;
/// Number of seeds that are played twice and must give the same scenario.
const REPLAYED_SEEDS: usize = 20;
/// Number of seeds after which a line reports the progress.
const PROGRESS_INTERVAL: u64 = 500;
/// Number of seeds that are shrunk, and of replays for each.
const MAX_SHRUNK: usize = 3;
const MAX_REPLAYS: u32 = 60;

fn run_all(seeds: u64, from: u64, threads: u64, verbose: bool) -> Total {
    let (next, total) = (AtomicU64::new(from), Mutex::new(Total::default()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(seeds).max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= from + seeds {
                        return;
                    }
                    let outcome = run::seed(seed);
                    let mut total = total.lock().unwrap();
                    total.add(&outcome);
                    if !outcome.breaches.is_empty() {
                        print!("{}", outcome.report());
                    } else if verbose {
                        println!("{}\ndigest {:x}", outcome.trace.join("\n"), outcome.digest);
                    }
                    if total.seeds % PROGRESS_INTERVAL == 0 && total.seeds < seeds {
                        let (of, failed, took) = (total.seeds, total.failed, began.elapsed().as_secs());
                        println!("progress   {of} of {seeds} in {took} s, failed {failed}");
                    }
                }
            });
        }
    });
    total.into_inner().unwrap()
}

/// Plays the first seeds again, and reports whether they gave the same scenarios.
fn is_reproducible(from: u64, first: &[(u64, u64)], threads: u64) -> bool {
    let again = run_all(first.len() as u64, from, threads, false);
    let other: Vec<u64> = first.iter().filter(|d| !again.first.contains(d)).map(|(seed, _)| *seed).collect();
    println!("again      {} seeds run twice, {} of them with another result {other:?}", first.len(), other.len());
    other.is_empty()
}

/// Result of all seeds.
#[derive(Default)]
struct Total {
    seeds: u64,
    failed: u64,
    virtual_minutes: f64,
    hits: BTreeMap<String, u64>,
    states: BTreeMap<String, u64>,
    breaches: BTreeMap<&'static str, Vec<u64>>,
    pairs: coverage::Pairs,
    effect_pairs: coverage::Pairs,
    /// The first seeds with their digests.
    first: Vec<(u64, u64)>,
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.failed += u64::from(!outcome.breaches.is_empty());
        self.virtual_minutes += outcome.virtual_minutes;
        for (name, count) in &outcome.hits {
            *self.hits.entry(name.clone()).or_default() += u64::from(*count);
        }
        for (name, count) in &outcome.states {
            *self.states.entry(name.clone()).or_default() += u64::from(*count);
        }
        for breach in &outcome.breaches {
            let seeds = self.breaches.entry(breach.code).or_default();
            if seeds.last() != Some(&outcome.seed) {
                seeds.push(outcome.seed);
            }
        }
        for (from, to) in [(&outcome.pairs, &mut self.pairs), (&outcome.effect_pairs, &mut self.effect_pairs)] {
            for (pair, count) in from {
                *to.entry(*pair).or_default() += count;
            }
        }
        self.first.push((outcome.seed, outcome.digest));
        self.first.sort_unstable();
        self.first.truncate(REPLAYED_SEEDS);
    }

    fn join(&mut self, other: Self) {
        self.failed += other.failed;
        for (code, seeds) in other.breaches {
            self.breaches.entry(code).or_default().extend(seeds);
        }
        for (from, to) in [(other.pairs, &mut self.pairs), (other.effect_pairs, &mut self.effect_pairs)] {
            for (pair, count) in from {
                *to.entry(pair).or_default() += count;
            }
        }
    }

    /// One seed for each invariant that was broken.
    fn seeds_to_shrink(&self) -> Vec<(u64, &'static str)> {
        let each = self.breaches.iter().filter(|(code, _)| **code != "panic");
        each.filter_map(|(code, seeds)| Some((*seeds.first()?, *code))).take(MAX_SHRUNK).collect()
    }

    /// Faults that no seed met: the simulation then proves nothing about them.
    fn faults_never_hit(&self) -> Vec<&'static str> {
        plan::FAULTS.iter().copied().filter(|f| !self.hits.contains_key(*f)).collect()
    }

    fn print(&self, seconds: f64) {
        let line = |map: &BTreeMap<String, u64>| {
            map.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
        };
        println!("seeds      {} in {seconds:.1} s, {:.0} virtual minutes", self.seeds, self.virtual_minutes);
        println!("faults     {}", line(&self.hits));
        println!("states     {}", line(&self.states));
        println!("pairs      faults by the states that they met");
        print!("{}", coverage::table(&self.pairs));
        println!("effects    by the faults that hit them right before or after");
        print!("{}", coverage::effects(&self.effect_pairs));
        for (code, seeds) in &self.breaches {
            println!("BREACH     {code}: {} seeds, such as {:?}", seeds.len(), &seeds[..seeds.len().min(5)]);
        }
        println!("failed     {}", self.failed);
    }
}

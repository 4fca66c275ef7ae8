//! The simulation: engines, people and faults on a sandbox with a paused clock, and observers that judge the record.
//!
//! Run it with `make sim SEEDS=1000 SEED_FROM=1`, or `cargo test --test sim`. A seed that fails prints its trace and
//! the command that repeats it. The same seed always gives the same scenario.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test, though it has its own harness

#[path = "../observers/mod.rs"]
mod observers;

mod cke;
mod cover;
mod disturb;
mod editor;
mod engine_reports;
mod engines;
mod gather;
mod hook;
mod hosts;
mod keep;
mod maintenance_windows;
mod mutations;
mod outages;
mod people;
mod plan;
mod policy_editor;
mod quorum;
mod registry;
mod regressions;
mod run;
mod settle;
mod shrink;
mod stuck;
mod tell;
mod ticks;
mod viewer;
mod webhooks;
mod weeks;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use keep::Keep;
use run::Outcome;

/// Same allocator as the program's: allocation takes a fifth of a run.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Number of seeds from which a run counts as complete: it then also plays the long scenarios, and every fault has to
/// meet its states.
const MANY: u64 = 100;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        println!("simulation: test");
        return ExitCode::SUCCESS;
    }
    let (seeds, from, threads) = (number("SEEDS", 4), number("SEED_FROM", 1), number("SIM_THREADS", 2));
    let verbose = seeds == 1;
    if verbose {
        let level = std::env::var("SIM_LOG").unwrap_or_else(|_| "off".to_owned());
        tracing_subscriber::fmt().with_env_filter(level).without_time().with_writer(std::io::stderr).init();
    }
    match std::env::var("MUTATION") {
        Ok(name) if !name.is_empty() => return mutations::hunt(&name, from, threads),
        _ => {}
    }
    if let Ok(line) = std::env::var("ONLY")
        && !line.is_empty()
    {
        let outcome = run::seed_with(from, &Keep::parse(&line));
        println!("{}\ndigest {:x}", outcome.report(), outcome.digest);
        return if outcome.breaches.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let kept = verbose || (regressions::play() & maintenance_windows::play() & (seeds < MANY || weeks::play()));
    let began = Instant::now();
    let mut total = play(seeds, from, threads, verbose);
    total.print(began.elapsed().as_secs_f64());
    let mut well = total.failed == 0 && kept;
    if seeds >= MANY {
        let missing = total.never_hit();
        if !missing.is_empty() {
            println!("faults that never hit: {}", missing.join(", "));
        }
        well &= missing.is_empty() & same_again(from, total.first.as_slice(), threads);
    }
    if seeds >= 1000 {
        let mut further = from + seeds;
        // rare pairs depend on the draw: the next seeds may meet what a thousand did not
        while !cover::missing(&total.pairs, &total.aimed).is_empty() && further < from + seeds + FURTHER {
            println!("plays on   for {}", cover::missing(&total.pairs, &total.aimed).join(", "));
            total.join(play(MORE, further, threads, false));
            further += MORE;
        }
        well &= total.failed == 0;
        let missing = cover::missing(&total.pairs, &total.aimed);
        if !missing.is_empty() {
            println!("faults that never met a state that they have to: {}", missing.join(", "));
        }
        well &= missing.is_empty();
    }
    for (seed, code) in total.to_shrink() {
        match shrink::shrink(seed, code, REPLAYS) {
            Some(short) => {
                let (line, of, left) = (short.line(seed), short.of, short.names.len());
                println!(
                    "shrunk     {code} of seed {seed}: {of} to {left} in {} replays; again: {line}",
                    short.replays
                );
                print!("{}", short.report);
            }
            None => println!("shrunk     {code} of seed {seed} did not happen again"),
        }
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds that are added while a fault has not met one of its states: the number of each batch, and the maximum.
const MORE: u64 = 250;
const FURTHER: u64 = 1000;
/// Number of seeds that are played twice and must give the same scenario.
const TWICE: usize = 20;
/// Number of seeds after which a line reports the progress.
const PROGRESS: u64 = 500;
/// Number of seeds that are shrunk, and of replays for each.
const SHRUNK: usize = 3;
const REPLAYS: u32 = 60;

fn play(seeds: u64, from: u64, threads: u64, verbose: bool) -> Total {
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
                    if total.seeds % PROGRESS == 0 && total.seeds < seeds {
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
fn same_again(from: u64, first: &[(u64, u64)], threads: u64) -> bool {
    let again = play(first.len() as u64, from, threads, false);
    let other: Vec<u64> = first.iter().filter(|d| !again.first.contains(d)).map(|(seed, _)| *seed).collect();
    println!("again      {} seeds played twice, {} of them another story {other:?}", first.len(), other.len());
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
    pairs: cover::Pairs,
    aimed: cover::Pairs,
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
        for (from, to) in [(&outcome.pairs, &mut self.pairs), (&outcome.aimed, &mut self.aimed)] {
            for (pair, count) in from {
                *to.entry(*pair).or_default() += count;
            }
        }
        self.first.push((outcome.seed, outcome.digest));
        self.first.sort_unstable();
        self.first.truncate(TWICE);
    }

    fn join(&mut self, other: Self) {
        self.failed += other.failed;
        for (code, seeds) in other.breaches {
            self.breaches.entry(code).or_default().extend(seeds);
        }
        for (from, to) in [(other.pairs, &mut self.pairs), (other.aimed, &mut self.aimed)] {
            for (pair, count) in from {
                *to.entry(pair).or_default() += count;
            }
        }
    }

    /// One seed for each invariant that was broken.
    fn to_shrink(&self) -> Vec<(u64, &'static str)> {
        let each = self.breaches.iter().filter(|(code, _)| **code != "panic");
        each.filter_map(|(code, seeds)| Some((*seeds.first()?, *code))).take(SHRUNK).collect()
    }

    /// Faults that no seed met: the simulation then proves nothing about them.
    fn never_hit(&self) -> Vec<&'static str> {
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
        print!("{}", cover::table(&self.pairs));
        println!("effects    what befell them right before or after");
        print!("{}", cover::effects(&self.aimed));
        for (code, seeds) in &self.breaches {
            println!("BREACH     {code}: {} seeds, such as {:?}", seeds.len(), &seeds[..seeds.len().min(5)]);
        }
        println!("failed     {}", self.failed);
    }
}

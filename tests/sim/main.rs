//! The simulation: engines, people and faults on a sandbox with a paused clock, and observers over what happened.
//!
//! `make sim SEEDS=1000 SEED_FROM=1`, or `cargo test --test sim`. A seed that fails prints its trace and how to run it
//! again; the same seed is the same story.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test, though it has its own harness

#[path = "../observers/mod.rs"]
mod observers;

mod disturb;
mod engines;
mod gather;
mod hook;
mod hosts;
mod mutations;
mod nights;
mod office;
mod people;
mod plan;
mod run;
mod settle;
mod tell;

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
    let nights = verbose || nights::play();
    let began = Instant::now();
    let (next, total) = (AtomicU64::new(from), Mutex::new(Total::default()));
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
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    total.print(began.elapsed().as_secs_f64());
    let missing = total.never_hit();
    if seeds >= 100 && !missing.is_empty() {
        println!("faults that never hit: {}", missing.join(", "));
        return ExitCode::FAILURE;
    }
    if total.failed == 0 && nights { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What all seeds came to.
#[derive(Default)]
struct Total {
    seeds: u64,
    failed: u64,
    virtual_minutes: f64,
    hits: BTreeMap<String, u64>,
    states: BTreeMap<String, u64>,
    breaches: BTreeMap<String, Vec<u64>>,
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
            let seeds = self.breaches.entry(breach.code.to_owned()).or_default();
            if seeds.last() != Some(&outcome.seed) {
                seeds.push(outcome.seed);
            }
        }
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
        for (code, seeds) in &self.breaches {
            println!("BREACH     {code}: {} seeds, such as {:?}", seeds.len(), &seeds[..seeds.len().min(5)]);
        }
        println!("failed     {}", self.failed);
    }
}

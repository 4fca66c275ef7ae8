//! Breadth-first search over all states of a world. The first breach that it finds has the shortest trace.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use cketerm_model::mutation::{self, Mutation};
use foldhash::fast::FixedState;

use crate::{
    laws::Breach,
    liveness::Liveness,
    steps::Step,
    world::{Plan, World},
};

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of states after which the search ends.
    pub states: usize,
    /// Number of threads.
    pub threads: usize,
}

/// Result of a search.
#[derive(Debug)]
pub struct Report {
    /// Number of distinct states.
    pub states: usize,
    /// Number of steps made, those to known states included.
    pub steps: usize,
    /// Number of steps from the first state to the last layer.
    pub depth: usize,
    /// Whether every state was visited.
    pub whole: bool,
    /// Time.
    pub took: Duration,
    /// The first breach, with the steps that lead to it.
    pub breach: Option<(Breach, Vec<Step>)>,
}

/// A state that is reached for the first time, with the number of the state before.
struct Reached {
    fingerprint: u64,
    world: World,
    from: u32,
    step: Step,
}

/// One thread's part of a layer.
#[derive(Default)]
struct Part {
    reached: Vec<Reached>,
    steps: usize,
    breach: Option<(Breach, u32, Vec<Step>)>,
    stable: Vec<u64>,
}

/// Searches a world for a breach.
pub fn search(plan: &Plan, mutation: Option<Mutation>, limits: Limits) -> Report {
    let began = Instant::now();
    set(mutation);
    let first = World::new(plan);
    let mut known: HashSet<u64, FixedState> = HashSet::default();
    let mut live = Liveness::default();
    known.insert(first.fingerprint());
    let mut parents: Vec<(u32, Step)> = vec![(0, Step::Tick)];
    let mut layer = vec![(0_u32, first)];
    let mut report = Report { states: 1, steps: 0, depth: 0, whole: false, took: Duration::ZERO, breach: None };
    while !layer.is_empty() && report.breach.is_none() && report.states < limits.states {
        let size = layer.len().div_ceil(limits.threads).max(1);
        let parts: Vec<Part> = std::thread::scope(|scope| {
            let spawn = |part| {
                let (known, live) = (&known, &live);
                scope.spawn(move || expand(part, mutation, known, live))
            };
            let tasks: Vec<_> = layer.chunks(size).map(spawn).collect();
            tasks.into_iter().filter_map(|task| task.join().ok()).collect()
        });
        layer = Vec::new();
        for part in parts {
            report.steps += part.steps;
            live.learn(part.stable);
            if let (Some((breach, from, then)), None) = (part.breach, &report.breach) {
                let mut trace = trace_to(&parents, from);
                trace.extend(then);
                report.breach = Some((breach, trace));
            }
            for reached in part.reached {
                if known.insert(reached.fingerprint) {
                    let number = u32::try_from(parents.len()).unwrap_or(u32::MAX);
                    parents.push((reached.from, reached.step));
                    layer.push((number, reached.world));
                }
            }
        }
        report.states = known.len();
        report.depth += 1;
    }
    report.whole = layer.is_empty();
    report.took = began.elapsed();
    report
}

fn set(mutation: Option<Mutation>) {
    #[cfg(feature = "mutations")]
    mutation::set(mutation);
    #[cfg(not(feature = "mutations"))]
    let _ = mutation;
}

fn expand(
    layer: &[(u32, World)],
    mutation: Option<Mutation>,
    known: &HashSet<u64, FixedState>,
    live: &Liveness,
) -> Part {
    set(mutation);
    let mut part = Part::default();
    let mut own: HashSet<u64, FixedState> = HashSet::default();
    for (number, world) in layer {
        for step in world.steps() {
            part.steps += 1;
            let mut next = world.clone();
            if let Err(breach) = next.step(step) {
                part.breach.get_or_insert((breach, *number, vec![step]));
                return part;
            }
            let fingerprint = next.fingerprint();
            if known.contains(&fingerprint) || !own.insert(fingerprint) {
                continue;
            }
            if let Err((breach, then)) = live.check(&next, fingerprint, &mut part.stable) {
                let steps = [step, Step::Rest].into_iter().chain(then).collect();
                part.breach.get_or_insert((breach, *number, steps));
                return part;
            }
            part.reached.push(Reached { fingerprint, world: next, from: *number, step });
        }
    }
    part
}

fn trace_to(parents: &[(u32, Step)], number: u32) -> Vec<Step> {
    let mut trace = Vec::new();
    let mut at = number;
    while at != 0 {
        let Some((from, step)) = parents.get(usize::try_from(at).unwrap_or_default()) else { break };
        trace.push(*step);
        at = *from;
    }
    trace.reverse();
    trace
}

/// Makes these steps from the first state of a world, up to the last one that is possible. Without a breach it goes on
/// with the fair run. Returns the breach.
pub fn replay(plan: &Plan, mutation: Option<Mutation>, trace: &[Step]) -> Option<Breach> {
    set(mutation);
    let mut world = World::new(plan);
    for step in trace.iter().take_while(|step| !matches!(step, Step::Rest)) {
        if !world.steps().contains(step) {
            break;
        }
        if let Err(breach) = world.step(*step) {
            return Some(breach);
        }
    }
    let fingerprint = world.fingerprint();
    Liveness::default().check(&world, fingerprint, &mut Vec::new()).err().map(|(breach, _)| breach)
}

//! Whether the simulation finds faults that were put into the program on purpose, and under which invariant's name.

use std::process::ExitCode;
#[cfg(feature = "mutations")]
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use cketerm::mutation::{self, Mutation};

use crate::run;
#[cfg(feature = "mutations")]
use crate::{keep::Keep, shrink};

/// Seeds within which each has to be found.
const WITHIN: u64 = 1000;

/// The invariants that a mutation breaks: to be found by another one would be luck.
fn names(mutation: Mutation) -> &'static [&'static str] {
    match mutation {
        Mutation::CompareNothing | Mutation::UnfencedWrite => &["I23"],
        Mutation::ForgottenCordon => &["I10"],
        Mutation::RetriesInMemory | Mutation::SecondRun => &["I25"],
        Mutation::CancelOverwritten => &["I27", "I28", "I23"],
        Mutation::SharedArguments => &["I26"],
        Mutation::BackoffOverflow | Mutation::ResetIgnored => &["I34"],
        Mutation::UncordonOnDisable | Mutation::SwitchIgnored => &["I13"],
        Mutation::SlotEaten => &["I5"],
        Mutation::HalfForgotten | Mutation::KeyOfOthers => &["I44"],
        Mutation::WindowForgotten | Mutation::FreezeForgotten => &["I8"],
        Mutation::TwoApiServers => &["I1"],
        Mutation::WorkersForgotten => &["I2"],
        Mutation::LimitIgnored => &["I3"],
        Mutation::DuplicateStarts => &["I4"],
        Mutation::GateForgotten => &["I6"],
        Mutation::SickControlPlane => &["I7"],
        Mutation::CordonUnrecorded => &["I9"],
        Mutation::ForeignCordonLost => &["I11"],
        Mutation::KeepForgotten => &["I12"],
        Mutation::EarlyUncordon => &["I14"],
        Mutation::PreviewIgnored => &["I15"],
        Mutation::DrainedTooEarly => &["I21"],
        Mutation::EvictionWithoutUid => &["I17"],
        Mutation::DeleteProtected => &["I18"],
        Mutation::DaemonSetsEvicted => &["I19"],
        Mutation::ForceDelete => &["I22"],
        Mutation::LateEffect => &["I24"],
        Mutation::StrangeFieldsLost => &["I29"],
        Mutation::LastFirst => &["I30"],
        Mutation::StrangerStays => &["I31"],
        Mutation::SilentEntry => &["I32"],
        Mutation::StuckUnsaid => &["I35"],
        Mutation::ClockTrusted => &["I37"],
        Mutation::AuditForgotten => &["I38"],
        Mutation::RunsForEver => &["I39"],
        Mutation::SuccessTwice => &["I40"],
        Mutation::StepTwice | Mutation::StepUnwatched => &["I41"],
        Mutation::OverCap => &["I42"],
        Mutation::RepairBesideReboot => &["I43"],
        Mutation::ReadsWrite => &["I45"],
    }
}

/// Breaks one, or `all` of them one after another, and plays seeds until each is found.
#[cfg(feature = "mutations")]
pub fn hunt(name: &str, from: u64, threads: u64) -> ExitCode {
    let wanted: Vec<Mutation> = mutation::ALL
        .iter()
        .copied()
        .filter(|m| name == "all" || format!("{m:?}").eq_ignore_ascii_case(name))
        .collect();
    if wanted.is_empty() {
        println!("MUTATION={name}: unknown; known: all, {:?}", mutation::ALL);
        return ExitCode::FAILURE;
    }
    let (mut missed, mut to_shrink) = (0, None);
    for mutation in &wanted {
        mutation::set(Some(*mutation));
        let began = Instant::now();
        let (next, found) = (AtomicU64::new(from), AtomicBool::new(false));
        let how = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::SeqCst);
                        if seed >= from + WITHIN || found.load(Ordering::SeqCst) {
                            return;
                        }
                        let outcome = run::seed(seed);
                        let breach = outcome.breaches.into_iter().find(|b| names(*mutation).contains(&b.code));
                        if let Some(breach) = breach {
                            found.store(true, Ordering::SeqCst);
                            how.lock().unwrap().get_or_insert((seed, breach));
                        }
                    }
                });
            }
        });
        let seconds = began.elapsed().as_secs_f64();
        match how.into_inner().unwrap() {
            Some((seed, breach)) => {
                println!("found  {mutation:?} by {} with seed {seed} in {seconds:.1} s: {}", breach.code, breach.what);
                if *mutation == Mutation::EvictionWithoutUid {
                    to_shrink = Some(seed);
                }
            }
            None => {
                missed += 1;
                println!("MISSED {mutation:?}: not by {:?} within {WITHIN} seeds, {seconds:.1} s", names(*mutation));
            }
        }
    }
    if name == "all" {
        missed += usize::from(!to_shrink.is_some_and(shortens));
    }
    mutation::set(None);
    println!("mutations found {}/{}", wanted.len() - missed, wanted.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether a seed that fails for a mutation gets short: a handful of names is left of some sixty.
#[cfg(feature = "mutations")]
fn shortens(seed: u64) -> bool {
    mutation::set(Some(Mutation::EvictionWithoutUid));
    let Some(short) = shrink::shrink(seed, "I17", 40) else {
        println!("SHRINKING failed: seed {seed} does not break I17 again");
        return false;
    };
    println!(
        "shrunk     {} of seed {seed} from {} to {} names in {} replays; again: {}",
        short.code,
        short.of,
        short.names.len(),
        short.replays,
        short.line(seed)
    );
    let again = run::seed_with(seed, &Keep::only(&short.names));
    short.names.len() * 4 <= short.of && again.breaches.iter().any(|b| b.code == short.code)
}

/// Nothing can be broken in this build.
#[cfg(not(feature = "mutations"))]
pub fn hunt(name: &str, _: u64, _: u64) -> ExitCode {
    let _ = (mutation::ALL, names, run::seed, WITHIN);
    println!("MUTATION={name} needs --features mutations");
    ExitCode::FAILURE
}

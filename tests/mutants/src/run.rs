//! All mutants of a sample through the suites, from cheap to dear.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Result, anyhow};

use crate::{
    checks::Stage,
    judge::Judge,
    mutant::Mutant,
    results::{Outcome, Results, Verdict},
};

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    judged: usize,
    killed: usize,
}

/// Runs one suite for all mutants that survived so far, and writes each verdict down at once.
///
/// # Errors
///
/// Fails if a program cannot be run, or a result cannot be written.
pub fn stage(judge: &Judge, mutants: &[Mutant], results: &mut Results, stage: Stage, processes: usize) -> Result<()> {
    let work: Vec<(&Mutant, Verdict)> =
        mutants.iter().filter_map(|mutant| pending(judge, mutant, results, stage)).collect();
    let killed_before = killed(mutants, results);
    eprintln!("{}: {} mutants to judge, {killed_before} of {} killed so far", stage.name(), work.len(), mutants.len());
    let (next, progress, began) = (AtomicUsize::new(0), Mutex::new(Progress::default()), Instant::now());
    let fresh = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let worker = || -> Result<()> {
            while let Some((mutant, verdict)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                let verdict = judge.judge(mutant.id, stage, verdict.clone())?;
                results.append(&verdict)?;
                let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                progress.judged += 1;
                progress.killed += usize::from(verdict.outcome != Outcome::Survived);
                report(*progress, work.len(), killed_before, mutants.len(), began, &verdict);
                fresh.lock().unwrap_or_else(PoisonError::into_inner).push(verdict);
            }
            Ok(())
        };
        let workers: Vec<_> = (0..processes.max(1)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
    })?;
    let fresh = fresh.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.verdicts.extend(fresh.into_iter().map(|verdict| (verdict.key.clone(), verdict)));
    Ok(())
}

/// Verdict of a mutant that this suite can still judge.
fn pending<'m>(judge: &Judge, mutant: &'m Mutant, results: &Results, stage: Stage) -> Option<(&'m Mutant, Verdict)> {
    let unknown = || Verdict { key: mutant.key(), outcome: Outcome::Survived, passed: BTreeSet::new(), seconds: 0 };
    let known = results.verdicts.get(&mutant.key());
    let verdict = known.cloned().unwrap_or_else(unknown);
    let is_open = verdict.outcome == Outcome::Survived && !judge.reaching(mutant.id, stage, &verdict.passed).is_empty();
    (is_open || known.is_none()).then_some((mutant, verdict))
}

fn killed(mutants: &[Mutant], results: &Results) -> usize {
    let verdicts = mutants.iter().filter_map(|mutant| results.verdicts.get(&mutant.key()));
    verdicts.filter(|verdict| verdict.outcome != Outcome::Survived).count()
}

fn report(now: Progress, of: usize, killed_before: usize, all: usize, began: Instant, last: &Verdict) {
    let took = began.elapsed().as_secs_f64();
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let left = took / number(now.judged.max(1)) * number(of - now.judged.min(of)) / 60.0;
    let killed = killed_before + now.killed;
    let share = 100.0 * number(killed) / number(all.max(1));
    let outcome = match &last.outcome {
        Outcome::Killed { by, overdue: false, .. } => format!("killed by {by}"),
        Outcome::Killed { by, overdue: true, .. } => format!("overdue in {by}"),
        Outcome::Survived => "survived".to_owned(),
    };
    let judged = now.judged;
    eprintln!("{judged}/{of}, killed {killed} of {all} ({share:.1} %), {left:.0} min left: {} {outcome}", last.key);
}

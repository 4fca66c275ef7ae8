//! Judgement of one mutant by the checks of one suite.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    build::Program,
    checks::{self, Check, Stage},
    process::{ACTIVE, End, Runner},
    results::{Outcome, Verdict},
    unit_tests,
};

/// Sums of seconds at which a batch of unit tests ends: most mutants are found by the first ones.
const BATCHES: [f64; 3] = [1.0, 5.0, 30.0];

/// Everything that judges mutants.
#[derive(Debug)]
pub struct Judge<'a> {
    /// Runs programs.
    pub runner: &'a Runner,
    /// Programs of tests.
    pub programs: &'a [Program],
    /// All checks.
    pub checks: &'a [Check],
    /// Largest duration of a check that is run, in seconds.
    pub longest: f64,
    /// Largest sum of the durations of the checks that a suite runs for one mutant, in seconds. A later run goes on with
    /// the others.
    pub most: f64,
}

impl Judge<'_> {
    /// Runs the checks of one suite that reach the mutant, and that it has not passed yet.
    ///
    /// # Errors
    ///
    /// Fails if a program cannot be run.
    pub fn judge(&self, id: u32, stage: Stage, mut verdict: Verdict) -> Result<Verdict> {
        let reaching = self.reaching(id, stage, &verdict.passed);
        let groups = if stage == Stage::Unit { batches(&reaching) } else { alone(&reaching) };
        let is_reached = !groups.is_empty();
        let mut planned = 0.0;
        for group in groups {
            planned += group.iter().map(|check| check.seconds).sum::<f64>();
            if planned > self.most && stage != Stage::Unit {
                break;
            }
            let (end, seconds) = self.run(id, stage, &group)?;
            verdict.seconds += seconds;
            let first = group.first().map(|check| check.name.clone()).unwrap_or_default();
            let (by, overdue) = match end {
                End::Passed => {
                    if stage != Stage::Unit {
                        verdict.passed.extend(group.iter().map(|check| check.name.clone()));
                    }
                    continue;
                }
                End::Failed(text) => (text, false),
                End::Overdue => (first.clone(), true),
            };
            let by = match stage {
                Stage::Unit => by,
                Stage::Servers => first,
                Stage::Sim | Stage::Checker if by == first => by,
                Stage::Sim | Stage::Checker => format!("{first}: {by}"),
            };
            verdict.outcome = Outcome::Killed { stage, by, overdue };
            return Ok(verdict);
        }
        if stage == Stage::Unit && is_reached {
            verdict.passed.insert(stage.name().to_owned());
        }
        Ok(verdict)
    }

    /// Checks that can still judge a mutant, in the order in which they run.
    pub fn reaching(&self, id: u32, stage: Stage, passed: &BTreeSet<String>) -> Vec<&Check> {
        if stage == Stage::Unit && passed.contains(stage.name()) {
            return Vec::new();
        }
        let is_wanted = |check: &&Check| {
            check.stage == stage
                && check.passed
                && check.reached.contains(&id)
                && check.seconds <= self.longest
                && (stage == Stage::Unit || !passed.contains(&check.name))
        };
        let mut reaching: Vec<&Check> = self.checks.iter().filter(is_wanted).collect();
        // a test that reaches few mutants is about the code of this one
        let cost = |check: &Check| match stage {
            Stage::Unit => check.seconds,
            Stage::Checker | Stage::Sim | Stage::Servers => {
                check.seconds * u32::try_from(check.reached.len()).map_or(1.0, f64::from)
            }
        };
        reaching.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        reaching
    }

    fn run(&self, id: u32, stage: Stage, group: &[&Check]) -> Result<(End, u64)> {
        let first = group.first().context("an empty group")?;
        let program = self.programs.iter().find(|one| one.name == first.program).context("an unknown program")?;
        let arguments = match stage {
            Stage::Unit => unit_tests::arguments(group.iter().map(|check| check.name.as_str())),
            Stage::Sim | Stage::Checker | Stage::Servers => checks::arguments(first),
        };
        let mut variables = first.variables.clone();
        variables.push((ACTIVE.to_owned(), id.to_string()));
        let seconds: f64 = group.iter().map(|check| check.seconds).sum();
        let limit = Duration::from_secs_f64(3.0 * seconds + 20.0);
        let (end, took) = self.runner.run(program, &arguments, &variables, limit, checks::failure(stage))?;
        Ok((end, took.as_secs()))
    }
}

/// Unit tests that run in one process: of one program, and short at first.
fn batches<'a>(sorted: &[&'a Check]) -> Vec<Vec<&'a Check>> {
    let mut groups: Vec<Vec<&Check>> = Vec::new();
    let (mut sum, mut batch) = (0.0, BTreeMap::<&str, Vec<&Check>>::new());
    let mut ends = BATCHES.iter();
    let mut end = ends.next();
    for check in sorted {
        if end.is_some_and(|end| sum + check.seconds > *end) && !batch.is_empty() {
            groups.extend(std::mem::take(&mut batch).into_values());
            end = ends.next();
        }
        sum += check.seconds;
        batch.entry(&check.program).or_default().push(check);
    }
    groups.extend(batch.into_values());
    groups
}

fn alone<'a>(sorted: &[&'a Check]) -> Vec<Vec<&'a Check>> {
    sorted.iter().map(|check| vec![*check]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(program: &str, name: &str, seconds: f64) -> Check {
        Check {
            stage: Stage::Unit,
            program: program.to_owned(),
            name: name.to_owned(),
            variables: Vec::new(),
            seconds,
            passed: true,
            reached: [1].into(),
        }
    }

    #[test]
    fn quick_tests_come_first_and_programs_are_apart() {
        let all =
            [check("rules", "a", 0.1), check("engine", "b", 0.2), check("rules", "c", 0.3), check("rules", "d", 4.0)];
        let sorted: Vec<&Check> = all.iter().collect();
        let names: Vec<Vec<&str>> =
            batches(&sorted).iter().map(|group| group.iter().map(|check| check.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["b"], vec!["a", "c"], vec!["d"]]);
    }

    #[test]
    fn only_checks_that_reach_the_mutant_and_pass_without_it_judge_it() {
        let mut all = ["a", "b", "c", "d"].map(|name| check("rules", name, if name == "a" { 2.0 } else { 1.0 }));
        all[3].seconds = 2.1;
        all[2].passed = false;
        let runner = Runner { tree: "/".into(), temporary: "/".into(), pause_file: None, variables: Vec::new() };
        let judge = Judge { runner: &runner, programs: &[], checks: &all, longest: 2.0, most: 9.0 };
        let names = |id| -> Vec<&str> {
            let reaching = judge.reaching(id, Stage::Unit, &BTreeSet::new());
            reaching.into_iter().map(|check| check.name.as_str()).collect()
        };
        assert_eq!(names(1), ["b", "a"]);
        assert!(names(2).is_empty());
    }
}

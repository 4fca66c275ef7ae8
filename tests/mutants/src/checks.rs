//! Checks: parts of the tests that run alone, and the mutants that each of them reaches.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    build::Program,
    folder::Folder,
    process::{End, REACHED, Runner},
    simulations::{self, Part},
    unit_tests,
};

/// Suites of `make test`, from cheap to dear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Unit tests of all crates.
    Unit,
    /// The checker of small worlds.
    Checker,
    /// The simulation.
    Sim,
    /// Tests on real servers.
    Servers,
}

impl Stage {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit tests",
            Self::Checker => "checker",
            Self::Sim => "simulation",
            Self::Servers => "real servers",
        }
    }
}

/// One check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Suite that it belongs to.
    pub stage: Stage,
    /// Program that runs it.
    pub program: String,
    /// Name of the test or of the part of a simulation.
    pub name: String,
    /// Variables that select it.
    pub variables: Vec<(String, String)>,
    /// Duration without a mutant.
    pub seconds: f64,
    /// Whether it passes without a mutant. Only then it can judge one.
    pub passed: bool,
    /// Mutants that it reaches.
    pub reached: BTreeSet<u32>,
}

/// Time limit of a check without a mutant.
const LIMIT: Duration = Duration::from_mins(15);

/// Checks of these programs that belong to the stages. Tests on servers are chosen by filters.
///
/// # Errors
///
/// Fails if a program cannot list its tests.
fn planned(programs: &[Program], stages: &[Stage], filters: &[String]) -> Result<Vec<Check>> {
    let mut planned = Vec::new();
    for program in programs {
        let of_names =
            |names: Vec<String>| names.into_iter().map(|name| Part { name, variables: Vec::new() }).collect();
        let (stage, parts): (Stage, Vec<Part>) = match program.name.as_str() {
            "sim" => (Stage::Sim, simulations::simulation()),
            "checker" => (Stage::Checker, simulations::checker()),
            "it" => {
                let mut names = unit_tests::names(program)?;
                names.retain(|name| filters.iter().any(|filter| name.contains(filter.as_str())));
                (Stage::Servers, of_names(names))
            }
            _ => (Stage::Unit, of_names(unit_tests::names(program)?)),
        };
        for Part { name, variables } in parts {
            let (program, reached) = (program.name.clone(), BTreeSet::new());
            planned.push(Check { stage, program, name, variables, seconds: 0.0, passed: false, reached });
        }
    }
    planned.retain(|check| stages.contains(&check.stage));
    planned.sort_by_key(|check| check.stage);
    Ok(planned)
}

/// Reads the checks that are known.
///
/// # Errors
///
/// Fails if their file cannot be read.
pub fn read(folder: &Folder) -> Result<Vec<Check>> {
    let path = folder.checks();
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path)?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Runs all checks without a mutant, each alone, unless they are known, and returns them with what they reach.
///
/// # Errors
///
/// Fails if a program cannot be run, or a file cannot be written.
pub fn learn(
    folder: &Folder,
    runner: &Runner,
    programs: &[Program],
    stages: &[Stage],
    filters: &[String],
    processes: usize,
) -> Result<Vec<Check>> {
    let known = read(folder)?;
    let is_known = |check: &Check| known.iter().any(|other| other.program == check.program && other.name == check.name);
    let missing: Vec<Check> =
        planned(programs, stages, filters)?.into_iter().filter(|check| !is_known(check)).collect();
    let file = OpenOptions::new().create(true).append(true).open(folder.checks())?;
    let (next, file) = (AtomicUsize::new(0), Mutex::new(file));
    eprintln!("checks: {} are known, {} to run without a mutant", known.len(), missing.len());
    thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(check) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let check = measure(folder, runner, programs, check)?;
                if !check.passed {
                    eprintln!("checks: {} {} fails without a mutant: it judges none", check.program, check.name);
                }
                append(&file, &serde_json::to_string(&check)?)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..processes.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
    })?;
    read(folder)
}

/// Appends a line to a file that several threads share.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn append(file: &Mutex<File>, line: &str) -> Result<()> {
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(file.write_all(format!("{line}\n").as_bytes())?)
}

fn measure(folder: &Folder, runner: &Runner, programs: &[Program], check: &Check) -> Result<Check> {
    let program = programs.iter().find(|program| program.name == check.program).context("an unknown program")?;
    let name = format!("reached-{}-{:?}", std::process::id(), thread::current().id());
    let reached = folder.temporary().join(name.replace(['(', ')'], ""));
    let _ = fs::remove_file(&reached);
    let mut variables = check.variables.clone();
    variables.push((REACHED.to_owned(), reached.display().to_string()));
    let arguments = arguments(check);
    let (end, took) = runner.run(program, &arguments, &variables, LIMIT, failure(check.stage))?;
    let text = fs::read_to_string(&reached).unwrap_or_default();
    let reached = text.lines().filter_map(|line| line.parse().ok()).collect();
    Ok(Check { seconds: took.as_secs_f64(), passed: end == End::Passed, reached, ..check.clone() })
}

/// Arguments that run only this check.
pub fn arguments(check: &Check) -> Vec<String> {
    match check.stage {
        Stage::Unit | Stage::Servers => unit_tests::arguments([check.name.as_str()]),
        Stage::Sim | Stage::Checker => Vec::new(),
    }
}

/// Function that recognises a failure in the output.
pub fn failure(stage: Stage) -> fn(&str) -> Option<String> {
    match stage {
        Stage::Unit => unit_tests::failure,
        // a test that ends by itself ends its servers too
        Stage::Servers => |_| None,
        Stage::Sim | Stage::Checker => simulations::failure,
    }
}

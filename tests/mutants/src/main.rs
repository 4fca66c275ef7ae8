//! Command line of the mutation tests: `make mutants`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use cketerm_mutants::{
    build::{self, Cargo},
    checks::{self, Stage},
    copy::Copy,
    draw, equivalent,
    folder::{self, Folder},
    judge::Judge,
    process::Runner,
    report::{self, Kept},
    results::{self, Results},
    run, scan, viable,
};
use clap::Parser;

/// Puts small faults into a copy of the program and reports which of them the tests find.
#[derive(Debug, Parser)]
#[command(name = "cketerm-mutants")]
struct Options {
    /// Number of mutants that compile.
    #[arg(long, default_value_t = 30)]
    count: usize,
    /// Commit that is copied.
    #[arg(long, default_value = "HEAD")]
    commit: String,
    /// Commit whose hash draws the mutants. Without it, the one that is copied.
    #[arg(long)]
    draw: Option<String>,
    /// Folder of the copy, its build and the results.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Suites that judge the mutants.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "unit,checker,sim")]
    stages: Vec<Stage>,
    /// Tests on real servers whose names contain this text (stage `servers`).
    #[arg(long = "it")]
    filters: Vec<String>,
    /// Number of processes at once.
    #[arg(long, default_value_t = 2)]
    processes: usize,
    /// Largest duration in seconds of a test, or of a part of a simulation, that judges mutants.
    #[arg(long, default_value_t = 120.0)]
    longest: f64,
    /// Commit of an earlier run with the same draw: what survived then and is found now is listed too.
    #[arg(long)]
    before: Option<String>,
    /// Largest sum in seconds of what one suite runs for one mutant, unit tests aside. A later run goes on.
    #[arg(long, default_value_t = f64::MAX)]
    most: f64,
    /// A file whose existence makes the runs wait, because others measure.
    #[arg(long)]
    pause_file: Option<PathBuf>,
    /// Document that gets the report between its marks.
    #[arg(long)]
    write: Option<PathBuf>,
    /// Only makes the copy, removes what does not compile and builds.
    #[arg(long)]
    only_build: bool,
    /// Only finds out which mutants each test reaches.
    #[arg(long)]
    only_learn: bool,
    /// Only reports what is known.
    #[arg(long)]
    only_report: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let workspace = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    let hash = |name: &str| git(&["rev-parse", &format!("{name}^{{commit}}")]);
    let commit = hash(&options.commit)?;
    let draw = hash(options.draw.as_ref().unwrap_or(&options.commit))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let root = options.folder.clone().unwrap_or_else(|| target.join("mutants"));
    fs::create_dir_all(root.join("tmp"))?;
    let folder = Folder::new(&root.canonicalize()?, &commit);
    if options.only_report {
        let kept = serde_json::from_str(&fs::read_to_string(folder.sample())?)?;
        return show(&options, &workspace, &folder, &kept);
    }
    let kept = sample(options.count, &workspace, [&commit, &draw], &folder)?;
    let with_servers = options.stages.contains(&Stage::Servers);
    let programs = build::programs(&folder, &options.stages)?;
    if options.only_build {
        return Ok(());
    }
    let variables = if with_servers { build::served(&folder)? } else { Vec::new() };
    let pause_file = options.pause_file.clone();
    let runner = Runner { tree: folder.tree(), temporary: folder.temporary(), pause_file, variables };
    let checks = checks::learn(&folder, &runner, &programs, &options.stages, &options.filters, options.processes)?;
    if options.only_learn {
        return Ok(());
    }
    let judge =
        Judge { runner: &runner, programs: &programs, checks: &checks, longest: options.longest, most: options.most };
    let mut results = Results::open(&folder)?;
    let mut stages = options.stages.clone();
    stages.sort();
    for stage in stages {
        run::stage(&judge, &kept.mutants, &mut results, stage, options.processes)?;
    }
    show(&options, &workspace, &folder, &kept)
}

/// The sample in the copy, made again unless it is the one that is there.
fn sample(count: usize, workspace: &Path, [commit, draw]: [&str; 2], folder: &Folder) -> Result<Kept> {
    let (path, mark) = (folder.sample(), format!("{commit} {draw} {count}"));
    if fs::read_to_string(folder.mark()).is_ok_and(|text| text == mark)
        && let Ok(text) = fs::read_to_string(&path)
    {
        return Ok(serde_json::from_str(&text)?);
    }
    // the numbers of mutants are those of the draw, so results stay; programs and what they reach do not
    for old in [folder.mark(), folder.programs(), folder.checks()] {
        let _ = fs::remove_file(old);
    }
    let mut copy = Copy::make(workspace, commit, &folder.tree())?;
    let found = scan::candidates(copy.root())?;
    let mut candidates: BTreeMap<String, usize> = BTreeMap::new();
    for mutant in &found {
        *candidates.entry(mutant.part().to_owned()).or_default() += 1;
    }
    eprintln!("candidates: {} ({candidates:?})", found.len());
    let drawn = draw::in_order(found, draw);
    let sample = viable::choose(&mut copy, &Cargo::new(folder), &drawn, count)?;
    let (commit, draw) = (folder.commit().to_owned(), folder::short(draw));
    let kept = Kept { commit, draw, candidates, not_viable: sample.not_viable, mutants: sample.mutants };
    fs::write(path, serde_json::to_string(&kept)?)?;
    fs::write(folder.mark(), mark)?;
    Ok(kept)
}

fn show(options: &Options, workspace: &Path, folder: &Folder, kept: &Kept) -> Result<()> {
    let list = workspace.join("tests/mutants/equivalent.toml");
    let equivalents = equivalent::parse(&fs::read_to_string(list)?)?;
    let mut text = report::markdown(kept, &Results::open(folder)?.verdicts, &equivalents);
    if let Some(before) = &options.before {
        let earlier = folder.of(&git(&["rev-parse", &format!("{before}^{{commit}}")])?);
        text.push_str(&report::since(kept, &results::read(&earlier)?, &results::read(folder)?));
    }
    if let Some(path) = &options.write {
        return report::write(path, &text);
    }
    println!("{text}");
    Ok(())
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).output().context("git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

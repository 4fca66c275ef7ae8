//! Cargo in the copy, and the programs that it builds there.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{checks::Stage, folder::Folder};

/// Cargo, run in the copy.
#[derive(Debug)]
pub struct Cargo {
    tree: PathBuf,
    build: PathBuf,
}

/// Messages of one run of cargo.
#[derive(Debug)]
pub struct Output {
    /// Whether it succeeded.
    pub well: bool,
    /// Messages, one JSON object each.
    pub lines: Vec<String>,
}

/// Way in which `make test` builds a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Quick to build: unit tests and tests on servers.
    Plain,
    /// Quick to run, with injected faults: simulations.
    Optimized,
}

impl Profile {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["--exclude", "cketerm-sim", "--exclude", "cketerm-checker"],
            Self::Optimized => {
                &["--config", "tests/sim/profile.toml", "--features", "cketerm-sim/mutations,cketerm-checker/mutations"]
            }
        }
    }
}

/// Options of all builds.
const COMMON: [&str; 6] =
    ["--locked", "--offline", "--workspace", "--exclude", "cketerm-mutants", "--message-format=json"];

impl Cargo {
    /// Cargo for the copy in this folder.
    pub fn new(folder: &Folder) -> Self {
        Self { tree: folder.tree(), build: folder.build() }
    }

    /// Runs a command of cargo and returns its messages.
    ///
    /// # Errors
    ///
    /// Fails if cargo cannot be started.
    pub fn messages(&self, profile: Profile, arguments: &[&str]) -> Result<Output> {
        // the environment's choice: it may be a script that waits for its turn on a shared machine
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.current_dir(&self.tree).args(arguments).args(COMMON).args(profile.options());
        command.env("CARGO_TARGET_DIR", &self.build).env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.env("RUSTFLAGS", "--cfg tokio_unstable");
        // variables of the package that `cargo run` started: build scripts that read them would run again
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        let output = command.stderr(Stdio::inherit()).output().context("cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(Output { well: output.status.success(), lines: text.lines().map(str::to_owned).collect() })
    }

    /// Builds the tests of one selection of targets.
    fn tests(&self, profile: Profile, targets: &[&str]) -> Result<Vec<Program>> {
        let mut arguments = vec!["test", "--no-run"];
        arguments.extend(targets);
        let output = self.messages(profile, &arguments)?;
        if !output.well {
            let errors = output.lines.iter().filter_map(|line| {
                serde_json::from_str::<serde_json::Value>(line).ok()?["message"]["rendered"].as_str().map(str::to_owned)
            });
            bail!("the copy does not build:\n{}", errors.collect::<String>());
        }
        Ok(output.lines.iter().filter_map(|line| program(line)).collect())
    }
}

/// Reports whether cargo sets a variable for the package that it runs.
fn is_of_package(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|prefix| name.starts_with(prefix))
        || ["OUT_DIR", "CARGO_PRIMARY_PACKAGE"].contains(&name)
}

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Name: of the crate for unit tests, else of the target.
    pub name: String,
    /// Path of the program.
    pub path: PathBuf,
    /// Folder of its package.
    pub package: PathBuf,
}

fn program(line: &str) -> Option<Program> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let name = message["target"]["name"].as_str()?.trim_start_matches("cketerm_").to_owned();
    let path = PathBuf::from(message["executable"].as_str()?);
    let package = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    Some(Program { name, path, package })
}

/// Builds the programs of these suites, and returns them with those that were built before.
///
/// Each command of cargo is short enough to share a machine.
///
/// # Errors
///
/// Fails if the copy does not build.
pub fn programs(folder: &Folder, stages: &[Stage]) -> Result<Vec<Program>> {
    let path = folder.programs();
    let text = fs::read_to_string(&path).unwrap_or_else(|_| "[]".to_owned());
    let mut built: Vec<Program> = serde_json::from_str(&text)?;
    let cargo = Cargo::new(folder);
    for stage in stages {
        let (profile, targets, known): (Profile, &[&str], &str) = match stage {
            Stage::Unit => (Profile::Plain, &["--lib"], "rules"),
            Stage::Checker => (Profile::Optimized, &["--test", "checker"], "checker"),
            Stage::Sim => (Profile::Optimized, &["--test", "sim"], "sim"),
            Stage::Servers => (Profile::Plain, &["--test", "it"], "it"),
        };
        if !built.iter().any(|program| program.name == known) {
            eprintln!("build: {}", targets.join(" "));
            built.extend(cargo.tests(profile, targets)?);
            fs::write(&path, serde_json::to_string_pretty(&built)?)?;
        }
    }
    Ok(built)
}

/// Builds the program for the tests on servers, and returns the variables that make them use it.
///
/// These tests ask cargo for the program. A script in its place names the one that has the mutants.
///
/// # Errors
///
/// Fails if the program does not build, or the script cannot be written.
pub fn served(folder: &Folder) -> Result<Vec<(String, String)>> {
    let output = Cargo::new(folder).messages(Profile::Plain, &["build", "--bin", "cketerm"])?;
    let is_program = |line: &&String| line.contains("/cketerm\"") && line.contains("\"executable\":\"");
    let message = output.lines.iter().rfind(is_program).context("cargo names no program")?;
    let message: serde_json::Value = serde_json::from_str(message)?;
    let program = message["executable"].as_str().context("cargo names no program")?;
    let script = folder.temporary().join("served");
    fs::write(&script, format!("#!/bin/sh\necho '{{\"executable\":\"{program}\"}}'\n"))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(vec![("CARGO".to_owned(), script.display().to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found_in_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/src/rules/Cargo.toml",
            "target":{"name":"cketerm_rules"},"profile":{"test":true},"executable":"/t/rules-1"}"#;
        let expected = Program { name: "rules".to_owned(), path: "/t/rules-1".into(), package: "/w/src/rules".into() };
        assert_eq!(program(line), Some(expected));
        assert_eq!(program(&line.replace("\"test\":true", "\"test\":false")), None);
    }
}

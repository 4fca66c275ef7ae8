//! Tests by name in a program of libtest.

use std::process::Command;

use anyhow::{Context, Result};

use crate::build::Program;

/// Names of all tests that are not ignored.
///
/// # Errors
///
/// Fails if the program cannot be run.
pub fn names(program: &Program) -> Result<Vec<String>> {
    let listed = |argument: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new(&program.path);
        let output = command.current_dir(&program.package).arg("--list").args(argument).output();
        let output = output.with_context(|| program.path.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    };
    let ignored = listed(&["--ignored"])?;
    Ok(listed(&[])?.into_iter().filter(|name| !ignored.contains(name)).collect())
}

/// Arguments that run these tests, one after another.
pub fn arguments<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let options = ["--exact", "--test-threads=1"].into_iter();
    options.chain(names).map(str::to_owned).collect()
}

/// Name of the test that a line reports as failed.
pub fn failure(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix("FAILED")?.trim_end();
    // a test may print between its name and its result
    Some(name.split(" ...").next()?.trim_end_matches(" - should panic").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_recognised() {
        assert_eq!(failure("test a::b ... FAILED").as_deref(), Some("a::b"));
        assert_eq!(failure("test a::b ... ok"), None);
        assert_eq!(failure("test result: FAILED. 1 passed; 1 failed"), None);
    }

    #[test]
    fn the_names_of_this_program_are_listed() {
        let path = std::env::current_exe().unwrap();
        let program = Program { name: "mutants".to_owned(), path, package: ".".into() };
        let own = "unit_tests::tests::the_names_of_this_program_are_listed".to_owned();
        assert!(names(&program).unwrap().contains(&own));
    }
}

//! Results as lines of a file, so that an interrupted run goes on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    sync::Mutex,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    checks::{self, Stage},
    folder::Folder,
};

/// Outcome of one mutant so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A check failed.
    Killed {
        /// Suite of the check.
        stage: Stage,
        /// Name of the check, and what it said.
        by: String,
        /// Whether it exceeded its time limit instead of failing.
        overdue: bool,
    },
    /// Every check that reaches it passed.
    Survived,
}

/// One line of the file of results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The mutant's key.
    pub key: String,
    /// Outcome.
    pub outcome: Outcome,
    /// Checks that passed: `unit tests` for all of these, else the names.
    pub passed: BTreeSet<String>,
    /// Duration of the checks in seconds.
    pub seconds: u64,
}

/// Verdicts by the mutants' keys, and the file that gets new ones.
#[derive(Debug)]
pub struct Results {
    /// The last verdict of each mutant.
    pub verdicts: BTreeMap<String, Verdict>,
    file: Mutex<File>,
}

impl Results {
    /// Opens the results of a commit.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened.
    pub fn open(folder: &Folder) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(folder.results())?;
        Ok(Self { verdicts: read(folder)?, file: Mutex::new(file) })
    }

    /// Appends one verdict to the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn append(&self, verdict: &Verdict) -> Result<()> {
        checks::append(&self.file, &serde_json::to_string(verdict)?)
    }
}

/// Reads the last verdict of each mutant.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn read(folder: &Folder) -> Result<BTreeMap<String, Verdict>> {
    let path = folder.results();
    Ok(parse(&fs::read_to_string(&path).with_context(|| path.display().to_string())?))
}

/// The last verdict of each mutant. A line that a killed run left incomplete is skipped.
fn parse(text: &str) -> BTreeMap<String, Verdict> {
    let all = text.lines().filter_map(|line| serde_json::from_str::<Verdict>(line).ok());
    all.map(|verdict| (verdict.key.clone(), verdict)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complete_line_of_a_mutant_counts() {
        let first = Verdict { key: "a".to_owned(), outcome: Outcome::Survived, passed: BTreeSet::new(), seconds: 1 };
        let killed = Outcome::Killed { stage: Stage::Sim, by: "seed 5".to_owned(), overdue: false };
        let last = Verdict { outcome: killed, ..first.clone() };
        let lines = [&first, &last].map(|verdict| serde_json::to_string(verdict).unwrap());
        let text = format!("{}\n{}\n{}", lines[0], lines[1], &lines[0][..20]);
        assert_eq!(parse(&text).get("a"), Some(&last));
    }
}

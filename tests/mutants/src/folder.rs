//! Files of one run, all in one folder below cargo's target folder.

use std::path::{Path, PathBuf};

/// Hash of a commit, shortened.
pub fn short(commit: &str) -> String {
    commit.chars().take(12).collect()
}

/// Folder of the copy, its build and the results.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    commit: String,
}

impl Folder {
    /// Folder of a commit's mutants.
    pub fn new(root: &Path, commit: &str) -> Self {
        Self { root: root.to_owned(), commit: short(commit) }
    }

    /// The same folder for another commit.
    #[must_use]
    pub fn of(&self, commit: &str) -> Self {
        Self::new(&self.root, commit)
    }

    /// Commit, shortened.
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// Copy of the workspace.
    pub fn tree(&self) -> PathBuf {
        self.root.join("tree")
    }

    /// Cargo's target folder of the copy.
    pub fn build(&self) -> PathBuf {
        self.root.join("build")
    }

    /// Mutants in the copy.
    pub fn sample(&self) -> PathBuf {
        self.root.join(format!("sample-{}.json", self.commit))
    }

    /// Name of the sample that is in the copy. It is missing while the copy is made.
    pub fn mark(&self) -> PathBuf {
        self.root.join("in-the-copy")
    }

    /// Programs that were built from the copy.
    pub fn programs(&self) -> PathBuf {
        self.root.join("programs.json")
    }

    /// Checks, with the mutants that each reaches.
    pub fn checks(&self) -> PathBuf {
        self.root.join(format!("checks-{}.jsonl", self.commit))
    }

    /// Results, one line for each time that a mutant was run.
    pub fn results(&self) -> PathBuf {
        self.root.join(format!("results-{}.jsonl", self.commit))
    }

    /// Folder for temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }
}

//! The copy of the workspace that gets the mutants.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    mutant::Mutant,
    switch::{self, Switched},
};

/// A copy of all files of one commit.
#[derive(Debug)]
pub struct Copy {
    root: PathBuf,
    originals: BTreeMap<String, String>,
    changed: BTreeSet<String>,
}

/// Places of the mutants of each file.
pub type Places = BTreeMap<String, Vec<(u32, Range<usize>)>>;

impl Copy {
    /// Makes the copy again, without touching files that stay the same: cargo builds only what changed.
    ///
    /// # Errors
    ///
    /// Fails if git or the folder fails.
    pub fn make(workspace: &Path, commit: &str, root: &Path) -> Result<Self> {
        let fresh = root.with_extension("fresh");
        if fresh.exists() {
            fs::remove_dir_all(&fresh)?;
        }
        fs::create_dir_all(&fresh)?;
        let mut archive = Command::new("git");
        archive.current_dir(workspace).args(["archive", commit]).stdout(Stdio::piped());
        let mut archive = archive.spawn().context("git archive")?;
        let tar = archive.stdout.take().context("git archive has no output")?;
        let unpacked = Command::new("tar").arg("-x").arg("-C").arg(&fresh).stdin(tar).status().context("tar")?;
        if !archive.wait()?.success() || !unpacked.success() {
            bail!("git archive {commit} failed");
        }
        fs::create_dir_all(root)?;
        sync(&fresh, root)?;
        fs::remove_dir_all(&fresh)?;
        Ok(Self { root: root.to_owned(), originals: BTreeMap::new(), changed: BTreeSet::new() })
    }

    /// Root of the copy.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes these mutants, and no others, and returns their places.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or written.
    pub fn write(&mut self, mutants: &[Mutant]) -> Result<Places> {
        let mut files: BTreeMap<String, Vec<Mutant>> = BTreeMap::new();
        for mutant in mutants {
            files.entry(mutant.file.clone()).or_default().push(mutant.clone());
        }
        for file in std::mem::take(&mut self.changed) {
            files.entry(file).or_default();
        }
        let mut places = Places::new();
        for (file, of) in files {
            let original = self.original(&file)?;
            let Switched { text, places: of_file } = switch::write(original, &of);
            if !of.is_empty() {
                self.changed.insert(file.clone());
            }
            write_if_other(&self.root.join(&file), &text)?;
            places.insert(file, of_file);
        }
        let largest = mutants.iter().map(|mutant| mutant.id).max().unwrap_or_default();
        let model = self.root.join("src/model/src");
        write_if_other(&model.join("mutant.rs"), &switch::module(largest))?;
        let library = self.original("src/model/src/lib.rs")?.replacen("\npub mod ", "\npub mod mutant;\npub mod ", 1);
        write_if_other(&model.join("lib.rs"), &library)?;
        Ok(places)
    }

    fn original(&mut self, file: &str) -> Result<&str> {
        if !self.originals.contains_key(file) {
            let text = fs::read_to_string(self.root.join(file)).with_context(|| file.to_owned())?;
            self.originals.insert(file.to_owned(), text);
        }
        Ok(self.originals.get(file).map(String::as_str).unwrap_or_default())
    }
}

fn write_if_other(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Makes a folder equal to another one, and leaves equal files alone.
fn sync(from: &Path, to: &Path) -> Result<()> {
    let names = |folder: &Path| -> Result<BTreeSet<std::ffi::OsString>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
    };
    let wanted = names(from)?;
    for name in names(to)?.difference(&wanted) {
        let path = to.join(name);
        if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    for name in wanted {
        let (source, target) = (from.join(&name), to.join(&name));
        if source.is_dir() && !source.is_symlink() {
            fs::create_dir_all(&target)?;
            sync(&source, &target)?;
        } else if source.is_symlink() {
            if !target.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
            }
        } else if fs::read(&target).ok() != Some(fs::read(&source)?) {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_removes_adds_and_keeps() {
        let root = std::env::temp_dir().join(format!("cketerm-mutants-sync-{}", std::process::id()));
        let (from, to) = (root.join("from"), root.join("to"));
        fs::create_dir_all(from.join("a")).unwrap();
        fs::create_dir_all(to.join("old")).unwrap();
        fs::write(from.join("a/new"), "1").unwrap();
        fs::write(from.join("same"), "2").unwrap();
        fs::write(to.join("same"), "2").unwrap();
        let before = fs::metadata(to.join("same")).unwrap().modified().unwrap();
        sync(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/new")).unwrap(), "1");
        assert!(!to.join("old").exists());
        assert_eq!(fs::metadata(to.join("same")).unwrap().modified().unwrap(), before);
        fs::remove_dir_all(root).unwrap();
    }
}

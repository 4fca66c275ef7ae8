//! Results of commands in the state directory: written by helpers, read by any engine that later runs on the host
//! (SAF-20).
//!
//! The directory belongs to this user alone (mode 0700). A file is written under another name, synced and renamed, so
//! it is complete or absent. The contents are untrusted input all the same: only regular files of this user count, of
//! bounded size and number.

use std::{
    collections::BTreeSet,
    fs::{DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use cketerm_model::{
    attempt::parse_attempt_id,
    result::{CommandResult, MAX_RESULT_BYTES, ResultLabel},
    text::visible,
};
use rustix::fs::{Access, Mode, OFlags, access};

/// Age at which a result without an open attempt is removed.
const ORPHANED: Duration = Duration::from_hours(7 * 24);
/// Largest number of kept results; the oldest are removed first.
const MOST_FILES: usize = 1000;
/// Largest number of names read in one scan.
const MOST_NAMES: usize = 10_000;
/// Prefix of a file that is being written.
const UNFINISHED: &str = ".writing-";

/// Directory of the results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultFolder(PathBuf);

/// Findings of a scan of the whole directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultScan {
    /// Results, by name.
    pub results: BTreeSet<String>,
    /// Names of foreign files, with control characters made visible. These files are left alone.
    pub foreign: BTreeSet<String>,
    /// Results removed for their age or number.
    pub removed: BTreeSet<String>,
}

impl ResultFolder {
    /// Returns the folder below this state directory.
    pub fn below(state: &Path) -> Self {
        Self(state.join("results"))
    }

    /// Returns this very directory as a folder.
    pub(super) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the directory if it is missing; the error says why it cannot be used.
    pub fn prepare(&self) -> Result<(), String> {
        let place = self.0.display();
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(|e| format!("{place}: {e}"))?;
        self.check_private().map_err(|why| format!("{place} {why}"))
    }

    /// Returns the reason why an engine of this user could keep nothing here. It only looks: an engine creates the
    /// directory itself.
    ///
    /// Root looks on behalf of the user that the unit runs as, so a directory of another user is no fault.
    pub fn fault(&self) -> Option<String> {
        let place = self.0.display();
        match std::fs::symlink_metadata(&self.0) {
            Ok(found) if found.is_dir() && found.uid() != 0 && rustix::process::geteuid().is_root() => None,
            Ok(_) => {
                let writable = || access(&self.0, Access::WRITE_OK | Access::EXEC_OK);
                let usable =
                    self.check_private().and_then(|()| writable().map_err(|e| format!("is not writable: {e}")));
                usable.err().map(|why| format!("{place} {why}"))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let nearest_parent = self.0.ancestors().skip(1).find(|above| above.symlink_metadata().is_ok())?;
                let refused = access(nearest_parent, Access::WRITE_OK | Access::EXEC_OK).err()?;
                Some(format!("{place} cannot be created in {}: {refused}", nearest_parent.display()))
            }
            Err(e) => Some(format!("{place} cannot be inspected: {e}")),
        }
    }

    /// Checks that this is a directory of this user that no other user may enter.
    fn check_private(&self) -> Result<(), String> {
        let found = std::fs::symlink_metadata(&self.0).map_err(|e| format!("cannot be inspected: {e}"))?;
        if !found.is_dir() {
            return Err("is not a directory".to_owned());
        }
        let user = rustix::process::geteuid().as_raw();
        if found.uid() != user {
            return Err(format!("belongs to user {}, and this program runs as {user}: chown it", found.uid()));
        }
        if found.mode() & 0o077 != 0 {
            return Err(format!("has mode {:04o}, so others may enter it: chmod 0700", found.mode() & 0o7777));
        }
        Ok(())
    }

    /// Writes a result completely or not at all. It is synced to disk on return.
    pub fn write(&self, result: &CommandResult) -> Result<(), String> {
        self.write_synced_by(result, File::sync_all)
    }

    fn write_synced_by(&self, result: &CommandResult, sync: impl Fn(&File) -> io::Result<()>) -> Result<(), String> {
        self.check_private()?;
        let text = serde_json::to_string(result).map_err(|e| e.to_string())?;
        if text.len() > MAX_RESULT_BYTES {
            return Err(format!("the result has {} bytes", text.len()));
        }
        let name = result.label.file_name();
        let temporary = self.0.join(format!("{UNFINISHED}{name}-{}", std::process::id()));
        let written = self.written(&temporary, text.as_bytes(), &self.0.join(&name), sync);
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        written.map_err(|e| e.to_string())
    }

    fn written(
        &self,
        temporary: &Path,
        bytes: &[u8],
        at: &Path,
        sync: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        // Left by a process with the same PID.
        let _ = std::fs::remove_file(temporary);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(temporary)?;
        file.write_all(bytes)?;
        sync(&file)?;
        std::fs::rename(temporary, at)?;
        sync(&File::open(&self.0)?)
    }

    /// Returns the result of an attempt; none if there is no file. The error says what is wrong with the file.
    pub fn read(&self, label: &ResultLabel) -> Result<Option<CommandResult>, String> {
        let name = label.file_name();
        if !is_result(&name) {
            return Ok(None);
        }
        let path = self.0.join(&name);
        let wrong = |why: String| format!("{}: {why}", path.display());
        // Neither a symlink nor a pipe without a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(wrong(e.to_string())),
        };
        self.check_private().map_err(wrong)?;
        let found = file.metadata().map_err(|e| wrong(e.to_string()))?;
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(wrong("is not a regular file of this user".to_owned()));
        }
        let mut bytes = Vec::new();
        file.take(MAX_RESULT_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
        let result = CommandResult::read(&bytes).map_err(|e| wrong(e.to_string()))?;
        if result.label.attempt != label.attempt || result.label.lease != label.lease {
            return Err(wrong("is not the result of the attempt in its name".to_owned()));
        }
        Ok(Some(result))
    }

    /// Removes an attempt's result, because it is recorded elsewhere.
    pub fn forget(&self, label: &ResultLabel) {
        let name = label.file_name();
        if is_result(&name) {
            let _ = std::fs::remove_file(self.0.join(name));
        }
    }

    /// Scans the whole directory. Removes results older than a week, and the oldest if there are too many.
    pub fn scan(&self, now: SystemTime) -> ResultScan {
        let mut scan = ResultScan::default();
        if self.check_private().is_err() {
            return scan;
        }
        let mut own_files: Vec<(SystemTime, String)> = Vec::new();
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten().take(MOST_NAMES) {
            let name = entry.file_name();
            let Some(text) = name.to_str().filter(|text| is_result(text) || text.starts_with(UNFINISHED)) else {
                scan.foreign.insert(visible(&name.to_string_lossy(), false));
                continue;
            };
            let changed = entry.metadata().and_then(|found| found.modified()).unwrap_or(now);
            own_files.push((changed, text.to_owned()));
        }
        own_files.sort();
        let surplus = own_files.len().saturating_sub(MOST_FILES);
        for (at, (changed, name)) in own_files.into_iter().enumerate() {
            let old = now.duration_since(changed).is_ok_and(|age| age > ORPHANED);
            if at < surplus || old {
                // A directory with such a name stays and does not count as a result.
                if std::fs::remove_file(self.0.join(&name)).is_ok() {
                    scan.removed.insert(name);
                }
            } else if is_result(&name) {
                scan.results.insert(name);
            }
        }
        scan
    }
}

/// Reports whether [`ResultLabel::file_name`] could have made this name.
fn is_result(name: &str) -> bool {
    let parts = name.strip_suffix(".json").and_then(|name| name.split_once('.'));
    parts.is_some_and(|(attempt, lease)| {
        let number = i64::from_str_radix(lease, 16).ok().filter(|number| format!("{number:x}") == lease);
        parse_attempt_id(attempt).is_some() && number.is_some()
    })
}

#[cfg(test)]
#[path = "results/tests.rs"]
mod tests;

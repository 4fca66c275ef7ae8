//! Record of obeyed orders on the node's disk. It is complete there before the machine reboots.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use cketerm_rules::agent::Obeyed;

/// Name of the file.
const FILE: &str = "obeyed.json";

/// The record's file.
#[derive(Debug)]
pub(super) struct Record {
    directory: PathBuf,
}

impl Record {
    /// Creates the directory if it is missing.
    pub(super) fn open(directory: &Path) -> Result<Self, String> {
        fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        Ok(Self { directory: directory.to_owned() })
    }

    fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Reads the record; an empty one if there is none. Errors: it cannot be read, so nothing may be obeyed.
    pub(super) fn read(&self) -> Result<Obeyed, String> {
        let file = self.file();
        let wrong = |why: String| format!("{} cannot be read: {why}; remove it after the next reboot", file.display());
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| wrong(e.to_string())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Obeyed::default()),
            Err(e) => Err(wrong(e.to_string())),
        }
    }

    /// Replaces the record. When it returns, the new one is on the disk.
    pub(super) fn write(&self, obeyed: &Obeyed) -> Result<(), String> {
        let file = self.file();
        let new = file.with_extension("new");
        let write = || -> std::io::Result<()> {
            let mut out = File::create(&new)?;
            out.write_all(&serde_json::to_vec(obeyed)?)?;
            out.sync_all()?;
            fs::rename(&new, &file)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|e| format!("{}: {e}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_a_broken_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::open(&dir.path().join("a/b")).unwrap();
        assert_eq!(record.read(), Ok(Obeyed::default()));
        let obeyed = Obeyed::default().and("a1", "b1");
        record.write(&obeyed).unwrap();
        assert_eq!(Record::open(&dir.path().join("a/b")).unwrap().read(), Ok(obeyed.clone()));
        fs::write(record.file(), "{").unwrap();
        assert!(record.read().unwrap_err().contains("obeyed.json cannot be read"));
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        assert!(record.write(&obeyed).is_err());
    }
}

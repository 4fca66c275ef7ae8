//! Archive of a bundle: a compressed tar, written in one step.

use std::{io, io::Write as _, path::Path};

use cketerm_actions::ActionError;
use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;

/// Folder inside the archive.
pub(super) const FOLDER: &str = "cketerm-support";

/// Returns a compressed archive of these files.
pub(super) fn pack<'a>(files: impl Iterator<Item = (&'a str, &'a str)>, at: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(at.as_second()).unwrap_or(0));
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}

/// Refuses a file that exists already.
pub(super) fn check_absent(file: &Path, is_forced: bool) -> Result<(), ActionError> {
    if !is_forced && file.symlink_metadata().is_ok() {
        return Err(exists(file));
    }
    Ok(())
}

/// Writes a file that only its owner can read. It appears complete or not at all.
pub(super) fn store(file: &Path, bytes: &[u8], is_forced: bool) -> Result<(), ActionError> {
    let failed = |e: &io::Error| ActionError::failed(format!("{}: {e}; nothing was written", file.display()));
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = tempfile::Builder::new().prefix(".cketerm-support-").tempfile_in(folder);
    let mut temporary = temporary.map_err(|e| failed(&e))?;
    temporary.write_all(bytes).and_then(|()| temporary.as_file().sync_all()).map_err(|e| failed(&e))?;
    let stored = if is_forced { temporary.persist(file) } else { temporary.persist_noclobber(file) };
    match stored {
        Ok(_) => Ok(()),
        Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => Err(exists(file)),
        Err(e) => Err(failed(&e.error)),
    }
}

fn exists(file: &Path) -> ActionError {
    ActionError::refused(format!("{} exists: give another name, or --force to replace it", file.display()))
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn an_archive_holds_each_file_in_one_folder() {
        let files = [("a.txt", "one"), ("b.json", "{}\n")];
        let packed = pack(files.into_iter(), "2026-11-21T10:00:00Z".parse().unwrap()).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push((name, text, entry.header().mtime().unwrap()));
        }
        let expected = files.map(|(name, text)| (format!("{FOLDER}/{name}"), text.to_owned(), 1_795_255_200));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_file_is_replaced_only_if_forced_and_nothing_else_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("b.tar.gz");
        check_absent(&file, false).unwrap();
        store(&file, b"one", false).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(check_absent(&file, false).unwrap_err().text.contains("--force"));
        assert!(store(&file, b"two", false).unwrap_err().text.contains("--force"));
        assert_eq!(std::fs::read(&file).unwrap(), b"one");
        check_absent(&file, true).unwrap();
        store(&file, b"two", true).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        let error = store(&folder.path().join("none/b"), b"x", true).unwrap_err();
        assert!(error.text.contains("nothing was written"), "{}", error.text);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file stayed");
    }
}

//! The host that the process runs on: its name, and who may read its files.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Mode bits: everyone may read.
const OTHERS_READ: u32 = 0o004;
/// Mode bits: everyone may write.
const OTHERS_WRITE: u32 = 0o002;

/// Returns this host's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Reports whether everyone can read the file. An unreadable file counts as private.
pub fn is_world_readable(path: &Path) -> bool {
    has_mode(path, OTHERS_READ)
}

/// Reports whether everyone can write the file. An unreadable file counts as private.
pub fn is_world_writable(path: &Path) -> bool {
    has_mode(path, OTHERS_WRITE)
}

/// Checks that this process may execute the file. The error is the system's.
pub fn check_executable(path: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?)
}

fn has_mode(path: &Path, bits: u32) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & bits != 0)
}

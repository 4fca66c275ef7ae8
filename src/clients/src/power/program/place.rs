//! Place in the file of BMCs that names a program, for errors.

use std::{fmt, path::PathBuf};

use crate::power::settings::{InventoryError, prefix};

/// Place in the file of BMCs that names a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::power) struct Place {
    pub(in crate::power) file: PathBuf,
    /// The entry: the address of a node.
    pub(in crate::power) entry: String,
    /// The key of `settings`.
    pub(in crate::power) key: &'static str,
}

impl Place {
    /// Returns an error that names this place.
    pub(in crate::power) fn wrong(&self, why: impl fmt::Display) -> InventoryError {
        InventoryError::Wrong { file: self.file.clone(), why: format!("{}: {}: {why}", self.entry, self.key) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {}", prefix(&self.file), self.entry, self.key)
    }
}

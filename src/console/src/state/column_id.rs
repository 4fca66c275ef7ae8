//! Identity of a column of a table.

use std::{borrow::Borrow, fmt};

/// Name of a column, as filters, `:sort`, `:columns` and the saved settings spell it. Unique within its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(&'static str);

impl ColumnId {
    /// Wraps a name: lower-case words, joined by `-`.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ColumnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl Borrow<str> for ColumnId {
    fn borrow(&self) -> &str {
        self.0
    }
}

impl PartialEq<str> for ColumnId {
    fn eq(&self, name: &str) -> bool {
        self.0 == name
    }
}

impl PartialEq<&str> for ColumnId {
    fn eq(&self, name: &&str) -> bool {
        self.0 == *name
    }
}

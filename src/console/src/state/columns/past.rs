//! Row of a table of the past, whose value may be unreadable.

use std::sync::Arc;

use crate::{
    state::{
        App,
        filter::Value,
        past::{PastId, Read},
        short_text,
    },
    table::Cell,
};

/// A value that was read, by its identity.
pub struct PastRow<'a, T> {
    pub(super) app: &'a App,
    id: &'a PastId,
    read: Option<&'a Result<Arc<T>, String>>,
}

impl<'a, T> PastRow<'a, T> {
    /// Looks up a value.
    pub(super) fn new(app: &'a App, values: &'a Read<T>, id: &'a PastId) -> Self {
        Self { app, id, read: values.rows.get(id) }
    }

    fn readable(&self) -> Option<&'a T> {
        self.read.and_then(|read| read.as_ref().ok()).map(Arc::as_ref)
    }

    /// Returns the value of a column. Filters find an unreadable row as `broken`, and by its key.
    pub(super) fn value(&self, of: impl FnOnce(&'a T) -> Value<'a>) -> Value<'a> {
        self.readable().map_or_else(|| Value::text(format!("broken {}", self.id.key)), of)
    }

    /// Returns the cell of a column; empty if the row is unreadable.
    pub(super) fn cell(&self, of: impl FnOnce(&'a T) -> Cell) -> Cell {
        self.readable().map_or_else(Cell::default, of)
    }

    /// Returns the cell of the first column, which names an unreadable row.
    pub(super) fn first_cell(&self, of: impl FnOnce(&'a T) -> Cell) -> Cell {
        self.readable().map_or_else(|| Cell::styled("broken", self.app.config.theme.danger), of)
    }

    /// Returns the cell of the column in which an unreadable row has its error.
    pub(super) fn error_cell(&self, of: impl FnOnce(&'a T) -> Cell) -> Cell {
        let error = || self.read.and_then(|read| read.as_ref().err()).map(|e| short_text::safe(e)).unwrap_or_default();
        self.readable().map_or_else(|| Cell::styled(error(), self.app.config.theme.danger), of)
    }
}

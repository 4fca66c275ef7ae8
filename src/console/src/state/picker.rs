//! Choice and order of the columns of a table, while the operator edits them.

use super::{App, column_id::ColumnId, columns};

/// The open column picker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPicker {
    /// All columns of the table in the order of the list, each with whether it is shown.
    pub columns: Vec<(ColumnId, bool)>,
    /// Meaning of each column.
    help: Vec<(ColumnId, &'static str)>,
    /// Index of the column under the cursor.
    pub at: usize,
}

impl ColumnPicker {
    /// Opens the picker for the open view, with the columns that the screen shows. `None` if the view has no table.
    pub fn open(app: &App) -> Option<Self> {
        let (view, second) = (app.navigation.view, app.navigation.second_table());
        let all = columns::all(view, second);
        let default_columns = columns::default_columns(view, second, app.size.width);
        let shown = app.lists.visible_columns.get(columns::table(view, second)).unwrap_or(&default_columns);
        let hidden = all.iter().filter(|id| !shown.contains(id)).map(|id| (*id, false));
        let columns: Vec<_> = shown.iter().map(|id| (*id, true)).chain(hidden).collect();
        let help = columns::summaries(view, second).iter().map(|c| (c.id, c.help)).collect();
        (!columns.is_empty()).then_some(Self { columns, help, at: 0 })
    }

    /// Moves the cursor; it wraps around at the ends.
    pub fn step(&mut self, forward: bool) {
        let all = self.columns.len().max(1);
        self.at = (self.at + if forward { 1 } else { all - 1 }) % all;
    }

    /// Shows or hides the column under the cursor.
    pub fn toggle(&mut self) {
        if let Some((_, shown)) = self.columns.get_mut(self.at) {
            *shown = !*shown;
        }
    }

    /// Moves the column under the cursor left or right in the table.
    pub fn move_column(&mut self, right: bool) {
        let to = if right { self.at + 1 } else { self.at.wrapping_sub(1) };
        if to < self.columns.len() {
            self.columns.swap(self.at, to);
            self.at = to;
        }
    }

    /// Returns the meaning of the column under the cursor.
    pub fn help(&self) -> &'static str {
        let here = self.columns.get(self.at).map(|(id, _)| *id);
        self.help.iter().find(|(id, _)| Some(*id) == here).map_or("", |(_, help)| help)
    }

    /// Returns the columns that are shown.
    pub fn visible_columns(&self) -> Vec<ColumnId> {
        self.columns.iter().filter(|(_, shown)| *shown).map(|(id, _)| *id).collect()
    }
}

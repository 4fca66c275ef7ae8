//! Columns of every table: one row of [`Table::COLUMNS`] for each column, in one file for each table.
//!
//! A [`Column`] holds everything that the console knows about a column: its name and title, its help, its width, the
//! narrowest table that shows it, its value for filters and sorting, and its cell on the screen. Drawing, the filter
//! language, `:sort`, `:columns`, the column picker, the completions and the saved settings all read these tables, so a
//! column is added, renamed or removed in one place.
//!
//! - The order of a table is the order on the screen, of the sort key and of the messages that list columns. A column
//!   that is hidden by default stands where filters and sorting expect it; the picker lists it after the shown ones.
//! - [`Table::row`] looks up the objects of one row once. Value and cell are functions of that row, so that a filter,
//!   which reads all columns of ten thousand rows at every letter, looks nothing up twice and allocates only where a
//!   value is composed. Each table has its own row type: a column cannot read the row of another table.
//! - A column without a value is unknown to filters and sorting. A column without a cell shows its value.
//! - `views::columns::draw` makes cells only of rows and columns that are shown. A width that depends on the content is computed
//!   from those cells.

use super::{
    column_id::ColumnId,
    filter::{Cells, Value},
};
use crate::{
    state::{App, View},
    table::Cell,
};

mod audit;
mod batches;
mod diff;
mod entry;
mod history;
mod hosts;
mod logs;
mod machines;
mod nodes;
mod past;
mod reboots;
mod records;
mod repairs;
mod values;

pub use audit::Actions;
pub use batches::BatchTable;
pub use diff::Changes;
pub use history::{EndedEntries, node_name, outcome_style};
pub use hosts::Hosts;
pub use logs::Lines;
pub use machines::Machines;
pub use nodes::Nodes;
pub use reboots::Reboots;
pub use records::{Records, targets};
pub use repairs::Repairs;

/// A table of the console: its columns, and the rows that they read.
pub trait Table: Sized + 'static {
    /// Identity of a row.
    type Id: ?Sized;
    /// A row, with the objects that its columns read.
    type Row<'a>;
    /// All columns, in the order of filters and sorting.
    const COLUMNS: &'static [Column<Self>];

    /// Looks up the objects of a row.
    fn row<'a>(app: &'a App, id: &'a Self::Id) -> Self::Row<'a>;
}

/// Reads the value of a column, for filters and sorting.
type ValueOf<T> = for<'r, 'a> fn(&'r <T as Table>::Row<'a>) -> Value<'r>;
/// Makes the cell of a column.
type CellOf<T> = for<'r, 'a> fn(&'r <T as Table>::Row<'a>) -> Cell;
/// Makes the cell of a column whose text is fitted into a number of terminal columns. By default a table asks for the
/// whole text first, and for a shorter one only if that is too wide.
type FittedCellOf<T> = for<'r, 'a> fn(&'r <T as Table>::Row<'a>, usize) -> Cell;

/// Content of a column on the screen.
pub(crate) enum Content<T: Table> {
    /// The value, without a style.
    Value,
    /// A cell of its own.
    Cell(CellOf<T>),
    /// A cell of its own that depends on the column's width.
    Fitted(FittedCellOf<T>),
}

/// Width of a column, in terminal columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Always the same.
    Fixed(u16),
    /// As wide as its visible cells, within these bounds.
    Content(u16, u16),
    /// As wide as the longest name of a machine in the cluster, within these bounds.
    MachineName(u16, u16),
    /// The rest of the line.
    Rest,
    /// As wide as its visible cells and at least this wide, within the rest of the line.
    ContentWithinRest(u16),
}

/// Whether a table shows a column if the operator has chosen no columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// From this width of the table.
    From(u16),
    /// From this width of the table; narrower ones show it if a visible row has text in it.
    FromUnlessFilled(u16),
    /// Only if the operator chooses it.
    Hidden,
}

/// A column of a table.
pub struct Column<T: Table> {
    /// Its name.
    pub id: ColumnId,
    /// Its title on the screen.
    pub title: &'static str,
    /// Its meaning, in a few words.
    pub help: &'static str,
    pub(crate) width: Width,
    /// Another width for wide tables: the narrowest of them, and the width.
    wide: Option<(u16, Width)>,
    pub(crate) visibility: Visibility,
    pub(crate) value: Option<ValueOf<T>>,
    pub(crate) content: Content<T>,
}

impl<T: Table> Column<T> {
    /// Creates a column that tables of every width show.
    const fn new(name: &'static str, title: &'static str, width: Width, help: &'static str) -> Self {
        Self {
            id: ColumnId::new(name),
            title,
            help,
            width,
            wide: None,
            visibility: Visibility::From(0),
            value: None,
            content: Content::Value,
        }
    }

    /// Creates a column that tables show only if the operator chooses it.
    const fn hidden(name: &'static str, title: &'static str, help: &'static str) -> Self {
        let mut column = Self::new(name, title, Width::Fixed(1), help);
        column.visibility = Visibility::Hidden;
        column
    }

    /// Hides the column in tables narrower than this.
    const fn shown_from(mut self, table_width: u16) -> Self {
        self.visibility = Visibility::From(table_width);
        self
    }

    /// Hides the column in tables narrower than this while it is empty.
    const fn shown_from_unless_filled(mut self, table_width: u16) -> Self {
        self.visibility = Visibility::FromUnlessFilled(table_width);
        self
    }

    /// Sets another width for tables of at least this width.
    const fn wide(mut self, table_width: u16, width: Width) -> Self {
        self.wide = Some((table_width, width));
        self
    }

    /// Sets the value, for filters and sorting.
    const fn value(mut self, value: ValueOf<T>) -> Self {
        self.value = Some(value);
        self
    }

    /// Sets the cell.
    const fn cell(mut self, cell: CellOf<T>) -> Self {
        self.content = Content::Cell(cell);
        self
    }

    /// Sets the cell, which is fitted into the column's width.
    const fn fitted(mut self, cell: FittedCellOf<T>) -> Self {
        self.content = Content::Fitted(cell);
        self
    }

    /// Returns the rule for the column's width in a table of this width.
    pub(crate) fn width_in(&self, table_width: u16) -> Width {
        match self.wide {
            Some((from, wide)) if table_width >= from => wide,
            Some(_) | None => self.width,
        }
    }
}

/// A row as filters and sorting read it.
pub struct RowCells<'a, T: Table>(T::Row<'a>);

impl<'a, T: Table> RowCells<'a, T> {
    /// Looks up the objects of a row.
    pub fn new(app: &'a App, id: &'a T::Id) -> Self {
        Self(T::row(app, id))
    }
}

impl<T: Table> Cells for RowCells<'_, T> {
    fn value(&self, column: ColumnId) -> Value<'_> {
        let value = T::COLUMNS.iter().find(|c| c.id == column).and_then(|c| c.value);
        value.map_or(Value::None, |value| value(&self.0))
    }

    fn any(&self, mut test: impl FnMut(&Value<'_>) -> bool) -> bool {
        T::COLUMNS.iter().filter_map(|c| c.value).any(|value| test(&value(&self.0)))
    }
}

/// A column, without its table's row type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSummary {
    /// Its name.
    pub id: ColumnId,
    /// Its title on the screen.
    pub title: &'static str,
    /// Its meaning, in a few words.
    pub help: &'static str,
    /// Narrowest table that shows it by default, whatever its content is. `None`: no table does.
    pub shown_from: Option<u16>,
    /// Whether filters and `:sort` know it.
    pub has_value: bool,
}

fn summaries_of<T: Table>() -> Vec<ColumnSummary> {
    let summary = |c: &Column<T>| ColumnSummary {
        id: c.id,
        title: c.title,
        help: c.help,
        shown_from: match c.visibility {
            Visibility::From(width) | Visibility::FromUnlessFilled(width) => Some(width),
            Visibility::Hidden => None,
        },
        has_value: c.value.is_some(),
    };
    T::COLUMNS.iter().map(summary).collect()
}

/// Returns the columns of a view, in the order of filters and sorting. Empty if the view has no table.
pub fn summaries(view: View, second: bool) -> Vec<ColumnSummary> {
    match view {
        View::Overview => Vec::new(),
        View::Reboots | View::Repairs if second => summaries_of::<BatchTable>(),
        View::Reboots => summaries_of::<Reboots>(),
        View::Nodes => summaries_of::<Nodes>(),
        View::Repairs => summaries_of::<Repairs>(),
        View::Machines => summaries_of::<Machines>(),
        View::Diff => summaries_of::<Changes>(),
        View::Hosts => summaries_of::<Hosts>(),
        View::History if second => summaries_of::<Records>(),
        View::History => summaries_of::<EndedEntries>(),
        View::Audit => summaries_of::<Actions>(),
        View::Logs => summaries_of::<Lines>(),
    }
}

/// Returns the columns of the open view that filters and `:sort` know. Empty if the view has no table.
pub fn of(app: &App) -> Vec<ColumnId> {
    filter_columns(app.navigation.view, app.navigation.second_table())
}

/// Returns the columns of a view that filters and `:sort` know.
pub fn filter_columns(view: View, second: bool) -> Vec<ColumnId> {
    summaries(view, second).iter().filter(|c| c.has_value).map(|c| c.id).collect()
}

/// Returns the columns that a table of this width shows by default. Narrower tables also show some others where these
/// have something to say.
pub fn default_columns(view: View, second: bool, table_width: u16) -> Vec<ColumnId> {
    let shown = |c: &&ColumnSummary| c.shown_from.is_some_and(|from| from <= table_width);
    summaries(view, second).iter().filter(shown).map(|c| c.id).collect()
}

/// Returns all columns that a table can show: its default ones, then the others.
pub fn all(view: View, second: bool) -> Vec<ColumnId> {
    let mut summaries = summaries(view, second);
    // a stable sort
    summaries.sort_by_key(|c| c.shown_from.is_none());
    summaries.iter().map(|c| c.id).collect()
}

/// Returns the name of a view's table: the view's name, `records` for CKE's records, or `batches`.
pub fn table(view: View, second: bool) -> &'static str {
    match view {
        View::History if second => "records",
        View::Reboots | View::Repairs if second => "batches",
        _ => view.name(),
    }
}

/// Parses names separated by commas or spaces. They must be columns of the open table, each at most once.
pub fn parse(app: &App, text: &str) -> Result<Vec<ColumnId>, String> {
    let all = all(app.navigation.view, app.navigation.second_table());
    let mut chosen: Vec<ColumnId> = Vec::new();
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        let id = all.iter().find(|id| **id == word);
        let id = id.ok_or_else(|| format!("there is no column {word}: {}", all.join(" ")))?;
        if chosen.contains(id) {
            return Err(format!("{id} is named twice"));
        }
        chosen.push(*id);
    }
    if chosen.is_empty() { Err(format!("no column is named: {}", all.join(" "))) } else { Ok(chosen) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Table>() {
        for (at, column) in T::COLUMNS.iter().enumerate() {
            let name = column.id.as_str();
            assert!(T::COLUMNS[..at].iter().all(|earlier| earlier.id != column.id), "{name} is there twice");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "filters cannot name {name}");
            assert!(!column.help.is_empty() && !column.help.ends_with('.'), "{name}: {:?}", column.help);
            assert!(column.help.len() <= 52, "the column picker cuts the help of {name}: {:?}", column.help);
            let shows_value = matches!(column.content, Content::Value);
            assert!(column.value.is_some() || !shows_value, "{name} has neither a value nor a cell");
        }
        for table_width in 0..300 {
            let takes_rest = |c: &&Column<T>| {
                matches!(c.width_in(table_width), Width::Rest | Width::ContentWithinRest(_))
                    && matches!(c.visibility, Visibility::From(from) if from <= table_width)
            };
            assert_eq!(T::COLUMNS.iter().filter(takes_rest).count(), 1, "columns that take the rest of {table_width}");
        }
    }

    #[test]
    fn every_table_has_sound_columns_and_one_that_takes_the_rest_of_the_line() {
        check::<BatchTable>();
        check::<Reboots>();
        check::<Nodes>();
        check::<Repairs>();
        check::<Machines>();
        check::<Changes>();
        check::<Hosts>();
        check::<EndedEntries>();
        check::<Records>();
        check::<Actions>();
        check::<Lines>();
    }
}

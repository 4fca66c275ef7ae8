//! Columns that the operator chose for each table. Every table is drawn from this choice. A column of the table is
//! drawn as usual; a column that only filters know is made from the values that they read.

use ratatui::{buffer::Buffer, layout::Rect};
use unicode_width::UnicodeWidthStr;

use super::table::{self, Cell, Column, GUTTER, Row};
use crate::state::{
    App,
    columns::{self, Columns, RowCells},
    filter::{Cells, Value},
    short_text, when,
};

/// Widest that a column grows beyond its own width.
const MAX_WIDTH: u16 = 40;
/// Narrowest useful column: the last column is left out if it would get less.
const MIN_WIDTH: u16 = 6;

/// Draws a table with the chosen columns, or with its own.
pub fn draw<Id: Columns>(
    app: &App,
    (buffer, area): (&mut Buffer, Rect),
    columns: &[Column],
    rows: &[Row],
    ids: &[Id],
    stale: bool,
) {
    let theme = &app.config.theme;
    let table = columns::table(app.navigation.view, app.navigation.cke_records);
    let Some(names) = app.lists.visible_columns.get(table) else {
        return table::draw(buffer, area, theme, columns, rows, stale);
    };
    let mut shown: Vec<Row> = rows.iter().map(|row| Row { cells: Vec::new(), ..*row }).collect();
    let mut shown_columns: Vec<Column> = Vec::new();
    for name in names {
        let own = columns.iter().enumerate().find(|(_, c)| columns::name(table, c.title) == *name);
        let (column, cells): (Column, Vec<Cell>) = match own {
            Some((i, column)) => {
                (*column, rows.iter().map(|row| row.cells.get(i).cloned().unwrap_or_default()).collect())
            }
            None => (
                Column { title: title(name), width: 1, from: 0 },
                ids.iter().map(|id| Cell::plain(text(&RowCells::new(app, id).value(name)))).collect(),
            ),
        };
        let longest = cells.iter().map(|cell| cell.text.width()).max().unwrap_or(0).max(column.title.width());
        let width = column.width.max(u16::try_from(longest).unwrap_or(MAX_WIDTH).min(MAX_WIDTH));
        shown_columns.push(Column { width, from: 0, ..column });
        for (row, cell) in shown.iter_mut().zip(cells) {
            row.cells.push(cell);
        }
    }
    fit(&mut shown_columns, area.width);
    table::draw(buffer, area, theme, &shown_columns, &shown, stale);
}

/// Drops the columns at the right that do not fit. The last one that fits gets the rest of the width.
fn fit(columns: &mut Vec<Column>, width: u16) {
    let mut left = width.saturating_sub(GUTTER);
    let fits = columns.iter().position(|column| {
        let short = left < column.width.min(MIN_WIDTH);
        left = left.saturating_sub(column.width + 1);
        short
    });
    columns.truncate(fits.unwrap_or(columns.len()).max(1));
    if let Some(last) = columns.last_mut() {
        last.width = 0;
    }
}

/// Returns the title of a column that no table has by default.
fn title(name: &'static str) -> &'static str {
    match name {
        "rack" => "RACK",
        "role" => "ROLE",
        "address" => "ADDRESS",
        "by" => "ASKED BY",
        "why" => "WHY",
        "since" => "SINCE",
        "serial" => "SERIAL",
        other => other,
    }
}

/// Returns the text of a cell in such a column.
fn text(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Known(text, _) => short_text::safe(text),
        Value::Span(seconds) => when::seconds(*seconds),
        Value::Number(n) => n.to_string(),
        Value::None => String::new(),
    }
}

/// Parses names separated by commas or spaces. They must be columns of the open table, each at most once.
pub fn read(app: &App, text: &str) -> Result<Vec<&'static str>, String> {
    let all = columns::all(app.navigation.view, app.navigation.cke_records);
    let mut names: Vec<&'static str> = Vec::new();
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        let name = all.iter().find(|name| **name == word);
        let name = name.ok_or_else(|| format!("there is no column {word}: {}", all.join(" ")))?;
        if names.contains(name) {
            return Err(format!("{name} is named twice"));
        }
        names.push(name);
    }
    if names.is_empty() { Err(format!("no column is named: {}", all.join(" "))) } else { Ok(names) }
}

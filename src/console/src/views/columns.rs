//! Drawing of a table: the columns that it shows at this width or that the operator chose, and their widths.

use std::borrow::Borrow;

use ratatui::{buffer::Buffer, layout::Rect};
use unicode_width::UnicodeWidthStr;

use crate::{
    state::{
        App,
        column_id::ColumnId,
        columns::{Column, Content, Table, Visibility, Width},
        filter::Value,
        list::List,
        short_text, when,
    },
    table::{self, Cell, DrawnColumn, RowMarks},
};

/// Widest that a chosen column grows beyond its own width.
const MAX_WIDTH: u16 = 40;
/// Narrowest useful column: the last chosen column is left out if it would get less.
const MIN_WIDTH: u16 = 6;
/// Narrowest column that takes the rest of the line: columns that only wide tables show make room for it.
const MIN_REST: u16 = 14;

/// Draws the visible rows of a list with the chosen columns, or with the table's own. Returns false if no row is
/// visible.
pub fn draw<T: Table, Id: Borrow<T::Id> + Ord + Clone>(
    app: &App,
    (buffer, area): (&mut Buffer, Rect),
    list: &List<Id>,
    is_stale: bool,
) -> bool {
    let visible = list.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<T::Row<'_>> = visible.iter().map(|id| T::row(app, id.borrow())).collect();
    let columns = match app
        .lists
        .visible_columns
        .get(crate::state::columns::table(app.navigation.view, app.navigation.second_table()))
    {
        None => default_layout::<T>(app, &rows, area.width).0,
        Some(chosen) => chosen_layout::<T>(app, &rows, area.width, chosen),
    };
    let marks = visible
        .iter()
        .map(|id| RowMarks { cursor: list.cursor.as_ref() == Some(id), marked: list.marks.contains::<Id>(id) });
    table::draw(buffer, area, &app.config.theme, &columns, marks, is_stale);
    !visible.is_empty()
}

/// Returns the columns that a table of this width shows by default, and the width that is left for the one that takes
/// the rest of the line.
fn default_layout<T: Table>(app: &App, rows: &[T::Row<'_>], table_width: u16) -> (Vec<DrawnColumn>, u16) {
    let mut columns: Vec<DrawnColumn> = Vec::with_capacity(T::COLUMNS.len());
    // the narrowest table that shows each of them
    let mut shown_from: Vec<u16> = Vec::with_capacity(T::COLUMNS.len());
    // the definitions of `columns`
    let mut definitions: Vec<&Column<T>> = Vec::with_capacity(T::COLUMNS.len());
    let mut flexible = None;
    for column in T::COLUMNS {
        let width = column.width_in(table_width);
        let cells = match column.visibility {
            Visibility::From(from) if from <= table_width => {
                let cells = cells(app, column, rows, None);
                // the others get its space
                if sized_by_content(width) && !cells.is_empty() && cells.iter().all(Cell::is_empty) {
                    continue;
                }
                cells
            }
            Visibility::FromUnlessFilled(from) => {
                let cells = cells(app, column, rows, None);
                if from > table_width && cells.iter().all(Cell::is_empty) {
                    continue;
                }
                cells
            }
            Visibility::From(_) | Visibility::Hidden => continue,
        };
        if matches!(width, Width::Rest | Width::ContentWithinRest(_)) {
            flexible = Some((columns.len(), width));
        }
        let width = own_width(app, width, &cells, 0);
        columns.push(DrawnColumn { title: column.title, width, cells, sorted: sorted(app, column.id) });
        definitions.push(column);
        shown_from.push(match column.visibility {
            Visibility::From(from) | Visibility::FromUnlessFilled(from) => from,
            Visibility::Hidden => 0,
        });
    }
    let mut rest = table::rest(&columns, table_width);
    while rest < MIN_REST
        && let Some((flexible, _)) = &mut flexible
    {
        let others = shown_from.iter().enumerate().filter(|(at, from)| at != flexible && **from > 0);
        let Some((at, _)) = others.max_by_key(|(_, from)| **from) else { break };
        columns.remove(at);
        definitions.remove(at);
        shown_from.remove(at);
        *flexible -= usize::from(at < *flexible);
        rest = table::rest(&columns, table_width);
    }
    if let Some((at, width)) = flexible
        && let Some(column) = columns.get_mut(at)
    {
        column.width = if width == Width::Rest { rest } else { own_width(app, width, &column.cells, rest) };
        let used = longest(&column.cells).max(column.title.width());
        give_rest(&mut columns, at, rest, rest.saturating_sub(u16::try_from(used).unwrap_or(rest)));
    }
    for (column, definition) in columns.iter_mut().zip(definitions) {
        if let Content::Fitted(cell) = definition.content {
            // the cells have their whole text, which is the right one wherever it fits
            let width = usize::from(column.width);
            for (row, drawn) in rows.iter().zip(&mut column.cells).filter(|(_, drawn)| drawn.width() > width) {
                *drawn = cell(row, width);
            }
        }
    }
    (columns, rest)
}

/// Gives columns whose cells are cut the space that the cells of the flexible one do not need: `unused` of the `rest`.
fn give_rest(columns: &mut [DrawnColumn], flexible: usize, rest: u16, unused: u16) {
    let mut left = unused;
    for (_, column) in columns.iter_mut().enumerate().filter(|(at, _)| *at != flexible) {
        let missing = u16::try_from(longest(&column.cells)).unwrap_or(u16::MAX).saturating_sub(column.width);
        let more = missing.min(left);
        column.width += more;
        left -= more;
    }
    if let Some(column) = columns.get_mut(flexible) {
        column.width = column.width.min(rest.saturating_sub(unused - left));
    }
}

/// Returns whether the largest value comes first, if the view is sorted by this column.
fn sorted(app: &App, column: ColumnId) -> Option<bool> {
    app.list().sort().filter(|(by, _)| *by == column).map(|(_, largest_first)| largest_first)
}

/// Returns the chosen columns that fit into a table of this width. Each is as wide as by default, or as its cells.
fn chosen_layout<T: Table>(app: &App, rows: &[T::Row<'_>], table_width: u16, chosen: &[ColumnId]) -> Vec<DrawnColumn> {
    let mut columns: Vec<DrawnColumn> = Vec::with_capacity(chosen.len());
    for column in chosen.iter().filter_map(|id| T::COLUMNS.iter().find(|c| c.id == *id)) {
        let width = column.width_in(table_width);
        let cells = cells(app, column, rows, Some(width));
        let rest = match width {
            Width::ContentWithinRest(_) => default_layout::<T>(app, rows, table_width).1,
            Width::Fixed(_) | Width::Content(..) | Width::MachineName(..) | Width::Rest => 0,
        };
        let needed = u16::try_from(longest(&cells).max(column.title.width())).unwrap_or(MAX_WIDTH).min(MAX_WIDTH);
        let width = own_width(app, width, &cells, rest).max(needed);
        columns.push(DrawnColumn { title: column.title, width, cells, sorted: sorted(app, column.id) });
    }
    fit(&mut columns, table_width);
    columns
}

/// Drops the columns at the right that do not fit. The last one that fits gets the rest of the width.
fn fit(columns: &mut Vec<DrawnColumn>, table_width: u16) {
    let mut left = table_width.saturating_sub(table::GUTTER);
    let fits = columns.iter().position(|column| {
        let short = left < column.width.min(MIN_WIDTH);
        left = left.saturating_sub(column.width + 1);
        short
    });
    columns.truncate(fits.unwrap_or(columns.len()).max(1));
    if let Some(last) = columns.last_mut() {
        last.width = 0;
    }
    let rest = table::rest(columns, table_width);
    if let Some(last) = columns.last_mut() {
        last.width = rest;
    }
}

/// Returns the width that a rule gives to a column with these cells, where `rest` is left of the line.
fn own_width(app: &App, width: Width, cells: &[Cell], rest: u16) -> u16 {
    match width {
        Width::Fixed(width) => width,
        Width::Content(least, most) => u16::try_from(longest(cells)).unwrap_or(most).clamp(least, most),
        Width::MachineName(..) => limit(app, width),
        Width::Rest => 0,
        Width::ContentWithinRest(least) => u16::try_from(longest(cells)).unwrap_or(u16::MAX).max(least).min(rest),
    }
}

/// Returns true if the width depends on the visible cells, so that a column without any text has no use.
fn sized_by_content(width: Width) -> bool {
    match width {
        Width::Content(..) => true,
        Width::Fixed(_) | Width::MachineName(..) | Width::Rest | Width::ContentWithinRest(_) => false,
    }
}

/// Returns the width of the widest cell.
fn longest(cells: &[Cell]) -> usize {
    cells.iter().map(Cell::width).max().unwrap_or(0)
}

/// Returns the width that a text is fitted into before the cells are known.
fn limit(app: &App, width: Width) -> u16 {
    match width {
        Width::Fixed(width) => width,
        Width::Content(_, most) => most,
        Width::MachineName(least, most) => {
            u16::try_from(app.knowledge.totals.name_width).unwrap_or(most).clamp(least, most)
        }
        Width::Rest | Width::ContentWithinRest(_) => u16::MAX,
    }
}

/// Returns the cells of a column. Text that is fitted into its column gets the most that `width` allows, or is whole.
fn cells<T: Table>(app: &App, column: &Column<T>, rows: &[T::Row<'_>], width: Option<Width>) -> Vec<Cell> {
    match column.content {
        Content::Cell(cell) => rows.iter().map(cell).collect(),
        Content::Fitted(cell) => {
            let limit = width.map_or(usize::MAX, |width| usize::from(limit(app, width)));
            rows.iter().map(|row| cell(row, limit)).collect()
        }
        Content::Value => rows
            .iter()
            .map(|row| Cell::plain(column.value.map(|value| text(&value(row))).unwrap_or_default()))
            .collect(),
    }
}

/// Returns the text of a value.
fn text(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Known(text, _) => short_text::safe(text),
        Value::Span(seconds) => when::seconds(*seconds),
        Value::Number(n) => n.to_string(),
        Value::None => String::new(),
    }
}

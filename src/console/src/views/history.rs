//! History: the entries that ended, newest first; or CKE's operation records.

use cketerm_model::cketerm_records::EndKind;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{
    table::{self, Cell, Column, Row, wrap},
    visible_columns,
};
use crate::state::{
    App, calendar,
    history::{node, targets},
    past::{Ended, PastId, Read},
    short_text, when,
};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if app.navigation.cke_records {
        return records(app, buffer, area, stale);
    }
    let visible = app.lists.history.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|id| row(app, id)).collect();
    // columns are as wide as their content: the outcome needs the space
    let narrow = area.width < 100;
    let needs = |cell: usize, least: u16, most: u16| table::needs(&rows, cell, least, most);
    let columns = [
        Column { title: "ENDED", width: needs(0, 9, 11), from: 0 },
        Column { title: "ENTRY", width: needs(1, 9, 12), from: 0 },
        Column { title: "NODE", width: if narrow { needs(2, 8, 14) } else { 24 }, from: 0 },
        Column { title: "ADDRESS", width: 15, from: 150 },
        Column { title: "TOOK", width: needs(4, 4, 6), from: 0 },
        Column { title: "TRIES", width: 5, from: 100 },
        Column { title: "ASKED BY", width: if narrow { needs(6, 8, 12) } else { 20 }, from: 0 },
        Column { title: "OUTCOME", width: if area.width < 120 { 0 } else { 40 }, from: 0 },
        Column { title: "REASON", width: 0, from: 120 },
    ];
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        let none = "no entry has ended yet: entries that end under a cketerm leader appear here";
        super::draw_empty(buffer, area, &empty(app, &app.knowledge.past.history, app.lists.history.total, none), app);
    }
}

/// Returns the style of an outcome: good, unintended, or failed.
pub(crate) fn style(app: &App, ended: &Ended) -> Style {
    let theme = &app.config.theme;
    if ended.end.good() {
        theme.good
    } else if ended.end == EndKind::Failed {
        theme.danger
    } else {
        theme.trouble
    }
}

fn row(app: &App, id: &PastId) -> Row {
    let mut cells = Vec::new();
    match app.knowledge.past.history.rows.get(id) {
        Some(Ok(e)) => {
            let asked = e.request.as_ref();
            let narrow = app.size.width < 100;
            let who =
                |who: &cketerm_model::cketerm_records::Who| if narrow { who.user.clone() } else { who.to_string() };
            let by = asked.map_or_else(|| "via ckecli".to_owned(), |r| who(&r.who));
            cells.extend([
                Cell::plain(calendar::short(app, e.at)),
                Cell::plain(e.entry.to_string()),
                Cell::plain(short_text::shorten_middle(&node(app, e), if app.size.width < 100 { 14 } else { 24 })),
                Cell::plain(short_text::safe(&e.address)),
                Cell::plain(asked.map(|r| when::age(r.at, e.at)).unwrap_or_default()),
                Cell::plain(e.attempts.to_string()),
                Cell::plain(short_text::safe(&by)),
                Cell::styled(short_text::safe(&e.outcome), style(app, e)),
                Cell::plain(asked.and_then(|r| r.reason.as_deref()).map(short_text::safe).unwrap_or_default()),
            ]);
        }
        other => cells.extend(unreadable_cells(app, other, 7)),
    }
    Row { cells, cursor: app.lists.history.cursor.as_ref() == Some(id), marked: app.lists.history.marks.contains(id) }
}

/// Returns an unreadable row: the error is in the column after `before`.
pub(super) fn unreadable_cells<T>(app: &App, value: Option<&Result<T, String>>, before: usize) -> Vec<Cell> {
    let danger = app.config.theme.danger;
    let why = value.and_then(|v| v.as_ref().err()).map(|why| short_text::safe(why)).unwrap_or_default();
    let mut cells = vec![Cell::styled("broken", danger)];
    cells.extend(std::iter::repeat_with(|| Cell::plain("")).take(before - 1));
    cells.push(Cell::styled(why, danger));
    cells
}

fn records(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let columns = [
        Column { title: "ID", width: 7, from: 0 },
        Column { title: "START", width: 11, from: 0 },
        Column { title: "TOOK", width: 6, from: 0 },
        Column { title: "STATUS", width: 9, from: 0 },
        Column { title: "OPERATION", width: 20, from: 0 },
        Column { title: "TARGETS", width: if area.width < 120 { 0 } else { 36 }, from: 0 },
        Column { title: "ERROR / INFO", width: 0, from: 120 },
    ];
    let visible = app.lists.records.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|id| record(app, id)).collect();
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        let none = "there are no operation records: neither CKE nor cketerm has written one";
        super::draw_empty(buffer, area, &empty(app, &app.knowledge.past.records, app.lists.records.total, none), app);
    }
}

fn record(app: &App, id: &PastId) -> Row {
    let theme = &app.config.theme;
    let mut cells = Vec::new();
    match app.knowledge.past.records.rows.get(id) {
        Some(Ok(r)) => {
            let status = match r.status.as_str() {
                _ if !r.error.is_empty() => theme.danger,
                "cancelled" => theme.trouble,
                _ => Style::new(),
            };
            let targets = targets(r);
            let detail = if r.error.is_empty() { &r.info } else { &r.error };
            let narrow = app.size.width < 120 && !detail.is_empty();
            cells.extend([
                Cell::plain(r.id.to_string()),
                Cell::plain(r.start_at.map(|at| calendar::short(app, at)).unwrap_or_default()),
                Cell::plain(r.start_at.zip(r.end_at).map(|(a, b)| when::age(a, b)).unwrap_or_default()),
                Cell::styled(short_text::safe(&r.status), status),
                Cell::plain(short_text::safe(&r.operation)),
                Cell::plain(short_text::safe(&if narrow { format!("{targets}: {detail}") } else { targets })),
                Cell::styled(short_text::safe(detail), status),
            ]);
        }
        other => cells.extend(unreadable_cells(app, other, 5)),
    }
    Row { cells, cursor: app.lists.records.cursor.as_ref() == Some(id), marked: app.lists.records.marks.contains(id) }
}

/// Returns the reason why there is no row.
pub(super) fn empty<T>(app: &App, read: &Read<T>, total: usize, none: &str) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    let width = usize::from(app.size.width).saturating_sub(4);
    if let Some(why) = &read.error {
        return std::iter::once("reading failed; retrying:".to_owned())
            .chain(wrap(&short_text::safe(why), width))
            .collect();
    }
    if total > 0 {
        let more = if read.more { "; reading older ones ..." } else { "" };
        let filter = app.list().filter();
        return vec![format!("none of {total} matches {filter:?}{more}"), format!("{} shows all", app.key("back"))];
    }
    if read.loaded { wrap(none, width) } else { vec!["reading ...".to_owned()] }
}

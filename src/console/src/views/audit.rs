//! Audit: who did what, when, why and from where; newest first.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{
    table::{self, Cell, Column, Row},
    visible_columns,
};
use crate::state::{App, calendar, past::PastId, short_text};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let wide = area.width >= 120;
    let visible = app.lists.audit.window(usize::from(area.height.saturating_sub(1)));
    let rows: Vec<Row> = visible.iter().map(|id| row(app, id)).collect();
    // columns are as wide as their content, because on a narrow screen the objects need the space
    let needs = |cell: usize, least: u16, most: u16| table::needs(&rows, cell, least, most);
    let columns = [
        Column { title: "AT", width: needs(0, 9, 11), from: 0 },
        Column { title: "WHO", width: if wide { 24 } else { needs(1, 5, 12) }, from: 0 },
        Column { title: "FROM", width: 15, from: 150 },
        Column { title: "WHAT", width: if wide { 22 } else { needs(3, 8, 20) }, from: 0 },
        Column { title: "ON", width: if wide { 36 } else { 0 }, from: 0 },
        Column { title: "RESULT", width: 34, from: 160 },
        Column { title: "REASON", width: 0, from: 120 },
    ];
    visible_columns::draw(app, (&mut *buffer, area), &columns, &rows, visible, stale);
    if visible.is_empty() {
        let lines =
            super::history::empty(app, &app.knowledge.past.audit, app.lists.audit.total, "no actions recorded yet");
        super::draw_empty(buffer, area, &lines, app);
    }
}

fn row(app: &App, id: &PastId) -> Row {
    let theme = &app.config.theme;
    let mut cells = Vec::new();
    match app.knowledge.past.audit.rows.get(id) {
        Some(Ok(audit)) => {
            // the engine's records are muted compared with those of operators
            let style = if audit.by_engine() { theme.muted } else { Style::new() };
            let narrow = app.size.width < 120;
            let who = if narrow { audit.who.user.clone() } else { format!("{}@{}", audit.who.user, audit.who.host) };
            let why = audit.reason.clone().unwrap_or_default();
            let on = calendar::with_local_times(app, &audit.on);
            let on = if narrow && !why.is_empty() { format!("{on} ({why})") } else { on };
            let cell = |text: &str| Cell::styled(short_text::safe(text), style);
            cells.extend([
                Cell::styled(calendar::short(app, audit.last()), style),
                cell(&who),
                cell(audit.who.ssh_client.as_deref().unwrap_or_default()),
                cell(&audit.what_with_count()),
                cell(&on),
                cell(&audit.result),
                cell(&why),
            ]);
        }
        other => cells.extend(super::history::unreadable_cells(app, other, 4)),
    }
    Row { cells, cursor: app.lists.audit.cursor.as_ref() == Some(id), marked: app.lists.audit.marks.contains(id) }
}

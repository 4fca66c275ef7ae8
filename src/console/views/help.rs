//! The `?` overlay, from the key table.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::console::{
    app::App,
    keys::{Context, TABLE},
    table::{put, wrap},
};

fn lines(app: &App) -> Vec<Line<'static>> {
    let theme = &app.looks.theme;
    let mut lines = Vec::new();
    for (title, context, changes) in [
        ("Changing the cluster (the same key in every view; a dialog confirms)", Context::Everywhere, true),
        ("In tables", Context::Table, false),
        ("Everywhere", Context::Everywhere, false),
        ("In dialogs", Context::Dialog, false),
    ] {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(title, theme.title));
        for b in TABLE.iter().filter(|b| b.context == context && b.changes == changes) {
            let mut keys = format!("  {:<16}", app.looks.keymap.all(b));
            for help in wrap(b.help, usize::from(app.size.width).saturating_sub(20)) {
                let keys = std::mem::replace(&mut keys, " ".repeat(18));
                lines.push(Line::from(vec![Span::styled(keys, theme.key), Span::raw(help)]));
            }
        }
    }
    lines
}

/// How far the help can be scrolled.
pub fn overflow(app: &App) -> usize {
    let parts = super::parts(app);
    let shown = parts.table.union(parts.pane).union(parts.banner).height.saturating_sub(1);
    lines(app).len().saturating_sub(usize::from(shown))
}

/// Draws it over the body.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect) {
    let lines = lines(app);
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buffer[(x, y)].reset();
        }
    }
    let rule = "\u{2500}".repeat(usize::from(area.width));
    put(buffer, area.x, area.y, area.width, &rule, app.looks.theme.muted);
    put(buffer, area.x + 2, area.y, 40, " Keys: j k scroll, ? or Esc closes ", app.looks.theme.title);
    let from = app.help.unwrap_or(0);
    for (y, line) in (area.y + 1..area.bottom()).zip(lines.iter().skip(from)) {
        buffer.set_line(area.x + 1, y, line, area.width.saturating_sub(1));
    }
}

//! Detail of the cursor's row beside the table, on wide screens.

use ratatui::{buffer::Buffer, layout::Rect};

use super::detail;
use crate::{state::App, table::put};

/// Draws the left border, and title and text of the object that the cursor rested on.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect) {
    if area.width < 4 {
        return;
    }
    let theme = &app.config.theme;
    for y in area.y..area.bottom() {
        put(buffer, area.x, y, 1, "\u{2502}", theme.border);
    }
    let (x, width) = (area.x + 2, area.width - 2);
    let Some(of) = &app.navigation.preview else {
        // the first frame names what is about to be shown
        if let Some(of) = app.target() {
            put(buffer, x, area.y, width, &detail::title(app, &of), theme.muted);
        }
        return;
    };
    put(buffer, x, area.y, width, &detail::title(app, of), theme.title);
    let lines = detail::lines(app, of, width);
    for (y, line) in (area.y + 1..area.bottom()).zip(&lines) {
        buffer.set_line(x, y, line, width);
    }
    let shown = usize::from(area.height.saturating_sub(1));
    if lines.len() > shown {
        let more = format!("{:<w$}", format!("... {} more lines", lines.len() - shown + 1), w = usize::from(width));
        put(buffer, x, area.bottom().saturating_sub(1), width, &more, theme.muted);
    }
}

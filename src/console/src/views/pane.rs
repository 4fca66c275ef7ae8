//! Detail pane: below the table if there is space, else over it.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use super::detail;
use crate::{state::App, table::put};

/// Returns the pane's text at the screen's width.
pub(super) fn lines(app: &App) -> Vec<Line<'static>> {
    let width = super::pane_width(app);
    app.navigation.pane.as_ref().map(|pane| detail::pane_lines(app, pane, width)).unwrap_or_default()
}

/// Draws title and text.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect) {
    let Some(pane) = app.navigation.pane.as_ref().filter(|_| area.height > 0) else { return };
    let lines = lines(app);
    let shown = usize::from(area.height.saturating_sub(1));
    let title = detail::pane_title(app, pane);
    let position = if lines.len() > shown {
        format!(" {}-{} of {} ", pane.scroll + 1, (pane.scroll + shown).min(lines.len()), lines.len())
    } else {
        String::new()
    };
    let separator = "\u{2500}".repeat(usize::from(area.width));
    put(buffer, area.x, area.y, area.width, &separator, app.config.theme.border);
    put(buffer, area.x + 2, area.y, area.width.saturating_sub(24), &format!(" {title} "), app.config.theme.title);
    let at = area.right().saturating_sub(u16::try_from(position.len()).unwrap_or(0) + 2);
    put(buffer, at, area.y, area.right().saturating_sub(at), &position, app.config.theme.muted);
    for (y, line) in (area.y + 1..area.bottom()).zip(lines.iter().skip(pane.scroll)) {
        buffer.set_line(area.x + 1, y, line, area.width.saturating_sub(1));
    }
}

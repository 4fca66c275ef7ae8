//! Audit: who did what, when, why and from where; newest first.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    app::App,
    columns::{self, Actions},
};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if !columns::draw::<Actions, _>(app, (&mut *buffer, area), &app.audit, stale) {
        let lines = super::history::empty(app, &app.past.audit, app.audit.total, "no actions recorded yet");
        super::draw_empty(buffer, area, &lines, app);
    }
}

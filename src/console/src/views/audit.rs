//! Audit: who did what, when, why and from where; newest first.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::state::{App, columns::Actions};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if !super::columns::draw::<Actions, _>(app, (&mut *buffer, area), &app.lists.audit, stale) {
        let [hold, reboots] = ["hold", "reboots"].map(|name| app.key(name));
        let none = format!(
            "no actions recorded yet\nactions of operators and of the engine appear here, such as {hold} on an entry \
             in {reboots} Reboots"
        );
        let lines = super::history::empty(app, &app.knowledge.past.audit, super::history::of(&app.lists.audit), &none);
        super::draw_empty(buffer, area, &lines, app);
    }
}

//! The batches of a queue, newest first.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::state::{App, columns::BatchTable};

/// Draws the table.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if !super::columns::draw::<BatchTable, _>(
        app,
        (&mut *buffer, area),
        app.lists.batches_of(app.navigation.view),
        stale,
    ) {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn empty(app: &App) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.lists.batches_of(app.navigation.view).total > 0 {
        return super::no_matches(app, "batch");
    }
    vec![
        "there are no batches: the entries that one command adds are a batch".to_owned(),
        format!("{} shows the entries", app.key("racks")),
    ]
}

//! Optional mouse support: it moves the cursor, the focus and the text, and opens views. It never confirms and never
//! changes the cluster.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::navigation;
use crate::{
    state::App,
    views::{self, header},
};

/// Rows per step of the wheel.
const WHEEL: isize = 3;

/// Handles a mouse event.
pub(super) fn handle(app: &mut App, event: MouseEvent) {
    // the list of columns is for keys alone
    if views::too_small(app.size) || app.picker.is_some() {
        return;
    }
    match event.kind {
        MouseEventKind::ScrollDown => wheel(app, event.row, WHEEL),
        MouseEventKind::ScrollUp => wheel(app, event.row, -WHEEL),
        MouseEventKind::Down(MouseButton::Left) => click(app, event.column, event.row),
        _ => {}
    }
}

/// Scrolls the topmost element. A pane beside its table leaves the wheel over the table to the table.
fn wheel(app: &mut App, y: u16, by: isize) {
    if let Some(dialog) = &mut app.dialog {
        dialog.scroll = dialog.scroll.saturating_add_signed(by);
    } else if app.typing.filter.is_some() || app.typing.line.is_some() {
        // while the user types, the wheel does nothing
    } else if app.navigation.help.is_none() && app.navigation.pane.is_some() && views::row_at(app, y).is_some() {
        app.list_mut().go(by);
    } else {
        navigation::by(app, by);
    }
}

fn click(app: &mut App, x: u16, y: u16) {
    app.typing.chord.clear();
    if let Some(open) = &app.dialog {
        if let Some(focus) = views::dialog::button_at(app, open, (x, y))
            && let Some(open) = &mut app.dialog
        {
            open.focus = focus;
        }
        return;
    }
    if app.typing.filter.is_some() || app.typing.line.is_some() {
        return;
    }
    if let Some(view) = header::tab_at(app, x, y) {
        return navigation::show(app, view);
    }
    if app.navigation.help.is_some() {
        return;
    }
    if let Some(overview_row) = views::overview_row_at(app, x, y) {
        app.lists.overview_rows.moved = true;
        app.lists.overview_rows.select_id(&overview_row);
    } else if let Some(row) = views::row_at(app, y) {
        app.list_mut().point(row);
    }
}

//! Mouse support: it moves the cursor, the focus and the text, sorts, and opens views and rows. It never confirms and
//! never changes the cluster.

use std::time::Duration;

use cketerm_model::boot_time::BootTime;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::navigation;
use crate::{
    state::{App, column_id::ColumnId},
    views::{self, header},
};

/// Rows per step of the wheel.
const WHEEL: isize = 3;
/// Longest time between the two clicks of a double click.
const DOUBLE_CLICK: Duration = Duration::from_millis(400);

/// Handles a mouse event.
pub(super) fn handle(app: &mut App, event: MouseEvent) {
    // the lists of columns and themes are for keys alone
    if views::too_small(app.size) || app.picker.is_some() || app.themes.is_some() {
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
    app.typing.notice = None;
    let before = app.typing.last_click.take();
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
    app.dismiss_message();
    if let Some(view) = header::tab_at(app, x, y) {
        return navigation::show(app, view);
    }
    if app.navigation.help.is_some() {
        return;
    }
    if let Some(overview_row) = views::overview_row_at(app, x, y) {
        app.lists.overview_rows.moved = true;
        app.lists.overview_rows.select_id(&overview_row);
        open_at_second_click(app, before, y);
    } else if let Some(name) = views::machine_at(app, (x, y)).map(str::to_owned) {
        // several machines are on a line: both clicks have to be on one
        let before = before.filter(|_| app.lists.nodes.cursor.as_ref() == Some(&name));
        app.lists.nodes.moved = true;
        app.lists.nodes.select_id(&name);
        open_at_second_click(app, before, y);
    } else if views::is_preview_at(app, (x, y)) {
        // the preview belongs to the row under the cursor, whatever row is on the same line
        open_at_second_click(app, before, y);
    } else if let Some(row) = views::row_at(app, y) {
        if app.list_mut().point(row) {
            open_at_second_click(app, before, y);
        }
    } else if let Some(column) = views::title_at(app, x, y) {
        sort(app, column);
    }
}

/// Opens the row under the cursor if the previous click was on the same line a moment ago.
fn open_at_second_click(app: &mut App, before: Option<(BootTime, u16)>, y: u16) {
    let now = app.now.boot;
    if before.is_some_and(|(at, line)| line == y && now.saturating_duration_since(at) <= DOUBLE_CLICK) {
        super::open::open(app);
    } else {
        app.typing.last_click = Some((now, y));
    }
}

/// Sorts by a column; again: in reverse; a third time: in the view's own order.
fn sort(app: &mut App, column: ColumnId) {
    let order = match app.list().sort() {
        Some((by, false)) if by == column => Some((column, true)),
        Some((by, true)) if by == column => None,
        Some(_) | None => Some((column, false)),
    };
    navigation::set_sort_order(app, order);
}

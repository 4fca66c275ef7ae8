//! Moves on the map of the racks.

use crate::state::App;

/// Moves the cursor by lines, or along a line.
pub(super) fn go(app: &mut App, lines: isize, along: isize) {
    let (Some(map), Some(name)) = (&app.navigation.map, &app.lists.nodes.cursor) else { return };
    let to = match lines {
        0 => map.along(name, along),
        lines => map.down(name, lines, usize::from(app.size.width)),
    };
    if let Some(to) = to {
        app.lists.nodes.select_id(&to);
    }
}

/// Marks or unmarks the machine under the cursor, and moves to the next one.
pub(super) fn mark(app: &mut App) {
    let Some(name) = app.lists.nodes.cursor.clone() else { return };
    if !app.lists.nodes.marks.remove(&name) {
        app.lists.nodes.marks.insert(name);
    }
    go(app, 0, 1);
}

/// Scrolls so that the cursor is within `height` lines.
pub(super) fn reveal(app: &mut App, height: usize) {
    let (width, cursor) = (usize::from(app.size.width), app.lists.nodes.cursor.clone());
    let Some(map) = &mut app.navigation.map else { return };
    let line = cursor.and_then(|name| map.place_of(&name)).map_or(0, |at| map.line_of(at, width));
    let last = map.lines(width).saturating_sub(height);
    map.top = map.top.min(last).min(line).max((line + 1).saturating_sub(height));
}

//! Moves on the map of the racks.

use crate::{
    state::{App, View, racks},
    views,
};

/// Decides between map and list, once after Nodes was opened and its rows are known.
pub(super) fn decide(app: &mut App) {
    if app.navigation.view == View::Nodes && !app.navigation.map_decided && !app.lists.nodes.rows.is_empty() {
        app.navigation.map_decided = true;
        let size = views::largest_map(app);
        racks::choose(app, size);
    }
}

/// Moves the cursor by lines, or along a line.
pub(super) fn go(app: &mut App, lines: isize, along: isize) {
    let (Some(map), Some(name)) = (&app.navigation.map, &app.lists.nodes.cursor) else { return };
    let to = match lines {
        0 => map.along(name, along),
        lines => map.down(name, lines, views::map_grid(app, map)),
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

/// Scrolls so that the cursor is visible.
pub(super) fn reveal(app: &mut App) {
    let Some(map) = &app.navigation.map else { return };
    let (grid, height) = (views::map_grid(app, map), views::map_height(app));
    let cursor = app.lists.nodes.cursor.as_ref().and_then(|name| map.place_of(name));
    let line = cursor.map_or(0, |at| map.line_of(at, grid));
    let last = map.lines(grid).saturating_sub(height);
    let top = map.top.min(last).min(line).max((line + 1).saturating_sub(height));
    if let Some(map) = &mut app.navigation.map {
        map.top = top;
    }
}

//! Next object that needs a person, as seen from the present place.

use super::{App, View, object::Object, overview::OverviewRow};

/// Returns the next object of *Needs you*, after the one that the operator is at; the first follows the last. `None` if
/// there is no other, so that a move would lead nowhere.
pub fn next(app: &App) -> Option<Object> {
    let lines = &app.knowledge.needs_you;
    let from = here(app).and_then(|here| lines.iter().position(|line| line.object == here));
    let first = from.map_or(0, |at| at + 1);
    let in_order = (0..lines.len()).filter_map(|nth| lines.get((first + nth) % lines.len()));
    in_order.map(|line| &line.object).find(|object| !is_at(app, object)).cloned()
}

/// Returns the object that the operator is at: the one under the cursor, else the last one that the key went to.
fn here(app: &App) -> Option<Object> {
    if app.navigation.view == View::Overview && app.navigation.pane.is_none() {
        return match &app.lists.overview_rows.cursor {
            Some(OverviewRow::NeedsYou(object)) => Some(object.clone()),
            _ => None,
        };
    }
    let last = app.session.last_needs_you.clone();
    if last.as_ref().is_some_and(|last| last.view() == app.navigation.view && last.target().is_none()) {
        return last;
    }
    let target = app.target();
    let mut objects = app.knowledge.needs_you.iter().map(|line| &line.object);
    objects.find(|object| target.is_some() && object.target() == target).cloned().or(last)
}

/// Reports whether the place of an object is open, with the cursor or the pane on the object if it has a row.
fn is_at(app: &App, object: &Object) -> bool {
    if app.navigation.view == View::Overview && app.navigation.pane.is_none() {
        return here(app).as_ref() == Some(object);
    }
    let target = object.target();
    app.navigation.view == object.view()
        && app.navigation.help.is_none()
        && (target.is_none() || target == app.target())
}

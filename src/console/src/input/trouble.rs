//! Moves to the next line of *Needs you*, from any view.

use crate::state::{App, Pane, View, object::Object, overview::OverviewRow, registry::Serial};

/// Goes to the next object that waits for a person, and wraps around at the end. On the Overview it moves the cursor,
/// elsewhere it opens the object's view with the cursor on it. The header counts the same list in every view.
pub(super) fn next_row(app: &mut App) {
    let objects: Vec<Object> = app.knowledge.needs_you.iter().map(|line| line.object.clone()).collect();
    if objects.is_empty() {
        app.print_here("nothing needs you");
        return;
    }
    let place = |object: &Object| objects.iter().position(|known| known == object);
    let from = here(app, &objects).as_ref().and_then(place);
    let next = from.map_or(0, |at| (at + 1) % objects.len());
    let Some(object) = objects.into_iter().nth(next) else { return };
    app.session.last_needs_you = Some(object.clone());
    go(app, &object);
}

/// Returns the line that the operator is at: the one under the cursor, else the last one that the key went to.
fn here(app: &App, objects: &[Object]) -> Option<Object> {
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
    let under = objects.iter().find(|object| target.is_some() && object.target() == target).cloned();
    under.or(last)
}

/// Goes to an object: to its row, or to its line of the Overview if it has none.
pub(super) fn go(app: &mut App, object: &Object) {
    let view = object.view();
    if view == View::Overview {
        if app.navigation.view != View::Overview {
            super::navigation::show(app, View::Overview);
        }
        app.navigation.pane = None;
    }
    if app.navigation.view == View::Overview && app.navigation.pane.is_none() && keeps_overview(app, object) {
        select_line(app, object);
        return;
    }
    open(app, object);
}

/// Reports whether the Overview, which is open, lists the object itself.
fn keeps_overview(app: &App, object: &Object) -> bool {
    app.knowledge.needs_you.iter().any(|line| line.object == *object)
}

fn select_line(app: &mut App, object: &Object) {
    super::past::overview_rows(app);
    app.lists.overview_rows.moved = true;
    app.lists.overview_rows.select_id(&OverviewRow::NeedsYou(object.clone()));
}

/// Opens the view of an object with the cursor on it. An open pane stays open and shows it.
pub(super) fn open(app: &mut App, object: &Object) {
    let (view, had_pane) = (object.view(), app.navigation.pane.is_some());
    if app.navigation.view != view {
        super::navigation::push_position(app);
        super::navigation::enter(app, view);
        super::navigation::record_arrival(app);
    }
    if app.navigation.shows_batches() && matches!(object, Object::Entry(_)) {
        app.navigation.batches = false;
        super::seen::rows(app);
    }
    if !select(app, object) && !app.list().filter().is_empty() {
        super::typing::set_filter(app, "");
        if select(app, object) {
            app.print_here("the filter hid this row and is cleared");
        }
    }
    app.navigation.pane = object.target().filter(|_| had_pane).map(Pane::new);
}

/// Moves the cursor to the object's row. Returns false if the view does not show it.
fn select(app: &mut App, object: &Object) -> bool {
    match object {
        Object::Entry(id) if View::of_queue(id.queue) == View::Reboots => app.lists.reboots.select_id(id),
        Object::Entry(id) => app.lists.repairs.select_id(id),
        Object::Node(name) => app.lists.nodes.select_id(name),
        Object::Host(id) => app.lists.hosts.select_id(id),
        Object::Machine(address) => {
            let machine = app.knowledge.registry.at(&app.seen, address);
            machine.map(|m| Serial(m.serial.clone())).is_some_and(|serial| app.lists.machines.select_id(&serial))
        }
        Object::Source(_) | Object::Leadership | Object::Queue(_) | Object::Definition => true,
    }
}

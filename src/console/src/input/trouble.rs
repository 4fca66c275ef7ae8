//! Moves to the next line of *Needs you*, from any view.

use crate::state::{App, Pane, View, next_object, object::Object, overview::OverviewRow, registry::Serial};

/// Goes to the next object that waits for a person, and wraps around at the end. On the Overview it moves the cursor,
/// elsewhere it opens the object's view with the cursor on it. The header counts the same list in every view.
pub(super) fn next_row(app: &mut App) {
    let Some(object) = next_object::next(app) else {
        let nothing = app.knowledge.needs_you.is_empty();
        app.print_of_needs(if nothing { "nothing needs you" } else { "nothing else needs you" });
        return;
    };
    app.navigation.help = None;
    app.session.last_needs_you = Some(object.clone());
    go(app, &object);
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
    if app.navigation.view == View::Overview && app.navigation.pane.is_none() {
        select_line(app, object);
        return;
    }
    open(app, object);
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
    let shows_batches = matches!(object, Object::Batch(..));
    if matches!(object, Object::Entry(_) | Object::Batch(..)) && app.navigation.shows_batches() != shows_batches {
        app.navigation.show_batches(shows_batches);
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
        Object::Batch(queue, id) => app.lists.batches_of_mut(View::of_queue(*queue)).select_id(&std::cmp::Reverse(*id)),
        Object::Node(name) => app.lists.nodes.select_id(name),
        Object::Host(id) => app.lists.hosts.select_id(id),
        Object::Machine(address) => {
            let machine = app.knowledge.registry.at(&app.seen, address);
            machine.map(|m| Serial(m.serial.clone())).is_some_and(|serial| app.lists.machines.select_id(&serial))
        }
        Object::Source(_) | Object::Leadership | Object::Queue(_) | Object::Definition => true,
    }
}

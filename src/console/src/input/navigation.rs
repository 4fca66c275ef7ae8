//! Navigation: moving, opening, jumping from an entry to its node. Nothing here changes the cluster.

use cketerm_model::{entry::QueueKind, stored::keys::Folder};

use crate::{
    state::{
        App, Pane, Sheet, Target, View, ViewPosition,
        column_id::ColumnId,
        columns,
        event::Effect,
        list::Rows,
        overview, racks,
        settings::{self, Change},
        tour,
    },
    views,
};

/// Opens the overlay.
pub(super) fn sheet(app: &mut App, sheet: Sheet) {
    app.navigation.sheet = sheet;
    app.navigation.help = Some(0);
    app.navigation.search_text.clear();
}

/// Keeps the cursor visible and the scroll positions of texts within bounds.
pub(super) fn reveal(app: &mut App) {
    if app.navigation.view == View::Overview {
        super::past::overview_rows(app);
    }
    super::racks::decide(app);
    let height = views::table_height(app);
    app.list_mut().show_cursor(height);
    if racks::open(app) {
        super::racks::reveal(app);
    }
    super::pane::reveal(app);
    let size = app.size;
    if let Some(dialog) = &mut app.dialog {
        dialog.scroll = dialog.scroll.min(views::dialog::overflow(dialog, size));
    }
    if let Some(scroll) = app.navigation.help {
        app.navigation.help = Some(scroll.min(views::help_overflow(app)));
    }
}

pub(super) fn by(app: &mut App, rows: isize) {
    if let Some(scroll) = &mut app.navigation.help {
        *scroll = scroll.saturating_add_signed(rows);
    } else if app.navigation.pane.is_some() {
        super::pane::scroll(app, rows);
    } else if racks::open(app) {
        super::racks::go(app, rows, 0);
    } else {
        app.list_mut().go(rows);
    }
}

pub(super) fn page(app: &App) -> isize {
    let rows = match &app.navigation.pane {
        Some(_) => views::pane_height(app),
        None if racks::open(app) => views::map_height(app),
        None => views::table_height(app),
    };
    isize::try_from(rows.saturating_sub(1).max(1)).unwrap_or(1)
}

pub(super) fn show(app: &mut App, view: View) {
    app.navigation.before.clear();
    app.lists.all_mut().into_iter().for_each(Rows::forget);
    enter(app, view);
}

/// Number of places that are kept for the way back.
const MAX_DEPTH: usize = 64;

/// Stores the current place for the way back.
pub(super) fn push_position(app: &mut App) {
    if app.navigation.before.len() >= MAX_DEPTH {
        app.navigation.before.clear();
        app.lists.all_mut().into_iter().for_each(Rows::forget);
    }
    let at = app.target();
    app.list_mut().leave();
    app.navigation.before.push(ViewPosition {
        view: app.navigation.view,
        cke_records: app.navigation.cke_records,
        batches: app.navigation.shows_batches(),
        racks: app.navigation.racks,
        pane: app.navigation.pane.clone(),
        at,
        found: None,
        under: None,
    });
}

/// Stores the state in which the target view was found. While it stays unchanged, Esc goes back at once.
pub(super) fn record_arrival(app: &mut App) {
    let found = (app.list().filter().to_owned(), app.list().marked());
    if let Some(place) = app.navigation.before.last_mut() {
        place.found = Some(found);
    }
}

/// Returns true if the filter and the marks have not changed since the arrival.
fn is_unchanged_since_arrival(app: &App) -> bool {
    let now = (app.list().filter(), app.list().marked());
    let found = app.navigation.before.last().and_then(|place| place.found.as_ref());
    found.is_some_and(|(filter, marks)| (filter.as_str(), *marks) == now)
}

/// Restores the previous place: the view, its cursor, filter and pane. Returns false if there is none.
pub(super) fn pop_position(app: &mut App) -> bool {
    let Some(place) = app.navigation.before.pop() else { return false };
    if let Some(filter) = place.under.filter(|_| place.found.is_some_and(|(found, _)| found == app.list().filter())) {
        super::typing::set_filter(app, &filter);
    }
    enter(app, place.view);
    (app.navigation.cke_records, app.navigation.racks) = (place.cke_records, place.racks);
    app.navigation.show_batches(place.batches);
    let columns = columns::of(app);
    app.list_mut().restore_position(&columns);
    super::seen::rows(app);
    app.navigation.pane = place.pane;
    true
}

/// Resets columns and orders, in memory and in the file.
pub(super) fn forget(app: &mut App) {
    app.lists.visible_columns.clear();
    app.lists.all_mut().into_iter().for_each(|list| {
        if list.sort().is_some() {
            list.set_sort(None);
        }
    });
    super::seen::rows(app);
    let next = if app.config.saves_settings { ", now and at the next start" } else { "" };
    if app.config.saves_settings {
        app.session.effects.push(Effect::SaveSettings(Change::Forget));
    }
    app.print(format!("columns and orders are reset{next}; theme and mouse at the next start"));
}

/// Opens a view without storing the previous place.
pub(super) fn enter(app: &mut App, view: View) {
    app.navigation.view = view;
    if app.session.message.as_ref().is_some_and(|message| message.about.is_here()) {
        app.session.message = None;
    }
    app.navigation.pane = None;
    app.navigation.preview = None;
    app.navigation.map_decided = false;
    app.navigation.help = None;
    match view {
        View::Overview => overview::refresh(app),
        // the rows of a closed list are made now
        _ => super::seen::rows(app),
    }
}

/// Sorts by the next column of the view; after the last one comes the default order.
pub(super) fn sort(app: &mut App) {
    let columns = columns::of(app);
    let now = app.list().sort();
    let next = match now.and_then(|(column, _)| columns.iter().position(|c| *c == column)) {
        None => columns.first(),
        Some(at) => columns.get(at + 1),
    };
    set_sort_order(app, next.map(|column| (*column, false)));
}

/// Applies another order.
pub(super) fn set_sort_order(app: &mut App, by: Option<(ColumnId, bool)>) {
    if app.navigation.view == View::Overview {
        app.print_error("the Overview has its own order: choose a view");
        return;
    }
    app.list_mut().set_sort(by);
    super::seen::rows(app);
    app.save_setting(settings::current_sort);
}

/// Goes to an object in its view and opens its pane; Esc leads back here.
pub(super) fn visit(app: &mut App, of: Target) {
    let view = match &of {
        Target::Entry(id) => View::of_queue(id.queue),
        Target::Node(_) => View::Nodes,
        Target::Past(Folder::Audit, _) => View::Audit,
        Target::Past(..) => View::History,
        Target::Host(_) => View::Hosts,
        Target::Machine(_) | Target::Fold(_) | Target::Line(_) => return,
    };
    push_position(app);
    enter(app, view);
    if matches!(of, Target::Entry(_)) && app.navigation.shows_batches() {
        app.navigation.show_batches(false);
        super::seen::rows(app);
    }
    let found = match &of {
        Target::Entry(id) if id.queue == QueueKind::Reboot => app.lists.reboots.select_id(id),
        Target::Entry(id) => app.lists.repairs.select_id(id),
        Target::Node(name) => app.lists.nodes.select_id(name),
        Target::Host(id) => app.lists.hosts.select_id(id),
        _ => true,
    };
    match &of {
        Target::Past(Folder::Audit, id) => {
            app.lists.audit.select_id(id);
        }
        Target::Past(folder, id) => {
            app.navigation.cke_records = *folder == Folder::Records;
            super::seen::rows(app);
            if app.navigation.cke_records {
                app.lists.records.select_id(id);
            } else {
                app.lists.history.select_id(id);
            }
        }
        _ if !found => app.print("a filter hides its row"),
        _ => {}
    }
    app.navigation.pane = Some(Pane::new(of));
    record_arrival(app);
}

/// Closes one layer: help, pane, filter, marks, message.
pub(super) fn back(app: &mut App) {
    let (filter, marks) = (!app.list().filter().is_empty(), app.list().marked() > 0);
    if app.navigation.help.is_some() && !app.navigation.search_text.is_empty() {
        app.navigation.search_text.clear();
    } else if app.navigation.help.take().is_some() {
        return;
    }
    if app.navigation.pane.take().is_some() {
        // the view was opened for this one object: go back at once
        pop_position(app);
        return;
    }
    if is_unchanged_since_arrival(app) {
        pop_position(app);
    } else if filter {
        super::typing::set_filter(app, "");
    } else if marks {
        app.list_mut().unmark();
    } else if app.session.message.is_some() {
        app.session.message = None;
    } else if !pop_position(app) {
        tour::leave(app);
    }
}

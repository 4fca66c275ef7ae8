//! Navigation: moving, opening, jumping from an entry to its node. Nothing here changes the cluster.

use cketerm_model::{
    entry::{EntryId, QueueKind},
    stored::keys::Folder,
};
use cketerm_rules::trouble::{self, Trouble};

use crate::{
    app::{App, Pane, Sheet, Target, View, ViewPosition},
    column_id::ColumnId,
    columns,
    event::Effect,
    keys::Command,
    list::Rows,
    logs::LineId,
    overview::OverviewRow,
    past::PastId,
    racks,
    settings::{self, Change},
    short_text, tour, views,
};

/// Carries out a command that only navigates.
pub(super) fn go(app: &mut App, command: Command) {
    match command {
        Command::Down => by(app, 1),
        Command::Up => by(app, -1),
        Command::PageDown => by(app, page(app)),
        Command::PageUp => by(app, -page(app)),
        Command::Top => by(app, isize::MIN / 2),
        Command::Bottom => by(app, isize::MAX / 2),
        Command::Help if app.help.is_some() => app.help = None,
        Command::Help => sheet(app, Sheet::Help),
        Command::Back => back(app),
        Command::Open => open(app),
        Command::Mark if racks::open(app) => racks::mark(app),
        Command::Mark => app.list_mut().mark(),
        Command::MarkAll => app.list_mut().mark_all(),
        Command::Filter => super::typing::begin_filter(app),
        Command::NextView => show(app, app.view.next()),
        Command::Overview => show(app, View::Overview),
        Command::History => {
            // the key of the history leaves CKE's records again
            app.cke_records &= app.view == View::History;
            show(app, View::History);
        }
        Command::Audit => show(app, View::Audit),
        Command::Logs => show(app, View::Logs),
        Command::LogsOf => super::jump::logs_of(app),
        Command::Sort => sort(app),
        Command::Reverse => {
            if let Some((column, largest_first)) = app.list().sort() {
                set_sort_order(app, Some((column, !largest_first)));
            } else {
                app.print(format!("in the view's own order; {} sorts by a column", app.key("sort")));
            }
        }
        Command::Messages => sheet(app, Sheet::Messages),
        Command::Blockers => sheet(app, Sheet::Blockers),
        Command::Find => super::typing::begin_find(app),
        Command::Line => super::command_line::begin(app),
        Command::Reboots => show(app, View::Reboots),
        Command::Nodes => show(app, View::Nodes),
        Command::Repairs => show(app, View::Repairs),
        Command::Machines => show(app, View::Machines),
        Command::Diff => show(app, View::Diff),
        Command::Hosts => show(app, View::Hosts),
        Command::Racks if app.view.registry() => app.racks = !app.racks,
        Command::Racks if app.view == View::History => {
            app.cke_records = !app.cke_records;
            app.pane = None;
            super::seen::rows(app);
        }
        Command::Racks => {
            // from another view the map is always opened, whatever its state was
            let shown = app.view == View::Nodes && app.map.is_some();
            app.map = (!shown).then(racks::Map::default);
            if app.view == View::Nodes { racks::refresh(app) } else { show(app, View::Nodes) }
        }
        Command::Right if racks::open(app) => racks::go(app, 0, 1),
        Command::Left if racks::open(app) => racks::go(app, 0, -1),
        Command::Jump => super::jump::jump(app),
        Command::Trouble => trouble(app),
        _ => {}
    }
}

/// Opens the overlay.
fn sheet(app: &mut App, sheet: Sheet) {
    app.sheet = sheet;
    app.help = Some(0);
    app.search_text.clear();
}

/// Keeps the cursor visible and the scroll positions of texts within bounds.
pub(super) fn reveal(app: &mut App) {
    if app.view == View::Overview {
        super::past::overview_rows(app);
    }
    let height = views::table_height(app);
    app.list_mut().show_cursor(height);
    if racks::open(app) {
        let height = views::map_height(app);
        racks::reveal(app, height);
    }
    let most = views::pane_overflow(app);
    if let Some(pane) = &mut app.pane {
        pane.scroll = pane.scroll.min(most);
    }
    let size = app.size;
    if let Some(dialog) = &mut app.dialog {
        dialog.scroll = dialog.scroll.min(crate::dialog::draw::overflow(dialog, size));
    }
    let most = views::help_overflow(app);
    if let Some(scroll) = &mut app.help {
        *scroll = (*scroll).min(most);
    }
}

pub(super) fn by(app: &mut App, rows: isize) {
    if let Some(scroll) = &mut app.help {
        *scroll = scroll.saturating_add_signed(rows);
    } else if let Some(pane) = &mut app.pane {
        pane.scroll = pane.scroll.saturating_add_signed(rows);
    } else if racks::open(app) {
        racks::go(app, rows, 0);
    } else {
        app.list_mut().go(rows);
    }
}

fn page(app: &App) -> isize {
    let rows = match &app.pane {
        Some(_) => views::pane_height(app),
        None if racks::open(app) => views::map_height(app),
        None => views::table_height(app),
    };
    isize::try_from(rows.saturating_sub(1).max(1)).unwrap_or(1)
}

pub(super) fn show(app: &mut App, view: View) {
    app.before.clear();
    app.lists_mut().into_iter().for_each(Rows::forget);
    enter(app, view);
}

/// Number of places that are kept for the way back.
const MAX_DEPTH: usize = 64;

/// Stores the current place for the way back.
pub(super) fn push_position(app: &mut App) {
    if app.before.len() >= MAX_DEPTH {
        app.before.clear();
        app.lists_mut().into_iter().for_each(Rows::forget);
    }
    let at = app.target();
    app.list_mut().leave();
    app.before.push(ViewPosition {
        view: app.view,
        cke_records: app.cke_records,
        racks: app.racks,
        pane: app.pane.clone(),
        at,
        found: None,
        under: None,
    });
}

/// Stores the state in which the target view was found. While it stays unchanged, Esc goes back at once.
pub(super) fn record_arrival(app: &mut App) {
    let found = (app.list().filter().to_owned(), app.list().marked());
    if let Some(place) = app.before.last_mut() {
        place.found = Some(found);
    }
}

/// Returns true if the filter and the marks have not changed since the arrival.
fn is_unchanged_since_arrival(app: &App) -> bool {
    let now = (app.list().filter(), app.list().marked());
    let found = app.before.last().and_then(|place| place.found.as_ref());
    found.is_some_and(|(filter, marks)| (filter.as_str(), *marks) == now)
}

/// Restores the previous place: the view, its cursor, filter and pane. Returns false if there is none.
pub(super) fn pop_position(app: &mut App) -> bool {
    let Some(place) = app.before.pop() else { return false };
    if let Some(filter) = place.under.filter(|_| place.found.is_some_and(|(found, _)| found == app.list().filter())) {
        super::typing::set_filter(app, &filter);
    }
    enter(app, place.view);
    (app.cke_records, app.racks) = (place.cke_records, place.racks);
    let columns = columns::of(app);
    app.list_mut().restore_position(&columns);
    super::seen::rows(app);
    app.pane = place.pane;
    true
}

/// Resets columns and orders, in memory and in the file.
pub(super) fn forget(app: &mut App) {
    app.visible_columns.clear();
    app.lists_mut().into_iter().for_each(|list| {
        if list.sort().is_some() {
            list.set_sort(None);
        }
    });
    super::seen::rows(app);
    let next = if app.config.saves_settings { ", now and at the next start" } else { "" };
    if app.config.saves_settings {
        app.effects.push(Effect::SaveSettings(Change::Forget));
    }
    app.print(format!("columns and orders are reset{next}"));
}

/// Opens a view without storing the previous place.
pub(super) fn enter(app: &mut App, view: View) {
    app.view = view;
    if app.message.as_ref().is_some_and(|message| message.here) {
        app.message = None;
    }
    app.pane = None;
    app.help = None;
    match view {
        View::Overview => super::past::refresh_summary(app),
        // the rows of a closed list are made now
        _ => super::seen::rows(app),
    }
}

/// Sorts by the next column of the view; after the last one comes the default order.
fn sort(app: &mut App) {
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
    if app.view == View::Overview {
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
    let found = match &of {
        Target::Entry(id) if id.queue == QueueKind::Reboot => app.reboots.select_id(id),
        Target::Entry(id) => app.repairs.select_id(id),
        Target::Node(name) => app.nodes.select_id(name),
        Target::Host(id) => app.hosts.select_id(id),
        _ => true,
    };
    match &of {
        Target::Past(Folder::Audit, id) => {
            app.audit.select_id(id);
        }
        Target::Past(_, id) => {
            app.cke_records = false;
            super::seen::rows(app);
            app.history.select_id(id);
        }
        _ if !found => app.print("a filter hides its row"),
        _ => {}
    }
    app.pane = Some(Pane { of, scroll: 0 });
    record_arrival(app);
}

fn open(app: &mut App) {
    if app.view == View::Overview {
        match app.overview_rows.cursor.clone() {
            Some(OverviewRow::Gate) => {
                push_position(app);
                enter(app, View::Diff);
                record_arrival(app);
            }
            Some(overview_row) => {
                if let Some(of) = overview_row.target(app) {
                    visit(app, of);
                }
            }
            None => app.print("nothing here can be opened"),
        }
        return;
    }
    if let Some(of) = app.target() {
        app.cursor_displaced();
        app.pane = Some(Pane { of, scroll: 0 });
    }
}

/// Closes one layer: help, pane, filter, marks, message.
fn back(app: &mut App) {
    let (filter, marks) = (!app.list().filter().is_empty(), app.list().marked() > 0);
    if app.help.is_some() && !app.search_text.is_empty() {
        app.search_text.clear();
    } else if app.help.take().is_some() {
        return;
    }
    if app.pane.take().is_some() {
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
    } else if app.message.is_some() {
        app.message = None;
    } else if !pop_position(app) {
        tour::leave(app);
    }
}

/// Moves to the next row that needs an operator, wrapping around at the end.
fn trouble(app: &mut App) {
    let found = select_next_trouble(app, Trouble::Stuck);
    if !found && select_next_trouble(app, Trouble::Waits) {
        app.print_here("nothing here is stuck; this row only waits");
    } else if !found {
        app.print_here("no row here needs an operator");
    }
}

/// Moves to the next row whose trouble is at least this severe.
fn select_next_trouble(app: &mut App, least: Trouble) -> bool {
    let entry = |id: &EntryId| trouble::of(&app.seen, *id) >= Some(least);
    let found = match app.view {
        View::Reboots => next(&app.reboots.rows, app.reboots.place, entry).map(|place| app.reboots.select(place)),
        View::Repairs => next(&app.repairs.rows, app.repairs.place, entry).map(|place| app.repairs.select(place)),
        View::Machines => {
            let changes = |serial: &crate::registry::Serial| {
                let machine = app.registry.machine(&app.seen, serial);
                machine.is_some_and(|m| !m.healthy() || app.registry.change(&app.seen, &m.address).is_some())
            };
            next(&app.machines.rows, app.machines.place, changes).map(|place| app.machines.select(place))
        }
        View::Overview => {
            let stuck = |overview_row: &OverviewRow| match overview_row {
                OverviewRow::Stuck(..) | OverviewRow::Gate | OverviewRow::Unready => true,
                OverviewRow::WaitsOn(..) | OverviewRow::Blocks(..) => least == Trouble::Waits,
                OverviewRow::Hosts => !app.totals.hosts.trouble.is_empty(),
                OverviewRow::Work(_) | OverviewRow::Ended(_) | OverviewRow::Action(_) => false,
            };
            next(&app.overview_rows.rows, app.overview_rows.place, stuck).map(|place| {
                app.overview_rows.moved = true;
                app.overview_rows.select(place);
            })
        }
        View::Diff => None,
        View::Logs => {
            let bad = |id: &LineId| app.logs.get(id).is_some_and(|line| line.level <= tracing::Level::WARN);
            next(&app.log.rows, app.log.place, bad).map(|place| app.log.select(place))
        }
        View::History | View::Audit if app.cke_records || app.view == View::Audit => None,
        View::History | View::Audit => {
            let bad = |id: &PastId| app.past.history.get(id).is_none_or(|e| !e.end.good());
            next(&app.history.rows, app.history.place, bad).map(|place| app.history.select(place))
        }
        View::Hosts => {
            let troubled = |id: &crate::app::HostId| short_text::host(&app.seen, id).1;
            next(&app.hosts.rows, app.hosts.place, troubled).map(|place| app.hosts.select(place))
        }
        View::Nodes => {
            let hit = next(&app.nodes.rows, app.nodes.place, |name| short_text::node_state(app, name).1 >= Some(least));
            hit.map(|place| app.nodes.select(place))
        }
    };
    found.is_some()
}

fn next<Id>(rows: &[Id], from: usize, is_match: impl Fn(&Id) -> bool) -> Option<usize> {
    let round = (from + 1..rows.len()).chain(0..=from.min(rows.len().saturating_sub(1)));
    round.into_iter().find(|place| rows.get(*place).is_some_and(&is_match))
}

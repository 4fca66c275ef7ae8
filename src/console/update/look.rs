//! Looking around: moving, opening, going from an entry to its node. Nothing here changes the cluster.

use crate::console::{
    app::{App, Pane, Target, View},
    brief, facts,
    keys::Command,
    views,
};
use crate::model::entry::EntryId;

/// Carries out a command that only looks.
pub(super) fn go(app: &mut App, command: Command) {
    match command {
        Command::Down => by(app, 1),
        Command::Up => by(app, -1),
        Command::PageDown => by(app, page(app)),
        Command::PageUp => by(app, -page(app)),
        Command::Top => by(app, isize::MIN / 2),
        Command::Bottom => by(app, isize::MAX / 2),
        Command::Help => app.help = if app.help.is_some() { None } else { Some(0) },
        Command::Back => back(app),
        Command::Open => open(app),
        Command::Mark => match app.view {
            View::Reboots => app.reboots.toggle_mark(),
            View::Nodes => app.nodes.toggle_mark(),
            View::Repairs => app.repairs.toggle_mark(),
            View::Machines => app.machines.toggle_mark(),
            View::Diff => app.diff.toggle_mark(),
            View::Hosts => app.hosts.toggle_mark(),
        },
        Command::MarkAll => match app.view {
            View::Reboots => app.reboots.toggle_all(),
            View::Nodes => app.nodes.toggle_all(),
            View::Repairs => app.repairs.toggle_all(),
            View::Machines => app.machines.toggle_all(),
            View::Diff => app.diff.toggle_all(),
            View::Hosts => app.hosts.toggle_all(),
        },
        Command::Filter => super::typing::begin_filter(app),
        Command::NextView => show(app, app.view.next()),
        Command::Reboots => show(app, View::Reboots),
        Command::Nodes => show(app, View::Nodes),
        Command::Repairs => show(app, View::Repairs),
        Command::Machines => show(app, View::Machines),
        Command::Diff => show(app, View::Diff),
        Command::Hosts => show(app, View::Hosts),
        Command::Racks if matches!(app.view, View::Machines | View::Diff) => app.racks = !app.racks,
        Command::Jump => jump(app),
        Command::Trouble => trouble(app),
        _ => {}
    }
}

/// Keeps the cursor visible and the scrolled texts inside their bounds.
pub(super) fn reveal(app: &mut App) {
    let height = views::table_height(app);
    app.reboots.reveal(height);
    app.nodes.reveal(height);
    app.repairs.reveal(height);
    app.machines.reveal(height);
    app.diff.reveal(height);
    app.hosts.reveal(height);
    let most = views::pane_overflow(app);
    if let Some(pane) = &mut app.pane {
        pane.scroll = pane.scroll.min(most);
    }
    let size = app.size;
    if let Some(dialog) = &mut app.dialog {
        dialog.scroll = dialog.scroll.min(crate::console::dialog::draw::overflow(dialog, size));
    }
    let most = views::help_overflow(app);
    if let Some(scroll) = &mut app.help {
        *scroll = (*scroll).min(most);
    }
}

fn by(app: &mut App, rows: isize) {
    if let Some(scroll) = &mut app.help {
        *scroll = scroll.saturating_add_signed(rows);
    } else if let Some(pane) = &mut app.pane {
        pane.scroll = pane.scroll.saturating_add_signed(rows);
    } else {
        match app.view {
            View::Reboots => app.reboots.step(rows),
            View::Nodes => app.nodes.step(rows),
            View::Repairs => app.repairs.step(rows),
            View::Machines => app.machines.step(rows),
            View::Diff => app.diff.step(rows),
            View::Hosts => app.hosts.step(rows),
        }
    }
}

fn page(app: &App) -> isize {
    let rows = if app.pane.is_some() { views::pane_height(app) } else { views::table_height(app) };
    isize::try_from(rows.saturating_sub(1).max(1)).unwrap_or(1)
}

fn show(app: &mut App, view: View) {
    app.view = view;
    app.pane = None;
    app.help = None;
}

fn open(app: &mut App) {
    if let Some(of) = app.target() {
        app.strayed();
        app.pane = Some(Pane { of, scroll: 0 });
    }
}

/// Peels off one layer: help, pane, filter, marks, message.
fn back(app: &mut App) {
    let (filter, marks) = match app.view {
        View::Reboots => (!app.reboots.filter.is_empty(), !app.reboots.marks.is_empty()),
        View::Nodes => (!app.nodes.filter.is_empty(), !app.nodes.marks.is_empty()),
        View::Repairs => (!app.repairs.filter.is_empty(), !app.repairs.marks.is_empty()),
        View::Machines => (!app.machines.filter.is_empty(), !app.machines.marks.is_empty()),
        View::Diff => (!app.diff.filter.is_empty(), !app.diff.marks.is_empty()),
        View::Hosts => (!app.hosts.filter.is_empty(), !app.hosts.marks.is_empty()),
    };
    if app.help.take().is_some() || app.pane.take().is_some() {
        return;
    }
    if filter {
        super::typing::set_filter(app, "");
    } else if marks {
        match app.view {
            View::Reboots => app.reboots.marks.clear(),
            View::Nodes => app.nodes.marks.clear(),
            View::Repairs => app.repairs.marks.clear(),
            View::Machines => app.machines.marks.clear(),
            View::Diff => app.diff.marks.clear(),
            View::Hosts => app.hosts.marks.clear(),
        }
    } else {
        app.message = None;
    }
}

/// From an entry to its node, from a node to its entry – its reboot first, from there over the node to its repair; an
/// open pane stays open on the other object.
fn jump(app: &mut App) {
    let piece = app.pane.is_some();
    let to = match app.target() {
        Some(Target::Entry(id)) => {
            let machine = facts::machine(&app.seen, id);
            machine.filter(|name| app.nodes.go_to(name)).map(|name| (View::Nodes, Target::Node(name)))
        }
        Some(Target::Node(name)) => {
            let reboot = app.facts.reboot_of(&name).filter(|id| app.reboots.go_to(id)).map(|id| (View::Reboots, id));
            let found = reboot.or_else(|| {
                let repair = app.facts.repair_of(&name).filter(|id| app.repairs.go_to(id));
                repair.map(|id| (View::Repairs, id))
            });
            found.map(|(view, id)| (view, Target::Entry(id)))
        }
        Some(Target::Machine(address)) => {
            let name = app.seen.snapshot.machine(&address);
            app.nodes.go_to(&name).then_some((View::Nodes, Target::Node(name)))
        }
        Some(Target::Host(id)) => {
            let name = facts::host_node(&app.seen, &id).map(|node| node.name.clone());
            name.filter(|name| app.nodes.go_to(name)).map(|name| (View::Nodes, Target::Node(name)))
        }
        Some(Target::Fold(_)) | None => None,
    };
    match to {
        Some((view, of)) => {
            app.view = view;
            app.pane = piece.then_some(Pane { of, scroll: 0 });
        }
        None => app.refuse("there is nothing to go to: it has no counterpart, or a filter hides it (Esc)"),
    }
}

/// The next row that needs a person, round the end.
fn trouble(app: &mut App) {
    let entry = |id: &EntryId| facts::in_trouble(&app.seen, *id);
    let found = match app.view {
        View::Reboots => next(&app.reboots.rows, app.reboots.place, entry).map(|place| app.reboots.select(place)),
        View::Repairs => next(&app.repairs.rows, app.repairs.place, entry).map(|place| app.repairs.select(place)),
        View::Machines => {
            let changes = |serial: &crate::console::registry::Serial| {
                let machine = app.registry.machine(&app.seen, serial);
                machine.is_some_and(|m| !m.healthy() || app.registry.change(&app.seen, &m.address).is_some())
            };
            next(&app.machines.rows, app.machines.place, changes).map(|place| app.machines.select(place))
        }
        View::Diff => None,
        View::Hosts => {
            let troubled = |id: &crate::console::app::HostId| brief::host(app, id).1;
            next(&app.hosts.rows, app.hosts.place, troubled).map(|place| app.hosts.select(place))
        }
        View::Nodes => {
            let hit = next(&app.nodes.rows, app.nodes.place, |name| brief::node_state(app, name).1);
            hit.map(|place| app.nodes.select(place))
        }
    };
    if found.is_none() {
        app.say("no row here needs a person");
    }
}

fn next<Id>(rows: &[Id], from: usize, wanted: impl Fn(&Id) -> bool) -> Option<usize> {
    let round = (from + 1..rows.len()).chain(0..=from.min(rows.len().saturating_sub(1)));
    round.into_iter().find(|place| rows.get(*place).is_some_and(&wanted))
}

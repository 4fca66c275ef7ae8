//! Commands that only navigate.

use super::navigation::{back, by, page, set_sort_order, sheet, show, sort};
use crate::{
    keys::Command,
    state::{App, Sheet, View, racks, settings},
};

/// Carries out a command that only navigates.
pub(super) fn go(app: &mut App, command: Command) {
    match command {
        Command::Down => by(app, 1),
        Command::Up => by(app, -1),
        Command::PageDown => by(app, page(app)),
        Command::PageUp => by(app, -page(app)),
        Command::HalfPageDown => by(app, (page(app) / 2).max(1)),
        Command::HalfPageUp => by(app, -(page(app) / 2).max(1)),
        Command::Top => by(app, isize::MIN / 2),
        Command::Bottom => by(app, isize::MAX / 2),
        Command::Help if app.navigation.help.is_some() => app.navigation.help = None,
        Command::Help => sheet(app, Sheet::Help),
        Command::Back => back(app),
        Command::Open => super::open::open(app),
        Command::Mark if racks::open(app) => super::racks::mark(app),
        Command::Mark => app.list_mut().mark(),
        Command::MarkAll => app.list_mut().mark_all(),
        Command::Filter => super::typing::begin_filter(app),
        Command::NextView => show(app, app.navigation.view.next()),
        Command::PreviousView => show(app, app.navigation.view.previous()),
        Command::Overview => show(app, View::Overview),
        Command::History => {
            // the key of the history leaves CKE's records again
            app.navigation.cke_records &= app.navigation.view == View::History;
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
        Command::Reboots => {
            // the key of the queue leaves its batches again
            if app.navigation.view == View::Reboots {
                app.navigation.show_batches(false);
            }
            show(app, View::Reboots);
        }
        Command::Nodes => show(app, View::Nodes),
        Command::Repairs => {
            if app.navigation.view == View::Repairs {
                app.navigation.show_batches(false);
            }
            show(app, View::Repairs);
        }
        Command::Machines => show(app, View::Machines),
        Command::Diff => show(app, View::Diff),
        Command::Hosts => show(app, View::Hosts),
        Command::Racks if app.navigation.view.registry() => app.navigation.racks = !app.navigation.racks,
        Command::Racks if app.navigation.view == View::History => {
            app.navigation.cke_records = !app.navigation.cke_records;
            app.navigation.pane = None;
            super::seen::rows(app);
        }
        Command::Racks if matches!(app.navigation.view, View::Reboots | View::Repairs) => {
            app.navigation.show_batches(!app.navigation.shows_batches());
            app.navigation.pane = None;
            super::seen::rows(app);
        }
        Command::Racks => {
            // from another view the map is always opened, whatever its state was
            let shown = app.navigation.view == View::Nodes && app.navigation.map.is_some();
            app.navigation.map = (!shown).then(racks::Map::default);
            app.navigation.map_chosen = Some(!shown);
            app.save_setting(settings::current_map);
            if app.navigation.view == View::Nodes { racks::refresh(app) } else { show(app, View::Nodes) }
        }
        Command::Right if racks::open(app) => super::racks::go(app, 0, 1),
        Command::Left if racks::open(app) => super::racks::go(app, 0, -1),
        Command::Jump => super::jump::jump(app),
        Command::Trouble => super::trouble::next_row(app),
        Command::Right | Command::Left => app.typing.notice = Some("only the rack map moves sideways".to_owned()),
        Command::Yaml => super::pane_content::yaml(app),
        Command::Follow => super::pane_content::follow(app),
        Command::PreviousEntry => super::pane::step(app, -1),
        Command::NextEntry => super::pane::step(app, 1),
        _ => {}
    }
}

//! Tests of filters, orders, the command line, messages and the log.

use std::sync::Arc;

use cketerm_model::{
    boot_time::Seconds,
    entry::{EntryId, QueueKind},
    names::Address,
    time::after,
};
use cketerm_runtime::telemetry::LogLine;
use insta::assert_snapshot;
use tracing::Level;

use super::world::{World, at, press, wall};
use crate::{
    input::update,
    state::{
        App, View,
        column_id::ColumnId,
        event::{Action, Effect, Event},
        past::{ReadRequest, ReadResponse},
    },
    terminal::screen,
};

fn hint_line(app: &App) -> String {
    screen::text(app).lines().last().unwrap_or_default().to_owned()
}

fn indexes(app: &App) -> Vec<u64> {
    app.lists.reboots.rows.iter().map(|id| id.index).collect()
}

#[test]
fn an_invalid_filter_shows_its_error_and_the_last_valid_one_stays_active() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "/ \"status:queued\"");
    assert_eq!(indexes(&app), [5, 7]);
    press(&mut app, "\" /(\"");
    assert_eq!(indexes(&app), [5, 7], "the last valid filter stays active");
    assert!(screen::text(&app).contains("the closing / is missing"), "{}", hint_line(&app));
    press(&mut app, "enter");
    assert!(app.typing.filter.is_some(), "Enter does not accept an invalid filter");
    press(&mut app, "\"/\"");
    assert!(screen::text(&app).contains("unclosed group"), "{}", hint_line(&app));
    press(&mut app, "esc");
    assert_eq!((app.lists.reboots.filter.as_str(), indexes(&app).len()), ("", 6));
}

#[test]
fn filters_compare_columns_and_ages() {
    let mut app = World::usual().console(80, 24);
    for (filter, found) in [
        ("since>10m", vec![5, 7]),
        ("pdb or index=5", vec![3, 5, 6]),
        ("rack=0 role:worker", vec![3, 6]),
        ("pods>39", vec![4]),
        ("!/^!/ reason:/slot/", vec![5]),
    ] {
        press(&mut app, &format!("esc / \"{filter}\" enter"));
        assert_eq!(indexes(&app), found, "{filter}");
    }
    assert!(screen::text(&app).contains("1/6"), "matching rows of all rows");
}

#[test]
fn sorting_by_a_column_keeps_the_cursor_on_its_row() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "j");
    press(&mut app, ": \"sort since\" enter");
    assert_eq!(indexes(&app), [4, 3, 6, 5, 7, 8], "the youngest first, rows without an age last");
    assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(4)));
    press(&mut app, "r");
    assert_eq!(indexes(&app), [7, 5, 6, 3, 4, 8]);
    assert_eq!((app.lists.reboots.cursor, app.lists.reboots.place), (Some(EntryId::reboot(4)), 4));
    assert!(screen::text(&app).contains("by since desc"));
    press(&mut app, "/ \"pdb\" enter");
    assert_eq!(indexes(&app), [6, 3]);
    press(&mut app, "esc : \"sort\" enter");
    assert_eq!(app.lists.reboots.sort, Some((ColumnId::new("progress"), false)), "the next column");
}

#[test]
fn the_command_line_runs_the_key_tables_commands_and_shows_errors() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"nods\" enter");
    assert!(screen::text(&app).contains("did you mean nodes?"), "{}", hint_line(&app));
    press(&mut app, "esc");
    assert!(app.typing.line.is_none());
    press(&mut app, ": \"view nodes\" enter");
    assert_eq!(app.navigation.view, View::Nodes);
    press(&mut app, ": \"goto 10.0.0.15\" enter");
    assert_eq!((app.lists.nodes.cursor.as_deref(), app.navigation.pane.is_some()), (Some("worker-2"), true));
    press(&mut app, "esc : \"goto reboots/99\" enter");
    assert!(screen::text(&app).contains("there is no reboots/99"), "{}", hint_line(&app));
    press(&mut app, "esc : \"goto reboots/5\" enter");
    assert_eq!((app.navigation.view, app.lists.reboots.cursor), (View::Reboots, Some(EntryId::reboot(5))));
    assert_snapshot!("command_line_80x24", {
        press(&mut app, "esc : \"re\" tab");
        screen::text(&app)
    });
}

#[test]
fn after_a_refused_line_a_colon_opens_a_new_one_and_digits_show_a_view() {
    let mut app = World::usual().console(80, 24);
    let typed = |app: &App| app.typing.line.as_ref().map(|l| l.input.value().to_owned());
    press(&mut app, ": \"nods\" enter :");
    assert_eq!(typed(&app).as_deref(), Some(""), "a new line");
    press(&mut app, "\"view nodes\" enter");
    assert_eq!((app.navigation.view, typed(&app)), (View::Nodes, None));
    press(&mut app, ": \"nods\" enter 1");
    assert_eq!((app.navigation.view, typed(&app)), (View::Reboots, None));
    // any other key edits the line
    press(&mut app, ": \"goto reboots/9\" enter backspace \"5\" enter");
    assert_eq!((app.lists.reboots.cursor, typed(&app)), (Some(EntryId::reboot(5)), None));
    // a digit of an argument is text
    press(&mut app, "esc : \"goto reboots/6\"");
    assert_eq!(typed(&app).as_deref(), Some("goto reboots/6"));
}

/// The tabs above name these keys.
#[test]
fn the_overviews_hints_do_not_repeat_the_tabs() {
    let app = World::usual().console_in(View::Overview, 200, 50);
    let text = screen::text(&app);
    let hints: Vec<&str> = text.lines().rev().take(2).collect();
    for tab in ["1 reboots", "2 nodes", "3 repairs", "7 history"] {
        assert!(!hints.iter().any(|line| line.contains(tab)), "{tab}: {hints:?}");
    }
}

#[test]
fn tab_cycles_through_the_completions() {
    let mut app = World::usual().console(80, 24);
    let typed = |app: &App| app.typing.line.as_ref().map(|l| l.input.value().to_owned()).unwrap_or_default();
    press(&mut app, ": \"go\" tab");
    let first = typed(&app);
    assert!(first.starts_with("go"), "{first}");
    press(&mut app, "esc : \"view hi\" tab");
    assert_eq!(typed(&app), "view history ");
    press(&mut app, "esc : \"reboot wrk5\" tab");
    assert_eq!(typed(&app), "reboot worker-5 ");
    press(&mut app, "esc : \"sort \" tab tab");
    assert_eq!(typed(&app), "sort node");
    press(&mut app, "backtab");
    assert_eq!(typed(&app), "sort index");
}

#[test]
fn a_command_with_rows_marks_them_and_opens_the_dialog_of_its_key() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"reboot rack=1 !role:api\" enter");
    assert_eq!(app.navigation.view, View::Nodes);
    let marked: Vec<&str> = app.lists.nodes.marks.iter().map(String::as_str).collect();
    assert_eq!(marked, ["worker-2", "worker-5"]);
    assert!(app.dialog.as_ref().is_some_and(|d| d.title.contains("Reboot 2 machines")));
    press(&mut app, "esc : \"hold 5 7\" enter");
    assert!(app.dialog.as_ref().is_some_and(|d| d.title.contains("Hold 2 reboots")), "{:?}", app.session.message);
    press(&mut app, "esc : \"cancel 99\" enter");
    assert!(screen::text(&app).contains("there is no reboots/99"));
    press(&mut app, "esc : \"reboot worker-3 10.0.0.17\" enter");
    let marked: Vec<&str> = app.lists.nodes.marks.iter().map(String::as_str).collect();
    assert_eq!(marked, ["worker-3", "worker-4"]);
    press(&mut app, "esc esc : \"reboot rack=9\" enter");
    assert!(screen::text(&app).contains("no row of Nodes matches"), "{}", hint_line(&app));
}

#[test]
fn rows_are_marked_by_a_filter() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"mark status:queued\" enter");
    assert_eq!(app.lists.reboots.chosen(), [EntryId::reboot(5), EntryId::reboot(7)]);
    press(&mut app, ": \"unmark\" enter");
    assert!(app.lists.reboots.marks.is_empty());
}

#[test]
fn messages_are_kept_with_their_times() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 R");
    press(&mut app, "esc");
    press(&mut app, "1 Z");
    update(&mut app, Event::Done(Err("queueing failed: \u{1b}[31mno".into())));
    press(&mut app, ": \"messages\" enter");
    assert_snapshot!("messages_80x24", screen::text(&app));
    press(&mut app, "esc");
    assert!(app.navigation.help.is_none());
}

fn line(number: u64, level: Level, entry: Option<&str>, text: &str) -> Arc<LogLine> {
    let at = after(wall(), i64::try_from(number).unwrap() - 60);
    Arc::new(LogLine { number, at, level, entry: entry.map(str::to_owned), text: text.to_owned() })
}

fn load_logs(app: &mut App) {
    let lines = vec![
        line(1, Level::INFO, None, "leads lease=4d"),
        line(2, Level::INFO, Some("reboots/3"), "drain starts node=worker-1"),
        line(3, Level::WARN, Some("reboots/6"), "drain backed off node=worker-4 cause=pdb \u{1b}[31mdb/pg"),
        line(4, Level::ERROR, None, "effect failed machine=worker-1 why=no answer"),
    ];
    update(app, Event::ReadFinished(Box::new(ReadResponse::Logs(lines))));
}

#[test]
fn one_key_opens_the_log_of_an_entry_and_follows_its_newest_line() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    let effects = press(&mut app, "l");
    assert_eq!(effects, vec![Effect::Ask(ReadRequest::Logs(0))]);
    load_logs(&mut app);
    assert_eq!(app.lists.log.rows.iter().map(|id| id.0).collect::<Vec<_>>(), [4, 2], "of reboots/3 and of worker-1");
    assert_snapshot!("logs_of_an_entry_80x24", screen::text(&app));
    let more = vec![line(5, Level::INFO, Some("reboots/3"), "command starts")];
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Logs(more))));
    assert_eq!(app.lists.log.cursor.map(|id| id.0), Some(5), "a cursor on the newest line follows the newest line");
    press(&mut app, "esc");
    assert!(app.lists.log.filter.is_empty());
    press(&mut app, "esc");
    assert_eq!(app.navigation.view, View::Reboots, "back where the key was pressed");
    // an observing console names the origin of these lines
    world.engine.leading = None;
    let mut app = world.console_in(View::Logs, 200, 50);
    load_logs(&mut app);
    assert_snapshot!("logs_observing_200x50", screen::text(&app));
}

#[test]
fn the_log_buffer_is_polled_at_most_once_a_second() {
    let mut app = World::usual().console_in(View::Logs, 80, 24);
    load_logs(&mut app);
    assert_eq!(press(&mut app, "j k j"), vec![], "the buffer was read just now");
    let effects = update(&mut app, Event::Tick(at(super::world::BOOT + Seconds::new(1.0))));
    assert_eq!(effects, vec![Effect::Ask(ReadRequest::Logs(4))]);
}

#[test]
fn the_hints_of_every_view_fit_80_columns_and_end_with_help() {
    let world = World::usual();
    for view in View::ALL {
        let app = world.console_in(view, 80, 24);
        let line = hint_line(&app);
        assert!(line.contains(": command") && line.contains("? help") && line.contains("q quit"), "{view:?}: {line}");
        let width = line.chars().count();
        assert!(width <= 80, "{view:?}: {width}");
    }
    let first = |view| hint_line(&world.console_in(view, 80, 24));
    let hosts = hint_line(&World::with_hosts().console_in(View::Hosts, 80, 24));
    assert!(hosts.contains("W power") && hosts.contains("I fence"), "{hosts}");
    assert!(!first(View::Hosts).contains("W power"), "there is no host");
    assert!(!first(View::Machines).contains("Y approve"), "there is no registry");
    assert!(first(View::Reboots).contains("H hold") && !first(View::Reboots).contains("L unhold"));
}

/// A list of columns is longer than the rest of a line.
#[test]
fn a_filter_error_is_shown_in_full_at_80_columns() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "/ \"height=3\"");
    let text = screen::text(&app);
    assert!(text.contains("there is no column height: index node address role rack"), "{text}");
    assert!(text.contains("by why\n"), "the last column too: {text}");
    press(&mut app, "esc / \"nick:x\"");
    assert!(screen::text(&app).contains("(as text: \"nick:x\")"), "{}", screen::text(&app));
}

#[test]
fn a_reason_after_two_dashes_is_prefilled_in_the_dialog() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"reboot worker-3 -- kernel 6.12\" enter");
    let effects = press(&mut app, "y");
    let addresses = vec![Address::new("10.0.0.16")];
    let reason = Some("kernel 6.12".to_owned());
    assert_eq!(effects, [Effect::Act(Action::AddReboots { addresses, reason })]);
    let effects = press(&mut app, "1 : \"switch -- new rack\" enter y");
    let reason = Some("new rack".to_owned());
    assert_eq!(effects, [Effect::Act(Action::Switch { queue: QueueKind::Reboot, enabled: false, reason })]);
}

/// An unknown word is never used as a filter.
#[test]
fn an_unknown_name_or_a_lone_comma_marks_no_rows_and_opens_no_dialog() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 j space 1");
    for (line, shown) in [
        ("reboot ,", "names nothing"),
        ("cancel ,", "names nothing"),
        ("reboot worker", "worker is not a node"),
        ("reboot worker-9", "worker-9 is not a node"),
        ("cancel worker-5", "worker-5 has no entry"),
        ("reboot rack=7", "no row of Nodes matches"),
    ] {
        press(&mut app, &format!(": \"{line}\" enter"));
        assert!(app.dialog.is_none(), "{line}");
        assert!(screen::text(&app).contains(shown), "{line}: {}", screen::text(&app));
        let marked: Vec<&str> = app.lists.nodes.marks.iter().map(String::as_str).collect();
        assert_eq!((marked, app.lists.reboots.marks.len()), (vec!["cp-2"], 0), "{line}");
        press(&mut app, "esc");
    }
    press(&mut app, ": \"cancel worker-1\" enter");
    assert_eq!(app.lists.reboots.chosen(), [EntryId::reboot(3)]);
    assert!(screen::text(&app).contains("Cancel 1 reboot"), "{}", screen::text(&app));
}

/// `--read-only`, and a timed `:write` from a read-only start.
#[test]
fn a_read_only_console_can_write_for_a_limited_time() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"write 15m\" enter");
    assert!(screen::text(&app).contains("was not started with --read-only"), "{}", screen::text(&app));
    press(&mut app, "esc");
    app.config.read_only = true;
    for wrong in ["soon", "15", "9h", "0m"] {
        press(&mut app, &format!(": \"write {wrong}\" enter"));
        assert!(app.typing.line.is_some() && app.read_only(), "{wrong}");
        press(&mut app, "esc");
    }
    press(&mut app, ": \"write 15m\" enter");
    let text = screen::text(&app);
    assert!(text.contains("WRITES until 10:15:00Z") && text.contains("changes are allowed until 10:15:00Z"), "{text}");
    assert_eq!(press(&mut app, "E enter y").len(), 1);
    press(&mut app, "E");
    update(&mut app, Event::Tick(at(super::world::BOOT + Seconds::new(900.0))));
    assert_eq!(press(&mut app, "enter y"), [], "the write period is over");
    let shown: Vec<&str> = app.session.messages.iter().map(|(_, m)| m.text.as_str()).collect();
    assert!(shown.iter().any(|m| m.contains("changes are allowed until")), "{shown:?}");
    assert!(shown.iter().any(|m| m.contains("read-only again")), "{shown:?}");
    assert!(screen::text(&app).contains("  read-only"), "{}", screen::text(&app));
    press(&mut app, ": \"write 1h\" enter : \"write off\" enter");
    assert!(app.read_only());
}

/// A second filter replaces the first one and is not appended to it.
#[test]
fn typing_replaces_the_filter_and_a_cursor_key_edits_it() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "1 / \"draining\" enter /");
    assert!(screen::text(&app).contains("letters replace it"), "{}", screen::text(&app));
    press(&mut app, "\"queued\" enter");
    assert_eq!(app.lists.reboots.filter, "queued");
    press(&mut app, "/ end \" !w9\" enter");
    assert_eq!(app.lists.reboots.filter, "queued !w9");
    press(&mut app, "/ backspace enter");
    assert_eq!(app.lists.reboots.filter, "queued !w");
    press(&mut app, "/ enter");
    assert_eq!(app.lists.reboots.filter, "queued !w", "Enter without typing keeps the filter");
    press(&mut app, "/ \"x\" esc");
    assert_eq!(app.lists.reboots.filter, "queued !w", "Esc restores the filter");
}

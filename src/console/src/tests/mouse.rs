//! Tests of the mouse and of copying.

use cketerm_model::{boot_time::Seconds, entry::EntryId, names::NodeName};
use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::world::{World, press};
use crate::{
    input::update,
    state::{
        App, Target, View,
        column_id::ColumnId,
        dialog::Focus,
        event::{Effect, Event},
        settings::Change,
    },
    terminal::{clipboard, screen},
};

fn mouse(app: &mut App, kind: MouseEventKind, (column, row): (u16, u16)) -> Vec<Effect> {
    update(app, Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }))
}

fn click(app: &mut App, at: (u16, u16)) -> Vec<Effect> {
    mouse(app, MouseEventKind::Down(MouseButton::Left), at)
}

/// Returns the place of a text on the screen.
fn find(app: &App, what: &str) -> (u16, u16) {
    let text = screen::text(app);
    let hit = text.lines().enumerate().find_map(|(y, line)| {
        let before = line.split(what).next().filter(|before| before.len() < line.len())?;
        Some((u16::try_from(before.chars().count()).unwrap(), u16::try_from(y).unwrap()))
    });
    hit.unwrap_or_else(|| panic!("{what:?} is not on the screen:\n{text}"))
}

#[test]
fn a_click_on_a_row_only_moves_the_cursor() {
    for (columns, rows) in [(60, 15), (80, 24), (200, 50)] {
        let mut app = World::usual().console(columns, rows);
        let at = find(&app, "worker-3");
        assert_eq!(click(&mut app, at), []);
        assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(5)), "{columns}x{rows}");
        let below = (5, at.1 + 20.min(rows - at.1 - 3));
        click(&mut app, below);
        assert!(app.navigation.pane.is_none() && app.dialog.is_none() && app.lists.reboots.marks.is_empty());
    }
    // titles, header and footer are not rows
    let mut app = World::usual().console(80, 24);
    for y in [0, 1, 3, 22, 23] {
        click(&mut app, (4, y));
        assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(3)), "{y}");
    }
}

#[test]
fn a_click_on_a_tab_opens_its_view() {
    for columns in [60, 80, 120, 200] {
        let mut app = World::with_repairs().console(columns, 24);
        for view in [View::Nodes, View::Repairs, View::History, View::Logs, View::Overview, View::Reboots] {
            let key = app.config.keymap.key(view.name()).unwrap().to_owned();
            let name = view.title().get(..3).unwrap();
            let (x, y) = find(&app, &format!("{key} {name}"));
            assert_eq!(y, 1);
            click(&mut app, (x + 1, y));
            assert_eq!(app.navigation.view, view, "{columns}");
        }
    }
}

#[test]
fn the_mouse_wheel_scrolls_the_topmost_pane() {
    let mut app = World::usual().console(80, 24);
    mouse(&mut app, MouseEventKind::ScrollDown, (5, 8));
    assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(6)));
    mouse(&mut app, MouseEventKind::ScrollUp, (5, 8));
    assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(3)));
    let mut app = World::usual().console(60, 15);
    press(&mut app, "j enter");
    mouse(&mut app, MouseEventKind::ScrollDown, (5, 8));
    assert_eq!((app.navigation.pane.as_ref().unwrap().scroll, app.lists.reboots.cursor), (3, Some(EntryId::reboot(4))));
    press(&mut app, "?");
    mouse(&mut app, MouseEventKind::ScrollDown, (5, 8));
    assert_eq!((app.navigation.help, app.navigation.pane.as_ref().unwrap().scroll), (Some(3), 3));
    // on a tall screen the table beside its pane keeps its rows
    let mut app = World::usual().console(200, 50);
    press(&mut app, "enter");
    let table = find(&app, "worker-2");
    mouse(&mut app, MouseEventKind::ScrollDown, table);
    assert_eq!((app.navigation.pane.as_ref().unwrap().scroll, app.lists.reboots.cursor), (0, Some(EntryId::reboot(6))));
}

#[test]
fn a_click_in_a_dialog_moves_the_focus_and_never_confirms() {
    for (columns, rows) in [(60, 15), (80, 24), (200, 50)] {
        for keys in ["X", "* X", "E", "F", "B", "j A", "2 * R", "q"] {
            let mut app = World::usual().console(columns, rows);
            press(&mut app, keys);
            if app.dialog.is_none() {
                continue;
            }
            let verb = app.dialog.as_ref().unwrap().verb.clone();
            let at = find(&app, &format!("{verb} ]"));
            for _ in 0..3 {
                assert_eq!(click(&mut app, at), [], "{keys}");
            }
            assert_eq!(app.dialog.as_ref().map(|d| d.focus), Some(Focus::Confirm), "{keys} {columns}x{rows}");
            let at = find(&app, "[ Back ]");
            assert_eq!(click(&mut app, at), [], "{keys}");
            assert_eq!(app.dialog.as_ref().map(|d| d.focus), Some(Focus::Back), "{keys} {columns}x{rows}");
            let cursor = app.lists.reboots.cursor;
            for y in 0..rows {
                assert_eq!(click(&mut app, (3, y)), []);
                assert_eq!(mouse(&mut app, MouseEventKind::Down(MouseButton::Right), (3, y)), []);
            }
            assert!(app.dialog.is_some() && app.lists.reboots.cursor == cursor, "a dialog hides the rows from clicks");
        }
    }
}

#[test]
fn a_click_on_an_overview_line_moves_its_cursor() {
    for (columns, rows) in [(80, 24), (200, 50)] {
        let mut app = World::usual().console_in(View::Overview, columns, rows);
        let first = app.lists.overview_rows.cursor.clone();
        let at = find(&app, "shop/web");
        click(&mut app, at);
        assert_ne!(app.lists.overview_rows.cursor, first, "{columns}");
        assert!(screen::text(&app).lines().nth(usize::from(at.1)).unwrap().contains('>'), "{columns}");
    }
}

#[test]
fn the_mouse_is_ignored_while_text_is_typed() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "/ \"work\"");
    let tab = find(&app, "2 Nod");
    click(&mut app, tab);
    mouse(&mut app, MouseEventKind::ScrollDown, (5, 8));
    assert!(app.navigation.view == View::Reboots && app.typing.filter.is_some() && app.lists.reboots.place == 0);
}

fn copied(app: &mut App) -> String {
    match press(app, "c").as_slice() {
        [Effect::Copy(text)] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn copy_copies_the_name_of_the_object_under_the_cursor() {
    let mut app = World::with_hosts().console(80, 24);
    assert_eq!(copied(&mut app), "reboots/3");
    let text = app.session.message.as_ref().unwrap().text.clone();
    assert_eq!(text, "copied reboots/3 (if the terminal allows it: OSC 52)");
    press(&mut app, "2 j j j");
    assert_eq!(copied(&mut app), "worker-1");
    press(&mut app, "6 j");
    assert_eq!(copied(&mut app), "metal3/m2");
    let mut app = World::usual().console_in(View::History, 80, 24);
    super::past::load_past(&mut app);
    assert_eq!(copied(&mut app), "reboots/2");
    press(&mut app, "8 j j");
    assert!(!copied(&mut app).is_empty());
    let mut empty = World::without_data().console(80, 24);
    assert_eq!(press(&mut empty, "c"), []);
    assert!(empty.session.message.as_ref().unwrap().text.contains("nothing here can be copied"));
}

#[test]
fn copy_in_an_open_pane_copies_its_full_text_without_control_characters() {
    let mut app = World::usual().console(60, 15);
    press(&mut app, "j enter");
    let text = copied(&mut app);
    assert!(text.starts_with("reboots/4 worker-2"), "{text}");
    assert!(text.contains("/usr/local/bin/reboot-node --soft 10.0.0.15") && text.contains("Attempts"), "{text}");
    assert!(text.lines().count() > 15 && !text.contains('\u{1b}'), "{text}");
    assert_eq!(clipboard::osc52_sequence("a\n"), "\u{1b}]52;c;YQo=\u{7}");
    let mut world = World::usual();
    world.kube.put_node(cketerm_model::kube::NodeRow { name: NodeName::new("a\nrm -rf /"), ..Default::default() });
    let mut app = world.console_in(View::Nodes, 80, 24);
    press(&mut app, "g g");
    assert!(!copied(&mut app).contains('\n'), "a paste into a shell runs no command");
}

#[test]
fn a_click_on_the_rack_map_selects_the_machine_and_two_open_it() {
    for (columns, rows) in [(80, 24), (200, 50)] {
        let mut app = World::usual().console(columns, rows);
        press(&mut app, "2");
        if app.navigation.map.is_none() {
            press(&mut app, "v");
        }
        let (before, at) = (find(&app, "worker-1"), find(&app, "worker-4"));
        click(&mut app, before);
        assert_eq!(app.lists.nodes.cursor.as_deref(), Some("worker-1"), "{columns}x{rows}");
        click(&mut app, at);
        assert_eq!(app.lists.nodes.cursor.as_deref(), Some("worker-4"), "{columns}x{rows}");
        assert!(app.navigation.pane.is_none(), "two machines of one line are no double click");
        click(&mut app, at);
        assert_eq!(app.navigation.pane.as_ref().map(|pane| &pane.of), Some(&Target::Node("worker-4".into())));
    }
    // the legend below the map and the space beside it are no machines
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 v");
    for place in [(8, 20), (79, 5), (0, 4)] {
        click(&mut app, place);
        assert_eq!(app.lists.nodes.cursor.as_deref(), Some("cp-1"), "{place:?}");
    }
}

#[test]
fn the_preview_keeps_the_row_and_a_double_click_on_it_opens_its_detail() {
    let mut app = World::usual().console(200, 50);
    press(&mut app, "j");
    update(&mut app, Event::Rested);
    let at = (find(&app, "Timeline").0, find(&app, "cp-1").1);
    click(&mut app, at);
    assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(4)), "not the row on the same line of the table");
    click(&mut app, at);
    assert_eq!(app.navigation.pane.as_ref().map(|pane| &pane.of), Some(&Target::Entry(EntryId::reboot(4))));
}

#[test]
fn the_column_picker_ignores_the_mouse() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 |");
    let audit = find(&app, "8 Aud");
    click(&mut app, audit);
    assert!(app.navigation.view == View::Nodes && app.picker.is_some());
}

#[test]
fn a_double_click_opens_the_row_and_two_slow_clicks_do_not() {
    let mut app = World::usual().console(80, 24);
    let at = find(&app, "worker-3");
    click(&mut app, at);
    assert!(app.navigation.pane.is_none());
    click(&mut app, at);
    assert_eq!(app.navigation.pane.as_ref().map(|pane| &pane.of), Some(&Target::Entry(EntryId::reboot(5))));
    let mut app = World::usual().console(80, 24);
    click(&mut app, at);
    update(&mut app, Event::Tick(super::world::at(super::world::BOOT + Seconds::new(1.0))));
    click(&mut app, at);
    assert!(app.navigation.pane.is_none(), "a second apart");
    let other = find(&app, "worker-1");
    click(&mut app, other);
    assert!(app.navigation.pane.is_none(), "another row");
}

#[test]
fn a_click_on_a_column_title_sorts_then_reverses_then_restores_the_order() {
    for (columns, rows) in [(80, 24), (200, 50)] {
        let mut app = World::usual().console(columns, rows);
        let title = find(&app, "NODE");
        for sort in [Some((ColumnId::new("node"), false)), Some((ColumnId::new("node"), true)), None] {
            assert_eq!(click(&mut app, title), []);
            assert_eq!(app.lists.reboots.sort, sort);
        }
        let title = find(&app, "REASON");
        click(&mut app, title);
        assert_eq!(app.lists.reboots.sort, Some((ColumnId::new("reason"), false)), "{columns}");
        // no title, a row, the tabs
        for y in 0..4 {
            click(&mut app, (0, y));
        }
        assert_eq!(app.lists.reboots.sort, Some((ColumnId::new("reason"), false)));
    }
}

#[test]
fn a_click_on_a_title_sorts_the_table_that_is_open() {
    let mut app = super::batches::world(false).0.console(120, 24);
    app.navigation.cke_records = true;
    let title = find(&app, "NODE");
    click(&mut app, title);
    assert_eq!(app.lists.reboots.sort, Some((ColumnId::new("node"), false)));
    app.navigation.cke_records = false;
    press(&mut app, "v");
    let title = find(&app, "CAUSE");
    click(&mut app, title);
    assert_eq!(app.lists.batches.sort, Some((ColumnId::new("why"), false)));
}

#[test]
fn the_mouse_is_turned_on_and_off_and_that_is_saved() {
    let mut app = World::usual().console(80, 24);
    app.config.saves_settings = true;
    let save = |on| Effect::SaveSettings(Change::Mouse(on));
    assert_eq!(press(&mut app, ": \"mouse\" enter"), [Effect::Mouse(true), save(true)]);
    assert!(super::world::message(&app).contains("double click"), "{}", super::world::message(&app));
    assert_eq!(press(&mut app, ": \"mouse\" enter"), [Effect::Mouse(false), save(false)]);
    assert!(!app.config.mouse);
}

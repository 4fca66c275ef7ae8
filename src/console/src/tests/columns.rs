//! Tests of the choice of columns and of what is stored of it.

use super::world::{World, press};
use crate::{
    state::{
        App, View, columns,
        event::Effect,
        settings::{self, Change},
    },
    terminal::screen,
};

/// Returns the line of the titles.
fn titles(app: &App) -> String {
    screen::text(app).lines().nth(3).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_view_shows_the_chosen_columns_in_order_and_can_be_reset() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 : \"columns node,rack,state\" enter");
    assert_eq!(titles(&app), "NODE RACK STATE");
    let row = screen::text(&app).lines().nth(4).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row, "> cp-1 0 \u{25cb} Ready, queued");
    press(&mut app, "1");
    assert!(titles(&app).starts_with("INDEX NODE STATUS"), "another view keeps its own columns: {}", titles(&app));
    press(&mut app, ": \"columns index node rack by why\" enter");
    assert_eq!(titles(&app), "INDEX NODE RACK ASKED BY WHY", "columns that are hidden by default");
    assert!(screen::text(&app).contains("kernel 6.12"), "{}", screen::text(&app));
    press(&mut app, ": \"columns default\" enter 2");
    assert_eq!(titles(&app), "NODE RACK STATE", "this view keeps its columns");
}

#[test]
fn unknown_columns_are_refused_and_columns_that_do_not_fit_are_dropped() {
    let mut app = World::usual().console(60, 15);
    press(&mut app, ": \"columns node,moon\" enter");
    assert!(screen::text(&app).contains("there is no column moon: index node"), "{}", screen::text(&app));
    press(&mut app, "esc : \"columns node,node\" enter");
    assert!(screen::text(&app).contains("node is named twice"));
    press(&mut app, "esc : \"columns node,address,role,rack,status,since,pods,by,why,reason\" enter");
    let shown = titles(&app);
    assert!(shown.starts_with("NODE ADDRESS ROLE RACK STATUS SINCE") && !shown.contains("REASON"), "{shown}");
    press(&mut app, "0 : \"columns node\" enter");
    assert!(screen::text(&app).contains("the Overview has no columns"), "{}", screen::text(&app));
}

/// Every name that the list offers shows its own column in every view.
#[test]
fn every_column_of_every_view_can_be_shown_alone() {
    for view in View::ALL {
        let world = World::with_repairs();
        for column in columns::summaries(view, false) {
            let mut app = world.console_in(view, 119, 50);
            press(&mut app, &format!(": \"columns {}\" enter", column.id));
            assert_eq!(app.lists.visible_columns[view.name()], [column.id], "{:?}", app.session.message);
            let text = screen::text(&app);
            assert!(text.lines().any(|line| line.trim() == column.title), "{view:?} {}:\n{text}", column.id);
            assert!(columns::all(view, false).contains(&column.id), "{view:?} {}", column.id);
        }
    }
}

#[test]
fn the_column_picker_hides_shows_and_moves_columns_and_esc_cancels() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 | esc");
    assert!(app.lists.visible_columns.is_empty() && app.picker.is_none());
    let before = columns::default_columns(View::Nodes, false, 80);
    // the second column moves behind the third one, the fourth one is hidden
    press(&mut app, "| down right down space");
    insta::assert_snapshot!("columns_list_80x24", screen::text(&app));
    press(&mut app, "enter");
    let mut expected = before.clone();
    expected.swap(1, 2);
    expected.remove(3);
    assert_eq!(app.lists.visible_columns["nodes"], expected);
    press(&mut app, "| down right down space");
    assert_eq!(press(&mut app, "X R q"), [], "verbs do nothing there");
    assert!(app.dialog.is_none());
}

/// The picker marks what the screen shows: hiding one column neither hides nor shows another one.
#[test]
fn the_column_picker_begins_with_the_columns_of_the_screen() {
    let mut app = World::with_repairs().console_in(View::Repairs, 80, 24);
    let before = titles(&app);
    press(&mut app, "| space enter");
    let first = before.split(' ').next().unwrap();
    assert_eq!(titles(&app), before[first.len()..].trim(), "without {first}");
    press(&mut app, "| space enter");
    press(&mut app, ": \"columns default\" enter");
    assert_eq!(titles(&app), before);
}

#[test]
fn columns_and_sort_order_are_saved_and_settings_forget_resets_them() {
    let mut app = World::usual().console(80, 24);
    app.config.saves_settings = true;
    let effects = press(&mut app, "2 : \"columns node,state\" enter : \"sort node desc\" enter");
    let columns = Change::Columns("nodes", vec!["node".into(), "state".into()]);
    let sort = Change::Sort("nodes", Some("node desc".into()));
    assert_eq!(effects, [Effect::SaveSettings(columns), Effect::SaveSettings(sort)]);

    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("console.yaml");
    for effect in effects {
        let Effect::SaveSettings(change) = effect else { panic!() };
        assert_eq!(settings::write(&path, &change), Ok(None));
    }
    let mut next = World::usual().console(80, 24);
    assert_eq!(settings::apply(&mut next, &settings::read(&path).unwrap()), Vec::<String>::new());
    press(&mut next, "2 j k");
    assert_eq!(titles(&next), "NODE\u{2193} STATE");
    crate::input::update(&mut next, crate::state::event::Event::Seen(World::usual().seen()));
    assert_eq!(next.lists.nodes.rows.first().map(String::as_str), Some("worker-5"));
    next.config.saves_settings = true;
    assert_eq!(press(&mut next, ": \"settings forget\" enter"), [Effect::SaveSettings(Change::Forget)]);
    assert!(next.lists.visible_columns.is_empty() && next.lists.nodes.sort.is_none());
}

#[test]
fn unknown_tables_and_columns_in_the_settings_are_skipped_and_named() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("console.yaml");
    let text = "version: 1\ntables:\n  nodes: {columns: [moon, node], sort: moon}\n  moons: {sort: x}\n";
    std::fs::write(&path, text).unwrap();
    let mut app = World::usual().console(80, 24);
    let odd = settings::apply(&mut app, &settings::read(&path).unwrap());
    assert_eq!(odd, ["there is no table moons", "nodes has no column moon", "nodes has no column moon to sort by"]);
    assert_eq!(app.lists.visible_columns["nodes"], ["node"]);
}

#[test]
fn an_unwritable_settings_file_is_reported_once() {
    use crate::{input::update, state::event::Event};
    let mut app = World::usual().console(80, 24);
    app.config.saves_settings = true;
    update(&mut app, Event::SettingsSaved(Err("/x/console.yaml cannot be written: read-only".into())));
    assert!(app.session.message.as_ref().is_some_and(|m| m.text.contains("columns and orders are not saved")));
    assert_eq!(press(&mut app, "2 s"), [], "saving is not retried");
}

//! Tests of the keys that people bring from other programs: half pages, `gg`, Shift-Tab, `d`, and keys without a command.

use super::world::{World, message, press};
use crate::{
    keys::TABLE,
    state::{App, View},
    terminal::screen,
};

fn footer(app: &App) -> String {
    screen::text(app).lines().last().unwrap_or_default().to_owned()
}

fn rows(n: u32) -> World {
    let mut world = World::usual();
    for i in 0..n {
        world.kube.put_node(cketerm_model::kube::NodeRow {
            name: cketerm_model::names::NodeName::new(format!("node-{i:03}")),
            ready: true,
            ..Default::default()
        });
    }
    world
}

#[test]
fn half_pages_pages_and_both_ends_move_the_cursor() {
    let app = &mut rows(100).console_in(View::Nodes, 80, 24);
    press(app, "g g");
    let page = crate::views::table_height(app) - 1;
    press(app, "ctrl-f");
    assert_eq!(app.lists.nodes.place, page);
    press(app, "ctrl-b ctrl-d");
    assert_eq!(app.lists.nodes.place, page / 2);
    press(app, "ctrl-d ctrl-u");
    assert_eq!(app.lists.nodes.place, page / 2);
    press(app, "G");
    assert_eq!(app.lists.nodes.place, app.lists.nodes.rows.len() - 1);
    press(app, "g g");
    assert_eq!(app.lists.nodes.place, 0);
    press(app, "end home");
    assert_eq!(app.lists.nodes.place, 0);
}

#[test]
fn tab_and_shift_tab_go_around_the_views_in_both_directions() {
    let mut app = World::usual().console_in(View::Overview, 80, 24);
    press(&mut app, "tab");
    let next = app.navigation.view;
    press(&mut app, "backtab");
    assert_eq!(app.navigation.view, View::Overview);
    press(&mut app, "backtab");
    assert_eq!(app.navigation.view, *View::ALL.last().unwrap());
    press(&mut app, "tab tab");
    assert_eq!(app.navigation.view, next);
}

#[test]
fn d_describes_the_row_and_closes_the_pane_again() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "d");
    assert!(app.navigation.pane.is_some());
    press(&mut app, "d");
    assert!(app.navigation.pane.is_none());
}

/// The message line keeps its text, because such a key does nothing.
#[test]
fn a_key_without_a_command_says_so_in_place_of_the_hints_until_the_next_key() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "c");
    let before = (message(&app).to_owned(), app.session.messages.len());
    assert!(!before.0.is_empty());
    for _ in 0..3 {
        press(&mut app, "w");
        assert_eq!(footer(&app), "w is not bound; ? shows the keys");
    }
    assert_eq!((message(&app).to_owned(), app.session.messages.len()), before, "it is no message");
    press(&mut app, "j");
    assert!(footer(&app).contains("? help"), "{}", footer(&app));
    // the key that deleted unfinished repairs in version 0.1
    press(&mut app, "3 K");
    assert_eq!(footer(&app), "K is not bound; ? shows the keys");
    assert!(app.dialog.is_none());
    press(&mut app, "1 enter w");
    assert_eq!(footer(&app), "w is not bound; ? shows the keys", "in a pane");
    press(&mut app, "esc right");
    assert_eq!(footer(&app), "only the rack map moves sideways");
    press(&mut app, "/ \"w\"");
    assert!(!footer(&app).contains("not bound"), "a letter of a text is text");
}

#[test]
fn the_help_begins_with_the_keys_of_the_open_view_and_names_every_command() {
    for view in View::ALL {
        let mut app = World::usual().console_in(view, 200, 400);
        press(&mut app, "?");
        let text = screen::text(&app);
        let body: Vec<&str> = text.lines().skip_while(|line| !line.contains(" Keys: ")).skip(1).collect();
        assert_eq!(body.first().map(|line| line.trim()), Some(format!("Here: {}", view.title()).as_str()));
        let joined = body.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ");
        for b in TABLE {
            let words = b.help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(joined.contains(&words), "{}: {text}", b.name);
        }
    }
    // a verb of the view is among the first lines
    let mut app = World::usual().console(80, 24);
    press(&mut app, "?");
    let text = screen::text(&app);
    assert!(text.contains("Cancel the marked reboots"), "{text}");
    // a search shows each command once
    press(&mut app, "/ \"blockers, worst\" enter");
    let text = screen::text(&app);
    assert_eq!(text.matches("Drain blockers, worst first").count(), 1, "{text}");
}

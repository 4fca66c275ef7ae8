//! Tests of the first steps in the sandbox, and of the command line's list.

use cketerm_model::reboot::RebootStatus;
use insta::assert_snapshot;

use super::world::{World, press};
use crate::{
    input::update,
    state::{App, View, column_id::ColumnId, event::Event},
    terminal::screen,
};

fn at(app: &App) -> Option<usize> {
    app.session.tour.as_ref().map(|tour| tour.at + 1)
}

#[test]
fn the_tour_waits_for_each_step_and_completes() {
    let mut world = World::usual();
    let mut app = world.console_in(View::Overview, 80, 24);
    app.config.sandbox = true;
    press(&mut app, ": \"tour\" enter");
    assert_snapshot!("tour_80x24", screen::text(&app));
    assert_eq!(at(&app), Some(1));
    press(&mut app, "1 j 8");
    assert_eq!(at(&app), Some(1), "the tour waits for its step");
    press(&mut app, "2");
    assert_eq!(at(&app), Some(2));
    press(&mut app, "/ \"rack=1 !role:api\"");
    assert_eq!(at(&app), Some(2), "the step is not done while the filter is typed");
    press(&mut app, "enter");
    assert_eq!(at(&app), Some(3));
    press(&mut app, "space space");
    assert_eq!(at(&app), Some(4));
    press(&mut app, "R \"try it\" enter enter");
    assert_eq!(at(&app), Some(4), "the step is not done before the entries exist");
    world.entry(40, "10.0.0.15", RebootStatus::Queued, 0, 90);
    world.entry(41, "10.0.0.18", RebootStatus::Queued, 0, 91);
    update(&mut app, Event::Done(Ok("queued 2 reboots".into())));
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(at(&app), Some(5));
    press(&mut app, "1");
    assert_eq!(at(&app), Some(6));
    press(&mut app, "G enter");
    assert_eq!(at(&app), Some(7));
    press(&mut app, "esc n");
    assert_eq!(at(&app), Some(8));
    press(&mut app, "G X enter y");
    assert_eq!(at(&app), Some(9));
    press(&mut app, "8");
    assert_eq!(at(&app), Some(10));
    assert!(screen::text(&app).contains("That was the tour."), "{}", screen::text(&app));
    press(&mut app, "esc esc esc");
    assert_eq!(at(&app), None);
}

/// The step must neither wait for a cancel of ended entries nor count another operator's cancel.
#[test]
fn the_tour_continues_when_its_reboots_have_ended_and_ignores_other_cancels() {
    let mut world = World::usual();
    let mut app = world.console_in(View::Nodes, 80, 24);
    app.config.sandbox = true;
    press(&mut app, ": \"tour\" enter 2 / \"rack=1 !role:api\" enter space space R enter y");
    assert_eq!(at(&app), Some(4));
    world.entry(40, "10.0.0.15", RebootStatus::Queued, 0, 90);
    update(&mut app, Event::Done(Ok("queued 1 reboot".into())));
    update(&mut app, Event::Seen(world.seen()));
    press(&mut app, "1 enter esc n");
    assert_eq!(at(&app), Some(8));
    press(&mut app, "g X enter y");
    assert_eq!(at(&app), Some(8), "cancelling another entry does not count");
    world.store.reboots.entries.remove(&40);
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(at(&app), Some(9));
}

#[test]
fn the_tour_runs_only_in_the_sandbox_and_ends_with_its_command() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"tour\" enter");
    assert!(app.session.tour.is_none());
    assert!(app.session.message.as_ref().is_some_and(|m| m.text.contains("`cketerm --sandbox`, then :tour")));
    app.config.sandbox = true;
    press(&mut app, ": \"tour\" enter : \"tour\" enter");
    assert_eq!(at(&app), None);
}

#[test]
fn the_command_line_completes_command_names_and_arguments_by_kind() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"re\"");
    assert_snapshot!("palette_80x24", screen::text(&app));
    press(&mut app, "esc : \"cancel \"");
    let text = screen::text(&app);
    assert!(text.contains("reboots/3") && text.contains("worker-1 draining"), "{text}");
    press(&mut app, "esc : \"freeze \"");
    assert!(screen::text(&app).contains("\u{2502} 30m"), "{}", screen::text(&app));
    press(&mut app, "esc : \"columns index,no\" tab");
    let typed = |app: &App| app.typing.line.as_ref().map(|l| l.input.value().to_owned()).unwrap_or_default();
    assert_eq!(typed(&app), "columns index,node ");
    press(&mut app, "esc : \"cancel -- re\"");
    assert!(app.typing.line.as_ref().unwrap().suggestions.words.is_empty(), "a reason has no suggestions");
    press(&mut app, "esc : \"reset-backoff a\" tab");
    assert_eq!(typed(&app), "reset-backoff all ");
}

#[test]
fn up_and_down_recall_executed_command_lines() {
    let mut app = World::usual().console(80, 24);
    let typed = |app: &App| app.typing.line.as_ref().map(|l| l.input.value().to_owned()).unwrap_or_default();
    press(&mut app, ": up");
    assert_eq!(typed(&app), "", "the history is empty");
    press(&mut app, "esc : \"view nodes\" enter : \"sort rack\" enter : \"view nodes\" enter : \"bad one\" enter esc");
    press(&mut app, ": up");
    assert_eq!(typed(&app), "view nodes");
    press(&mut app, "up");
    assert_eq!(typed(&app), "sort rack", "the history has no duplicates and no refused lines");
    press(&mut app, "up down down");
    assert_eq!(typed(&app), "");
    press(&mut app, "up up enter");
    assert_eq!(app.lists.nodes.sort, Some((ColumnId::new("rack"), false)));
}

#[test]
fn an_incomplete_chord_is_shown_in_the_footer_and_esc_cancels_it() {
    use crate::keys::Keymap;
    let keys = [("cancel".to_owned(), vec!["ctrl-x c".to_owned()]), ("top".to_owned(), vec!["g g".to_owned()])];
    let mut app = World::usual().console(80, 24);
    app.config.keymap = Keymap::new(&keys.into()).unwrap();
    press(&mut app, "ctrl-x");
    let footer = |app: &App| screen::text(app).lines().last().unwrap_or_default().to_owned();
    assert_eq!(footer(&app), "Ctrl-x ...  c cancel  Esc cancels");
    press(&mut app, "esc");
    assert!(app.typing.chord.is_empty() && footer(&app).contains("? help"), "{}", footer(&app));
    press(&mut app, "ctrl-x j");
    assert!(screen::text(&app).contains("Ctrl-x j is not bound"), "{}", screen::text(&app));
    assert_eq!(app.lists.reboots.place, 0, "the key was meant for the chord");
    press(&mut app, "j j g g");
    assert_eq!(app.lists.reboots.place, 0);
    press(&mut app, "ctrl-x c");
    assert!(app.dialog.as_ref().is_some_and(|d| d.title.contains("Cancel 1 reboot")));
}

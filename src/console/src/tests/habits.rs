//! Tests of the keys that people bring from other programs: half pages, `gg`, Shift-Tab, `d`, and keys without a command.

use cketerm_model::{boot_time::Seconds, stored::view::Switch};

use super::world::{BOOT, World, at, message, press};
use crate::{
    input::update,
    keys::TABLE,
    state::{
        App, View,
        event::{ActionOutcome, Effect, Event},
        settings::Change,
    },
    terminal::screen,
    theme::{Theme, loader::BUILT_IN},
};

fn footer(app: &App) -> String {
    screen::text(app).lines().last().unwrap_or_default().to_owned()
}

/// `n` was listed twice: as the key of the next object, and as one of the view's own keys.
#[test]
fn the_help_lists_each_key_of_the_open_view_once() {
    for view in View::ALL {
        let mut app = World::with_repairs().console_in(view, 120, 100);
        press(&mut app, "?");
        let text = screen::text(&app);
        let here = text.lines().skip_while(|line| !line.contains("Here: ")).skip(1);
        let here: Vec<String> = here.take_while(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        let keys: Vec<&str> =
            here.iter().filter(|l| l.starts_with("   ") && !l.starts_with("    ")).map(|l| l[..18].trim()).collect();
        let mut once = keys.clone();
        once.sort_unstable();
        once.dedup();
        assert!(!keys.is_empty() && keys.len() == once.len(), "{view:?} {keys:?}: {text}");
    }
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

fn themes() -> Vec<(String, Theme)> {
    let configured = ("default".to_owned(), Theme::named("terminal", true).unwrap());
    let named = BUILT_IN.iter().map(|(name, _)| ((*name).to_owned(), Theme::named(name, true).unwrap()));
    std::iter::once(configured).chain(named).collect()
}

#[test]
fn the_theme_picker_previews_keeps_and_restores() {
    let mut app = World::usual().console(80, 24);
    app.config.saves_settings = true;
    assert_eq!(press(&mut app, ": \"theme\" enter"), [Effect::ReadThemes(None)]);
    update(&mut app, Event::ThemesRead(None, themes()));
    insta::assert_snapshot!("theme_picker_80x24", screen::text(&app));
    press(&mut app, "j j j");
    assert_eq!(app.config.theme.name, "dark", "it is previewed");
    press(&mut app, "w X");
    assert!(app.themes.is_some() && app.dialog.is_none(), "other keys do nothing");
    assert_eq!(press(&mut app, "esc"), []);
    assert_eq!((app.config.theme.name.as_str(), app.themes.is_none()), ("terminal", true), "Esc restores");
    update(&mut app, Event::ThemesRead(None, themes()));
    let saved = |name: &str| [Effect::SaveSettings(Change::Theme(Some(name.to_owned())))];
    assert_eq!(press(&mut app, "k enter"), saved("blue-orange-light"));
    assert_eq!(app.config.theme.name, "blue-orange-light");
    // the next time it opens there
    update(&mut app, Event::ThemesRead(None, themes()));
    assert_eq!(app.themes.as_ref().and_then(|p| p.here()).map(|(name, _)| name.as_str()), Some("blue-orange-light"));
    press(&mut app, "esc");
    // a background that is reported late does not replace a choice
    update(&mut app, Event::ThemeDetected(Box::new(Theme::named("light", true).unwrap())));
    assert_eq!(app.config.theme.name, "blue-orange-light");
    // the configured theme is stored as no choice
    update(&mut app, Event::ThemesRead(Some("default".into()), themes()));
    assert_eq!(app.config.theme.name, "terminal");
    assert_eq!(app.config.chosen_theme, None);
}

#[test]
fn a_theme_is_named_exactly_or_by_letters_that_only_one_has() {
    let mut app = World::usual().console(80, 24);
    let read = |app: &mut App, name: &str| drop(update(app, Event::ThemesRead(Some(name.to_owned()), themes())));
    read(&mut app, "contrast");
    assert_eq!(app.config.theme.name, "contrast", "though contrast-light begins with it");
    read(&mut app, "drk");
    assert_eq!(app.config.theme.name, "dark");
    read(&mut app, "blue");
    assert_eq!(app.config.theme.name, "dark");
    assert!(
        message(&app).contains("there is no theme blue: choose blue-orange, blue-orange-light"),
        "{}",
        message(&app)
    );
    read(&mut app, "xyzzy");
    assert!(message(&app).contains("choose default, terminal"), "{}", message(&app));
}

/// An operator who looks away, or presses a key just when the message arrives, finds it still there.
#[test]
fn a_message_stays_until_a_key_does_something_after_it_could_be_read() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "c");
    let copied = message(&app).to_owned();
    assert!(!copied.is_empty());
    press(&mut app, "j");
    assert_eq!(message(&app), copied, "it has just arrived");
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(7_200.0))));
    assert_eq!(message(&app), copied, "no timer hides it");
    press(&mut app, "w");
    assert_eq!(message(&app), copied, "a key without a command does nothing");
    press(&mut app, "j");
    assert_eq!(message(&app), "");
}

#[test]
fn the_offer_to_undo_leaves_the_message_when_the_undo_expires() {
    let mut world = World::usual();
    let mut app = world.console(120, 36);
    press(&mut app, "E enter y");
    let response = "the reboot queue is disabled".to_owned();
    let outcome = ActionOutcome { response, written_revision: Some(71), ..ActionOutcome::default() };
    update(&mut app, Event::Done(Ok(outcome)));
    world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 71 };
    update(&mut app, Event::Seen(world.seen()));
    assert!(screen::text(&app).contains("is disabled; u "), "{}", screen::text(&app));
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(90.0))));
    let text = screen::text(&app);
    assert!(text.contains("is disabled") && !text.contains("is disabled; u "), "{text}");
}

#[test]
fn the_offer_of_the_tour_stays_until_it_is_dismissed() {
    let mut app = World::usual().console(80, 24);
    (app.config.sandbox, app.session.tour_offered) = (true, true);
    app.print("bob@ops2 cancelled reboots/7");
    press(&mut app, "j j 2 1");
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(600.0))));
    let text = screen::text(&app);
    assert!(text.contains("A simulated data centre: :tour shows the first steps; Esc hides this line"), "{text}");
    press(&mut app, "esc esc");
    assert!(!screen::text(&app).contains("simulated data centre"));
    app.session.tour_offered = true;
    press(&mut app, ": \"tour\" enter");
    let text = screen::text(&app);
    assert!(text.contains("Tour 1 of") && !text.contains("hides this line"), "{text}");
}

//! Tests of dialogs: text that is typed into them never acts as a key, and stopping verbs succeed.

use cketerm_model::{
    boot_time::Seconds,
    entry::{EntryId, QueueKind},
    reboot::RebootStatus,
    stored::view::Switch,
};

use super::world::{World, press};
use crate::{
    input::update,
    keys::TABLE,
    state::{
        App,
        dialog::{Dialog, Focus},
        event::{Action, Effect, Event},
    },
    terminal::screen,
};

pub(super) fn refresh(app: &mut App, world: &World) {
    update(app, Event::Seen(world.seen()));
}

pub(super) fn reason(app: &App) -> &str {
    app.dialog.as_ref().map_or("", |dialog| dialog.reason.value())
}

/// A destructive key must not be the first letter of a reason; cancel, disable and hold always work.
#[test]
fn every_first_letter_of_a_reason_goes_to_the_reason_field() {
    for verb in ["X", "H", "E", "B", "F"] {
        let first = (' '..='~').filter(|c| !c.is_whitespace() && *c != '"');
        for letter in first {
            let mut app = World::usual().console(80, 24);
            press(&mut app, if verb == "B" { "j j j" } else { "" });
            let effects = press(&mut app, &format!("{verb} \"{letter}ew disk\""));
            assert_eq!(effects, [], "{verb} {letter}");
            assert_eq!(reason(&app), format!("{letter}ew disk"), "{verb}");
        }
    }
}

/// The same with the focus anywhere, except for `y` on the buttons.
#[test]
fn letters_other_than_y_on_the_buttons_go_to_the_reason() {
    for (typed, before) in [("new disk", "X tab"), ("quick fix", "X tab tab"), ("#17: db", "X enter"), ("r", "X enter")]
    {
        let mut app = World::usual().console(80, 24);
        press(&mut app, before);
        assert!(app.dialog.as_ref().is_some_and(Dialog::at_buttons), "{before}");
        assert_eq!(press(&mut app, &format!("\"{typed}\"")), []);
        assert_eq!(reason(&app), typed);
    }
    let mut app = World::with_repairs().console(80, 24);
    // the preview reads how long similar entries took; no action is started
    let effects = press(&mut app, "3 j j j P backtab \"yellow LED\"");
    assert!(effects.iter().all(|e| matches!(e, Effect::Ask(_))), "{effects:?}");
    assert_eq!(reason(&app), "yellow LED", "letters typed at a choice go to the reason, y too");
}

/// The dialog expires before or while the reason is typed: no letter of it runs as a command.
#[test]
fn an_expired_dialog_accepts_only_the_key_that_closes_it() {
    for before in ["F", "F \"the disk\"", "F tab", "F tab tab", "L"] {
        let mut world = World::usual();
        let mut app = world.console(80, 24);
        if before == "L" {
            let order = cketerm_model::cketerm_records::Order {
                verb: cketerm_model::cketerm_records::Verb::Hold,
                who: world.store.requests[&EntryId::reboot(3)].get().unwrap().who.clone(),
                at: super::world::wall(),
                reason: None,
                entry_revision: 30,
            };
            world.store.orders.insert(EntryId::reboot(3), super::world::stored("o", 70, order));
            refresh(&mut app, &world);
        }
        press(&mut app, before);
        assert!(app.dialog.is_some(), "{before}");
        world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 0, 50);
        refresh(&mut app, &world);
        let before_keys = (app.navigation.view, app.lists.reboots.cursor, app.lists.reboots.marks.clone());
        for b in TABLE {
            for key in b.keys.iter().filter(|k| !["esc", "ctrl-c", "enter"].contains(*k)) {
                assert_eq!(press(&mut app, key), [], "{before} {key}");
                assert!(app.dialog.as_ref().is_some_and(|d| d.expired.is_some()), "{before} {key}");
            }
        }
        assert_eq!(press(&mut app, "\"no Xylem\" y"), [], "{before}");
        assert_eq!(
            (app.navigation.view, app.lists.reboots.cursor, app.lists.reboots.marks.clone()),
            before_keys,
            "{before}"
        );
        let asks =
            if before == "L" { "Enter asks again  Esc or q closes" } else { "Esc or q closes; no other key acts" };
        assert!(screen::text(&app).contains(asks), "{before}: {}", screen::text(&app));
        press(&mut app, "esc");
        assert!(app.dialog.is_none(), "{before}");
    }
}

#[test]
fn a_command_on_an_entry_that_ended_opens_a_dialog_that_absorbs_the_reason() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "enter");
    world.store.reboots.entries.remove(&3);
    refresh(&mut app, &world);
    assert_eq!(press(&mut app, "X \"Entry stuck\" enter y"), [], "E in the reason disables no queue");
    assert!(screen::text(&app).contains("the entry is gone"), "{}", screen::text(&app));
}

/// Cancel, disable and hold always work.
#[test]
fn a_cancel_succeeds_while_the_queue_changes_and_names_ended_entries() {
    let mut world = World::usual();
    for index in 20..40 {
        world.entry(index, "10.0.0.16", RebootStatus::Queued, 1, 60);
    }
    let mut app = world.console(80, 24);
    press(&mut app, "* X \"wrong kernel\" enter \"tokyo0\"");
    world.store.reboots.entries.remove(&4);
    world.entry(20, "10.0.0.16", RebootStatus::Draining, 0, 80);
    world.entry(21, "10.0.0.16", RebootStatus::Rebooting, 0, 81);
    world.entry(22, "10.0.0.16", RebootStatus::Cancelled, 0, 82);
    refresh(&mut app, &world);
    let text = screen::text(&app);
    assert!(text.contains("left out, ended meanwhile: reboots/4, reboots/22"), "{text}");
    assert!(
        text.contains("tokyo0 25")
            && text.contains("Cancel 23 reboots?")
            && text.contains("a running command continues"),
        "{text}"
    );
    let effects = press(&mut app, "\" 25\" enter enter");
    let [Effect::Act(Action::Cancel { entries, reason })] = effects.as_slice() else { panic!("{effects:?}") };
    let indexes: Vec<u64> = entries.iter().map(|id| id.index).collect();
    assert_eq!(indexes, [3, 5, 6, 7, 20, 21].into_iter().chain(23..40).collect::<Vec<u64>>());
    assert_eq!(reason.as_deref(), Some("wrong kernel"));
}

#[test]
fn a_cancel_reports_that_all_its_entries_have_ended() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "X");
    world.store.reboots.entries.remove(&3);
    refresh(&mut app, &world);
    assert!(screen::text(&app).contains("all of them ended meanwhile"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter y enter"), []);
}

/// Cancel, disable and hold always work.
#[test]
fn a_hold_succeeds_on_a_draining_entry_and_leaves_out_rebooting_ones() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "j j space j space H");
    world.entry(5, "10.0.0.16", RebootStatus::Draining, 0, 80);
    world.entry(7, "10.0.0.11", RebootStatus::Rebooting, 0, 81);
    refresh(&mut app, &world);
    assert!(screen::text(&app).contains("left out: reboots/7"), "{}", screen::text(&app));
    let entries = vec![(EntryId::reboot(5), None)];
    assert_eq!(press(&mut app, "enter y"), [Effect::Act(Action::Hold { entries, hold: true, reason: None })]);
}

/// Cancel, disable and hold always work.
#[test]
fn disabling_a_queue_ignores_other_writes_but_enabling_expires() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "E");
    world.store.reboots.switch = Switch { raw: Some("false".into()), mod_revision: 70 };
    refresh(&mut app, &world);
    let queue = QueueKind::Reboot;
    assert_eq!(press(&mut app, "enter y"), [Effect::Act(Action::Switch { queue, enabled: false, reason: None })]);
    press(&mut app, "E");
    world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 71 };
    refresh(&mut app, &world);
    assert!(screen::text(&app).contains("reboot queue was disabled meanwhile"), "{}", screen::text(&app));
    press(&mut app, "esc E");
    world.store.reboots.switch.mod_revision = 72;
    refresh(&mut app, &world);
    assert!(screen::text(&app).contains("somebody switched"), "{}", screen::text(&app));
}

#[test]
fn cancel_all_cancels_all_reboots_from_any_view() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 : \"cancel-all\" enter");
    assert!(screen::text(&app).contains("Cancel all 5 reboots?"), "{}", screen::text(&app));
    let effects = press(&mut app, "enter enter");
    let entries = [3, 4, 5, 6, 7].map(EntryId::reboot).to_vec();
    assert_eq!(effects, [Effect::Act(Action::Cancel { entries, reason: None })]);
}

/// An action on rows that a filter hides says so before it starts.
#[test]
fn the_dialog_counts_marks_that_a_filter_hides() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 : \"mark rack=1\" enter / \"rack=2\" enter R");
    let text = screen::text(&app);
    assert!(text.contains("! 3 marked rows are hidden by the filter \"rack=2\""), "{text}");
    press(&mut app, "esc");
    assert!(screen::text(&app).contains("3 marked, 3 not shown"), "{}", screen::text(&app));
}

#[test]
fn the_initial_focus_is_on_the_first_required_field() {
    let focus = |keys: &str| {
        let mut app = World::usual().console(80, 24);
        press(&mut app, keys);
        app.dialog.map(|d| d.focus)
    };
    assert_eq!(focus("X"), Some(Focus::Reason));
    assert_eq!(focus("S"), Some(Focus::Type));
    assert_eq!(focus("q"), Some(Focus::Back));
}

/// The input that Enter waits for is named inside a dialog that fills the screen.
#[test]
fn a_full_screen_dialog_shows_the_missing_input_itself() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 * R enter \"tokyo0 9\" enter");
    let screen = screen::text(&app);
    let hint_row = screen.lines().position(|l| l.contains("! type \"tokyo0 8\" into the field first"));
    let buttons = screen.lines().position(|l| l.contains("[ Back ]"));
    assert_eq!(hint_row.map(|line| line + 1), buttons, "{screen}");
    assert!(!screen.lines().last().unwrap_or_default().contains("type"), "{screen}");
}

/// A message about one view must not stay on other screens.
#[test]
fn messages_about_a_view_disappear_with_it_and_results_of_actions_stay() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "3 c");
    assert!(screen::text(&app).contains("nothing here can be copied"), "{}", screen::text(&app));
    press(&mut app, "1");
    assert_eq!(app.session.message, None);
    app.print_error("cancel of reboots/5: etcd does not answer");
    press(&mut app, "2");
    assert!(screen::text(&app).contains("etcd does not answer"), "{}", screen::text(&app));
}

/// A button's label has the right number, and narrow screens never cut the way out.
#[test]
fn buttons_name_their_target_and_esc_is_visible_at_60_columns() {
    for (keys, face) in [("j j X", "[ Cancel 1 reboot ]"), ("* X", "[ Cancel 5 reboots ]")] {
        let mut app = World::usual().console(60, 15);
        press(&mut app, keys);
        let text = screen::text(&app);
        assert!(text.contains("[ Back ]") && text.contains(face), "{text}");
        for step in ["", "tab", "tab", "tab"] {
            press(&mut app, step);
            let text = screen::text(&app);
            assert!(text.contains("Esc back"), "{text}");
            let line = text.lines().find(|line| line.contains("Back")).and_then(|line| line.split('\u{2502}').nth(1));
            let line = line.unwrap_or_default();
            assert!(!line.contains('~'), "{text}");
        }
    }
}

/// The answer after Back names what was not done, in words that cannot be mistaken for the verb.
#[test]
fn back_says_what_was_not_done() {
    for (keys, answer) in [
        ("X tab tab enter", "nothing was cancelled"),
        ("E tab tab enter", "nothing was disabled"),
        ("H tab tab enter", "nothing was put on hold"),
        ("F tab tab enter", "nothing was ordered"),
        ("2 G R tab tab enter", "nothing was queued"),
        ("C enter", "no cordon was changed"),
        ("q enter", "not quit: this console goes on"),
        (": \"freeze 1d quarter end\" enter tab enter", "nothing was frozen"),
    ] {
        let mut app = World::usual().console(80, 24);
        let acts = |effect: &Effect| matches!(effect, Effect::Act(_) | Effect::Quit);
        assert!(!press(&mut app, keys).iter().any(acts), "{keys}");
        assert!(app.dialog.is_none(), "{keys}: {}", screen::text(&app));
        assert_eq!(super::world::message(&app), answer, "{keys}");
    }
}

/// `y` is a letter of the reason while that is typed, so it is hinted only on the buttons.
#[test]
fn the_hint_for_y_is_shown_only_on_the_buttons() {
    for (keys, hinted) in [("X", false), ("X \"disk\"", false), ("X tab", true), ("X tab tab", true), ("q", true)] {
        let mut app = World::usual().console(80, 24);
        press(&mut app, keys);
        let text = screen::text(&app);
        let hint = text.lines().find(|line| line.contains("Esc back") || line.contains("y do it"));
        assert_eq!(hint.is_some_and(|line| line.contains("y do it")), hinted, "{keys}: {text}");
    }
}

/// Text typed into an expired dialog is there when the key is pressed again, and nowhere else.
#[test]
fn typed_text_survives_an_expired_dialog() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "F \"the disk is \"");
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 0, 50);
    refresh(&mut app, &world);
    assert_eq!(press(&mut app, "\"gone\" enter"), []);
    let text = screen::text(&app);
    assert!(text.contains("EXPIRED") && text.contains("kept for the next try: the disk is gone"), "{text}");
    world.entry(3, "10.0.0.14", RebootStatus::Draining, 0, 51);
    refresh(&mut app, &world);
    press(&mut app, "esc F");
    assert_eq!(reason(&app), "the disk is gone");
    let effects = press(&mut app, "enter enter");
    assert!(format!("{effects:?}").contains("the disk is gone"), "{effects:?}");
    press(&mut app, "F esc F");
    assert_eq!(reason(&app), "", "it is offered once");
    let mut app = world.console(80, 24);
    press(&mut app, "F \"x\"");
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 0, 52);
    refresh(&mut app, &world);
    press(&mut app, "esc X");
    assert_eq!(reason(&app), "", "a dialog of another kind does not take it");
}

/// With short boots nearly every dialog expired, because its entry was written again.
#[test]
fn a_dialog_expires_only_if_its_question_is_another_one() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "F \"the disk\"");
    // a drain that was written again, or that backed off, is still forced in the same way
    for (status, revision) in [(RebootStatus::Draining, 50), (RebootStatus::Queued, 51)] {
        world.entry(3, "10.0.0.14", status, 0, revision);
        refresh(&mut app, &world);
        let dialog = app.dialog.as_ref().unwrap();
        assert!(dialog.expired.is_none(), "{:?}", dialog.expired);
        assert!(dialog.lines.iter().any(|line| line.contains(&status.to_string())), "{:?}", dialog.lines);
    }
    let effects = press(&mut app, "enter enter");
    assert!(
        matches!(effects.as_slice(), [Effect::Act(Action::Order { seen: Some(51), .. })]),
        "bound to what is shown now: {effects:?}"
    );
    // a backoff that is counted again is still reset, one that was reset is not
    press(&mut app, "j j j B");
    let backed = world.store.reboots.entries[&6].get().unwrap().clone();
    world.store.reboots.entries.insert(6, super::world::stored("/cke/reboots/data/0000000000000006", 90, backed));
    refresh(&mut app, &world);
    assert!(app.dialog.as_ref().is_some_and(|dialog| dialog.expired.is_none()), "{}", screen::text(&app));
    world.entry(6, "10.0.0.17", RebootStatus::Queued, 0, 91);
    refresh(&mut app, &world);
    assert!(screen::text(&app).contains("EXPIRED: no backoff is left"), "{}", screen::text(&app));
}

/// An expired dialog swallowed every key: the question had to be found and asked again.
#[test]
fn enter_asks_the_question_of_an_expired_dialog_again() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "F \"the disk is gone\"");
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 0, 50);
    refresh(&mut app, &world);
    world.entry(3, "10.0.0.14", RebootStatus::Draining, 0, 51);
    refresh(&mut app, &world);
    let text = screen::text(&app);
    assert!(text.contains("Enter asks again about the state of now, and keeps what you typed"), "{text}");
    press(&mut app, "enter");
    assert!(screen::text(&app).contains("EXPIRED"), "an Enter that was on its way asks nothing");
    update(&mut app, Event::Tick(super::world::at(super::world::BOOT + Seconds::new(3.0))));
    assert_eq!(press(&mut app, "enter"), [], "it only asks");
    assert!(screen::text(&app).contains("Force the reboot of worker-1?"), "{}", screen::text(&app));
    assert_eq!(reason(&app), "the disk is gone");
    let effects = press(&mut app, "enter enter");
    assert!(matches!(effects.as_slice(), [Effect::Act(Action::Order { seen: Some(51), .. })]), "{effects:?}");
}

#[test]
fn q_closes_an_expired_dialog_once_it_was_read() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "F \"the dis\"");
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 0, 50);
    refresh(&mut app, &world);
    press(&mut app, "\"k q\"");
    assert!(app.dialog.as_ref().is_some_and(|d| d.reason.value() == "the disk q"), "letters on their way are text");
    update(&mut app, Event::Tick(super::world::at(super::world::BOOT + Seconds::new(3.0))));
    press(&mut app, "q");
    assert!(app.dialog.is_none(), "{}", screen::text(&app));
}

/// Dialogs fit the small screens with what matters: the count, the API servers, the cluster and the way out.
#[test]
fn dialogs_show_count_api_servers_and_cluster_on_small_screens() {
    for (columns, rows) in [(60, 20), (80, 24), (200, 50)] {
        let mut app = World::usual().console(columns, rows);
        press(&mut app, "2 * R");
        let text = screen::text(&app);
        for what in ["Reboot 8 machines?", "3 API servers among them", "tokyo0", "[ Reboot 8 machines ]", "[ Back ]"] {
            assert!(text.contains(what), "{columns}x{rows}, {what}: {text}");
        }
        assert!(text.contains("pods on 8 nodes"), "{columns}x{rows}: {text}");
    }
}

/// Over a slow link Esc and the next key arrive in one packet, as Alt and the key.
#[test]
fn alt_and_a_letter_without_a_meaning_is_esc_and_the_letter() {
    let mut app = World::usual().console(80, 24);
    let before = app.lists.reboots.cursor;
    press(&mut app, "X \"disk\" alt-j");
    assert!(app.dialog.is_none(), "{}", screen::text(&app));
    assert_ne!(app.lists.reboots.cursor, before, "the letter is a key of its own");
    press(&mut app, "X \"one two\" alt-b");
    assert_eq!(reason(&app), "one two", "Alt-B moves by a word");
    press(&mut app, "esc / \"x\" alt-j");
    assert!(app.typing.filter.is_none() && app.lists.reboots.filter.is_empty());
}

/// A warning that the fields push out of a small screen must be read before the action.
#[test]
fn the_button_is_not_offered_before_every_warning_was_shown() {
    let open = |columns, rows| {
        let mut app = World::usual().console(columns, rows);
        press(&mut app, "X");
        let mut dialog = app.dialog.take().unwrap();
        dialog.lines = (1..=12).map(|i| format!("! warning {i}")).collect();
        dialog.shown_to = 0;
        app.dialog = Some(dialog);
        update(&mut app, Event::Resize(columns, rows));
        press(&mut app, "enter");
        app
    };
    let mut app = open(60, 16);
    let text = screen::text(&app);
    assert!(text.contains("( PgDn: more warnings )") && !text.contains("[>Cancel"), "{text}");
    assert_eq!(press(&mut app, "y"), [], "{}", screen::text(&app));
    press(&mut app, "pgdn pgdn");
    let text = screen::text(&app);
    assert!(text.contains("warning 12") && text.contains("[>Cancel 1 reboot<]"), "{text}");
    assert!(matches!(press(&mut app, "y")[..], [Effect::Act(Action::Cancel { .. })]));
    let mut app = open(80, 24);
    assert!(matches!(press(&mut app, "y")[..], [Effect::Act(Action::Cancel { .. })]), "all are shown at once");
}

//! Tests of the way back through the views, and of undo.

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::{Order, Verb, Who},
    constraints::Constraints,
    entry::{EntryId, QueueKind},
    freeze::Freeze,
    names::Address,
    policy::Policy,
    reboot::RebootStatus,
    stored::view::Switch,
};

use super::world::{BOOT, World, at, message, press, stored, wall};
use crate::{
    input::update,
    state::{
        App, Target, View,
        event::{Action, Effect, Event, RegistryAction},
        object::Object,
    },
    terminal::screen,
};

fn refresh(app: &mut App, world: &World) {
    update(app, Event::Seen(world.seen()));
}

fn complete_action(app: &mut App, text: &str) {
    update(app, Event::Done(Ok(text.into())));
}

/// Returns the current place: view, cursor, filter, pane.
fn place(app: &App) -> (View, Option<Target>, String, Option<Target>) {
    let pane = app.navigation.pane.as_ref().map(|pane| pane.of.clone());
    let mut bare = app.clone();
    bare.navigation.pane = None;
    (app.navigation.view, bare.target(), app.list().filter().to_owned(), pane)
}

#[test]
fn back_returns_to_the_place_before_a_jump() {
    for (before, jump, back) in [
        ("1 j j", "o", "esc"),
        ("1 j j", "o", "o"),
        ("1 j j enter", "o", "esc"),
        ("1 j j enter", "o o", ""),
        ("2 / \"worker\" enter g j j", "o", "esc"),
        ("2 / \"worker\" enter g j enter", "o", "esc"),
        ("2 G", ": \"goto reboots/5\" enter", "esc"),
        ("1 G k", ": \"goto worker-4\" enter", "esc"),
        ("1 / \"worker\" enter j", "l", "esc"),
        ("1 j enter", "l", "esc"),
        ("2 g j j j", "o l", "esc esc"),
        ("1 j", "o j j l", "esc esc"),
        ("0 j", "enter", "esc"),
        ("0 j", "enter o", "esc esc"),
        ("2 j", ": \"cancel 5\" enter esc", "esc esc"),
    ] {
        let mut app = World::usual().console(80, 24);
        // the other views keep their own cursors
        press(&mut app, "2 j j j j j 1 j 9");
        press(&mut app, before);
        let start = place(&app);
        press(&mut app, jump);
        assert!(back.is_empty() || place(&app) != start, "{before} {jump}");
        press(&mut app, back);
        assert_eq!(place(&app), start, "{before} {jump} {back}");
        assert!(app.navigation.before.is_empty(), "{before} {jump} {back}");
        assert_eq!(app.lists.log.filter, "", "{before} {jump} {back}: the jump's filter is removed");
    }
}

#[test]
fn esc_clears_filter_and_marks_before_it_returns_from_a_jump() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "1 j o / \"worker\" enter space");
    press(&mut app, "esc");
    assert_eq!((app.navigation.view, app.lists.nodes.filter.as_str()), (View::Nodes, ""));
    press(&mut app, "esc");
    assert_eq!(app.lists.nodes.marks.len(), 0);
    press(&mut app, "esc");
    assert_eq!((app.navigation.view, app.lists.reboots.cursor), (View::Reboots, Some(EntryId::reboot(4))));
}

#[test]
fn undo_enables_a_disabled_queue_within_a_minute() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "u");
    assert!(message(&app).starts_with("nothing to undo"), "{}", message(&app));
    press(&mut app, "E enter y");
    assert!(!app.can_undo(), "the action is not done yet");
    complete_action(&mut app, "the reboot queue is disabled");
    assert_eq!(message(&app), "the reboot queue is disabled; u enables it again");
    press(&mut app, "u");
    assert!(message(&app).contains("waiting for etcd"), "{}", message(&app));
    world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 70 };
    refresh(&mut app, &world);
    assert!(screen::text(&app).lines().last().unwrap().contains("u undo"), "{}", screen::text(&app));
    // from another view, where the same key switches another queue
    press(&mut app, "3");
    assert_eq!(press(&mut app, "u"), []);
    assert!(screen::text(&app).contains("Enable the reboot queue?"), "{}", screen::text(&app));
    let queue = QueueKind::Reboot;
    let effects = press(&mut app, "enter y");
    assert_eq!(effects, [Effect::Act(Action::Switch { queue, enabled: true, reason: None })]);
    complete_action(&mut app, "the reboot queue is enabled");
    assert_eq!(press(&mut app, "u"), []);
    assert!(app.dialog.is_none() && message(&app).starts_with("nothing to undo"), "undo works only once");
}

#[test]
fn undo_expires_after_a_minute_or_when_the_target_has_changed() {
    for late in [true, false] {
        let mut world = World::usual();
        let mut app = world.console(80, 24);
        press(&mut app, "E enter y");
        complete_action(&mut app, "the reboot queue is disabled");
        world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 70 };
        refresh(&mut app, &world);
        if late {
            update(&mut app, Event::Tick(at(BOOT + Seconds::new(61.0))));
        } else {
            world.store.reboots.switch = Switch { raw: None, mod_revision: 71 };
            refresh(&mut app, &world);
            world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 72 };
            refresh(&mut app, &world);
        }
        assert_eq!(press(&mut app, "u"), []);
        assert!(app.dialog.is_none());
        let expected = if late { "undo expired" } else { "has changed since" };
        assert!(message(&app).contains(expected), "{}", message(&app));
    }
}

#[test]
fn undo_of_a_cancel_requeues_only_entries_that_had_not_begun() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    // 4 is rebooting already; 6 was drained before
    press(&mut app, "j space j j space k k space : \"mark 5\" enter");
    press(&mut app, ": \"cancel 4 5 6\" enter enter y");
    complete_action(&mut app, "cancelled reboots/4, reboots/5, reboots/6");
    assert!(message(&app).ends_with("u requeues the 1 that had not begun"), "{}", message(&app));
    world.store.reboots.entries.remove(&5);
    world.store.reboots.entries.remove(&6);
    refresh(&mut app, &world);
    press(&mut app, "u");
    let text = screen::text(&app);
    assert!(text.contains("Reboot 1 machine?") && text.contains("kernel 6.12"), "{text}");
    assert!(text.contains("! without the 2 other entries for which work had begun"), "{text}");
    let effects = press(&mut app, "y");
    let add = Action::AddReboots { addresses: vec![Address::new("10.0.0.16")], reason: Some("kernel 6.12".into()) };
    assert!(effects.contains(&Effect::Act(add)), "{effects:?}");
}

#[test]
fn undo_does_not_requeue_a_cancelled_entry_that_was_on_hold() {
    let mut world = World::usual();
    let who = Who { user: "bob".into(), ..Who::default() };
    let order = Order { verb: Verb::Hold, who, at: wall(), reason: None, entry_revision: 32 };
    world.store.orders.insert(EntryId::reboot(5), stored("o", 70, order));
    let mut app = world.console(80, 24);
    press(&mut app, "j j X enter y");
    complete_action(&mut app, "cancelled reboots/5");
    assert_eq!(message(&app), "cancelled reboots/5");
    press(&mut app, "u");
    assert!(app.dialog.is_none());
}

#[test]
fn undo_does_not_remove_another_operators_freeze() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, ": \"freeze 2h deploy\" enter y");
    complete_action(&mut app, "frozen");
    let who = Who { user: "bob".into(), ..Who::default() };
    let (until, reason) = ("2026-12-04T00:00:00Z".parse().unwrap(), "quarter end".to_owned());
    let freeze = Some(Freeze { until, reason, who, unknown: serde_json::Map::new() });
    world.store.policy = Some(stored("p", 70, Policy { freeze, ..Policy::default() }));
    refresh(&mut app, &world);
    press(&mut app, "u");
    assert!(app.dialog.is_none(), "{}", screen::text(&app));
}

#[test]
fn undo_does_not_requeue_an_entry_that_had_begun_to_drain() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "j j X enter y");
    world.entry(5, "10.0.0.16", RebootStatus::Draining, 0, 90);
    refresh(&mut app, &world);
    complete_action(&mut app, "cancelled reboots/5");
    assert_eq!(message(&app), "cancelled reboots/5");
    press(&mut app, "u");
    assert!(app.dialog.is_none());
}

#[test]
fn undo_does_not_requeue_a_machine_that_was_queued_meanwhile() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "j j X enter y");
    complete_action(&mut app, "cancelled reboots/5");
    world.store.reboots.entries.remove(&5);
    refresh(&mut app, &world);
    world.entry(30, "10.0.0.16", RebootStatus::Queued, 0, 95);
    refresh(&mut app, &world);
    press(&mut app, "u");
    assert!(app.dialog.is_none() && message(&app).contains("has changed since"), "{}", message(&app));
}

/// An older entry that reboots the same machine must not prevent the undo of a cancelled second reboot.
#[test]
fn an_older_entry_of_the_same_machine_does_not_prevent_undo() {
    let mut world = World::usual();
    world.entry(30, "10.0.0.15", RebootStatus::Queued, 10, 95);
    let mut app = world.console(80, 24);
    press(&mut app, "G X enter y");
    complete_action(&mut app, "cancelled reboots/30");
    world.store.reboots.entries.remove(&30);
    refresh(&mut app, &world);
    world.store.reboots.entries.remove(&4);
    refresh(&mut app, &world);
    press(&mut app, "u");
    assert!(screen::text(&app).contains("Reboot 1 machine?"), "{}", screen::text(&app));
}

#[test]
fn undo_releases_held_entries() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "j j H enter y");
    complete_action(&mut app, "on hold: reboots/5");
    let who = Who { user: "alice".into(), ..Who::default() };
    let order = Order { verb: Verb::Hold, who, at: wall(), reason: None, entry_revision: 32 };
    world.store.orders.insert(EntryId::reboot(5), stored("o", 70, order));
    refresh(&mut app, &world);
    assert!(!app.can_undo(), "the order may be another operator's");
    app.session.operator_identity = Some(Who { user: "alice".into(), ..Who::default() });
    refresh(&mut app, &world);
    press(&mut app, "1 G u");
    let effects = press(&mut app, "enter y");
    let entries = vec![(EntryId::reboot(5), Some(32))];
    assert_eq!(effects, [Effect::Act(Action::Hold { entries, hold: false, reason: None })]);
}

#[test]
fn undo_restores_the_previous_constraint() {
    let mut world = World::usual();
    let set = |n| Constraints { maximum_repair_queue_entries: n, ..Constraints::default() };
    world.store.constraints = Some(stored("c", 10, set(3)));
    let mut app = world.console(80, 24);
    press(&mut app, "S right right right right enter \"5\" enter enter");
    let effects = press(&mut app, "y");
    assert!(format!("{effects:?}").contains("maximum-repair-queue-entries"), "{effects:?} {}", screen::text(&app));
    complete_action(&mut app, "constraint maximum-repair-queue-entries is 5");
    assert!(message(&app).ends_with("u sets it back to 3"), "{}", message(&app));
    world.store.constraints = Some(stored("c", 11, set(5)));
    refresh(&mut app, &world);
    let effects = press(&mut app, "u enter enter");
    let what = RegistryAction::Constraint { name: "maximum-repair-queue-entries".into(), value: "3".into() };
    assert_eq!(effects, [Effect::Act(Action::Registry { what, reason: None })], "{}", screen::text(&app));
}

#[test]
fn two_concurrent_actions_and_a_failed_one_cannot_be_undone() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "E enter y j j H enter y");
    complete_action(&mut app, "the reboot queue is disabled");
    complete_action(&mut app, "on hold: reboots/5");
    assert_eq!((message(&app), app.session.undo.is_none()), ("on hold: reboots/5", true));
    press(&mut app, "E enter y");
    update(&mut app, Event::Done(Err("etcd does not answer".into())));
    assert!(app.session.undo.is_none(), "a failed action cannot be undone");
}

/// Marks can be used after a row vanished under the cursor.
#[test]
fn marked_rows_can_be_used_after_the_row_under_the_cursor_ended() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "j j space k k");
    world.store.reboots.entries.remove(&4);
    press(&mut app, "j");
    world.store.reboots.entries.remove(&3);
    refresh(&mut app, &world);
    let effects = press(&mut app, "X enter y");
    assert_eq!(effects, [Effect::Act(Action::Cancel { entries: vec![EntryId::reboot(5)], reason: None })]);
}

/// A message that requests input disappears once the input is there.
#[test]
fn a_request_for_input_disappears_once_the_input_is_complete() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 space R enter enter");
    assert!(message(&app).contains("type \"tokyo0 1\""), "{}", message(&app));
    press(&mut app, "\"tokyo0\"");
    assert!(message(&app).contains("type \"tokyo0 1\""), "the message stays until the input is complete");
    press(&mut app, "\" 1\"");
    assert_eq!(app.session.message, None);
    press(&mut app, "backspace enter esc");
    assert_eq!(app.session.message, None, "the message disappears with the dialog");
}

/// The console's own stale key must not look like another cketerm, and leaving needs a confirmation.
#[test]
fn while_etcd_is_lost_the_leader_is_unknown_and_quitting_asks() {
    let mut world = World::usual();
    world.engine.leading = None;
    let mut app = world.console(80, 24);
    world.boot = BOOT + Seconds::new(13.0);
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(13.0))));
    let text = screen::text(&app);
    assert!(text.contains("leader unknown, etcd is lost") && !text.contains("another cketerm"), "{text}");
    press(&mut app, "0");
    let text = screen::text(&app);
    assert!(text.contains("as of 10:00:00Z: etcd is lost") && !text.contains("moving"), "{text}");
    assert_eq!(press(&mut app, "q"), []);
    assert!(screen::text(&app).contains("Quit while etcd does not answer?"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter"), [], "Back has the focus");
    press(&mut app, "q");
    assert_eq!(press(&mut app, "y"), [Effect::Quit]);
}

/// An accidental Ctrl-Z must not give the leadership up; `q` needs a confirmation for it too.
#[test]
fn a_suspend_that_releases_the_lock_must_be_confirmed_by_a_second_key() {
    let mut app = World::usual().console(80, 24);
    assert_eq!(press(&mut app, "ctrl-z"), []);
    assert!(message(&app).contains("again suspends this console"), "{}", message(&app));
    assert_eq!(press(&mut app, "ctrl-z"), [Effect::Suspend]);
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(60.0))));
    assert_eq!(press(&mut app, "ctrl-z"), [], "after a minute it counts as a first press");
}

/// `q` closes what lies on top, as Esc does, and leaves only from a bare view. Ctrl-C always means to leave.
#[test]
fn q_closes_help_and_panes_before_it_quits() {
    let mut app = World::usual().console(80, 24);
    app.config.sandbox = true;
    assert_eq!(press(&mut app, "? q"), []);
    assert!(app.navigation.help.is_none(), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter"), []);
    assert!(app.navigation.pane.is_some() && screen::text(&app).contains("q close"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "q"), []);
    assert!(app.navigation.pane.is_none() && screen::text(&app).contains("q quit"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "q"), [], "it leads with work in progress");
    assert!(screen::text(&app).contains("Quit? The sandbox ends"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "y"), [Effect::Quit]);
}

/// Without work in progress, or with another engine that stands by, leaving harms nobody.
#[test]
fn q_asks_only_with_work_in_progress_and_no_other_engine() {
    for sandbox in [false, true] {
        let mut world = World::usual();
        let asks = |world: &World| {
            let mut app = world.console(80, 24);
            app.config.sandbox = sandbox;
            let quits = press(&mut app, "q") == [Effect::Quit];
            assert_eq!(quits, app.dialog.is_none());
            !quits
        };
        assert!(asks(&world), "two entries are in work");
        let second = cketerm_model::stored::view::Candidate {
            key: "/cke/leader//50".into(),
            lease: 80,
            host: "admin2".into(),
            create_revision: 21,
        };
        world.store.candidates.insert(21, second);
        assert!(!asks(&world), "another engine stands by");
        world.store.candidates.remove(&21);
        world.store.reboots.entries.clear();
        assert!(!asks(&world), "nothing is in progress");
        world.entry(5, "10.0.0.16", RebootStatus::Queued, 10, 32);
        assert!(asks(&world), "the batch goes on with what is queued");
        world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 70 };
        assert!(!asks(&world), "a disabled queue starts nothing");
    }
}

#[test]
fn q_goes_back_from_a_dialog_in_which_nothing_can_be_typed() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "q");
    assert!(app.dialog.is_some(), "this console leads and nobody stands by: {}", screen::text(&app));
    assert_eq!(press(&mut app, "q"), []);
    assert!(app.dialog.is_none());
}

/// The header counts the same lines in every view, and the key reaches each of them from every view.
#[test]
fn n_reaches_every_line_of_needs_you_from_every_view_and_wraps() {
    for view in ["0", "1", "2", "3", "7", "8", "9"] {
        let mut app = World::usual().console(80, 24);
        press(&mut app, view);
        let lines: Vec<Object> = app.knowledge.needs_you.iter().map(|line| line.object.clone()).collect();
        assert!(screen::text(&app).contains(&format!("{} need you (n)", lines.len())), "{view}");
        let mut reached = Vec::new();
        for _ in 0..=lines.len() {
            press(&mut app, "n");
            let target = app.target().unwrap_or_else(|| panic!("{view}: {}", screen::text(&app)));
            let at = lines.iter().position(|object| object.target() == Some(target.clone()));
            reached.push(at.unwrap_or_else(|| panic!("{view}: {target:?}")));
        }
        assert_eq!(reached[0], *reached.last().unwrap(), "{view}: it wraps around: {reached:?}");
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached.len(), lines.len(), "{view}: {reached:?}");
    }
    let mut app = World::usual().console(80, 24);
    press(&mut app, "9 n");
    assert_ne!(app.navigation.view, View::Logs);
    press(&mut app, "esc");
    assert_eq!(app.navigation.view, View::Logs, "Esc goes back to where the key was pressed");
    // a filter does not hide what the header counts
    let mut app = World::usual().console(80, 24);
    press(&mut app, "/ \"worker-2\" enter");
    for _ in 0..app.knowledge.needs_you.len() {
        press(&mut app, "n");
    }
    assert_eq!(app.lists.reboots.filter, "", "{}", screen::text(&app));
}

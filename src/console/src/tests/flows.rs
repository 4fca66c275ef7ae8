//! Tests of the effects of keys.

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind},
    names::{Address, NodeName},
    reason::{Awaited, Reason},
    reboot::RebootStatus,
    rights::{Area, Rights},
};

use super::world::{BOOT, World, at, press};
use crate::{
    input::update,
    state::{
        Target, View,
        event::{Action, Effect, Event},
        past::{ReadRequest, ReadResponse},
    },
    terminal::screen,
};

fn message(app: &crate::state::App) -> &str {
    app.session.message.as_ref().map_or("", |m| &m.text)
}

#[test]
fn a_blocked_drain_is_found_and_cancelled_in_fewer_than_ten_keys() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "0 n n");
    assert!(screen::text(&app).contains("pdb shop/web has 2, needs 2 "), "{}", screen::text(&app));
    press(&mut app, "enter");
    assert!(screen::text(&app).contains("shop/web-7d9f8b6c5-x2x4z  pdb shop/web (healthy 2, needs 2)"));
    let effects = press(&mut app, "X enter y");
    assert_eq!(effects, [Effect::Act(Action::Cancel { entries: vec![EntryId::reboot(3)], reason: None })]);
}

#[test]
fn enter_goes_to_the_button_and_a_second_one_presses_it_and_esc_closes_at_once() {
    for typed in ["", "\"wrong kernel\""] {
        let mut app = World::usual().console(80, 24);
        assert_eq!(press(&mut app, &format!("X {typed} enter")), []);
        assert!(screen::text(&app).contains("[>Cancel 1 reboot<]"), "{}", screen::text(&app));
        let reason = Some(typed.trim_matches('"').to_owned()).filter(|reason| !reason.is_empty());
        let action = Action::Cancel { entries: vec![EntryId::reboot(3)], reason };
        assert_eq!(press(&mut app, "enter"), [Effect::Act(action)]);
    }
    let mut app = World::usual().console(80, 24);
    assert_eq!(press(&mut app, "X esc"), []);
    assert!(app.dialog.is_none());
    assert_eq!(press(&mut app, "X \"half a reason\" esc"), []);
    assert!(app.dialog.is_none());
}

#[test]
fn a_dialog_expires_when_its_entry_changes() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "F");
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 0, 50);
    update(&mut app, Event::Seen(world.seen()));
    assert!(screen::text(&app).contains("EXPIRED: reboots/3 changed meanwhile (now rebooting)"));
    assert_eq!(press(&mut app, "y tab enter"), []);
    assert_eq!(press(&mut app, "esc A \"seen it\" enter y").len(), 1, "the next dialog uses the new revision");
}

#[test]
fn a_typed_reason_is_sent_with_the_action_and_triggers_no_keys() {
    let mut app = World::usual().console(80, 24);
    let effects = press(&mut app, "X \"yes quit\" enter tab");
    assert_eq!(effects, []);
    let effects = press(&mut app, "backtab backtab enter enter");
    let reason = Some("yes quit".to_owned());
    assert_eq!(effects, [Effect::Act(Action::Cancel { entries: vec![EntryId::reboot(3)], reason })]);
}

#[test]
fn reboots_are_added_from_marked_nodes_and_an_api_server_needs_typed_input() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 G space R");
    let effects = press(&mut app, "enter y");
    let addresses = vec![Address::new("10.0.0.18")];
    assert_eq!(effects, [Effect::Act(Action::AddReboots { addresses, reason: None })]);
    assert!(app.lists.nodes.marks.is_empty());

    press(&mut app, "g g space space R");
    assert!(screen::text(&app).contains("2 API servers among them"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter enter"), []);
    assert!(message(&app).contains("tokyo0 2"));
    let effects = press(&mut app, "\"tokyo0 2\" enter enter");
    let addresses = vec![Address::new("10.0.0.11"), Address::new("10.0.0.12")];
    assert_eq!(effects, [Effect::Act(Action::AddReboots { addresses, reason: None })]);
}

#[test]
fn more_than_twenty_machines_require_the_cluster_name_and_the_count() {
    let mut world = World::usual();
    for index in 20..35 {
        world.entry(index, "10.0.0.16", RebootStatus::Queued, 1, 60);
    }
    let mut app = world.console(80, 24);
    press(&mut app, "* X");
    assert_eq!(app.dialog.as_ref().map(|dialog| dialog.expect.clone()), Some(None), "20 need the button alone");
    world.entry(36, "10.0.0.16", RebootStatus::Queued, 1, 60);
    let mut app = world.console(80, 24);
    press(&mut app, "* X");
    assert_eq!(press(&mut app, "tab tab y"), [], "the focus moves to the missing field");
    let effects = press(&mut app, "\"tokyo0 21\" enter enter");
    assert!(
        matches!(&effects[..], [Effect::Act(Action::Cancel { entries, .. })] if entries.len() == 21),
        "{effects:?}"
    );
}

#[test]
fn reboots_are_not_added_from_the_queue() {
    let mut app = World::usual().console(80, 24);
    assert_eq!(press(&mut app, "R"), []);
    assert!(app.dialog.is_none() && message(&app).contains("press 2"));
}

#[test]
fn force_needs_a_reason_and_is_only_for_a_draining_entry() {
    let mut app = World::usual().console(80, 24);
    assert_eq!(press(&mut app, "F enter"), []);
    assert!(message(&app).contains("a reason is needed"));
    let effects = press(&mut app, "\"no more\" enter enter");
    let reason = Some("no more".to_owned());
    let order = Action::Order { entry: EntryId::reboot(3), verb: Verb::Force, seen: Some(30), reason };
    assert_eq!(effects, [Effect::Act(order)]);
    press(&mut app, "j F");
    assert!(message(&app).contains("force needs an entry that is queued or draining"), "{}", message(&app));
}

#[test]
fn e_and_y_disable_the_queue() {
    let mut app = World::usual().console(80, 24);
    assert_eq!(
        press(&mut app, "E enter y"),
        [Effect::Act(Action::Switch { queue: QueueKind::Reboot, enabled: false, reason: None })]
    );
    update(&mut app, Event::Done(Ok("the reboot queue is disabled".into())));
    assert!(screen::text(&app).contains("the reboot queue is disabled"));
}

#[test]
fn reset_backoff_needs_an_entry_in_backoff() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "B");
    assert!(message(&app).contains("nothing to reset"));
    assert_eq!(
        press(&mut app, "j j j B enter y"),
        [Effect::Act(Action::ResetBackoff { entries: vec![EntryId::reboot(6)], reason: None })]
    );
}

#[test]
fn keep_cordoned_needs_a_cordon_and_asks_like_every_verb() {
    let mut app = World::usual().console(80, 24);
    let keep = Action::KeepCordoned { node: NodeName::new("worker-1"), keep: true };
    assert_eq!(press(&mut app, "C enter"), [], "the focus begins on Back");
    assert_eq!((app.dialog.is_none(), message(&app)), (true, "no cordon was changed"));
    press(&mut app, "C");
    assert!(screen::text(&app).contains("Keep worker-1 cordoned?"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "y"), [Effect::Act(keep)]);
    assert_eq!(press(&mut app, "2 C"), []);
    assert!(message(&app).contains("cp-1 is not cordoned"));
}

#[test]
fn releasing_an_orphaned_cordon_orders_an_uncordon_for_its_entry() {
    let mut world = World::usual();
    let orphan = Reason::OrphanedCordon { node: "worker-4".into(), entry: EntryId::reboot(1) };
    world.orphans.insert(NodeName::new("worker-4"), orphan);
    let mut app = world.console(80, 24);
    let effects = press(&mut app, "2 / \"cordoned by\" enter U enter y");
    let order = Action::Order { entry: EntryId::reboot(1), verb: Verb::Uncordon, seen: None, reason: None };
    assert_eq!(effects, [Effect::Act(order)]);
}

#[test]
fn a_read_only_console_refuses_every_verb_and_says_why() {
    let mut app = World::usual().console(80, 24);
    app.config.read_only = true;
    for key in ["R", "X", "B", "E", "A", "D", "F", "C", "U"] {
        app.session.message = None;
        assert_eq!(press(&mut app, key), [], "{key}");
        assert!(app.dialog.is_none() && message(&app).contains("read-only"), "{key}");
    }
}

#[test]
fn missing_rights_are_reported_before_a_dialog_opens_and_checked_again() {
    let mut app = World::usual().console(100, 24);
    assert!(screen::text(&app).contains("X cancel"));
    let mut rights = Rights::default();
    rights.set_missing(
        Area::Reboots,
        "etcd does not let this user write the reboot queue: docs/etcd-roles.md".to_owned(),
    );
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Rights(rights.clone()))));
    let expected = [Effect::Ask(ReadRequest::Rights)];
    for key in ["X", "B", "E"] {
        app.session.message = None;
        assert_eq!(press(&mut app, key), expected, "{key}");
        assert!(app.dialog.is_none() && message(&app).contains("docs/etcd-roles.md"), "{key}");
    }
    assert!(!screen::text(&app).contains("X cancel"), "the footer offers only permitted actions");
    // orders need a separate permission
    assert_eq!(press(&mut app, "H"), []);
    assert!(app.dialog.is_some());
    press(&mut app, "esc");
    for area in Area::ALL {
        rights.set_missing(area, "no".to_owned());
    }
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Rights(rights))));
    app.session.message = None;
    assert!(screen::text(&app).contains("this etcd user is read-only"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, ": f r e e z e space 2 h space x enter"), expected);
    assert!(app.dialog.is_none() && message(&app) == "no");
    // the permission is granted meanwhile
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Rights(Rights::default()))));
    assert_eq!(press(&mut app, "X"), []);
    assert!(app.dialog.is_some());
}

#[test]
fn while_etcd_is_lost_rows_stay_with_a_banner_and_nothing_is_written() {
    let mut world = World::usual();
    world.store.error = Some("connection refused".into());
    let mut app = world.console(80, 24);
    press(&mut app, "X");
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(23.0))));
    assert_eq!(press(&mut app, "enter y"), [], "not even from a dialog opened before");
    let text = screen::text(&app);
    assert!(text.contains("! etcd lost, last heard 10:00:00Z, 23s ago") && text.contains("refused"), "{text}");
    assert!(text.contains("worker-1") && message(&app).contains("nothing is written"));
    world.store.last_seen = BOOT + Seconds::new(24.0);
    (world.store.error, world.boot) = (None, BOOT + Seconds::new(24.0));
    update(&mut app, Event::Seen(world.seen()));
    assert!(!screen::text(&app).contains("! etcd lost"));
}

#[test]
fn a_key_never_acts_on_the_neighbour_of_a_row_that_vanished() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "j");
    world.store.reboots.entries.remove(&4);
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(5)), "the next row");
    assert_eq!(
        press(&mut app, "X \"Disk: no y\" enter y"),
        [],
        "the X and its reason were meant for the entry that ended"
    );
    assert!(screen::text(&app).contains("the row under the cursor ended"));
    let effects = press(&mut app, "esc X enter y");
    assert_eq!(effects, [Effect::Act(Action::Cancel { entries: vec![EntryId::reboot(5)], reason: None })]);
    world.store.reboots.entries.remove(&5);
    update(&mut app, Event::Seen(world.seen()));
    press(&mut app, "enter");
    assert_eq!(app.target(), Some(Target::Entry(EntryId::reboot(6))), "Enter opens the next row");
    press(&mut app, "esc X");
    assert!(app.dialog.is_some(), "after its detail was opened, the row can be acted on");
    press(&mut app, "esc");
    world.entry(5, "10.0.0.16", RebootStatus::Queued, 900, 32);
    update(&mut app, Event::Seen(world.seen()));
    press(&mut app, "k");
    world.store.reboots.entries.remove(&5);
    update(&mut app, Event::Seen(world.seen()));
    press(&mut app, "/ \"worker-4\" enter");
    assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(6)));
}

#[test]
fn o_jumps_from_an_entry_to_its_node_and_back() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "j enter o");
    assert_eq!((app.navigation.view, app.target()), (View::Nodes, Some(Target::Node("worker-2".into()))));
    press(&mut app, "o");
    assert_eq!((app.navigation.view, app.target()), (View::Reboots, Some(Target::Entry(EntryId::reboot(4)))));
}

#[test]
fn the_filter_applies_while_it_is_typed_and_esc_restores_the_previous_one() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "/ \"pdb\"");
    assert_eq!(app.lists.reboots.rows, [EntryId::reboot(3), EntryId::reboot(6)]);
    press(&mut app, "enter / \"x\" esc");
    assert_eq!(app.lists.reboots.filter, "pdb");
    press(&mut app, "esc");
    assert_eq!(app.lists.reboots.rows.len(), 6);
    press(&mut app, "/ \"!queued\" enter");
    assert_eq!(app.lists.reboots.rows.len(), 4);
}

#[test]
fn quitting_asks_only_when_this_console_leads_without_a_standby() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    assert_eq!(press(&mut app, "q"), []);
    assert_eq!(press(&mut app, "n"), []);
    assert_eq!(press(&mut app, "q y"), [Effect::Quit]);
    // cancelled after the command: the leader still has to uncordon the node
    world.store.reboots.entries.clear();
    world.store.repairs.entries.clear();
    assert_eq!(press(&mut world.console(80, 24), "q"), [Effect::Quit]);
    let orphan = Reason::OrphanedCordon { node: "worker-4".into(), entry: EntryId::reboot(1) };
    world.orphans.insert(NodeName::new("worker-4"), orphan);
    let mut app = world.console(80, 24);
    assert_eq!(press(&mut app, "q"), []);
    assert!(screen::text(&app).contains("! 1 node stays cordoned"), "{}", screen::text(&app));
    world.engine.leading = None;
    assert_eq!(press(&mut world.console(80, 24), "q"), [Effect::Quit]);
}

#[test]
fn nothing_can_be_confirmed_on_a_screen_that_is_too_small() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "X");
    update(&mut app, Event::Resize(40, 10));
    assert_eq!(press(&mut app, "\"quick\" enter y"), [], "no key acts, not even the q of the reason");
    update(&mut app, Event::Resize(80, 24));
    assert_eq!(press(&mut app, "enter y").len(), 1);
}

#[test]
fn a_long_list_in_a_dialog_can_be_scrolled_to_its_end() {
    let mut app = World::usual().console(60, 15);
    press(&mut app, "2 * R");
    assert!(!screen::text(&app).contains("worker-5  10.0.0.18"));
    press(&mut app, "pgdn pgdn pgdn pgdn pgdn pgdn");
    assert!(screen::text(&app).contains("worker-5  10.0.0.18"), "{}", screen::text(&app));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(60))]
    #[test]
    fn random_keys_and_sizes_draw_and_never_act_without_confirmation(
        steps in proptest::collection::vec((0_usize..50, 0_u16..130, 0_u16..45), 1..40)
    ) {
        const KEYS: [&str; 40] = ["enter", "X", "R", "B", "E", "A", "D", "F", "U", "space", "*", "/", "n", "o", "tab", "1", "2",
            "j", "k", "pgdn", "pgup", "g", "d", "ctrl-d", "ctrl-u", "[", "]", "T", "G", "esc", "?", "q", "ctrl-l", "backtab", "r", "w", "4", "-", "left", "ctrl-c"];
        let world = World::usual();
        let mut app = world.console(80, 24);
        for (key, columns, rows) in steps {
            // Enter may confirm after Tab, because the focus is on the confirming button then
            let confirms = app.dialog.as_ref().is_some_and(|d| d.focus == crate::state::dialog::Focus::Confirm);
            match KEYS.get(key) {
                Some(name) => {
                    let acted = press(&mut app, name).iter().any(|e| matches!(e, Effect::Act(_)));
                    assert!(!acted || (confirms && *name == "enter"), "{name} acted");
                }
                None => drop(update(&mut app, Event::Resize(columns, rows))),
            }
            if app.size.width > 0 && app.size.height > 0 {
                screen::buffer(&app);
            }
        }
    }
}

#[test]
fn pasted_text_triggers_no_keys() {
    let mut app = World::usual().console(80, 24);
    assert_eq!(update(&mut app, Event::Paste("X y\r".into())), []);
    assert!(app.dialog.is_none());
    press(&mut app, "/");
    update(&mut app, Event::Paste("shop\u{1b}[2J".into()));
    assert!(!app.lists.reboots.filter.contains('\u{1b}'));
}

#[test]
fn the_message_of_a_running_action_stays_whatever_is_pressed() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "E enter y");
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(200.0))));
    press(&mut app, "j k");
    assert!(message(&app).contains("disabling"), "the action is still running");
    update(&mut app, Event::Done(Ok("the reboot queue is disabled".into())));
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(205.0))));
    assert!(message(&app).contains("is disabled"));
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(215.0))));
    assert!(message(&app).contains("is disabled"), "until a key does something");
    press(&mut app, "j");
    assert_eq!(app.session.message, None);
}

#[test]
fn letters_typed_on_the_buttons_go_to_the_reason_field() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "X enter \"disk 2 is gone, yes\"");
    assert!(screen::text(&app).contains("> reason (optional): disk 2 is gone, yes"), "{}", screen::text(&app));
    let effects = press(&mut app, "enter enter");
    let reason = Some("disk 2 is gone, yes".to_owned());
    assert_eq!(effects, [Effect::Act(Action::Cancel { entries: vec![EntryId::reboot(3)], reason })]);
}

/// The subcommand refuses it then, and so does the dialog.
#[test]
fn a_retry_is_not_offered_while_the_command_runs() {
    let mut world = World::usual();
    let mut attempt = world.store.attempts.values().next().unwrap().get().unwrap().clone();
    attempt.outcome = None;
    world.store.attempts.insert((EntryId::reboot(4), 1), super::world::stored("a", 43, attempt));
    let mut app = world.console(80, 24);
    press(&mut app, "j enter");
    assert!(!screen::text(&app).contains("A retry  D done (treat"), "{}", screen::text(&app));
    press(&mut app, "A");
    assert!(
        app.dialog.is_none() && message(&app).contains("the command of reboots/4 has run on admin1"),
        "{}",
        message(&app)
    );
    world.store.candidates.clear();
    let mut app = world.console(80, 24);
    press(&mut app, "j A");
    assert!(app.dialog.is_some(), "the candidate that ran the command no longer exists: {}", message(&app));
}

#[test]
fn a_done_order_that_waits_for_the_node_is_shown_in_its_row() {
    let mut world = World::usual();
    let since = super::world::wall();
    let why = Reason::WaitingForBoot { since, last: String::new(), stuck: false, awaited: Awaited::NodeReady };
    world.reasons.insert(EntryId::reboot(4), why);
    let app = world.console(200, 50);
    assert!(screen::text(&app).contains("marked done, but the Node is not Ready"), "{}", screen::text(&app));
}

//! Tests of undo: it is bound to what was written, and to what that replaced.

use cketerm_actions::HostAction;
use cketerm_clients::store::pages::Part;
use cketerm_model::{
    cketerm_records::Who, constraints::Constraints, entry::EntryId, freeze::Freeze, host::Mode, policy::Policy,
    reboot::RebootStatus, stored::view::Switch,
};

use super::{
    past::{page, timed},
    world::{World, message, press, stored, wall},
};
use crate::{
    input::update,
    state::{
        App,
        event::{Action, ActionOutcome, Effect, Event, Replaced},
        past::ReadResponse,
        undo::UndoAction,
    },
    terminal::screen,
};

fn refresh(app: &mut App, world: &World) {
    update(app, Event::Seen(world.seen()));
}

fn finish_action(app: &mut App, outcome: ActionOutcome) {
    update(app, Event::Done(Ok(outcome)));
}

/// The first write that appears in the snapshot is not necessarily this console's own.
#[test]
fn undo_is_refused_when_the_switch_was_overwritten_before_it_was_seen() {
    for (found, own) in [(71, true), (72, false)] {
        let mut world = World::usual();
        let mut app = world.console(80, 24);
        press(&mut app, "E enter y");
        finish_action(
            &mut app,
            ActionOutcome { written_revision: Some(71), ..ActionOutcome::from("the reboot queue is disabled") },
        );
        // an older value in etcd cannot be undone
        world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 70 };
        refresh(&mut app, &world);
        assert!(!app.can_undo());
        world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: found };
        refresh(&mut app, &world);
        press(&mut app, "u");
        assert_eq!(app.dialog.is_some(), own, "{found}: {}", screen::text(&app));
        let expected = if own { "undoes this console's action of 0s ago" } else { "has changed since" };
        assert!(screen::text(&app).contains(expected), "{}", screen::text(&app));
    }
}

#[test]
fn undo_restores_the_replaced_constraint_not_the_displayed_one() {
    let set = |n| Constraints { maximum_repair_queue_entries: n, ..Constraints::default() };
    for (replaced, back) in [(Some(7), Some("u sets it back to 7")), (Some(5), None), (None, None)] {
        let mut world = World::usual();
        world.store.constraints = Some(stored("c", 10, set(3)));
        let mut app = world.console(80, 24);
        press(&mut app, "S right right right right enter \"5\" enter enter y");
        let replaced = Some(Replaced::Constraint(replaced));
        finish_action(
            &mut app,
            ActionOutcome { written_revision: Some(12), replaced, ..ActionOutcome::from("it is 5") },
        );
        match back {
            Some(back) => assert!(message(&app).ends_with(back), "{}", message(&app)),
            None => assert_eq!(message(&app), "it is 5"),
        }
        // the same value, written by another client
        world.store.constraints = Some(stored("c", 13, set(5)));
        refresh(&mut app, &world);
        press(&mut app, "u");
        assert!(app.dialog.is_none(), "{}", screen::text(&app));
    }
}

#[test]
fn a_freeze_that_replaced_an_unseen_freeze_cannot_be_undone() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"freeze 2h deploy\" enter y");
    finish_action(&mut app, ActionOutcome { replaced: Some(Replaced::Freeze), ..ActionOutcome::from("frozen") });
    assert_eq!((message(&app), app.session.undo.is_none()), ("frozen", true));
    // a freeze that replaced nothing can be undone
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    let Some(Effect::Act(Action::Freeze { until, reason })) = press(&mut app, ": \"freeze 2h deploy\" enter y").pop()
    else {
        panic!("{}", screen::text(&app))
    };
    finish_action(&mut app, "frozen".into());
    let freeze = Some(Freeze { until, reason, who: Who::default(), unknown: serde_json::Map::new() });
    world.store.policy = Some(stored("p", 70, Policy { freeze, ..Policy::default() }));
    refresh(&mut app, &world);
    assert!(app.can_undo());
}

/// Queued reboots can be undone.
#[test]
fn undo_cancels_queued_reboots_that_have_not_begun() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "2 G R enter y");
    let queued = vec![EntryId::reboot(30), EntryId::reboot(31), EntryId::reboot(32)];
    finish_action(&mut app, ActionOutcome { queued, ..ActionOutcome::from("queued 3 reboots") });
    assert_eq!(message(&app), "queued 3 reboots; u cancels those that have not begun");
    assert!(!app.can_undo(), "the entries are not seen yet");
    world.entry(30, "10.0.0.18", RebootStatus::Queued, 10, 95);
    world.entry(31, "10.0.0.17", RebootStatus::Draining, 10, 96);
    world.entry(32, "10.0.0.13", RebootStatus::Queued, 10, 97);
    refresh(&mut app, &world);
    press(&mut app, "u");
    let text = screen::text(&app);
    assert!(text.contains("Cancel 2 reboots?") && text.contains("! left out, already begun: reboots/31"), "{text}");
    world.entry(32, "10.0.0.13", RebootStatus::Draining, 1, 98);
    refresh(&mut app, &world);
    let entries = vec![EntryId::reboot(30)];
    assert_eq!(press(&mut app, "enter y"), [Effect::Act(Action::Cancel { entries, reason: None })]);
}

/// Returns the lines of an open dialog that need no answer of Kubernetes: waves and the estimated end.
fn known(app: &App) -> Vec<String> {
    app.dialog.as_ref().and_then(|dialog| dialog.plan.as_ref()).map(|plan| plan.known.clone()).unwrap_or_default()
}

/// The undo of a cancel queues again what was queued: its confirmation shows the estimate that an add of the same
/// machines shows at the same time. The undo of an add cancels, and estimates nothing.
#[test]
fn an_undo_that_queues_again_shows_the_estimate_of_the_add() {
    let ended = || (0..20).map(|i| timed(i, 60 * i64::try_from(i).unwrap())).collect();
    let history = || Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page(ended(), false)))));
    // the cancelled entries may still be in the queue: the leader removes them in its next pass
    for removed in [true, false] {
        let mut world = World::usual();
        world.entry(30, "10.0.0.18", RebootStatus::Queued, 10, 95);
        let mut app = world.console(120, 40);
        update(&mut app, history());
        press(&mut app, "g g j j space G space X enter y");
        finish_action(
            &mut app,
            ActionOutcome {
                done: Some(vec![EntryId::reboot(5), EntryId::reboot(30)]),
                ..ActionOutcome::from("cancelled 2 reboots")
            },
        );
        for (index, address) in [(5, "10.0.0.16"), (30, "10.0.0.18")] {
            world.entry(index, address, RebootStatus::Cancelled, 10, 98);
            if removed {
                world.store.reboots.entries.remove(&index);
            }
            world.reasons.remove(&EntryId::reboot(index));
        }
        refresh(&mut app, &world);
        press(&mut app, "u");
        let again = known(&app);
        assert!(again.iter().any(|line| line.contains("like the last 20")), "{again:?} {}", screen::text(&app));
        press(&mut app, "esc");
        for names in [["worker-3", "worker-5"], ["worker-5", "worker-3"]] {
            app.dialog = crate::dialogs::add::of(&app, names.map(str::to_owned).to_vec()).ok();
            assert_eq!(known(&app), again, "{removed}");
            refresh(&mut app, &world);
            assert_eq!(known(&app), again, "{removed}: made again while the dialog is open");
        }
    }
    let mut world = World::usual();
    let mut app = world.console(120, 40);
    update(&mut app, history());
    press(&mut app, ": \"goto worker-5\" enter R enter y");
    let queued = vec![EntryId::reboot(30)];
    finish_action(&mut app, ActionOutcome { queued, ..ActionOutcome::from("queued 1 reboot") });
    world.entry(30, "10.0.0.18", RebootStatus::Queued, 10, 95);
    refresh(&mut app, &world);
    press(&mut app, "u");
    let text = screen::text(&app);
    assert!(text.contains("Cancel 1 reboot?") && !text.contains("like the last"), "{text}");
}

#[test]
fn undo_is_refused_when_all_queued_reboots_have_begun() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "2 G R enter y");
    finish_action(
        &mut app,
        ActionOutcome { queued: vec![EntryId::reboot(30)], ..ActionOutcome::from("queued 1 reboot") },
    );
    assert!(message(&app).ends_with("u cancels it, unless it has begun"), "{}", message(&app));
    world.entry(30, "10.0.0.18", RebootStatus::Queued, 10, 95);
    refresh(&mut app, &world);
    press(&mut app, "u");
    world.entry(30, "10.0.0.18", RebootStatus::Draining, 1, 96);
    refresh(&mut app, &world);
    assert!(screen::text(&app).contains("EXPIRED: they have begun or ended meanwhile"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter y esc u"), []);
    assert!(message(&app).contains("have begun or ended"), "{}", message(&app));
}

/// Undo must not wait for ever for an entry that began before it was seen.
#[test]
fn undo_does_not_wait_for_entries_that_began_before_they_were_seen() {
    for exists in [true, false] {
        let mut world = World::usual();
        let mut app = world.console(80, 24);
        press(&mut app, "2 G R enter y");
        finish_action(
            &mut app,
            ActionOutcome { queued: vec![EntryId::reboot(30)], ..ActionOutcome::from("queued 1 reboot") },
        );
        press(&mut app, "u");
        assert!(message(&app).contains("try again in a moment"), "{}", message(&app));
        if exists {
            world.entry(30, "10.0.0.18", RebootStatus::Draining, 1, 96);
        }
        world.store.reboots.write_index = Ok(31);
        refresh(&mut app, &world);
        press(&mut app, "u");
        assert!(message(&app).contains("have begun or ended"), "{exists}: {}", message(&app));
    }
}

#[test]
fn undo_releases_a_host_that_was_held_off() {
    let world = World::with_hosts();
    let mut app = world.console(80, 24);
    let hold = |host: &str| {
        let action = Some(HostAction::Hold(Mode::Soft));
        Action::Hosts { hosts: vec![(host.to_owned(), "uid".to_owned())], action, reason: None }
    };
    assert_eq!(UndoAction::of(&app, &hold("metal3/m2")), None, "the host was held before");
    let undo_action = UndoAction::of(&app, &hold("metal3/m1")).unwrap();
    app.session.pending_undo = Some(undo_action);
    app.session.busy = 1;
    finish_action(&mut app, "metal3/m1 is held off".into());
    assert!(message(&app).ends_with("; u releases it"), "{}", message(&app));
    assert!(!app.can_undo(), "the hold is not seen yet");
    let mut world = world;
    let id = ("metal3".to_owned(), "m1".to_owned());
    let mut off = cketerm_model::host::HostRow::clone(&world.kube.hosts[&id]);
    off.asked.keys.insert("cketerm".into(), format!("{{\"mode\":\"soft\",\"by\":\"a@b\",\"since\":\"{}\"}}", wall()));
    world.kube.hosts.insert(id, std::sync::Arc::new(off));
    refresh(&mut app, &world);
    press(&mut app, "u");
    assert!(screen::text(&app).contains("Release metal3/m1?"), "{}", screen::text(&app));
}

/// The newest write was this console's, but the queue had been disabled by another operator before.
#[test]
fn undo_does_not_enable_a_queue_that_was_already_disabled() {
    for (replaced, undo_action) in [(None, true), (Some(Replaced::Off), false)] {
        let mut world = World::usual();
        let mut app = world.console(80, 24);
        press(&mut app, "E enter y");
        finish_action(
            &mut app,
            ActionOutcome {
                written_revision: Some(72),
                replaced,
                ..ActionOutcome::from("the reboot queue is disabled")
            },
        );
        assert_eq!(
            (message(&app).contains("u enables it again"), app.session.undo.is_some()),
            (undo_action, undo_action)
        );
        world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 72 };
        refresh(&mut app, &world);
        press(&mut app, "u");
        assert_eq!(app.dialog.is_some(), undo_action, "{}", screen::text(&app));
    }
}

/// A failure for one entry must not remove the undo of the others.
#[test]
fn a_partly_failed_action_can_be_undone_for_the_successful_part() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "j j space j j space X enter y");
    let done = Some(vec![EntryId::reboot(5)]);
    finish_action(
        &mut app,
        ActionOutcome {
            done,
            partial: true,
            ..ActionOutcome::from("cancelled reboots/5, 1 of 2; 1 failed: no answer")
        },
    );
    let message = app.session.message.as_ref().unwrap();
    assert!(message.failed && message.text.ends_with("u queues 1 reboot again"), "{}", message.text);
    world.store.reboots.entries.remove(&5);
    refresh(&mut app, &world);
    press(&mut app, "u");
    let text = screen::text(&app);
    assert!(text.contains("worker-3") && !text.contains("cp-1 "), "{text}");
    // all of them had ended before
    let mut app = World::usual().console(80, 24);
    press(&mut app, "j j X enter y");
    finish_action(
        &mut app,
        ActionOutcome { done: Some(Vec::new()), ..ActionOutcome::from("already ended: reboots/5") },
    );
    assert!(app.session.undo.is_none());
}

//! Batches in Reboots and Repairs: their table, their verbs, and the way to their entries.

use cketerm_model::{
    batch::{Batch, BatchEnds, BatchId, Paused},
    cketerm_records::{EndKind, Request, Who},
    entry::{EntryId, QueueKind},
    time::after,
};

use super::world::{World, message, press, stored, wall};
use crate::{
    input::update,
    state::{
        App, View,
        event::{Action, BatchAction, Effect, Event},
    },
    terminal::screen,
};

fn who(user: &str) -> Who {
    Who { user: user.into(), host: "admin1".into(), ssh_client: None }
}

fn batch(ago: i64, user: &str, reason: &str, added: u64) -> (BatchId, Batch) {
    let at = after(wall(), -ago);
    let batch = Batch { added, ..Batch::new(QueueKind::Reboot, who(user), at, Some(reason.into()), added) };
    (BatchId::at(at), batch)
}

/// The usual entries in two batches, and an older batch that has ended.
fn world(paused: bool) -> (World, [BatchId; 3]) {
    let mut world = World::usual();
    let (old, mut ended) = batch(86_400, "bob", "BIOS", 9);
    (ended.ends, ended.ended) = (BatchEnds { done: 8, failed: 0, withdrawn: 1 }, Some(after(wall(), -80_000)));
    let (kernel, mut running) = batch(900, "alice", "kernel 6.12", 40);
    running.ends.done = 34;
    if paused {
        let reason = Some("budget shop/cart".to_owned());
        running.paused = Some(Paused { who: who("carol"), at: after(wall(), -60), reason });
    }
    let (late, mut interrupted) = batch(300, "alice", "CHG-7", 2);
    interrupted.asked = 5;
    for (id, batch) in [(old, ended), (kernel, running), (late, interrupted)] {
        world.store.batches.insert(id, stored("/cke/cketerm/batches/x", 20, batch));
    }
    for (index, id) in [(3, kernel), (4, kernel), (5, kernel), (7, kernel), (6, late), (8, late)] {
        let request = Request { who: who("alice"), at: wall(), reason: None, node_uid: None, batch: Some(id) };
        world.store.requests.insert(EntryId::reboot(index), stored("/cke/cketerm/requests/x", 20, request));
    }
    for index in [1, 2] {
        world.store.batch_ends.insert((kernel, EntryId::reboot(index)), stored("/cke/x", 20, EndKind::Booted));
    }
    (world, [old, kernel, late])
}

fn batches(paused: bool) -> (App, [BatchId; 3]) {
    let (world, ids) = world(paused);
    let mut app = world.console(120, 24);
    press(&mut app, "v");
    (app, ids)
}

#[test]
fn v_shows_the_batches_newest_first_with_their_progress() {
    let (app, [old, kernel, late]) = batches(true);
    insta::assert_snapshot!(screen::text(&app));
    let text = screen::text(&app);
    let places = [late, kernel, old].map(|id| text.find(&id.to_string()).unwrap());
    assert!(places.is_sorted(), "{text}");
    for words in ["█████████▓ 36/40", "paused by carol@admin1 (budget shop/cart); k", "only 2 of 5 added; CHG-7", "8/8"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_batches_of_the_other_queue_are_not_shown() {
    let (mut app, _) = batches(false);
    press(&mut app, "3");
    assert_eq!(app.navigation.view, View::Repairs);
    assert!(screen::text(&app).contains("there are no batches"), "{}", screen::text(&app));
}

#[test]
fn enter_shows_the_entries_of_a_batch_and_esc_leads_back() {
    let (mut app, [_, kernel, _]) = batches(false);
    press(&mut app, "j enter");
    assert_eq!(app.lists.reboots.filter, format!("batch:{kernel}"));
    assert_eq!(app.lists.reboots.rows.iter().map(|id| id.index).collect::<Vec<_>>(), [3, 4, 5, 7]);
    press(&mut app, "esc");
    assert!(app.navigation.shows_batches() && app.lists.reboots.filter.is_empty());
    assert_eq!(app.lists.batches.cursor.map(|id| id.0), Some(kernel));
    press(&mut app, "v");
    assert!(!app.navigation.shows_batches());
    assert_eq!(app.lists.reboots.rows.len(), 6);
}

#[test]
fn a_batch_is_paused_resumed_and_cancelled_as_a_whole() {
    let expected = |what, id| {
        let (queue, batches, reason) = (QueueKind::Reboot, vec![id], Some("T-1".to_owned()));
        [Effect::Act(Action::Batches { queue, batches, what, reason })]
    };
    let (mut app, [_, kernel, _]) = batches(false);
    press(&mut app, "j H");
    let text = screen::text(&app);
    assert!(text.contains(&format!("Pause batch {kernel}?")), "{text}");
    assert!(text.contains("2 queued do not start") && text.contains("2 in work finish"), "{text}");
    assert_eq!(press(&mut app, "\"T-1\" enter enter"), expected(BatchAction::Pause, kernel));
    press(&mut app, "L");
    assert!(message(&app).contains("is not paused"), "{}", message(&app));

    let (mut app, [_, kernel, _]) = batches(true);
    press(&mut app, "j H");
    assert!(message(&app).contains("cannot be paused"), "{}", message(&app));
    assert_eq!(press(&mut app, "L \"T-1\" enter enter"), expected(BatchAction::Resume, kernel));
    press(&mut app, "X");
    let text = screen::text(&app);
    assert!(text.contains(&format!("Cancel 4 entries of batch {kernel}?")), "{text}");
    assert!(text.contains("a running command continues"), "{text}");
    assert_eq!(press(&mut app, "\"T-1\" enter enter"), expected(BatchAction::Cancel, kernel));
}

#[test]
fn verbs_for_entries_do_nothing_to_a_batch() {
    let (mut app, _) = batches(false);
    for key in ["F", "A", "D", "B", "R"] {
        assert_eq!(press(&mut app, key), [], "{key}");
        assert!(app.dialog.is_none(), "{key}: {}", screen::text(&app));
    }
}

#[test]
fn a_batch_that_has_ended_cannot_be_changed() {
    let (mut app, _) = batches(false);
    press(&mut app, "G X");
    assert!(message(&app).contains("has no open entry"), "{}", message(&app));
    press(&mut app, "H");
    assert!(message(&app).contains("cannot be paused"), "{}", message(&app));
}

#[test]
fn filters_know_the_batch_of_an_entry_and_the_state_of_a_batch() {
    let (world, [_, _, late]) = world(true);
    let mut app = world.console(120, 24);
    press(&mut app, &format!("/ \"batch:{late}\" enter"));
    assert_eq!(app.lists.reboots.rows.iter().map(|id| id.index).collect::<Vec<_>>(), [6, 8]);
    press(&mut app, "esc v / \"state:paused\" enter");
    assert_eq!(app.lists.batches.rows.len(), 1);
}

/// Progress records change all the time; the sums are made again only if a queue or a batch changed.
#[test]
fn sums_of_batches_follow_the_queues() {
    let (mut world, [_, kernel, _]) = world(false);
    let mut app = world.console(120, 24);
    let totals = |app: &App| app.knowledge.batches.get(kernel).unwrap().totals;
    assert_eq!((totals(&app).queued, totals(&app).in_work, totals(&app).done()), (2, 2, 36));
    world.store.reboots.entries.remove(&4);
    world.store.batch_ends.insert((kernel, EntryId::reboot(4)), stored("/cke/x", 21, EndKind::Booted));
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!((totals(&app).queued, totals(&app).in_work, totals(&app).done()), (2, 1, 37));
    let open: Vec<BatchId> = app.knowledge.batches.open().map(|batch| batch.id).collect();
    assert_eq!((open.len(), open[0]), (2, kernel), "oldest first");
}

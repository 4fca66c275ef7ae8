//! Batches in Reboots and Repairs: their table, their verbs, and the way to their entries.

use cketerm_model::{
    batch::{Batch, BatchEnds, BatchId, Paused},
    cketerm_records::{EndKind, Request, Who},
    entry::{EntryId, QueueKind},
    reason::Reason,
    reboot::RebootStatus,
    time::after,
};

use super::world::{World, message, press, stored, wall};
use crate::{
    input::update,
    state::{
        App, View,
        event::{Action, BatchAction, Effect, Event},
        overview::OverviewRow,
        racks::State,
    },
    terminal::screen,
};

pub(super) fn who(user: &str) -> Who {
    Who { user: user.into(), host: "admin1".into(), ssh_client: None }
}

fn batch(ago: i64, user: &str, reason: &str, added: u64) -> (BatchId, Batch) {
    let at = after(wall(), -ago);
    let batch = Batch { added, ..Batch::new(QueueKind::Reboot, who(user), at, Some(reason.into()), added) };
    (BatchId::at(at), batch)
}

/// The usual entries in two batches, and an older batch that has ended.
pub(super) fn world(paused: bool) -> (World, [BatchId; 3]) {
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
    for words in ["█████████▓ 36/40", "paused by carol@admin1 (budget shop/cart);~", "only 2 of 5 added; CHG-7", "8/9"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// The choice of one queue's view changed what the other one showed.
#[test]
fn each_queue_keeps_its_own_choice_between_batches_and_entries() {
    let (mut app, [_, kernel, _]) = batches(false);
    press(&mut app, "3");
    assert_eq!(app.navigation.view, View::Repairs);
    assert!(screen::text(&app).contains("the repair queue is empty"), "{}", screen::text(&app));
    press(&mut app, "v");
    assert!(screen::text(&app).contains("there are no batches"), "{}", screen::text(&app));
    press(&mut app, "2 1");
    assert!(app.navigation.shows_batches(), "Reboots showed its batches before");
    press(&mut app, "j enter");
    assert_eq!(app.lists.reboots.filter, format!("batch:{kernel}"));
    press(&mut app, "3");
    assert!(screen::text(&app).contains("there are no batches"), "Enter in Reboots: {}", screen::text(&app));
    press(&mut app, "1");
    assert!(!app.navigation.shows_batches() && app.lists.reboots.rows.len() == 4, "{}", screen::text(&app));
    press(&mut app, "1 3 3");
    assert!(screen::text(&app).contains("the repair queue is empty"), "its key leaves the batches");
}

/// A filter that is typed for the batches of one queue is not one for those of the other queue.
#[test]
fn each_queue_filters_its_own_batches() {
    let (mut app, _) = batches(true);
    press(&mut app, "/ \"state:paused\" enter 3 v");
    assert_eq!(app.list().filter(), "");
    press(&mut app, "1");
    assert_eq!((app.list().filter(), app.list().counts().0), ("state:paused", 1));
}

/// The row said `L resume`, the footer `L unhold`.
#[test]
fn the_key_that_ends_a_pause_has_one_word() {
    let (mut app, _) = batches(true);
    press(&mut app, "j");
    let footer = |app: &App| screen::text(app).lines().last().unwrap_or_default().to_owned();
    assert!(footer(&app).contains("L resume"), "{}", footer(&app));
    let (world, [_, kernel, _]) = world(true);
    for object in [false, true] {
        let mut app = world.console_in(View::Overview, 120, 36);
        let is_batch = |row: &OverviewRow| row.batch() == Some(kernel);
        let is_needs = |row: &OverviewRow| matches!(row, OverviewRow::NeedsYou(_));
        for _ in 0..30 {
            if app.lists.overview_rows.cursor.as_ref().is_some_and(|row| is_batch(row) && is_needs(row) == object) {
                break;
            }
            press(&mut app, "j");
        }
        assert!(app.lists.overview_rows.cursor.as_ref().is_some_and(is_batch), "{}", screen::text(&app));
        assert!(footer(&app).contains("L resume") && !footer(&app).contains("unhold"), "{}", screen::text(&app));
    }
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
    // what stops work is bound to no revision, what ends a pause or cancels is bound to the one that was shown
    let expected = |what, id| {
        let shown = (what != BatchAction::Pause).then_some(20);
        let (queue, batches, reason) = (QueueKind::Reboot, vec![(id, shown)], Some("T-1".to_owned()));
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
    for key in ["F", "A", "D", "R"] {
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

/// Adds 25 queued entries to a batch.
fn grow(world: &mut World, id: BatchId) {
    for index in 100..125 {
        world.entry(index, "10.0.0.16", RebootStatus::Queued, 1, 60);
        let request = Request { who: who("alice"), at: wall(), reason: None, node_uid: None, batch: Some(id) };
        world.store.requests.insert(EntryId::reboot(index), stored("/cke/cketerm/requests/x", 60, request));
    }
}

/// Lets CKE lead: its key is there without a registration.
fn cke_leads(world: &mut World) {
    world.store.engines.clear();
    world.engine.leading = None;
}

#[test]
fn a_cancel_shows_and_counts_the_entries_that_a_batch_has_now() {
    let (mut world, [_, kernel, _]) = world(false);
    let mut app = world.console(120, 24);
    press(&mut app, "v j X \"T-1\" enter");
    grow(&mut world, kernel);
    update(&mut app, Event::Seen(world.seen()));
    let text = screen::text(&app);
    assert!(text.contains(&format!("Cancel 29 entries of batch {kernel}?")), "{text}");
    assert!(text.contains("27 queued and 2 in work"), "{text}");
    assert_eq!(press(&mut app, "enter"), [], "29 entries need the phrase");
    let dialog = app.dialog.clone().unwrap();
    assert_eq!(dialog.reason.value(), "T-1");
    assert!(dialog.expect.is_some_and(|phrase| phrase.ends_with(" 29")));
    // entries that end while the phrase is typed do not change it
    world.store.reboots.entries.remove(&100);
    update(&mut app, Event::Seen(world.seen()));
    let dialog = app.dialog.clone().unwrap();
    assert!(dialog.verb.starts_with("Cancel 28 ") && dialog.expect.is_some_and(|phrase| phrase.ends_with(" 29")));
    for index in world.store.requests.keys().copied().collect::<Vec<_>>() {
        world.store.reboots.entries.remove(&index.index);
    }
    update(&mut app, Event::Seen(world.seen()));
    assert!(app.dialog.as_ref().is_some_and(|dialog| dialog.expired.is_some()), "{}", screen::text(&app));
}

#[test]
fn a_resume_is_bound_to_the_pause_that_was_shown() {
    let (mut world, [_, kernel, _]) = world(true);
    let mut app = world.console(120, 24);
    press(&mut app, "v j L \"T-1\"");
    let mut again = world.store.batches[&kernel].get().unwrap().clone();
    again.paused = Some(Paused { who: who("bob"), at: wall(), reason: Some("fire".into()) });
    world.store.batches.insert(kernel, stored("/cke/cketerm/batches/x", 61, again));
    update(&mut app, Event::Seen(world.seen()));
    assert!(screen::text(&app).contains("EXPIRED"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter enter y"), []);
}

#[test]
fn a_resume_of_many_machines_needs_the_phrase() {
    let (mut world, [_, kernel, _]) = world(true);
    grow(&mut world, kernel);
    let mut app = world.console(120, 24);
    press(&mut app, "v j L");
    let expect = app.dialog.as_ref().and_then(|dialog| dialog.expect.clone()).unwrap();
    assert!(expect.ends_with(" 27"), "{expect}");
    assert_eq!(press(&mut app, "\"T-1\" enter enter y"), []);
}

/// CKE starts the machines of a paused batch: no screen says that they wait.
#[test]
fn a_pause_that_cke_does_not_know_is_shown_as_not_in_force() {
    let (mut world, [_, kernel, _]) = world(true);
    let by = "carol@admin1".to_owned();
    let reason = Reason::BatchPaused { batch: kernel, by, since: wall(), why: None };
    world.reasons.insert(EntryId::reboot(5), reason);
    let app = world.console_in(View::Overview, 120, 40);
    let text = screen::text(&app);
    assert!(text.contains("PAUSED by carol") && text.contains("paused by carol"), "{text}");
    let name = app.seen.snapshot.machine(&cketerm_model::names::Address::new("10.0.0.16"));
    assert_eq!(State::of(&app, &name), State::Held, "its batch is paused");

    cke_leads(&mut world);
    let mut app = world.console_in(View::Overview, 120, 40);
    let text = screen::text(&app);
    assert!(!text.contains("PAUSED") && text.contains("the pauses of batches NOT IN FORCE"), "{text}");
    assert_eq!(State::of(&app, &name), State::Queued);
    press(&mut app, "1 v");
    let text = screen::text(&app);
    assert!(text.contains("NOT IN FORCE: paused by carol@admin1"), "{text}");
    press(&mut app, "/ \"state:paused\" enter");
    assert!(app.lists.batches.rows.is_empty(), "{}", screen::text(&app));
}

/// `B` said that no chosen entry has a backoff, although one of the batch's entries had.
#[test]
fn a_reset_of_backoffs_is_about_the_entries_of_the_batches() {
    let (app, [_, kernel, late]) = batches(false);
    assert!(screen::text(&app).contains(&late.to_string()));
    let (world, _) = world(false);
    let mut app = world.console(120, 24);
    // the newest batch has reboots/6, which backs off
    press(&mut app, "v B");
    assert!(screen::text(&app).contains("Reset the backoff of 1 reboot?"), "{}", screen::text(&app));
    let effects = press(&mut app, "\"budget is fixed\" enter enter");
    let reset = Action::ResetBackoff { entries: vec![EntryId::reboot(6)], reason: Some("budget is fixed".into()) };
    assert_eq!(effects, [Effect::Act(reset)]);
    press(&mut app, "j B");
    let expected = format!("no entry of batch {kernel} has a backoff");
    assert!(app.dialog.is_none() && message(&app).contains(&expected), "{}", message(&app));
}

//! Tests of the Overview's progress: batches, estimated ends, judged work, and racks of large clusters.

use cketerm_clients::store::pages::Part;
use cketerm_model::{
    batch::{Batch, BatchId, Paused},
    boot_time::Seconds,
    cketerm_records::{Request, Who},
    entry::{EntryId, QueueKind, Stored},
    kube::NodeRow,
    names::NodeName,
    policy::Policy,
    reason::Reason,
    reboot::RebootStatus,
    time::after,
};
use insta::assert_snapshot;

use super::{
    past::{page, timed},
    world::{BOOT, World, at, press, stored, wall},
};
use crate::{
    input::update,
    keys::Command,
    state::{
        App, View,
        event::{Action, BatchAction, Effect, Event},
        object::Object,
        overview::OverviewRow,
        past::ReadResponse,
        racks::State,
    },
    terminal::screen,
    theme::Severity,
    views,
};

fn who(user: &str) -> Who {
    Who { user: user.into(), host: "admin1".into(), ssh_client: None }
}

/// Reads a history of twenty reboots: drain 60s, boot 118s.
fn load_usual(app: &mut App) {
    let ended = (0..20).map(|i| timed(i, 60 * i64::try_from(i).unwrap())).collect();
    update(app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page(ended, false))))));
}

fn overview(world: &World, columns: u16, rows: u16) -> App {
    let mut app = world.console_in(View::Overview, columns, rows);
    load_usual(&mut app);
    app
}

/// A world whose entries belong to batches: the entries in work to the first, two queued ones to the next, and so on. The
/// last entry has no batch.
fn with_batches(batches: usize, paused: Option<usize>) -> (World, Vec<BatchId>) {
    let mut world = World::usual();
    world.store.reboots.entries.remove(&8);
    world.reasons.remove(&EntryId::reboot(8));
    let mut ids = Vec::new();
    for n in 0..batches {
        let ago = 3000 - i64::try_from(n).unwrap() * 60;
        let reason = Some(if n == 0 { "kernel 6.6.74, CHG-1042".to_owned() } else { format!("BIOS {n}") });
        let added = if n == 0 { 37 } else { 2 };
        let at = after(wall(), -ago);
        let mut batch = Batch { added, ..Batch::new(QueueKind::Reboot, who("alice"), at, reason, added) };
        batch.ends.done = if n == 0 { 34 } else { 0 };
        if paused == Some(n) {
            batch.paused = Some(Paused { who: who("carol"), at: after(wall(), -60), reason: Some("budget".into()) });
        }
        let id = BatchId::at(batch.at);
        world.store.batches.insert(id, stored("/cke/cketerm/batches/x", 20, batch));
        ids.push(id);
    }
    let add = |world: &mut World, index: u64, batch: Option<BatchId>| {
        let request = Request { who: who("alice"), at: wall(), reason: None, node_uid: None, batch };
        world.store.requests.insert(EntryId::reboot(index), stored("/cke/cketerm/requests/x", 20, request));
    };
    for index in [3, 4, 5] {
        add(&mut world, index, ids.first().copied());
    }
    for (n, id) in ids.iter().enumerate().skip(1) {
        for place in 0..2 {
            let index = 20 + 2 * n as u64 + place;
            world.entry(index, &format!("10.0.1.{index}"), RebootStatus::Queued, 600, 60);
            let holder = Some(EntryId::reboot(3));
            world.reasons.insert(EntryId::reboot(index), Reason::WaitingForSlot { holder, limit: 2, ahead: false });
            add(&mut world, index, Some(*id));
        }
    }
    (world, ids)
}

#[test]
fn several_batches_have_a_panel_or_a_line_each() {
    for (columns, rows, batches) in [(120, 36, 2), (80, 24, 2), (80, 24, 6), (60, 20, 2), (200, 50, 6)] {
        let (world, _) = with_batches(batches, Some(1));
        let mut app = overview(&world, columns, rows);
        assert_snapshot!(format!("batches_{batches}_{columns}x{rows}"), screen::text(&app));
        views::check_overview_rows(&app);
        app.config.blocks = true;
        let text = screen::text(&app);
        assert!(text.contains("without a batch") || batches == 6, "{text}");
        assert!(text.contains("PAUSED") || batches == 6, "{text}");
    }
    // too many for the screen: the rest is counted
    let (world, _) = with_batches(6, None);
    let text = screen::text(&overview(&world, 80, 24));
    assert!(text.contains("more batches"), "{text}");
}

/// All entries are of one batch: its counts are exact, even before the history was read.
#[test]
fn a_single_batch_is_the_queue() {
    let (mut world, ids) = with_batches(1, None);
    for index in [6, 7] {
        let request = Request { who: who("alice"), at: wall(), reason: None, node_uid: None, batch: Some(ids[0]) };
        world.store.requests.insert(EntryId::reboot(index), stored("/cke/cketerm/requests/x", 20, request));
    }
    let app = world.console_in(View::Overview, 120, 36);
    let text = screen::text(&app);
    assert!(text.contains("Reboots: kernel 6.6.74, CHG-1042, asked by alice 09:10"), "{text}");
    assert!(text.contains("34 done  2 in work  2 queued  1 backing off"), "{text}");
}

#[test]
fn a_paused_batch_needs_you_and_its_keys_act_on_it() {
    let (world, ids) = with_batches(3, Some(1));
    let mut app = overview(&world, 120, 36);
    let object = Object::Batch(QueueKind::Reboot, ids[1]);
    let line = app.knowledge.needs_you.iter().find(|line| line.object == object).unwrap();
    assert_eq!(line.what, "paused by carol (budget): 2 queued");
    assert_eq!(line.keys(&app), [Command::Unhold, Command::Cancel]);
    while app.lists.overview_rows.cursor != Some(OverviewRow::NeedsYou(object.clone())) {
        press(&mut app, "n");
    }
    assert!(screen::text(&app).contains("L resume"), "{}", screen::text(&app));
    let effects = press(&mut app, "L enter enter");
    let (batches, what) = (vec![(ids[1], Some(20))], BatchAction::Resume);
    let expected = Action::Batches { queue: QueueKind::Reboot, batches, what, reason: None };
    assert_eq!(effects, [Effect::Act(expected)]);
    // Enter opens the table of the batches on it
    press(&mut app, "enter");
    assert!(app.navigation.shows_batches());
    assert_eq!(app.lists.batches.cursor.map(|id| id.0), Some(ids[1]));
    press(&mut app, "esc");
    assert_eq!(app.navigation.view, View::Overview);
    // the line of a running batch pauses it
    while app.lists.overview_rows.cursor != Some(OverviewRow::Batch(QueueKind::Reboot, ids[0])) {
        press(&mut app, "j");
    }
    press(&mut app, "H");
    assert!(screen::text(&app).contains("Pause"), "{}", screen::text(&app));
}

#[test]
fn the_end_stands_in_the_title_in_the_table_of_batches_and_in_an_entrys_detail() {
    let (world, _) = with_batches(2, None);
    let mut app = overview(&world, 160, 36);
    let text = screen::text(&app);
    assert!(text.contains("moving  all but 1 done "), "{text}");
    press(&mut app, "1 v");
    let text = screen::text(&app);
    assert!(text.contains("ETA") && (text.contains("10:0") || text.contains("between")), "{text}");
    press(&mut app, "v");
    press(&mut app, "home enter");
    let text = screen::text(&app);
    let line = text.lines().find(|line| line.contains("batch ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("CHG-1042") && line.contains("34/37 done") && line.contains(", done "), "{line}");
}

#[test]
fn work_that_is_slower_than_usual_is_marked_and_later_needs_you() {
    let mut world = World::usual();
    world.store.policy = Some(stored("/cke/cketerm/policy", 6, Policy { stuck_seconds: 600, ..Policy::default() }));
    let mut app = overview(&world, 120, 36);
    let line = |app: &App| {
        let text = screen::text(app);
        let is_work = |line: &&str| line.contains("worker-2") && line.contains("rebooting ");
        text.lines().find(is_work).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    assert!(
        line(&app).contains("###----- ") || line(&app).contains("##------"),
        "a third of the usual: {}",
        line(&app)
    );
    assert!(line(&app).contains(" 39s, usual 1m58s ") && !line(&app).contains(Severity::Slow.sign()), "{}", line(&app));
    world.boot = BOOT + Seconds::new(300.0);
    world.store.last_seen = world.boot;
    update(&mut app, Event::Seen(world.seen()));
    assert!(line(&app).contains("###=====") || line(&app).contains("##======"), "{}", line(&app));
    assert!(line(&app).contains(" 5m, usual 1m58s "), "{}", line(&app));
    assert!(
        line(&app).contains(Severity::Slow.sign()) && !app.knowledge.needs_you.iter().any(|n| n.name == "worker-2"),
        "{}",
        line(&app)
    );
    world.boot = BOOT + Seconds::new(700.0);
    world.store.last_seen = world.boot;
    update(&mut app, Event::Seen(world.seen()));
    let slow = app.knowledge.needs_you.iter().find(|n| n.name == "worker-2").unwrap();
    assert_eq!((slow.what.as_str(), slow.severity()), ("boot slower than usual (1m58s)", Severity::Slow));
    assert_eq!(slow.since, Some(after(wall(), -39)));
}

/// A field is shown whole or not at all.
#[test]
fn no_field_of_the_progress_is_cut() {
    for columns in [60, 66, 72, 80, 90, 100, 112, 120, 140, 200] {
        let app = overview(&World::usual(), columns, 30);
        let text = screen::text(&app);
        let at = text.lines().position(|line| line.contains("Reboots: ")).unwrap();
        for line in text.lines().skip(at + 1).take(2) {
            assert!(!line.contains('~') || line.contains(" ~ "), "{columns}: {line}");
        }
    }
    let app = overview(&World::usual(), 120, 36);
    assert!(screen::text(&app).contains("slots 2/1, limit lowered"), "{}", screen::text(&app));
}

#[test]
fn the_rows_of_the_overview_belong_to_its_lines_at_every_size() {
    for (columns, rows) in [(60, 15), (60, 20), (80, 24), (100, 30), (120, 36), (160, 40), (200, 50)] {
        for world in [World::usual(), World::with_repairs(), with_batches(3, None).0, with_batches(6, Some(0)).0] {
            views::check_overview_rows(&overview(&world, columns, rows));
            views::check_overview_rows(&world.console_in(View::Overview, columns, rows));
        }
    }
}

/// In a large cluster each machine has no place on the screen, but each rack has.
#[test]
fn the_racks_of_a_large_cluster_are_counted() {
    let mut world = World::usual();
    for i in 0..3000 {
        let row = NodeRow {
            name: NodeName::new(format!("node-{i:04}")),
            ready: i != 77,
            shown_labels: vec![("topology.kubernetes.io/rack".into(), format!("rack-{}", i / 30))],
            ..NodeRow::default()
        };
        world.kube.put_node(row);
    }
    let mut app = overview(&world, 120, 36);
    let counted = &app.knowledge.summary.racks.counted;
    assert_eq!(counted.len(), 103);
    let rack = counted.iter().position(|(name, _)| name == "rack-2").unwrap();
    assert!(rack < 4, "racks with machines that are not ready come first: {rack}");
    assert_eq!(counted[rack].1.get(&State::Ready), Some(&29));
    let text = screen::text(&app);
    assert!(text.contains("29/30"), "{text}");
    views::check_overview_rows(&app);
    // not counted again at every change
    let first = counted.as_ptr();
    let mut row = NodeRow::clone(&world.kube.nodes["node-0500"]);
    row.ready = false;
    world.kube.put_node(row);
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(app.knowledge.summary.racks.counted.as_ptr(), first);
    world.boot = BOOT + Seconds::new(6.0);
    update(&mut app, Event::Seen(world.seen()));
    let counted = &app.knowledge.summary.racks.counted;
    assert!(counted.iter().any(|(name, states)| name == "rack-16" && states.get(&State::Ready) == Some(&29)));
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(7.0))));
}

/// A line without a detail of its own leaves no empty half of the screen.
#[test]
fn beside_a_line_without_a_detail_are_the_queued_entries() {
    let mut app = overview(&World::usual(), 200, 50);
    while app.lists.overview_rows.cursor != Some(OverviewRow::Progress(QueueKind::Reboot)) {
        press(&mut app, "j");
    }
    update(&mut app, Event::Rested);
    let text = screen::text(&app);
    assert!(text.contains("Queued (2)"), "{text}");
    // another entry has its machine's name
    assert!(text.contains("waits for a slot (worker-1), 2 in use"), "{text}");
    press(&mut app, "j");
    update(&mut app, Event::Rested);
    assert!(!screen::text(&app).contains("Queued ("), "{}", screen::text(&app));
}

/// The title stands out from the frame, on which it is drawn.
#[test]
fn the_estimated_end_is_bold_and_has_not_the_frames_colour() {
    let app = overview(&World::usual(), 120, 36);
    let buffer = screen::buffer(&app);
    let line = |y: u16| (0..120).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
    let y = (0..36).find(|y| line(*y).contains("Reboots: ")).unwrap();
    let row = line(y);
    let at = row.chars().collect::<Vec<_>>().windows(5).position(|w| w == ['d', 'o', 'n', 'e', ' ']).unwrap();
    let cell = &buffer[(u16::try_from(at).unwrap(), y)];
    assert!(cell.modifier.contains(ratatui::style::Modifier::BOLD), "{row}");
    assert_ne!(Some(cell.fg), app.config.theme.border.fg, "{row}");
}

/// An estimate says how sure it is, and is made again only if something has changed.
#[test]
fn the_overview_estimates_the_end_of_the_queue() {
    let mut app = World::usual().console_in(View::Overview, 120, 36);
    let ended = (0..20).map(|i| timed(i, 60 * i64::try_from(i).unwrap())).collect();
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page(ended, false))))));
    let text = screen::text(&app);
    assert!(text.contains("done 10:0") || text.contains("done between 10:0"), "{text}");
    assert!(text.contains("moving  done 10:") || text.contains("moving  done between 10:"), "beside the state: {text}");
    let estimate = |app: &App| app.knowledge.estimates.of_queue(QueueKind::Reboot).cloned().unwrap().unwrap();
    let first = estimate(&app);
    update(&mut app, Event::Seen(World::usual().seen()));
    assert_eq!(estimate(&app), first);
}

/// Many futures are played for an estimate, so fifty changes a second must not make fifty estimates.
#[test]
fn an_estimate_is_made_at_most_once_a_second_and_only_where_it_is_shown() {
    let mut world = World::usual();
    let mut app = world.console_in(View::Overview, 120, 36);
    let ended = (0..20).map(|i| timed(i, 60 * i64::try_from(i).unwrap())).collect();
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page(ended, false))))));
    let made = |app: &App| app.knowledge.estimates.of_queue(QueueKind::Reboot).cloned().unwrap().unwrap().at;
    let mut made_at = std::collections::BTreeSet::from([made(&app)]);
    for change in 1_u16..=150 {
        world.store.revision += 1;
        world.entry(5, "10.0.0.16", RebootStatus::Queued, 900, 32);
        world.boot = BOOT + Seconds::new(f64::from(change) / 50.0);
        update(&mut app, Event::Seen(world.seen()));
        made_at.insert(made(&app));
    }
    assert_eq!(made_at.len(), 4, "the first one, and one for each of three seconds: {made_at:?}");
    // a progress record is no input of it
    world.store.revision += 1;
    let progress = world.store.progress[&EntryId::reboot(3)].clone();
    world.store.progress.insert(EntryId::reboot(3), Stored { mod_revision: 90, ..progress });
    let last = made(&app);
    world.boot = world.boot + Seconds::new(1.5);
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(made(&app), last);
    // no change of etcd: the tick makes it again, because time passes
    update(&mut app, Event::Tick(at(world.boot + Seconds::new(2.0))));
    assert!(made_at.contains(&made(&app)));
    update(&mut app, Event::Tick(at(world.boot + Seconds::new(6.0))));
    let last = made(&app);
    assert!(!made_at.contains(&last));
    // a view that shows no estimate makes none
    press(&mut app, "2");
    world.store.revision += 1;
    update(&mut app, Event::Tick(at(world.boot + Seconds::new(20.0))));
    assert_eq!(made(&app), last);
    // a freeze is never hidden behind an old estimate
    press(&mut app, "0");
    let text = screen::text(&app);
    assert!(text.contains("done"), "{text}");
}

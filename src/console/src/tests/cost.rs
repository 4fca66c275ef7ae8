//! Tests of a frame's cost: bytes over the link, and work that depends on the screen and not on the cluster.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cketerm_model::{
    boot_time::Seconds,
    entry::EntryId,
    kube::NodeRow,
    names::{Address, NodeName},
    reason::Reason,
    reboot::RebootStatus,
};
use ratatui::{Terminal, layout::Size};

use super::world::{BOOT, World, at, press};
use crate::{
    input::update,
    state::{App, event::Event, racks},
    terminal::{backend::BufferedBackend, screen},
    views,
};

/// Writer that counts bytes.
#[derive(Clone, Default)]
struct ByteCounter(Arc<Mutex<usize>>);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.0.lock().unwrap() += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Console that counts what it writes.
struct MeasuredConsole {
    app: App,
    terminal: Terminal<BufferedBackend<ByteCounter>>,
    counter: ByteCounter,
}

impl MeasuredConsole {
    fn new(app: App) -> Self {
        let counter = ByteCounter::default();
        let terminal = Terminal::new(BufferedBackend::new(counter.clone(), app.size)).unwrap();
        let mut measured = Self { app, terminal, counter };
        measured.frame();
        measured
    }

    /// Draws a frame and returns its bytes.
    fn frame(&mut self) -> usize {
        let before = *self.counter.0.lock().unwrap();
        let app = &self.app;
        self.terminal.draw(|f| views::draw(app, f)).unwrap();
        *self.counter.0.lock().unwrap() - before
    }
}

fn large_world() -> World {
    let mut world = World::usual();
    for i in 0..5000 {
        let address = format!("10.{}.{}.{}", 1 + i / 40_000, i / 200 % 200, i % 200 + 1);
        world.kube.put_node(NodeRow {
            name: NodeName::new(format!("node-{i:05}")),
            addresses: vec![Address::new(address)],
            ready: true,
            kubelet: "v1.35.0".into(),
            ..NodeRow::default()
        });
    }
    for index in 10..10_010 {
        world.entry(index, &format!("10.9.{}.{}", index / 250, index % 250), RebootStatus::Queued, 900, 60);
        let reason = Reason::WaitingForSlot { holder: Some(EntryId::reboot(3)), limit: 2, ahead: false };
        world.reasons.insert(EntryId::reboot(index), reason);
    }
    world
}

#[test]
fn a_cursor_move_costs_at_most_280_bytes_and_520_on_large_screens() {
    for (columns, rows, most) in [(80, 24, 280), (200, 50, 520)] {
        for view in ["1", "2", "2 v"] {
            let mut measured = MeasuredConsole::new(large_world().console(columns, rows));
            press(&mut measured.app, view);
            measured.frame();
            for key in ["j", "j", "k"] {
                press(&mut measured.app, key);
                let bytes = measured.frame();
                assert!((20..=most).contains(&bytes), "{columns}x{rows} view {view} {key}: {bytes}");
            }
        }
    }
}

/// The detail beside the table is drawn once the cursor rests, and then stays.
#[test]
fn the_preview_of_the_cursors_row_costs_at_most_3000_bytes() {
    for view in ["1", "2"] {
        let mut measured = MeasuredConsole::new(large_world().console(200, 50));
        press(&mut measured.app, view);
        press(&mut measured.app, "j");
        measured.frame();
        for key in ["j", "k"] {
            press(&mut measured.app, key);
            let moved = measured.frame();
            assert!((20..=520).contains(&moved), "view {view} {key}: {moved}");
            assert!(views::is_preview_due(&measured.app), "view {view}");
            update(&mut measured.app, Event::Rested);
            let bytes = measured.frame();
            assert!((20..=3000).contains(&bytes), "view {view} {key}: {bytes}");
            assert!(!views::is_preview_due(&measured.app));
            assert_eq!(measured.frame(), 0);
        }
    }
}

/// The Overview's panels cost no more than a table.
#[test]
fn a_cursor_move_on_the_overview_costs_few_bytes() {
    for (columns, rows, most) in [(80, 24, 280), (120, 36, 520)] {
        let mut measured = MeasuredConsole::new(World::usual().console(columns, rows));
        press(&mut measured.app, "0");
        measured.frame();
        for key in ["j", "j", "k"] {
            press(&mut measured.app, key);
            let bytes = measured.frame();
            assert!((20..=most).contains(&bytes), "{columns}x{rows} {key}: {bytes}");
        }
    }
    // with the detail beside the list, once the cursor rests
    let mut measured = MeasuredConsole::new(World::usual().console(200, 50));
    press(&mut measured.app, "0");
    measured.frame();
    for key in ["j", "j", "k"] {
        press(&mut measured.app, key);
        let moved = measured.frame();
        assert!((20..=520).contains(&moved), "{key}: {moved}");
        assert!(views::is_preview_due(&measured.app));
        update(&mut measured.app, Event::Rested);
        let bytes = measured.frame();
        assert!((20..=3000).contains(&bytes), "{key}: {bytes}");
        assert_eq!(measured.frame(), 0);
    }
}

#[test]
fn a_tick_without_changes_writes_nothing() {
    let mut world = World::usual();
    world.store.reboots.entries.remove(&4);
    let mut measured = MeasuredConsole::new(world.console(80, 24));
    (world.boot, world.store.last_seen) = (BOOT + Seconds::new(1.0), BOOT + Seconds::new(1.0));
    update(&mut measured.app, Event::Tick(at(BOOT + Seconds::new(1.0))));
    update(&mut measured.app, Event::Seen(world.seen()));
    assert_eq!(measured.frame(), 0);
}

#[test]
fn a_repaint_after_a_resize_stays_small() {
    let mut measured = MeasuredConsole::new(large_world().console(200, 50));
    for (columns, rows, most) in [(80, 24, 4000), (200, 50, 9500)] {
        update(&mut measured.app, Event::Resize(columns, rows));
        measured.terminal.backend_mut().resize(Size::new(columns, rows));
        let bytes = measured.frame();
        assert!(bytes <= most, "{columns}x{rows}: {bytes}");
    }
}

#[test]
fn hidden_lists_build_no_rows_but_update_counts_and_marks() {
    let mut world = large_world();
    let mut app = world.console(200, 50);
    press(&mut app, "2 space space 1");
    let (nodes, marks) = (app.lists.nodes.rows.len(), app.lists.nodes.marks.clone());
    assert_eq!((nodes, marks.len()), (5008, 2));
    let before = app.lists.nodes.rows.clone();
    let gone = marks.first().unwrap().clone();
    world.kube.remove_node(&NodeName::new(gone.clone()));
    world.store.cluster = None;
    world.entry(20_000, "10.9.0.1", RebootStatus::Queued, 900, 60);
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(app.lists.nodes.rows, before, "rows of a hidden view are not rebuilt");
    assert_eq!((app.lists.nodes.total, app.lists.nodes.marks.len()), (nodes - 1, 1));
    let entries = app.lists.reboots.rows.len();
    assert_eq!(entries, world.store.reboots.entries.len());
    press(&mut app, "2");
    assert_eq!((app.lists.nodes.rows.len(), app.lists.nodes.rows.contains(&gone)), (nodes - 1, false));
    // the same for the other view
    world.store.reboots.entries.remove(&20_000);
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!((app.lists.reboots.rows.len(), app.lists.reboots.total), (entries, entries - 1));
}

#[test]
fn a_snapshot_without_changed_names_rebuilds_no_rows_and_no_map() {
    let mut world = large_world();
    let mut app = world.console(200, 50);
    press(&mut app, "2 v");
    let allocations = |app: &App| (app.lists.nodes.rows.as_ptr(), app.navigation.map.as_ref().unwrap().racks.as_ptr());
    let first = allocations(&app);
    (world.boot, world.store.last_seen, world.store.revision) =
        (BOOT + Seconds::new(1.0), BOOT + Seconds::new(1.0), world.store.revision + 1);
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(allocations(&app), first);
    // a node on the map reports something else
    let mut row = (**world.kube.nodes.get("node-00007").unwrap()).clone();
    row.ready = false;
    world.kube.put_node(row);
    update(&mut app, Event::Seen(world.seen()));
    let (rows, map) = allocations(&app);
    assert_eq!(rows, first.0);
    assert_ne!(map, first.1);
    assert_eq!(app.navigation.map.as_ref().unwrap().counts.get(&racks::State::NotReady), Some(&2));
    // another sort order changes the map
    let map = allocations(&app).1;
    press(&mut app, "s s");
    assert_ne!(allocations(&app).1, map, "{:?}", app.lists.nodes.sort);
}

/// Generous bounds for an unoptimized build on a busy machine. They only exclude work that grows with the cluster.
#[test]
fn the_cost_of_a_frame_does_not_depend_on_the_number_of_entries() {
    let world = large_world();
    let mut app = world.console(200, 50);
    let time = |work: &mut dyn FnMut()| {
        let began = Instant::now();
        (0..5).for_each(|_| work());
        began.elapsed() / 5
    };
    let few = time(&mut || drop(screen::buffer(&World::usual().console(200, 50))));
    let many = time(&mut || drop(screen::buffer(&app)));
    let filter = time(&mut || {
        press(&mut app, "/ \"cp\" esc");
    });
    let seen = world.seen();
    let news = time(&mut || drop(update(&mut app, Event::Seen(Arc::clone(&seen)))));
    eprintln!("few {few:?} many {many:?} filter {filter:?} news {news:?}");
    assert!(many < few + Duration::from_secs(2), "a frame takes {many:?}, in a small cluster {few:?}");
    assert!(filter < Duration::from_mins(1) && news < Duration::from_secs(20), "{filter:?} {news:?}");
}

//! Tests of the terminal's title and bell, its character set, and the theme from its answer.

use cketerm_model::{
    boot_time::Seconds,
    entry::EntryId,
    names::NodeName,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
};
use cketerm_rules::trouble::Trouble;

use super::world::{BOOT, World, at, press};
use crate::{
    input::update,
    state::{
        App, View,
        event::{Effect, Event},
    },
    terminal::{
        attention::{Attention, has_title},
        screen,
    },
    theme::{Theme, charset::Charset, display::Bell, loader::BUILT_IN},
};

fn quiet() -> World {
    let mut world = World::usual();
    world.store.reboots.entries.clear();
    world.reasons.clear();
    world
}

/// Returns what is written for this world at this second.
fn output_at(attention: &mut Attention, app: &mut App, world: &mut World, second: f64) -> String {
    (world.boot, world.store.last_seen) = (BOOT + Seconds::new(second), BOOT + Seconds::new(second));
    update(app, Event::Tick(at(BOOT + Seconds::new(second))));
    update(app, Event::Seen(world.seen()));
    attention.escape_sequences(app).replace('\u{1b}', "^").replace('\u{7}', "$")
}

#[test]
fn the_title_shows_cluster_and_state_and_is_written_only_on_change() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    let mut attention = Attention::new(true, Bell::Never);
    assert_eq!(output_at(&mut attention, &mut app, &mut world, 0.0), "^]2;cketerm tokyo0: 3 stuck$");
    for second in [1.0, 2.0, 5.0, 60.0] {
        assert_eq!(output_at(&mut attention, &mut app, &mut world, second), "", "nothing changed");
    }
    let mut world = quiet();
    world.entry(4, "10.0.0.15", RebootStatus::Rebooting, 42, 31);
    assert_eq!(output_at(&mut attention, &mut app, &mut world, 61.0), "^]2;cketerm tokyo0: 1 rebooting$");
    let mut world = quiet();
    assert_eq!(output_at(&mut attention, &mut app, &mut world, 62.0), "", "too soon after the last one");
    assert_eq!(output_at(&mut attention, &mut app, &mut world, 64.0), "^]2;cketerm tokyo0: idle$");
    world.entry(5, "10.0.0.16", RebootStatus::Queued, 10, 31);
    assert_eq!(output_at(&mut attention, &mut app, &mut world, 70.0), "^]2;cketerm tokyo0: 1 queued$");
    attention.forget();
    assert_eq!(
        output_at(&mut attention, &mut app, &mut world, 70.5),
        "^]2;cketerm tokyo0: 1 queued$",
        "a shell may have changed the title"
    );
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(90.0))));
    assert!(attention.escape_sequences(&app).contains("etcd lost"));
    let mut off = Attention::new(false, Bell::Never);
    assert_eq!(off.escape_sequences(&app), "");
}

#[test]
fn the_title_contains_no_control_characters() {
    let mut world = quiet();
    let mut definition = world.store.definition().unwrap().clone();
    definition.cluster.name = format!("a\u{7}\u{1b}]0;x\u{9c}{}", "y".repeat(500));
    world.store.cluster = Some(super::world::stored("/cke/cluster", 9, definition));
    let mut app = world.console(80, 24);
    let title = Attention::new(true, Bell::Never).escape_sequences(&app);
    let inside = title.strip_prefix("\u{1b}]2;").and_then(|t| t.strip_suffix('\u{7}')).unwrap();
    assert!(!inside.chars().any(char::is_control) && inside.chars().count() <= 80, "{inside:?}");
    app.config.charset = Charset::Ascii;
    assert!(Attention::new(true, Bell::Never).escape_sequences(&app).is_ascii());
    assert!(has_title(Some("xterm-256color")) && has_title(Some("tmux-256color")));
    assert!(!has_title(Some("linux")) && !has_title(Some("dumb")) && !has_title(None));
}

#[test]
fn the_bell_rings_when_work_gets_stuck_or_ends_as_configured() {
    let rings = |bell: Bell| {
        let mut world = quiet();
        let mut app = World::without_data().console(80, 24);
        let mut attention = Attention::new(false, bell);
        let mut bells = vec![attention.escape_sequences(&app) == "\u{7}"];
        // seen for the first time, begun, stuck, still stuck, moving again, ended, idle; a drain that only a budget
        // blocks is not stuck immediately
        for step in 0..7 {
            let is_draining = (1..5).contains(&step);
            world.store.reboots.entries.clear();
            world.reasons.clear();
            if is_draining {
                world.entry(3, "10.0.0.14", RebootStatus::Draining, 150, 70);
            }
            if step == 2 || step == 3 {
                let held = World::usual().reasons[&EntryId::reboot(3)].clone();
                world.reasons.insert(EntryId::reboot(3), held);
            }
            bells.push(output_at(&mut attention, &mut app, &mut world, f64::from(step)) == "$");
        }
        bells.iter().enumerate().filter(|(_, rang)| **rang).map(|(step, _)| step).collect::<Vec<_>>()
    };
    assert_eq!(rings(Bell::Never), Vec::<usize>::new());
    assert_eq!(rings(Bell::Stuck), [3]);
    assert_eq!(rings(Bell::Ended), [6]);
    assert_eq!(rings(Bell::Both), [3, 6]);
}

/// The bell compares entries, not counts, so that an entry that flaps does not ring each time.
#[test]
fn the_bell_rings_for_a_new_stuck_entry_but_not_for_a_flapping_one() {
    let (mut world, held) = (quiet(), World::usual().reasons[&EntryId::reboot(3)].clone());
    world.entry(3, "10.0.0.14", RebootStatus::Draining, 150, 70);
    world.entry(4, "10.0.0.15", RebootStatus::Draining, 150, 71);
    let mut app = world.console(80, 24);
    let mut attention = Attention::new(false, Bell::Stuck);
    let mut rings = |stuck: &[u64], second: f64| {
        world.reasons = stuck.iter().map(|index| (EntryId::reboot(*index), held.clone())).collect();
        output_at(&mut attention, &mut app, &mut world, second) == "$"
    };
    assert!(!rings(&[], 0.0));
    assert!(rings(&[3], 1.0));
    assert!(rings(&[4], 2.0), "another entry, though the count is the same");
    for second in 3..30 {
        assert!(!rings(if second % 2 == 0 { &[3] } else { &[4] }, f64::from(second)), "{second}");
    }
    assert!(!rings(&[], 70.0));
    assert!(rings(&[3], 71.0), "the bell rings again after a minute");
}

/// A budget that has blocked for one second must neither ring nor make the header flicker.
#[test]
fn a_blocked_drain_is_stuck_after_stuck_seconds_or_its_third_backoff() {
    let (mut world, held) = (quiet(), World::usual().reasons[&EntryId::reboot(3)].clone());
    world.entry(3, "10.0.0.14", RebootStatus::Draining, 1, 70);
    let mut app = world.console_in(View::Overview, 80, 24);
    let mut attention = Attention::new(true, Bell::Stuck);
    let rings = |output: &str| output.ends_with("$$") || output == "$";
    assert!(!rings(&output_at(&mut attention, &mut app, &mut world, 0.0)));
    world.reasons.insert(EntryId::reboot(3), held);
    assert_eq!(output_at(&mut attention, &mut app, &mut world, 4.0), "", "the entry is still draining");
    let text = screen::text(&app);
    assert!(text.contains("blocked") && text.contains("pdb shop/web has 2, needs 2:"), "{text}");
    assert!(text.contains("Needs you (1)") && !text.contains("Reb 1!") && !text.contains("STUCK"), "{text}");
    press(&mut app, "1");
    assert!(screen::text(&app).contains("1 needs you (n)"), "{}", screen::text(&app));
    press(&mut app, "n");
    assert_eq!(app.lists.nodes.cursor.as_deref(), Some("worker-5"), "only the node that is not Ready");
    press(&mut app, "2");
    let text = screen::text(&app);
    assert!(text.contains("cordoned, draining, waits on pdb"), "{text}");
    assert!(!rings(&output_at(&mut attention, &mut app, &mut world, 118.0)));
    let output = output_at(&mut attention, &mut app, &mut world, 119.0);
    assert!(rings(&output) && output.contains("1 stuck"), "{output}");
    let text = screen::text(&app);
    assert!(text.contains("3 need you (n)") && text.contains("stuck: pdb shop/web"), "{text}");

    // a drain that began a second ago, and its third backoff
    let trouble = |world: &World| cketerm_rules::trouble::of(&world.seen(), EntryId::reboot(3));
    world.boot = BOOT;
    assert_eq!(trouble(&world), Some(Trouble::Waits));
    for (count, how) in [(2, Trouble::Waits), (3, Trouble::Stuck)] {
        let entry = world.store.reboots.entries[&3].get().unwrap().clone();
        let entry = RebootEntry { drain_backoff_count: count, ..entry };
        world.store.reboots.entries.insert(3, super::world::stored("k", 71, entry));
        assert_eq!(trouble(&world), Some(how), "backed off {count} times");
    }
    // an entry that only an operator can end is stuck without delay
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 1, 72);
    for (until, how) in [(Some(super::world::wall()), Trouble::Waits), (None, Trouble::Stuck)] {
        world.reasons.insert(EntryId::reboot(3), Reason::OutcomeUnknown { attempt: None, until });
        assert_eq!(trouble(&world), Some(how), "{until:?}");
    }
}

/// An outage must not make each waiting entry stuck, with a bell for each.
#[test]
fn a_gate_on_a_queue_is_reported_once_and_makes_no_entry_stuck() {
    let mut world = quiet();
    let gate = Reason::UnreachableGate { count: 3, limit: 1, names: [NodeName::new("worker-5")].into() };
    for index in [3, 4] {
        world.entry(index, "10.0.0.14", RebootStatus::Queued, 9000, 70);
        world.reasons.insert(EntryId::reboot(index), gate.clone());
    }
    let mut app = world.console_in(View::Overview, 80, 24);
    let mut attention = Attention::new(true, Bell::Stuck);
    let first = output_at(&mut attention, &mut app, &mut world, 0.0);
    assert!(first.contains("2 blocked"), "{first}");
    world.entry(5, "10.0.0.15", RebootStatus::Queued, 9000, 71);
    world.reasons.insert(EntryId::reboot(5), gate);
    let output = output_at(&mut attention, &mut app, &mut world, 60.0);
    assert!(output.contains("3 blocked") && !output.contains("$$"), "{output}");
    press(&mut app, "0");
    let text = screen::text(&app);
    assert!(text.contains("3 reboots wait: 3 nodes"), "no end is estimated: {text}");
    for view in ["0", "1", "2"] {
        press(&mut app, view);
        let text = screen::text(&app);
        assert!(text.contains("3 entries wait: 3 nodes"), "{view}: {text}");
        assert!(text.contains("3 need you (n)"), "the gate, a node, a lost source: {view}: {text}");
    }
}

#[test]
fn entries_stuck_at_start_do_not_ring_the_bell() {
    let app = World::usual().console(80, 24);
    let mut attention = Attention::new(false, Bell::Both);
    assert_eq!((attention.escape_sequences(&app), attention.escape_sequences(&app)), (String::new(), String::new()));
}

/// A block of two cells would shift every line.
#[test]
fn a_terminal_with_wide_blocks_gets_ascii_and_other_scripts_stay() {
    let mut world = World::usual();
    world.store.policy = None;
    let mut app = world.console(120, 40);
    let is_block = |c: char| ('\u{2500}'..='\u{25ff}').contains(&c) || c == '\u{2713}';
    assert!(screen::text(&app).contains(is_block));
    assert_eq!(update(&mut app, Event::WideSymbols), [Effect::Repaint]);
    for keys in ["", "2", "enter", "esc ?", "esc 0"] {
        press(&mut app, keys);
        let text = screen::text(&app);
        assert!(!text.contains(is_block), "{keys}: {text}");
    }
    assert_eq!(app.config.charset, Charset::AsciiBorders);
}

#[test]
fn in_ascii_mode_every_screen_is_ascii_with_the_same_text() {
    for keys in ["", "enter", "2", "2 enter", "X", "?", "2 * R", "0", "7", "q"] {
        let mut app = World::usual().console(100, 30);
        press(&mut app, keys);
        let drawn = screen::text(&app);
        app.config.charset = Charset::Ascii;
        let plain = screen::text(&app);
        assert!(plain.is_ascii(), "{keys}: {plain}");
        let words =
            |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned).collect::<String>();
        assert_eq!(words(&plain), words(&drawn), "{keys}");
        assert_eq!(plain.lines().count(), drawn.lines().count());
    }
    let mut app = World::usual().console(80, 24);
    app.config.charset = Charset::AsciiBorders;
    press(&mut app, "X");
    insta::assert_snapshot!("dialog_cancel_ascii", screen::text(&app));
}

#[test]
fn every_theme_draws_the_same_text_without_a_background() {
    let mut app = World::with_repairs().console(80, 24);
    let mut words = Vec::new();
    for (name, _) in BUILT_IN {
        update(&mut app, Event::ThemeDetected(Box::new(Theme::named(name, true).unwrap())));
        let mut output = Vec::new();
        for keys in ["esc 1", "enter", "esc 2", "3", "0", "?", "esc 1 X", "esc q", "esc"] {
            press(&mut app, keys);
            let buffer = screen::buffer(&app);
            let painted = buffer.content.iter().filter(|c| c.bg != ratatui::style::Color::Reset).count();
            assert_eq!(painted, 0, "{name} {keys}");
            output.push(screen::text(&app));
        }
        words.push(output);
    }
    assert!(words.windows(2).all(|pair| pair[0] == pair[1]), "all themes show the same text");
}

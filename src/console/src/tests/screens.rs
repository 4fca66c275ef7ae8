//! Tests of the screens.

use std::{cmp::Reverse, sync::Arc};

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::{Audit, Who},
    kube::NodeRow,
};
use cketerm_rules::preflight_fault::PreflightFault;
use insta::assert_snapshot;

use super::world::{BOOT, World, at, press};
use crate::{
    input::update,
    state::{App, AppConfig, View, event::Event, past::PastId},
    terminal::screen,
    theme::Theme,
};

fn shown(world: &World, columns: u16, rows: u16, keys: &str) -> String {
    let mut app = world.console(columns, rows);
    press(&mut app, keys);
    screen::text(&app)
}

#[test]
fn the_first_frame_is_drawn_before_any_data() {
    let config = AppConfig { endpoints: vec!["http://127.0.0.1:2379".into()], ..AppConfig::default() };
    assert_snapshot!(screen::text(&App::new(config, View::Reboots, at(BOOT))));
}

#[test]
fn reboots() {
    assert_snapshot!("reboots_80x24", shown(&World::usual(), 80, 24, "j space"));
    assert_snapshot!("reboots_200x50", shown(&World::usual(), 200, 50, "j space"));
}

#[test]
fn nodes() {
    assert_snapshot!("nodes_80x24", shown(&World::usual(), 80, 24, "2 j space"));
    assert_snapshot!("nodes_200x50", shown(&World::usual(), 200, 50, "2 j space"));
}

#[test]
fn detail_of_an_entry() {
    assert_snapshot!("entry_blocked_80x24", shown(&World::usual(), 80, 24, "enter"));
    assert_snapshot!("entry_rebooting_80x24", shown(&World::usual(), 80, 24, "j enter"));
    assert_snapshot!("entry_rebooting_200x50", shown(&World::usual(), 200, 50, "j enter"));
    assert_snapshot!("entry_broken_80x24", shown(&World::usual(), 80, 24, "G enter"));
}

#[test]
fn detail_of_a_node() {
    assert_snapshot!("node_80x24", shown(&World::usual(), 80, 24, "2 j j j enter"));
    assert_snapshot!("node_200x50", shown(&World::usual(), 200, 50, "2 j j j enter"));
}

#[test]
fn dialogs() {
    let world = World::usual();
    assert_snapshot!("dialog_cancel", shown(&world, 80, 24, "X"));
    assert_snapshot!("dialog_cancel_marked", shown(&world, 80, 24, "* X"));
    assert_snapshot!("dialog_add_with_api_servers", shown(&world, 80, 24, "2 * R"));
    assert_snapshot!("dialog_add_200x50", shown(&world, 200, 50, "2 * R"));
    assert_snapshot!("dialog_backoff", shown(&world, 80, 24, "j j j B"));
    assert_snapshot!("dialog_disable", shown(&world, 80, 24, "E"));
    assert_snapshot!("dialog_force", shown(&world, 80, 24, "F \"disk is gone\""));
    assert_snapshot!("dialog_retry", shown(&world, 80, 24, "j A"));
    assert_snapshot!("dialog_quit", shown(&world, 80, 24, "q"));
}

#[test]
fn help() {
    assert_snapshot!("help_80x24", shown(&World::usual(), 80, 24, "?"));
    assert_snapshot!("help_200x50", shown(&World::usual(), 200, 50, "?"));
}

#[test]
fn empty_queue_and_filter_without_hits() {
    let mut world = World::usual();
    assert_snapshot!("filter_without_hits", shown(&world, 80, 24, "/ \"nothing\""));
    world.store.reboots.entries.clear();
    world.reasons.clear();
    assert_snapshot!("empty_queue", shown(&world, 80, 24, ""));
}

#[test]
fn stale_sources_and_an_observing_engine() {
    let mut world = World::usual();
    world.store.error = Some("tcp connect error: connection refused (http://127.0.0.1:2379)".into());
    world.engine.leading = None;
    world.engine.observing = vec![PreflightFault::IdentityUnconfirmed { uid: "u-1".to_owned() }];
    let mut app = world.console(80, 24);
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(95.0))));
    press(&mut app, "X");
    assert_snapshot!(screen::text(&app));
}

#[test]
fn the_smallest_screen() {
    assert_snapshot!("reboots_60x15", shown(&World::usual(), 60, 15, ""));
    assert_snapshot!("dialog_60x15", shown(&World::usual(), 60, 15, "2 * R"));
    assert_snapshot!("entry_60x15", shown(&World::usual(), 60, 15, "enter"));
}

#[test]
fn external_text_never_reaches_the_terminal_as_control_characters() {
    let mut world = World::usual();
    let evil = "a\u{1b}[2J\u{202e}b";
    world.entry(9, evil, cketerm_model::reboot::RebootStatus::Draining, 5, 70);
    let why = cketerm_model::reason::Reason::EvictionRefused { pod: evil.into(), answer: evil.into() };
    world.reasons.insert(cketerm_model::entry::EntryId::reboot(9), why);
    world.store.error = Some(evil.into());
    world.engine.observing = vec![PreflightFault::PolicyUnreadable { error: evil.into() }];
    world.engine.leading = None;
    for keys in ["G", "G enter", "G X", "/ \"draining\""] {
        let mut app = world.console(120, 40);
        update(&mut app, Event::Tick(at(BOOT + Seconds::new(1.0))));
        press(&mut app, keys);
        let text = screen::text(&app);
        assert!(text.contains("[2J"), "{keys}: {text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{keys}");
    }
}

#[test]
fn the_header_shows_the_leader_and_this_consoles_role() {
    let first_line = |world: &World| {
        let line = shown(world, 120, 24, "").lines().next().unwrap_or_default().to_owned();
        line.split(" need you").next().unwrap_or_default().to_owned()
    };
    let has = |world: &World, words: &[&str]| {
        let line = first_line(world);
        assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
    };
    let mut world = World::usual();
    world.engine.resigning = Some("a CKE stands behind us".into());
    has(&world, &["* leading 16m", "resigning: a CKE stands behind us"]);
    world.engine.resigning = None;
    (world.engine.leading, world.engine.lease) = (None, 78);
    has(&world, &["* admin1 leads", "standing by", "reboots on", "repairs on"]);
    world.store.engines.clear();
    has(&world, &["* CKE on admin1 leads", "standing by"]);
    world.store.candidates.clear();
    world.engine.lease = 0;
    world.engine.missing_programs = vec!["/usr/bin/ipmitool".into()];
    has(&world, &["! NOBODY LEADS", "missing here: /usr/bin/ipmitool"]);
}

#[test]
fn a_terminal_that_is_too_small_shows_one_line() {
    assert_eq!(shown(&World::usual(), 59, 14, "").trim_end(), "59x14 is too small: 60x15 at least");
    assert!(shown(&World::usual(), 60, 15, "").contains("worker-1"));
}

#[test]
fn without_colours_the_text_is_the_same() {
    let mut app = World::usual().console(80, 24);
    let text = screen::text(&app);
    assert!(screen::colours(&app).0 > 0);
    app.config.theme = Theme::named("terminal", false).unwrap();
    for keys in ["", "enter", "esc 2", "R", "esc ?"] {
        press(&mut app, keys);
        assert_eq!(screen::colours(&app).0, 0, "{keys}");
    }
    press(&mut app, "esc 1");
    assert_eq!(screen::text(&app), text);
}

#[test]
fn only_ascii_box_drawing_blocks_and_few_signs_reach_the_screen() {
    for keys in ["", "enter", "2", "2 enter", "X", "?", "2 * R"] {
        let text = shown(&World::usual(), 120, 30, keys);
        let odd: Vec<char> = text
            .chars()
            .filter(|c| !c.is_ascii() && !('\u{2500}'..='\u{259f}').contains(c) && *c != '\u{241b}')
            // the signs of the severities, which the width probe knows
            .filter(|c| !"\u{25cf}\u{25cb}\u{2713}\u{25b2}".contains(*c))
            .collect();
        assert!(odd.is_empty(), "{keys}: {odd:?}");
    }
}

/// lazygit#508 and others: unreadable on light terminals.
#[test]
fn the_light_theme_is_readable_on_a_light_background() {
    use ratatui::style::Color;
    let mut app = World::usual().console(80, 24);
    app.config.theme = Theme::named("light", true).unwrap();
    assert_snapshot!("reboots_light_80x24", crate::terminal::screenshot::picture(&app).as_str().replace('\u{1b}', "^"));
    let dark = [Color::Reset, Color::DarkGray, Color::Magenta, Color::Red, Color::Blue];
    for keys in ["", "enter", "esc X", "esc 2", "0", "?"] {
        press(&mut app, keys);
        let buffer = screen::buffer(&app);
        assert!(buffer.content.iter().all(|c| dark.contains(&c.fg) && c.bg == Color::Reset), "{keys}");
    }
}

/// The owner and the reason of a manual cordon come from the audit.
#[test]
fn a_manual_cordon_shows_its_author_and_reason() {
    let mut world = World::usual();
    let mut row = NodeRow::clone(&world.kube.nodes["worker-3"]);
    (row.unschedulable, row.keep_cordoned) = (true, true);
    world.kube.put_node(row);
    let mut app = world.console_in(View::Nodes, 100, 30);
    press(&mut app, "j j j j j enter");
    assert!(screen::text(&app).contains("an administrator keeps it cordoned (see Audit, 8)"), "{}", screen::text(&app));
    let audit = Audit {
        at: super::world::wall(),
        who: Who { user: "root".into(), host: "vm".into(), ssh_client: None },
        what: "node cordon".into(),
        on: "node worker-3".into(),
        reason: Some("new disk".into()),
        result: "done".into(),
        failed: false,
        entry: None,
        repeats: None,
    };
    let id = PastId { revision: Reverse(9), key: "a".into() };
    app.knowledge.past.audit.rows.insert(id, Ok(Arc::new(audit)));
    let text = screen::text(&app);
    assert!(text.contains("kept by root@vm (node cordon 10:00:00Z") && text.contains("new disk"), "{text}");
}

/// The help has six pages of keys, so it can be searched.
#[test]
fn the_help_search_matches_words_and_keeps_section_titles() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "? / \"BACKOFF\"");
    let text = screen::text(&app);
    assert!(text.contains("Keys with \"BACKOFF\"") && text.contains("End the backoff of the entries"), "{text}");
    assert!(text.contains("find: BACKOFF") && text.contains("Changing the cluster"), "{text}");
    assert!(!text.contains("Queue a reboot") && !text.contains("In dialogs"), "{text}");
    press(&mut app, "enter");
    assert!(app.typing.filter.is_none() && app.navigation.help.is_some());
    assert_eq!(app.lists.reboots.filter, "", "the table's filter is unchanged");
    press(&mut app, "esc");
    assert!(app.navigation.help.is_some() && screen::text(&app).contains("Describe: open"), "{}", screen::text(&app));
    // the search also matches the names of the configuration and the documents
    for (word, help) in [("force", "F "), ("hold", "H "), ("done", "D "), ("retry", "A "), ("undo", "u ")] {
        press(&mut app, &format!("/ \"{word}\""));
        assert!(
            screen::text(&app).lines().any(|line| line.trim_start().starts_with(help)),
            "{word}: {}",
            screen::text(&app)
        );
        press(&mut app, "enter esc");
    }
    press(&mut app, "/ \"xyzzy\"");
    assert!(screen::text(&app).contains("nothing here matches \"xyzzy\""), "{}", screen::text(&app));
    press(&mut app, "esc esc");
    assert!(app.navigation.help.is_none() && app.typing.filter.is_none());
    app.print("reboots/3 was cancelled");
    app.print("another word");
    press(&mut app, ": \"messages\" enter / \"cancelled\"");
    let text = screen::text(&app);
    assert!(text.contains("reboots/3 was cancelled") && text.matches("another word").count() <= 1, "{text}");
    // with a pane open the filter applies to the table
    let mut app = World::usual().console(80, 24);
    press(&mut app, "enter / \"queued\" enter");
    assert_eq!(app.lists.reboots.filter, "queued");
}

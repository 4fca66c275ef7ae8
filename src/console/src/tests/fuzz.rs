//! Fuzz tests: random keys on random worlds, and random text that users write for the console (filters, lines, themes,
//! settings). Nothing panics, and every screen can be drawn at each size.

use cketerm_fuzz::{Fuzz, Took};
use cketerm_model::{
    boot_time::Seconds,
    stored::{keys::Keys, row::Row},
};
use crossterm::event::KeyEvent;

use super::world::{World, at, stored};
use crate::{
    input::update,
    keys,
    state::{
        App, View,
        column_id::ColumnId,
        columns, command_line,
        event::Event,
        filter::{Cells, Filter, Value},
        settings,
    },
    terminal::screen,
    theme,
};

const SIZES: [(u16, u16); 3] = [(80, 24), (200, 50), (20, 5)];

/// Presses key names separated by spaces; other words are typed letter by letter.
fn press_words(app: &mut App, text: &str) {
    for (i, word) in text.split(' ').filter(|word| !word.is_empty()).take(60).enumerate() {
        if let Some((code, modifiers)) = keys::parse(word) {
            drop(update(app, Event::Key(KeyEvent::new(code, modifiers))));
        } else if i % 3 == 2 {
            drop(update(app, Event::Paste(word.to_owned())));
        } else {
            for c in word.chars().take(20) {
                if let Some((code, modifiers)) = keys::parse(&c.to_string()) {
                    drop(update(app, Event::Key(KeyEvent::new(code, modifiers))));
                }
            }
        }
    }
}

fn draw_all_sizes(app: &mut App) {
    for (columns, rows) in SIZES {
        update(app, Event::Resize(columns, rows));
        let text = screen::text(app);
        assert_eq!(text.lines().count(), usize::from(rows));
    }
}

fn full_world() -> World {
    let (mut world, hosts) = (World::with_repairs(), World::with_hosts());
    world.kube.hosts = hosts.kube.hosts.clone();
    world.kube.sources.clone_from(&hosts.kube.sources);
    world.store.registry.url = Some(stored("url", 5, "http://sabakan/graphql".to_owned()));
    world
}

#[test]
fn random_keys_never_panic() {
    let worlds = [World::usual(), full_world(), World::without_data(), World::with_hosts()];
    let seeds = [
        "0 j enter X enter y esc",
        "1 * X tab tab y ctrl-c esc : write space off enter",
        "2 G space R enter y / \"rack=1\" enter n N",
        "3 Z P X enter esc ? esc",
        "4 v S esc 5 Y H enter esc 6 W I L esc",
        "7 enter pgdn end home 8 9 left right < > v right space",
        "F1 ctrl-p down down enter esc u U B E A D F C H o O",
        "/ re: [ enter esc : sort index desc enter : columns index,node enter : theme dark enter",
        "m M ' a ctrl-z ctrl-l ctrl-r y Y c q esc",
    ];
    Fuzz::new("keys", 250).seeds(seeds).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let pick = bytes.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
        let (columns, rows) = SIZES[pick % 2];
        let mut app = worlds[pick % worlds.len()].console_in(View::ALL[pick / 7 % View::ALL.len()], columns, rows);
        let (before, after) = text.split_at(text.floor_char_boundary(text.len() / 2));
        press_words(&mut app, before);
        // the world changes meanwhile
        update(&mut app, Event::Seen(worlds[pick / 3 % worlds.len()].seen()));
        update(&mut app, Event::Tick(at(super::world::BOOT + Seconds::new(10.0))));
        press_words(&mut app, after);
        draw_all_sizes(&mut app);
        Ok(Took::Accepted)
    });
}

/// Draws every view on an etcd in which one value is invalid.
#[test]
fn invalid_stored_values_never_break_a_screen() {
    let keys = Keys::new("/cke/");
    let entry = r#"{"index":"3","node":"10.0.0.14","status":"draining","last_transition_time":"2026-11-21T09:50:00Z","drain_backoff_count":2,"drain_backoff_expire":"2026-11-21T10:10:00Z"}"#;
    let policy = r#"{"settle_seconds":60,"windows":{"time_zone":"Asia/Tokyo","allow":["* 0-5 * * *"],"margin_seconds":60},"freeze":{"until":"2026-11-21T13:00:00Z","reason":"audit","who":{"user":"a","host":"h"}},"groups":{"by":"rack","limit":1}}"#;
    let progress = r#"{"phase":"waiting for pods","since":"2026-11-21T09:58:00Z","pods_at_start":3,"pods_gone":1,"reason":{"reason":"QueueDisabled"},"blockers":[],"next":"2026-11-21T10:05:00Z","step":[1,2]}"#;
    let attempt = serde_json::to_string(full_world().store.attempts.values().next().unwrap().get().unwrap()).unwrap();
    for (name, key, seeds) in [
        ("screen-entry", "reboots/data/0000000000000003", vec![entry.to_owned()]),
        ("screen-policy", "cketerm/policy", vec![policy.to_owned()]),
        ("screen-progress", "cketerm/progress/reboots/3", vec![progress.to_owned()]),
        ("screen-attempt", "cketerm/attempts/reboots/4/1", vec![attempt]),
    ] {
        Fuzz::new(name, 30).seeds(seeds).run(|bytes| {
            let mut world = full_world();
            let mut row = Row::new(&format!("/cke/{key}"), "", 60, 60);
            row.value = bytes.to_vec();
            world.store.put(&keys, &row);
            let refused = world.store.broken.contains_key(&format!("/cke/{key}"));
            for view in View::ALL {
                let mut app = world.console_in(view, 80, 24);
                for enter in ["", "enter", "j enter"] {
                    press_words(&mut app, enter);
                    let _ = screen::text(&app);
                }
            }
            Ok(if refused { Took::Refused } else { Took::Accepted })
        });
    }
}

/// Row with cells as random as the filters.
struct OddRow(Vec<ColumnId>);

impl Cells for OddRow {
    fn any(&self, mut test: impl FnMut(&Value<'_>) -> bool) -> bool {
        self.0.iter().any(|column| test(&self.value(*column)))
    }

    fn value(&self, column: ColumnId) -> Value<'_> {
        match column.as_str().len() % 4 {
            0 => Value::Number(f64::MAX),
            1 => Value::text("\u{202e}w\u{1f680}12"),
            2 => Value::Number(f64::NAN),
            _ => Value::None,
        }
    }
}

#[test]
fn random_filters_never_panic() {
    let seeds = [
        "rack=3 and status:queued or !node~w[0-9]+ since>5m",
        "\"a b\" reason:'x y' pods<=90 or age>1d2h",
        "address:10.0.0.1 index!=7 label.app=web",
    ];
    Fuzz::new("filter", 1000).seeds(seeds).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut took = Took::Refused;
        for view in View::ALL {
            let columns = columns::default_columns(view, false, u16::MAX);
            let read = Filter::parse(&text, &columns);
            match &read {
                Ok(filter) => {
                    took = Took::Accepted;
                    let _ = filter.passes(&OddRow(columns));
                }
                Err(why) if why.is_empty() => return Err("refused without a message".to_owned()),
                Err(_) => {}
            }
        }
        Ok(took)
    });
}

#[test]
fn random_command_lines_never_panic() {
    let app = World::usual().console(80, 24);
    let seeds = [
        "reboot rack=3 -- kernel 6.12",
        "view reboots",
        "sort since desc",
        "columns index,node",
        "freeze 2h audit",
        "write off",
        "goto worker-1",
        "reset-backoff all -- x",
        "theme dark",
        "mark status:queued",
    ];
    Fuzz::new("command-line", 800).seeds(seeds).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let read = command_line::read(&text);
        let _ = (command_line::completions(&app, &text), command_line::meaning(&text));
        match &read {
            Err(why) if why.is_empty() => Err("refused without a message".to_owned()),
            _ => Ok(Took::of(&read)),
        }
    });
}

#[test]
fn random_themes_and_settings_never_panic() {
    let theme =
        "base: dark\ngood: { fg: green, bold: true }\nbad: { fg: \"#ff0000\", bg: 17 }\ntitle: { underline: true }\n";
    Fuzz::new("theme", 500).seeds([theme, "good: red\n"]).run(|bytes| {
        let (file, faults) = theme::file::read(&String::from_utf8_lossy(bytes));
        if faults.iter().any(|filter_error| filter_error.text.is_empty()) {
            return Err("a fault without a text".to_owned());
        }
        let _ = theme::file::indistinct_roles(&file.roles);
        Ok(if faults.is_empty() { Took::Accepted } else { Took::Refused })
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("console.yaml");
    let own = "version: 1\ntables:\n  reboots: {columns: [index, node], sort: since desc}\n  nodes: {sort: name}\n";
    Fuzz::new("settings", 400).seeds([own]).run(|bytes| {
        std::fs::write(&path, bytes).unwrap();
        let read = settings::read(&path);
        if let Ok(read) = &read {
            let mut app = World::without_data().console(80, 24);
            let _ = settings::apply(&mut app, read);
            let _ = screen::text(&app);
        }
        Ok(Took::of(&read))
    });
}

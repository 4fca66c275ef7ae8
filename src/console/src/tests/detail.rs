//! Tests of the detail pane: live output, order of its sections, the pane and the cursor at one object, YAML.

use std::sync::Arc;

use cketerm_clients::store::pages::{Page, Part};
use cketerm_model::{
    attempt::{Attempt, Outcome},
    cketerm_records::Ending,
    entry::{EntryId, QueueKind, Stored},
    output::{CommandOutput, OutputTails},
    reboot::RebootStatus,
    time::after,
};
use insta::assert_snapshot;
use serde_json::json;

use super::{
    past::{ended_entry, load_past},
    world::{World, message, press, stored, wall},
};
use crate::{
    input::update,
    state::{
        App, PaneContent, Target, View,
        event::{Effect, Event},
        past::{Ended, EntryTimeline, ObjectId, ReadRequest, ReadResponse},
    },
    terminal::screen,
};

const ENTRY: EntryId = EntryId { queue: QueueKind::Reboot, index: 4 };

/// A world in which the command of reboots/4 runs and has printed these lines.
fn running(stdout: &str, stderr: &str) -> World {
    let mut world = World::usual();
    let attempt = world.store.attempts[&(ENTRY, 1)].get().unwrap().clone();
    let open = Attempt { outcome: None, ..attempt };
    world.store.attempts.insert((ENTRY, 1), stored("/cke/cketerm/attempts/reboots/4/1", 43, open));
    print(&mut world, stdout, stderr);
    world
}

fn print(world: &mut World, stdout: &str, stderr: &str) {
    let tails = OutputTails { stdout: stdout.into(), stderr: stderr.into() };
    let output = CommandOutput { at: after(wall(), -3), tails };
    world.store.output.insert((ENTRY, 1), stored("/cke/cketerm/output/reboots-4-1", 44, output));
}

fn content(app: &App) -> Option<PaneContent> {
    app.navigation.pane.as_ref().map(|pane| pane.content)
}

#[test]
fn the_output_of_a_running_command_comes_before_everything_else() {
    let world = running("bmc: session opened\n", "10.0.0.15: no answer, retrying (3s)\n");
    let mut app = world.console(80, 24);
    press(&mut app, "j enter");
    assert_snapshot!("entry_live_80x24", screen::text(&app));
    let text = screen::text(&app);
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is missing: {text}"));
    assert!(place("no answer, retrying") < place("Timeline"), "{text}");
    assert!(text.contains("Output of attempt 1, running for 42s, 3s old"), "{text}");
    let none = running("", "");
    let mut app = none.console(80, 24);
    press(&mut app, "j enter");
    assert!(screen::text(&app).contains("nothing was printed"), "{}", screen::text(&app));
}

#[test]
fn follow_keeps_to_the_end_of_the_output_until_the_operator_scrolls_up() {
    let lines = |n: usize| (1..=n).map(|i| format!("line {i}")).collect::<Vec<_>>().join("\n") + "\n";
    let mut world = running(&lines(60), "");
    let mut app = world.console(80, 24);
    press(&mut app, "j : \"follow\" enter");
    assert_eq!(content(&app), Some(PaneContent::Output { follow: true }));
    assert!(screen::text(&app).contains("line 60"), "{}", screen::text(&app));
    print(&mut world, &lines(80), "");
    update(&mut app, Event::Seen(world.seen()));
    assert!(screen::text(&app).contains("line 80"), "{}", screen::text(&app));
    press(&mut app, "k");
    print(&mut world, &lines(90), "");
    update(&mut app, Event::Seen(world.seen()));
    let text = screen::text(&app);
    assert!(!text.contains("line 90") && text.contains("line 79"), "{text}");
    press(&mut app, "G");
    print(&mut world, &lines(99), "");
    update(&mut app, Event::Seen(world.seen()));
    assert!(screen::text(&app).contains("line 99"), "at its end the output is followed again");
    press(&mut app, ": \"follow\" enter");
    assert_eq!(content(&app), Some(PaneContent::Detail));
}

#[test]
fn logs_of_an_entry_begin_with_the_output_of_its_command() {
    let mut app = running("", "10.0.0.15: no answer, retrying (3s)\n").console(80, 24);
    press(&mut app, "j l");
    assert_eq!(app.navigation.view, View::Logs);
    assert!(screen::text(&app).contains("no answer, retrying (3s)"), "{}", screen::text(&app));
}

/// The object of the row under the cursor and that of the pane.
fn both(app: &App) -> (Option<Target>, Option<Target>) {
    (app.row_target(), app.navigation.pane.as_ref().map(|pane| pane.of.clone()))
}

#[test]
fn brackets_step_through_the_rows_with_the_pane_open() {
    for view in [View::Reboots, View::Nodes, View::History, View::Audit] {
        let mut app = World::usual().console_in(view, 80, 24);
        load_past(&mut app);
        press(&mut app, "enter");
        let first = both(&app);
        press(&mut app, "]");
        let second = both(&app);
        assert_eq!(second.0, second.1, "{view:?}");
        assert_ne!(first.1, second.1, "{view:?}");
        press(&mut app, "[");
        assert_eq!(both(&app), first, "{view:?}");
        press(&mut app, "[");
        assert_eq!(both(&app), first, "the first row has none before it");
    }
}

#[test]
fn the_history_pane_and_the_cursor_stay_at_one_entry_whatever_arrives() {
    let mut app = World::usual().console_in(View::History, 120, 40);
    load_past(&mut app);
    press(&mut app, "j j enter");
    let opened = both(&app);
    assert_eq!(opened.0, opened.1);
    for revision in 901..930 {
        let value = ended_entry(u64::try_from(revision).unwrap(), "booted", 10);
        let values = vec![stored(&format!("/cke/cketerm/history/{revision}"), revision, value)];
        let page = Page { revision, more: false, values };
        update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::After(900), Ok(page)))));
        assert_eq!(both(&app), opened, "{revision}");
    }
    press(&mut app, "/ \"booted\" enter");
    let (row, pane) = both(&app);
    assert!(row.is_none() || row == pane, "{row:?} {pane:?}");
    press(&mut app, "esc");
    assert!(app.row_target().is_some(), "the cursor is back when the pane closes");
}

#[test]
fn the_cursor_leaves_the_rows_while_the_panes_entry_has_none() {
    let mut world = World::usual();
    let mut app = world.console(120, 40);
    press(&mut app, "j enter");
    let (_, pane) = both(&app);
    world.store.reboots.entries.remove(&4);
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(both(&app), (None, pane));
    update(&mut app, Event::Seen(world.seen()));
    press(&mut app, "esc");
    assert_eq!(app.row_target(), Some(Target::Entry(EntryId::reboot(5))), "the row in its place");
}

#[test]
fn yaml_shows_the_keys_of_an_entry_with_secrets_masked() {
    let mut world = running("password: hunter2\n", "");
    let attempt = world.store.attempts[&(ENTRY, 1)].get().unwrap().clone();
    let argv = ["ipmitool", "-P", "hunter2", "power", "cycle"].map(str::to_owned).to_vec();
    world
        .store
        .attempts
        .insert((ENTRY, 1), stored("/cke/cketerm/attempts/reboots/4/1", 43, Attempt { argv, ..attempt }));
    let mut app = world.console(100, 60);
    press(&mut app, "j y");
    let text = screen::text(&app);
    assert_snapshot!("entry_yaml_100x60", text);
    assert!(text.contains("\n   node: 10.0.0.15") && text.contains("- '***'"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    app.config.can_copy = true;
    let effects = press(&mut app, "c");
    assert!(
        matches!(effects.as_slice(), [Effect::Copy(text)] if text.contains("status: rebooting")),
        "{effects:?}: {}",
        message(&app)
    );
    press(&mut app, "/ \"argv\" enter");
    let at = app.navigation.pane.as_ref().map(|pane| pane.scroll);
    assert!(crate::views::pane_text(&app)[at.unwrap()..].iter().any(|line| line.contains("argv")), "{at:?}");
    assert!(app.list().filter().is_empty(), "the search does not filter the table");
}

#[test]
fn yaml_of_a_node_is_read_from_the_api_server() {
    let mut app = World::usual().console_in(View::Nodes, 80, 40);
    let effects = press(&mut app, "y");
    let Some(Target::Node(name)) = app.target() else { panic!("{:?}", app.target()) };
    let id = ObjectId::Node(name.clone());
    assert_eq!(effects, vec![Effect::Ask(ReadRequest::Object(id.clone()))]);
    assert!(screen::text(&app).contains("reading ..."));
    let object = json!({"metadata": {"name": name, "managedFields": [{"manager": "x"}]}, "spec": {"token": "hunter2"}});
    let answer = ReadResponse::Object(id, Ok(std::sync::Arc::new(object)));
    update(&mut app, Event::ReadFinished(Box::new(answer)));
    let made = |app: &App| app.knowledge.past.object.loaded.clone().and_then(|(_, yaml)| yaml.ok()).unwrap();
    let yaml = made(&app);
    let now = app.now;
    update(&mut app, Event::Tick(now));
    assert!(std::sync::Arc::ptr_eq(&yaml, &made(&app)), "the YAML is made once per answer");
    let text = screen::text(&app);
    assert!(text.contains("token: '***'") && !text.contains("managedFields"), "{text}");
    assert!(text.contains("in the definition"), "{text}");
    let effects = press(&mut app, "]");
    assert!(matches!(effects.as_slice(), [Effect::Ask(ReadRequest::Object(ObjectId::Node(next)))] if *next != name));
}

#[test]
fn history_is_filtered_by_outcome_and_machine_and_its_empty_state_says_so() {
    let mut app = World::usual().console_in(View::History, 80, 24);
    load_past(&mut app);
    press(&mut app, "/ \"outcome:failed machine:worker-1\" enter");
    let text = screen::text(&app);
    assert!(text.contains("reboots/0") && !text.contains("reboots/1 "), "{text}");
    press(&mut app, "/ \"outcome:failed machine:worker-5\" enter");
    let text = screen::text(&app);
    assert!(text.contains("none of 6 has outcome \"failed\", node \"worker-5\""), "{text}");
    press(&mut app, "/ \"machin:w1\"");
    assert!(screen::text(&app).contains("there is no column machin"), "{}", screen::text(&app));
}

#[test]
fn no_field_is_filled_with_a_dash() {
    let mut world = World::with_hosts();
    world.store.reboots.entries.remove(&8);
    for (view, rows) in [(View::Reboots, 5), (View::Nodes, 8), (View::Hosts, 5)] {
        let mut app = world.console_in(view, 100, 60);
        for _ in 0..rows {
            press(&mut app, "enter");
            for line in crate::views::pane_text(&app) {
                assert!(!line.contains(" -;") && !line.trim_end().ends_with(" -"), "{line}");
            }
            press(&mut app, "esc j");
        }
    }
}

#[test]
fn every_view_shows_the_same_time_for_an_ended_entry() {
    let mut ending = super::past::ending(2, "booted", 200);
    let attempt = World::usual().store.attempts[&(ENTRY, 1)].get().unwrap().clone();
    let outcome = Outcome { at: after(wall(), -220), ..attempt.outcome.clone().unwrap() };
    ending.attempts = vec![Attempt { start: after(wall(), -224), outcome: Some(outcome), ..attempt }];
    let ended = Ended::from(&ending);
    let page = Page { revision: 900, more: false, values: vec![stored("/cke/cketerm/history/2", 900, ended)] };
    for (view, shown) in [(View::Overview, "booted in 24s"), (View::History, "24s")] {
        let mut app = World::usual().console_in(view, 120, 40);
        let answer = ReadResponse::History(Part::Newest, Ok(page.clone()));
        update(&mut app, Event::ReadFinished(Box::new(answer)));
        assert!(screen::text(&app).contains(shown), "{view:?}: {}", screen::text(&app));
        if view == View::History {
            press(&mut app, "enter");
            assert!(screen::text(&app).contains("outcome    booted in 24s"), "{}", screen::text(&app));
        }
    }
}

#[test]
fn the_present_phase_stands_beside_its_usual_duration() {
    let attempt = World::usual().store.attempts[&(ENTRY, 1)].get().unwrap().clone();
    let booted_within = |seconds: i64| {
        let values = (0..20).map(|i| {
            let mut ending = super::past::ending(100 + i, "booted", 1000 + 60 * i64::try_from(i).unwrap());
            let outcome = Outcome { at: after(ending.at, -seconds), ..attempt.outcome.clone().unwrap() };
            let start = after(outcome.at, -5);
            ending.attempts = vec![Attempt { start, outcome: Some(outcome), ..attempt.clone() }];
            stored(&format!("/cke/cketerm/history/{i}"), 800 - i64::try_from(i).unwrap(), Ended::from(&ending))
        });
        Page { revision: 900, more: false, values: values.collect() }
    };
    for (seconds, shown) in [(40, "so far     39s, usual 40s"), (10, "so far     39s, usual 10s: slow")] {
        let mut app = World::usual().console(100, 40);
        let answer = ReadResponse::History(Part::Newest, Ok(booted_within(seconds)));
        update(&mut app, Event::ReadFinished(Box::new(answer)));
        press(&mut app, "j enter");
        let text = screen::text(&app);
        let line = text.lines().find(|line| line.contains("so far")).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(line.trim(), shown);
    }
}

#[test]
fn a_draining_entry_shows_its_pods_and_what_holds_each() {
    let mut app = World::usual().console(100, 40);
    press(&mut app, "enter");
    let text = screen::text(&app);
    assert!(text.contains("Pods: 38 of 40 gone, 2 left"), "{text}");
    assert!(text.contains("shop/web-7d9f8b6c5-x2x4z  "), "{text}");
    assert_eq!(app.seen.snapshot.store.reboots.entries[&3].get().map(|e| e.status), Some(RebootStatus::Draining));
}

/// Whoever watches a machine wants to see how it ended.
#[test]
fn the_pane_of_an_entry_stays_when_it_ends_and_says_how() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "j enter");
    assert!(screen::text(&app).contains("power cycle requested"), "{}", screen::text(&app));
    world.store.reboots.entries.remove(&4);
    world.store.attempts.remove(&(ENTRY, 1));
    update(&mut app, Event::Seen(world.seen()));
    let mut record = ended_entry(4, "booted", 2);
    record.command_started = Some(after(wall(), -16));
    let page = Page { revision: 950, more: false, values: vec![stored("/cke/cketerm/history/4", 950, record)] };
    let effects = update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page)))));
    let text = screen::text(&app);
    assert!(text.contains("reboots/4") && text.contains("booted in 14s"), "{text}");
    let asked = Effect::Ask(ReadRequest::Ending("/cke/cketerm/history/4".into()));
    assert!(effects.contains(&asked), "its output is read: {effects:?}");
    let attempt = World::usual().store.attempts[&(ENTRY, 1)].get().unwrap().clone();
    let ending = Ending { attempts: vec![attempt], ..super::past::ending(4, "booted", 2) };
    let timeline = EntryTimeline { ending, moments: Vec::new(), gap: None };
    let answer = ReadResponse::Ending("/cke/cketerm/history/4".into(), Ok(Arc::new(timeline)));
    update(&mut app, Event::ReadFinished(Box::new(answer)));
    let text = screen::text(&app);
    assert!(text.contains("booted in 14s") && text.contains("power cycle requested"), "{text}");
    // the output alone is kept too
    press(&mut app, "f");
    let text = screen::text(&app);
    assert!(text.contains("power cycle requested") && !text.contains("outcome"), "{text}");
    press(&mut app, "f");
    update(&mut app, Event::Seen(world.seen()));
    assert!(screen::text(&app).contains("booted in 14s"), "until it is closed");
    press(&mut app, "]");
    let (row, shown) = both(&app);
    assert!(row.is_some() && row == shown, "or until the operator moves on: {row:?} {shown:?}");
}

/// Events come many times a second.
#[test]
fn yaml_is_wrapped_again_only_when_its_object_or_the_width_changes() {
    let mut world = running("", "");
    let mut app = world.console(80, 24);
    press(&mut app, "j y");
    let lines = |app: &App| app.navigation.yaml.as_ref().unwrap().lines.as_ptr();
    let first = lines(&app);
    world.store.revision += 1;
    world.entry(5, "10.0.0.16", RebootStatus::Draining, 1, 90);
    update(&mut app, Event::Seen(world.seen()));
    press(&mut app, "k");
    assert_eq!(lines(&app), first, "another entry changed");
    print(&mut world, "bmc: session opened\n", "");
    let printed = world.store.output[&(ENTRY, 1)].clone();
    world.store.output.insert((ENTRY, 1), Stored { mod_revision: 45, ..printed });
    update(&mut app, Event::Seen(world.seen()));
    assert_ne!(lines(&app), first);
    assert!(crate::views::pane_text(&app).iter().any(|line| line.contains("session opened")));
    let second = lines(&app);
    update(&mut app, Event::Resize(100, 24));
    assert_ne!(lines(&app), second);
    press(&mut app, "y");
    assert_eq!(app.navigation.yaml, None);
}

//! Tests of docs/tasks.md: the keys of each task are pressed as written there and counted, and its result is checked.

use std::{collections::BTreeSet, sync::Arc};

use cketerm_model::{
    entry::{EntryId, QueueKind},
    kube::NodeRow,
    names::{Address, NodeName},
    reboot::RebootStatus,
    repair::RepairEntry,
};
use cketerm_rules::seen::Seen;

use super::{
    past,
    world::{World, press},
};
use crate::{
    input::update,
    state::{
        App, Target, View,
        event::{Action, Effect, Event, RegistryAction},
    },
    terminal::screen,
};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tasks.md");
/// Most key presses of a task; more would be awkward.
const MAX_KEYS: usize = 6;
/// The same for a host: it is found first, and its confirmation is typed.
const MAX_HOST_KEYS: usize = 8;

struct Task {
    name: String,
    keys: String,
    count: usize,
}

fn tasks() -> Vec<Task> {
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        Task { name: cells[0].into(), keys: cells[1].trim_matches('`').into(), count: cells[2].parse().unwrap() }
    })
    .collect()
}

/// Counts the key presses outside of typed text.
fn count_keys(keys: &str) -> usize {
    keys.split('"').step_by(2).map(|part| part.split_whitespace().count()).sum()
}

fn keys_of(task: &str) -> String {
    let tasks = tasks();
    tasks.iter().find(|t| t.name == task).unwrap_or_else(|| panic!("docs/tasks.md has no {task:?}")).keys.clone()
}

fn run_task(task: &str, world: &World) -> (App, Vec<Effect>) {
    run_task_on(task, &world.seen())
}

/// Presses the keys of a task at the Overview. Returns the effects that change something.
fn run_task_on(task: &str, seen: &Arc<Seen>) -> (App, Vec<Effect>) {
    let mut app = World::without_data().console_in(View::Overview, 80, 24);
    update(&mut app, Event::Seen(Arc::clone(seen)));
    past::load_past(&mut app);
    let effects = press(&mut app, &keys_of(task));
    past::load_past(&mut app);
    (app, effects.into_iter().filter(|effect| !matches!(effect, Effect::Ask(_))).collect())
}

#[track_caller]
fn action(effects: Vec<Effect>) -> Action {
    match <[Effect; 1]>::try_from(effects) {
        Ok([Effect::Act(action)]) => action,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_shows(app: &App, what: &str) {
    let text = screen::text(app);
    assert!(text.contains(what), "{what:?}:\n{text}");
}

#[test]
fn every_task_takes_the_documented_number_of_keys_at_most_six() {
    let tasks = tasks();
    assert!(tasks.len() >= 16);
    for task in &tasks {
        let most = if task.keys.starts_with('6') { MAX_HOST_KEYS } else { MAX_KEYS };
        assert_eq!(count_keys(&task.keys), task.count, "{}", task.name);
        assert!(task.count <= most, "{}", task.name);
    }
}

/// A row of the document without a test here would promise something that nobody checks.
#[test]
fn every_task_is_pressed_by_a_test() {
    let source = include_str!("tasks.rs");
    let names: BTreeSet<String> = tasks().into_iter().map(|task| task.name).collect();
    for name in names {
        assert!(source.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn task_find_what_is_stuck() {
    let (app, _) = run_task("What is stuck, and why?", &World::usual());
    let Some(pane) = &app.navigation.pane else { panic!("no pane:\n{}", screen::text(&app)) };
    let Target::Entry(id) = pane.of else { panic!("{pane:?}") };
    assert!(cketerm_rules::trouble::all_stuck(&app.seen).contains(&id), "{id}");
}

#[test]
fn task_find_why_a_node_does_not_reboot() {
    let (app, _) = run_task("Why does worker-3 not reboot?", &World::usual());
    assert_shows(&app, "waits for a slot");
}

#[test]
fn task_let_a_blocked_drain_go_on() {
    let (app, effects) = run_task("Let a blocked drain go on", &World::usual());
    assert!(!effects.is_empty(), "{}", screen::text(&app));
    let Action::Order { entry, verb, .. } = action(effects) else { panic!() };
    assert_eq!((entry.index, verb), (3, cketerm_model::cketerm_records::Verb::Force));
}

#[test]
fn task_queue_a_rack_without_its_api_servers() {
    let (_, effects) = run_task("Reboot rack 1 without its API servers", &World::usual());
    let addresses = vec![Address::new("10.0.0.15"), Address::new("10.0.0.18")];
    assert_eq!(effects, [Effect::Act(Action::AddReboots { addresses, reason: Some("kernel 6.12".into()) })]);
}

fn cancelled(task: &str) -> Vec<u64> {
    let (_, effects) = run_task(task, &World::usual());
    let Action::Cancel { entries, .. } = action(effects) else { panic!() };
    entries.iter().map(|id| id.index).collect()
}

#[test]
fn task_cancel_one_some_or_all() {
    assert_eq!(cancelled("Cancel one reboot"), [5]);
    assert_eq!(cancelled("Cancel what is queued and has not begun"), [5, 7]);
    assert_eq!(cancelled("Cancel all reboots"), [3, 4, 5, 6, 7]);
}

#[test]
fn task_disable_and_enable_a_queue() {
    let switch = |enabled, reason: Option<&str>| Action::Switch {
        queue: QueueKind::Reboot,
        enabled,
        reason: reason.map(str::to_owned),
    };
    let mut world = World::usual();
    let (_, effects) = run_task("Disable the reboot queue", &world);
    assert_eq!(action(effects), switch(false, Some("disk swap")));
    world.store.reboots.switch.raw = Some("true".into());
    let (_, effects) = run_task("Enable it again", &world);
    assert_eq!(action(effects), switch(true, None));
}

#[test]
fn task_read_the_output_of_a_failed_command() {
    let (app, _) = run_task("Read the output of a failed command", &World::with_repairs());
    assert_shows(&app, "power supply 2 is missing");
}

#[test]
fn task_repair_a_machine_and_delete_ended_repairs() {
    let repaired = |task, world: &World| {
        let (app, effects) = run_task(task, world);
        assert!(!effects.is_empty(), "{}", screen::text(&app));
        let Action::AddRepairs { addresses, operation, .. } = action(effects) else { panic!() };
        assert_eq!(addresses, [Address::new("10.0.0.18")]);
        operation
    };
    // the operation of the failed entry reinstalls, unless it is replaced by one that restarts the agent
    let mut world = World::with_repairs();
    assert_eq!(repaired("Reinstall a machine again", &world), "unreachable");
    let failed = world.store.repairs.entries.get_mut(&4).unwrap();
    let entry = RepairEntry::clone(failed.get().unwrap());
    failed.value = Ok(Arc::new(RepairEntry { operation: "unhealthy".into(), step: 0, ..entry }));
    assert_eq!(repaired("Repair again what failed", &world), "unhealthy");
    let (_, effects) = run_task("Delete the repairs that ended", &World::with_repairs());
    let Action::Cancel { entries, .. } = action(effects) else { panic!() };
    assert_eq!(entries, [EntryId::repair(0), EntryId::repair(4)]);
}

#[test]
fn task_show_and_approve_what_sabakan_will_change() {
    let (app, _) = run_task("What will sabakan change, and why?", &World::usual());
    assert_eq!(app.navigation.view, View::Diff);
    let (_, effects) = run_task_on("Approve the change", &super::registry::gated());
    let Action::Registry { what, .. } = action(effects) else { panic!() };
    assert_eq!(what, RegistryAction::Approve("d1".to_owned()));
}

#[test]
fn task_hold_off_and_release_a_host() {
    let world = World::with_hosts();
    let (_, effects) = run_task("Hold a host off", &world);
    let action = action(effects);
    let Action::Hosts { hosts, .. } = &action else { panic!("{action:?}") };
    assert_eq!(hosts[0].0, "metal3/m1");
    assert!(format!("{action:?}").contains("Hold(Soft)"), "{action:?}");
    let (_, effects) = run_task("Release it", &world);
    assert!(format!("{effects:?}").contains("Release(\"cketerm\")"), "{effects:?}");
}

#[test]
fn task_find_who_disabled_a_queue() {
    let (app, _) = run_task("Who disabled the repair queue, and why?", &World::usual());
    assert_shows(&app, "bob");
    assert_shows(&app, "repair queue (disk");
}

#[test]
fn task_freeze_until_tomorrow() {
    let (_, effects) = run_task("Freeze until tomorrow", &World::usual());
    let until = "2026-11-22T08:00:00Z".parse().unwrap();
    assert_eq!(action(effects), Action::Freeze { until, reason: "quarter end".into() });
}

#[test]
fn task_change_theme_and_columns_and_look_up_a_key() {
    let (_, effects) = run_task("Take another theme", &World::usual());
    assert!(format!("{effects:?}").contains("dark"), "{effects:?}");
    let (app, _) = run_task("Which key holds an entry?", &World::usual());
    assert_shows(&app, "Hold the entries until their hold is ended");
    let (app, effects) = run_task("Choose the columns", &World::usual());
    assert!(!screen::text(&app).contains("STATUS") && screen::text(&app).contains("REASON"), "{effects:?}");
}

#[test]
fn task_find_one_of_two_thousand_nodes() {
    let mut world = World::usual();
    for i in 0..2000 {
        let name = NodeName::new(format!("node-{i}"));
        let addresses = vec![Address::new(format!("10.1.{}.{}", i / 250, i % 250 + 1))];
        world.kube.put_node(NodeRow { uid: format!("uid-{i}"), name, addresses, ready: true, ..NodeRow::default() });
    }
    let (app, _) = run_task("Find one of 2,000 nodes", &world);
    assert_eq!(app.navigation.pane.map(|pane| pane.of), Some(Target::Node("node-1234".into())));
}

#[test]
fn task_find_the_pod_that_blocks_the_most_nodes() {
    let mut world = World::usual();
    world.entry(5, "10.0.0.16", RebootStatus::Draining, 60, 90);
    let same = world.store.progress[&EntryId::reboot(3)].clone();
    world.store.progress.insert(EntryId::reboot(5), same);
    let (app, _) = run_task("Which pod blocks the most nodes?", &world);
    let text = screen::text(&app);
    let line = |what: &str| text.lines().position(|line| line.contains(what));
    assert!(line("2 nodes  pdb shop/web: 2 of 2 needed healthy") < line("1 node  pdb db/pg: 2 of 2 needed"), "{text}");
    assert!(text.contains("nodes: worker-1, worker-3") && text.contains("pods: shop/web-7d9f8b6c5-x2x4z"), "{text}");
}

#[test]
fn task_reset_all_backoffs() {
    let (_, effects) = run_task("Reset all backoffs", &World::usual());
    let [Effect::Act(Action::ResetBackoff { entries, .. })] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(entries.iter().map(|id| id.index).collect::<Vec<_>>(), [6]);
}

#[test]
fn task_find_what_failed_yesterday() {
    let (app, _) = run_task("What failed yesterday?", &World::usual());
    assert_shows(&app, "failed: not healthy");
    assert_eq!(app.lists.history.rows.len(), 1);
}

#[test]
fn task_quit_while_leading() {
    let (_, effects) = run_task("Quit while this console leads", &World::usual());
    assert_eq!(effects, [Effect::Quit]);
    let mut app = World::usual().console_in(View::Overview, 80, 24);
    press(&mut app, "q");
    assert_shows(&app, "nothing runs until another engine starts");
}

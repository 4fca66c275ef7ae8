//! Tests of docs/tasks.md: the keys of each task are pressed as written there and counted, and its result is checked.

use cketerm_model::{entry::EntryId, names::Address, reboot::RebootStatus};

use super::{
    past,
    world::{World, press},
};
use crate::{
    state::{
        App, View,
        event::{Action, Effect},
    },
    terminal::screen,
};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tasks.md");
/// Most key presses of a task; more would be awkward.
const MAX_KEYS: usize = 12;

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

fn run_task(task: &str, world: &World) -> (App, Vec<Effect>) {
    let tasks = tasks();
    let task = tasks.iter().find(|t| t.name == task).unwrap_or_else(|| panic!("docs/tasks.md has no {task:?}"));
    let mut app = world.console_in(View::Overview, 80, 24);
    past::load_past(&mut app);
    let effects = press(&mut app, &task.keys);
    past::load_past(&mut app);
    (app, effects.into_iter().filter(|effect| !matches!(effect, Effect::Ask(_))).collect())
}

#[track_caller]
fn assert_shows(app: &App, what: &str) {
    let text = screen::text(app);
    assert!(text.contains(what), "{what:?}:\n{text}");
}

#[test]
fn every_task_takes_the_documented_number_of_keys_at_most_twelve() {
    let tasks = tasks();
    assert!(tasks.len() >= 10);
    for task in &tasks {
        assert_eq!(count_keys(&task.keys), task.count, "{}", task.name);
        assert!(task.count <= MAX_KEYS, "{}", task.name);
    }
}

#[test]
fn task_find_why_a_node_does_not_reboot() {
    let (app, _) = run_task("Why does worker-3 not reboot?", &World::usual());
    assert_shows(&app, "waits for a slot");
}

#[test]
fn task_queue_a_rack_without_its_api_servers() {
    let (_, effects) = run_task("Queue rack 1 without its API servers", &World::usual());
    let addresses = vec![Address::new("10.0.0.15"), Address::new("10.0.0.18")];
    assert_eq!(effects, [Effect::Act(Action::AddReboots { addresses, reason: Some("kernel 6.12".into()) })]);
}

#[test]
fn task_cancel_queued_entries() {
    let (_, effects) = run_task("Cancel what is queued and has not begun", &World::usual());
    let [Effect::Act(Action::Cancel { entries, .. })] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(entries.iter().map(|id| id.index).collect::<Vec<_>>(), [5, 7]);
}

#[test]
fn task_find_who_disabled_a_queue() {
    let (app, _) = run_task("Who disabled the repair queue, and why?", &World::usual());
    assert_shows(&app, "bob");
    assert_shows(&app, "repair queue (disk");
}

#[test]
fn task_show_what_sabakan_will_change() {
    let (app, _) = run_task("What will sabakan change, and why?", &World::usual());
    assert_eq!(app.navigation.view, View::Diff);
}

#[test]
fn task_hold_off_and_release_a_host() {
    let world = World::with_hosts();
    let (_, effects) = run_task("Hold a host off", &world);
    let [Effect::Act(action @ Action::Hosts { hosts, .. })] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(hosts[0].0, "metal3/m1");
    assert!(format!("{action:?}").contains("Hold(Soft)"), "{action:?}");
    let (_, effects) = run_task("Release it", &world);
    assert!(format!("{effects:?}").contains("Release(\"cketerm\")"), "{effects:?}");
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
    assert!(line("2 nodes  pdb shop/web 2/2") < line("1 node  pdb db/pg 2/2"), "{text}");
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

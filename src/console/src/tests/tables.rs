//! Tests of what tables show of work: signs, bars, attempts and times against the usual ones; map or list of Nodes.

use std::sync::Arc;

use cketerm_model::{
    attempt::{Attempt, Ended, Outcome},
    cketerm_records::{EndKind, Request, Who},
    cluster::Members,
    entry::{EntryId, Stored},
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    names::Address,
    reason::{CommandRetry, Reason},
    stored::view::Definition,
    time::after,
};
use cketerm_rules::usual::{EndedTimes, MachineClass, Phase, PhaseTime, UsualTimes};

use super::world::{World, press, stored, wall};
use crate::{
    state::{
        App, View,
        event::Effect,
        settings::{self, Change},
    },
    terminal::screen,
    theme::Severity,
};

fn line(app: &App, of: &str) -> String {
    let text = screen::text(app);
    text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of:?}:\n{text}")).to_owned()
}

/// Returns ended reboots whose machines booted in this many seconds.
fn booted_in(seconds: f64) -> Arc<UsualTimes> {
    let ended = |index| EndedTimes {
        entry: EntryId::reboot(index),
        address: Address::new("10.0.0.15"),
        end: EndKind::Booted,
        at: wall(),
        control_plane: false,
        machine_type: None,
        operation: None,
        backoffs: 0,
        phases: vec![PhaseTime { phase: Phase::Boot, step: None, seconds }],
    };
    Arc::new(UsualTimes::of((100..120).map(ended).collect(), |_| MachineClass::default()))
}

#[test]
fn a_drain_is_a_bar_of_pods_and_a_boot_a_bar_of_the_usual_time() {
    let mut app = World::usual().console(120, 30);
    assert!(
        line(&app, " worker-1 ").contains("\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}\u{2591} 38/40")
    );
    assert!(line(&app, " worker-2 ").contains("boot 39s"), "nothing to compare with");
    app.knowledge.usual = booted_in(78.0);
    let half = "\u{2588}\u{2588}\u{2588}\u{2588}\u{2591}\u{2591}\u{2591}\u{2591} 39s ";
    assert!(line(&app, " worker-2 ").contains(half), "{}", line(&app, " worker-2 "));
    assert!(line(&app, " worker-2 ").contains(&format!("{} rebooting", Severity::Rebooting.sign())));
}

#[test]
fn a_boot_that_is_slower_than_usual_is_amber_and_says_so() {
    let mut app = World::usual().console(120, 30);
    app.knowledge.usual = booted_in(20.0);
    let slow = line(&app, " worker-2 ");
    assert!(slow.contains("39s, usual 20s"), "{slow}");
    assert!(slow.contains(&format!("{} rebooting", Severity::Slow.sign())), "{slow}");
    let buffer = screen::buffer(&app);
    let amber = buffer.content.iter().filter(|cell| Some(cell.fg) == app.config.theme.trouble.fg);
    assert!(amber.filter(|cell| cell.symbol() == "\u{2588}").count() >= 8, "the bar is amber");
}

#[test]
fn a_running_command_shows_its_attempt_and_how_many_may_run() {
    let mut world = World::usual();
    let key = (EntryId::reboot(4), 1);
    let mut attempt = world.store.attempts.get(&key).and_then(Stored::get).unwrap().clone();
    attempt.outcome = None;
    world.store.attempts.insert(key, stored("a", 44, attempt));
    let mut definition = world.store.definition().unwrap().clone();
    definition.cluster.reboot.command_retries = Some(2);
    world.store.cluster = Some(stored("/cke/cluster", 45, definition));
    assert!(line(&world.console(120, 30), " worker-2 ").contains("try 1/3, 42s"));
}

#[test]
fn the_cursors_row_is_a_bar_without_colours_too() {
    use ratatui::style::Modifier;
    let mut app = World::usual().console(80, 24);
    app.config.theme = crate::theme::Theme::named("terminal", false).unwrap();
    press(&mut app, "j space k");
    let buffer = screen::buffer(&app);
    let reversed = |y: u16| (0..80).filter(|x| buffer[(*x, y)].modifier.contains(Modifier::REVERSED)).count();
    assert_eq!((reversed(5), reversed(6)), (80, 0));
    assert_eq!((buffer[(0, 5)].symbol(), buffer[(1, 5)].symbol()), (">", "*"));
}

#[test]
fn nodes_begin_with_the_map_where_it_fits_and_the_choice_is_remembered() {
    let world = World::usual();
    assert!(world.console_in(View::Nodes, 80, 24).navigation.map.is_none(), "too small");
    let mut app = world.console_in(View::Nodes, 160, 40);
    app.config.saves_settings = true;
    assert!(app.navigation.map.is_some());
    let text = screen::text(&app);
    assert!(
        text.contains("[\u{2591} cp-1") || text.contains("[\u{2591}\u{258c}cp-1"),
        "cursor, sign, API server: {text}"
    );
    assert!(text.contains("\u{258c} API server"), "{text}");
    // three racks of three machines: all of the screen is used, with states in words
    assert!(text.lines().any(|line| line.contains("queued") && !line.contains("cp-1")), "{text}");
    let last = text.lines().position(|line| line.contains("worker-3")).unwrap();
    assert!(last > 9, "lines are spread: {text}");
    let effects = press(&mut app, "v");
    assert!(effects.contains(&Effect::SaveSettings(Change::Map(false))), "{effects:?}");
    press(&mut app, "1 2");
    assert!(app.navigation.map.is_none(), "the list stays");
    press(&mut app, "v 1 2");
    assert!(app.navigation.map.is_some());
    // the next start reads the choice
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("console.yaml");
    settings::write(&path, &Change::Map(false)).unwrap();
    let mut next = App::new(crate::state::AppConfig::default(), View::Reboots, super::world::at(world.boot));
    assert_eq!(settings::apply(&mut next, &settings::read(&path).unwrap()), Vec::<String>::new());
    assert_eq!(next.navigation.map_chosen, Some(false));
}

#[test]
fn without_racks_nodes_begin_with_the_list_and_the_map_still_works() {
    let mut world = World::usual();
    let names: Vec<_> = world.kube.nodes.keys().cloned().collect();
    for name in names {
        let mut row = cketerm_model::kube::NodeRow::clone(&world.kube.nodes[&name]);
        row.shown_labels.clear();
        world.kube.put_node(row);
    }
    let mut app = world.console_in(View::Nodes, 160, 40);
    assert!(app.navigation.map.is_none());
    press(&mut app, "v right right right");
    assert!(screen::text(&app).contains("no rack"), "{}", screen::text(&app));
}

/// The detail beside the table follows once the cursor rests; until then the first frame names its object.
#[test]
fn the_first_frame_names_the_object_that_the_preview_will_show() {
    let app = World::usual().console(200, 50);
    assert!(app.navigation.preview.is_none());
    let buffer = screen::buffer(&app);
    let text = screen::text(&app);
    let (y, line) = text.lines().enumerate().find(|(_, line)| line.contains("reboots/3")).expect(&text);
    let x = line.split("reboots/3").next().unwrap().chars().count();
    let cell = &buffer[(u16::try_from(x).unwrap(), u16::try_from(y).unwrap())];
    assert!(x > 100, "{text}");
    assert_eq!(Some(cell.fg), app.config.theme.muted.fg.or(Some(ratatui::style::Color::Reset)));
}

/// A cell is not cut while the last column has space that it does not need.
#[test]
fn columns_get_the_space_that_the_remarks_do_not_need() {
    let mut world = World::with_hosts();
    let hosts = |world: &World| screen::text(&world.console_in(View::Hosts, 80, 24));
    assert!(hosts(&world).contains("cketerm hard,~"), "the remarks need the space: {}", hosts(&world));
    for name in ["m1", "m3", "m4", "m5"] {
        world.kube.hosts.remove(&("metal3".to_owned(), name.to_owned()));
    }
    assert!(hosts(&world).contains("cketerm hard, remediation soft"), "{}", hosts(&world));
}

/// A world in which the command of reboots/4 has ended in this way, with two retries allowed after pauses of 60 s.
fn after_command(end: Ended, allowed: i64) -> World {
    let mut world = World::usual();
    let id = EntryId::reboot(4);
    let attempt = world.store.attempts[&(id, 1)].get().unwrap().clone();
    let outcome = Outcome { end: end.clone(), ..attempt.outcome.clone().unwrap() };
    world.store.attempts.insert((id, 1), stored("a", 43, Attempt { outcome: Some(outcome), ..attempt }));
    let definition = world.store.cluster.as_ref().unwrap().get().unwrap().clone();
    let mut cluster = definition.cluster;
    cluster.reboot.command_retries = Some(allowed - 1);
    cluster.reboot.command_interval = Some(60);
    let members = Members::of(&cluster);
    world.store.cluster = Some(stored("/cke/cluster", 5, Definition { cluster, members }));
    let retry = if allowed > 1 { CommandRetry::Scheduled } else { CommandRetry::Never };
    world.reasons.insert(id, Reason::CommandFailed { end, stderr: "no route to the BMC".into(), retry });
    world
}

/// A machine whose command failed does not boot.
#[test]
fn a_failed_command_shows_the_next_try_or_that_there_is_none() {
    let progress = |world: &World| line(&world.console(120, 30), "worker-2");
    let failed = progress(&after_command(Ended::Exit(3), 1));
    assert!(failed.contains("failed 1/1") && !failed.contains("boot "), "{failed}");
    // it ended 39 s ago, and the next one follows 60 s after it
    let again = progress(&after_command(Ended::Exit(3), 3));
    assert!(again.contains("retry 2/3 in 21s") && !again.contains("boot "), "{again}");
    let withheld = progress(&after_command(Ended::Withheld("the window closed".into()), 3));
    assert!(withheld.contains("retry 1/3 now"), "{withheld}");
    let booting = progress(&World::usual());
    assert!(booting.contains("boot 39s"), "{booting}");
    let app = after_command(Ended::Exit(3), 1).console(120, 30);
    let buffer = screen::buffer(&app);
    let text = screen::text(&app);
    let y = text.lines().position(|line| line.contains("worker-2")).unwrap();
    let x = text.lines().nth(y).unwrap().find("failed 1/1").unwrap();
    let cell = &buffer[(u16::try_from(x).unwrap(), u16::try_from(y).unwrap())];
    assert_eq!(Some(cell.fg), app.config.theme.severity(Severity::Failed).fg);
}

#[test]
fn a_row_that_backs_off_says_when_it_goes_on() {
    let app = World::usual().console(80, 24);
    let row = line(&app, "worker-4");
    assert!(
        row.contains("backoff") && row.contains("again in 6m") && row.contains("pdb db/pg has 2, needs 2"),
        "{row}"
    );
}

/// SINCE, PROGRESS and the reason would otherwise count from the transition, the start and the end of the command.
#[test]
fn all_times_in_a_row_count_from_the_start_of_its_phase() {
    let row = line(&World::usual().console(120, 30), "worker-2");
    assert!(row.contains(" 39s ") && row.contains("boot 39s") && !row.contains("42s"), "{row}");
    assert_eq!(row.matches("39s").count(), 2, "the reason repeats no time: {row}");
    let mut world = World::usual();
    let id = EntryId::reboot(4);
    let attempt = world.store.attempts[&(id, 1)].get().unwrap().clone();
    world
        .store
        .attempts
        .insert((id, 1), stored("a", 43, Attempt { outcome: None, start: after(wall(), -40), ..attempt }));
    world.reasons.insert(id, Reason::CommandRunning { attempt: "a1".into(), since: after(wall(), -41) });
    let row = line(&world.console(120, 30), "worker-2");
    assert!(row.contains(" 40s ") && row.contains("try 1/1, 40s") && !row.contains("41s"), "{row}");
}

#[test]
fn the_nodes_in_maintenance_are_listed_with_person_end_and_reason() {
    let mut world = World::usual();
    let (id, address) = (EntryId::maintenance(7), Address::new("10.0.0.16"));
    let until = after(wall(), 3 * 3600);
    let entry = MaintenanceEntry::queued(7, &address, until).moved_to(MaintenanceStatus::InMaintenance, wall());
    world.store.maintenance.entries.insert(7, stored("cketerm/maintenance/data/0000000000000007", 70, entry));
    let who = Who { user: "alice".into(), host: "admin-1".into(), ssh_client: None };
    let request = Request { who, at: wall(), reason: Some("new disk".into()), node_uid: None, batch: None };
    world.store.requests.insert(id, stored("cketerm/requests/maintenance/7", 71, request));
    for (width, height) in [(80, 24), (260, 60)] {
        let mut app = world.console_in(View::Overview, width, height);
        assert_eq!(press(&mut app, ": \"maintenance\" enter"), []);
        let text = screen::text(&app);
        assert_eq!(app.navigation.view, View::Nodes, "{text}");
        assert_eq!(app.lists.nodes.window(100), ["worker-3"], "{text}");
        assert!(text.contains("in maintenance") && text.contains("until 13:00Z"), "{text}");
        assert_eq!(text.contains("by alice@admin-1: new disk"), width == 260, "{text}");
    }
}

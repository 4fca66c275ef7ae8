//! Tests of what an operator reads on the Overview at a glance: ends, backoffs, names instead of addresses, numbers that
//! add up, and no space that says nothing.

use std::sync::Arc;

use cketerm_clients::store::pages::Part;
use cketerm_model::{
    batch::{Batch, BatchEnds, BatchId},
    cketerm_records::{Audit, Request, Who},
    entry::{EntryId, QueueKind},
    policy::Policy,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    stored::{keys::Folder, view::Switch},
    time::after,
};
use cketerm_rules::decide::ApplyState;

use super::{
    needs_you::with_plan,
    past::{ended_entry, page, timed},
    world::{World, message, press, stored, wall},
};
use crate::{
    input::update,
    state::{
        App, Target, View,
        event::Event,
        overview::OverviewRow,
        past::{Ended, ReadResponse},
    },
    terminal::screen,
    views,
};

fn who(user: &str) -> Who {
    Who { user: user.into(), host: "admin1".into(), ssh_client: None }
}

fn read_history(app: &mut App, ended: Vec<Ended>) {
    update(app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page(ended, false))))));
}

/// Twenty reboots that took three minutes each, none of which got stuck.
fn usual() -> Vec<Ended> {
    (0..20).map(|i| timed(i, 60 * i64::try_from(i).unwrap())).collect()
}

fn overview(world: &World, columns: u16, rows: u16) -> App {
    let mut app = world.console_in(View::Overview, columns, rows);
    read_history(&mut app, usual());
    app
}

fn line_with(app: &App, words: &str) -> String {
    let text = screen::text(app);
    text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no {words:?} in\n{text}")).to_owned()
}

/// Minutes are what people plan with. A machine that may stick is beside it, not in it.
#[test]
fn the_end_is_a_time_and_minutes_and_the_late_end_stands_beside_it() {
    let mut world = World::usual();
    world.store.policy = Some(stored("/cke/cketerm/policy", 6, Policy { stuck_seconds: 1800, ..Policy::default() }));
    world.store.reboots.entries.remove(&8);
    for index in 10..20 {
        world.entry(index, &format!("10.0.1.{index}"), RebootStatus::Queued, 300, 60);
        world.reasons.insert(EntryId::reboot(index), Reason::WaitingForSlot { holder: None, limit: 2, ahead: false });
    }
    let title = line_with(&overview(&world, 120, 36), "Reboots: ");
    assert!(title.contains("done 1") && title.contains(" ± ") && !title.contains("between"), "{title}");
    assert!(title.contains(" if none sticks, 90 % by 1"), "{title}");
    let title = line_with(&overview(&world, 80, 24), "Reboots: ");
    assert!(title.contains(" ± ") && title.contains(" if none sticks ") && !title.contains("90 %"), "{title}");
}

/// A repair in backoff was listed, a reboot was not.
#[test]
fn a_reboot_in_backoff_is_listed_counted_apart_and_offers_its_key() {
    for (columns, rows) in [(80, 24), (120, 36), (200, 50)] {
        let mut app = overview(&World::usual(), columns, rows);
        let text = screen::text(&app);
        let line = line_with(&app, "backs off, again at 10:06");
        assert!(line.contains("worker-4"), "{line}");
        assert!(text.contains("1 backing off") && text.contains("2 queued"), "{text}");
        views::check_overview_rows(&app);
        app.lists.overview_rows.moved = true;
        app.lists.overview_rows.select_id(&OverviewRow::Work(EntryId::reboot(6)));
        assert_eq!(app.target(), Some(Target::Entry(EntryId::reboot(6))));
        assert!(screen::text(&app).contains("B reset backoff"), "{}", screen::text(&app));
    }
}

#[test]
fn one_machine_has_one_line_with_the_number_of_its_other_reasons() {
    let app = overview(&World::with_repairs(), 120, 36);
    let of: Vec<_> = app.knowledge.needs_you.iter().filter(|line| line.title().contains("worker-5")).collect();
    assert_eq!(of.len(), 1, "{of:?}");
    assert!(line_with(&app, "(+1 reason)").contains("worker-5"), "{of:?}");
    assert!(of[0].what.starts_with("repair "), "the operation is not a state: {of:?}");
}

#[test]
fn a_line_of_several_machines_names_those_that_fit() {
    let mut world = World::usual();
    let failed = |stderr: &str| Reason::CommandFailed {
        end: cketerm_model::attempt::Ended::Exit(1),
        stderr: stderr.to_owned(),
        retry: cketerm_model::reason::CommandRetry::Never,
    };
    for (index, n, stderr) in [(10, 15, "BMC refused"), (11, 16, "BMC refused"), (12, 17, "timeout")] {
        world.entry(index, &format!("10.0.0.{n}"), RebootStatus::Rebooting, 900, 60);
        world.reasons.insert(EntryId::reboot(index), failed(stderr));
    }
    world.store.reboots.entries.remove(&4);
    world.store.reboots.entries.remove(&6);
    let app = overview(&world, 120, 36);
    let line = line_with(&app, "command failed");
    assert!(line.contains("worker-2, worker-3") && line.contains("BMC refused"), "{line}");
    let narrow = line_with(&overview(&world, 60, 20), "exit 1: BMC");
    assert!(narrow.contains("worker-2 +2"), "{narrow}");
}

#[test]
fn no_address_stands_where_a_name_is_known() {
    let mut app = World::usual().console_in(View::Overview, 120, 36);
    let audit = |what: &str, on: &str| Audit {
        at: after(wall(), -900),
        who: who("alice"),
        what: what.into(),
        on: on.into(),
        reason: None,
        result: "done".into(),
        failed: false,
        entry: None,
        repeats: None,
    };
    let actions = vec![audit("reboot add", "10.0.0.14 10.0.0.15 10.0.0.16")];
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(page(actions, false))))));
    let line = line_with(&app, "alice: ");
    assert!(line.contains("worker-1") && !line.contains("10.0.0."), "{line}");
}

/// The message told of a state that was over.
#[test]
fn a_message_about_a_state_ends_with_the_state() {
    let mut world = World::usual();
    world.store.reboots.entries.clear();
    world.store.progress.clear();
    world.reasons.clear();
    let mut node = (*world.kube.by_name["worker-5"]).clone();
    node.ready = true;
    world.kube.put_node(node.clone());
    let mut app = world.console(80, 24);
    press(&mut app, "n");
    assert_eq!(message(&app), "nothing needs you");
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(message(&app), "nothing needs you", "nothing has changed");
    node.ready = false;
    world.kube.put_node(node);
    update(&mut app, Event::Seen(world.seen()));
    assert!(!app.knowledge.needs_you.is_empty());
    assert_eq!(message(&app), "");
}

/// A batch of which bob cancelled 23 entries.
fn cancelled() -> World {
    let mut world = World::usual();
    for index in 4..9 {
        world.store.reboots.entries.remove(&index);
    }
    let at = after(wall(), -900);
    let mut batch = Batch { added: 24, ..Batch::new(QueueKind::Reboot, who("alice"), at, Some("BIOS".into()), 24) };
    batch.ends = BatchEnds { done: 0, failed: 0, withdrawn: 23 };
    let id = BatchId::at(at);
    world.store.batches.insert(id, stored("/cke/cketerm/batches/x", 20, batch));
    let request = Request { who: who("alice"), at, reason: None, node_uid: None, batch: Some(id) };
    world.store.requests.insert(EntryId::reboot(3), stored("/cke/cketerm/requests/x", 20, request));
    world
}

#[test]
fn cancelled_entries_are_a_part_of_their_own_in_bar_and_numbers() {
    let app = overview(&cancelled(), 120, 36);
    let line = line_with(&app, "0 done");
    assert!(line.contains("1 in work") && line.contains("23 cancelled"), "{line}");
    let work = line.matches('=').count();
    assert!(work > 0 && work < 12, "one of 24 does not fill the bar: {line}");
}

#[test]
fn entries_cancelled_by_one_command_are_one_line_of_the_latest() {
    let mut app = World::usual().console_in(View::Overview, 120, 36);
    let mut ended: Vec<Ended> = (0..23).map(|i| ended_entry(2 * i + 2, "cancelled", 60)).collect();
    ended.push(ended_entry(100, "booted", 500));
    read_history(&mut app, ended);
    let text = screen::text(&app);
    assert!(text.contains("23 reboots cancelled by ? (asked by"), "{text}");
    assert!(text.contains("booted") && text.matches("reboots cancelled").count() == 1, "{text}");
    views::check_overview_rows(&app);
    let latest = &app.knowledge.summary.latest;
    assert!(matches!(latest[0].target(), Some(Target::Past(Folder::History, _))) && latest.len() == 2, "{latest:?}");
}

#[test]
fn a_disabled_queue_says_by_whom_and_that_its_work_finishes() {
    let mut world = World::usual();
    world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 899 };
    let mut app = overview(&world, 120, 36);
    let audit = Audit {
        at: after(wall(), -900),
        who: who("root"),
        what: "disable".into(),
        on: "reboot queue".into(),
        reason: None,
        result: "done".into(),
        failed: false,
        entry: None,
        repeats: None,
    };
    let mut read = page(vec![audit], false);
    read.values[0].mod_revision = 899;
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(read)))));
    let title = line_with(&app, "Reboots: ");
    assert!(title.contains("DISABLED") && title.contains("1 in work finishes, 1 drain given up"), "{title}");
    assert!(!title.contains("finishing work by"), "{title}");
}

#[test]
fn a_queue_of_one_entry_has_no_bar() {
    let mut world = World::usual();
    for index in 4..9 {
        world.store.reboots.entries.remove(&index);
    }
    let mut app = world.console_in(View::Overview, 120, 36);
    read_history(&mut app, Vec::new());
    let line = line_with(&app, "1 in work");
    assert!(!line.contains("==="), "{line}");
}

/// The header of a site without sabakan's generator was red for ever.
#[test]
fn an_integration_that_was_never_set_up_is_no_alarm() {
    let mut world = World::usual();
    world.store.registry.url = Some(stored("url", 5, "http://sabakan/graphql".to_owned()));
    world.store.sabakan = Switch { raw: Some("true".into()), mod_revision: 0 };
    let cell = |app: &App, words: &str| {
        let buffer = screen::buffer(app);
        let line: String = (0..app.size.width).map(|x| buffer[(x, 0)].symbol().to_owned()).collect();
        let at = line.chars().collect::<String>().find(words).map(|at| line[..at].chars().count());
        at.map(|at| buffer[(u16::try_from(at).unwrap(), 0)].fg)
    };
    let app = overview(&world, 120, 36);
    assert_eq!(cell(&app, "DISABLED"), None, "{}", line_with(&app, "tokyo0"));
    assert_eq!(cell(&app, "sabakan off"), Some(ratatui::style::Color::Reset), "{}", line_with(&app, "tokyo0"));
    let narrow = overview(&world, 70, 24);
    assert!(line_with(&narrow, "tokyo0").contains("reboots on"), "{}", line_with(&narrow, "tokyo0"));
    assert_eq!(cell(&narrow, "sabakan"), None);
    world.store.sabakan = Switch { raw: Some("true".into()), mod_revision: 40 };
    let app = overview(&world, 120, 36);
    assert_eq!(cell(&app, "sabakan DISABLED"), app.config.theme.trouble.fg);
}

/// A mark on a tab that `n` cannot reach, or a line without a mark, is no help.
#[test]
fn a_tab_has_a_mark_exactly_if_needs_you_has_a_line_of_its_view() {
    for world in [World::usual(), World::with_repairs(), World::with_hosts()] {
        let app = overview(&world, 160, 36);
        let tabs = screen::text(&app).lines().nth(1).unwrap().to_owned();
        for view in [View::Reboots, View::Nodes, View::Repairs, View::Hosts] {
            let needed = app.knowledge.needs_you.iter().any(|line| line.is_of(view));
            let tab = tabs.split("  ").find(|tab| tab.contains(view.title()));
            let marked = tab.is_some_and(|tab| tab.contains('!'));
            assert_eq!(marked, needed, "{view:?}: {tabs}");
        }
    }
    let mut app = overview(&World::usual(), 120, 50);
    press(&mut app, "? / \"needs you\" enter");
    assert!(screen::text(&app).contains("2 Nodes 60!"), "{}", screen::text(&app));
}

#[test]
fn the_cluster_wide_hold_is_called_by_its_effect() {
    let mut app = overview(&World::usual(), 120, 36);
    let approval = ApplyState::Approval("d1".into(), "a worker leaves".into());
    update(&mut app, Event::Seen(Arc::new(with_plan(&World::usual(), 11, approval))));
    let line = line_with(&app, "waits for approval");
    assert!(line.contains("Y approve") && line.contains("H stop applying"), "{line}");
    for view in ["4", "5"] {
        press(&mut app, view);
        let text = screen::text(&app);
        assert!(text.contains("H stop applying") && !text.contains("H hold"), "{view}: {text}");
    }
}

#[test]
fn a_slot_is_waited_for_once() {
    let mut world = World::usual();
    for index in 10..14 {
        world.entry(index, &format!("10.0.1.{index}"), RebootStatus::Queued, 300, 60);
        let why = Reason::WaitingForSlot { holder: Some(EntryId::reboot(3)), limit: 2, ahead: false };
        world.reasons.insert(EntryId::reboot(index), why);
    }
    let app = overview(&world, 120, 50);
    let text = screen::text(&app);
    assert_eq!(text.matches("waits for a slot").count(), 1, "{text}");
    assert!(text.contains("queued, 2nd") && text.contains("queued, 3rd"), "{text}");
}

/// Six rows of one bar say no more than one row.
#[test]
fn the_chart_of_a_day_with_work_in_one_hour_is_one_line() {
    let app = overview(&World::usual(), 120, 36);
    let text = screen::text(&app);
    let lines: Vec<&str> = text.lines().collect();
    let top = lines.iter().position(|line| line.contains("Last 24 hours")).unwrap();
    let end = lines.iter().skip(top).position(|line| line.starts_with('└')).unwrap();
    assert!(end <= 3, "{text}");
}

/// The reason gets what is left, and is cut between words.
#[test]
fn a_reason_of_work_is_cut_between_words_and_uses_the_whole_width() {
    let mut world = World::usual();
    let why = Reason::EvictionFailing { pod: "db/mysql-3-1".into(), answer: "internal error of the admission".into() };
    world.reasons.insert(EntryId::reboot(3), why);
    let mut entry = RebootEntry::clone(world.store.reboots.entries[&3].get().unwrap());
    entry.last_transition_time = Some(after(wall(), -20));
    world.store.reboots.entries.insert(3, stored("/cke/reboots/data/0000000000000003", 30, entry));
    let app = overview(&world, 140, 36);
    let line = line_with(&app, "worker-1 draining");
    let reason = line.split("db/mysql-3-1").nth(1).unwrap_or_else(|| panic!("{line}"));
    // the rest is in the line below
    let shown = reason.split("  ").next().unwrap().trim();
    assert!("db/mysql-3-1: eviction failed, retrying: internal error of the admission".contains(shown), "{line}");
    assert!(screen::text(&app).contains("retrying: internal error of the admission"), "{}", screen::text(&app));
    let last = shown.rsplit([' ']).next().unwrap().trim_end_matches([':', ',']);
    assert!(
        ["eviction", "failed", "retrying", "internal", "error", "of", "the", "admission"].contains(&last),
        "{line}"
    );
}

/// A median of boots beside "usual" of whole reboots confused them.
#[test]
fn each_duration_says_what_it_measures() {
    let mut app = World::usual().console_in(View::Overview, 200, 50);
    let mut ended = usual();
    for one in &mut ended {
        one.command_started = Some(after(one.at, -120));
    }
    read_history(&mut app, ended);
    let text = screen::text(&app);
    assert!(text.contains("usual boot 2m") && !text.contains("usual 2m a machine"), "{text}");
    assert!(text.contains("command to boot: median 2m") && !text.contains("p50"), "{text}");
}

#[test]
fn the_legend_of_the_racks_is_complete() {
    let world = World::usual();
    for columns in [104, 120, 200] {
        let app = overview(&world, columns, 50);
        let text = screen::text(&app);
        for (_, machines) in &app.knowledge.summary.racks.racks {
            for (state, _) in machines {
                assert!(text.contains(state.label()), "{columns}: {}: {text}", state.label());
            }
        }
        assert!(text.contains("ready API server"), "{columns}: {text}");
    }
}

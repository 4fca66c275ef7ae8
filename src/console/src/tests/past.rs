//! Tests of Overview, History and Audit: their screens, and the targets of Enter and Esc.

use std::sync::Arc;

use cketerm_clients::store::pages::{Page, Part};
use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::{Audit, Ending, Request, Who},
    entry::{EntryId, Stored},
    names::Address,
    record::Record,
    stored::keys::Folder,
    time::after,
};
use cketerm_rules::{
    preflight_fault::PreflightFault,
    usual::{Phase, PhaseTime},
};
use insta::assert_snapshot;

use super::world::{BOOT, World, at, press, stored, wall};
use crate::{
    input::update,
    state::{
        App, AppConfig, Target, View,
        event::{Effect, Event},
        overview::OverviewRow,
        past::{Ended, EntryTimeline, ReadRequest, ReadResponse},
    },
    terminal::screen,
};

fn who(user: &str) -> Who {
    Who { user: user.into(), host: "admin1".into(), ssh_client: (user == "alice").then(|| "192.0.2.7".into()) }
}

pub(super) fn ending(index: u64, outcome: &str, ago: i64) -> Ending {
    let request = Request {
        who: who(if index.is_multiple_of(2) { "alice" } else { "bob" }),
        at: after(wall(), -ago - 400),
        reason: Some("kernel 6.12".into()),
        node_uid: None,
        batch: None,
    };
    Ending {
        entry: EntryId::reboot(index),
        address: Address::new(format!("10.0.0.{}", 14 + index % 5)),
        end: serde_json::from_value(outcome.split([' ', ':']).next().unwrap_or_default().into()).unwrap(),
        outcome: outcome.into(),
        withdrawn_by: None,
        at: after(wall(), -ago),
        last: serde_json::Value::Null,
        request: (index != 1).then_some(request),
        attempts: Vec::new(),
        hooks: Vec::new(),
        omitted: 0,
    }
}

/// A reboot that drained for a minute and ended two minutes after its command.
pub(super) fn timed(index: u64, ago: i64) -> Ended {
    let mut ended = Ended::from(&ending(index, "booted", ago));
    let time = |phase, seconds| PhaseTime { phase, step: None, seconds };
    ended.times.phases = vec![time(Phase::Drain, 60.0), time(Phase::Boot, 118.0), time(Phase::Whole, 180.0)];
    ended
}

fn audit(user: &str, what: &str, on: &str, ago: i64) -> Audit {
    Audit {
        at: after(wall(), -ago),
        who: who(user),
        what: what.into(),
        on: on.into(),
        reason: (user == "bob").then(|| "disk \u{1b}[31mis slow".into()),
        result: "done".into(),
        failed: false,
        entry: None,
        repeats: None,
    }
}

/// Returns a page whose values were written one after another, the first one last.
pub(super) fn page<T>(values: Vec<T>, more: bool) -> Page<T> {
    let newest = 900;
    let stored = |(i, value): (usize, T)| {
        let at = newest - i64::try_from(i).unwrap();
        stored(&format!("/cke/cketerm/x/{at}"), at, value)
    };
    Page { revision: newest, values: values.into_iter().enumerate().map(stored).collect(), more }
}

pub(super) fn ended_entry(index: u64, outcome: &str, ago: i64) -> Ended {
    Ended::from(&ending(index, outcome, ago))
}

fn history() -> Page<Ended> {
    let outcomes = [
        (2, "booted", 200),
        (1, "booted", 330),
        (0, "failed: not healthy after the last step", 460),
        (9, "booted", 600),
        (10, "cancelled", 90_000),
    ];
    let ended = outcomes.iter().map(|(i, outcome, ago)| Ended::from(&ending(*i, outcome, *ago))).collect();
    let mut page = page(ended, false);
    let why = "/cke/cketerm/history/reboots-x: expected value at line 1 column 1".to_owned();
    page.values.push(Stored { key: "/cke/cketerm/history/reboots-x".into(), mod_revision: 5, value: Err(why) });
    page
}

fn actions() -> Page<Audit> {
    page(
        vec![
            audit("engine", "cordon", "worker-1", 180),
            audit("alice", "reboot add", "10.0.0.14 10.0.0.15 10.0.0.16", 900),
            audit("bob", "disable", "repair queue", 4000),
            audit("engine", "power", "worker-9", 90_000),
        ],
        false,
    )
}

pub(super) fn load_past(app: &mut App) {
    update(app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(history())))));
    update(app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(actions())))));
}

fn shown(world: &World, view: View, columns: u16, rows: u16, keys: &str) -> String {
    let mut app = world.console_in(view, columns, rows);
    load_past(&mut app);
    press(&mut app, keys);
    screen::text(&app)
}

#[test]
fn overview() {
    let world = World::usual();
    assert_snapshot!("overview_80x24", shown(&world, View::Overview, 80, 24, ""));
    assert_snapshot!("overview_200x50", shown(&world, View::Overview, 200, 50, "j j"));
    assert_snapshot!("overview_60x15", shown(&world, View::Overview, 60, 15, ""));
}

#[test]
fn overview_in_bad_states() {
    let mut world = World::without_data();
    assert_snapshot!("overview_connecting", shown(&world, View::Overview, 80, 24, ""));
    world = World::usual();
    (world.engine.leading, world.engine.lease) = (None, 0);
    world.store.candidates.clear();
    world.store.reboots.switch.raw = Some("true".into());
    world.engine.observing = vec![PreflightFault::IdentityUnconfirmed { uid: "u-1".to_owned() }];
    assert_snapshot!("overview_no_leader_80x24", shown(&world, View::Overview, 80, 24, ""));
    let mut world = World::usual();
    world.store.error = Some("tcp connect error: connection refused".into());
    let mut app = world.console_in(View::Overview, 80, 24);
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(95.0))));
    let why = "etcd at http://127.0.0.1:2379: no answer".to_owned();
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Err(why)))));
    assert_snapshot!("overview_stale_80x24", screen::text(&app));
}

#[test]
fn overview_of_an_idle_cluster() {
    let mut world = World::usual();
    world.store.reboots.entries.clear();
    world.store.progress.clear();
    world.reasons.clear();
    let mut app = world.console_in(View::Overview, 80, 24);
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page(Vec::new(), false))))));
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(page(Vec::new(), false))))));
    assert_snapshot!("overview_idle_80x24", screen::text(&app));
}

#[test]
fn enter_on_an_overview_line_opens_its_object_and_esc_returns_to_the_line() {
    let mut app = World::usual().console_in(View::Overview, 80, 24);
    load_past(&mut app);
    while app.lists.overview_rows.cursor != Some(OverviewRow::Work(EntryId::reboot(4))) {
        press(&mut app, "j");
    }
    let overview_row = app.lists.overview_rows.cursor.clone();
    press(&mut app, "enter");
    assert_eq!((app.navigation.view, app.lists.reboots.cursor), (View::Reboots, Some(EntryId::reboot(4))));
    assert!(screen::text(&app).contains("reboots/4 worker-2"), "{}", screen::text(&app));
    press(&mut app, "esc");
    assert_eq!(
        (app.navigation.view, app.navigation.pane.is_none(), app.lists.overview_rows.cursor),
        (View::Overview, true, overview_row)
    );
}

/// At 60x15 the message about a refused key covers the cursor's line; the cursor must stay on it.
#[test]
fn a_message_over_the_cursors_line_does_not_move_the_cursor() {
    let mut app = World::usual().console_in(View::Overview, 60, 15);
    load_past(&mut app);
    press(&mut app, "G");
    let last = app.lists.overview_rows.cursor.clone();
    assert!(last.is_some() && last != app.lists.overview_rows.rows.first().cloned());
    app.print_error(
        "something that takes two lines because it explains at length what cannot be done here, and what can",
    );
    update(&mut app, Event::Seen(World::usual().seen()));
    assert!(
        !app.lists.overview_rows.rows.contains(last.as_ref().unwrap()),
        "the row is covered\n{}",
        screen::text(&app)
    );
    assert_eq!(app.lists.overview_rows.cursor, last);
    press(&mut app, "esc");
    assert_eq!((app.session.message.is_none(), &app.lists.overview_rows.cursor), (true, &last));
    assert!(screen::text(&app).contains('>'));
}

#[test]
fn needs_you_groups_entries_by_blocker_oldest_first() {
    let mut world = World::usual();
    let held = world.reasons[&EntryId::reboot(3)].clone();
    world.reasons.insert(EntryId::reboot(5), held);
    let app = world.console_in(View::Overview, 80, 24);
    let lines = app.knowledge.needs_you.iter();
    let lines: Vec<(&str, usize)> = lines.map(|line| (line.name.as_str(), line.count)).collect();
    // the node has been away for 3d; of the two entries, one has waited for 15m, the other for 3m
    assert_eq!(lines, [("worker-5", 1), ("worker-3", 2), ("worker-4", 1), ("reboots/8", 1)]);
    assert_eq!(app.knowledge.needs_you[1].what, "pdb shop/web has 2, needs 2");
}

#[test]
fn history_and_audit() {
    let world = World::usual();
    assert_snapshot!("history_80x24", shown(&world, View::History, 80, 24, "j"));
    assert_snapshot!("history_200x50", shown(&world, View::History, 200, 50, "j"));
    assert_snapshot!("audit_80x24", shown(&world, View::Audit, 80, 24, "j"));
    assert_snapshot!("audit_200x50", shown(&world, View::Audit, 200, 50, "j"));
    assert_snapshot!("audit_pane_80x24", shown(&world, View::Audit, 80, 24, "j j enter"));
}

/// Audit opens on the newest row.
#[test]
fn audit_follows_the_newest_row_until_the_cursor_is_moved() {
    let mut app = World::usual().console_in(View::Audit, 80, 24);
    load_past(&mut app);
    let newer = |app: &mut App, from: i64| {
        let many = (0..40).map(|i| {
            let key = format!("/cke/cketerm/x/{}", from - i);
            stored(&key, from - i, audit("alice", "cancel", &format!("reboots/{}", from - i), 100))
        });
        let page = Page { revision: from, values: many.collect(), more: false };
        update(app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::After(900), Ok(page)))));
        update(app, Event::Tick(at(BOOT)));
    };
    newer(&mut app, 1000);
    let text = screen::text(&app);
    assert!(text.contains("> ") && text.contains("reboots/1000") && !text.contains("newer above"), "{text}");
    press(&mut app, "j j");
    newer(&mut app, 1100);
    let text = screen::text(&app);
    assert!(text.contains("newer above (gg)") && text.contains("reboots/998"), "{text}");
    press(&mut app, "g g");
    let text = screen::text(&app);
    assert!(text.contains("reboots/1100") && !text.contains("newer above"), "{text}");
}

#[test]
fn the_timeline_of_an_ended_entry_is_read_when_its_pane_opens() {
    let world = World::usual();
    let mut app = world.console_in(View::History, 80, 24);
    load_past(&mut app);
    let effects = press(&mut app, "enter");
    let key = app.lists.history.cursor.clone().unwrap().key;
    assert_eq!(effects, vec![Effect::Ask(ReadRequest::Ending(key.clone()))]);
    assert!(screen::text(&app).contains("reading its timeline"));
    let mut ended = ending(2, "booted", 200);
    let attempt = world.store.attempts.values().next().unwrap().get().unwrap().clone();
    ended.attempts = vec![cketerm_model::attempt::Attempt { start: after(wall(), -300), outcome: None, ..attempt }];
    assert_eq!(press(&mut app, "j"), vec![], "it is requested once");
    let timeline = EntryTimeline { moments: ended.timeline(&[]), ending: ended, gap: None };
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Ending(key, Ok(Arc::new(timeline))))));
    press(&mut app, "g g");
    assert_snapshot!("history_story_80x24", screen::text(&app));
}

#[test]
fn a_key_in_history_shows_the_operation_records_of_cke() {
    let mut app = World::usual().console_in(View::History, 80, 24);
    load_past(&mut app);
    let effects = press(&mut app, "v");
    assert_eq!(effects, vec![Effect::Ask(ReadRequest::Page(Folder::Records, Part::Newest))]);
    let record = |id, operation: &str, error: &str| {
        Record::completed(id, operation, &Address::new("10.0.0.14"), error, after(wall(), -90), after(wall(), -60))
    };
    let records = vec![record(12, "reboot-reboot", "exit 1"), record(11, "reboot-drain-start", "")];
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Records(Part::Newest, Ok(page(records, false))))));
    assert_snapshot!("records_80x24", screen::text(&app));
}

#[test]
fn history_and_audit_are_read_only_when_their_views_are_open() {
    let mut app = World::usual().console_in(View::Reboots, 80, 24);
    assert_eq!(press(&mut app, "j j G g g 2"), vec![]);
    let effects = press(&mut app, "8");
    assert_eq!(effects, vec![Effect::Ask(ReadRequest::Page(Folder::Audit, Part::Newest))]);
}

#[test]
fn older_rows_are_read_near_the_end_and_a_failure_shows_its_error() {
    let mut app = World::usual().console_in(View::Audit, 80, 24);
    let many = (0..200).map(|i| audit("alice", "reboot add", &format!("10.0.1.{i}"), i)).collect();
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(page(many, true))))));
    assert_eq!(press(&mut app, "j"), vec![], "the cursor is far from the end");
    let effects = press(&mut app, "G");
    assert_eq!(effects, vec![Effect::Ask(ReadRequest::Page(Folder::Audit, Part::Before(701)))]);
    let mut app = App::new(AppConfig::default(), View::Audit, at(BOOT));
    update(&mut app, Event::Seen(World::usual().seen()));
    update(
        &mut app,
        Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Err("no answer from etcd".into())))),
    );
    assert!(screen::text(&app).contains("no answer from etcd"));
}

/// A filter that few rows pass keeps the cursor near the end. That must not read the folder to its end.
#[test]
fn a_filter_with_few_matches_reads_a_limited_number_of_pages_per_key() {
    let mut app = World::usual().console_in(View::Audit, 80, 24);
    let mut left = 900;
    let mut values = |n: i64| {
        let all = (0..n).map(|i| {
            let at = left - i;
            stored(&format!("/cke/cketerm/audit/{at:09}"), at, audit("alice", "reboot add", "10.0.1.1", 1))
        });
        let values: Vec<_> = all.collect();
        left -= n;
        Page { revision: 900, more: true, values }
    };
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(values(50))))));
    let (mut boot, mut pages) = (BOOT, 0);
    let mut effects = press(&mut app, "/ \"bob\" enter");
    for _ in 0..40 {
        let before = effects.iter().find_map(|e| match e {
            Effect::Ask(ReadRequest::Page(Folder::Audit, part @ Part::Before(_))) => Some(*part),
            _ => None,
        });
        if let Some(part) = before {
            pages += 1;
            let again = update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(part, Ok(values(10))))));
            assert_eq!(again, [], "the next page waits for a tick");
        }
        boot = boot + Seconds::new(1.0);
        effects = update(&mut app, Event::Tick(at(boot)));
    }
    // one page was requested while the filter was typed, and the last key allows five
    assert_eq!(pages, 6, "no further page before a key press");
    assert_eq!(press(&mut app, "j").len(), 1);
}

/// A console that stays open for weeks keeps no more than a new one.
#[test]
fn history_and_audit_rows_beyond_the_limit_are_dropped() {
    let mut app = World::usual().console_in(View::Overview, 80, 24);
    let mut revision = 1000;
    let mut page = |n: i64| {
        let values = (0..n).map(|i| {
            let at = revision + n - i;
            stored(&format!("/cke/cketerm/audit/{at:09}"), at, audit("alice", "reboot add", "10.0.1.1", 1))
        });
        let page = Page { revision: revision + n, more: false, values: values.collect() };
        revision += n;
        page
    };
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(page(200))))));
    for i in 0..40 {
        let part = Part::After(1200 + 200 * i);
        update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(part, Ok(page(200))))));
    }
    assert_eq!(app.knowledge.past.audit.rows.len(), 1000, "of 8,200");
    assert!(app.knowledge.past.audit.more, "older ones can be read again");
    let newest = app.knowledge.past.audit.rows.keys().next().unwrap().key.clone();
    assert_eq!(newest, "/cke/cketerm/audit/000009200");
    press(&mut app, "8 G");
    let effects = update(&mut app, Event::Tick(at(BOOT + Seconds::new(5.0))));
    let oldest = app.knowledge.past.audit.rows.keys().next_back().unwrap().revision.0;
    let expected = Effect::Ask(ReadRequest::Page(Folder::Audit, Part::Before(oldest)));
    assert!(effects.contains(&expected) || app.knowledge.past.page_budget < 5, "{effects:?}");
}

/// An audit record leads to the engine's log lines about its object.
#[test]
fn an_audit_record_links_to_its_object_and_its_log_lines() {
    let mut app = World::usual().console_in(View::Audit, 80, 24);
    let records = vec![
        audit("alice", "reboot cancel", "reboots/3", 10),
        audit("alice", "reboot cancel-all", "reboots 5-7", 20),
        audit("alice", "node cordon", "node worker-4", 30),
        audit("bob", "disable", "repair queue", 40),
        audit("bob", "reboot add", "10.0.0.18 10.0.0.11", 50),
        audit("alice", "reboot cancel", "reboots/2", 60),
    ];
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(page(records, false))))));
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(history())))));
    for (row, leads, filter) in [
        (0, Some(Target::Entry(EntryId::reboot(3))), "entry=reboots/3 or text:worker-1"),
        (1, Some(Target::Entry(EntryId::reboot(5))), "entry=reboots/5 or text:worker-3"),
        (2, Some(Target::Node("worker-4".into())), "worker-4"),
        (3, None, ""),
        (4, Some(Target::Node("worker-5".into())), "worker-5"),
    ] {
        press(&mut app, &format!("8 g g {} enter", "j ".repeat(row)));
        let text = screen::text(&app);
        let footer = text.lines().rev().take(2).collect::<Vec<_>>().join("\n");
        assert_eq!(footer.contains("o go to it"), leads.is_some(), "{row}: {footer}");
        assert_eq!(footer.contains("l its logs"), leads.is_some(), "{row}: {footer}");
        if leads.is_none() {
            continue;
        }
        press(&mut app, "o");
        assert_eq!(app.target(), leads, "{row}");
        press(&mut app, "esc");
        assert_eq!(app.navigation.view, View::Audit, "Esc returns to the Audit view");
        press(&mut app, "l");
        assert_eq!((app.navigation.view, app.lists.log.filter.as_str()), (View::Logs, filter), "{row}");
    }
    press(&mut app, "8 G o");
    assert!(matches!(app.target(), Some(Target::Past(Folder::History, _))), "{:?}", app.target());
    assert!(screen::text(&app).contains("reboots/2"), "the entry ended: {}", screen::text(&app));
}

#[test]
fn n_in_the_overview_goes_through_needs_you_and_wraps() {
    let mut app = World::usual().console_in(View::Overview, 80, 24);
    load_past(&mut app);
    press(&mut app, "G");
    let n = app.knowledge.needs_you.len();
    let mut seen = Vec::new();
    for _ in 0..=n {
        press(&mut app, "n");
        seen.push(app.lists.overview_rows.cursor.clone().unwrap());
    }
    let lines = app.knowledge.needs_you.iter().map(|line| OverviewRow::NeedsYou(line.object.clone()));
    assert_eq!(seen, lines.cycle().take(n + 1).collect::<Vec<_>>());
}

/// Every view judges durations, and the preview before a bulk action includes how long similar entries took.
#[test]
fn the_durations_of_similar_entries_are_read_once_from_any_view() {
    let world = World::usual();
    let mut app = App::new(AppConfig::default(), View::Nodes, at(world.boot));
    let effects = update(&mut app, Event::Seen(world.seen()));
    assert_eq!(effects, [Effect::Ask(ReadRequest::Page(Folder::History, Part::Newest))]);
    let mut app = world.console_in(View::Nodes, 80, 24);
    let effects = press(&mut app, "* R");
    assert!(matches!(effects.as_slice(), [Effect::Ask(ReadRequest::Plan(..))]), "{effects:?}");
    assert!(!screen::text(&app).contains("like the last"));
    let ended = (0..20).map(|i| timed(i, 60 * i64::try_from(i).unwrap())).collect();
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page(ended, false))))));
    let text = screen::text(&app);
    assert!(text.contains("done 10:") && text.contains("after what is queued, like the last 20"), "{text}");
    assert_eq!(app.knowledge.usual.ended().len(), 20);
}

/// The records of one second are in the order of their revisions, whatever clock of which host wrote them.
#[test]
fn audit_rows_are_in_the_order_of_their_times_and_an_action_is_listed_once() {
    let mut app = World::usual().console_in(View::Audit, 120, 24);
    let hold =
        |result: &str, ago| Audit { result: result.into(), ..audit("alice", "host hold (soft)", "host m/w1", ago) };
    // the newest revision first; the second one is of an older second
    let values = vec![
        audit("bob", "enable", "repair queue", 10),
        audit("engine", "cordon", "worker-1", 30),
        hold("done", 20),
        hold("begun", 20),
        audit("carol", "disable", "repair queue", 20),
        // its program died before the end
        hold("begun", 500),
    ];
    let answer = ReadResponse::Audit(Part::Newest, Ok(page(values, false)));
    update(&mut app, Event::ReadFinished(Box::new(answer)));
    let text = screen::text(&app);
    let shown: Vec<&str> = text
        .lines()
        .filter_map(|l| ["bob", "engine", "alice", "carol"].into_iter().find(|who| l.contains(&format!(" {who}"))))
        .collect();
    assert_eq!(shown, ["bob", "alice", "carol", "engine", "alice"], "{text}");
}

/// A column is as wide as its texts while the line has space.
#[test]
fn no_column_of_history_is_cut_beside_free_space() {
    let text = shown(&World::usual(), View::History, 150, 24, "");
    for whole in ["alice@admin1 from 192.0.2.7", "failed: not healthy after the last step", "kernel 6.12"] {
        assert!(text.contains(whole), "{whole}: {text}");
    }
}

//! Tests of ageing data: after a lost source nothing is shown as if it were live, and an open dialog is renewed or
//! expires.

use cketerm_actions::plan::{Drains, LandingCheck};
use cketerm_model::{
    boot_time::Seconds, entry::EntryId, kube::NodeRow, reason::Reason, reboot::RebootStatus, stored::view::Switch,
    time::after,
};

use super::world::{BOOT, World, at, press, stored};
use crate::{
    input::update,
    state::{
        App, View,
        event::{Effect, Event},
        past::{ReadRequest, ReadResponse},
        short_text,
    },
    terminal::screen,
};

fn tick(app: &mut App, seconds: f64) -> Vec<Effect> {
    update(app, Event::Tick(at(BOOT + Seconds::new(seconds))))
}

fn refresh(app: &mut App, world: &World) {
    update(app, Event::Seen(world.seen()));
}

fn line(app: &App, of: &str) -> String {
    let text = screen::text(app);
    text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of:?}:\n{text}")).to_owned()
}

/// Ages stop and nothing is said to move under a banner that says that etcd is lost.
#[test]
fn ages_stop_while_etcd_is_lost_and_nothing_is_shown_as_moving() {
    let mut world = World::usual();
    world.each_source(|source| source.last_seen = BOOT + Seconds::new(4000.0));
    let mut app = world.console_in(View::Overview, 80, 24);
    tick(&mut app, 13.0);
    assert!(line(&app, "Reboots: ").contains("as of 10:00:00Z: moving"), "{}", screen::text(&app));
    assert!(line(&app, "! etcd").contains("lost, last heard 10:00:00Z, 13s ago"), "{}", screen::text(&app));
    let before = line(&app, "worker-2 rebooting");
    tick(&mut app, 400.0);
    assert_eq!(line(&app, "worker-2 rebooting"), before);
    press(&mut app, "1");
    let before = (line(&app, " worker-2 "), line(&app, " worker-1 "));
    tick(&mut app, 4000.0);
    assert_eq!((line(&app, " worker-2 "), line(&app, " worker-1 ")), before);
}

#[test]
fn a_silent_source_is_not_live_and_without_kubernetes_work_is_blocked() {
    let mut world = World::usual();
    let mut app = world.console_in(View::Overview, 120, 36);
    tick(&mut app, 8.0);
    assert!(line(&app, "data   ").contains("etcd silent for 8s  Kubernetes silent for 8s"), "{}", screen::text(&app));
    (world.boot, world.store.last_seen) = (BOOT + Seconds::new(60.0), BOOT + Seconds::new(60.0));
    tick(&mut app, 60.0);
    refresh(&mut app, &world);
    assert!(line(&app, "Reboots: ").contains("blocked, Kubernetes is lost"), "{}", screen::text(&app));
    assert!(line(&app, "data   ").contains("etcd live  Kubernetes LOST for 1m"));
}

fn plan(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| match effect {
        Effect::Ask(ReadRequest::Plan(number, ..)) => Some(*number),
        _ => None,
    })
}

fn answer_plan(app: &mut App, number: u64) {
    let met = Drains {
        nodes: 1,
        evict: 5,
        delete: 0,
        stay: 2,
        blocked: Vec::new(),
        unread: Vec::new(),
        more: 0,
        unexplained: 0,
        landing: LandingCheck::NotMade,
    };
    update(app, Event::ReadFinished(Box::new(ReadResponse::Plan(number, Ok(met)))));
}

/// A confirmation must not rest on a preview whose age is not shown.
#[test]
fn the_preview_of_an_open_dialog_is_refreshed_or_shows_its_age() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    let number = plan(&press(&mut app, "2 G R")).unwrap();
    let mut live = |app: &mut App, seconds: f64| {
        (world.boot, world.store.last_seen) = (BOOT + Seconds::new(seconds), BOOT + Seconds::new(seconds));
        world.each_source(|source| source.last_seen = BOOT + Seconds::new(seconds));
        let effects = tick(app, seconds);
        refresh(app, &world);
        plan(&effects)
    };
    assert_eq!(live(&mut app, 20.0), None, "the first request has no answer yet");
    answer_plan(&mut app, number);
    assert_eq!(live(&mut app, 30.0), None);
    assert_eq!(live(&mut app, 36.0), Some(number), "the answer is 16 s old");
    assert_eq!(live(&mut app, 38.0), None, "one request per answer");
    answer_plan(&mut app, number);
    assert!(!screen::text(&app).contains("as of"), "{}", screen::text(&app));
    assert_eq!(live(&mut app, 54.0), Some(number));
    live(&mut app, 90.0);
    assert!(
        screen::text(&app).contains("! pods as of 10:00:38Z: Kubernetes has not answered"),
        "{}",
        screen::text(&app)
    );
}

#[test]
fn an_open_dialog_updates_the_state_of_its_nodes() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "2 G R");
    assert!(!screen::text(&app).contains("already in the queue"));
    world.entry(30, "10.0.0.18", RebootStatus::Queued, 10, 95);
    refresh(&mut app, &world);
    let text = screen::text(&app);
    assert!(
        text.contains("! 1 already in the queue") && text.contains("in reboots/30 already: rebooted TWICE"),
        "{text}"
    );
}

#[test]
fn the_quit_dialog_updates_its_counts_and_expires_when_its_question_changes() {
    let mut world = World::usual();
    let mut app = world.console_in(View::Overview, 80, 24);
    press(&mut app, "q");
    assert!(screen::text(&app).contains("reboots: 1 draining, 1 rebooting, 3 queued"), "{}", screen::text(&app));
    world.store.reboots.entries.remove(&5);
    refresh(&mut app, &world);
    assert!(screen::text(&app).contains("reboots: 1 draining, 1 rebooting, 2 queued"), "{}", screen::text(&app));
    press(&mut app, "esc");
    // etcd is lost while another console's engine leads, and recovers
    world.engine.leading = None;
    refresh(&mut app, &world);
    tick(&mut app, 13.0);
    press(&mut app, "q");
    assert!(screen::text(&app).contains("Quit while etcd does not answer?"), "{}", screen::text(&app));
    (world.boot, world.store.last_seen) = (BOOT + Seconds::new(14.0), BOOT + Seconds::new(14.0));
    tick(&mut app, 14.0);
    refresh(&mut app, &world);
    let text = screen::text(&app);
    assert!(text.contains("EXPIRED: the state has changed meanwhile; press q again"), "{text}");
    assert_eq!(press(&mut app, "y"), []);
    assert_eq!(press(&mut app, "esc q"), [Effect::Quit], "another engine leads: no confirmation is needed");
}

/// A message about something else must not appear between a reason and the buttons.
#[test]
fn unrelated_messages_are_shown_outside_of_a_dialog() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "2 G R");
    update(&mut app, Event::Done(Ok("reboots/3 was cancelled".into())));
    let shown = line(&app, "reboots/3 was cancelled");
    assert!(shown.starts_with("reboots/3"), "{shown:?}");
    press(&mut app, "esc 0");
    app.print("an older message");
    press(&mut app, "q");
    assert!(!screen::text(&app).contains("an older message"), "{}", screen::text(&app));
}

/// A duplicate of an entry on hold gets no estimate of its remaining time.
#[test]
fn entries_behind_a_held_entry_are_not_counted_as_remaining() {
    let mut world = World::usual();
    let left = |world: &World| world.console_in(View::Overview, 80, 24).knowledge.summary.reboots.left;
    let before = left(&world);
    assert_eq!((before.left, before.held, before.behind, before.stuck), (3, 0, 0, 2));
    assert_eq!(before.backoff.map(|(n, _)| n), Some(1));
    world.reasons.insert(EntryId::reboot(5), Reason::OnHold { who: "bob".into(), why: None });
    world.entry(30, "10.0.0.16", RebootStatus::Queued, 10, 95);
    world.reasons.insert(EntryId::reboot(30), Reason::DuplicateOf { index: 5 });
    world.entry(31, "10.0.0.17", RebootStatus::Queued, 10, 96);
    world.reasons.insert(EntryId::reboot(31), Reason::DuplicateOf { index: 6 });
    world.entry(32, "10.0.0.15", RebootStatus::Queued, 10, 97);
    world.reasons.insert(EntryId::reboot(32), Reason::DuplicateOf { index: 4 });
    let after = left(&world);
    assert_eq!((after.left, after.held, after.behind), (3, 1, 2), "4, 7, and 32 behind one that reboots");
    // disabled: an entry in backoff still counts as such
    world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 71 };
    world.reasons.insert(EntryId::reboot(6), Reason::QueueDisabled);
    assert_eq!(left(&world).backoff.map(|(n, _)| n), Some(1));
}

/// `n` must not select machines that only boot, or entries that only wait for a timer.
#[test]
fn booting_machines_and_plain_backoffs_need_no_operator() {
    let mut world = World::usual();
    let row = NodeRow { ready: false, ..NodeRow::clone(&world.kube.nodes["worker-2"]) };
    world.kube.put_node(row);
    let trouble = |seen: &cketerm_rules::seen::Seen, id| cketerm_rules::trouble::of(seen, id).is_some();
    assert!(trouble(&world.seen(), EntryId::reboot(6)), "a budget blocked the drain");
    let cause = Some(Box::new(Reason::QueueDisabled));
    let until = after(super::world::wall(), 400);
    world.reasons.insert(EntryId::reboot(6), Reason::Backoff { count: 2, until, cause, tried: None });
    assert!(!trouble(&world.seen(), EntryId::reboot(6)));
    let app = world.console_in(View::Nodes, 80, 24);
    assert_eq!(app.knowledge.totals.reboots.trouble, 2);
    assert_eq!(short_text::node_state(&app, "worker-2").1, None, "it is rebooting");
    assert!(short_text::node_state(&app, "worker-5").1.is_some(), "NotReady without a reboot");
}

/// The Overview names who disabled a queue.
#[test]
fn the_overview_shows_who_disabled_a_queue() {
    let mut world = World::usual();
    world.store.repairs.switch = Switch { raw: Some("true".into()), mod_revision: 898 };
    let mut app = world.console_in(View::Overview, 80, 24);
    super::past::load_past(&mut app);
    assert!(line(&app, "─ Repairs ").contains("DISABLED by bob 08:53Z (disk"), "{}", screen::text(&app));
    // disabled by ckecli, which writes no audit record: bob must not be named
    world.store.repairs.switch.mod_revision = 950;
    refresh(&mut app, &world);
    assert!(line(&app, "─ Repairs ").contains("DISABLED") && !line(&app, "─ Repairs ").contains("bob"));
}

/// The dialog's lines and the action that it sends must be about the same nodes.
#[test]
fn a_dialog_expires_when_one_of_its_nodes_leaves_the_definition() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "2 G R");
    let mut cluster = world.store.definition().unwrap().cluster.clone();
    cluster.nodes.pop();
    world.store.cluster = Some(stored("/cke/cluster", 6, cluster.into()));
    refresh(&mut app, &world);
    let text = screen::text(&app);
    assert!(text.contains("EXPIRED") && text.contains("API servers have changed"), "{text}");
}

/// A Node that has just become Ready redrew its detail each second.
#[test]
fn the_age_of_a_fresh_node_advances_by_minutes() {
    let mut world = World::usual();
    let mut row = NodeRow::clone(&world.kube.nodes["cp-2"]);
    row.ready_since = Some(after(super::world::wall(), -5));
    world.kube.put_node(row);
    world.each_source(|source| source.last_seen = BOOT + Seconds::new(600.0));
    for (columns, rows) in [(80, 24), (200, 50)] {
        let mut app = world.console_in(View::Nodes, columns, rows);
        press(&mut app, ": \"goto cp-2\" enter");
        let first = line(&app, "ready ");
        assert!(first.contains("(less than 1m ago)"), "{first}");
        tick(&mut app, 20.0);
        assert_eq!(line(&app, "ready "), first);
        tick(&mut app, 60.0);
        assert!(line(&app, "ready ").contains("(1m ago)"), "{}", line(&app, "ready "));
    }
}

/// The age of a Node's state depends on Kubernetes, that of an entry on etcd.
#[test]
fn node_ages_stop_with_kubernetes_and_entry_ages_with_etcd() {
    let ready = |app: &App| line(app, "ready ").trim().to_owned();
    for (etcd, kube) in [(BOOT, BOOT + Seconds::new(9000.0)), (BOOT + Seconds::new(9000.0), BOOT)] {
        let mut world = World::usual();
        world.store.last_seen = etcd;
        world.each_source(|source| source.last_seen = kube);
        let mut row = NodeRow::clone(&world.kube.nodes["worker-1"]);
        row.ready_since = Some(after(super::world::wall(), -120));
        world.kube.put_node(row);
        let mut app = world.console_in(View::Nodes, 80, 24);
        press(&mut app, ": \"goto worker-1\" enter");
        let (node, drain) = (ready(&app), line(&app, "status "));
        assert!(node.contains("(2m ago)") && drain.contains("(3m ago)"), "{node} {drain}");
        tick(&mut app, 7200.0);
        assert_eq!(ready(&app).contains("(2m ago)"), kube == BOOT, "{}", ready(&app));
        assert_eq!(line(&app, "status ") == drain, etcd == BOOT, "{}", line(&app, "status "));
    }
}

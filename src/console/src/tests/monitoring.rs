//! Tests of lost sources that recover, the map of the racks, other operators' actions, common blockers of several
//! drains, and the output without a screen.

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::{Audit, Who},
    entry::EntryId,
    kube::NodeRow,
    names::{Address, NodeName},
    policy::Policy,
    reason::Reason,
    reboot::RebootStatus,
    stored::{keys::Folder, recent::RecentRecords},
    time::after,
    window::Windows,
};

use super::world::{BOOT, World, at, press, stored, wall};
use crate::{
    input::update,
    state::{Pane, Target, View, event::Event, object::Object, overview::OverviewRow},
    terminal::{plain::ChangeReporter, screen},
};

fn later(world: &mut World, seconds: f64) {
    world.boot = BOOT + Seconds::new(seconds);
}

fn mark_sources_seen(world: &mut World) {
    world.store.last_seen = world.boot;
    let boot = world.boot;
    world.each_source(|source| source.last_seen = boot);
}

#[test]
fn a_recovered_source_is_announced_and_cursor_pane_and_filter_are_kept() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "/ \"worker\" enter j enter");
    let (cursor, pane) = (app.lists.reboots.cursor, app.navigation.pane.clone());
    assert!(matches!(pane, Some(Pane { of: Target::Entry(_), .. })));
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(60.0))));
    let text = screen::text(&app);
    assert!(text.contains("! etcd lost, last heard 10:00:00Z, 1m ago; nothing is written; trying now"), "{text}");
    assert!(text.contains("! Kubernetes lost, last heard 10:00:00Z"), "{text}");
    assert!(app.session.messages.iter().any(|(_, m)| m.text == "etcd is lost" && m.failed));
    later(&mut world, 125.0);
    mark_sources_seen(&mut world);
    update(&mut app, Event::Seen(world.seen()));
    let text = screen::text(&app);
    assert!(!text.contains("last heard"), "{text}");
    assert!(text.contains("Kubernetes and etcd are back after 2m"), "{text}");
    assert_eq!(
        (app.lists.reboots.cursor, &app.navigation.pane, app.lists.reboots.filter.as_str()),
        (cursor, &pane, "worker")
    );
}

#[test]
fn the_banner_and_the_refusal_show_the_time_to_the_next_retry() {
    let mut world = World::usual();
    (world.store.error, world.store.watch_health.retry) = (Some("refused".into()), Some(BOOT + Seconds::new(24.5)));
    let mut app = world.console(80, 24);
    for (after, expected) in [(20.0, "next try in 5s"), (24.0, "next try in 1s"), (25.0, "trying now")] {
        update(&mut app, Event::Tick(at(BOOT + Seconds::new(after))));
        let text = screen::text(&app);
        assert!(text.contains(&format!("nothing is written; {expected}:")), "{expected}: {text}");
        press(&mut app, "X");
        let message = app.session.message.clone().unwrap();
        assert!(message.failed && message.text.contains(expected) && message.text.contains("etcdctl"), "{message:?}");
    }
}

#[test]
fn slow_answers_are_reported_before_a_source_is_lost() {
    let mut world = World::usual();
    world.kube.link.lag = 4;
    later(&mut world, 8.0);
    world.each_source(|source| source.last_seen = BOOT + Seconds::new(8.0));
    let text = screen::text(&world.console(100, 24));
    assert!(text.contains("etcd is slow: silent for 8s"), "{text}");
    assert!(text.contains("Kubernetes is slow: its last answer took 4s"), "{text}");
    world.kube.link.lag = 3;
    later(&mut world, 6.0);
    assert!(!screen::text(&world.console(100, 24)).contains("slow"));
}

fn racks(racks: usize, each: usize) -> World {
    let mut world = World::usual();
    for i in 0..racks * each {
        world.kube.put_node(NodeRow {
            name: NodeName::new(format!("node-{i:05}")),
            addresses: vec![Address::new(format!("10.{}.{}.{}", 1 + i / 40_000, i / 200 % 200, i % 200 + 1))],
            ready: i % 97 != 5,
            shown_labels: vec![("topology.kubernetes.io/rack".into(), format!("rack-{}", i / each))],
            ..NodeRow::default()
        });
    }
    world
}

#[test]
fn twelve_racks_fit_80_columns_and_arrow_keys_move_between_machines() {
    let mut app = racks(12, 20).console_in(View::Nodes, 80, 24);
    press(&mut app, "v g g");
    let text = screen::text(&app);
    for rack in 0..12 {
        assert!(text.contains(&format!("rack-{rack} ")), "{rack}: {text}");
    }
    assert!(text.contains("x ") && text.contains("not ready") && text.contains("! 2 STUCK"), "{text}");
    press(&mut app, "/ \"rack-3\" esc");
    press(&mut app, ":");
    press(&mut app, "\"goto node-00060\" enter esc");
    assert_eq!(app.lists.nodes.cursor.as_deref(), Some("node-00060"));
    press(&mut app, "right right");
    assert_eq!(app.lists.nodes.cursor.as_deref(), Some("node-00062"));
    press(&mut app, "space");
    assert!(app.lists.nodes.marks.contains("node-00062"));
    assert_eq!(app.lists.nodes.cursor.as_deref(), Some("node-00063"));
    press(&mut app, "left left left left");
    assert_eq!(app.lists.nodes.cursor.as_deref(), Some("node-00059"), "the last node of the previous rack");
    press(&mut app, "enter");
    assert!(matches!(&app.navigation.pane, Some(Pane { of: Target::Node(name), .. }) if name == "node-00059"));
    press(&mut app, "esc v");
    assert!(
        app.navigation.map.is_none() && screen::text(&app).contains("NODE"),
        "the rows return with the same cursor"
    );
    assert_eq!(app.lists.nodes.cursor.as_deref(), Some("node-00059"));
}

#[test]
fn in_the_rack_map_down_then_up_returns_to_the_machine_and_keeps_it_visible() {
    for (columns, rows) in [(60, 15), (80, 24), (200, 50)] {
        let mut app = racks(250, 20).console_in(View::Nodes, columns, rows);
        press(&mut app, "v g right");
        let first = app.lists.nodes.cursor.clone();
        press(&mut app, "j j j j pgdn");
        assert_ne!(app.lists.nodes.cursor, first);
        press(&mut app, "pgup k k k k");
        assert_eq!(app.lists.nodes.cursor, first, "{columns}x{rows}");
        press(&mut app, "G");
        let name = app.lists.nodes.cursor.clone().unwrap();
        let text = screen::text(&app);
        assert!(text.contains(&format!("{name} (")), "{text}");
        assert!(text.lines().any(|line| line.contains("> rack-") || line.contains("> no rack")), "{text}");
    }
}

#[test]
fn a_rack_wider_than_the_screen_wraps() {
    let mut app = racks(1, 500).console_in(View::Nodes, 80, 24);
    press(&mut app, "v g g");
    let text = screen::text(&app);
    assert!(
        text.lines().filter(|line| line.contains("\u{2588} \u{2588} \u{2588} \u{2588} \u{2588}")).count() >= 7,
        "{text}"
    );
    let before = app.lists.nodes.cursor.clone();
    press(&mut app, "j k");
    assert_eq!(app.lists.nodes.cursor, before);
}

fn action(user: &str, what: &str, on: &str) -> Vec<u8> {
    let who = Who { user: user.into(), host: "ops2".into(), ssh_client: None };
    let reason = Some("wrong rack".to_owned());
    let audit = Audit {
        at: wall(),
        who,
        what: what.into(),
        on: on.into(),
        reason,
        result: "done".into(),
        failed: false,
        entry: None,
        repeats: None,
    };
    serde_json::to_vec(&audit).unwrap()
}

#[test]
fn another_operators_action_is_shown_once_and_kept_in_messages() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    app.session.operator_identity = Some(Who { user: "alice".into(), host: "ops2".into(), ssh_client: None });
    let mut recent = RecentRecords::after_revision(42);
    recent.record_value(Folder::Audit, 43, &action("bob", "reboot cancel", "reboots/7"));
    recent.record_value(Folder::Audit, 44, &action("alice", "reboot add", "10.0.0.1"));
    recent.record_value(Folder::Audit, 45, &action("engine", "cordon", "node w1"));
    (world.store.recent, world.store.revision) = (recent, 45);
    update(&mut app, Event::Seen(world.seen()));
    let expected = "bob@ops2 cancelled reboots/7: wrong rack";
    assert_eq!(app.session.message.as_ref().map(|m| m.text.as_str()), Some(expected));
    let count = app.session.messages.len();
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(app.session.messages.len(), count, "the action is shown once");
    // an audit record does not replace this console's error
    app.print_error("that cannot be done");
    world.store.recent.record_value(Folder::Audit, 46, &action("bob", "disable", "reboot queue"));
    world.store.revision = 46;
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(app.session.message.as_ref().map(|m| m.text.as_str()), Some("that cannot be done"));
    assert!(app.session.messages.iter().any(|(_, m)| m.text == "bob@ops2 DISABLED the reboot queue: wrong rack"));
}

/// If there were more actions between two snapshots than are kept, they are counted.
#[test]
fn actions_beyond_the_limit_are_counted() {
    let mut world = World::usual();
    let (mut app, mut reporter) = (world.console(200, 50), ChangeReporter::default());
    reporter.report(&world.seen(), at(BOOT));
    let mut recent = RecentRecords::after_revision(42);
    for revision in 43..113 {
        recent.record_value(Folder::Audit, revision, &action("bob", "reboot cancel", &format!("reboots/{revision}")));
    }
    (world.store.recent, world.store.revision) = (recent, 112);
    update(&mut app, Event::Seen(world.seen()));
    let expected = "bob@ops2 cancelled reboots/112: wrong rack; 6 earlier actions not listed here: see 8";
    assert_eq!(app.session.message.as_ref().map(|m| m.text.as_str()), Some(expected));
    let lines = reporter.report(&world.seen(), at(BOOT + Seconds::new(1.0)));
    assert!(lines[0].ends_with(" 6 earlier actions not listed here: see `cketerm audit`"), "{lines:?}");
    assert!(lines[1].ends_with("cancelled reboots/49: wrong rack"), "{lines:?}");
    world.store.recent.record_value(Folder::Audit, 113, &action("bob", "reboot cancel", "reboots/113"));
    world.store.revision = 113;
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(
        app.session.message.as_ref().map(|m| m.text.as_str()),
        Some("bob@ops2 cancelled reboots/113: wrong rack")
    );
}

/// The announcement is in `:messages` and in Audit all the same.
#[test]
fn an_announcement_leaves_an_own_message_that_could_not_be_read_yet() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    app.print("copied reboots/3");
    world.store.recent = RecentRecords::after_revision(42);
    for (revision, seconds, expected) in [(43, 0.0, "copied reboots/3"), (44, 30.0, "bob@ops2 cancelled")] {
        update(&mut app, Event::Tick(at(BOOT + Seconds::new(seconds))));
        world.store.recent.record_value(Folder::Audit, revision, &action("bob", "reboot cancel", "reboots/9"));
        world.store.revision = revision;
        update(&mut app, Event::Seen(world.seen()));
        let shown = app.session.message.as_ref().map_or("", |m| &m.text);
        assert!(shown.starts_with(expected), "{shown}");
        assert!(app.session.messages.back().is_some_and(|(_, m)| m.text.starts_with("bob@ops2 cancelled")));
    }
}

/// A process of cketerm repeats it in the operator's name, without being asked.
#[test]
fn a_repeat_of_an_own_cancel_is_announced() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    app.session.operator_identity =
        Some(cketerm_model::cketerm_records::Who { user: "bob".to_owned(), host: "ops2".to_owned(), ssh_client: None });
    world.store.recent = RecentRecords::after_revision(42);
    for (revision, what) in [(43, "reboot cancel"), (44, "reboot cancel repeated")] {
        world.store.recent.record_value(Folder::Audit, revision, &action("bob", what, "reboots/9"));
    }
    world.store.revision = 44;
    update(&mut app, Event::Seen(world.seen()));
    let shown: Vec<&str> = app.session.messages.iter().map(|(_, message)| message.text.as_str()).collect();
    assert_eq!(shown, ["cketerm repeated bob@ops2's cancel of reboots/9: wrong rack"]);
}

#[test]
fn an_action_on_many_machines_is_one_short_line() {
    for (what, on, expected) in [
        ("reboot add", "10.0.0.1 10.0.0.2 10.0.0.3", "queued a reboot of 10.0.0.1 10.0.0.2 10.0.0.3"),
        ("reboot add", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4", "queued a reboot of 10.0.0.1 and 3 more"),
        ("reboot reset-backoff", "reboots 6\u{2013}7", "reset the backoff of reboots 6-7"),
        ("freeze", "both queues until 2026-11-22T08:00:00Z", "FROZE both queues until 2026-11-22T08:00:00Z"),
        ("policy set", "policy", "did \"policy set\" on policy"),
    ] {
        let audit: Audit = serde_json::from_slice(&action("bob", what, on)).unwrap();
        let seen = World::usual().seen();
        assert_eq!(crate::input::audit_messages::sentence(&seen, &audit), format!("bob@ops2 {expected}: wrong rack"));
    }
}

#[test]
fn a_common_blocker_is_one_line_that_opens_the_oldest_drain() {
    let mut world = World::usual();
    let held = |pod: &str| Reason::BlockedByPdb {
        pod: pod.into(),
        pdb: "shop/web".into(),
        healthy: 2,
        needed: 2,
        cause: None,
    };
    world.entry(5, "10.0.0.16", RebootStatus::Draining, 500, 60);
    world.reasons.insert(EntryId::reboot(5), held("shop/web-other"));
    let cause = Some(Box::new(Reason::BlockedByPdb {
        pod: "shop/web-3".into(),
        pdb: "shop/web".into(),
        healthy: 1,
        needed: 2,
        cause: None,
    }));
    world
        .reasons
        .insert(EntryId::reboot(6), Reason::Backoff { count: 1, until: after(wall(), 400), cause, tried: None });
    let mut app = world.console_in(View::Overview, 80, 24);
    let text = screen::text(&app);
    assert!(text.contains("worker-3 +1") && text.contains("pdb shop/web has 2, needs 2"), "{text}");
    let oldest = OverviewRow::NeedsYou(Object::Entry(EntryId::reboot(5)));
    while app.lists.overview_rows.cursor.as_ref() != Some(&oldest) {
        press(&mut app, "n");
    }
    press(&mut app, "enter");
    assert_eq!(app.lists.reboots.cursor, Some(EntryId::reboot(5)));
}

#[test]
fn all_times_are_shown_in_the_windows_time_zone_without_fractions() {
    let mut world = World::usual();
    let windows = Windows::read("time_zone: Asia/Tokyo\nallow: ['* * * * *']").unwrap();
    world.store.policy = Some(stored("/p", 12, Policy { windows: Some(windows), ..Policy::default() }));
    world.store.error = Some("refused".into());
    let mut app = world.console(100, 40);
    press(&mut app, "j enter");
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(60.0))));
    let text = screen::text(&app);
    assert!(text.contains("last heard 19:00:00 JST") && text.contains("booting since 18:59:21 JST"), "{text}");
    let utc = text.split_whitespace().any(|word| word.len() > 8 && word.trim_end_matches([',', ')']).ends_with('Z'));
    assert!(!utc && !text.contains("09:5"), "{text}");
}

/// Each waiting entry had a line before Kubernetes was read, and another one after it.
#[test]
fn plain_mode_prints_no_entry_before_kubernetes_was_read() {
    let mut world = World::usual();
    let mut reporter = ChangeReporter::default();
    world.each_source(|source| source.synced = false);
    let early = reporter.report(&world.seen(), at(BOOT));
    assert!(!early.is_empty() && early.iter().all(|line| !line.contains("reboots/")), "{early:?}");
    world.each_source(|source| source.synced = true);
    let lines = reporter.report(&world.seen(), at(BOOT + Seconds::new(1.0)));
    let of = |lines: &[String], entry: &str| lines.iter().filter(|line| line.contains(entry)).count();
    assert_eq!(of(&lines, "reboots/5"), 1, "{lines:?}");
    // without Kubernetes they are printed all the same
    let mut reporter = ChangeReporter::default();
    world.each_source(|source| source.synced = false);
    reporter.report(&world.seen(), at(BOOT));
    let late = reporter.report(&world.seen(), at(BOOT + Seconds::new(5.0)));
    assert_eq!(of(&late, "reboots/5"), 1, "{late:?}");
}

/// At each pass of CKE every waiting entry had two lines: `queued`, and `queued: waits for a slot`.
#[test]
fn plain_mode_says_once_that_an_entry_waits() {
    let mut world = World::usual();
    let mut reporter = ChangeReporter::default();
    reporter.report(&world.seen(), at(BOOT));
    let waits = world.reasons[&EntryId::reboot(5)].clone();
    for (seconds, reason) in [(1.0, Reason::Working { phase: "waits for CKE".into() }), (2.0, waits)] {
        world.reasons.insert(EntryId::reboot(5), reason);
        let lines = reporter.report(&world.seen(), at(BOOT + Seconds::new(seconds)));
        assert_eq!(lines, Vec::<String>::new());
    }
}

/// Every change is one line; a mere count makes none.
#[test]
fn plain_mode_prints_one_line_per_change() {
    let mut world = World::usual();
    let mut reporter = ChangeReporter::default();
    assert!(reporter.report(&World::without_data().seen(), at(BOOT)).is_empty(), "nothing before etcd is read");
    let lines = reporter.report(&world.seen(), at(BOOT));
    let all = lines.join("\n");
    for line in [
        "2026-11-21T10:00:00Z leader: this program",
        "2026-11-21T10:00:00Z reboots: enabled",
        "2026-11-21T10:00:00Z reboots/3 worker-1 draining: pod shop/web-7d9f8b6c5-x2x4z blocked by pdb shop/web",
        "2026-11-21T10:00:00Z reboots/8 ? broken: ",
    ] {
        assert!(all.contains(line), "{line}\n{all}");
    }
    // a second later, and the same reason with other numbers
    let left = |left| Reason::PodsLeaving { left, first: "shop/web-1".into() };
    assert_eq!(reporter.report(&world.seen(), at(BOOT + Seconds::new(1.0))), Vec::<String>::new());
    world.reasons.insert(EntryId::reboot(4), left(3));
    assert_eq!(reporter.report(&world.seen(), at(BOOT + Seconds::new(2.0))).len(), 1);
    world.reasons.insert(EntryId::reboot(4), left(2));
    assert_eq!(reporter.report(&world.seen(), at(BOOT + Seconds::new(3.0))), Vec::<String>::new());
    // an ended entry, a disabled queue, an operator's action, a lost leader
    world.store.reboots.entries.remove(&4);
    world.reasons.remove(&EntryId::reboot(4));
    world.store.reboots.switch.raw = Some("true".into());
    world.store.candidates.clear();
    let mut recent = RecentRecords::after_revision(42);
    recent.record_value(Folder::History, 43, br#"{"entry": "reboots/4", "outcome": "booted"}"#);
    recent.record_value(Folder::Audit, 44, &action("bob", "disable", "reboot queue"));
    (world.store.recent, world.store.revision) = (recent, 44);
    assert_eq!(
        reporter.report(&world.seen(), at(BOOT + Seconds::new(4.0))),
        [
            "2026-11-21T10:00:04Z bob@ops2 DISABLED the reboot queue: wrong rack",
            "2026-11-21T10:00:04Z leader: NONE, nothing moves",
            "2026-11-21T10:00:04Z reboots: DISABLED",
            "2026-11-21T10:00:04Z reboots/4 worker-2: ended: booted",
        ]
    );
    let lost = reporter.report(&world.seen(), at(BOOT + Seconds::new(20.0)));
    assert_eq!(lost, ["2026-11-21T10:00:20Z etcd is LOST", "2026-11-21T10:00:20Z Kubernetes is LOST"]);
    later(&mut world, 70.0);
    mark_sources_seen(&mut world);
    let back = reporter.report(&world.seen(), at(BOOT + Seconds::new(70.0)));
    assert!(back.contains(&"2026-11-21T10:01:10Z etcd is back after 1m".to_owned()), "{back:?}");
}

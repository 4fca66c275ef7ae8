//! Tests of every view at every size and in every bad state: whole screens, from tables that cannot miss a new view.

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::Who,
    freeze::Freeze,
    policy::Policy,
    rights::{Area, Rights},
    time::after,
};
use cketerm_rules::{
    preflight_fault::PreflightFault,
    registry::{QueryState, Registry},
};
use insta::assert_snapshot;

use super::{
    past::load_past,
    world::{BOOT, World, at, press, stored},
};
use crate::{
    input::update,
    state::{App, View, event::Event, past::ReadResponse},
    terminal::screen,
};

const SIZES: [(u16, u16); 3] = [(60, 15), (80, 24), (200, 50)];

/// Returns a world with repairs and hosts.
pub(super) fn full_world() -> World {
    let (mut world, hosts) = (World::with_repairs(), World::with_hosts());
    world.kube.hosts = hosts.kube.hosts.clone();
    let source = hosts.kube.sources.get("baremetalhosts").cloned();
    world.kube.sources.insert("baremetalhosts".into(), source.unwrap());
    world
}

/// Checks that the text stays within the size of the screen.
fn assert_fits(text: &str, columns: u16, rows: u16) {
    assert_eq!(text.lines().count(), usize::from(rows), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= usize::from(columns)), "{text}");
}

#[test]
fn every_view_at_every_size() {
    for view in View::ALL {
        for (columns, rows) in SIZES {
            let mut app = full_world().console_in(view, columns, rows);
            load_past(&mut app);
            press(&mut app, "j");
            update(&mut app, Event::Rested);
            let text = screen::text(&app);
            assert_fits(&text, columns, rows);
            assert_snapshot!(format!("every_{}_{columns}x{rows}", view.name()), text);
        }
    }
}

#[test]
fn the_map_of_the_racks_at_every_size() {
    for (columns, rows) in SIZES {
        let mut app = full_world().console_in(View::Nodes, columns, rows);
        if app.navigation.map.is_none() {
            press(&mut app, "v");
        }
        press(&mut app, "right space");
        let text = screen::text(&app);
        assert_fits(&text, columns, rows);
        assert_snapshot!(format!("every_map_{columns}x{rows}"), text);
    }
}

/// Bad state: its name, the view, a change of the world, and a change of the console.
type BadState = (&'static str, View, fn(&mut World), fn(&mut App));

fn keep_world(_: &mut World) {}

fn advance_clock(app: &mut App) {
    update(app, Event::Tick(at(BOOT + Seconds::new(95.0))));
}

fn keep_app(_: &mut App) {}

fn connection_refused() -> String {
    "tcp connect error: connection refused (http://127.0.0.1:2379)".into()
}

const BAD_STATES: &[BadState] = &[
    (
        "etcd_lost",
        View::Reboots,
        |w| {
            w.store.error = Some(connection_refused());
            w.store.watch_health.retry = Some(BOOT + Seconds::new(97.0));
            w.each_source(|source| source.last_seen = BOOT + Seconds::new(95.0));
        },
        |app| {
            advance_clock(app);
            press(app, "X");
        },
    ),
    ("etcd_slow", View::Reboots, |w| w.store.watch_health.lag = 5, keep_app),
    (
        "kubernetes_lost",
        View::Nodes,
        |w| {
            w.store.last_seen = BOOT + Seconds::new(95.0);
            w.kube.link.retry = Some(BOOT + Seconds::new(99.0));
            let error = Some("nodes: GET /api/v1/nodes: no answer within 10 s".to_owned());
            w.each_source(|source| source.error.clone_from(&error));
        },
        advance_clock,
    ),
    ("both_lost", View::Overview, |w| w.store.error = Some(connection_refused()), advance_clock),
    ("broken_entries", View::Reboots, keep_world, |app| drop(press(app, "G"))),
    (
        "nobody_leads",
        View::Overview,
        |w| {
            (w.engine.leading, w.engine.lease) = (None, 0);
            w.store.candidates.clear();
        },
        keep_app,
    ),
    (
        "observing",
        View::Nodes,
        |w| {
            w.engine.leading = None;
            w.engine.observing = vec![PreflightFault::IdentityUnconfirmed { uid: "u-1".to_owned() }];
        },
        keep_app,
    ),
    (
        "frozen",
        View::Repairs,
        |w| {
            let who = Who { user: "ann".into(), ..Who::default() };
            let until = after(super::world::wall(), 46_800);
            let freeze = Freeze { until, reason: "quarter end".into(), who, unknown: serde_json::Map::new() };
            let policy = Policy { freeze: Some(freeze), ..Policy::default() };
            w.store.policy = Some(stored("/cke/cketerm/policy", 12, policy));
        },
        keep_app,
    ),
    ("read_only", View::Reboots, keep_world, |app| {
        app.config.read_only = true;
        press(app, "X");
    }),
    ("no_rights", View::Reboots, keep_world, |app| {
        let mut rights = Rights::default();
        for area in Area::ALL {
            rights.set_missing(area, format!("etcd refuses {area} to user viewer: docs/etcd-roles.md grants it"));
        }
        update(app, Event::ReadFinished(Box::new(ReadResponse::Rights(rights))));
        press(app, "X");
    }),
];

#[test]
fn every_bad_state_at_80_columns() {
    for (name, view, change_world, change_app) in BAD_STATES {
        let mut world = full_world();
        change_world(&mut world);
        let mut app = world.console_in(*view, 80, 24);
        change_app(&mut app);
        let text = screen::text(&app);
        assert_fits(&text, 80, 24);
        assert_snapshot!(format!("bad_{name}"), text);
    }
}

#[test]
fn every_view_shows_that_sabakan_is_lost_and_the_next_retry() {
    let mut world = full_world();
    world.store.registry.url = Some(stored("url", 5, "http://sabakan/graphql".to_owned()));
    let mut seen = cketerm_rules::seen::Seen::clone(&world.seen());
    let error = Some("sabakan at http://sabakan/graphql answered 502 Bad Gateway".to_owned());
    let members = QueryState { good: None, error, at: Some(BOOT - Seconds::new(6.0)) };
    seen.snapshot.registry = std::sync::Arc::new(Registry { members, ..Registry::default() });
    let seen = std::sync::Arc::new(seen);
    for view in View::ALL {
        let mut app = world.console_in(view, 80, 24);
        update(&mut app, Event::Seen(std::sync::Arc::clone(&seen)));
        let text = screen::text(&app);
        assert!(text.contains("! sabakan has not answered yet; nothing is generated; next try in "), "{text}");
        if view == View::Machines {
            assert_snapshot!("bad_sabakan_lost", text);
        }
    }
}

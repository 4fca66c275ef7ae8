//! Tests of every view at every size and in every bad state: whole screens, from tables that cannot miss a new view.

use insta::assert_snapshot;

use super::{
    past::told,
    world::{BOOT, World, at, press, stored},
};
use crate::{
    console::{
        app::{App, View},
        event::Event,
        past::Answer,
        screen,
        update::update,
    },
    engine::{
        PreflightFault,
        registry::{Asked, Registry},
    },
    model::{
        cketerm_records::Who,
        freeze::Freeze,
        policy::Policy,
        rights::{Area, Rights},
        time::after,
    },
};

const SIZES: [(u16, u16); 3] = [(60, 15), (80, 24), (200, 50)];

/// Returns a world with repairs and hosts.
fn full() -> World {
    let (mut world, hosts) = (World::with_repairs(), World::with_hosts());
    world.kube.hosts = hosts.kube.hosts.clone();
    let source = hosts.kube.sources.get("baremetalhosts").cloned();
    world.kube.sources.insert("baremetalhosts".into(), source.unwrap());
    world
}

/// Checks that the text stays within the size of the screen.
fn fits(text: &str, columns: u16, rows: u16) {
    assert_eq!(text.lines().count(), usize::from(rows), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= usize::from(columns)), "{text}");
}

#[test]
fn every_view_at_every_size() {
    for view in View::ALL {
        for (columns, rows) in SIZES {
            let mut app = full().console_in(view, columns, rows);
            told(&mut app);
            press(&mut app, "j");
            let text = screen::text(&app);
            fits(&text, columns, rows);
            assert_snapshot!(format!("every_{}_{columns}x{rows}", view.name()), text);
        }
    }
}

#[test]
fn the_map_of_the_racks_at_every_size() {
    for (columns, rows) in SIZES {
        let mut app = full().console_in(View::Nodes, columns, rows);
        press(&mut app, "v right space");
        let text = screen::text(&app);
        fits(&text, columns, rows);
        assert_snapshot!(format!("every_map_{columns}x{rows}"), text);
    }
}

/// Bad state: its name, the view, a change of the world, and a change of the console.
type Bad = (&'static str, View, fn(&mut World), fn(&mut App));

fn nothing(_: &mut World) {}

fn later(app: &mut App) {
    update(app, Event::Tick(at(BOOT + 95.0)));
}

fn as_it_is(_: &mut App) {}

fn refused() -> String {
    "tcp connect error: connection refused (http://127.0.0.1:2379)".into()
}

const BAD: &[Bad] = &[
    (
        "etcd_lost",
        View::Reboots,
        |w| {
            w.store.error = Some(refused());
            w.store.line.retry = Some(BOOT + 97.0);
            w.each_source(|source| source.heard = BOOT + 95.0);
        },
        |app| {
            later(app);
            press(app, "X");
        },
    ),
    ("etcd_slow", View::Reboots, |w| w.store.line.lag = 5, as_it_is),
    (
        "kubernetes_lost",
        View::Nodes,
        |w| {
            w.store.heard = BOOT + 95.0;
            w.kube.line.retry = Some(BOOT + 99.0);
            let error = Some("nodes: GET /api/v1/nodes: no answer within 10 s".to_owned());
            w.each_source(|source| source.error.clone_from(&error));
        },
        later,
    ),
    ("both_lost", View::Overview, |w| w.store.error = Some(refused()), later),
    ("broken_entries", View::Reboots, nothing, |app| drop(press(app, "G"))),
    (
        "nobody_leads",
        View::Overview,
        |w| {
            (w.engine.leading, w.engine.lease) = (None, 0);
            w.store.candidates.clear();
        },
        as_it_is,
    ),
    (
        "observing",
        View::Nodes,
        |w| {
            w.engine.leading = None;
            w.engine.observing = vec![PreflightFault::IdentityUnconfirmed { uid: "u-1".to_owned() }];
        },
        as_it_is,
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
        as_it_is,
    ),
    ("read_only", View::Reboots, nothing, |app| {
        app.looks.read_only = true;
        press(app, "X");
    }),
    ("no_rights", View::Reboots, nothing, |app| {
        let mut rights = Rights::default();
        for area in Area::ALL {
            rights.lack(area, format!("etcd refuses {area} to user viewer: docs/etcd-roles.md grants it"));
        }
        update(app, Event::Answered(Box::new(Answer::Rights(rights))));
        press(app, "X");
    }),
];

#[test]
fn every_bad_state_at_80_columns() {
    for (name, view, worse, act) in BAD {
        let mut world = full();
        worse(&mut world);
        let mut app = world.console_in(*view, 80, 24);
        act(&mut app);
        let text = screen::text(&app);
        fits(&text, 80, 24);
        assert_snapshot!(format!("bad_{name}"), text);
    }
}

#[test]
fn sabakan_lost_is_said_in_every_view_with_its_next_try() {
    let mut world = full();
    world.store.registry.url = Some(stored("url", 5, "http://sabakan/graphql".to_owned()));
    let mut seen = crate::engine::snapshot::Seen::clone(&world.seen());
    let error = Some("sabakan at http://sabakan/graphql answered 502 Bad Gateway".to_owned());
    let members = Asked { good: None, error, at: Some(BOOT - 6.0) };
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

//! Tests of windows and freezes on the screen and on the command line (REB-52, REB-53, I8).

use cketerm_model::{
    cketerm_records::Who, entry::EntryId, freeze::Freeze, policy::Policy, reason::Reason, reboot::RebootStatus,
    time::after, window::Windows,
};
use insta::assert_snapshot;

use super::world::{World, press, stored};
use crate::{
    input::update,
    state::event::{Action, Effect, Event},
    terminal::screen,
};

/// 10:00 UTC on a Saturday: 19:00 in Tokyo.
fn world(windows: &str, frozen: bool) -> World {
    let mut world = World::usual();
    let mut policy = Policy {
        windows: Some(Windows::read(&format!("time_zone: Asia/Tokyo\nallow: {windows}")).unwrap()),
        ..Policy::default()
    };
    let now = super::world::wall();
    let mut waits = Reason::OutsideWindow { next_open: Some("2026-11-23T13:00:00Z".parse().unwrap()), closes: None };
    if frozen {
        let until = after(now, 46_800);
        policy.freeze = Some(Freeze {
            until,
            reason: "quarter end, CHG-77".into(),
            who: Who { user: "ann".into(), ..Who::default() },
            unknown: serde_json::Map::new(),
        });
        waits = Reason::Frozen { until, why: "quarter end, CHG-77".into() };
    }
    world.store.policy = Some(stored("/cke/cketerm/policy", 12, policy));
    world.reasons.insert(EntryId::reboot(5), waits.clone());
    world.reasons.insert(EntryId::reboot(7), waits);
    world
}

const NIGHTS: &str = "['* 22-23 * * 1-5', '* 0-4 * * 2-6']";

#[test]
fn every_header_shows_the_window_and_the_freeze() {
    let shown = |world: &World, columns, rows, keys: &str| {
        let mut app = world.console(columns, rows);
        press(&mut app, keys);
        screen::text(&app)
    };
    assert_snapshot!("window_shut_80x24", shown(&world(NIGHTS, false), 80, 24, ""));
    assert_snapshot!("frozen_80x24", shown(&world(NIGHTS, true), 80, 24, ""));
    assert_snapshot!("frozen_overview_80x24", shown(&world(NIGHTS, true), 80, 24, "0"));
    assert_snapshot!("frozen_detail_80x24", shown(&world(NIGHTS, true), 80, 24, "j j enter"));
    for view in ["0", "1", "2", "3", "7", "8", "9"] {
        let shut = shown(&world(NIGHTS, false), 80, 24, view);
        assert!(shut.contains("window opens Mon 22:00 JST"), "{view}: {shut}");
        let open = shown(&world("['* 18-20 * * *']", false), 80, 24, view);
        assert!(open.contains("window closes 21:00 JST"), "{view}: {open}");
        let frozen = shown(&world(NIGHTS, true), 80, 24, view);
        assert!(frozen.contains("FROZEN until Sun 08:00 JST: quarter end, CHG-77 (ann)"), "{view}: {frozen}");
    }
}

#[test]
fn freeze_needs_a_reason_and_a_confirmation() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"freeze 2h\" enter");
    assert!(screen::text(&app).contains("the reason is missing"), "{}", screen::text(&app));
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"freeze yesterday x\" enter");
    assert!(screen::text(&app).contains("expected a time such as"), "{}", screen::text(&app));
    let mut app = World::usual().console(80, 24);
    assert_eq!(press(&mut app, ": \"freeze 2h quarter end\" enter"), []);
    assert_snapshot!("dialog_freeze", screen::text(&app));
    let until = "2026-11-21T12:00:00Z".parse().unwrap();
    let expected = Effect::Act(Action::Freeze { until, reason: "quarter end".into() });
    // the counts are the current ones, not those from the time of opening
    let mut moved = World::usual();
    moved.entry(5, "10.0.0.16", RebootStatus::Draining, 0, 90);
    update(&mut app, Event::Seen(moved.seen()));
    assert!(screen::text(&app).contains("2 draining: stopped"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "y"), [expected]);
}

#[test]
fn unfreeze_needs_a_confirmation_that_expires_when_the_policy_changes() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"unfreeze\" enter");
    assert!(screen::text(&app).contains("nothing is frozen"));
    let mut app = world(NIGHTS, true).console(80, 24);
    press(&mut app, ": \"unfreeze\" enter");
    assert!(screen::text(&app).contains("End the freeze?"));
    let mut changed = world(NIGHTS, true);
    changed.store.policy.as_mut().unwrap().mod_revision = 13;
    update(&mut app, Event::Seen(changed.seen()));
    assert!(screen::text(&app).contains("EXPIRED: somebody set the policy meanwhile"));
    assert_eq!(press(&mut app, "y"), []);
    let mut app = world(NIGHTS, true).console(80, 24);
    // `y` confirms, it is not the first letter of a reason
    assert_eq!(press(&mut app, ": \"unfreeze\" enter y"), [Effect::Act(Action::Unfreeze { reason: None })]);
    let mut app = world(NIGHTS, true).console(80, 24);
    let reason = Some("quarter is over".to_owned());
    let effects = press(&mut app, ": \"unfreeze quarter is over\" enter y");
    assert_eq!(effects, [Effect::Act(Action::Unfreeze { reason })]);
}

#[test]
fn a_read_only_console_cannot_freeze() {
    let mut app = World::usual().console(80, 24);
    app.config.read_only = true;
    press(&mut app, ": \"freeze 2h x\" enter");
    assert!(app.dialog.is_none());
    assert!(screen::text(&app).contains("read-only"), "{}", screen::text(&app));
}

#[test]
fn enter_after_the_freeze_line_freezes_and_the_queues_are_shown_as_frozen() {
    let mut app = World::usual().console(80, 24);
    let effects = press(&mut app, ": \"freeze 1d quarter end\" enter enter");
    let until = "2026-11-22T10:00:00Z".parse().unwrap();
    assert_eq!(effects, [Effect::Act(Action::Freeze { until, reason: "quarter end".into() })]);
    for view in ["0", "1"] {
        let mut app = world(NIGHTS, true).console(80, 24);
        press(&mut app, view);
        let text = screen::text(&app);
        assert!(text.contains("reboots FROZEN") && !text.contains("reboots on"), "{text}");
    }
}

#[test]
fn a_freeze_until_tomorrow_is_meant_in_the_zone_of_the_windows() {
    let mut app = world(NIGHTS, false).console(80, 24);
    let effects = press(&mut app, ": \"freeze tomorrow 08:00 quarter end\" enter");
    let text = screen::text(&app);
    assert!(
        text.contains("2026-11-22 08:00:00 JST (Asia/Tokyo)") && text.contains("2026-11-21 23:00:00Z"),
        "both times: {text}"
    );
    assert_eq!(effects, []);
    let until = "2026-11-21T23:00:00Z".parse().unwrap();
    assert_eq!(press(&mut app, "enter"), [Effect::Act(Action::Freeze { until, reason: "quarter end".into() })]);
}

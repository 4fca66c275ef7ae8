//! Windows, a freeze and a hold with the real commands and engine (I6, I8), in minutes of the real clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::world::{Options, World, cluster::machines, in_both_worlds, program::Daemon, wait_for};

in_both_worlds! {
    Options { kcm: true, kwok: true, audit: true, etcd34: false };
    i8_a_freeze_unwinds_the_drain_and_lets_it_begin_anew_when_it_ends,
    i8_work_waits_for_the_minute_in_which_the_window_opens,
    i27_a_hold_takes_a_drain_back_and_stays_until_a_person_takes_it_away,
}

fn why(world: &World) -> String {
    world.word(&["rq", "why", "0", "-o", "json"])
}

/// A drain that begins and does not end: only one of the two pods may be evicted.
fn blocked(world: &World) -> Daemon {
    world.set_up_web(2);
    world.add_budget("default", "web", "web", 1);
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines(1, 2)[1]]);
    wait_for("it drains and is blocked", 30, || why(world).contains("BlockedByPDB").then_some(()));
    daemon
}

fn nothing_blocks(world: &World) {
    world.ok("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web", None);
}

fn i8_a_freeze_unwinds_the_drain_and_lets_it_begin_anew_when_it_ends(world: &World) {
    let _daemon = blocked(world);
    world.word(&["freeze", "--until", "1h", "--reason", "quarter end, CHG-7"]);
    world.entry_is(0, "queued", 10);
    let entry = &world.entries()[&0];
    assert!(entry["drain_backoff_count"].is_null(), "not its fault: {entry}");
    wait_for("the reason is told to who asks", 10, || {
        let why = why(world);
        (why.contains("Frozen") && why.contains("quarter end, CHG-7")).then_some(())
    });
    wait_for("uncordoned at once", 10, || world.cordoned().is_empty().then_some(()));
    nothing_blocks(world);
    let audit = world.word(&["audit", "-o", "json"]);
    assert!(audit.contains("\"freeze\"") && audit.contains("\"unwind\""), "{audit}");
    assert!(world.power().is_empty(), "no power command in a freeze");
    world.word(&["unfreeze"]);
    world.queue_is_empty(60);
    wait_for("uncordoned", 10, || world.cordoned().is_empty().then_some(()));
}

/// A hold keeps the machine from its reboot also after the cordon is removed.
fn i27_a_hold_takes_a_drain_back_and_stays_until_a_person_takes_it_away(world: &World) {
    let _daemon = blocked(world);
    world.word(&["rq", "hold", "0", "--reason", "waiting for the vendor"]);
    world.entry_is(0, "queued", 10);
    wait_for("uncordoned at once", 10, || world.cordoned().is_empty().then_some(()));
    // now only the hold keeps it from being drained
    nothing_blocks(world);
    std::thread::sleep(Duration::from_secs(5));
    assert!(why(world).contains("OnHold") && world.power().is_empty(), "{}", why(world));
    assert!(world.cordoned().is_empty());
    world.word(&["rq", "unhold", "0"]);
    world.queue_is_empty(60);
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 1);
}

fn i8_work_waits_for_the_minute_in_which_the_window_opens(world: &World) {
    world.set_up_web(2);
    let now = Timestamp::now();
    // the next minute that is at least ten seconds away
    let opens = now.as_second() / 60 * 60 + if now.as_second() % 60 < 50 { 60 } else { 120 };
    let opens = Timestamp::from_second(opens).unwrap();
    let minute = |n: i64| (opens + SignedDuration::from_mins(n)).strftime("%M").to_string();
    let open = [minute(0), minute(1), minute(2)].map(|m| m.parse::<u8>().unwrap().to_string()).join(",");
    let windows = json!({"time_zone": "UTC", "allow": [format!("{open} * * * *")], "margin_seconds": 30});
    world.word(&["policy", "set", "windows", &windows.to_string()]);
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines(1, 2)[1], &machines(1, 2)[2]]);
    let whole = opens.to_string();
    wait_for("each entry names the next opening", 10, || {
        let why = why(world);
        (why.contains("OutsideWindow") && why.contains(&whole)).then_some(())
    });
    let told: serde_json::Value = serde_json::from_str(&world.word(&["windows", "-o", "json"])).unwrap();
    assert_eq!((&told["windows"][0]["open"], &told["windows"][0]["opens"]), (&json!(false), &json!(whole)));
    while Timestamp::now() < opens - SignedDuration::from_millis(1500) {
        assert!(world.power().is_empty() && world.cordoned().is_empty(), "nothing starts before {opens}");
        std::thread::sleep(Duration::from_millis(500));
    }
    world.queue_is_empty(100);
    let first = world.power().first().map(|p| p.at).unwrap();
    let opened = opens.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
    assert!(first >= opened, "the first power command came at {first}, the window opened {opens}");
}

//! Windows, a freeze and a hold with the real commands and engine (I6, I8), in minutes of the real clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::world::{Options, World, cluster::machines, in_both_worlds, program::Daemon, wait_for};

in_both_worlds! {
    Options { kcm: true, kwok: true, audit: true, etcd34: false, scheduler: false };
    i8_a_freeze_unwinds_the_drain_and_its_end_restarts_it,
    i8_work_starts_in_the_minute_in_which_the_window_opens,
    i27_a_hold_unwinds_a_drain_and_lasts_until_an_operator_removes_it,
}

fn why(world: &World) -> String {
    world.run(&["rq", "why", "0", "-o", "json"])
}

/// A drain that begins and does not end: only one of the two pods may be evicted.
fn blocked(world: &World) -> Daemon {
    world.set_up_web(2);
    world.add_budget("default", "web", "web", 1);
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines(1, 2)[1]]);
    // no controller replaces the first pod: once it is no longer counted, the budget never allows the other one
    wait_for("the drain is blocked by the budget", 30, || {
        let why = why(world);
        (why.contains("BlockedByPDB") || why.contains("PDBNeverAllows")).then_some(())
    });
    daemon
}

fn allow_evictions(world: &World) {
    world.ok("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web", None);
}

fn i8_a_freeze_unwinds_the_drain_and_its_end_restarts_it(world: &World) {
    let _daemon = blocked(world);
    world.run(&["freeze", "--until", "1h", "--reason", "quarter end, CHG-7"]);
    world.wait_for_entry_status(0, "queued", 10);
    let entry = &world.entries()[&0];
    assert!(entry["drain_backoff_count"].is_null(), "a freeze must not count as a backoff: {entry}");
    wait_for("`rq why` names the freeze and its reason", 10, || {
        let why = why(world);
        (why.contains("Frozen") && why.contains("quarter end, CHG-7")).then_some(())
    });
    wait_for("the node is uncordoned at once", 10, || world.cordoned().is_empty().then_some(()));
    allow_evictions(world);
    let audit = world.run(&["audit", "-o", "json"]);
    assert!(audit.contains("\"freeze\"") && audit.contains("\"unwind\""), "{audit}");
    assert!(world.power().is_empty(), "no power command may run during a freeze");
    world.run(&["unfreeze"]);
    world.wait_for_empty_queue(60);
    wait_for("the node is uncordoned", 10, || world.cordoned().is_empty().then_some(()));
}

/// A hold keeps the machine from its reboot also after the cordon is removed.
fn i27_a_hold_unwinds_a_drain_and_lasts_until_an_operator_removes_it(world: &World) {
    let _daemon = blocked(world);
    world.run(&["rq", "hold", "0", "--reason", "waiting for the vendor"]);
    world.wait_for_entry_status(0, "queued", 10);
    wait_for("the node is uncordoned at once", 10, || world.cordoned().is_empty().then_some(()));
    // now only the hold prevents the drain
    allow_evictions(world);
    std::thread::sleep(Duration::from_secs(5));
    assert!(why(world).contains("OnHold") && world.power().is_empty(), "{}", why(world));
    assert!(world.cordoned().is_empty());
    world.run(&["rq", "unhold", "0"]);
    world.wait_for_empty_queue(60);
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 1);
}

fn i8_work_starts_in_the_minute_in_which_the_window_opens(world: &World) {
    world.set_up_web(2);
    let now = Timestamp::now();
    // the next minute that is at least ten seconds away
    let opens = now.as_second() / 60 * 60 + if now.as_second() % 60 < 50 { 60 } else { 120 };
    let opens = Timestamp::from_second(opens).unwrap();
    let minute = |n: i64| (opens + SignedDuration::from_mins(n)).strftime("%M").to_string();
    let open = [minute(0), minute(1), minute(2)].map(|m| m.parse::<u8>().unwrap().to_string()).join(",");
    let windows = json!({"time_zone": "UTC", "allow": [format!("{open} * * * *")], "margin_seconds": 30});
    world.run(&["policy", "set", "windows", &windows.to_string()]);
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&machines(1, 2)[1], &machines(1, 2)[2]]);
    let opening_time = opens.to_string();
    wait_for("each entry names the next opening", 10, || {
        let why = why(world);
        (why.contains("OutsideWindow") && why.contains(&opening_time)).then_some(())
    });
    let listed: serde_json::Value = serde_json::from_str(&world.run(&["windows", "-o", "json"])).unwrap();
    assert_eq!((&listed["windows"][0]["open"], &listed["windows"][0]["opens"]), (&json!(false), &json!(opening_time)));
    while Timestamp::now() < opens - SignedDuration::from_millis(1500) {
        assert!(world.power().is_empty() && world.cordoned().is_empty(), "nothing may start before {opens}");
        std::thread::sleep(Duration::from_millis(500));
    }
    world.wait_for_empty_queue(100);
    let first = world.power().first().map(|p| p.at).unwrap();
    let opened = opens.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
    assert!(first >= opened, "the first power command ran at {first}, but the window opened at {opens}");
}

//! Maintenance without a reboot.

use serde_json::json;

use super::{
    assert_breaches,
    scene::{Scene, address},
};

const KEY: &str = "cketerm/maintenance/data/0000000000000003";

/// Writes maintenance 3 of a Node, which ends in so many seconds.
fn write(s: &mut Scene, node: &str, status: &str, ends_in: i64) {
    let until = cketerm_model::time::after(s.now, ends_in).to_string();
    let entry = json!({"index": "3", "node": address(node), "status": status, "until": until});
    s.set_key(KEY, Some(entry.to_string().as_bytes()));
}

fn cordoned(s: &mut Scene, node: &str, is_cordoned: bool) {
    s.node(node, |node| node["spec"]["unschedulable"] = json!(is_cordoned));
}

#[test]
fn i73_a_node_that_is_not_kept_is_reported() {
    for (cordoned_at_first, uncordoned, expected) in
        [(true, false, &[][..]), (false, false, &["I73"]), (true, true, &["I73"])]
    {
        let mut s = Scene::new();
        cordoned(&mut s, "w1", cordoned_at_first);
        s.advance(1.0);
        write(&mut s, "w1", "in-maintenance", 600);
        s.advance(60.0);
        if uncordoned {
            cordoned(&mut s, "w1", false);
            s.advance(60.0);
        }
        let found: Vec<_> = s.codes().into_iter().filter(|code| *code == "I73").collect();
        assert_eq!(found, expected, "{:#?}", s.breaches());
    }
}

#[test]
fn i73_a_maintenance_that_ends_too_early_or_stays_is_reported() {
    for (removed_after, expected) in [(30.0, &["I73"][..]), (130.0, &[]), (500.0, &["I73"])] {
        let mut s = Scene::new();
        cordoned(&mut s, "w1", true);
        s.advance(1.0);
        write(&mut s, "w1", "in-maintenance", 100);
        s.advance(removed_after);
        s.set_key(KEY, None);
        s.advance(60.0);
        let found: Vec<_> = s.codes().into_iter().filter(|code| *code == "I73").collect();
        assert_eq!(found, expected, "removed after {removed_after}: {:#?}", s.breaches());
    }
}

#[test]
fn i73_a_reboot_of_a_machine_in_maintenance_or_beyond_the_limit_is_reported() {
    let mut own = Scene::new();
    cordoned(&mut own, "w1", true);
    own.advance(1.0);
    write(&mut own, "w1", "in-maintenance", 600);
    own.add(0, "w1");
    own.moves(0, "draining");
    assert_breaches(&own, &["I73"]);

    let beside = |reboots: u64| {
        let mut s = Scene::new();
        write(&mut s, "w3", "draining", 600);
        for index in 0..reboots {
            s.add(index, &format!("w{}", index + 1));
            s.moves(index, "draining");
        }
        s
    };
    assert_breaches(&beside(1), &[]);
    assert_breaches(&beside(2), &["I73"]);
}

//! Records that the oracle accepts, and steps that it refuses. `tests/oracle` tests each row of its table.

use serde_json::json;

use super::scene::{Scene, key};

#[track_caller]
fn assert_refused(scene: &Scene, rule: Option<&str>) {
    let found = scene.refusals();
    match rule {
        None => assert!(found.is_empty(), "{found:#?}"),
        Some(rule) => assert!(found.iter().any(|b| b.what.contains(rule)), "{found:#?}"),
    }
}

#[test]
fn correct_reboots_are_steps_of_the_table() {
    let mut s = Scene::new();
    for (index, node) in (0..).zip(["w1", "w2", "cp1"]) {
        s.add(index, node);
    }
    for (index, node) in (0..).zip(["w1", "w2", "cp1"]) {
        s.reboot(index, node);
        s.advance(5.0);
        s.removes(index, "booted");
        s.advance(0.1);
        s.uncordon(node);
        s.advance(20.0);
    }
    s.record.calm_since = Some(s.now);
    s.advance(300.0);
    assert_refused(&s, None);
}

#[test]
fn a_cancel_a_backoff_and_an_entry_of_no_member_are_steps_of_the_table() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.cordon(0, "w1");
    s.advance(61.0);
    s.moves(0, "queued");
    s.uncordon("w1");
    s.cancel(0);
    s.removes(0, "cancelled");
    assert_refused(&s, None);
}

#[test]
fn two_api_servers_a_disabled_queue_and_an_end_of_a_drain_are_refused() {
    let mut two = Scene::new();
    two.add(0, "cp1");
    two.add(1, "cp2");
    two.moves(0, "draining");
    assert_refused(&two, None);
    two.moves(1, "draining");
    assert_refused(&two, Some("REB-15"));
    let mut disabled = Scene::new();
    disabled.add(0, "w1");
    disabled.write("console", &[("reboots/disabled", json!(true))], &[]);
    disabled.moves(0, "draining");
    assert_refused(&disabled, Some("REB-50"));
    let mut removed = Scene::new();
    removed.add(0, "w1");
    removed.moves(0, "draining");
    removed.engine("end", &[], &[&key(0)]);
    assert_refused(&removed, Some("REB-8"));
}

#[test]
fn a_command_on_a_node_with_pods_or_without_a_cordon_is_refused() {
    for (cordoned, pod, rule) in [(true, false, None), (false, false, Some("SAF-17")), (true, true, Some("REB-33"))] {
        let mut s = Scene::new();
        if pod {
            s.pod("safe", "p", "w1", "ReplicaSet", json!({}));
        }
        s.add(0, "w1");
        s.moves(0, "draining");
        if cordoned {
            s.cordon(0, "w1");
        }
        s.advance(20.0);
        s.powers(0, "w1");
        assert_refused(&s, rule);
    }
}

#[test]
fn a_cancelled_entry_that_stays_under_a_leader_is_overdue() {
    let mut s = Scene::new();
    s.record.calm_since = Some(s.now);
    s.advance(200.0);
    s.add(0, "w1");
    s.cancel(0);
    s.advance(50.0);
    assert_refused(&s, None);
    s.advance(50.0);
    assert_refused(&s, Some("REB-6"));
}

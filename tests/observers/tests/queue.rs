//! Schedule of the reboot queue, and acknowledged commands.

use serde_json::json;

use super::super::record::{AcknowledgedCommand, PowerEvent};
use super::{
    assert_breaches,
    scene::{Scene, address, definition, entry, key},
};

#[test]
fn i1_a_second_draining_api_server_is_reported() {
    let mut s = Scene::new();
    s.add(0, "cp1");
    s.add(1, "cp2");
    s.moves(0, "draining");
    assert_breaches(&s, &[]);
    s.moves(1, "draining");
    assert_breaches(&s, &["I1"]);
}

#[test]
fn i1_a_power_command_while_another_api_server_is_down_is_reported() {
    let mut s = Scene::new();
    s.add(0, "cp1");
    s.add(1, "cp2");
    s.reboot(0, "cp1");
    s.removes(0, "booted");
    s.uncordon("cp1");
    s.advance(30.0);
    let mut broken = s.clone();
    broken.record.power.retain(|p| p.what != PowerEvent::Up);
    for (scene, codes) in [(&mut broken, &["I1"][..]), (&mut s, &[])] {
        scene.reboot(1, "cp2");
        assert_breaches(scene, codes);
    }
}

#[test]
fn i1_an_orphaned_api_server_counts_until_it_is_uncordoned_manually() {
    for manually in [false, true] {
        let mut s = Scene::new();
        s.add(0, "cp1");
        s.add(1, "cp2");
        s.moves(0, "draining");
        s.cordon(0, "cp1");
        s.advance(2.0);
        s.powers(0, "cp1");
        s.advance(1.0);
        s.ends(0, 1, "cp1", 0);
        s.cancel(0);
        s.removes(0, "cancelled");
        s.advance(30.0);
        if manually {
            s.patch("kubectl", "cp1", json!({"spec": {"unschedulable": null}}));
        }
        s.advance(10.0);
        s.moves(1, "draining");
        assert_breaches(&s, if manually { &[] } else { &["I1"] });
    }
}

#[test]
fn i2_an_api_server_that_starts_while_a_worker_is_in_progress_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.add(1, "cp1");
    s.moves(1, "draining");
    assert_breaches(&s, &["I2"]);
}

#[test]
fn i2_an_api_server_that_starts_before_a_startable_worker_is_reported() {
    for held in [false, true] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.add(1, "cp1");
        if held {
            let order =
                json!({"verb": "hold", "who": {"user": "u", "host": "h"}, "at": s.whole_second(), "entry_revision": 1});
            s.write("console", &[("cketerm/orders/reboots/0", order)], &[]);
        }
        s.advance(40.0);
        s.moves(1, "draining");
        assert_breaches(&s, if held { &[] } else { &["I2"] });
    }
}

#[test]
fn i3_a_start_above_the_limit_is_reported_and_a_lowered_limit_is_not() {
    let mut s = Scene::new();
    for i in 0..3 {
        s.add(i, &format!("w{}", i + 1));
    }
    s.moves(0, "draining");
    s.moves(1, "draining");
    let mut lowered = definition();
    lowered["reboot"]["max_concurrent_reboots"] = json!(1);
    s.write("console", &[("cluster", lowered)], &[]);
    assert_breaches(&s, &[]);
    s.moves(2, "draining");
    assert_breaches(&s, &["I3"]);
}

#[test]
fn i4_starting_a_later_entry_of_the_same_machine_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w1");
    s.advance(30.0);
    s.moves(1, "draining");
    assert_breaches(&s, &["I4"]);
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w1");
    s.cancel(0);
    s.advance(10.0);
    s.moves(1, "draining");
    assert_breaches(&s, &[]);
}

#[test]
fn i5_a_slot_taken_by_an_unreadable_entry_is_reported() {
    for slot_is_lost in [true, false] {
        let mut s = Scene::new();
        s.set_key(&key(7), Some(b"{broken"));
        s.add(8, "w1");
        s.add(9, "w2");
        s.moves(8, "draining");
        let second = if slot_is_lost {
            json!({"reason": "WaitingForSlot", "holder": "reboots/8", "limit": 2})
        } else {
            json!({"reason": "Ready"})
        };
        s.reports(
            20,
            &[
                (7, json!({"reason": "InvalidEntry", "why": "x"})),
                (8, json!({"reason": "Working", "phase": "p"})),
                (9, second),
            ],
            &[],
        );
        assert_breaches(&s, if slot_is_lost { &["I5"] } else { &[] });
    }
}

#[test]
fn i6_a_start_with_an_unreachable_node_is_reported_unless_that_node_is_rebooted() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.not_ready("w5");
    s.advance(30.0);
    s.moves(0, "draining");
    assert_breaches(&s, &["I6"]);
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w5");
    s.moves(1, "draining");
    s.not_ready("w5");
    s.advance(30.0);
    s.moves(0, "draining");
    assert_breaches(&s, &[]);
}

#[test]
fn i6_a_draining_entry_held_by_a_gate_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.advance(10.0);
    s.reports(10, &[(0, json!({"reason": "UnreachableGate", "count": 1, "limit": 0, "names": []}))], &[]);
    assert_breaches(&s, &["I6"]);
}

#[test]
fn i7_an_api_server_that_starts_while_a_control_plane_is_not_ready_is_reported() {
    for ready in [true, false] {
        let mut s = Scene::new();
        s.add(0, "cp1");
        s.write("console", &[("constraints", json!({"maximum-unreachable-nodes-for-reboot": 5}))], &[]);
        s.not_ready(if ready { "w1" } else { "cp2" });
        s.advance(30.0);
        s.moves(0, "draining");
        assert_breaches(&s, if ready { &[] } else { &["I7"] });
    }
}

#[test]
fn i30_an_overtaking_worker_is_reported_unless_the_leader_names_a_reason() {
    for cause in ["WaitingForSlot", "EffectFailed"] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.add(1, "w2");
        s.advance(30.0);
        s.moves(1, "draining");
        s.reports(
            12,
            &[
                (0, json!({"reason": cause, "limit": 2, "what": "w", "why": "y"})),
                (1, json!({"reason": "Working", "phase": "p"})),
            ],
            &[],
        );
        assert_breaches(&s, if cause == "EffectFailed" { &[] } else { &["I30"] });
    }
}

#[test]
fn i31_an_attempt_on_a_machine_that_is_no_member_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w5");
    s.moves(0, "draining");
    s.cordon(0, "w5");
    s.advance(20.0);
    let mut smaller = definition();
    smaller["nodes"].as_array_mut().unwrap().pop();
    s.write("console", &[("cluster", smaller)], &[]);
    s.advance(0.1);
    s.powers(0, "w5");
    assert_breaches(&s, &["I31"]);
}

#[test]
fn i31_an_entry_of_a_former_member_that_stays_is_reported() {
    for stays in [true, false] {
        let mut s = Scene::new();
        s.add(0, "w5");
        let mut smaller = definition();
        smaller["nodes"].as_array_mut().unwrap().pop();
        s.write("console", &[("cluster", smaller)], &[]);
        s.record.calm_since = Some(s.now);
        if !stays {
            s.removes(0, "dequeued: no longer in the cluster definition");
        }
        s.engine("running", &[("reboots/running", json!(stays))], &[]);
        s.advance(120.0);
        assert_breaches(&s, if stays { &["I31"] } else { &[] });
    }
}

#[test]
fn i31_an_entry_with_reason_not_member_that_is_not_removed_is_reported() {
    for (seconds, codes) in [(25, &[][..]), (40, &["I31"])] {
        let mut s = Scene::new();
        s.add(0, "w5");
        let mut smaller = definition();
        smaller["nodes"].as_array_mut().unwrap().pop();
        s.write("console", &[("cluster", smaller)], &[]);
        s.reports(seconds, &[(0, json!({"reason": "NotMember"}))], &[]);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i27_an_overwritten_cancel_is_reported_unless_ckecli_overwrote_it() {
    for (by, codes) in [("engine-0", &["I27"][..]), ("ckecli", &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.cancel(0);
        if by == "ckecli" {
            s.write(by, &[(&key(0), entry(0, "w1", "queued"))], &[]);
        } else {
            s.moves(0, "draining");
        }
        assert_breaches(&s, codes);
    }
}

#[test]
fn i27_a_power_command_long_after_the_cancel_is_reported() {
    for (seconds, codes) in [(8.0, &["I27"][..]), (1.0, &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.advance(1.0);
        s.powers(0, "w1");
        s.record.power.clear();
        s.cancel(0);
        s.advance(seconds);
        s.power(PowerEvent::Begin, 0, 1, "w1");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i28_an_acknowledged_command_that_is_not_in_etcd_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w2");
    s.advance(5.0);
    s.acknowledged(AcknowledgedCommand::Add(vec![(0, address("w1"))]));
    s.acknowledged(AcknowledgedCommand::Switch(true));
    assert_breaches(&s, &[]);
    for command in [
        AcknowledgedCommand::Add(vec![(5, address("w1"))]),
        AcknowledgedCommand::Add(vec![(0, address("w3"))]),
        AcknowledgedCommand::Cancel(1),
        AcknowledgedCommand::CancelAll(vec![0, 1]),
        AcknowledgedCommand::Switch(false),
        AcknowledgedCommand::Order(0, "retry".to_owned()),
    ] {
        let mut s = s.clone();
        s.acknowledged(command);
        assert_breaches(&s, &["I28"]);
    }
}

#[test]
fn i28_a_queued_entry_deleted_by_an_engine_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.removes(0, "booted");
    assert_breaches(&s, &["I28"]);
}

#[test]
fn i29_a_reused_or_skipped_index_is_reported() {
    for (index, codes) in [(1, &[][..]), (0, &["I29"]), (3, &["I29"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.cancel(0);
        s.removes(0, "cancelled");
        s.advance(5.0);
        s.add(index, "w2");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i29_an_engine_that_creates_an_entry_or_loses_a_field_is_reported() {
    let mut s = Scene::new();
    s.engine("drain", &[(&key(3), entry(3, "w1", "queued"))], &[]);
    assert_breaches(&s, &["I29"]);
    for kept in [true, false] {
        let mut s = Scene::new();
        let mut with = entry(0, "w1", "queued");
        with["ticket"] = json!("T-1");
        s.write("console", &[(&key(0), with), ("reboots/write-index", json!(1))], &[]);
        if kept {
            s.moves(0, "draining");
        } else {
            let without = entry(0, "w1", "draining");
            s.engine("drain", &[(&key(0), without)], &[]);
        }
        assert_breaches(&s, if kept { &[] } else { &["I29"] });
    }
}

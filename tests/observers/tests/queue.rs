//! Schedule of the reboot queue, and acknowledged commands.

use serde_json::json;

use super::super::record::{What, Word};
use super::{
    scene::{Scene, address, definition, entry, key},
    sees,
};

#[test]
fn i1_a_second_api_server_in_drain_is_seen() {
    let mut s = Scene::new();
    s.add(0, "cp1");
    s.add(1, "cp2");
    s.moves(0, "draining");
    sees(&s, &[]);
    s.moves(1, "draining");
    sees(&s, &["I1"]);
}

#[test]
fn i1_a_power_command_beside_an_api_server_that_is_not_back_is_seen_whatever_etcd_says() {
    let mut s = Scene::new();
    s.add(0, "cp1");
    s.add(1, "cp2");
    s.reboot(0, "cp1");
    s.removes(0, "booted");
    s.uncordon("cp1");
    s.pass(30.0);
    let mut broken = s.clone();
    broken.record.power.retain(|p| p.what != What::Up);
    for (scene, codes) in [(&mut broken, &["I1"][..]), (&mut s, &[])] {
        scene.reboot(1, "cp2");
        sees(scene, codes);
    }
}

#[test]
fn i1_an_orphaned_api_server_counts_until_a_person_uncordons_it() {
    for by_hand in [false, true] {
        let mut s = Scene::new();
        s.add(0, "cp1");
        s.add(1, "cp2");
        s.moves(0, "draining");
        s.cordon(0, "cp1");
        s.pass(2.0);
        s.powers(0, "cp1");
        s.pass(1.0);
        s.ends(0, 1, "cp1", 0);
        s.cancel(0);
        s.removes(0, "cancelled");
        s.pass(30.0);
        if by_hand {
            s.patch("kubectl", "cp1", json!({"spec": {"unschedulable": null}}));
        }
        s.pass(10.0);
        s.moves(1, "draining");
        sees(&s, if by_hand { &[] } else { &["I1"] });
    }
}

#[test]
fn i2_an_api_server_beside_a_worker_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.add(1, "cp1");
    s.moves(1, "draining");
    sees(&s, &["I2"]);
}

#[test]
fn i2_an_api_server_before_a_worker_that_waits_is_seen_but_not_before_one_on_hold() {
    for held in [false, true] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.add(1, "cp1");
        if held {
            let order =
                json!({"verb": "hold", "who": {"user": "u", "host": "h"}, "at": s.whole(), "entry_revision": 1});
            s.write("console", &[("cketerm/orders/reboots/0", order)], &[]);
        }
        s.pass(40.0);
        s.moves(1, "draining");
        sees(&s, if held { &[] } else { &["I2"] });
    }
}

#[test]
fn i3_one_more_than_the_limit_is_seen_and_a_lowered_limit_is_not() {
    let mut s = Scene::new();
    for i in 0..3 {
        s.add(i, &format!("w{}", i + 1));
    }
    s.moves(0, "draining");
    s.moves(1, "draining");
    let mut lowered = definition();
    lowered["reboot"]["max_concurrent_reboots"] = json!(1);
    s.write("console", &[("cluster", lowered)], &[]);
    sees(&s, &[]);
    s.moves(2, "draining");
    sees(&s, &["I3"]);
}

#[test]
fn i4_a_later_entry_of_the_same_machine_that_starts_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w1");
    s.pass(30.0);
    s.moves(1, "draining");
    sees(&s, &["I4"]);
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w1");
    s.cancel(0);
    s.pass(10.0);
    s.moves(1, "draining");
    sees(&s, &[]);
}

#[test]
fn i5_a_slot_that_an_entry_eats_that_cannot_be_read_is_seen() {
    for eaten in [true, false] {
        let mut s = Scene::new();
        s.hand(&key(7), Some(b"{broken"));
        s.add(8, "w1");
        s.add(9, "w2");
        s.moves(8, "draining");
        let second = if eaten {
            json!({"reason": "WaitingForSlot", "holder": "reboots/8", "limit": 2})
        } else {
            json!({"reason": "Ready"})
        };
        s.says(
            20,
            &[
                (7, json!({"reason": "InvalidEntry", "why": "x"})),
                (8, json!({"reason": "Working", "phase": "p"})),
                (9, second),
            ],
            &[],
        );
        sees(&s, if eaten { &["I5"] } else { &[] });
    }
}

#[test]
fn i6_a_start_in_spite_of_an_unreachable_node_is_seen_unless_it_is_under_the_process() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.not_ready("w5");
    s.pass(30.0);
    s.moves(0, "draining");
    sees(&s, &["I6"]);
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w5");
    s.moves(1, "draining");
    s.not_ready("w5");
    s.pass(30.0);
    s.moves(0, "draining");
    sees(&s, &[]);
}

#[test]
fn i6_a_rebooting_entry_that_a_gate_holds_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.pass(10.0);
    s.says(10, &[(0, json!({"reason": "UnreachableGate", "count": 1, "limit": 0, "names": []}))], &[]);
    sees(&s, &["I6"]);
}

#[test]
fn i7_an_api_server_beside_a_control_plane_that_is_not_ready_is_seen() {
    for ready in [true, false] {
        let mut s = Scene::new();
        s.add(0, "cp1");
        s.write("console", &[("constraints", json!({"maximum-unreachable-nodes-for-reboot": 5}))], &[]);
        s.not_ready(if ready { "w1" } else { "cp2" });
        s.pass(30.0);
        s.moves(0, "draining");
        sees(&s, if ready { &[] } else { &["I7"] });
    }
}

#[test]
fn i30_a_worker_that_overtakes_is_seen_unless_the_leader_names_a_cause() {
    for cause in ["WaitingForSlot", "EffectFailed"] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.add(1, "w2");
        s.pass(30.0);
        s.moves(1, "draining");
        s.says(
            12,
            &[
                (0, json!({"reason": cause, "limit": 2, "what": "w", "why": "y"})),
                (1, json!({"reason": "Working", "phase": "p"})),
            ],
            &[],
        );
        sees(&s, if cause == "EffectFailed" { &[] } else { &["I30"] });
    }
}

#[test]
fn i31_an_attempt_on_a_machine_that_is_no_member_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w5");
    s.moves(0, "draining");
    s.cordon(0, "w5");
    s.pass(20.0);
    let mut smaller = definition();
    smaller["nodes"].as_array_mut().unwrap().pop();
    s.write("console", &[("cluster", smaller)], &[]);
    s.pass(0.1);
    s.powers(0, "w5");
    sees(&s, &["I31"]);
}

#[test]
fn i31_an_entry_of_no_member_that_stays_is_seen() {
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
        s.pass(120.0);
        sees(&s, if stays { &["I31"] } else { &[] });
    }
}

#[test]
fn i31_an_entry_that_is_said_to_be_of_no_member_and_is_left_there_is_seen() {
    for (seconds, codes) in [(25, &[][..]), (40, &["I31"])] {
        let mut s = Scene::new();
        s.add(0, "w5");
        let mut smaller = definition();
        smaller["nodes"].as_array_mut().unwrap().pop();
        s.write("console", &[("cluster", smaller)], &[]);
        s.says(seconds, &[(0, json!({"reason": "NotMember"}))], &[]);
        sees(&s, codes);
    }
}

#[test]
fn i27_a_cancel_that_is_overwritten_is_seen_and_one_that_ckecli_overwrites_is_not_ours() {
    for (by, codes) in [("engine-0", &["I27"][..]), ("ckecli", &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.cancel(0);
        if by == "ckecli" {
            s.write(by, &[(&key(0), entry(0, "w1", "queued"))], &[]);
        } else {
            s.moves(0, "draining");
        }
        sees(&s, codes);
    }
}

#[test]
fn i27_a_power_command_long_after_the_cancel_is_seen() {
    for (seconds, codes) in [(8.0, &["I27"][..]), (1.0, &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        s.pass(1.0);
        s.powers(0, "w1");
        s.record.power.clear();
        s.cancel(0);
        s.pass(seconds);
        s.power(What::Begin, 0, 1, "w1");
        sees(&s, codes);
    }
}

#[test]
fn i28_words_that_are_not_in_etcd_are_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.add(1, "w2");
    s.pass(5.0);
    s.told(Word::Add(vec![(0, address("w1"))]));
    s.told(Word::Switch(true));
    sees(&s, &[]);
    for word in [
        Word::Add(vec![(5, address("w1"))]),
        Word::Add(vec![(0, address("w3"))]),
        Word::Cancel(1),
        Word::CancelAll(vec![0, 1]),
        Word::Switch(false),
        Word::Order(0, "retry".to_owned()),
    ] {
        let mut s = s.clone();
        s.told(word);
        sees(&s, &["I28"]);
    }
}

#[test]
fn i28_a_queued_entry_that_an_engine_deletes_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.removes(0, "booted");
    sees(&s, &["I28"]);
}

#[test]
fn i29_an_index_that_is_used_again_or_skipped_is_seen() {
    for (index, codes) in [(1, &[][..]), (0, &["I29"]), (3, &["I29"])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.cancel(0);
        s.removes(0, "cancelled");
        s.pass(5.0);
        s.add(index, "w2");
        sees(&s, codes);
    }
}

#[test]
fn i29_an_engine_that_makes_an_entry_or_loses_a_field_is_seen() {
    let mut s = Scene::new();
    s.engine("drain", &[(&key(3), entry(3, "w1", "queued"))], &[]);
    sees(&s, &["I29"]);
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
        sees(&s, if kept { &[] } else { &["I29"] });
    }
}

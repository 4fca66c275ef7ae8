//! Cordons.

use serde_json::json;

use super::{
    scene::{Scene, entry, key},
    sees,
};

/// An entry of w1 in drain, its Node cordoned.
fn drained() -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.pass(0.5);
    s.cordon(0, "w1");
    s.pass(20.0);
    s
}

#[test]
fn i9_a_cordon_without_a_record_is_seen() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.patch("kubectl", "w2", json!({"spec": {"unschedulable": true}}));
    sees(&s, &[]);
    s.patch("engine-0", "w1", json!({"spec": {"unschedulable": true}}));
    sees(&s, &["I9"]);
}

#[test]
fn i10_a_cordon_that_is_forgotten_is_seen() {
    let mut s = drained();
    s.moves(0, "queued");
    s.pass(1.0);
    s.patch("engine-0", "w1", json!({"metadata": {"annotations": {"cketerm.io/owner": null}}}));
    sees(&s, &["I10"]);
}

#[test]
fn i10_a_cordon_that_stays_is_seen_unless_it_is_an_orphans() {
    for powered in [false, true] {
        let mut s = drained();
        if powered {
            s.powers(0, "w1");
        }
        s.cancel(0);
        s.removes(0, "cancelled");
        s.record.calm_since = Some(s.now);
        s.pass(200.0);
        sees(&s, if powered { &[] } else { &["I10"] });
    }
}

#[test]
fn i11_a_node_that_was_unschedulable_before_us_and_is_made_schedulable_is_seen() {
    for honest in [true, false] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.patch("kubectl", "w1", json!({"spec": {"unschedulable": true}}));
        s.moves(0, "draining");
        let owner = s.owner(0, "w1", !honest).to_string();
        s.patch("engine-0", "w1", json!({"metadata": {"annotations": {"cketerm.io/owner": owner}}}));
        sees(&s, if honest { &[] } else { &["I11"] });
        if honest {
            s.moves(0, "queued");
            s.pass(1.0);
            s.uncordon("w1");
            sees(&s, &["I11"]);
        }
    }
}

#[test]
fn i11_labels_and_annotations_of_others_are_left_alone() {
    let mut s = drained();
    s.patch("engine-0", "w1", json!({"metadata": {"annotations": {"theirs": null}}}));
    sees(&s, &["I11"]);
}

#[test]
fn i12_a_cordon_that_an_administrator_keeps_is_kept() {
    let mut s = drained();
    s.patch("kubectl", "w1", json!({"metadata": {"annotations": {"cketerm.io/keep-cordoned": "true"}}}));
    s.moves(0, "queued");
    s.pass(1.0);
    s.uncordon("w1");
    sees(&s, &["I12"]);
}

#[test]
fn i12_cordoning_again_twice_against_a_person_is_seen() {
    let mut s = drained();
    for (again, codes) in [(1, &[][..]), (2, &["I12"])] {
        s.patch("kubectl", "w1", json!({"spec": {"unschedulable": null}}));
        s.pass(1.0);
        let mut owner = s.owner(0, "w1", true);
        owner["recordoned"] = json!(again);
        let body = json!({"metadata": {"annotations": {"cketerm.io/owner": owner.to_string()}}, "spec": {"unschedulable": true}});
        s.patch("engine-0", "w1", body);
        sees(&s, codes);
    }
}

#[test]
fn i13_an_uncordon_of_a_rebooting_node_is_seen() {
    let mut s = drained();
    s.powers(0, "w1");
    s.pass(20.0);
    s.write("console", &[("reboots/disabled", json!("true"))], &[]);
    s.pass(1.0);
    s.uncordon("w1");
    sees(&s, &["I13"]);
}

#[test]
fn i13_a_late_uncordon_at_a_takeover_is_none_and_a_cancelled_entry_holds_nothing() {
    let mut s = drained();
    s.cancel(0);
    s.removes(0, "cancelled");
    s.add(1, "w1");
    s.moves(1, "draining");
    s.pass(3.0);
    s.uncordon("w1");
    sees(&s, &[]);
}

#[test]
fn i13_a_start_while_the_queue_is_disabled_is_seen_and_an_odd_word_does_not_disable() {
    for (word, codes) in [("true", &["I13"][..]), ("TRUE", &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.write("console", &[("reboots/disabled", json!(word))], &[]);
        s.moves(0, "draining");
        sees(&s, codes);
    }
}

#[test]
fn i14_an_uncordon_of_a_cancelled_reboot_before_the_machine_is_back_is_seen() {
    for back in [false, true] {
        let mut s = drained();
        s.powers(0, "w1");
        s.pass(1.0);
        s.ends(0, 1, "w1", 0);
        s.cancel(0);
        s.removes(0, "cancelled");
        if back {
            s.boots(0, "w1");
        }
        s.pass(1.0);
        s.uncordon("w1");
        sees(&s, if back { &[] } else { &["I14"] });
    }
}

#[test]
fn i14_an_api_server_that_ends_with_its_old_boot_id_is_seen_and_a_worker_under_boot_check_is_not() {
    for (node, codes) in [("cp1", &["I14"][..]), ("w1", &[])] {
        let mut s = Scene::new();
        s.write("console", &[(&key(0), entry(0, node, "queued")), ("reboots/write-index", json!(1))], &[]);
        s.moves(0, "draining");
        s.cordon(0, node);
        s.pass(2.0);
        s.powers(0, node);
        s.pass(1.0);
        s.ends(0, 1, node, 0);
        s.pass(30.0);
        s.removes(0, "booted");
        s.uncordon(node);
        sees(&s, codes);
    }
}

//! Cordons.

use serde_json::json;

use super::{
    assert_breaches,
    scene::{Scene, entry, key},
};

/// An entry of w1 in drain, its Node cordoned.
fn drained() -> Scene {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.advance(0.5);
    s.cordon(0, "w1");
    s.advance(20.0);
    s
}

#[test]
fn i9_a_cordon_without_an_owner_record_is_reported() {
    let mut s = Scene::new();
    s.add(0, "w1");
    s.moves(0, "draining");
    s.patch("kubectl", "w2", json!({"spec": {"unschedulable": true}}));
    assert_breaches(&s, &[]);
    s.patch("engine-0", "w1", json!({"spec": {"unschedulable": true}}));
    assert_breaches(&s, &["I9"]);
}

#[test]
fn i10_a_removed_owner_record_on_a_cordoned_node_is_reported() {
    let mut s = drained();
    s.moves(0, "queued");
    s.advance(1.0);
    s.patch("engine-0", "w1", json!({"metadata": {"annotations": {"cketerm.io/owner": null}}}));
    assert_breaches(&s, &["I10"]);
}

#[test]
fn i10_a_cordon_that_stays_is_reported_unless_it_is_orphaned() {
    for powered in [false, true] {
        let mut s = drained();
        if powered {
            s.powers(0, "w1");
        }
        s.cancel(0);
        s.removes(0, "cancelled");
        s.record.calm_since = Some(s.now);
        s.advance(200.0);
        assert_breaches(&s, if powered { &[] } else { &["I10"] });
    }
}

#[test]
fn i11_uncordoning_a_node_that_was_cordoned_before_is_reported() {
    for honest in [true, false] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.patch("kubectl", "w1", json!({"spec": {"unschedulable": true}}));
        s.moves(0, "draining");
        let owner = s.owner(0, "w1", !honest).to_string();
        s.patch("engine-0", "w1", json!({"metadata": {"annotations": {"cketerm.io/owner": owner}}}));
        assert_breaches(&s, if honest { &[] } else { &["I11"] });
        if honest {
            s.moves(0, "queued");
            s.advance(1.0);
            s.uncordon("w1");
            assert_breaches(&s, &["I11"]);
        }
    }
}

#[test]
fn i11_a_change_of_foreign_labels_or_annotations_is_reported() {
    let mut s = drained();
    s.patch("engine-0", "w1", json!({"metadata": {"annotations": {"theirs": null}}}));
    assert_breaches(&s, &["I11"]);
}

#[test]
fn i12_uncordoning_a_node_with_keep_cordoned_is_reported() {
    let mut s = drained();
    s.patch("kubectl", "w1", json!({"metadata": {"annotations": {"cketerm.io/keep-cordoned": "true"}}}));
    s.moves(0, "queued");
    s.advance(1.0);
    s.uncordon("w1");
    assert_breaches(&s, &["I12"]);
}

#[test]
fn i12_a_second_recordon_after_a_manual_uncordon_is_reported() {
    let mut s = drained();
    for (again, codes) in [(1, &[][..]), (2, &["I12"])] {
        s.patch("kubectl", "w1", json!({"spec": {"unschedulable": null}}));
        s.advance(1.0);
        let mut owner = s.owner(0, "w1", true);
        owner["recordoned"] = json!(again);
        let body = json!({"metadata": {"annotations": {"cketerm.io/owner": owner.to_string()}}, "spec": {"unschedulable": true}});
        s.patch("engine-0", "w1", body);
        assert_breaches(&s, codes);
    }
}

#[test]
fn i13_an_uncordon_of_a_rebooting_node_is_reported() {
    let mut s = drained();
    s.powers(0, "w1");
    s.advance(20.0);
    s.write("console", &[("reboots/disabled", json!("true"))], &[]);
    s.advance(1.0);
    s.uncordon("w1");
    assert_breaches(&s, &["I13"]);
}

#[test]
fn i13_a_late_uncordon_after_a_cancelled_entry_is_no_breach() {
    let mut s = drained();
    s.cancel(0);
    s.removes(0, "cancelled");
    s.add(1, "w1");
    s.moves(1, "draining");
    s.advance(3.0);
    s.uncordon("w1");
    assert_breaches(&s, &[]);
}

#[test]
fn i13_a_start_while_the_switch_is_exactly_true_is_reported() {
    for (word, codes) in [("true", &["I13"][..]), ("TRUE", &[])] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.write("console", &[("reboots/disabled", json!(word))], &[]);
        s.moves(0, "draining");
        assert_breaches(&s, codes);
    }
}

#[test]
fn i14_an_uncordon_after_a_cancel_before_the_machine_is_back_is_reported() {
    for back in [false, true] {
        let mut s = drained();
        s.powers(0, "w1");
        s.advance(1.0);
        s.ends(0, 1, "w1", 0);
        s.cancel(0);
        s.removes(0, "cancelled");
        if back {
            s.boots(0, "w1");
        }
        s.advance(1.0);
        s.uncordon("w1");
        assert_breaches(&s, if back { &[] } else { &["I14"] });
    }
}

#[test]
fn i14_an_uncordon_with_the_old_boot_id_is_reported_for_api_servers_only() {
    for (node, codes) in [("cp1", &["I14"][..]), ("w1", &[])] {
        let mut s = Scene::new();
        s.write("console", &[(&key(0), entry(0, node, "queued")), ("reboots/write-index", json!(1))], &[]);
        s.moves(0, "draining");
        s.cordon(0, node);
        s.advance(2.0);
        s.powers(0, node);
        s.advance(1.0);
        s.ends(0, 1, node, 0);
        s.advance(30.0);
        s.removes(0, "booted");
        s.uncordon(node);
        assert_breaches(&s, codes);
    }
}

//! Other programs that drain Nodes.

use serde_json::json;

use super::scene::Scene;

/// Sets or removes the sign of a program.
fn sign(s: &mut Scene, node: &str, is_set: bool) {
    let taints =
        if is_set { json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]) } else { json!([]) };
    s.patch("cluster-autoscaler", node, json!({"spec": {"taints": taints}}));
    s.advance(20.0);
}

#[track_caller]
fn assert_breaches(s: &Scene, expected: &[&str]) {
    let found: Vec<_> = s.codes().into_iter().filter(|code| *code == "I59").collect();
    assert_eq!(found, expected, "{:#?}", s.breaches());
}

#[test]
fn i59_a_cordon_while_another_program_works_is_reported() {
    for is_set in [true, false] {
        let mut s = Scene::new();
        s.add(0, "w1");
        sign(&mut s, "w1", is_set);
        s.moves(0, "draining");
        s.cordon(0, "w1");
        assert_breaches(&s, if is_set { &["I59"] } else { &[] });
    }
}

#[test]
fn i59_an_uncordon_while_another_program_works_is_reported() {
    for is_set in [true, false] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        sign(&mut s, "w1", is_set);
        s.moves(0, "queued");
        s.uncordon("w1");
        assert_breaches(&s, if is_set { &["I59"] } else { &[] });
    }
}

#[test]
fn i59_a_command_while_another_program_works_is_reported() {
    for is_set in [true, false] {
        let mut s = Scene::new();
        s.add(0, "w1");
        s.moves(0, "draining");
        s.cordon(0, "w1");
        sign(&mut s, "w1", is_set);
        s.powers(0, "w1");
        assert_breaches(&s, if is_set { &["I59"] } else { &[] });
    }
}

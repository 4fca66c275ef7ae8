//! Pace of evictions (I75), and previews of full budgets (I15).

use serde_json::{Value, json};

use super::{assert_breaches, scene::Scene};

fn budget(allowed: i32) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "safe"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed},
    })
}

/// w1 draining and cordoned, with these protected pods of one budget.
fn draining_with(allowed: i32, pods: &[&str]) -> Scene {
    let mut s = Scene::new();
    s.object("poddisruptionbudgets", "safe", "web", Some(budget(allowed)));
    for name in pods {
        s.pod("safe", name, "w1", "ReplicaSet", json!({"app": "web"}));
    }
    s.advance(60.0);
    s.add(0, "w1");
    s.moves(0, "draining");
    s.advance(0.5);
    s.cordon(0, "w1");
    s.advance(1.0);
    s
}

/// Two pods of a budget that allows no eviction.
fn draining() -> Scene {
    draining_with(0, &["a", "b"])
}

#[test]
fn i75_two_refusals_of_one_budget_in_one_round_are_reported() {
    let mut s = draining();
    s.evict("safe", "a", false, 429);
    s.evict("safe", "b", false, 429);
    assert_breaches(&s, &["I75"]);
}

#[test]
fn i75_two_refusals_after_own_evictions_filled_the_budget_are_reported() {
    let of_three = || draining_with(1, &["a", "b", "c"]);
    let mut own = of_three();
    own.evict("safe", "a", false, 201);
    own.object("poddisruptionbudgets", "safe", "web", Some(budget(0)));
    own.evict("safe", "b", false, 429);
    own.evict("safe", "c", false, 429);
    assert_breaches(&own, &["I75"]);
    let mut of_others = of_three();
    of_others.object("poddisruptionbudgets", "safe", "web", Some(budget(0)));
    of_others.evict("safe", "b", false, 429);
    of_others.evict("safe", "c", false, 429);
    assert_breaches(&of_others, &[]);
}

#[test]
fn i75_refusals_of_a_budget_that_changed_or_of_later_rounds_are_no_breach() {
    let mut changed = draining();
    changed.object("poddisruptionbudgets", "safe", "web", Some(budget(1)));
    changed.object("poddisruptionbudgets", "safe", "web", Some(budget(0)));
    changed.evict("safe", "a", false, 429);
    changed.evict("safe", "b", false, 429);
    assert_breaches(&changed, &[]);
    let mut later = draining();
    later.evict("safe", "a", false, 429);
    later.advance(5.0);
    later.evict("safe", "b", false, 429);
    assert_breaches(&later, &[]);
    let mut again = draining();
    again.evict("safe", "a", false, 429);
    again.evict("safe", "a", false, 429);
    assert_breaches(&again, &[]);
}

#[test]
fn i15_a_first_eviction_beside_a_budget_that_refuses_all_the_time_is_reported() {
    let with_other = || {
        let mut s = draining();
        s.pod("safe", "free", "w1", "ReplicaSet", json!({"app": "other"}));
        s
    };
    let mut ignored = with_other();
    ignored.evict("safe", "free", false, 201);
    assert_breaches(&ignored, &["I15"]);
    let mut opened = draining();
    opened.object("poddisruptionbudgets", "safe", "web", Some(budget(1)));
    opened.evict("safe", "a", false, 201);
    assert_breaches(&opened, &[]);
    // a webhook removes one of the pods itself
    let mut passed = with_other();
    for name in ["a", "b"] {
        passed.evict("safe", name, true, 201);
    }
    passed.evict("safe", "free", false, 201);
    assert_breaches(&passed, &[]);
}

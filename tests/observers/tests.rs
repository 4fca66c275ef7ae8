//! For each observer a record in which its rule is broken on purpose, and one beside it in which it is not.

mod cordons;
mod drains;
mod powers;
mod queue;
mod scene;
mod shown;

use scene::Scene;

/// The observers see these breaches, and no others.
#[track_caller]
fn sees(scene: &Scene, codes: &[&str]) {
    assert_eq!(scene.codes(), codes, "{:#?}", scene.breaches());
}

#[test]
fn a_whole_round_breaks_nothing() {
    let mut s = Scene::new();
    for (index, node) in ["w1", "w2", "cp1"].into_iter().enumerate() {
        s.add(index as u64, node);
    }
    for (index, node) in ["w1", "w2", "cp1"].into_iter().enumerate() {
        s.reboot(index as u64, node);
        s.pass(5.0);
        s.removes(index as u64, "booted");
        s.pass(0.1);
        s.uncordon(node);
        s.pass(20.0);
    }
    s.record.calm_since = Some(s.now);
    s.pass(300.0);
    sees(&s, &[]);
}

//! For each observer a record in which its rule is broken on purpose, and a similar one in which it holds.

mod accepted;
mod bounds;
mod cordons;
mod drains;
mod hosts;
mod notices;
mod powers;
mod queue;
mod quorum;
mod repairs;
mod results;
mod scene;
mod shown;
mod windows;

use scene::Scene;

/// Asserts that the observers report these breaches and no others.
#[track_caller]
fn sees(scene: &Scene, codes: &[&str]) {
    assert_eq!(scene.codes(), codes, "{:#?}", scene.breaches());
}

#[test]
fn every_invariant_has_an_observer() {
    let known: std::collections::BTreeSet<&str> = super::ALL.iter().map(|(code, _)| *code).collect();
    let all = 1..=52;
    let missing: Vec<String> = all.map(|n| format!("I{n}")).filter(|code| !known.contains(code.as_str())).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn i50_a_login_that_goes_elsewhere_is_seen() {
    let mut s = Scene::new();
    s.login("172.0.0.11");
    sees(&s, &[]);
    s.login("203.0.113.7");
    sees(&s, &["I50"]);
}

#[test]
fn an_engine_that_is_stuck_and_keeps_the_lock_is_seen() {
    let stuck = |gone_after: Option<f64>| {
        let mut s = Scene::new();
        s.record.stuck.push(("engine-0".to_owned(), s.now));
        if let Some(seconds) = gone_after {
            s.pass(seconds);
            s.hand(&format!("leader//{:x}", scene::LEASE), None);
        }
        s.pass(120.0);
        s
    };
    sees(&stuck(Some(12.0)), &[]);
    sees(&stuck(Some(60.0)), &["heartbeat"]);
    sees(&stuck(None), &["heartbeat"]);
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

/// A record as long as a simulation's is judged in a few milliseconds of an optimized build.
#[test]
#[ignore = "a measurement: `cargo test --release observers -- --ignored --nocapture`"]
fn a_long_record_is_judged_fast() {
    let mut s = Scene::new();
    for index in 0..60 {
        let node = ["w1", "w2", "w3", "w4", "w5"][index as usize % 5];
        s.add(index, node);
        s.pod("free", &format!("p{index}"), node, "ReplicaSet", serde_json::json!({}));
        s.moves(index, "draining");
        s.cordon(index, node);
        s.evicts("free", &format!("p{index}"), true, 201);
        s.evicts("free", &format!("p{index}"), false, 201);
        s.object("pods", "free", &format!("p{index}"), None);
        s.pass(5.0);
        s.powers(index, node);
        s.pass(1.0);
        s.ends(index, 1, node, 0);
        for _ in 0..20 {
            s.node(node, |n| n["status"]["heartbeat"] = serde_json::json!(1));
            s.engine("progress", &[("cketerm/progress/reboots/0", serde_json::json!({"phase": "p"}))], &[]);
            s.says(3, &[(index, serde_json::json!({"reason": "WaitingForBoot", "stuck": false}))], &[]);
        }
        s.boots(index, node);
        s.removes(index, "booted");
        s.uncordon(node);
    }
    let began = std::time::Instant::now();
    let breaches = super::observe(&s.record);
    println!("{:?}, {} breaches", began.elapsed(), breaches.len());
    let view = super::View::of(&s.record);
    for (code, observer) in super::ALL {
        let began = std::time::Instant::now();
        observer(&view);
        println!("{code} {:?}", began.elapsed());
    }
}

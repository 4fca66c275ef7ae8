//! For each observer a record in which its rule is broken on purpose, and a similar one in which it holds.

mod accepted;
mod agents;
mod batches;
mod bounds;
mod cordons;
mod drains;
mod hooks;
mod hosts;
mod identity;
mod leadership_and_reports;
mod maintenance;
mod maintenance_requests;
mod membership;
mod node_signs;
mod notices;
mod oracle;
mod other_drainers;
mod pacing;
mod powers;
mod queue;
mod quorum;
mod reboot_needed;
mod repairs;
mod results;
mod scene;
mod start_gates;
mod windows;

use scene::Scene;

/// Asserts that the observers report these breaches and no others.
#[track_caller]
fn assert_breaches(scene: &Scene, codes: &[&str]) {
    assert_eq!(scene.codes(), codes, "{:#?}", scene.breaches());
}

#[test]
fn every_invariant_has_an_observer() {
    let known: std::collections::BTreeSet<&str> = super::ALL.iter().map(|(code, _)| *code).collect();
    let all = 1..=76;
    let missing: Vec<String> = all.map(|n| format!("I{n}")).filter(|code| !known.contains(code.as_str())).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn i50_a_login_outside_the_bmc_networks_is_reported() {
    let mut s = Scene::new();
    s.login("172.0.0.11");
    assert_breaches(&s, &[]);
    s.login("203.0.113.7");
    assert_breaches(&s, &["I50"]);
}

#[test]
fn a_stuck_engine_that_keeps_the_lock_is_reported() {
    let stuck = |gone_after: Option<f64>| {
        let mut s = Scene::new();
        s.record.stuck.push(("engine-0".to_owned(), s.now));
        if let Some(seconds) = gone_after {
            s.advance(seconds);
            s.set_key(&format!("leader//{:x}", scene::LEASE), None);
        }
        s.advance(120.0);
        s
    };
    assert_breaches(&stuck(Some(12.0)), &[]);
    assert_breaches(&stuck(Some(60.0)), &["heartbeat"]);
    assert_breaches(&stuck(None), &["heartbeat"]);
}

#[test]
fn three_correct_reboots_are_no_breach() {
    let mut s = Scene::new();
    for (index, node) in ["w1", "w2", "cp1"].into_iter().enumerate() {
        s.add(index as u64, node);
    }
    for (index, node) in ["w1", "w2", "cp1"].into_iter().enumerate() {
        s.reboot(index as u64, node);
        s.advance(5.0);
        s.removes(index as u64, "booted");
        s.advance(0.1);
        s.uncordon(node);
        s.advance(20.0);
    }
    s.record.calm_since = Some(s.now);
    s.advance(300.0);
    assert_breaches(&s, &[]);
}

/// A record as long as a simulation's is judged in a few milliseconds of an optimized build.
#[test]
#[ignore = "a measurement: `cargo test --release observers -- --ignored --nocapture`"]
fn measure_the_observers_on_a_long_record() {
    let mut s = Scene::new();
    for index in 0..60 {
        let node = ["w1", "w2", "w3", "w4", "w5"][index as usize % 5];
        s.add(index, node);
        s.pod("free", &format!("p{index}"), node, "ReplicaSet", serde_json::json!({}));
        s.moves(index, "draining");
        s.cordon(index, node);
        s.evict("free", &format!("p{index}"), true, 201);
        s.evict("free", &format!("p{index}"), false, 201);
        s.object("pods", "free", &format!("p{index}"), None);
        s.advance(5.0);
        s.powers(index, node);
        s.advance(1.0);
        s.ends(index, 1, node, 0);
        for _ in 0..20 {
            s.node(node, |n| n["status"]["heartbeat"] = serde_json::json!(1));
            s.engine("progress", &[("cketerm/progress/reboots/0", serde_json::json!({"phase": "p"}))], &[]);
            s.reports(3, &[(index, serde_json::json!({"reason": "WaitingForBoot", "stuck": false}))], &[]);
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

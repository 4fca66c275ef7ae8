//! Reasons while CKE leads, from real etcd and a real API server: a key in `leader/` without a registration, and a drain
//! as CKE's leader writes it.

use serde_json::{Value, json};

use super::rig::Rig;
use crate::world::{Options, World, cluster::machines, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn why_names_the_pod_the_budget_and_the_job_that_hold_a_drain_of_cke() {
    let options = Options { kcm: true, kwok: true, audit: false, etcd34: false, scheduler: false };
    let Some(world) = World::start(options) else { return };
    let rig = Rig::on(&world.etcd).await;
    world.set_up_web(1);
    world.add_budget("default", "web", "web", 2);
    let worker = &machines(1, 1)[1];
    rig.put("/cke/leader//694d", "boot-0").await;
    let since = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let entry = json!({"index": "0", "node": worker.address, "status": "draining", "last_transition_time": since,
        "drain_backoff_expire": "0001-01-01T00:00:00Z"});
    rig.put("/cke/reboots/data/0000000000000000", &entry.to_string()).await;

    let held = wait_for("the reason names the budget", 30, || {
        let why = world.run(&["rq", "why", "0", "-o", "json"]);
        let why: Value = serde_json::from_str(&why).ok()?;
        (why["reason"]["reason"] == "PDBNeverAllows").then_some(why)
    });
    assert_eq!((&held["reason"]["pdb"], &held["reason"]["needed"]), (&json!("default/web"), &json!(2)), "{held}");
    assert_eq!((&held["reading"], &held["needs_attention"]), (&json!("cke"), &json!(true)), "{held}");
    let text = world.run(&["rq", "why", "0"]);
    assert!(text.contains("pdb default/web (healthy") && text.contains("; as cketerm reads CKE's rules"), "{text}");

    let job = world.add_job("default", "nightly");
    world.add_pod("default", "nightly-1", "w1", "batch", Some(&job));
    world.wait_for_running_pods("default");
    let text = world.run(&["rq", "why", "0"]);
    assert!(text.contains("pod default/nightly-1 belongs to running protected job default/nightly"), "{text}");
}

//! Nodes that need a reboot (policy `reboot_needed`), on real servers.

use serde_json::{Value, json};

use crate::world::{Options, World, cluster::machines, history::value, wait_for};

const KURED: &str = "weave.works/kured-most-recent-reboot-needed";
const OWN: &str = "cketerm.io/reboot-needed";

fn annotate(world: &World, node: &str, key: &str, value: &Value) {
    world.ok("PATCH", &format!("/api/v1/nodes/{node}"), Some(&json!({"metadata": {"annotations": {key: value}}})));
}

fn needed(world: &World) -> Vec<Value> {
    serde_json::from_str(&world.run(&["rq", "needed", "-o", "json"])).expect("a list")
}

/// Waits until exactly this Node needs a reboot, in this state and recorded.
fn wait_for_state(world: &World, node: &str, state: &str) -> Value {
    wait_for(&format!("{node} is {state}"), 30, || {
        let rows = needed(world);
        (rows.len() == 1 && rows[0]["node"] == node && rows[0]["state"] == state && !rows[0]["since"].is_null())
            .then(|| rows[0].clone())
    })
}

fn reboots(world: &World) -> usize {
    world.power().iter().filter(|p| p.what == "begin").count()
}

/// Time a little ahead, because the Nodes became Ready just now.
fn soon() -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(5);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[test]
fn a_needed_reboot_is_proposed_then_queued_once_for_each_signal() {
    let Some(world) = World::start(Options { kcm: false, kwok: true, audit: true, etcd34: false, scheduler: false })
    else {
        return;
    };
    let all = machines(1, 2);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    let daemon = world.daemon("engine");
    daemon.ready();

    // propose: it is recorded and shown, and nothing is queued
    annotate(&world, "w1", KURED, &json!(soon()));
    let row = wait_for_state(&world, "w1", "proposed");
    assert_eq!(row["cause"], "kured");
    assert!(value(&world.etcd, "/cke/cketerm/needed/w1").is_some_and(|record| record.contains("first-w1")));
    assert!(world.entries().is_empty());

    // queue: one entry; kured's annotation stays and asks for nothing more
    world.run(&["policy", "set", "reboot_needed", "queue"]);
    wait_for("w1 is rebooted", 60, || (reboots(&world) == 1).then_some(()));
    world.wait_for_empty_queue(60);
    wait_for("nobody needs a reboot", 30, || needed(&world).is_empty().then_some(()));
    let batches = world.run(&["rq", "batches", "-o", "json"]);
    assert!(batches.contains("kured") && batches.contains("reboot needed"), "{batches}");

    // an annotation that is still there after its reboot is named, and not queued again
    annotate(&world, "w2", OWN, &json!("new kernel"));
    wait_for("w2 is rebooted", 60, || (reboots(&world) == 2).then_some(()));
    world.wait_for_empty_queue(60);
    wait_for_state(&world, "w2", "rebooted");
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!((reboots(&world), world.entries().len()), (2, 0));

    // with the signal, the record forgets it, and keeps the entry for a day
    annotate(&world, "w2", OWN, &Value::Null);
    wait_for("the signal is forgotten", 30, || {
        let record = value(&world.etcd, "/cke/cketerm/needed/w2")?;
        (record.contains(r#""signals":[]"#) && record.contains("queued")).then_some(())
    });
    annotate(&world, "w2", OWN, &json!("firmware"));
    wait_for_state(&world, "w2", "soon-again");
    annotate(&world, "w2", OWN, &Value::Null);
    assert_eq!((reboots(&world), world.entries().len()), (2, 0));

    // people queue what is proposed
    world.run(&["policy", "set", "reboot_needed", "propose"]);
    annotate(&world, "w2", OWN, &json!("firmware"));
    wait_for_state(&world, "w2", "soon-again");
    world.run(&["rq", "disable"]);
    world.run(&["rq", "add", "--needed=firmware"]);
    wait_for_state(&world, "w2", "queued");
    assert!(world.run(&["rq", "list", "-o", "table"]).contains("firmware"));
}

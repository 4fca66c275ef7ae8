//! Maintenance without a reboot, in both worlds: over killed leaders, a release, an end, and a CKE that takes the lead.

use serde_json::{Value, json};

use crate::world::{Options, World, cluster::machines, in_both_worlds, leader, program::cketerm, wait_for};

in_both_worlds! {
    Options { kcm: false, kwok: true, ..Options::default() };
    i73_a_node_is_kept_through_killed_leaders_and_given_back,
    i73_a_maintenance_ends_at_its_time_and_is_refused_while_cke_leads,
}

fn list(world: &World) -> Vec<Value> {
    serde_json::from_str(&world.run(&["maintenance", "list", "-o", "json"])).expect("JSON")
}

fn wait_for_status(world: &World, status: &str) {
    wait_for(status, 60, || list(world).iter().any(|entry| entry["status"] == status).then_some(()));
}

/// The node is uncordoned before its entry is removed.
fn wait_until_none_is_listed(world: &World) {
    wait_for("no maintenance is listed", 30, || list(world).is_empty().then_some(()));
}

fn begun(world: &World) -> usize {
    world.power().iter().filter(|p| p.what == "begin").count()
}

fn annotations(world: &World, node: &str) -> Value {
    world.node(node)["metadata"]["annotations"].clone()
}

fn i73_a_node_is_kept_through_killed_leaders_and_given_back(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    world.set_up(&all, &json!({"max_concurrent_reboots": 2}));
    let first = world.daemon("first");
    first.ready();
    let no_reason = cketerm(&world.config(), &["maintenance", "add", "w1", "--until", "1h"]);
    assert!(no_reason.code != 0 && no_reason.stderr.contains("--reason"), "{}", no_reason.stderr);
    world.run(&["maintenance", "add", "w1", "--until", "1h", "--reason", "disk sdb"]);
    wait_for_status(world, "in-maintenance");
    assert_eq!(world.cordoned(), ["w1"]);
    let marks = annotations(world, "w1");
    assert!(marks["cketerm.io/maintenance"].is_string() && marks["cke.cybozu.com/reboot"].is_null(), "{marks}");
    let (_, page) = first.page("/metrics");
    let end = format!("cketerm_maintenance_end_timestamp_seconds{{address=\"{}\"}} ", all[1].address);
    assert!(page.contains(&end), "{page}");
    let twice = cketerm(&world.config(), &["maintenance", "add", "w1", "--until", "1h", "--reason", "again"]);
    assert!(twice.code == 3 && twice.stderr.contains("in maintenance already"), "{}", twice.stderr);

    // a reboot of the same machine waits, one of another machine does not; a new leader keeps the Node
    first.kill();
    let second = world.daemon("second");
    second.ready();
    world.queue(&[&all[1], &all[2]]);
    wait_for("the other machine is rebooted", 90, || (begun(world) == 1).then_some(()));
    wait_for("only the waiting reboot is left", 90, || (world.entries().len() == 1).then_some(()));
    let why = world.run(&["rq", "why", "0"]);
    assert!(why.contains("in maintenance until") && why.contains("disk sdb"), "{why}");
    assert_eq!(world.cordoned(), ["w1"]);

    // given back, it is rebooted
    world.run(&["maintenance", "release", "w1", "--reason", "done"]);
    world.wait_for_empty_queue(120);
    assert_eq!(begun(world), 2);
    wait_for("nothing is cordoned", 30, || world.cordoned().is_empty().then_some(()));
    wait_until_none_is_listed(world);
    let marks = annotations(world, "w1");
    assert!(marks["cketerm.io/maintenance"].is_null(), "{marks}");
    let history = world.run(&["history", "--ended", "-o", "json"]);
    assert!(history.contains("released by"), "{history}");
}

fn i73_a_maintenance_ends_at_its_time_and_is_refused_while_cke_leads(world: &World) {
    let all = machines(1, 2);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    let first = world.daemon("first");
    first.ready();
    world.run(&["maintenance", "add", "w1", "--until", "1h", "--reason", "cable"]);
    wait_for_status(world, "in-maintenance");
    world.run(&["maintenance", "extend", "w1", "--until", "2s", "--reason", "repaired sooner"]);
    wait_for("its time is over and the node is uncordoned", 60, || world.cordoned().is_empty().then_some(()));
    wait_until_none_is_listed(world);

    world.run(&["maintenance", "add", "w2", "--until", "1h", "--reason", "cable"]);
    wait_for_status(world, "in-maintenance");
    let cke = leader::campaign_as_cke(&world.etcd);
    wait_for("CKE leads", 60, || world.run(&["leader"]).contains("cke-host").then_some(()));
    let refused = cketerm(&world.config(), &["maintenance", "add", "w1", "--until", "1h", "--reason", "cable"]);
    assert!(refused.code != 0 && refused.stderr.contains("cketerm nodes drain"), "{}", refused.stderr);
    // a release is stored for the next leader of cketerm
    world.run(&["maintenance", "release", "w2"]);
    assert_eq!(world.cordoned(), ["w2"]);
    leader::revoke(&world.etcd, cke);
    wait_for("the next leader gives it back", 90, || world.cordoned().is_empty().then_some(()));
    wait_until_none_is_listed(world);
}

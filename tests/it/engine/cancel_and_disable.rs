//! Cancel always wins; disable leaves nothing stranded.

use serde_json::json;

use crate::world::{
    Options, World,
    cluster::{Machine, machines},
    history::{changes, value},
    in_both_worlds,
    program::cketerm,
    wait_for,
};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    i10_i27_a_cancel_ends_an_entry_in_any_state_for_good,
    i13_disabling_unwinds_a_drain_but_a_running_reboot_finishes,
    cke_records_of_many_cancels_are_complete_and_few_writes,
    sigterm_releases_the_lock_at_once,
}

/// One API server, `workers` workers, two pods on each, everything set up.
fn with_workers(world: &World, workers: usize) -> Vec<Machine> {
    let machines = machines(1, workers);
    world.add_nodes(&machines);
    for m in machines.iter().filter(|m| !m.control_plane) {
        for i in 0..2 {
            world.add_pod("default", &format!("{}-{i}", m.name), &m.name, "plain", None);
        }
    }
    world.wait_for_running_pods("default");
    world.set_up(&machines, &json!({}));
    machines
}

fn i10_i27_a_cancel_ends_an_entry_in_any_state_for_good(world: &World) {
    let machines = with_workers(world, 3);
    let worker = |i: usize| machines.iter().filter(|m| !m.control_plane).nth(i).unwrap();
    // queued: no engine leads yet
    world.queue(&[worker(0)]);
    world.run(&["rq", "cancel", "0"]);
    let daemon = world.daemon("engine");
    daemon.ready();
    wait_for("the cancelled entry is removed", 20, || world.entries().is_empty().then_some(()));

    // draining: pods stay Terminating
    world.act("freeze", "kwok");
    world.queue(&[worker(1)]);
    world.wait_for_entry_status(1, "draining", 20);
    wait_for("the node is cordoned", 10, || (world.cordoned() == ["w2"]).then_some(()));
    world.run(&["rq", "cancel", "1"]);
    wait_for("the entry is removed and its node is uncordoned", 20, || {
        (world.entries().is_empty() && world.cordoned().is_empty()).then_some(())
    });
    world.act("thaw", "kwok");

    // rebooting, while the command runs: the node stays cordoned until the machine has booted
    world.set_command_seconds(6);
    world.queue(&[worker(2)]);
    world.wait_for_entry_status(2, "rebooting", 30);
    wait_for("the command runs", 10, || world.power().iter().any(|p| p.what == "begin").then_some(()));
    world.run(&["rq", "cancel", "2"]);
    wait_for("the entry is removed", 10, || world.entries().is_empty().then_some(()));
    assert_eq!(world.cordoned(), ["w3"], "the node stays cordoned during its reboot");
    assert!(!world.power().iter().any(|p| p.what == "end"), "the command ended before the check above");
    wait_for("the node is uncordoned after its boot", 40, || world.cordoned().is_empty().then_some(()));
    assert!(world.power().iter().any(|p| p.what == "end"), "a running command must finish");
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 1);

    let mut cancelled = std::collections::BTreeSet::new();
    for change in changes(&world.etcd, "/cke/reboots/data/") {
        match change.json()["status"].as_str() {
            Some("cancelled") => drop(cancelled.insert(change.key)),
            Some(status) => assert!(!cancelled.contains(&change.key), "{status} after a cancel: {change:?}"),
            None => {}
        }
    }
}

/// `ckecli history` shows each cancel, and the records of a mass cancel do not need two requests each.
fn cke_records_of_many_cancels_are_complete_and_few_writes(world: &World) {
    const COUNT: usize = 60;
    let machines = machines(1, COUNT);
    // the workers need no Nodes: nothing is drained
    world.add_nodes(&machines[..1]);
    world.set_up(&machines, &json!({}));
    let workers: Vec<&Machine> = machines.iter().filter(|m| !m.control_plane).collect();
    world.queue(&workers);
    world.run(&["rq", "cancel-all"]);
    let daemon = world.daemon("engine");
    daemon.ready();
    wait_for("the entries are removed", 30, || world.entries().is_empty().then_some(()));
    // the end of an engine waits for them
    let (status, _) = daemon.terminate();
    assert!(status.success(), "{status}");
    assert_eq!(value(&world.etcd, "/cke/records"), Some((COUNT + 1).to_string()));

    let changes = changes(&world.etcd, "/cke/records");
    let (counters, records): (Vec<_>, Vec<_>) = changes.iter().partition(|change| change.key == "/cke/records");
    let records: Vec<_> = records.into_iter().map(|change| (change.key.clone(), change.json())).collect();
    let keys: Vec<String> = (1..=COUNT).map(|id| format!("/cke/records/{id:016x}")).collect();
    assert_eq!(records.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), keys);
    let mut targets: Vec<&str> = records.iter().map(|(_, record)| record["targets"][0].as_str().unwrap()).collect();
    let mut addresses: Vec<&str> = workers.iter().map(|machine| machine.address.as_str()).collect();
    targets.sort_unstable();
    addresses.sort_unstable();
    assert_eq!(targets, addresses);
    assert!(records.iter().all(|(_, record)| record["operation"] == "reboot-cancel"));
    assert!(counters.len() < COUNT, "each record had a transaction of its own");
}

fn i13_disabling_unwinds_a_drain_but_a_running_reboot_finishes(world: &World) {
    let machines = with_workers(world, 2);
    let workers: Vec<&Machine> = machines.iter().filter(|m| !m.control_plane).collect();
    let daemon = world.daemon("engine");
    daemon.ready();
    world.act("freeze", "kwok");
    world.queue(&workers[..1]);
    world.wait_for_entry_status(0, "draining", 20);
    wait_for("the node is cordoned", 10, || (world.cordoned() == ["w1"]).then_some(()));
    world.run(&["rq", "disable"]);
    world.wait_for_entry_status(0, "queued", 20);
    wait_for("the node is uncordoned", 20, || world.cordoned().is_empty().then_some(()));
    assert!(world.run(&["rq", "why", "0"]).contains("disabled"), "{}", world.run(&["rq", "why", "0"]));
    assert_eq!(value(&world.etcd, "/cke/reboots/disabled").as_deref(), Some("true"));
    assert!(world.power().is_empty());

    world.act("thaw", "kwok");
    world.run(&["rq", "enable"]);
    world.run(&["rq", "reset-backoff"]);
    world.set_command_seconds(4);
    world.wait_for_entry_status(0, "rebooting", 40);
    world.run(&["rq", "disable"]);
    wait_for("the command ends", 20, || world.power().iter().any(|p| p.what == "end").then_some(()));
    world.wait_for_empty_queue(30);
    wait_for("the node is uncordoned", 20, || world.cordoned().is_empty().then_some(()));
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 1);
}

fn sigterm_releases_the_lock_at_once(world: &World) {
    with_workers(world, 0);
    let daemon = world.daemon("engine");
    daemon.ready();
    // `leader` exits with 1 without a leader: a ready engine may not have won the election yet
    wait_for("the engine leads", 20, || (cketerm(&world.config(), &["leader"]).code == 0).then_some(()));
    let (status, took) = daemon.terminate();
    assert!(status.success(), "{status}");
    assert!(took.as_secs() < 4, "without work in progress the shutdown must be fast: {took:?}");
    let mut held = std::collections::BTreeSet::new();
    for change in changes(&world.etcd, "/cke/leader/") {
        if change.value.is_some() {
            held.insert(change.key)
        } else {
            held.remove(&change.key)
        };
    }
    assert!(held.is_empty(), "{held:?}");
}

//! Conditions under which an engine must not lead.

use std::{path::Path, process::Command, time::Duration};

use serde_json::json;

use crate::world::{
    Options, World,
    cluster::machines,
    found,
    history::{changes, put, value},
    in_both_worlds, leader,
    program::Daemon,
    wait_for,
};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    with_a_kubeconfig_of_another_cluster_the_engine_only_observes_and_reports_it,
    a_leader_that_meets_another_cluster_finishes_its_work_and_uncordons_nothing,
    beside_cke_the_engine_never_campaigns,
    a_leader_that_cannot_start_processes_hands_the_lock_to_one_that_can,
}

/// Without a free descriptor it starts no process: neither the boot check of an entry in progress, nor any command.
/// With a TTL of ten minutes the second engine leads only because the first revoked its lease.
fn a_leader_that_cannot_start_processes_hands_the_lock_to_one_that_can(world: &World) {
    let Some(prlimit) = found("prlimit") else { return };
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({"boot_check_command": ["/bin/false"]}));
    world.queue(&[&all[1]]);
    let ttl = [("CKETERM_LEASE_TTL", Path::new("600"))];
    let daemon = |name| Daemon::start_in(world.dir(), &world.config(), name, &ttl);
    let first = daemon("first");
    wait_for("the machine was rebooted", 60, || world.power().iter().any(|p| p.what == "end").then_some(()));
    let second = daemon("second");
    wait_for("the second engine is on standby", 30, || (second.page("/readyz").1 == "standing by\n").then_some(()));
    let limited = Command::new(prlimit).args(["--pid", &first.pid().to_string(), "--nofile=3:3"]).status();
    assert!(limited.expect("prlimit starts").success());
    wait_for("the second engine leads", 60, || (second.page("/readyz").1 == "leading\n").then_some(()));
    assert_eq!(leader::now(&world.etcd).and_then(|(_, pid)| pid), Some(second.pid()));
    assert!(first.logged().contains("this host cannot start programs"), "{}", first.logged());
    assert_eq!(world.entries()[&0]["status"], "rebooting", "the new leader continues from the stored entry");
    assert_eq!(world.power().len(), 2, "the command must run exactly once: {:?}", world.power());
}

fn with_a_kubeconfig_of_another_cluster_the_engine_only_observes_and_reports_it(world: &World) {
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    world.queue(&[&all[1]]);
    identify_as_another(world);
    let daemon = world.daemon("engine");
    let page = daemon.ready();
    assert!(page.contains("identity"), "{page}");
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(leader_keys(world), Vec::<String>::new(), "no engine leads");
    assert!(world.cordoned().is_empty() && world.power().is_empty());
    // cancel and disable always work
    world.run(&["rq", "cancel", "0"]);
    world.run(&["rq", "disable"]);
}

fn a_leader_that_meets_another_cluster_finishes_its_work_and_uncordons_nothing(world: &World) {
    let all = machines(1, 1);
    world.add_nodes(&all);
    let booted = world.dir().join("booted");
    let check = format!("cat {}", booted.display());
    world.set_up(&all, &json!({"boot_check_command": ["/bin/sh", "-c", check]}));
    world.queue(&[&all[1]]);
    let _daemon = world.daemon("engine");
    wait_for("the machine was rebooted", 60, || world.power().iter().any(|p| p.what == "end").then_some(()));
    identify_as_another(world);
    std::thread::sleep(Duration::from_secs(2));
    std::fs::write(&booted, "true").unwrap();
    wait_for("the entry ends", 60, || world.entries().is_empty().then_some(()));
    wait_for("the engine resigns", 30, || leader::now(&world.etcd).is_none().then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(world.cordoned().len(), 1, "that Node may be one of the other cluster");
}

/// Records the identity of another cluster, confirmed by an operator.
fn identify_as_another(world: &World) {
    let identity = value(&world.etcd, "/cke/cketerm/identity").expect("an identity");
    let uid = world.ok("GET", "/api/v1/namespaces/kube-system", None)["metadata"]["uid"].as_str().unwrap().to_owned();
    put(&world.etcd, "/cke/cketerm/identity", &identity.replace(&uid, "11111111-2222-3333-4444-555555555555"));
}

fn beside_cke_the_engine_never_campaigns(world: &World) {
    // a candidate without a cketerm registration, older than cketerm's schema
    put(&world.etcd, "/cke/leader//5a5a5a5a5a5a5a5a", "cke-host");
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    world.queue(&[&all[1]]);
    let daemon = world.daemon("engine");
    daemon.ready();
    std::thread::sleep(Duration::from_secs(8));
    assert!(world.run(&["policy", "show"]).contains("cke"));
    assert_eq!(leader_keys(world), ["/cke/leader//5a5a5a5a5a5a5a5a"]);
    assert!(world.run(&["leader"]).contains("cke-host"));
    assert_eq!(world.entries()[&0]["status"], "queued");
    assert!(world.cordoned().is_empty() && world.power().is_empty());
    let why = world.run(&["rq", "why", "0"]);
    assert!(why.contains("cke-host") || why.contains("CKE"), "{why}");
}

/// Keys ever written below `leader/`.
fn leader_keys(world: &World) -> Vec<String> {
    changes(&world.etcd, "/cke/leader/").into_iter().filter(|c| c.value.is_some()).map(|c| c.key).collect()
}

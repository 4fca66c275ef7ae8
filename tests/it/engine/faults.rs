//! Short version of `tests/figures/faults.py`, run every time: a lease revoked in mid-drain, the leader stopped in
//! mid-command and replaced, the API server killed. Each machine is still rebooted exactly once.

use serde_json::json;

use crate::world::{
    Options, World,
    cluster::{Power, machines},
    in_both_worlds, leader, wait_for,
};

in_both_worlds! {
    Options { kcm: true, kwok: true, audit: false, etcd34: false, scheduler: false };
    i23_i25_each_machine_reboots_once_despite_lease_leader_and_api_server_faults,
}

fn i23_i25_each_machine_reboots_once_despite_lease_leader_and_api_server_faults(world: &World) {
    let machines = machines(1, 3);
    world.add_nodes(&machines);
    world.add_pod("default", "held", "w1", "plain", None);
    world.wait_for_running_pods("default");
    world.set_up(&machines, &json!({"max_concurrent_reboots": 2, "command_timeout_seconds": 30}));
    world.set_command_seconds(3);
    // without kubelets pods stay Terminating: the drain lasts until kwok is thawed
    world.act("freeze", "kwok");
    world.queue(&machines.iter().collect::<Vec<_>>());
    let (first, second) = (world.daemon("first"), world.daemon("second"));
    wait_for("a drain runs", 60, || world.entries().values().any(|e| e["status"] == "draining").then_some(()));
    let (lease, _) = wait_for("an engine leads", 30, || leader::now(&world.etcd));
    leader::revoke(&world.etcd, lease);
    wait_for("another lease leads", 60, || leader::now(&world.etcd).filter(|(now, _)| *now != lease));
    world.act("thaw", "kwok");

    // while a command runs, its leader is stopped until the other engine leads
    let open = || {
        let log = world.power();
        let ended = |p: &Power| log.iter().any(|q| q.what == "end" && q.address == p.address);
        log.iter().any(|p| p.what == "begin" && !ended(p)).then_some(())
    };
    wait_for("a reboot command runs", 60, open);
    let (lease, pid) = wait_for("an engine leads", 30, || leader::now(&world.etcd));
    let stopped_daemon = if pid == Some(first.pid()) { &first } else { &second };
    stopped_daemon.signal("STOP");
    wait_for("the other engine leads", 60, || leader::now(&world.etcd).filter(|(now, _)| *now != lease));
    stopped_daemon.signal("CONT");

    world.act("kill", "apiserver");
    std::thread::sleep(std::time::Duration::from_secs(2));
    world.act("start", "apiserver");

    world.wait_for_empty_queue_with_operator(240);
    wait_for("the nodes are uncordoned", 60, || world.cordoned().is_empty().then_some(()));
    let log = world.power();
    for m in &machines {
        let of = |what: &str| log.iter().filter(|p| p.address == m.address && p.what == what).count();
        assert_eq!((of("begin"), of("end")), (1, 1), "{}: {log:?}", m.name);
    }
    for daemon in [&first, &second] {
        assert!(!daemon.logged().contains("panicked"), "{}", daemon.logged());
    }
}

//! A leader that cannot convert an older version's records to the form of this version.

use std::path::Path;

use serde_json::json;

use crate::world::{
    Options, World,
    cluster::machines,
    history::{put, value},
    in_both_worlds, leader,
    program::{Daemon, cketerm},
    wait_for,
};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    a_leader_that_cannot_migrate_reports_it_and_resigns_on_request,
}

const SAID: &str = "migrates the records of an older version";

/// An attempt of 0.1 that it withheld, with an output of this many bytes.
fn attempt(world: &World, number: u32, output: usize) {
    let attempt = json!({
        "id": format!("reboots-77-{number}"), "entry": "reboots/77", "number": number, "address": "10.0.1.11",
        "node": "w1", "lease": 7_587_869, "host": "boot-0", "argv": ["bmc", "reboot", "10.0.1.11"], "bound_seconds": 20,
        "boot_id": "first-w1", "node_uid": "1f0c", "start": "2026-07-01T00:00:00Z",
        "outcome": {"end": {"withheld": "the entry has changed meanwhile"}, "at": "2026-07-01T00:00:01Z",
            "stdout": "x".repeat(output), "stderr": ""}
    });
    put(&world.etcd, &format!("/cke/cketerm/attempts/reboots/77/{number}"), &attempt.to_string());
}

/// The schema was manually set back to 1 while the record of an unfinished migration existed. One attempt is so large
/// that etcd takes no transaction with it. With a TTL of ten minutes only a resignation frees the lock.
fn a_leader_that_cannot_migrate_reports_it_and_resigns_on_request(world: &World) {
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    world.queue(&[&all[1]]);
    let note = json!({"from": 1, "at": "2026-07-01T00:00:00Z", "by": {"user": "engine", "host": "boot-0"}});
    put(&world.etcd, "/cke/cketerm/migration", &note.to_string());
    put(&world.etcd, "/cke/cketerm/schema", "1");
    attempt(world, 1, 0);
    attempt(world, 2, 0);
    // with its other fields the value fits in a single put, but not in a transaction with a comparison
    attempt(world, 3, 3 * 512 * 1024 - 850);

    let daemon = |name| {
        let ttl = [("CKETERM_LEASE_TTL", Path::new("600"))];
        Daemon::start_in(world.dir(), &world.config(), name, &ttl)
    };
    let first = daemon("first");
    wait_for("/readyz names the migration", 60, || first.page("/readyz").1.contains(SAID).then_some(()));
    wait_for("/readyz names the obstacle", 60, || first.page("/readyz").1.contains("too large").then_some(()));
    assert_eq!(
        value(&world.etcd, "/cke/cketerm/schema").as_deref(),
        Some("2"),
        "the old migration record does not block the migration"
    );
    wait_for("commands that read only etcd name both", 30, || {
        let why = world.run(&["rq", "why", "0"]);
        (why.contains(SAID) && why.contains("too large")).then_some(())
    });
    let status = cketerm(&world.config(), &["status"]);
    assert!(
        status.code != 0 && status.stderr.contains(SAID) && status.stderr.contains("too large"),
        "{}",
        status.stderr
    );
    assert!(first.logged().contains("too large"), "{}", first.logged());
    assert!(world.cordoned().is_empty() && world.power().is_empty());

    world.run(&["policy", "set", "engine", "cke"]);
    wait_for("the engine releases the lock after the policy change", 60, || {
        leader::now(&world.etcd).is_none().then_some(())
    });
    world.run(&["policy", "set", "engine", "cketerm", "--for-handover"]);
    wait_for("the engine leads again", 60, || leader::now(&world.etcd));
    wait_for("the engine tries the migration again", 60, || {
        first.page("/readyz").1.contains("too large").then_some(())
    });
    let (status, _) = first.terminate();
    assert!(status.success(), "{status}");
    assert_eq!(leader::now(&world.etcd), None, "SIGTERM must release the lock");

    let second = daemon("second");
    wait_for("the second engine fails for the same reason", 60, || {
        second.page("/readyz").1.contains("too large").then_some(())
    });
    attempt(world, 3, 0);
    wait_for("the engine leads after the migration", 90, || (second.page("/readyz").1 == "leading\n").then_some(()));
    assert_eq!(value(&world.etcd, "/cke/cketerm/migration"), None);
    wait_for("the registration no longer names the obstacle", 30, || {
        let (lease, _) = leader::now(&world.etcd)?;
        let registered = value(&world.etcd, &format!("/cke/cketerm/engines/{lease:x}"))?;
        (!registered.contains("too large")).then_some(())
    });
    world.wait_for_empty_queue(120);
}

//! Six machines are rebooted although two leaders are killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use crate::world::{
    Options, World,
    cluster::{Machine, Power, machines},
    history::{Change, changes, put},
    in_both_worlds, wait_for,
};

in_both_worlds! {
    Options { kcm: true, kwok: true, audit: true, etcd34: false, scheduler: false };
    i01_i25_six_machines_reboot_once_each_although_two_leaders_are_killed,
    the_election_winner_leads_at_once_while_other_programs_write_to_etcd,
}

/// A winner waits only for its own key in its live copy. Other programs raise etcd's revision all the time, so a wait
/// for the latest revision would never end.
fn the_election_winner_leads_at_once_while_other_programs_write_to_etcd(world: &World) {
    world.set_up(&machines(1, 1), &json!({}));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                put(&world.etcd, "/other/lease", "renewed");
            }
        });
        let _end = StopOnDrop(&stop);
        let first = world.daemon("first");
        first.ready();
        let second = world.daemon("second");
        wait_for("the second engine is on standby", 30, || (second.page("/readyz").1 != "leading\n").then_some(()));
        first.terminate();
        second.ready();
        assert!(!second.logged().contains("resigning"), "{}", second.logged());
    });
}

/// Stops the other program when dropped, also after a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn i01_i25_six_machines_reboot_once_each_although_two_leaders_are_killed(world: &World) {
    let machines = machines(3, 3);
    world.add_nodes(&machines);
    for m in &machines {
        for i in 0..4 {
            let app = if i == 0 { "web" } else { "plain" };
            world.add_pod("default", &format!("{}-{app}-{i}", m.name), &m.name, app, None);
        }
    }
    let job = world.add_job("default", "nightly");
    world.add_pod("default", "nightly-1", "w2", "batch", Some(&job));
    world.wait_for_running_pods("default");
    world.add_budget("default", "web", "web", 0);
    // a cordon set by an administrator before the test
    world.ok("PATCH", "/api/v1/nodes/w3", Some(&json!({"spec": {"unschedulable": true}})));
    world.set_up(
        &machines,
        &json!({"max_concurrent_reboots": 2, "command_timeout_seconds": 30, "protected_job_pods": {"matchLabels": {"keep": "yes"}}}),
    );
    world.set_command_seconds(4);

    let before: Vec<String> = machines.iter().map(|m| world.boot_id(&m.name)).collect();
    // without kubelets pods stay Terminating, so the drain lasts until kwok is thawed
    world.act("freeze", "kwok");
    world.queue(&machines.iter().collect::<Vec<_>>());
    let first = world.daemon("first");
    first.ready();
    wait_for("two workers drain", 40, || {
        (world.entries().values().filter(|e| e["status"] == "draining").count() == 2).then_some(())
    });
    wait_for("an eviction was accepted", 20, || {
        let evicted =
            |e: &serde_json::Value| e["objectRef"]["subresource"] == "eviction" && e["responseStatus"]["code"] == 201;
        world.audit().iter().any(evicted).then_some(())
    });
    first.kill();
    let second = world.daemon("second");
    world.act("thaw", "kwok");
    // true while a command has begun and not ended
    let open = |world: &World| {
        let log = world.power();
        let ended = |p: &Power| log.iter().any(|q| q.what == "end" && q.address == p.address);
        log.iter().any(|p| p.what == "begin" && !ended(p))
    };
    wait_for("a reboot command runs", 60, || open(world).then_some(()));
    second.kill();
    let third = world.daemon("third");
    world.wait_for_empty_queue_with_operator(240);
    wait_for("only the administrator's cordon is left", 30, || (world.cordoned() == ["w3"]).then_some(()));
    let marks = world.node("w3")["metadata"]["annotations"].to_string();
    assert!(!marks.contains("cke.cybozu.com/reboot") && !marks.contains("cketerm.io/owner"), "{marks}");

    assert_rebooted_once_each(&world.power(), &machines);
    assert_concurrency_limit(&changes(&world.etcd, "/cke/reboots/data/"), &machines, 2);
    assert_cordoned_before_power(world, &machines);
    for (m, before) in machines.iter().zip(before) {
        assert_ne!(world.boot_id(&m.name), before, "{} must have booted", m.name);
    }
    let (status, took) = third.terminate();
    assert!(status.success() && took.as_secs() < 12, "SIGTERM: {status}, {took:?}");
}

/// Asserts by the machines' own log that each machine was powered once, under all leaders.
fn assert_rebooted_once_each(power: &[Power], machines: &[Machine]) {
    for m in machines {
        let of = |what: &str| power.iter().filter(|p| p.address == m.address && p.what == what).count();
        assert_eq!((of("begin"), of("end")), (1, 1), "{}: {power:?}", m.name);
    }
    let first_api_server = power.iter().position(|p| p.what == "begin" && p.address.starts_with("10.0.0.")).unwrap();
    let workers_end = power.iter().rposition(|p| !p.address.starts_with("10.0.0.")).unwrap();
    assert!(workers_end < first_api_server, "API servers must be rebooted last: {power:?}");
}

/// Asserts by etcd's revisions that at no revision too many machines are in progress. API servers go alone and last,
/// and every step of an entry is a permitted one.
fn assert_concurrency_limit(changes: &[Change], machines: &[Machine], limit: usize) {
    let api_server = |address: &str| machines.iter().any(|m| m.address == address && m.control_plane);
    let (mut status, mut left): (BTreeMap<String, (String, String)>, BTreeSet<String>) = Default::default();
    for change in changes {
        let before = status.remove(&change.key);
        if let Some(value) = &change.value {
            assert!(!left.contains(&change.key), "an ended entry was written again: {change:?}");
            let entry = change.json();
            let (address, now) =
                (entry["node"].as_str().unwrap().to_owned(), entry["status"].as_str().unwrap().to_owned());
            let was = before.as_ref().map_or("", |(_, s)| s.as_str());
            let step = matches!(
                (was, now.as_str()),
                ("", "queued")
                    | ("queued", "draining" | "queued")
                    | ("draining", "rebooting" | "queued")
                    | ("rebooting", "rebooting")
            );
            assert!(step, "forbidden status change {was} → {now}: {value}");
            status.insert(change.key.clone(), (address, now));
        } else {
            assert_eq!(before.map(|(_, s)| s).as_deref(), Some("rebooting"), "an entry may end only from rebooting");
            left.insert(change.key.clone());
        }
        let busy: Vec<&String> = status.values().filter(|(_, s)| s != "queued").map(|(a, _)| a).collect();
        let api_servers = busy.iter().filter(|a| api_server(a)).count();
        assert!(
            api_servers <= 1 && busy.len() <= limit,
            "too many machines in progress at revision {}: {busy:?}",
            change.revision
        );
        if api_servers == 1 {
            assert!(
                status.values().all(|(a, _)| api_server(a)),
                "revision {}: an API server is in progress before the last worker has ended",
                change.revision
            );
        }
    }
    assert!(status.is_empty() && left.len() == machines.len());
}

/// Asserts by the audit log that a patch cordons each Node before its power command (the administrator's was cordoned
/// before). No patch between `begin` and `end` uncordons it.
fn assert_cordoned_before_power(world: &World, machines: &[Machine]) {
    let audit = world.audit();
    let power = world.power();
    for m in machines {
        let patches: Vec<(f64, String)> = audit
            .iter()
            .filter(|e| e["user"]["username"] == "bench" && e["verb"] == "patch" && e["responseStatus"]["code"] == 200)
            .filter(|e| e["objectRef"]["resource"] == "nodes" && e["objectRef"]["name"] == m.name.as_str())
            .map(|e| {
                let at: jiff::Timestamp = e["requestReceivedTimestamp"].as_str().unwrap().parse().unwrap();
                (at.as_duration().as_secs_f64(), e["requestObject"].to_string())
            })
            .collect();
        let at = |what: &str| power.iter().find(|p| p.address == m.address && p.what == what).unwrap().at;
        let cordons =
            patches.iter().filter(|(t, body)| *t < at("begin") && body.contains("\"unschedulable\":true")).count();
        if m.name != "w3" {
            assert!(cordons >= 1, "{}: {patches:?}", m.name);
        }
        let uncordons =
            |body: &str| body.contains("\"unschedulable\":null") || body.contains("\"unschedulable\":false");
        let during = patches.iter().filter(|(t, body)| *t >= at("begin") && *t <= at("end") && uncordons(body)).count();
        assert_eq!(during, 0, "{}: uncordoned during its reboot: {patches:?}", m.name);
    }
}

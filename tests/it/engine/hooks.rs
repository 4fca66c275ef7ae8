//! Hooks of the site (policy `hooks`), on real servers: commands and requests at their four moments, tries, a leader
//! that is killed while one runs, and a hook that fails.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    notices::receiver::{Behaviour, Receiver},
    world::{Options, World, cluster::machines, history::value, wait_for},
};

/// Writes an executable script into the world's folder.
fn script(world: &World, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = world.dir().join(name);
    fs::write(&path, format!("#!/bin/sh\ncd {}\n{text}\n", world.dir().display())).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
    path
}

fn lines(world: &World, file: &str) -> Vec<String> {
    fs::read_to_string(world.dir().join(file)).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn set_hooks(world: &World, hooks: &Value) {
    world.run(&["policy", "set", "hooks", &hooks.to_string()]);
}

fn why(world: &World, index: &str) -> Value {
    serde_json::from_str(&world.run(&["rq", "why", index, "-o", "json"])).expect("JSON")
}

/// The moments of the requests so far.
fn moments(receiver: &Receiver) -> Vec<String> {
    receiver.received().iter().map(|body| body["at"].as_str().expect("a moment").to_owned()).collect()
}

#[test]
fn hooks_run_once_each_around_a_reboot_and_survive_their_leader() {
    let Some(world) = World::start(Options { kcm: false, kwok: true, audit: true, etcd34: false, scheduler: false })
    else {
        return;
    };
    let all = machines(1, 2);
    world.add_nodes(&all);
    world.add_pod("default", "web-0", "w1", "web", None);
    world.wait_for_running_pods("default");
    world.set_up(&all, &json!({}));
    // the first request fails, its second try succeeds
    let receiver = Receiver::start(|number, _| Behaviour::Status(if number == 0 { 503 } else { 200 }));
    let moved = script(&world, "moved", "echo \"$* $(cat)\" >> moved.log");
    let slow = script(&world, "healthy", "echo begun >> healthy.log\nwhile ! [ -e may-end ]; do sleep 0.1; done");
    set_hooks(
        &world,
        &json!([
            {"name": "silence", "at": "before_drain", "url": receiver.url, "retries": 1, "retry_interval_seconds": 1},
            {"name": "moved", "at": "after_drain", "command": [moved, "--fast"]},
            {"name": "not-here", "at": "after_drain", "command": [moved, "WRONG"], "selector": "disk=ssd"},
            {"name": "healthy", "at": "before_uncordon", "command": [slow], "timeout_seconds": 5},
            {"name": "unsilence", "at": "after_uncordon", "url": receiver.url},
        ]),
    );
    let first = world.daemon("first");
    first.ready();
    world.queue(&[&all[1]]);
    wait_for("the machine has booted, and the hook before the uncordon runs", 60, || {
        (lines(&world, "healthy.log").len() == 1).then_some(())
    });
    assert_eq!(moments(&receiver), ["before_drain", "before_drain"]);
    assert_eq!(receiver.received()[1]["try"], 2);
    let moved = lines(&world, "moved.log");
    assert_eq!(moved.len(), 1, "{moved:?}");
    let (words, document) = moved[0].split_once(" {").expect("words and a document");
    assert_eq!(words, format!("--fast {}", all[1].address));
    let document: Value = serde_json::from_str(&format!("{{{document}")).expect("JSON");
    assert_eq!((&document["entry"], &document["node"]), (&json!("reboots/0"), &json!("w1")));
    assert_eq!(world.cordoned(), ["w1"]);
    wait_for("the reason names the hook", 30, || {
        let text = why(&world, "0")["reason"].to_string();
        (text.contains("HookRunning") && text.contains("healthy")).then_some(())
    });

    // the hook of a killed leader runs again once it must have ended
    first.kill();
    let second = world.daemon("second");
    second.ready();
    wait_for("the second leader runs the hook again", 60, || (lines(&world, "healthy.log").len() >= 2).then_some(()));
    assert_eq!(world.cordoned(), ["w1"]);
    fs::write(world.dir().join("may-end"), "").expect("a file");
    world.wait_for_empty_queue(30);
    wait_for("the Node is uncordoned", 30, || world.cordoned().is_empty().then_some(()));
    wait_for("the last hook has run", 30, || (moments(&receiver).len() == 3).then_some(()));
    assert_eq!(moments(&receiver)[2], "after_uncordon");
    wait_for("the record is gone", 30, || value(&world.etcd, "/cke/cketerm/hooks/reboots/0").is_none().then_some(()));
    assert_eq!(world.power().iter().filter(|p| p.what == "begin").count(), 1);
    let history = world.run(&["rq", "why", "0", "-o", "json"]);
    for hook in ["silence", "moved", "healthy", "unsilence"] {
        assert!(history.contains(&format!("\"{hook}\"")), "the history has {hook}: {history}");
    }
    let audit = world.run(&["audit", "-o", "json"]);
    assert!(audit.contains("hook silence") && audit.contains("POST http://127.0.0.1"), "{audit}");
}

#[test]
fn a_failing_hook_stops_only_its_own_entry() {
    let Some(world) = World::start(Options { kcm: false, kwok: true, audit: true, etcd34: false, scheduler: false })
    else {
        return;
    };
    let all = machines(1, 2);
    world.add_nodes(&all);
    world.set_up(&all, &json!({"max_concurrent_reboots": 1}));
    let check = script(&world, "check", "test \"$1\" != TARGET || { echo 'no quorum' >&2; exit 3; }");
    let text = fs::read_to_string(&check).expect("a script").replace("TARGET", &all[1].address);
    fs::write(&check, text).expect("a script");
    set_hooks(&world, &json!([{"name": "quorum", "at": "before_drain", "command": [check]}]));
    let daemon = world.daemon("engine");
    daemon.ready();
    world.queue(&[&all[1], &all[2]]);
    wait_for("the other machine is rebooted", 60, || {
        world.power().iter().any(|p| p.what == "begin" && p.address == all[2].address).then_some(())
    });
    wait_for("the reason names the hook and its output", 30, || {
        why(&world, "0").to_string().contains("\"hook\":\"quorum\"").then_some(())
    });
    let text = world.run(&["rq", "why", "0"]);
    assert!(text.contains("hook quorum (before the drain) failed: exit 3: no quorum"), "{text}");
    assert!(world.power().iter().all(|p| p.address != all[1].address));
    wait_for("nothing is cordoned", 60, || world.cordoned().is_empty().then_some(()));
    wait_for("the record of the given-up drain ends", 30, || {
        value(&world.etcd, "/cke/cketerm/hooks/reboots/0").is_none().then_some(())
    });

    // a policy without the hook lets it go on
    world.run(&["policy", "set", "hooks", "none"]);
    world.run(&["rq", "reset-backoff", "0"]);
    world.wait_for_empty_queue(60);
    assert!(world.power().iter().any(|p| p.what == "begin" && p.address == all[1].address));
}

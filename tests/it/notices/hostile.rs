//! Receivers that are slow, down, answer 500 or close the connection, and leaders that die between a delivery and its
//! record. Each notice is delivered at least once, each time with the same id, and no receiver waits for another one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::{Value, json};

use super::receiver::{Behaviour, Receiver};
use crate::world::{
    Options, World,
    cluster::{Machine, machines},
    free_port,
    history::value,
    in_both_worlds,
    program::{Daemon, cketerm},
    wait_for,
};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    each_receiver_gets_each_notice_at_least_once_despite_its_faults,
    after_a_leaders_death_unrecorded_deliveries_are_repeated_with_the_same_id,
}

/// Writes a configuration of this world with these receivers.
fn config(world: &World, receivers: &Value) -> PathBuf {
    let text = std::fs::read_to_string(world.config()).expect("the configuration is readable");
    let path = world.dir().join("notices.yaml");
    std::fs::write(&path, format!("{text}notices: {receivers}\n")).expect("the configuration is written");
    path
}

/// One API server and workers. Entries end by a cancel, because the queue is disabled.
fn workers(world: &World, workers: usize) -> Vec<Machine> {
    let machines = machines(1, workers);
    world.add_nodes(&machines);
    world.set_up(&machines, &json!({}));
    world.run(&["rq", "disable"]);
    machines.into_iter().filter(|m| !m.control_plane).collect()
}

/// Queues and cancels an entry, which then ends.
fn end_entry(world: &World, machine: &Machine, index: usize) {
    world.queue(&[machine]);
    world.run(&["rq", "cancel", &index.to_string()]);
}

fn titles(receiver: &Receiver, kind: &str) -> Vec<String> {
    receiver.of(kind).iter().map(|n| n["title"].as_str().expect("a title").to_owned()).collect()
}

fn each_receiver_gets_each_notice_at_least_once_despite_its_faults(world: &World) {
    let machines = workers(world, 1);
    let port = free_port();
    let good = Receiver::start(|_, _| Behaviour::Status(200));
    let failing = Receiver::start(|n, _| Behaviour::Status(if n < 2 { 500 } else { 200 }));
    let closing = Receiver::start(|n, _| if n < 2 { Behaviour::Close } else { Behaviour::Status(200) });
    let slow =
        Receiver::start(|n, _| if n < 2 { Behaviour::Slow(Duration::from_secs(4)) } else { Behaviour::Status(204) });
    let receivers = json!([
        {"name": "good", "url": good.url},
        {"name": "angry", "url": failing.url, "kinds": ["finished"]},
        {"name": "rude", "url": closing.url, "kinds": ["finished"]},
        {"name": "slow", "url": slow.url, "kinds": ["finished"], "timeout": "1s"},
        {"name": "down", "url": format!("http://127.0.0.1:{port}/hook"), "kinds": ["finished"]},
        {"name": "program", "program": ["sh", "-c", "cat >> \"$0\"; echo >> \"$0\"; yes | head -c 1000000", world.dir().join("program")],
            "kinds": ["finished"], "template": "{\"title\": {{ title }}}"},
    ]);
    let config = config(world, &receivers);
    let daemon = Daemon::start(world.dir(), &config, "engine");
    wait_for("the good receiver gets the leader notice", 30, || (!good.of("leader").is_empty()).then_some(()));
    end_entry(world, &machines[0], 0);
    let title = format!("reboots/0 on {} ended: cancelled", machines[0].name);
    wait_for("the good receiver gets the finished notice", 20, || {
        (titles(&good, "finished") == [title.clone()]).then_some(())
    });
    // the server of the receiver `down` is not up yet
    wait_for("the log names a failed receiver", 20, || {
        daemon.logged().contains("cannot deliver notices").then_some(())
    });
    let list = || -> Vec<Value> {
        serde_json::from_str(&cketerm(&config, &["notices", "list", "-o", "json"]).stdout).expect("a list")
    };
    let of = |name: &str| list().into_iter().find(|r| r["name"] == name).unwrap_or_default();
    wait_for("`notices list` shows the pending notice", 20, || {
        (of("down")["pending"] == 1 && of("down")["why"].is_string()).then_some(())
    });
    let page = daemon.page("/metrics").1;
    assert!(page.contains("cketerm_notices_receiver_down{receiver=\"down\"} 1"), "{page}");
    assert!(page.contains("cketerm_notices_total{receiver=\"good\",outcome=\"delivered\"}"), "{page}");
    let down =
        Receiver::on(&TcpListener::bind(("127.0.0.1", port)).expect("the port is free"), |_, _| Behaviour::Status(200));
    for (name, receiver, tries) in
        [("angry", &failing, 3), ("rude", &closing, 3), ("slow", &slow, 3), ("down", &down, 1)]
    {
        wait_for(&format!("the receiver {name} gets the notice"), 40, || {
            (of(name)["pending"] == 0 && receiver.received().len() >= tries).then_some(())
        });
        let ids: BTreeSet<String> = receiver.received().iter().map(|n| n["id"].to_string()).collect();
        assert_eq!((ids.len(), titles(receiver, "finished").len() >= tries), (1, true), "{name}: {ids:?}");
    }
    let program = std::fs::read_to_string(world.dir().join("program")).expect("the program receiver ran");
    assert_eq!(program.trim(), format!("{{\"title\": \"{title}\"}}"));
    wait_for("the log names a recovered receiver", 10, || daemon.logged().contains("is back").then_some(()));
    // every receiver got the notice, and none gets it twice
    assert_eq!(good.of("finished").len(), 1);
}

fn after_a_leaders_death_unrecorded_deliveries_are_repeated_with_the_same_id(world: &World) {
    const ENTRIES: usize = 12;
    let machines = workers(world, 1);
    let (leader, killed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (pid, count) = (Arc::clone(&leader), Arc::clone(&killed));
    // at every third delivery the sender is killed before it can record the delivery
    let receiver = Receiver::start(move |n, _| {
        let pid = pid.load(SeqCst);
        if n % 3 == 2 && pid != 0 && count.load(SeqCst) < 4 {
            count.fetch_add(1, SeqCst);
            let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        Behaviour::Status(200)
    });
    let receivers = json!([{"name": "hook", "url": receiver.url, "per_minute": 600}]);
    let config = config(world, &receivers);
    let (mut daemon, mut started) = (Daemon::start(world.dir(), &config, "engine-0"), 0);
    leader.store(daemon.pid(), SeqCst);
    // a new receiver gets notices only from its registration on
    wait_for("the receiver gets the leader notice", 60, || (!receiver.of("leader").is_empty()).then_some(()));
    let mut ended = 0;
    let delivered = |receiver: &Receiver| -> BTreeSet<String> {
        titles(receiver, "finished").into_iter().filter_map(|t| Some(t.split_whitespace().next()?.to_owned())).collect()
    };
    wait_for("a notice of each ended entry is delivered", 180, || {
        if !daemon.alive() {
            started += 1;
            daemon = Daemon::start(world.dir(), &config, &format!("engine-{started}"));
            leader.store(daemon.pid(), SeqCst);
        }
        if ended < ENTRIES {
            end_entry(world, &machines[0], ended);
            ended += 1;
        }
        (ended == ENTRIES && delivered(&receiver).len() == ENTRIES).then_some(())
    });
    assert!(killed.load(SeqCst) >= 2, "at least two leaders must be killed");
    let mut by_id: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for notice in receiver.received() {
        by_id.entry(notice["id"].to_string()).or_default().push(notice);
    }
    assert!(by_id.values().any(|all| all.len() > 1), "an unrecorded delivery of a killed leader must be repeated");
    for (id, all) in &by_id {
        assert!(all.iter().all(|n| n == &all[0]), "{id} must be the same notice each time: {all:#?}");
    }
    // each end has exactly one id
    let ends: Vec<&Value> = by_id.values().map(|all| &all[0]).filter(|n| n["kind"] == "finished").collect();
    assert_eq!(ends.len(), ENTRIES, "{ends:#?}");
    let record: Value =
        serde_json::from_str(&value(&world.etcd, "/cke/cketerm/notices/hook").expect("a record")).expect("JSON");
    assert!(record["next"].as_u64().expect("a number") > 0);
}

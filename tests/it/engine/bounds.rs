//! Data that could grow too large for one transaction of etcd: an entry that was tried hundreds of times, and a change
//! of the definition while hundreds of entries wait (I49).

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use etcd_client::{Client, GetOptions};
use serde_json::{Value, json};

use crate::{
    stalls::Stopwatch,
    world::{
        Options, World,
        cluster::{Machine, machines},
        history::value,
        in_both_worlds, wait_for,
    },
};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    i49_an_entry_with_two_hundred_failed_attempts_ends_and_is_committed,
    i49_a_taint_is_applied_while_hundreds_of_entries_are_queued,
    an_engine_only_observes_a_newer_schema_and_reports_why,
}

/// Keys and values below a prefix.
fn below(world: &World, prefix: &str) -> Vec<(String, String)> {
    on_etcd(world, async |client: &mut Client| {
        let got = client.get(prefix, Some(GetOptions::new().with_prefix())).await.expect("a read");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        got.kvs().iter().map(|kv| (text(kv.key()), text(kv.value()))).collect()
    })
}

fn put_all(world: &World, all: &[(String, String)]) {
    on_etcd(world, async |client: &mut Client| {
        for (key, value) in all {
            client.put(key.as_str(), value.as_str(), None).await.expect("a write");
        }
    });
}

fn on_etcd<T>(world: &World, ask: impl AsyncFnOnce(&mut Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client = Client::connect([&world.etcd], None).await.expect("etcd is reachable");
        ask(&mut client).await
    })
}

/// The tries except the first are written as an engine writes them, with their output. Version 0.1 could commit no end
/// of more than about 120 tries.
fn i49_an_entry_with_two_hundred_failed_attempts_ends_and_is_committed(world: &World) {
    const ATTEMPTS: usize = 200;
    let all = machines(1, 1);
    world.add_nodes(&all);
    let works = world.dir().join("works");
    let mut command = vec![json!("bash"), json!("-c"), json!("test -e $0 || exit 1; exec \"$@\""), json!(works)];
    let plain = world.definition(&all, &json!({}))["reboot"]["reboot_command"].clone();
    command.extend(plain.as_array().cloned().unwrap());
    world.set_up(&all, &json!({"reboot_command": command, "command_retries": ATTEMPTS + 50, "command_interval": 1}));
    world.queue(&[&all[1]]);
    let daemon = world.daemon("first");
    daemon.ready();
    let attempts = || below(world, "/cke/cketerm/attempts/reboots/0/");
    let ended = |text: &str| !serde_json::from_str::<Value>(text).unwrap()["outcome"].is_null();
    world.wait_or_explain(0, "the command fails", 60, || attempts().iter().any(|(_, text)| ended(text)).then_some(()));
    daemon.terminate();

    let first = attempts().into_iter().find(|(_, text)| ended(text)).unwrap();
    let first: Value = serde_json::from_str(&first.1).unwrap();
    let written = (1..=ATTEMPTS).map(|number| {
        let mut attempt = first.clone();
        (attempt["number"], attempt["id"]) = (json!(number), json!(format!("reboots-0-{number}")));
        (attempt["outcome"]["stdout"], attempt["outcome"]["stderr"]) =
            (json!("x".repeat(4096)), json!("y".repeat(4096)));
        (format!("/cke/cketerm/attempts/reboots/0/{number}"), attempt.to_string())
    });
    put_all(world, &written.collect::<Vec<_>>());
    assert_eq!(attempts().len(), ATTEMPTS);
    std::fs::write(&works, "").unwrap();
    let daemon = world.daemon("second");
    daemon.ready();
    wait_for("the entry has ended", 90, || world.entries().is_empty().then_some(()));
    assert_eq!(attempts(), [], "the attempts are deleted with the entry");
    wait_for("the node is uncordoned", 30, || world.cordoned().is_empty().then_some(()));
    let ending: Value =
        serde_json::from_str(&value(&world.etcd, "/cke/cketerm/history/reboots-0000000000000000").unwrap()).unwrap();
    assert_eq!(ending["outcome"], "booted");
    let kept = ending["attempts"].as_array().unwrap();
    let numbers: Vec<u64> = kept.iter().filter_map(|a| a["number"].as_u64()).collect();
    let last = *numbers.last().unwrap();
    assert!(numbers[0] == 1 && last > 200 && kept.last().unwrap()["outcome"]["end"]["exit"] == 0, "{numbers:?}");
    assert_eq!(kept.len() as u64 + ending["omitted"].as_u64().unwrap(), last, "omitted attempts are counted");
    assert_eq!(
        world.power().iter().filter(|p| p.what == "begin").count(),
        1,
        "only the successful attempt powers the machine"
    );
}

/// A minimal sabakan: it returns its machines, and a test can change their states.
struct Sabakan {
    url: String,
    machines: Arc<Mutex<Value>>,
}

impl Sabakan {
    fn start(all: &[Machine]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/graphql", listener.local_addr().unwrap());
        let one = |(i, m): (usize, &Machine)| {
            json!({"spec": {"serial": m.name, "rack": i % 3, "indexInRack": i, "role": "cs", "ipv4": [m.address],
                "registerDate": "2026-01-01T00:00:00Z", "retireDate": "2036-01-01T00:00:00Z", "bmc": {"bmcType": "ipmi"}},
                "status": {"state": "HEALTHY", "timestamp": "2026-07-01T00:00:00Z", "duration": 9999.5}})
        };
        let machines = Arc::new(Mutex::new(Value::Array(all.iter().enumerate().map(one).collect())));
        let answers = Arc::clone(&machines);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
                // read until the body is complete
                while let Ok(n) = stream.read(&mut buffer) {
                    read.extend_from_slice(&buffer[..n]);
                    let text = String::from_utf8_lossy(&read).to_lowercase();
                    let length =
                        text.split("content-length: ").nth(1).and_then(|t| t.split("\r\n").next()?.parse().ok());
                    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                    if n == 0 || body.is_some_and(|body| body >= length.unwrap_or(0)) {
                        break;
                    }
                }
                let body = json!({"data": {"searchMachines": *answers.lock().unwrap()}}).to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
                let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
            }
        });
        Self { url, machines }
    }

    fn state(&self, serial: &str, state: &str) {
        let mut all = self.machines.lock().unwrap();
        let machine = all.as_array_mut().unwrap().iter_mut().find(|m| m["spec"]["serial"] == serial).unwrap();
        machine["status"]["state"] = json!(state);
    }
}

/// Two numbers of waiting entries. A transaction that compares every entry would be refused from 119 comparisons on.
fn i49_a_taint_is_applied_while_hundreds_of_entries_are_queued(world: &World) {
    let all = machines(1, 4);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    let definition = world.definition(&all, &json!({}));
    let labels = json!({"cke.cybozu.com/role": "cs"});
    let template = json!({"name": "test", "service_subnet": "10.0.0.0/24", "reboot": definition["reboot"], "nodes": [
        {"user": "root", "control_plane": true, "labels": labels}, {"user": "root", "labels": labels}]});
    let file = world.dir().join("template.json");
    std::fs::write(&file, template.to_string()).unwrap();
    world.run(&["sabakan", "set-template", &file.display().to_string()]);
    let sabakan = Sabakan::start(&all);
    world.run(&["sabakan", "set-url", &sabakan.url]);
    for (name, value) in [("minimum-workers", "3"), ("maximum-workers", "4")] {
        world.run(&["constraints", "set", name, value]);
    }
    for (name, value) in [("approval", "never"), ("sabakan_poll_seconds", "1")] {
        world.run(&["policy", "set", name, value]);
    }
    world.run(&["rq", "disable"]);
    world.run(&["sabakan", "enable"]);
    let daemon = world.daemon("engine");
    daemon.ready();
    let cluster = || serde_json::from_str::<Value>(&value(&world.etcd, "/cke/cluster").unwrap()).unwrap();
    let member = |address: &str| {
        let nodes = cluster()["nodes"].as_array().cloned().unwrap();
        nodes.into_iter().find(|n| n["address"] == address)
    };
    let registry = || world.run(&["state", "-o", "json"]);
    let mut last = String::new();
    let mut applied = |what: &str, good: &dyn Fn() -> bool| {
        let began = Stopwatch::start();
        while !good() {
            assert!(began.elapsed().as_secs() < 90, "timed out: {what}; {last}\n{}", daemon.logged());
            last = registry();
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
    };
    let role = |node: &Value| node["labels"]["cke.cybozu.com/role"] == "cs";
    let labelled = || all.iter().all(|m| member(&m.address).as_ref().is_some_and(role));
    applied("the definition is generated", &labelled);

    // entries as ckecli writes them, for two machines
    let mut index = 0_u64;
    for (machine, entries) in [(&all[1], 300), (&all[2], 500)] {
        let mut keys = Vec::new();
        for _ in 0..entries - index {
            let entry = json!({"index": index.to_string(), "node": machine.address, "status": "queued",
                "last_transition_time": "0001-01-01T00:00:00Z", "drain_backoff_expire": "0001-01-01T00:00:00Z"});
            keys.push((format!("/cke/reboots/data/{index:016x}"), entry.to_string()));
            index += 1;
        }
        keys.push(("/cke/reboots/write-index".to_owned(), index.to_string()));
        put_all(world, &keys);
        assert_eq!(world.entries().len() as u64, index);
        sabakan.state(&machine.name, "UNHEALTHY");
        let tainted = || {
            let found = member(&machine.address).map(|n| n["taints"].to_string()).unwrap_or_default();
            found.contains("unhealthy")
        };
        applied("the unhealthy machine is tainted", &tainted);
        sabakan.state(&machine.name, "HEALTHY");
        applied("the taint is removed from the healthy machine", &|| !tainted());
    }
    assert_eq!(world.entries().len(), 500, "no other entry may change");
}

/// An older version observes only: 0.1 beside this version, and this one beside the next.
fn an_engine_only_observes_a_newer_schema_and_reports_why(world: &World) {
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    let schema: u32 = value(&world.etcd, "/cke/cketerm/schema").unwrap().parse().unwrap();
    put_all(world, &[("/cke/cketerm/schema".to_owned(), (schema + 1).to_string())]);
    world.queue(&[&all[1]]);
    let daemon = world.daemon("engine");
    let page = daemon.ready();
    let why = format!("cketerm/schema is {}, newer than {schema}", schema + 1);
    wait_for("/readyz names the newer schema", 20, || daemon.page("/readyz").1.contains(&why).then_some(()));
    assert!(page.contains("observing"), "{page}");
    let refused = crate::world::program::cketerm(&world.config(), &["policy", "set", "settle_seconds", "7"]);
    assert!(refused.code != 0 && refused.stderr.contains("newer"), "{refused:?}");
    assert!(world.cordoned().is_empty() && world.power().is_empty());
    assert_eq!(world.entries()[&0]["status"], "queued");
    let led = crate::world::history::changes(&world.etcd, "/cke/leader/");
    assert_eq!(led, [], "no engine may campaign");
    assert_eq!(
        value(&world.etcd, "/cke/cketerm/schema"),
        Some((schema + 1).to_string()),
        "the schema number must not be lowered"
    );
}

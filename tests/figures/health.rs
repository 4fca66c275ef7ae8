//! 1,000 unfinished repairs with health checks of 100 ms each. Measures the time of a full round at concurrency 32, and
//! the time that a new reboot entry waits for its start meanwhile. An engine runs on a sandbox inside this process. A
//! timer answers the checks, so the engine is measured and not this machine's speed at creating processes.
//!
//! `cargo bench --bench health` prints one JSON line: milliseconds. `-- PROGRAM` runs the checks as processes by that
//! `cketerm` (`sh -c 'sleep 0.1; echo false'`) instead.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use cketerm_clients::store::live::Live;
use cketerm_engine::command::{CommandLine, Commands, Spawner};
use cketerm_model::{
    attempt::Ended,
    cketerm_records::{EngineMode, Request, Who},
    clock::Clock,
    entry::EntryId,
    fence::Person,
    names::Address,
    reboot::RebootStatus,
    repair::RepairEntry,
};
use cketerm_scenario::{Options, Scenario, Stage};
use futures::future::BoxFuture;
use serde_json::json;

const REPAIRS: u64 = 1000;
const REBOOTS: usize = 20;

/// Times at which each machine's health was checked.
#[derive(Clone, Default)]
struct Log {
    ended: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
    running: Arc<AtomicUsize>,
    max_running: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct Checks {
    log: Log,
    host: Option<Spawner>,
}

impl Commands for Checks {
    fn has(&self, _: &str) -> bool {
        true
    }

    fn run(&self, line: CommandLine) -> BoxFuture<'static, (Ended, String, String)> {
        let checks = self.clone();
        Box::pin(async move {
            if line.argv.first().map(String::as_str) != Some("health") {
                // reboot commands and boot checks are not measured
                return (Ended::Exit(0), "true\n".to_owned(), String::new());
            }
            let now = checks.log.running.fetch_add(1, Ordering::SeqCst) + 1;
            checks.log.max_running.fetch_max(now, Ordering::SeqCst);
            let answer = if let Some(host) = &checks.host {
                let argv = ["sh", "-c", "sleep 0.1; echo false"].map(str::to_owned).to_vec();
                host.run(&CommandLine { argv, ..line.clone() }).await
            } else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                (Ended::Exit(0), "false\n".to_owned(), String::new())
            };
            checks.log.running.fetch_sub(1, Ordering::SeqCst);
            let address = line.argv.last().cloned().unwrap_or_default();
            checks.log.ended.lock().unwrap().entry(address).or_default().push(Instant::now());
            answer
        })
    }
}

fn scenario() -> Scenario {
    let text = json!({"name": "health", "about": "Many repairs.", "population": {"nodes": 100, "pods_per_node": 0},
        "reboot": {"max_concurrent_reboots": REBOOTS}, "repair": {"repair_procedures": [{"machine_types": ["t"], "repair_operations": [
            {"operation": "o", "health_check_command": ["health"], "repair_steps": [{"repair_command": ["repair"]}]}]}]}});
    serde_yaml::from_str(&text.to_string()).unwrap()
}

fn address(index: u64) -> String {
    format!("10.200.{}.{}", index / 250, index % 250 + 1)
}

#[tokio::main]
async fn main() {
    let program = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let host = program.map(|p| Spawner::new(p.into(), None, &[]));
    let log = Log::default();
    let stage = Stage::set(scenario(), Options::default(), Clock::host()).await.unwrap();
    let mut backends = stage.backends("figure");
    backends.spawner = Spawner::elsewhere(Checks { log: log.clone(), host });
    let store = backends.store.clone();
    let who = Who { user: "figure".to_owned(), ..Who::default() };
    let request = Request { who: who.clone(), at: Clock::host().wall(), reason: None, node_uid: None, batch: None };
    // the queue is disabled: the entries stay unfinished, and their health is still checked
    store.set_switch(cketerm_model::stored::keys::SwitchName::Repairs, false, &Person::asks(&who), None).await.unwrap();
    for index in 0..REPAIRS {
        store
            .add_repair(
                &Person::asks(&request.who),
                &RepairEntry::queued(index, &Address::new(address(index)), "t", "o", None),
                &request,
            )
            .await
            .unwrap();
    }
    let live = Live::follow(&store);
    let began = Instant::now();
    let engine = backends.start(EngineMode::Daemon, true, None);
    let machines_checked =
        |times: usize| log.ended.lock().unwrap().values().filter(|t| t.len() >= times).count() as u64;
    while machines_checked(1) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // the first check took its 100 ms
    let first = Instant::now().checked_sub(Duration::from_millis(100)).unwrap_or(began);
    while machines_checked(1) < REPAIRS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let round = first.elapsed();

    // rounds continue, and reboots that are added now and then still start
    let workers: Vec<Address> = {
        let view = live.borrow();
        let definition = view.definition().unwrap();
        let workers = definition.cluster.nodes.iter().filter(|n| !n.control_plane);
        workers.map(|n| n.address.clone()).take(REBOOTS).collect()
    };
    let mut starts = Vec::new();
    let mut watch = live.subscribe();
    for worker in workers {
        // only while checks are in progress: between two rounds a start would be easy
        while log.running.load(Ordering::SeqCst) < 20 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        tokio::time::sleep(Duration::from_millis(37)).await;
        let added = Instant::now();
        let added_entries = store.add_reboots(&Person::asks(&request.who), &[worker], &request, &BTreeMap::new()).await;
        let indexes = added_entries.unwrap().indexes;
        let started = |view: &Arc<cketerm_model::stored::view::StoreView>| {
            let entry = view.reboots.entries.get(&indexes[0]).and_then(|s| s.get());
            entry.is_some_and(|e| e.status != RebootStatus::Queued)
        };
        if std::env::var_os("CKETERM_WHY").is_some() {
            // reasons for which the entry waited
            let (mut seen, index, mut last_reason) = (engine.seen(), indexes[0], None);
            let start_seen = watch.wait_for(started);
            tokio::pin!(start_seen);
            loop {
                tokio::select! {
                    _ = &mut start_seen => break,
                    _ = seen.changed() => {
                        let now = seen.borrow().reasons.get(&EntryId::reboot(index)).map(|r| format!("{r:?}"));
                        if now != last_reason {
                            eprintln!("{index}: {} ms: {now:?}", added.elapsed().as_millis());
                            last_reason = now;
                        }
                    }
                }
            }
        } else if tokio::time::timeout(Duration::from_secs(20), watch.wait_for(started)).await.is_err() {
            let seen = engine.seen().borrow().clone();
            panic!("entry {} does not start: {:?}", indexes[0], seen.reasons.get(&EntryId::reboot(indexes[0])));
        }
        starts.push(added.elapsed().as_millis());
    }
    starts.sort_unstable();
    let max_running = log.max_running.load(Ordering::SeqCst);
    println!(
        "{{\"figure\": \"health\", \"repairs\": {REPAIRS}, \"at_once\": {max_running}, \"round_ms\": {}, \"reboot_starts_ms\": {{\"median\": {}, \"max\": {}}}}}",
        round.as_millis(),
        starts[starts.len() / 2],
        starts[starts.len() - 1]
    );
    engine.stop().await;
    assert!(max_running <= 32, "{max_running} checks at once");
}

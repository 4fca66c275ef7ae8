//! Maintenance nights across a change of the clocks, on the sandbox with a paused clock: two engines, windows of ten
//! minutes within some hours of a named time zone, one rack at a time, a freeze, and a stuck rack. There are no other
//! faults, so every observer judges the whole record.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_model::reboot::RebootStatus;
use cketerm_sandbox::machines::{Behaviour, OnBoot};
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    engine_reports::sample,
    engines::{Engines, Slot},
    gather,
    observers::{self, View, record::Breach},
    people::{Person, addressed},
    runtime,
    selection::Selection,
    settle::settle,
};

const SITE: &str = r#"
name: nights
about: Eight machines in two racks, and windows of ten minutes.
population: {nodes: 8, pods_per_node: 4}
pace: {boot: {seconds: 60, jitter: 60}, command: {seconds: 1, jitter: 3}, check: {seconds: 0.1, jitter: 0.5},
  kubelet_start: {seconds: 1, jitter: 3}, node_ready: {seconds: 1, jitter: 5}, api_settle: 5, node_monitor_grace: 10,
  pod_start: {seconds: 1, jitter: 4}, pod_stop: {seconds: 30, jitter: 60}, lag: 0.1, budget_lag: 0.3}
racks: 2
reboot: {eviction_timeout_seconds: 300, command_timeout_seconds: 15, command_interval: 3, command_retries: 1, max_concurrent_reboots: 3}
policy:
  stuck_seconds: 900
  groups: {by: rack}
  windows:
    time_zone: Europe/Berlin
    allow: ["0-9,20-29,40-49 1-4 * * *"]
    deny: ["20-29 3 * * *"]
    margin_seconds: 0
"#;

/// The two clock changes of 2026: a time one hour before each, and the hours within which all machines must be done.
/// The night in spring is an hour shorter, and the machines that the stuck rack held back follow in the next night.
pub const CLOCK_CHANGES: [(&str, u64); 2] = [("2026-03-29T00:00:00Z", 26), ("2026-10-24T23:00:00Z", 6)];

/// Result of one night.
pub struct ClockChangeResult {
    pub breaches: Vec<Breach>,
    pub starts: usize,
    pub unwound: usize,
    pub virtual_minutes: f64,
}

/// Plays one night.
pub fn clock_change(began: &str, hours: u64) -> ClockChangeResult {
    runtime::seeded(hours).block_on(run_scenario(began.parse().unwrap(), hours))
}

async fn run_scenario(wall: jiff::Timestamp, hours: u64) -> ClockChangeResult {
    let (began, clock) = (Instant::now(), cketerm_runtime::tokio_clock::starting_at(wall));
    let mut options = Options { seed: 7, ..Options::default() };
    options.api.audit = usize::MAX;
    let stage = Stage::set(Scenario::parse(SITE).unwrap(), options, clock.clone()).await.unwrap();
    stage.sandbox.objects.keep_everything();
    stage.sandbox.etcd.record_txns();
    let stage = Arc::new(stage);
    let engines: Engines = Arc::default();
    let mut rng = Rng::with_seed(7);
    for i in 0..2 {
        let slot = Slot::new(&format!("engine-{i}"), &clock, 10, &mut rng);
        engines.lock().unwrap().push(slot);
        Slot::start(&engines, i, &stage).await;
    }
    let reports = Arc::default();
    let sampler = tokio::spawn(sample(Arc::clone(&engines), Arc::clone(&reports), clock.clone()));
    let machines = stage.sandbox.machines.list();
    let addresses: Vec<String> = machines.iter().map(|m| m.address.clone()).collect();
    let operator = stage.operator("alice");
    let acknowledged = Arc::<Mutex<Vec<_>>>::default();
    let alice = Person {
        name: "alice".to_owned(),
        operator: operator.clone(),
        rng: rng.fork(),
        acknowledged: Arc::clone(&acknowledged),
        addresses: addresses.clone(),
        clock: clock.clone(),
        selection: Selection::all(),
        act: String::new(),
    };
    // every machine, several times, before the first window opens
    let queue = async |all: &[String]| operator.add_reboots(&addressed(all), Some("a night")).await.map(drop).unwrap();
    queue(&addresses).await;
    let minutes = |n: u64| began + Duration::from_mins(n);
    let stuck_address = machines.iter().find(|m| !m.control_plane).map(|m| m.address.clone()).unwrap();
    stage.sandbox.machines.behave(&stuck_address, Behaviour { boot: OnBoot::Never, ..Behaviour::default() });
    sleep_until(minutes(63)).await;
    // in the middle of a window
    let until = clock.wall() + jiff::SignedDuration::from_mins(23);
    operator.freeze(until, "network maintenance").await.unwrap();
    sleep_until(minutes(120)).await;
    queue(&addresses).await;
    sleep_until(minutes(150)).await;
    stage.sandbox.machines.behave(&stuck_address, Behaviour::default());
    let all = settle(&alice, &engines, &stage);
    let queue_emptied = tokio::time::timeout(Duration::from_hours(hours), all).await.is_ok();
    sleep(Duration::from_mins(2)).await;
    sampler.abort();
    let mut record = gather::record(&stage.sandbox);
    record.reports = std::mem::take(&mut *Mutex::lock(&reports).unwrap());
    record.acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    record.calm_since = Some(wall);
    record.ttl_seconds = 10;
    let view = View::of(&record);
    let entry_changes = view.entry_changes();
    let status = |l| observers::status_of(l);
    let unwound = entry_changes.iter().filter(|m| {
        m.engine
            && status(m.before) == Some(RebootStatus::Draining)
            && matches!(m.after, Some(Ok(e)) if e.status == RebootStatus::Queued && e.drain_backoff_count == 0)
    });
    let (starts, unwound) = (entry_changes.iter().filter(|m| m.starts()).count(), unwound.count());
    let mut breaches = observers::observe(&record);
    if !queue_emptied {
        breaches.push(Breach { code: "I33", at: record.end, what: "the queue is not empty".to_owned() });
    }
    ClockChangeResult { breaches, starts, unwound, virtual_minutes: began.elapsed().as_secs_f64() / 60.0 }
}

/// Plays both nights, prints their results, and reports whether all went well.
pub fn run_all() -> bool {
    let mut ok = true;
    for (began, hours) in CLOCK_CHANGES {
        let clock = std::time::Instant::now();
        let clock_change = clock_change(began, hours);
        println!(
            "night      {began}: {} drains started, {} unwound, {:.0} virtual minutes in {:.1} s",
            clock_change.starts,
            clock_change.unwound,
            clock_change.virtual_minutes,
            clock.elapsed().as_secs_f64()
        );
        for breach in clock_change.breaches.iter().take(20) {
            println!("  {} at {}: {}", breach.code, breach.at, breach.what);
        }
        // a night without an unwound drain would not test unwinding
        ok &= clock_change.breaches.is_empty() && clock_change.starts >= 16 && clock_change.unwound > 0;
    }
    ok
}

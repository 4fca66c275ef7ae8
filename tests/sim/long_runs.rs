//! Long runs and long queues, on the sandbox with a paused clock. In a long day, one machine's command fails more than
//! a hundred times while people go on working. In another run the definition changes while five hundred entries wait.
//! There are no other faults: the runs look for anything that grows with the number of tries or of entries (I48, I49).

use std::{sync::Arc, time::Duration};

use cketerm_actions::Operator;
use cketerm_model::{
    cketerm_records::{Audit, Ending},
    entry::Stored,
    names::Address,
    stored::keys::SwitchName,
};
use cketerm_sandbox::{machines::Behaviour, sabakan::State};
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;
use tokio::time::sleep;

use crate::{
    engines::{Engines, Slot},
    enqueues, gather,
    observers::{self, record::Breach},
    outages,
    people::addressed,
    runtime,
};

const DAYS_SITE: &str = r"
name: days
about: Five machines, one of which does not take its command for a day.
population: {nodes: 5, pods_per_node: 0, workloads: []}
pace: {boot: {seconds: 60, jitter: 60}, command: {seconds: 1, jitter: 3}, check: {seconds: 0.1, jitter: 0.5},
  kubelet_start: {seconds: 1, jitter: 3}, node_ready: {seconds: 1, jitter: 5}, api_settle: 5, node_monitor_grace: 10,
  pod_start: {seconds: 1, jitter: 4}, pod_stop: {seconds: 5, jitter: 5}, lag: 0.1, budget_lag: 0.3}
reboot: {eviction_timeout_seconds: 300, command_timeout_seconds: 15, command_interval: 600, command_retries: 320, max_concurrent_reboots: 1}
";

const LARGE_QUEUE_SITE: &str = r"
name: crowd
about: Forty machines, five hundred entries that wait, and a machine that sabakan calls unhealthy.
population: {nodes: 40, racks: 4, pods_per_node: 0, workloads: [], registry: {enabled: true, repairs: 0, minimum_workers: 30}}
";

/// Number of times that the machine refuses: more than etcd's limit of 128 operations in a transaction. With the
/// interval between them, they take a day and an hour.
const REFUSALS: u32 = 150;
/// Length of the run in hours: the machine takes its command before the end.
const HOURS: u64 = 28;
/// Observers that need only etcd's requests and contents: days of Kubernetes objects are not recorded.
const JUDGED_CODES: [&str; 6] = ["I23", "I25", "I28", "I38", "I48", "I49"];

/// Result of a scenario.
pub struct ScenarioResult {
    pub breaches: Vec<Breach>,
    /// Defects beside the observers' breaches.
    pub wrong: Vec<String>,
    pub summary: String,
}

/// Returns the runtime of a fixed scenario.
pub fn scenario_runtime() -> tokio::runtime::Runtime {
    runtime::seeded(11)
}

/// Sets up a stage with this many engines, whose API server keeps its last requests: at most so many.
pub async fn set(
    site: &str,
    engines: usize,
    hosts_keep_results: bool,
    kept_requests: usize,
) -> (Arc<Stage>, Engines, Operator) {
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-06-01T00:00:00Z".parse().unwrap());
    let mut options = Options { seed: 11, ..Options::default() };
    options.api.audit = kept_requests;
    let stage = Arc::new(Stage::set(Scenario::parse(site).unwrap(), options, clock.clone()).await.unwrap());
    stage.sandbox.etcd.record_txns();
    let all: Engines = Arc::default();
    let mut rng = Rng::with_seed(11);
    for i in 0..engines {
        let slot = Slot::new(&format!("engine-{i}"), &clock, 10, &mut rng).with_disk(hosts_keep_results);
        all.lock().unwrap().push(slot);
        Slot::start(&all, i, &stage).await;
    }
    let operator = stage.operator("alice");
    (stage, all, operator)
}

fn judge(stage: &Stage) -> Vec<Breach> {
    let mut record = gather::record(&stage.sandbox);
    (record.objects, record.api_requests) = (Vec::new(), Vec::new());
    record.ttl_seconds = 10;
    observers::observe(&record).into_iter().filter(|b| JUDGED_CODES.contains(&b.code)).collect()
}

/// Days of tries, and an action of a person every hour.
pub fn days() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let (stage, _engines, operator) = set(DAYS_SITE, 2, false, 0).await;
        let worker = stage.sandbox.machines.list().into_iter().find(|m| !m.control_plane).unwrap().address;
        stage.sandbox.machines.behave(&worker, Behaviour { fails: REFUSALS, exit_code: 7, ..Behaviour::default() });
        operator.add_reboots(&[Address::new(worker)], Some("a long repair")).await.unwrap();
        let (mut actions_done, mut hours) = (1, 0);
        while hours < HOURS {
            sleep(Duration::from_hours(1)).await;
            hours += 1;
            let on = actions_done % 2 == 0;
            operator.set_switch(SwitchName::AutoRepair, on, Some(&format!("act {actions_done}"))).await.unwrap();
            actions_done += 1;
        }
        let (store, mut wrong) = (&operator.store, Vec::new());
        let audit = store.newest::<Audit>(&store.keys().audit_prefix(), 100_000).await.unwrap();
        let all = || audit.iter().filter_map(Stored::get);
        let (people, engine) =
            (all().filter(|a| a.who.user == "alice").count(), all().filter(|a| a.by_engine()).count());
        let most = all().map(Audit::count).max().unwrap_or(0);
        if people != actions_done {
            wrong.push(format!("{actions_done} actions of a person, but {people} audit records of them remain"));
        }
        if engine > 60 || most < REFUSALS {
            wrong.push(format!("{engine} audit records of engines, one of which counts {most} tries"));
            let last: Vec<_> = all().filter(|a| a.by_engine()).take(6).collect();
            wrong.push(format!("the newest of them: {last:?}"));
        }
        let view = store.read_view().await.unwrap();
        if !view.reboots.entries.is_empty() || !view.attempts.is_empty() {
            wrong.push(format!("{} entries and {} attempts remain", view.reboots.entries.len(), view.attempts.len()));
        }
        let endings = store.newest::<Ending>(&store.keys().history_prefix(), 10).await.unwrap();
        let ending = endings.iter().find_map(Stored::get);
        let kept = ending.map_or(0, |e| e.attempts.len() + usize::try_from(e.omitted).unwrap());
        if kept != usize::try_from(REFUSALS).unwrap() + 1 || ending.is_none_or(|e| e.attempts.len() > 32) {
            wrong.push(format!("its history record has {kept} attempts"));
        }
        let summary = format!("{hours} hours, {most} tries, {engine} records of engines, {people} of people");
        ScenarioResult { breaches: judge(&stage), wrong, summary }
    })
}

/// Five hundred entries that wait.
pub fn large_queue() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let (stage, engines, operator) = set(LARGE_QUEUE_SITE, 1, false, 0).await;
        let mut wrong = Vec::new();
        operator.set_switch(SwitchName::Reboots, false, None).await.unwrap();
        let machines = stage.sandbox.machines.list();
        let api_server = machines.iter().find(|m| m.control_plane).unwrap().address.clone();
        let unhealthy = machines.iter().rfind(|m| !m.control_plane).unwrap().address.clone();
        let serial = stage.sandbox.sabakan.by_address(&unhealthy).unwrap().serial;
        let addresses: Vec<String> =
            (0..500).map(|i| if i % 5 == 0 { api_server.clone() } else { unhealthy.clone() }).collect();
        operator.add_reboots(&addressed(&addresses), Some("a crowd")).await.unwrap();
        sleep(Duration::from_mins(5)).await;
        for state in [State::Unhealthy, State::Healthy] {
            stage.sandbox.sabakan.set_state(&serial, state).unwrap();
            let tainted = || {
                let slots = engines.lock().unwrap();
                let seen = slots[0].handle.as_ref().unwrap().seen().borrow().clone();
                let definition = seen.snapshot.store.definition().cloned().unwrap_or_default();
                let found = definition.cluster.nodes.iter().any(|n| {
                    n.address == unhealthy.as_str() && serde_json::to_string(n).unwrap().contains("unhealthy")
                });
                (found == (state == State::Unhealthy), seen.applying.clone())
            };
            let waits = async {
                while !tainted().0 {
                    sleep(Duration::from_secs(5)).await;
                }
            };
            if tokio::time::timeout(Duration::from_mins(30), waits).await.is_err() {
                wrong.push(format!("{state:?} is not applied: {:?}", tainted().1));
            }
        }
        let left = operator.store.read_view().await.unwrap().reboots.entries.len();
        if left != 500 {
            wrong.push(format!("{left} entries remain"));
        }
        ScenarioResult {
            breaches: judge(&stage),
            wrong,
            summary: "500 entries wait while two changes are applied".to_owned(),
        }
    })
}

/// Plays all of them, prints their results, and reports whether all went well.
pub fn run_all() -> bool {
    let mut ok = true;
    let all = [
        ("days", days as fn() -> ScenarioResult),
        ("crowd", large_queue),
        ("silence", outages::api_server_outage),
        ("blind", outages::silent_node_watch),
        ("grace", outages::long_grace_period),
        ("budget", outages::shared_budget),
        ("closed-budget", outages::closed_budget),
        ("descriptions", outages::many_descriptions),
        ("health-check", outages::hanging_health_check),
        ("failover", outages::failover),
        ("enqueues", enqueues::cancelled),
    ];
    for (name, scenario) in all {
        let clock = std::time::Instant::now();
        let result = scenario();
        println!("{name:10} {} in {:.1} s", result.summary, clock.elapsed().as_secs_f64());
        for breach in result.breaches.iter().take(20) {
            println!("  {} at {}: {}", breach.code, breach.at, breach.what);
        }
        for wrong in &result.wrong {
            println!("  {wrong}");
        }
        ok &= result.breaches.is_empty() && result.wrong.is_empty();
    }
    ok
}

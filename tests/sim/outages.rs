//! Short scenarios of what seeds meet too rarely. Nothing can be read for minutes, one connection is silent while machines
//! fail, pods take minutes to end or share a budget, or a leader dies while commands run.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_actions::NewRepair;
use cketerm_model::{names::Address, repair::RepairEntry, stored::keys::SwitchName};
use cketerm_rules::snapshot::NodeUpkeep;
use cketerm_sandbox::{
    faults::{FaultTarget, RequestFault, State},
    kubernetes::resource::{BUDGETS, DEPLOYMENTS, NODES},
    machines::{Behaviour, OnCheck, PowerEvent},
};
use cketerm_scenario::Stage;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    engine_reports::sample,
    engines::{Engines, Slot},
    gather,
    long_runs::{ScenarioResult, scenario_runtime, set},
    observers::{
        self,
        record::{Breach, EngineReport},
    },
    people::addressed,
};

const SITE: &str = r"
name: outages
about: Nine machines, two engines, and one fault.
population: {nodes: 9, pods_per_node: 0, workloads: []}
pace: {boot: {seconds: 60, jitter: 60}, command: {seconds: 20, jitter: 50}, check: {seconds: 0.1, jitter: 0.5},
  kubelet_start: {seconds: 1, jitter: 3}, node_ready: {seconds: 1, jitter: 5}, api_settle: 5, node_monitor_grace: 10,
  pod_start: {seconds: 1, jitter: 4}, pod_stop: {seconds: 5, jitter: 5}, lag: 0.1, budget_lag: 0.3}
reboot: {eviction_timeout_seconds: 300, command_timeout_seconds: 90, max_concurrent_reboots: 2}
policy: {etcd_members: none}
";

/// Repairs whose first step is watched for a minute.
const REPAIRS: &str = r"
repair:
  repair_procedures:
  - machine_types: [sim]
    repair_operations:
    - operation: restart
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      repair_steps:
      - {repair_command: [sandbox-machine, repair], command_timeout_seconds: 90, watch_seconds: 60}
      - {repair_command: [sandbox-machine, repair], command_timeout_seconds: 90, watch_seconds: 60}
";

/// Label of a machine's role, which the definition has.
const ROLE: &str = "cke.cybozu.com/role";

const DESCRIPTIONS_SITE: &str = r"
name: descriptions
about: Sixty machines whose Nodes have no labels yet.
population: {nodes: 60, racks: 4, pods_per_node: 0, workloads: [], registry: {enabled: false, repairs: 0, minimum_workers: 40}}
";

/// Time after the end of the fault within which everything must be done.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(30);

/// A stage, and the reports of its engines.
struct OutageRun {
    stage: Arc<Stage>,
    engines: Engines,
    reports: Arc<Mutex<Vec<EngineReport>>>,
    workers: Vec<String>,
}

impl OutageRun {
    /// Creates 24 pods of a Deployment in `db`.
    fn create_pods(&self, name: &str) {
        let labels = json!({"app": name});
        let pod =
            json!({"containers": [{"name": name, "image": "registry.example/app:1.0"}], "restartPolicy": "Always"});
        let spec = json!({"replicas": 24, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod}});
        let deployment = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        self.stage.sandbox.objects.create(&DEPLOYMENTS, "db", deployment).map_err(|e| e.message).unwrap();
    }

    /// Creates the budget of these pods.
    fn create_budget(&self, name: &str, max_unavailable: u32) {
        let budget = json!({"metadata": {"name": name},
            "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": name}}}});
        self.stage.sandbox.objects.create(&BUDGETS, "db", budget).map_err(|e| e.message).unwrap();
    }

    async fn begin(site: &str, engines: usize) -> Self {
        let (stage, engines, operator) = set(site, engines, true, usize::MAX).await;
        stage.sandbox.objects.keep_everything();
        let reports: Arc<Mutex<Vec<EngineReport>>> = Arc::default();
        tokio::spawn(sample(Arc::clone(&engines), Arc::clone(&reports), stage.sandbox.objects.clock().clone()));
        let machines = stage.sandbox.machines.list();
        let workers = machines.into_iter().filter(|m| !m.control_plane).map(|m| m.address).collect();
        drop(operator);
        sleep(Duration::from_mins(2)).await;
        Self { stage, engines, reports, workers }
    }

    /// Applies a change to the connections of all engines to the API server.
    fn links(&self, set_state: impl Fn(&cketerm_sandbox::faults::Link)) {
        for slot in self.engines.lock().unwrap().iter() {
            set_state(&slot.links.kubernetes);
        }
    }

    async fn queue(&self, addresses: &[String]) {
        self.stage.operator("alice").add_reboots(&addressed(addresses), Some("an outage")).await.unwrap();
    }

    /// Breaches of these invariants at the end.
    async fn end(self, codes: &[&str], summary: &str) -> ScenarioResult {
        let store = self.stage.operator("watcher").store;
        let empty = async {
            while !store.read_view().await.is_ok_and(|view| view.reboots.entries.is_empty()) {
                sleep(Duration::from_secs(5)).await;
            }
        };
        let mut wrong = Vec::new();
        if tokio::time::timeout(SETTLE_TIMEOUT, empty).await.is_err() {
            wrong.push(format!("entries remain {SETTLE_TIMEOUT:?} after the fault"));
        }
        let mut record = gather::record(&self.stage.sandbox);
        record.reports = std::mem::take(&mut *self.reports.lock().unwrap());
        record.ttl_seconds = 10;
        let breaches = observers::observe(&record).into_iter().filter(|b| codes.contains(&b.code)).collect();
        ScenarioResult { breaches, wrong, summary: summary.to_owned() }
    }
}

/// The API server does not answer for five minutes while an entry waits.
pub fn api_server_outage() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let run = OutageRun::begin(SITE, 1).await;
        run.links(|link| link.set_state(State::Cut));
        sleep(Duration::from_secs(20)).await;
        run.queue(&run.workers[..1]).await;
        sleep(Duration::from_mins(5)).await;
        run.links(|link| link.set_state(State::Open));
        run.end(&["I51"], "no answer of the API server for five minutes").await
    })
}

/// The watch of Nodes is silent while all other connections work. Machines fail meanwhile, and nothing shows it.
pub fn silent_node_watch() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let run = OutageRun::begin(SITE, 1).await;
        let fail_permanently = |address: &String| run.stage.sandbox.machines.fail_permanently(address);
        // as many as are permitted; seeing the failure restarts the engine's wait for the next event
        fail_permanently(&run.workers[0]);
        sleep(Duration::from_secs(20)).await;
        run.links(|link| link.mute(Some("/api/v1/nodes"), false));
        run.workers[1..3].iter().for_each(fail_permanently);
        sleep(Duration::from_secs(40)).await;
        run.queue(&run.workers[4..5]).await;
        sleep(Duration::from_mins(3)).await;
        for address in &run.workers[..3] {
            run.stage.sandbox.machines.behave(address, Behaviour::default());
            run.stage.sandbox.machines.request_reset(address, "On");
        }
        run.links(|link| link.mute(None, false));
        run.end(&["I6", "I7"], "a silent watch of Nodes while three machines fail").await
    })
}

/// Pods take minutes to end, within a longer grace period.
pub fn long_grace_period() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let site = SITE.replace("pod_stop: {seconds: 5, jitter: 5}", "pod_stop: {seconds: 150, jitter: 30}");
        let run = OutageRun::begin(&site, 1).await;
        let labels = json!({"app": "slow"});
        let pod = json!({"containers": [{"name": "slow", "image": "registry.example/slow:1.0"}],
            "terminationGracePeriodSeconds": 240, "restartPolicy": "Always"});
        let spec = json!({"replicas": 12, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod}});
        let deployment = json!({"metadata": {"name": "slow", "labels": labels}, "spec": spec});
        run.stage.sandbox.objects.create(&DEPLOYMENTS, "default", deployment).map_err(|e| e.message).unwrap();
        sleep(Duration::from_mins(1)).await;
        run.queue(&run.workers[..2]).await;
        sleep(Duration::from_mins(10)).await;
        run.end(&["I22"], "pods that take minutes to end").await
    })
}

/// Each drained Node has several pods of a budget that allows one eviction at a time, and replacements start slowly.
pub fn shared_budget() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let site = SITE.replace("pod_start: {seconds: 1, jitter: 4}", "pod_start: {seconds: 40, jitter: 5}");
        let run = OutageRun::begin(&site, 1).await;
        run.create_pods("ledger");
        run.create_budget("ledger", 1);
        sleep(Duration::from_mins(2)).await;
        run.queue(&run.workers[..2]).await;
        sleep(Duration::from_mins(10)).await;
        run.end(&["I75"], "several pods of one budget on each Node").await
    })
}

/// Each drained Node has pods of a budget that never allows an eviction, beside pods that may be evicted.
pub fn closed_budget() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let site = SITE.replace("workloads: []", "workloads: [], protected_namespaces: [db]");
        let run = OutageRun::begin(&site, 1).await;
        run.create_pods("ledger");
        run.create_budget("ledger", 0);
        run.create_pods("free");
        sleep(Duration::from_mins(2)).await;
        // the start of the first drain is carried out twice, and its leader hears only that it was refused
        for slot in run.engines.lock().unwrap().iter() {
            let start = FaultTarget { what: "start", path: "Txn", body: r#""status":"draining""# };
            slot.links.etcd.aim(start, RequestFault::Duplicate);
        }
        run.queue(&run.workers[..2]).await;
        sleep(Duration::from_mins(5)).await;
        let opened = run.stage.sandbox.objects.remove(&BUDGETS, "db", "ledger", |_| Ok(()));
        assert!(opened.is_ok());
        run.end(&["I15"], "a budget that never allows an eviction").await
    })
}

/// Sixty Nodes need the labels of their definition, and the API server needs seconds for each answer.
pub fn many_descriptions() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let (stage, engines, operator) = set(DESCRIPTIONS_SITE, 1, true, usize::MAX).await;
        sleep(Duration::from_mins(1)).await;
        let link = engines.lock().unwrap()[0].links.kubernetes.clone();
        for node in stage.sandbox.objects.list(&NODES, "").0 {
            let name = node["metadata"]["name"].as_str().unwrap();
            let unlabelled = stage.sandbox.objects.update(&NODES, "", name, |node| {
                node["metadata"]["labels"].as_object_mut().unwrap().remove(ROLE);
                Ok(())
            });
            assert!(unlabelled.is_ok(), "{name}");
        }
        link.slow(Some((Duration::from_secs(1), Duration::from_secs(3))), 11);
        operator.set_switch(SwitchName::Sabakan, true, None).await.unwrap();
        let bare = || {
            let (nodes, _) = stage.sandbox.objects.list(&NODES, "");
            nodes.iter().filter(|node| node["metadata"]["labels"][ROLE].is_null()).count()
        };
        let before = bare();
        let described = async {
            while bare() > 0 {
                sleep(Duration::from_secs(1)).await;
            }
        };
        let mut wrong = Vec::new();
        if tokio::time::timeout(Duration::from_mins(10), described).await.is_err() {
            wrong.push(format!("{} of {before} Nodes still have no labels", bare()));
        }
        if before < 50 {
            wrong.push(format!("only {before} Nodes needed labels"));
        }
        let (most, limit) = (link.most_writes(), NodeUpkeep::Description.most_at_once());
        let what = format!("{most} Nodes are patched at once, more than {limit}");
        let breach = Breach { code: "upkeep", at: stage.sandbox.objects.clock().wall(), what };
        let summary = format!("{before} Nodes get labels from a slow API server, {most} at once");
        ScenarioResult { breaches: (most > limit).then_some(breach).into_iter().collect(), wrong, summary }
    })
}

/// The health check of a repaired machine hangs at the end of its watch, and is answered again soon after that.
pub fn hanging_health_check() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let run = OutageRun::begin(&format!("{SITE}{REPAIRS}"), 1).await;
        let (machines, operator) = (&run.stage.sandbox.machines, run.stage.operator("alice"));
        machines.keep_health_checks();
        let address = run.workers[0].clone();
        let needs =
            |ill: u32, check: OnCheck| machines.behave(&address, Behaviour { ill, check, ..Behaviour::default() });
        needs(2, OnCheck::Honest);
        let (machine_type, operation) = ("sim".to_owned(), "restart".to_owned());
        let wanted = NewRepair { operation, machine_type, address: Address::new(&address), serial: None };
        operator.add_repair(&wanted, Some("it is slow")).await.unwrap();
        while !machines.power_log().iter().any(|power| matches!(power.what, PowerEvent::End(_))) {
            sleep(Duration::from_secs(1)).await;
        }
        // the check that begins now is given up after the watch
        sleep(Duration::from_secs(52)).await;
        needs(1, OnCheck::Silent);
        sleep(Duration::from_secs(5)).await;
        needs(1, OnCheck::Honest);
        let ended = async {
            while !operator.store.read_view().await.is_ok_and(|view| {
                view.repairs.entries.values().all(|stored| stored.get().is_some_and(RepairEntry::finished))
            }) {
                sleep(Duration::from_secs(5)).await;
            }
        };
        let in_time = tokio::time::timeout(SETTLE_TIMEOUT, ended).await.is_ok();
        let commands = machines.power_log().iter().filter(|power| power.what == PowerEvent::Begin).count();
        let mut result = run.end(&["I41"], "a health check hangs at the end of a watch").await;
        if !in_time || commands != 2 {
            result.wrong.push(format!("{commands} commands ran, and the repair has ended: {in_time}"));
        }
        result
    })
}

/// A leader dies while two commands run; another one leads, and the host of the first restarts.
pub fn failover() -> ScenarioResult {
    scenario_runtime().block_on(async {
        let run = OutageRun::begin(SITE, 2).await;
        run.queue(&run.workers[..2]).await;
        let running = || {
            let log = run.stage.sandbox.machines.power_log();
            log.iter().filter(|power| matches!(power.what, PowerEvent::Begin)).count()
        };
        while running() < 2 {
            sleep(Duration::from_millis(500)).await;
        }
        let leads = {
            let slots = run.engines.lock().unwrap();
            let leads =
                |slot: &Slot| slot.handle.as_ref().is_some_and(|h| h.seen().borrow().snapshot.engine.leading.is_some());
            slots.iter().position(leads).unwrap()
        };
        let gate = run.engines.lock().unwrap()[leads].gate.clone();
        gate.kill();
        // the other engine leads before the first one restarts
        sleep(Duration::from_secs(30)).await;
        Slot::start(&run.engines, leads, &run.stage).await;
        sleep(Duration::from_mins(10)).await;
        run.end(&["I25", "I47"], "a leader dies while two commands run").await
    })
}

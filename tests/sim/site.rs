//! The site on which a seed is played: its machines, pods, times and repair operations, as a scenario.

use cketerm_model::clock::Clock;
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;

use crate::{
    engines::{LONG_COMMAND_TIMEOUT, hosts_keep_results},
    plan::Plan,
    quorum,
};

const POPULATION: &str = "
name: simulation
about: A small site in which everything goes wrong.
population: {nodes: 8, pods_per_node: 4}
pace: {boot: {seconds: 15, jitter: 30}, command: {seconds: 1, jitter: 3}, check: {seconds: 0.1, jitter: 0.5},
  kubelet_start: {seconds: 1, jitter: 3}, node_ready: {seconds: 1, jitter: 5}, api_settle: 5, node_monitor_grace: 10,
  pod_start: {seconds: 1, jitter: 4}, pod_stop: {seconds: 0.5, jitter: 8}, lag: 0.1, budget_lag: 0.3}
reboot: {eviction_timeout_seconds: 60, command_timeout_seconds: 15, command_interval: 3, evict_retries: 1, evict_interval: 3}
policy: {stuck_seconds: 120, metal3_controller: true}
racks: 2
outside: 1
repair:
  max_concurrent_repairs: 2
  eviction_timeout_seconds: 60
  evict_retries: 1
  evict_interval: 3
  repair_procedures:
  - machine_types: [sim]
    repair_operations:
    - operation: restart
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      success_command: [sandbox-machine, 'on']
      success_command_timeout: 15
      repair_steps:
      - {repair_command: [sandbox-machine, repair], command_timeout_seconds: 15, command_retries: 1, command_interval: 3, watch_seconds: 20}
      - {repair_command: [sandbox-machine, reinstall], need_drain: true, command_timeout_seconds: 15, watch_seconds: 90}
    - operation: unhealthy
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      success_command: [sandbox-machine, 'on']
      success_command_timeout: 15
      repair_steps:
      - {repair_command: [sandbox-machine, repair], command_timeout_seconds: 15, watch_seconds: 30}
    - operation: unreachable
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      repair_steps:
      - {repair_command: [sandbox-machine, reboot], command_timeout_seconds: 15, command_retries: 1, command_interval: 3, watch_seconds: 60}
    - operation: drained
      health_check_command: [sandbox-machine, health]
      command_timeout_seconds: 15
      repair_steps:
      - {repair_command: [sandbox-machine, reboot], need_drain: true, command_timeout_seconds: 15, command_retries: 2, watch_seconds: 60}
";

/// Sets the stage for a seed. It records everything that observers judge.
pub async fn stage(plan: &Plan, seed: u64, clock: Clock) -> Stage {
    let mut scenario = Scenario::parse(POPULATION).unwrap();
    scenario.reboot.insert("max_concurrent_reboots".to_owned(), plan.concurrent.into());
    scenario.reboot.insert("command_retries".to_owned(), plan.retries.into());
    if hosts_keep_results(seed) {
        scenario.reboot.insert("command_timeout_seconds".to_owned(), LONG_COMMAND_TIMEOUT.into());
    }
    if plan.api_servers_first {
        scenario.policy.insert("api_server_order".to_owned(), "first".into());
    }
    // a generator of its own, so that the rest of the seed's scenario does not change
    if Rng::with_seed(seed ^ 0x7369_676e).u32(0..4) == 0 {
        scenario.policy.insert("node_conditions".to_owned(), true.into());
        scenario.policy.insert("planned_taint_waves".to_owned(), 2.into());
        scenario.policy.insert("pod_events".to_owned(), true.into());
    }
    // otherwise no engine queries etcd members behind these control planes
    if quorum::random(seed).is_none() {
        scenario.policy.insert("etcd_members".to_owned(), "none".into());
    }
    let mut options = Options { seed, ..Options::default() };
    options.api.streaming = plan.streaming;
    options.api.audit = usize::MAX;
    let stage = Stage::set(scenario, options, clock).await.unwrap();
    stage.sandbox.objects.keep_everything();
    stage.sandbox.etcd.record_txns();
    stage.sandbox.machines.keep_health_checks();
    stage
}

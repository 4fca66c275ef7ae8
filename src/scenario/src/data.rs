//! Scenarios as data, one YAML file each.

use cketerm_model::boot_time::Seconds;
use cketerm_sandbox::{durations::Durations, machines::Behaviour, sabakan::State, workload::Population};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A scenario for demonstrations, tests and screenshots.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name on the command line.
    pub name: String,
    /// Description in one sentence.
    pub about: String,
    /// Machines and workloads.
    #[serde(default)]
    pub population: Population,
    /// Durations of machines and controllers.
    #[serde(default)]
    pub pace: Durations,
    /// Fields of the definition's `reboot` section that differ from the sandbox's defaults.
    #[serde(default)]
    pub reboot: Map<String, Value>,
    /// Fields of the definition's `repair` section that differ from the sandbox's defaults.
    #[serde(default)]
    pub repair: Map<String, Value>,
    /// Number of machines outside the cluster: with power, an address and a health check, but without a kubelet.
    #[serde(default)]
    pub outside: u8,
    /// Number of racks in the definition's labels; 0 = the definition has no rack labels.
    #[serde(default)]
    pub racks: usize,
    /// Fields of `cketerm/policy` that differ from the sandbox's defaults.
    #[serde(default)]
    pub policy: Map<String, Value>,
    /// Whether another engine exists and leads first.
    #[serde(default)]
    pub rival: bool,
    /// A CKE that leads first; none by default.
    pub cke: Option<CkeHost>,
    /// Actions of operators and failures, in order of time.
    #[serde(default)]
    pub script: Vec<ScriptStep>,
}

/// One action and its time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // one key each in the file, one per scene
pub struct ScriptStep {
    /// Time after the beginning.
    pub after: Seconds,
    /// Operator who acts, for the audit.
    pub by: String,
    /// `queue`: reboots are queued.
    pub queue: Option<RebootRequest>,
    /// `cancel`: the entry of a worker is cancelled.
    pub cancel: Option<WorkerNumber>,
    /// `cordon`: somebody cordons a worker manually.
    pub cordon: Option<WorkerNumber>,
    /// `uncordon`: somebody uncordons a worker manually.
    pub uncordon: Option<WorkerNumber>,
    /// `tight`: a budget allows no eviction from now on.
    pub tight: Option<BudgetRef>,
    /// `loosen`: the budget allows one eviction again.
    pub loosen: Option<BudgetRef>,
    /// `retry`: somebody orders a retry of the command of a worker's entry.
    pub retry: Option<WorkerNumber>,
    /// `machine`: the behaviour of a machine changes.
    pub machine: Option<BehaviourChange>,
    /// `registers`: a machine's state in sabakan changes, or a rack disappears.
    pub registers: Option<RegistryChange>,
    /// `sabakan`: the integration is enabled or disabled.
    pub sabakan: Option<bool>,
    /// `breaks`: a machine loses its power, and only its cure brings it back.
    pub breaks: Option<BehaviourChange>,
    /// `repair`: a repair is queued.
    pub repair: Option<RepairRequest>,
    /// `repairs`: the repair queue is enabled or disabled.
    pub repairs: Option<bool>,
    /// `annotate`: a client of Metal3 writes an annotation on a worker's host.
    pub annotate: Option<HostAnnotation>,
    /// `freeze`: nothing new starts for this many seconds.
    pub freeze: Option<FreezeRequest>,
    /// `unfreeze`: a freeze ends early.
    #[serde(default)]
    pub unfreeze: bool,
    /// `disable`: the reboot queue is disabled.
    #[serde(default)]
    pub disable: bool,
    /// `enable`: the reboot queue is enabled.
    #[serde(default)]
    pub enable: bool,
    /// `reset_backoff`: the backoff of every entry is reset.
    #[serde(default)]
    pub reset_backoff: bool,
    /// `kill_rival`: the other engine dies as by SIGKILL.
    #[serde(default)]
    pub kill_rival: bool,
    /// `stop_cke`: CKE is stopped on its host, and gives up the lock.
    #[serde(default)]
    pub stop_cke: bool,
    /// `start_cke`: CKE is started again on its host, and campaigns.
    #[serde(default)]
    pub start_cke: bool,
}

/// A CKE beside cketerm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CkeHost {
    /// Host name.
    pub host: String,
    /// Time between two passes without an operation.
    pub interval: Seconds,
    /// Time between the read and the write of an entry: a cancel in between is lost.
    #[serde(default = "default_write_delay")]
    pub write_delay: Seconds,
}

fn default_write_delay() -> Seconds {
    Seconds::new(0.1)
}

/// Selection of machines.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeCounts {
    /// Number of workers, from the first one on.
    pub workers: usize,
    /// Number of API servers, from the first one on.
    pub control_planes: usize,
}

/// Reboots of some machines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RebootRequest {
    /// The machines.
    pub nodes: NodeCounts,
    /// Reason or ticket.
    pub reason: Option<String>,
}

/// A freeze of both queues.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreezeRequest {
    /// Duration in seconds.
    pub seconds: i64,
    /// Reason.
    pub reason: String,
}

/// A worker by its number, counted from 1.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerNumber {
    /// Number of the worker.
    pub node: usize,
}

/// An annotation on the host of a worker.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostAnnotation {
    /// Number of the worker, counted from 1.
    pub node: usize,
    /// `reboot.metal3.io`, optionally followed by `/KEY`.
    pub key: String,
    /// Value; `None` removes the annotation.
    pub value: Option<String>,
}

/// A budget.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A change in the registry: one of the two fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryChange {
    /// Serial number and new state of a machine.
    pub state: Option<(String, State)>,
    /// Rack whose machines lose their power and vanish from sabakan.
    pub rack_gone: Option<i64>,
}

/// One machine, by one of the four fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MachineSelector {
    /// Number of a worker, counted from 1.
    pub node: usize,
    /// Number of an API server, counted from 1.
    pub control_plane: usize,
    /// Number of a machine outside the cluster, counted from 1.
    pub outside: usize,
    /// The node of a pod, `namespace/name`.
    pub with: String,
}

/// A change of a machine's behaviour.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BehaviourChange {
    /// Number of a worker, counted from 1.
    #[serde(default)]
    pub node: usize,
    /// Another machine instead.
    #[serde(default)]
    pub at: MachineSelector,
    /// Behaviour from now on.
    pub behaves: Behaviour,
}

/// A repair of one machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {
    /// The machine.
    pub at: MachineSelector,
    /// Machine type.
    #[serde(rename = "type")]
    pub machine_type: String,
    /// Operation.
    pub operation: String,
    /// Reason or ticket.
    pub reason: Option<String>,
}

static FILES: &[&str] = &[
    include_str!("files/calm.yaml"),
    include_str!("files/budget.yaml"),
    include_str!("files/flaky-bmc.yaml"),
    include_str!("files/api-servers.yaml"),
    include_str!("files/lost-leader.yaml"),
    include_str!("files/beside-cke.yaml"),
    include_str!("files/interference.yaml"),
    include_str!("files/repairs.yaml"),
    include_str!("files/dead-api-server.yaml"),
    include_str!("files/windows.yaml"),
    include_str!("files/large.yaml"),
    include_str!("files/registry.yaml"),
    include_str!("files/hosts.yaml"),
];

/// Name of the default scenario.
pub const DEFAULT: &str = "calm";

impl Scenario {
    /// Returns all built-in scenarios, the default first. Fails if a file cannot be parsed; the error names the file.
    pub fn all() -> Result<Vec<Self>, String> {
        FILES.iter().map(|text| Self::parse(text)).collect()
    }

    /// Returns a scenario by its name.
    pub fn named(name: &str) -> Result<Self, String> {
        let all = Self::all()?;
        let names: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
        let known = format!("unknown scenario {name:?}; known: {}", names.join(", "));
        all.into_iter().find(|s| s.name == name).ok_or(known)
    }

    /// Parses a scenario from YAML.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = text.lines().next().unwrap_or_default();
        serde_yaml::from_str(text).map_err(|e| format!("scenario ({named}): {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_parses_and_each_step_has_one_action() {
        let all = Scenario::all().unwrap();
        assert_eq!(all[0].name, DEFAULT);
        for scenario in all {
            assert!(scenario.about.ends_with('.'), "{}", scenario.name);
            for step in &scenario.script {
                let actions = [
                    step.queue.is_some(),
                    step.cancel.is_some(),
                    step.cordon.is_some(),
                    step.uncordon.is_some(),
                    step.tight.is_some(),
                    step.loosen.is_some(),
                    step.retry.is_some(),
                    step.machine.is_some(),
                    step.breaks.is_some(),
                    step.repair.is_some(),
                    step.repairs.is_some(),
                    step.registers.is_some(),
                    step.sabakan.is_some(),
                    step.annotate.is_some(),
                    step.freeze.is_some(),
                    step.unfreeze,
                    step.disable,
                    step.enable,
                    step.reset_backoff,
                    step.kill_rival,
                    step.stop_cke,
                    step.start_cke,
                ];
                assert_eq!(actions.iter().filter(|d| **d).count(), 1, "{} {step:?}", scenario.name);
            }
        }
    }

    #[test]
    fn an_unknown_scenario_name_lists_the_known_ones() {
        let why = Scenario::named("clam").unwrap_err();
        assert!(why.contains("clam") && why.contains("calm"), "{why}");
    }
}

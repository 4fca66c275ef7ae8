//! What a scenario says: data, one YAML file each.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::sandbox::{durations::Durations, machines::Behaviour, sabakan::State, workload::Population};

/// A story that is worth watching, and that tests and pictures use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// How it is asked for.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// Machines and what runs on them.
    #[serde(default)]
    pub population: Population,
    /// How fast machines and controllers are.
    #[serde(default)]
    pub pace: Durations,
    /// Fields of the definition's `reboot` section that differ from the sandbox's.
    #[serde(default)]
    pub reboot: Map<String, Value>,
    /// Fields of the definition's `repair` section that differ from the sandbox's.
    #[serde(default)]
    pub repair: Map<String, Value>,
    /// Machines beside the cluster: with power, an address and health, and no kubelet.
    #[serde(default)]
    pub outside: u8,
    /// In how many racks the machines stand, by the definition's labels; 0 = it says nothing of racks.
    #[serde(default)]
    pub racks: usize,
    /// Fields of `cketerm/policy` that differ from the sandbox's.
    #[serde(default)]
    pub policy: Map<String, Value>,
    /// Whether another engine is there, and leads first.
    #[serde(default)]
    pub rival: bool,
    /// What people and fate do, in the order of time.
    #[serde(default)]
    pub script: Vec<Scene>,
}

/// One deed and its time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // one key each in the file, one per scene
pub struct Scene {
    /// Seconds after the beginning.
    pub after: f64,
    /// Who does it, for the audit.
    pub by: String,
    /// `queue`: reboots are queued.
    pub queue: Option<Queueing>,
    /// `cancel`: the entry of a worker is cancelled.
    pub cancel: Option<Nth>,
    /// `cordon`: somebody cordons a worker by hand.
    pub cordon: Option<Nth>,
    /// `uncordon`: somebody uncordons a worker by hand.
    pub uncordon: Option<Nth>,
    /// `tight`: a budget allows no eviction from now on.
    pub tight: Option<OneBudget>,
    /// `loosen`: it allows one again.
    pub loosen: Option<OneBudget>,
    /// `retry`: somebody orders the command of a worker's entry once more.
    pub retry: Option<Nth>,
    /// `machine`: a machine behaves so from now on.
    pub machine: Option<Behaving>,
    /// `registers`: sabakan says something else of a machine, or a rack is gone.
    pub registers: Option<Registering>,
    /// `sabakan`: the integration is enabled or disabled.
    pub sabakan: Option<bool>,
    /// `breaks`: a machine loses its power, and only a cure brings it back.
    pub breaks: Option<Behaving>,
    /// `repair`: a repair is queued.
    pub repair: Option<Repairing>,
    /// `repairs`: the repair queue is enabled or disabled.
    pub repairs: Option<bool>,
    /// `annotate`: a client of Metal3 writes an annotation on a worker's host.
    pub annotate: Option<Annotating>,
    /// `freeze`: nothing new starts for so many seconds.
    pub freeze: Option<Freezing>,
    /// `unfreeze`: a freeze ends before its time.
    #[serde(default)]
    pub unfreeze: bool,
    /// `disable`: the reboot queue is disabled.
    #[serde(default)]
    pub disable: bool,
    /// `enable`: the reboot queue is enabled.
    #[serde(default)]
    pub enable: bool,
    /// `reset_backoff`: of every entry.
    #[serde(default)]
    pub reset_backoff: bool,
    /// `kill_rival`: the other engine dies as after SIGKILL.
    #[serde(default)]
    pub kill_rival: bool,
}

/// Which machines.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    /// The first so many workers.
    pub workers: usize,
    /// The first so many API servers.
    pub control_planes: usize,
}

/// Reboots of some machines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queueing {
    /// Which.
    pub nodes: Which,
    /// Reason or ticket.
    pub reason: Option<String>,
}

/// A freeze of both queues.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Freezing {
    /// How long.
    pub seconds: i64,
    /// Why.
    pub reason: String,
}

/// A worker by its place, the first being 1.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nth {
    /// Its place.
    pub node: usize,
}

/// An annotation on the host of a worker.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotating {
    /// The worker's place, the first being 1.
    pub node: usize,
    /// `reboot.metal3.io`, or with a key behind it.
    pub key: String,
    /// Its value; none = it is taken off.
    pub value: Option<String>,
}

/// A budget.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneBudget {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What changes in the registry: one of both.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Registering {
    /// The machine's serial, and its state.
    pub state: Option<(String, State)>,
    /// This rack's machines lose their power and vanish from sabakan.
    pub rack_gone: Option<i64>,
}

/// One machine: one of the four.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spot {
    /// A worker by its place, the first being 1.
    pub node: usize,
    /// An API server by its place.
    pub control_plane: usize,
    /// A machine beside the cluster by its place.
    pub outside: usize,
    /// The node of a pod, `namespace/name`.
    pub with: String,
}

/// How a machine behaves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behaving {
    /// A worker by its place.
    #[serde(default)]
    pub node: usize,
    /// Or another machine.
    #[serde(default)]
    pub at: Spot,
    /// From now on.
    pub behaves: Behaviour,
}

/// A repair of one machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repairing {
    /// Which.
    pub at: Spot,
    /// Its type.
    #[serde(rename = "type")]
    pub machine_type: String,
    /// The operation.
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
    include_str!("files/interference.yaml"),
    include_str!("files/repairs.yaml"),
    include_str!("files/dead-api-server.yaml"),
    include_str!("files/windows.yaml"),
    include_str!("files/large.yaml"),
    include_str!("files/registry.yaml"),
    include_str!("files/hosts.yaml"),
];

/// The name of the scenario that is played when none is named.
pub const DEFAULT: &str = "calm";

impl Scenario {
    /// All that come with the program, the default first. A file that cannot be read is an error, naming it.
    pub fn all() -> Result<Vec<Self>, String> {
        FILES.iter().map(|text| Self::parse(text)).collect()
    }

    /// One by its name.
    pub fn named(name: &str) -> Result<Self, String> {
        let all = Self::all()?;
        let names: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
        let known = format!("unknown scenario {name:?}; known: {}", names.join(", "));
        all.into_iter().find(|s| s.name == name).ok_or(known)
    }

    /// From YAML.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = text.lines().next().unwrap_or_default();
        serde_yaml::from_str(text).map_err(|e| format!("scenario ({named}): {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_read_and_each_scene_does_one_thing() {
        let all = Scenario::all().unwrap();
        assert_eq!(all[0].name, DEFAULT);
        for scenario in all {
            assert!(scenario.about.ends_with('.'), "{}", scenario.name);
            for scene in &scenario.script {
                let deeds = [
                    scene.queue.is_some(),
                    scene.cancel.is_some(),
                    scene.cordon.is_some(),
                    scene.uncordon.is_some(),
                    scene.tight.is_some(),
                    scene.loosen.is_some(),
                    scene.retry.is_some(),
                    scene.machine.is_some(),
                    scene.breaks.is_some(),
                    scene.repair.is_some(),
                    scene.repairs.is_some(),
                    scene.registers.is_some(),
                    scene.sabakan.is_some(),
                    scene.annotate.is_some(),
                    scene.freeze.is_some(),
                    scene.unfreeze,
                    scene.disable,
                    scene.enable,
                    scene.reset_backoff,
                    scene.kill_rival,
                ];
                assert_eq!(deeds.iter().filter(|d| **d).count(), 1, "{} {scene:?}", scenario.name);
            }
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_are_known() {
        let why = Scenario::named("clam").unwrap_err();
        assert!(why.contains("clam") && why.contains("calm"), "{why}");
    }
}

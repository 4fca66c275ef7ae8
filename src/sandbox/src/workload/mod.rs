//! A population as data: the number of machines, and the workloads on them.

mod build;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use cketerm_model::boot_time::Seconds;
use serde::{Deserialize, Serialize};

use super::{
    durations::RandomDuration,
    machines::{Behaviour, Machine},
    metal3::Metal3,
};

/// Label of protected namespaces, with the value `true`. A definition's `protected_namespaces` can select it.
pub const PROTECTED: &str = "sandbox.cketerm.io/protected";

/// Machines and their workloads. A missing field has the value of a small data centre.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Population {
    /// Number of machines, control planes included.
    pub nodes: u32,
    /// Number of control planes among them.
    pub control_planes: u32,
    /// Number of racks. Machines are placed round-robin. Racks are also the zones of the nodes.
    pub racks: u32,
    /// Average number of pods on each worker. Deployments in `default` fill the difference to the workloads.
    pub pods_per_node: u32,
    /// Namespaces with the label [`PROTECTED`].
    pub protected_namespaces: Vec<String>,
    /// Workloads, besides the filling Deployments.
    pub workloads: Vec<Workload>,
    /// Initial behaviour of machines, by name (`cp1`, `w007` …).
    pub behaviours: BTreeMap<String, Behaviour>,
    /// Boot durations of machines, by name, if they differ from the pace's.
    pub boots: BTreeMap<String, RandomDuration>,
    /// Whether CKE manages the endpoints of its etcd: the objects `cke-etcd` exist in `kube-system`.
    pub cke_endpoints: bool,
    /// The machine registry, if there is one.
    pub registry: Option<Registry>,
    /// Metal3, if the machines have BareMetalHosts.
    pub metal3: Option<Metal3>,
}

/// sabakan, and the operators who join to Kubernetes the machines that a definition names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registry {
    /// Number of machines in the registry besides the nodes. Nobody uses them yet.
    pub spares: u32,
    /// Roles of workers and spares, assigned round-robin. Control planes have the first role.
    pub roles: Vec<String>,
    /// Whether every machine is initially a spare. There is no definition until one is generated.
    pub bare: bool,
    /// Whether the integration is initially enabled.
    pub enabled: bool,
    /// The constraint `minimum-workers`; by default the number of workers.
    pub minimum_workers: Option<u32>,
    /// The constraint `maximum-repair-queue-entries`.
    pub repairs: u32,
    /// Time from a machine's entry in the definition until it boots as a node.
    pub joins: RandomDuration,
    /// Time until a machine's outage or recovery is reported to sabakan.
    pub notices: Seconds,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            spares: 6,
            roles: vec!["cs".to_owned()],
            bare: false,
            enabled: false,
            minimum_workers: None,
            repairs: 3,
            joins: RandomDuration::between(3.0, 6.0),
            notices: Seconds::new(2.0),
        }
    }
}

/// Kind of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A Deployment with its `ReplicaSet`.
    #[default]
    Deployment,
    /// Pods with stable names.
    StatefulSet,
    /// One pod on every node.
    DaemonSet,
    /// Pods that finish.
    Job,
    /// Static pods: one mirror pod on every control plane.
    Static,
    /// Pods without an owner.
    Bare,
}

/// One workload with its pods, or several of the same kind.
#[allow(clippy::struct_excessive_bools)] // independent flags in the data
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Namespace; empty for `default`.
    pub namespace: String,
    /// Name, and the pods' label `app`. With several copies a number follows.
    pub name: String,
    /// Kind.
    pub kind: Kind,
    /// Number of copies; 0 is taken as 1.
    pub copies: u32,
    /// Pods of each copy; for a Job its parallelism; 0 is taken as 1.
    pub replicas: u32,
    /// The budget over its pods.
    pub budget: Option<Budget>,
    /// Time that a pod of a Job runs. Several Jobs are spread up to twice this time.
    pub runs_seconds: Option<Seconds>,
    /// Time that its pods take to stop, if that differs from the pace's.
    pub stops_seconds: Option<Seconds>,
    /// `terminationGracePeriodSeconds`, if not 30.
    pub grace_seconds: Option<u32>,
    /// Whether its pods never terminate.
    pub stuck: bool,
    /// Whether its pods run but are never Ready.
    pub never_ready: bool,
    /// Whether it is a DaemonSet with the update strategy `OnDelete`.
    pub on_delete: bool,
    /// Name of the only node that takes its pods.
    pub node: Option<String>,
    /// Whether its pods may run on control planes. Pods of DaemonSets always may.
    pub control_planes: bool,
}

/// A `PodDisruptionBudget` with one of the first two fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// `minAvailable`: a number or a percentage.
    pub min_available: Option<Amount>,
    /// `maxUnavailable`: a number or a percentage.
    pub max_unavailable: Option<Amount>,
    /// `unhealthyPodEvictionPolicy`.
    pub unhealthy_pod_eviction_policy: Option<String>,
}

/// A number of pods or a percentage of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// A number.
    Number(u32),
    /// A percentage such as `50%`.
    Share(String),
}

impl Default for Population {
    fn default() -> Self {
        Self {
            nodes: 60,
            control_planes: 3,
            racks: 4,
            pods_per_node: 10,
            protected_namespaces: ["kube-system", "db", "infra"].map(str::to_owned).into(),
            workloads: Workload::typical(),
            behaviours: BTreeMap::new(),
            boots: BTreeMap::new(),
            cke_endpoints: false,
            registry: None,
            metal3: None,
        }
    }
}

impl Workload {
    /// Returns the workloads of a typical cluster: agents on all nodes, cluster services, databases with budgets, Jobs.
    pub fn typical() -> Vec<Self> {
        let one = |namespace: &str, name: &str, kind, replicas| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind,
            replicas,
            ..Self::default()
        };
        let at_most = |number| Some(Budget { max_unavailable: Some(Amount::Number(number)), ..Budget::default() });
        let at_least =
            |share: &str| Some(Budget { min_available: Some(Amount::Share(share.to_owned())), ..Budget::default() });
        vec![
            one("kube-system", "node-dns", Kind::DaemonSet, 0),
            Self { budget: at_most(1), ..one("kube-system", "cluster-dns", Kind::Deployment, 2) },
            one("monitoring", "node-exporter", Kind::DaemonSet, 0),
            Self { on_delete: true, ..one("infra", "network-agent", Kind::DaemonSet, 0) },
            Self { budget: at_least("50%"), ..one("infra", "ingress", Kind::Deployment, 4) },
            Self { copies: 4, budget: at_most(1), ..one("db", "mysql", Kind::StatefulSet, 3) },
            Self { copies: 6, runs_seconds: Some(Seconds::new(600.0)), ..one("batch", "report", Kind::Job, 1) },
        ]
    }
}

impl Population {
    /// Returns a population without machines and workloads.
    pub fn empty() -> Self {
        let (protected_namespaces, workloads) = (Vec::new(), Vec::new());
        Self { nodes: 0, control_planes: 0, pods_per_node: 0, protected_namespaces, workloads, ..Self::default() }
    }

    /// Returns the location of the machine with this number, counted from 0: its rack, its position in the rack, its
    /// address.
    pub fn place(&self, number: u32) -> (u32, u32, String) {
        let racks = self.racks.max(1);
        let (rack, slot) = (number % racks, number / racks);
        // Each rack has its own networks, with 200 machines each.
        let network = rack + racks * (slot / 200);
        (rack, slot, format!("10.{}.{}.{}", 1 + network / 256 % 60, network % 256, 11 + slot % 200))
    }

    /// Returns the machines: control planes `cp1`…, workers `w1`…, with as many digits as the greatest number needs.
    pub fn machines(&self) -> Vec<Machine> {
        let planes = self.control_planes.min(self.nodes);
        let workers = self.nodes - planes;
        let digits = |most: u32| most.to_string().len();
        let one = |place: u32| {
            let control_plane = place < planes;
            let name = if control_plane {
                format!("cp{:0width$}", place + 1, width = digits(planes))
            } else {
                format!("w{:0width$}", place - planes + 1, width = digits(workers))
            };
            let (rack, _, address) = self.place(place);
            Machine {
                apart: false,
                address,
                control_plane,
                rack,
                boot: self.boots.get(&name).copied(),
                behaviour: self.behaviours.get(&name).cloned().unwrap_or_default(),
                name,
            }
        };
        (0..self.nodes).map(one).collect()
    }
}

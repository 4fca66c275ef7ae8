//! A population as data: how many machines, and what runs on them.

mod build;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    durations::Span,
    machines::{Behaviour, Machine},
    metal3::Metal3,
};

/// Namespaces that are protected have this label with the value `true`: what a definition's `protected_namespaces` can
/// select.
pub const PROTECTED: &str = "sandbox.cketerm.io/protected";

/// Machines and what runs on them. Fields that are not written have the values of a small data centre.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Population {
    /// Machines in all, control planes among them.
    pub nodes: u32,
    /// How many of them are control planes.
    pub control_planes: u32,
    /// Racks that they stand in, one machine after the other; also the nodes' zones.
    pub racks: u32,
    /// Pods that each worker runs on average; what the workloads leave open is filled with Deployments in `default`.
    pub pods_per_node: u32,
    /// Namespaces with the label [`PROTECTED`].
    pub protected_namespaces: Vec<String>,
    /// What runs, beside the filling.
    pub workloads: Vec<Workload>,
    /// What is wrong with machines in the beginning, by name (`cp1`, `w007` …).
    pub behaviours: BTreeMap<String, Behaviour>,
    /// What boots of machines take, by name, where that is not the pace's.
    pub boots: BTreeMap<String, Span>,
    /// CKE manages the endpoints of its etcd: the objects `cke-etcd` of `kube-system` exist.
    pub cke_endpoints: bool,
    /// The registry of machines, where there is one.
    pub registry: Option<Registry>,
    /// Metal3, where the machines have BareMetalHosts.
    pub metal3: Option<Metal3>,
}

/// sabakan, and the people who join to Kubernetes what a definition names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registry {
    /// Machines that are in it beside the nodes: nobody uses them yet.
    pub spares: u32,
    /// Roles of the workers and the spares, one after the other; control planes have the first one.
    pub roles: Vec<String>,
    /// Every machine is a spare at first: there is no definition before one is generated.
    pub bare: bool,
    /// Whether the integration is enabled from the beginning.
    pub enabled: bool,
    /// The constraint `minimum-workers`; none = as many workers as there are.
    pub minimum_workers: Option<u32>,
    /// The constraint `maximum-repair-queue-entries`.
    pub repairs: u32,
    /// From a machine's place in the definition until it boots as a node.
    pub joins: Span,
    /// Seconds until sabakan is told that a machine went down or came back.
    pub notices: f64,
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
            joins: Span::between(3.0, 6.0),
            notices: 2.0,
        }
    }
}

/// A kind of owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// With its `ReplicaSet`.
    #[default]
    Deployment,
    /// Pods with names.
    StatefulSet,
    /// One on every node.
    DaemonSet,
    /// Pods that end.
    Job,
    /// Static pods: one mirror pod on every control plane.
    Static,
    /// Pods without an owner.
    Bare,
}

/// One owner with its pods, or several of the same sort.
#[allow(clippy::struct_excessive_bools)] // as data has it: each may be said or not
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Its namespace; empty for `default`.
    pub namespace: String,
    /// Its name, and the pods' label `app`; a number follows where there are several.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// How many of the same sort; 0 is taken as 1.
    pub copies: u32,
    /// Pods of each; for a Job those that run beside each other; 0 is taken as 1.
    pub replicas: u32,
    /// The budget over its pods.
    pub budget: Option<Budget>,
    /// Seconds that a pod of a Job runs (those of several Jobs are spread up to twice that).
    pub runs_seconds: Option<f64>,
    /// Seconds that its pods take to stop, where that is not the pace's.
    pub stops_seconds: Option<f64>,
    /// `terminationGracePeriodSeconds`, where that is not 30.
    pub grace_seconds: Option<u32>,
    /// Its pods never end.
    pub stuck: bool,
    /// Its pods run and are never Ready.
    pub never_ready: bool,
    /// A DaemonSet with the update strategy `OnDelete`.
    pub on_delete: bool,
    /// The only node that takes its pods, by name.
    pub node: Option<String>,
    /// Its pods may run on control planes; those of DaemonSets always may.
    pub control_planes: bool,
}

/// A `PodDisruptionBudget`: one of both.
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

/// A number of pods or a share of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// So many.
    Number(u32),
    /// `50%`.
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
            workloads: Workload::usual(),
            behaviours: BTreeMap::new(),
            boots: BTreeMap::new(),
            cke_endpoints: false,
            registry: None,
            metal3: None,
        }
    }
}

impl Workload {
    /// What runs in most clusters: agents on all nodes, cluster services, databases under budgets, Jobs.
    pub fn usual() -> Vec<Self> {
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
            Self { copies: 6, runs_seconds: Some(600.0), ..one("batch", "report", Kind::Job, 1) },
        ]
    }
}

impl Population {
    /// No machine and no workload.
    pub fn empty() -> Self {
        let (protected_namespaces, workloads) = (Vec::new(), Vec::new());
        Self { nodes: 0, control_planes: 0, pods_per_node: 0, protected_namespaces, workloads, ..Self::default() }
    }

    /// Where the machine with this number stands, counted from 0: its rack, its place in it, its address.
    pub fn place(&self, number: u32) -> (u32, u32, String) {
        let racks = self.racks.max(1);
        let (rack, slot) = (number % racks, number / racks);
        // Each rack has networks of its own, of 200 machines each.
        let network = rack + racks * (slot / 200);
        (rack, slot, format!("10.{}.{}.{}", 1 + network / 256 % 60, network % 256, 11 + slot % 200))
    }

    /// The machines: control planes `cp1`…, workers `w1`…, with as many digits as the greatest number needs.
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

//! Builds a population into Kubernetes objects, as if it had been running for long.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::boot_time::Seconds;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Amount, Kind, PROTECTED, Population, Workload};
use crate::{
    kubernetes::{
        ObjectError, Objects, Resource,
        controllers::{self, daemons, deployments, kubelet, nodes, object_fields, stateful},
        resource::{
            BUDGETS, DAEMON_SETS, DEPLOYMENTS, ENDPOINT_SLICES, ENDPOINTS, JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS,
            SERVICES, STATEFUL_SETS,
        },
    },
    machines::{Machine, Machines, State},
};

/// Names of the Deployments that fill the workers.
const FILLER_NAMES: [&str; 12] =
    ["web", "api", "cart", "search", "mail", "auth", "media", "feed", "chat", "ads", "maps", "pay"];
/// Pods of one such Deployment.
const FILLER_REPLICAS: u32 = 24;

struct Builder<'a> {
    objects: &'a Objects,
    machines: BTreeMap<String, Machine>,
    /// Number of pods and name of each worker, fewest pods first.
    workers: BTreeSet<(u32, String)>,
    /// Pods placed on workers so far.
    placed: u32,
}

impl Population {
    /// Creates Nodes, namespaces, workloads and running pods. The machines must be those of [`Population::machines`].
    /// Start the controllers afterwards. Fails if a name already exists.
    pub fn create_objects(&self, objects: &Objects, machines: &Machines) -> Result<(), ObjectError> {
        let list = machines.list();
        let mut builder = Builder {
            objects,
            workers: list.iter().filter(|m| !m.control_plane).map(|m| (0, m.name.clone())).collect(),
            machines: list.into_iter().map(|m| (m.name.clone(), m)).collect(),
            placed: 0,
        };
        builder.namespaces(self)?;
        builder.nodes(machines)?;
        builder.endpoints(self.cke_endpoints)?;
        // DaemonSets first, because their pods count on every node.
        let (daemons, others): (Vec<_>, Vec<_>) = self.workloads.iter().partition(|w| w.kind == Kind::DaemonSet);
        for workload in daemons.into_iter().chain(others) {
            builder.workload(workload)?;
        }
        let wanted = self.pods_per_node * u32::try_from(builder.workers.len()).unwrap_or(u32::MAX);
        let mut round = 0;
        while builder.placed < wanted {
            let stem = FILLER_NAMES[round % FILLER_NAMES.len()];
            let name = if round < FILLER_NAMES.len() {
                stem.to_owned()
            } else {
                format!("{stem}-{}", round / FILLER_NAMES.len() + 1)
            };
            let replicas = FILLER_REPLICAS.min(wanted - builder.placed);
            builder.workload(&Workload { name, replicas, ..Workload::default() })?;
            round += 1;
        }
        Ok(())
    }
}

impl Builder<'_> {
    fn create(&self, resource: &'static Resource, namespace: &str, object: Value) -> Result<Arc<Value>, ObjectError> {
        self.objects.create(resource, namespace, object)
    }

    fn namespaces(&self, population: &Population) -> Result<(), ObjectError> {
        let system_namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"].map(str::to_owned);
        let workload_namespaces = population.workloads.iter().map(|w| place(w).to_owned());
        let all: BTreeSet<String> = system_namespaces
            .into_iter()
            .chain(workload_namespaces)
            .chain(population.protected_namespaces.iter().cloned())
            .collect();
        for name in all {
            let mut labels = json!({"kubernetes.io/metadata.name": name});
            if population.protected_namespaces.contains(&name) {
                labels[PROTECTED] = json!("true");
            }
            let namespace = json!({
                "metadata": {"name": name, "labels": labels},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            self.create(&NAMESPACES, "", namespace)?;
        }
        Ok(())
    }

    fn nodes(&self, machines: &Machines) -> Result<(), ObjectError> {
        let stamp = self.objects.stamp();
        for machine in self.machines.values() {
            let mut node = nodes::node_of(machine);
            if let Some(seen) = machines.machine_status(&machine.address).filter(|seen| seen.state == State::Up) {
                nodes::report(&mut node, &stamp, &seen.boot_id, None);
            }
            self.create(&NODES, "", node)?;
        }
        Ok(())
    }

    /// Creates the endpoints of the API servers, and those of CKE's etcd if requested.
    fn endpoints(&self, cke: bool) -> Result<(), ObjectError> {
        let planes: Vec<&str> =
            self.machines.values().filter(|m| m.control_plane).map(|m| m.address.as_str()).collect();
        let services = [("default", "kubernetes", "https", 6443), ("kube-system", "cke-etcd", "etcd", 2379)];
        for (namespace, name, port_name, port) in services.into_iter().take(if cke { 2 } else { 1 }) {
            let addresses: Vec<_> = planes.iter().map(|ip| json!({"ip": ip})).collect();
            let ports = json!([{"name": port_name, "port": port, "protocol": "TCP"}]);
            let subsets =
                if addresses.is_empty() { json!([]) } else { json!([{"addresses": addresses, "ports": ports}]) };
            self.create(&ENDPOINTS, namespace, json!({"metadata": {"name": name}, "subsets": subsets}))?;
            let hosts: Vec<_> =
                planes.iter().map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect();
            let labels = json!({"kubernetes.io/service-name": name});
            let slice = json!({
                "metadata": {"name": name, "labels": labels}, "addressType": "IPv4", "endpoints": hosts, "ports": ports,
            });
            self.create(&ENDPOINT_SLICES, namespace, slice)?;
            let service = json!({
                "metadata": {"name": name},
                "spec": {"type": "ClusterIP", "clusterIP": if port == 6443 { "10.68.0.1" } else { "None" },
                    "ports": [{"name": port_name, "port": if port == 6443 { 443 } else { port }, "protocol": "TCP",
                        "targetPort": port}]},
            });
            self.create(&SERVICES, namespace, service)?;
        }
        Ok(())
    }

    fn workload(&mut self, workload: &Workload) -> Result<(), ObjectError> {
        let copies = workload.copies.max(1);
        for copy in 1..=copies {
            let name = if copies == 1 { workload.name.clone() } else { format!("{}-{copy}", workload.name) };
            self.create_owner(workload, &name, copy)?;
            if let Some(budget) = &workload.budget {
                let mut spec = json!({"selector": {"matchLabels": {"app": name}}});
                let amount = |amount: &Amount| match amount {
                    Amount::Number(number) => json!(number),
                    Amount::Share(share) => json!(share),
                };
                for (field, value) in [
                    ("minAvailable", budget.min_available.as_ref().map(amount)),
                    ("maxUnavailable", budget.max_unavailable.as_ref().map(amount)),
                    ("unhealthyPodEvictionPolicy", budget.unhealthy_pod_eviction_policy.as_ref().map(|p| json!(p))),
                ] {
                    if let Some(value) = value {
                        spec[field] = value;
                    }
                }
                self.create(&BUDGETS, place(workload), json!({"metadata": {"name": name}, "spec": spec}))?;
            }
        }
        Ok(())
    }

    /// Creates one owner with its pods.
    fn create_owner(&mut self, workload: &Workload, name: &str, copy: u32) -> Result<(), ObjectError> {
        let (namespace, replicas) = (place(workload), workload.replicas.max(1));
        let template = template(workload, name, copy);
        let labels = json!({"app": name});
        let owner = |more: Value| {
            let mut owner = json!({
                "metadata": {"name": name, "labels": labels},
                "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
            });
            json_patch::merge(&mut owner, &more);
            owner
        };
        match workload.kind {
            Kind::Deployment => {
                let deployment = self.create(&DEPLOYMENTS, namespace, owner(json!({})))?;
                let set = self.create(&REPLICA_SETS, namespace, deployments::replica_set_of(&deployment))?;
                let stem = format!("{}-", set["metadata"]["name"].as_str().unwrap_or_default());
                for _ in 0..replicas {
                    self.create_pod(namespace, object_fields::from_template(&set, &stem))?;
                }
            }
            Kind::StatefulSet => {
                let set = self.create(&STATEFUL_SETS, namespace, owner(json!({"spec": {"serviceName": name}})))?;
                for ordinal in 0..replicas as usize {
                    self.create_pod(namespace, stateful::replica(&set, name, ordinal))?;
                }
            }
            Kind::DaemonSet => {
                let strategy = if workload.on_delete { "OnDelete" } else { "RollingUpdate" };
                let more = json!({"spec": {"replicas": null, "updateStrategy": {"type": strategy}}});
                let set = self.create(&DAEMON_SETS, namespace, owner(more))?;
                let nodes: Vec<String> = self.machines.keys().filter(|n| runs_on(workload, n)).cloned().collect();
                for node in nodes {
                    self.create_pod(namespace, daemons::daemon(&set, name, &node))?;
                }
            }
            Kind::Job => {
                let more = json!({"spec": {"replicas": null, "selector": null, "completions": replicas,
                    "parallelism": replicas, "backoffLimit": 6, "completionMode": "NonIndexed"}});
                let job = self.create(&JOBS, namespace, owner(more))?;
                for _ in 0..replicas {
                    self.create_pod(namespace, object_fields::from_template(&job, &format!("{name}-")))?;
                }
            }
            Kind::Static => {
                let planes: Vec<String> =
                    self.machines.values().filter(|m| m.control_plane).map(|m| m.name.clone()).collect();
                for node in planes {
                    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
                    pod["metadata"]["name"] = json!(format!("{name}-{node}"));
                    pod["metadata"]["annotations"][controllers::MIRROR] = json!("static");
                    pod["spec"]["nodeName"] = json!(node);
                    self.create_pod(namespace, pod)?;
                }
            }
            Kind::Bare => {
                for number in 1..=replicas {
                    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
                    pod["metadata"]["name"] =
                        json!(if replicas == 1 { name.to_owned() } else { format!("{name}-{number}") });
                    self.create_pod(namespace, pod)?;
                }
            }
        }
        Ok(())
    }

    /// Creates a running pod on the node it is bound to, or on the worker with the fewest pods.
    fn create_pod(&mut self, namespace: &str, mut pod: Value) -> Result<(), ObjectError> {
        let wanted = pod["spec"]["nodeName"].as_str().or(pod["spec"]["nodeSelector"][HOST].as_str()).map(str::to_owned);
        let place = match &wanted {
            Some(node) => self.workers.iter().find(|(_, name)| name == node).cloned(),
            None => self.workers.first().cloned(),
        };
        // Without a worker the pod waits for the scheduler.
        let node = wanted.or_else(|| place.as_ref().map(|(_, name)| name.clone())).unwrap_or_default();
        if let Some((pods, name)) = place {
            self.workers.remove(&(pods, name.clone()));
            self.workers.insert((pods + 1, name));
            self.placed += 1;
        }
        if let Some(machine) = self.machines.get(&node) {
            pod["spec"]["nodeName"] = json!(node);
            let now = self.objects.clock().wall();
            // Pods started within the last hour, with spread-out start times.
            let age = SignedDuration::from_secs(i64::from(self.placed % 3_000) + 60);
            let ends = !pod["metadata"]["annotations"][controllers::RUNS].is_null();
            let started = if ends { now } else { now.checked_sub(age).unwrap_or(now) };
            kubelet::run(&mut pod, started, &machine.address);
        }
        self.create(&PODS, namespace, pod)?;
        Ok(())
    }
}

const HOST: &str = "kubernetes.io/hostname";

fn place(workload: &Workload) -> &str {
    if workload.namespace.is_empty() { "default" } else { &workload.namespace }
}

fn runs_on(workload: &Workload, node: &str) -> bool {
    workload.node.as_ref().is_none_or(|only| only == node)
}

fn template(workload: &Workload, name: &str, copy: u32) -> Value {
    let mut annotations = json!({});
    let runs = workload.runs_seconds.or((workload.kind == Kind::Job).then_some(Seconds::new(600.0)));
    if let Some(span) = runs {
        let spread = 1.0 + f64::from(copy - 1) / f64::from(workload.copies.max(1));
        annotations[controllers::RUNS] = json!((span * spread).get().to_string());
    }
    if let Some(span) = workload.stops_seconds {
        annotations[controllers::STOPS] = json!(span.get().to_string());
    }
    for (set, annotation) in [(workload.stuck, controllers::STUCK), (workload.never_ready, controllers::NEVER_READY)] {
        if set {
            annotations[annotation] = json!("true");
        }
    }
    let mut tolerations = Vec::new();
    if workload.control_planes || matches!(workload.kind, Kind::DaemonSet | Kind::Static) {
        tolerations.push(json!({"operator": "Exists", "effect": "NoSchedule"}));
    }
    let mut spec = json!({
        "containers": [{"name": name, "image": format!("registry.example/{}:1.0", workload.name)}],
        "terminationGracePeriodSeconds": workload.grace_seconds.unwrap_or(30),
        "restartPolicy": if workload.kind == Kind::Job { "Never" } else { "Always" },
        "tolerations": tolerations,
    });
    if let Some(node) = &workload.node {
        spec["nodeSelector"] = json!({HOST: node});
    }
    json!({"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": spec})
}

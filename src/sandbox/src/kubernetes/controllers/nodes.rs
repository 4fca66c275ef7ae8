//! Nodes: kubelet reports, and the status that is written when a kubelet is silent.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Manager, Work, expected,
    object_fields::{self, text},
};
use crate::{
    durations::duration_from_secs,
    kubernetes::resource::NODES,
    machines::{Machine, State},
};

/// The kubelet's version on every machine.
pub(crate) const KUBELET: &str = "v1.35.4";
const PRESSURES: [(&str, &str); 3] = [
    ("MemoryPressure", "KubeletHasSufficientMemory"),
    ("DiskPressure", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "KubeletHasSufficientPID"),
];

/// Returns the Node of a machine as its kubelet registers it.
pub(crate) fn node_of(machine: &Machine) -> Value {
    let Machine { name, address, control_plane, rack, .. } = machine;
    let role = if *control_plane { "control-plane" } else { "worker" };
    let (cpu, memory) = if *control_plane { ("16", "64Gi") } else { ("32", "256Gi") };
    let taints = if *control_plane {
        json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            format!("node-role.kubernetes.io/{role}"): "",
            "topology.kubernetes.io/zone": format!("rack{rack}"),
            "cke.cybozu.com/rack": rack.to_string(), "cke.cybozu.com/role": role,
        }},
        "spec": {"taints": taints},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "capacity": {"cpu": cpu, "memory": memory, "pods": "110"},
            "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "Flatcar Container Linux",
                "kernelVersion": "6.12.58-flatcar", "containerRuntimeVersion": "containerd://2.1.5",
                "kubeletVersion": KUBELET, "kubeProxyVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
            },
        },
    })
}

/// Writes a kubelet's report: the boot id, and Ready or the fault.
pub(crate) fn report(node: &mut Value, now: &str, boot_id: &str, fault: Option<&str>) {
    if !node["status"]["nodeInfo"].is_object() {
        node["status"]["nodeInfo"] = json!({"kubeletVersion": KUBELET});
    }
    node["status"]["nodeInfo"]["bootID"] = json!(boot_id);
    for (kind, reason) in PRESSURES {
        object_fields::set_condition(node, now, kind, "False", reason, "");
    }
    match fault {
        None => {
            object_fields::set_condition(node, now, "Ready", "True", "KubeletReady", "kubelet is posting ready status");
        }
        Some(why) => object_fields::set_condition(node, now, "Ready", "False", "KubeletNotReady", why),
    }
}

impl Manager {
    /// Returns the address of a Node's machine.
    pub(super) fn address_of(&self, node: &str) -> Option<String> {
        let object = self.index.nodes.get(node)?;
        let all = object["status"]["addresses"].as_array().into_iter().flatten().map(|a| text(&a["address"]));
        let known = all.into_iter().find(|a| self.kubelets.running.contains_key(*a)).map(str::to_owned);
        known.or_else(|| self.machines.address_of(node))
    }

    /// Returns the Nodes of a machine: one, unless somebody created a second one.
    fn nodes_at(&self, address: &str) -> Vec<String> {
        let of = |name: &String| self.address_of(name).as_deref() == Some(address);
        let by_name = self.machines.machine(address).map(|m| m.name).filter(of);
        match by_name {
            Some(name) => vec![name],
            None => self.index.nodes.keys().filter(|n| of(n)).cloned().collect(),
        }
    }

    pub(super) fn machine_down(&mut self, address: &str) {
        self.kubelets.running.insert(address.to_owned(), false);
        self.work_queue.cancel(&Work::Kubelet(address.to_owned()));
        self.work_queue.cancel(&Work::NodeReady(address.to_owned()));
        for node in self.nodes_at(address) {
            self.cancel_pod_steps(&node);
            self.enqueue_after(duration_from_secs(self.durations.node_monitor_grace), Work::NodeSilent(node));
        }
    }

    pub(super) fn machine_up(&mut self, address: &str) {
        if self.machines.machine(address).is_some_and(|m| m.apart) {
            return;
        }
        let delay = self.durations.kubelet_start.draw(&mut self.kubelets.boots);
        self.enqueue_after(delay, Work::Kubelet(address.to_owned()));
    }

    /// Handles a kubelet's first report after a boot. Registers the Node if there is none.
    pub(super) fn kubelet_reports(&mut self, address: &str) {
        let Some(seen) = self.machines.machine_status(address).filter(|seen| seen.state == State::Up) else { return };
        let stamp = self.objects.stamp();
        self.kubelets.running.insert(address.to_owned(), true);
        let mut nodes = self.nodes_at(address);
        if nodes.is_empty()
            && let Some(machine) = self.machines.machine(address)
        {
            expected(self.objects.create(&NODES, "", node_of(&machine)));
            self.catch_up();
            nodes = vec![machine.name];
        }
        for node in nodes {
            self.work_queue.cancel(&Work::NodeSilent(node.clone()));
            let fault = "container runtime status check may not have completed yet";
            expected(self.objects.update(&NODES, "", &node, |n| {
                report(n, &stamp, &seen.boot_id, Some(fault));
                Ok(())
            }));
            self.catch_up();
            self.pods_after_boot(&node);
        }
        let delay = self.durations.node_ready.draw(&mut self.kubelets.boots);
        self.enqueue_after(delay, Work::NodeReady(address.to_owned()));
    }

    /// Reports Ready, or reports the fault and tries again later.
    pub(super) fn node_ready(&mut self, address: &str) {
        let Some(seen) = self.machines.machine_status(address).filter(|seen| seen.state == State::Up) else { return };
        let trouble = seen.trouble_until.filter(|until| *until > Instant::now());
        if let Some(until) = trouble {
            self.work_queue.add_at(Work::NodeReady(address.to_owned()), until);
        }
        let fault = trouble.map(|_| "container runtime is down: /var/lib/containerd: input/output error");
        let stamp = self.objects.stamp();
        for node in self.nodes_at(address) {
            expected(self.objects.update(&NODES, "", &node, |n| {
                report(n, &stamp, &seen.boot_id, fault);
                Ok(())
            }));
        }
    }

    /// Handles a kubelet that was silent for the grace period: the Node's conditions become Unknown, and its pods not
    /// Ready.
    pub(super) fn node_silent(&mut self, node: &str) {
        let up = self.address_of(node).is_some_and(|address| self.kubelets.running.get(&address) == Some(&true));
        if up || !self.index.nodes.contains_key(node) {
            return;
        }
        let stamp = self.objects.stamp();
        expected(self.objects.update(&NODES, "", node, |n| {
            let kinds = PRESSURES.iter().map(|(kind, _)| *kind).chain(["Ready"]);
            for kind in kinds {
                let why = "Kubelet stopped posting node status.";
                object_fields::set_condition(n, &stamp, kind, "Unknown", "NodeStatusUnknown", why);
            }
            Ok(())
        }));
        for name in self.index.on(node) {
            let Some(pod) = self.index.pods.get(&name).filter(|pod| pod.ready) else { continue };
            self.write_pod(&name, &pod.uid, |pod| {
                object_fields::set_condition(pod, &stamp, "Ready", "False", "NodeNotReady", "");
            });
        }
    }

    /// Handles a Node that was added, changed or deleted.
    pub(super) fn node_changed(&mut self, before: Option<&Value>, now: Option<&Arc<Value>>) {
        let Some(object) = now.map(Arc::as_ref).or(before) else { return };
        let node = text(&object["metadata"]["name"]).to_owned();
        match now {
            Some(now) => self.index.nodes.insert(node.clone(), Arc::clone(now)),
            None => self.index.nodes.remove(&node),
        };
        self.scheduler_on_node(&node);
        if now.is_none() {
            self.work_queue.cancel(&Work::NodeSilent(node.clone()));
            return self.enqueue_after(duration_from_secs(self.durations.orphan_grace), Work::Orphans(node));
        }
        if Self::relabelled(before, object) {
            self.daemon_sets_on_node(&node);
        }
        let new = before.is_none_or(|b| b["metadata"]["uid"] != object["metadata"]["uid"]);
        if new {
            self.node_added(&node, object);
        }
    }

    fn node_added(&mut self, node: &str, object: &Value) {
        let seen = self.address_of(node).and_then(|address| Some((self.machines.machine_status(&address)?, address)));
        match seen {
            Some((seen, address)) if self.kubelets.running.get(&address) == Some(&true) => {
                let known = object["status"]["nodeInfo"]["bootID"] == seen.boot_id.as_str();
                if !known || object_fields::condition_status(object, "Ready") != "True" {
                    let delay = self.durations.node_ready.draw(&mut self.kubelets.boots);
                    self.enqueue_after(delay, Work::NodeReady(address));
                }
            }
            _ if object_fields::condition_status(object, "Ready") == "Unknown" => {}
            _ => self.enqueue_after(
                duration_from_secs(self.durations.node_monitor_grace),
                Work::NodeSilent(node.to_owned()),
            ),
        }
        // Pods may have existed before their Node.
        let pods: BTreeSet<_> = self.index.on(node).into_iter().collect();
        for name in pods {
            self.kubelet_on_pod(&name, None);
        }
    }
}

//! Nodes, pods, budgets and Jobs on a world, and the matching cluster definition.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value, json};

use super::{Backend, World, program::cketerm, wait_for};
use crate::stalls::Stopwatch;

/// One machine of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of the Node.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Whether it is an API server.
    pub control_plane: bool,
}

/// Machines `cp1..` and `w1..`.
pub fn machines(control_planes: usize, workers: usize) -> Vec<Machine> {
    let one = |control_plane: bool, i: usize| Machine {
        name: if control_plane { format!("cp{}", i + 1) } else { format!("w{}", i + 1) },
        address: format!("10.0.{}.{}", if control_plane { 0 } else { 1 + i / 200 }, i % 200 + 11),
        control_plane,
    };
    (0..control_planes).map(|i| one(true, i)).chain((0..workers).map(|i| one(false, i))).collect()
}

/// One line of the machines' own log of commands.
#[derive(Clone, Debug, PartialEq)]
pub struct Power {
    /// Unix time.
    pub at: f64,
    /// `begin` or `end`.
    pub what: String,
    /// Address of the machine.
    pub address: String,
}

impl World {
    /// Command of a definition for that verb. cketerm appends the address and, for a check, the time.
    fn command(&self, verb: &str) -> Value {
        match &self.backend {
            Backend::Real(..) => {
                let script = Path::new(crate::ROOT).join("tests/servers/fake-reboot");
                json!([script, self.dir(), verb])
            }
            Backend::Sandbox(served) => {
                json!([crate::binary::cketerm(), "sandbox", "machine", "--at", served.machines, verb])
            }
        }
    }

    /// A definition whose reboot and check commands reach this world's machines; `reboot` overrides fields.
    pub fn definition(&self, machines: &[Machine], reboot: &Value) -> Value {
        let mut section = json!({
            "reboot_command": self.command("reboot"),
            "boot_check_command": self.command("check"),
            "eviction_timeout_seconds": 60,
            "command_timeout_seconds": 20,
        });
        for (name, value) in reboot.as_object().into_iter().flatten() {
            section[name] = value.clone();
        }
        let nodes: Vec<Value> = machines
            .iter()
            .map(
                |m| json!({"address": m.address, "hostname": m.name, "user": "root", "control_plane": m.control_plane}),
            )
            .collect();
        // CKE requires this field
        let options = json!({"kubelet": {"cri_endpoint": "/run/containerd/containerd.sock"}});
        json!({"name": "test", "nodes": nodes, "service_subnet": "10.0.0.0/24", "reboot": section, "options": options})
    }

    /// Sets the duration of every reboot command from now on, in seconds.
    pub fn set_command_seconds(&self, seconds: u32) {
        match &self.backend {
            Backend::Real(..) => std::fs::write(self.dir().join("seconds"), seconds.to_string()).expect("a file"),
            Backend::Sandbox(served) => served.behave(&json!({"command_seconds": seconds})),
        }
    }

    /// Boot id that a Node's kubelet reports.
    pub fn boot_id(&self, node: &str) -> String {
        self.node(node)["status"]["nodeInfo"]["bootID"].as_str().expect("a boot id").to_owned()
    }

    /// Adds machines and waits until their Nodes are Ready.
    pub fn add_nodes(&self, machines: &[Machine]) {
        for m in machines {
            if let Backend::Sandbox(served) = &self.backend {
                // the sandbox's kubelets register the Nodes
                served.add_machine(m);
                continue;
            }
            let role = if m.control_plane {
                "node-role.kubernetes.io/control-plane"
            } else {
                "node-role.kubernetes.io/worker"
            };
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": m.name, "labels": {"kubernetes.io/hostname": m.name, role: ""}},
                "spec": {}, "status": {
                    "addresses": [{"type": "InternalIP", "address": m.address}, {"type": "Hostname", "address": m.name}],
                    "capacity": {"cpu": "32", "memory": "256Gi", "pods": "110"},
                    "allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"},
                    "nodeInfo": {"bootID": format!("first-{}", m.name), "architecture": "amd64", "operatingSystem": "linux",
                        "kernelVersion": "6.6.74", "kubeletVersion": "v1.35.4", "containerRuntimeVersion": "containerd://2.0.2",
                        "osImage": "Flatcar", "kubeProxyVersion": "", "machineID": "", "systemUUID": ""}}});
            self.ok("POST", "/api/v1/nodes", Some(&node));
        }
        wait_for("the nodes are Ready", 60, || {
            let ready = |n: &Value| {
                let conditions = n["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
            };
            let list = self.ok("GET", "/api/v1/nodes", None);
            let ready = list["items"].as_array()?.iter().filter(|n| ready(n)).count();
            (ready >= machines.len()).then_some(())
        });
    }

    /// Creates a pod on a node, with one label `app`.
    pub fn add_pod(&self, namespace: &str, name: &str, node: &str, app: &str, owner: Option<&Value>) {
        self.ok(
            "POST",
            &format!("/api/v1/namespaces/{namespace}/pods"),
            Some(&json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": app}, "ownerReferences": owner.map_or_else(|| json!([]), |o| json!([o]))},
                "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "c", "image": "registry.invalid/pause:1"}]}})),
        );
    }

    /// Waits until every pod of the namespace runs.
    pub fn wait_for_running_pods(&self, namespace: &str) {
        wait_for("the pods run", 60, || {
            let list = self.ok("GET", &format!("/api/v1/namespaces/{namespace}/pods"), None);
            let pods = list["items"].as_array()?;
            pods.iter().all(|p| p["status"]["phase"] == "Running").then_some(())
        });
    }

    /// Creates a budget over the pods of `app` (`min_available` of them must stay) and waits for its status.
    pub fn add_budget(&self, namespace: &str, name: &str, app: &str, min_available: i64) {
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
        self.ok(
            "POST",
            &path,
            Some(&json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
                "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}}})),
        );
        wait_for("the budget has a status", 30, || {
            self.ok("GET", &format!("{path}/{name}"), None)["status"]["observedGeneration"].as_i64().filter(|g| *g > 0)
        });
    }

    /// Creates a Job and returns the owner reference for its pods. No controller creates pods for it, because its spec
    /// names another manager.
    pub fn add_job(&self, namespace: &str, name: &str) -> Value {
        let job = self.ok(
            "POST",
            &format!("/apis/batch/v1/namespaces/{namespace}/jobs"),
            Some(&json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
                "managedBy": "test.example/nobody", "manualSelector": true, "selector": {"matchLabels": {"job": format!("{name}-none")}},
                "template": {"metadata": {"labels": {"job": format!("{name}-none")}}, "spec": {"restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "registry.invalid/pause:1"}]}}}})),
        );
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": true})
    }

    /// Returns a Node in its present state.
    pub fn node(&self, name: &str) -> Value {
        self.ok("GET", &format!("/api/v1/nodes/{name}"), None)
    }

    /// Names of cordoned Nodes.
    pub fn cordoned(&self) -> Vec<String> {
        let list = self.ok("GET", "/api/v1/nodes", None);
        let nodes = list["items"].as_array().cloned().unwrap_or_default();
        let cordoned = nodes.iter().filter(|n| n["spec"]["unschedulable"] == true);
        cordoned.filter_map(|n| Some(n["metadata"]["name"].as_str()?.to_owned())).collect()
    }

    /// Sets the cluster up as a user would: definition, constraints, policy for a test, identity.
    pub fn set_up(&self, machines: &[Machine], reboot: &Value) {
        let file = self.dir().join("cluster.yaml");
        std::fs::write(&file, self.definition(machines, reboot).to_string()).expect("a file");
        let control_planes = machines.iter().filter(|m| m.control_plane).count().to_string();
        self.run(&["constraints", "set", "control-plane-count", &control_planes]);
        self.run(&["cluster", "set", &file.display().to_string()]);
        self.run(&["policy", "set", "settle_seconds", "5", "--for-handover"]);
        // these control planes run no etcd, so cketerm must not check its members
        self.run(&["policy", "set", "etcd_members", "none", "--for-handover"]);
        let probe = match &self.backend {
            Backend::Real(..) => format!("{}/readyz?of={{address}}", self.api),
            Backend::Sandbox(served) => format!("{}/machines/{{address}}/readyz", served.machines),
        };
        self.run(&["policy", "set", "control_plane_probe", &probe, "--for-handover"]);
        self.run(&["cluster", "identify", "--confirm"]);
    }

    /// One API server and this many workers, with two pods of the app `web` on the first, everything set up.
    pub fn set_up_web(&self, workers: usize) {
        let machines = machines(1, workers);
        self.add_nodes(&machines);
        for i in 0..2 {
            self.add_pod("default", &format!("web-{i}"), "w1", "web", None);
        }
        self.wait_for_running_pods("default");
        self.set_up(&machines, &json!({}));
    }

    /// Queues these machines.
    pub fn queue(&self, machines: &[&Machine]) {
        let file = self.dir().join("addresses");
        let text: Vec<&str> = machines.iter().map(|m| m.address.as_str()).collect();
        std::fs::write(&file, text.join("\n")).expect("a file");
        self.run(&["rq", "add", &file.display().to_string()]);
    }

    /// The reboot queue as stored in etcd, by index; unreadable values as strings.
    pub fn entries(&self) -> BTreeMap<u64, Value> {
        let list: Vec<Value> = serde_json::from_str(&self.run(&["rq", "list", "-o", "json"])).expect("a list");
        list.into_iter().filter_map(|e| Some((e["index"].as_str()?.parse().ok()?, e))).collect()
    }

    /// Waits until the queue is empty.
    pub fn wait_for_empty_queue(&self, seconds: u64) {
        wait_for("the reboot queue is empty", seconds, || self.entries().is_empty().then_some(()));
    }

    /// Waits until the queue is empty, while an operator checks the machines: a leader killed between a command's record
    /// and its start leaves an unknown outcome, and only a person may say that the command never began.
    pub fn wait_for_empty_queue_with_operator(&self, seconds: u64) {
        wait_for("the reboot queue is empty", seconds, || {
            let entries = self.entries();
            let begun = self.power();
            for (index, entry) in entries.iter().filter(|(_, e)| e["status"] == "rebooting") {
                let index = index.to_string();
                let never_began = begun.iter().all(|p| entry["node"] != p.address);
                let why = || cketerm(&self.config(), &["rq", "why", &index, "-o", "json"]).stdout;
                if never_began && why().contains("OutcomeUnknown") {
                    cketerm(&self.config(), &["rq", "retry", &index, "--reason", "it never began"]);
                }
            }
            entries.is_empty().then_some(())
        });
    }

    /// Waits until the entry has this status.
    pub fn wait_for_entry_status(&self, index: u64, status: &str, seconds: u64) {
        self.wait_or_explain(index, &format!("entry {index} is {status}"), seconds, || {
            (self.entries().get(&index)?["status"] == status).then_some(())
        });
    }

    /// Waits for a condition of an entry; on a timeout it prints the entry's reason.
    pub fn wait_or_explain<T>(&self, index: u64, what: &str, seconds: u64, mut poll: impl FnMut() -> Option<T>) -> T {
        let began = Stopwatch::start();
        loop {
            if let Some(found) = poll() {
                return found;
            }
            if began.elapsed().as_secs() >= seconds {
                let why = cketerm(&self.config(), &["rq", "why", &index.to_string(), "-o", "json"]);
                panic!("timed out after {seconds} s: {what}\n{}{}", why.stdout, why.stderr);
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    /// Log of the machines.
    pub fn power(&self) -> Vec<Power> {
        if let Backend::Sandbox(served) = &self.backend {
            return served.power();
        }
        let text = std::fs::read_to_string(self.dir().join("reboots.log")).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split(' ');
            let (at, what, address) = (words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?.to_owned());
            Some(Power { at, what, address })
        };
        text.lines().filter_map(line).collect()
    }
}

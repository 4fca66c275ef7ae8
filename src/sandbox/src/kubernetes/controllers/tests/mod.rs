//! Tests of each controller in a small data centre on a paused clock.

mod machines;
mod others;
mod owners;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Controllers, nodes, object_fields};
use crate::{
    durations::Durations,
    kubernetes::{
        Objects, Resource,
        resource::{NODES, PODS},
    },
    machines::{Behaviour, Machine, Machines},
};

/// Objects, machines and the controllers over them.
struct TestCluster {
    objects: Objects,
    machines: Machines,
    _controllers: Controllers,
}

impl TestCluster {
    /// Creates workers `m1..` at 10.0.0.1 and up, running and Ready.
    fn new(workers: u32) -> Self {
        Self::with(workers, Durations::demo(), &Behaviour::default())
    }

    fn with(workers: u32, durations: Durations, behaviour: &Behaviour) -> Self {
        let clock = cketerm_runtime::tokio_clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
        let one = |n: u32| Machine {
            name: format!("m{n}"),
            address: format!("10.0.0.{n}"),
            behaviour: behaviour.clone(),
            ..Machine::default()
        };
        let machines = Machines::new((1..=workers).map(one).collect(), durations.clone(), clock.clone(), 3);
        let objects = Objects::new(clock);
        for machine in machines.list() {
            let mut node = nodes::node_of(&machine);
            nodes::report(
                &mut node,
                &objects.stamp(),
                &machines.machine_status(&machine.address).unwrap().boot_id,
                None,
            );
            objects.create(&NODES, "", node).unwrap();
        }
        let controllers = Controllers::start(objects.clone(), machines.clone(), durations, 5);
        Self { objects, machines, _controllers: controllers }
    }

    async fn command(&self, text: &str) {
        let argv: Vec<_> = text.split(' ').map(str::to_owned).collect();
        self.machines.command(&argv, &[]).await;
    }

    fn create(&self, resource: &'static Resource, namespace: &str, object: Value) -> Arc<Value> {
        self.objects.create(resource, namespace, object).unwrap()
    }

    fn pod(&self, name: &str, more: &Value) {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        json_patch::merge(&mut pod, more);
        self.create(&PODS, "default", pod);
    }

    fn node(&self, name: &str) -> Arc<Value> {
        self.objects.get(&NODES, "", name).unwrap()
    }

    fn node_ready(&self, name: &str) -> String {
        object_fields::condition_status(&self.node(name), "Ready").to_owned()
    }

    /// Returns `name node phase ready` of every pod, with `-` for a missing value, and `ending` for a pod with a
    /// deletion timestamp.
    fn pods(&self) -> Vec<String> {
        let or_dash = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |pod: &Arc<Value>| {
            let (name, node) = (or_dash(&pod["metadata"]["name"]), or_dash(&pod["spec"]["nodeName"]));
            let ready = if object_fields::condition_status(pod, "Ready") == "True" { "ready" } else { "unready" };
            let ending = if object_fields::is_being_deleted(pod) { " ending" } else { "" };
            format!("{name} {node} {} {ready}{ending}", or_dash(&pod["status"]["phase"]))
        };
        self.objects.list(&PODS, "").0.iter().map(line).collect()
    }

    /// Marks a pod as terminating, as an eviction or a deletion does.
    fn end(&self, name: &str, grace: u64) {
        let end = |pod: &mut Value| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-11-21T01:00:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            Ok(())
        };
        self.objects.update(&PODS, "default", name, end).unwrap();
    }
}

async fn seconds(n: f64) {
    sleep(Duration::from_secs_f64(n)).await;
}

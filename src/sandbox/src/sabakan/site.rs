//! The operators and programs around sabakan at a site without CKE. They report machines that went down, and set up the
//! machines that the definition names as nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fastrand::Rng;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Sabakan, State};
use crate::{
    durations::duration_from_secs,
    etcd::Etcd,
    kubernetes::{Objects, resource::NODES},
    machines::{self, Machine, Machines},
    workload::Registry,
};

/// Interval between two passes.
const INTERVAL: Duration = Duration::from_millis(500);

/// Operators and programs of the site. They stop when their task is dropped.
pub struct SiteOperators {
    sabakan: Sabakan,
    machines: Machines,
    objects: Objects,
    etcd: Etcd,
    registry: Registry,
    rng: Rng,
    /// The last definition that was read.
    seen: Vec<u8>,
    /// Members of the definition by address: name, and whether it is a control plane.
    members: BTreeMap<String, (String, bool)>,
    /// Times at which machines join and leave, by address.
    joining: BTreeMap<String, Instant>,
    leaving: BTreeMap<String, Instant>,
    /// Whether a machine is up, and since when, by serial.
    power_changes: BTreeMap<String, (bool, Instant)>,
    /// Machines that this site reported unreachable, and machines that it made ill, by serial.
    unreachable: BTreeSet<String>,
    ill: BTreeSet<String>,
}

impl SiteOperators {
    /// Creates the site around these components.
    pub fn new(
        sabakan: Sabakan,
        machines: Machines,
        objects: Objects,
        etcd: Etcd,
        registry: &Registry,
        seed: u64,
    ) -> Self {
        Self {
            sabakan,
            machines,
            objects,
            etcd,
            registry: registry.clone(),
            rng: Rng::with_seed(seed ^ 0x7369_7465),
            seen: Vec::new(),
            members: BTreeMap::new(),
            joining: BTreeMap::new(),
            leaving: BTreeMap::new(),
            power_changes: BTreeMap::new(),
            unreachable: BTreeSet::new(),
            ill: BTreeSet::new(),
        }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        loop {
            self.read_definition();
            self.join_and_leave();
            self.report_states();
            sleep(INTERVAL).await;
        }
    }

    fn read_definition(&mut self) {
        let Some(text) = self.etcd.get("/cke/cluster") else { return };
        if text == self.seen {
            return;
        }
        let Ok(definition) = serde_json::from_slice::<Value>(&text) else { return };
        self.seen = text;
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let before = std::mem::take(&mut self.members);
        for node in definition["nodes"].as_array().into_iter().flatten() {
            let (address, hostname) = (text(&node["address"]), text(&node["hostname"]));
            let name = if hostname.is_empty() { address.clone() } else { hostname };
            self.members.insert(address, (name, node["control_plane"] == true));
        }
        let now = Instant::now();
        for (address, (_, plane)) in &self.members {
            let is_unchanged = self.machines.machine(address).is_some_and(|m| m.control_plane == *plane);
            if is_unchanged {
                self.joining.remove(address);
            } else {
                let takes = self.registry.joins.draw(&mut self.rng);
                self.joining.entry(address.clone()).or_insert(now + takes);
            }
            self.leaving.remove(address);
        }
        for address in before.into_keys().filter(|a| !self.members.contains_key(a)) {
            self.joining.remove(&address);
            let takes = self.registry.joins.draw(&mut self.rng);
            self.leaving.entry(address).or_insert(now + takes);
        }
    }

    fn join_and_leave(&mut self) {
        for address in take_due(&mut self.joining) {
            let Some((name, plane)) = self.members.get(&address) else { continue };
            if self.machines.promote(&address, *plane) {
                continue;
            }
            // A machine without a sabakan record cannot join.
            let Some(record) = self.sabakan.by_address(&address) else { continue };
            let rack = u32::try_from(record.rack).unwrap_or(0);
            let machine = Machine { name: name.clone(), address, control_plane: *plane, rack, ..Machine::default() };
            self.machines.rack(machine);
        }
        for address in take_due(&mut self.leaving) {
            let (nodes, _) = self.objects.list(&NODES, "");
            for node in nodes {
                let here =
                    node["status"]["addresses"].as_array().into_iter().flatten().any(|a| a["address"] == *address);
                if let (true, Some(name)) = (here, node["metadata"]["name"].as_str()) {
                    // The Node may have been deleted meanwhile.
                    let _ = self.objects.remove(&NODES, "", name, |_| Ok(()));
                }
            }
            self.machines.unrack(&address);
        }
    }

    fn report_states(&mut self) {
        let now = Instant::now();
        for record in self.sabakan.search(|_| true) {
            let Some(address) = record.ipv4.first() else { continue };
            let Some(seen) = self.machines.machine_status(address) else { continue };
            let up = seen.state == machines::State::Up;
            let serial = record.serial.clone();
            let last_change = self.power_changes.entry(serial.clone()).or_insert((up, now));
            if last_change.0 != up {
                *last_change = (up, now);
            }
            if now.duration_since(last_change.1) < duration_from_secs(self.registry.notices) {
                continue;
            }
            let next = if !up {
                let alive = matches!(record.state, State::Healthy | State::Unhealthy);
                (alive && self.unreachable.insert(serial.clone())).then_some(State::Unreachable)
            } else if record.state == State::Unreachable && self.unreachable.remove(&serial) {
                Some(State::Healthy)
            } else {
                self.next_repair_state(&serial, address, record.state)
            };
            if let Some(next) = next {
                // sabakan may refuse the transition.
                let _ = self.sabakan.set_state(&serial, next);
            }
        }
    }

    /// Makes a machine in the state unhealthy ill until a repair has fixed it.
    fn next_repair_state(&mut self, serial: &str, address: &str, state: State) -> Option<State> {
        let behaviour = self.machines.behaviour(address).unwrap_or_default();
        if state != State::Unhealthy {
            self.ill.remove(serial);
            return None;
        }
        if self.ill.insert(serial.to_owned()) {
            self.machines.behave(address, machines::Behaviour { ill: behaviour.ill.max(1), ..behaviour });
            return None;
        }
        (behaviour.ill == 0).then_some(State::Healthy)
    }
}

/// Removes and returns the addresses whose time has come.
fn take_due(all: &mut BTreeMap<String, Instant>) -> Vec<String> {
    let now = Instant::now();
    let expired: Vec<String> = all.iter().filter(|(_, at)| **at <= now).map(|(a, _)| a.clone()).collect();
    for address in &expired {
        all.remove(address);
    }
    expired
}

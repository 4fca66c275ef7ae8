//! A small world: etcd, Kubernetes, machines and two engines, as one value. A step makes the next value.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    clock::Now,
    cluster::{Cluster, Node},
    entry::EntryId,
    kube::{KubeView, NodePods, NodeRow, PodRow, SourceState},
    names::{Address, NodeName},
    policy::{EtcdMembers, Policy},
    reboot::RebootEntry,
    repair::RepairEntry,
    stored::keys::Keys,
    time::after,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use crate::{
    canon::{Canon, FIRST_BOOT, FIRST_REVISION, START_SECONDS},
    engine::Engine,
    etcd::Etcd,
    laws::Breach,
};

/// Time to live of the leader's lease, in seconds.
pub const TTL: i64 = 60;
/// Seconds after which a command is killed.
const COMMAND_TIMEOUT: i64 = 30;

/// Contents of a world, and the faults and persons that act in it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name, for the report.
    pub name: &'static str,
    /// Number of API servers.
    pub api_servers: u8,
    /// Number of workers; each has one pod.
    pub workers: u8,
    /// Machines with a queued reboot, by their place: API servers first.
    pub reboots: &'static [usize],
    /// Machines with a queued repair.
    pub repairs: &'static [usize],
    /// Maximum number of reboots at once.
    pub at_once: i64,
    /// Events that may happen, each with a number.
    pub budget: Budget,
}

/// Number of times that each kind of event may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// An engine is killed for good.
    pub kills: u8,
    /// A process stands still for a while.
    pub stalls: u8,
    /// A command fails.
    pub failures: u8,
    /// An operator cancels a reboot.
    pub cancels: u8,
    /// CKE's client cancels a reboot that it read some time before, without a comparison.
    pub blind_cancels: u8,
    /// An operator holds an entry and lets it go on again.
    pub holds: u8,
    /// An operator ends an entry with `done`.
    pub dones: u8,
    /// An operator orders a further try.
    pub retries: u8,
    /// An operator disables the reboot queue.
    pub switches: u8,
    /// An administrator cordons or uncordons a Node with kubectl.
    pub cordons: u8,
    /// A request of an engine, or the answer to it, is lost.
    pub losses: u8,
}

/// A machine.
#[allow(clippy::struct_excessive_bools)] // independent facts
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Number of its boots.
    pub boots: u32,
    /// Whether it is switched off or booting.
    pub down: bool,
    /// Whether it went down by a command of an engine, and no operator has called it back since.
    pub commanded: bool,
    /// Whether an administrator has ever cordoned or uncordoned its Node.
    pub touched_by_admin: bool,
    /// Whether an administrator wants its Node cordoned.
    pub cordoned_by_admin: bool,
}

/// A command that runs on the host of an engine.
#[derive(Clone, Debug, Serialize)]
pub struct Command {
    /// The engine that started it.
    pub engine: usize,
    /// The attempt.
    pub attempt: String,
    /// The entry.
    pub entry: EntryId,
    /// Place of its machine.
    pub machine: usize,
    /// Time at which it began.
    pub began: BootTime,
}

/// Counts over the whole history of a world, for the rules that limit them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Commands begun, by entry.
    pub begun: BTreeMap<EntryId, u8>,
    /// Retries that operators ordered, by entry.
    pub ordered: BTreeMap<EntryId, u8>,
    /// Entries that an operator ended with `done`.
    pub done: BTreeSet<EntryId>,
}

/// A state of the world.
#[derive(Clone, Debug)]
pub struct World {
    /// Seconds since the start.
    pub now: i64,
    /// The store.
    pub etcd: Etcd,
    /// Kubernetes.
    pub kube: Arc<KubeView>,
    /// Machines by place.
    pub machines: Vec<Machine>,
    /// The engines, each on a host of its own.
    pub engines: Vec<Engine>,
    /// Commands that run.
    pub commands: Vec<Command>,
    /// Events that may still happen.
    pub budget: Budget,
    /// A reboot entry that CKE's client has read and not written back yet.
    pub blind: Option<RebootEntry>,
    /// Counts that rules limit.
    pub counts: Counts,
    /// Number that the next version of a Kubernetes object gets.
    pub kube_revision: i64,
    /// Number of API servers; they are the first machines.
    pub api_servers: usize,
    /// Maximum number of reboots at once.
    pub at_once: i64,
    /// An invariant that the last step broke.
    pub breach: Option<Breach>,
}

/// Returns the keys below CKE's prefix.
pub fn keys() -> &'static Keys {
    static KEYS: std::sync::OnceLock<Keys> = std::sync::OnceLock::new();
    KEYS.get_or_init(|| Keys::new("/cke/"))
}

/// Returns the address of a machine, which is also the name of its Node.
pub fn address(place: usize) -> Address {
    Address::new(format!("10.0.0.{}", place + 1))
}

impl World {
    /// Creates the first state.
    pub fn new(plan: &Plan) -> Self {
        let mut etcd = Etcd::new();
        let count = usize::from(plan.api_servers + plan.workers);
        let keys = keys();
        let mut put = |key: String, value: String| {
            etcd.put(keys, &key, &value);
        };
        put(keys.cluster(), text(&definition(plan, count)));
        let policy = Policy { etcd_members: EtcdMembers::None, ..Policy::default() };
        put(keys.policy(), text(&policy));
        for (index, place) in plan.reboots.iter().enumerate() {
            let index = u64::try_from(index).unwrap_or_default();
            put(keys.reboot(index), text(&RebootEntry::queued(index, &address(*place))));
        }
        for (index, place) in plan.repairs.iter().enumerate() {
            let index = u64::try_from(index).unwrap_or_default();
            put(keys.repair(index), text(&RepairEntry::queued(index, &address(*place), "t", "fix", None)));
        }
        let mut kube = KubeView { rights_known: true, ..KubeView::default() };
        let mut kube_revision = FIRST_REVISION;
        for place in 0..count {
            kube_revision += 1;
            let name = NodeName::new(address(place).as_str());
            kube.put_node(NodeRow {
                name: name.clone(),
                uid: format!("uid-{place}"),
                resource_version: kube_revision.to_string(),
                addresses: vec![address(place)],
                ready: true,
                boot_id: "boot-0".to_owned(),
                ..NodeRow::default()
            });
            let mut pods = NodePods { synced: true, fresh_as_of: BootTime::new(1e12), ..NodePods::default() };
            if place >= usize::from(plan.api_servers) {
                let pod = pod(place, 0);
                pods.pods.insert(pod.uid.clone(), Arc::new(pod));
            }
            kube.pods.insert(name, pods);
        }
        let machine =
            Machine { boots: 0, down: false, commanded: false, touched_by_admin: false, cordoned_by_admin: false };
        let mut world = Self {
            now: 0,
            etcd,
            kube: Arc::new(kube),
            machines: vec![machine; count],
            engines: vec![Engine::new(0), Engine::new(1)],
            commands: Vec::new(),
            budget: plan.budget,
            blind: None,
            counts: Counts::default(),
            kube_revision,
            api_servers: usize::from(plan.api_servers),
            at_once: plan.at_once,
            breach: None,
        };
        world.refresh();
        world
    }

    /// Returns the present time.
    pub fn time(&self) -> Now {
        Now { boot: self.boot(), wall: self.wall() }
    }

    /// Returns the present boot time, which is the same on both hosts.
    pub fn boot(&self) -> BootTime {
        BootTime::new(FIRST_BOOT) + seconds(self.now)
    }

    /// Returns the present wall time.
    pub fn wall(&self) -> Timestamp {
        after(Timestamp::UNIX_EPOCH, MIDNIGHT + START_SECONDS + self.now)
    }

    /// Marks all copies as just heard: watches work in these worlds.
    pub fn refresh(&mut self) {
        let boot = self.boot();
        Arc::make_mut(&mut self.etcd.view).last_seen = boot;
        let kube = Arc::make_mut(&mut self.kube);
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets", "endpoints", "baremetalhosts"] {
            let state = SourceState { synced: true, last_seen: boot, fresh_as_of: boot, error: None, forbidden: false };
            kube.sources.insert(source.to_owned(), state);
        }
    }

    /// Changes a Node, as the API server does it.
    pub fn change_node(&mut self, place: usize, change: impl FnOnce(&mut NodeRow)) {
        self.kube_revision += 1;
        let revision = self.kube_revision;
        let kube = Arc::make_mut(&mut self.kube);
        let Some(row) = kube.by_name.get(&NodeName::new(address(place).as_str())) else { return };
        let mut row = NodeRow::clone(row);
        change(&mut row);
        row.resource_version = revision.to_string();
        kube.put_node(row);
    }

    /// Returns the Node of a machine.
    pub fn node(&self, place: usize) -> Option<&Arc<NodeRow>> {
        self.kube.by_name.get(&NodeName::new(address(place).as_str()))
    }

    /// Returns the place of the machine with this Node or address.
    pub fn place(&self, name: &str) -> Option<usize> {
        (0..self.machines.len()).find(|place| address(*place).as_str() == name)
    }

    /// Returns the pods on a machine.
    pub fn pods(&self, place: usize) -> impl Iterator<Item = &Arc<PodRow>> {
        self.kube.pods.get(&NodeName::new(address(place).as_str())).into_iter().flat_map(|pods| pods.pods.values())
    }

    /// Adds the pod of a machine, or removes it.
    pub fn set_pod(&mut self, place: usize, row: Option<PodRow>) {
        let kube = Arc::make_mut(&mut self.kube);
        if let Some(pods) = kube.pods.get_mut(&NodeName::new(address(place).as_str())) {
            pods.pods.clear();
            if let Some(row) = row {
                pods.pods.insert(row.uid.clone(), Arc::new(row));
            }
        }
    }

    /// Notes that something has changed that engines watch.
    pub fn changed(&mut self) {
        for engine in &mut self.engines {
            engine.dirty = true;
        }
    }

    /// Returns the fingerprint of the state.
    pub fn fingerprint(&self) -> u64 {
        let mut canon = Canon::new(self.now);
        let view = &self.etcd.view;
        canon.add(&(&view.reboots, &view.repairs, &view.candidates, view.policy.as_ref().map(|s| s.mod_revision)));
        let attempts: Vec<_> = view.attempts.values().collect();
        canon.add(&(attempts, &view.orders, &view.requests));
        for place in 0..self.machines.len() {
            if let Some(node) = self.node(place) {
                canon.add(&(node.unschedulable, node.ready, &node.boot_id, &node.resource_version));
                canon.add(&(&node.owner, node.cke_mark, node.keep_cordoned));
            }
            for pod in self.pods(place) {
                canon.add(&(&pod.uid, &pod.terminating_since));
            }
        }
        canon.add(&(&self.machines, &self.commands, &self.budget, &self.blind, &self.counts));
        for engine in &self.engines {
            engine.add_to(&mut canon);
        }
        canon.fingerprint()
    }
}

/// Seconds from the epoch to the midnight at which the day of these worlds begins: 2026-08-01.
const MIDNIGHT: i64 = 1_785_542_400;

/// Returns a span of whole seconds.
pub fn seconds(count: i64) -> Seconds {
    i32::try_from(count).map_or(Seconds::new(f64::MAX), |count| Seconds::new(f64::from(count)))
}

/// Returns the pod that a machine has in this boot.
pub fn pod(place: usize, boot: u32) -> PodRow {
    PodRow {
        namespace: "shop".to_owned(),
        name: format!("web-{place}-{boot}"),
        uid: format!("pod-{place}-{boot}"),
        node: NodeName::new(address(place).as_str()),
        phase: "Running".to_owned(),
        ready: true,
        ..PodRow::default()
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn definition(plan: &Plan, count: usize) -> Cluster {
    let mut cluster = Cluster { name: "small".to_owned(), ..Cluster::default() };
    for place in 0..count {
        let control_plane = place < usize::from(plan.api_servers);
        cluster.nodes.push(Node { address: address(place), control_plane, ..Node::default() });
    }
    cluster.reboot.reboot_command = Some(vec!["reboot".to_owned()]);
    cluster.reboot.boot_check_command = Some(vec!["check".to_owned()]);
    cluster.reboot.max_concurrent_reboots = Some(plan.at_once);
    cluster.reboot.command_timeout_seconds = Some(COMMAND_TIMEOUT);
    let repair = json!({"repair_procedures": [{"machine_types": ["t"], "repair_operations": [
        {"operation": "fix", "health_check_command": ["health"], "command_timeout_seconds": COMMAND_TIMEOUT,
         "repair_steps": [{"repair_command": ["fix"], "need_drain": true, "watch_seconds": 120,
                           "command_timeout_seconds": COMMAND_TIMEOUT}]}]}]});
    cluster.repair = serde_json::from_value(repair).unwrap_or_default();
    cluster
}

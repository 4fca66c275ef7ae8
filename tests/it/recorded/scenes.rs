//! The recorded scenarios as snapshots that an engine would have.

use std::{io::Read, sync::Arc};

use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended, Outcome},
    boot_time::{BootTime, Seconds},
    cluster::{Cluster, Members, Node, Reboot, Repair},
    constraints::Constraints,
    entry::{EntryId, Stored},
    kube::{KubeView, NodePods, NodeRow, Owner, PodRow, SourceState},
    names::{Address, NodeName},
    policy::{EtcdMembers, Policy},
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, StepStatus},
    stored::view::{Definition, StoreView, Switch},
    time::after,
};
use cketerm_rules::snapshot::{Engine, Leading, Probe, Snapshot, Work};
use jiff::Timestamp;
use serde_json::{Value, json};

const LEASE: i64 = 7;
pub(super) const BOOT: BootTime = BootTime::new(100_000.0);

pub(super) fn now() -> Timestamp {
    "2026-08-01T12:00:00Z".parse().unwrap()
}

pub(super) fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
}

pub(super) fn stored<T>(key: String, value: T) -> Stored<T> {
    Stored { key, mod_revision: 5, value: Ok(Arc::new(value)) }
}

pub(super) fn scenarios() -> Vec<Value> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/scenarios-queues.jsonl.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn entry_json(e: &Value) -> Value {
    let mut entry = e.clone();
    let fields = entry.as_object_mut().unwrap();
    let age = fields.remove("age_s").unwrap().as_i64().unwrap();
    fields.insert("last_transition_time".to_owned(), json!(after(now(), -age).to_string()));
    if let Some(left) = fields.remove("backoff_in_s") {
        let until = after(now(), left.as_i64().unwrap());
        fields.insert("drain_backoff_expire".to_owned(), json!(until.to_string()));
    }
    let index = fields["index"].as_u64().unwrap();
    fields.insert("index".to_owned(), json!(index.to_string()));
    entry
}

fn store(input: &Value) -> StoreView {
    let mut store = StoreView { synced: true, last_seen: BOOT, revision: 5, ..StoreView::default() };
    // CKE queries no etcd members
    store.policy =
        Some(stored("cketerm/policy".to_owned(), Policy { etcd_members: EtcdMembers::None, ..Policy::default() }));
    let node =
        |address: String, control_plane| Node { address: Address::new(address), control_plane, ..Node::default() };
    let mut nodes: Vec<Node> = strings(&input["control_planes"]).into_iter().map(|a| node(a, true)).collect();
    nodes.extend(strings(&input["workers"]).into_iter().map(|a| node(a, false)));
    let reboot: Reboot = serde_json::from_value(input["reboot_config"].clone()).unwrap();
    let repair = repair_section(input);
    let cluster = Cluster { name: "recorded".to_owned(), nodes, reboot, repair, ..Cluster::default() };
    let members = Members::of(&cluster);
    store.cluster = Some(stored("cluster".to_owned(), Definition { cluster, members }));
    let limit = input["maximum_unreachable_nodes_for_reboot"].as_i64().unwrap();
    store.constraints = Some(stored(
        "constraints".to_owned(),
        Constraints { maximum_unreachable_nodes_for_reboot: limit, ..Constraints::default() },
    ));
    if input["reboot_enabled"] == json!(false) {
        store.reboots.switch = Switch { raw: Some("true".to_owned()), mod_revision: 3 };
    }
    for e in input["reboots"].as_array().unwrap() {
        let entry: RebootEntry = serde_json::from_value(entry_json(e)).unwrap();
        let id = EntryId::reboot(entry.index);
        if e["status"] == "rebooting" {
            store.attempts.insert((id, 1), stored(format!("attempts/{id}/1"), attempt(id, &entry.node)));
        }
        store.reboots.entries.insert(entry.index, stored(format!("reboots/data/{:016x}", entry.index), entry));
    }
    if input["repair_enabled"] == json!(false) {
        store.repairs.switch = Switch { raw: Some("true".to_owned()), mod_revision: 3 };
    }
    for e in input["repairs"].as_array().unwrap() {
        let entry: RepairEntry = serde_json::from_value(entry_json(e)).unwrap();
        let id = EntryId::repair(entry.index);
        if entry.claims_machine() && entry.step_status == StepStatus::Watching {
            // "watching" means that the command succeeded; the watch time counts from the transition.
            let outcome = Outcome {
                end: Ended::Exit(0),
                at: entry.last_transition_time.unwrap(),
                stdout: String::new(),
                stderr: String::new(),
            };
            let ended = Attempt { step: Some(entry.step), outcome: Some(outcome), ..attempt(id, &entry.address) };
            store.attempts.insert((id, 1), stored(format!("attempts/{id}/1"), ended));
        }
        store.repairs.entries.insert(entry.index, stored(format!("repairs/data/{:016x}", entry.index), entry));
    }
    store
}

/// The recorded operations of `type1`, with commands.
fn repair_section(input: &Value) -> Repair {
    let operations = input["repair_operations_of_type1"].as_object().unwrap().iter().map(|(name, steps)| {
        let mut steps = steps.clone();
        for step in steps.as_array_mut().unwrap() {
            step["repair_command"] = json!(["repair"]);
        }
        json!({"operation": name, "repair_steps": steps, "health_check_command": ["health"]})
    });
    let mut section = input["repair_config"].clone();
    section["repair_procedures"] =
        json!([{"machine_types": ["type1"], "repair_operations": operations.collect::<Vec<_>>()}]);
    serde_json::from_value(section).unwrap()
}

fn attempt(id: EntryId, address: &str) -> Attempt {
    Attempt {
        id: format!("{id}-1"),
        entry: id,
        number: 1,
        step: None,
        success: false,
        machine_type: None,
        operation: None,
        address: Address::new(address),
        node: Some(NodeName::new(address)),
        control_plane: false,
        lease: LEASE,
        host: "here".to_owned(),
        argv: vec!["reboot".to_owned(), address.to_owned()],
        bound_seconds: 30,
        boot_id: Some("before".to_owned()),
        not_ready: false,
        node_uid: None,
        start: after(now(), -60),
        drain_start: None,
        forced: false,
        ordered_by: None,
        done_by: None,
        folded: 0,
        outcome: Some(Outcome {
            end: Ended::Exit(0),
            at: after(now(), -55),
            stdout: String::new(),
            stderr: String::new(),
        }),
    }
}

fn kube(input: &Value, store: &StoreView) -> KubeView {
    let mut kube = KubeView { rights_known: true, ..KubeView::default() };
    for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets", "endpoints"] {
        kube.sources.insert(
            source.to_owned(),
            SourceState { synced: true, last_seen: BOOT, fresh_as_of: BOOT, error: None, forbidden: false },
        );
    }
    let (unreachable, marked) = (strings(&input["unreachable"]), strings(&input["cordoned_with_annotation"]));
    let (empty, booted) =
        (strings(&input["nodes_without_pods_and_volumes"]), strings(&input["nodes_with_boot_check_true"]));
    for address in strings(&input["control_planes"]).into_iter().chain(strings(&input["workers"])) {
        let in_work = store.reboots.entries.values().filter_map(Stored::get).find(|e| {
            e.node == address.as_str() && matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting)
        });
        let repairs = store.repairs.entries.values().filter_map(Stored::get);
        let in_repair = repairs
            .into_iter()
            .find(|e| e.address == address.as_str() && e.claims_machine())
            .map(|e| EntryId::repair(e.index));
        let owner = in_work.map(|e| EntryId::reboot(e.index)).or(in_repair).map(|entry| Owner {
            lease: LEASE,
            entry,
            schedulable_before: true,
            uid: "uid".to_owned(),
            boot_id: "before".to_owned(),
            taken_over_rebooting: false,
            called_done: false,
            since: None,
            recordoned: 0,
        });
        kube.put_node(NodeRow {
            name: NodeName::new(address.clone()),
            uid: "uid".to_owned(),
            resource_version: "1".to_owned(),
            addresses: vec![Address::new(address.clone())],
            unschedulable: owner.is_some() || marked.contains(&address),
            // An unreachable machine whose recorded boot check is true has recovered.
            ready: !unreachable.contains(&address),
            boot_id: if booted.contains(&address) { "after" } else { "before" }.to_owned(),
            cke_mark: marked.contains(&address),
            owner: owner.map(Ok),
            ..NodeRow::default()
        });
        let mut pods = NodePods { synced: true, fresh_as_of: BOOT, ..NodePods::default() };
        if !empty.contains(&address) {
            let pod = PodRow {
                namespace: "a".to_owned(),
                name: "p".to_owned(),
                uid: address.clone(),
                node: NodeName::new(address.clone()),
                phase: "Running".to_owned(),
                ..PodRow::default()
            };
            pods.pods.insert(pod.uid.clone(), Arc::new(pod));
        }
        kube.pods.insert(NodeName::new(address), pods);
    }
    kube
}

pub(super) fn snapshot(input: &Value) -> Snapshot {
    let store = store(input);
    let kube = kube(input, &store);
    let booted = strings(&input["nodes_with_boot_check_true"]);
    let mut snap = Snapshot {
        engine: Engine {
            host: "here".to_owned(),
            lease: LEASE,
            leading: Some(Leading {
                key: "leader//7".to_owned(),
                create_revision: 2,
                since: BootTime::ZERO,
                acknowledged: BootTime::ZERO,
            }),
            ttl: 60,
            ..Engine::default()
        },
        ..Snapshot::default()
    };
    for address in strings(&input["control_planes"]) {
        snap.probes.insert(
            Address::new(address),
            Probe {
                last_good: Some(BOOT),
                good_since: Some(BootTime::ZERO),
                error: None,
                not_known: None,
                url: "u".to_owned(),
            },
        );
    }
    for stored in store.reboots.entries.values() {
        let entry = stored.get().unwrap();
        let mut work = Work::default();
        // The evictions of a drain in progress were sent and accepted: remaining pods are terminating.
        work.drain.accepted = true;
        let yes = booted.iter().any(|address| entry.node == address.as_str());
        work.check =
            Some((BOOT - Seconds::new(0.5), if yes { CheckAnswer::Yes } else { CheckAnswer::No("false".to_owned()) }));
        // "true" means booted and settled.
        work.recovered_since = yes.then_some(BootTime::ZERO);
        snap.work.insert(EntryId::reboot(entry.index), work);
    }
    let healthy = strings(&input["machines_with_health_check_true"]);
    for stored in store.repairs.entries.values() {
        let entry = stored.get().unwrap();
        let mut work = Work::default();
        work.drain.accepted = true;
        let yes = healthy.iter().any(|address| entry.address == address.as_str());
        work.check = Some((BOOT, if yes { CheckAnswer::Yes } else { CheckAnswer::No("false".to_owned()) }));
        work.recovered_since = yes.then_some(BootTime::ZERO);
        snap.work.insert(EntryId::repair(entry.index), work);
    }
    (snap.store, snap.kube) = (Arc::new(store), Arc::new(kube));
    snap
}
